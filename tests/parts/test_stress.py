"""Stress beside the products: a flipped bit of each kind is found, a healthy host is clean."""

from __future__ import annotations

import errno
import math
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from appliance.records.journal import Check
from appliance.stress import aggregates, scratch
from appliance.stress.aggregates import Aggregate, Span, Untrue
from workloads.contract.failures import Unsupported
from workloads.contract.target import Artifacts, Target
from workloads.parts.stress import process, requests
from workloads.parts.stress.copies import Copies
from workloads.parts.stress.disk import REGION, Disk
from workloads.parts.stress.host import AWAKE, Host
from workloads.parts.stress.planted_faults import (
    ADDRESS,
    BIT,
    BadWay,
    StuckMemory,
    WrongProduct,
    flip_on_disk,
)
from workloads.parts.stress.stressors import Request, Stress, checks_of
from workloads.parts.stress.turns import Independent, Load, OutOfRoom, Turn

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("one_thread")


def turns(load: Load, number: int) -> list[Turn]:
    return [load.turn() for _ in range(number)]


def places(made: list[Turn]) -> list[str]:
    return [event.where for turn in made for event in turn.wrong]


def a_host(cls: type[Host] = Host) -> Host:
    return cls.make(seed=3, num_bytes=2**20, threads=1)


def a_disk(folder: Path, regions: int = 2) -> Disk:
    return Disk.make(seed=3, num_bytes=regions * REGION, folder=str(folder))


def copying(cls: type[Copies] = Copies) -> Copies:
    return cls.make(seed=3, device=CPU, share=0.5, num_bytes=2**16)


# ------------------------------------------------------------------ one kind at a time


def test_healthy_host_is_clean_in_every_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.parts.stress.host.PART_BYTES", 2**18)
    host = a_host()
    made = turns(host, len(AWAKE) + 1)
    assert places(made) == []
    assert all(turn.proven > 2**18 and turn.products == 8 for turn in made)


def test_stuck_bit_of_host_memory_is_found_with_its_word() -> None:
    (turn,) = turns(a_host(StuckMemory), 1)
    (event,) = turn.wrong
    assert event.where.startswith(f"host memory, part 1 of 1, memory word {ADDRESS}, test ")
    assert f"flipped bits {BIT}" in event.where
    assert event.num_again > 0


@pytest.mark.parametrize(("number", "name"), [(2, "float64"), (6, "int8")])
def test_flipped_bit_of_a_host_product_is_found_and_gone_in_repeats(number: int, name: str) -> None:
    host = a_host(WrongProduct)
    assert isinstance(host, WrongProduct)
    host.wrong = number
    (event,) = host.turn().wrong
    assert event.where.startswith(f"host product 512 x 512 in {name}, 1 words: ")
    column = 2 if name == "float64" else 5  # of words of 8 bytes, or of 4
    assert f"at row 3, column {column}, wrong again in 0 of 100 repeats" in event.where
    assert event.num_again == 0


def test_healthy_disk_is_clean_over_laps_and_leaves_no_name(tmp_path: Path) -> None:
    disk = a_disk(tmp_path)
    made = turns(disk, 5)
    assert list(tmp_path.iterdir()) == []
    assert made == [Turn(proven=REGION, moved=2 * REGION)] * 5


def test_flipped_bit_on_the_disk_is_found_at_its_place(tmp_path: Path) -> None:
    disk = a_disk(tmp_path)
    turns(disk, 2)
    flip_on_disk(disk, REGION + 808)
    healthy, wrong = turns(disk, 2)
    assert healthy.wrong == []
    (event,) = wrong.wrong
    assert event.where.startswith("disk, lap 2, 1 words: ")
    assert f"at byte {REGION + 808:,}, wrong again in 10 of 10 repeats" in event.where


def test_words_of_an_earlier_lap_are_not_right(tmp_path: Path) -> None:
    disk = a_disk(tmp_path, regions=1)
    disk.turn()
    disk.number = 2  # as if lap 2 had been written, and the disk had lost it
    (event,) = disk.turn().wrong
    assert f"{REGION // 8:,} words" in event.where


