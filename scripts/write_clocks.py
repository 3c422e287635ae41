"""Writes docs/reference/clocks.md: event, wall and cost of timing of every small workload.

    scripts/write_clocks.py               writes the page, as `make generate` does
    scripts/write_clocks.py --measure [NAME...]
                                          times the small workloads first, each in its own process

A processor has no clock of its own. So a stopwatch stands for events here: it reads the host's
clock where a device's mark would be given, and the loop that times all steps does the rest. What a
real device says stands in the journals of tests/recorded/h100. Measured times are in
tests/recorded/small_clocks.json.xz.
"""

from __future__ import annotations

import json
import lzma
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.evidence.case_results import case_clocks  # noqa: E402 - after the path
from appliance.evidence.journal_index import index_of  # noqa: E402 - the same
from appliance.planning import workload_manifest  # noqa: E402 - the same
from appliance.records.journal import Block, Line  # noqa: E402 - the same
from appliance.records.json import adapter  # noqa: E402 - the same
from appliance.records.plan import Plan  # noqa: E402 - the same
from appliance.records.verdict import CaseClocks  # noqa: E402 - the same
from appliance.statistics.estimates import block_figures  # noqa: E402 - the same
from appliance.statistics.two_clocks import (  # noqa: E402 - the same
    USUAL_MARGIN,
    TimedBlock,
    choose,
)

H100 = ROOT / "tests" / "recorded" / "h100"
SMALL = ROOT / "tests" / "recorded" / "small_clocks.json.xz"
PAGE = ROOT / "docs" / "reference" / "clocks.md"
ASSUMED_NS = 15_000
"""What timing a step may have cost on the H100, where nobody measured it."""
LEAST_STEPS, LEAST_SECONDS, NUM_BLOCKS = 5, 0.05, 3
TIME_LIMIT_SECONDS = 120
MILLISECOND = 1e-3
Data = dict[str, Any]
TEXT = """\
# Event, wall and the cost of timing

<!-- written by scripts/write_clocks.py -->

A case is judged by its device's events as far as the wall bears them out, and by the wall beyond
([judging](../explanation/judging.md#two-clocks)). What that means for honest workloads stands here:
judged by the wall is no accusation, and short steps always are.

Event is the median step; the ratio is the sum of all events over the wall of their blocks, less
what timing costs. What is lacking is the mean of that over blocks, or what the median lacks.

## On one H100

From its journals (bench 0.4.0; `tests/recorded/h100`), at a margin of {margin}. What timing costs
was not measured then; the last column is what would be judged if it had been {assumed} a step.

| run | case | event | wall of blocks over steps | ratio | lacking | judged | at {assumed} |
|---|---|---|---|---|---|---|---|
{h100}

{h100_wall} of {h100_all} cases are judged by the wall, {h100_assumed} if timing had been measured
so. No limit was set in these runs, so no ruling depends on it. `shared-device` had another program
beside it: its events leave out the time that the device gave away.

## Every small workload

By a stopwatch that stands for events, on one processor core of a virtual machine: it reads the
host's clock where a mark would be given to a device. JAX's steps, and those that wait for another
library, have no event. {num_small} workloads at small size, {blocks} blocks each of {seconds} s or
{steps} steps; `scripts/write_clocks.py --measure` times them again.

| workload | event | wall of blocks over steps | ratio | timing costs | lacking | judged |
|---|---|---|---|---|---|---|
{small}

{small_wall} of {num_small} are judged by the wall. Not timed here: {absent}.
"""


# ------------------------------------------------------------------ the real device


def recorded(name: str) -> Iterator[tuple[str, CaseClocks, CaseClocks]]:
    """Of each timed case of a run: its clocks as recorded, and with an assumed cost of timing."""
    plan = _plan(H100 / name / "plan.json")
    texts = lzma.decompress((H100 / name / "journal.jsonl.xz").read_bytes()).split(b"\n")[:-1]
    lines = [adapter(Line).validate_json(text) for text in texts]
    now, assumed = (index_of(plan, some).cases for some in (lines, list(map(_assumed, lines))))
    for case, evidence in now.items():
        clocks, others = case_clocks(evidence), case_clocks(assumed[case])
        if clocks is not None and others is not None:
            yield case.partition("@")[0], clocks, others


