"""The plan: every case, launch, order and digest, fixed before anything runs.

Pure: it is given what the suite, the worker, the probe and the criteria say, and answers with
one record. All randomness (order, inputs, variants, which launch checks its last output) derives
from one seed. A case of the suite that this node is too small for stands in the plan with its
reason, and one that needs what a device lacks is planned as unsupported.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from appliance.errors import UsageError
from appliance.planning import placement
from appliance.planning.criterion_scope import RATIO, is_judged, matches, other_of, planned_bounds
from appliance.planning.placement import Placed
from appliance.planning.seeds import derive_seed
from appliance.records.criteria import Criteria
from appliance.records.plan import Case, Launch, Plan
from appliance.records.request import Answer, CaseRequest, Refused
from appliance.records.suite import Protocol, Suite, SuiteCase
from appliance.records.system import Device
from appliance.records.workload import Description, Resolved
from appliance.statistics.estimates import planned_looks
from appliance.storage.toml_file import did_you_mean

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Place:
    """A device with what workloads may need and it has, and the data sets that are at hand."""

    device: Device
    features: frozenset[str]
    data: frozenset[str]


def case_seed(seed: str, case: Case) -> int:
    """Seed of a case's inputs; the same on every device, so that devices can be compared."""
    return derive_seed(seed, f"inputs:{case.id.partition('@')[0]}")


def requests(suite: Suite, devices: Sequence[Device], seed: str) -> tuple[CaseRequest, ...]:
    """What the worker is asked to resolve; `make_plan` takes its answers in the same order."""
    placed, _ = placement.place(suite, devices, seed)
    return placement.requests(placed)


def case_looks(plan: Plan, case: Case) -> tuple[int, ...]:
    """Launch counts at which a case is judged; the last one is all of its launches."""
    return planned_looks(plan.protocol.looks, case.launches)


def num_launches(suite: Suite, item: SuiteCase, *, is_judged: bool) -> int:
    """Timed launches of a case at most.

    Where no limit is set on its times the first look's are enough: more would only report them
    more closely.
    """
    largest = item.launches or suite.protocol.looks[-1]
    return largest if is_judged else min(largest, suite.protocol.looks[0])


def make_plan(
    *,
    suite: Suite,
    answer: Answer,
    places: Sequence[Place],
    criteria: Criteria,
    digests: Mapping[str, str],
    seed: str,
    run_id: str,
    created_utc: str,
    bench_version: str,
) -> Plan:
    """The plan of one run; UsageError if it plans nothing or more than the suite's time limit.

    The limit is held by the time of a node whose cases are decided at their first look, as those
    of a healthy one mostly are.
    """
    descriptions = {description.name: description for description in answer.descriptions}
    if not places:
        raise UsageError(f"suite {suite.name} plans nothing: there is no device to run on")
    by_device = {place.device.id: place for place in places}
    placed, not_planned = placement.place(suite, [place.device for place in places], seed)
    resolved = dict(zip(placement.distinct(placed), answer.resolved, strict=True))
    cases = tuple(
        _case(
            suite,
            one,
            resolved[placement.key(one)],
            criteria=criteria,
            descriptions=descriptions,
            places=[by_device[device.id] for device in one.devices],
            seed=seed,
        )
        for one in placed
        if not _has_no_variant(one, resolved[placement.key(one)])
    )
    if not cases:
        first = not_planned[0]
        raise UsageError(f"suite {suite.name} plans nothing: of {first.case}, {first.reason}")
    _check_ratios(criteria, cases)
    launches = tuple(launch for case in cases for launch in case_launches(case))
    groups = launch_groups(cases, launches, seed)
    expected = _expected_seconds(cases, launches, groups, suite.protocol.looks[0])
    longest = _expected_seconds(cases, launches, groups, suite.protocol.looks[-1])
    limits, bounds = planned_bounds(criteria, cases, suite.protocol.looks)
    if expected > suite.time_limit_seconds:
        raise UsageError(
            f"suite {suite.name} plans {expected:.1f} s, more than its limit of "
            f"{suite.time_limit_seconds:.1f} s: remove cases or raise time_limit_seconds"
        )
    return Plan(
        run_id=run_id,
        created_utc=created_utc,
        bench_version=bench_version,
        seed=seed,
        suite=suite.name,
        suite_version=suite.version,
        suite_summary=suite.summary,
        criteria=criteria.name,
        digests=digests,
        protocol=suite.protocol,
        cases=cases,
        launches=launches,
        groups=groups,
        num_limits=limits,
        bounds=bounds,
        expected_seconds=expected,
        longest_seconds=longest,
        time_limit_seconds=suite.time_limit_seconds,
        injectors=tuple(dict.fromkeys(case.injector for case in cases if case.injector)),
        rerun_of="",
        not_planned=not_planned,
    )


