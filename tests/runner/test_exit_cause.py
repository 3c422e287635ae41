"""How a launch ended: one observation or more for each row of the table, by its name."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from appliance.ipc.messages import End
from appliance.records.journal import Outcome
from appliance.runner.exit_cause import (
    PEER_LOST,
    ROWS,
    Departure,
    ExitCause,
    Observation,
    exit_cause,
    matching_row,
)

TIME_LIMIT = ExitCause(outcome="timed_out", reason="time_limit", detail="did not end")
PROTOCOL = ExitCause(outcome="crashed", reason="protocol", detail="a line that is no message")
COMPLETED = ("completed", "", "")


def departure(rank: int, reason: str | None, when: float = 0.0) -> Departure:
    """A rank that sent its failure, that it completed (""), or nothing (None)."""
    outcome: Any = "completed" if reason == "" else "crashed"
    end = None if reason is None else End(outcome=outcome, reason=reason, detail="x")
    return Departure(rank=rank, end=end, when=when)


def seen(
    *departures: Departure,
    ranks: int = 1,
    status: int | None = 0,
    stop: ExitCause | None = None,
    is_out_of_memory: bool = False,
) -> Observation:
    return Observation(
        num_ranks=ranks,
        status=status,
        stop=stop,
        departures={item.rank: item for item in departures},
        is_out_of_memory=is_out_of_memory,
    )


CASES: list[tuple[str, Observation, tuple[Outcome, str, str]]] = [
    (
        "a child broke the protocol",
        seen(departure(0, "ValueError"), status=-9, stop=PROTOCOL),
        ("crashed", "protocol", "a line that is no message"),
    ),
    ("a rank reported its failure", seen(departure(0, "OSError")), ("crashed", "OSError", "x")),
    # what it says of itself counts more than the limit at which it was stopped
    (
        "a rank reported its failure",
        seen(departure(0, "OSError"), status=-15, stop=TIME_LIMIT),
        ("crashed", "OSError", "x"),
    ),
    # one that says what went wrong is the cause, and torchrun ends its partners in silence
    (
        "a rank reported its failure",
        seen(departure(0, None, 1.0), departure(1, "ValueError", 1.2), ranks=4, status=1),
        ("crashed", "ValueError", "rank 1: x (no word from rank 0, 2, 3)"),
    ),
    (
        "a rank reported its failure",
        seen(departure(2, PEER_LOST), departure(1, "ValueError", 0.2), ranks=4, status=1),
        ("crashed", "ValueError", "rank 1: x (no word from rank 0, 3)"),
    ),
    # if no rank says more, the first that lost another is what is known
    (
        "a rank reported its failure",
        seen(departure(2, PEER_LOST), departure(0, PEER_LOST), ranks=4, status=1),
        ("crashed", PEER_LOST, "rank 2: x (no word from rank 1, 3)"),
    ),
    # what the others lost is named by the one that they lost, in whatever order they are heard
    (
        "a silent rank was ended by a signal",
        seen(departure(0, PEER_LOST), departure(3, None, 0.1), ranks=4, status=128 + 11),
        ("crashed", "SIGSEGV", "rank 3: ended by signal 11"),
    ),
    (
        "a silent rank was ended by a signal",
        seen(departure(0, None, 5.0), departure(1, "stalled", 0.0), ranks=2, status=128 + 11),
        ("crashed", "SIGSEGV", "rank 0: ended by signal 11"),
    ),
    (
        "a silent rank was ended by a signal",
        seen(departure(0, None), ranks=2, status=128 + 9, is_out_of_memory=True),
        ("crashed", "out_of_memory", "rank 0: the kernel killed it for lack of memory"),
    ),
    (
        "a rank ended silently",
        seen(
            departure(0, PEER_LOST),
            departure(2, PEER_LOST),
            departure(3, None, 0.1),
            ranks=4,
            status=1,
        ),
        ("crashed", "exit", "rank 3 ended and did not say why"),
    ),
    # one that waited long for a rank that had gone is not the cause
    (
        "a rank ended silently",
        seen(departure(1, None, 1.0), departure(0, "stalled", 9.0), ranks=4, status=1),
        ("crashed", "exit", "rank 1 ended and did not say why"),
    ),
    ("all ranks completed", seen(departure(0, "")), COMPLETED),
    (
        "all ranks completed",
        seen(*(departure(rank, "") for rank in range(4)), ranks=4, stop=TIME_LIMIT),
        COMPLETED,
    ),
    (
        "the parent stopped it",
        seen(status=-9, stop=TIME_LIMIT),
        ("timed_out", "time_limit", "did not end"),
    ),
    # of one rank the silence says nothing that the stop does not
    (
        "the parent stopped it",
        seen(departure(0, None), status=-9, stop=TIME_LIMIT),
        ("timed_out", "time_limit", "did not end"),
    ),
    ("a signal ended it", seen(status=-6), ("crashed", "SIGABRT", "ended by signal 6")),
    (
        "a signal ended it",
        seen(departure(0, None), status=-9),
        ("crashed", "SIGKILL", "ended by signal 9"),
    ),
    (
        "a signal ended it",
        seen(status=-signal.SIGKILL, is_out_of_memory=True),
        ("crashed", "out_of_memory", "the kernel killed it for lack of memory"),
    ),
    (
        "a signal ended it",
        seen(status=-signal.SIGSEGV, is_out_of_memory=True),
        ("crashed", "SIGSEGV", "ended by signal 11"),
    ),
    ("a signal ended it", seen(status=-100), ("crashed", "signal 100", "ended by signal 100")),
    (
        "it exited without an end",
        seen(status=3),
        ("crashed", "exit", "ended with exit status 3 and did not say why"),
    ),
    (
        "it exited without an end",
        seen(status=None),
        ("crashed", "exit", "ended with exit status None and did not say why"),
    ),
    # three that completed are not four
    (
        "it exited without an end",
        seen(*(departure(rank, "") for rank in range(3)), ranks=4),
        ("crashed", "exit", "ended with exit status 0 and did not say why"),
    ),
]


@pytest.mark.parametrize(("row", "observed", "expected"), CASES)
def test_first_row_that_holds_decides(
    row: str, observed: Observation, expected: tuple[Outcome, str, str]
) -> None:
    outcome, reason, detail = expected
    assert matching_row(observed).name == row
    assert exit_cause(observed) == ExitCause(outcome=outcome, reason=reason, detail=detail)


def test_every_row_is_covered() -> None:
    assert {row for row, _, _ in CASES} == {row.name for row in ROWS}
