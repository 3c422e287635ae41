"""What page 1 says of repeats: judged by a record, differing once, or not judged at all."""

from __future__ import annotations

import html
import re
from dataclasses import replace

from support.builders import ended, examined, records, repeated
from support.bundles import SYSTEM, Draft, files_of, healthy

from appliance.records.journal import Event, Repeated
from appliance.records.json import sha256, to_json
from appliance.records.qualified import Qualified
from appliance.signing.keys import development_key
from appliance.storage import bundle
from reports import render
from reports.document.view import view

REPEAT = "gemm@cpu:0/r2"


def page_1(draft: Draft, known: Qualified) -> str:
    """The paragraph of page 1 that says what was judged, as its reader sees it."""
    data = to_json(known)
    plan = replace(draft.plan, digests={**draft.plan.digests, "qualified": sha256(data)})
    made = replace(draft, plan=plan, others={bundle.QUALIFIED: data})
    files = files_of(made, development_key())
    text = render.html(view(bundle.read_files(files, complete=False)), {}).decode()
    (scope,) = re.findall(r'<p class="scope">(.*?)</p>', text, re.DOTALL)
    reservations = re.findall(r"<li>(.*?)</li>", text.partition('id="performance"')[0], re.DOTALL)
    return html.unescape(" ".join([scope, *reservations]))


def with_one_flip(events: list[Event]) -> list[Event]:
    changed: list[Event] = []
    for event in events:
        if event == ended(REPEAT):
            changed.append(examined(REPEAT, *[""] * 100))
        is_it = isinstance(event, Repeated) and event.launch == REPEAT
        changed.append(repeated(REPEAT, answer="flipped") if is_it else event)
    return changed


def test_what_a_record_judges_is_said_to_be_judged() -> None:
    draft = healthy(repeats=3)
    scope = page_1(draft, records(draft.plan, SYSTEM))
    assert scope.startswith(
        "Judged: whether every planned case completed, was correct and repeatable."
    )
    assert "Repeatability is reported" not in scope


def test_what_nothing_is_known_of_is_said_to_be_reported() -> None:
    scope = page_1(healthy(repeats=3), Qualified(record=()))
    assert scope.startswith("Judged: whether every planned case completed and was correct.")
    assert "Repeatability is reported, not judged, in 3 of 3 cases: there is no qualified" in scope


def test_a_mismatch_that_is_transient_is_named_with_its_bits() -> None:
    draft = healthy(repeats=3).with_events(with_one_flip)
    scope = page_1(draft, records(draft.plan, SYSTEM))
    assert f"Transient, left to the buyer: gemm@cpu:0: launch {REPEAT} gave other bits" in scope
    assert "1 of 20 bytes differ, first in output.value float32 (4,)" in scope
