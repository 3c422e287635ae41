"""A qualified record of a burn-in has the load that its devices reached, of the least of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.builders import Watching, a_case, a_plan, bare_lines, records, watched_events
from support.loaded_runs import Loop, tagged
from support.watched_runs import CALM, DEVICE, HEALTHY, system

from appliance.evidence.journal_index import index_of
from appliance.qualifying.observation import Seen, _reached, joined
from appliance.records.json import from_json, to_json
from appliance.records.plan import Case
from appliance.records.qualified import QualifiedRecord, ReachedLoad
from appliance.records.system import Fact

NODE = system(power_limit=Fact(value=700.0, unit="watts"))
CASE = replace(a_case("burn_in", device=DEVICE), small=False)


def seen(case: Case) -> Seen:
    """A burn-in that drew 630 W of 700, as its plain loop did."""
    plan = a_plan(case)
    values = {**CALM, "power_watts": 630.0}
    watching = Watching(counters=lambda _: HEALTHY, values=lambda _: values, readings=7)
    events = list(tagged(watched_events(plan, {DEVICE: watching}), Loop(watts=630.0)))
    (evidence,) = index_of(plan, bare_lines(events)).cases.values()
    return Seen(
        evidence=evidence,
        system=NODE,
        stage="burn-in",
        journal="1" * 64,
        created_utc="2026-11-21T12:00:00Z",
        bench_version="0.5.0",
    )


def test_burn_in_at_full_size_says_what_it_reached() -> None:
    load = _reached(seen(CASE))
    assert load is not None
    assert (load.power_fraction, load.loop_power) == pytest.approx((0.9, 1.0))
    assert load.loop_speed == pytest.approx(1 / 1.02)


@pytest.mark.parametrize(
    "case",
    [
        replace(CASE, small=True),
        replace(CASE, parameters={"stress": "links"}),
        replace(a_case(device=DEVICE), small=False),
    ],
    ids=["small", "with stress", "no burn-in"],
)
def test_other_cases_say_nothing_of_load(case: Case) -> None:
    assert _reached(seen(case)) is None


def test_records_that_are_joined_have_the_least_load() -> None:
    (one,) = records(
        a_plan(CASE), NODE, load=ReachedLoad(power_fraction=0.98, loop_speed=0.96)
    ).record
    two = replace(one, sources=("another",), load=ReachedLoad(power_fraction=0.97, core_use=0.99))
    least = ReachedLoad(power_fraction=0.97, core_use=0.99, loop_speed=0.96)
    assert joined(one, two).load == joined(two, one).load == least
    assert joined(one, replace(two, load=None)).load == one.load


def test_record_without_a_load_keeps_its_bytes() -> None:
    (one,) = records(a_plan(CASE), NODE, load=None).record
    assert b'"load"' not in to_json(one)
    assert from_json(QualifiedRecord, to_json(one), name="record") == one
