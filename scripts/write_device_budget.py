"""Writes docs/reference/device-budget.md: what suites would take on an H100 today, part by part.

    scripts/write_device_budget.py

No device is needed: what was measured lies in tests/recorded/h100_0_12, and what a device does in
a whole suite is taken from the journals in tests/recorded/h100, made with
bench 0.4.0 on one H100, and from the steps at full size recorded with them; what today's code asks
of its host from tests/recorded/host_parts.json, which scripts/measure_host_parts.py writes. What is
measured, counted and assumed stands in the page.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))

import host_builds  # noqa: E402 - after the path
import host_seconds  # noqa: E402 - the same
import measured_budget  # noqa: E402 - the same
import measured_rows  # noqa: E402 - the same
import measured_stages  # noqa: E402 - the same
import repeated_inputs  # noqa: E402 - the same
from host_seconds import Compared, Kind, Seconds  # noqa: E402 - the same
from overlapped import Timed, alone, saved, saved_two_ahead  # noqa: E402 - the same
from write_suite_times import device_of, inputs_of  # noqa: E402 - the same

from appliance.errors import ApplianceError  # noqa: E402 - the same
from appliance.evidence.budget import duration  # noqa: E402 - the same
from appliance.planning import launch_constants  # noqa: E402 - the same
from appliance.planning.plan import plan_cases  # noqa: E402 - the same
from appliance.records.plan import Case  # noqa: E402 - the same
from appliance.records.plan import Launch as PlannedLaunch  # noqa: E402 - the same
from appliance.records.qualified import ObservedCase  # noqa: E402 - the same
from appliance.records.suite import Protocol  # noqa: E402 - the same
from appliance.scheduling import build_times, references  # noqa: E402 - the same
from appliance.scheduling.step_rates import assumed_step_seconds  # noqa: E402 - the same
from appliance.storage import suite_file  # noqa: E402 - the same
from appliance.storage.qualified_file import load_observed  # noqa: E402 - the same
from appliance.worker import outputs  # noqa: E402 - the same

RECORDED = ROOT / "tests" / "recorded" / "h100"
PARTS = ROOT / "tests" / "recorded" / "host_parts.json"
OPERATIONS = ROOT / "tests" / "recorded" / "build_operations.json"
DIGESTS = ROOT / "tests" / "recorded" / "digest_codes.json"
PAGE = ROOT / "docs" / "reference" / "device-budget.md"
MODEL = "NVIDIA H100 80GB HBM3"
LAUNCHES = 5
CHECKED = 3
REPEATS = 3
SEARCHED = "-searched"
OPENED = "opened"
HowLong = Literal["scaled", "serial", "measured"]
TWO_AHEAD = "where a process that waits is shown to slow no step (set-ups two launches ahead)"
NODE_SECONDS, SMOKE_SECONDS, ACCEPTANCE_SECONDS, USEFUL = 360.0, 60.0, 1800.0, 0.5
"""The aims: of `node` and `smoke` with 5 launches a case, of `acceptance` with one."""
OPERANDS = 3
"""Matrices that 0.4.0 read from the device to check a product."""
LATER = frozenset(
    {
        "gemm",
        "gemm_exact",
        "gemm_tf32",
        "gemm_float8",
        "gemm_int8",
        "gemm_search",
        "memory_bandwidth",
        "host_copy",
        "host_stream",
        "device_copy_pair",
        "bert",
        "digits_mlp",
        "markov_lm",
        "resnet50",
    }
)
"""Workloads whose outputs may be checked after later steps (`checks_later`); inference may too."""
KEPT = frozenset({"pna", "dimenet", "recursiongfn", "llama"})
"""Rows whose first reference the untimed launch keeps for the others: float64 of the whole step
(parts/training/reference.py) or of the whole pass (parts/language/generated.py)."""
KEPT_FOR_EQUAL_BITS = frozenset({"convnext_large"})
"""Rows of which float64 follows drawn rows or layers of a step once for all launches that saw the
same bits (docs/explanation/once.md). Others are followed in each launch: `resnet50` and
`regnet_y_128gf` sum in another order each time, `bert` and `vjepa` have more logits than are kept,
and of the rest layers are drawn or a rollout is followed."""


@dataclass
class Launch:
    """Lengths of the parts of a recorded launch, in seconds; `last` is when its last line came.

    `searched` is what was made for other launches before the build ended. `checks` are by phase:
    "first" of the first output, "repeated" of repeated inputs, "last" and "sampled" of timed ones.
    `calibrate` is without the spans over which clocks are compared.
    """

    begin: float
    is_forked: bool
    environment: float = 0.0
    build: float = 0.0
    first_step: float = 0.0
    digest: float = 0.0
    checks: dict[str, float] = field(default_factory=dict)
    calibrate: float = 0.0
    second_build: float = 0.0
    warm_up: float = 0.0
    block: float = 0.0
    steps: int = 0
    end: float = 0.0
    searched: float = 0.0
    wall: float = 0.0
    has_completed: bool = False
    last: float = 0.0

    @property
    def has_compared_clocks(self) -> bool:
        """And has made no step since."""
        return self.calibrate > 0.0 and not self.steps

    @property
    def first_check(self) -> float:
        return self.checks.get("first", 0.0) + self.checks.get("repeated", 0.0)

    @property
    def last_check(self) -> float:
        return self.checks.get("last", 0.0)


@dataclass
class Journal:
    """The launches of a recorded run, by case and number, and what lay between them."""

    launches: dict[tuple[str, int], Launch] = field(default_factory=dict)
    servers: float = 0.0
    gaps: list[float] = field(default_factory=list)

    def of(self, case: str, *, is_timed: bool) -> list[Launch]:
        return [
            launch
            for (name, number), launch in self.launches.items()
            if name == case and (number > 0) == is_timed and launch.has_completed
        ]


@cache
def journal(name: str) -> Journal:
    """One recorded run."""
    read = Journal()
    ended = None
    text = lzma.decompress((RECORDED / name / "journal.jsonl.xz").read_bytes())
    for line in text.splitlines():
        record = json.loads(line)
        event, now = record["event"], 1e-9 * int(record["monotonic_ns"])
        if event["kind"] == "server_probed":
            read.servers += float(event["seconds"])
        if event["kind"] == "launch_started":
            key = _key(event["launch"])
            read.launches[key] = Launch(begin=now, is_forked=event["mode"] == "forked", last=now)
            if ended is not None:
                read.gaps.append(now - ended)
        elif "launch" in event and _key(event["launch"]) in read.launches:
            _take(read.launches[_key(event["launch"])], event, now)
            ended = now if event["kind"] == "launch_ended" else ended
    return read


def _key(launch: str) -> tuple[str, int]:
    case, _, number = launch.rpartition("/")
    return case.partition("@")[0], int(number or -1)


def _take(launch: Launch, event: Mapping[str, Any], now: float) -> None:
    """Add a line; what passed since the one before it is of the part that it reports."""
    passed, kind = now - launch.last, event["kind"]
    if kind in ("checked", "digested", "artifact"):
        _compared(launch, event, passed)
    elif kind == "environment":
        launch.environment = now - launch.begin
    elif kind == "started":
        launch.build = 1e-9 * int(event["build_ns"])
        launch.first_step = 1e-9 * int(event["first_step_ns"])
    elif kind == "calibrated":
        launch.calibrate = passed - 1e-9 * sum(map(int, event["wall_ns"]))
    elif kind == "warmed":
        launch.warm_up = passed
    elif kind == "block":
        launch.block += passed
        launch.steps += len(event["wall_ns"])
    elif kind == "launch_ended":
        launch.end, launch.wall = passed, 1e-9 * int(event["wall_ns"])
        launch.has_completed = event["outcome"] == "completed"
    if kind != "reading":
        launch.last = now


def _compared(launch: Launch, event: Mapping[str, Any], passed: float) -> None:
    """A check, a digest, or the reading of a file; those before the first step are the build's."""
    is_file = event["kind"] == "artifact"
    phase = ("last" if launch.steps else "first") if is_file else event["phase"]
    is_second = phase in ("repeatability", "repeated") and event["kind"] == "digested"
    if is_second or phase == "repeatability" or (is_file and launch.has_compared_clocks):
        launch.second_build += passed
    elif event["kind"] == "digested":
        launch.digest += passed
    elif is_file and not launch.build:
        launch.searched += passed
    elif launch.build:
        launch.checks[phase] = launch.checks.get(phase, 0.0) + passed


