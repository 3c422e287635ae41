"""Which runs count, and where a node stands: pure rules over the ledger's lines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.fleet_tables import campaign, entry, run

from appliance.collection import standing
from appliance.collection.rows import Entry
from appliance.collection.standing import Standing
from appliance.records.verdict import VerdictWord

OF_TWO = campaign(["a", "b"], ["r", "r"])


def of_a(*verdicts: VerdictWord) -> Standing:
    entries = [entry("a", run("a", number=n, verdict=word)) for n, word in enumerate(verdicts, 1)]
    return standing.fleet(OF_TWO, entries).standings[0]


@pytest.mark.parametrize(
    ("verdicts", "state", "decided_by"),
    [
        ((), "open", None),
        (("ACCEPTED",), "accepted", 1),
        (("REJECTED",), "open", None),
        (("REJECTED", "ACCEPTED"), "accepted", 2),
        (("REJECTED", "REJECTED"), "rejected", 2),
        (("REJECTED", "REJECTED", "ACCEPTED"), "rejected", 2),
        (("INCONCLUSIVE",), "open", None),
        (("INCONCLUSIVE", "ACCEPTED"), "accepted", 2),
        (("ACCEPTED", "REJECTED"), "accepted", 1),
        (("INCONCLUSIVE", "INCONCLUSIVE", "ACCEPTED"), "accepted", 3),
        (("INCONCLUSIVE", "INCONCLUSIVE", "INCONCLUSIVE", "ACCEPTED"), "open", None),
        (("REJECTED", "INCONCLUSIVE", "INCONCLUSIVE", "ACCEPTED"), "open", None),
    ],
)
def test_state_follows_the_campaigns_rule(
    verdicts: tuple[VerdictWord, ...], state: str, decided_by: int | None
) -> None:
    one = of_a(*verdicts)
    assert (one.state, one.decided_by) == (state, decided_by)
    assert len(one.attempts) == len(verdicts)


def test_retest_with_too_few_sessions_decides_nothing() -> None:
    rule = replace(OF_TWO.retest, sessions=2)
    entries = [
        entry("a", run("a", number=1, verdict="REJECTED")),
        entry("a", run("a", number=2, verdict="ACCEPTED", sessions=1)),
    ]
    made = standing.fleet(replace(OF_TWO, retest=rule), entries).standings[0]
    assert (made.state, made.attempts[1].is_decisive) == ("open", False)


def test_attempts_without_a_bundle_are_counted() -> None:
    made = standing.fleet(OF_TWO, [entry("a", run("a"))], begun={"a": 3, "b": 2})
    assert [one.num_lost for one in made.standings] == [2, 2]
    assert made.standings[1].reason == "no verified bundle of 2 attempts"


def test_the_same_run_counts_once_whatever_the_order_of_reading() -> None:
    first, second = (entry("a", run("a"), source=source) for source in ("/x", "/y"))
    for entries in ([first, second], [second, first]):
        made = standing.fleet(OF_TWO, entries)
        assert [len(one.attempts) for one in made.standings] == [1, 0]
        (refused,) = made.refused
        assert (refused.source, refused.finding.reason) == ("/y", "double")
        assert refused.finding.sentence == "the same run lies at /x"


def refused_nodes(entries: list[Entry], devices: tuple[str, ...] | None = None) -> list[str]:
    nodes = (replace(OF_TWO.nodes[0], devices=devices), OF_TWO.nodes[1])
    made = standing.fleet(replace(OF_TWO, nodes=nodes), entries)
    assert {one.finding.reason for one in made.refused} <= {"other_node"}
    return [one.finding.node for one in made.refused]


def test_hardware_of_another_node_is_refused_by_the_inventory() -> None:
    honest, other = entry("a", run("a")), entry("b", run("b", serial="SN-a"))
    assert refused_nodes([honest, other], devices=("SN-a",)) == ["b"]


def test_hardware_that_two_nodes_report_counts_for_neither() -> None:
    both = [entry("a", run("a")), entry("b", run("b", serial="SN-a"))]
    assert refused_nodes(both) == ["a", "b"]


def test_run_without_the_devices_of_the_inventory_is_refused() -> None:
    assert refused_nodes([entry("a", run("a"))], devices=("SN-other",)) == ["a"]


def test_devices_without_serials_are_believed() -> None:
    both = [entry(name, run(name, serial=None)) for name in ("a", "b")]
    assert refused_nodes(both) == []
