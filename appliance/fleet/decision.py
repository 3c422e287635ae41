"""What the runs of a node come to by the rule that its campaign signed; pure, and the only place.

`fleet status`, `fleet gate` and the collection's statement all ask here, so none of them can accept
what another rejects. The first run that decides does, unless it rejects: then the retests that the
campaign allows may accept the node, each with the sessions that it asks of them. After the last
retest nothing accepts any more, and no run after so many as the signed risk was counted for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from appliance.challenge.campaign import Campaign
from appliance.records.verdict import VerdictWord

DecisionWord = Literal["accepted", "rejected", "retest", "open"]
"""`retest` is a node that was rejected and may be run again, `open` one without a decision."""


class DecidingRun(Protocol):
    """What the rule reads of a verified run."""

    @property
    def run_id(self) -> str: ...
    @property
    def created_utc(self) -> str: ...
    @property
    def sessions(self) -> int: ...
    @property
    def verdict(self) -> VerdictWord: ...


Run = TypeVar("Run", bound=DecidingRun)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Where a node stands by its runs in the order in which they were planned, numbered from 1.

    `decisive` are the numbers of the runs that may decide, `decided_by` is the one that did, None
    while none has. `next_sessions` is how many parts the next run must have, None where no further
    run can decide.
    """

    state: DecisionWord
    reason: str
    decisive: frozenset[int]
    decided_by: int | None
    next_sessions: int | None


def most_runs(campaign: Campaign) -> int:
    """Runs of a node that may decide: each is a chance to pass, and the signed risk is of so many.

    The first run, the retests and the retries; `fleet.risk` bounds the risk of a wrong pass by it.
    """
    return 1 + campaign.retest.retests + campaign.retries


def in_order(runs: Sequence[Run]) -> list[Run]:
    """Runs as they were planned, by the nodes' clocks."""
    return sorted(runs, key=lambda run: (run.created_utc, run.run_id))


def decide(campaign: Campaign, runs: Sequence[DecidingRun]) -> Decision:
    """What these runs come to; they are verified, of one node, and `in_order`."""
    decisive = dict(_decisive(campaign, runs))
    accepted = [number for number, run in decisive.items() if run.verdict == "ACCEPTED"]
    retests, most = campaign.retest.retests, most_runs(campaign)
    is_last = len(runs) >= most
    sessions = campaign.retest.sessions if decisive else campaign.sessions
    state: DecisionWord = "open"
    decided_by: int | None = None
    if accepted:
        state, decided_by = "accepted", accepted[0]
        reason = f"attempt {decided_by} is accepted"
    elif len(decisive) > retests:
        state, decided_by = "rejected", max(decisive)
        reason = f"attempt {decided_by} is rejected, and no retest is left"
    elif decisive:
        state = "open" if is_last else "retest"
        reason = f"rejected, with {retests - len(decisive) + 1} of {retests} retests left"
    elif runs:
        reason = f"attempt {len(runs)} decides nothing: {runs[-1].verdict.lower()}"
    else:
        reason = "no verified bundle"
    if is_last and decided_by is None:
        reason += f", and all {most} runs of a node are used up"
    return Decision(
        state=state,
        reason=reason,
        decisive=frozenset(decisive),
        decided_by=decided_by,
        next_sessions=None if decided_by is not None or is_last else sessions,
    )


def _decisive(campaign: Campaign, runs: Sequence[DecidingRun]) -> Iterator[tuple[int, DecidingRun]]:
    """The runs that may decide, by their numbers; one that was accepted ends them."""
    num_rejected = 0
    for number, run in enumerate(runs[: most_runs(campaign)], 1):
        sessions = campaign.retest.sessions if num_rejected else campaign.sessions
        if run.verdict == "INCONCLUSIVE" or run.sessions < sessions:
            continue
        yield number, run
        num_rejected += 1
        if run.verdict == "ACCEPTED" or num_rejected > campaign.retest.retests:
            return
