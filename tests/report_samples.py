"""Synthetic bundles for the report's tests: ten cases of a smoke run, judged by the real judge.

Everything but the measurements is real: records, journal chain, verdict. The same arguments
give the same bundle. `python tests/report_samples.py FOLDER` writes the pages of every kind
there, to be looked at.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from appliance.bundle import Bundle, log_name, read_files
from appliance.records import (
    Baselines,
    Block,
    Case,
    Check,
    Checked,
    Conditions,
    Device,
    Environment,
    Event,
    Fact,
    Identity,
    Launch,
    LaunchEnded,
    LaunchStarted,
    Line,
    Peaks,
    Phase,
    Plan,
    Process,
    Protocol,
    Reading,
    RunEnded,
    RunResumed,
    RunStarted,
    ServerProbed,
    Signer,
    Started,
    System,
    Warmed,
    Work,
    sha256,
    to_json,
)
from appliance.verdict import judge

START = datetime(2026, 11, 21, 12, 46, 3, tzinfo=UTC)
DEVICE = "cpu:0"
LAUNCHES = 5
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
title = "The same inputs give the same output twice"
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case: its step in milliseconds and one check as (name, error, bound, detects, what)."""

    id: str
    workload: str
    summary: str
    parameters: dict[str, bool | int | float | str]
    work: Work
    step_ms: float
    check: tuple[str, float, float, float | None, str]
    num_parameters: int | None = None
    is_timed: bool = True
    small: bool = True


