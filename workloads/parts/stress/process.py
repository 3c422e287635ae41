"""The process of one kind of stress: it works in turns until it is asked to stop, then reports.

Its standard input brings one line, what to do, and later another, which asks it to stop; its end
means that nobody waits any more. Its standard output has one line of JSON, the report. It ends
with the launch that began it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import NoReturn

import torch

from appliance.ipc import processes
from appliance.stress.aggregates import MINUTE_MS, Span, added
from appliance.vendors.registry import make_vendor
from workloads.parts.stress.copies import Copies
from workloads.parts.stress.disk import Disk
from workloads.parts.stress.host import Host
from workloads.parts.stress.links import Links
from workloads.parts.stress.turns import (
    CannotJoin,
    Ended,
    Load,
    OutOfRoom,
    Turn,
    WithoutPartners,
)

MOST_PLACES = 8
"""Mismatches whose place is reported; all are counted."""
Request = Mapping[str, object]
NANOSECONDS = 10**6
"""Of a millisecond."""


def make_host(request: Request) -> Load:
    """Memory and cores of the host."""
    return Host.make(
        seed=_int(request, "seed"),
        num_bytes=_int(request, "num_bytes"),
        threads=_int(request, "threads"),
    )


def make_disk(request: Request) -> Load:
    """A file in a folder."""
    return Disk.make(
        seed=_int(request, "seed"),
        num_bytes=_int(request, "num_bytes"),
        folder=str(request["folder"]),
    )


def make_copies(request: Request) -> Load:
    """Copies to the device and back."""
    device = torch.device(str(request["device"]))
    return Copies.make(
        seed=_int(request, "seed"),
        device=device,
        share=_int(request, "percent") / 100,
        num_bytes=_int(request, "num_bytes"),
    )


def make_links(request: Request) -> Load:
    """The links between devices."""
    return Links(
        names=tuple(str(request["names"]).split(",")),
        rank=_int(request, "rank"),
        meeting=Path(str(request["folder"])),
        backend=str(request["backend"]),
        device=torch.device(str(request["device"])),
        seed=_int(request, "seed"),
        num_bytes=_int(request, "num_bytes"),
        share=_int(request, "percent") / 100,
    )


MAKERS: Mapping[str, Callable[[Request], Load]] = {
    "host": make_host,
    "disk": make_disk,
    "copies": make_copies,
    "links": make_links,
}


@dataclass(kw_only=True)
class Tally:
    """What was done, by minutes in nanoseconds, and where the first mismatches were."""

    spans: list[Span] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    num_again: int = 0

    def add(self, turn: Turn, busy_ns: int, all_ns: int) -> None:
        """A turn that took so long, with the rest behind it."""
        if not self.spans or self.spans[-1].ms >= MINUTE_MS * NANOSECONDS:
            self.spans.append(Span())
        count = len(turn.wrong)
        self.spans[-1] += Span(all_ns, busy_ns, turn.proven, turn.moved, turn.products, count)
        self.places += [one.where for one in turn.wrong][: MOST_PLACES - len(self.places)]
        self.num_again += sum(one.num_again for one in turn.wrong)

    def report(self, asked: str, ended: Ended | None = None) -> dict[str, object]:
        """What is sent to the launch, times in milliseconds; `ended` is why it could not go on.

        Rounded up where they count against the load, so that it never reads as more than it was.
        """
        spans = [
            (-(-ns // NANOSECONDS), busy_ns // NANOSECONDS, *rest)
            for ns, busy_ns, *rest in map(astuple, added(self.spans))
        ]
        return {
            "asked": asked,
            "spans": spans,
            "places": self.places,
            "num_again": self.num_again,
            "ended": "" if ended is None else str(ended),
            "is_left": isinstance(ended, WithoutPartners),
        }


def work(load: Load, source: int, tally: Tally) -> dict[str, object] | None:
    """Work until `source` asks to stop; the report, or None where it is at its end.

    A turn's time is that of its work and of the rest behind it. Raises OutOfRoom and CannotJoin.
    """
    try:
        load.begin()
        while True:
            begin = time.perf_counter_ns()
            turn = load.turn()
            busy = time.perf_counter_ns() - begin
            readable, _, _ = select.select([source], [], [], _rest(load, turn, busy))
            if readable and not os.read(source, 64):
                return None
            is_over = load.ends(is_asked=bool(readable))
            tally.add(turn, busy, time.perf_counter_ns() - begin)
            if is_over:
                return tally.report(load.asked)
    except Ended as error:
        return tally.report(load.asked, error)


def _rest(load: Load, turn: Turn, busy_ns: int) -> float:
    """Seconds of rest after a turn, so that no more is done than was asked for."""
    busy = busy_ns * 1e-9
    by_rate = turn.moved / load.rate - busy if load.rate else 0.0
    return max(0.0, busy / load.share - busy, by_rate)


def _int(request: Request, name: str) -> int:
    value = request[name]
    assert isinstance(value, int)  # noqa: S101 - the launch wrote it
    return value


def main(makers: Mapping[str, Callable[[Request], Load]] = MAKERS) -> None:
    """Serve one launch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whom a terminal interrupts, the launch tells
    out = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no report
    request = json.loads(_line(0))
    processes.die_with(int(request["parent"]))
    if request["vendor"]:
        make_vendor(request["vendor"]).prepare()
    try:
        load, tally = makers[str(request["kind"])](request), Tally()
        load.watched_by(lambda error: _leave(out, tally.report(load.asked, error)))
        report = work(load, 0, tally)
    except (OutOfRoom, CannotJoin) as error:
        report = {"unsupported": str(error)}
    if report is not None:
        _leave(out, report)


def _leave(out: int, report: Mapping[str, object]) -> NoReturn:
    """Send the report and end, whatever a library still waits for."""
    os.write(out, json.dumps(report).encode() + b"\n")
    os._exit(0)


def _line(source: int) -> bytes:
    """The first line, byte by byte, so that what follows it stays in the pipe."""
    line = b""
    while not line.endswith(b"\n") and (one := os.read(source, 1)):
        line += one
    return line


if __name__ == "__main__":
    main()
