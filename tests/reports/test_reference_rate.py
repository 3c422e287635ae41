"""What a case's page says of the rate of the same work before: a reference, by which none rules."""

from __future__ import annotations

import html
from dataclasses import replace

from support.builders import observed_case
from support.bundles import SYSTEM, files_of, healthy

from appliance.records.json import sha256, to_json
from appliance.records.plan import Case
from appliance.records.qualified import ObservedCase, Qualified
from appliance.signing.keys import development_key
from appliance.storage import bundle
from appliance.storage.bundle import Bundle
from appliance.storage.qualified_file import reference_rates
from reports import render
from reports.document.view import view
from reports.performance import References, reference_sentence

DRAFT = healthy()
CASE = DRAFT.plan.cases[0]
TITLE = "For reference, and no limit."


def known(*observed: ObservedCase) -> Qualified:
    rates = reference_rates(observed, DRAFT.plan.cases, SYSTEM.identity.devices)
    return Qualified(record=(), rate=rates)


def seen(stack: dict[str, str] | None = None, **changes: object) -> ObservedCase:
    own = observed_case(CASE, SYSTEM)
    return replace(own, stack={**own.stack, **(stack or {})}, **changes)  # type: ignore[arg-type]


def shown(case: Case, *observed: ObservedCase) -> str:
    return reference_sentence(case, References(known(*observed), SYSTEM))


def bundle_with(qualified: Qualified) -> Bundle:
    data = to_json(qualified)
    plan = replace(DRAFT.plan, digests={**DRAFT.plan.digests, "qualified": sha256(data)})
    made = replace(DRAFT, plan=plan, others={bundle.QUALIFIED: data})
    return bundle.read_files(files_of(made, development_key()), complete=False)


def page(of: Bundle) -> str:
    return html.unescape(render.html(view(of), {}).decode())


def test_rate_of_the_same_stack_stands_beside_the_case_s() -> None:
    text = page(bundle_with(known(seen())))
    assert text.count(TITLE) == 1
    assert (
        "123.0 items/s on 1 device of this model, A processor, recorded by bench 0.5.0 on "
        "2026-11-21. The library stack was the same."
    ) in text


def test_page_says_nothing_where_nothing_is_recorded() -> None:
    assert TITLE not in page(bundle_with(known()))
    assert shown(DRAFT.plan.cases[1], seen()) == ""


def test_no_ruling_follows_from_a_rate() -> None:
    faster = known(seen(units_per_second=1e12))
    assert bundle_with(faster).verdict == bundle_with(known()).verdict


def test_rate_of_another_stack_is_marked() -> None:
    said = shown(CASE, seen({"torch": "2.11.0", "a": "1", "b": "2", "c": "3"}))
    assert "The library stack was another: torch 2.11.0, here none reported; a 1, here" in said
    assert said.endswith("; and 1 more difference.")


def test_rate_of_this_stack_comes_before_a_later_one_of_another() -> None:
    later = seen({"torch": "2.11.0"}, units_per_second=9.0, recorded_utc="2099-01-01T00:00:00Z")
    assert shown(CASE, later, seen()).startswith("123.0 items/s")


def test_disturbed_rate_is_marked() -> None:
    said = shown(CASE, seen(disturbed="others used 55 % of the processors"))
    assert said.endswith("not that of a quiet machine: others used 55 % of the processors.")
