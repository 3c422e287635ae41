"""Synthetic bundles for the report's tests: cases of a smoke run, judged by the real judge.

Everything but the measurements is real: records, journal chain, bounds, interim analyses, verdict.
The same arguments give the same bundle. `python tests/support/report_samples.py FOLDER` writes the
pages of every kind there, to be looked at.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from support.baselines import a_level
from support.builders import healthy_server

from appliance.evidence.baseline_key import device_name, key_of
from appliance.judging.verdict import Judge, judge
from appliance.planning.criterion_scope import planned_bounds
from appliance.planning.launch_constants import NUM_EMPTY_BLOCKS
from appliance.records.baseline import Baseline, Baselines, Level, Peak, Peaks
from appliance.records.criteria import Criteria
from appliance.records.journal import (
    Block,
    Calibrated,
    Check,
    Checked,
    Counted,
    Digested,
    Environment,
    Event,
    Float32Products,
    Injected,
    InterimAnalysis,
    LaunchEnded,
    LaunchStarted,
    Libraries,
    Line,
    Phase,
    Reading,
    RunEnded,
    RunResumed,
    RunStarted,
    Started,
    Warmed,
)
from appliance.records.json import Scalar, sha256, to_json
from appliance.records.plan import Case, Launch, Plan
from appliance.records.qualified import Qualified
from appliance.records.signer import Signer
from appliance.records.suite import Protocol, Scenario
from appliance.records.system import Conditions, Device, Fact, Identity, Process, System
from appliance.records.workload import Bound, Work
from appliance.storage.bundle import Bundle, log_name, read_files
from appliance.storage.criteria_file import parse_criteria

START = datetime(2026, 11, 21, 12, 46, 3, tzinfo=UTC)
DEVICE = "cpu:0"
LAUNCHES = 5
MOST_LAUNCHES = 10  # where limits are set
HOSTILE = "Xeon</td><script>alert(1)</script>\u202eDETPECCA\u202c \ue000\x07 & \u4e2d"
CRITERIA = b"""schema = "bench/criteria/1"
name = "functional"
version = 1
summary = "Every planned case completed, every check within its bound, every first step repeatable"

[[criterion]]
id = "completion"
kind = "completion"
title = "Every planned launch completed"

[[criterion]]
id = "correctness"
kind = "numeric"
title = "Every check against an independent reference within its bound"

[[criterion]]
id = "repeatability"
kind = "determinism"
title = "The same inputs give the same bits in the deterministic phase"
"""
LIMITS = b"""
[[criterion]]
id = "speed"
kind = "perf"
title = "As fast as this machine was"
metric = "step_seconds"
within_of_baseline = "class"

[[criterion]]
id = "arithmetic"
kind = "perf"
title = "A fair part of what the vendor promises"
cases = "gemm-*"
metric = "flops_per_second"
fraction_of_peak = 0.4

[[criterion]]
id = "bandwidth"
kind = "perf"
title = "Bandwidth as ordered"
cases = "memory_bandwidth"
metric = "bytes_per_second"
unit = "GB/s"
at_least = 12

[[criterion]]
id = "stalls"
kind = "tail"
title = "Few steps stall"
metric = "stall_rate"
at_most = 0.02

[[criterion]]
id = "slow-launches"
kind = "tail"
title = "Few launches are slow ones"
metric = "slow_launch_rate"
at_most = 0.2

[[criterion]]
id = "latency"
kind = "tail"
title = "Nine queries in ten are answered in time"
cases = "onnx_resnet50"
metric = "latency_seconds"
quantile = 0.9
unit = "ms"
at_most = 50

[[criterion]]
id = "memory-errors"
kind = "health"
title = "No uncorrected memory error during the run"
metric = "ecc_uncorrected"
at_most = 0

[[criterion]]
id = "devices"
kind = "inventory"
title = "As many devices as ordered"
metric = "devices.count"
equals = 1
required = false
"""
JUDGED = CRITERIA.replace(b'"functional"', b'"ordered"') + LIMITS


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case: its step in milliseconds and one check as (name, error, bound, detects, what)."""

    id: str
    workload: str
    summary: str
    parameters: dict[str, Scalar]
    work: Work
    step_ms: float
    check: tuple[str, float, float, float | None, str]
    num_parameters: int | None = None
    is_timed: bool = True
    small: bool = True
    bound_by: Bound = "compute"
    scenario: Scenario = ""


