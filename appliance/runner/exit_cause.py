"""How a launch ended, decided from what was observed: a table whose first matching row holds.

Pure: no clock, process or socket. In order: a child that broke the protocol; the rank that failed
first, by its own `End` or by its silence; all ranks completed; the parent's stop; a signal; an
exit status.

In a launch of several ranks one failure takes the others along, so the rank that failed first is
looked for. A rank that was killed sends no `End`; those that it leaves behind report at once that
they lost it, or much later that they waited in vain. A rank that reports its own failure has its
partners ended by torchrun, silently and soon after.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from appliance.ipc.messages import End
from appliance.ipc.processes import SHELL_SIGNAL_BASE
from appliance.records.journal import Outcome, Stage

PEER_LOST = "PeerLost"
"""Reason in the `End` of a rank that failed because another one had ended."""
ORDER_SECONDS = 1.0
"""Two ranks that end within this time may be heard in either order."""


@dataclass(frozen=True, kw_only=True)
class ExitCause:
    """Outcome of a launch, its reason in one word, and the sentence with the facts.

    `exceptions` and `stage` are those of `LaunchEnded`.
    """

    outcome: Outcome
    reason: str
    detail: str
    exceptions: tuple[str, ...] = ()
    stage: Stage = ""


@dataclass(frozen=True, kw_only=True)
class Departure:
    """A rank that is no longer connected: its `End`, None if it sent none, and when it left."""

    rank: int
    end: End | None
    when: float

    @property
    def has_failed(self) -> bool:
        """Whether it sent an `End` that is no completion."""
        return self.end is not None and self.end.outcome != "completed"

    @property
    def has_own_cause(self) -> bool:
        """Whether it failed by itself, not through the loss of another rank."""
        return self.end is not None and self.has_failed and self.end.reason != PEER_LOST


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the parent knows of a launch that has ended.

    `status` is that of its first process (negative: a signal; None: the kernel does not release
    it). For several ranks that process is torchrun, which exits with `SHELL_SIGNAL_BASE` and the
    signal's number when a signal ended a rank. `departures` are in the order in which the ranks
    left. `is_out_of_memory`: the kernel has killed for lack of memory since the launch began.
    """

    num_ranks: int
    status: int | None
    stop: ExitCause | None
    departures: Mapping[int, Departure]
    is_out_of_memory: bool

    @property
    def rank_signal(self) -> int | None:
        """Number of the signal that torchrun reports of a rank."""
        is_signal = self.status is not None and self.status > SHELL_SIGNAL_BASE
        return (self.status or 0) - SHELL_SIGNAL_BASE if is_signal else None

    @property
    def silent_ranks(self) -> tuple[int, ...]:
        """Ranks that sent no `End`, whether they have left or not."""
        ends = {rank for rank, departure in self.departures.items() if departure.end is not None}
        return tuple(rank for rank in range(self.num_ranks) if rank not in ends)


def first_failure(observed: Observation) -> Departure | None:
    """The rank that failed first, as far as can be known; None if none is known to have failed."""
    departures = list(observed.departures.values())
    silent = next((left for left in departures if left.end is None), None)
    caused = next((left for left in departures if left.has_own_cause), None)
    failed = caused or next((left for left in departures if left.has_failed), None)
    if silent is None:
        return failed
    is_earlier = caused is None or silent.when < caused.when - ORDER_SECONDS
    return silent if is_earlier or observed.rank_signal is not None else failed


# ------------------------------------------------------------------ conditions


def _broke_protocol(observed: Observation) -> bool:
    return observed.stop is not None and observed.stop.reason == "protocol"


def _failed_with_end(observed: Observation) -> bool:
    failure = first_failure(observed)
    return failure is not None and failure.end is not None


def _failed_silently(observed: Observation) -> bool:
    """Of a launch with one rank, the status of its process says more than its silence."""
    failure = first_failure(observed)
    return failure is not None and failure.end is None and observed.num_ranks > 1