def _check_ratios(criteria: Criteria, cases: Sequence[Case]) -> None:
    """UsageError where a criterion compares a case with one that is not there, or not alike."""
    for criterion in criteria.criterion:
        if criterion.metric == RATIO:
            for case in cases:
                is_meant = case.is_timed and matches(criterion, case.id)
                fault = other_of(criterion, case, cases) if is_meant else case
                if isinstance(fault, str):
                    raise UsageError(f'criterion "{criterion.id}" cannot be judged: {fault}')


def _has_no_variant(placed: Placed, resolved: Resolved | Refused) -> bool:
    """Whether a variant was wanted of a workload that has none."""
    return placed.draw is not None and isinstance(resolved, Resolved) and not resolved.variant


def _case(
    suite: Suite,
    placed: Placed,
    resolved: Resolved | Refused,
    *,
    criteria: Criteria,
    descriptions: Mapping[str, Description],
    places: Sequence[Place],
    seed: str,
) -> Case:
    item = placed.item
    description = descriptions.get(item.workload)
    if isinstance(resolved, Refused):
        raise UsageError(f'suite {suite.name}, case "{item.id}": {resolved.error}')
    if description is None:
        hint = did_you_mean(item.workload, descriptions)
        raise UsageError(
            f'suite {suite.name}, case "{item.id}": there is no workload "{item.workload}"{hint}'
        )
    missing = sorted(set(description.data) - places[0].data)
    if missing:
        raise UsageError(
            f'suite {suite.name}, case "{item.id}" needs the data set {missing[0]}, which is not '
            f"at hand: `bench data fetch {missing[0]} --to FOLDER`, then --data FOLDER"
        )
    needs = {*description.needs, *item.needs}
    name = placed.case_id(resolved.variant)
    launches = 0
    if description.is_timed:
        launches = num_launches(suite, item, is_judged=is_judged(criteria, name))
    return Case(
        id=name,
        workload=item.workload,
        version=description.version,
        summary=description.summary,
        parameters=resolved.parameters,
        small=item.small,
        work=resolved.work,
        num_parameters=resolved.num_parameters,
        steps=resolved.steps,
        evaluate_every=resolved.evaluate_every,
        is_timed=description.is_timed,
        is_repeatable=description.is_repeatable,
        alone=description.alone if item.alone is None else item.alone,
        bound_by=description.bound_by,
        data_pattern=description.data_pattern,
        scenario=resolved.scenario,
        weight=0.0 if resolved.variant else item.weight,
        injector=description.injector,
        ranks=_ranks(suite, placed, resolved),
        device=placed.devices[0].id,
        launches=launches,
        checked_launch=checked_launch(suite.protocol, item.id, launches, seed),
        expected_seconds=item.expected_seconds,
        reference_seconds=item.reference_seconds,
        time_limit_seconds=item.time_limit_seconds,
        memory_limit_bytes=int(item.memory_limit_gib * GIB),
        unsupported=_unsupported(needs, places),
        needs=tuple(sorted(needs)),
        scope=item.scope,
        devices=_all_of_job(placed),
        agents=item.agents,
        memory_class_gib=placed.memory.gib if placed.memory else None,
        variant=resolved.variant,
        variant_of=f"{item.id}@{placed.place}" if resolved.variant else "",
    )


