"""Writes docs/reference/device-budget.md: what suites would take on an H100 today, part by part.

    scripts/write_device_budget.py

No device is needed: the parts are those of the journals in tests/recorded/h100, made with bench
0.4.0 on one H100, of the steps at full size recorded with them, and of the estimate of references.
What is measured and what is assumed stands in the page.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))

from write_suite_times import device_of, inputs_of  # noqa: E402 - after the path

from appliance.evidence.budget import duration  # noqa: E402 - the same
from appliance.planning.plan import plan_cases  # noqa: E402 - the same
from appliance.records.plan import Case  # noqa: E402 - the same
from appliance.records.suite import Protocol  # noqa: E402 - the same
from appliance.scheduling import references  # noqa: E402 - the same
from appliance.storage import suite_file  # noqa: E402 - the same

RECORDED = ROOT / "tests" / "recorded" / "h100"
PAGE = ROOT / "docs" / "reference" / "device-budget.md"
MODEL = "NVIDIA H100 80GB HBM3"
LAUNCHES = 5
REPEATS = 3
DRAWN_SECONDS = 0.1
"""What drawing inputs on the device is assumed to leave of a build of products."""
UNKNOWN_FLOPS_PER_SECOND = 1e14
"""Assumed of training rows whose step nobody has timed: resnet50 makes 1.2e14, bert 1.8e14."""
UNKNOWN_STEP_SECONDS, UNKNOWN_BUILD_SECONDS = 1.0, 10.0
FIRST_STEPS = 2
"""Steps' time that the first step and the clocks' empty steps are taken for where unknown."""


@dataclass
class Launch:
    """Moments and lengths of a recorded launch, in seconds."""

    begin: float
    is_forked: bool
    environment: float = 0.0
    build: float = 0.0
    second_build: float = 0.0
    block: float = 0.0
    wall: float = 0.0
    has_completed: bool = False
    last: float = 0.0


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
    match event["kind"]:
        case "environment":
            launch.environment = now - launch.begin
        case "started":
            launch.build = 1e-9 * int(event["build_ns"])
        case "checked" if event["phase"] == "repeatability":
            launch.second_build = now - launch.last
        case "digested" if event["phase"] == "repeated":
            launch.second_build = now - launch.last
        case "block":
            launch.block += 1e-9 * int(event["block_wall_ns"])
        case "launch_ended":
            launch.wall = 1e-9 * int(event["wall_ns"])
            launch.has_completed = event["outcome"] == "completed"
    if event["kind"] != "reading":
        launch.last = now


def forked_setup() -> float:
    """Median seconds from the order to a set-up device of the forked launches of smoke."""
    return median(one.environment for one in journal("smoke").launches.values())


# ------------------------------------------------------------------ smoke


def smoke() -> Iterator[str]:
    """The 66 launches of smoke as they are made now."""
    run = journal("smoke")
    suite = suite_file.load_suite("smoke")[0]
    cases = list(dict.fromkeys(case for case, _ in run.launches))
    untimed = sum(_untimed(run, case) for case in cases)
    timed = sum(_timed(run, case, suite.protocol) for case in cases)
    gaps = median(run.gaps) * (1 + LAUNCHES) * len(cases)
    made = (1 + LAUNCHES) * len(cases)
    whole = run.servers + untimed + LAUNCHES * timed + gaps
    yield "| part | s | how it is known |"
    yield "|---|---:|---|"
    yield f"| fork servers | {run.servers:.1f} | measured, one server before the first launch |"
    yield f"| {len(cases)} untimed launches | {untimed:.1f} | measured, second builds left out |"
    yield (
        f"| {LAUNCHES * len(cases)} timed launches | {LAUNCHES * timed:.1f} | measured on two of "
        f"each; blocks of {suite.protocol.block_seconds:g} s for those of half a second |"
    )
    pause = f"measured, median {1e3 * median(run.gaps):.0f} ms"
    yield f"| between {made} launches | {gaps:.1f} | {pause} |"
    yield f"| **{made} launches** | **{whole:.0f}** | the aim is 60 |"


def _untimed(run: Journal, case: str) -> float:
    (launch,) = run.of(case, is_timed=False)
    return launch.wall - launch.second_build


def _timed(run: Journal, case: str, protocol: Protocol) -> float:
    launches = run.of(case, is_timed=True)
    return median(
        one.wall - max(0.0, min(one.block, 0.5) - protocol.block_seconds) for one in launches
    )


# ------------------------------------------------------------------ node


@dataclass(frozen=True, kw_only=True)
class NodeCase:
    """Seconds of a case of `node`: its untimed launch, and one timed one, as forks."""

    name: str
    untimed: float
    timed: float
    build: float
    is_timed_measured: bool


def node_cases() -> list[NodeCase]:
    """Cases of which a launch was recorded."""
    runs = [journal("node"), journal("node-2")]
    protocol = suite_file.load_suite("node")[0].protocol
    names = dict.fromkeys(name for run in runs for name, _ in run.launches)
    made = []
    for name in names:
        untimed = [one for run in runs for one in run.of(name, is_timed=False)]
        timed = [one for run in runs for one in run.of(name, is_timed=True)]
        if untimed:
            made.append(_node_case(name, untimed, timed, protocol))
    return made


def _node_case(
    name: str, untimed: Sequence[Launch], timed: Sequence[Launch], protocol: Protocol
) -> NodeCase:
    fixed = median(_forked(one) for one in untimed)
    useful = protocol.warmup_seconds + protocol.block_seconds
    return NodeCase(
        name=name,
        untimed=fixed,
        timed=median(_forked(one) for one in timed) if timed else fixed + useful,
        build=median(one.build for one in (timed or untimed)),
        is_timed_measured=bool(timed),
    )


def _forked(launch: Launch) -> float:
    """A fresh launch without its imports and its second build, with a fork's set-up."""
    return launch.wall - launch.environment - launch.second_build + forked_setup()


