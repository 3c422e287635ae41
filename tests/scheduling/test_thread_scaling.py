"""What is predicted of more threads follows from one and two, and load never makes it shorter."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import host_seconds  # noqa: E402 - after the path
import thread_scaling  # noqa: E402 - the same
import write_device_budget as budget  # noqa: E402 - the same
from thread_scaling import Scaling  # noqa: E402 - the same

SERIAL, PARALLEL = 3.0, 8.0


@dataclass
class Machine:
    """Work with a serial and a parallel part, by a clock of its own; others wait before it."""

    waits: Iterator[float] = field(default_factory=lambda: repeat(0.0))
    wall: float = 0.0
    processor: float = 0.0
    threads: int = 0

    def work(self, threads: int) -> None:
        assert threads == self.threads
        self.wall += SERIAL + PARALLEL / threads + next(self.waits)
        self.processor += SERIAL + PARALLEL

    def measured(self) -> Scaling:
        clock = thread_scaling.Clock(wall=lambda: self.wall, processor=lambda: self.processor)
        return thread_scaling.measure(self.work, self._set, clock=clock)

    def _set(self, threads: int) -> None:
        self.threads = threads


def test_serial_and_parallel_seconds_are_found_and_more_threads_predicted() -> None:
    measured = Machine().measured()
    assert (measured.serial, measured.parallel) == (SERIAL, PARALLEL)
    assert measured.at(1) == SERIAL + PARALLEL
    assert measured.at(16) == SERIAL + PARALLEL / 16


def test_load_makes_what_is_predicted_longer_and_one_quiet_repetition_is_enough() -> None:
    assert Machine(waits=repeat(2.0)).measured().at(16) > SERIAL + PARALLEL / 16
    assert Machine(waits=repeat(50.0)).measured().at(16) == SERIAL + PARALLEL
    once = iter([9.0] * 6 + [0.0] * 2)
    assert Machine(waits=once).measured() == Machine().measured()


@pytest.mark.parametrize("one", [0.0, 0.5, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("two", [0.4, 1.0, 2.0])
def test_more_threads_are_never_slower_nor_faster_than_all_of_it_shared_out(
    one: float, two: float
) -> None:
    predicted = [Scaling(one=one, two=two, both=one).at(threads) for threads in range(1, 33)]
    assert predicted == sorted(predicted, reverse=True)
    assert all(seconds >= one / threads for threads, seconds in enumerate(predicted, 1))
    assert all(seconds <= one for seconds in predicted)


def _hashed(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_serial_part_of_real_work_is_found_whatever_else_the_machine_does() -> None:
    content, part = b"bench" * 4_000_000, b"bench" * 1_000_000

    def alone(_: int) -> None:
        _hashed(content)

    def both(threads: int) -> None:
        _hashed(content)
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(_hashed, [part] * 4))

    def measured(work: Callable[[int], object]) -> Scaling:
        return thread_scaling.measure(work, lambda _: None)

    serial, mixed = measured(alone), measured(both)
    assert mixed.one > 1.5 * serial.one
    assert mixed.serial > 0.7 * serial.one
    assert mixed.at(16) > 0.7 * serial.one


def test_pieces_that_leave_threads_idle_in_the_last_round_are_hashed_on_fewer() -> None:
    assert [host_seconds.hashing_threads(n) for n in (1, 8, 16, 17, 64)] == [1, 8, 16, 8.5, 16]


def test_a_host_that_was_recorded_to_be_slower_counts_as_slower_and_never_as_faster() -> None:
    def one(case: str, part: str, recorded: float) -> host_seconds.Compared:
        return host_seconds.Compared(case=case, part=part, predicted=2.0, recorded=recorded)

    parts = {key for several in host_seconds.OF_KIND.values() for key in several}
    compared = {key: one(*key, recorded=1.0) for key in parts}
    assert set(host_seconds.slower(compared).values()) == {1.0}
    compared["gemm-fp16", "check"] = one("gemm-fp16", "check", recorded=5.0)
    assert host_seconds.slower(compared)["products"] == 2.5
    part = Scaling(one=4.0, two=2.0, both=4.5)
    seconds = host_seconds.seconds(part, "products", host_seconds.slower(compared), 4)
    assert seconds == host_seconds.Seconds(scaled=2.5 * 1.0, serial=2.5 * 4.0, measured=4.0)


def test_no_part_of_the_page_is_shorter_than_its_processor_time_on_all_threads_it_counts() -> None:
    for name, host in budget.host_parts("node")["cases"].items():
        for part in ("build", "check", "digest"):
            if part in host:
                known = budget.on_recorded_host(name, part, host)
                threads = host_seconds.THREADS if part == "digest" else host_seconds.FED
                assert host[part]["one"] / threads <= known.scaled <= known.serial
                assert known.measured == host[part]["one"]


def test_node_sums_scaled_parts_and_states_the_serial_ones_beside_them() -> None:
    for scaled, serial in zip(budget.node_parts(), budget.node_parts("serial"), strict=True):
        host = budget.host_parts("node")["cases"].get(scaled.name)
        if host is None or "check" not in host or "pageable" in scaled.name:
            continue  # of a processor pinned memory is the same, and is taken of that case
        known = budget.on_recorded_host(scaled.name, "check", host)
        assert serial.check - scaled.check == pytest.approx(known.serial - known.scaled)
        assert scaled.check > known.scaled  # and its output's way to the host


def test_an_aim_is_met_or_missed_by_what_is_over_it() -> None:
    assert budget.judged(59.0, 60.0) == budget.judged(60.0, 60.0) == "met"
    assert budget.judged(71.0, 60.0).startswith("missed by 11")
