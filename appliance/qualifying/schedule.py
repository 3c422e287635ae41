"""The launches of a stage and their order: what is worth most comes first.

    small   every row of one device with the first seed, then with the second; the same of the jobs
            of several ranks
    full    every row once; then two repeats of each in the deterministic phase
    again   two repeats of each small row in the deterministic phase; then a second process with the
            first seed, for the bits of the default mode
    pairs   the control: a forked and a fresh launch of each row, in turn the first

A timed launch checks its first output and its
last, and makes whatever file it needs itself, so only cases that are not timed at all have an
untimed launch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from appliance.planning.plan import launch_id
from appliance.planning.remaining_time import launch_seconds
from appliance.qualifying.rows import SEEDS, row_of
from appliance.records.plan import Case, Launch, Plan
from appliance.scheduling import launch_kinds

REPEATS = (-2, -3)
"""Numbers of the launches that repeat: -1 would be a fresh process by rule."""
STAGES = (("small", 1.0), ("full", 0.6), ("again", 1.0), ("pairs", 1.0), ("full", 1.0))
"""The stages in their order, each with the part of the time left that it may take: full sizes would
leave none for repeats. What is left of them comes again last."""
Step = tuple[Callable[[Case], bool], Sequence[int]]


def steps(stage: str) -> list[Step]:
    """The passes over the cases of a stage: which cases, and which of their launches."""
    seeds = [(_has_seed(SEEDS[0]), (1,)), (_has_seed(SEEDS[1]), (1,))]
    again = [(_has_seed(SEEDS[0]), REPEATS), (_has_seed(SEEDS[0]), (2,))]
    passes: dict[str, list[Step]] = {
        "small": [*_split(seeds, is_job=False), *_split(seeds, is_job=True)],
        "again": _split(again, is_job=False),
        "pairs": [(_any, pair) for pair in _pairs()],
        "full": [(_any, (1,)), (_any, REPEATS)],
    }
    return passes[stage]


def scheduled(plan: Plan, stage: str, done: Collection[str] = ()) -> Plan:
    """The plan with the launches of a stage in their order, without those that are `done`."""
    ordered = _ordered(plan.cases, steps(stage))
    left = (tuple(name for name in group if name not in done) for group in ordered)
    groups = [group for group in left if group]
    launches = tuple(_launch(name) for group in groups for name in group)
    wanted = {launch.case for launch in launches}
    return replace(
        plan,
        cases=tuple(case for case in plan.cases if case.id in wanted),
        launches=launches,
        groups=tuple(groups),
    )


def expected_seconds(plan: Plan) -> float:
    """What the launches would take by the suites, one group after another."""
    cases = {case.id: case for case in plan.cases}
    by_id = {launch.id: launch for launch in plan.launches}

    def seconds(name: str) -> float:
        launch = by_id[name]
        return launch_seconds(cases[launch.case], launch)

    return sum(max(map(seconds, group)) for group in plan.groups)


def _ordered(cases: Sequence[Case], passes: Iterable[Step]) -> Iterator[list[str]]:
    """Launches that start together: those of one row on all devices at once."""
    for is_meant, numbers in passes:
        rows: dict[str, list[Case]] = {}
        for case in cases:
            if is_meant(case):
                name = case.id if case.alone else case.id.partition("@")[0]
                rows.setdefault(name, []).append(case)
        for together in rows.values():
            for number in numbers:
                yield [name for case in together for name in _names(case, number)]


def _names(case: Case, number: int) -> list[str]:
    """The launch of that number; of a case that is not timed there is the untimed one alone."""
    if case.is_timed or number < 0:
        return [launch_id(case.id, number)]
    return [launch_id(case.id, 0)] if number == 1 else []


def _launch(name: str) -> Launch:
    case, _, word = name.rpartition("/")
    number = -int(word[1:]) if word.startswith("r") else int(word)
    return Launch(id=name, case=case, number=number, is_timed=number > 0)


def _split(passes: Iterable[Step], *, is_job: bool) -> list[Step]:
    def both(first: Callable[[Case], bool]) -> Callable[[Case], bool]:
        return lambda case: first(case) and (case.scope == "job") == is_job

    return [(both(is_meant), numbers) for is_meant, numbers in passes]


def _has_seed(seed: int) -> Callable[[Case], bool]:
    return lambda case: row_of(case.id)[1] == seed


def _pairs() -> Iterator[tuple[int, int]]:
    """Numbers of the launches of each pair in their order; the even ones are fresh."""
    for first in range(1, 2 * launch_kinds.rule().pairs, 2):
        pair = (first, first + 1)
        yield pair if first % 4 == 1 else pair[::-1]


def _any(_: Case) -> bool:
    return True