def node() -> Iterator[str]:
    """Untimed and timed launches of the recorded cases, and of all by their median."""
    made = node_cases()
    planned = _cases("node")
    yield "| case | untimed, s | timed, s | of it build | timed launch |"
    yield "|---|---:|---:|---:|---|"
    for one in made:
        known = "measured" if one.is_timed_measured else "untimed one, warm-up and block"
        yield f"| `{one.name}` | {one.untimed:.1f} | {one.timed:.1f} | {one.build:.1f} | {known} |"
    others = len(planned) - len(made)
    now = [one.untimed + LAUNCHES * one.timed for one in made]
    drawn = [seconds - (1 + LAUNCHES) * _saved(one) for seconds, one in zip(now, made, strict=True)]
    yield ""
    yield f"- {len(made)} recorded cases with {LAUNCHES} launches each: {duration(sum(now))}"
    yield (
        f"- {others} more cases of the suite on one device, each taken for the median of these: "
        f"{duration(others * median(now))}"
    )
    yield f"- together {duration(sum(now) + others * median(now))}; the aim is 6 min"
    yield (
        f"- if inputs of products and copies take {DRAWN_SECONDS:g} s to draw, which is assumed: "
        f"{duration(sum(drawn) + others * median(drawn))}"
    )


def _saved(one: NodeCase) -> float:
    is_drawn = one.name.startswith(("gemm", "host-to", "device-to", "memory"))
    return max(0.0, one.build - DRAWN_SECONDS) if is_drawn else 0.0


# ------------------------------------------------------------------ acceptance


@dataclass(frozen=True, kw_only=True)
class Row:
    """A primary row on one device: seconds of each part, and whether its step was measured."""

    name: str
    step: float
    build: float
    reference: float
    useful: float
    is_measured: bool

    @property
    def launch(self) -> float:
        """A timed launch that checks its first output with the reference that is there."""
        return forked_setup() + self.build + FIRST_STEPS * self.step + 1.0 + self.useful

    @property
    def fixed(self) -> float:
        """The untimed launch and the repeats."""
        repeat = forked_setup() + self.build + self.step
        return repeat + self.reference + 1.0 + REPEATS * repeat

    def whole(self, launches: int) -> float:
        return self.fixed + self.reference + launches * self.launch


