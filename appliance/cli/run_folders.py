"""A run that a person names wrongly: the folder above it, or a file in it.

Each refusal names the command for what was meant.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from appliance.cli.output import bench
from appliance.errors import UsageError

RUNS = Path("out")
"""Where runs lie, unless --out says another."""
SHOWN_ALONE = {"report.pdf", "report.html", "statement.dsse.json"}
"""Files of a run that can be verified without its folder."""


def refuse_runs(path: Path, verb: str, *before: str | Path, after: Sequence[Path] = ()) -> None:
    """UsageError for a folder of runs where one run is asked for; it names that of the newest."""
    from appliance.storage import bundle

    names = names_in(path)
    if bundle.PLAN in names:
        return
    _refuse_number(path, verb, *before, after=after)
    runs = [path / name for name in sorted(names) if (path / name / bundle.PLAN).is_file()]
    if runs:
        words = map(str, (*before, runs[-1], *after))
        raise UsageError(
            f"{path} holds runs and is none itself: `{bench(verb, *words)}` is of the newest"
        )


def _refuse_number(path: Path, verb: str, *before: str | Path, after: Sequence[Path]) -> None:
    """UsageError for the number of a run of this folder; it names the run's own."""
    from appliance.storage import bundle

    meant = RUNS / path
    if not path.exists() and (meant / bundle.PLAN).is_file():
        words = map(str, (*before, meant, *after))
        raise UsageError(f"there is nothing at {path}: `{bench(verb, *words)}` is of that run")


def names_in(path: Path) -> set[str]:
    """What lies in a folder; nothing of what cannot be read, which is for the checks to refuse."""
    with suppress(OSError):
        return {one.name for one in path.iterdir()}
    return set()


def refuse_parts(path: Path, verb: str) -> None:
    """UsageError for a file of a run that shows nothing alone, and for a folder of other things."""
    from appliance.storage import bundle

    if path.name in {*bundle.FINISHED_FILES} - SHOWN_ALONE and path.is_file():
        raise UsageError(
            f"{path} alone shows nothing: `{bench(verb, str(path.parent))}` is of its whole run"
        )
    if path.is_dir() and os.access(path, os.R_OK) and not names_in(path) & {*bundle.FINISHED_FILES}:
        raise UsageError(f"{path} holds no file of a run: name out/<run id> or a report.pdf")
