"""Where each node of a campaign stands: from its bundles, its attempts, and the scheduler's jobs.

Nothing of it is stored. A node is done when a verified bundle of it says so; an attempt counts from
the moment at which its job began on the node, so that what the scheduler never started costs none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from appliance.challenge.campaign import CampaignNode
from appliance.errors import SchedulerError
from appliance.fleet import node_runs, slurm
from appliance.fleet.decision import Decision
from appliance.fleet.folder import CampaignFolder
from appliance.fleet.node_runs import NodeRun, Reader
from appliance.fleet.slurm import Job
from appliance.fleet.submissions import Submission
from appliance.foreign_text import one_line
from appliance.records.json import Record, SafeInt
from appliance.records.verdict import VerdictWord
from appliance.storage import plain_files

State = Literal[
    "accepted", "rejected", "inconclusive", "failed", "running", "queued", "retest", "open"
]
STATES: tuple[State, ...] = get_args(State)
FINAL = frozenset({"accepted", "rejected", "inconclusive", "failed"})
BEGUN = re.compile(r"attempt-([1-9][0-9]{0,2})\.begun")
LARGEST_LOG = 16 * 2**20
OF_SLURM = ("srun: ", "slurmstepd: ")
LONGEST_SENTENCE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState(Record):
    """One node: `attempts` that began, `failed` of them without a verdict that decides.

    `verdict` and `run_id` are of the run that decides, or of the newest verified one, and
    `next_sessions` is how many parts its next run must have, None where no further run can decide.
    `job` is the number of the job that is queued or runs. `sentence` says what went wrong, empty if
    nothing.
    """

    name: str
    rack: str
    state: State
    attempts: SafeInt
    failed: SafeInt
    rejections: SafeInt
    verdict: VerdictWord | None
    run_id: str | None
    next_sessions: SafeInt | None
    job: SafeInt | None
    job_state: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus(Record):
    """The whole campaign: how many nodes are in which state, and each of them.

    `exit_code` is 0 if all are accepted, 1 if any is rejected, 3 otherwise.
    """

    schema: Literal["bench/fleet-status/2"] = "bench/fleet-status/2"
    campaign: str
    digest: str
    utc: str
    scheduler: str
    counts: Mapping[State, SafeInt]
    nodes: tuple[NodeState, ...]
    exit_code: SafeInt


def status(
    folder: CampaignFolder, reader: Reader, jobs: Sequence[Job], *, scheduler: str, now: str
) -> FleetStatus:
    """The campaign now. `scheduler` is why the jobs could not be asked for, empty if they were."""
    states = tuple(node_states(folder, reader, jobs))
    counted = Counter(one.state for one in states)
    return FleetStatus(
        campaign=folder.campaign.name,
        digest=folder.digest,
        utc=now,
        scheduler=scheduler,
        counts={state: counted[state] for state in STATES},
        nodes=states,
        exit_code=_exit_code(counted, len(states)),
    )


def _exit_code(counted: Mapping[State, int], num_nodes: int) -> int:
    if counted["rejected"]:
        return 1
    return 0 if counted["accepted"] == num_nodes else 3


def node_states(folder: CampaignFolder, reader: Reader, jobs: Sequence[Job]) -> list[NodeState]:
    """Every node's state, in the campaign's order."""
    by_node: dict[str, list[Job]] = {}
    for job in jobs:
        by_node.setdefault(job.node, []).append(job)
    nodes = folder.campaign.nodes
    return [
        _node_state(folder, node, runs, by_node.get(node.name, ()))
        for node, runs in zip(nodes, node_runs.runs_of(reader, nodes), strict=True)
    ]


def _node_state(
    folder: CampaignFolder, node: CampaignNode, runs: Sequence[NodeRun], jobs: Sequence[Job]
) -> NodeState:
    """One node's state by its runs; `jobs` are its own."""
    job = next((one for one in reversed(jobs) if one.phase != "ended"), None)
    ended = {one.attempt: one for one in jobs if one.phase == "ended"}
    begun = begun_attempts(folder.jobs(node.name))
    over = [attempt for attempt in begun if job is None or job.attempt != attempt]
    decided, verified = node_runs.decided(folder.campaign, runs)
    verdicts = Counter(run.verdict for run in verified)
    failed = max(0, len(over) - verdicts["ACCEPTED"] - verdicts["REJECTED"])
    is_used_up = failed > folder.campaign.retries or decided.next_sessions is None
    shown = verified[(decided.decided_by or len(verified)) - 1] if verified else None
    return NodeState(
        name=node.name,
        rack=node.rack,
        state=_word(decided, job, is_used_up=is_used_up, has_bundle=shown is not None),
        attempts=len(begun),
        failed=failed,
        rejections=verdicts["REJECTED"],
        verdict=None if shown is None else shown.verdict,
        run_id=None if shown is None else shown.run_id,
        next_sessions=decided.next_sessions,
        job=None if job is None else job.number,
        job_state="" if job is None else _job_words(job),
        sentence="" if shown else _sentence(folder, node, runs, over, ended),
    )


