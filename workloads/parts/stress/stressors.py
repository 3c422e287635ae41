"""The stress of one launch: a process for each kind, begun beside the products, ended with them.

Each has a process of its own, so that one that is killed or hangs is named and takes nothing with
it. They carry the launch's token and end with it.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from appliance.records.journal import Check
from appliance.stress.aggregates import COMPLETED, LASTING, LEFT, SINGLE, Aggregate, Span, name
from workloads.contract.failures import Unsupported

PROCESS = "workloads.parts.stress.process"
PATIENCE = 120.0
"""Seconds within which a turn that has begun must end."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a process is asked for; what a kind has no use for is not read.

    `names` are those of the devices of all launches at once, by commas.
    """

    kind: str
    seed: int
    num_bytes: int = 0
    threads: int = 1
    percent: int = 100
    device: str = "cpu"
    vendor: str = ""
    folder: str = ""
    names: str = ""
    rank: int = 0
    backend: str = ""

    def line(self) -> bytes:
        """What its process reads."""
        values = {**vars(self), "parent": os.getpid()}
        return json.dumps(values).encode() + b"\n"


@dataclass(kw_only=True)
class Stressor:
    """A kind and its process."""

    kind: str
    process: subprocess.Popen[bytes]
    answer: bytes = b""

    @classmethod
    def begin(cls, request: Request, module: str) -> Stressor:
        """Start the process, which is not waited for."""
        command = [sys.executable, "-m", module]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
        own = cls(kind=request.kind, process=process)
        own._send(request.line())
        return own

    def _send(self, data: bytes) -> None:
        assert self.process.stdin is not None  # noqa: S101 - it was opened
        with suppress(BrokenPipeError):  # it ended, which its report will say
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def ask(self) -> None:
        """Ask it to stop."""
        self._send(b"stop\n")

    def aggregate(self) -> tuple[Aggregate, bool]:
        """What it says, and whether a mismatch came again. Raises Unsupported for want of room."""
        try:
            self.answer, _ = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return self._lost(f"no answer within {PATIENCE:.0f} s"), False
        if self.process.returncode or not self.answer:
            return self._lost(_ending(self.process.returncode)), False
        report = json.loads(self.answer)
        if "unsupported" in report:
            raise Unsupported(f"stress {self.kind}: {report['unsupported']}")
        own = Aggregate(
            kind=self.kind,
            asked=report["asked"],
            spans=tuple(Span(*one) for one in report["spans"]),
            places=tuple(report["places"]),
            ending=_reported_ending(report["ended"], is_left=report["is_left"]),
        )
        return own, report["num_again"] > 0

    def _lost(self, ending: str) -> Aggregate:
        return Aggregate(kind=self.kind, asked="not reported", spans=(), ending=ending)


@dataclass(kw_only=True)
class Stress:
    """What a launch asks for, and the processes that were begun for it."""

    requests: Sequence[Request]
    module: str = PROCESS
    stressors: list[Stressor] = field(default_factory=list)
    has_begun: bool = False

    def begin(self) -> None:
        """Start a process for each request, once."""
        if not self.has_begun:
            self.has_begun = True
            self.stressors = [Stressor.begin(one, self.module) for one in self.requests]

    def checks(self) -> Iterator[Check]:
        """End all of them, and say what each proved."""
        ended, self.stressors = self.stressors, []
        for one in ended:
            one.ask()
        for one in ended:
            aggregate, is_again = one.aggregate()
            yield from checks_of(aggregate, is_again=is_again)


def checks_of(aggregate: Aggregate, *, is_again: bool) -> Iterator[Check]:
    """The two checks of a kind, ruled as a burn-in's own: one alone may have been a particle.

    What ended by itself has no number of mismatches, and is never within its bound. Where the
    partners were gone it is not held against this device, unless mismatches had been found.
    """
    count = aggregate.total.mismatches
    is_lasting = count > 1 or is_again
    lasting: float = count if is_lasting else 0
    is_counted = aggregate.is_whole or (aggregate.is_left and is_lasting)
    yield Check(
        name=name(aggregate.kind, LASTING),
        error=lasting if is_counted else math.nan,
        bound=0,
        kind="exact",
        if_outside="inconclusive" if aggregate.is_left and not is_lasting else "fail",
        detects=1,
        detects_what=f"wrong word; {aggregate.text()}",
    )
    yield Check(
        name=name(aggregate.kind, SINGLE),
        error=0 if is_lasting else count,
        bound=0,
        kind="exact",
        if_outside="inconclusive",
        detects=1,
        detects_what="mismatch that never came again",
    )


def _reported_ending(ended: str, *, is_left: bool) -> str:
    """Why a process that reported has ended."""
    if is_left:
        return f"{LEFT}{ended}"
    return ended or COMPLETED


def _ending(code: int | None) -> str:
    """Why a process ended that nobody asked to."""
    if code is not None and code < 0:
        return f"killed by signal {-code}"
    return f"ended by itself with exit code {code}"
