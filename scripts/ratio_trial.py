"""How often chance decides a limit on the ratio of two cases, under a noise that is a Python file.

    .venv/bin/python scripts/ratio_trial.py scripts/noise/*.py --sessions 3 --margin 0.05

A node holds each of its cases against another one that does the same work. Launches of both are as
of judge_trial.py; the rule is the judge's own (`judging.ratios`), at the interim analyses of the
full suites. There is no baseline, so J sessions have J - 1 degrees of freedom.

Intervals are of Clopper and Pearson, 95 %.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from judge_trial import (
    ALPHA_FAIL,
    ALPHA_PASS,
    ANALYSES,
    SEED,
    Noise,
    Rate,
    Trial,
    Values,
    load,
)

from appliance.judging.decision_rule import FLOOR
from appliance.judging.ratios import contrast_of, tested_at


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Launches of two cases by session, ln(seconds per unit): the judged one, and the other."""

    case: tuple[Values, ...]
    other: tuple[Values, ...]


def pairs(random: np.random.Generator, trial: Trial, offset: float) -> list[Pair]:
    """All pairs of one node, whose judged cases are slower by `offset`, in ln."""
    shape = 1, 2 * trial.limits
    earlier = trial.noise(random, (*shape, max(1, trial.sessions - 1), ANALYSES[0]))[0]
    last = trial.noise(random, (*shape, 1, ANALYSES[-1]))[0]
    made = [
        (*(earlier[case, session] for session in range(trial.sessions - 1)), last[case, 0])
        for case in range(2 * trial.limits)
    ]
    slowed = [tuple(offset + session for session in case) for case in made[: trial.limits]]
    return [
        Pair(case=case, other=other)
        for case, other in zip(slowed, made[trial.limits :], strict=True)
    ]


def word(trial: Trial, pair: Pair) -> str:
    """What the first interim analysis says that answers: pass, fail or open."""
    passing = trial.schedule(ALPHA_PASS)
    failing = trial.schedule(ALPHA_FAIL / trial.limits)
    for counts, bounds in zip(passing.counts, zip(passing.z, failing.z, strict=True), strict=True):
        sides = [
            [values[:count].tolist() for values, count in zip(side, counts, strict=True)]
            for side in (pair.case, pair.other)
        ]
        difference = contrast_of(*sides, floor=FLOOR * trial.log_margin)
        if difference is None:
            continue
        tested = tested_at(difference, -trial.log_margin, bounds)
        if bool(tested.is_fail):
            return "fail"
        if bool(tested.is_pass):
            return "pass"
    return "open"


def words(trial: Trial, nodes: int, seed: int, offset: float) -> list[list[str]]:
    """Of each node what is ruled of each of its ratios."""
    random = np.random.default_rng((seed, 3))
    return [[word(trial, pair) for pair in pairs(random, trial, offset)] for _ in range(nodes)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--limits", type=int, default=10)
    parser.add_argument("--margin", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    print(
        "| noise | sessions | margin | met exactly: passes | all met exactly: node fails | ", end=""
    )
    print("healthy: a ratio passes |\n|---|---|---|---|---|---|")
    for path in options.models:
        noise: Noise = load(path)
        trial = Trial(
            noise=noise, margin=options.margin, sessions=options.sessions, limits=options.limits
        )
        at_limit = words(trial, options.nodes, options.seed, math.log1p(options.margin))
        healthy = words(trial, options.nodes, options.seed + 1, 0.0)
        rates = [
            Rate(number=sum(one[0] == "pass" for one in at_limit), total=options.nodes),
            Rate(number=sum("fail" in one for one in at_limit), total=options.nodes),
            Rate(number=sum(one[0] == "pass" for one in healthy), total=options.nodes),
        ]
        cells = (path.stem, options.sessions, f"{100 * options.margin:g} %", *rates)
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
