"""The bundle's files: read whole and strictly, written all or not at all, described by schemas."""

import errno
import json
import os
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from support.bundles import CRITERIA, SYSTEM, files_of, healthy, sealed

from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.records.json import to_data
from appliance.signing.keys import Key, development_key
from appliance.storage import bundle
from appliance.storage.suite_file import list_suites, load_suite
from appliance.verification import verify
from appliance.verification.terms import Terms

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "appliance" / "schemas"


@pytest.fixture(scope="module")
def key() -> Key:
    return development_key()


@pytest.fixture(scope="module")
def made(key: Key) -> dict[str, bytes]:
    return files_of(healthy(), key)


@pytest.fixture
def folder(made: dict[str, bytes], tmp_path: Path) -> Path:
    """An unsigned run: everything that `report` and `sign` begin with."""
    for name, data in made.items():
        bundle.write(tmp_path / "run" / name, data)
    return tmp_path / "run"


# ------------------------------------------------------------------ reading


def test_finished_bundle_is_read_whole(key: Key, tmp_path: Path) -> None:
    draft = healthy()
    result = bundle.read(sealed(tmp_path, draft, key))
    assert result.plan == draft.plan
    assert result.system == SYSTEM
    assert [line.event for line in result.lines][1:] == list(draft.events)[1:]
    assert result.verdict is not None
    assert result.verdict.verdict == "ACCEPTED"
    assert bundle.STATEMENT not in result.data
    assert set(result.data) == set(result.files) - {
        bundle.STATEMENT,
        bundle.HTML,
        bundle.PDF,
        bundle.REPORT,
    }


def test_unsigned_run_is_read_when_that_is_asked_for(folder: Path) -> None:
    (folder / ".unfinished-report.html").write_bytes(b"half")
    assert bundle.read(folder, complete=False).verdict is not None
    with pytest.raises(EvidenceError, match=r"report\.dsse\.json.* missing"):
        bundle.read(folder)


def test_run_without_verdict_and_signer_is_read_too(folder: Path) -> None:
    (folder / bundle.VERDICT).unlink()
    (folder / bundle.SIGNER).unlink()
    result = bundle.read(folder, complete=False)
    assert (result.verdict, result.signer) == (None, None)


@pytest.mark.parametrize("name", bundle.RUN_FILES)
def test_missing_file_is_named(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(EvidenceError, match=f"{name} missing"):
        bundle.read(folder, complete=False)


def a_link(folder: Path) -> None:
    target = folder.parent / "elsewhere"
    (folder / bundle.PEAKS).rename(target)
    (folder / bundle.PEAKS).symlink_to(target)


def a_linked_folder_of_logs(folder: Path) -> None:
    (folder.parent / "logs").mkdir()
    (folder / "logs").symlink_to(folder.parent / "logs")


def a_folder(folder: Path) -> None:
    (folder / "more").mkdir()


def a_folder_in_logs(folder: Path) -> None:
    (folder / "logs" / "more").mkdir(parents=True)


def a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "order.toml")


def another_file(folder: Path) -> None:
    (folder / "notes.txt").write_text("looks fine")


def a_hidden_log(folder: Path) -> None:
    (folder / "logs").mkdir()
    (folder / "logs" / ".x.stdout").write_bytes(b"")


def a_file_that_is_no_log(folder: Path) -> None:
    (folder / "logs").mkdir()
    (folder / "logs" / "verdict.json").write_bytes(b"{}")


def a_repeated_key(folder: Path) -> None:
    data = (folder / bundle.VERDICT).read_bytes()
    (folder / bundle.VERDICT).write_bytes(data.replace(b"{", b'{"verdict":"ACCEPTED",', 1))


def an_unknown_key(folder: Path) -> None:
    data = (folder / bundle.SYSTEM).read_bytes()
    (folder / bundle.SYSTEM).write_bytes(data.replace(b"{", b'{"also":1,', 1))


def white_space(folder: Path) -> None:
    data = (folder / bundle.PLAN).read_bytes()
    (folder / bundle.PLAN).write_bytes(data + b"\n")


def no_criteria(folder: Path) -> None:
    (folder / bundle.CRITERIA).write_bytes(CRITERIA.replace(b"kind", b"sort", 1))


@pytest.mark.parametrize(
    "spoil",
    [
        a_link,
        a_linked_folder_of_logs,
        a_folder,
        a_folder_in_logs,
        a_pipe,
        another_file,
        a_hidden_log,
        a_file_that_is_no_log,
        a_repeated_key,
        an_unknown_key,
        white_space,
        no_criteria,
    ],
)
def test_what_does_not_belong_is_refused_in_a_sentence(
    spoil: Callable[[Path], None], folder: Path
) -> None:
    bundle.read(folder, complete=False)
    spoil(folder)
    with pytest.raises(EvidenceError) as caught:
        bundle.read(folder, complete=False)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_folder_that_is_not_there_is_the_users_to_put_right(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="no folder"):
        bundle.read(tmp_path / name)


@pytest.mark.parametrize("name", ["../plan.json", "/etc/passwd", "logs/../plan.json", "logs/"])
def test_names_that_lead_elsewhere_are_refused(name: str, made: dict[str, bytes]) -> None:
    with pytest.raises(EvidenceError, match="should not have"):
        bundle.read_files({**made, name: b""}, complete=False)


def test_log_of_a_launch_has_a_plain_name(made: dict[str, bytes]) -> None:
    name = bundle.log_name("resnet50@cpu:0/3", "stderr")
    assert name == "logs/resnet50-cpu-0.3.stderr"
    assert name in bundle.read_files({**made, name: b"oops"}, complete=False).data


# ------------------------------------------------------------------ writing


def test_written_file_replaces_the_old_one(tmp_path: Path) -> None:
    bundle.write(tmp_path / "new" / "plan.json", b"old")
    bundle.write(tmp_path / "new" / "plan.json", b"new")
    assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == {
        "plan.json": b"new"
    }


def test_full_disk_leaves_the_old_file_and_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle.write(tmp_path / "plan.json", b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left on device") as caught:
        bundle.write(tmp_path / "plan.json", b"new")
    assert "make room" in str(caught.value)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="cannot be written"):
        bundle.write(tmp_path / "file" / "plan.json", b"")


# ------------------------------------------------------------------ schemas


def test_shipped_schemas_are_those_of_the_records() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "write_schemas.py"))
    shipped = {path.name: path.read_bytes() for path in SCHEMAS.iterdir()}
    assert shipped == script["schemas"](), "run `make generate`"


def validator(name: str) -> Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{name}.json").read_bytes())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_files_of_a_bundle_follow_their_schemas(made: dict[str, bytes]) -> None:
    for name in ("plan", "system", "baselines", "peaks", "signer", "verdict"):
        document = json.loads(made[f"{name}.json"])
        validator(name).validate(document)
        for key in document:
            cut = {other: value for other, value in document.items() if other != key}
            assert not validator(name).is_valid(cut), f"{name}.json without {key}"
        assert not validator(name).is_valid({**document, "also": 1})
    line = validator("journal-line")
    for text in made[bundle.JOURNAL].splitlines():
        line.validate(json.loads(text))


def test_other_documents_follow_their_schemas(key: Key, tmp_path: Path) -> None:
    suite, _ = load_suite(list_suites()[0])
    validator("suite").validate(to_data(suite))
    verification = verify.verify(sealed(tmp_path, healthy(), key), Terms(allow_development=True))
    validator("verification").validate(verify.to_document(verification))
