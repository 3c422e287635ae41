"""Records on this processor what loss curves of right training look like; `make bands` runs it.

    scripts/record_bands.py [--workload NAME]... [--dtype DTYPE]... [--out FOLDER] [--data FOLDER]

A band is what loss curves are held to, so it is part of the package and of its version: a run
reads those in workloads/bands of its own package and no others, and nobody can bring one along to
a run. Recording therefore writes into this checkout, where a change of a band is a change of the
code, to be reviewed like any other; what is written into another folder is of use only once it
lies in a checkout.

This process imports no torch; the child (`workloads.recording`) does everything, and reports its
progress on stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.errors import (  # noqa: E402 - the same
    ApplianceError,
    BenchError,
    OutputError,
    RunInterrupted,
    UsageError,
)
from appliance.runner.environment import child_environment, usable_cores  # noqa: E402 - the same
from appliance.storage.toml_file import did_you_mean  # noqa: E402 - the same
from appliance.verbs import datasets  # noqa: E402 - the script runs where nothing is installed

BANDS = ROOT / "workloads" / "bands"
DTYPES = ("float32", "bfloat16")
INTERRUPTED = 130


def record(
    names: Sequence[str], *, dtypes: Sequence[str], out: Path, data: Path | None
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


def _folder(out: Path) -> Path:
    """Where the files go; made if it is not there yet."""
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


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="record loss curves of right training")
    parser.add_argument("--workload", action="append", default=[], help="all that train if none")
    parser.add_argument("--dtype", action="append", default=[], help="else float32 and bfloat16")
    parser.add_argument("--out", type=Path, default=BANDS, help="folder for the files")
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Record what is asked for; the exit code."""
    given = _arguments(words)
    try:
        data = datasets.folder(given.data)
        summary = record(given.workload, dtypes=given.dtype, out=given.out, data=data)
    except BenchError as error:
        print(f"record_bands: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    if given.json:
        print(json.dumps(summary, indent=2))
    print(f"{len(summary['recorded'])} bands recorded", file=sys.stderr)
    return exit_code(summary, given.workload)


if __name__ == "__main__":
    raise SystemExit(main())
