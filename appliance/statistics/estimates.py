"""Samples to estimates: pure functions of what the journal holds.

The independent unit is the launch, not the iteration: within-launch spread understates the
spread between launches up to twentyfold, so an interval over iterations would promise what it
cannot keep. A block's statistic is the median of ln(step time), which a few stalls do not
move; a launch's is the mean of its block medians; an estimate is a mean over launches with
Student's t interval, given for five launches or more. No sample is ever dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from appliance.records.journal import Block
from appliance.records.verdict import Clock, Estimate
from appliance.records.workload import Work

CONFIDENCE = 0.95
LEAST_LAUNCHES = 5
STALL = 1.25  # of the block's median: a step that took longer has stalled
CLOCK_SLACK = 1.005  # steps may exceed the block that holds them by the error of the clocks only
CLOCK_LIE = 0.02  # two clocks over one span; less may be a moment without a processor
UNACCOUNTED_PART, UNACCOUNTED_SECONDS = 0.5, 0.1
"""A block may hold so much of its time, and so many seconds, in none of its steps: an output of
gigabytes is freed there."""
LOST_PART, LOST_SECONDS = 0.05, 0.001
"""The device may say so much less of a step than the host, or so many seconds: what it takes to
begin a step on it and to hear of its end."""
UNACCOUNTED = "has more of its time in none of its steps than in them"
LOST = "has steps that the device's clock makes shorter than its host's does"
MOST_TOGETHER = 2**17  # steps whose times are computed with at once
UNSCHEDULED_SECONDS = 0.05  # a process may stand so long between two readings of its clocks
METHOD = "geometric mean over launches, Student's t on ln(step time)"


def planned_analyses(interim_analyses: Sequence[int], launches: int) -> tuple[int, ...]:
    """Launch counts at which a case of so many launches is judged; the last is all of them."""
    return (*(count for count in interim_analyses if count < launches), launches)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFigures:
    """What is computed of one block, at once with all others of its length.

    `log_seconds` is the median of ln(seconds) of its steps, by device time where there is one;
    NaN when it has no step, a time that is not positive, or not one device time for each step: a
    fault, never a zero. `median_wall` is the same by the host's clock, and `wall_log_seconds`
    ln of the block's wall time over its steps. `times_ns` are the samples by device time where
    there is one, `walls_ns` by the host's clock, both as the block has them. `accounted` is the sum
    of the smaller of both in seconds: of the steps whose times stand in full, where `num_steps`
    counts all. `num_stalls` and `num_wall_stalls` count those above STALL times their median.
    `held` is the block by the clock of the samples, `clock_ratio` that over the other clock of the
    host (NaN where that one stood). `is_plausible` says that no two of its times contradict each
    other by more than clocks may, `doubt` what is odd about them all the same, if anything, and
    `is_lost` that its device's clock makes the steps far shorter than its host's does.
    """

    log_seconds: float
    median_wall: float
    wall_log_seconds: float
    num_steps: int
    num_stalls: int
    num_wall_stalls: int
    times_ns: Sequence[int] = field(repr=False, compare=False)
    walls_ns: Sequence[int] = field(repr=False, compare=False)
    accounted: float
    held: float
    clock_ratio: float
    is_plausible: bool
    doubt: str = ""
    is_lost: bool = False

    def location(self, clock: Clock) -> float:
        """ln(seconds) of a step by this clock."""
        return self.log_seconds if clock == "steps" else self.wall_log_seconds

    def samples(self, clock: Clock) -> NDArray[np.float64]:
        """Seconds of each step; by the wall what the host's clock says of it."""
        return _seconds(self.times_ns if clock == "steps" else self.walls_ns)

    def stalls(self, clock: Clock) -> int:
        return self.num_stalls if clock == "steps" else self.num_wall_stalls


