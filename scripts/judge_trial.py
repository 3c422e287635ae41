"""What the judge does to nodes whose truth is known, under a noise that is a Python file.

    scripts/judge_trial.py scripts/noise/run_level.py --sessions 3 --margin 0.03

A model is a file with one function: `noise(random, shape)` gives ln(seconds) around the truth, of
nodes, cases, runs and launches. Of each node a baseline is made of `--runs` runs of `--launches`
launches, then a run of `--sessions` sessions is judged at the interim analyses of the full suites.
The rule is the judge's own (`judging.decision_rule`), as are the estimates of the baseline
(`statistics.run_levels`, `launch_correlation`); tests/judging/test_judge_trial.py feeds nodes of it
line by line to `verdict.Judge` and demands the same rulings. `--frozen` takes the baseline as exact
and all launches as one session, as bench 0.4 did.

Intervals are of Clopper and Pearson, 95 %.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[1]))

from appliance.judging.decision_rule import FLOOR, Decision, decide
from appliance.judging.pass_chance import Schedule, schedule_of
from appliance.planning.sessions import num_in_all
from appliance.statistics.launch_correlation import correlation_from
from appliance.statistics.run_levels import RunSpread, moderated, sessions_of
from appliance.statistics.tails import rate_bounds

Values = npt.NDArray[np.float64]
Answers = npt.NDArray[np.bool_]
Noise = Callable[[np.random.Generator, tuple[int, int, int, int]], Values]

ANALYSES = (5, 10, 20, 40)
ALPHA_PASS, ALPHA_FAIL = 0.01, 0.008
SEED, CHUNK = 20261123, 100
"""The rule was chosen by what this seed gives; what is stated is shown by others."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Nodes of so many limits with the noise of a file, each with a baseline of its own."""

    noise: Noise
    margin: float
    sessions: int = 3
    runs: int = 12
    launches: int = 5
    limits: int = 40
    is_frozen: bool = False

    @property
    def log_margin(self) -> float:
        return math.log1p(self.margin)

    def schedule(self, alpha: float) -> Schedule:
        most = num_in_all(ANALYSES, ANALYSES[-1], self.sessions)
        return schedule_of(ANALYSES, most, self.sessions, alpha)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """By node and limit."""

    is_pass: Answers
    is_fail: Answers


@dataclass(frozen=True, kw_only=True)
class Rate:
    """So many of all nodes, with the interval."""

    number: int
    total: int

    def __str__(self) -> str:
        low, high = rate_bounds(self.number, self.total, 0.025)
        share = 100 * self.number / self.total
        return f"{share:.3g} % ({100 * low:.2f} to {100 * high:.2f})"