def _all_of_job(placed: Placed) -> tuple[str, ...]:
    """Names of the devices of a job on several; empty for a case of one device."""
    names = tuple(device.id for device in placed.devices)
    return names if len(names) > 1 else ()


def _ranks(suite: Suite, placed: Placed, resolved: Resolved) -> int:
    """Processes of a launch; UsageError where they do not fit the devices or the agents."""
    ranks, item = max(1, resolved.ranks), placed.item
    named = f'suite {suite.name}, case "{item.id}"'
    if item.scope != "job" and placed.devices[0].vendor != "cpu" and ranks > 1:
        raise UsageError(f'{named} has {ranks} ranks on one device: give it scope = "job"')
    if placed.num_ranks and ranks not in (1, placed.num_ranks):
        raise UsageError(f"{named} has {ranks} ranks on {placed.num_ranks} devices")
    if ranks % item.agents:
        raise UsageError(f"{named}: {item.agents} agents cannot share {ranks} ranks evenly")
    return ranks


def checked_launch(protocol: Protocol, name: str, launches: int, seed: str) -> int | None:
    """The launch that checks its last output, of the suite's case `name`; None means each does.

    It is made before the first look, which may decide the case, and never the last one, so that
    another can stand in.
    """
    if protocol.last_checks == "all" or launches == 0:
        return None
    first_look = planned_looks(protocol.looks, launches)[0]
    return 1 + derive_seed(seed, f"checked launch:{name}") % max(1, first_look - 1)


def _unsupported(needs: AbstractSet[str], places: Sequence[Place]) -> str:
    """What the first device that lacks anything lacks, or nothing."""
    for place in places:
        lacks = sorted(needs - place.features)
        if lacks:
            return f"{place.device.id} has no {', '.join(lacks)}"
    return ""


def case_launches(case: Case) -> list[Launch]:
    """The untimed reference launch 0 and the timed ones."""
    return [
        Launch(id=f"{case.id}/{number}", case=case.id, number=number, is_timed=number > 0)
        for number in range(case.launches + 1)
    ]


def launch_groups(
    cases: Sequence[Case], launches: Sequence[Launch], seed: str
) -> tuple[tuple[str, ...], ...]:
    """Order of launches: by rounds, cases shuffled in each, devices of one case together.

    A round holds one launch of every case, so the launches of one case span the whole run and
    meet its different thermal states. Round 0 holds the untimed reference launches.
    """
    rng = random.Random(derive_seed(seed, "order"))  # noqa: S311 - an order, not a secret
    alone = {case.id for case in cases if case.alone}
    groups: list[tuple[str, ...]] = []
    for number in range(max(case.launches for case in cases) + 1):
        by_name: dict[str, list[str]] = {}
        for launch in launches:
            if launch.number == number:
                name = launch.case if launch.case in alone else launch.case.partition("@")[0]
                by_name.setdefault(name, []).append(launch.id)
        one_round = [tuple(ids) for ids in by_name.values()]
        rng.shuffle(one_round)
        groups += one_round
    return tuple(groups)


def _expected_seconds(
    cases: Sequence[Case],
    launches: Sequence[Launch],
    groups: Sequence[Sequence[str]],
    most: int,
) -> float:
    """Planned time: groups one after another, each as long as its slowest launch.

    Counts the first `most` timed launches of each case.
    """
    by_id = {case.id: case for case in cases}

    def seconds(launch: Launch) -> float:
        case = by_id[launch.case]
        if case.unsupported or launch.number > most:
            return 0.0
        return case.expected_seconds if launch.is_timed else case.reference_seconds

    of_launch = {launch.id: seconds(launch) for launch in launches}
    return sum(max(of_launch[launch] for launch in group) for group in groups)
