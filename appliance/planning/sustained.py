"""The sustained stage: for how long devices are under load before a run may be decided.

What heats slowly is fast at first, so a case that is decided early hides it. A criterion on drift
states a stage, and no case on the device is decided before it is over. Its length is counted, not
measured: in launches of the session, each as long as the protocol makes it at least. So the plan
says whether it can be kept, and verify when it was over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from appliance.planning.criterion_scope import matches
from appliance.planning.sessions import judged_analyses, launches_of_session
from appliance.records.criteria import Criteria, Criterion
from appliance.records.plan import Case
from appliance.records.suite import Protocol

Counted = Callable[[Case], int]
"""Timed launches of a case, in all sessions."""


def launch_seconds(protocol: Protocol) -> float:
    """What a timed launch works at least: comparing clocks, warm-up and blocks."""
    blocks = protocol.blocks * protocol.block_seconds
    return protocol.calibration_seconds + protocol.warmup_seconds + blocks


def stages(criteria: Criteria) -> list[Criterion]:
    """Required criteria that state a sustained stage."""
    return [one for one in criteria.criterion if one.required and one.sustained_seconds]


def load_seconds(
    criterion: Criterion,
    cases: Sequence[Case],
    device: str,
    *,
    protocol: Protocol,
    sessions: int,
    counted: Counted,
) -> float:
    """For how long a device has been under load in the last session, by what is counted.

    Cases whose workload says how many steps they make have no least time, and count nothing.
    """
    number = 0
    for case in cases:
        if device in case.all_devices and _is_of_stage(criterion, case):
            each = launches_of_session(protocol.interim_analyses, case.launches, sessions)
            number += max(0, counted(case) - (sessions - 1) * each)
    return number * launch_seconds(protocol)


def _is_of_stage(criterion: Criterion, case: Case) -> bool:
    is_made = not (case.unsupported or case.software)
    return is_made and case.is_timed and case.steps is None and matches(criterion, case.id)


def devices_of(criterion: Criterion, cases: Sequence[Case]) -> tuple[str, ...]:
    """The devices that the criterion is about, in the order of their cases."""
    named = (case for case in cases if case.is_timed and matches(criterion, case.id))
    return tuple(dict.fromkeys(device for case in named for device in case.all_devices))


def shortfall(
    criteria: Criteria,
    cases: Sequence[Case],
    *,
    protocol: Protocol,
    sessions: int,
    counted: Counted,
    device: str | None = None,
) -> str:
    """Why a stage is not over after so many launches, on one device or on all; or nothing."""
    for criterion in stages(criteria):
        devices = devices_of(criterion, cases)
        for name in devices if device is None else set(devices) & {device}:
            seconds = load_seconds(
                criterion, cases, name, protocol=protocol, sessions=sessions, counted=counted
            )
            if seconds < (criterion.sustained_seconds or 0.0):
                return (
                    f'criterion "{criterion.id}" has {name} under load for '
                    f"{criterion.sustained_seconds:g} s, and this is {seconds:.3g} s at least"
                )
    return ""


def refusal(criteria: Criteria, cases: Sequence[Case], *, protocol: Protocol, sessions: int) -> str:
    """Why a plan is too short for a sustained stage, and what to change; or nothing."""
    short = shortfall(
        criteria,
        cases,
        protocol=protocol,
        sessions=sessions,
        counted=lambda case: case.launches,
    )
    if not short:
        return ""
    return (
        f"{short}, with all launches of the plan: plan more cases, launches or longer blocks, or "
        "agree on criteria with a shorter sustained_seconds"
    )


def first_launches(
    criteria: Criteria, cases: Sequence[Case], *, protocol: Protocol, sessions: int
) -> dict[str, int]:
    """By case the launches after which it may be decided: the first analysis after the stage."""
    analyses = {
        case.id: judged_analyses(protocol.interim_analyses, case.launches, sessions)
        for case in cases
    }
    for place in range(len(protocol.interim_analyses)):
        made = {name: counts[min(place, len(counts) - 1)] for name, counts in analyses.items()}
        short = shortfall(
            criteria,
            cases,
            protocol=protocol,
            sessions=sessions,
            counted=lambda case, made=made: made[case.id],  # type: ignore[misc]
        )
        if not short:
            return made
    return {case.id: case.launches for case in cases}
