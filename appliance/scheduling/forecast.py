"""What a launch of a case takes, by what is known of its work: a recorded time, or an estimate.

A recorded time is that of launches of the very same work on the device's model. Where there is
none, the parts of a launch are added up: its set-up, build and first steps, the protocol's clocks,
warm-up and blocks, and the host's reference. The step among them is one of the same workload with
the same parameters that was timed on the model, in whatever version; else one that is assumed, of
the step's work over a share of the vendor's figures (`step_rates.py`). A variant that the seed drew
of a row whose step was timed takes what its row takes. Nothing is estimated of work whose step
counts nothing, on a model without figures, and of several ranks: they have the suite's allowance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from appliance.planning import launch_constants
from appliance.records.plan import Case
from appliance.records.qualified import ObservedCase
from appliance.records.suite import Protocol
from appliance.scheduling import build_times, references
from appliance.scheduling.step_rates import assumed_step_seconds
from appliance.storage.qualified_file import is_same_work

SETUP_SECONDS = 0.5
"""Of a forked launch until its device is set up, and from its last record to the end of its
process: 0.29 s and 0.17 s on the recorded H100 (docs/reference/device-budget.md)."""
FIRST_STEPS = 2
"""Steps outside warm-up and blocks."""
Source = Literal["recorded", "estimated", "assumed"]
"""Of an estimate the step was timed, or it is assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Seconds of one timed launch that checks an output, and where they are from.

    `untimed_seconds` are of one that checks its first output and times nothing.
    """

    seconds: float
    untimed_seconds: float
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


def timed_step_seconds(
    case: Case, model: str | None, observed: Iterable[ObservedCase]
) -> float | None:
    """What a step of the same workload and parameters took on the model; None if never timed."""
    steps = [one for one in observed if one.step_seconds and _is_like(one, case, model)]
    return max(steps, key=lambda one: one.recorded_utc).step_seconds if steps else None


def estimate(
    case: Case, model: str | None, step: float, protocol: Protocol, source: Source
) -> Known:
    """What a launch on the model takes whose step takes so many seconds, by its parts."""
    file = references.load()
    reference = file.seconds(case.workload, case.parameters, case.work.flops, file.cores) or 0.0
    build = build_times.seconds(case, model)
    clocks = protocol.calibration_seconds
    beside = file.beside_seconds(case.workload, case.work.flops)
    beside += file.prepared_seconds(case.workload)
    untimed = SETUP_SECONDS + build + FIRST_STEPS * step + clocks + reference + beside
    warm_up = launch_constants.warm_up_seconds(protocol, step)
    timed = warm_up + protocol.blocks * _block_seconds(case, step, protocol)
    return Known(
        seconds=round(untimed + timed, 1),
        untimed_seconds=round(untimed, 1),
        source=source,
    )


def _block_seconds(case: Case, step: float, protocol: Protocol) -> float:
    """Of inference, whose timed outputs are drawn, all of the protocol's steps are made."""
    if case.scenario:
        return max(protocol.block_seconds, protocol.block_steps * step)
    return launch_constants.block_seconds(protocol, step)


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
        mine = known.get(case.id)
        is_better = mine is None or mine.source == "assumed"
        if base is not None and base.source != "assumed" and is_better:
            known[case.id] = replace(base, source="estimated")
    return known


def with_known_times(cases: Sequence[Case], known: Mapping[str, Known]) -> tuple[Case, ...]:
    """The cases with what is known in the place of allowances."""
    return tuple(
        replace(
            case,
            expected_seconds=known[case.id].seconds,
            reference_seconds=known[case.id].untimed_seconds,
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
        return Known(seconds=recorded, untimed_seconds=recorded, source="recorded")
    if case.small or case.steps is not None or case.workload in launch_constants.SEGMENTED:
        return None  # what small rows take, rows of so many steps and segments is in their suites
    timed = timed_step_seconds(case, model, observed)
    if timed is not None:
        return estimate(case, model, timed, protocol, "estimated")
    assumed = assumed_step_seconds(case, model)
    return None if assumed is None else estimate(case, model, assumed, protocol, "assumed")


def _is_like(one: ObservedCase, case: Case, model: str | None) -> bool:
    """Whether it is of the same workload on the model; parameters that are new since may differ."""
    if (one.workload, one.model, one.size) != (case.workload, model, "full"):
        return False
    both = one.parameters.keys() & case.parameters.keys()
    return bool(both) and all(one.parameters[name] == case.parameters[name] for name in both)
