"""Writing into a folder that somebody else can write too: no link there is ever written through."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.builders import a_plan, chain, healthy_events, journal_bytes
from support.bundles import files_of, healthy

from appliance.errors import BenchError, EvidenceError, OutputError, UsageError
from appliance.records.json import sha256, to_json
from appliance.signing import keys
from appliance.signing.keys import Key
from appliance.storage import bundle, input_file, plain_files
from appliance.storage.journal import Journal
from appliance.storage.plain_files import Folder
from appliance.verbs import publish
from appliance.verification.terms import Terms
from appliance.verification.verify import verify

KEPT = b"a file of the auditor's own"
WRITTEN = (bundle.SIGNER, bundle.STATEMENT, *bundle.RENDERINGS, bundle.REPORT)
"""What `report` and `sign` write."""


@pytest.fixture(scope="module")
def key() -> Key:
    return keys.development_key()


@pytest.fixture(scope="module")
def unsigned(key: Key) -> dict[str, bytes]:
    return {name: data for name, data in files_of(healthy(), key).items() if name not in WRITTEN}


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file that must be as it was when the test ends."""
    path = tmp_path / "victim"
    path.write_bytes(KEPT)
    yield path
    assert path.read_bytes() == KEPT


def run_folder(place: Path, files: dict[str, bytes]) -> Path:
    folder = place / "run"
    for name, data in files.items():
        bundle.write(folder / name, data)
    return folder


def test_report_and_sign_write_through_no_link_of_any_name(
    unsigned: dict[str, bytes], key: Key, victim: Path, tmp_path: Path
) -> None:
    """Links wait under every name that is written, and under those of earlier versions."""
    folder = run_folder(tmp_path, unsigned)
    for name in WRITTEN:
        for link in (f".unfinished-{name}", f"{plain_files.UNFINISHED}0-{name}", f".{name}"):
            (folder / link).symlink_to(victim)
    publish.report(folder, keys.signer_record(key, "tester"))
    for name in bundle.RENDERINGS:
        (folder / name).unlink()
    publish.sign(folder, key, "tester")
    for name in WRITTEN:
        (folder / f".{name}").unlink()
        assert not (folder / name).is_symlink()
    assert verify(folder, Terms(allow_development=True)).exit_code == 0


@pytest.mark.parametrize("name", [*WRITTEN, bundle.VERDICT, bundle.JOURNAL, "logs"])
def test_link_under_a_final_name_is_refused_before_anything_is_signed(
    name: str, unsigned: dict[str, bytes], key: Key, victim: Path, tmp_path: Path
) -> None:
    folder = run_folder(tmp_path, unsigned)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(victim if name != "logs" else tmp_path)
    with pytest.raises(BenchError):
        publish.sign(folder, key, "tester")
    assert (folder / name).is_symlink()


def test_folder_that_is_a_link_is_signed_only_where_a_person_named_it(
    unsigned: dict[str, bytes], key: Key, tmp_path: Path
) -> None:
    folder = run_folder(tmp_path, unsigned)
    link = tmp_path / "latest"
    link.symlink_to(folder)
    with pytest.raises(UsageError, match="no folder"):
        publish.sign(link, key, "tester", follow=False)
    assert not (folder / bundle.SIGNER).exists()


def test_whoever_swaps_links_while_the_host_writes_reaches_nothing(
    victim: Path, tmp_path: Path
) -> None:
    """The folder is moved, a link stands in its place, and links come under the name written."""
    folder, moved, elsewhere = tmp_path / "run", tmp_path / "moved", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    ends = threading.Event()

    def race() -> None:
        while not ends.is_set():
            (elsewhere / "link").symlink_to(victim)
            (elsewhere / "link").replace(moved / "report.html")

    with Folder.at(folder) as opened:
        folder.rename(moved)
        folder.symlink_to(elsewhere)
        racer = threading.Thread(target=race)
        racer.start()
        try:
            for _ in range(300):
                opened.write("report.html", b"a page")
        finally:
            ends.set()
            racer.join()
    assert not (elsewhere / "report.html").exists()
    assert sorted(path.name for path in moved.iterdir()) == ["report.html"]


@pytest.mark.parametrize("how", ["link", "hard link", "fifo"])
def test_run_goes_on_with_no_journal_of_somebody_else(how: str, tmp_path: Path) -> None:
    plan = a_plan()
    first = sha256(to_json(plan))
    lines = journal_bytes(chain(healthy_events(plan), first))
    other, path = tmp_path / "victim.jsonl", tmp_path / bundle.JOURNAL
    other.write_bytes(lines + b"half a line")
    if how == "link":
        path.symlink_to(other)
    elif how == "hard link":
        os.link(other, path)
    else:
        os.mkfifo(path)
    with pytest.raises((EvidenceError, OutputError)):
        Journal.reopen(path, first)
    assert other.read_bytes() == lines + b"half a line"


# ------------------------------------------------------------------ reading


@pytest.mark.parametrize("name", [*bundle.FINISHED_FILES, ".hidden", "notes.txt"])
def test_link_under_any_name_is_not_followed(name: str, key: Key, tmp_path: Path) -> None:
    """Not even to a file that is what it should be."""
    files = {**dict.fromkeys((*WRITTEN, name), b"x"), **files_of(healthy(), key)}
    folder = run_folder(tmp_path, files)
    (folder / name).rename(tmp_path / "original")
    (folder / name).symlink_to(tmp_path / "original")
    (fault,) = verify(folder, Terms(allow_development=True)).faults
    assert fault == f"{name!r} in the bundle is not a plain file; remove it"


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/tty", "fifo"])
def test_what_a_person_names_is_a_plain_file(path: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    place = tmp_path / path  # an absolute one stays as it is
    with pytest.raises(EvidenceError, match="neither a folder nor a plain file"):
        verify(place)
    with pytest.raises(UsageError, match="not a plain file"):
        input_file.read(place, fix="name another")
