"""Whether a repeated input is answered faster than a new one: then the answer was cached.

Steps on changing inputs and steps on the input of the step before are timed in turn, so that what
drifts falls on both alike. The saving is the geometric mean over pairs without those that stand
out, one in `TRIMMED` at either end, and its lower confidence limit at `CONFIDENCE` is compared with
the bound: on a noisy machine that end moves away from the bound, so noise accuses nobody. One held
up step of forty widens the limits of a plain mean a lot, and of this one hardly. The smallest
saving that would have been detected is reported with the check.

The limits are those of a trimmed mean (K. K. Yuen, "The two-sample trimmed t for unequal population
variances", Biometrika 61, 1974, for one sample): its error is made of the winsorized variance, with
one degree of freedom less than there are pairs left.

Where a step takes more than `LONG` seconds and its workload can make shorter ones by the same code
from the same state, as one that generates fewer tokens does, these are compared, of about `BRIEF`
seconds: more pairs fit into the time, and less can be hidden. What is kept of whole answers alone
would not be seen in them, so the check says what its steps were.

A device is asked no more once its saving is surely (at `ENOUGH`) below one that all pairs would
accuse half of the time: the rest of them would hardly find it. Nobody is accused sooner for it. A
step that is held up widens limits and, in a repeated step, hides a saving, until there are pairs
enough to leave some out. So what all pairs would accuse follows from deviations from the median,
and the saving counts as the median where that is more. Of 300,000 drawn sequences of steps, with
savings of 0 to 0.9, noise of 0.01 to 0.3, and none, one in forty or one in ten held up for as long
again, each was accused or not as by all pairs; it asks for 7 pairs where two recorded H100s had
asked for all 20, and at their noise each of 4,000 savings of 0.9 was found
(tests/worker/test_hooks.py). Where one step in forty is held up, 4 of 200 savings of 0.35 are
missed, as by all pairs, and 86 were by plain means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.special import stdtrit

from appliance.planning.launch_constants import REPEATED_INPUT_BOUND
from appliance.records.journal import Check

CONFIDENCE = 1 - 2.5e-7
"""One check in a million at most accuses a sound device; a run makes many, and one is enough.

With normal noise and few pairs the limits of a trimmed mean are passed up to twice as often as they
say (drawn a million times at 1e-5 to 1e-3, 8 to 20 pairs), with longer tails more seldom.
"""
TRIMMED = 8
"""One pair in so many is left out at either end: none of fewer than eight."""
ENOUGH = 0.999
"""Confidence that a repeated input saves less than all pairs would accuse: none is timed then."""
DEVIATION = 1.4826
"""Standard deviations of normal noise in the median deviation from its median."""
WARM_UP, LEAST_WARM_UP, WARM_SECONDS = 8, 2, 0.25
"""Steps that nobody compares: fewer than eight of those that take that time together. The first
step and those that compared the clocks came before, and what still drifts falls on both kinds."""
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
    most = most_pairs(float(np.median(_warmed(seconds))))
    savings: list[float] = []
    while len(savings) < most and not _is_enough(savings, most):
        times = {}
        for is_repeated in (False, True) if len(savings) % 2 == 0 else (True, False):
            times[is_repeated] = max(1e-9, seconds(is_repeated=is_repeated))
        savings.append(math.log(times[False] / times[True]))
    return judge(savings, most, steps)


def most_pairs(step_seconds: float) -> int:
    """Pairs that are timed at most: of those that the time holds so many as detect most.

    Eight detect less than seven, as the two are left out that stand out.
    """
    held = math.floor(SECONDS / (2 * max(1e-9, step_seconds)))
    alike = _Trimmed(count=FEWEST, centre=0.0, spread=1.0)
    counts = range(FEWEST, min(MOST, max(FEWEST, held)) + 1)
    return min(counts, key=lambda count: alike.half(CONFIDENCE, count))


def _warmed(seconds: Timed) -> list[float]:
    """Times of the steps before the pairs."""
    times: list[float] = []
    while len(times) < LEAST_WARM_UP or (len(times) < WARM_UP and sum(times) < WARM_SECONDS):
        times.append(seconds(is_repeated=False))
    return times


def _is_enough(log_savings: list[float], most: int) -> bool:
    """Whether the saving is surely below one that `most` pairs would accuse half of the time."""
    if len(log_savings) < FEWEST:
        return False
    found = _trimmed(log_savings)
    median = float(np.median(log_savings))
    deviation = DEVIATION * float(np.median(np.abs(np.subtract(log_savings, median))))
    quiet = replace(found, spread=min(found.spread, deviation))
    accused = -math.log1p(-REPEATED_INPUT_BOUND) + quiet.half(CONFIDENCE, most)
    return max(found.centre, median) + found.half(ENOUGH) < accused


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trimmed:
    """Mean of what is left, and the winsorized standard deviation of all; `count` pairs."""

    count: int
    centre: float
    spread: float

    def half(self, confidence: float, count: int | None = None) -> float:
        """Half of the confidence interval, of so many pairs as noisy as these."""
        count = count or self.count
        left = count - 2 * (count // TRIMMED)
        error = self.spread * math.sqrt((count - 1) / (left * (left - 1)))
        return float(stdtrit(left - 1, confidence)) * error


def _trimmed(log_savings: list[float]) -> _Trimmed:
    count = len(log_savings)
    cut = count // TRIMMED
    kept = np.sort(log_savings)[cut : count - cut]
    filled = np.pad(kept, cut, mode="edge")
    return _Trimmed(count=count, centre=float(np.mean(kept)), spread=float(np.std(filled, ddof=1)))


def judge(log_savings: list[float], most: int | None = None, steps: str = "") -> Check:
    """The check, of ln(changing / repeated) of each pair, of which up to `most` were to be timed.

    What is said to be detected, all of them would: a saving of more is not let go before.
    """
    count = len(log_savings)
    most = most or count
    found = _trimmed(log_savings)
    least = -math.expm1(found.half(CONFIDENCE) - found.centre)
    seen = -math.expm1(math.log1p(-REPEATED_INPUT_BOUND) - 2 * found.half(CONFIDENCE, most))
    enough = f", of which {count} were enough" if count < most else ""
    return Check(
        name="part of a step's time that a repeated input surely saves",
        error=max(0.0, least),
        bound=REPEATED_INPUT_BOUND,
        detects=seen,
        detects_what=f"part of a step's time, saved in {most} pairs of steps{enough}"
        f"{steps and f'; each step {steps}'}",
    )
