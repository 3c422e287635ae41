"""Everything of a launch before its first build, with the refusals that are no fault of the device.

The child owns what a workload may not have: seeds, threads, warm-up, loops, synchronising, clocks.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from appliance.evidence.software_fault import NOT_INSTALLED
from appliance.ipc.channel import Link
from appliance.ipc.messages import TimingOver
from appliance.ipc.rank_proxy import NAME_VARIABLE
from appliance.linux import heap, libraries
from appliance.records.journal import (
    AheadThrough,
    Artifact,
    Check,
    Environment,
    Float32Products,
    Outcome,
)
from appliance.records.json import Parameters
from appliance.records.request import LaunchSpec
from appliance.records.system import Fact, Facts
from appliance.vendors import torch_settings
from appliance.vendors.base import Vendor
from appliance.vendors.registry import make_vendor
from appliance.worker import torch_device
from appliance.worker.describe import Drivers
from appliance.worker.measure import Channel, LaunchCourse, Machine, Progress
from appliance.worker.parameters import AnyWorkload, fitted, one_line
from appliance.worker.repeats import RepeatCourse
from appliance.worker.workload_loader import WorkloadAbsent, import_fault, load_workload
from workloads.contract.target import Artifacts, Beside, Target
from workloads.parts.distributed import ranks
from workloads.parts.drawing import drawn
from workloads.parts.matmul import tf32
from workloads.parts.numerics import staging

STALL_SHARE, LONGEST_STALL = 1 / 3, 300.0
"""How long a rank waits for another: a share of the case's time limit, and seconds at most."""


class LaunchRefused(Exception):
    """The launch cannot be made, through no fault of the device."""

    def __init__(self, reason: str, detail: str, outcome: Outcome = "not_run") -> None:
        super().__init__(detail)
        self.reason = reason
        self.outcome = outcome


def prepared(
    spec: LaunchSpec,
    link: Link,
    rank: int,
    progress: Progress,
    turn: Callable[[], AheadThrough | None] = lambda: None,
) -> LaunchCourse:
    """The launch, ready to run; `progress` is told how far it comes.

    `turn` returns when the launch begins, of a process that was started ahead, or with how far it
    goes on before that.

    Raises LaunchRefused, and ParameterError or Unsupported where the workload refuses.
    """
    _refuse_preloads()
    kind = _loaded(spec)
    progress.stages.enter("device")
    vendor = make_vendor(spec.vendor)
    _refuse_lies(spec, vendor)
    vendor.prepare()
    torch_settings.choose_float32_products(vendor.torch_type, in_tf32=spec.case.in_tf32)
    settings = torch_settings.be_deterministic() if spec.library_mode == "deterministic" else None
    if spec.num_threads is not None:
        torch.set_num_threads(spec.num_threads)
    _refuse_lacking(kind, spec, vendor)
    workload = _constructed(kind, spec.case.parameters)
    device = rank_device(spec, vendor, rank)
    facts = {**torch_device.process_facts(device), **_rank_facts(spec)}
    link.send(Environment(launch=spec.launch, rank=rank, facts=facts))
    link.send(float32_products(spec, rank, "before"))
    stopwatch = torch_device.DeviceStopwatch(device)
    target = _target(spec, vendor, rank, _artifacts(spec, link, rank), stopwatch)
    if spec.case.in_tf32:
        tf32.require_tf32(target)
    machine = _machine(spec, target, stopwatch)

    def over() -> None:
        link.send(TimingOver())
        heap.keep()

    channel = Channel(send=link.send, wait=link.wait, turn=turn, over=over)
    if settings is not None:
        return RepeatCourse(
            spec=spec,
            rank=rank,
            workload=workload,
            target=target,
            machine=machine,
            channel=channel,
            progress=progress,
            settings=settings,
        )
    return LaunchCourse(
        spec=spec,
        rank=rank,
        workload=workload,
        target=target,
        machine=machine,
        channel=channel,
        progress=progress,
    )


def float32_products(
    spec: LaunchSpec, rank: int, moment: Literal["before", "after"]
) -> Float32Products:
    """What torch's settings say now of the formats in which float32 products are made."""
    formats = torch_settings.float32_products(make_vendor(spec.vendor).torch_type)
    return Float32Products(launch=spec.launch, rank=rank, moment=moment, formats=formats)


def _rank_facts(spec: LaunchSpec) -> Facts:
    """How this process came to be, if it is one of several ranks."""
    if spec.ranks == 1:
        return {}
    start = "forked by the launch's first process" if NAME_VARIABLE in os.environ else "a program"
    return {"rank_start": Fact(value=start, source="worker")}


def _checks_of_products(spec: LaunchSpec, device: torch.device) -> Iterator[Check]:
    """That a product is made in TF32 now, where the case asks for it."""
    if spec.case.in_tf32:
        yield tf32.window_check(device)


def _refuse_preloads() -> None:
    for name in ("LD_PRELOAD", "LD_AUDIT"):
        if name in os.environ:
            raise LaunchRefused(name.lower(), f"{name} is set, so what runs is not what is named")


