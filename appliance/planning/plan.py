"""The plan: every case, launch, order and digest, fixed before anything runs.

Pure: from the suite, the worker's answer, the probe and the criteria it makes one record. All
randomness (order, inputs, variants, which launch checks its last output) derives from one seed.
A case of the suite that this node is too small for stands in the plan with its reason, and one
that needs what a device lacks is planned as unsupported.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from appliance.errors import UsageError
from appliance.planning import placement, sustained, undescribed
from appliance.planning.criterion_scope import RATIO, is_judged, matches, other_of, planned_bounds
from appliance.planning.launch_constants import CASES_PER_CONTROL, FIRST_REPEAT
from appliance.planning.library_ranges import libraries
from appliance.planning.placement import GIB, Placed
from appliance.planning.remaining_time import launch_seconds
from appliance.planning.seeds import derive_seed
from appliance.planning.sessions import (
    judged_analyses,
    launches_of_session,
    num_in_all,
    rounds,
    session_ends,
    session_of,
    wave_of,
)
from appliance.planning.workload_manifest import WorkloadFacts
from appliance.records.criteria import Criteria
from appliance.records.plan import Case, Launch, NotPlanned, Plan
from appliance.records.request import Answer, CaseRequest, Lacking, Refused
from appliance.records.suite import Protocol, Suite, SuiteCase
from appliance.records.system import Device
from appliance.records.workload import Description, Resolved, asks_for_tf32
from appliance.storage.toml_file import did_you_mean


@dataclass(frozen=True, kw_only=True)
class Place:
    """A device with what workloads may need and it has, and the data sets that are available."""

    device: Device
    features: frozenset[str]
    available_datasets: frozenset[str]


def case_seed(seed: str, case: Case) -> int:
    """Seed of a case's inputs; the same on every device, so that devices can be compared."""
    return derive_seed(seed, f"inputs:{case.id.partition('@')[0]}")


def requests(suite: Suite, devices: Sequence[Device], seed: str) -> tuple[CaseRequest, ...]:
    """What the worker is asked to resolve; `make_plan` takes its answers in the same order."""
    placed, _ = placement.place(suite, devices, seed)
    return placement.requests(placed)


def case_analyses(plan: Plan, case: Case) -> tuple[int, ...]:
    """Launch counts at which a case is analysed; the last one is all of its launches.

    Those at the ends of sessions but the last are of its outputs alone.
    """
    interim_analyses, sessions = plan.protocol.interim_analyses, plan.sessions
    return (
        *session_ends(interim_analyses, case.launches, sessions),
        *judged_analyses(interim_analyses, case.launches, sessions),
    )


def num_launches(suite: Suite, item: SuiteCase, *, is_judged: bool, sessions: int = 1) -> int:
    """Timed launches of a case at most, in all sessions.

    Where no limit is set on its times the first interim analysis's are enough: more would only
    report them more closely.
    """
    interim_analyses = suite.protocol.interim_analyses
    largest = item.launches or interim_analyses[-1]
    most = largest if is_judged else min(largest, interim_analyses[0])
    return num_in_all(interim_analyses, most, sessions)


@dataclass(frozen=True, kw_only=True)
class PlanInputs:
    (
        """All that a plan is made of.

    `answer` is the worker's answer to `requests`, in the same order; `places` are the node's
    devices; `digests` are the sha256 of the files that the run uses, by name. `manifest` has what
    is known of workloads whose software is lacking, and `ranges` the versions that are allowed of
    the libraries that cases need. `sessions` and the pause between them are as the plan has them.
    `num_attempts` of a challenge may be made of it, 0 where nobody counts them.
    """
        ""
    )

    suite: Suite
    answer: Answer
    places: Sequence[Place]
    criteria: Criteria
    digests: Mapping[str, str]
    seed: str
    run_id: str
    created_utc: str
    bench_version: str
    manifest: Mapping[str, WorkloadFacts] = field(default_factory=dict)
    ranges: Mapping[str, str] = field(default_factory=dict)
    sessions: int = 1
    pause_seconds: float | None = None
    num_attempts: int = 0

    def places_of(self, placed: Placed) -> list[Place]:
        """Where a case goes, in the order of its devices."""
        by_device = {place.device.id: place for place in self.places}
        return [by_device[device.id] for device in placed.devices]

    def is_lacking(self, item: SuiteCase) -> bool:
        """Whether software is lacking for each request of the case's workload."""
        asked = requests(self.suite, [place.device for place in self.places], self.seed)
        answers = zip(asked, self.answer.resolved, strict=True)
        own = [answer for request, answer in answers if request.workload == item.workload]
        return bool(own) and all(isinstance(answer, Lacking) for answer in own)

    def description(self, item: SuiteCase) -> Description:
        """What the worker says of the case's workload; UsageError if there is none."""
        for description in self.answer.descriptions:
            if description.name == item.workload:
                return description
        if self.is_lacking(item):
            return undescribed.description(item.workload, self.manifest)
        hint = did_you_mean(item.workload, [one.name for one in self.answer.descriptions])
        raise UsageError(
            f'suite {self.suite.name}, case "{item.id}": there is no workload '
            f'"{item.workload}"{hint}'
        )


