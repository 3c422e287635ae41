"""Whether a repeated input is answered faster than a new one: then the answer was cached.

Steps on changing inputs and steps on the input of the step before are timed in turn, so that what
drifts falls on both alike. The saving is the geometric mean over pairs, and its lower confidence
limit at `CONFIDENCE` is compared with the bound: on a noisy machine that end moves away from the
bound, so noise accuses nobody. The smallest saving that would have been detected is reported with
the check.

Where a step takes more than `LONG` seconds and its workload can make shorter ones by the same code
from the same state, as one that generates fewer tokens does, these are compared, of about `BRIEF`
seconds: more pairs fit into the time, and less can be hidden. What is kept of whole answers alone
would not be seen in them, so the check says what its steps were.

A device whose saving is surely below the bound is asked no more: the upper confidence limit at
`ENOUGH` is looked at after each pair. Nobody is accused sooner for it, and of a saving that all
pairs detect none was let go in 600 drawn sequences, at twice the noise of the recorded
H100 (tests/worker/test_hooks.py).
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
ENOUGH = 0.999
"""Confidence that a repeated input saves less than the bound: no more pairs are timed then."""
WARM_UP, LEAST_WARM_UP, WARM_SECONDS = 8, 2, 5.0
"""Steps that nobody compares: fewer than eight of long ones, which take that time together."""
FEWEST, MOST = 6, 20
"""Pairs that are timed; between them, as many as `SECONDS` hold."""
SECONDS = 20.0


LONG, BRIEF = 1.0, 0.25
"""Seconds of a step above which shorter ones are compared, and about how long these are."""


class Timed(Protocol):
    """Seconds of one step, on the next input or on the last one again."""

    def __call__(self, *, is_repeated: bool) -> float: ...


def compare(seconds: Timed, steps: str = "") -> Check:
    """Time steps of both kinds and compare them; `steps`: in words, if they are not the case's."""
    warm = _warmed(seconds)
    pairs = math.floor(SECONDS / (2 * max(1e-9, float(np.median(warm)))))
    most = min(MOST, max(FEWEST, pairs))
    savings: list[float] = []
    while len(savings) < most and not _is_enough(savings):
        times = {}
        for is_repeated in (False, True) if len(savings) % 2 == 0 else (True, False):
            times[is_repeated] = max(1e-9, seconds(is_repeated=is_repeated))
        savings.append(math.log(times[False] / times[True]))
    return judge(savings, most, steps)


def _warmed(seconds: Timed) -> list[float]:
    """Times of the steps before the pairs."""
    times: list[float] = []
    while len(times) < LEAST_WARM_UP or (len(times) < WARM_UP and sum(times) < WARM_SECONDS):
        times.append(seconds(is_repeated=False))
    return times


def _is_enough(log_savings: list[float]) -> bool:
    """Whether the saving is surely below the bound."""
    count = len(log_savings)
    if count < FEWEST:
        return False
    half = _half(log_savings, count, ENOUGH)
    return float(np.mean(log_savings)) + half < -math.log1p(-REPEATED_INPUT_BOUND)


def _half(log_savings: list[float], count: int, confidence: float) -> float:
    """Half of the confidence interval of a mean of so many pairs as noisy as these."""
    error = float(np.std(log_savings, ddof=1)) / math.sqrt(count)
    return float(stdtrit(count - 1, confidence)) * error


def judge(log_savings: list[float], most: int | None = None, steps: str = "") -> Check:
    """The check, of ln(changing / repeated) of each pair, of which up to `most` were to be timed.

    What is said to be detected, all of them would: a saving of more is not let go before.
    """
    count = len(log_savings)
    most = most or count
    least = -math.expm1(_half(log_savings, count, CONFIDENCE) - float(np.mean(log_savings)))
    half = _half(log_savings, most, CONFIDENCE)
    seen = -math.expm1(math.log1p(-REPEATED_INPUT_BOUND) - 2 * half)
    enough = f", of which {count} were enough" if count < most else ""
    return Check(
        name="part of a step's time that a repeated input surely saves",
        error=max(0.0, least),
        bound=REPEATED_INPUT_BOUND,
        detects=seen,
        detects_what=f"part of a step's time, saved in {most} pairs of steps{enough}"
        f"{steps and f'; each step {steps}'}",
    )
