"""Which workloads stay fresh processes: those that a record shows to differ where they are forked.

The rule is data, `appliance/launch_kinds.toml`; what it is applied to are the pairs of launches of
the qualified records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from appliance.records.json import Number, Record
from appliance.records.qualified import ObservedCase
from appliance.records.system import Device
from appliance.statistics.tolerance import (
    Equivalence,
    PairedRatio,
    equivalence,
    paired_ratio,
)
from appliance.storage.toml_file import ROOT, parse

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
    return parse(Rule, PATH.read_bytes(), PATH.name)


def ratio_of(observed: ObservedCase) -> PairedRatio | None:
    """Step time of fresh launches over that of forked ones; None where no two pairs were made."""
    control = observed.fresh_control
    return None if control is None else paired_ratio(control.seconds)


def ruling(observed: ObservedCase) -> Equivalence | None:
    """What the rule makes of a row's pairs; None where it rules nothing."""
    ratio, control = ratio_of(observed), observed.fresh_control
    if ratio is None or control is None or control.vendor in rule().unruled_vendors:
        return None
    if ratio.num_pairs < rule().least_pairs:
        return None
    return equivalence(
        ratio,
        rule().margin,
        equivalence_risk=rule().equivalence_risk,
        difference_risk=rule().difference_risk,
    )


def why_fresh(workload: str, version: int, device: Device, observed: Iterable[ObservedCase]) -> str:
    """Why launches of a workload are fresh on a device's model, in a sentence; empty if forked."""
    own = (workload, version, device.model)
    for one in observed:
        if (one.workload, one.version, one.model) == own and ruling(one) == "different":
            return f"forked launches differ on {device.model}: {interval_words(one)}"
    return ""


def interval_words(observed: ObservedCase) -> str:
    """The ratio with its interval, as it is said; empty without one."""
    ratio = ratio_of(observed)
    if ratio is None:
        return ""
    low, high = ratio.interval(rule().equivalence_risk)
    confidence = 1.0 - 2.0 * rule().equivalence_risk
    return (
        f"fresh over forked {ratio.ratio:.4f} ({low:.4f} to {high:.4f} at {confidence:.0%}, "
        f"{ratio.num_pairs} pairs)"
    )