ROWS = (
    Row(
        id="gemm-fp32",
        workload="gemm",
        summary="One matrix product of random data",
        parameters={"size": 512, "dtype": "float32"},
        work=Work(units=1, unit="products", flops=2 * 512**3, bytes=3 * 512**2 * 4),
        step_ms=2.9,
        check=("sampled rows in float64", 3.1e-6, 9.2e-6, 1.4e-5, "relative error of one cell"),
    ),
    Row(
        id="gemm-bf16",
        workload="gemm",
        summary="One matrix product of random data",
        parameters={"size": 512, "dtype": "bfloat16"},
        work=Work(units=1, unit="products", flops=2 * 512**3, bytes=3 * 512**2 * 2),
        step_ms=4.7,
        check=("random projection", 0.0041, 0.0117, 0.013, "relative scale of the output"),
    ),
    Row(
        id="gemm_exact",
        workload="gemm_exact",
        summary="Integer matrix product whose digest is the same on every maker's device",
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


@cache
def sample(
    *,
    failing: str = "",
    crashing: str = "",
    unsupported: str = "",
    interruptions: int = 0,
    is_hostile: bool = False,
    has_readings: bool = True,
    signer: Signer | None = None,
    criteria: bytes = CRITERIA,
) -> Bundle:
    """A judged bundle; `failing`, `crashing` and `unsupported` name a case by its suite id."""
    system = _system(is_hostile=is_hostile)
    plan = _plan(system, criteria, unsupported)
    events = list(_events(plan, failing, crashing, interruptions, has_readings=has_readings))
    plan_bytes = to_json(plan)
    files = {
        "plan.json": plan_bytes,
        "system.json": to_json(system),
        "criteria.toml": criteria,
        "baselines.json": to_json(Baselines(baseline=())),
        "peaks.json": to_json(Peaks(peak=())),
        "signer.json": to_json(signer or _signer(is_development=True)),
        "journal.jsonl": _journal(events, sha256(plan_bytes)),
    }
    if crashing:
        name = f"{crashing}@{DEVICE}/3"
        files[log_name(name, "stderr")] = b"Fatal Python error: Segmentation fault\n"
        files[log_name(name, "stdout")] = b""
    bundle = read_files(files, complete=False)
    verdict = judge(
        plan=bundle.plan,
        criteria=bundle.criteria,
        lines=bundle.lines,
        baselines=bundle.baselines,
        peaks=bundle.peaks,
    )
    return read_files({**files, "verdict.json": to_json(verdict)}, complete=False)


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


def _system(*, is_hostile: bool) -> System:
    unread = "run with --cap-add SYS_RAWIO and --device /dev/mem to read it"
    module = {
        "maker": Fact(value="Samsung", source="SMBIOS"),
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
            devices=(
                Device(
                    id=DEVICE,
                    vendor="cpu",
                    index=0,
                    model=HOSTILE if is_hostile else "Intel(R) Xeon(R) Platinum 8488C",
                    serial=None,
                    memory_bytes=256 * 2**30,
                    facts={
                        "sockets": Fact(value=1, source="/sys/devices/system/cpu"),
                        "num_cores": Fact(value=2, source="/sys/devices/system/cpu"),
                        "cache_l3": Fact(value=110_100_480, unit="bytes", source="/sys"),
                        "instruction_sets": Fact(
                            value="avx avx2 avx512f avx512bw avx512vl avx512_bf16 amx_tile "
                            "amx_int8 amx_bf16 fma sse4_1 sse4_2",
                            source="/proc/cpuinfo",
                        ),
                        "numa_nodes": Fact(value=1, source="/sys/devices/system/node"),
                        "microcode": Fact(value=None, source="/proc/cpuinfo", hint=unread),
                    },
                ),
            ),
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


def _plan(system: System, criteria: bytes, unsupported: str) -> Plan:
    cases = tuple(_case(row, unsupported) for row in ROWS)
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
        criteria="functional",
        digests={
            "suite": sha256(b"suite"),
            "criteria": sha256(criteria),
            "identity": sha256(to_json(system.identity)),
        },
        protocol=Protocol(
            mode="forked",
            warmup_steps=3,
            blocks=1,
            block_steps=5,
            block_seconds=0.5,
            looks=(5,),
            last_checks="one",
        ),
        cases=cases,
        launches=launches,
        groups=tuple((launch.id,) for launch in order),
        expected_seconds=140.0,
        time_limit_seconds=300.0,
    )


def _case(row: Row, unsupported: str) -> Case:
    return Case(
        id=f"{row.id}@{DEVICE}",
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
        device=DEVICE,
        launches=LAUNCHES if row.is_timed else 0,
        checked_launch=2 if row.is_timed else None,
        expected_seconds=2.0,
        reference_seconds=2.0,
        time_limit_seconds=60.0,
        memory_limit_bytes=4 * 2**30,
        unsupported="cpu:0 has no bfloat16" if row.id == unsupported else "",
    )


# ------------------------------------------------------------------ the journal


def _time(seconds: float) -> str:
    moment = START + timedelta(seconds=seconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _journal(events: Sequence[Event], prev: str) -> bytes:
    lines = []
    for number, event in enumerate(events):
        line = to_json(
            Line(
                seq=number,
                utc=_time(1 + number * 0.35),
                monotonic_ns=number * 350_000_000,
                prev=prev,
                event=event,
            )
        )
        prev = sha256(line)
        lines.append(line + b"\n")
    return b"".join(lines)


def _events(
    plan: Plan, failing: str, crashing: str, interruptions: int, *, has_readings: bool
) -> Iterator[Event]:
    """The whole run; the first launches numbered 2 are those that an interruption cut."""
    rows = {f"{row.id}@{DEVICE}": row for row in ROWS}
    cases = {case.id: case for case in plan.cases}
    cut = [f"{row.id}@{DEVICE}/2" for row in ROWS if row.is_timed][:interruptions]
    yield RunStarted(run_id=plan.run_id, plan="", system="", pid=4711)
    yield ServerProbed(is_healthy=True, seconds=0.42, reason="")
    for group in plan.groups:
        launch = next(one for one in plan.launches if one.id in group)
        row, case = rows[launch.case], cases[launch.case]
        if case.unsupported:
            yield _ended(launch, "unsupported", case.unsupported)
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
            is_crashing = row.id == crashing and launch.number == 3
            is_failing = row.id == failing
            yield from _launch(
                launch,
                row,
                checked=3 if f"{case.id}/2" in cut else 2,
                is_failing=is_failing,
                is_crashing=is_crashing,
                has_readings=has_readings,
            )
    yield RunEnded(launches=len(plan.launches))


def _launch(
    launch: Launch,
    row: Row,
    *,
    checked: int,
    is_failing: bool,
    is_crashing: bool,
    has_readings: bool,
) -> Iterator[Event]:
    chance = random.Random(launch.id)  # noqa: S311 - a sample, not a secret
    yield LaunchStarted(launch=launch.id, mode="forked")
    facts = {
        "torch": Fact(value="2.13.0+cpu", source="torch"),
        "num_threads": Fact(value=2, source="torch"),
    }
    yield Environment(launch=launch.id, rank=0, facts=facts)
    built, first = (
        int(chance.uniform(0.1, 0.8) * 1e9),
        int(row.step_ms * chance.uniform(3, 6) * 1e6),
    )
    yield Started(launch=launch.id, rank=0, build_ns=built, first_step_ns=first)
    if is_crashing:
        yield _ended(launch, "crashed", "SIGSEGV")
        return
    is_outside = is_failing and launch.number == 4
    yield _checked(launch, row, "first", chance, is_outside=is_outside)
    if launch.number == 0:
        same = Check(name="bytes that differ", error=0.0, bound=0.0)
        yield Checked(launch=launch.id, rank=0, phase="repeatability", step=0, check=same)
    if launch.is_timed:
        yield from _timed(launch, row, chance, checked)
    if has_readings:
        yield Reading(
            launch=launch.id,
            device=DEVICE,
            values={
                "frequency_hertz": chance.uniform(2.4e9, 3.1e9),
                "temperature_celsius": None,
                "memory_used_bytes": chance.uniform(1, 3) * 2**30,
                "load_share": chance.uniform(0.8, 1.0),
            },
        )
    yield _ended(launch, "completed", "")


def _timed(launch: Launch, row: Row, chance: random.Random, checked: int) -> Iterator[Event]:
    level = row.step_ms * chance.gauss(1, 0.01)
    num_steps = max(5, int(500 / row.step_ms))
    steps = [int(level * (1 + abs(chance.gauss(0, 0.02))) * 1e6) for _ in range(num_steps)]
    if launch.number == 1:
        steps[len(steps) // 2] *= 4  # a stall, as real nodes have them
    yield Warmed(launch=launch.id, rank=0, wall_ns=tuple(steps[:3]))
    yield Block(
        launch=launch.id,
        rank=0,
        index=0,
        first_step=4,
        wall_ns=tuple(steps),
        event_ns=None,
        block_wall_ns=sum(steps) + 50_000,
    )
    if launch.number == checked:
        yield _checked(launch, row, "last", chance)


def _checked(
    launch: Launch, row: Row, phase: Phase, chance: random.Random, *, is_outside: bool = False
) -> Checked:
    name, error, bound, detects, what = row.check
    found = bound * 3.2 if is_outside else error * chance.uniform(0.4, 1.0)
    check = Check(name=name, error=found, bound=bound, detects=detects, detects_what=what)
    return Checked(launch=launch.id, rank=0, phase=phase, step=0, check=check)


def _ended(launch: Launch, outcome: str, reason: str) -> LaunchEnded:
    blank = LaunchEnded(
        launch=launch.id,
        outcome="completed",
        reason=reason,
        detail="",
        exit_code=0,
        wall_ns=2_000_000_000,
        peak_memory_bytes=2**30,
    )
    return replace(blank, outcome=outcome)  # type: ignore[arg-type]


KINDS = {
    "accepted": {"signer": ORGANISATION},
    "development": {},
    "rejected": {"failing": "resnet50", "crashing": "llama"},
    "inconclusive": {"unsupported": "gemm-bf16", "has_readings": False, "signer": ORGANISATION},
    "interrupted": {"interruptions": 1, "signer": ORGANISATION},
    "hostile": {"is_hostile": True},
}

if __name__ == "__main__":
    from reports import render
    from reports.view import view

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for kind in sys.argv[2:] or KINDS:
        made = view(sample(**KINDS[kind]))  # type: ignore[arg-type]
        (folder / f"{kind}.pdf").write_bytes(render.pdf(made, {"statement.dsse.json": b"{}"}))
        (folder / f"{kind}.html").write_bytes(render.html(made, {"statement.dsse.json": b"{}"}))
