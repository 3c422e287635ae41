"""Where a case stands under its device's roofline: model FLOPs used, and what bounds them.

Model FLOP utilisation (MFU) is the arithmetic that the model needs, without recomputation and
padding, over the step's time and the vendor's peak of the number format that ran. The roofline
(Williams, Waterman and Patterson 2009) says what a step could reach at most: the peak, or the
memory's rate times the operations that each moved byte serves, whichever is less. A figure that
nobody published, or that the workload does not count, is said to be unknown and stands in for
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from appliance.evidence.baseline_key import peak_for
from appliance.records.baseline import Peaks
from appliance.records.plan import Case
from appliance.records.system import System
from appliance.records.verdict import CaseResult
from reports import words

UNKNOWN = "unknown"
_STEP = "step_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofs:
    """The vendor's figures that bound one case, in FLOP/s and B/s; None where unknown."""

    arithmetic: float | None
    memory: float | None


def roofs(case: Case, peaks: Peaks, system: System) -> Roofs:
    """Both roofs of a case; that of the memory whatever bounds the case on a healthy device."""
    by_memory = replace(case, bound_by="memory")
    return Roofs(
        arithmetic=peak_for(peaks, system, case, "flops_per_second"),
        memory=peak_for(peaks, system, by_memory, "bytes_per_second"),
    )


def sentence(case: Case, result: CaseResult, roofs: Roofs) -> str:
    """MFU and place under the roofline of a case whose timing may be shown, in words."""
    seconds = _seconds(result)
    if seconds is None:
        return f"MFU {UNKNOWN}: no step time was estimated."
    return " ".join((_utilisation(case, seconds, roofs), _place(case, seconds, roofs)))


def _seconds(result: CaseResult) -> float | None:
    """Seconds of a typical step, as the case's estimate has them."""
    values = [one.value for one in result.estimates if one.name == _STEP]
    return next((value for value in values if value > 0), None)


def _utilisation(case: Case, seconds: float, roofs: Roofs) -> str:
    flops = case.work.flops
    if flops is None:
        return f"MFU {UNKNOWN}: this workload's operations are not counted."
    if flops == 0:
        return "It has no model arithmetic."
    step = f"{words.scaled(flops, 'FLOP')} of model arithmetic a step"
    if roofs.arithmetic is None:
        formats = case.work.precision or "this mix of number formats"
        return f"{step}; MFU {UNKNOWN}: no vendor's figure for {formats} is known."
    share = flops / seconds / roofs.arithmetic
    peak = words.quantity(roofs.arithmetic, "FLOP/s")
    return f"{step}; MFU {words.percent(share)} of {peak} ({case.work.precision})."


def _place(case: Case, seconds: float, roofs: Roofs) -> str:
    flops, moved = case.work.flops, case.work.bytes
    if moved is None or moved <= 0:
        return "Its bytes are not counted, so it has no place under the roofline."
    if roofs.memory is None:
        return f"Place under the roofline {UNKNOWN}: no vendor's figure for the memory is known."
    if not flops:
        share = moved / seconds / roofs.memory
        rate = words.quantity(roofs.memory, "B/s")
        what = "Its bytes alone are counted" if flops is None else "It moves bytes alone"
        return f"{what}: {words.percent(share)} of {rate}."
    if roofs.arithmetic is None:
        return f"Place under the roofline {UNKNOWN}: its arithmetic has no known peak."
    intensity, ridge = flops / moved, roofs.arithmetic / roofs.memory
    roof = min(roofs.arithmetic, intensity * roofs.memory)
    bound = "memory" if intensity < ridge else "arithmetic"
    reached = words.percent(flops / seconds / roof)
    return (
        f"At {words.small(intensity)} FLOP a byte (ridge at {words.small(ridge)}) its roof is "
        f"the {bound}'s, "
        f"{words.quantity(roof, 'FLOP/s')}: it reaches {reached} of it."
    )