@dataclass(frozen=True, kw_only=True)
class _Planned:
    """A case as the worker resolved it, and what of its software is lacking."""

    resolved: Resolved
    software: str = ""


def make_plan(inputs: PlanInputs) -> Plan:
    """The plan of one run; UsageError if it plans nothing or more than the suite's time limit."""
    return plan_of(inputs, *plan_cases(inputs))


def plan_cases(inputs: PlanInputs) -> tuple[tuple[Case, ...], tuple[NotPlanned, ...]]:
    """The suite's cases on this node, and those that it is too small for; UsageError for none."""
    suite = inputs.suite
    if not inputs.places:
        raise UsageError(f"suite {suite.name} plans nothing: there is no device to run on")
    devices = [place.device for place in inputs.places]
    placed, not_planned = placement.place(suite, devices, inputs.seed)
    cases = _cases(inputs, placed)
    if not cases:
        first = not_planned[0]
        raise UsageError(f"suite {suite.name} plans nothing: of {first.case}, {first.reason}")
    return cases, not_planned


def plan_of(
    inputs: PlanInputs, cases: tuple[Case, ...], not_planned: tuple[NotPlanned, ...]
) -> Plan:
    """The plan of these cases; UsageError where it is too short or too long.

    The suite's time limit, which is of each session, is held by the time of a node whose cases are
    decided at their first interim analysis after the sustained stage, as those of a healthy one
    mostly are.
    """
    suite = inputs.suite
    _check_ratios(inputs.criteria, cases)
    too_short = sustained.refusal(
        inputs.criteria, cases, protocol=suite.protocol, sessions=inputs.sessions
    )
    if too_short:
        raise UsageError(f"suite {suite.name} is too short: {too_short}")
    plan = _scheduled(inputs, cases, not_planned)
    most = suite.time_limit_seconds * inputs.sessions
    if plan.expected_seconds > most:
        each = f" for {inputs.sessions} sessions" if inputs.sessions > 1 else ""
        raise UsageError(
            f"suite {suite.name} plans {plan.expected_seconds:.1f} s, more than its limit of "
            f"{most:.1f} s{each}: remove cases or raise time_limit_seconds"
        )
    return plan


def _cases(inputs: PlanInputs, placed: Sequence[Placed]) -> tuple[Case, ...]:
    """The cases with what the worker resolved; without variants of workloads that have none."""
    resolved = dict(zip(placement.distinct(placed), inputs.answer.resolved, strict=True))
    planned = [(one, _planned(inputs, one, resolved[placement.key(one)])) for one in placed]
    return tuple(
        _case(inputs, one, answer)
        for one, answer in planned
        if not _has_no_variant(one, answer.resolved)
    )


def _planned(inputs: PlanInputs, placed: Placed, answer: Resolved | Refused | Lacking) -> _Planned:
    """What a case is planned from; UsageError where the worker refused its parameters."""
    if isinstance(answer, Refused):
        raise UsageError(f'suite {inputs.suite.name}, case "{placed.item.id}": {answer.error}')
    if isinstance(answer, Resolved):
        return _Planned(resolved=answer)
    known = answer.resolved or undescribed.resolved(placed.request, inputs.manifest)
    return _Planned(resolved=known, software=answer.lack)


def _scheduled(
    inputs: PlanInputs, cases: tuple[Case, ...], not_planned: tuple[NotPlanned, ...]
) -> Plan:
    """The plan with launches, their order and the time that they take."""
    suite, sessions = inputs.suite, inputs.sessions
    interim_analyses = suite.protocol.interim_analyses
    launches = all_launches(cases, suite.protocol, sessions)
    groups = launch_groups(cases, launches, inputs.seed)
    limits, bounds = planned_bounds(
        inputs.criteria, cases, interim_analyses, sessions, num_attempts=inputs.num_attempts
    )
    least = sustained.first_launches(
        inputs.criteria, cases, protocol=suite.protocol, sessions=sessions
    )
    most = {case.id: case.num_assured for case in cases}
    return Plan(
        run_id=inputs.run_id,
        created_utc=inputs.created_utc,
        bench_version=inputs.bench_version,
        seed=inputs.seed,
        suite=suite.name,
        suite_version=suite.version,
        suite_summary=suite.summary,
        criteria=inputs.criteria.name,
        digests=inputs.digests,
        protocol=suite.protocol,
        cases=cases,
        launches=launches,
        groups=groups,
        num_limits=limits,
        bounds=bounds,
        expected_seconds=_expected_seconds(cases, launches, groups, least),
        longest_seconds=_expected_seconds(cases, launches, groups, most),
        time_limit_seconds=suite.time_limit_seconds,
        injectors=tuple(dict.fromkeys(case.injector for case in cases if case.injector)),
        rerun_of="",
        num_attempts=inputs.num_attempts,
        not_planned=not_planned,
        ranges={
            name: inputs.ranges[name]
            for name in sorted({name for case in cases for name in case.libraries})
            if name in inputs.ranges
        },
        sessions=sessions,
        pause_seconds=inputs.pause_seconds,
        is_time_limited=True,
    )


