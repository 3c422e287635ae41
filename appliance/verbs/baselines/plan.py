"""The verb `baseline plan`: what a baseline carries, and what it lacks for a margin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from appliance.judging.pass_chance import (
    CHANCE,
    Schedule,
    carried_margin,
    least_chance,
    more_runs,
    schedule_of,
)
from appliance.planning.sessions import num_in_all
from appliance.records.baseline import Baseline, Baselines
from appliance.records.json import Number, Record
from appliance.verbs.baselines.create import PASS_RISK, margin_words

ANALYSES = (5, 10, 20, 40)  # of the full suites
FIRST_RUNS = 5  # of a baseline that does not show yet how far runs vary
MOST_SESSIONS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePlan(Record):
    """What one baseline lacks for a margin in runs of `sessions` sessions.

    `chance` is the least probability that a healthy device passes by what there is. `more_runs` of
    `launches` launches each, one a day, would do, None where no number does; `sessions_needed` is
    how many sessions a run needs without any further run, None where nine are too few.
    """

    case: str
    devices: tuple[str, ...]
    margin: Number
    sessions: int
    chance: Number
    carried: Number
    carried_of_three: Number
    num_runs: int
    more_runs: int | None
    launches: int
    run_seconds: Number
    sessions_needed: int | None

    @property
    def is_enough(self) -> bool:
        return self.chance >= CHANCE


def plan(
    baselines: Baselines, *, margin: float, sessions: int, analyses: Sequence[int] = ANALYSES
) -> tuple[CasePlan, ...]:
    """Of each baseline, what it lacks for this margin (like 0.03)."""
    return tuple(_of(one, margin, sessions, analyses) for one in baselines.baseline)


def carried_in(baseline: Baseline, sessions: int, analyses: Sequence[int] = ANALYSES) -> float:
    """The smallest margin (like 0.03) that it carries in runs of so many sessions."""
    if sessions == 1:
        return baseline.smallest_margin
    schedule = _schedule(analyses, sessions)
    return max(carried_margin(level, schedule) for level in baseline.levels)


def _of(baseline: Baseline, margin: float, sessions: int, analyses: Sequence[int]) -> CasePlan:
    log_margin, schedule = math.log1p(margin), _schedule(analyses, sessions)
    is_spread_known = min(level.freedom for level in baseline.levels) >= 1
    least = least_chance(baseline, log_margin, schedule)
    more: int | None = FIRST_RUNS - baseline.num_runs
    if is_spread_known:
        more = more_runs(baseline, log_margin, schedule)
    return CasePlan(
        case=baseline.key.case,
        devices=baseline.devices,
        margin=margin,
        sessions=sessions,
        chance=least,
        carried=baseline.smallest_margin,
        carried_of_three=baseline.smallest_margin_of_three,
        num_runs=baseline.num_runs,
        more_runs=0 if least >= CHANCE else more,
        launches=max(level.run_launches for level in baseline.levels),
        run_seconds=baseline.run_seconds,
        sessions_needed=_sessions_needed(baseline, log_margin, analyses),
    )


def _sessions_needed(baseline: Baseline, margin: float, analyses: Sequence[int]) -> int | None:
    for sessions in range(1, MOST_SESSIONS + 1):
        if least_chance(baseline, margin, _schedule(analyses, sessions)) >= CHANCE:
            return sessions
    return None


def _schedule(analyses: Sequence[int], sessions: int) -> Schedule:
    return schedule_of(analyses, num_in_all(analyses, analyses[-1], sessions), sessions, PASS_RISK)


def report(plans: Sequence[CasePlan]) -> list[str]:
    """What each case lacks, in a sentence, and what all together take."""
    lines = [_sentence(one) for one in plans]
    runs = [one.more_runs or 0 for one in plans]
    if any(runs):
        most = max(plans, key=lambda one: one.more_runs or 0)
        hours = max(runs) * most.run_seconds / 3600
        lines.append(
            f"together: {max(runs)} more runs of all cases on {max(runs)} days, one a day, "
            f"{hours:.2g} h of the node"
        )
    return lines


def _sentence(one: CasePlan) -> str:
    begin = f"{one.case}: carries {margin_words(one.carried)} in one session and "
    begin += f"{margin_words(one.carried_of_three)} in three"
    wanted = f"a healthy device passes {100 * one.margin:g} % in {one.sessions}"
    wanted += f" with {100 * one.chance:.4g} % at least"
    if one.is_enough:
        return f"{begin}; {wanted}"
    if one.more_runs is None:
        rest = "no number of runs carries it"
    else:
        launches = one.more_runs * one.launches
        rest = f"{launches} more launches in {one.more_runs} runs on as many days carry it"
    if one.num_runs < FIRST_RUNS and one.more_runs is not None and one.chance <= 0.0:
        rest = f"{launches} more launches in {one.more_runs} runs show first how far runs vary"
    if one.sessions_needed is not None:
        rest += f", or runs of {one.sessions_needed} sessions"
    return f"{begin}; {wanted}: {rest}"
