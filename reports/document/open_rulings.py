"""What is not a pass: the gravest first, with what is the same in several rulings said once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from appliance.judging.verdict import PRECEDENCE
from appliance.records.criteria import Criterion
from appliance.records.verdict import Ruling, Verdict
from appliance.storage.criteria_file import ORDER_LINE
from reports import cases, words
from reports.document.reasons import REASONS
from reports.model import OpenCase, OpenRuling

MOST_ALIKE = 12  # explanations of one criterion and reason; verdict.json has them all
OF_RUN = "the run"
UNSEEN = (
    (
        re.compile(r"([^:]+?) of ((?:[a-z]+:\d|any device).*) was not observed: (.+)", re.DOTALL),
        "not observed of {devices}: {what} ({why})",
        "these {number} were not observed of {devices}: {why}",
    ),
    (
        re.compile(r"there is no ([^:]+?) of ([a-z]+:\d.*): (.+)", re.DOTALL),
        "{devices} has no figure of this kind: {what} ({why})",
        "of {devices} there is none of these {number}: {why}",
    ),
)
"""What the judge says of a metric that was not observed, of which devices and why; how a page says
it of one metric, whose name may be a plural, and of several."""
DEVICE = re.compile(r"\b[a-z]+:[0-9]+\b")
CLASSES = ("integrity", "correctness", "health", "performance")
"""What a criterion's precedence is called, the highest first."""


def open_rulings(verdict: Verdict, criteria: Sequence[Criterion]) -> tuple[OpenRuling, ...]:
    """Every ruling that is not a pass: the required first, then by precedence.

    A fail of integrity stands before one of correctness, that before one of health, and that
    before one of performance; what is inconclusive follows in the same order. What has the same
    reason stands together, and what is the same in all of it is said once.
    """
    ranks = {criterion.id: PRECEDENCE[criterion.kind] for criterion in criteria}
    groups: dict[tuple[object, ...], list[Ruling]] = {}
    for ruling in filter(is_open, verdict.rulings):
        key = (ruling.criterion, ruling.required, ruling.ruling, ruling.reason)
        groups.setdefault(key, []).append(ruling)
    ordered = sorted(
        groups.values(),
        key=lambda group: (
            not group[0].required,
            cases.WORST_FIRST.index(group[0].ruling),
            ranks.get(group[0].criterion, 0),
        ),
    )
    return tuple(_joined([_open_ruling(group, ranks) for group in ordered]))


def _joined(several: Sequence[OpenRuling]) -> Iterable[OpenRuling]:
    """Those that follow one another and say the same of the run or of the same cases, as one."""

    def key(one: OpenRuling) -> tuple[object, ...]:
        alike = (one.ruling, one.reason, one.is_required, one.action)
        return (*alike, one.precedence) if _is_of_run(one) else (*alike, one.cases)

    for _, group in itertools.groupby(several, key):
        first, *others = group
        yield _together(first, others) if others else _alone(first)


def _is_of_run(one: OpenRuling) -> bool:
    return [case.cases for case in one.cases] == [OF_RUN]


def _together(first: OpenRuling, others: Sequence[OpenRuling]) -> OpenRuling:
    """One box; of the run each criterion has its own words, of cases all have the same."""
    criteria = ", ".join(one.criterion for one in (first, *others))
    if not _is_of_run(first):
        is_one = len({one.precedence for one in others} | {first.precedence}) == 1
        return replace(first, criterion=criteria, precedence=first.precedence if is_one else "")
    cases = [replace(case, cases=one.criterion) for one in (first, *others) for case in one.cases]
    return replace(first, criterion=criteria, cases=tuple(_unseen_together(cases)))


def _alone(one: OpenRuling) -> OpenRuling:
    return replace(one, cases=tuple(replace(case, explanation=_said(case)) for case in one.cases))


def _said(one: OpenCase) -> str:
    """Its explanation; of what was not observed in words that fit a plural."""
    for pattern, of_one, _ in UNSEEN:
        if match := pattern.fullmatch(one.explanation):
            return of_one.format(what=match[1], devices=match[2], why=match[3])
    return one.explanation


def _unseen_together(several: Sequence[OpenCase]) -> Iterable[OpenCase]:
    """Criteria of which the same was not observed for the same reason, as one with their number."""
    alike: dict[tuple[str, ...], list[OpenCase]] = {}
    for one in several:
        alike.setdefault((*_unseen(one), one.action), []).append(one)
    for (of_several, devices, why, _), group in alike.items():
        if len(group) == 1:
            yield replace(group[0], explanation=_said(group[0]))
        else:
            said = of_several.format(number=len(group), devices=devices, why=why)
            yield replace(group[0], cases=", ".join(one.cases for one in group), explanation=said)


def _unseen(one: OpenCase) -> tuple[str, str, str]:
    """The words for several like it, the devices and the reason; of all else its own name."""
    for pattern, _, of_several in UNSEEN:
        if match := pattern.fullmatch(one.explanation):
            return of_several, match[2], match[3]
    return "", one.cases, one.explanation


def _open_ruling(group: Sequence[Ruling], ranks: Mapping[str, int]) -> OpenRuling:
    one = group[0]
    alike: dict[tuple[str, str], list[Ruling]] = {}
    for ruling in group:
        alike.setdefault((_form(ruling), ruling.action), []).append(ruling)
    is_shared = len({action for _, action in alike}) == 1
    is_ordered = one.criterion.startswith(ORDER_LINE)
    precedence = "order" if is_ordered else CLASSES[ranks.get(one.criterion, 0)]
    return OpenRuling(
        ruling=one.ruling,
        criterion=one.criterion,
        precedence="" if precedence == one.criterion else precedence,
        reason=REASONS.get(one.reason, one.reason),
        cases=tuple(
            OpenCase(
                cases=words.cases(_names(several)),
                explanation=_explanation(several),
                action="" if is_shared else action,
            )
            for (_, action), several in list(alike.items())[:MOST_ALIKE]
        )
        + _others_of([_names(several) for several in list(alike.values())[MOST_ALIKE:]]),
        action=one.action if is_shared else "",
        is_required=one.required,
    )


def _names(several: Sequence[Ruling]) -> list[str]:
    return list(dict.fromkeys(ruling.case or OF_RUN for ruling in several))


def _form(ruling: Ruling) -> str:
    """An explanation without what the name of its case says: equal where all else is."""
    text = _of_its_case(ruling)
    devices = set(DEVICE.findall(text))
    return DEVICE.sub("DEVICE", text) if len(devices) == 1 else text


def _of_its_case(ruling: Ruling) -> str:
    """The explanation with its launches by their numbers, as the case stands before it."""
    return ruling.explanation.replace(f"{ruling.case}/", "") if ruling.case else ruling.explanation


def _explanation(several: Sequence[Ruling]) -> str:
    """What is said of all of them, with every device that it is said of."""
    first, *others = dict.fromkeys(one.explanation for one in several)
    if not others:
        return first
    devices = dict.fromkeys(name for one in several for name in DEVICE.findall(_of_its_case(one)))
    named = words.devices(list(devices))
    return DEVICE.sub(lambda _: named, _of_its_case(several[0]))


def _others_of(rest: Sequence[Sequence[str]]) -> tuple[OpenCase, ...]:
    """The cases that a box has no room to explain one by one."""
    names = [name for several in rest for name in several]
    if not names:
        return ()
    return (
        OpenCase(
            cases=words.cases(names, 0 if len(names) > 1 else 1),
            explanation="the same reason, each in words of its own in verdict.json",
            action="",
        ),
    )


def is_open(ruling: Ruling) -> bool:
    return ruling.ruling != "pass"
