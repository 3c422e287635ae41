"""Whether a plan holds what the suite that a reader expects asks for, no less and nothing else.

Whoever plans a run could leave out what his devices are slow at: a case, a parameter, the variant
that the seed drew. So the suite is placed on the devices once more, the variants are drawn once
more, and every case has its parameters completed once more. What a suite leaves to a workload is
taken from the facts of `workload_facts`. They are true of one version: of another one, and of a
workload that is not shipped, it cannot be checked offline, and that is stated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from appliance.errors import EvidenceError
from appliance.planning.criterion_scope import is_judged
from appliance.planning.library_ranges import libraries
from appliance.planning.placement import GIB, Placed, place
from appliance.planning.plan import num_launches
from appliance.planning.workload_manifest import WorkloadFacts
from appliance.records.criteria import Criteria
from appliance.records.json import Parameters
from appliance.records.plan import Case, Plan
from appliance.records.suite import Suite
from appliance.records.system import System
from appliance.scheduling.forecast import known_times
from appliance.storage import qualified_file
from appliance.verification.run_checks import check_seed
from appliance.version import VERSION


def check_suite(
    plan: Plan,
    system: System,
    criteria: Criteria,
    suite: Suite,
    known: Mapping[str, WorkloadFacts],
) -> tuple[str, ...]:
    """The workloads of which not all could be compared, each with the reason; none is best.

    EvidenceError unless the plan holds what the suite places on these devices, as it says, and
    the variants that the seed draws. `known` are the facts of workloads by their names.
    """
    check_seed(plan)
    if plan.schedule is not None:
        raise EvidenceError(
            f"the plan is of what of suite {suite.name} there was time for in "
            f"{plan.schedule.minutes} min, and not of the suite"
        )
    if plan.hours is not None:
        raise EvidenceError(
            f"the plan is of suite {suite.name} over {plan.hours:g} hours, and not of the suite"
        )
    if plan.stress:
        raise EvidenceError(
            f"the plan is of suite {suite.name} with stress ({plan.stress}), and not of the suite"
        )
    placed, not_planned = place(suite, system.identity.devices, plan.seed)
    if plan.time_limit_seconds != suite.time_limit_seconds:
        raise EvidenceError(
            f"the plan has a time limit of {plan.time_limit_seconds:g} s, and suite {suite.name} "
            f"one of {suite.time_limit_seconds:g} s"
        )
    if plan.not_planned != not_planned or plan.protocol != suite.protocol:
        raise EvidenceError(f"the plan has other cases or another protocol than suite {suite.name}")
    facts, unknown = _facts(plan, known)
    fixed = {one.case_id(""): one for one in placed if one.draw is None}
    cases = {case.id: case for case in plan.cases if not case.variant}
    if [*cases] != [*fixed]:  # their order too, by which the seed draws that of the launches
        raise EvidenceError(f"the plan has other cases or another protocol than suite {suite.name}")
    varied = _drawn_cases(plan, [one for one in placed if one.draw is not None], facts)
    for one, case in [*((one, cases[name]) for name, one in fixed.items()), *varied]:
        if not _is_planned(plan, case, one, suite, criteria):
            raise EvidenceError(f"case {case.id} is not planned as suite {suite.name} says")
        if case.workload in facts:
            _check_facts(plan, case, one, known)
    _check_times(plan, system, placed)
    return unknown


def _check_times(plan: Plan, system: System, placed: Sequence[Placed]) -> None:
    """EvidenceError for a case that is planned with other times than its suite has, or records.

    Those of full sizes are taken of records where there are any; of another bench they are not
    known here.
    """
    variants = {case.variant for case in plan.cases}
    items = {one.case_id(variant): one.item for one in placed for variant in variants}
    other = [
        case
        for case in plan.cases
        if case.id in items
        and (case.expected_seconds, case.reference_seconds)
        != (items[case.id].expected_seconds, items[case.id].reference_seconds)
    ]
    if not other or plan.rerun_of:
        return
    models = {device.id: device.model for device in system.identity.devices}
    full = [case for case in plan.cases if not case.small]
    known = known_times(full, models, qualified_file.load_observed(), plan.protocol)
    for case in other:
        times = known.get(case.id)
        is_known = times is not None and (times.seconds, times.untimed_seconds) == (
            case.expected_seconds,
            case.reference_seconds,
        )
        if not is_known and (case.small or plan.bench_version == VERSION):
            raise EvidenceError(
                f"case {case.id} is planned with other times than its suite has, or records of it"
            )


def _facts(
    plan: Plan, known: Mapping[str, WorkloadFacts]
) -> tuple[Mapping[str, WorkloadFacts], tuple[str, ...]]:
    """The facts that are true of the plan's workloads, and of which workloads there are none."""
    facts: dict[str, WorkloadFacts] = {}
    unknown: dict[str, str] = {}
    versions: dict[str, int] = {}
    for case in plan.cases:
        name, shipped = case.workload, known.get(case.workload)
        if versions.setdefault(name, case.version) != case.version:
            raise EvidenceError(f'the plan has workload "{name}" in two versions')
        if shipped is None:
            unknown[name] = f'workload "{name}" is not known to bench {VERSION}'
        elif shipped.version != case.version:
            here = f"bench {VERSION} has version {shipped.version}"
            unknown[name] = f'workload "{name}" is of version {case.version}, and {here}'
        else:
            facts[name] = shipped
    return facts, tuple(unknown.values())


