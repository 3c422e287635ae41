"""Blocks of steps that are copies of each other but for their last digits.

Whoever puts a fast block in the place of a slow one may change each time by some nanoseconds, so
that no two blocks are the same in every digit. Steps of a device differ by more: by microseconds on
the quietest, because a process waits for each. So of two blocks of one workload the first samples
are laid beside each other, and as many are counted as differ by no more than CLOSE_NS. In 2,284
cases of healthy journals, six of them of an H100, the blocks of one case agreed in 1.0 % of their
samples at most; a share of five times that is what is held against anybody. Steps may be steadier
than those, or repeat a pattern: then blocks agree as much when one is shifted against the other, or
against itself, and twice the largest share at any shift is held against them. A shift by five steps
or fewer is taken as it is. A longer one leaves few samples to be compared, so it counts where the
agreements of its four overlaps would come about without a pattern at less than one of a thousand
pairs, over all shifts together: so seldom is a copy taken for a pattern. A pair is called a copy if
as many agreements as it has come about by chance in less than one of 10^15 pairs, so that of all
journals with a million pairs less than one in 10^9 is accused. Blocks of fewer than 12 steps cannot
show so much. A pattern is seen where it comes twice in its block: of 42,000 drawn pairs of blocks
of 12 to 64 steps with such patterns, which returned in half to all of the steps, none was accused.

Whoever puts the steps of a block in another order, or adds the same to each, leaves none where it
was. So blocks are held against each other by their times in order of size, from 20 different ones
on, and by what each step differs from the one before, from 12 on, to the nanosecond. On a clock
that ticks every 40 ns, with steps that differ by a microsecond, two blocks of 20 have the same
times in some order in four of 10^15 pairs (of 12 it would be three of 10^10), and two of 12 the
same differences in their order in fewer still. Who multiplies a block by a number leaves one whose
steps are those of another times the ratio of their sums, to ROUNDED_NS. Of 12 steps that differ by
microseconds the chance of that is (4 / 12,000)^11, as of a lattice of 100 ns (1 / 120)^11.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

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
FEWEST_SORTED = 20
"""Different samples below which the same ones in another order may be chance."""
MOST = 512
"""Samples of a block that are compared."""
SHORT_SHIFTS = 5
"""Steps by which a shift leaves so many samples that their share is taken as it is."""
FEWEST_OVERLAPPING = 4
PATTERN = 1e-3
"""Chance that steps without a pattern are taken for ones that repeat, over all shifts."""
MOST_LIKELY = 1e-15
PLACES = 8
"""Samples by which pairs are chosen that may be copies; PROBED of them have to agree."""
PROBED = 4
NEIGHBOURS = 64
"""Blocks with the next larger sample that a block is laid beside."""
COARSE_NS = 1000
ROUNDED_NS = 2.0
"""What a step may be off that was multiplied and rounded, and the ratio of two sums of such."""
Times = NDArray[np.int64]


@dataclass(kw_only=True)
class _Group:
    """Blocks of one workload at the same parameters, on whatever device."""

    blocks: list[Block] = field(default_factory=list)
    times: list[Times] = field(default_factory=list)
    forms: dict[bytes, Block] = field(default_factory=dict)


def check_near_copies(plan: Plan, lines: Sequence[Line]) -> None:
    """EvidenceError for two blocks whose times are the same: but for digits, order or a shift."""
    for group in _groups(plan, lines):
        repeating = cache(lambda index, times=group.times: repeats_itself(times[index]))
        for one, other in _candidates(group):
            first, second = group.blocks[one], group.blocks[other]
            if not _is_other(first, second) or repeating(one) or repeating(other):
                continue
            if are_copies(group.times[one], group.times[other]):
                raise EvidenceError(
                    f"journal.jsonl: block {second.index} of launch {second.launch} has the times "
                    f"of block {first.index} of launch {first.launch} but for the last digits"
                )
        _check_multiples(group)


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
            _check_forms(group, block)
            group.blocks.append(block)
            group.times.append(times.astype(np.int64))
    yield from groups.values()


def _check_forms(group: _Group, block: Block) -> None:
    """EvidenceError for a block that is another of the group in another order, or moved in time."""
    times = np.array(block.wall_ns, dtype=np.float64)
    in_order = np.sort(times)
    forms = (
        (in_order, FEWEST_SORTED, "in another order"),
        (np.diff(times), FEWEST, "and as much more in each"),
    )
    num_different = 1 + int(np.count_nonzero(np.diff(in_order)))
    for form, fewest, how in forms:
        if num_different < fewest:
            continue
        other = group.forms.setdefault(hashlib.sha256(form.tobytes()).digest(), block)
        if other is not block and _is_other(other, block):
            raise EvidenceError(
                f"journal.jsonl: block {block.index} of launch {block.launch} has the times of "
                f"block {other.index} of launch {other.launch}, {how}"
            )


def _check_multiples(group: _Group) -> None:
    """EvidenceError for a block whose steps are those of another times a factor."""
    varied = [n for n, times in enumerate(group.times) if _num_different(times) >= FEWEST]
    if len(varied) < 2:  # noqa: PLR2004 - a pair
        return
    heads = np.stack([group.times[n][:FEWEST] for n in varied]).astype(np.float64)
    sums = heads.sum(axis=1, keepdims=True)
    shares, widest = heads / sums, 4.0 * ROUNDED_NS / sums.min()
    order = np.argsort(shares[:, 0], kind="stable")
    for step in range(1, min(NEIGHBOURS, len(order) - 1) + 1):
        apart = np.abs(shares[order[step:]] - shares[order[:-step]])
        if not np.any(apart[:, 0] <= widest):
            return
        for place in np.flatnonzero(apart.max(axis=1) <= widest):
            one, other = sorted((varied[order[place]], varied[order[place + step]]))
            first, second = group.blocks[one], group.blocks[other]
            if _is_other(first, second) and _is_multiple(group.times[one], group.times[other]):
                raise EvidenceError(
                    f"journal.jsonl: block {second.index} of launch {second.launch} has the times "
                    f"of block {first.index} of launch {first.launch} times a factor"
                )


def _num_different(times: Times) -> int:
    """How many steps differ by microseconds."""
    return len(np.unique(times // COARSE_NS))


def _is_multiple(one: Times, other: Times) -> bool:
    number = min(len(one), len(other))
    factor = float(other[:number].sum()) / float(one[:number].sum())
    apart = np.abs(other[:number] - factor * one[:number])
    return bool(np.all(apart <= ROUNDED_NS * max(1.0, factor)))


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
    if number < FEWEST or not _is_unlikely(agreeing, number, LEAST_SHARE):
        return False
    by_chance = max(LEAST_SHARE, 2.0 * _shifted_share(one, other))
    return by_chance < 1.0 and _is_unlikely(agreeing, number, by_chance)


def _is_unlikely(agreeing: int, number: int, by_chance: float) -> bool:
    return float(bdtrc(agreeing - 1, number, by_chance)) < MOST_LIKELY


def _shifted_share(one: Times, other: Times) -> float:
    """The largest share of samples that agree when one is shifted against the other, or itself."""
    pairs = ((one, other), (other, one), (one, one), (other, other))
    return _largest_share(np.stack([_agreeing_by_shift(*pair) for pair in pairs]))


def repeats_itself(times: Times) -> bool:
    """Whether its steps agree so much with later ones that no block can be called a copy of it."""
    return 2.0 * _largest_share(_agreeing_by_shift(times, times)[np.newaxis]) >= 1.0


def _largest_share(counts: NDArray[np.int64]) -> float:
    """Of agreements by overlap and shift, as `_agreeing_by_shift` has them for each overlap."""
    overlaps, number = counts.shape
    shifts = np.arange(1, number - FEWEST_OVERLAPPING + 1)
    counts, left = counts[:, shifts], number - shifts
    by_chance = bdtrc(counts.sum(axis=0) - 1, overlaps * left, LEAST_SHARE)
    counts_there = (shifts <= SHORT_SHIFTS) | (by_chance < PATTERN / len(shifts))
    return float(np.max(np.where(counts_there, counts.max(axis=0) / left, 0.0)))


def _agreeing_by_shift(first: Times, second: Times) -> NDArray[np.int64]:
    """By shift, as many samples of the first as agree with one that is earlier in the second."""
    rows, columns = np.nonzero(np.abs(first[:, np.newaxis] - second) <= CLOSE_NS)
    later = rows - columns
    return np.bincount(later[later >= 0], minlength=len(first))


def _agreeing(one: Times, other: Times) -> int:
    return int(np.count_nonzero(np.abs(one - other) <= CLOSE_NS))
