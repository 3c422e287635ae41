"""Whether a device is as fast at work that nobody could prepare for as at the suite's own.

The seed draws a variant of a case: other sizes, another activation. Its speed in FLOP/s stands to
that of its case in some ratio, which is known where there is a baseline of both. A device, or its
software, that was tuned for the fixed case alone shows in that ratio. Launches are few and the
comparison is between two estimates, so the bound is loose, and what is beyond it is open, no fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from appliance.evidence.baseline_key import find
from appliance.evidence.case_results import common_clock, log_seconds, withheld
from appliance.evidence.launches import CaseEvidence
from appliance.judging.limits import RulingInputs
from appliance.records.plan import Case
from appliance.records.verdict import Clock

LARGEST = 0.10
"""Largest difference of the logarithms that is not asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A variant beside its case: the logarithm of the ratio of their FLOP/s, here and as known."""

    variant: str
    case: str
    ratio: float
    reference: float | None

    @property
    def is_disagreeing(self) -> bool:
        """Whether the ratio is known to be another than it should be."""
        return self.reference is not None and not abs(self.ratio - self.reference) <= LARGEST

    @property
    def sentence(self) -> str:
        """The ratio in words, and what it should be where that is known."""
        here = f"{self.variant} runs at {math.exp(self.ratio):.3g} of the FLOP/s of {self.case}"
        if self.reference is None:
            return f"{here}; no baseline says what it should be"
        return f"{here}, and by their baselines it should be {math.exp(self.reference):.3g}"


def contrasts(cases: Mapping[str, CaseEvidence], inputs: RulingInputs) -> Iterator[Contrast]:
    """Every variant whose operations are counted, and that was timed, as its case was."""
    for evidence in cases.values():
        fixed = cases.get(evidence.case.variant_of)
        if fixed is None or not evidence.case.variant:
            continue
        clock = common_clock([evidence, fixed])
        here, there = _log_rate(evidence, clock), _log_rate(fixed, clock)
        if here is not None and there is not None:
            yield Contrast(
                variant=evidence.case.id,
                case=fixed.case.id,
                ratio=here - there,
                reference=_reference((evidence.case, fixed.case), clock, inputs),
            )


def _log_rate(evidence: CaseEvidence, clock: Clock) -> float | None:
    """Logarithm of the FLOP/s; None where they are not counted, or the case shows no figures."""
    times, flops = log_seconds(evidence, clock), evidence.case.work.flops
    if withheld(evidence) or not times or not flops or not all(map(math.isfinite, times)):
        return None
    return math.log(flops) - float(np.mean(times))


def _reference(cases: tuple[Case, Case], clock: Clock, inputs: RulingInputs) -> float | None:
    """The same of the two baselines; None unless there are both."""
    log_rates = []
    for case in cases:
        baseline, _, _ = find(inputs.baselines, case, inputs.plan.protocol, inputs.system)
        if baseline is None or not case.work.flops:
            return None
        log_rates.append(math.log(case.work.flops) - baseline.by(clock).log_seconds)
    return log_rates[0] - log_rates[1]
