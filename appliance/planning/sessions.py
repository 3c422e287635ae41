"""Sessions: the parts of a run that processes, fork servers and counters begin anew for.

A device has a level of its own in every run: where memory lies, what the node's other parts do
that day. Launches of one session share it, so they cannot show how far it varies. Each session but
the last makes as many timed launches of a case as the first interim analysis wants. Times are
judged in the last session only, at the launches of all sessions together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from appliance.records.journal import (
    AttemptBegun,
    Line,
    RunEnded,
    RunResumed,
    RunStarted,
    SessionBegan,
    SessionEnded,
)
from appliance.records.plan import Case, Launch, Plan
from appliance.statistics.estimates import planned_analyses

TIME_LIMIT = "time_limit"
"""Reason of a launch that is not begun, because its session has run as long as it may."""
NO_TIME = "no_time"
"""Reason of a launch for which the minutes of the run leave no time, after all that are assured."""
CLOCK_SLACK_SECONDS = 60.0
"""What a time service may set a clock back by between two sessions."""


def launches_of_session(interim_analyses: Sequence[int], launches: int, sessions: int) -> int:
    """Timed launches in each session but the last, of a case that has so many in all."""
    return min(interim_analyses[0], launches // sessions)


def num_in_all(interim_analyses: Sequence[int], most: int, sessions: int) -> int:
    """Timed launches in all sessions, of a case that makes `most` of them in the last."""
    return (sessions - 1) * min(interim_analyses[0], most) + most


def judged_analyses(
    interim_analyses: Sequence[int], launches: int, sessions: int
) -> tuple[int, ...]:
    """Launch counts at which times are judged: all of them in the last session.

    `launches` are those of a case in all sessions, and the counts are of all sessions too.
    """
    before = (sessions - 1) * launches_of_session(interim_analyses, launches, sessions)
    return tuple(before + count for count in planned_analyses(interim_analyses, launches - before))


def earlier_launches(
    interim_analyses: Sequence[int], launches: int, sessions: int
) -> tuple[int, ...]:
    """Timed launches of a case in each session before the last."""
    return (launches_of_session(interim_analyses, launches, sessions),) * (sessions - 1)


def session_ends(interim_analyses: Sequence[int], launches: int, sessions: int) -> tuple[int, ...]:
    """Launch counts at the ends of all sessions but the last, where no time is judged."""
    each = launches_of_session(interim_analyses, launches, sessions)
    return tuple(each * session for session in range(1, sessions))


def session_of(number: int, each: int, sessions: int, repeats: int) -> int:
    """Session of a case's launch by its number, where each but the last makes `each` timed ones.

    The repeats -1 to -`repeats` are spread over the sessions in their order.
    """
    if number == 0:
        return 1
    if number < 0:
        return 1 + (-number - 1) * sessions // repeats
    return min(sessions, 1 + (number - 1) // each)


def seconds_of_run(plan: Plan) -> float:
    """Expected length of a run with its pauses; of those that no plan fixes nothing is known."""
    return plan.expected_seconds + (plan.sessions - 1) * (plan.pause_seconds or 0.0)


def wave_of(case: Case, number: int, interim_analyses: Sequence[int], num_waiting: int) -> int:
    """The wave of a case's launch by its number; `num_waiting` rows wait for time that is left.

    Each of those has a wave of its own, in their order. After them come the next interim analyses
    of all cases, the launches up to the first one of each in the first wave, and so on.
    """
    if number <= case.num_assured:
        return case.waits
    counts = planned_analyses(interim_analyses, case.launches)
    later = [count for count in counts if count > case.num_assured]
    return num_waiting + 1 + sum(count < number for count in later)


def rounds(launches: Iterable[Launch]) -> Mapping[str, tuple[int, int, int]]:
    """By launch its session, its wave, and its round in that.

    Rounds are 0, then the first repeat, launch 1 and so on, where numbers are counted from the
    begin of the session and of the wave, in which cases may differ.
    """
    counts: dict[tuple[str, int, int, bool], int] = {}
    places: dict[str, tuple[int, int, int]] = {}
    for launch in sorted(launches, key=lambda one: abs(one.number)):
        place = 0
        if launch.number:
            key = (launch.case, launch.session, launch.wave, launch.is_repeat)
            counts[key] = counts.get(key, 0) + 1
            place = 2 * counts[key] - launch.is_repeat
        places[launch.id] = (launch.session, launch.wave, place)
    return places


# ------------------------------------------------------------------ one session after another


def current(lines: Iterable[Line]) -> int:
    """The session that a run is in, or comes to next in a pause."""
    return 1 + sum(isinstance(line.event, SessionEnded) for line in lines)


def is_paused(lines: Sequence[Line]) -> bool:
    """Whether a run is between two sessions."""
    return bool(lines) and isinstance(lines[-1].event, SessionEnded)


def has_ended(lines: Iterable[Line]) -> bool:
    """Whether the last session has ended."""
    return any(isinstance(line.event, RunEnded) for line in lines)


class SessionClock:
    """How long a session has run by its journal, line by line.

    It counts from the begin of the session to the last line, without the time between a process
    that was cut short, or that waited for a receipt, and the one that goes on. Parent and
    verifier read the same lines, so both come to the same answer.
    """

    def __init__(self, plan: Plan) -> None:
        self._most_ns = plan.time_limit_seconds * 1e9 if plan.is_time_limited else math.inf
        self._ran_ns = 0
        self._last_ns: int | None = None

    def take(self, line: Line) -> None:
        """Note one more line."""
        if isinstance(line.event, RunStarted | SessionBegan):
            self._ran_ns = 0
        elif not (self._last_ns is None or isinstance(line.event, RunResumed | AttemptBegun)):
            self._ran_ns += line.monotonic_ns - self._last_ns
        self._last_ns = line.monotonic_ns

    @property
    def seconds(self) -> float:
        return self._ran_ns * 1e-9

    @property
    def is_over(self) -> bool:
        """Whether the session has run as long as the suite allows: nothing more is begun."""
        return self._ran_ns >= self._most_ns


def seconds_between(
    ended: SessionEnded, ended_utc: str, began: SessionBegan, began_utc: str
) -> float:
    """Length of a pause: by the clock that nobody can set, unless the node was booted in it."""
    if ended.boot and ended.boot == began.boot:
        return (began.since_boot_ns - ended.since_boot_ns) * 1e-9
    return _utc_seconds(ended_utc, began_utc)


def set_back(ended: SessionEnded, ended_utc: str, began: SessionBegan, began_utc: str) -> float:
    """Seconds by which the clock (UTC) was set back between two sessions; 0 where it was not.

    A session that begins before the other's end is later only by a clock that was set back. More
    shows beside the time since the boot: the same boot's must have gone on by as much, and
    another boot cannot be older than the pause. Less than a minute is a time service's work.
    """
    by_utc = _utc_seconds(ended_utc, began_utc)
    if by_utc < 0:
        return -by_utc
    is_same = bool(ended.boot) and ended.boot == began.boot
    since = began.since_boot_ns - (ended.since_boot_ns if is_same else 0)
    lost = since * 1e-9 - by_utc if began.boot else -math.inf
    return lost if lost > CLOCK_SLACK_SECONDS else 0.0


def refusal(
    ended: SessionEnded,
    ended_utc: str,
    began: SessionBegan,
    began_utc: str,
    pause_seconds: float | None,
) -> str:
    """Why a session cannot have begun at this moment, after that end; or nothing."""
    lost = set_back(ended, ended_utc, began, began_utc)
    if lost:
        return (
            f"the clock was set back by {lost:.0f} s between sessions {ended.session} and "
            f"{began.session}"
        )
    is_same = bool(ended.boot) and ended.boot == began.boot
    if is_same and began.since_boot_ns < ended.since_boot_ns:
        return f"session {began.session} begins before session {ended.session} has ended"
    pause = seconds_between(ended, ended_utc, began, began_utc)
    if pause_seconds is not None and pause < pause_seconds:
        return (
            f"session {began.session} begins {pause:.0f} s after the end of session "
            f"{ended.session}, and the plan has {pause_seconds:.0f} s between them"
        )
    return ""


def _utc_seconds(first: str, second: str) -> float:
    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()
