"""Criteria that a baseline can carry, in TOML."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping

from appliance.errors import UsageError
from appliance.judging.verdict import IMPLIED
from appliance.statistics.tails import test_rate
from appliance.storage import criteria_file
from appliance.storage.device_file import LEAST_LAUNCHES

SLOW_RISK, LARGEST_SLOW_RATE = 0.01, 0.20
STAGE_SECONDS = 300
LEAST_DRIFT = 0.02  # that is limited; a healthy device has some of it


def criteria_of(
    margins: Mapping[str, float], name: str, *, num_baselines: int, load_seconds: float
) -> bytes:
    """What every run must show, and each case within a margin of its baseline.

    `load_seconds` is for how long the suite holds each device under load. The rate of slow launches
    is limited to what five launches of each case can show when two of all are slow; with so few
    that not even none shows 20 %, it is left out. UsageError for a baseline that carries no margin.
    """
    without = [case for case, margin in margins.items() if not math.isfinite(margin)]
    if without:
        raise UsageError(
            f"the baseline of {without[0]} carries no margin yet, so no criteria can be written: "
            "add runs of other days (`bench baseline plan` says how many)"
        )
    summary = f"Within the baselines of {len(margins)} cases"
    lines = [
        'schema = "bench/criteria/1"',
        f"name = {_quoted(name)}",
        "version = 1",
        f"summary = {_quoted(summary)}",
    ]
    for criterion in IMPLIED:
        lines += _entry(id=criterion.id, kind=criterion.kind, title=criterion.title)
    for case, margin in margins.items():
        lines += _speed_entry(case, margin)
    lines += _tail_entry(LEAST_LAUNCHES * num_baselines)
    lines += _drift_entry(max(margins.values()), load_seconds)
    text = ("\n".join(lines) + "\n").encode()
    criteria_file.parse_criteria(text, f"{name}.toml")
    return text


def _speed_entry(case: str, margin: float) -> list[str]:
    return _entry(
        id=f"speed-{case}",
        kind="perf",
        title=f"Step time of {case}",
        cases=case,
        metric="step_seconds",
        within_of_baseline=margin,
    )


def _tail_entry(launches: int) -> list[str]:
    """A limit on slow launches, if so many can show one."""
    rate = slow_rate(launches)
    if rate is None:
        return []
    return _entry(
        id="slow-launches",
        kind="tail",
        title="Slow launches, of all cases together",
        metric="slow_launch_rate",
        at_most=rate,
    )


def _drift_entry(margin: float, load_seconds: float) -> list[str]:
    """A limit on the drift of a device, if the suite can hold it under load for the stage."""
    if load_seconds < STAGE_SECONDS:
        held = f"the suite holds a device under load for {load_seconds:.0f} s at least"
        return ["", f"# Drift is not judged: {held}, and {STAGE_SECONDS} s show what heats."]
    return _entry(
        id="drift",
        kind="drift",
        title="Drift of a device over the run, of all its cases together",
        metric="drift_over_run",
        at_most=max(LEAST_DRIFT, margin),
        sustained_seconds=STAGE_SECONDS,
    )


def slow_rate(launches: int) -> float | None:
    """The smallest rate, in whole percent, that so many launches show when few of them are slow.

    At a risk of 1 %. Two slow ones are allowed, or one, or none, whichever still shows a rate of
    at most 20 %; None where not even none does. A healthy machine has a slow launch now and then.
    """
    percents = range(1, round(100 * LARGEST_SLOW_RATE) + 1)
    for slow, percent in itertools.product((2, 1, 0), percents):
        rate = percent / 100
        word = test_rate(slow, launches, limit=rate, risk_pass=SLOW_RISK, risk_fail=SLOW_RISK)
        if word == "pass":
            return rate
    return None


def _entry(**keys: str | float) -> list[str]:
    return [
        "",
        "[[criterion]]",
        *(
            f"{key} = {_quoted(value) if isinstance(value, str) else f'{value:g}'}"
            for key, value in keys.items()
        ),
    ]


def _quoted(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)
