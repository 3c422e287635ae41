"""The first moments of a run, before what plans it is imported: its name, and its first process.

It imports little, so that the process begins as soon as the command is read.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from appliance.errors import BenchError, EvidenceError, OutputError
from appliance.probe import node
from appliance.runner.head_start import HeadStart
from appliance.storage import suite_file
from appliance.verbs.run_options import RunOptions


def new_run_id(now: datetime) -> str:
    """A name for a run that no other has: its time and three random bytes."""
    return f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}", re.ASCII)


def work_folder(folder: Path, run_id: str) -> Path:
    """Where the run with this folder puts caches and artifacts, also when it goes on.

    It is removed at the end, with all that is in it. So EvidenceError for a name that no run has,
    which might lead elsewhere, and OutputError for a link, which somebody else has put there.
    """
    if not RUN_ID.fullmatch(run_id):
        raise EvidenceError(f"{folder / 'plan.json'} is of a run that cannot be called {run_id!r}")
    above = folder.parent / ".work"
    for path in (above, above / run_id):
        if path.is_symlink():
            raise OutputError(f"{path} is a link, and a run puts its caches in no other place")
    return above / run_id


def tidy(work: Path) -> None:
    """Remove this run's working folder, and the one above it when no other run uses it."""
    shutil.rmtree(work, ignore_errors=True)
    if os.environ.get("HOME") == str(work.parent):  # a container's, which nobody else can use
        shutil.rmtree(work.parent, ignore_errors=True)
    elif work.parent.is_dir() and not any(work.parent.iterdir()):
        work.parent.rmdir()


@contextmanager
def head_start(options: RunOptions) -> Iterator[HeadStart]:
    """The name of a new run; its first server imports already, where launches will be forked.

    Nothing is begun where a person decides first (a challenge, a run that goes on), and what is
    wrong with the options is left to the run to say. What was begun for no run is ended.
    """
    run_id = new_run_id(datetime.now(UTC))
    folder = options.out / run_id
    ahead = HeadStart(run_id)
    try:
        if (options.resume, options.challenge, options.receipt) == (None, None, None):
            with suppress(BenchError, OSError):
                vendor = node.present(options.vendor)
                suite, _ = suite_file.load_suite(options.suite_for(vendor.torch_type))
                if suite.protocol.mode == "forked":
                    ahead.begin(vendor, work_folder(folder, run_id))
        yield ahead
    finally:
        ahead.close()
        if not folder.exists():
            tidy(work_folder(folder, run_id))
