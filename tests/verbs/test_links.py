"""Links under every name that a verb writes, and a process that puts them there meanwhile.

What lies outside the folder is neither written, removed, given away nor read, whatever comes of the
verb itself.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest
from support.bundles import files_of, healthy, html, pdf
from support.untouched import untouched

from appliance.errors import BenchError, EvidenceError, OutputError
from appliance.records.dataset import DataFile, DataSet, Datasets
from appliance.signing import keys
from appliance.storage import bundle
from appliance.verbs import datasets, publish, run_begin, start

ROOT = Path(__file__).parents[2]
KEPT = b"a secret of the auditor's own"
TEXT = b"a line of data\n" * 99
RUN = "20261121T120000Z-abcdef"
WRITTEN = (bundle.SIGNER, bundle.STATEMENT, *bundle.RENDERINGS, bundle.REPORT)
OWNER = 12_345
SWAPS = """
import os, sys, time
victim, *names = sys.argv[1:]
print("begun", flush=True)
while True:
    for name in names:
        try:
            os.symlink(victim, name + ".link")
            os.rename(name + ".link", name)
            os.unlink(name)
        except OSError:
            pass
    time.sleep(0.001)  # so that what is written is there at times
"""
MANIFEST = Datasets(
    dataset=(
        DataSet(
            name="lines",
            summary="lines",
            licence="ours",
            source="here",
            used_by=("w",),
            file=(
                DataFile(
                    name="lines.txt",
                    urls=("http://127.0.0.1:1/nothing",),
                    sha256=hashlib.sha256(TEXT).hexdigest(),
                    size_bytes=len(TEXT),
                ),
            ),
        ),
    )
)


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file of the reader in a folder of his, which both must be as they were."""
    with untouched(tmp_path, KEPT) as path:
        yield path