def _loaded(spec: LaunchSpec) -> type[AnyWorkload]:
    """The case's workload; what its libraries raise as they are imported touches no device."""
    name = spec.case.workload
    try:
        return load_workload(name)
    except WorkloadAbsent as absent:
        raise LaunchRefused(NOT_INSTALLED, one_line(absent), "software") from None
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a library raises, it is software
        traceback.print_exc()
        raise LaunchRefused(NOT_INSTALLED, import_fault(name, error), "software") from None


def _refuse_lies(spec: LaunchSpec, vendor: Vendor) -> None:
    """Of the libraries that are loaded now: the plan has only what their packages say."""
    lack = Drivers(vendor.libraries).lack_of(spec.case.libraries)
    if lack:
        raise LaunchRefused(NOT_INSTALLED, lack, "software")


def _refuse_lacking(kind: type[AnyWorkload], spec: LaunchSpec, vendor: Vendor) -> None:
    """The plan has checked this already; it matters where a device or a folder changed since."""
    needs = kind.needs.union(spec.case.needs)
    if needs:
        features = [
            vendor.features(device) for device in vendor.probe() if device.id == spec.case.device
        ]
        lacks = needs - frozenset().union(*features)
        if lacks:
            detail = f"{spec.case.device} has no {', '.join(sorted(lacks))}"
            raise LaunchRefused("missing_feature", detail, "unsupported")
    for name in kind.data:
        if spec.data is None or not (Path(spec.data) / name).is_dir():
            raise LaunchRefused("missing_data", f"data set {name} is not available")


def _constructed(kind: type[AnyWorkload], parameters: Parameters) -> AnyWorkload:
    try:
        return kind(**fitted(kind, parameters))
    except (KeyError, TypeError, ValueError) as error:
        raise LaunchRefused("bad_parameters", one_line(error)) from None


# ------------------------------------------------------------------ target and machine


def rank_device(spec: LaunchSpec, vendor: Vendor, rank: int) -> torch.device:
    """The device of this rank. The environment shows those of the case alone, in their order."""
    if vendor.torch_type == "cpu":
        return torch.device("cpu")
    index = rank if spec.case.devices and spec.ranks > 1 else 0
    device = torch.device(vendor.torch_type, index)
    torch.get_device_module(device.type).set_device(device)
    return device


def launch_devices(spec: LaunchSpec, vendor: Vendor) -> tuple[torch.device, ...]:
    """All devices of the launch as this process sees them; processors are one."""
    if vendor.torch_type == "cpu":
        return (torch.device("cpu"),) * len(spec.case.all_devices)
    return tuple(
        torch.device(vendor.torch_type, index) for index in range(len(spec.case.all_devices))
    )


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


def _target(
    spec: LaunchSpec,
    vendor: Vendor,
    rank: int,
    artifacts: Artifacts,
    stopwatch: torch_device.DeviceStopwatch,
) -> Target:
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size != spec.ranks:
        raise LaunchRefused("ranks", f"{world_size} processes, {spec.ranks} were planned")
    return Target(
        device=stopwatch.device,
        artifacts=artifacts,
        onnx_providers=vendor.onnx_providers(),
        onnx_options=vendor.onnx_options,
        data=None if spec.data is None else Path(spec.data),
        rank=rank,
        world_size=world_size,
        collectives=vendor.collectives,
        stall_seconds=min(LONGEST_STALL, STALL_SHARE * spec.case.time_limit_seconds),
        devices=launch_devices(spec, vendor),
        seconds=partial(torch_device.median_seconds, stopwatch),
        vendor=spec.vendor,
        beside=_beside(spec),
        scratch=None if spec.scratch is None else Path(spec.scratch),
        flops=spec.case.work.flops,
    )


def _beside(spec: LaunchSpec) -> Beside | None:
    if not spec.beside:
        return None
    number = spec.beside.index(spec.case.device)
    return Beside(devices=spec.beside, number=number, meeting=Path(spec.meeting))


def _machine(spec: LaunchSpec, target: Target, stopwatch: torch_device.DeviceStopwatch) -> Machine:
    """The device's clocks and generators; the ranks join here, where there are several."""
    joined = ranks.join(target) if spec.ranks > 1 else None
    return Machine(
        stopwatch=stopwatch,
        make_work=partial(torch_device.busy_work, target.device),
        seed=torch_device.seed_generators,
        bits=torch_device.device_bits,
        values=torch_device.device_values,
        pieces=torch_device.in_pieces(staging.staged),
        agree=int if joined is None else partial(joined.largest, device=target.device),
        libraries=libraries.loaded,
        give_back=partial(torch_device.give_back, target.device),
        is_lack_of_memory=torch_device.is_lack_of_memory,
        make_witness=partial(torch_device.device_witness, target.device, stopwatch),
        more_checks=partial(_checks_of_products, spec, target.device),
        input_checks=partial(drawn.checks, target),
        kept=lambda output: torch_device.kept(output, spec.case.memory_limit_bytes),
    )