def _drawn_cases(
    plan: Plan, placed: Sequence[Placed], facts: Mapping[str, WorkloadFacts]
) -> list[tuple[Placed, Case]]:
    """Each variant of the plan, beside where it was drawn; EvidenceError for another or none."""
    left = {case.id: case for case in plan.cases if case.variant}
    drawn: list[tuple[Placed, Case]] = []
    for one in placed:
        named = one.case_id("")
        case = next((case for case in left.values() if case.variant_of == named), None)
        known = facts.get(one.item.workload)
        if known is not None:
            _check_draw(plan, case, one, known.drawn(one.request))
        if case is not None and case.id != one.case_id(case.variant):
            raise EvidenceError(f'case {case.id} is not named as the variant "{case.variant}" is')
        if case is not None:
            drawn.append((one, left.pop(case.id)))
    if left:
        raise EvidenceError(
            f"case {next(iter(left))} is a variant that the run's seed did not draw"
        )
    return drawn


def _check_draw(plan: Plan, case: Case | None, one: Placed, variant: str) -> None:
    """EvidenceError unless this is the variant that was drawn, or none where there is none."""
    if case is None and variant:
        raise EvidenceError(
            f"the plan lacks case {one.case_id(variant)}, the variant that the run's seed draws "
            f"of {one.case_id('')}{_made_by(plan)}"
        )
    if case is not None and case.variant != variant:
        drawn = f'draws "{variant}"' if variant else "can draw none"
        raise EvidenceError(
            f'case {case.id} is the variant "{case.variant}" of {case.variant_of}, of which the '
            f"run's seed {drawn}{_made_by(plan)}"
        )


def _check_facts(
    plan: Plan, case: Case, one: Placed, manifest: Mapping[str, WorkloadFacts]
) -> None:
    """EvidenceError unless the case is as suite, draw and workload make it."""
    known = manifest[case.workload]
    recorded = _named(case.parameters) | {
        "is_timed": case.is_timed,
        "is_repeatable": case.is_repeatable,
        "alone": case.alone,
        "bound_by": case.bound_by,
        "injector": case.injector,
        "needs": case.needs,
        "libraries": case.libraries,
    }
    requested = _named(known.complete(one.request)) | {
        "is_timed": known.is_timed,
        "is_repeatable": known.is_repeatable,
        "alone": known.alone if one.item.alone is None else one.item.alone,
        "bound_by": known.bound_by,
        "injector": known.injector,
        "needs": tuple(
            sorted({*known.needs, *one.item.needs, *(["tf32"] if case.in_tf32 else [])})
        ),
        "libraries": libraries(one.request, manifest),
    }
    for name in (*requested, *(name for name in recorded if name not in requested)):
        here, there = recorded.get(name), requested.get(name)  # None is no parameter's value
        if here != there or isinstance(here, bool) is not isinstance(there, bool):
            raise EvidenceError(
                f"case {case.id}: its {name} is {here!r}, and by suite and workload it is "
                f"{there!r}{_made_by(plan)}"
            )


def _named(parameters: Parameters) -> dict[str, object]:
    return {f'parameter "{name}"': value for name, value in parameters.items()}


def _made_by(plan: Plan) -> str:
    made_by = plan.bench_version
    return "" if made_by == VERSION else f"; it was made by bench {made_by}, this is {VERSION}"


def _is_planned(plan: Plan, case: Case, placed: Placed, suite: Suite, criteria: Criteria) -> bool:
    item, sessions = placed.item, plan.sessions
    most = num_launches(suite, item, is_judged=is_judged(criteria, case.id), sessions=sessions)
    launches = most if case.is_timed else 0
    weight = 0.0 if case.variant else item.weight
    planned = (case.workload, case.small, case.launches, case.weight)
    requested = (item.workload, item.small, launches, weight)
    limits = (case.time_limit_seconds, case.memory_limit_bytes)
    allowed = (item.time_limit_seconds, int(item.memory_limit_gib * GIB))
    where = (case.scope, case.agents, case.all_devices, case.memory_class_gib)
    gib = placed.memory.gib if placed.memory else None
    there = (item.scope, item.agents, tuple(device.id for device in placed.devices), gib)
    is_alone = item.alone is None or case.alone == item.alone
    is_there = planned == requested and where == there and limits == allowed and is_alone
    return is_there and (case.variant != "" or _has_its_own(case, placed))


def _has_its_own(case: Case, placed: Placed) -> bool:
    """Whether it has the parameters that the suite says, and a rank on each device of a job.

    That is all that can be checked of a workload whose facts are not known.
    """
    missing = object()
    requested = dict(placed.request.parameters)
    if placed.num_ranks and "ranks" in case.parameters:
        requested["ranks"] = placed.num_ranks
    return all(case.parameters.get(name, missing) == value for name, value in requested.items())
