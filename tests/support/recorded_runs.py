"""Runs of a real device, converted by scripts/convert_journals.py, as today's records.

What is stored is read by today's schemas: a field that did not exist then has its default, which
means that it was not recorded. So the lines are chained anew where a bundle's bytes are wanted.
"""

import json
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from appliance.judging.verdict import Judge
from appliance.planning.criterion_scope import planned_bounds
from appliance.records.baseline import Baselines, Peaks
from appliance.records.criteria import Criteria
from appliance.records.journal import Event, InterimAnalysis, Line, RunStarted
from appliance.records.json import adapter, sha256, to_json
from appliance.records.plan import Plan
from appliance.records.qualified import Qualified
from appliance.records.system import System
from appliance.records.verdict import Ruling, Verdict
from appliance.storage import bundle, criteria_file, device_file
from appliance.storage.qualified_file import load_for_run

FOLDER = Path(__file__).parents[1] / "recorded" / "h100"
RUNS = sorted(path.parent.name for path in FOLDER.glob("*/plan.json"))
CRITERIA, CRITERIA_DATA = criteria_file.load_criteria("accelerator")


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """One run: its plan, its node, and its lines as they were stored."""

    plan: Plan
    system: System
    lines: tuple[Line, ...]

    @property
    def peaks(self) -> Peaks:
        """Today's figures of the vendor."""
        return device_file.load_peaks([one.model for one in self.system.identity.devices])

    @property
    def qualified(self) -> Qualified:
        """What is known today of repeats on this model."""
        return load_for_run(self.plan.cases, self.system.identity.devices)

    @property
    def criteria(self) -> Criteria:
        return CRITERIA

    def judge(self) -> Judge:
        """A judge of this run who has read nothing yet."""
        return Judge(
            plan=self.plan,
            criteria=self.criteria,
            baselines=Baselines(baseline=()),
            peaks=self.peaks,
            system=self.system,
            qualified=self.qualified,
        )


def stored_lines(name: str) -> list[bytes]:
    return lzma.decompress((FOLDER / name / "journal.jsonl.xz").read_bytes()).split(b"\n")[:-1]


@cache
def recorded_run(name: str) -> RecordedRun:
    """The run `name`, one of RUNS."""
    plan = _read(Plan, FOLDER / name / "plan.json")
    number, bounds = planned_bounds(CRITERIA, plan.cases, plan.protocol.interim_analyses)
    return RecordedRun(
        plan=replace(plan, num_limits=number, bounds=bounds),
        system=_read(System, FOLDER / "system.json"),
        lines=tuple(adapter(Line).validate_json(text) for text in stored_lines(name)),
    )


def _read(kind: type[Any], path: Path) -> Any:
    """A record by today's schema, whichever it was written by."""
    (schema,) = (one for one in fields(kind) if one.name == "schema")
    data = {**json.loads(path.read_bytes()), "schema": schema.default}
    return adapter(kind).validate_json(json.dumps(data))


@cache
def judged(name: str) -> Verdict:
    """Today's verdict of a recorded run, whose interim analyses are made again."""
    run = recorded_run(name)
    judge = run.judge()
    for line in analysed(run):
        judge.take(line)
    return judge.verdict()


def against(name: str) -> list[Ruling]:
    """The required rulings that do not pass, but for the one that it was converted."""
    return [
        ruling
        for ruling in judged(name).rulings
        if ruling.required
        and ruling.ruling not in ("pass", "not_applicable")
        and ruling.reason != "converted"
    ]


def analysed(run: RecordedRun) -> Iterator[Line]:
    """The lines, each interim analysis with today's answer in place of the recorded one."""
    judge = run.judge()
    for line in run.lines:
        if isinstance(line.event, InterimAnalysis):
            is_decided, reason = judge.interim_analysis(line.event.case)
            event = replace(line.event, is_decided=is_decided, reason=reason)
            line = replace(line, event=event)  # noqa: PLW2901 - the same line
        judge.take(line)
        yield line


# ------------------------------------------------------------------ as a bundle's files


def files_of(name: str, *, converted_from: str) -> dict[str, bytes]:
    """What `run` would have left of it, in today's bytes, and without the mark if it is empty."""
    run = recorded_run(name)
    files = {
        bundle.SYSTEM: to_json(run.system),
        bundle.CRITERIA: CRITERIA_DATA,
        bundle.BASELINES: to_json(Baselines(baseline=())),
        bundle.PEAKS: to_json(run.peaks),
        bundle.QUALIFIED: to_json(run.qualified),
    }
    digests = {
        "suite": run.plan.digests["suite"],
        "criteria": sha256(files[bundle.CRITERIA]),
        "baselines": sha256(files[bundle.BASELINES]),
        "peaks": sha256(files[bundle.PEAKS]),
        "qualified": sha256(files[bundle.QUALIFIED]),
        "identity": sha256(to_json(run.system.identity)),
    }
    plan = replace(run.plan, digests=digests, converted_from=converted_from)
    files[bundle.PLAN] = to_json(plan)
    files[bundle.JOURNAL] = _chained(list(analysed(run)), files)
    return files


def _chained(lines: Sequence[Line], files: dict[str, bytes]) -> bytes:
    prev, texts = sha256(files[bundle.PLAN]), []
    for line in lines:
        event: Event = line.event
        if isinstance(event, RunStarted):
            event = replace(event, plan=prev, system=sha256(files[bundle.SYSTEM]))
        texts.append(to_json(replace(line, prev=prev, event=event)))
        prev = sha256(texts[-1])
    return b"".join(text + b"\n" for text in texts)


def notes(name: str) -> dict[str, object]:
    """What was changed when it was converted."""
    marks: dict[str, object] = json.loads((FOLDER / name / "converted.json").read_text())
    return marks