def block_figures(blocks: Sequence[Block]) -> list[BlockFigures]:
    """Figures of blocks, in their order; blocks of the same length are computed together.

    Long ones a few at a time, so that what is computed on the way takes little memory.
    """
    groups: dict[tuple[int, bool], list[int]] = {}
    for index, block in enumerate(blocks):
        has_events = block.event_ns is not None and len(block.event_ns) == len(block.wall_ns)
        groups.setdefault((len(block.wall_ns), has_events), []).append(index)
    figures: dict[int, BlockFigures] = {}
    for (length, has_events), indices in groups.items():
        for few in _batches(indices, max(1, MOST_TOGETHER // max(1, length))):
            members = [blocks[index] for index in few]
            figures |= zip(few, _figures(members, length, has_events=has_events), strict=True)
    return [figures[index] for index in range(len(blocks))]


def _batches(values: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """The values in their order, so many at a time."""
    return (values[begin : begin + size] for begin in range(0, len(values), size))


def _seconds(times_ns: Sequence[int] | Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Nanoseconds of steps, of one block or of several of the same length, as seconds."""
    return np.array(times_ns, dtype=np.float64) * 1e-9


def _figures(blocks: Sequence[Block], length: int, *, has_events: bool) -> Iterator[BlockFigures]:
    held = _seconds([block.block_wall_ns for block in blocks])
    raw = _seconds([block.block_raw_ns for block in blocks])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(raw > 0, held / raw, np.nan)
    walls = _seconds([block.wall_ns for block in blocks])
    if length == 0:
        walls = walls.reshape(len(blocks), 0)
    events = _seconds([block.event_ns or () for block in blocks]) if has_events else None
    times = walls if events is None else events
    shortest = np.minimum(walls.min(axis=1, initial=np.inf), times.min(axis=1, initial=np.inf))
    sound = (shortest > 0) & (length > 0)
    medians, median_walls = _medians(times, sound), _medians(walls, sound)
    num_steps = np.array([block.num_steps for block in blocks])
    wall_logs = np.where(
        held > 0, np.log(np.maximum(held, 1e-300) / np.maximum(1, num_steps)), np.nan
    )
    stalls, wall_stalls = _num_stalls(times, medians), _num_stalls(walls, median_walls)
    accounted = np.minimum(walls, times).sum(axis=1)
    whole_walls, whole_times = _whole(blocks, walls, times)
    longest = np.maximum(whole_walls, whole_times)
    plausible = (
        (shortest > 0)
        & (longest <= held * CLOCK_SLACK)
        & (np.abs(held - raw) <= np.maximum(CLOCK_LIE * raw, UNSCHEDULED_SECONDS))
    )
    unaccounted = held - whole_walls
    is_odd = unaccounted > UNACCOUNTED_PART * held + UNACCOUNTED_SECONDS
    is_lost = _are_lost(walls, events)
    for row, block in enumerate(blocks):
        is_whole = has_events or block.event_ns is None
        yield BlockFigures(
            log_seconds=float(medians[row]) if is_whole else math.nan,
            median_wall=float(median_walls[row]),
            wall_log_seconds=float(wall_logs[row]) if is_whole and length else math.nan,
            num_steps=int(num_steps[row]),
            num_stalls=int(stalls[row]),
            num_wall_stalls=int(wall_stalls[row]),
            times_ns=block.event_ns if has_events and block.event_ns else block.wall_ns,
            walls_ns=block.wall_ns,
            accounted=float(accounted[row]),
            held=float(held[row]),
            clock_ratio=float(ratios[row]),
            is_plausible=bool(plausible[row]) and is_whole and has_plausible_loads(block),
            doubt=UNACCOUNTED if is_odd[row] else "",
            is_lost=bool(is_lost[row]),
        )


def _whole(
    blocks: Sequence[Block], walls: NDArray[np.float64], times: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Seconds of all steps of each block by both clocks, those that are folded among them."""
    folded = [[one.wall_ns[2] for one in block.folded] for block in blocks]
    events = [[(one.event_ns or one.wall_ns)[2] for one in block.folded] for block in blocks]
    return (
        walls.sum(axis=1) + np.array([sum(one) for one in folded], dtype=np.float64) * 1e-9,
        times.sum(axis=1) + np.array([sum(one) for one in events], dtype=np.float64) * 1e-9,
    )


def _medians(times: NDArray[np.float64], sound: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Medians of ln(seconds) of the steps of each block (blocks, steps); NaN of one not sound."""
    medians = np.full(len(times), np.nan)
    if sound.any():
        medians[sound] = np.median(np.log(times[sound]), axis=1)
    return medians


def _num_stalls(times: NDArray[np.float64], medians: NDArray[np.float64]) -> NDArray[np.int64]:
    """Steps of each block that took longer than STALL times its median."""
    with np.errstate(invalid="ignore"):
        is_stall = times > STALL * np.exp(medians)[:, None]
    number: NDArray[np.int64] = is_stall.sum(axis=1)
    return number


def _are_lost(walls: NDArray[np.float64], events: NDArray[np.float64] | None) -> NDArray[np.bool_]:
    """Of each block (blocks, steps) whether its device's clock lacks far more than timing costs."""
    if events is None or not walls.shape[1]:
        return np.zeros(len(walls), dtype=np.bool_)
    lost = np.median(walls - events, axis=1)
    is_lost: NDArray[np.bool_] = lost > np.maximum(
        LOST_SECONDS, LOST_PART * np.median(walls, axis=1)
    )
    return is_lost


def has_plausible_loads(block: Block) -> bool:
    """Whether each step has a time of loading that lies inside of it, if steps load at all."""
    loads = block.load_ns
    if loads is None:
        return True
    return len(loads) == len(block.wall_ns) and all(
        0 <= load <= step for load, step in zip(loads, block.wall_ns, strict=True)
    )


def launch_statistic(figures: Sequence[BlockFigures], clock: Clock = "steps") -> float | None:
    """Mean over blocks of ln(seconds) of a step; None for a launch without blocks."""
    return sum(block.location(clock) for block in figures) / len(figures) if figures else None


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Two-sided t interval of the mean; None below five values or if one is not finite."""
    if not _are_enough(values):
        return None
    mean, half = (
        float(np.mean(values)),
        _standard_error(values) * float(stdtrit(len(values) - 1, 0.5 + confidence / 2)),
    )
    return mean - half, mean + half


def _are_enough(values: Sequence[float]) -> bool:
    return len(values) >= LEAST_LAUNCHES and all(math.isfinite(value) for value in values)


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def timing_estimates(
    launches: Sequence[float], first_steps: Sequence[float], work: Work
) -> tuple[Estimate, ...]:
    """Step time and the rates that follow from it, and the time to the first step.

    `launches` are launch statistics (ln seconds), `first_steps` seconds.
    """
    estimates = []
    if launches and all(math.isfinite(value) for value in launches):
        mean, bounds = float(np.mean(launches)), interval(launches)
        ends = [None, None] if bounds is None else [math.exp(end) for end in bounds]
        estimates.append(
            _estimate("step_seconds", math.exp(mean), "s", (ends[0], ends[1]), launches)
        )
        for name, amount, unit in (
            ("units_per_second", work.units, f"{work.unit}/s"),
            ("flops_per_second", work.flops, "FLOP/s"),
            ("bytes_per_second", work.bytes, "B/s"),
        ):
            if amount is not None and math.isfinite(amount) and amount > 0:
                low, high = (None if end is None else amount / end for end in reversed(ends))
                rate = amount / math.exp(mean)
                estimates.append(_estimate(name, rate, unit, (low, high), launches))
    if first_steps:
        estimates.append(
            Estimate(
                name="first_step_seconds",
                value=float(np.median(first_steps)),
                unit="s",
                low=min(first_steps),
                high=max(first_steps),
                confidence=None,
                method="median, smallest and largest over launches; kept apart from steady state",
                count=len(first_steps),
            )
        )
    return tuple(estimates)


def _estimate(
    name: str,
    value: float,
    unit: str,
    ends: tuple[float | None, float | None],
    launches: Sequence[float],
) -> Estimate:
    return Estimate(
        name=name,
        value=value,
        unit=unit,
        low=ends[0],
        high=ends[1],
        confidence=None if ends[0] is None else CONFIDENCE,
        method=METHOD if ends[0] is not None else "geometric mean; too few launches for bounds",
        count=len(launches),
    )
