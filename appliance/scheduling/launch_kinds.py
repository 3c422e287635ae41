"""Which workloads stay fresh processes: those that a record shows to differ where they are forked.

The rule is data, `appliance/launch_kinds.toml`; what it is applied to are the pairs of launches of
the qualified records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from appliance.records.json import Number, Record
from appliance.records.plan import Case, Plan
from appliance.records.qualified import ObservedCase
from appliance.statistics.tolerance import (
    Equivalence,
    PairedRatio,
    equivalence,
    paired_ratio,
)
from appliance.storage.toml_file import ROOT, parse_own

PATH = ROOT / "appliance" / "launch_kinds.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Record):
    """When pairs show that forked launches are as fresh ones, and when that they are not."""

    schema: Literal["bench/launch-kinds/1"]
    margin: Number
    equivalence_risk: Number
    difference_risk: Number
    pairs: int
    least_pairs: int
    unruled_vendors: tuple[str, ...]


@cache
def rule() -> Rule:
    """The rule that is shipped."""
    return parse_own(Rule, PATH.read_bytes(), PATH.name)


def ratio_of(observed: ObservedCase) -> PairedRatio | None:
    """Step time of fresh launches over that of forked ones; None where no two pairs were made."""
    control = observed.fresh_control
    return None if control is None else paired_ratio(control.seconds)


def ruling(observed: ObservedCase) -> Equivalence | None:
    """What the rule makes of a row's pairs; None where it rules nothing."""
    control = observed.fresh_control
    if control is None or control.vendor in rule().unruled_vendors:
        return None
    return ruled(ratio_of(observed))


def ruled(ratio: PairedRatio | None) -> Equivalence | None:
    """What the rule makes of a ratio by pairs; None where there is none, or of too few."""
    if ratio is None or ratio.num_pairs < rule().least_pairs:
        return None
    return equivalence(
        ratio,
        rule().margin,
        equivalence_risk=rule().equivalence_risk,
        difference_risk=rule().difference_risk,
    )


def with_kinds(plan: Plan, models: Mapping[str, str], observed: Sequence[ObservedCase]) -> Plan:
    """The plan, whose cases say why their launches are fresh where a difference was shown.

    `models` are those of the devices, by their ids.
    """
    cases = tuple(
        replace(case, fresh_because=_why_fresh(case, models.get(case.device), observed))
        for case in plan.cases
    )
    return replace(plan, cases=cases)


def _why_fresh(case: Case, model: str | None, observed: Iterable[ObservedCase]) -> str:
    own = (case.workload, case.version, model)
    for one in observed:
        if (one.workload, one.version, one.model) == own and ruling(one) == "different":
            return f"forked launches differ on {model}: {interval_words(one)}"
    return ""


def interval_words(observed: ObservedCase) -> str:
    """The ratio with its interval, as it is said; empty without one."""
    ratio = ratio_of(observed)
    return "" if ratio is None else f"fresh over forked {ratio_words(ratio)}"


def ratio_words(ratio: PairedRatio) -> str:
    """A ratio by pairs with the interval that the rule asks for."""
    low, high = ratio.interval(rule().equivalence_risk)
    confidence = 1.0 - 2.0 * rule().equivalence_risk
    return (
        f"{ratio.ratio:.4f} ({low:.4f} to {high:.4f} at {confidence:.0%}, {ratio.num_pairs} pairs)"
    )
