"""Copies between every two devices on paper: one square of rates, shaded by how far each lags.

A row copies from, a column to; both name devices of one vendor. The shade says how a rate stands to
the fastest of its square, in steps that a grey copy shows, and the figure stands in each field, so
nothing is read from a colour alone. A pair whose timing is not shown stands as a gap with a note.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from appliance.records.plan import Case, Plan
from appliance.records.verdict import CaseResult, Verdict
from reports import cases, words
from reports.model import PairCell, PairRow, PairSection
from reports.words import count

STEPS = (0.95, 0.9, 0.75, 0.5)
"""Parts of the fastest rate below which a field is one shade darker."""
GAP = "gap"
SELF = "self"
_GIGA = 1e9
_RATE = "units_per_second"


def sections(plan: Plan, verdict: Verdict) -> tuple[PairSection, ...]:
    """One for each case of the suite that is placed on pairs and moves bytes, in its order."""
    results = {result.case: result for result in verdict.cases}
    hidden = cases.untimed(plan, verdict)
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in plan.cases:
        if case.scope == "pair" and case.work.unit == "bytes" and len(case.all_devices) > 1:
            name, vendor = case.id.partition("@")[0], case.device.partition(":")[0]
            groups.setdefault((name, vendor), []).append(case)
    return tuple(
        _section(name, members, _rates(members, results, hidden))
        for (name, _), members in groups.items()
    )


def _rates(
    cases: Sequence[Case], results: Mapping[str, CaseResult], hidden: frozenset[str]
) -> Mapping[tuple[str, ...], float]:
    """Bytes per second by devices, of the pairs whose timing may be shown."""
    return {
        case.all_devices: estimate.value
        for case in cases
        if case.id in results and case.id not in hidden
        for estimate in results[case.id].estimates
        if estimate.name == _RATE
    }


def _section(
    name: str, cases: Sequence[Case], rates: Mapping[tuple[str, ...], float]
) -> PairSection:
    devices = list(dict.fromkeys(device for case in cases for device in case.all_devices))
    fastest = max(rates.values(), default=0.0)
    missing = [case.id for case in cases if case.all_devices not in rates]
    return PairSection(
        id=name,
        summary=cases[0].summary,
        columns=tuple(device.rpartition(":")[2] for device in devices),
        rows=tuple(
            PairRow(
                name=first,
                cells=tuple(
                    _cell(rates.get((first, second)), fastest, is_itself=first == second)
                    for second in devices
                ),
            )
            for first in devices
        ),
        notes=(_summary(list(rates.values())), *_missing(missing)),
    )


def _cell(rate: float | None, fastest: float, *, is_itself: bool) -> PairCell:
    if is_itself:
        return PairCell(text="", shade=SELF)
    if rate is None:
        return PairCell(text="—", shade=GAP)
    shade = sum(rate < step * fastest for step in STEPS)
    return PairCell(text=words.figure(rate / _GIGA, 4), shade=str(shade))


def _summary(rates: Sequence[float]) -> str:
    if not rates:
        return "No rate of any pair may be shown."
    slowest, middle, fastest = (
        words.quantity(value, "B/s") for value in (min(rates), statistics.median(rates), max(rates))
    )
    return (
        f"{count(len(rates), 'pair')}: slowest {slowest}, median {middle}, fastest {fastest}. "
        f"The slowest has {words.percent(min(rates) / max(rates))} of the fastest."
    )


def _missing(names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return ()
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if names[4:] else "")
    return (f"Without a rate, for the reason stated in their own sections: {shown}.",)
