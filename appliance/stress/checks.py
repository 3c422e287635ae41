"""What a journal says of stress, held to its plan and to itself.

Each segment that completed has both checks of each kind that its plan asks for, and of no other;
their minutes add up to what they say; what they count is what the ruling is made from; and no kind
was at work for longer than its segment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from appliance.errors import EvidenceError
from appliance.records.journal import Check, Checked, LaunchEnded, Line
from appliance.records.plan import Plan
from appliance.stress.aggregates import LASTING, SINGLE, Aggregate, Untrue, of_checks, read
from appliance.stress.kinds import LINKS, kinds_of

_MS = 1e-6
_SLACK_MS = 1_000


@dataclass(kw_only=True)
class _Launch:
    asked: frozenset[str]
    checks: list[Check] = field(default_factory=list)
    ended: LaunchEnded | None = None


def check_stress(plan: Plan, lines: Sequence[Line]) -> None:
    """EvidenceError for stress that the plan has and the journal lacks, or that does not add up."""
    for name, launch in _launches(plan, lines).items():
        try:
            fault = next(_faults(launch), "")
        except Untrue as error:
            fault = str(error)
        if fault:
            raise EvidenceError(f"journal.jsonl: stress of launch {name}: {fault}")


def _launches(plan: Plan, lines: Sequence[Line]) -> Mapping[str, _Launch]:
    """Timed launches of burn-ins, and others that say something of stress."""
    try:
        kinds = {case.id: kinds_of(case.workload, case.parameters) for case in plan.cases}
    except ValueError as error:
        raise EvidenceError(f"plan.json: {error}") from None
    launches = {
        one.id: _Launch(asked=frozenset(kinds[one.case] if one.is_timed else ()))
        for one in plan.launches
    }
    for line in lines:
        event = line.event
        if isinstance(event, Checked) and event.launch in launches:
            launches[event.launch].checks.append(event.check)
        elif isinstance(event, LaunchEnded) and event.launch in launches:
            launches[event.launch].ended = event
    return launches


def _faults(launch: _Launch) -> Iterator[str]:
    by_kind = of_checks(launch.checks)
    for kind in sorted(by_kind.keys() - launch.asked):
        yield f"the plan asks for no {kind}"
    if launch.ended is not None and launch.ended.outcome == "completed":
        for kind in sorted(launch.asked - by_kind.keys()):
            yield f"the plan asks for {kind}, and the launch says nothing of it"
    for kind, pair in by_kind.items():
        yield from _faults_of(kind, pair, launch.ended)


def _faults_of(kind: str, pair: Mapping[str, Check], ended: LaunchEnded | None) -> Iterator[str]:
    if pair.keys() != {LASTING, SINGLE}:
        yield f"one of the two checks of {kind} is missing"
        return
    lasting, single = pair[LASTING], pair[SINGLE]
    aggregate = read(lasting)
    if aggregate.kind != kind:
        yield f"the check of {kind} is of {aggregate.kind}"
    if (
        lasting.bound != 0
        or single.bound != 0
        or lasting.if_outside != _if_outside(aggregate, lasting)
    ):
        yield f"the checks of {kind} have other bounds than a launch gives them"
    if not _is_counted(aggregate, lasting.error, single.error):
        yield f"the checks of {kind} count other mismatches than its minutes do"
    if ended is not None and aggregate.total.ms > ended.wall_ns * _MS + _SLACK_MS:
        yield f"{kind} was at it for longer than the launch lasted"


def _if_outside(aggregate: Aggregate, lasting: Check) -> str:
    """What a launch has its check ruled where it is outside: see `stressors.checks_of`."""
    is_left = aggregate.kind == LINKS and aggregate.is_left and math.isnan(lasting.error)
    return "inconclusive" if is_left else "fail"


def _is_counted(aggregate: Aggregate, lasting: float, single: float) -> bool:
    """Whether the errors are those that a launch gives, of which a ruling is made."""
    count = aggregate.total.mismatches
    if aggregate.is_left and not math.isnan(lasting):
        return (lasting, single) == (count, 0) and count > 0
    if not aggregate.is_whole:
        return math.isnan(lasting) and single in (0, count)
    return (lasting, single) == (count, 0) or (lasting, single, count) == (0, 1, 1)
