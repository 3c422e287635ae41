"""What rows of `acceptance` took at full size on one H100, by the moments of their records.

The journals lie in tests/recorded: h100_0_12/rows_a and rows_b of bench 0.12.0, h100_0_13/rows of
the code after it on another such device, each of a suite of these rows with few steps that was
stopped after some minutes. The stack is that of measured_budget.py. What passed between two records
of a launch went into what the later one reports.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "tests" / "recorded"
JOURNALS = {
    "h100_0_12/rows_a": "0.12.0",
    "h100_0_12/rows_b": "0.12.0",
    "h100_0_13/rows": "0.13.0",
}
LEAST_SECONDS = 1.0
"""A part that took less is not named."""
SAID = ("reading", "counted", "launch_ahead", "ahead_ended")
"""Records that no launch sends."""
NAMES = {
    "environment": "start and imports",
    "started": "build, first step and what is copied before it",
    "digested": "digest",
    "artifact": "reference",
    "launch_ended": "until it ended",
    "stage_times": "until it ended",
}


@dataclass
class Row:
    """A launch: when it began, its last record so far, seconds of its parts, and how it ended."""

    begin: float
    last: float
    parts: dict[str, float] = field(default_factory=dict)
    ended: str = ""


def section() -> Iterator[str]:
    """Lines of a table of all launches."""
    yield "| row | bench | s in all | ended | parts of a second and more, s |"
    yield "|---|---|---:|---|---|"
    for journal, version in JOURNALS.items():
        for launch, row in _rows(journal).items():
            parts = sorted(row.parts.items(), key=lambda part: -part[1])
            named = ", ".join(f"{name} {s:.1f}" for name, s in parts if s >= LEAST_SECONDS)
            case = launch.partition("@")[0]
            seconds = row.last - row.begin
            yield f"| `{case}` | {version} | {seconds:.1f} | {row.ended} | {named} |"


def _rows(journal: str) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for line in lzma.decompress((FOLDER / f"{journal}.jsonl.xz").read_bytes()).splitlines():
        record = json.loads(line)
        event, now = record["event"], 1e-9 * int(record["monotonic_ns"])
        launch = event.get("launch", "")
        if event["kind"] == "launch_started":
            rows[launch] = Row(begin=now, last=now)
        elif launch in rows and event["kind"] not in SAID:
            _take(rows[launch], event, now)
    return rows


def _take(row: Row, event: Mapping[str, Any], now: float) -> None:
    check = event.get("check") or {}
    name = f'"{check["name"]}"' if check else NAMES.get(event["kind"], "all else")
    row.parts[name] = row.parts.get(name, 0.0) + now - row.last
    row.last = now
    if event["kind"] == "launch_ended":
        cut = event["outcome"] == "interrupted"
        row.ended = "stopped" if cut else event["reason"].replace("_", " ") or event["outcome"]
