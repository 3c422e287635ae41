"""What a person sees while a run goes on.

On a terminal a line that moves; elsewhere one plain line for each launch. No median is shown
before an interim analysis, because whoever watches a number is tempted to stop when it pleases him.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from appliance.cli.console import console
from appliance.evidence.software_fault import UNAVAILABLE
from appliance.planning.remaining_time import RemainingTime
from appliance.planning.sessions import NO_TIME
from appliance.records.journal import InterimAnalysis, LaunchEnded, ServerProbed
from appliance.records.plan import Launch, Plan
from appliance.records.suite import LaunchMode
from appliance.scheduling.suite_times import amount
from appliance.scheduling.words import table
from appliance.verbs.run_options import QUICK_MINUTES, QUICK_SUITE, SMALL_SUITE

if TYPE_CHECKING:
    from appliance.runner.execution import Observer
    from appliance.scheduling.left_time import Given

REFERENCE_FAILED = "reference_failed"
"""Why launches are not made whose case failed in its untimed launch."""
NONE_OTHER = "; no other launch of this case is made"
AGAIN_OR_NEVER = frozenset({"completed", "not_run", "unsupported", "interrupted"})
"""Outcomes of an untimed launch that end no case: an interrupted one is made once more."""
SAID_BEFORE = frozenset({"decided", NO_TIME})
"""Reasons of launches that are not made, which an interim analysis or the time left has said."""
TOO_FEW = "too few for what waits next"
WIDE = 100
"""Columns of a terminal, from which on the moving line has a bar and says how a launch is made."""
MINUTE = 60
HOUR = 3600


class Silent:
    """An observer that says nothing."""

    def suite_chosen(self, plan: Plan) -> None: ...
    def preflight_warnings(self, sentences: Sequence[str]) -> None: ...
    def run_begins(self, plan: Plan, num_done: int, session: int) -> None: ...
    def session_ended(self, plan: Plan, session: int) -> None: ...
    def server_probed(self, event: ServerProbed) -> None: ...
    def launch_started(self, launch: Launch, mode: LaunchMode) -> None: ...
    def launch_ended(self, launch: Launch, event: LaunchEnded) -> None: ...
    def analysed(self, event: InterimAnalysis) -> None: ...
    def time_given(self, given: Given) -> None: ...


class Lines(Silent):
    """One line for each launch that ended and each interim analysis: for logs and pipes."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._begin = 0.0
        self._num_done = 0
        self._num = 0
        self._remaining: RemainingTime | None = None
        self._session = ""
        self._reasons: set[str] = set()

    def suite_chosen(self, plan: Plan) -> None:
        self._out.print(default_sentence(plan), markup=False)

    def preflight_warnings(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            self._out.print(sentence, markup=False)

    def run_begins(self, plan: Plan, num_done: int, session: int) -> None:
        self._num, self._num_done = len(plan.launches), num_done
        self._remaining = RemainingTime(plan, num_done, session)
        self._begin = time.monotonic()
        self._session = session_words(plan, session)
        self._out.print(begin_sentence(plan, num_done, session))
        for line in table(plan) if not num_done else ():
            self._out.print(line, markup=False, soft_wrap=True)

    def session_ended(self, plan: Plan, session: int) -> None:
        self._out.print(pause_sentence(plan, session))

    def server_probed(self, event: ServerProbed) -> None:
        if not event.is_healthy:
            self._out.print(server_sentence(event), markup=False)

    def launch_ended(self, launch: Launch, event: LaunchEnded) -> None:
        self._num_done += 1
        left = _note_end(self._remaining, launch, event, time.monotonic() - self._begin)
        if event.reason in SAID_BEFORE or _was_reported(launch, event):
            return
        self._out.print(
            f"[{self._num_done}/{self._num}{self._session}] {launch_words(launch)}: "
            f"{_outcome_of(launch, event)}, "
            f"{event.wall_ns * 1e-9:.1f} s; elapsed {minutes(time.monotonic() - self._begin)}, "
            f"about {minutes(left)} left",
            markup=False,
        )

    def analysed(self, event: InterimAnalysis) -> None:
        _note_analysis(self._remaining, event)
        self._out.print(analysis_sentence(event, self._reasons), markup=False)

    def time_given(self, given: Given) -> None:
        _note_given(self._remaining, given)
        if sentence := given_sentence(given, self._reasons):
            self._out.print(sentence, markup=False)


class Moving(Silent):
    """A moving line with case, launch, elapsed and remaining time; looks and faults stay."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._remaining: RemainingTime | None = None
        self._begin = 0.0
        self._session = ""
        self._reasons: set[str] = set()
        self._width = 0

    def suite_chosen(self, plan: Plan) -> None:
        self._progress.console.print(default_sentence(plan), markup=False)

    def preflight_warnings(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            self._progress.console.print(sentence, markup=False)

    def run_begins(self, plan: Plan, num_done: int, session: int) -> None:
        self._progress.console.print(begin_sentence(plan, num_done, session))
        for line in table(plan) if not num_done else ():
            self._progress.console.print(line, markup=False)
        self._remaining = RemainingTime(plan, num_done, session)
        self._begin = time.monotonic()
        self._session = session_words(plan, session)
        is_narrow = self._progress.console.width < WIDE
        longest = max((len(launch_words(one)) for one in plan.launches), default=0)
        self._width = longest if is_narrow else longest + len(" (forked)")
        self._task = self._progress.add_task(
            "starting".ljust(self._width),
            total=len(plan.launches),
            completed=num_done,
            left=f"about {minutes(self._remaining.seconds(0.0))} left{self._session}",
        )

    def session_ended(self, plan: Plan, session: int) -> None:
        self._progress.console.print(pause_sentence(plan, session))
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None

    def server_probed(self, event: ServerProbed) -> None:
        if not event.is_healthy:
            self._progress.console.print(server_sentence(event), markup=False)

    def launch_started(self, launch: Launch, mode: LaunchMode) -> None:
        if self._task is not None:
            self._progress.update(self._task, description=self._launch_words(launch, mode))

    def _launch_words(self, launch: Launch, mode: LaunchMode) -> str:
        """What runs, padded so that what follows stands still; how, where there is room for it."""
        is_narrow = self._progress.console.width < WIDE
        words = launch_words(launch) if is_narrow else f"{launch_words(launch)} ({mode})"
        return words.ljust(self._width)

    def launch_ended(self, launch: Launch, event: LaunchEnded) -> None:
        left = _note_end(self._remaining, launch, event, time.monotonic() - self._begin)
        if self._task is not None:
            words = f"about {minutes(left)} left{self._session}"
            self._progress.update(self._task, advance=1, left=words)
        is_reported = event.reason in SAID_BEFORE or _was_reported(launch, event)
        if event.outcome != "completed" and not is_reported:
            self._progress.console.print(
                f"{launch_words(launch)}: {_outcome_of(launch, event)}", markup=False
            )

    def analysed(self, event: InterimAnalysis) -> None:
        _note_analysis(self._remaining, event)
        self._progress.console.print(analysis_sentence(event, self._reasons), markup=False)

    def time_given(self, given: Given) -> None:
        _note_given(self._remaining, given)
        if sentence := given_sentence(given, self._reasons):
            self._progress.console.print(sentence, markup=False)


@contextmanager
def observer(*, quiet: bool) -> Iterator[Observer]:
    """The observer that fits: silent, plain lines, or a moving line on a terminal."""
    out = console()
    if quiet:
        yield Silent()
    elif not out.is_terminal or out.is_dumb_terminal:
        yield Lines(out)
    else:
        with Progress(*_columns(out.width), console=out, transient=True) as progress:
            yield Moving(progress)


def _columns(width: int) -> Iterator[ProgressColumn]:
    """Columns of the moving line; a narrow terminal has no room for a bar beside whole words."""
    yield TextColumn("{task.description}")
    if width >= WIDE:
        yield BarColumn()
    yield TextColumn("{task.completed:.0f}/{task.total:.0f}")
    yield TimeElapsedColumn()
    yield TextColumn("{task.fields[left]}")


def _note_end(
    remaining: RemainingTime | None, launch: Launch, event: LaunchEnded, elapsed: float
) -> float:
    """Seconds left after the end of a launch."""
    if remaining is None:
        return 0.0
    remaining.launch_ended(launch, event.wall_ns * 1e-9, event.outcome)
    return remaining.seconds(elapsed)


def _note_analysis(remaining: RemainingTime | None, event: InterimAnalysis) -> None:
    if remaining is not None:
        remaining.analysed(event.case, event.launches, is_decided=event.is_decided)


def _note_given(remaining: RemainingTime | None, given: Given) -> None:
    if remaining is not None:
        remaining.time_given(given.wave, given.cases)


# ------------------------------------------------------------------ sentences


def given_sentence(given: Given, stated: set[str] | None = None) -> str:
    """What the minutes that are left are given to; what waits besides has too little of them.

    That they are too few is said once: nothing where it is `stated`, and else added there.
    """
    left = f"{minutes(max(0.0, given.left_seconds))} left of the minutes"
    if given.cases:
        return f"{left}: given to {', '.join(sorted(given.cases))}"
    if stated is not None:
        if TOO_FEW in stated:
            return ""
        stated.add(TOO_FEW)
    return f"{left}: {TOO_FEW}"


def default_sentence(plan: Plan) -> str:
    """Which suite a run makes that nobody named one for, and how long that is planned to take."""
    if plan.suite == QUICK_SUITE:
        return (
            f"--quick is the suite {plan.suite} within {QUICK_MINUTES} min: {plan.suite_summary}; "
            f"planned time about {length(plan.longest_seconds)}"
        )
    other = "" if plan.suite == SMALL_SUITE else f"; --suite {SMALL_SUITE} is of minutes"
    return (
        f"no --suite was named, so this is {plan.suite}: {plan.suite_summary}; planned time about "
        f"{length(plan.expected_seconds)}{other}"
    )


def begin_sentence(plan: Plan, num_done: int, session: int = 0) -> str:
    done = f", {num_done} of them made before" if num_done else ""
    about, most = minutes(plan.expected_seconds), minutes(plan.longest_seconds)
    whole = " in all" if num_done else ""
    return (
        f"run {plan.run_id}{session_words(plan, session)}: suite {plan.suite}, "
        f"{_several(len(plan.cases), 'case')}, {_several(len(plan.launches), 'launch')}{done}; "
        f"about {about}" + (f", at most {most}" if about != most else "") + whole
    )


def _several(number: int, noun: str) -> str:
    """A number with its noun: 1 case, 99 launches."""
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def session_words(plan: Plan, session: int) -> str:
    """Which session of a run is made; nothing of a run that has one, or of a plan alone."""
    return f", session {session} of {plan.sessions}" if session and plan.sessions > 1 else ""


def pause_sentence(plan: Plan, session: int) -> str:
    """What follows the end of a session; without a fixed pause the error of the verb says it."""
    ended = f"session {session} of {plan.sessions} has ended"
    if plan.pause_seconds is None:
        return ended
    return f"{ended}; the next one begins in {minutes(plan.pause_seconds)}"


def minutes(seconds: float) -> str:
    """A length of time on a progress line: 34 s, 2 min 18 s, 1 h 5 min."""
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    larger, smaller, names = (
        (*divmod(whole, MINUTE), ("min", "s"))
        if whole < HOUR
        else (*divmod(round(seconds / MINUTE), MINUTE), ("h", "min"))
    )
    rest = f" {smaller} {names[1]}" if smaller else ""
    return f"{larger} {names[0]}{rest}"


def length(seconds: float) -> str:
    """A planned length of time: in hours where it is of many minutes."""
    return amount(seconds / MINUTE) if seconds >= MINUTE else minutes(seconds)


def _was_reported(launch: Launch, event: LaunchEnded) -> bool:
    """Whether the case's untimed launch has said why none of its launches is made."""
    is_lacking = event.outcome == "software" and event.reason == UNAVAILABLE
    return (launch.is_timed and is_lacking) or event.reason == REFERENCE_FAILED


def server_sentence(event: ServerProbed) -> str:
    """Why launches are fresh that would have been forked, in one line."""
    mode = "" if event.library_mode == "default" else f", {event.library_mode}"
    last = event.last_words.splitlines()[-1:]
    words = f"; its last words: {last[0]}" if last else ""
    ranks = "" if event.ranks == 1 else f" of {event.ranks} ranks"
    names = f" of {', '.join(event.without)}" if event.without else ""
    launches = f"launches{names}{ranks} by {event.framework}{mode}"
    return (
        f"{event.device}: {launches} are fresh processes, which import anew each time: "
        f"{event.reason}{words}"
    )


def launch_words(launch: Launch) -> str:
    untimed = f"repeat {-launch.number}" if launch.is_repeat else "reference"
    kind = f"launch {launch.number}" if launch.is_timed else untimed
    return f"{launch.case} {kind}"


def outcome_words(event: LaunchEnded) -> str:
    detail = f" ({event.reason}: {event.detail})" if event.detail else f" ({event.reason})"
    outcome = "cannot run: software" if event.outcome == "software" else event.outcome
    later = f"; {AFTER_A_LOSS}" if _is_lost(event) else ""
    return outcome + (detail if event.reason else "") + later


def _outcome_of(launch: Launch, event: LaunchEnded) -> str:
    """The same, with what follows for the case from an untimed launch that did not complete."""
    is_first = not (launch.is_timed or launch.is_repeat)
    is_last = is_first and event.outcome not in AGAIN_OR_NEVER
    return outcome_words(event) + (NONE_OTHER if is_last else "")


AFTER_A_LOSS = (
    "what it was to fork comes of a new server, or of fresh processes where its framework had lost "
    "one before"
)


def _is_lost(event: LaunchEnded) -> bool:
    """Whether it ended with the server that had forked it, which may take longer from then on."""
    return (event.outcome, event.reason) == ("interrupted", "server_lost")


def analysis_sentence(event: InterimAnalysis, stated: set[str] | None = None) -> str:
    """What an interim analysis came to, with its word first: decided, open, or reported only.

    A reason that is `stated` already is not repeated; a new one is added there.
    """
    word, colon, reason = event.reason.partition(": ")
    if not colon or word not in ("decided", "open"):
        word, reason = ("decided" if event.is_decided else "reported"), event.reason
    head = f"{event.case}: {word} after {_several(event.launches, 'launch')}"
    if stated is None:
        return f"{head}: {reason}"
    is_new = reason not in stated
    stated.add(reason)
    return f"{head}: {reason}" if is_new else f"{head}, for the same reason"