def _check_ratios(criteria: Criteria, cases: Sequence[Case]) -> None:
    """UsageError where a criterion compares a case with one that is not there, or not alike."""
    for criterion in criteria.criterion:
        if criterion.metric == RATIO:
            for case in cases:
                can_run = case.is_timed and not case.software
                is_meant = can_run and matches(criterion, case.id)
                fault = other_of(criterion, case, cases) if is_meant else case
                if isinstance(fault, str):
                    raise UsageError(f'criterion "{criterion.id}" cannot be judged: {fault}')


def _has_no_variant(placed: Placed, resolved: Resolved) -> bool:
    """Whether a variant was wanted of a workload that has none."""
    return placed.draw is not None and not resolved.variant


def _case(inputs: PlanInputs, placed: Placed, planned: _Planned) -> Case:
    """One case as it runs; UsageError where a data set is missing."""
    suite, item, resolved = inputs.suite, placed.item, planned.resolved
    description = inputs.description(item)
    places = inputs.places_of(placed)
    _check_data(suite, item, description, places[0])
    needs = _needs(item, description, resolved)
    name = placed.case_id(resolved.variant)
    launches = _timed_launches(inputs, item, name) if description.is_timed else 0
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
        checked_launch=checked_launch(
            suite.protocol, item.id, launches, inputs.seed, inputs.sessions
        ),
        expected_seconds=item.expected_seconds,
        reference_seconds=item.reference_seconds,
        time_limit_seconds=item.time_limit_seconds,
        memory_limit_bytes=int(item.memory_limit_gib * GIB),
        unsupported="" if planned.software else _unsupported(needs, places),
        software=planned.software,
        libraries=libraries(placed.request, inputs.manifest),
        needs=tuple(sorted(needs)),
        scope=item.scope,
        devices=_all_of_job(placed),
        agents=item.agents,
        memory_class_gib=placed.memory.gib if placed.memory else None,
        variant=resolved.variant,
        variant_of=f"{item.id}@{placed.place}" if resolved.variant else "",
    )


def _needs(item: SuiteCase, description: Description, resolved: Resolved) -> frozenset[str]:
    """What a device must have for the case: its workload's needs, its own, and TF32 if asked."""
    tf32 = {"tf32"} if asks_for_tf32(resolved.parameters, resolved.work) else set()
    return frozenset({*description.needs, *item.needs, *tf32})


def _timed_launches(inputs: PlanInputs, item: SuiteCase, name: str) -> int:
    judged = is_judged(inputs.criteria, name)
    return num_launches(inputs.suite, item, is_judged=judged, sessions=inputs.sessions)


