"""Speed of the changepoint search beside ruptures, and of classifying a launch's steps.

Series are white noise with a step of 5 % in the middle, which a search may prune, and without
one, which it may not. The ratio is of the same segmentation, made in turn on the same series.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np

from appliance.statistics.changepoints import PENALTY_FACTOR, SHORTEST, pelt
from appliance.statistics.steady_state import classify


def milliseconds(work: Callable[..., object], values: object, least: float = 50.0) -> float:
    """Median time of a call with `values`, of five or more calls that take `least` together."""
    times: list[float] = []
    while len(times) < 5 or sum(times) < least:  # noqa: PLR2004 - a median of fewer is none
        begin = time.perf_counter()
        work(values)
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def measure_series() -> None:
    import ruptures  # noqa: PLC0415 - of the test lock; the other parts do without

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it adds 1e-6, as ours does
        search = ruptures.Pelt(model="normal", min_size=SHORTEST, jump=1)
    random = np.random.default_rng(1)
    for kind, height in (("no change", 0.0), ("one change", 0.05)):
        for count in (30, 200, 1000):
            values = random.normal(0, 0.01, count) + height * (np.arange(count) >= count // 2)
            ours, judged = milliseconds(pelt, values), milliseconds(classify, values)
            text = f"series: {count:4} steps, {kind:10}   pelt {ours:5.2f} ms"
            text += f"   classify {judged:5.2f} ms"
            if count <= 200:  # noqa: PLR2004 - of more, ruptures takes many seconds
                paid = PENALTY_FACTOR * math.log(count)
                theirs = milliseconds(partial(search.fit_predict, pen=paid), values)
                text += f"   ruptures/pelt {theirs / ours:.0f}"
            print(text)
    print("series: aims: ruptures/pelt over 50 at 200 steps, classify under 1 ms at 30")