def test_disk_that_refuses_to_read_or_write_is_a_fault_and_a_full_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = a_disk(tmp_path)

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    number = errno.EIO
    monkeypatch.setattr(os, "pwrite", refuse)
    (event,) = disk.turn().wrong
    assert event.where.startswith("disk, byte 0 on not written (Input/output error)")
    assert event.num_again > 0
    monkeypatch.setattr(os, "preadv", refuse)
    assert any("no words from byte" in place for place in places(turns(disk, 1)))
    number = errno.ENOSPC
    with pytest.raises(OutOfRoom, match="No space left"):
        disk.turn()


def test_healthy_copies_are_clean() -> None:
    made = turns(copying(), 4)
    assert made == [Turn(proven=2**17, moved=2**17)] * 4


@pytest.mark.parametrize(
    ("wrong", "way", "times"), [((1,), "to the device", 0), ((2, 4, 6), "back", 2)]
)
def test_flipped_bit_of_a_copy_is_found_on_its_way(
    wrong: tuple[int, ...], way: str, times: int
) -> None:
    load = copying(BadWay)
    assert isinstance(load, BadWay)
    load.wrong = wrong
    (event,) = load.turn().wrong
    assert event.where.startswith(f"copy of set 1, on its way {way}: 1 words: ")
    assert event.num_again == times


def test_copy_that_does_not_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    load = copying()
    load.turn()
    monkeypatch.setattr(Copies, "copy", lambda *_: None)
    assert len(load.turn().wrong) == 1


# ------------------------------------------------------------------ a process and its report


class _Steady(Independent):
    """Turns that take no time."""

    asked: str = "some"
    share: float = 1.0
    rate: float | None = None

    def turn(self) -> Turn:
        return Turn(proven=8, moved=16)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        if end >= 0:
            os.close(end)


def test_process_makes_a_turn_and_stops_when_it_is_asked(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"stop\n")
    report = process.work(_Steady(), pipe[0], process.Tally())
    assert report is not None
    (span,) = report["spans"]  # type: ignore[misc]
    assert span[2:] == (8, 16, 0, 0)


def test_process_that_nobody_waits_for_ends_without_a_report() -> None:
    source, end = os.pipe()
    os.close(end)
    assert process.work(_Steady(), source, process.Tally()) is None
    os.close(source)


def test_load_is_held_to_its_share_and_to_its_rate() -> None:
    load = _Steady()
    load.share = 0.25
    assert process._rest(load, Turn(proven=1, moved=100), 10**9) == pytest.approx(3.0)
    load.rate = 10.0
    assert process._rest(load, Turn(proven=1, moved=100), 10**9) == pytest.approx(9.0)


FAULTS = {
    "host": "host memory, part 1 of 1",
    "disk": f"at byte {8 * ADDRESS:,}",
    "copies": "on its way to the device: 1 words",
    "links": "copy from a second process to cpu, 1 words",
}


def test_flipped_bit_of_each_kind_is_found_through_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    disk = tmp_path / "disk"
    disk.mkdir()
    asked = [
        Request(kind="host", seed=3, num_bytes=2**16),
        Request(kind="disk", seed=3, num_bytes=2 * REGION, folder=str(disk)),
        Request(kind="copies", seed=3, num_bytes=2**16),
        Request(kind="links", seed=3, num_bytes=2**16, names="cpu", backend="gloo"),
    ]
    stress = Stress(requests=asked, module="workloads.parts.stress.planted_faults")
    stress.begin()
    by_kind = aggregates.of_checks(stress.checks())
    assert by_kind.keys() == FAULTS.keys()
    for kind, place in FAULTS.items():
        lasting = by_kind[kind][aggregates.LASTING]
        assert place in lasting.detects_what
        assert lasting.error >= 1
        assert aggregates.read(lasting).total.mismatches == lasting.error
    assert list(disk.iterdir()) == []
    assert list(stress.checks()) == []


