"""Stress in a journal is held to the plan and to itself, and adds up on the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.builders import a_case, a_plan, bare_lines, ended

from appliance.errors import EvidenceError
from appliance.records.journal import Check, Checked, Event
from appliance.stress.aggregates import LEFT, Aggregate, Span
from appliance.stress.checks import check_stress
from appliance.stress.table import aggregates_of, totals
from workloads.parts.stress.stressors import checks_of

PLAN = a_plan(
    replace(
        a_case("burn_in", launches=1, parameters={"stress": "host,disk", "stress_launches": 1}),
        workload="burn_in",
    )
)
(LAUNCH,) = (one.id for one in PLAN.launches if one.is_timed)
MINUTE = Span(900, 450, 4096, 8192, 8)


def checks(kind: str, mismatches: int = 0, ms: int = 900) -> list[Check]:
    span = replace(MINUTE, ms=ms, mismatches=mismatches)
    aggregate = Aggregate(kind=kind, asked="1 thread", spans=(span, MINUTE))
    return list(checks_of(aggregate, is_again=False))


def events(*made: Check, launch: str = LAUNCH) -> list[Event]:
    every: list[Event] = [
        Checked(launch=launch, rank=0, phase="last", step=9, check=one) for one in made
    ]
    return [*every, replace(ended(launch), wall_ns=2 * 10**9)]


BOTH = [*checks("host"), *checks("disk")]


def fault(made: Sequence[Event]) -> str:
    with pytest.raises(EvidenceError, match=r"^journal.jsonl: stress of launch ") as caught:
        check_stress(PLAN, bare_lines(made))
    return str(caught.value)


@pytest.mark.parametrize("mismatches", [0, 1, 5])
def test_what_a_launch_says_is_sound(mismatches: int) -> None:
    check_stress(PLAN, bare_lines(events(*checks("host", mismatches), *checks("disk"))))


def test_launch_that_was_killed_owes_nothing() -> None:
    check_stress(PLAN, bare_lines([ended(LAUNCH, "crashed", "SIGKILL")]))


def test_process_that_ended_by_itself_is_no_number() -> None:
    lost = Aggregate(kind="host", asked="not reported", spans=(), ending="killed by signal 9")
    pair = list(checks_of(lost, is_again=False))
    check_stress(PLAN, bare_lines(events(*pair, *checks("disk"))))
    forged = replace(pair[0], error=0)
    assert "count other mismatches" in fault(events(forged, pair[1], *checks("disk")))


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (checks("host"), "the plan asks for disk, and the launch says nothing of it"),
        ([*BOTH, *checks("copies")], "the plan asks for no copies"),
        (BOTH[:-1], "one of the two checks of disk is missing"),
        ([*BOTH, BOTH[0]], "comes twice"),
        ([replace(BOTH[2], name=BOTH[0].name), *BOTH[1:]], "the check of host is of disk"),
        ([*checks("host", ms=9_000), *checks("disk")], "longer than the launch lasted"),
        ([replace(BOTH[0], bound=9), *BOTH[1:]], "other bounds"),
        ([replace(BOTH[0], if_outside="inconclusive"), *BOTH[1:]], "other bounds"),
        (
            [replace(checks("host", 2)[0], error=0), BOTH[1], *BOTH[2:]],
            "count other mismatches than its minutes do",
        ),
        (
            [replace(checks("host", 2)[0], error=0), replace(BOTH[1], error=1), *BOTH[2:]],
            "count other mismatches than its minutes do",
        ),
        (
            [
                replace(
                    BOTH[0], detects_what=BOTH[0].detects_what.replace("900 450 4096", "900 450 9")
                ),
                *BOTH[1:],
            ],
            "do not add up",
        ),
    ],
)
def test_forged_stress_is_refused(made: list[Check], why: str) -> None:
    assert why in fault(events(*made))


@pytest.mark.parametrize("mismatches", [0, 1, 2])
def test_links_without_partners_are_no_proof_and_no_fault(mismatches: int) -> None:
    (case,) = PLAN.cases
    plan = replace(
        PLAN, cases=(replace(case, parameters={"stress": "links", "stress_launches": 2}),)
    )
    spans = (replace(MINUTE, mismatches=mismatches),)
    left = Aggregate(kind="links", asked="1", spans=spans, ending=f"{LEFT}cpu:1 ended")
    lasting, single = checks_of(left, is_again=False)
    check_stress(plan, bare_lines(events(lasting, single)))
    for forged in (
        replace(lasting, error=0),
        replace(lasting, if_outside="inconclusive", error=2),
        replace(lasting, detects_what=lasting.detects_what.replace(LEFT, "")),
    ):
        with pytest.raises(EvidenceError, match="other"):
            check_stress(plan, bare_lines(events(forged, single)))


def test_launch_that_no_plan_stresses_says_nothing_of_it() -> None:
    untimed = next(one.id for one in PLAN.launches if not one.is_timed)
    assert "the plan asks for no disk" in fault(events(*checks("disk"), launch=untimed))


def test_plan_with_a_kind_that_is_none_is_refused() -> None:
    (case,) = PLAN.cases
    plan = replace(PLAN, cases=(replace(case, parameters={"stress": "disc"}),))
    with pytest.raises(EvidenceError, match=r'plan.json: stress is "disc"'):
        check_stress(plan, [])


def test_segments_are_added_up_by_kind() -> None:
    lost = Aggregate(kind="disk", asked="not reported", spans=(), ending="killed by signal 9")
    segments = [BOTH, checks("host", 1), list(checks_of(lost, is_again=False))]
    host, disk = totals(one for made in segments for one in aggregates_of(made))
    assert (host.kind, host.segments, host.lost, host.total.mismatches) == ("host", 2, 0, 1)
    assert (disk.asked, disk.segments, disk.lost, disk.left) == ("1 thread", 2, 1, 0)
    assert host.share == 0.5
    assert host.bytes_a_second == pytest.approx(8192 / 0.9)