@cache
def forked_setup() -> float:
    """Median seconds of a forked launch of smoke until its device is set up, with 0.12.0."""
    return measured_stages.run("smoke").setup()


@cache
def ending() -> float:
    """Median seconds from the last record of such a launch to the end of its process."""
    return measured_stages.run("smoke").ending()


# ------------------------------------------------------------------ rates of the recorded device


@cache
def memory_rate() -> float:
    """Bytes a second of the device's memory, of the recorded block of `memory`."""
    (launch,) = journal("node").of("memory", is_timed=True)
    (case,) = [one for one in planned("node") if one.id.startswith("memory@")]
    return (case.work.bytes or 0.0) * launch.steps / launch.block


@cache
def copy_rate() -> float:
    """Bytes a second from the device to memory of the host, of a recorded first copy."""
    (launch,) = journal("node-2").of("device-to-host-pageable", is_timed=False)
    (case,) = [one for one in planned("node") if one.id.startswith("device-to-host-pageable@")]
    return (case.work.units or 0.0) / launch.first_step


def new_memory_seconds() -> float:
    """What 0.4.0 took to copy 512 MiB from the device into new memory of the host, to hash them."""
    on_device, on_host = (
        median(one.digest for one in journal("node-2").of(f"{way}-pageable", is_timed=False))
        for way in ("host-to-device", "device-to-host")
    )
    return on_device - on_host


@cache
def locking_rate() -> float:
    """Bytes a second at which memory of the host is page-locked: the difference of two builds.

    That of pinned memory copied what it had drawn into such memory, which is in it.
    """
    pinned, pageable = (
        min(one.build for one in journal("node-2").of(f"host-to-device-{kind}", is_timed=False))
        for kind in ("pinned", "pageable")
    )
    return pinned_bytes("host-to-device-pinned") / (pinned - pageable)


def pinned_bytes(name: str) -> float:
    """Bytes of page-locked memory that a copy's build takes: its sources and buffers on the host.

    None of a case that copies from and to other memory.
    """
    (case,) = [one for one in planned("node") if one.id.startswith(f"{name}@")]
    if case.workload != "host_copy" or not case.parameters["pinned"]:
        return 0.0
    num_bytes, direction = int(str(case.parameters["num_bytes"])), case.parameters["direction"]
    inputs = int(str(case.parameters["num_inputs"]))
    sources = inputs if direction in ("to_device", "both") else 0
    return float(num_bytes * (sources + (direction in ("from_device", "both"))))


@cache
def triad_rate() -> float:
    """Bytes a second of the recorded host's memory: the first step of `host-memory`, 16 threads."""
    (launch,) = journal("node-2").of("host-memory", is_timed=False)
    (case,) = [one for one in planned("node") if one.id.startswith("host-memory@")]
    return (case.work.units or 0.0) / launch.first_step


# ------------------------------------------------------------------ the recorded host


@cache
def compared() -> Mapping[tuple[str, str], Compared]:
    """What the model says of parts of 0.4.0, beside what they were recorded to take."""
    found = {}
    for case, parts in host_parts("recorded")["cases"].items():
        launches = _recorded(case)
        for part, figures in parts.items():
            took = median(
                one.digest if part == "digest" else one.checks["first"] for one in launches
            )
            predicted = host_seconds.predicted_before(part, case, figures)
            read = OPERANDS if part == "check" else 1
            copied = read * _product_bytes(case) / copy_rate()
            found[case, part] = Compared(
                case=case, part=part, predicted=predicted + copied, recorded=took
            )
    return found


def _product_bytes(name: str) -> float:
    """Bytes of one matrix of a product in a format of 16 bits; none of another case's."""
    if not name.startswith("gemm"):
        return 0.0
    (case,) = [one for one in planned("node") if one.id.startswith(f"{name}@")]
    return 2.0 * int(str(case.parameters["m"])) * int(str(case.parameters["n"]))


@cache
def slower() -> Mapping[Kind, float]:
    """By the kind of work what the recorded host takes longer than predicted."""
    return host_seconds.slower(compared())


def on_recorded_host(name: str, part: str, host: Mapping[str, Any]) -> Seconds:
    """Seconds of a measured part of a case of `node`; none of a part that it does not have."""
    if part not in host:
        return Seconds()
    threads = float(host_seconds.FED)
    if part == "digest":
        threads = host_seconds.hashing_threads(host["digest_pieces"])
    kind = host_seconds.kind_of(name, part)
    return host_seconds.seconds(host_seconds.scaling(host[part]), kind, slower(), threads)


def calibration() -> Iterator[str]:
    """One table of parts of 0.4.0 as predicted for the recorded host and as recorded there."""
    yield "| case of 0.4.0 | part | predicted, s | recorded, s | recorded / predicted |"
    yield "|---|---|---:|---:|---:|"
    for one in compared().values():
        yield (
            f"| `{one.case}` | {one.part} | {one.predicted:.3g} | {one.recorded:.3g} | "
            f"{one.ratio:.2f} |"
        )


# ------------------------------------------------------------------ a launch of today


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Seconds of what the launches of a case do, and how they are known.

    `extra` is what the untimed launch does more than another one; `is_counted`: the time of its
    first step counts, so that nothing is beside it.
    """

    name: str
    build: float
    first_step: float
    digest: float
    check: float
    last_check: float
    calibrate: float
    useful: float
    extra: float = 0.0
    how: str
    is_later: bool = False
    is_inference: bool = False
    is_counted: bool = False
    setup: float = field(default_factory=forked_setup)
    ending: float = field(default_factory=ending)

    @property
    def repeat(self) -> float:
        """A launch of the deterministic phase."""
        return self.setup + self.build + self.first_step + self.digest + self.ending

    @property
    def plain(self) -> float:
        """What the untimed launch and a timed one do alike."""
        return self.repeat + self.check + self.calibrate

    @property
    def untimed(self) -> float:
        return self.plain + self.extra

    @property
    def timed(self) -> float:
        """A timed launch that does not check its last output."""
        return self.plain + self.useful

    def whole(self, launches: int = LAUNCHES, repeats: int = 0) -> float:
        """All launches: an untimed one, timed ones of which one checks its last output, repeats."""
        timed = launches * self.timed + self.last_check
        return self.untimed + timed + repeats * self.repeat

    def of_untimed(self) -> Timed:
        """The untimed launch: it digests and checks last, but where it compares repeated inputs."""
        tail = self.ending + (0.0 if self.is_inference else self.digest + self.check)
        return self._split(self.untimed, tail, is_reference=True)

    def of_timed(self, *, checks_last: bool = False) -> Timed:
        """A timed launch, which may check its last output."""
        tail = self.ending + (self.digest + self.check if self.is_later else 0.0)
        last = self.last_check if checks_last else 0.0
        return self._split(self.timed + last, tail + last)

    def of_repeat(self) -> Timed:
        """A launch of the deterministic phase, which is beside others but for its end."""
        head = self.repeat - self.ending
        return Timed(case=self.name, head=head, middle=0.0, tail=self.ending, is_repeat=True)

    def _split(self, whole: float, tail: float, *, is_reference: bool = False) -> Timed:
        head = self.setup + self.build + (0.0 if self.is_counted else self.first_step)
        middle = whole - head - tail
        return Timed(case=self.name, head=head, middle=middle, tail=tail, is_reference=is_reference)


def in_order(parts: Sequence[Parts]) -> list[Timed]:
    """The launches of a suite: all untimed ones, then rounds of timed ones.

    Each case checks a last output in the third round: which one it is, is drawn.
    """
    untimed = [one.of_untimed() for one in parts]
    rounds = range(1, LAUNCHES + 1)
    return untimed + [one.of_timed(checks_last=n == CHECKED) for n in rounds for one in parts]


def less(parts: Sequence[Parts]) -> tuple[float, float]:
    """Seconds less of the launches of a suite, and of its repeats, where they overlap."""
    repeats = [one.of_repeat() for one in parts for _ in range(REPEATS)]
    setup = min(one.setup for one in parts)
    return saved(in_order(parts), setup=setup), saved(repeats, setup=setup)


def less_two_ahead(parts: Sequence[Parts]) -> float:
    """Seconds less again of the launches of a suite whose devices are set up two launches ahead."""
    return saved_two_ahead(in_order(parts), setup=min(one.setup for one in parts))


def facts_of(suite: str, name: str) -> dict[str, bool]:
    """Fields of Parts: whether outputs are checked later, it is inference, a first step counts."""
    case = next(one for one in planned(suite) if one.id.partition("@")[0] == name)
    return {
        "is_later": case.workload in LATER or bool(case.scenario),
        "is_inference": bool(case.scenario),
        "is_counted": is_counted(case),
    }


def is_counted(case: Case) -> bool:
    """Whether the time of a timed launch's first step counts."""
    launch = PlannedLaunch(id=f"{case.id}/1", case=case.id, number=1, is_timed=True)
    return not launch_constants.may_step_ahead(launch, case)