def _check_data(suite: Suite, item: SuiteCase, description: Description, place: Place) -> None:
    """UsageError where a data set that the workload reads is not available."""
    missing = sorted(set(description.data) - place.available_datasets)
    if missing:
        raise UsageError(
            f'suite {suite.name}, case "{item.id}" needs the data set {missing[0]}, which is not '
            f"available: `bench data fetch {missing[0]} --to FOLDER`, then --data FOLDER"
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


def checked_launch(
    protocol: Protocol, name: str, launches: int, seed: str, sessions: int = 1
) -> int | None:
    """The launch that checks its last output, of the suite's case `name`; None means each does.

    It is made before the first interim analysis, which may decide the case, and never the last one,
    so that another can stand in.
    """
    if protocol.last_checks == "all" or launches == 0:
        return None
    schedule = protocol.interim_analyses, launches, sessions
    first_analysis = (*session_ends(*schedule), *judged_analyses(*schedule))[0]
    return 1 + derive_seed(seed, f"checked launch:{name}") % max(1, first_analysis - 1)


def _unsupported(needs: AbstractSet[str], places: Sequence[Place]) -> str:
    """What the first device that lacks anything lacks, or nothing."""
    for place in places:
        lacks = sorted(needs - place.features)
        if lacks:
            return f"{place.device.id} has no {', '.join(lacks)}"
    return ""


def all_launches(
    cases: Sequence[Case], protocol: Protocol, sessions: int = 1
) -> tuple[Launch, ...]:
    """The launches of all cases, one case after another."""
    num_waiting = max((case.waits for case in cases), default=0)
    return tuple(
        launch
        for case in cases
        for launch in case_launches(case, protocol, sessions, num_waiting=num_waiting)
    )


def case_launches(
    case: Case, protocol: Protocol, sessions: int = 1, *, num_waiting: int = 0
) -> list[Launch]:
    """The untimed reference launch 0, the timed ones, and the repeats, which are not timed.

    `num_waiting` rows of the plan wait for time that is left.
    """
    repeats = range(-1, -protocol.repeats - 1, -1)
    each = launches_of_session(protocol.interim_analyses, case.launches, sessions)
    return [
        Launch(
            id=launch_id(case.id, number),
            case=case.id,
            number=number,
            is_timed=number > 0,
            session=session_of(number, each, sessions, protocol.repeats),
            wave=wave_of(case, number, protocol.interim_analyses, num_waiting),
        )
        for number in (*range(case.launches + 1), *repeats)
    ]


def launch_id(case: str, number: int) -> str:
    """CASE/0 and so on; CASE/r1 for the first repeat."""
    return f"{case}/{number}" if number >= 0 else f"{case}/r{-number}"


def fresh_controls(launches: Sequence[Launch], fresh_every: int = 0) -> frozenset[str]:
    """Ids of the launches that are fresh processes to show that forking changes nothing.

    Those are the first repeats of one case in so many, where cases are counted in the order of the
    suite, on all devices alike, and every `fresh_every`-th timed launch.
    """
    fresh = {
        one.id for one in launches if fresh_every and one.is_timed and one.number % fresh_every == 0
    }
    first = [launch for launch in launches if launch.number == FIRST_REPEAT]
    names = list(dict.fromkeys(launch.case.partition("@")[0] for launch in first))
    controls = set(names[::CASES_PER_CONTROL])
    repeats = (one.id for one in first if one.case.partition("@")[0] in controls)
    return frozenset(fresh.union(repeats))


def launch_groups(
    cases: Sequence[Case], launches: Sequence[Launch], seed: str
) -> tuple[tuple[str, ...], ...]:
    """Order of launches: by rounds, cases shuffled in each, devices of one case together.

    A round holds one launch of every case, so the launches of one case span the whole run and
    meet its different thermal states. Round 0 holds the untimed reference launches; the first
    repeats follow it, the second ones the first timed launches, and so on, so that bits are
    repeated in those states too. Sessions follow one another, each with rounds of its own, and so
    do the waves of launches that are made where time is left.
    The very first is a case that needs fewest libraries, so that the run does not begin with
    importing all of them; of those the first that was drawn.
    """
    rng = random.Random(derive_seed(seed, "order"))  # noqa: S311 - an order, not a secret
    alone = {case.id for case in cases if case.alone}
    places = rounds(launches)
    by_place: dict[tuple[int, int, int], dict[str, list[str]]] = {}
    for launch in launches:
        name = launch.case if launch.case in alone else launch.case.partition("@")[0]
        by_place.setdefault(places[launch.id], {}).setdefault(name, []).append(launch.id)
    groups: list[tuple[str, ...]] = []
    for place in sorted(by_place):
        one_round = [tuple(ids) for ids in by_place[place].values()]
        rng.shuffle(one_round)
        groups += one_round
    if not groups:
        return ()
    of_launch = {launch.id: launch.case for launch in launches}
    num_libraries = {case.id: _num_libraries(case) for case in cases}
    reference = [group for group in groups if places[group[0]] == places[groups[0][0]]]
    first = min(reference, key=lambda group: num_libraries[of_launch[group[0]]])
    return (first, *(group for group in groups if group is not first))


def _num_libraries(case: Case) -> float:
    """How many libraries the first launch of a case imports; unbounded where that is not known."""
    is_made = not (case.unsupported or case.software)
    return len(case.libraries) if is_made and case.libraries else math.inf


def _expected_seconds(
    cases: Sequence[Case],
    launches: Sequence[Launch],
    groups: Sequence[Sequence[str]],
    most: Mapping[str, int],
) -> float:
    """Planned time: groups one after another, each as long as its slowest launch.

    Counts so many timed launches of each case at `most`, by its id; pauses are not counted, nor
    are launches of time that is left.
    """
    by_id = {case.id: case for case in cases}

    def seconds(launch: Launch) -> float:
        is_made = launch.number <= most[launch.case] and not launch.wave
        return launch_seconds(by_id[launch.case], launch) if is_made else 0.0

    of_launch = {launch.id: seconds(launch) for launch in launches}
    return math.fsum(max(of_launch[launch] for launch in group) for group in groups)
