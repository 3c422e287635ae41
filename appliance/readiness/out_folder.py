"""Whether a folder takes a run's files: shown by writing one there, as permissions do not say it.

A file system that is mounted for reading, is full, or maps root to nobody refuses what the
permissions allow. `doctor`, `start` and the verbs that make runs ask here, so they say the same.
"""

from __future__ import annotations

import errno
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import OutputError

TRIAL = bytes(4096)
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
ANOTHER = "name another with --out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a folder takes no run, and what to do."""

    reason: str
    fix: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.fix}"


def refusal(out: Path) -> Refusal | None:
    """Why no run can be put into `out`, or None; nothing stays behind, and `out` is not made."""
    try:
        if (out / "plan.json").exists():
            fix = f"use --resume {out}, or another --out"
            return Refusal(reason=f"{out} is the folder of a run", fix=fix)
        there = nearest(out)
        if not there.is_dir():
            return Refusal(reason=f"{there} is not a folder", fix=ANOTHER)
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=there) as trial:
            _write(Path(trial) / "trial")
    except OSError as error:
        return _refused(out, error)
    return None


def check_writable(out: Path) -> None:
    """Make the folder and try to write there; OutputError unless runs can be put into it."""
    refused = refusal(out)
    if refused is None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{out} cannot be made ({error.strerror}); {ANOTHER}") from None
        refused = refusal(out)
    if refused is not None:
        raise OutputError(str(refused))


def nearest(out: Path) -> Path:
    """`out`, or the nearest of its parents that there is; OSError where none may be looked at."""
    whole = out.absolute()
    return next(one for one in (whole, *whole.parents) if one.exists())


def _write(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if os.write(descriptor, TRIAL) < len(TRIAL):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)  # some file systems find out only now that they are full
    finally:
        os.close(descriptor)


def _refused(out: Path, error: OSError) -> Refusal:
    if error.errno in FULL:
        fix = "make room there, or name another folder with --out"
        return Refusal(reason=f"{out} takes no file more ({error.strerror})", fix=fix)
    why = f" ({error.strerror})" if error.errno not in (errno.EACCES, errno.EPERM) else ""
    return Refusal(reason=f"{out} is not writable by user {os.geteuid()}{why}", fix=ANOTHER)
