"""The verb `baseline check`: whether a file of baselines is sound, and can be used on this node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from appliance.errors import UsageError
from appliance.evidence.baseline_key import least_of, misfit
from appliance.judging.criteria_check import PEAK_SLACK, rounded_up
from appliance.planning.criterion_scope import matches
from appliance.records.baseline import Baseline, Baselines, Peaks
from appliance.records.criteria import Criteria
from appliance.records.json import Record
from appliance.records.request import Answer, CaseRequest, Lacking, Refused
from appliance.records.system import Device, System
from appliance.records.workload import Bound, Description, Resolved, Work
from appliance.storage import device_file
from appliance.verbs.baselines.create import some_of
from appliance.verbs.baselines.plan import carried_in

Status = Literal["pass", "fail", "misfit", "not_done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Record):
    """One thing that was checked: "misfit" is sound, but for another machine."""

    name: str
    status: Status
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings(Record):
    """What `baseline check` says of a file, and the exit code that it comes to.

    0: sound, and every case can be compared here; 2: a figure or a margin that cannot be used;
    3: sound, but not for this node and its software.
    """

    path: str
    num_baselines: int
    findings: tuple[Finding, ...]
    exit_code: int


@dataclass(frozen=True, kw_only=True)
class _Known:
    """A baseline and what this appliance knows of its workload, if it still has it."""

    baseline: Baseline
    version: int | None = None
    bound_by: Bound = "compute"
    work: Work = field(default_factory=Work)


def load(path: Path) -> Baselines:
    """The baselines of a file; UsageError if there is none in it or one is not sound."""
    baselines = device_file.load_baselines((), path)
    if not baselines.baseline:
        raise UsageError(f"{path} has no baseline in it")
    return baselines


def requests(baselines: Baselines) -> tuple[CaseRequest, ...]:
    """Requests to the worker, to know the work of each baseline's step."""
    return tuple(
        CaseRequest(workload=item.key.workload, small=False, parameters=item.key.parameters)
        for item in baselines.baseline
    )


def check(
    path: Path,
    baselines: Baselines,
    *,
    system: System,
    answer: Answer,
    criteria: Criteria | None = None,
    sessions: int = 1,
) -> Findings:
    """Whether these baselines are plausible, fit this node, and carry the criteria's margins.

    Margins are those of runs of so many sessions. `answer` is the worker's, to
    `requests` of the same baselines.
    """
    known = _known(baselines, answer)
    peaks = device_file.load_peaks([item.key.model for item in baselines.baseline])
    findings = (
        Finding(
            name="figures",
            status="pass",
            sentence=f"{len(known)} baselines, each of positive and finite figures",
        ),
        _plausibility(known, peaks, system),
        _margins(known, criteria, sessions),
        _fit(known, system),
    )
    statuses = {finding.status for finding in findings}
    exit_code = 2 if "fail" in statuses else 3 if "misfit" in statuses else 0
    return Findings(
        path=str(path), num_baselines=len(known), findings=findings, exit_code=exit_code
    )


def _known(baselines: Baselines, answer: Answer) -> list[_Known]:
    descriptions = {item.name: item for item in answer.descriptions}
    return [
        _known_of(baseline, descriptions.get(baseline.key.workload), resolved)
        for baseline, resolved in zip(baselines.baseline, answer.resolved, strict=True)
    ]


def _known_of(
    baseline: Baseline, description: Description | None, resolved: Resolved | Refused | Lacking
) -> _Known:
    if description is None or not isinstance(resolved, Resolved):
        return _Known(baseline=baseline)
    return _Known(
        baseline=baseline,
        version=description.version,
        bound_by=description.bound_by,
        work=resolved.work,
    )


def _plausibility(known: Sequence[_Known], peaks: Peaks, system: System) -> Finding:
    """No rate above the vendor's figure, as far as one is known."""
    devices = {device.model: device for device in system.identity.devices}
    num_bounded = 0
    for item in known:
        model = item.baseline.key.model
        device = devices.get(model) or _nowhere(model)
        least = least_of(peaks, device, item.work, item.bound_by)
        if least is None:
            continue
        num_bounded += 1
        seconds = math.exp(item.baseline.steps.log_seconds)
        if seconds * PEAK_SLACK < least:
            return Finding(
                name="peaks",
                status="fail",
                sentence=f"{item.baseline.key.case} says {seconds:.3g} s a step, and by the "
                f"vendor's figures {model} cannot take less than {least:.3g} s: make it again",
            )
    if not num_bounded:
        sentence = "the vendor's figures that would bound these cases are not known"
        return Finding(name="peaks", status="not_done", sentence=sentence)
    sentence = f"{num_bounded} of {len(known)} have a vendor's figure, and none is above it"
    return Finding(name="peaks", status="pass", sentence=sentence)


def _nowhere(model: str) -> Device:
    """A device of which nothing but its model is known."""
    return Device(id="", vendor="", index=0, model=model, serial=None, memory_bytes=None, facts={})


def _margins(known: Sequence[_Known], criteria: Criteria | None, sessions: int) -> Finding:
    if criteria is None:
        sentence = "no criteria were named; --criteria FILE compares their margins"
        return Finding(name="margins", status="not_done", sentence=sentence)
    num_compared = 0
    for criterion in criteria.criterion:
        within = criterion.within_of_baseline
        if criterion.kind != "perf" or within is None:
            continue
        for item in known:
            baseline = item.baseline
            if not matches(criterion, baseline.key.case):
                continue
            num_compared += 1
            margin = criteria.margins[item.bound_by] if isinstance(within, str) else within
            carried = carried_in(baseline, sessions)
            if margin < carried:
                return Finding(
                    name="margins",
                    status="fail",
                    sentence=f'criterion "{criterion.id}" lets {baseline.key.case} lose '
                    f"{margin:g}, less than it carries {_in(sessions)}: {_remedy(carried)}",
                )
    if not num_compared:
        sentence = "no criterion judges one of these cases against its baseline"
        return Finding(name="margins", status="not_done", sentence=sentence)
    sentence = f"{num_compared} margins, none below what its baseline carries {_in(sessions)}"
    return Finding(name="margins", status="pass", sentence=sentence)


def _in(sessions: int) -> str:
    return f"in a run of {sessions} session{'s' if sessions > 1 else ''}"


def _remedy(carried: float) -> str:
    more = "add runs to the baseline or plan more sessions (`bench baseline plan` says how many)"
    if not math.isfinite(carried):
        return more
    return f"raise it to at least {rounded_up(carried):g}, or {more}"


def _fit(known: Sequence[_Known], system: System) -> Finding:
    """Whether each case has a baseline that is comparable on this node."""
    misfits: dict[str, str] = {}
    fits: set[str] = set()
    for item in known:
        clause = _version_clause(item) or misfit(item.baseline, system)
        if clause:
            misfits.setdefault(item.baseline.key.case, clause)
        else:
            fits.add(item.baseline.key.case)
    missing = [case for case in misfits if case not in fits]
    if not missing:
        sentence = f"{len(fits)} cases can be compared on this node, with this software"
        return Finding(name="fit", status="pass", sentence=sentence)
    sentence = f"{some_of(missing)} cannot be compared here: {misfits[missing[0]]}"
    return Finding(name="fit", status="misfit", sentence=sentence)


def _version_clause(item: _Known) -> str:
    key = item.baseline.key
    if item.version is None:
        return f"this appliance has no workload {key.workload} with these parameters"
    if item.version != key.version:
        return (
            f"the baseline is for version {key.version} of {key.workload}, this appliance has "
            f"{item.version}"
        )
    return ""
