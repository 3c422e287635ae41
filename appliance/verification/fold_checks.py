"""Whether minutes of readings and of steps are what a run can have recorded.

A minute that was folded cannot be followed to its readings, so it must agree with itself and with
all around it: sums lie between what extremes and counts allow, minutes are numbered and tile the
time from the warm-up of their launch to its block, none is longer than the run's plan has them, and
no more readings stand in one than are taken in that time. Steps that were folded count in the
number of the step that the launch checked last, which a rule of `launch_checks` holds. Only of
workloads whose launches are segments, whose times nobody judges, may anything be folded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from appliance.errors import EvidenceError
from appliance.evidence.folding import FOLD_NS, fault_of, fold_ns, steps_fault
from appliance.planning.launch_constants import SEGMENTED
from appliance.records.journal import (
    Block,
    LaunchStarted,
    Line,
    Reading,
    ReadingsFolded,
    RunResumed,
    SessionBegan,
    Warmed,
)
from appliance.records.plan import Plan

READINGS_PER_SECOND = 2
SLACK_NS = 10 * 10**9
"""What may lie between a launch's record and the begin or end of its minutes on a busy host."""


@dataclass(kw_only=True)
class _Minutes:
    """The minutes of one launch so far: when it had warmed up, and by device index and end.

    `read_ns` is by device when a reading was recorded alone, as older versions did.
    """

    warmed_ns: int | None = None
    next_index: dict[str, int] = field(default_factory=dict)
    end_ns: dict[str, int] = field(default_factory=dict)
    read_ns: dict[str, int] = field(default_factory=dict)


def check_folds(plan: Plan, lines: Iterable[Line]) -> None:
    """EvidenceError at the first minute that no honest run can have recorded."""
    cases = {case.id: case for case in plan.cases}
    segments = {
        one.id: cases[one.case].all_devices
        for one in plan.launches
        if cases[one.case].workload in SEGMENTED
    }
    seen: dict[str, _Minutes] = {}
    longest_ns = fold_ns(plan)
    for number, line in enumerate(lines, 1):
        event = line.event
        if isinstance(event, RunResumed | SessionBegan):
            seen.clear()  # another boot may count from zero
        elif isinstance(event, LaunchStarted):
            seen[event.launch] = _Minutes()
        elif isinstance(event, Warmed) and event.launch in seen:
            seen[event.launch].warmed_ns = line.monotonic_ns
        elif isinstance(event, Reading) and event.launch in seen:
            seen[event.launch].read_ns[event.device] = line.monotonic_ns
        elif isinstance(event, ReadingsFolded | Block):
            minutes = seen.get(event.launch, _Minutes())
            fault = _fault(event, line, segments, minutes) or _too_long(event, longest_ns)
            if fault:
                raise EvidenceError(f"journal.jsonl line {number}: {event.launch} {fault}")


def _fault(
    event: ReadingsFolded | Block,
    line: Line,
    segments: dict[str, tuple[str, ...]],
    minutes: _Minutes,
) -> str:
    if isinstance(event, Block):
        return _block_fault(event, line, segments, minutes)
    if event.device not in segments.get(event.launch, ()):
        return f"has a minute of readings of {event.device}, which none of its segments works on"
    return fault_of(event) or _too_many(event) or _place_fault(event, line, minutes)


def _block_fault(
    block: Block, line: Line, segments: dict[str, tuple[str, ...]], minutes: _Minutes
) -> str:
    """Steps that no minute can have, and minutes that stop before the block's end."""
    if block.folded and block.launch not in segments:
        return "has steps whose times do not stand in full, and is no segment"
    for device in segments.get(block.launch, ()):
        began = line.monotonic_ns if minutes.warmed_ns is None else minutes.warmed_ns
        end = max(began, minutes.end_ns.get(device, 0), minutes.read_ns.get(device, 0))
        if line.monotonic_ns - end > SLACK_NS:
            return f"has no readings of {device} from the end of a minute to the end of its block"
    return steps_fault(block)


def _too_many(folded: ReadingsFolded) -> str:
    count = sum(group.count for group in folded.groups) + len(folded.detail)
    most = READINGS_PER_SECOND * (folded.end_ns - folded.begin_ns) * 1e-9 + READINGS_PER_SECOND
    return f"counts {count} readings in a time that has {int(most)} at most" if count > most else ""


def _too_long(event: ReadingsFolded | Block, longest_ns: int) -> str:
    """More time folded together than the plan has it; a gap is known when it is over."""
    minutes = longest_ns // FOLD_NS
    if isinstance(event, ReadingsFolded):
        span = event.end_ns - event.begin_ns
        if span > longest_ns + event.longest_gap_ns + SLACK_NS:
            return f"has readings of {event.device} folded by more than {minutes} min"
    elif any(one.wall_ns[2] > longest_ns + one.wall_ns[1] for one in event.folded):
        return f"has steps folded by more than {minutes} min"
    return ""


def _place_fault(folded: ReadingsFolded, line: Line, minutes: _Minutes) -> str:
    """A minute that is not where the one before it ended, or not of the launch's steps."""
    device, index = folded.device, minutes.next_index.get(folded.device, 0)
    if folded.index != index:
        return f"has minute {folded.index} of {device} where minute {index} comes"
    if minutes.warmed_ns is None:
        return f"has a minute of readings of {device} before its steps"
    begin = minutes.end_ns.get(device)
    if begin is not None and folded.begin_ns != begin:
        what = "overlaps the one" if folded.begin_ns < begin else "leaves a gap after the one"
        return f"has a minute {index} of {device} that {what} before it"
    if begin is None and not 0 <= folded.begin_ns - minutes.warmed_ns <= SLACK_NS:
        return f"has minutes of {device} that do not begin with its steps"
    if not 0 <= line.monotonic_ns - folded.end_ns <= FOLD_NS:
        return f"has a minute {index} of {device} that ends after its line, or long before it"
    minutes.next_index[device], minutes.end_ns[device] = index + 1, folded.end_ns
    return ""
