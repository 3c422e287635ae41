"""Criteria: appliance/criteria/NAME.toml, read and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from appliance.errors import UsageError
from appliance.records.criteria import MARGINS, Criteria, Criterion
from appliance.storage.toml_file import ROOT, did_you_mean, find, parse, parse_own, unique
from appliance.storage.units import METRIC_UNITS, RATES, UNITS

CRITERIA = ROOT / "appliance" / "criteria"
FUNCTIONAL_KINDS = ("completion", "integrity", "numeric", "determinism")
CHECK_KINDS = ("exact", "trajectory", "collective")
LIMIT_KEYS = ("at_least", "at_most", "equals", "fraction_of_peak", "within_of_baseline")
KIND_METRICS = {
    "perf": (
        "step_seconds",
        "first_step_seconds",
        "seconds_to_target",
        "steps_to_target",
        "throughput_ratio",
        *RATES,
    ),
    "tail": ("stall_rate", "stall_share", "latency_seconds", "slow_launch_rate"),
    "drift": ("drift_over_run", "drift_per_30_minutes"),
}
PARTS = (  # limits below 1
    "stall_rate",
    "stall_share",
    "slow_launch_rate",
    "drift_over_run",
    "drift_per_30_minutes",
)
LONGEST_STAGE = 7 * 24 * 3600.0
WITHOUT_BASELINE = (
    "first_step_seconds",
    "seconds_to_target",
    "steps_to_target",
    "throughput_ratio",
)
ORDER_LINE = "order:"  # how the requirements of an order are named, which no criterion may be
LARGEST_RISK = 0.05
LARGEST_MARGIN = 10.0

LONGEST_TITLE = 120
"""Characters; what stands in every table must leave room for the rest."""


def list_criteria() -> tuple[str, ...]:
    """Names of the criteria files that are shipped."""
    return tuple(sorted(path.stem for path in CRITERIA.glob("*.toml")))


def load_criteria(name_or_path: str) -> tuple[Criteria, bytes]:
    """Criteria and the bytes that they were read from, which go into the bundle."""
    path, data = find("criteria", name_or_path, CRITERIA)
    read = parse_own if path.parent == CRITERIA else parse
    return _checked(read(Criteria, data, path.name), path.name), data


def parse_criteria(data: bytes, name: str) -> Criteria:
    """Criteria from the bytes of a file called `name`; UsageError if a limit cannot be judged."""
    return _checked(parse(Criteria, data, name), name)


def _checked(criteria: Criteria, name: str) -> Criteria:
    """The criteria with all margins; UsageError for one that cannot be judged."""
    _check_risks(criteria, name)
    criteria = replace(criteria, margins={**MARGINS, **criteria.margins})
    unique(name, "criterion", [criterion.id for criterion in criteria.criterion])
    for number, criterion in enumerate(criteria.criterion, 1):
        unseen = _text_fault({"id": criterion.id, "title": criterion.title})
        if unseen:
            raise UsageError(f"{name}: criterion {number} {unseen}")
        if criterion.id.startswith(ORDER_LINE):
            raise UsageError(f'{name}: criterion "{criterion.id}" is named like a line of an order')
        fault = _fault(criterion)
        if fault:
            raise UsageError(f'{name}: criterion "{criterion.id}" {fault}')
    return criteria


def _check_risks(criteria: Criteria, name: str) -> None:
    for key in ("alpha_pass", "alpha_fail"):
        risk = getattr(criteria, key)
        if not 0.0 < risk <= LARGEST_RISK:
            raise UsageError(f'{name}: key "{key}" is {risk}; it must lie between 0 and 0.05')
    for bound, margin in criteria.margins.items():
        if bound not in MARGINS:
            raise UsageError(
                f'{name}: unknown key "{bound}" of margins{did_you_mean(bound, MARGINS)}'
            )
        if not 0.0 < margin <= LARGEST_MARGIN:
            raise UsageError(
                f'{name}: key "{bound}" of margins is {margin}; it must be a positive number'
            )


def _text_fault(texts: Mapping[str, str]) -> str:
    """A name that no table has room for, or that hides something from whoever reads it."""
    for key, text in texts.items():
        if not 0 < len(text.strip()) <= LONGEST_TITLE:
            return f'needs a key "{key}" of 1 to {LONGEST_TITLE} characters'
        if not text.isprintable():
            return f'has a character in its key "{key}" that cannot be seen: take it out'
    return ""


def _fault(criterion: Criterion) -> str:
    """Why this criterion cannot be judged, or nothing."""
    limits = [key for key in LIMIT_KEYS if getattr(criterion, key) is not None]
    if criterion.kind in FUNCTIONAL_KINDS:
        if not criterion.required or limits or criterion.metric:
            return "is functional: it is always required and takes no limit"
        return ""
    if criterion.kind in CHECK_KINDS:
        return "takes no limit: its checks have their own bounds" if limits else ""
    if criterion.kind == "fabric":
        is_bare = not limits and not criterion.metric and criterion.cases == "*"
        return "" if is_bare else "is of all devices: it takes no metric, no limit and no cases"
    return _measured_fault(criterion, limits)


def _measured_fault(criterion: Criterion, limits: Sequence[str]) -> str:
    """The same, of a criterion on a metric."""
    if not criterion.metric:
        return 'needs a "metric"'
    for fault in (
        _metric_fault,
        _number_fault,
        _choice_fault,
        _quantile_fault,
        _against_fault,
        _stage_fault,
    ):
        reason = fault(criterion, limits)
        if reason:
            return reason
    return ""


def _stage_fault(criterion: Criterion, _: Sequence[str]) -> str:
    """A sustained stage of what is no drift, of no length, or none where it is needed."""
    seconds = criterion.sustained_seconds
    if seconds is None:
        needs_it = criterion.metric == "drift_over_run"
        return 'needs "sustained_seconds", the least time under load' if needs_it else ""
    if criterion.kind != "drift":
        return 'has "sustained_seconds", which only drift takes'
    if not 0.0 < seconds <= LONGEST_STAGE:
        return f'has {seconds} for "sustained_seconds": give more than 0 and at most a week'
    return ""


def _metric_fault(criterion: Criterion, _: Sequence[str]) -> str:
    """A metric that this kind does not judge, or a limit in a unit that is not the metric's."""
    if criterion.kind == "health" and criterion.unit:
        return (
            f'writes {criterion.metric} in "{criterion.unit}": leave the unit out; counters are '
            "numbers, and readings are in the unit that their name ends in"
        )
    metrics = KIND_METRICS.get(criterion.kind)
    if metrics is None:
        return ""
    if criterion.metric not in metrics:
        hint = did_you_mean(criterion.metric, metrics)
        return f'is of kind {criterion.kind}, which does not judge "{criterion.metric}"{hint}'
    wanted = METRIC_UNITS[criterion.metric]
    units = [unit for unit, (standard, _) in UNITS.items() if standard == wanted]
    if criterion.unit and criterion.unit not in units:
        known = f"use {', '.join(units)}" if units else "leave the unit out"
        return f'writes {criterion.metric} in "{criterion.unit}": {known}'
    return ""


