"""What a run observes beside its launches, held together: clocks of its lines, counters, samples.

A journal has two clocks and says when it was planned; a device whose counters are read is read
before and after each of its launches; and no two blocks of steps take the same times to the
nanosecond. Whoever moves times, leaves readings out or puts a fast block in the place of a slow one
has to keep all of that. Limits are wide: a node's clock may be set right while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from appliance.errors import EvidenceError
from appliance.plausibility.near_copies import check_near_copies
from appliance.records.journal import (
    Block,
    Counted,
    Event,
    LaunchEnded,
    LaunchStarted,
    Line,
    RunResumed,
    SessionBegan,
)
from appliance.records.plan import Plan
from appliance.records.system import System

SET_BACK = timedelta(days=1)
"""More than any clock is set back in a run: a wrong zone is put right by less."""
LONGEST_WAIT = timedelta(days=366)
"""Between a plan, its run's name and its begin: a challenge may wait so long for its receipt."""
LONG_NS = 50_000_000
"""Between two lines, from which on clocks are held together; UTC is written to a millisecond."""
FEWEST_LONG = 8
"""Stretches so long in a journal from which on more than half of them show something."""
SLOWEST, FASTEST = 0.5, 2.0
"""How much one clock may pass while another passes 1: they are steered by thousandths at most."""
FEWEST_SAMPLES = 3  # different ones, below which two blocks may be alike by chance
COARSE_NS = 1000  # a clock that gives no less repeats itself
UNFINISHED = {"interrupted", "not_run", "unsupported", "software"}


def check_observations(plan: Plan, lines: Sequence[Line]) -> None:
    """EvidenceError for clocks, counters or samples that no run gives."""
    _check_clock(plan, lines)
    _check_rates(lines)
    _check_counted(plan, lines)
    _check_copies(lines)
    check_near_copies(plan, lines)


def _check_clock(plan: Plan, lines: Sequence[Line]) -> None:
    planned, named = moment_of(plan.created_utc), moment_of(plan.run_id.partition("-")[0])
    if abs(named - planned) > LONGEST_WAIT:
        raise EvidenceError(
            f"plan.json: its run is called {plan.run_id} and was planned {plan.created_utc}"
        )
    last = moment_of(lines[0].utc)
    if abs(last - planned) > LONGEST_WAIT:
        raise EvidenceError(
            f"journal.jsonl begins {lines[0].utc}, and was planned {plan.created_utc}"
        )
    for number, line in enumerate(lines, 1):
        moment = moment_of(line.utc)
        if moment < last - SET_BACK:
            raise EvidenceError(
                f"journal.jsonl line {number}: {line.utc} is more than a day before the line "
                "before it"
            )
        last = moment


def check_probed(plan: Plan, system: System) -> None:
    """EvidenceError for a machine that was described years before or after it was planned for."""
    probed = system.conditions.utc
    if abs(moment_of(probed) - moment_of(plan.created_utc)) > LONGEST_WAIT:
        raise EvidenceError(
            f"system.json is of {probed}, and plan.json was made {plan.created_utc} for it"
        )


def _check_rates(lines: Sequence[Line]) -> None:
    """EvidenceError where time of day does not pass as the other clock does.

    A clock is set now and then, and a machine sleeps: so most stretches must be wrong, by half.
    """
    wrong = number = 0
    for before, line in pairwise(lines):
        passed = line.monotonic_ns - before.monotonic_ns
        if passed < LONG_NS or isinstance(line.event, RunResumed | SessionBegan):
            continue
        by_day = (moment_of(line.utc) - moment_of(before.utc)).total_seconds()
        number += 1
        wrong += not SLOWEST <= by_day * 1e9 / passed <= FASTEST
    if number >= FEWEST_LONG and 2 * wrong > number:
        raise EvidenceError(
            f"journal.jsonl: in {wrong} of {number} stretches between two lines its times in UTC "
            "do not pass as its other clock does"
        )


