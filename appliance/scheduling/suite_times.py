"""How long the shipped suites take on the devices that were qualified: appliance/suite_times.json.

The file is written by scripts/write_suite_times.py with the arithmetic of a plan, for one device of
each model whose qualified records the package has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from appliance.records.json import Number, Record
from appliance.storage.toml_file import ROOT, parse_json

PATH = ROOT / "appliance" / "suite_times.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTime(Record):
    """The planned minutes of a suite on one device of a model, as far as that holds its rows.

    `num_recorded` of its `num_cases` cases have a time in the model's qualified records, of
    `num_estimated` a step was timed there, of `num_assumed` it is assumed; the others have the
    allowance of the suite.
    `is_disturbed`: others used a machine on which recorded times were taken.
    """

    suite: str
    model: str
    minutes: Number
    num_cases: int
    num_recorded: int
    num_estimated: int = 0
    num_assumed: int = 0
    is_disturbed: bool

    @property
    def source(self) -> str:
        recorded = "recorded beside other load" if self.is_disturbed else "recorded"
        if self.num_recorded == self.num_cases:
            return recorded
        counts = {
            recorded: self.num_recorded,
            "estimated": self.num_estimated,
            "estimated of an assumed step": self.num_assumed,
        }
        known = [f"{count} {source}" for source, count in counts.items() if count]
        if not known:
            return "allowance"
        rest = ", else allowance" if sum(counts.values()) < self.num_cases else ""
        return f"of {self.num_cases} times {', '.join(known)}{rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTimes(Record):
    """appliance/suite_times.json: by suite and model, in this order."""

    schema: Literal["bench/suite-times/1"] = "bench/suite-times/1"
    time: tuple[SuiteTime, ...]


@cache
def load() -> tuple[SuiteTime, ...]:
    """The times of all shipped suites."""
    return parse_json(SuiteTimes, PATH.read_bytes(), PATH.name).time


def sentences(times: Sequence[SuiteTime]) -> tuple[str, ...]:
    """The minutes and what they are taken from; models of which both are the same share a line."""
    models: dict[tuple[str, str], list[str]] = {}
    for one in times:
        models.setdefault((amount(one.minutes), one.source), []).append(one.model)
    return tuple(
        f"{minutes} on {', '.join(names)} ({source})" for (minutes, source), names in models.items()
    )


def amount(minutes: float) -> str:
    """Minutes, with hours from an hour on: 6 h 18 min."""
    hours, rest = divmod(round(minutes), 60)
    words = (f"{hours} h" if hours else "", f"{rest} min" if rest or not hours else "")
    return " ".join(filter(None, words))
