"""Whether a folder takes a run is shown by writing; `accept` and `doctor` say the same."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import a_case, a_plan
from support.program import called

from appliance.container.doctor_rows import Place
from appliance.errors import OutputError
from appliance.generator.words import FILE
from appliance.linux.sysfs import Tree
from appliance.readiness import disk_space
from appliance.readiness.out_folder import check_writable, refusal
from appliance.storage.journal import Journal
from appliance.verbs import doctor

SMALL = 8 * 2**20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB; skips where it may not be mounted, as in most containers."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def doctor_row(folder: Path) -> tuple[str, str]:
    """State and fix of doctor's row on the folder."""
    place = Place(tree=Tree(Path("/")), out=folder, data=None, engine=None, environment={})
    row = next(iter(doctor._room(place)))
    return row.state, row.detected


def test_folder_that_takes_files_is_not_made_and_keeps_nothing(tmp_path: Path) -> None:
    out = tmp_path / "new" / "er"
    assert refusal(out) is None
    assert list(tmp_path.iterdir()) == []
    check_writable(out)
    assert list(out.iterdir()) == []


def test_file_in_the_place_of_a_folder_or_of_its_parent_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(OutputError, match="--out"):
            check_writable(out)


@needs_root
def test_what_permissions_allow_and_the_disk_refuses_is_refused(small_disk: Path) -> None:
    """Root may write into a folder that is mounted for reading, by its permissions alone."""
    (small_disk / "filled").write_bytes(bytes(disk_space.free_bytes(small_disk)))
    reason = f"{small_disk} takes no file more (No space left on device)"
    assert doctor_row(small_disk) == ("missing", reason)
    with pytest.raises(OutputError, match="takes no file more"):
        check_writable(small_disk)
    (small_disk / "filled").unlink()
    assert doctor_row(small_disk)[0] == "ok"
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    state, detected = doctor_row(small_disk)
    assert (state, "Read-only file system" in detected) == ("missing", True)
    with pytest.raises(OutputError, match="is not writable by user 0"):
        check_writable(small_disk)


@needs_root
def test_disk_without_room_for_the_run_is_refused_before_it_begins(small_disk: Path) -> None:
    done = called("accept", "--suite", "smoke", "--vendor", "cpu", "--out", str(small_disk))
    assert done.returncode == 2
    sentence = done.stderr.splitlines()[-1]
    assert f"{small_disk} has 8 MB free and the run may need " in sentence
    assert all(word in sentence for word in ("journal", "pages", "logs", "working folder", "--out"))
    assert list(small_disk.iterdir()) == []


def test_more_launches_and_devices_and_larger_models_need_more_room() -> None:
    least = disk_space.needed(a_plan(a_case(launches=5)))
    more = disk_space.needed(a_plan(a_case(launches=10)))
    assert more.journal - least.journal >= 5 * disk_space.LAUNCH_BYTES
    assert more.pages - least.pages >= disk_space.PAGES_PART * 5 * disk_space.LAUNCH_BYTES
    assert (more.logs, more.work) == (least.logs, least.work)


def test_file_of_a_killed_run_goes_with_the_next_run_and_that_of_a_live_one_stays(
    tmp_path: Path,
) -> None:
    for name in ("killed", "alive", "unknown"):
        folder = tmp_path / ".work" / name / "artifacts" / "disk-cpu-0"
        folder.mkdir(parents=True)
        for file in (FILE, f"unfinished-{FILE}", "first_step_float64.pt"):
            (folder / file).touch()
    for name in ("killed", "alive"):
        (tmp_path / name).mkdir()
    Journal.create(tmp_path / "killed" / "journal.jsonl", "f" * 64).close()
    alive = Journal.create(tmp_path / "alive" / "journal.jsonl", "f" * 64)
    disk_space.drop_left_files(tmp_path)
    alive.close()

    def left(name: str) -> set[str]:
        return {path.name for path in (tmp_path / ".work" / name).rglob("*") if path.is_file()}

    assert left("killed") == {"first_step_float64.pt"}
    assert len(left("alive")) == len(left("unknown")) == 3


def test_files_that_cases_read_back_lie_there_side_by_side() -> None:
    reading = replace(a_case("gemm"), parameters={"file_bytes": 10**9})
    elsewhere = replace(a_case("llama"), parameters={"file_bytes": 10**9, "folder": "/scratch"})
    least = disk_space.needed(a_plan(a_case("bert")))
    both = disk_space.needed(a_plan(reading, replace(reading, id="bert@cpu:0"), elsewhere))
    assert both.work - least.work == 2 * 10**9


@needs_root
def test_run_that_goes_on_needs_no_room_for_what_its_journal_has(small_disk: Path) -> None:
    plan = a_plan(a_case(launches=50))
    room = disk_space.needed(plan)
    resize = ["mount", "-o", f"remount,size={room.total + 2**16}", str(small_disk)]
    subprocess.run(resize, check=True)
    disk_space.check(small_disk, plan)
    (small_disk / "filled").write_bytes(bytes(room.journal // 2))
    with pytest.raises(OutputError, match=r"may need \d+ MB \(.* or name another folder"):
        disk_space.check(small_disk, plan)
    disk_space.check(small_disk, plan, journal_bytes=room.journal // 2)
    with pytest.raises(OutputError, match=r"may need \d+ MB more \(.* then go on again"):
        disk_space.check(small_disk, plan, journal_bytes=room.journal // 4)
