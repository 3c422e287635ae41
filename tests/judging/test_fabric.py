"""Rulings on links that the driver does not show, and on the way between devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from support.builders import (
    NO_BASELINES,
    NO_PEAKS,
    PROTOCOL,
    Watching,
    a_case,
    a_plan,
    bare_lines,
    watched_events,
    with_bounds,
)
from support.timed_evidence import steady, timed
from support.watched_runs import ACCELERATOR, CALM, HEALTHY, asking, ruling, run_of, system

from appliance.errors import UsageError
from appliance.evidence.hidden_links import SENTENCE
from appliance.judging.verdict import judge
from appliance.records.criteria import Criteria
from appliance.records.journal import Event, LaunchStarted, Reading
from appliance.records.json import Scalar
from appliance.records.order import Order, OrderLine
from appliance.records.plan import Plan
from appliance.records.system import Fact, System
from appliance.records.verdict import Ruling
from appliance.records.workload import Work
from appliance.storage import criteria_file

NODE = criteria_file.load_criteria("node")[0]
OF_ANY_SUITE = [ACCELERATOR, *(criteria_file.load_criteria(n)[0] for n in ("one-node", "recheck"))]
"""Criteria for suites that need not copy between devices."""
GIGA = 10**9
NOT_REPORTED = "not reported by this device"

# ------------------------------------------------------------------ links that are not shown


def test_a_device_alone_without_links_to_show_is_accepted_and_page_1_says_so() -> None:
    result, _ = run_of("nvml", "links_not_shown", "links_not_shown")
    assert result.verdict == "ACCEPTED"
    links = ruling(result, "links-down")
    assert (links.ruling, links.reason, links.explanation) == (
        *("not_applicable", "not_shown"),
        SENTENCE,
    )
    assert " Links not judged: the driver shows none." in result.scope


def test_two_devices_without_links_to_show_are_not() -> None:
    result, _ = run_of("nvml", "links_not_shown_of_two", "links_not_shown_of_two")
    assert result.verdict == "INCONCLUSIVE"
    links = ruling(result, "links-down")
    assert (links.ruling, links.reason) == ("inconclusive", "not_observed")
    assert "links not judged" not in result.scope.lower()


def test_two_cards_without_links_by_design_are_accepted() -> None:
    result, _ = run_of("nvml", "two_a10", "two_a10")
    assert result.verdict == "ACCEPTED"
    links = ruling(result, "links-down")
    assert (links.ruling, links.reason) == ("not_applicable", "absent")


def test_a_device_that_supports_no_question_is_inconclusive_in_one_sentence() -> None:
    result, (device,) = run_of("nvml", "nothing_supported", "nothing_supported")
    assert result.verdict == "INCONCLUSIVE"
    errors = ruling(result, "ecc-uncorrected")
    assert (errors.ruling, errors.reason) == ("inconclusive", "not_observed")
    assert errors.explanation == (
        f"ECC uncorrected of {device.id} was not observed: {NOT_REPORTED}"
    )


CARD = "card:0"
HIDDEN = {
    "links_shown": Fact(value=False),
    "num_links": Fact(value=None, hint=NOT_REPORTED),
}


def on_links(node: System, hint: str = NOT_REPORTED, order: Order | None = None) -> tuple[str, str]:
    devices = [device.id for device in node.identity.devices]
    plan = a_plan(*(a_case(device=device) for device in devices))
    blind = Watching(
        counters=lambda _: {**HEALTHY, "links_down": None},
        values=lambda _: CALM,
        hints={"links_down": hint},
    )
    requested = asking("links_down", if_absent="not_applicable")
    events = watched_events(plan, dict.fromkeys(devices, blind))
    result = judge(
        plan=with_bounds(plan, requested),
        criteria=requested,
        lines=bare_lines(events),
        baselines=NO_BASELINES,
        peaks=NO_PEAKS,
        system=node,
        order=order,
    )
    answer = ruling(result, "asked")
    return answer.ruling, answer.reason


def ordered(field: str) -> Order:
    line = OrderLine(title="One", field=field, op=">=", value=1)
    return Order(name="bought", summary="", line=(line,))


def test_links_are_not_judged_of_a_device_alone() -> None:
    assert on_links(system(CARD, **HIDDEN)) == ("not_applicable", "not_shown")
    assert on_links(system(CARD, **HIDDEN), order=ordered("devices.count"))[1] == "not_shown"


@pytest.mark.parametrize(
    "field", ["devices.num_links_up", "devices.link_kind", "devices.connection_to_1"]
)
def test_an_order_of_links_wants_them_seen(field: str) -> None:
    node = system(CARD, **HIDDEN)
    assert on_links(node, order=ordered(field)) == ("inconclusive", "not_observed")


@pytest.mark.parametrize(
    ("facts", "hint"),
    [
        ({**HIDDEN, "links_shown": Fact(value=None, hint="no permission")}, NOT_REPORTED),
        ({**HIDDEN, "links_shown": Fact(value=True)}, NOT_REPORTED),
        (HIDDEN, "the device fell off the bus"),
        ({}, NOT_REPORTED),
    ],
    ids=["unknown", "shown", "lost meanwhile", "never asked"],
)
def test_links_that_are_unseen_for_another_reason_are_inconclusive(
    facts: Mapping[str, Fact], hint: str
) -> None:
    assert on_links(system(CARD, **facts), hint) == ("inconclusive", "not_observed")


def test_another_device_of_the_vendor_is_what_links_may_lead_to() -> None:
    assert on_links(system(CARD, "card:1", **HIDDEN)) == ("inconclusive", "not_observed")


# ------------------------------------------------------------------ the way between two devices

PAIR = ("card:0", "card:1")
BYTES = 2**29


def joined(way: Scalar | None = "NVLink x18", **facts: Scalar | None) -> System:
    """Two cards of generation 5 with 16 lanes, which carry 63 GB/s, and links of 26.56 GB/s."""
    reported = {"link_bytes_per_second": 26_562_000_000, "fabric": "completed", **facts}
    known = {name: Fact(value=value) for name, value in reported.items()}
    ways = {f"connection_to_{number}": Fact(value=way) for number in (0, 1)}
    node = system(*PAIR, **known, **ways)
    devices = tuple(replace(one, vendor="cuda") for one in node.identity.devices)
    return replace(node, identity=replace(node.identity, devices=devices))


def copies(*pairs: tuple[str, str]) -> Plan:
    cases = [a_case("gemm", device=device) for device in PAIR]
    for one, other in pairs:
        case = a_case("device_copy_pair", device=one, work=Work(units=BYTES, unit="bytes"))
        cases.append(replace(case, id=f"pairs@{one}+{other}", devices=(one, other)))
    return a_plan(*cases, protocol=replace(PROTOCOL, blocks=1))


BOTH = (PAIR, PAIR[::-1])


def on_fabric(
    node: System,
    rate: float = 400 * GIGA,
    pairs: Sequence[tuple[str, str]] = BOTH,
    criteria: Criteria = NODE,
) -> Ruling:
    plan = copies(*pairs)
    return ruling(
        judge(
            plan=with_bounds(plan, criteria),
            criteria=criteria,
            lines=timed(plan, steady(BYTES / rate)),
            baselines=NO_BASELINES,
            peaks=NO_PEAKS,
            system=node,
        ),
        "fabric",
    )


def test_copies_over_the_links_pass() -> None:
    assert on_fabric(joined()).ruling == "pass"


def test_links_that_read_active_while_copies_go_by_the_host_fail() -> None:
    result = on_fabric(joined(), rate=30 * GIGA)
    assert (result.ruling, result.reason) == ("fail", "fabric")
    assert "copies from card:0 to card:1 move 30" in result.explanation
    assert "not over NVLink x18: at least 63.01 GB/s" in result.explanation


@pytest.mark.parametrize(
    ("state", "use", "answer"),
    [
        ("completed", 0.0, ("fail", "fabric")),
        ("completed", 0.98, ("inconclusive", "environment")),
        ("completed, with error 15", 0.98, ("fail", "fabric")),
    ],
)
def test_copies_beside_others_on_the_devices_say_nothing_of_the_links(
    state: str, use: float, answer: tuple[str, str]
) -> None:
    plan = with_bounds(copies(*BOTH), NODE)
    events: list[Event] = []
    for line in timed(plan, steady(BYTES / (30 * GIGA))):
        events.append(line.event)
        if isinstance(line.event, LaunchStarted):
            values = {"utilisation_fraction": use}
            events += [
                Reading(launch=line.event.launch, device=name, values=values) for name in PAIR
            ]
    # seconds between the lines, so that what a device did for us is over
    lines = [replace(line, monotonic_ns=2 * GIGA * line.seq) for line in bare_lines(events)]
    result = judge(
        plan=plan,
        criteria=NODE,
        lines=lines,
        baselines=NO_BASELINES,
        peaks=NO_PEAKS,
        system=joined(fabric=state),
    )
    one = ruling(result, "fabric")
    assert (one.ruling, one.reason) == answer
    assert ("another process used card:0: 98 %" in one.explanation) == (answer[0] != "fail")


def test_one_engine_that_fills_one_link_of_several_is_healthy() -> None:
    """A copy engine made for PCIe moves 50 GB/s over four links of 50 GB/s each."""
    node = joined("xGMI x4", link_bytes_per_second=50 * GIGA, pcie_generation_highest=4)
    assert on_fabric(node, rate=48 * GIGA).ruling == "pass"


def test_a_thin_link_is_held_to_half_of_what_it_carries() -> None:
    node = joined("xGMI x1", link_bytes_per_second=64 * GIGA)
    assert on_fabric(node, rate=45 * GIGA).ruling == "pass"
    assert on_fabric(node, rate=30 * GIGA).ruling == "fail"


def test_a_way_over_the_host_needs_a_copy_and_no_rate() -> None:
    node = joined("PCIe switch", fabric="none", link_bytes_per_second=None)
    assert on_fabric(node, rate=GIGA).ruling == "pass"
    assert on_fabric(node, rate=GIGA, pairs=[PAIR]).ruling == "inconclusive"


@pytest.mark.parametrize(
    ("node", "pairs", "explanation"),
    [
        (joined(), [], "no copy from card:0 to card:1 was timed"),
        (joined(), [PAIR], "no copy from card:1 to card:0 was timed"),
        (joined(None), BOTH, "how card:0 is joined to card:1 is not reported"),
        (
            joined(link_bytes_per_second=None),
            BOTH,
            "what links and PCIe of card:0 carry is not reported",
        ),
    ],
)
def test_what_was_not_observed_is_inconclusive(
    node: System, pairs: Sequence[tuple[str, str]], explanation: str
) -> None:
    result = on_fabric(node, pairs=pairs)
    assert (result.ruling, result.reason) == ("inconclusive", "not_observed")
    assert result.explanation.startswith(explanation)
    for criteria in OF_ANY_SUITE:
        result = on_fabric(node, pairs=pairs, criteria=criteria)
        assert (result.ruling, result.reason) == ("not_applicable", "not_observed")


@pytest.mark.parametrize("criteria", OF_ANY_SUITE, ids=lambda one: one.name)
def test_every_shipped_file_for_devices_requires_the_way_between_two(criteria: Criteria) -> None:
    (criterion,) = (one for one in criteria.criterion if one.kind == "fabric")
    assert criterion.required
    assert criterion.if_not_observed == "not_applicable"


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        ("completed, with error 15", ("fail", "fabric")),
        ("in progress", ("inconclusive", "fabric")),
        ("not started", ("inconclusive", "fabric")),
        ("none", ("pass", "")),
        (None, ("pass", "")),
    ],
)
def test_switches_that_are_not_set_up_keep_a_node_from_being_accepted(
    state: str | None, answer: tuple[str, str]
) -> None:
    for criteria in (NODE, *OF_ANY_SUITE):
        result = on_fabric(joined(fabric=state), criteria=criteria)
        assert (result.ruling, result.reason) == answer


def test_nothing_joins_one_device_or_processors() -> None:
    alone = joined()
    alone = replace(alone, identity=replace(alone.identity, devices=alone.identity.devices[:1]))
    for node in (alone, system(*PAIR)):
        assert (on_fabric(node).ruling, on_fabric(node).reason) == ("not_applicable", "absent")


def test_a_fabric_criterion_takes_no_limit() -> None:
    text = """
schema = "bench/criteria/1"
name = "own"
version = 1
summary = "Own"
[[criterion]]
id = "way"
kind = "fabric"
title = "Way"
at_most = 1
"""
    with pytest.raises(UsageError, match="it takes no metric, no limit and no cases"):
        criteria_file.parse_criteria(text.encode(), "own.toml")