ROWS = (
    Row(
        id="gemm-fp32",
        workload="gemm",
        summary="One matrix product of random data",
        parameters={"size": 512, "dtype": "float32"},
        work=Work(
            units=1, unit="products", flops=2 * 512**3, bytes=3 * 512**2 * 4, precision="float32"
        ),
        step_ms=2.9,
        check=("sampled rows in float64", 3.1e-6, 9.2e-6, 1.4e-5, "relative error of one cell"),
    ),
    Row(
        id="gemm-bf16",
        workload="gemm",
        summary="One matrix product of random data",
        parameters={"size": 512, "dtype": "bfloat16"},
        work=Work(
            units=1, unit="products", flops=2 * 512**3, bytes=3 * 512**2 * 2, precision="bfloat16"
        ),
        step_ms=4.7,
        check=("random projection", 0.0041, 0.0117, 0.013, "relative scale of the output"),
    ),
    Row(
        id="gemm_exact",
        workload="gemm_exact",
        summary="Integer matrix product whose digest is the same on every vendor's device",
        parameters={"size": 1024},
        work=Work(units=1, unit="products", flops=2 * 1024**3),
        step_ms=1,
        check=("golden digest", 0.0, 0.0, None, ""),
        is_timed=False,
    ),
    Row(
        id="memory_bandwidth",
        workload="memory_bandwidth",
        summary="Copy, scale, add and triad over arrays larger than the last cache",
        parameters={"elements": 16777216, "dtype": "float64"},
        work=Work(units=4, unit="kernels", bytes=10 * 16777216 * 8),
        step_ms=96,
        check=("contents of the arrays", 0.0, 0.0, None, ""),
        bound_by="memory",
    ),
    Row(
        id="resnet50",
        workload="resnet50",
        summary="One training step of ResNet-50 with stochastic gradient descent",
        parameters={"batch": 4, "image": 64, "dtype": "float32"},
        work=Work(units=4, unit="images", flops=4 * 2.1e9),
        step_ms=214,
        check=("loss in float64", 2.2e-6, 1.9e-5, 2.1e-5, "relative error of the loss"),
        num_parameters=25_557_032,
    ),
    Row(
        id="bert",
        workload="bert",
        summary="One masked-language training step of BERT",
        parameters={"batch": 4, "sequence": 128, "layers": 2, "width": 128},
        work=Work(units=4, unit="sequences", flops=4.1e9),
        step_ms=58,
        check=("gradient norm in float64", 7.7e-6, 4.0e-5, 4.4e-5, "relative error of the norm"),
        num_parameters=4_417_594,
    ),
    Row(
        id="llama",
        workload="llama",
        summary="Decoding of new tokens with a key-value cache",
        parameters={"batch": 1, "prompt": 32, "new_tokens": 16, "layers": 2, "width": 256},
        work=Work(units=16, unit="generated tokens", flops=3.3e8),
        step_ms=41,
        check=("logits against a full pass", 1.1e-5, 8e-5, 9e-5, "relative error of one logit"),
        num_parameters=10_748_160,
        bound_by="latency",
        scenario="single_stream",
    ),
    Row(
        id="onnx_resnet50",
        workload="onnx_resnet50",
        summary="Inference of ResNet-50 through ONNX Runtime",
        parameters={"batch": 4, "image": 64},
        work=Work(units=4, unit="images", flops=4 * 0.7e9),
        step_ms=33,
        check=("logits against torch in float64", 5e-6, 6e-5, 7e-5, "relative error of a logit"),
        num_parameters=25_557_032,
        scenario="offline",
    ),
    Row(
        id="digits_mlp",
        workload="digits_mlp",
        summary="Training on handwritten digits to a stated accuracy",
        parameters={"hidden": 64, "epochs": 20},
        work=Work(units=64, unit="images", flops=64 * 6 * 4810),
        step_ms=1.4,
        check=("test error", 0.031, 0.05, 0.05, "share of digits read wrongly"),
        num_parameters=4_810,
        small=False,
    ),
    Row(
        id="markov_lm",
        workload="markov_lm",
        summary="A language model learns a source whose entropy is known",
        parameters={"states": 64, "width": 64},
        work=Work(units=2048, unit="tokens", flops=1.2e8),
        step_ms=7.3,
        check=("distance from the entropy", 0.011, 0.05, 0.05, "nats above the source"),
        num_parameters=66_112,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Story:
    """What goes otherwise than in a healthy run; a case is named by its suite id.

    `shifting` is slower from its fourth launch on, `slow` throughout and `noisy` scatters; the
    device `straggler` is slower than the others in every case.
    """

    failing: str = ""
    crashing: str = ""
    unsupported: str = ""
    slow: str = ""
    noisy: str = ""
    shifting: str = ""
    straggler: str = ""
    injector: str = ""
    rerun_of: str = ""
    interruptions: int = 0
    num_devices: int = 1
    is_hostile: bool = False
    has_readings: bool = True


@cache
def sample(
    *, signer: Signer | None = None, criteria: bytes = CRITERIA, **changes: str | int
) -> Bundle:
    """A judged bundle; `changes` are those of a `Story`."""
    story = Story(**changes)  # type: ignore[arg-type]
    system = _system(story)
    parsed = parse_criteria(criteria, "criteria.toml")
    plan = _plan(system, criteria, parsed, story)
    peaks = Peaks(peak=PEAKS if criteria != CRITERIA else ())
    baselines = _baselines(plan, system) if criteria != CRITERIA else Baselines(baseline=())
    judging = Judge(plan=plan, criteria=parsed, baselines=baselines, peaks=peaks, system=system)
    plan_bytes = to_json(plan)
    files = {
        "plan.json": plan_bytes,
        "system.json": to_json(system),
        "criteria.toml": criteria,
        "baselines.json": to_json(baselines),
        "peaks.json": to_json(peaks),
        "qualified.json": to_json(Qualified(record=())),
        "signer.json": to_json(signer or _signer(is_development=True)),
        "journal.jsonl": _journal(_events(plan, story, judging), sha256(plan_bytes)),
    }
    if story.crashing:
        name = f"{story.crashing}@{DEVICE}/3"
        files[log_name(name, "stderr")] = b"Fatal Python error: Segmentation fault\n"
        files[log_name(name, "stdout")] = b""
    bundle = read_files(files, complete=False)
    verdict = judge(
        plan=bundle.plan,
        criteria=bundle.criteria,
        lines=bundle.lines,
        baselines=bundle.baselines,
        peaks=bundle.peaks,
        system=bundle.system,
    )
    return read_files({**files, "verdict.json": to_json(verdict)}, complete=False)


PEAKS = (
    Peak(
        model="Intel(R) Xeon(R) Platinum 8488C",
        quantity="float32_flops_per_second",
        value=1.1e11,
        unit="FLOP/s",
        per="core",
        is_confirmed=False,
        source="https://vendor.example/xeon-8488c.pdf, page 3",
    ),
    Peak(
        model="Intel(R) Xeon(R) Platinum 8488C",
        quantity="memory_bytes_per_second",
        value=3.07e11,
        unit="B/s",
        per="device",
        is_confirmed=True,
        source="https://vendor.example/xeon-8488c.pdf, page 4",
    ),
)


def _baselines(plan: Plan, system: System) -> Baselines:
    """What this machine did before, for all timed cases but one."""
    rows = {row.id: row for row in ROWS}
    return Baselines(
        baseline=tuple(
            Baseline(
                key=key_of(case, plan.protocol, system),
                kind="same_device",
                devices=(device_name(system, case.device),),
                num_launches=480,
                num_runs=12,
                run_seconds=3600.0,
                steps=_baseline_level(rows[_suite_id(case.id)]),
                wall=_baseline_level(rows[_suite_id(case.id)]),
                smallest_margin=0.009,
                smallest_margin_of_three=0.007,
                bundles=("b1" * 32, "b2" * 32),
            )
            for case in plan.cases
            if case.is_timed and case.workload != "markov_lm"
        )
    )


def _baseline_level(row: Row) -> Level:
    return a_level(math.log(row.step_ms * 1.017e-3), 0.006)


def _signer(*, is_development: bool) -> Signer:
    return Signer(
        certificate_pem="-----BEGIN CERTIFICATE-----\nsample\n-----END CERTIFICATE-----\n",
        subject="CN=UNTRUSTED DEVELOPMENT KEY" if is_development else "CN=Node Laboratory,O=Buyer",
        sha256="4f0c" * 16,
        not_after_utc="2027-11-21T12:46:03Z",
        role="tester",
        is_development=is_development,
    )


ORGANISATION = _signer(is_development=False)


def _system(story: Story) -> System:
    module = {
        "manufacturer": Fact(value="Samsung", source="SMBIOS"),
        "size": Fact(value=32 * 2**30, unit="bytes", source="SMBIOS"),
        "kind": Fact(value="DDR5", source="SMBIOS"),
        "configured_speed": Fact(value=4_800_000_000, unit="transfers/s", source="SMBIOS"),
    }
    modules = tuple(
        {
            "locator": Fact(value=f"DIMM_{slot}", source="SMBIOS"),
            "serial": Fact(value=f"03D1{number:04X}", source="SMBIOS"),
            **module,
        }
        for number, slot in enumerate("ABCDEFGH", 0x51A0)
    )
    return System(
        identity=Identity(
            devices=tuple(_device(index, story) for index in range(story.num_devices)),
            host={
                "system_vendor": Fact(value="Supermicro", source="/sys/class/dmi/id"),
                "system_product": Fact(value="SYS-421GE-TNRT", source="/sys/class/dmi/id"),
                "system_serial": Fact(
                    value=None, source="/sys/class/dmi/id", hint="readable by root alone"
                ),
                "kernel": Fact(value="6.1.0-28-amd64", source="uname"),
                "distribution": Fact(value="Debian GNU/Linux 12", source="/etc/os-release"),
                "container": Fact(value=True, source="/proc/1/cgroup"),
                "image_digest": Fact(value=None, hint="set BENCH_IMAGE_DIGEST to record it"),
            },
            memory_modules=modules,
            disks=(
                {
                    "name": Fact(value="nvme0n1", source="/sys/block"),
                    "model": Fact(value="SAMSUNG MZQL21T9HCJR-00A07", source="/sys/block"),
                    "serial": Fact(value=None, hint="readable by root alone"),
                    "size": Fact(value=1_920_383_410_176, unit="bytes", source="/sys/block"),
                },
            ),
            interfaces=(),
            software={
                "python": Fact(value="3.11.7", source="interpreter"),
                "torch": Fact(value="2.13.0+cpu", source="package"),
                "transformers": Fact(value="5.23.0", source="package"),
                "onnxruntime": Fact(value="1.23.2", source="package"),
                "blas": Fact(value="mkl 2025.3", source="torch.__config__"),
            },
        ),
        conditions=Conditions(
            utc=_time(-4),
            facts={
                "hostname": Fact(value="node-017", source="/proc/sys/kernel/hostname"),
                "load_1_minute": Fact(value=0.31, source="/proc/loadavg"),
                "memory_available": Fact(value=241 * 2**30, unit="bytes", source="/proc/meminfo"),
                "governor": Fact(value=None, source="/sys", hint="the hypervisor hides it"),
            },
            foreign_processes=(Process(name="dockerd", cpu_share=0.013, memory_bytes=91 * 2**20),),
        ),
    )


def _device(index: int, story: Story) -> Device:
    unread = "run with --cap-add SYS_RAWIO and --device /dev/mem to read it"
    return Device(
        id=f"cpu:{index}",
        vendor="cpu",
        index=index,
        model=HOSTILE if story.is_hostile else "Intel(R) Xeon(R) Platinum 8488C",
        serial=None,
        memory_bytes=256 * 2**30,
        facts={
            "sockets": Fact(value=1, source="/sys/devices/system/cpu"),
            "physical_cores": Fact(value=2, source="/sys/devices/system/cpu"),
            "cache_l3": Fact(value=110_100_480, unit="bytes", source="/sys"),
            "instruction_sets": Fact(
                value="avx avx2 avx512f avx512bw avx512vl avx512_bf16 amx_tile "
                "amx_int8 amx_bf16 fma sse4_1 sse4_2",
                source="/proc/cpuinfo",
            ),
            "numa_nodes": Fact(value=1, source="/sys/devices/system/node"),
            "microcode": Fact(value=None, source="/proc/cpuinfo", hint=unread),
        },
    )


def _suite_id(case: str) -> str:
    return case.partition("@")[0]


def _plan(system: System, data: bytes, criteria: Criteria, story: Story) -> Plan:
    is_judged = data != CRITERIA
    cases = tuple(
        _case(row, device.id, MOST_LAUNCHES if is_judged else LAUNCHES, story)
        for row in ROWS
        for device in system.identity.devices
    )
    interim_analyses = (LAUNCHES, MOST_LAUNCHES) if is_judged else (LAUNCHES,)
    num_limits, bounds = planned_bounds(criteria, cases, interim_analyses)
    launches = tuple(
        Launch(id=f"{case.id}/{number}", case=case.id, number=number, is_timed=number > 0)
        for case in cases
        for number in range(case.launches + 1)
    )
    order = sorted(launches, key=lambda launch: launch.number)
    return Plan(
        run_id="20261121T124603Z-7f3a9c",
        created_utc=_time(0),
        bench_version="0.1.0",
        seed="8d" * 32,
        suite="smoke",
        suite_version=1,
        suite_summary="Every family of work once, small",
        criteria=criteria.name,
        digests={
            "suite": sha256(b"suite"),
            "criteria": sha256(data),
            "identity": sha256(to_json(system.identity)),
        },
        protocol=Protocol(
            mode="forked",
            calibration_seconds=0.2,
            warmup_steps=3,
            warmup_seconds=0.1,
            blocks=3,
            block_steps=5,
            block_seconds=0.2,
            interim_analyses=interim_analyses,
            last_checks="one",
        ),
        cases=cases,
        launches=launches,
        groups=tuple((launch.id,) for launch in order),
        num_limits=num_limits,
        bounds=bounds,
        expected_seconds=140.0,
        longest_seconds=270.0,
        time_limit_seconds=300.0,
        injectors=(story.injector,) if story.injector else (),
        rerun_of=story.rerun_of,
    )


def _case(row: Row, device: str, launches: int, story: Story) -> Case:
    return Case(
        id=f"{row.id}@{device}",
        workload=row.workload,
        version=1,
        summary=row.summary,
        parameters=row.parameters,
        small=row.small,
        work=row.work,
        num_parameters=row.num_parameters,
        steps=None,
        is_timed=row.is_timed,
        is_repeatable=True,
        alone=False,
        bound_by=row.bound_by,
        data_pattern="random",
        scenario=row.scenario,
        ranks=1,
        weight=1.0,
        injector=story.injector if row.id == "gemm-fp32" else "",
        device=device,
        launches=launches if row.is_timed else 0,
        checked_launch=2 if row.is_timed else None,
        expected_seconds=2.0,
        reference_seconds=2.0,
        time_limit_seconds=60.0,
        memory_limit_bytes=4 * 2**30,
        unsupported="cpu:0 has no bfloat16" if row.id == story.unsupported else "",
    )


# ------------------------------------------------------------------ the journal


def _time(seconds: float) -> str:
    moment = START + timedelta(seconds=seconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(number: int, event: Event, prev: str = "") -> Line:
    return Line(
        seq=number,
        utc=_time(1 + number * 0.35),
        monotonic_ns=number * 350_000_000,
        prev=prev,
        event=event,
    )


def _journal(events: Iterable[Event], prev: str) -> bytes:
    lines = []
    for number, event in enumerate(events):
        line = to_json(_line(number, event, prev))
        prev = sha256(line)
        lines.append(line + b"\n")
    return b"".join(lines)


def _events(plan: Plan, story: Story, judging: Judge) -> Iterator[Event]:
    """The whole run, with every interim analysis as the judge takes it."""
    for number, event in enumerate(_run(plan, story, judging)):
        judging.take(_line(number, event))
        yield event


def _run(plan: Plan, story: Story, judging: Judge) -> Iterator[Event]:
    """Launches in rounds; the first ones numbered 2 are those that an interruption cut."""
    rows = {row.id: row for row in ROWS}
    cases = {case.id: case for case in plan.cases}
    devices = dict.fromkeys(case.device for case in plan.cases)
    cut = [f"{row.id}@{DEVICE}/2" for row in ROWS if row.is_timed][: story.interruptions]
    decided: set[str] = set()
    yield RunStarted(run_id=plan.run_id, plan="", system="", pid=4711)
    for name in plan.injectors:
        injected = tuple(case.id for case in plan.cases if case.injector == name)
        yield Injected(injector=name, cases=injected)
    yield from (_counted(device, 0) for device in devices)
    yield healthy_server(seconds=0.42)
    for group in plan.groups:
        launch = next(one for one in plan.launches if one.id in group)
        row, case = rows[_suite_id(launch.case)], cases[launch.case]
        if case.unsupported:
            yield _ended(launch, "unsupported", case.unsupported)
        elif case.id in decided:
            yield _ended(launch, "not_run", "decided")
        elif launch.id in cut:
            yield LaunchStarted(launch=launch.id, mode="forked")
            yield RunResumed(
                interruption=cut.index(launch.id) + 1,
                interrupted=(launch.id,),
                dropped="",
                pid=4800,
            )
            yield _ended(launch, "interrupted", "the parent was ended")
        else:
            yield from _launch(launch, row, case, 3 if f"{case.id}/2" in cut else 2, story)
        if launch.number in plan.protocol.interim_analyses and case.id not in decided:
            is_decided, reason = judging.interim_analysis(case.id)
            decided |= {case.id} if is_decided else set()
            yield InterimAnalysis(
                case=case.id, launches=launch.number, is_decided=is_decided, reason=reason
            )
    yield from (_counted(device, 3) for device in devices)
    yield RunEnded(launches=len(plan.launches))


LIBRARIES = {
    "/opt/bench/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so": sha256(b"torch"),
    "/usr/lib/x86_64-linux-gnu/libc.so.6": sha256(b"libc"),
    "/usr/lib/x86_64-linux-gnu/libffi.so.8": None,
}


def _counted(device: str, corrected: int) -> Counted:
    counters = {"ecc_corrected": corrected, "ecc_uncorrected": 0, "machine_checks": None}
    return Counted(device=device, counters=counters, moment="after" if corrected else "before")


def _launch(launch: Launch, row: Row, case: Case, checked: int, story: Story) -> Iterator[Event]:
    chance = random.Random(launch.id)  # noqa: S311 - a sample, not a secret
    yield LaunchStarted(launch=launch.id, mode="forked")
    facts = {
        "torch": Fact(value="2.13.0+cpu", source="torch"),
        "num_threads": Fact(value=2, source="torch"),
    }
    yield Environment(launch=launch.id, rank=0, facts=facts)
    products = Float32Products(
        launch=launch.id, rank=0, moment="before", formats={"matmul": "ieee", "convolution": "ieee"}
    )
    yield products
    built, first = (
        int(chance.uniform(0.1, 0.8) * 1e9),
        int(row.step_ms * chance.uniform(3, 6) * 1e6),
    )
    yield Started(launch=launch.id, rank=0, build_ns=built, first_step_ns=first)
    if row.id == story.crashing and launch.number == 3:
        yield _ended(launch, "crashed", "SIGSEGV")
        return
    digest = sha256(row.id.encode())
    yield Digested(launch=launch.id, rank=0, phase="first", step=0, what="output", digest=digest)
    is_outside = row.id == story.failing and launch.number == 4
    yield _checked(launch, row, "first", chance, is_outside=is_outside)
    if launch.number == 0:
        yield Libraries(launch=launch.id, rank=0, files=LIBRARIES)
    span = 200_000_000
    yield Calibrated(
        launch=launch.id,
        rank=0,
        wall_ns=(span, span, span),
        raw_ns=tuple(int(span * (1 + chance.uniform(-2e-5, 2e-5))) for _ in range(3)),
        event_ns=None,
        empty_ns=(3_000,) * NUM_EMPTY_BLOCKS,
    )
    if launch.is_timed:
        yield from _timed(launch, row, case, chance, story)
        if row.scenario:
            yield _checked(launch, row, "sampled", chance)
        if launch.number == checked:
            yield _checked(launch, row, "last", chance)
    if story.has_readings:
        yield Reading(
            launch=launch.id,
            device=case.device,
            values={
                "frequency_hertz": chance.uniform(2.4e9, 3.1e9),
                "temperature_celsius": None,
                "memory_used_bytes": chance.uniform(1, 3) * 2**30,
                "load_share": chance.uniform(0.8, 1.0),
                "foreign_processors": chance.uniform(0.0, 0.05),
            },
        )
    yield replace(products, moment="after")
    yield _ended(launch, "completed", "")


def _timed(
    launch: Launch, row: Row, case: Case, chance: random.Random, story: Story
) -> Iterator[Event]:
    level = row.step_ms * chance.gauss(1, 0.06 if row.id == story.noisy else 0.004)
    level *= 1.12 if row.id == story.slow else 1.0
    level *= 1.05 if row.id == story.shifting and launch.number > 3 else 1.0
    level *= 1.06 if case.device == story.straggler else 1.0
    yield Warmed(launch=launch.id, rank=0, wall_ns=(int(level * 1e6),) * 3)
    num_steps = max(5, int(200 / row.step_ms))
    for index in range(3):
        steps = [int(level * (1 + abs(chance.gauss(0, 0.02))) * 1e6) for _ in range(num_steps)]
        if (launch.number, index) == (1, 1):
            steps[len(steps) // 2] *= 4  # a stall, as real nodes have them
        yield Block(
            launch=launch.id,
            rank=0,
            index=index,
            first_step=4 + index * num_steps,
            wall_ns=tuple(steps),
            event_ns=None,
            block_wall_ns=sum(steps) + 50_000,
            block_raw_ns=sum(steps) + 51_000,
        )


def _checked(
    launch: Launch, row: Row, phase: Phase, chance: random.Random, *, is_outside: bool = False
) -> Checked:
    name, error, bound, detects, what = row.check
    result = bound * 3.2 if is_outside else error * chance.uniform(0.4, 1.0)
    check = Check(name=name, error=result, bound=bound, detects=detects, detects_what=what)
    return Checked(launch=launch.id, rank=0, phase=phase, step=0, check=check)


def _ended(launch: Launch, outcome: str, reason: str) -> LaunchEnded:
    blank = LaunchEnded(
        launch=launch.id,
        outcome="completed",
        reason=reason,
        detail="",
        exit_code=0,
        wall_ns=8_000_000_000,
        peak_memory_bytes=2**30,
    )
    return replace(blank, outcome=outcome)  # type: ignore[arg-type]


KINDS: dict[str, dict[str, object]] = {
    "accepted": {"signer": ORGANISATION},
    "development": {},
    "rejected": {"failing": "resnet50", "crashing": "llama"},
    "inconclusive": {"unsupported": "gemm-bf16", "has_readings": False, "signer": ORGANISATION},
    "interrupted": {"interruptions": 1, "signer": ORGANISATION},
    "hostile": {"is_hostile": True},
    "judged": {"criteria": JUDGED, "slow": "bert", "noisy": "llama", "shifting": "resnet50"},
    "node": {"criteria": JUDGED, "num_devices": 4, "straggler": "cpu:2", "signer": ORGANISATION},
    "injected": {"injector": "scaled output", "failing": "gemm-fp32"},
    "crowded": {
        "criteria": JUDGED,
        "num_devices": 8,
        "injector": "scaled output",
        "interruptions": 2,
        "failing": "resnet50",
    },
    "repeated": {"rerun_of": "20261120T101010Z-0badca/bert@cpu:0/3", "signer": ORGANISATION},
}

if __name__ == "__main__":
    from reports import render
    from reports.document.view import view

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for kind in sys.argv[2:] or KINDS:
        made = view(sample(**KINDS[kind]))  # type: ignore[arg-type]
        (folder / f"{kind}.pdf").write_bytes(render.pdf(made, {"statement.dsse.json": b"{}"}))
        (folder / f"{kind}.html").write_bytes(render.html(made, {"statement.dsse.json": b"{}"}))