def _useful(protocol: Protocol, launch: Launch | None = None) -> float:
    """Warm-up and blocks: of short steps those of the protocol, else as recorded."""
    if launch is None:
        return protocol.warmup_seconds + protocol.blocks * protocol.block_seconds
    warm_up = max(protocol.warmup_seconds, launch.warm_up)
    step = launch.block / max(1, launch.steps)
    return warm_up + protocol.blocks * launch_constants.block_seconds(protocol, step)


# ------------------------------------------------------------------ smoke


ONNX = "onnx_"
"""Begin of the names of cases that no recorded run of 0.12.0 has, for want of ONNX Runtime's CUDA
provider."""


def smoke_parts() -> list[Parts]:
    """The cases of smoke: by measured stages, and those by ONNX Runtime by parts."""
    measured = sorted(measured_stages.run("smoke").cases())
    return [_by_stages(name) for name in measured] + _onnx_parts()


def second_host_parts() -> list[Parts]:
    """The same, all of it as the second, slower host had it, but for the cases of ONNX Runtime."""
    second = measured_stages.SECOND
    run = measured_stages.run("smoke", second)
    around = {"setup": run.setup(), "ending": run.ending()}
    measured = [_by_stages(name, second) for name in sorted(run.cases())]
    return [replace(one, **around) for one in measured + _onnx_parts()]


def _by_stages(name: str, host: Path = measured_stages.FIRST) -> Parts:
    """A case by stages of recorded launches of one host; checks of both are the second's.

    On the first host these are as long as such work takes there, and digests what they took by code
    that is today's again; untimed launches waited there for libraries in theirs. A build is the
    same in every launch, so the median of all counts: on the first host some waited there for
    libraries to be hashed. Less are operations that builds hand over no more, kinds of them that
    are loaded no more, and steps that repeated inputs ask for no more; on the first host a build
    takes no longer than on the second.
    """
    protocol = suite_file.load_suite("smoke")[0].protocol
    own, second = (measured_stages.run("smoke", one) for one in (host, measured_stages.SECOND))
    is_first = host == measured_stages.FIRST
    share = between_hosts(name) if is_first else 1.0
    checks = [share * one for one in second.each(name, "timed", "check")]
    first_step = own.typical(name, "timed", "first_step")
    digest = own.typical(name, "timed", "digest") * (today_digest(name) if is_first else 1.0)
    untimed_digest = digest if is_first else own.typical(name, "untimed", "digest")
    extra = {
        "first_step": own.typical(name, "untimed", "first_step") - first_step,
        "check": share * (second.typical(name, "untimed", "check") - _repeated_then(name))
        + _repeated_today(name, host)
        - median(checks),
        "digest": untimed_digest - digest,
    }
    return Parts(
        name=name,
        build=_build(name, host),
        first_step=first_step,
        digest=digest,
        check=median(checks),
        last_check=max(checks),
        calibrate=own.clocks(name, "timed", protocol.calibration_seconds) + loaded("smoke", name),
        useful=own.typical(name, "timed", *measured_stages.USEFUL),
        extra=sum(max(0.0, one) for one in extra.values()),
        how="measured",
        **facts_of("smoke", name),
    )


UNDRAWN = frozenset(
    {
        "onnx_resnet50",
        "host_copy",
        "host_stream",
        "launch_latency",
        "disk_read",
    }
)
"""Workloads that leave products of numbers, of whatever format, to the comparison of clocks: the
host makes their inputs for the most part, and no step multiplies number by number."""


def first_kernel() -> float:
    """What loading a kernel takes at most: the first step of the recorded `launch-latency`.

    It was the first work of its process, whose build took 2 to 4 ms.
    """
    return median(one.first_step for one in journal("node").of("launch-latency", is_timed=True))


def loaded(suite: str, name: str) -> float:
    """Seconds of loading the kernel that clocks are compared by, where no build has loaded it."""
    case = next(one for one in planned(suite) if one.id.partition("@")[0] == name)
    return first_kernel() if case.workload in UNDRAWN else 0.0


def _build(name: str, host: Path, operation: float | None = None) -> float:
    """Seconds of a build today, of a recorded host; `operation` are those of an operation there.

    What the second, slower host took, the first takes at most.
    """
    each = {
        one: measured_stages.run("smoke", one).typical_of_all(name, "build")
        - (operation or operation_seconds(one)) * fewer_operations(name, since)
        - kind_seconds(one) * fewer_kinds(name, since)
        for one, since in SINCE.items()
    }
    return min(each.values()) if host == measured_stages.FIRST else each[host]


SINCE = {measured_stages.FIRST: "timed", measured_stages.SECOND: "before"}
"""By the host of a run what the counts of its code are called (count_operations.py)."""


@cache
def kind_seconds(host: Path = measured_stages.FIRST) -> float:
    """What the first operation of a kind takes there, which has its kernels loaded.

    The least of first steps of cases whose steps wait for their host: what one takes more than that
    of `gemm-fp32`, which makes a product of matrices alone, and than a timed step, over the kinds
    of the case, those that its build had loaded among them.
    """
    run = measured_stages.run("smoke", host)
    product = run.typical("gemm-fp32", "timed", "first_step")
    kinds = json.loads(OPERATIONS.read_text())["kinds"][SINCE[host]]
    return min(
        (run.typical(one, "timed", "first_step") - product - _step_seconds(one, host))
        / len(kinds[one])
        for one in HOST_BOUND
    )


def fewer_kinds(name: str, since: str) -> int:
    """Kinds of operations that a case's build and first step have no more."""
    kinds = json.loads(OPERATIONS.read_text())["kinds"]
    return len(kinds[since][name]) - len(kinds["today"][name])


@cache
def operation_seconds(host: Path = measured_stages.FIRST) -> float:
    """What a host of a recorded run takes for one operation of a build, Python's part included.

    The least that an operation takes of the steps that wait for their host.
    """
    return min(of_step(name, host) for name in HOST_BOUND)


def of_step(name: str, host: Path = measured_stages.FIRST) -> float:
    """Seconds of a step of a case there, over its operations."""
    counts = json.loads(OPERATIONS.read_text())["timed_steps"]["smoke"]
    return _step_seconds(name, host) / float(counts[name])


def addition_seconds() -> float:
    """What the first host takes to hand a bare operation to the device, in a loop of these.

    That of the host of 0.4.0, by its `launch-latency`, times the median of what steps that wait for
    their host take on the one and on the other.
    """
    return latency() * median(_faster(name, measured_stages.FIRST) for name in HOST_BOUND)


def latency() -> float:
    """Seconds of one addition in the recorded `launch-latency` of 0.4.0."""
    (launch,) = journal("node").of("launch-latency", is_timed=True)
    (case,) = [one for one in planned("node") if one.id.startswith("launch-latency@")]
    return launch.block / launch.steps / (case.work.units or 0.0)


HOST_BOUND = ("bert", "digits_mlp", "llama", "markov_lm", "resnet50")
"""Cases of smoke whose steps wait for their host."""


