"""Prints the table of docs/how-to/baselines.md: what a baseline of so many runs carries.

    .venv/bin/python scripts/carried_margins.py --launch-cv 0.01 --run-level 0.005

The baseline's spreads are taken to be just these; a real one estimates them, and `bench baseline
plan` says what it carries. Launches are independent, and runs have `--launches` of them.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from scipy.special import ndtr, stdtrit

sys.path.insert(0, str(Path(__file__).parents[1]))

from appliance.judging.pass_chance import Schedule, carried_margin, schedule_of
from appliance.planning.sessions import num_in_all
from appliance.records.baseline import Level
from appliance.verbs.baselines.create import PASS_RISK
from appliance.verbs.baselines.plan import ANALYSES

RUNS = (3, 5, 8, 12, 20)
BOUND = 2.7


def level(runs: int, launches: int, launch_cv: float, run_level: float) -> Level:
    """Of a device that varies so; ln(seconds) of a step is 0."""
    run_sd = math.sqrt(run_level**2 + launch_cv**2 / launches)
    return Level(
        log_seconds=0.0,
        launch_sd=math.hypot(launch_cv, run_level),
        within_sd=launch_cv,
        within_freedom=runs * (launches - 1),
        run_sd=run_sd,
        run_launches=launches,
        freedom=runs - 1,
        correlation=0.0,
        error_sd=run_sd / math.sqrt(runs),
        error_freedom=runs - 1,
        device_sd=None,
        tolerance=None,
    )


def schedule(sessions: int) -> Schedule:
    return schedule_of(ANALYSES, num_in_all(ANALYSES, ANALYSES[-1], sessions), sessions, PASS_RISK)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--launch-cv", type=float, default=0.01)
    parser.add_argument("--run-level", type=float, default=0.005)
    parser.add_argument("--launches", type=int, default=5)
    options = parser.parse_args()
    print(f"| runs | Student's t at a bound of {BOUND} | carried in one session | in three |")
    print("|---|---|---|---|")
    for runs in RUNS:
        t = -float(stdtrit(runs - 1, ndtr(-BOUND)))
        made = level(runs, options.launches, options.launch_cv, options.run_level)
        one, three = (100 * carried_margin(made, schedule(sessions)) for sessions in (1, 3))
        print(f"| {runs} | {t:.1f} | {one:.2g} % | {three:.2g} % |")


if __name__ == "__main__":
    main()
