"""A sound run with a journal of any size: long blocks, and readings as a long load has them.

`python tests/support/large_runs.py MEGABYTES FOLDER` seals one there, for benchmarks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from support.builders import FIRST_TIMED
from support.bundles import Draft, analysed, files_of, healthy, seal

from appliance.records.journal import Block, Checked, Event, LaunchEnded, Reading
from appliance.records.vocabulary import THROTTLES
from appliance.signing.keys import Key, development_key
from appliance.storage import bundle

STEPS = 1000  # of a block
BLOCK_BYTES = 14 * STEPS
READING_BYTES = 620
SHARE = 0.4  # of the bytes that samples have


def large(num_bytes: int) -> Draft:
    """A draft whose journal has about so many bytes, in as many launches as a small one."""
    draft = healthy()
    blocks = sum(isinstance(event, Block) for event in draft.events)
    steps = max(STEPS, int(SHARE * num_bytes / blocks / 14))
    readings = int((1 - SHARE) * num_bytes / blocks / READING_BYTES)
    protocol = replace(draft.plan.protocol, block_steps=steps)
    plan = replace(draft.plan, protocol=protocol)
    events = list(_lengthened(draft.events, steps, readings))
    return replace(draft, plan=plan, events=tuple(analysed(plan, events)))


def _lengthened(events: Sequence[Event], steps: int, num_readings: int) -> Iterator[Event]:
    random = np.random.default_rng(1)
    timed_ns = 0
    for event in events:
        if isinstance(event, Block):
            yield from _readings(event.launch, num_readings, random)
            block = _longer(event, steps, random)
            timed_ns += block.block_wall_ns
            yield block
        elif isinstance(event, LaunchEnded):
            yield replace(event, wall_ns=event.wall_ns + timed_ns)
            timed_ns = 0
        elif isinstance(event, Checked) and event.phase == "last" and event.step:
            yield replace(event, step=FIRST_TIMED + 2 * steps - 1)
        else:
            yield event


def _longer(block: Block, steps: int, random: np.random.Generator) -> Block:
    walls = tuple((block.wall_ns[1] + random.integers(-2000, 2000, steps)).tolist())
    span = sum(walls) + 1000
    return replace(
        block,
        wall_ns=walls,
        first_step=FIRST_TIMED + block.index * steps,
        block_wall_ns=span,
        block_raw_ns=span,
    )


def _readings(launch: str, number: int, random: np.random.Generator) -> Iterator[Reading]:
    for power, heat, load in random.random((number, 3)).tolist():
        yield Reading(
            launch=launch,
            device="cpu:0",
            values={
                **{f"throttled_{name}": 0.0 for name in THROTTLES},
                "graphics_clock_hertz": round(1.9e9 + 1e7 * load, 0),
                "power_watts": round(600 + 50 * power, 3),
                "temperature_celsius": round(60 + 5 * heat, 2),
                "memory_used_bytes": 4e10,
                "utilisation_fraction": 1.0,
            },
        )


def sealed_large(folder: Path, num_bytes: int, key: Key) -> Path:
    """The bundle in a folder; its pages do not carry the journal, as those of a large run."""
    files = files_of(large(num_bytes), key)
    return seal(folder, files, key, carried=without_journal)


def without_journal(files: dict[str, bytes]) -> dict[str, bytes]:
    """What the pages of a large run carry."""
    return {name: data for name, data in files.items() if name != bundle.JOURNAL}


if __name__ == "__main__":
    sealed_large(Path(sys.argv[2]), int(float(sys.argv[1]) * 1e6), development_key())