def load(path: Path) -> Noise:
    """The function of a model's file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    noise: Noise = module.noise
    return noise


# ------------------------------------------------------------------ nodes


@dataclass(frozen=True, kw_only=True)
class Node:
    """Launches of nodes: of the baseline, shape (nodes, cases, runs, launches), and of sessions."""

    baseline: Values
    sessions: tuple[Values, ...]


def draw(random: np.random.Generator, trial: Trial, nodes: int, offset: float) -> Node:
    """Nodes that are slower than their baseline by `offset`, in ln, everywhere."""
    shape = nodes, trial.limits
    baseline = trial.noise(random, (*shape, trial.runs, trial.launches))
    first = trial.noise(random, (*shape, max(1, trial.sessions - 1), ANALYSES[0]))
    last = trial.noise(random, (*shape, 1, ANALYSES[-1]))
    sessions = (*(first[:, :, i] for i in range(trial.sessions - 1)), last[:, :, 0])
    return Node(baseline=baseline, sessions=tuple(offset + one for one in sessions))


def spread_of(baseline: Values) -> RunSpread:
    """What the baselines of nodes tell of runs, as `verbs.baselines.levels` has it of each."""
    _, cases, runs, launches = baseline.shape
    means, rests = baseline.mean(axis=-1), baseline - baseline.mean(axis=-1, keepdims=True)
    squares = np.square(rests).sum(axis=(-1, -2))
    freedom = runs * (launches - 1)
    products = (rests[..., 1:] * rests[..., :-1]).sum(axis=(-1, -2)) * freedom / squares
    ratio = products.sum(axis=-1) / (freedom * cases)
    correlation = np.vectorize(lambda one: correlation_from(one, {launches: runs * cases}))(ratio)
    run = moderated(means.var(axis=-1, ddof=1), runs - 1)
    within = sessions_of([baseline[:, :, i] for i in range(runs)], correlation[:, None]).within
    return RunSpread(
        run=run,
        within=within,
        error=run / runs,
        launches=launches,
        within_freedom=freedom,
        correlation=correlation[:, None],
        freedom=runs - 1,
        error_freedom=runs - 1,
    )


def decisions(trial: Trial, node: Node) -> list[Decision]:
    """Both tests of each limit at each interim analysis."""
    passing = trial.schedule(ALPHA_PASS)
    failing = trial.schedule(ALPHA_FAIL / trial.limits)
    spread = None if trial.is_frozen else spread_of(node.baseline)
    level = node.baseline.mean(axis=(-1, -2))
    made: list[Decision] = []
    for counts, z_pass, z_fail in zip(passing.counts, passing.z, failing.z, strict=True):
        launches = [one[..., :count] for one, count in zip(node.sessions, counts, strict=True)]
        if spread is None:
            launches = [np.concatenate(launches, axis=-1)]
        made.append(
            decide(
                sessions_of(launches, 0.0 if spread is None else spread.correlation),
                spread,
                log_limit=level + trial.log_margin,
                floor=FLOOR * trial.log_margin,
                z_pass=z_pass,
                z_fail=z_fail,
            )
        )
    return made


def judged(trial: Trial, node: Node) -> Outcome:
    """What the first interim analysis says that answers."""
    shape = node.baseline.shape[:2]
    is_pass, is_fail = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    for decision in decisions(trial, node):
        is_open = ~(is_pass | is_fail)
        is_pass |= is_open & decision.tested.is_pass & ~decision.tested.is_fail
        is_fail |= is_open & decision.tested.is_fail
    return Outcome(is_pass=is_pass, is_fail=is_fail)


# ------------------------------------------------------------------ rates


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What is promised of nodes that meet their limits exactly, and of healthy ones."""

    one_at_limit_passes: Rate
    all_at_limit_fail: Rate
    healthy_passes: Rate
    healthy_fails: Rate


def rates(trial: Trial, nodes: int, seed: int = SEED) -> Rates:
    at_limit = list(_outcomes(trial, nodes, trial.log_margin, (seed, 1)))
    healthy = list(_outcomes(trial, nodes, 0.0, (seed, 2)))

    def rate(flags: Sequence[Answers]) -> Rate:
        return Rate(number=int(sum(one.sum() for one in flags)), total=nodes)

    return Rates(
        one_at_limit_passes=rate([one.is_pass[:, 0] for one in at_limit]),
        all_at_limit_fail=rate([one.is_fail.any(axis=1) for one in at_limit]),
        healthy_passes=rate([one.is_pass.all(axis=1) for one in healthy]),
        healthy_fails=rate([one.is_fail.any(axis=1) for one in healthy]),
    )


def _outcomes(trial: Trial, nodes: int, offset: float, seeds: tuple[int, int]) -> Iterator[Outcome]:
    random = np.random.default_rng(seeds)
    for begin in range(0, nodes, CHUNK):
        yield judged(trial, draw(random, trial, min(CHUNK, nodes - begin), offset))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--runs", type=int, default=12, help="of the baseline")
    parser.add_argument("--launches", type=int, default=5, help="of each run of the baseline")
    parser.add_argument("--limits", type=int, default=40)
    parser.add_argument("--margin", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--frozen", action="store_true", help="take the baseline as exact")
    options = parser.parse_args()
    print(
        "| noise | sessions | margin | one limit met exactly: passes | all met exactly: node "
        "fails | healthy: node passes | healthy: node fails |"
    )
    print("|---|---|---|---|---|---|---|")
    for path in options.models:
        trial = Trial(
            noise=load(path),
            margin=options.margin,
            sessions=options.sessions,
            runs=options.runs,
            launches=options.launches,
            limits=options.limits,
            is_frozen=options.frozen,
        )
        got = rates(trial, options.nodes, options.seed)
        cells = (
            path.stem,
            options.sessions,
            f"{100 * options.margin:g} %",
            got.one_at_limit_passes,
            got.all_at_limit_fail,
            got.healthy_passes,
            got.healthy_fails,
        )
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