def _word(decided: Decision, job: Job | None, *, is_used_up: bool, has_bundle: bool) -> State:
    """The state of a node: what its runs decide, else its job, else whether another is due."""
    if decided.state in {"accepted", "rejected"}:
        return decided.state
    if job is not None:
        return "queued" if job.phase == "queued" else "running"
    if is_used_up:
        return "inconclusive" if has_bundle else "failed"
    return decided.state


def _job_words(job: Job) -> str:
    is_waiting = job.phase == "queued" and job.reason not in {"", "None"}
    return f"{job.state} ({job.reason})" if is_waiting else job.state


def _sentence(
    folder: CampaignFolder,
    node: CampaignNode,
    runs: Sequence[NodeRun],
    over: Sequence[int],
    ended: Mapping[int, Job],
) -> str:
    """Why there is no verdict: a refused bundle, the scheduler, last words; empty if none is due.

    `over` are attempts that began and do not run any more.
    """
    refused = [run for run in runs if run.state == "refused"]
    if refused:
        return f"the bundle {refused[-1].folder} is refused: {refused[-1].sentence}"
    if not over:
        return ""
    last = max(over)
    job = ended.get(last)
    words = last_words(folder.jobs(node.name), last)
    if job is not None and job.state not in {"COMPLETED", "FAILED"}:
        words = f"job {job.number} ended as {job.state}{f': {words}' if words else ''}"
    return words or f"attempt {last} ended without a word"


# ------------------------------------------------------------------ attempts


def begun_attempts(jobs: Path) -> tuple[int, ...]:
    """Numbers of the attempts that began on the node."""
    try:
        names = [path.name for path in jobs.iterdir()]
    except OSError:
        return ()
    return tuple(sorted(int(found[1]) for name in names if (found := BEGUN.fullmatch(name))))


def last_words(jobs: Path, attempt: int) -> str:
    """The last line that an attempt's job printed, as people may be shown it.

    What Slurm adds of a task's end is passed over, where bench has said why.
    """
    try:
        text = plain_files.read(jobs / f"attempt-{attempt}.out", LARGEST_LOG)
    except OSError:
        return ""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith(OF_SLURM)] or lines
    return one_line(own[-1])[:LONGEST_SENTENCE] if own else ""


def last_attempts(lines: Sequence[Submission], jobs: Sequence[Job]) -> Mapping[str, int]:
    """By node the highest number of an attempt that was given to the scheduler.

    One that was asked for and never given keeps its number: should its job exist all the same, only
    one of the two can begin.
    """
    highest: Counter[str] = Counter()
    given = [(line.node, line.attempt) for line in lines if line.step != "asked"]
    for node, attempt in (*given, *((job.node, job.attempt) for job in jobs)):
        highest[node] = max(highest[node], attempt)
    return highest


def of_campaign(folder: CampaignFolder, reader: Reader, now: str) -> FleetStatus:
    """The campaign now, by what the scheduler says; without its answer the bundles are shown."""
    try:
        jobs: Sequence[Job] = slurm.jobs(folder.job_name)
    except SchedulerError as error:
        return status(folder, reader, (), scheduler=str(error), now=now)
    return status(folder, reader, jobs, scheduler="", now=now)
