"""Reports and signatures: what is refused before anything is rendered or signed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bundles import Draft, files_of, healthy, of_vendor

from appliance.errors import EvidenceError, UsageError
from appliance.records.json import sha256
from appliance.signing import keys
from appliance.signing.keys import Key
from appliance.storage import bundle
from appliance.verbs import publish
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