def _plan(path: Path) -> Plan:
    (schema,) = (one for one in fields(Plan) if one.name == "schema")
    data = {**json.loads(path.read_bytes()), "schema": schema.default}
    plan: Plan = adapter(Plan).validate_json(json.dumps(data))
    return plan


def _assumed(line: Line) -> Line:
    event = line.event
    if event.kind != "calibrated":
        return line
    return replace(line, event=replace(event, empty_ns=(ASSUMED_NS,)))


# ------------------------------------------------------------------ the small workloads


class HostEvents:
    """A stopwatch whose marks are readings of the host's clock."""

    def now(self) -> int:
        return time.perf_counter_ns()

    def raw(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def synchronise(self) -> None:
        """Nothing is ever under way."""

    def mark(self) -> int:
        return time.perf_counter_ns()

    def between(self, begin: int, end: int) -> int:
        return end - begin


def measured(name: str) -> Data:
    """What one small workload shows: nanoseconds of a few blocks, and of steps that do nothing."""
    import torch  # noqa: PLC0415 - the page needs none

    from appliance.worker import timing  # noqa: PLC0415 - the same
    from appliance.worker.workload_loader import load_workload  # noqa: PLC0415 - the same
    from workloads.contract.target import Artifacts, Target  # noqa: PLC0415 - the same
    from workloads.contract.workload import Workload  # noqa: PLC0415 - the same

    torch.set_num_threads(1)
    kind = load_workload(name)
    workload = kind(**kind.small)
    target = Target(
        device=torch.device("cpu"),
        artifacts=Artifacts(Path(tempfile.mkdtemp())),
        onnx_providers=("CPUExecutionProvider",),
        data=Path(os.environ["BENCH_DATA"]) if "BENCH_DATA" in os.environ else None,
    )
    torch.manual_seed(1)
    state, watch = workload.build(target, 1), HostEvents()
    step = timing.Step(
        make=lambda: workload.step(state),
        load=None if kind.load is Workload.load else lambda: workload.load(state),
        wait=None if kind.wait is Workload.wait else lambda: workload.wait(state),
    )
    timing.one(step, watch)
    empty = timing.empty_steps(step, watch)
    length = timing.Length(steps=LEAST_STEPS, nanoseconds=round(LEAST_SECONDS * 1e9))
    lengths = [length] * NUM_BLOCKS
    if workload.steps is not None:  # it has no more steps than these, which are one block
        lengths = [timing.Length(steps=max(1, workload.steps - 1))]
    blocks = [timing.block(step, watch, one) for one in lengths]
    return {
        "workload": name,
        "empty_ns": list(empty),
        "blocks": [
            {"wall_ns": one.wall_ns, "event_ns": one.event_ns, "block_wall_ns": one.block_wall_ns}
            for one in blocks
        ],
    }


def measure(names: Sequence[str]) -> None:
    """Time these workloads, or all, each in a process of its own, and store what each shows."""
    import torch  # noqa: F401, PLC0415 - once for all that are forked
    import transformers  # noqa: F401, PLC0415 - the same

    known = {row["workload"]: row for row in timed_rows()} if names else {}
    made = {name: _in_child(name) for name in names or workload_manifest.load()}
    rows = sorted({**known, **made}.items())
    SMALL.write_bytes(lzma.compress(json.dumps([row for _, row in rows]).encode()))


def _in_child(name: str) -> Data:
    """What a forked process measures; why there is nothing if it does not come to its end."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(name, sender))
    child.start()
    sender.close()
    try:
        row: Data = receiver.recv() if receiver.poll(TIME_LIMIT_SECONDS) else _absent(name, "time")
    except EOFError:
        row = _absent(name, "ended")
    child.kill()
    child.join()
    print(name, row.get("absent", ""), file=sys.stderr, flush=True)
    return row


def _send(name: str, sender: Connection) -> None:
    try:
        sender.send(measured(name))
    except Exception as error:  # noqa: BLE001 - what cannot run here is named on the page
        sender.send(_absent(name, type(error).__name__))


def _absent(name: str, why: str) -> Data:
    return {"workload": name, "absent": why}


def timed_rows() -> list[Data]:
    rows: list[Data] = json.loads(lzma.decompress(SMALL.read_bytes()))
    return rows


def small_clocks(row: Data) -> CaseClocks:
    """What a launch with these blocks says, at the usual margin."""
    blocks = [
        Block(
            launch="small/1",
            rank=0,
            index=index,
            first_step=0,
            wall_ns=tuple(one["wall_ns"]),
            event_ns=None if one["event_ns"] is None else tuple(one["event_ns"]),
            block_wall_ns=one["block_wall_ns"],
            block_raw_ns=one["block_wall_ns"],
        )
        for index, one in enumerate(row["blocks"])
    ]
    figures = block_figures(blocks)
    overhead = statistics.median(row["empty_ns"]) * 1e-9
    choice = choose([TimedBlock(figures=one, overhead=overhead) for one in figures], USUAL_MARGIN)
    return CaseClocks(
        judged=choice.clock,
        has_events=blocks[0].event_ns is not None,
        step_seconds=math.exp(statistics.fmean(one.log_seconds for one in figures)),
        wall_seconds=math.exp(statistics.fmean(one.wall_log_seconds for one in figures)),
        overhead_seconds=choice.overhead,
        subtracted_seconds=choice.subtracted,
        ratio=choice.ratio,
        least_ratio=choice.least_ratio,
        missing=choice.missing,
        allowed=choice.allowed,
    )


# ------------------------------------------------------------------ the page


def page() -> str:
    """The page as it should be."""
    runs = sorted(path.parent.name for path in H100.glob("*/plan.json"))
    h100 = [(run, *row) for run in runs for row in recorded(run)]
    rows = timed_rows()
    small = [(row["workload"], small_clocks(row)) for row in rows if "absent" not in row]
    return TEXT.format(
        margin=_percent(USUAL_MARGIN),
        assumed=_seconds(ASSUMED_NS * 1e-9),
        h100="\n".join(_h100_row(*one) for one in h100),
        h100_all=len(h100),
        h100_wall=sum(now.judged == "wall" for _, _, now, _ in h100),
        h100_assumed=sum(assumed.judged == "wall" for _, _, _, assumed in h100),
        blocks=NUM_BLOCKS,
        seconds=LEAST_SECONDS,
        steps=LEAST_STEPS,
        num_small=len(small),
        small="\n".join(_small_row(*one) for one in small),
        small_wall=sum(clocks.judged == "wall" for _, clocks in small),
        absent=", ".join(f"`{row['workload']}`" for row in rows if "absent" in row) or "none",
    )


def _h100_row(run: str, case: str, now: CaseClocks, assumed: CaseClocks) -> str:
    return (
        f"| {run} | {case} | {_seconds(now.step_seconds)} | {_seconds(now.wall_seconds)} "
        f"| {now.ratio:.4f} | {_percent(now.missing)} "
        f"| {_judged(now)} | {_judged(assumed)} |"
    )


def _small_row(name: str, clocks: CaseClocks) -> str:
    event = _seconds(clocks.step_seconds) if clocks.has_events else "none"
    return (
        f"| {name} | {event} | {_seconds(clocks.wall_seconds)} "
        f"| {clocks.ratio:.4f} "
        f"| {_seconds(clocks.overhead_seconds or 0.0)} | {_percent(clocks.missing)} "
        f"| {_judged(clocks)} |"
    )


def _judged(clocks: CaseClocks) -> str:
    return "wall" if clocks.judged == "wall" else "event" if clocks.has_events else "step"


def _seconds(value: float) -> str:
    return f"{value * 1e6:.3g} µs" if value < MILLISECOND else f"{value * 1e3:.4g} ms"


def _percent(value: float) -> str:
    return f"{100 * value:.2g} %"


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--measure"]:
        measure(arguments[1:])
    PAGE.write_text(page())


if __name__ == "__main__":
    main(sys.argv[1:])