def between_hosts(name: str) -> float:
    """What a check takes on the first host, of what it takes on the second: 1 where none knows.

    Those of cases whose steps wait for their host are the host's work alike: the largest of what
    first steps of theirs took on the one over what they took on the other.
    """
    if name not in HOST_BOUND:
        return 1.0
    first, second = (
        measured_stages.run("smoke", one) for one in (measured_stages.FIRST, measured_stages.SECOND)
    )
    return max(
        first.typical(one, "timed", "first_step") / second.typical(one, "timed", "first_step")
        for one in HOST_BOUND
    )


def today_digest(name: str) -> float:
    """What a digest takes by today's code, of what it took by 0.12.0's (compare_digests.py)."""
    codes = json.loads(DIGESTS.read_text())["cases"][name]
    return max(1.0, float(codes["today"] / codes["before"]))


def _step_seconds(name: str, host: Path) -> float:
    by_begin = measured_budget.measured("smoke", host).steps[name]
    return 1e-3 * median([*by_begin[True], *by_begin[False]])


def _faster(name: str, host: Path) -> float:
    """A step of a case on the host of a run, over that on the host of 0.4.0."""
    before = (one.block / one.steps for one in journal("smoke").of(name, is_timed=True))
    return _step_seconds(name, host) / median(before)


def fewer_operations(name: str, since: str = "timed") -> int:
    """Operations that the build of a case of smoke hands over no more (count_operations.py).

    Since 0.12.0 ("timed"), or since 0.13.0 ("before"), whose code the second host ran.
    """
    counts = json.loads(OPERATIONS.read_text())
    before, today = (counts[when]["smoke"][name][0] for when in (since, "today"))
    return int(before - today)


def _onnx_parts() -> list[Parts]:
    """Cases by ONNX Runtime: the device's parts as recorded, the host's as measured today."""
    run = journal("smoke")
    protocol = suite_file.load_suite("smoke")[0].protocol
    made = []
    for name in dict.fromkeys(case for case, _ in run.launches if case.startswith(ONNX)):
        host = host_parts("smoke")["cases"][name]
        timed = run.of(name, is_timed=True)

        def of(stage: str, launches: Sequence[Mapping[str, float]] = host["timed"]) -> float:
            return min(one[stage] for one in launches)

        exported = host["untimed"]["build"] - of("build")
        compared = host["untimed"]["check"] - of("check")
        made.append(
            Parts(
                name=name,
                build=of("build"),
                first_step=median(one.first_step for one in timed),
                digest=of("digest"),
                check=of("check"),
                last_check=median(one["check"] for one in host["timed"]),
                calibrate=median(one.calibrate for one in timed)
                + measured_stages.run("smoke").span_seconds(protocol.calibration_seconds)
                + loaded("smoke", name),
                useful=median(_smoke_useful(protocol, one) for one in timed),
                extra=max(0.0, exported) + max(0.0, compared),
                how="by parts",
                **facts_of("smoke", name),
            )
        )
    return made


def _smoke_useful(protocol: Protocol, launch: Launch) -> float:
    """A block that time had cut is as long as the protocol says now, or as its steps take."""
    step = launch.block / max(1, launch.steps)
    return launch.warm_up + max(protocol.block_seconds, protocol.block_steps * step)


