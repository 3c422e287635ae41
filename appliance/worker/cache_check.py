"""Whether a repeated input is answered faster than a new one: then the answer was cached.

Steps on changing inputs and steps on the input of the step before are timed in turn, so that what
drifts falls on both alike. The saving is the geometric mean over pairs, and its lower confidence
limit at `CONFIDENCE` is compared with the bound: on a noisy machine that end moves away from the
bound, so noise accuses nobody. The smallest saving that would have been detected is reported with
the check.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from scipy.special import stdtrit

from appliance.planning.launch_constants import REPEATED_INPUT_BOUND
from appliance.records.journal import Check

CONFIDENCE = 1 - 1e-6
"""One check in a million at most accuses a sound device; a run makes many, and one is enough."""
WARM_UP = 8
FEWEST, MOST = 6, 20
"""Pairs that are timed; between them, as many as `SECONDS` hold."""
SECONDS = 20.0


class Timed(Protocol):
    """Seconds of one step, on the next input or on the last one again."""

    def __call__(self, *, is_repeated: bool) -> float: ...


def compare(seconds: Timed) -> Check:
    """Time steps of both kinds and compare them."""
    warm = [seconds(is_repeated=False) for _ in range(WARM_UP)]
    pairs = math.floor(SECONDS / (2 * max(1e-9, float(np.median(warm)))))
    savings = []
    for number in range(min(MOST, max(FEWEST, pairs))):
        times = {}
        for is_repeated in (False, True) if number % 2 == 0 else (True, False):
            times[is_repeated] = max(1e-9, seconds(is_repeated=is_repeated))
        savings.append(math.log(times[False] / times[True]))
    return judge(savings)


def judge(log_savings: list[float]) -> Check:
    """The check, of ln(changing / repeated) of each pair."""
    count = len(log_savings)
    error = float(np.std(log_savings, ddof=1)) / math.sqrt(count)
    half = float(stdtrit(count - 1, CONFIDENCE)) * error
    least = -math.expm1(half - float(np.mean(log_savings)))
    seen = -math.expm1(math.log1p(-REPEATED_INPUT_BOUND) - 2 * half)
    return Check(
        name="part of a step's time that a repeated input surely saves",
        error=max(0.0, least),
        bound=REPEATED_INPUT_BOUND,
        detects=seen,
        detects_what=f"part of a step's time, saved in {count} pairs of steps",
    )
