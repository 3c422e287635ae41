"""Slurm by its plain commands: what is asked, and answers read strictly or not at all.

Commands get no shell, a time limit, and formats of their own with a separator, as the JSON that
Slurm writes changes from version to version. Whatever goes wrong is one sentence with Slurm's first
line in it: a SchedulerError, after which the same verb can be called again.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from appliance.challenge.campaign import NODE_NAME
from appliance.errors import SchedulerError
from appliance.foreign_text import one_line

SECONDS = 60.0
LARGEST_ANSWER = 256 * 2**20
LONGEST_WORDS = 300
_JOB = re.compile("[1-9][0-9]{0,9}")
_STATE = re.compile("[A-Z_]{2,20}")
_FLAGS = "*~#!%$@^-+"
"""What Slurm puts behind a node's state; "*" is of one that does not respond."""
_SILENT = "*"
_GONE = frozenset(
    {
        *("down", "drain", "drained", "draining", "fail", "failing", "unknown", "error"),
        *("future", "inval", "no_respond"),
    }
)
"""States in which no job begins however long it waits (sinfo, NODE STATE CODES)."""
QUEUED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"})
ON_NODE = frozenset(
    {"RUNNING", "RESIZING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"}
)
SUBMISSION = re.compile("bench node=(?P<node>[A-Za-z0-9.-]+) attempt=(?P<attempt>[1-9][0-9]{0,2})")
"""The comment of a job: which node, and the number of its attempt."""

JobPhase = Literal["queued", "running", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job of the campaign as the scheduler has it."""

    number: int
    node: str
    attempt: int
    state: str
    reason: str

    @property
    def phase(self) -> JobPhase:
        if self.state in QUEUED:
            return "queued"
        return "running" if self.state in ON_NODE else "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A node as the scheduler has it: whether it takes jobs, and its state in Slurm's words."""

    state: str
    is_available: bool


def jobs(name: str) -> tuple[Job, ...]:
    """The campaign's jobs that the scheduler still knows, ended ones for some minutes."""
    form = "%i|%T|%r|%k"
    words = ("squeue", "--noheader", "--states=all", f"--name={name}", f"--format={form}")
    return tuple(job for line in _lines(words) if (job := _job(line)) is not None)


def _job(line: str) -> Job | None:
    """A job of a campaign; None for one that somebody else gave its name."""
    number, state, *middle, comment = (line if line.count("|") > 1 else f"{line}|||").split("|")
    if not (_JOB.fullmatch(number) and _STATE.fullmatch(state)):
        raise SchedulerError(f"squeue answers {_shown(line)}, which is no job and its state")
    matched = SUBMISSION.fullmatch(comment)
    if matched is None:
        return None
    return Job(
        number=int(number),
        node=matched["node"],
        attempt=int(matched["attempt"]),
        state=state,
        reason=one_line("|".join(middle))[:LONGEST_WORDS],
    )


def nodes(partition: str = "") -> Mapping[str, NodeStatus]:
    """Every node that Slurm knows, of one partition where it is named."""
    words = ["sinfo", "--Node", "--noheader", "--format=%N|%T"]
    if partition:
        words.append(f"--partition={partition}")
    found: dict[str, NodeStatus] = {}
    for line in _lines(words):
        name, _, state = line.strip().partition("|")
        if not NODE_NAME.fullmatch(name) or not re.fullmatch(r"[a-z_]+[*~#!%$@^+-]*", state):
            raise SchedulerError(f"sinfo answers {_shown(line)}, which is no node and its state")
        is_gone = state.rstrip(_FLAGS) in _GONE or _SILENT in state
        found[name] = NodeStatus(state=state, is_available=not is_gone)
    return found


def submit(options: Sequence[str], script: str) -> int:
    """Give Slurm a job; its number. SchedulerError if it does not take it."""
    answer = _answer(("sbatch", "--parsable", *options), script)
    number = answer.strip().partition(";")[0]
    if not _JOB.fullmatch(number):
        raise SchedulerError(f"sbatch answers {_shown(answer)}, which is no number of a job")
    return int(number)


def cancel(numbers: Sequence[int]) -> None:
    """End jobs; one that has ended meanwhile is no error."""
    for begin in range(0, len(numbers), 500):
        _answer(("scancel", "--quiet", *map(str, numbers[begin : begin + 500])))


def drain(node: str, reason: str) -> None:
    """Let the node take no further job. Only operators of Slurm may."""
    _answer(("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"))


# ------------------------------------------------------------------ commands


def _lines(words: Sequence[str]) -> list[str]:
    return [line for line in _answer(words).splitlines() if line.strip()]


def _answer(words: Sequence[str], given: str = "") -> str:
    """What a command prints; SchedulerError where it fails, is not there, or takes too long."""
    program = words[0]
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and words that were checked
            list(words),
            input=given.encode(),
            capture_output=True,
            check=False,
            timeout=SECONDS,
            env={**_own_environment(), "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise SchedulerError(
            f"there is no {program} here: call this where Slurm's commands are"
        ) from None
    except subprocess.TimeoutExpired:
        raise SchedulerError(
            f"{program} has not answered for {SECONDS:.0f} s: look after the scheduler, and call "
            "this again"
        ) from None
    if done.returncode != 0:
        raise SchedulerError(f"{program}: {_first_line(done.stderr, program, done.returncode)}")
    if len(done.stdout) > LARGEST_ANSWER:
        raise SchedulerError(f"{program} answers more than {LARGEST_ANSWER // 2**20} MiB")
    return done.stdout.decode(errors="replace")


def _own_environment() -> Mapping[str, str]:
    """Ours, without options for Slurm's commands that a person's shell may have."""
    mine = ("SBATCH_", "SQUEUE_", "SINFO_", "SCANCEL_")
    return {name: value for name, value in os.environ.items() if not name.startswith(mine)}


def _first_line(text: bytes, program: str, code: int) -> str:
    """What a command that failed says first, without its own name; else how it ended."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        ended = f"a signal ended it ({-code})" if code < 0 else f"it failed ({code})"
        return f"{ended}, and it does not say why"
    words = lines[0].removeprefix(f"{program}: ").removeprefix("error: ")
    return one_line(words)[:LONGEST_WORDS]


def _shown(text: str) -> str:
    return f'"{one_line(text.strip())[:LONGEST_WORDS]}"'