def _number_fault(criterion: Criterion, limits: Sequence[str]) -> str:
    """A limit that is no number, or one that everything or nothing can meet."""
    for key in (*limits, *(("margin",) if criterion.margin is not None else ())):
        value = getattr(criterion, key)
        if isinstance(value, bool | str):
            continue
        if not math.isfinite(value):
            return f'has {value} for "{key}": give a finite number'
        if value <= 0 and criterion.kind not in ("health", "inventory"):
            return f"has the limit {value}, which nothing can meet: give a positive number"
        if key == "fraction_of_peak" and value > 1:
            return f"asks for {value} of the peak, which nothing can reach: give at most 1"
        if criterion.metric in PARTS and value >= 1:
            return f"has the limit {value}, which everything meets: give a part below 1"
    return ""


def _choice_fault(criterion: Criterion, limits: Sequence[str]) -> str:
    """Not exactly one limit of those that the kind and the metric take."""
    allowed = {
        "perf": ("at_most", "at_least", "fraction_of_peak", "within_of_baseline"),
        "health": ("at_least", "at_most"),
        "inventory": ("equals", "at_least", "at_most"),
    }.get(criterion.kind, ("at_most",))
    if len(limits) != 1 or limits[0] not in allowed:
        names = " and ".join(f'"{key}"' for key in allowed)
        return f"needs {'one of ' if len(allowed) > 1 else ''}{names} and no other limit"
    limit = limits[0]
    if criterion.kind == "perf" and limit in ("at_most", "at_least"):
        word = "at_least" if criterion.metric in (*RATES, "throughput_ratio") else "at_most"
        if limit != word:
            return f'judges {criterion.metric}, so its limit must be "{word}"'
    is_rate_of_peak = criterion.metric in ("flops_per_second", "bytes_per_second")
    if limit == "fraction_of_peak" and not is_rate_of_peak:
        return f"has no peak to be compared with: {criterion.metric} is no rate of operations"
    if limit == "within_of_baseline" and criterion.metric in WITHOUT_BASELINE:
        return f"has no baseline: {criterion.metric} takes an absolute limit"
    return ""


def _against_fault(criterion: Criterion, _: Sequence[str]) -> str:
    is_ratio = criterion.metric == "throughput_ratio"
    if is_ratio and not criterion.against.strip():
        return 'needs "against", the case that the speed is compared with'
    if criterion.against and not is_ratio:
        return f'judges {criterion.metric}, which takes no "against"'
    return ""


def _quantile_fault(criterion: Criterion, _: Sequence[str]) -> str:
    is_wanted = criterion.metric == "latency_seconds"
    if is_wanted and (criterion.quantile is None or not 0.0 < criterion.quantile < 1.0):
        return 'needs a "quantile" between 0 and 1, like 0.99'
    if not is_wanted and criterion.quantile is not None:
        return f'judges {criterion.metric}, which takes no "quantile"'
    for name in ("if_absent", "if_not_observed"):
        if getattr(criterion, name) == "not_applicable" and criterion.kind != "health":
            return f'is no criterion of health, which alone takes "{name}"'
    return ""
