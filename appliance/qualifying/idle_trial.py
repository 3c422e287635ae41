"""What was timed of steps alone and beside a process that waits, and what it says.

Pure: from the file of a trial, which has the time of each step, to the record that is written down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal

from appliance.evidence.disturbance import DISTURBED_SHARE, others_on_host
from appliance.records.json import Number, Record
from appliance.records.qualified import IdleNeighbour, IdlePair
from appliance.records.vocabulary import HARMFUL_THROTTLES
from appliance.scheduling.idle_neighbours import is_harmless, ratios, rulings
from appliance.scheduling.launch_kinds import ratio_words

SLOWED_SHARE = 0.9
"""Of the median of all clocks that were read under the same step: less is another clock."""
CLOCK = "graphics_clock_hertz"
TIMED_BESIDE = "launches may be timed while the next one's process waits"
TIMED_ALONE = "no launch is timed while the next one's process waits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Half(Record):
    """The blocks of one half of a pair, one after another: alone on the device, or beside.

    `step_seconds` are those of each step by its kind. `users` are the processes that the driver
    listed on the device before the blocks, ours among them, None where it lists none; `values` what
    the device read under the first kind of step, None where nothing; `foreign_processors` what
    others used of the host meanwhile.
    """

    pair: int
    is_beside: bool
    step_seconds: Mapping[str, tuple[Number, ...]]
    users: int | None
    values: Mapping[str, Number | None]
    foreign_processors: Number | None

    @property
    def num_ours(self) -> int:
        """The timer, and its neighbour where there is one."""
        return 2 if self.is_beside else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTrial(Record):
    """idle/MODEL.json: one measurement on a device, its halves in the order in which they were.

    `users_before` and `use_before` are the processes on the device, and how much it was used,
    before anything of ours was there. `processors` are those of the host, None where unknown.
    """

    schema: Literal["bench/idle-trial/1"] = "bench/idle-trial/1"
    model: str
    stack: Mapping[str, str]
    device: str
    users_before: int | None
    use_before: Number | None
    processors: Number | None
    halves: tuple[Half, ...]
    recorded_utc: str
    bench_version: str


def record(trial: IdleTrial, digest: str) -> IdleNeighbour:
    """The record of a trial whose file has this digest."""
    return IdleNeighbour(
        model=trial.model,
        stack=trial.stack,
        device=trial.device,
        pairs=_pairs(trial),
        disturbed=disturbed(trial),
        source=f"qualify-idle, trial {digest}",
        recorded_utc=trial.recorded_utc,
        bench_version=trial.bench_version,
    )


def _pairs(trial: IdleTrial) -> Mapping[str, tuple[IdlePair, ...]]:
    """Medians of the steps of both blocks, of each pair of which both halves were made."""
    alone = {half.pair: half.step_seconds for half in trial.halves if not half.is_beside}
    beside = {half.pair: half.step_seconds for half in trial.halves if half.is_beside}
    kinds = dict.fromkeys(kind for half in trial.halves for kind in half.step_seconds)
    return {
        kind: tuple(
            IdlePair(alone=median(alone[pair][kind]), beside=median(beside[pair][kind]))
            for pair in sorted(alone.keys() & beside.keys())
        )
        for kind in kinds
    }


# ------------------------------------------------------------------ whether it was undisturbed


def disturbed(trial: IdleTrial) -> str:
    """Why its steps are not those of a quiet machine, as a clause; empty where they are."""
    return next((clause for clause in _clauses(trial) if clause), "")


def _clauses(trial: IdleTrial) -> Iterator[str]:
    yield _other_users(trial)
    yield _others_on_host(trial)
    yield _harmful_throttle(trial)
    yield _other_clock(trial)


def _other_users(trial: IdleTrial) -> str:
    """Who else had the device: beside somebody who waits no half is alone, whatever he does."""
    if trial.users_before:
        return f"{_processes(trial.users_before)} had the device before"
    if trial.use_before is not None and trial.use_before >= DISTURBED_SHARE:
        return f"another process used the device before ({100 * trial.use_before:.0f} %)"
    others = [half.users - half.num_ours for half in trial.halves if half.users is not None]
    if max(others, default=0) > 0:
        return f"{_processes(max(others))} had the device meanwhile"
    return ""


def _processes(count: int) -> str:
    return "another process" if count == 1 else f"{count} other processes"


def _others_on_host(trial: IdleTrial) -> str:
    if not trial.processors:
        return ""
    return others_on_host(
        [
            (half.foreign_processors / trial.processors, 1)
            for half in trial.halves
            if half.foreign_processors is not None
        ]
    )


def _harmful_throttle(trial: IdleTrial) -> str:
    for reason in HARMFUL_THROTTLES:
        num = sum(bool(half.values.get(f"throttled_{reason}")) for half in trial.halves)
        if num:
            return f"the device was throttled ({reason}) in {num} of {len(trial.halves)} readings"
    return ""


def _other_clock(trial: IdleTrial) -> str:
    clocks = [clock for half in trial.halves if (clock := half.values.get(CLOCK)) is not None]
    if not clocks or min(clocks) >= SLOWED_SHARE * median(clocks):
        return ""
    low, usual = (1e-6 * value for value in (min(clocks), median(clocks)))
    return f"the device's clock fell to {low:.0f} MHz under a step at which it had {usual:.0f} MHz"


# ------------------------------------------------------------------ in words


def verdict(record: IdleNeighbour) -> str:
    """What follows from this record alone, as a clause."""
    if record.disturbed:
        return f"nothing is ruled ({record.disturbed}); {TIMED_ALONE}"
    return TIMED_BESIDE if is_harmless(record.model, [record]) else TIMED_ALONE


def words(record: IdleNeighbour) -> tuple[str, ...]:
    """A line of each kind of step, and one of what follows."""
    found = ratios(record)
    lines = [
        f"  {kind}: beside over alone {ratio_words(ratio)}, {ruled or 'too few pairs'}"
        for kind, ruled in rulings(record).items()
        if (ratio := found[kind]) is not None
    ]
    head = f"steps beside a process that waits, {record.model}:"
    return (head, *lines, f"  {verdict(record)}")
