"""One line for each criterion with what came of it, and the order line by line."""

from __future__ import annotations

from collections.abc import Sequence

from appliance.judging import order_match
from appliance.records.criteria import Criterion
from appliance.records.order import Order
from appliance.records.verdict import Reason, Ruling, RulingWord, Verdict
from appliance.storage.bundle import Bundle
from appliance.storage.criteria_file import ORDER_LINE
from reports import cases, judging, words
from reports.document.reasons import REASONS
from reports.model import OrderRow, OrderTable, Requirement
from reports.words import count

LONGEST_CELL = 300  # characters of a cell of the order; the bundle has the rest


def requirements(
    bundle: Bundle, verdict: Verdict, criteria: Sequence[Criterion]
) -> tuple[Requirement, ...]:
    """One per criterion of the file, then those that are always required and not in it."""
    criterion_ids = {criterion.id for criterion in bundle.criteria.criterion}
    known = {criterion.id: criterion for criterion in criteria}
    lines = {criterion.id for criterion in order_match.requirements(bundle.order)}
    named = (ruling.criterion for ruling in verdict.rulings)
    names = [name for name in dict.fromkeys([*known, *named]) if name not in lines]
    requirements = tuple(
        _requirement(
            name,
            known.get(name),
            [ruling for ruling in verdict.rulings if ruling.criterion == name],
            bundle,
            is_implied=name not in criterion_ids,
        )
        for name in names
    )
    return (
        requirements
        if bundle.order is None
        else (*requirements, _ordered(bundle.order, verdict, lines))
    )


def _ordered(order: Order, verdict: Verdict, lines: set[str]) -> Requirement:
    """All lines of the order as one requirement; each stands in a table of its own."""
    rulings = [ruling for ruling in verdict.rulings if ruling.criterion in lines]
    required: list[RulingWord] = [ruling.ruling for ruling in rulings if ruling.required]
    word = cases.worst(required or [ruling.ruling for ruling in rulings])
    reason: Reason = next((one.reason for one in rulings if one.ruling == word), "coverage")
    return Requirement(
        id="order",
        title=f"The node is what was bought: {order.name}",
        limit=f"{count(len(lines), 'line')} of order.toml, below",
        cases="the node",
        ruling=word,
        counts=_numbers([ruling.ruling for ruling in rulings]),
        reason=REASONS.get(reason, reason),
        is_required=bool(required),
    )


def order_table(bundle: Bundle) -> OrderTable | None:
    """Each line of the order, what was found, and the ruling; None without an order."""
    if bundle.order is None:
        return None
    return OrderTable(
        intro=f"{bundle.order.name}: {bundle.order.summary}",
        rows=tuple(
            OrderRow(
                number=one.id.removeprefix(ORDER_LINE),
                title=one.line.title,
                field=one.line.field,
                ordered=words.brief(one.ordered, LONGEST_CELL),
                actual=words.brief(one.actual, LONGEST_CELL),
                ruling=one.draft.ruling,
                is_required=one.line.required,
            )
            for one in order_match.match(bundle.order, bundle.system)
        ),
    )


def _requirement(
    name: str,
    criterion: Criterion | None,
    rulings: Sequence[Ruling],
    bundle: Bundle,
    *,
    is_implied: bool,
) -> Requirement:
    ruling_words: list[RulingWord] = [ruling.ruling for ruling in rulings]
    word = cases.worst(ruling_words)
    reason: Reason = next((one.reason for one in rulings if one.ruling == word), "coverage")
    title = "not in the criteria file" if criterion is None else criterion.title
    return Requirement(
        id=name,
        title=f"{title} (required always)" if is_implied else title,
        limit="" if criterion is None else judging.limit_words(criterion, bundle.criteria),
        cases=_matched(criterion, rulings),
        ruling=word,
        counts=_numbers(ruling_words),
        reason=REASONS.get(reason, reason),
        is_required=criterion is None or criterion.required,
    )


def _matched(criterion: Criterion | None, rulings: Sequence[Ruling]) -> str:
    """How many cases were judged, and by which pattern they were chosen."""
    judged = len({ruling.case for ruling in rulings if ruling.case})
    if not judged:
        return "the run" if rulings else "none"
    is_all = criterion is None or criterion.cases == "*"
    named = count(judged, "case") + ("" if is_all or criterion is None else f" ({criterion.cases})")
    return f"{named} and the run" if any(not ruling.case for ruling in rulings) else named


def _numbers(ruling_words: Sequence[RulingWord]) -> str:
    clauses = [
        f"{ruling_words.count(word)} {word.replace('_', ' ')}"
        for word in reversed(cases.WORST_FIRST)
        if word in ruling_words
    ]
    return ", ".join(clauses) or "no ruling"
