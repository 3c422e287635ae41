"""When telemetry is read while launches run: seldom enough, and of every launch."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.launching import case, plan

from appliance.ipc import processes
from appliance.ipc.channel import Listener
from appliance.ipc.messages import End
from appliance.records.journal import Event
from appliance.runner import supervisor
from appliance.runner.exit_cause import PEER_LOST, Departure


class Clock:
    """Time of which an eighth of a second passes with each cycle of the supervisor."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return round(self.now * 1e9)

    def tick(self) -> str:
        self.now += 0.125
        return ""


class Running:
    """A process that lives for so many cycles."""

    pid, shared_bytes = 0, 0

    def __init__(self, cycles: int) -> None:
        self._cycles = cycles

    def status(self) -> int | None:
        self._cycles -= 1
        return 0 if self._cycles < 0 else None


class Supervised:
    """A supervisor of launches that only take time, and what it did with them."""

    def __init__(self, clock: Clock, listener: Listener) -> None:
        self.log: list[tuple[str, float]] = []
        self._clock = clock
        self._supervisor = supervisor.Supervisor(
            listener=listener,
            record=self._recorded,
            read=lambda item: self._log(f"read {item.case.device}"),
            finish=lambda *_: self._log("end"),
            interrupted=clock.tick,
        )

    def _recorded(self, event: Event) -> None: ...

    def _log(self, what: str) -> None:
        self.log.append((what, self._clock.now - 1000.0))

    def run(self, *cycles: int) -> None:
        """Supervise launches together, each on a device of its own."""
        planned = plan(*(case("quick", device=f"cpu:{index}") for index in range(len(cycles))))
        self._supervisor.until_ended(
            [
                supervisor.running_launch(
                    launch=launch,
                    case=planned.cases[index],
                    token="",
                    child=Running(cycles[index]),
                    begin_ns=0,
                )
                for index, launch in enumerate(planned.launches[: len(cycles)])
            ]
        )


@pytest.fixture
def supervised(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervised]:
    clock = Clock()
    monkeypatch.setattr(supervisor, "time", clock)
    monkeypatch.setattr(supervisor, "TICK_SECONDS", 0.0)
    listener = Listener()
    yield Supervised(clock, listener)
    listener.close()


def test_launch_shorter_than_the_interval_is_read_at_its_end(supervised: Supervised) -> None:
    supervised.run(0)
    supervised.run(2)
    assert supervised.log == [
        ("read cpu:0", 0.125),
        ("end", 0.125),
        ("read cpu:0", 0.5),
        ("end", 0.5),
    ]


def test_device_is_read_at_most_twice_a_second_until_its_launch_ends(
    supervised: Supervised,
) -> None:
    supervised.run(15)
    times = [time for what, time in supervised.log if what != "end"]
    assert times == [0.125, 0.625, 1.125, 1.625, 2.0]


def test_reading_just_before_the_end_is_not_repeated(supervised: Supervised) -> None:
    supervised.run(5)
    assert supervised.log == [("read cpu:0", 0.125), ("read cpu:0", 0.625), ("end", 0.75)]


def test_next_launch_keeps_the_interval_of_its_device(supervised: Supervised) -> None:
    supervised.run(3)
    supervised.run(6)
    times = [time for what, time in supervised.log if what != "end"]
    assert times == [0.125, 0.5, 1.0, 1.375]


def test_every_device_of_a_group_is_read(supervised: Supervised) -> None:
    supervised.run(1, 1)
    assert {what for what, _ in supervised.log} == {"read cpu:0", "read cpu:1", "end"}


@pytest.mark.parametrize(
    ("departed", "has_ended", "is_short"),
    [((0,), False, False), ((0, 1), False, True), ((0, 1), True, False)],
)
def test_end_of_a_process_is_awaited_by_shorter_ticks_once_all_its_ranks_have_left(
    departed: tuple[int, ...], *, has_ended: bool, is_short: bool
) -> None:
    left: Any = SimpleNamespace(
        departures=dict.fromkeys(departed), case=SimpleNamespace(ranks=2), ended=has_ended or None
    )
    at_work: Any = SimpleNamespace(departures={}, case=SimpleNamespace(ranks=1), ended=None)
    tick = supervisor._tick([at_work, left])
    assert tick == (supervisor.EXIT_TICK_SECONDS if is_short else supervisor.TICK_SECONDS)


LOST = End(outcome="crashed", reason=PEER_LOST, detail="")
DONE = End(outcome="completed", reason="", detail="")


@pytest.mark.parametrize(
    ("ends", "seconds"),
    [
        ([DONE, DONE], supervisor.EXIT_SECONDS),
        ([DONE], float("inf")),
        ([LOST], supervisor.PEER_EXIT_SECONDS),
        (
            [None, LOST],
            supervisor.PEER_EXIT_SECONDS,
        ),  # what ended it is in torchrun's status to come
    ],
)
def test_torchrun_has_time_to_report_how_a_silent_rank_ended(
    ends: list[End | None], seconds: float
) -> None:
    departures = {rank: Departure(rank=rank, end=end, when=0.0) for rank, end in enumerate(ends)}
    item: Any = SimpleNamespace(departures=departures, case=SimpleNamespace(ranks=2))
    last = ends[-1]
    assert last is not None
    assert supervisor._grace_period(item, last) == seconds


@pytest.mark.parametrize(("more", "reason"), [(0, "SIGKILL"), (1, "out_of_memory")])
def test_kill_for_lack_of_memory_is_distinguished_from_any_other_kill(
    monkeypatch: pytest.MonkeyPatch, more: int, reason: str
) -> None:
    planned = plan(case("quick"))
    monkeypatch.setattr(processes, "out_of_memory_kills", lambda: 3)
    item = supervisor.running_launch(
        launch=planned.launches[0],
        case=planned.cases[0],
        token="",
        child=Running(0),
        begin_ns=0,
    )
    monkeypatch.setattr(processes, "out_of_memory_kills", lambda: 3 + more)
    assert supervisor._launch_ended(item, -signal.SIGKILL).reason == reason
