"""Runs that no baseline is made of, each with its reason; no option allows them.

What a device did beside others, too hot, held back, failing, or for a moment only is nothing to
hold another one to. Runs that overlap in time share what disturbs them, and are not independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

from appliance.errors import EvidenceError, UsageError
from appliance.evidence.baseline_key import device_name
from appliance.evidence.device_health import SHARE, Ledger
from appliance.evidence.disturbance import disturbance
from appliance.evidence.journal_index import JournalIndex, index_of
from appliance.judging.functional import injected
from appliance.judging.verdict import of_plan
from appliance.planning.criterion_scope import CHANCE_KINDS
from appliance.records.system import Device
from appliance.records.verdict import Verdict
from appliance.storage.device_file import LEAST_LAUNCHES
from appliance.verbs.baselines.measurements import Run

LARGEST_THROTTLE_SHARE = 0.02
"""Of the readings under load; one stray reading of 50 is so much."""
SLOWDOWN = "slowdown_temperature"
TEMPERATURES = ("temperature_celsius", "hotspot_temperature_celsius")
HOT = f"{SHARE}_thermal"


def check_distinct(runs: Sequence[Run]) -> None:
    """UsageError for the same run twice, which would look like two runs that agree."""
    known: dict[str, Path] = {}
    for run in runs:
        name = run.bundle.plan.run_id
        if name in known:
            raise UsageError(f"{run.folder} and {known[name]} are the same run: name it once")
        known[name] = run.folder


def check_apart(runs: Sequence[Run]) -> None:
    """UsageError for runs of one device that overlap in time."""
    for one, other in combinations(runs, 2):
        if not _devices(one) & _devices(other):
            continue
        for begin, end in one.spans:
            if any(begin < last and first < end for first, last in other.spans):
                raise UsageError(
                    f"{one.folder} and {other.folder} overlap in time on the same device: a "
                    "baseline is made of independent runs; leave one of them out"
                )


def check_usable(run: Run) -> None:
    """UsageError for a run with a fault, or a repeated launch, or in which anything was not right.

    EvidenceError where it has no verdict.
    """
    plan, verdict = run.bundle.plan, run.bundle.verdict
    injectors = {*plan.injectors, *filter(None, map(injected, plan.cases))}
    if injectors:
        raise UsageError(
            f"{run.folder} injected a fault ({min(injectors)}): a baseline is made of healthy runs"
        )
    if plan.rerun_of:
        raise UsageError(f"{run.folder} repeats {plan.rerun_of}: a baseline is made of whole runs")
    if verdict is None:
        raise EvidenceError(f"{run.folder} has no verdict")
    _check_right(run, verdict)
    index = index_of(plan, run.bundle.lines)
    for reason in (*_disturbed(run, index), *_heated(run, index), *_shortened(index)):
        raise UsageError(f"{run.folder} {reason}")


def _check_right(run: Run, verdict: Verdict) -> None:
    """Failing: a required criterion failed that no chance can fail, or a device grew slower."""
    kinds = {item.id: item.kind for item in of_plan(run.bundle.criteria, run.bundle.plan)}
    for ruling in verdict.rulings:
        kind = kinds.get(ruling.criterion, "completion")
        is_chance = kind in CHANCE_KINDS and kind != "drift"
        if ruling.required and ruling.ruling == "fail" and not is_chance:
            raise UsageError(
                f"{run.folder} was rejected ({ruling.explanation}): a baseline is made of runs "
                "whose results were right"
            )
    for result in verdict.cases:
        if result.withheld:
            raise UsageError(
                f"{run.folder}: the timing of {result.case} is withheld ({result.withheld}): "
                "a baseline is made of runs whose results were right"
            )


def _disturbed(run: Run, index: JournalIndex) -> Iterator[str]:
    for evidence in index.cases.values():
        clause = disturbance(evidence, run.bundle.system) if evidence.case.is_timed else ""
        if clause:
            yield (
                f"was disturbed in {evidence.case.id} ({clause}): a baseline is made of runs that "
                "had their devices alone; run it again"
            )


def _heated(run: Run, index: JournalIndex) -> Iterator[str]:
    """Devices that were too hot, or held back by another harmful reason."""
    cases = tuple(index.cases.values())
    for device in run.bundle.system.identity.devices:
        ledger = Ledger(device=device, run=index.run, cases=cases, scope="run")
        hottest, least = _hottest(ledger), _slowdown(device)
        thermal, harmful = (ledger.observe(name).high or 0.0 for name in (HOT, SHARE))
        if thermal > LARGEST_THROTTLE_SHARE or (least is not None and hottest >= least):
            yield (
                f"was hot: {device.id} came to {hottest:.0f} degrees and was slowed down by heat "
                f"in {100 * thermal:.0f} % of its readings; cool it and run it again"
            )
        elif harmful > LARGEST_THROTTLE_SHARE:
            yield (
                f"was throttled: {device.id} was held back in {100 * harmful:.0f} % of its "
                "readings; find out by what, and run it again"
            )


def _hottest(ledger: Ledger) -> float:
    return max(ledger.observe(name).high or 0.0 for name in TEMPERATURES)


def _slowdown(device: Device) -> float | None:
    fact = device.facts.get(SLOWDOWN)
    value = None if fact is None else fact.value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and value else None


def _shortened(index: JournalIndex) -> Iterator[str]:
    """Timed cases with fewer launches than a spread needs."""
    for evidence in index.cases.values():
        case = evidence.case
        if not case.is_timed or case.unsupported or case.software:
            continue
        completed = sum(launch.is_completed for launch in evidence.timed)
        if completed < LEAST_LAUNCHES:
            yield (
                f"is short: {completed} launches of {case.id} completed, and a run of a baseline "
                f"has {LEAST_LAUNCHES} of each case; run a longer suite to its end"
            )


def _devices(run: Run) -> set[str]:
    system = run.bundle.system
    return {device_name(system, device.id) for device in system.identity.devices}
