"""Reports and signatures: what is refused before anything is rendered or signed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bundles import Draft, files_of, healthy, of_vendor
from support.program import called

from appliance.errors import EvidenceError, UsageError
from appliance.records.json import sha256
from appliance.signing import keys
from appliance.signing.keys import Key
from appliance.storage import bundle
from appliance.verbs import publish
from appliance.verification.terms import Terms
from appliance.verification.verify import verify
from reports import render
from reports.document.view import view


@pytest.fixture(scope="module")
def key() -> Key:
    return keys.development_key()


def unsigned(folder: Path, draft: Draft, key: Key) -> Path:
    for name, data in files_of(draft, key).items():
        bundle.write(folder / name, data)
    return folder


def test_run_of_devices_of_no_known_vendor_is_not_signed(key: Key, tmp_path: Path) -> None:
    folder = unsigned(tmp_path, of_vendor(healthy(), "faulty.simulated"), key)
    before = set(folder.iterdir())
    with pytest.raises(UsageError, match='cannot be signed: cpu:0 is of the vendor "f'):
        publish.sign(folder, key, "tester")
    assert set(folder.iterdir()) == before


def test_pages_of_a_folder_are_those_of_all_its_lines(key: Key, tmp_path: Path) -> None:
    folder = unsigned(tmp_path, healthy(), key)
    publish.report(folder, keys.signer_record(key, "tester"))
    whole = view(bundle.read(folder, complete=False))
    assert (folder / bundle.HTML).read_bytes() == render.html(whole, {})
    shown = {row.label: row.value for row in whole.evidence}
    lines = (folder / bundle.JOURNAL).read_bytes().splitlines()
    assert shown["Journal head"] == sha256(lines[-1])
    assert shown["Journal"].startswith(f"{len(lines)} lines, ")


def test_journal_that_was_changed_gets_no_pages(key: Key, tmp_path: Path) -> None:
    folder = unsigned(tmp_path, healthy(), key)
    journal = folder / bundle.JOURNAL
    first, *others = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join((first, *others[1:])))
    with pytest.raises(EvidenceError, match="line 2 does not follow line 1"):
        publish.report(folder, keys.signer_record(key, "tester"))
    assert not (folder / bundle.HTML).exists()


@pytest.mark.parametrize("verb", ["report", "sign"])
def test_pages_that_leave_the_journal_out_say_so(
    verb: str, key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = unsigned(tmp_path / "run", healthy(), key)
    for name in (bundle.STATEMENT, bundle.REPORT, *bundle.RENDERINGS):
        (folder / name).unlink(missing_ok=True)
    monkeypatch.setattr(publish, "ATTACHED_BYTES", 2**14)
    done = called(verb, str(folder))
    assert done.returncode == 0, done.stderr
    assert (
        "report.pdf and report.html carry 16 KiB of data at most, so they leave out journal.jsonl ("
        in done.stderr
    )
    assert f"hand over all of {folder}, or a zip of it" in done.stderr
    if verb == "sign":
        alone = verify(folder / bundle.PDF, Terms(allow_development=True))
        assert (alone.exit_code, alone.verdict) == (3, None)


def test_pages_that_carry_all_say_nothing_of_it(key: Key, tmp_path: Path) -> None:
    assert not publish.report(
        unsigned(tmp_path / "run", healthy(), key), keys.signer_record(key, "tester")
    )