def acceptance_rows(limit: float | None = None) -> list[Row]:
    """The rows of one device; references of at most `limit` seconds."""
    suite = suite_file.load_suite("acceptance")[0]
    full = json.loads((RECORDED / "full_size.json").read_text())
    cores = references.load().cores
    rows = []
    for case in _cases("acceptance"):
        if case.variant:
            continue
        known = full.get({"resnet50_jpeg": "resnet50"}.get(case.workload, case.workload), {})
        step = known.get("step_seconds", _unknown_step(case))
        seconds = references.load().seconds(case.workload, case.parameters, case.work.flops, cores)
        reference = seconds or 0.0
        protocol = suite.protocol
        rows.append(
            Row(
                name=case.id.partition("@")[0],
                step=step,
                build=known.get("build_seconds", UNKNOWN_BUILD_SECONDS),
                reference=reference if limit is None else min(limit, reference),
                useful=max(protocol.warmup_seconds, protocol.warmup_steps * step)
                + max(protocol.block_seconds, protocol.block_steps * step),
                is_measured="step_seconds" in known,
            )
        )
    return rows


def _unknown_step(case: Case) -> float:
    flops = case.work.flops or 0.0
    return max(UNKNOWN_STEP_SECONDS, flops / UNKNOWN_FLOPS_PER_SECOND)


def acceptance() -> Iterator[str]:
    """One table of rows, and what all of them come to with one launch and with five."""
    rows = acceptance_rows()
    yield "| row | step, s | build, s | reference, s | useful of a launch, s | step |"
    yield "|---|---:|---:|---:|---:|---|"
    for row in rows:
        how = "measured" if row.is_measured else "assumed"
        yield (
            f"| `{row.name}` | {row.step:.3g} | {row.build:.1f} | {row.reference:.3g} | "
            f"{row.useful:.1f} | {how} |"
        )
    yield ""
    limit = references.load().limit_seconds
    for launches in (1, LAUNCHES):
        words = "launch" if launches == 1 else "launches"
        now = _sum(rows, launches)
        bounded = _sum(acceptance_rows(limit), launches)
        yield (
            f"- {len(rows)} rows with {launches} timed {words} each: {now}; with no reference "
            f"above {limit:g} s: {bounded}"
        )


def _sum(rows: Iterable[Row], launches: int) -> str:
    several = list(rows)
    whole = sum(row.whole(launches) for row in several)
    useful = launches * sum(row.useful for row in several)
    return f"{duration(whole)}, of which {useful / whole:.0%} useful"


def _cases(suite: str) -> list[Case]:
    """What one such device runs of a suite."""
    cases, _ = plan_cases(inputs_of(suite_file.load_suite(suite)[0], device_of(MODEL)))
    return [case for case in cases if not case.unsupported]


# ------------------------------------------------------------------ the page

PAGE_TEXT = """# What suites would take on an H100

<!-- written by scripts/write_device_budget.py -->

A budget, and no run: the sum of parts that were measured on one {model}
(bench 0.4.0, 16 host cores, launches of `node` in fresh processes) with what is made otherwise
since. A forked launch takes {setup:.2f} s until its device is set up (median of {forked} launches
of smoke); fresh ones of `node` took {fresh:.1f} s. Rows of the deterministic phase are not built a
second time in their untimed launch. `bench run` on a device says what it really took.

## `smoke`: an untimed and {launches} timed launches a case

{smoke}

Its {repeats} repeats a case in the deterministic phase are not in this sum; they build and step
once.

## `node`: {launches} timed launches a case

{node}

## `acceptance`: the rows of one device

The step is that of the recorded device with older versions of the libraries, and else assumed: its
operations at {rate:.0f} TFLOP/s, {step:g} s at least. A build that nobody timed is taken for
{build:g} s. The reference is the [estimate](references.md) for 16 cores, made once for the first
output and once for the last one that is checked. Useful are warm-up and timed steps. Variants of
rows are not in this sum.

{acceptance}

The aim is 30 min with at least half of it useful.
"""


def page() -> str:
    """The whole page."""
    fresh = [
        one.environment
        for name in ("node", "node-2")
        for one in journal(name).launches.values()
        if one.environment
    ]
    return PAGE_TEXT.format(
        model=MODEL,
        setup=forked_setup(),
        forked=len(journal("smoke").launches),
        fresh=median(fresh),
        launches=LAUNCHES,
        repeats=REPEATS,
        smoke="\n".join(smoke()),
        node="\n".join(node()),
        rate=UNKNOWN_FLOPS_PER_SECOND / 1e12,
        step=UNKNOWN_STEP_SECONDS,
        build=UNKNOWN_BUILD_SECONDS,
        acceptance="\n".join(acceptance()),
    )


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
