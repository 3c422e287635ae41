"""A bundle to what the report says: pure, from the bundle's files alone, so that anyone can.

The same bundle gives the same view on every machine and every day: times come from the plan
and the journal, never from a clock, and the list of evidence leaves out what is made after the
pages (the statements and the pages themselves).
"""

from __future__ import annotations

from datetime import UTC, datetime

from appliance.errors import EvidenceError
from appliance.evidence.journal_index import JournalIndex, index_of
from appliance.judging import order_match
from appliance.judging.verdict import requirements
from appliance.storage.bundle import Bundle
from reports import (
    burn_in,
    cases,
    families,
    health,
    judging,
    machine,
    pairs,
    performance,
    words,
)
from reports.document import certificate, evidence, open_rulings
from reports.document import requirements as requirement_table
from reports.model import Chapter, Row, View, cleaned

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def view(bundle: Bundle, index: JournalIndex | None = None) -> View:
    """All that the report says of a bundle; EvidenceError if its verdict or signer is missing.

    `index` is that of its journal; without one it is made of the bundle's lines.
    """
    plan, verdict, signer = bundle.plan, bundle.verdict, bundle.signer
    if verdict is None or signer is None:
        missing = "verdict.json" if verdict is None else "signer.json"
        raise EvidenceError(f"the bundle has no {missing}, so there is no report to make of it")
    created = words.moment(plan.created_utc) or EPOCH
    criteria = requirements(bundle.criteria)
    index = index or index_of(plan, bundle.lines)
    hidden = cases.untimed(plan, verdict)
    modified = words.moment(index.end_utc) if index.end_utc else None
    sections = cases.sections(index, verdict, bundle.peaks, bundle.qualified, bundle.system)
    rows = families.members(index, verdict, sections)
    burnt, copied = burn_in.sections(index), pairs.sections(plan, verdict)
    return cleaned(
        View(
            run_id=plan.run_id,
            subject=certificate.subject_words(bundle),
            generator=f"bench {plan.bench_version}",
            created=created,
            modified=modified or created,
            is_development=signer.is_development,
            certificate=certificate.certificate(bundle, verdict, signer, index, hidden),
            performance=performance.page(bundle, verdict, hidden),
            chapters=chapters(has_burn_in=bool(burnt), has_pairs=bool(copied)),
            requirements=requirement_table.requirements(bundle, verdict, criteria),
            order=requirement_table.order_table(bundle),
            open_rulings=open_rulings.open_rulings(
                verdict, (*criteria, *order_match.requirements(bundle.order))
            ),
            legend=cases.legend(verdict),
            cases=tuple(own[0].section for own in rows.values() if len(own) == 1),
            families=families.sections(rows),
            heat_map=families.heat_map(rows),
            appendix=families.appendix(rows, index),
            not_planned=tuple(
                Row(label=item.case, value=item.device or "the node", note=item.reason)
                for item in plan.not_planned
            ),
            burn_in=burnt,
            pairs=copied,
            health=health.chapter(bundle.criteria, bundle.system.identity.devices, index),
            judging=judging.chapter(bundle, verdict, criteria, hidden, index),
            budget=machine.budget_section(index.budget.now()),
            system=machine.system_groups(bundle.system, bundle.peaks),
            environment=machine.environment_groups(bundle.system, index),
            evidence=evidence.rows(bundle),
            files=evidence.files(bundle),
        )
    )


def chapters(*, has_burn_in: bool, has_pairs: bool) -> tuple[Chapter, ...]:
    """The contents: what there is, numbered; what a person looks up stands in the appendix."""
    wanted = [
        (True, "performance", "Performance"),
        (True, "summary", "Requirements"),
        (True, "cases", "Cases"),
        (has_burn_in, "burn-in", "Burn-in"),
        (has_pairs, "pairs", "Copies between devices"),
        (True, "health", "Health of the devices"),
        (True, "judging", "Judging"),
        (True, "system", "System"),
        (True, "environment", "Environment"),
        (True, "evidence", "Evidence"),
        (True, "verify", "How to verify with public tools"),
    ]
    appendix = [("checks", "Every check"), ("launches", "Launches, clocks and readings")]
    present = [(anchor, title) for is_here, anchor, title in wanted if is_here]
    return (
        *(
            Chapter(number=str(number), title=title, anchor=anchor)
            for number, (anchor, title) in enumerate(present, 1)
        ),
        *(
            Chapter(number=letter, title=title, anchor=anchor)
            for letter, (anchor, title) in zip("AB", appendix, strict=True)
        ),
    )
