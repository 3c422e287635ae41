"""A qualified record says what the launches of its case spent their time on."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest
from support.builders import chain
from support.bundles import SYSTEM, healthy

from appliance.evidence.journal_index import index_of
from appliance.qualifying.observation import Seen, qualified
from appliance.qualifying.page import page
from appliance.records.journal import Event, LaunchEnded, LaunchStarted, StageTimes
from appliance.records.json import from_json, to_json
from appliance.records.qualified import ObservedCase, Qualified

S = 10**9


def observed(*, has_stages: bool) -> Qualified:
    """The healthy run, of launches that took 10 s each; half of it timed where they say so."""
    draft = healthy()
    events: list[Event] = []
    for event in draft.events:
        if isinstance(event, LaunchEnded) and event.outcome == "completed":
            times = StageTimes(
                launch=event.launch, rank=0, wall_ns={"import": 4 * S, "timed": 5 * S}
            )
            events += [times] if has_stages else []
            events.append(replace(event, wall_ns=10 * S))
        else:
            events.append(event)
    cases = index_of(draft.plan, chain(events)).cases.values()
    return qualified(
        Seen(
            evidence=evidence,
            system=SYSTEM,
            stage="qualify-small",
            journal="0" * 64,
            created_utc=draft.plan.created_utc,
            bench_version="0",
        )
        for evidence in cases
    )


def test_launches_of_a_pair_are_compared_and_others_are_not() -> None:
    draft = healthy()
    events: list[Event] = [
        replace(event, mode="fresh" if event.launch.endswith(("/2", "/4")) else "forked")
        if isinstance(event, LaunchStarted)
        else event
        for event in draft.events
    ]
    cases = index_of(draft.plan, chain(events)).cases.values()
    one, two = (
        qualified(
            Seen(
                evidence=evidence,
                system=SYSTEM,
                stage=stage,
                journal="0" * 64,
                created_utc=draft.plan.created_utc,
                bench_version="0",
            )
            for evidence in cases
        )
        for stage in ("qualify-pairs", "qualify-small")
    )
    control = of_gemm(one).fresh_control
    assert control is not None
    assert (control.vendor, len(control.seconds)) == ("cpu", 2)  # the fifth is alone
    timed = [launch for launch in next(iter(cases)).launches if launch.number > 0]
    steps = [launch.step_seconds("steps") for launch in timed[:2]]
    assert control.seconds[0] == tuple(float(median(one)) for one in steps)
    assert "2 pairs)" in page(one, of_gemm(one).model)
    assert of_gemm(two).fresh_control is None


def of_gemm(known: Qualified) -> ObservedCase:
    return next(one for one in known.observed if one.case == "gemm")


def test_stages_of_all_launches_add_up_to_their_time() -> None:
    one = of_gemm(observed(has_stages=True))
    count = one.outcomes["completed"]
    assert count > 1
    assert one.stage_seconds == pytest.approx(
        {"import": 4 * count, "timed": 5 * count, "end": count}
    )


def test_page_says_where_the_time_of_the_launches_went() -> None:
    known = observed(has_stages=True)
    text = page(known, of_gemm(known).model)
    assert "50 % useful, 40 % imports, 10 % process end." in text
    assert "| timed steps |" in text


def test_record_without_stages_is_written_and_shown_as_before() -> None:
    known = observed(has_stages=False)
    one = replace(of_gemm(known), stage_seconds={})
    assert b"stage_seconds" not in to_json(one)
    assert from_json(ObservedCase, to_json(one), name="record") == one
    assert set(of_gemm(known).stage_seconds) == {"not_measured"}
    assert "Where the time went" not in page(known, one.model)