def smoke() -> Iterator[str]:
    """The 66 launches of smoke as they are made now."""
    parts = smoke_parts()
    made = (1 + LAUNCHES) * len(parts)
    yield (
        "| case | build | first step | check | digest | clocks | useful | untimed, s | timed, s | "
        "known |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|"
    for one in parts:
        yield (
            f"| `{one.name}` | {one.build:.2f} | {one.first_step:.2f} | {one.check:.2f} | "
            f"{one.digest:.2f} | {one.calibrate:.2f} | {one.useful:.2f} | {one.untimed:.1f} | "
            f"{one.timed:.2f} | {one.how} |"
        )
    yield ""
    yield "| part | s |"
    yield "|---|---:|"
    for part, seconds in _smoke_sums(parts).items():
        yield f"| {part} | {seconds:.1f} |"
    longest = sorted(parts, key=lambda one: -one.extra)[:3]
    named = ", ".join(f"`{one.name}` {one.extra:.1f} s" for one in longest)
    whole = _smoke_seconds(parts)
    yield ""
    yield (
        f"The aim is {SMOKE_SECONDS:.0f} s for {made} launches: {judged(whole, SMOKE_SECONDS)}; "
        f"{TWO_AHEAD} {judged(whole - less_two_ahead(parts), SMOKE_SECONDS)}. What untimed "
        "launches alone do (repeated inputs, exports, first steps) is most of "
        f"{named}."
    )


def _smoke_seconds(parts: Sequence[Parts]) -> float:
    """Seconds of an untimed launch and of timed ones a case, and of what is between them."""
    gaps = _between() * (1 + LAUNCHES) * len(parts)
    return sum(one.whole(LAUNCHES) for one in parts) + gaps - less(parts)[0]


def _between() -> float:
    return median(measured_stages.run("smoke").gaps)


def _smoke_sums(parts: Sequence[Parts]) -> dict[str, float]:
    """Seconds of the suite, by what they are of, and with other figures."""
    count, first = len(parts), measured_stages.run("smoke")
    made = (1 + LAUNCHES) * count
    beside, repeats_beside = less(parts)
    bare = [_otherwise(one, build=partial(_bare_build, one.name)) for one in parts]
    checks = [_otherwise(one, **_second_checks(one.name)) for one in parts]
    digests = [_otherwise(one, digest=partial(_second_stage, one.name, "digest")) for one in parts]
    in_all_pairs = [_with_all_pairs(one) for one in parts]
    return {
        f"{count} untimed launches": sum(one.untimed for one in parts),
        f"{LAUNCHES * count} timed launches": sum(
            LAUNCHES * one.timed + one.last_check for one in parts
        ),
        f"between {made} launches, {1e3 * _between():.0f} ms each": made * _between(),
        "of it beside the end of the launch before, less": beside,
        f"**{made} launches**": _smoke_seconds(parts),
        f"the same {TWO_AHEAD}": _smoke_seconds(parts) - less_two_ahead(parts),
        "the same with repeated inputs compared by as many steps as there": _smoke_seconds(
            in_all_pairs
        ),
        f"the same, were an operation of a build {1e6 * addition_seconds():.1f} us": (
            _smoke_seconds(bare)
        ),
        "the same with checks as they took on the second, slower host": _smoke_seconds(checks),
        "the same with digests as they took there": _smoke_seconds(digests),
        "the same with all stages of the second, slower host": _smoke_seconds(second_host_parts()),
        "until the device is set up, and until processes have ended, in all": sum(
            (1 + LAUNCHES) * (one.setup + one.ending) for one in parts
        ),
        "of it warm-up and timed steps": LAUNCHES * sum(one.useful for one in parts),
        f"{REPEATS * count} repeats of the deterministic phase, more": (
            REPEATS * sum(one.repeat for one in parts) - repeats_beside
        ),
        "fork servers before the first launch, more": first.servers,
    }


def _otherwise(one: Parts, **parts: Callable[[], float]) -> Parts:
    """The same with other seconds of some parts, where it is known by measured stages."""
    if one.how != "measured":
        return one
    return replace(one, **{name: seconds() for name, seconds in parts.items()})


def _bare_build(name: str) -> float:
    return _build(name, measured_stages.FIRST, addition_seconds())


def _repeated_then(name: str) -> float:
    """Seconds of the second host's comparison of repeated inputs, as it was."""
    then, _ = repeated_inputs.steps_then_and_today(name, measured_stages.SECOND)
    return then * _step_seconds(name, measured_stages.SECOND)


def _repeated_today(name: str, host: Path) -> float:
    """Seconds of a host's comparison by today's rule, whose steps are those of that host."""
    _, today = repeated_inputs.steps_then_and_today(name, measured_stages.SECOND)
    return today * _step_seconds(name, host)


def _with_all_pairs(one: Parts) -> Parts:
    """The same with a comparison of repeated inputs as it was."""
    if one.how != "measured":
        return one
    then, today = repeated_inputs.steps_then_and_today(one.name, measured_stages.SECOND)
    return replace(
        one, extra=one.extra + (then - today) * _step_seconds(one.name, measured_stages.FIRST)
    )


def _second_checks(name: str) -> dict[str, Callable[[], float]]:
    run = measured_stages.run("smoke", measured_stages.SECOND)
    return {
        "check": partial(_second_stage, name, "check"),
        "last_check": lambda: max(run.each(name, "timed", "check")),
    }


def _second_stage(name: str, stage: str) -> float:
    return measured_stages.run("smoke", measured_stages.SECOND).typical(name, "timed", stage)


# ------------------------------------------------------------------ node


@cache
def host_parts(suite: str) -> Mapping[str, Any]:
    """What today's code asks of a host in launches of a suite, as measured."""
    read: Mapping[str, Any] = json.loads(PARTS.read_text())[suite]
    return read


def node_parts(how: HowLong = "scaled") -> list[Parts]:
    """The cases of `node` on one device: by today's parts, or as recorded.

    `how` says for how long measured parts of the host are taken (`host_seconds.Seconds`).
    """
    protocol = suite_file.load_suite("node")[0].protocol
    measured = host_parts("node")["cases"]
    parts = []
    for name in (one.id.partition("@")[0] for one in planned("node")):
        host = measured.get(name.replace("pageable", "pinned"))  # of a processor the same code
        if host is not None and OPENED in host:
            parts.append(_of_disk(name, host, protocol))
        elif host is not None:
            parts.append(_of_today(name, host, protocol, how))
        else:
            parts.append(_as_recorded(name, _recorded(name) or _alike(name), protocol))
    return [replace(one, **facts_of("node", one.name)) for one in parts]


def _recorded(name: str) -> list[Launch]:
    runs = [journal("node"), journal("node-2")]
    both = [one for run in runs for one in run.of(name, is_timed=False)]
    return both + [one for run in runs for one in run.of(name, is_timed=True)]


def _of_today(name: str, host: Mapping[str, Any], protocol: Protocol, how: HowLong) -> Parts:
    """Inputs drawn by the device, the host's parts as measured today, the device's as recorded."""

    def of(part: str) -> float:
        seconds: float = getattr(on_recorded_host(name, part, host), how)
        return seconds

    launches = _recorded(name) or _alike(name)
    copied = host["output_bytes"] / copy_rate()
    locked = pinned_bytes(name) / locking_rate()
    return Parts(
        name=name,
        build=host["drawn_bytes"] / memory_rate() + of("build") + locked,
        first_step=median(one.first_step for one in launches),
        digest=copied + of("digest") if "digest" in host else 0.0,
        check=copied + of("check"),
        last_check=copied + of("check"),
        calibrate=clocks(name, launches, protocol),
        useful=_useful(protocol),
        extra=max(one.searched for one in launches) if name.endswith(SEARCHED) else 0.0,
        how="build and check measured" if "build" in host else "inputs counted, check measured",
    )


def clocks(name: str, launches: Sequence[Launch], protocol: Protocol) -> float:
    """Seconds of comparing clocks: as 0.12.0 took for it, else what 0.4.0 took beside the spans."""
    run = measured_stages.run("node")
    if name in run.cases():
        return run.clocks(name, "timed", protocol.calibration_seconds)
    beside = median(one.calibrate for one in launches) + protocol.calibration_seconds
    return beside + loaded("node", name)


def _of_disk(name: str, host: Mapping[str, Any], protocol: Protocol) -> Parts:
    """As recorded, but that the untimed launch alone writes the file, and others open it."""
    recorded = _as_recorded(name, _recorded(name) or _alike(name), protocol)
    return replace(
        recorded,
        build=host_seconds.scaling(host[OPENED]).two,
        extra=recorded.build,
        how="written as recorded, opened as measured",
    )


def _alike(name: str) -> list[Launch]:
    """The recorded launches of cases of the same kind: products, searched ones, copies."""
    runs = [journal("node"), journal("node-2")]
    kind, is_searched = name.partition("-")[0], name.endswith(SEARCHED)
    alike = dict.fromkeys(
        one
        for run in runs
        for one, _ in run.launches
        if one.partition("-")[0] == kind and one.endswith(SEARCHED) == is_searched
    )
    return [launch for one in alike for launch in _recorded(one)]


def _as_recorded(name: str, launches: Sequence[Launch], protocol: Protocol) -> Parts:
    """As recorded with 0.4.0, but for what the second build of an untimed launch was."""
    check = median(one.checks.get("first", 0.0) for one in launches)
    timed = [one for one in launches if one.steps]
    return Parts(
        name=name,
        build=min(one.build for one in launches),
        first_step=median(one.first_step for one in launches),
        digest=median(one.digest for one in launches),
        check=check,
        last_check=max((one.last_check for one in timed), default=check),
        calibrate=clocks(name, launches, protocol),
        useful=_useful(protocol, timed[0] if timed else None),
        how="recorded" if _recorded(name) else "recorded, of another of its kind",
    )


def node() -> Iterator[str]:
    """The launches of each case, and of all."""
    parts, serial = node_parts(), node_parts("serial")
    yield (
        "| case | build | first step | digest | check | the same three, serial | untimed, s | "
        "timed, s | known |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---|"
    for one, other in zip(parts, serial, strict=True):
        alone = other.build + other.digest + other.check
        yield (
            f"| `{one.name}` | {one.build:.3g} | {one.first_step:.3g} | {one.digest:.2g} | "
            f"{one.check:.2g} | {alone:.3g} | {one.untimed:.1f} | {one.timed:.1f} | {one.how} |"
        )
    whole, beside = _node_seconds(parts)
    useful = LAUNCHES * sum(one.useful for one in parts)
    repeats = REPEATS * sum(one.repeat for one in parts) - less(parts)[1]
    yield ""
    yield (
        f"- {len(parts)} cases with an untimed and {LAUNCHES} timed launches each: "
        f"{duration(whole)}, of which {useful / whole:.0%} useful, and {duration(beside)} more "
        f"beside the end of the launch before"
    )
    yield f"- the same {TWO_AHEAD}: {duration(whole - less_two_ahead(parts))}"
    wide = _node_seconds(serial)[0]
    before = _node_seconds(node_parts("measured"))[0]
    yield (
        f"- the same, were the host's measured parts (builds, digests, checks) made by one core: "
        f"{duration(wide)}; by one that is as fast as the measured machine's: {duration(before)}"
    )
    yield (
        f"- the aim is {duration(NODE_SECONDS)}: {judged(whole, NODE_SECONDS)}; "
        f"by the wider bound {judged(wide, NODE_SECONDS)}"
    )
    made = 1 + LAUNCHES
    shares = {
        "builds": sum(made * one.build for one in parts),
        "checks": sum(made * one.check + one.last_check for one in parts),
        "digests": sum(made * one.digest for one in parts),
        "contexts of the device": made * len(parts) * (forked_setup() + ending()),
        "clocks": sum(made * one.calibrate for one in parts),
    }
    named = ", ".join(f"{duration(seconds)} {part}" for part, seconds in shares.items())
    yield f"- the rest, for the most part, in processes that overlap: {named}"
    yield f"- {REPEATS} repeats a case in the deterministic phase, more: {duration(repeats)}"


def _node_seconds(parts: Sequence[Parts]) -> tuple[float, float]:
    """Seconds of all launches, and those more that are beside another launch."""
    beside, _ = less(parts)
    return sum(one.whole() for one in parts) - beside, beside


def judged(took: float, aim: float) -> str:
    """Whether an aim is met, and by how much it is missed."""
    return "met" if took <= aim else f"missed by {duration(took - aim)}"


# ------------------------------------------------------------------ acceptance


@dataclass(frozen=True, kw_only=True)
class Row:
    """A primary row on one device: seconds of each part, and whether its step was measured.

    `beside` is what else the host does for one output: its digest and other checks, 0 where nobody
    timed them; `prepared` what a launch does before its first check. `held` is the part of the
    device's memory that it was recorded to hold, None where nobody knows. `build_is` says how else
    than by a timed build its seconds are known.
    """

    name: str
    step: float
    build: float
    reference: float
    beside: float
    prepared: float
    is_shared: bool
    calibrate: float
    useful: float
    is_measured: bool
    build_is: str = ""
    held: float | None = None
    is_counted: bool = False

    @property
    def repeat(self) -> float:
        return forked_setup() + self.build + self.step + ending()

    def in_order(self, launches: int) -> tuple[Timed, list[Timed], list[Timed]]:
        """The untimed launch, the timed ones of which the last checks a last output, the repeats.

        A first output is checked last in the untimed launch alone.
        """
        plain = self.repeat + self.calibrate
        checked = self.reference + self.beside
        whole = self.prepared + checked
        untimed = self._split(plain + whole, whole, is_reference=True)
        first = self.prepared + self.beside + (0.0 if self.is_shared else self.reference)
        timed = [
            self._split(plain + self.useful + first + last, last)
            for last in [0.0] * (launches - 1) + [checked]
        ]
        head = self.repeat - ending()
        repeat = replace(timed[0], head=head, middle=0.0, tail=ending(), is_repeat=True)
        return untimed, timed, [repeat] * REPEATS

    def _split(self, whole: float, checked: float, *, is_reference: bool = False) -> Timed:
        head, tail = forked_setup() + self.build, ending() + checked
        head += 0.0 if self.is_counted else self.step
        return Timed(
            case=self.name,
            head=head,
            middle=whole - head - tail,
            tail=tail,
            is_reference=is_reference,
            held=self.held,
        )

    def num_references(self, launches: int) -> int:
        """Of the first output once, or in each launch where none is kept, and of the last one."""
        return 2 if self.is_shared else 2 + launches

    def whole(self, launches: int) -> float:
        """An untimed launch, timed ones and repeats."""
        made = (1 + launches) * (self.repeat + self.calibrate) + REPEATS * self.repeat
        references = self.num_references(launches) * self.reference
        references += (1 + launches) * self.prepared
        return made + references + num_outputs(launches) * self.beside + launches * self.useful


def num_outputs(launches: int) -> int:
    """Outputs of a row that are checked: the first of each launch, and one that is the last."""
    return 2 + launches


@cache
def acceptance_rows() -> list[Row]:
    """The rows of one device."""
    protocol = suite_file.load_suite("acceptance")[0].protocol
    full = json.loads((RECORDED / "full_size.json").read_text())
    cores = references.load().cores
    calibrate = median(one.calibrate for one in journal("smoke").launches.values())
    rows = []
    for case in planned("acceptance"):
        if case.variant:
            continue
        known = full.get({"resnet50_jpeg": "resnet50"}.get(case.workload, case.workload), {})
        step = known.get("step_seconds", _unknown_step(case))
        timed, scaled, drawn = (
            find(case, MODEL)
            for find in (
                build_times.measured_seconds,
                build_times.scaled_seconds,
                build_times.drawn_seconds,
            )
        )
        seconds = references.load().seconds(case.workload, case.parameters, case.work.flops, cores)
        is_inference = bool(case.scenario)
        warm_up = launch_constants.warm_up_seconds(protocol, step)
        block = (
            max(protocol.block_seconds, protocol.block_steps * step)
            if is_inference
            else launch_constants.block_seconds(protocol, step)
        )
        rows.append(
            Row(
                name=case.id.partition("@")[0],
                step=step,
                build=timed
                or scaled
                or drawn
                or known.get("build_seconds", build_times.load().model_seconds),
                reference=seconds or 0.0,
                beside=references.load().beside_seconds(case.workload, case.work.flops),
                prepared=references.load().prepared_seconds(case.workload),
                is_shared=case.workload in KEPT | KEPT_FOR_EQUAL_BITS,
                calibrate=calibrate + protocol.calibration_seconds,
                useful=warm_up + protocol.blocks * block,
                is_measured="step_seconds" in known,
                build_is="scaled" if scaled else "drawn" if drawn and timed is None else "",
                held=_held(case),
                is_counted=is_counted(case),
            )
        )
    return rows


@cache
def recorded_cases() -> tuple[ObservedCase, ...]:
    """What the shipped records say of the device."""
    return load_observed([MODEL])


def _held(case: Case) -> float | None:
    """Part of the device's memory that the row was recorded to hold at full size."""
    most = max(
        (
            one.device_memory_bytes
            for one in recorded_cases()
            if (one.workload, one.model, one.size) == (case.workload, MODEL, "full")
            if one.device_memory_bytes is not None and one.step_seconds is not None
        ),
        default=None,
    )
    memory = device_of(MODEL).memory_bytes
    return None if most is None or memory is None else most / memory


def _unknown_step(case: Case) -> float:
    """As a plan within so many minutes assumes it."""
    seconds = assumed_step_seconds(case, MODEL)
    if seconds is None:
        raise ApplianceError(f"{case.id}: nothing says how long its step takes")
    return seconds


def acceptance() -> Iterator[str]:
    """One table of rows, and what all of them come to with one launch and with five."""
    rows = acceptance_rows()
    yield (
        "| row | step, s | build, s | reference, s | made | other checks and digest, s | "
        "useful of a launch, s | step |"
    )
    yield "|---|---:|---:|---:|---|---:|---:|---|"
    for row in rows:
        how = "measured" if row.is_measured else "assumed"
        build = ", ".join((f"{row.build:.1f}", *([row.build_is] if row.build_is else [])))
        made = "once" if row.is_shared else "each launch"
        yield (
            f"| `{row.name}` | {row.step:.3g} | {build} | {row.reference:.3g} | {made} | "
            f"{row.beside:.3g} | {row.useful:.1f} | {how} |"
        )
    yield ""
    for launches in (1, LAUNCHES):
        words = "launch" if launches == 1 else "launches"
        yield f"- {len(rows)} rows with {launches} timed {words} each: {_sum(rows, launches)}"
    assumed = [row for row in rows if not row.is_measured]
    steps = sum(row.useful for row in assumed)
    yield (
        f"- of it steps that are assumed, with one launch each: {duration(steps)} in "
        f"{len(assumed)} rows"
    )


def _rows_beside(rows: Sequence[Row], launches: int) -> float:
    """Seconds that the launches of all rows take less where they overlap."""
    made = [row.in_order(launches) for row in rows]
    repeats = [one for _, _, several in made for one in several]
    untimed = [one for one, _, _ in made]
    timed = [several[number] for number in range(launches) for _, several, _ in made]
    return sum(saved(each, setup=forked_setup()) for each in (repeats, untimed + timed))


def _useful_of(rows: Sequence[Row], launches: int) -> tuple[float, float, float]:
    """Seconds of all rows, of it useful, and beside another launch."""
    beside = _rows_beside(rows, launches)
    whole = sum(row.whole(launches) for row in rows) - beside
    return whole, launches * sum(row.useful for row in rows), beside


def acceptance_aim() -> str:
    """Whether the aim with one launch a row is met."""
    whole, useful, _ = _useful_of(acceptance_rows(), 1)
    share = "met" if useful >= USEFUL * whole else f"missed, {useful / whole:.0%}"
    return (
        f"The aim is {duration(ACCEPTANCE_SECONDS)} with one launch a row: "
        f"{judged(whole, ACCEPTANCE_SECONDS)}; and at least half of it useful: {share}."
    )


def _sum(rows: Sequence[Row], launches: int) -> str:
    whole, useful, beside = _useful_of(rows, launches)
    builds = sum((1 + launches + REPEATS) * row.build for row in rows)
    made = sum(row.num_references(launches) * row.reference for row in rows)
    other = num_outputs(launches) * sum(row.beside for row in rows)
    other += (1 + launches) * sum(row.prepared for row in rows)
    return (
        f"{duration(whole)}, of which {useful / whole:.0%} useful; builds take {duration(builds)}, "
        f"references {duration(made)}, other checks and digests {duration(other)}, and "
        f"{duration(beside)} of all that are beside the end of the launch before"
    )


@cache
def planned(suite: str) -> list[Case]:
    """What one such device runs of a suite."""
    cases, _ = plan_cases(inputs_of(suite_file.load_suite(suite)[0], device_of(MODEL)))
    return [case for case in cases if not case.unsupported]


# ------------------------------------------------------------------ the page

KNOWN = {
    "until the device is set up": (
        "recorded with 0.12.0 as above: {setup:.2f} s, median of {forked} launches of `smoke`"
    ),
    "from the last record to the end of the process": "the same: {ending:.2f} s",
    "clocks": (
        "recorded with 0.12.0 where the run above has the case, median of its timed launches, but "
        "for the spans: each is as long as today's rule asks for by what the host left open of the "
        "second and third one there. Kernels were loaded in the first one, and today the work is "
        "products of integers, number by number, whose kernel builds and steps have loaded; else "
        "with 0.4.0 on one {model} (16 host cores), "
        "beside the time over which they are compared. In {undrawn}, which make no such product, "
        "loading it is added, and {first_kernel:.0f} ms are taken for that: the first step of "
        "`launch-latency`, which was the first work of its process"
    ),
    "first step of `node` and of the ONNX rows": (
        "recorded with 0.4.0, median of a case's launches"
    ),
    "builds and first steps of `smoke`": (
        "medians of stages with 0.12.0 on the first host, ahead of their turn or not, of first "
        "steps in timed launches and of builds in all; of builds less the "
        "[operations](../explanation/inputs.md#many-small-tensors) that they hand to the device no "
        "more, {operation:.1f} us each, the least that one of a step took there of those that wait "
        "for their host, and less the [kinds](../explanation/inputs.md#many-small-tensors) of them "
        "that neither build nor first step has any more, {kind:.1f} ms each, the least that a kind "
        "took in a first step of those; and no more than on the second, slower host by 0.13.0, "
        "likewise"
    ),
    "checks of `smoke`": (
        "medians of stages of 0.13.0 on the second, slower host; of the cases whose steps wait for "
        "their host {hosts:.2f} times that, the largest of what the first host took for a first "
        "step of theirs over what the second took (of their steps it is {steps:.2f})"
    ),
    "digests of `smoke`": (
        "medians of stages of 0.12.0 on the first host, times what today's code takes longer for "
        "these outputs than 0.12.0's on the simulated accelerator of the tests, in turn "
        "({digest:.2f} times at most, at a load of {digest_load:.1f}): array after array on one "
        "thread up to 32 MiB, as then. In between, digests made a pool of threads and page-locked "
        "buffers, which took 0.2 s of the second host"
    ),
    "what only untimed launches do": (
        "what their first step took longer on the first host, and their check on the second, as "
        "other checks, but for the steps that repeated inputs are compared by: as many as today's "
        "rule asks for of steps drawn from the blocks of that host, as long as the first one's"
    ),
    "inputs that a device draws (products, `memory`)": (
        "counted: all bytes that the generator's operations read and write, over the {rate:.2f} "
        "TB/s of the recorded `memory`"
    ),
    "checks and digests of these; builds of copies and of `host-memory`": (
        "today's code at the same parameters on an {processor}, at a load of {load:.1f}, scaled to "
        "the recorded host ([how](#what-the-host-does))"
    ),
    "an output's way to the host": (
        "its bytes over {copied:.1f} GB/s, of a recorded first copy to pageable memory that was "
        "there: digests and checks read it in pieces, into memory that is used again. Into new "
        "memory 512 MiB took {fresh:.2f} s, what the digest of `host-to-device-pageable` was "
        "recorded to take longer than that of `device-to-host-pageable`"
    ),
    "page-locked memory of copies": (
        "its bytes over {locked:.2f} GB/s: what the recorded build of `host-to-device-pinned` took "
        "longer than that of `host-to-device-pageable`, a copy included"
    ),
    "comparing clocks, warm-up, blocks": (
        "the time that the suite's protocol gives them, or as many steps as it asks for"
    ),
    "the ONNX rows of `smoke`, but for what is named above": (
        "builds, checks and digests are stages of a run of today's code on {smoke_threads} threads "
        "of an {smoke_processor}, the least of a case's launches, at a load of {smoke_load:.1f}, "
        "and scaled to nothing; the host does the device's part of them too; all else as recorded "
        "with 0.4.0"
    ),
    "the file of `disk_read`": (
        "written once, by the untimed launch, as recorded; opened by the others in the time that "
        "passes on two threads of the measured machine"
    ),
    "all else of `node`": ("recorded with 0.4.0: builds that drew on the host, checks on 16 cores"),
}
PAGE_TEXT = """# What suites would take on an H100

<!-- written by scripts/write_device_budget.py -->

First what short runs on two H100 took, then a budget of whole suites, as there was no time on a
device for these. `bench run` on a device says what it really took.

## Measured

One NVIDIA H100 80GB HBM3 in a virtual machine with 16 host cores, bench 0.12.0, torch 2.11.0 with
CUDA 13, transformers 5.17.0. That is outside the ranges that bench allows, whose requirements were
taken off for these runs, so `verify` refuses them for that alone. ONNX Runtime had no CUDA
provider, so the two ONNX cases of `smoke` were not run, and of `node` those rows that 3 minutes
hold. No launch failed, and no process that began ahead of its launch was ended. Planning took
17.9 s when nothing was in the page cache, and 1.3 s afterwards. Seconds of a launch are those from
its begin to the end of its process; what was made ahead, beside the launch before, stands in the
last column.

{measured}
Nothing shows that a process that builds beside the end of the one before slows down what comes
after: most of the products are held at 700 W by the device's own limit, and steps differ by a few
percent within both columns.

{steps}

Those launches were made by bench 0.12.0, whose processes went as far as a build. Of 45 timed
launches of `smoke` 10 began alone: 9 stood behind a launch of a case that lacked its software, and
one was the ninth in a row. So it was of 4 of 7 repeats and 2 of 4 untimed launches, and of `node`
behind cases that were decided or had no time. Launches that need no process are passed over today,
a first step that no time counts of is made ahead too, and beside a repeat the next process begins
as that one begins. What the very same stages would have taken so, the last column says. The one
before it is the rule of then on the same stages, and near to what was recorded. A stage that was
made ahead counts as long as it took there.

{rule}

What is left of a timed launch of `smoke` is in the mean the longer of {head:.2f} s (device, build,
first step) and of {tail:.2f} s (checks, digests and end of the launch before), and {middle:.2f} s
of it alone.

The code of 0.13.0 ran on another such host, which was slower: an empty step took 21 us there and
12 us on the first, and steps that wait for the host took about twice as long. Its run of `smoke`
was stopped after two minutes, with 39 of 45 timed launches made and none failed; planning took
2.1 s, and no launch waited for libraries to be hashed. Its digests made page-locked buffers, which
a digest so small does no more.

{later}

## Rows at full size

Rows of `acceptance` with a few steps each, as a suite that was stopped after some minutes: their
untimed launches, on the first host by 0.12.0 and on the second, slower one by the code of 0.13.0
as it then was (its parts of tensors were a quarter of today's). `vjepa-single` had 24 clips in
both, of which the later suite has 16 on 80 GiB. `brax` ran with JAX 0.11, which bench does not
allow. In `reformer` what was stopped is its reference, in `vjepa-single` the step that is run
again.

{rows}

## By parts

The budget is the sum of parts, each known in one of these ways.

{known}

A second build is left out, as none is made of rows whose bits repeat. One timed launch of a case
checks its last output.

The next launch's process begins [beside the end](../explanation/once.md#beside-the-end-of-a-launch)
of the launch before. Counted of both is the longer: what is left of the one when its last timed
step is over (its digest and checks where they come last, and the end of its process), and the
start, the build and a first step that no time counts of the other. A repeat times nothing, so the
other begins as it begins. Of the first launch of a case only the start is beside, as nobody knows
what memory its build takes, and {alone:.0%} of the launches begin alone, of those of `smoke`, which
are short, {smoke_alone:.0%}. It is a rule and no measurement: how much the end of one and the build
of the other slow each other was not taken apart.

## What the host does

Each part was made on one thread and on two, in turn, four times. By Amdahl's law a part has S
seconds of one thread and P that are shared out: T = S + P is the least processor time on one
thread, W = S + P / 2 the least time that passed on two. Others who use the machine make W longer,
and with it S = 2 W - T, at most T; so what is predicted of more threads is longer for them, and
never shorter.

A launch has all {host_threads} cores of the recorded host where it has one device: torch's threads,
those that draw inputs, compare and hash are as many (of eight devices on such a host each would
have two). Predicted is S + P / {fed} of checks and builds, as they read and write memory: the
recorded host's moves {triad:.0f} GB/s in the first step of `host-memory` on all cores, which feeds
{fed} threads with {each:.0f} GB/s each; a product's check, the one that moves most, moves about 16
GB/s on a thread (20 bytes for an element of three matrices in 0.25 s). Hashing, which reads 2 GB/s,
has all {host_threads} threads, but no more than there are pieces of {piece:.0f} MiB.

How fast a core of the recorded host is, checks and digests of 0.4.0 say, whose code was measured
likewise: all of them but checks of products ran on one thread, and what they copied from the device
is predicted at the faster rate above, so that the rest falls to the cores. What the record is
longer than predicted, parts of that kind are taken to be longer today; none is taken to be shorter.

{compared}

Checks of products are so taken {products:.2f} times, of `memory` and `host-memory` {sums:.2f}
times, those of copies and all builds, which draw numbers like these, {copies:.2f} times, and
digests {digests:.2f} times. Load makes predicted
times of products longer, and the factor smaller: it wants an idle machine (here a load of
{before_load:.1f}).

## `smoke`: an untimed and {launches} timed launches a case

By measured stages where a case has them. Seconds of a launch's parts, before any of them is beside
another launch.

{smoke}

Weak points of this sum:

- The {operation:.1f} us of an operation are those of a step of `llama`; in steps of {bound}, which
  wait for their host, it took up to {most:.1f} us. A build's operations are Python's as a step's
  are, and a profile of the second host, which is not kept, had 60% of the builds of `bert` and
  `resnet50` in drawing; bare in-place additions of 16 numbers took {latency:.1f} us each on the
  host of 0.4.0 (`launch-latency`), where such steps took 1 / {faster:.2f} of the time (the median;
  torch was another version), so {bare:.1f} us on the first.
- Checks of cases that compute on many threads, and of `gemm_exact`, are those of a host about twice
  as slow.
- Repeats, untimed and timed launches of the first host ran beside others already: what one process
  slowed the other down by is in their stages and is not taken out.
- The two ONNX rows ran on no such device with their provider since 0.4.0.

## `node`: {launches} timed launches a case

Seconds of the parts that differ, and of a launch with all of its parts. "Serial" is build, digest
and check, were the host's measured parts made by one core of the recorded host.

{node}

## `acceptance`: the rows of one device

The step is that of the recorded device with older versions of the libraries. Where nobody has timed
it, it is what a [plan within so many minutes](../how-to/minutes.md#what-is-chosen) assumes: its
operations or bytes over a share of the vendor's figures (`appliance/step_rates.toml`), a second at
least. A build is the recorded one, which drew inputs and weights on the host. Where the device
draws the first weights now, it is what such a plan takes it for (`appliance/build_times.toml`):
what the generator moves for them, counted like inputs, and {host_build:g} s of the host, its part
at most; in the table these builds are marked "drawn". Builds that are the host's for the most part
are marked "scaled": measured with today's code on an {builds_processor} at loads of {least:.1f} to
{loads:.1f} ([how](#what-the-host-does)), S + P / {fed} times {copies:.2f} (P / {cores} of the
emulators of `torchatari`, which read little memory), with their operations at {operation:.1f} us
each, and with what the device and its library take where they are first used. That is
{torch_use:.1f} s with torch, by the recorded build of `recursiongfn`, and {jax_use:.1f} s with JAX,
by that of `brax` until JAX refused to compile ([above](#rows-at-full-size)); both less the host's
part of that code, measured alike. That of `bert` is the recorded one, and the operations by which
the device draws today. No program for the device is compiled in a build: JAX does so in the first
step, which nobody has timed and this budget takes for a step. That of `resnet50` is of the row
without files: its untimed launch also writes its tree of JPEG files, which took a minute of
processor time on that EPYC and is not counted. The reference is the [estimate](references.md) for
16 cores. That of a whole step, and a sampled one where all launches see the same bits, is made in
the untimed launch and once for the last output, and read by the others; any other is made in each
launch. Other checks and the digest of an output are counted where they were timed at full size
(`workloads/references.toml`), of a first output in each launch, and of one last output; where they
were not, the table has 0, and the sum is too low by them. What `brax` and `ppo` compile for their
check ({prepared} s) is counted once in a launch that checks. What a first step did to the weights
is looked at by the untimed launch alone where all have the same bits, which is not counted, as
nobody has seen it. Steps of more than two seconds are [fewer](suites.md#long-steps). Useful are
warm-up and timed steps. Three repeats a row are in this sum, variants of rows are not. A build is
beside another launch only where records of the device say that it holds both, with twice what the
earlier one holds.

{acceptance}

{acceptance_aim}
"""


def page() -> str:
    """The whole page."""
    host, smoke_host = host_parts("node"), host_parts("smoke")
    triad = triad_rate() / 1e9
    figures = {
        "model": MODEL,
        "setup": forked_setup(),
        "forked": len(measured_stages.run("smoke").launches),
        "operation": 1e6 * operation_seconds(),
        "ending": ending(),
        "rate": memory_rate() / 1e12,
        "copied": copy_rate() / 1e9,
        "locked": locking_rate() / 1e9,
        "fresh": new_memory_seconds(),
        "processor": host["processor"],
        "load": host["load"],
        **{f"smoke_{key}": smoke_host[key] for key in ("threads", "processor", "load")},
        "hosts": between_hosts("bert"),
        "steps": max(
            _step_seconds(name, measured_stages.FIRST) / _step_seconds(name, measured_stages.SECOND)
            for name in HOST_BOUND
        ),
        "digest": max(today_digest(name) for name in measured_stages.run("smoke").cases()),
        "first_kernel": 1e3 * first_kernel(),
        "undrawn": ", ".join(f"`{name}`" for name in sorted(UNDRAWN)),
        "kind": 1e3 * kind_seconds(),
        "digest_load": json.loads(DIGESTS.read_text())["load"],
    }
    known = [f"| {part} | {how.format(**figures)} |" for part, how in KNOWN.items()]
    return PAGE_TEXT.format(
        measured="\n".join(measured_budget.section()),
        steps="\n".join(measured_budget.steps("node")),
        rule="\n".join(measured_budget.rule()),
        later="\n".join(measured_budget.later()),
        rows="\n".join(measured_rows.section()),
        **measured_budget.means("smoke"),
        known="\n".join(("| part | how it is known |", "|---|---|", *known)),
        host_threads=host_seconds.THREADS,
        fed=host_seconds.FED,
        triad=triad,
        each=triad / host_seconds.FED,
        piece=outputs.PIECE / 2**20,
        compared="\n".join(calibration()),
        before_load=host_parts("recorded")["load"],
        **slower(),
        launches=LAUNCHES,
        alone=alone(float("inf")),
        smoke_alone=alone(_smoke_seconds(smoke_parts()) / (len(smoke_parts()) * (1 + LAUNCHES))),
        smoke="\n".join(smoke()),
        operation=1e6 * operation_seconds(),
        latency=1e6 * latency(),
        bound=", ".join(f"`{name}`" for name in HOST_BOUND),
        faster=median(_faster(name, measured_stages.FIRST) for name in HOST_BOUND),
        most=1e6 * max(of_step(name) for name in HOST_BOUND),
        bare=1e6 * addition_seconds(),
        node="\n".join(node()),
        prepared=" and ".join(f"{row.prepared:g}" for row in acceptance_rows() if row.prepared),
        cores=host_builds.CORES,
        least=min(host_builds.figures()["loads"].values()),
        loads=max(host_builds.figures()["loads"].values()),
        builds_processor=host_builds.figures()["processor"],
        torch_use=host_builds.first_use("torch", slower()["copies"]),
        jax_use=host_builds.first_use("jax", slower()["copies"]),
        host_build=build_times.load().host_seconds,
        acceptance="\n".join(acceptance()),
        acceptance_aim=acceptance_aim(),
    )


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
