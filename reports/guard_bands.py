"""Limits on times in the terms of JCGM 106: guard bands, risks, and what the baseline leaves open.

Bands and uncertainties are shown as parts of the step time; those of several limits as a range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from appliance.records.verdict import Statistic, Verdict
from appliance.storage.bundle import Bundle
from reports import words
from reports.words import count, percent

NOTHING = "-"


def row_value(bundle: Bundle, verdict: Verdict) -> str:
    """Guard bands of all limits on times that were tested, in one sentence; empty without any."""
    tested = list(_tested(verdict))
    if not tested:
        return ""
    bands = [_product(one.critical_pass, one.log_uncertainty) for one in tested]
    outer = [_product(one.critical_fail, one.log_uncertainty_fail) for one in tested]
    errors = [one.log_uncertainty or 0.0 for one in tested]
    return (
        f"JCGM 106: accepted below the limit less {_range(bands)}, rejected above it plus "
        f"{_range(outer)}; standard uncertainty {_range(errors)}{_of_baseline(bundle, tested)}"
    )


def _of_baseline(bundle: Bundle, tested: Sequence[Statistic]) -> str:
    """What of the uncertainty is the baseline's, and of how many runs that is."""
    errors = [one.log_limit_uncertainty for one in tested if one.log_limit_uncertainty]
    known = bundle.baselines.baseline
    if not errors or not known:
        return ""
    fewest = min(known, key=lambda one: one.num_runs)
    runs, launches = count(fewest.num_runs, "run"), count(fewest.num_launches, "launch", "launches")
    return f", of it the baseline's ({runs}, {launches}) {_range(errors)}"


def cells(statistic: Statistic) -> tuple[str, str]:
    """Up to where a value is accepted, and the standard uncertainty with its freedom."""
    if not _is_banded(statistic) or statistic.acceptance_limit is None:
        return NOTHING, NOTHING
    limit = words.measured(statistic.metric, statistic.acceptance_limit, statistic.unit)
    uncertainty = f"{percent(statistic.log_uncertainty or 0.0)} ({statistic.freedom:.3g})"
    return limit, uncertainty + _part_of_baseline(statistic)


def common_part(tested: Sequence[Statistic]) -> str:
    """The baseline's part in the uncertainty, where all figures have the same; else nothing."""
    parts = {_part_of_baseline(one) for one in tested if _is_banded(one)}
    return parts.pop() if len(parts) == 1 else ""


def _part_of_baseline(statistic: Statistic) -> str:
    part = statistic.log_limit_uncertainty
    return f", baseline {percent(part)}" if part else ""


def _tested(verdict: Verdict) -> Iterator[Statistic]:
    for ruling in verdict.rulings:
        one = ruling.statistic
        if ruling.required and one is not None and one.log_uncertainty is not None:
            yield one


def _is_banded(one: Statistic) -> bool:
    figures = (one.critical_pass, one.critical_fail, one.log_uncertainty, one.log_uncertainty_fail)
    return all(figure is not None and math.isfinite(figure) for figure in figures)


def _product(factor: float | None, uncertainty: float | None) -> float:
    return math.nan if factor is None or uncertainty is None else factor * uncertainty


def _range(logs: Sequence[float]) -> str:
    """The smallest and the largest of differences in ln, as parts."""
    finite = sorted(math.expm1(one) for one in logs if math.isfinite(one))
    if not finite:
        return "no finite width"
    ends = dict.fromkeys(percent(one) for one in (finite[0], finite[-1]))
    return " to ".join(ends)
