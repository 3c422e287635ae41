"""How much room a planned run takes on the disk, and whether its folder has that.

An estimate from above, for what a run leaves (journal, logs, pages) and for its working folder,
which goes when the run ends. Where the figures come from is in docs/reference/disk-space.md.
"""

from __future__ import annotations

import fcntl
import math
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from appliance.errors import OutputError
from appliance.generator.words import FILE
from appliance.readiness.out_folder import nearest
from appliance.records.plan import Case, Plan
from appliance.storage import bundle

MB = 10**6
LAUNCH_BYTES = 80_000
"""Of the journal: the largest mean of a recorded run is 76 kB, of a row whose repeats differ."""
READING_BYTES, READINGS_A_SECOND = 700, 2.0
"""Of each device while launches run; 665 to 677 bytes on an H100, 400 on processors."""
PAGES_PART, PAGES_BYTES = 2.5, 2 * MB
"""HTML and PDF carry the journal: 2.2 times its size together in runs of the smoke suite."""
LOG_BYTES = 20 * MB
"""Ten launches that fail and print without end, of which 1 MiB is kept of each stream."""
CACHE_BYTES = 64 * MB
"""What compilers and libraries cache while a run goes on."""
MODEL_BYTES = 8
"""A parameter of a model that is exported to a file, and what the export needs beside it."""
FILES_BYTES = MB
"""Plan, criteria, figures, verdict and signatures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Bytes on the disk, by what needs them."""

    journal: int
    pages: int
    logs: int
    work: int

    @property
    def total(self) -> int:
        return self.journal + self.pages + self.logs + self.work


def needed(plan: Plan) -> Room:
    """What a run by this plan takes at most, as far as is known."""
    devices = {name for case in plan.cases for name in case.all_devices}
    readings = plan.longest_seconds * READINGS_A_SECOND * READING_BYTES * len(devices)
    journal = FILES_BYTES + LAUNCH_BYTES * len(plan.launches) + math.ceil(readings)
    return Room(
        journal=journal,
        pages=PAGES_BYTES + math.ceil(PAGES_PART * journal),
        logs=LOG_BYTES,
        work=CACHE_BYTES + sum(map(_exported, plan.cases)) + sum(map(_read_back, plan.cases)),
    )


def check(out: Path, plan: Plan, *, journal_bytes: int = 0) -> None:
    """OutputError where the disk of `out` has no room for the run by this plan.

    `journal_bytes` are those that a run which goes on has written already.
    """
    room, free = needed(plan), free_bytes(out)
    room = replace(room, journal=max(0, room.journal - journal_bytes))
    if free < room.total:
        more = " more" if journal_bytes else ""
        fix = "then go on again" if journal_bytes else "or name another folder with --out"
        raise OutputError(
            f"{out} has {size(free)} free and the run may need {size(room.total)}{more} (journal "
            f"{size(room.journal)}, pages {size(room.pages)}, logs {size(room.logs)}, working "
            f"folder {size(room.work)}): make room there, {fix}"
        )


def drop_left_files(out: Path) -> None:
    """Remove the files that launches of killed runs were to read; who goes on writes them again.

    A run that is alive holds its journal locked. All else of a killed run stays for who goes on.
    """
    for path in out.glob(f".work/*/artifacts/*/*{FILE}"):
        journal = out / path.parents[2].name / bundle.JOURNAL
        with suppress(OSError), journal.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # BlockingIOError of one that is alive
            path.unlink(missing_ok=True)


def free_bytes(out: Path) -> int:
    """Bytes that this user may still write into `out`, or into its nearest parent."""
    disk = os.statvfs(nearest(out))
    return disk.f_bavail * disk.f_frsize


def size(number: int) -> str:
    """Bytes as a person says them, in units of 1000 as disks are sold."""
    if number >= 1000 * MB:
        return f"{number / 1000 / MB:.1f} GB"
    return f"{number / MB:.0f} MB"


def _exported(case: Case) -> int:
    """Of the file of a case's model, which ONNX Runtime reads."""
    is_served = "onnxruntime" in case.libraries
    return MODEL_BYTES * case.num_parameters if is_served and case.num_parameters else 0


def _read_back(case: Case) -> int:
    """Of the file that a case reads back, which goes with the last of its launches."""
    size = 0 if case.parameters.get("folder") else case.parameters.get("file_bytes")
    return size if isinstance(size, int) else 0
