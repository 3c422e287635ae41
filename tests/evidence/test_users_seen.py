"""Processes on a device beside launches: how many are others', and where none can be seen."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from support.builders import (
    FUNCTIONAL,
    NO_BASELINES,
    NO_PEAKS,
    a_case,
    a_plan,
    a_system,
    chain,
    healthy_events,
)

from appliance.errors import EvidenceError
from appliance.evidence.disturbance import HIDDEN, disturbance, users_by_device, why_unlisted
from appliance.evidence.journal_index import index_of
from appliance.evidence.launches import CaseEvidence
from appliance.judging.verdict import judge
from appliance.records.journal import (
    Calibrated,
    Event,
    LaunchStarted,
    Line,
    Started,
    UsersCounted,
    Witnessed,
)
from appliance.records.json import sha256, to_json
from appliance.records.system import System
from appliance.verification.run_checks import check_conduct

DEVICE = "cuda:0"
PLAN = a_plan(a_case(device=DEVICE))
REFUSED = "the driver refuses it to this user: run as root"
IDLE = {"memory_used_bytes": 0.0, "utilisation_fraction": 0.0, "power_watts": 71.0}
USED = {"memory_used_bytes": 892141568.0, "utilisation_fraction": 1.0, "power_watts": 697.0}


CLAUSE = (
    "another process used cuda:0: 0.8 GiB, 100 %, 697 W in 6 of 6 readings before the work of a "
    "launch began"
)


def a_node() -> System:
    system = a_system(DEVICE)
    device = replace(system.identity.devices[0], vendor="cuda", facts={})
    return replace(system, identity=replace(system.identity, devices=(device,)))


def counted(
    count: int | None, launch: str = "", *, is_inside: bool = False, **values: float | None
) -> UsersCounted:
    return UsersCounted(
        device=DEVICE,
        count=count,
        memory_bytes=None,
        hint="" if count is not None else REFUSED,
        launch=launch,
        moment="inside" if is_inside else "before",
        values=values,
    )


def beside(
    before: int | None, inside: int | None, values: Mapping[str, float | None]
) -> list[Event]:
    """A healthy run whose devices are watched as the runner does it."""
    events: list[Event] = []
    for event in healthy_events(PLAN):
        if isinstance(event, LaunchStarted):
            events.append(counted(before, event.launch, **values))
        events.append(event)
        if isinstance(event, Started):
            events.append(counted(inside, event.launch, is_inside=True))
    return [events[0], counted(before), *events[1:-1], counted(before), events[-1]]


def lines_of(events: Sequence[Event]) -> list[Line]:
    """Each line two seconds after the one before it."""
    return [replace(line, monotonic_ns=2 * line.monotonic_ns) for line in chain(events)]


def case_of(events: Sequence[Event]) -> CaseEvidence:
    return index_of(PLAN, lines_of(events)).cases[PLAN.cases[0].id]


@pytest.mark.parametrize(
    ("before", "values", "clause"),
    [
        (0, IDLE, ""),
        (1, IDLE, ""),  # a daemon that holds the device and computes nothing
        (1, USED, "another process used cuda:0: 0.8 GiB, 100 %, 697 W in 6 of 6 readings"),
        (3, USED, "3 other processes used cuda:0"),
        (None, USED, "another process used cuda:0"),  # its use is seen, whoever it is
        (None, {}, ""),
    ],
)
def test_others_disturb_by_their_use_and_are_counted_where_they_can_be_seen(
    before: int | None, values: Mapping[str, float | None], clause: str
) -> None:
    inside = None if before is None else before + 1
    actual = disturbance(case_of(beside(before, inside, values)), a_node())
    assert actual.startswith(clause)
    assert bool(actual) == bool(clause)


def test_a_process_that_is_ours_is_no_other() -> None:
    assert "another process" in disturbance(case_of(beside(1, 2, USED)), a_node())
    assert "2 other processes" in disturbance(case_of(beside(1, 3, USED)), a_node())


def test_a_process_of_the_run_that_waits_is_ours_too() -> None:
    events = [
        replace(event, num_waiting=1) if getattr(event, "moment", "") == "inside" else event
        for event in beside(0, 2, IDLE)
    ]
    seen = users_by_device([case_of(events)])[DEVICE]
    assert {one.count - one.num_ours for one in seen if one.count} == {0}


@pytest.mark.parametrize(
    ("before", "inside", "gap"),
    [(0, 1, ""), (None, None, REFUSED), (0, 0, HIDDEN), (1, 2, "")],
    ids=["seen", "refused", "hidden", "others"],
)
def test_a_list_that_is_refused_or_leaves_out_our_own_shows_nobody(
    before: int | None, inside: int | None, gap: str
) -> None:
    seen = users_by_device([case_of(beside(before, inside, IDLE))])
    assert why_unlisted(seen.get(DEVICE, [])) == gap


@pytest.mark.parametrize(
    ("before", "inside", "values", "sentence"),
    [
        (0, 1, IDLE, ""),
        (None, None, IDLE, f" The processes on cuda:0 could not be listed: {REFUSED}."),
        (
            1,
            2,
            USED,
            f" Not alone: {CLAUSE}.",
        ),
    ],
)
def test_the_scope_on_page_1_says_who_else_was_there_and_a_right_run_is_accepted(
    before: int | None, inside: int | None, values: Mapping[str, float | None], sentence: str
) -> None:
    actual = judge(
        plan=PLAN,
        criteria=FUNCTIONAL,
        lines=lines_of(beside(before, inside, values)),
        baselines=NO_BASELINES,
        peaks=NO_PEAKS,
        system=a_node(),
    )
    assert actual.verdict == "ACCEPTED"
    alone = judge(
        plan=PLAN,
        criteria=FUNCTIONAL,
        lines=lines_of(healthy_events(PLAN)),
        baselines=NO_BASELINES,
        peaks=NO_PEAKS,
        system=a_node(),
    )
    assert actual.scope == alone.scope + sentence


# ------------------------------------------------------------------ where they may be counted


def conduct(events: Sequence[Event]) -> None:
    files = {"plan.json": sha256(to_json(PLAN)), "system.json": "0" * 64}
    check_conduct(PLAN, chain(events), files)


def test_counts_stand_between_launches_and_inside_the_launch_that_they_name() -> None:
    events = beside(0, 1, IDLE)
    conduct(events)
    first = next(i for i, one in enumerate(events) if isinstance(one, UsersCounted))
    with pytest.raises(EvidenceError, match="cpu:7, which the plan does not use"):
        conduct([*events[:first], replace(counted(0), device="cpu:7"), *events[first:]])
    launch = PLAN.launches[0].id
    with pytest.raises(EvidenceError, match="at another moment than is said"):
        conduct([*events[:first], counted(1, launch, is_inside=True), *events[first:]])
    started = next(i for i, one in enumerate(events) if isinstance(one, Started))
    with pytest.raises(EvidenceError, match="at another moment than is said"):
        conduct([*events[:started], counted(1, launch), *events[started:]])


# ------------------------------------------------------------------ the witness


def witnessed(launch: str, *, has_gaps: bool) -> Witnessed:
    """A train of forty pieces of 0.1 ms, with a slice of 2 ms after each tenth or none."""
    pieces = [100_000 + (2_000_000 if has_gaps and n % 10 == 9 else 0) for n in range(40)]
    return Witnessed(launch=launch, rank=0, index=0, piece_ns=tuple(pieces), issue_ns=500_000)


@pytest.mark.parametrize(
    ("before", "values", "has_gaps", "clause"),
    [
        (1, IDLE, True, "another process holds cuda:0, and a train of equal pieces"),
        (None, {**USED, "utilisation_fraction": None}, True, "another process holds cuda:0 (0.8"),
        (0, IDLE, True, ""),  # nobody is there: the witness alone decides nothing
        (None, IDLE, True, ""),
        (1, IDLE, False, ""),
    ],
)
def test_gaps_count_only_beside_somebody_who_is_there(
    before: int | None,
    values: Mapping[str, float | None],
    has_gaps: bool,  # noqa: FBT001 - a parameter
    clause: str,
) -> None:
    events: list[Event] = []
    for event in beside(before, None if before is None else before + 1, values):
        events.append(event)
        if isinstance(event, Calibrated):
            events.append(witnessed(event.launch, has_gaps=has_gaps))
    actual = disturbance(case_of(events), a_node())
    assert actual.startswith(clause)
    assert bool(actual) == bool(clause)
    if clause:
        assert actual.endswith("stood still for 70 % of its time in 6 of 6 looks")
