"""What the parent asks of a child: descriptions of cases, and one launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from appliance.records.journal import AheadThrough
from appliance.records.json import BigInt, Parameters, Record
from appliance.records.plan import Case, Repeat
from appliance.records.suite import LibraryMode, Protocol
from appliance.records.system import DeviceLibraries, Facts
from appliance.records.workload import Description, Resolved


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRequest(Record):
    """What a suite asks the worker to resolve: a workload with some of its parameters.

    `num_devices` is that of a job with a rank on each of its devices, which becomes the parameter
    "ranks" of a workload that has it; 0 leaves the parameters as they are. `draw` is a number that
    draws one of the workload's variants, None for none.
    """

    workload: str
    small: bool
    parameters: Parameters
    num_devices: int = 0
    draw: BigInt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Record):
    """Why a request cannot be resolved: one sentence."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking(Record):
    """What of the software a request needs and this machine has not: one sentence with the fix.

    `resolved` is the request, where its workload could be loaded all the same.
    """

    lack: str
    resolved: Resolved | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Record):
    """What `worker describe` reads: requests, and what must drive the devices that they are for.

    `libraries` is None where no devices are meant.
    """

    requests: tuple[CaseRequest, ...]
    libraries: DeviceLibraries | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Record):
    """What `worker describe` prints: workloads, and the resolved requests in their order.

    `software` holds what only an import can tell: versions, BLAS, threads, torch's device name.
    """

    descriptions: tuple[Description, ...]
    resolved: tuple[Resolved | Refused | Lacking, ...]
    software: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec(Record):
    """Everything that a child is told of its launch; read from its standard input or the server.

    `artifacts` are the digests that the case's untimed launch reported (empty in that launch).
    `data` and `artifacts_folder` are absolute paths. The environment of `library_mode` was set
    before the child imported anything, whether it is forked or fresh.
    A launch of the deterministic phase has `expected`: by rank, the digests of all tensors that the
    first of them reported. `is_fresh`: no server forks it, wherever the others come from.
    `ordered_ns` is when the runner ordered it, by the clock that all processes of a node share
    (CLOCK_MONOTONIC); None where nobody asks what its time goes to. `fold_ns` is how much time of
    steps is reported together where nobody judges them. `beside` are the devices of all launches
    that are started at once, this one's among them, where they are several; they may meet in the
    folder `meeting`. `scratch` is where large files go, None for the run's own folder. `ahead` is
    how far the process goes before its launch begins; empty where that begins with its order.
    One that `stands_by` sets its device up, says so, and waits beside other launches until it is
    told to go on. `overlaps`: the process of a later launch may begin beside the end of this one.
    """

    launch: str
    case: Case
    vendor: str
    protocol: Protocol
    is_timed: bool
    check_last: bool
    seed: BigInt
    data: str | None
    artifacts_folder: str
    artifacts: Mapping[str, str]
    socket: str
    token: str
    num_threads: int | None
    repeat: Repeat | None = None
    library_mode: LibraryMode = "default"
    is_fresh: bool = False
    expected: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    ordered_ns: BigInt | None = None
    fold_ns: BigInt = 60 * 10**9
    beside: tuple[str, ...] = ()
    meeting: str = ""
    scratch: str | None = None
    ahead: AheadThrough | Literal[""] = ""
    stands_by: bool = False
    overlaps: bool = False

    @property
    def ranks(self) -> int:
        """Processes of the launch."""
        return self.case.ranks