def test_process_that_is_killed_is_named_and_never_within(tmp_path: Path) -> None:
    stress = Stress(requests=[Request(kind="disk", seed=3, folder=str(tmp_path))])
    stress.begin()
    stress.stressors[0].process.send_signal(signal.SIGKILL)
    lasting, single = stress.checks()
    assert math.isnan(lasting.error)
    assert "ended: killed by signal 9" in lasting.detects_what
    assert not lasting.is_within
    assert single.is_within


def test_disk_without_room_is_unsupported_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "SHARE", 1e-12)
    target = Target(device=CPU, artifacts=Artifacts(tmp_path))
    with pytest.raises(Unsupported, match=f"{tmp_path} has .* bytes free: make .* free there"):
        requests.of(("disk",), target, 3, 1, 2)
    elsewhere = replace(target, scratch=tmp_path / "gone")
    with pytest.raises(Unsupported, match="gone cannot be looked at"):
        requests.of(("disk",), elsewhere, 3, 1, 2)
    with pytest.raises(OutOfRoom, match="cannot be written"):
        a_disk(tmp_path / "gone")


# ------------------------------------------------------------------ what a launch says of it


def an_aggregate(mismatches: int = 0) -> Aggregate:
    spans = (Span(60_001, 30_000, 4096, 8192, 8), Span(1_000, 900, 64, 128, 2, mismatches))
    return Aggregate(
        kind="host", asked="1 thread", spans=spans, places=("here; there",) * mismatches
    )


def a_check(mismatches: int = 0) -> Check:
    return next(iter(checks_of(an_aggregate(mismatches), is_again=False)))


@pytest.mark.parametrize(
    ("mismatches", "is_again", "errors"),
    [(0, False, (0, 0)), (1, False, (0, 1)), (1, True, (1, 0)), (2, False, (2, 0))],
)
def test_two_mismatches_or_one_that_comes_again_fail_and_one_alone_is_transient(
    mismatches: int, *, is_again: bool, errors: tuple[int, int]
) -> None:
    lasting, single = checks_of(an_aggregate(mismatches), is_again=is_again)
    assert (lasting.error, single.error) == errors
    assert (lasting.if_outside, single.if_outside) == ("fail", "inconclusive")


@pytest.mark.parametrize("mismatches", [0, 1, 2])
def test_what_was_written_is_read_again(mismatches: int) -> None:
    wanted = replace(an_aggregate(mismatches), places=("here, there",) * mismatches)
    assert aggregates.read(a_check(mismatches)) == wanted


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("proven: 4,160", "proven: 9,160", "add up"),
        ("moved: 8,320", "moved: 8,321", "add up"),
        ("10 products", "11 products", "add up"),
        ("30,900 of", "30,901 of", "add up"),
        ("mismatches: 0", "mismatches: 1", "add up"),
        ("1000 900 64", "1000 900 65", "add up"),
        ("1000 900", "900 1000", "longer at work"),
        ("1000 900", "1000 x", "not six numbers"),
        ("4,160 bytes", "4160 bytes", "how a launch writes"),
        ("; moved: 8,320 bytes", "", "no clause 'moved'"),
        ("4,160 bytes,", "4,160,", "not what a launch writes"),
    ],
)
def test_forged_words_are_refused(old: str, new: str, why: str) -> None:
    check = a_check()
    assert old in check.detects_what
    with pytest.raises(Untrue, match=why):
        aggregates.read(replace(check, detects_what=check.detects_what.replace(old, new)))


def test_minutes_of_a_long_launch_are_added_up_and_lose_nothing() -> None:
    many = [Span(60_000, 1, 2, 3, 4, 5)] * 1001
    few = aggregates.added(many)
    assert len(few) <= aggregates.MOST_SPANS
    assert sum(few, Span()) == sum(many, Span())
