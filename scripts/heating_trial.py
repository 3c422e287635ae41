"""How often the drift of a device is ruled wrongly, where its launches share a slow process.

    scripts/heating_trial.py --devices 3000

A device of some cases makes rounds of launches in random order. What they share is a first-order
autoregression of a correlation from one launch to the next, a part of the variance; the rest is
each launch's own. The slope and its interval are the judge's (statistics/heating.py). The limit is
2 %, the risk 1 %; intervals are of Clopper and Pearson, 95 %.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from judge_trial import Rate

from appliance.statistics.heating import Series, slope

Values = npt.NDArray[np.float64]

LIMIT, RISK, SPREAD = 0.02, 0.01, 0.007
SECONDS = 10.0  # from one launch to the next
SEED = 20261124


@dataclass(frozen=True, kw_only=True)
class Device:
    """Launches of `cases` in `rounds`, which share `share` of their variance."""

    correlation: float
    share: float = 1.0
    cases: int = 26
    rounds: int = 5

    def drawn(self, random: np.random.Generator, change: float) -> list[Series]:
        """The launches of one that grows slower by `change` over its run, in ln(seconds)."""
        order = np.concatenate([random.permutation(self.cases) for _ in range(self.rounds)])
        times = SECONDS * np.arange(len(order))
        own = random.standard_normal(len(order))
        shared = random.standard_normal(len(order))
        shared[1:] *= math.sqrt(1.0 - self.correlation**2)
        shared = np.asarray(lfilter([1.0], [1.0, -self.correlation], shared))
        noise = math.sqrt(self.share) * shared + math.sqrt(1.0 - self.share) * own
        values = change * times / times[-1] + SPREAD * noise
        return [
            Series(times_s=times[order == case], values=values[order == case])
            for case in range(self.cases)
        ]


def ruled(device: Device, change: float, devices: int, seed: int = SEED) -> tuple[Rate, Rate]:
    """So many devices that pass, and that fail."""
    random = np.random.default_rng(seed)
    passes = fails = 0
    for _ in range(devices):
        seen = slope(device.drawn(random, change))
        if seen is not None:
            passes += seen.end(RISK) * seen.span_s <= LIMIT
            fails += seen.begin(RISK) * seen.span_s > LIMIT
    return Rate(number=passes, total=devices), Rate(number=fails, total=devices)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--cases", type=int, default=26)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--correlations", type=float, nargs="+", default=[0.0, 0.6, 0.9])
    parser.add_argument("--share", type=float, default=1.0, help="of the variance, that is shared")
    options = parser.parse_args()
    print(
        "| cases | rounds | correlation | share | at the limit: passes | fails | healthy: passes "
        "| fails | heats by 4 %: passes | fails |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for correlation in options.correlations:
        device = Device(
            correlation=correlation,
            share=options.share,
            cases=options.cases,
            rounds=options.rounds,
        )
        cells: list[object] = [options.cases, options.rounds, correlation, options.share]
        for change in (LIMIT, 0.0, 2.0 * LIMIT):
            cells += ruled(device, change, options.devices, options.seed)
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
