"""What a judge holds of each launch of a large node: he reads tens of thousands of them.

Bytes are those that Python has given out (tracemalloc), so that they are the same anywhere.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from support.large_nodes import large

from appliance.judging.verdict import Judge
from appliance.records.journal import LaunchStarted
from appliance.storage import bundle
from appliance.storage.bundle import Bundle
from appliance.verification.run_checks import check_interim_analyses

ROWS = 6
FOR_PLANNED = 600
"""Bytes for a launch that is planned, 440 as measured: most lists of most stay empty."""
FOR_MADE = 8_200
"""Bytes of all for each that was made, 7,320 as measured; the journal has 5,600 of each."""


@pytest.fixture(scope="module")
def run() -> Bundle:
    return large(1, rows=ROWS)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_a_judge_holds_little_of_each_launch(run: Bundle) -> None:
    before, _ = tracemalloc.get_traced_memory()
    judge = judge_of(run)
    planned, _ = tracemalloc.get_traced_memory()
    assert (planned - before) / len(run.plan.launches) < FOR_PLANNED
    lines = iter(bundle.lines_of(run.files))
    assert check_interim_analyses(judge, lines) > 0
    del lines
    made, _ = tracemalloc.get_traced_memory()
    num_made = sum(isinstance(line.event, LaunchStarted) for line in run.lines)
    assert num_made > 50
    assert (made - before) / num_made < FOR_MADE


def judge_of(run: Bundle) -> Judge:
    return Judge(
        plan=run.plan,
        criteria=run.criteria,
        baselines=run.baselines,
        peaks=run.peaks,
        qualified=run.qualified,
        system=run.system,
    )
