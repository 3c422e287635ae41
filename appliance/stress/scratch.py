"""Where the stress of a disk writes, and how large a launch's file is: the disk is never filled."""

from __future__ import annotations

import os
from pathlib import Path

from appliance.errors import UsageError
from appliance.records.plan import Case, Plan
from appliance.stress.kinds import DISK, LAUNCHES, kinds_of

REGION = 2**22
"""Bytes that are read and written at once, of which a file has at least one."""
SHARE, MOST_BYTES = 1 / 20, 2**28
"""Of the free room, shared by the launches at once; bytes of a launch's file at most."""


def file_bytes(folder: Path, launches: int) -> int:
    """Bytes of the file of each of so many launches at once.

    Raises ValueError, with one sentence, where the folder has no room or is none.
    """
    try:
        found = os.statvfs(folder)
    except OSError as error:
        raise ValueError(f"{folder} cannot be looked at ({error.strerror})") from None
    free = found.f_bavail * found.f_frsize
    size = min(MOST_BYTES, int(SHARE * free / launches)) // REGION * REGION
    if not size:
        wanted = REGION * launches / SHARE
        raise ValueError(
            f"{folder} has {free:,} bytes free: make {wanted:,.0f} free there, name another folder "
            "with --scratch, or leave disk out of the stress"
        )
    return size


def _stressed(plan: Plan) -> list[Case]:
    return [case for case in plan.cases if DISK in kinds_of(case.workload, case.parameters)]


def unused(folder: Path | None, plan: Plan) -> tuple[str, ...]:
    """That a folder was named and the plan writes nothing to it, in a sentence; or nothing."""
    if folder is None or _stressed(plan):
        return ()
    sentence = (
        f"--scratch {folder} is not used: it is for the disk stress of a burn-in, and suite "
        f"{plan.suite} has none (--stress disk adds it to a suite of burn-in)"
    )
    return (sentence,)


def check(folder: Path | None, plan: Plan) -> None:
    """UsageError unless the folder, where one is named, takes the files of a plan's disk stress."""
    stressed = _stressed(plan)
    if folder is None or not stressed:
        return
    if not folder.is_dir():
        raise UsageError(f"--scratch is {folder}, which is no folder: name one on the disk to load")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--scratch is {folder}, where nobody may write: give permission there")
    most = max(int(case.parameters.get(LAUNCHES, 1)) for case in stressed)
    try:
        file_bytes(folder, most)
    except ValueError as error:
        raise UsageError(f"--scratch: {error}") from None
