"""What an injected fault must come to, and what became of it: the vocabulary of the self-test.

A fault is judged twice. With its name in plan and journal the run must not be accepted, whatever
it shows. With every word of it taken out, as someone who hides it would hand the run in, it must be
caught by what was measured: by a criterion that is meant to see it, not by chance by another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from appliance.records.json import Record
from appliance.records.verdict import Ruling, RulingWord, Verdict, VerdictWord

Family = Literal["virtual", "real"]
ACCEPTED = "accepted"
NOT_REJECTED = "not rejected"
FAIL: tuple[RulingWord, ...] = ("fail",)
OPEN: tuple[RulingWord, ...] = ("inconclusive",)
NEVER_PASS: tuple[RulingWord, ...] = ("fail", "inconclusive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Record):
    """One injection: what was expected, how it was ruled, and whether that is as it must be.

    `verdict` is the word with the fault named, `concealed` that with its name taken out; `ruling`,
    `criterion`, `reason` and `explanation` are of the ruling that caught it then. Where the row is
    not ok, the explanation says what is wrong.
    """

    family: Family
    injected: str
    expected: str
    ruling: str
    criterion: str
    reason: str
    explanation: str
    verdict: str
    concealed: str
    is_ok: bool


HARMLESS = ("pass", "not_applicable")
"""Rulings that hold nothing against a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What must become of a fault once its name is taken out.

    One of `criteria` must rule one of `words`, for one of `reasons` if any are given. Every
    ruling of the criteria `passing` must be a pass all the same.
    """

    words: tuple[RulingWord, ...]
    criteria: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As the table says it."""
        word = "never pass" if len(self.words) > 1 else self.words[0]
        return f"{word}: {' or '.join(self.criteria)}"


def catching(expected: Expected, verdict: Verdict) -> Ruling | None:
    """The ruling that is what was expected of this fault; a fail before what is open."""
    meant = [
        ruling
        for ruling in verdict.rulings
        if ruling.criterion in expected.criteria
        and ruling.ruling in expected.words
        and (not expected.reasons or ruling.reason in expected.reasons)
    ]
    return min(meant, key=lambda ruling: ruling.ruling != "fail", default=None)


def fault_of(expected: Expected, named: VerdictWord, concealed: Verdict) -> str:
    """Why the fault was not caught as it must be, or nothing."""
    if named == "ACCEPTED":
        return "the run was accepted although it names its fault"
    if concealed.verdict == "ACCEPTED" or catching(expected, concealed) is None:
        return f"the fault slipped through: {against(concealed)}"
    for ruling in concealed.rulings:
        if ruling.criterion in expected.passing and ruling.ruling not in HARMLESS:
            return f"another criterion was to pass and did not: {ruling_sentence(ruling)}"
    return ""


def against(verdict: Verdict) -> str:
    """The first ruling that is not a pass, in words."""
    return next(
        (ruling_sentence(ruling) for ruling in verdict.rulings if ruling.ruling not in HARMLESS),
        "no ruling was made against it",
    )


def ruling_sentence(ruling: Ruling) -> str:
    """One ruling in words."""
    place = f" of {ruling.case}" if ruling.case else ""
    return f"{ruling.criterion}{place}: {ruling.ruling}, {ruling.explanation or ruling.reason}"


def caught_row(
    family: Family,
    injected: str,
    expected: Expected,
    *,
    named: VerdictWord,
    concealed: Verdict,
    fault: str,
) -> Row:
    """The row of a fault; `fault` says why it is not ok, or nothing."""
    caught = catching(expected, concealed)
    return Row(
        family=family,
        injected=injected,
        expected=expected.text,
        ruling="pass" if caught is None else caught.ruling,
        criterion="" if caught is None else caught.criterion,
        reason="" if caught is None else caught.reason,
        explanation=fault or ("" if caught is None else caught.explanation),
        verdict=named,
        concealed=concealed.verdict,
        is_ok=not fault,
    )


def control_row(family: Family, injected: str, expected: str, verdict: Verdict, fault: str) -> Row:
    """The row of a run with nothing wrong with it."""
    return Row(
        family=family,
        injected=injected,
        expected=expected,
        ruling=_of_control(verdict.rulings),
        criterion="",
        reason="",
        explanation=fault,
        verdict=verdict.verdict,
        concealed=verdict.verdict,
        is_ok=not fault,
    )


def unseen_row(
    family: Family,
    injected: str,
    *,
    named: Verdict,
    concealed: Verdict,
    without_name: tuple[VerdictWord, ...] = ("ACCEPTED",),
) -> Row:
    """The row of a fault that nothing shows: its name alone keeps the run from being accepted.

    `without_name` are the words that the run may get without it.
    """
    ruling = next((item for item in named.rulings if item.reason == "injected"), None)
    fault = ""
    if named.verdict != "INCONCLUSIVE" or ruling is None:
        fault = f"with the fault named the run is {named.verdict}"
    elif concealed.verdict not in without_name:
        fault = f"without the name it is {concealed.verdict}: {against(concealed)}"
    return Row(
        family=family,
        injected=injected,
        expected="inconclusive: integrity",
        ruling="pass" if ruling is None else ruling.ruling,
        criterion="" if ruling is None else ruling.criterion,
        reason="" if ruling is None else ruling.reason,
        explanation=fault or ("" if ruling is None else ruling.explanation),
        verdict=named.verdict,
        concealed=concealed.verdict,
        is_ok=not fault,
    )


def _of_control(rulings: Sequence[Ruling]) -> str:
    """The worst word of all rulings."""
    words = {ruling.ruling for ruling in rulings}
    return next((word for word in ("fail", "inconclusive") if word in words), "pass")
