"""Which timed outputs of inference are checked beside the first and the last one.

What runs faster while it is timed may answer worse while it is. So about one in a hundred timed
steps, and one at least in each launch, is drawn by HKDF from the run's seed, which nobody knows
before the plan is made. Who verifies a bundle draws them again. MLPerf's audit TEST01 is the model.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from appliance.planning.seeds import derive_seed

SHARE = 0.01
MOST = 16
"""Outputs of a launch that are checked: they wait in the device's memory for the block's end."""


def sampled_steps(seed: int, launch: str, least: int) -> Iterator[int]:
    """Numbers of the timed steps of a launch that are checked, in their order, from 0.

    `seed` is that of the case's inputs, `launch` CASE@DEVICE/NUMBER, of which the device does not
    matter. The first lies among the first `least` steps, which every launch makes; between it and
    each further one lie as many as a draw at `SHARE` leaves out.
    """
    name, number = launch.partition("@")[0], launch.rpartition("/")[2]
    draw = derive_seed(f"{seed:016x}", f"sampled:{name}/{number}")
    rng = random.Random(draw)  # noqa: S311 - derived from the run's seed, so that it can be repeated
    step = rng.randrange(max(1, least))
    for _ in range(MOST):
        yield step
        step += 1 + int(math.log(1.0 - rng.random()) / math.log1p(-SHARE))
