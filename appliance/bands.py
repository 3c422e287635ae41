"""The verb `baseline bands`: has a child record what right training looks like on this processor.

A band is what loss curves are held to, so it is part of the package and of its version: a run
reads those in workloads/bands of its own package and no others, and nobody can bring one along to
a run. Recording therefore writes into a source checkout, where a change of a band is a change of
the code, to be looked at like any other. Elsewhere a folder must be named, and what is written
there is of use only once it lies in a checkout.

This process imports no torch; the child (`workloads.recording`) does everything, and says how it
goes on stderr.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import appliance
from appliance.catalog import did_you_mean
from appliance.environment import child_environment, usable_cores
from appliance.errors import ApplianceError, OutputError, RunInterrupted, UsageError

DTYPES = ("float32", "bfloat16")
INTERRUPTED = 130
ROOT = Path(appliance.__file__).parents[1]


def record(
    names: Sequence[str], *, dtypes: Sequence[str], out: Path | None, data: Path | None
) -> Mapping[str, Any]:
    """Record bands and write their files; what was written and left out, as plain JSON values.

    `data` is the folder of the data sets. Raises UsageError for a name, a dtype or a folder that
    cannot be, ApplianceError if the child fails.
    """
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise UsageError(f'there is no band of dtype "{dtype}"{did_you_mean(dtype, DTYPES)}')
    folder = _folder(out)
    request = {
        "cores": usable_cores(),
        "data": None if data is None else str(data.resolve()),
        "dtypes": list(dict.fromkeys(dtypes)),
        "names": list(dict.fromkeys(names)),
        "out": str(folder.resolve()),
    }
    summary = _asked(request)
    if summary["refused"]:
        raise UsageError(summary["refused"])
    return summary


def exit_code(summary: Mapping[str, Any], names: Sequence[str]) -> int:
    """0, or 2 if something that was named could not be recorded, or nothing could."""
    is_short = bool(summary["left_out"]) and (bool(names) or not summary["recorded"])
    return UsageError.exit_code if is_short else 0


def _folder(out: Path | None) -> Path:
    """Where the files go; made if a folder was named that is not there yet."""
    if out is None:
        shipped = ROOT / "workloads" / "bands"
        if not (ROOT / "pyproject.toml").is_file() or not os.access(shipped, os.W_OK):
            raise UsageError(
                "bands belong to the package, and this is no source checkout that can be written "
                "to: name a folder with --out, and copy its files into workloads/bands of one"
            )
        return shipped
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"--out {out} cannot be made a folder ({error.strerror})") from None
    if not os.access(out, os.W_OK):
        raise OutputError(f"--out {out} cannot be written to: name another folder")
    return out


def _asked(request: Mapping[str, object]) -> dict[str, Any]:
    question = json.dumps(request, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    with tempfile.TemporaryDirectory(prefix="bench-") as work:
        environment = child_environment(
            inherited=os.environ, work=Path(work), num_threads=1, vendor={}, tokens={}
        )
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-P", "-m", "workloads.recording", "record", str(os.getpid())],
            input=question.encode(),
            stdout=subprocess.PIPE,
            env=environment,
            cwd=work,
            check=False,
        )
    if done.returncode == INTERRUPTED:
        raise RunInterrupted("stopped; the bands that were finished are written")
    if done.returncode != 0:
        raise ApplianceError(
            f"the bands were not recorded (exit status {done.returncode}): the lines above say why"
        )
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary
