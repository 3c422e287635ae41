"""How often healthy nodes could pass at best, whatever rule judged them.

    scripts/ideal_judge.py scripts/noise/*.py --margin 0.036 --sessions 3

The same nodes as of judge_trial.py, judged once, when all launches of all sessions are made, with
the buyer's risk of 1 % and nothing kept for a rare mode (no floor). Sessions are weighted by what
they tell (Gauss and Markov). `variances known`: the judge is told every variance, so this is the
uniformly most powerful test at the limit. `freedom of runs`: it is told how the variances relate,
all but their common scale, takes that from all cases' runs of the baseline together, and by
Student's t with one degree of freedom less than there are runs.

Intervals are of Clopper and Pearson, 95 %.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

sys.path.insert(0, str(Path(__file__).parent))

from judge_trial import ALPHA_PASS, CHUNK, SEED, Noise, Rate, Trial, Values, draw, load


def means(trial: Trial, nodes: int, seed: int) -> tuple[Values, Values]:
    """Means of the baseline's runs and of the sessions, shapes (nodes, cases, runs or sessions)."""
    random = np.random.default_rng((seed, 2))
    runs, sessions = [], []
    for begin in range(0, nodes, CHUNK):
        node = draw(random, trial, min(CHUNK, nodes - begin), 0.0)
        runs.append(node.baseline.mean(axis=-1))
        sessions.append(np.stack([one.mean(axis=-1) for one in node.sessions], axis=-1))
    return np.concatenate(runs), np.concatenate(sessions)


def passes(trial: Trial, nodes: int, seed: int) -> tuple[Rate, Rate]:
    """Healthy nodes that pass all limits: with variances known, and with the freedom of runs."""
    runs, sessions = means(trial, nodes, seed)
    # The truth is 0 in every model, so squares around it are variances.
    of_run = float(np.square(runs).mean())
    of_sessions = np.square(sessions).mean(axis=(0, 1))
    weights = (1.0 / of_sessions) / np.sum(1.0 / of_sessions)
    variance = 1.0 / np.sum(1.0 / of_sessions) + of_run / trial.runs
    distance = trial.log_margin - (sessions @ weights - runs.mean(axis=-1))
    scale = runs.var(axis=-1, ddof=1).mean(axis=-1, keepdims=True) / of_run
    known = -float(stdtrit(np.inf, ALPHA_PASS)) * math.sqrt(variance)
    estimated = -float(stdtrit(trial.runs - 1, ALPHA_PASS)) * np.sqrt(variance * scale)

    def rate(bound: float | Values) -> Rate:
        return Rate(number=int((distance > bound).all(axis=1).sum()), total=nodes)

    return rate(known), rate(estimated)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--nodes", type=int, default=4000)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--runs", type=int, default=12, help="of the baseline")
    parser.add_argument("--margin", type=float, default=0.036)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    print("| noise | sessions | margin | variances known | freedom of runs |")
    print("|---|---|---|---|---|")
    for path in options.models:
        noise: Noise = load(path)
        trial = Trial(
            noise=noise, margin=options.margin, sessions=options.sessions, runs=options.runs
        )
        known, estimated = passes(trial, options.nodes, options.seed)
        margin = f"{100 * options.margin:g} %"
        print(
            f"| {path.stem} | {options.sessions} | {margin} | {known} | {estimated} |", flush=True
        )


if __name__ == "__main__":
    main()
