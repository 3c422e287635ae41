"""The verbs `fleet submit`, `resume` and `cancel`: which nodes are due, and one job for each.

At most `concurrency` jobs run at a time, and Slurm sees to it: the campaign has so many lanes, and
a job waits for the one before it in its lane (`--dependency=afterany`). So nothing of ours has to
live on while the fleet is tested. Calling any of these again does what is left, nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from appliance.challenge.campaign import CampaignNode
from appliance.errors import OutputError, SchedulerError, UsageError
from appliance.fleet import job_script, slurm, states, submissions
from appliance.fleet.folder import CampaignFolder, locked
from appliance.fleet.node_runs import Reader
from appliance.fleet.slurm import Job, NodeStatus
from appliance.fleet.states import NodeState
from appliance.fleet.submissions import Submission
from appliance.planning.challenge_window import time_of, utc_words

DUE = frozenset({"open", "retest"})
NEW = "plan a campaign of repaired nodes"
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """What a call did: jobs by node, nodes that were passed over with the reason, jobs taken back.

    `finished` is how many nodes need no job, `under_way` how many have one already.
    """

    jobs: Mapping[str, int]
    passed_over: Mapping[str, str]
    taken_back: Mapping[str, int]
    finished: int
    under_way: int


@dataclass(kw_only=True)
class _Lanes:
    """The chains of jobs, each with the number of the last job in it, 0 for none that lives."""

    tails: list[int]
    lengths: list[int] = field(default_factory=list)

    def next(self) -> tuple[int, int]:
        """The shortest lane, and the job in it that a new one waits for."""
        lane = min(range(len(self.tails)), key=lambda number: self.lengths[number])
        return lane, self.tails[lane]

    def add(self, lane: int, job: int) -> None:
        self.tails[lane] = job
        self.lengths[lane] += 1


def submit(
    folder: CampaignFolder,
    reader: Reader,
    *,
    only: Collection[str] = (),
    again: bool = False,
    say: Say = lambda _text: None,
) -> Submitted:
    """Give the scheduler a job for each node that is due, of those in `only` if any are named.

    `again` is for `resume`: jobs that wait for nodes which are gone are taken back first, and named
    nodes get one attempt more than their campaign gives them. Raises UsageError after the
    campaign's end, SchedulerError with the number of jobs that were submitted before it.
    """
    _check_end(folder)
    for name in only:
        folder.node(name)
    with locked(folder):
        jobs = slurm.jobs(folder.job_name)
        known = slurm.nodes(folder.campaign.partition)
        _find_lost(folder, jobs)
        taken_back = _take_back(folder, jobs, known, only) if again else {}
        jobs = tuple(job for job in jobs if job.number not in taken_back.values())
        found = [
            state
            for state in states.node_states(folder, reader, jobs)
            if not only or state.name in only
        ]
        due = [state for state in found if _is_due(state, is_named=again and bool(only))]
        passed_over = dict(_passed_over(due, known))
        wanted = [state for state in due if state.name not in passed_over]
        given = _submit_all(folder, wanted, jobs, say)
    return Submitted(
        jobs=given,
        passed_over=passed_over,
        taken_back=taken_back,
        finished=sum(state.state in states.FINAL for state in found if state not in due),
        under_way=sum(state.job is not None for state in found),
    )


def cancel(
    folder: CampaignFolder, *, only: Collection[str] = (), say: Say = lambda _text: None
) -> Mapping[str, int]:
    """End the campaign's jobs, of some nodes or all; the jobs by their nodes.

    A full disk does not undo it: that the note of it is missing is said.
    """
    for name in only:
        folder.node(name)
    with locked(folder):
        jobs = slurm.jobs(folder.job_name)
        live = [job for job in jobs if job.phase != "ended" and (not only or job.node in only)]
        try:
            _cancel(folder, live)
        except OutputError as error:
            say(f"the jobs are cancelled, and no note of it is made: {error}")
        return {job.node: job.number for job in live}


# ------------------------------------------------------------------ what is due


def _check_end(folder: CampaignFolder) -> None:
    campaign, now = folder.campaign, datetime.now(UTC)
    if now > time_of(campaign.not_after_utc, "the campaign"):
        raise UsageError(
            f"the campaign ended at {campaign.not_after_utc}, and here it is {utc_words(now)}: "
            "plan a new one, or set the clock right"
        )


def _is_due(state: NodeState, *, is_named: bool) -> bool:
    return state.state in DUE or (is_named and state.job is None and state.state != "accepted")


def _passed_over(
    due: Sequence[NodeState], known: Mapping[str, NodeStatus]
) -> Iterator[tuple[str, str]]:
    """Nodes that no job can go to now, or whom none can help, each with the reason."""
    for state in due:
        status = known.get(state.name)
        if state.next_sessions is None:
            yield state.name, f"it is {state.state}, and no run that it could make decides: {NEW}"
        elif status is None:
            yield state.name, "Slurm does not know this node"
        elif not status.is_available:
            yield state.name, f"Slurm says that it is {status.state}"


def _find_lost(folder: CampaignFolder, jobs: Sequence[Job]) -> None:
    """Note jobs that the scheduler has and the file lacks: whoever gave them was killed."""
    lines = submissions.read(folder.path)
    noted = {line.job for line in lines}
    asked = {(line.node, line.attempt): line for line in lines if line.step == "asked"}
    lost = []
    for job in jobs:
        if job.number in noted:
            continue
        line = asked.get((job.node, job.attempt))
        lane, sessions = (line.lane, line.sessions) if line else (0, folder.campaign.sessions)
        lost.append(_given(job.node, job.attempt, job.number, lane=lane, sessions=sessions))
    if lost:
        submissions.append(folder.path, lost)


def _take_back(
    folder: CampaignFolder,
    jobs: Sequence[Job],
    known: Mapping[str, NodeStatus],
    only: Collection[str],
) -> Mapping[str, int]:
    """Cancel queued jobs of nodes that are gone, which keep their lanes waiting."""
    gone = [
        job
        for job in jobs
        if job.phase == "queued"
        and (not only or job.node in only)
        and not (job.node in known and known[job.node].is_available)
    ]
    return _cancel(folder, gone)


def _cancel(folder: CampaignFolder, jobs: Sequence[Job]) -> Mapping[str, int]:
    if jobs:
        slurm.cancel([job.number for job in jobs])
        submissions.append(
            folder.path,
            [replace(_given(job.node, job.attempt, job.number), step="cancelled") for job in jobs],
        )
    return {job.node: job.number for job in jobs}


# ------------------------------------------------------------------ giving jobs


def _submit_all(
    folder: CampaignFolder, due: Sequence[NodeState], jobs: Sequence[Job], say: Say
) -> Mapping[str, int]:
    given: dict[str, int] = {}
    lines = submissions.read(folder.path)
    lanes = _lanes(folder, lines, jobs)
    nodes = {node.name: node for node in folder.campaign.nodes}
    highest = states.last_attempts(lines, jobs)
    for state in due:
        begun = states.begun_attempts(folder.jobs(state.name))
        attempt = 1 + max((highest.get(state.name, 0), *begun))
        try:
            given[state.name] = _submit(folder, nodes[state.name], state, attempt, lanes)
        except SchedulerError as error:
            raise SchedulerError(
                f"{error}; {len(given)} of {len(due)} jobs are submitted: call this again for the "
                "rest"
            ) from None
        say(f"{state.name}: job {given[state.name]}")
    return given


def _submit(
    folder: CampaignFolder, node: CampaignNode, state: NodeState, attempt: int, lanes: _Lanes
) -> int:
    """Note that a job is asked for, ask for it, and note its number, which is returned."""
    sessions = state.next_sessions or folder.campaign.sessions
    lane, tail = lanes.next()
    given = _given(node.name, attempt, 0, lane=lane, sessions=sessions)
    submissions.append(folder.path, [replace(given, step="asked")])
    options = job_script.options(folder, node, attempt, after=tail)
    number = slurm.submit(options, job_script.script(folder, node, attempt, sessions))
    submissions.append(folder.path, [replace(given, job=number)])
    lanes.add(lane, number)
    return number


def _lanes(folder: CampaignFolder, lines: Sequence[Submission], jobs: Sequence[Job]) -> _Lanes:
    """The lanes with the jobs that live; one whose lane is not known takes the shortest."""
    count = min(folder.campaign.concurrency, len(folder.campaign.nodes))
    lanes = _Lanes(tails=[0] * count, lengths=[0] * count)
    of_job = {line.job: line.lane for line in lines if line.step == "given"}
    live = sorted((job for job in jobs if job.phase != "ended"), key=lambda job: job.number)
    for job in live:
        lane = of_job.get(job.number, count)
        lanes.add(lane if lane < count else lanes.next()[0], job.number)
    return lanes


def _given(node: str, attempt: int, job: int, *, lane: int = 0, sessions: int = 0) -> Submission:
    return Submission(
        step="given",
        node=node,
        attempt=attempt,
        job=job,
        lane=lane,
        sessions=sessions,
        utc=utc_words(datetime.now(UTC)),
    )
