"""Blocks of steps that are copies of each other but for their last digits.

Whoever puts a fast block in the place of a slow one may change each time by some nanoseconds, so
that no two blocks are the same in every digit. Steps of a device differ by more: by microseconds on
the quietest, because a process waits for each. So of two blocks of one workload the first samples
are laid beside each other, and as many are counted as differ by no more than CLOSE_NS. In 2,284
cases of healthy journals, six of them of an H100, the blocks of one case agreed in 1.0 % of their
samples at most; a share of five times that is what is held against anybody. Steps may be steadier
than those: then blocks agree as much when one is shifted against the other, and twice the largest
share at any shift is held against them. A pair is called a copy if as many agreements as it has
come about by chance in less than one of 10^15 pairs, so that of all journals with a million pairs
less than one in 10^9 is accused. Blocks of fewer than 12 steps cannot show so much.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from appliance.errors import EvidenceError
from appliance.records.journal import Block, Line
from appliance.records.plan import Plan

CLOSE_NS = 100
LEAST_SHARE = 0.05
"""Of samples that agree by chance; the largest that was seen is 0.0103."""
FEWEST = 12
"""Samples below which even agreement of all of them may be chance: 0.05^12 is 2 in 10^16."""
MOST = 512
"""Samples of a block that are compared."""
SHIFTS = (1, 2, 3, 4, 5)
MOST_LIKELY = 1e-15
PLACES = 8
"""Samples by which pairs are chosen that may be copies; PROBED of them have to agree."""
PROBED = 4
NEIGHBOURS = 64
"""Blocks with the next larger sample that a block is laid beside."""
COARSE_NS = 1000
Times = NDArray[np.int64]


@dataclass(kw_only=True)
class _Group:
    """Blocks of one workload at the same parameters, on whatever device."""

    blocks: list[Block] = field(default_factory=list)
    times: list[Times] = field(default_factory=list)


def check_near_copies(plan: Plan, lines: Sequence[Line]) -> None:
    """EvidenceError for two blocks whose times are the same but for their last digits."""
    for group in _groups(plan, lines):
        for one, other in _candidates(group):
            if _is_other(group.blocks[one], group.blocks[other]) and are_copies(
                group.times[one], group.times[other]
            ):
                first, second = group.blocks[one], group.blocks[other]
                raise EvidenceError(
                    f"journal.jsonl: block {second.index} of launch {second.launch} has the times "
                    f"of block {first.index} of launch {first.launch} but for the last digits"
                )


def _groups(plan: Plan, lines: Sequence[Line]) -> Iterator[_Group]:
    kinds = {
        case.id: json.dumps([case.workload, dict(case.parameters)], sort_keys=True)
        for case in plan.cases
    }
    groups: dict[str, _Group] = {}
    for block in (line.event for line in lines):
        if isinstance(block, Block) and len(block.wall_ns) >= FEWEST:
            times = np.array(block.wall_ns[:MOST], dtype=np.float64)
            if np.all(times[:FEWEST] % COARSE_NS == 0):
                continue  # of a clock that gives no less
            group = groups.setdefault(kinds[block.launch.rpartition("/")[0]], _Group())
            group.blocks.append(block)
            group.times.append(times.astype(np.int64))
    yield from groups.values()


def _candidates(group: _Group) -> Sequence[tuple[int, int]]:
    """Pairs of which some samples agree, chosen without laying all beside all."""
    number = len(group.times)
    heads = np.stack([times[:FEWEST] for times in group.times]) if number else np.empty((0, FEWEST))
    pairs: list[NDArray[np.int64]] = []
    for place in np.linspace(0, FEWEST - 1, PLACES, dtype=int):
        order = np.argsort(heads[:, place], kind="stable")
        values = heads[order, place]
        for step in range(1, min(NEIGHBOURS, number - 1) + 1):
            close = np.flatnonzero(values[step:] - values[:-step] <= CLOSE_NS)
            if not len(close):
                break
            ends = np.sort(np.stack([order[close], order[close + step]]), axis=0)
            pairs.append(ends[0] * number + ends[1])
    if not pairs:
        return []
    codes, counts = np.unique(np.concatenate(pairs), return_counts=True)
    return [divmod(int(code), number) for code in codes[counts >= PROBED]]


def _is_other(one: Block, other: Block) -> bool:
    """Ranks of one launch wait for each other, so that their times are alike."""
    return one.launch != other.launch or one.rank == other.rank


def are_copies(one: Times, other: Times) -> bool:
    """Whether two series of times agree in more samples than chance lets them."""
    number = min(len(one), len(other))
    one, other = one[:number], other[:number]
    agreeing = _agreeing(one, other)
    shifted = max(
        max(_agreeing(one[by:], other[:-by]), _agreeing(one[:-by], other[by:])) / (number - by)
        for by in SHIFTS
    )
    by_chance = max(LEAST_SHARE, 2.0 * shifted)
    if number < FEWEST or by_chance >= 1.0:
        return False
    return float(bdtrc(agreeing - 1, number, by_chance)) < MOST_LIKELY


def _agreeing(one: Times, other: Times) -> int:
    return int(np.count_nonzero(np.abs(one - other) <= CLOSE_NS))