def _was_signalled(observed: Observation) -> bool:
    return observed.status is not None and observed.status < 0


# ------------------------------------------------------------------ causes


def _stopped(observed: Observation) -> ExitCause:
    assert observed.stop is not None  # noqa: S101 - the row's condition
    return observed.stop


def _reported(observed: Observation) -> ExitCause:
    """What the rank's `End` says, with its number where there are several."""
    failure = first_failure(observed)
    assert failure is not None  # noqa: S101 - the row's condition
    assert failure.end is not None  # noqa: S101 - the row's condition
    end, detail = failure.end, failure.end.detail
    if observed.num_ranks > 1:
        numbers = ", ".join(str(rank) for rank in observed.silent_ranks)
        missing = f" (no word from rank {numbers})" if numbers else ""
        detail = f"rank {failure.rank}: {detail}{missing}"
    return ExitCause(
        outcome=end.outcome,
        reason=end.reason,
        detail=detail,
        exceptions=end.exceptions,
        stage=end.stage,
    )


def _rank_signalled(observed: Observation) -> ExitCause:
    cause = _by_signal(observed.rank_signal or 0, is_out_of_memory=observed.is_out_of_memory)
    detail = f"rank {_silent_rank(observed)}: {cause.detail}"
    return ExitCause(outcome=cause.outcome, reason=cause.reason, detail=detail)


def _rank_silent(observed: Observation) -> ExitCause:
    detail = f"rank {_silent_rank(observed)} ended and did not say why"
    return ExitCause(outcome="crashed", reason="exit", detail=detail)


def _silent_rank(observed: Observation) -> int:
    failure = first_failure(observed)
    assert failure is not None  # noqa: S101 - the row's condition
    return failure.rank


def _completed(_: Observation) -> ExitCause:
    return ExitCause(outcome="completed", reason="", detail="")


def _signalled(observed: Observation) -> ExitCause:
    return _by_signal(-(observed.status or 0), is_out_of_memory=observed.is_out_of_memory)


def _exited(observed: Observation) -> ExitCause:
    detail = f"ended with exit status {observed.status} and did not say why"
    return ExitCause(outcome="crashed", reason="exit", detail=detail)


def _by_signal(number: int, *, is_out_of_memory: bool) -> ExitCause:
    if number == signal.SIGKILL and is_out_of_memory:
        detail = "the kernel killed it for lack of memory"
        return ExitCause(outcome="crashed", reason="out_of_memory", detail=detail)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return ExitCause(outcome="crashed", reason=name, detail=f"ended by signal {number}")


# ------------------------------------------------------------------ the table


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case of the table: when it holds, and the cause that it gives."""

    name: str
    holds: Callable[[Observation], bool]
    cause: Callable[[Observation], ExitCause]


ROWS = (
    Row(name="a child broke the protocol", holds=_broke_protocol, cause=_stopped),
    Row(name="a rank reported its failure", holds=_failed_with_end, cause=_reported),
    Row(
        name="a silent rank was ended by a signal",
        holds=lambda observed: _failed_silently(observed) and observed.rank_signal is not None,
        cause=_rank_signalled,
    ),
    Row(name="a rank ended silently", holds=_failed_silently, cause=_rank_silent),
    Row(
        name="all ranks completed",
        holds=lambda observed: not observed.silent_ranks,
        cause=_completed,
    ),
    Row(
        name="the parent stopped it",
        holds=lambda observed: observed.stop is not None,
        cause=_stopped,
    ),
    Row(name="a signal ended it", holds=_was_signalled, cause=_signalled),
    Row(name="it exited without an end", holds=lambda _: True, cause=_exited),
)
"""The first row that holds decides; the last one always does."""


def matching_row(observed: Observation) -> Row:
    """The row that decides."""
    return next(row for row in ROWS if row.holds(observed))


def exit_cause(observed: Observation) -> ExitCause:
    """How the launch ended."""
    return matching_row(observed).cause(observed)
