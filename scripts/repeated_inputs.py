"""What the comparison of repeated inputs takes of a recorded case by today's rule.

The recorded H100s compared by plain means of all pairs. What today's rule asks for is drawn: blocks
of recorded steps follow one another in a drawn order, each from a drawn step on and brought to the
median of all, and the worker's own code compares them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import mean, median
from typing import Any

import measured_stages

from appliance.worker import cache_check

DRAWS = 400
_PAIRS = re.compile(r"saved in (\d+) pairs of steps(?:, of which (\d+) were enough)?")


def recorded_steps(check: Mapping[str, Any]) -> int:
    """Steps that were made for such a check, of which eight warmed up."""
    found = _PAIRS.search(check["detects_what"])
    if found is None:
        raise ValueError(f"no number of pairs in: {check['detects_what']}")
    return cache_check.WARM_UP + 2 * int(found[2] or found[1])


@cache
def steps_then_and_today(name: str, host: measured_stages.Host) -> tuple[int, float]:
    """Steps of a case's recorded comparison, and in the mean of today's; none where none was."""
    run = measured_stages.run("smoke", host)
    check = run.repeated.get(name)
    if check is None:
        return 0, 0.0
    return recorded_steps(check), mean(
        _Drawn(run.blocks[name], one).count() for one in range(DRAWS)
    )


class _Drawn:
    """Steps of a launch, drawn from recorded blocks."""

    def __init__(self, blocks: Sequence[Sequence[float]], seed: int) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - drawn for a simulation
        self._blocks = blocks
        self._typical = median(second for block in blocks for second in block)
        self._coming: list[float] = []
        self._number = 0

    def count(self) -> int:
        """Steps that the comparison makes of them."""
        cache_check.compare(self._step)
        return self._number

    def _step(self, *, is_repeated: bool) -> float:
        del is_repeated
        if not self._coming:
            block = self._rng.choice(self._blocks)
            first = self._rng.randrange(len(block))
            level = self._typical / median(block)
            self._coming = [level * second for second in (*block[first:], *block[:first])]
        self._number += 1
        return self._coming.pop(0)
