"""Messages between the parent of a run, its fork servers and its children."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from appliance.records.journal import Outcome, Stage, WorkerEvent
from appliance.records.json import Number, Record
from appliance.records.request import LaunchSpec
from appliance.records.suite import Framework


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(Record):
    """Who is calling."""

    kind: Literal["hello"] = "hello"
    launch: str
    rank: int
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Record):
    """Built, checked and warm; waits for "go"."""

    kind: Literal["ready"] = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingOver(Record):
    """Nothing that the launch does from here on is timed, warms up or compares clocks."""

    kind: Literal["timing_over"] = "timing_over"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp(Record):
    """A process that stands by has set its device up, or failed, and waits to be told to go on.

    `lacks_memory`: it failed for want of memory, which it had to share.
    """

    kind: Literal["set_up"] = "set_up"
    lacks_memory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Record):
    """How the launch ended, as the child reports it; `LaunchEnded` says what the fields are."""

    kind: Literal["end"] = "end"
    outcome: Outcome
    reason: str
    detail: str
    exceptions: tuple[str, ...] = ()
    stage: Stage = ""


Message = Annotated[
    Hello | Ready | TimingOver | SetUp | End | WorkerEvent, Field(discriminator="kind")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest(Record):
    """First line that a fork server reads: what to import before any fork, and how it is probed.

    The probe fork computes by `framework` on the vendor's device, and has `probe_seconds` for it.
    Each launch has so many `ranks`, which it forks itself.
    """

    workloads: tuple[str, ...]
    vendor: str
    framework: Framework
    probe_seconds: Number
    ranks: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest(Record):
    """More workloads to import before the next fork; the server then probes itself once more."""

    kind: Literal["import"] = "import"
    workloads: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest(Record):
    """A launch, and the files of its stdout and stderr."""

    kind: Literal["fork"] = "fork"
    launch: LaunchSpec
    stdout: str
    stderr: str


ServerRequest = Annotated[ImportRequest | ForkRequest, Field(discriminator="kind")]
"""Every other line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMessage(Record):
    """A message of the server: it is ready or not (and why), it started a launch, one has ended.

    `last_words` is the end of what an unhealthy server's probe fork wrote to stderr, `importers`
    are the workloads whose import is why. `status` is an exit status, or the negative number of
    the signal that ended the launch.
    """

    state: Literal["ready", "unhealthy", "started", "ended"]
    reason: str = ""
    last_words: str = ""
    importers: tuple[str, ...] = ()
    pid: int = 0
    status: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRequest(Record):
    """What is asked next of the program that times steps beside a process that waits.

    A process of a `role` begins on the vendor's first visible device, of `memory_bytes`, or ends;
    the timer times steps of a `kind` for so many `seconds`.
    """

    ask: Literal["begin", "time", "end"]
    role: Literal["timer", "neighbour"]
    vendor: str
    memory_bytes: int
    kind: str = ""
    seconds: Number = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleAnswer(Record):
    """Its answer: what went wrong in one clause, empty where nothing did; seconds of each step."""

    fault: str = ""
    step_seconds: tuple[Number, ...] = ()
