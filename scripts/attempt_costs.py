"""Prints what each attempt at a challenge costs a healthy node, for docs/how-to/challenges.md.

Attempt k may spend alpha / (k (k + 1)) on a wrong pass, so its bound for a pass is higher and a
healthy node needs more launches for it. The nodes are those of scripts/simulated_nodes.py, the
tests the judge's own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import simulated_nodes
from simulated_nodes import ANALYSES, SEED, Fleet, node_rates

from appliance.planning.criterion_scope import MOST_ATTEMPTS, alphas
from appliance.records.criteria import Criteria
from appliance.statistics.group_sequential import group_bounds

ATTEMPTS = (0, 1, 2, 3, 5, MOST_ATTEMPTS)  # 0: attempts are not counted
STEADY, NOISY = Fleet(), Fleet(spreads=(0.02,) * simulated_nodes.NUM_LIMITS)
CRITERIA = Criteria(name="", version=1, summary="", criterion=())


def row(attempt: int, nodes: int) -> str:
    """One row of the table: risk, bounds, and how healthy nodes of forty limits fare."""
    alpha, _ = alphas(CRITERIA, simulated_nodes.NUM_LIMITS, attempt)
    simulated_nodes.ALPHA_PASS = alpha
    bounds = ", ".join(f"{bound:.3f}" for bound in group_bounds(alpha, ANALYSES))
    cells = [attempt or "not counted", f"{100 * alpha:.3g} %", bounds]
    for fleet in (STEADY, NOISY):
        rates = node_rates(np.random.default_rng(SEED), nodes, fleet)
        cells += [f"{100 * rates.num_pass / rates.total:.1f} %", f"{rates.launches:.1f}"]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description="what each attempt at a challenge costs")
    parser.add_argument("--nodes", type=int, default=simulated_nodes.NODES)
    nodes = parser.parse_args().nodes
    for attempt in ATTEMPTS:
        print(row(attempt, nodes), flush=True)


if __name__ == "__main__":
    main()
