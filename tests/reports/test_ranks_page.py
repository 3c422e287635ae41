"""A launch of two ranks on paper: the samples that were judged, their cut, and how many they are.

Both ranks tell their blocks, one after the other. The first ranks' steps are the samples: joined
with the second's they would be twice as many, and the cut would fall among other steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.builders import PROTOCOL, a_case, a_plan, healthy_events
from support.bundles import Draft, as_drawn, files_of

from appliance.records.journal import Block, Event, LaunchEnded
from appliance.signing import keys
from appliance.storage import bundle
from reports import cases
from reports.document.view import view

STEPS = 50  # of a block; the first of two blocks is that of a device that warms up
LEVELS_NS = (10_500_000, 10_000_000)
PLAN = as_drawn(
    a_plan(
        replace(a_case(launches=5), ranks=2, devices=("cpu:0",)),
        protocol=replace(PROTOCOL, blocks=2, block_steps=STEPS),
    )
)


def ranked(events: Sequence[Event]) -> Iterator[Event]:
    """The same launches made by two ranks, of which the second takes twice as long."""
    rng = np.random.default_rng(1)
    for event in events:
        match event:
            case Block():
                times = LEVELS_NS[event.index] * (1 + 1e-3 * rng.standard_normal(STEPS))
                for rank in (0, 1):
                    wall_ns = tuple(int((1 + rank) * time) for time in times)
                    held = sum(wall_ns) + 1000
                    yield replace(
                        event, rank=rank, wall_ns=wall_ns, block_wall_ns=held, block_raw_ns=held
                    )
            case LaunchEnded():
                yield replace(event, wall_ns=10**13)
            case _:
                yield event
                if hasattr(event, "rank"):
                    yield replace(event, rank=1)  # type: ignore[call-arg,type-var]


def test_a_launch_of_two_ranks_shows_the_samples_that_were_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(cases.plots, "launches", lambda _, strips, *__: drawn.extend(strips) or "")
    draft = Draft(plan=PLAN, events=tuple(ranked(healthy_events(PLAN))))
    made = bundle.read_files(files_of(draft, keys.development_key()), complete=False)
    (section,) = view(made).cases
    assert section.timing is not None
    assert section.timing.caption.startswith(f"{5 * 2 * STEPS} samples")
    for strip, row in zip(drawn, section.launches[1:], strict=True):
        blocks = [
            line.event
            for line in made.lines
            if isinstance(line.event, Block)
            and line.event.launch == f"gemm@cpu:0/{row.number}"
            and line.event.rank == 0
        ]
        judged_ms = [1e-6 * ns for block in blocks for ns in block.wall_ns]
        assert strip.samples == pytest.approx(judged_ms)
        assert strip.cut == STEPS
        assert min(strip.samples[: strip.cut]) > max(strip.samples[strip.cut :])
        assert [(level.first, level.last) for level in strip.levels] == [(0, 49), (50, 99)]
        assert row.steps == str(2 * STEPS)
        assert f"first {STEPS} cut" in row.series
