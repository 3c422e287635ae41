"""The child: the one program that imports workloads and torch.

    python -m appliance.worker.child describe         requests on stdin, an Answer on stdout
    python -m appliance.worker.child list             the same, with every workload there is
    python -m appliance.worker.child launch PARENT    a LaunchSpec on stdin, records over its socket
    python -m appliance.worker.child rank PARENT      the same in a process that torchrun started
    python -m appliance.worker.child agent PARENT     one torchrun of several that start the ranks
    python -m appliance.worker.child serve PARENT     a fork server: see forkserver.py

PARENT is the number of the process that the child dies with. A launch of several ranks becomes
torchrun, which starts so many processes; they find the LaunchSpec in the environment. With several
agents it starts that many torchruns, which meet as they would on so many nodes. The child owns what
a workload may not have: seeds, threads, warm-up, loops, synchronising and clocks.

A workload's name is a module of workloads/. A name with a dot is a module's whole path, which
stands in the plan and in the journal as it is, so nobody takes it for a workload of the suite.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import importlib
import importlib.metadata
import math
import os
import pkgutil
import platform
import random
import resource
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch._C._distributed_c10d import TCPStore

import workloads
from appliance import extras
from appliance.errors import ApplianceError
from appliance.ipc import processes
from appliance.ipc.channel import Link
from appliance.ipc.messages import End, Hello, ServeRequest
from appliance.records.journal import Artifact, Environment, Outcome
from appliance.records.json import Parameters, adapter, to_json
from appliance.records.request import Answer, CaseRequest, LaunchSpec, Refused
from appliance.records.system import Fact, Facts
from appliance.records.workload import Description
from appliance.storage.toml_file import did_you_mean
from appliance.vendors.base import Vendor
from appliance.vendors.registry import make_vendor
from appliance.worker import libraries, outputs, timing
from appliance.worker.forkserver import ForkServer, claim_stdout
from appliance.worker.measure import LaunchCourse, Machine, Wires
from appliance.worker.parameters import AnyWorkload, description, fitted, one_line, resolve
from workloads.contract.failures import ParameterError, Unsupported
from workloads.contract.target import Artifacts, Target
from workloads.contract.workload import Workload
from workloads.parts.distributed import ranks

LIBRARIES = (
    *("torch", "transformers", "onnxruntime", "onnx", "numpy", "scikit-learn"),
    *("jax", "jaxlib", "optax", "brax", "gymnax", "ale-py"),
)
PROBE_SIZE = 512
HASHED = "libraries.json"
"""Beside the artifacts of the cases: digests of libraries, so that a run hashes each file once."""
CHOICE_WARMUP, CHOICE_CALLS = 2, 5
"""Calls of some work that is timed to choose between ways of doing the same."""
BUSY_SIZE, BUSY_PRODUCTS = 256, 8
"""Products between two synchronises while clocks are compared: well below 10 ms on one core."""

# ------------------------------------------------------------------ finding workloads


class _Absent(Exception):
    """A workload cannot be had; one sentence that says why."""


def _names() -> list[str]:
    """Modules of workloads/ that may be a workload."""
    return sorted(
        module.name
        for module in pkgutil.iter_modules(workloads.__path__)
        if not module.ispkg and module.name != "contract" and not module.name.startswith("_")
    )


def _load(name: str, *, to_build: bool = True) -> type[AnyWorkload]:
    """The workload of this name, and unless it is only told of, what it builds with."""
    path = name if "." in name else f"workloads.{name}"
    try:
        found = getattr(importlib.import_module(path), "WORKLOAD", None)
        for module in getattr(found, "builds_with", ()) if to_build else ():
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{path}.".startswith(f"{error.name}."):
            hint = did_you_mean(name, _names())
            raise _Absent(f'there is no workload "{name}"{hint}') from None
        line = extras.line_for(error.name)
        raise _Absent(f'workload "{name}" needs {error.name}: {line}') from None
    if not (isinstance(found, type) and issubclass(found, Workload)):
        raise _Absent(f'"{name}" is no workload: its module has no WORKLOAD')
    return found


# ------------------------------------------------------------------ describe


def describe(requests: tuple[CaseRequest, ...], others: Sequence[str] = ()) -> Answer:
    """The requests resolved in their order, their workloads and `others`, and the software.

    What cannot be loaded is described by nothing. Nothing else is imported: the libraries of all
    workloads take many seconds.
    """
    found: dict[str, type[AnyWorkload] | _Absent] = {}
    requested = dict.fromkeys(request.workload for request in requests)
    for name in [*others, *requested]:
        if name not in found:
            try:
                found[name] = _load(name, to_build=name in requested)
            except _Absent as absent:
                found[name] = absent
    resolved = [
        Refused(error=str(kind)) if isinstance(kind, _Absent) else resolve(kind, request)
        for kind, request in ((found[request.workload], request) for request in requests)
    ]
    kinds = {name: kind for name, kind in found.items() if isinstance(kind, type)}
    return Answer(
        descriptions=tuple(_descriptions(kinds)),
        resolved=tuple(resolved),
        software=_software(),
    )


def _descriptions(kinds: Mapping[str, type[AnyWorkload]]) -> Iterator[Description]:
    """One that cannot be described (its data is not installed) takes no other down with it."""
    for name, kind in kinds.items():
        try:
            yield description(name, kind)
        except ParameterError as error:
            print(f"{name} is left out: {one_line(error)}", file=sys.stderr)  # noqa: T201 - a log


def _software() -> Facts:
    """What only an import can tell."""
    built = torch.__config__.show()
    blas = [name for name in ("mkl", "open", "accelerate") if f"BLAS_INFO={name}" in built]
    facts = {
        "python": platform.python_version(),
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch_blas": blas[0] if blas else None,
        "torch_onednn": "USE_MKLDNN=1" in built or "USE_MKLDNN=ON" in built,
        "torch_threads": torch.get_num_threads(),
    }
    return {
        **{library: _version(library) for library in LIBRARIES},
        **{name: Fact(value=value, source="worker") for name, value in facts.items()},
    }


def _version(library: str) -> Fact:
    try:
        return Fact(value=importlib.metadata.version(library), source="package metadata")
    except importlib.metadata.PackageNotFoundError:
        return Fact(value=None, source="package metadata", hint=f"{library} is not installed")


# ------------------------------------------------------------------ what only torch can do


class _DeviceStopwatch:
    """The host's clocks and, where the device has one, its events; torch hides the vendor."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._wait = torch.get_device_module(device.type).synchronize
        self._has_events = device.type != "cpu"

    def now(self) -> int:
        return time.perf_counter_ns()

    def raw(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def synchronise(self) -> None:
        self._wait()

    def mark(self) -> torch.Event | None:
        if not self._has_events:
            return None
        event = torch.Event(self._device, enable_timing=True)
        event.record()
        return event

    def between(self, begin: torch.Event, end: torch.Event) -> int:
        return round(begin.elapsed_time(end) * 1e6)


def _busy_work(device: torch.device) -> Callable[[], None]:
    """A short piece of work for the device, which draws no random number."""
    matrix = torch.ones(BUSY_SIZE, BUSY_SIZE, device=device)

    def multiply() -> None:
        for _ in range(BUSY_PRODUCTS):
            torch.matmul(matrix, matrix)

    return multiply


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - libraries draw from the global generator
    torch.manual_seed(seed)


def _bits(leaf: Any) -> NDArray[Any]:
    if isinstance(leaf, torch.Tensor):
        leaf = leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return outputs.bits(leaf)


def _values(leaf: Any) -> NDArray[Any]:
    if isinstance(leaf, torch.Tensor):
        leaf = leaf.detach().cpu()
        leaf = (leaf.to(torch.complex128) if leaf.is_complex() else leaf.double()).numpy()
    return outputs.values(leaf)


def _environment(device: torch.device) -> Facts:
    """What this process has of libraries, threads and device."""
    name = getattr(torch.get_device_module(device.type), "get_device_name", None)
    facts = {
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device_name": None if name is None else name(),
    }
    return {
        "torch": _version("torch"),
        **{name: Fact(value=value, source="worker") for name, value in facts.items()},
    }


def _probe(vendor: Vendor) -> None:
    """A product on all threads, right or an error: what a fork of a spoilt process cannot do."""
    vendor.prepare()
    ones = torch.ones(PROBE_SIZE, PROBE_SIZE, device=vendor.torch_type)
    if not bool((ones @ ones == PROBE_SIZE).all()):
        raise ApplianceError("the probe fork multiplied wrongly")


# ------------------------------------------------------------------ one launch


FULL = (errno.ENOSPC, errno.EDQUOT)
LEAST_ROOM = 2**16  # bytes; less than this takes no reference file


RANK_SPEC = "BENCH_RANK_SPEC"
"""Variable with the LaunchSpec of a rank: torchrun's processes share one standard input."""
MEETING = "BENCH_MEETING"
"""Variable with the port at which several agents meet."""
AGENT_SECONDS, AGENT_TICK_SECONDS = 30.0, 0.05
"""How long the other agents go on when one has failed, and how often they are looked at."""
HERE = "127.0.0.1"
SHELL = 128
"""What a program adds to the number of the signal that ended what it ran."""
WORDS_SECONDS = 1.0
"""How long a rank that went wrong stays, so that others can say what they saw before they go."""
STALL_SHARE, LONGEST_STALL = 1 / 3, 300.0
"""How long a rank waits for another: a share of the case's time limit, and seconds at most."""


class _NotMade(Exception):
    """The launch cannot be made, through no fault of the device."""

    def __init__(self, reason: str, detail: str, outcome: Outcome = "not_run") -> None:
        super().__init__(detail)
        self.reason = reason
        self.outcome = outcome


def launch(spec: LaunchSpec) -> NoReturn:
    """Make one launch in this process, say how it ended, and end the process."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the trace is kept, memory is not
    processes.offer_to_the_kernel()
    os.environ[processes.LAUNCH_TOKEN] = spec.token  # a fork has its server's environment
    rank = int(os.environ.get("RANK", "0"))
    link = Link(spec.socket, Hello(launch=spec.launch, rank=rank, token=spec.token))
    end = _ended(spec, link, rank)
    with contextlib.suppress(OSError):
        link.send(end)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a full disk takes no more words
            stream.flush()
    if spec.ranks > 1 and end.outcome != "completed":
        time.sleep(WORDS_SECONDS)
    # Neither exit handlers nor a library's threads have a part in a launch that has ended.
    # A status other than 0 has torchrun end the other ranks; alone, the words are enough.
    os._exit(int(spec.ranks > 1 and end.outcome != "completed"))


def _ended(spec: LaunchSpec, link: Link, rank: int) -> End:
    try:
        course = _prepared(spec, link, rank)
        course.run()
        if spec.ranks > 1:
            ranks.join(course.target).end_together()
    except _NotMade as refusal:
        return End(outcome=refusal.outcome, reason=refusal.reason, detail=one_line(refusal))
    except ParameterError as error:
        return End(outcome="not_run", reason="bad_parameters", detail=one_line(error))
    except Unsupported as lacking:
        return End(outcome="unsupported", reason="missing_feature", detail=one_line(lacking))
    except BaseException as error:
        with contextlib.suppress(OSError):
            traceback.print_exc()
        return _failed(error, Path(spec.artifacts_folder))
    return End(outcome="completed", reason="", detail="")


def _failed(error: BaseException, folder: Path) -> End:
    """The result that an exception is; what the appliance or its disk lacks is no crash.

    `folder` is where the launch writes. Not every library says why a write failed (numpy does
    not), so the disk is asked too.
    """
    detail = one_line(error)
    if isinstance(error, ApplianceError):
        return End(outcome="not_run", reason="artifact", detail=detail)
    if isinstance(error, OSError) and (error.errno in FULL or _is_full(folder)):
        return End(outcome="interrupted", reason="disk_full", detail=detail)
    if isinstance(error, ranks.Stalled):
        return End(outcome="timed_out", reason="stalled", detail=detail)
    reason = "out_of_memory" if _is_out_of_memory(error) else type(error).__name__
    return End(outcome="crashed", reason=reason, detail=detail)


def _is_full(folder: Path) -> bool:
    try:
        disk = os.statvfs(folder if folder.exists() else folder.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < LEAST_ROOM


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def _prepared(spec: LaunchSpec, link: Link, rank: int) -> LaunchCourse:
    """Everything before the first build, with its refusals."""
    for name in ("LD_PRELOAD", "LD_AUDIT"):
        if name in os.environ:
            raise _NotMade(name.lower(), f"{name} is set, so what runs is not what is named")
    try:
        kind = _load(spec.case.workload)
    except (_Absent, ImportError) as error:
        raise _NotMade("not_installed", one_line(error)) from None
    vendor = make_vendor(spec.vendor)
    vendor.prepare()
    if spec.num_threads is not None:
        torch.set_num_threads(spec.num_threads)
    _refuse_lacking(kind, spec, vendor)
    workload = _constructed(kind, spec.case.parameters)
    device = _device(spec, vendor, rank)
    link.send(Environment(launch=spec.launch, rank=rank, facts=_environment(device)))
    stopwatch = _DeviceStopwatch(device)
    target = Target(
        device=device,
        artifacts=_artifacts(spec, link, rank),
        onnx_providers=vendor.onnx_providers(),
        data=None if spec.data is None else Path(spec.data),
        rank=rank,
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
        collectives=vendor.collectives,
        stall_seconds=min(LONGEST_STALL, STALL_SHARE * spec.case.time_limit_seconds),
        devices=_devices(spec, vendor),
        seconds=partial(_median_seconds, stopwatch),
    )
    if target.world_size != spec.ranks:
        raise _NotMade("ranks", f"{target.world_size} processes, {spec.ranks} were planned")
    joined = ranks.join(target) if spec.ranks > 1 else None
    machine = Machine(
        stopwatch=stopwatch,
        make_work=partial(_busy_work, device),
        seed=_seed,
        bits=_bits,
        values=_values,
        agree=int if joined is None else partial(joined.largest, device=device),
        libraries=partial(libraries.loaded, Path(spec.artifacts_folder).with_name(HASHED)),
    )
    return LaunchCourse(
        spec=spec,
        rank=rank,
        workload=workload,
        target=target,
        machine=machine,
        wires=Wires(send=link.send, wait=link.wait),
    )


def _device(spec: LaunchSpec, vendor: Vendor, rank: int) -> torch.device:
    """The device of this rank. The environment shows those of the case alone, in their order."""
    if vendor.torch_type == "cpu":
        return torch.device("cpu")
    index = rank if spec.case.devices and spec.ranks > 1 else 0
    device = torch.device(vendor.torch_type, index)
    torch.get_device_module(device.type).set_device(device)
    return device


def _devices(spec: LaunchSpec, vendor: Vendor) -> tuple[torch.device, ...]:
    """All devices of the launch as this process sees them; processors are one."""
    if vendor.torch_type == "cpu":
        return (torch.device("cpu"),) * len(spec.case.all_devices)
    return tuple(
        torch.device(vendor.torch_type, index) for index in range(len(spec.case.all_devices))
    )


def _median_seconds(stopwatch: timing.Stopwatch, work: Callable[[], object]) -> float:
    """What one call takes: the median of some calls, after some that warm up."""
    step = timing.Step(make=work)
    for _ in range(CHOICE_WARMUP):
        timing.one(step, stopwatch)
    spans = [timing.one(step, stopwatch)[1] for _ in range(CHOICE_CALLS)]
    return statistics.median(
        1e-9 * (span.wall_ns if span.event_ns is None else span.event_ns) for span in spans
    )


def _refuse_lacking(kind: type[AnyWorkload], spec: LaunchSpec, vendor: Vendor) -> None:
    """The plan has looked already; this holds where a device or a folder changed since."""
    if kind.needs:
        features = [
            vendor.features(device) for device in vendor.probe() if device.id == spec.case.device
        ]
        lacks = kind.needs - frozenset().union(*features)
        if lacks:
            detail = f"{spec.case.device} has no {', '.join(sorted(lacks))}"
            raise _NotMade("missing_feature", detail, "unsupported")
    for name in kind.data:
        if spec.data is None or not (Path(spec.data) / name).is_dir():
            raise _NotMade("missing_data", f"data set {name} is not at hand")


def _constructed(kind: type[AnyWorkload], parameters: Parameters) -> AnyWorkload:
    try:
        return kind(**fitted(kind, parameters))
    except (KeyError, TypeError, ValueError) as error:
        raise _NotMade("bad_parameters", one_line(error)) from None


def _artifacts(spec: LaunchSpec, link: Link, rank: int) -> Artifacts:
    def report(name: str, path: Path, digest: str, is_made: bool) -> None:  # noqa: FBT001 - contract
        link.send(
            Artifact(
                launch=spec.launch,
                rank=rank,
                name=name,
                sha256=digest,
                size_bytes=path.stat().st_size,
                is_made=is_made,
            )
        )

    folder = Path(spec.artifacts_folder)
    # Several processes do not make one file at once.
    return Artifacts(folder if rank == 0 else folder / f"rank-{rank}", spec.artifacts, report)


# ------------------------------------------------------------------ the programs


def _describe(others: Sequence[str] = ()) -> None:
    answer = claim_stdout()
    requests = adapter(tuple[CaseRequest, ...]).validate_json(sys.stdin.buffer.read())
    text = to_json(describe(requests, others))
    with os.fdopen(answer, "wb") as stdout:
        stdout.write(text)


def _launch() -> NoReturn:
    text = sys.stdin.buffer.read()
    if not text:
        sys.exit("the runner ended before it named a launch")
    spec = adapter(LaunchSpec).validate_json(text)
    if spec.ranks > 1:
        _torchrun(spec, text)
    launch(spec)


def _rank() -> NoReturn:
    launch(adapter(LaunchSpec).validate_json(os.environ[RANK_SPEC]))


def _torchrun(spec: LaunchSpec, text: bytes) -> NoReturn:
    """Be torchrun, or start several of them.

    The ranks meet on the loopback interface at a port that is free; no name is looked up.
    """
    os.environ[RANK_SPEC] = text.decode()
    if spec.case.agents > 1:
        sys.exit(_agents(spec.case.agents))
    _run_ranks(spec.ranks, f"--rdzv-endpoint={HERE}:0")


def _agents(count: int) -> int:
    """Start so many agents that meet at a store of this process; what their failures say, or 0.

    When one has failed the others have some time to end their own ranks, and then are told to.
    What they say of it meanwhile counts as well: the first to fail may only have lost the culprit.
    """
    store = TCPStore(HERE, 0, is_master=True, wait_for_workers=False)
    os.environ[MEETING] = str(store.port)
    command = [sys.executable, "-P", "-m", "appliance.worker.child", "agent", str(os.getpid())]
    agents = [subprocess.Popen(command) for _ in range(count)]  # noqa: S603 - our own worker
    deadline, failed, are_told = math.inf, 0, False
    while any(agent.poll() is None for agent in agents):
        if not are_told and (failed := _failure(agents)):
            deadline = min(deadline, time.monotonic() + AGENT_SECONDS)
        if time.monotonic() > deadline and not are_told:
            are_told = True
            for agent in agents:
                agent.terminate()
        time.sleep(AGENT_TICK_SECONDS)
    return failed if are_told else _failure(agents)


def _failure(agents: Sequence[subprocess.Popen[bytes]]) -> int:
    """What the agents that have failed say of it: the signal of a rank before all else; or 0.

    An agent that was killed itself speaks as a rank does: a shell's number for the signal.
    """
    failed = [status for agent in agents if (status := agent.poll())]
    told = [SHELL - status if status < 0 else status for status in failed]
    return max(told, default=0)


def _agent() -> NoReturn:
    """Be one of several torchruns, with its share of the ranks."""
    case = adapter(LaunchSpec).validate_json(os.environ[RANK_SPEC]).case
    meeting = f"--rdzv-endpoint={HERE}:{os.environ[MEETING]}"
    several = [f"--nnodes={case.agents}", "--rdzv-id=launch", "--rdzv-conf=is_host=false"]
    _run_ranks(case.ranks // case.agents, meeting, *several)


def _run_ranks(count: int, *meeting: str) -> NoReturn:
    """Start the ranks, end them all when one fails, and tell the signal if it was one."""
    from torch.distributed import run as torchrun  # noqa: PLC0415 - one alone does without
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415

    here = ["--rdzv-backend=c10d", f"--local-addr={HERE}", *meeting]
    rank = [sys.executable, "-P", "-m", "appliance.worker.child", "rank", str(os.getpid())]
    try:
        torchrun.main([f"--nproc-per-node={count}", *here, "--no-python", *rank])
    except ChildFailedError as error:
        sys.stderr.write(f"{error}\n")
        ends = sorted(error.failures.values(), key=lambda failure: failure.timestamp)
        # Those that it had to end itself it ends by SIGTERM.
        signals = [-end.exitcode for end in ends if end.exitcode < 0]
        signals = [number for number in signals if number != signal.SIGTERM]
        sys.exit(SHELL + signals[0] if signals else 1)
    sys.exit(0)


def _serve() -> None:
    answer = claim_stdout()
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1)
        if not part:
            return
        line += part
    request = adapter(ServeRequest).validate_json(line)
    for name in request.workloads:
        with contextlib.suppress(_Absent):  # its launches say so themselves
            _load(name)
    vendor = make_vendor(request.vendor)
    ForkServer(answer, lambda: _probe(vendor), launch).serve()


def main(arguments: list[str]) -> None:
    """Run one of the programs."""
    if len(arguments) > 1:
        processes.die_with(int(arguments[1]))
    programs = {
        "describe": _describe,
        "list": lambda: _describe(_names()),
        "launch": _launch,
        "rank": _rank,
        "agent": _agent,
        "serve": _serve,
    }
    programs[arguments[0]]()


if __name__ == "__main__":
    main(sys.argv[1:])