@contextmanager
def swapping(victim: Path, *names: Path) -> Iterator[None]:
    """A process that replaces names by links, and removes them, without an end."""
    words = [sys.executable, "-c", SWAPS, str(victim), *map(str, names)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as racer:
        assert racer.stdout is not None
        assert racer.stdout.readline() == b"begun\n"
        try:
            yield
        finally:
            racer.kill()


# ------------------------------------------------------------------ report and sign


@pytest.fixture(scope="module")
def unsigned() -> dict[str, bytes]:
    made = files_of(healthy(), keys.development_key())
    return {name: data for name, data in made.items() if name not in WRITTEN}


def test_nobody_who_races_the_signer_has_anything_else_written_or_read(
    unsigned: dict[str, bytes], victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pages(_: bundle.Bundle, carried: Mapping[str, bytes]) -> dict[str, bytes]:
        return {bundle.HTML: html(carried), bundle.PDF: pdf(carried)}

    monkeypatch.setattr(publish, "_rendered", pages)  # quick ones, so that there are many
    folder, key = tmp_path / "run", keys.development_key()
    for name, data in unsigned.items():
        bundle.write(folder / name, data)
    with swapping(victim, *(folder / name for name in bundle.RENDERINGS)):
        for _ in range(12):
            with suppress(BenchError):
                publish.report(folder, keys.signer_record(key, "tester"))
                publish.sign(folder, key, "tester")
            (folder / bundle.REPORT).unlink(missing_ok=True)
    for path in folder.iterdir():
        assert path.is_symlink() or KEPT not in path.read_bytes()


# ------------------------------------------------------------------ what the host is handed


@pytest.fixture
def own() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root hands files over")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("how", [Path.symlink_to, Path.hardlink_to], ids=["link", "hard link"])
@pytest.mark.parametrize("name", bundle.FINISHED_FILES)
def test_no_file_of_roots_is_handed_over_through_a_link(
    name: str, how: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "run"
    victim.write_bytes(KEPT)
    folder.mkdir()
    for other in bundle.FINISHED_FILES:
        (folder / other).write_bytes(b"x")
    (folder / name).unlink()
    how(folder / name, victim)
    os.chown(folder, OWNER, OWNER)
    with suppress(EvidenceError):
        start._hand_over(folder)
    assert victim.stat().st_uid == 0
    assert {(folder / one).lstat().st_uid for one in bundle.FINISHED_FILES} <= {0, OWNER}


@pytest.mark.usefixtures("own")
def test_nobody_who_races_the_host_is_given_another_file(victim: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    os.chown(folder, OWNER, OWNER)
    with swapping(victim, *(folder / name for name in bundle.FINISHED_FILES)):
        for _ in range(200):
            (folder / bundle.PLAN).unlink(missing_ok=True)
            with suppress(OSError):
                (folder / bundle.PLAN).write_bytes(b"x") if not (
                    folder / bundle.PLAN
                ).is_symlink() else None
            with suppress(EvidenceError):
                start._hand_over(folder)


def test_run_of_the_host_is_no_link_to_another(victim: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RUN).symlink_to(victim.parent)
    assert start._container_of(tmp_path / "out" / RUN) is None
    assert [*start._folders(tmp_path / "out")] == []


# ------------------------------------------------------------------ where a run works


@pytest.mark.parametrize(
    "name", ["../../elsewhere", "..", "", ".", "/etc", f"{RUN}/..", f"{RUN}\n", "x" * 300]
)
def test_no_run_works_and_tidies_up_elsewhere(name: str, victim: Path, tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="cannot be called"):
        run_begin.tidy(run_begin.work_folder(tmp_path / "out" / RUN, name))
    assert victim.exists()


@pytest.mark.parametrize("name", ["", RUN])
def test_a_link_is_no_place_to_work_in(name: str, victim: Path, tmp_path: Path) -> None:
    above = tmp_path / "out" / ".work"
    (above / name).parent.mkdir(parents=True)
    (above / name).symlink_to(victim.parent)
    with pytest.raises(OutputError, match="is a link"):
        run_begin.work_folder(tmp_path / "out" / RUN, RUN)
    run_begin.tidy(above / RUN)
    assert (above / name).is_symlink()


@pytest.fixture
def entry() -> ModuleType:
    spec = util.spec_from_file_location("entry_of_images", ROOT / "scripts" / "entry.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_container_works_in_no_folder_of_another(
    entry: ModuleType, victim: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    place = entry.private_folder(out)
    assert place.parent == out / ".work"
    assert place.stat().st_mode & 0o777 == 0o700
    place.rmdir()
    place.parent.rmdir()
    place.parent.symlink_to(victim.parent)
    assert entry.private_folder(out) is None


# ------------------------------------------------------------------ data sets


def fetched(to: Path, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    (mirror / "lines").mkdir(parents=True, exist_ok=True)
    (mirror / "lines" / "lines.txt").write_bytes(TEXT)
    datasets.fetch(["lines"], to, mirror=mirror, manifest=MANIFEST)


@pytest.mark.parametrize("name", ["lines.txt", "lines.txt.partial"])
def test_data_replace_a_link_under_their_names(name: str, victim: Path, tmp_path: Path) -> None:
    place = tmp_path / "to" / "lines"
    place.mkdir(parents=True)
    (place / name).symlink_to(victim)
    fetched(tmp_path / "to", tmp_path)
    assert (place / "lines.txt").read_bytes() == TEXT
    assert [(one.name, one.is_symlink()) for one in place.iterdir()] == [("lines.txt", False)]


def test_data_do_not_go_through_a_link_in_the_place_of_their_folder(
    victim: Path, tmp_path: Path
) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "lines").symlink_to(victim.parent)
    with pytest.raises(OutputError, match="cannot be written"):
        fetched(tmp_path / "to", tmp_path)


def test_nobody_who_races_a_fetch_has_anything_else_written(victim: Path, tmp_path: Path) -> None:
    place = tmp_path / "to" / "lines"
    place.mkdir(parents=True)
    with swapping(victim, place / "lines.txt", place / "lines.txt.partial"):
        for _ in range(60):
            with suppress(BenchError):
                fetched(tmp_path / "to", tmp_path)
