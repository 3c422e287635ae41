"""What was given to the scheduler: an append-only file of lines beside the campaign.

A line is written before `sbatch` is called and one after it, so that a submission that was cut
short between the two is known and looked for, and not made twice. The file is no evidence; where it
is lost, jobs that the scheduler knows are found by their comments.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.records.json import Record, SafeInt, from_json, to_json
from appliance.storage import plain_files

FILE = "submissions.jsonl"
LARGEST = 2**30

Step = Literal["asked", "given", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission(Record):
    """One line: an attempt of a node was asked for, given to the scheduler, or cancelled.

    `job` is its number in Slurm, 0 where it has none yet. `lane` is the chain of jobs in which it
    waits, and `sessions` how many its run has.
    """

    step: Step
    node: str
    attempt: SafeInt
    job: SafeInt
    lane: SafeInt
    sessions: SafeInt
    utc: str


def read(folder: Path) -> tuple[Submission, ...]:
    """All lines; one that was cut short at the end is passed over. EvidenceError for others."""
    path = folder / FILE
    try:
        data = plain_files.read(path, LARGEST)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from None
    whole = data[: data.rfind(b"\n") + 1]
    return tuple(_read(line, path, number) for number, line in enumerate(whole.splitlines(), 1))


def _read(line: bytes, path: Path, number: int) -> Submission:
    try:
        return from_json(Submission, line, name=f"{path}, line {number}")
    except EvidenceError as fault:
        raise EvidenceError(
            f"{fault}; move {path.name} away: jobs that Slurm knows are found without it"
        ) from None


def append(folder: Path, lines: Sequence[Submission]) -> None:
    """Write lines behind what is there, to the disk; the caller holds the folder's lock.

    OutputError where they cannot be written: the file then ends as before, or in a part of a line
    that the next writer cuts off.
    """
    path = folder / FILE
    data = b"".join(to_json(line) + b"\n" for line in lines)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "r+b") as stream:
            stream.truncate(_whole(stream))
            stream.seek(0, os.SEEK_END)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written ({error.strerror}): make room or give write permission"
        ) from None


def _whole(stream: BinaryIO) -> int:
    """Bytes up to the end of the last whole line; only a part of a line has the file read."""
    size = stream.seek(0, os.SEEK_END)
    if size == 0:
        return 0
    stream.seek(-1, os.SEEK_END)
    if stream.read(1) == b"\n":
        return size
    stream.seek(0)
    return stream.read().rfind(b"\n") + 1
