"""When telemetry is read while launches run: seldom enough, and of every launch."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.launching import case, plan

from appliance.ipc.channel import Listener
from appliance.ipc.messages import End
from appliance.records.journal import Event
from appliance.runner import supervisor


class Clock:
    """Time of which an eighth of a second passes with each turn of the watch."""

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
    """A process that lives for so many turns."""

    pid, shared_bytes = 0, 0

    def __init__(self, turns: int) -> None:
        self._turns = turns

    def status(self) -> int | None:
        self._turns -= 1
        return 0 if self._turns < 0 else None


class Watched:
    """A watch over launches that only take time, and what it did with them."""

    def __init__(self, clock: Clock, listener: Listener) -> None:
        self.log: list[tuple[str, float]] = []
        self._clock = clock
        self._watch = supervisor.Watch(
            listener=listener,
            record=self._recorded,
            read=lambda item: self._log(f"read {item.case.device}"),
            finish=lambda *_: self._log("end"),
            interrupted=clock.tick,
        )

    def _recorded(self, event: Event) -> None: ...

    def _log(self, what: str) -> None:
        self.log.append((what, self._clock.now - 1000.0))

    def run(self, *turns: int) -> None:
        """Watch launches together, each on a device of its own."""
        planned = plan(*(case("quick", device=f"cpu:{index}") for index in range(len(turns))))
        self._watch.until_ended(
            [
                supervisor.watched(
                    launch=launch,
                    case=planned.cases[index],
                    token="",
                    child=Running(turns[index]),
                    begin_ns=0,
                )
                for index, launch in enumerate(planned.launches[: len(turns)])
            ]
        )


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    clock = Clock()
    monkeypatch.setattr(supervisor, "time", clock)
    monkeypatch.setattr(supervisor, "TICK_SECONDS", 0.0)
    listener = Listener()
    yield Watched(clock, listener)
    listener.close()


def test_launch_shorter_than_the_interval_is_read_at_its_end(watched: Watched) -> None:
    watched.run(0)
    watched.run(2)
    assert watched.log == [
        ("read cpu:0", 0.125),
        ("end", 0.125),
        ("read cpu:0", 0.5),
        ("end", 0.5),
    ]


def test_device_is_read_at_most_twice_a_second_until_its_launch_ends(watched: Watched) -> None:
    watched.run(15)
    times = [time for what, time in watched.log if what != "end"]
    assert times == [0.125, 0.625, 1.125, 1.625, 2.0]


def test_reading_just_before_the_end_is_not_repeated(watched: Watched) -> None:
    watched.run(5)
    assert watched.log == [("read cpu:0", 0.125), ("read cpu:0", 0.625), ("end", 0.75)]


def test_next_launch_keeps_the_interval_of_its_device(watched: Watched) -> None:
    watched.run(3)
    watched.run(6)
    times = [time for what, time in watched.log if what != "end"]
    assert times == [0.125, 0.5, 1.0, 1.375]


def test_every_device_of_a_group_is_read(watched: Watched) -> None:
    watched.run(1, 1)
    assert {what for what, _ in watched.log} == {"read cpu:0", "read cpu:1", "end"}


LOST = End(outcome="crashed", reason=supervisor.LOST, detail="")
DONE = End(outcome="completed", reason="", detail="")


@pytest.mark.parametrize(
    ("ends", "seconds"),
    [
        ([DONE, DONE], supervisor.EXIT_SECONDS),
        ([DONE], float("inf")),
        ([LOST], supervisor.PARTNERS_SECONDS),
        (
            [None, LOST],
            supervisor.PARTNERS_SECONDS,
        ),  # what ended it is in torchrun's status to come
    ],
)
def test_torchrun_has_time_to_tell_how_a_silent_rank_ended(
    ends: list[End | None], seconds: float
) -> None:
    left = {rank: supervisor.Left(rank=rank, end=end, when=0.0) for rank, end in enumerate(ends)}
    item: Any = SimpleNamespace(left=left, case=SimpleNamespace(ranks=2))
    last = ends[-1]
    assert last is not None
    assert supervisor._patience(item, last) == seconds
