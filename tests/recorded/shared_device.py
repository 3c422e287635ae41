"""What a run recorded of an H100 on which another program computed, cut down to what is judged.

    python tests/recorded/shared_device.py JOURNAL    writes shared_device.jsonl from a journal

The journal is one of `bench run` (version 0.4.0, 2026-11-22, one H100 80GB HBM3, driver
580.159.04): one untimed and one timed launch of matrix products in bfloat16, beside another
program's matrix products. Kept are the times of the lines, readings, clocks and steps; serials,
counters, checks and paths are left out. Of readings the four values that say who uses the device.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from appliance.records.journal import Event, Line
from appliance.records.json import adapter

RECORD = Path(__file__).with_suffix(".jsonl")
KINDS = ("launch_started", "environment", "reading", "started", "calibrated", "warmed", "block")
VALUES = ("memory_used_bytes", "utilisation_fraction", "power_watts", "graphics_clock_hertz")


def lines() -> list[Line]:
    """The record as lines of a journal, without a chain."""
    return [adapter(Line).validate_json(text) for text in RECORD.read_text().splitlines()]


def events() -> list[tuple[int, Event]]:
    """The events with the nanoseconds at which they were recorded."""
    return [(line.monotonic_ns, line.event) for line in lines()]


def kept(journal: Path) -> Iterator[dict[str, object]]:
    """Lines of a journal as this record has them."""
    for number, text in enumerate(journal.read_text().splitlines()):
        line = json.loads(text)
        event = line["event"]
        if event["kind"] not in (*KINDS, "launch_ended"):
            continue
        if event["kind"] == "reading":
            event["values"] = {name: event["values"][name] for name in VALUES}
        if event["kind"] == "environment":
            event["facts"] = {}
        yield {
            "seq": number,
            "utc": line["utc"],
            "monotonic_ns": line["monotonic_ns"],
            "prev": "",
            "event": event,
        }


def main() -> None:
    text = "".join(json.dumps(line, sort_keys=True) + "\n" for line in kept(Path(sys.argv[1])))
    RECORD.write_text(text)


if __name__ == "__main__":
    main()
