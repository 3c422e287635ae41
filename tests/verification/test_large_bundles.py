"""A large bundle takes little more memory than its journal has bytes, and what it says is followed.

Not timed here: benchmarks/ has the times. The journal is mapped from its file, and the file may
change while it is read.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.large_runs import sealed_large

from appliance.errors import EvidenceError, UsageError
from appliance.ipc import confined_child
from appliance.records.journal import Line
from appliance.signing import keys
from appliance.storage import bundle
from appliance.storage.plain_files import Folder
from appliance.verification import evidence_path
from appliance.verification.terms import Terms
from appliance.verification.verify import read_confined, verify_confined

SMALL, LARGE = 2**22, 2**24  # bytes of journals, about
MOST = 1.6  # bytes of memory for a byte of the journal, beside what a small one takes
MEASURE = """
import resource, sys
from pathlib import Path
from appliance.storage import bundle
from appliance.verification.terms import Terms
from appliance.verification.verify import verify_confined
bundle.MAPPED_BYTES = 2**20
for path in sys.argv[1:]:
    result = verify_confined(Path(path), Terms(allow_development=True))
    assert result.verdict == "ACCEPTED", result.faults
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, key = tmp_path_factory.mktemp("large"), keys.development_key()
    return [sealed_large(folder / str(size), size, key) for size in (SMALL, LARGE)]


@pytest.fixture(scope="module")
def zips(runs: list[Path]) -> list[Path]:
    """The runs in zips: the small one packed, the large one as it is."""
    kinds = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)
    return [
        zipped(run.with_suffix(".zip"), run, kind) for run, kind in zip(runs, kinds, strict=True)
    ]


def zipped(path: Path, run: Path, kind: int) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for file in sorted(run.iterdir()):
            archive.write(file, f"{run.name}/{file.name}")
    return path


@pytest.mark.parametrize("form", ["runs", "zips"])
def test_memory_grows_by_little_more_than_a_byte_for_each_of_the_journal(
    form: str, runs: list[Path], request: pytest.FixtureRequest
) -> None:
    words = [sys.executable, "-c", MEASURE, *map(str, request.getfixturevalue(form))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    small, large = map(int, done.stdout.split())
    sizes = [(run / bundle.JOURNAL).stat().st_size for run in runs]
    assert large - small < MOST * (sizes[1] - sizes[0])
    assert sizes[1] > 2 * sizes[0]


def test_the_journal_of_a_zip_needs_a_folder_that_has_the_room(
    zips: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MAPPED_BYTES", 2**20)
    terms = Terms(allow_development=True)
    says = r"the journal of .* has \d+ MB, and .* cannot take it \(%s\): name a folder with room by"
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    with pytest.raises(UsageError, match=says % "No such file or directory"):
        verify_confined(zips[0], terms)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, before[1]))
    try:
        with pytest.raises(UsageError, match=says % "File too large"):
            verify_confined(zips[0], terms)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert verify_confined(zips[0], terms).verdict == "ACCEPTED"
    assert not list(tmp_path.iterdir())


def test_a_zip_whose_journal_is_not_as_long_as_its_list_says_is_refused(
    zips: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer or shorter than its room; and it may be exchanged when the room is made."""
    monkeypatch.setattr(bundle, "MAPPED_BYTES", 2**20)
    terms = Terms(allow_development=True)
    with zipfile.ZipFile(zips[0]) as archive:
        entry = next(one for one in archive.infolist() if one.filename.endswith(bundle.JOURNAL))
    said = entry.file_size.to_bytes(4, "little")
    data = zips[0].read_bytes()
    for size in (entry.file_size + 1, entry.file_size - 1, 2**21):
        path = tmp_path / f"{size}.zip"
        path.write_bytes(data.replace(said, size.to_bytes(4, "little")))
        (fault, *_) = verify_confined(path, terms).faults
        assert fault == evidence_path.CUT_SHORT
    honest = evidence_path.journal_room(zips[0], terms.total)
    assert honest is not None
    monkeypatch.setattr(evidence_path, "journal_room", lambda *_: honest)
    (fault, *_) = verify_confined(zips[1], terms).faults
    assert fault == evidence_path.CUT_SHORT


def test_a_mapped_journal_is_as_one_that_was_read(
    runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, terms = runs[0], Terms(allow_development=True)
    whole = bundle.files_of(path)
    monkeypatch.setattr(bundle, "MAPPED_BYTES", 1)
    mapped = bundle.files_of(path, is_mapped=True)
    assert bundle.digest_of(mapped[bundle.JOURNAL]) == bundle.digest_of(whole[bundle.JOURNAL])
    assert bundle.lines_of(mapped) == bundle.lines_of(whole)
    assert read_confined(path, terms)[1] == whole


def test_of_a_run_that_does_not_verify_its_verdict_alone_is_handed_over(
    runs: list[Path], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(runs[0], tmp_path / "run"))
    with (copy / bundle.JOURNAL).open("ab") as file:
        file.write(b"\n")
    verification, files = read_confined(copy, Terms(allow_development=True))
    assert verification.faults
    assert files == {bundle.VERDICT: (runs[0] / bundle.VERDICT).read_bytes()}


def test_large_journal_is_parsed_only_of_a_signer_who_is_trusted(
    runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever signs gigabytes with a key of his own takes no time with them."""
    at_most = 2**20
    whole = verify_confined(runs[0], Terms(unknown_journal=LARGE))
    assert {line.name for line in whole.checks if line.status == "fail"} == {"signer"}
    assert {line.name for line in whole.checks if line.status == "not_done"} <= {"attempt"}
    monkeypatch.setattr(bundle, "followed", no_reader)
    for path in runs:
        verification = verify_confined(path, Terms(unknown_journal=at_most))
        status = {line.name: line.status for line in verification.checks}
        assert [name for name in status if status[name] == "fail"] == ["signer"]
        assert {status[name] for name in ("chain", "conduct", "verdict", "facts")} == {"not_done"}
        chain = next(line for line in verification.checks if line.name == "chain")
        assert chain.sentence == (
            "a journal of more than 1 MiB is parsed only of a signer that you trust: name the "
            "certificate with --trust"
        )
        assert (verification.exit_code, verification.verdict) == (4, None)


def no_reader(*_: object) -> Iterator[Line]:
    message = "the journal was parsed"
    raise AssertionError(message)


def test_a_journal_that_is_changed_while_it_is_read_is_refused(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write in the folder puts another chain there once the digest is compared."""
    copy = tmp_path / "run"
    copy.mkdir()
    for file in runs[0].iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(bundle, "MAPPED_BYTES", 1)
    honest = bundle.followed

    def followed(data: bytes, *rest: Any) -> Iterator[Line]:
        return honest(data[: data.rfind(b"\n", 0, len(data) - 1) + 1], *rest)

    monkeypatch.setattr(bundle, "followed", followed)
    (fault, *_) = verify_confined(copy, Terms(allow_development=True)).faults
    assert fault == "journal.jsonl was changed while it was read: verify it once more"


def test_a_journal_that_is_cut_short_while_it_is_mapped_ends_the_child_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / bundle.JOURNAL).write_bytes(b"x" * 10**6)
    with Folder.at(tmp_path) as folder:
        data = folder.map(bundle.JOURNAL, 10**7)
    (tmp_path / bundle.JOURNAL).write_bytes(b"")
    with pytest.raises(EvidenceError, match=r"the run was given up: what reads it ended \(signal"):
        confined_child.call("the run", lambda: data[-1:], confined_child.Limits(seconds=5))