def moment_of(text: str) -> datetime:
    """The moment that a record names; EvidenceError unless it is one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise EvidenceError(f"plan.json: {text!r} is no time in UTC") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def check_begun(begin: Line, moment: datetime) -> None:
    """EvidenceError for a run that begins after the moment at which it is verified."""
    if datetime.fromisoformat(begin.utc) > moment + SET_BACK:
        here = moment.isoformat(timespec="seconds").replace("+00:00", "Z")
        raise EvidenceError(
            f"journal.jsonl begins {begin.utc}, and here it is {here}: set the clock that is wrong"
        )


def _check_counted(plan: Plan, lines: Sequence[Line]) -> None:
    """EvidenceError for a device that is counted, and not beside each launch on it."""
    events = [line.event for line in lines]
    devices = {one.device for one in events if isinstance(one, Counted) and not one.launch}
    cases = {case.id: case for case in plan.cases}
    walk = _Counts(
        {
            launch.id: devices.intersection(cases[launch.case].all_devices)
            for launch in plan.launches
        }
    )
    for event in events:
        walk.take(event)
    walk.require_none("after")
    at_end = {one.device for one in events if isinstance(one, Counted) and _is_last(one)}
    for device in sorted(devices - at_end):
        raise EvidenceError(f"journal.jsonl: the counters of {device} were not read at the end")


def _is_last(event: Counted) -> bool:
    return not event.launch and event.moment == "after"


class _Counts:
    """Which devices of which launches are still to be counted; `devices` has them by launch."""

    def __init__(self, devices: Mapping[str, set[str]]) -> None:
        self._devices = devices
        self._before: dict[str, set[str]] = {}
        self._due: dict[str, set[str]] = {}

    def take(self, event: Event) -> None:
        if isinstance(event, Counted) and event.launch:
            self._before.setdefault(event.launch, set()).add(event.device)
            self._due.get(event.launch, set()).discard(event.device)
        elif isinstance(event, LaunchStarted):
            self._due[event.launch] = self._devices[event.launch] - self._before.pop(
                event.launch, set()
            )
            self.require_none("before", event.launch)
        elif isinstance(event, LaunchEnded) and event.outcome not in UNFINISHED:
            self._due[event.launch] = set(self._devices[event.launch])
        elif isinstance(event, RunResumed):
            self._due.clear()  # whoever was to count them has ended

    def require_none(self, moment: str, launch: str = "") -> None:
        """EvidenceError if a device is to be counted still."""
        for name in [launch] if launch else [*self._due]:
            for device in sorted(self._due[name]):
                raise EvidenceError(
                    f"journal.jsonl: the counters of {device} were not read {moment} launch {name}"
                )


def _check_copies(lines: Sequence[Line]) -> None:
    """EvidenceError for two blocks whose times are the same in every digit.

    Where the host's two clocks are one in all blocks, its times may be as coarse as that one is.
    """
    blocks = [line.event for line in lines if isinstance(line.event, Block)]
    if all(one.block_wall_ns == one.block_raw_ns for one in blocks):
        return
    seen: dict[int, Block] = {}
    for event in filter(_is_fine, blocks):
        other = seen.setdefault(hash(_times(event)), event)
        if other is not event and _times(other) == _times(event):
            raise EvidenceError(
                f"journal.jsonl: block {event.index} of launch {event.launch} has the times of "
                f"block {other.index} of launch {other.launch}, to the nanosecond"
            )


def _times(block: Block) -> tuple[object, ...]:
    return tuple(block.wall_ns), block.block_wall_ns, block.block_raw_ns


def _is_fine(block: Block) -> bool:
    """Whether its clocks are fine enough, and its steps different enough, to be like no other's."""
    is_coarse = all(value % COARSE_NS == 0 for value in block.wall_ns)
    is_varied = len(set(block.wall_ns[:FEWEST_SAMPLES])) == FEWEST_SAMPLES
    return is_varied and not is_coarse
