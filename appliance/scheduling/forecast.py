"""What a launch of a case takes, by what is known of its work: a recorded time, or an estimate.

A recorded time is that of launches of the very same work on the device's model. Where there is
none, but a step of the same workload with the same parameters was timed on the model, in whatever
version, the parts of a launch are added up: its set-up, build and first steps, the protocol's
clocks, warm-up and blocks, and the host's reference. A variant that the seed drew takes what its
row takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from appliance.planning import launch_constants
from appliance.records.plan import Case
from appliance.records.qualified import ObservedCase
from appliance.records.suite import Protocol
from appliance.scheduling import references
from appliance.storage.qualified_file import is_same_work

SETUP_SECONDS, BUILD_SECONDS = 0.3, 10.0
"""Of a forked launch until its device is set up, and of a build at full size; on the recorded H100
builds took 0.1 to 15 s (docs/reference/device-budget.md)."""
FIRST_STEPS = 2
"""Steps outside warm-up and blocks."""
Source = Literal["recorded", "estimated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Seconds of one launch that checks its first and its last output, and where they are from."""

    seconds: float
    source: Source


def recorded_seconds(
    case: Case, model: str | None, observed: Iterable[ObservedCase]
) -> float | None:
    """What a launch of this work took on this model when it was recorded last; None if never.

    Such a launch checked its first and its last output.
    """
    known = [
        one for one in observed if one.launch_seconds is not None and is_same_work(one, case, model)
    ]
    return max(known, key=lambda one: one.recorded_utc).launch_seconds if known else None


def estimated_seconds(
    case: Case, model: str | None, observed: Iterable[ObservedCase], protocol: Protocol
) -> float | None:
    """What a launch of this work takes by the parts that are known; None without a timed step.

    Of full sizes on accelerators alone: what small rows take is in their suites.
    """
    steps = [one for one in observed if one.step_seconds and _is_like(one, case, model)]
    if case.small or not steps:
        return None
    step = max(steps, key=lambda one: one.recorded_utc).step_seconds or 0.0
    file = references.load()
    reference = file.seconds(case.workload, case.parameters, case.work.flops, file.cores) or 0.0
    warm_up = launch_constants.warm_up_seconds(protocol, step)
    blocks = protocol.blocks * launch_constants.block_seconds(protocol, step)
    before = SETUP_SECONDS + BUILD_SECONDS + FIRST_STEPS * step + protocol.calibration_seconds
    return round(before + warm_up + blocks + reference, 1)


def known_times(
    cases: Sequence[Case],
    models: Mapping[str, str],
    observed: Sequence[ObservedCase],
    protocol: Protocol,
) -> Mapping[str, Known]:
    """By the case's id what is known of its launches; `models` are those of the devices."""
    by_id = {case.id: case for case in cases}
    own = {case.id: _known(case, models.get(case.device), observed, protocol) for case in cases}
    known = {name: one for name, one in own.items() if one is not None}
    for case in cases:
        base = known.get(case.variant_of) if case.variant_of in by_id else None
        if base is not None:
            known.setdefault(case.id, replace(base, source="estimated"))
    return known


def with_known_times(cases: Sequence[Case], known: Mapping[str, Known]) -> tuple[Case, ...]:
    """The cases with what is known in the place of allowances."""
    return tuple(
        replace(
            case,
            expected_seconds=known[case.id].seconds,
            reference_seconds=known[case.id].seconds,
        )
        if case.id in known
        else case
        for case in cases
    )


def _known(
    case: Case, model: str | None, observed: Sequence[ObservedCase], protocol: Protocol
) -> Known | None:
    recorded = recorded_seconds(case, model, observed)
    if recorded is not None:
        return Known(seconds=recorded, source="recorded")
    estimated = estimated_seconds(case, model, observed, protocol)
    return None if estimated is None else Known(seconds=estimated, source="estimated")


def _is_like(one: ObservedCase, case: Case, model: str | None) -> bool:
    """Whether it is of the same workload on the model; parameters that are new since may differ."""
    if (one.workload, one.model, one.size) != (case.workload, model, "full"):
        return False
    both = one.parameters.keys() & case.parameters.keys()
    return bool(both) and all(one.parameters[name] == case.parameters[name] for name in both)
