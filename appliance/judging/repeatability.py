"""Rulings on repeatability: whether the deterministic phase gave the same bits each time.

How often a healthy device may differ is known only where repeats were recorded, of this workload,
model and library stack: N clean ones bound its rate by 3 / N. One process that gives other bits
than another is followed by 100 repeats of the same operands. So many differences among these that
this rate would hardly ever give them are a fault of the device. Fewer are `transient`: they
happened, nothing shows that they will again, and whether a device is bought that has done so is not
the judge's to say; the run is inconclusive and page 1 names it. Without a record nothing can be
held against a device: the bits are reported, the criterion does not apply, and page 1 says so. A
suite without the phase asks nothing of the device, so neither is it judged; whoever agreed on
another suite learns it from `verify --expect-suite`.
"""

from __future__ import annotations

from appliance.evidence.determinism import Disagreement
from appliance.evidence.launches import CaseEvidence
from appliance.evidence.qualification import find
from appliance.evidence.repeats import Repeats, described, repeats_of, unreported
from appliance.judging.functional import RulingDraft, inconclusive
from appliance.judging.limits import RulingInputs
from appliance.records.qualified import QualifiedRecord
from appliance.records.verdict import Reason
from appliance.statistics.repeat_rates import is_believable, rate_bound, tail_probability

UNQUALIFIED = (
    "Record clean repeats of this model with this library stack to have it judged; "
    "until then the bits are reported."
)
UNPLANNED = "Give the suite's protocol a number of repeats to have it judged."
NO_FORM = "Nothing: this workload gives no output that could be held to its bits here."
AGAIN = "Run the case again for longer: if it happens again, the device is at fault."
REPLACE = (
    "Repeat the case on this device with nothing else running; if its repeats still differ, "
    "replace the device."
)
MISSING = "Run the case again and let its deterministic phase finish."


def judged(evidence: CaseEvidence, inputs: RulingInputs) -> RulingDraft:
    """The ruling on the repeats of one case."""
    if not evidence.repeats:
        why = "the suite plans no deterministic phase"
        return _not_applicable("unplanned", why, UNPLANNED)
    repeats = repeats_of(evidence)
    record, why = find(inputs.qualified, evidence.case, inputs.system)
    if record is None:
        return _not_applicable("unqualified", f"{why}; {_reported(evidence, repeats)}", UNQUALIFIED)
    if record.form == "no_deterministic_form":
        return _without_form(evidence, record, repeats)
    if repeats.has_mismatch:
        return _mismatch(evidence, repeats, record)
    lacking = unreported(evidence)
    if lacking:
        return inconclusive("coverage", lacking, MISSING)
    return RulingDraft(ruling="pass")


def _not_applicable(reason: Reason, explanation: str, action: str) -> RulingDraft:
    return RulingDraft(
        ruling="not_applicable", reason=reason, explanation=explanation, action=action
    )


def _without_form(evidence: CaseEvidence, record: QualifiedRecord, repeats: Repeats) -> RulingDraft:
    named = f" ({', '.join(record.operators)})" if record.operators else ""
    return _not_applicable(
        "no_deterministic_form",
        f"{evidence.case.workload} has no deterministic form on {record.model}{named}; "
        f"{_reported(evidence, repeats)}",
        NO_FORM,
    )


def _reported(evidence: CaseEvidence, repeats: Repeats) -> str:
    """What the repeats showed, in one clause, where nothing is ruled on it."""
    lacking = unreported(evidence)
    if repeats.has_mismatch:
        return f"reported, not judged: {described(evidence)}; {_counted(repeats)}"
    if lacking:
        return f"reported, not judged: {lacking}"
    return f"reported, not judged: {len(repeats.first)} processes gave the same bits"


def _counted(repeats: Repeats) -> str:
    made = len(repeats.examined)
    return f"of {made} repeats of the same operands {repeats.num_differing} differ"


def _mismatch(evidence: CaseEvidence, repeats: Repeats, record: QualifiedRecord) -> RulingDraft:
    """Fail where a healthy device would hardly ever show so many differences, else transient."""
    made, differing = len(repeats.examined), repeats.num_differing
    rate = rate_bound(record.num_clean)
    probability = tail_probability(differing, made, rate)
    has_failed = not is_believable(differing, made, record.num_clean)
    why = (
        f"{described(evidence)}; {_counted(repeats)}, which {record.num_clean:,} clean repeats on "
        f"{len(record.devices)} {'device' if len(record.devices) == 1 else 'devices'} of this "
        f"model (a rate of {rate:.2g} at most) would give with a probability of {probability:.2g}"
    )
    return RulingDraft(
        ruling="fail" if has_failed else "inconclusive",
        reason="disagreement" if has_failed else "transient",
        explanation=why,
        action=REPLACE if has_failed else AGAIN,
    )


def contradiction(evidence: CaseEvidence, inputs: RulingInputs) -> Disagreement | None:
    """Where the device contradicts itself beyond what a healthy one may; None otherwise."""
    draft = judged(evidence, inputs)
    if draft.ruling != "fail":
        return None
    return Disagreement(is_certain=True, explanation=draft.explanation, action=draft.action)


def agreed(draft: RulingDraft, disagreement: Disagreement | None) -> RulingDraft:
    """The ruling on repeatability, after what other devices of the model gave for the same."""
    if disagreement is None or draft.ruling == "not_applicable":
        return draft
    is_graver = draft.ruling != "fail" and disagreement.is_certain
    if draft.ruling != "pass" and not is_graver:
        return draft
    return RulingDraft(
        ruling="fail" if disagreement.is_certain else "inconclusive",
        reason="disagreement",
        explanation=disagreement.explanation,
        action=disagreement.action,
    )
