"""The rule of a node's state: whatever the runs, nothing beyond the signed risk accepts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from support.fleet_tables import campaign, run

from appliance.challenge.campaign import Campaign, RetestRule
from appliance.fleet import decision
from appliance.fleet.decision import Decision
from appliance.records.verdict import VerdictWord

WORDS: tuple[VerdictWord, ...] = ("ACCEPTED", "REJECTED", "INCONCLUSIVE")


def rule(retests: int, retries: int, *, sessions: int = 1) -> Campaign:
    one = campaign(["a"], ["r"])
    return replace(one, retest=RetestRule(retests=retests, sessions=sessions), retries=retries)


def decided(rules: Campaign, *verdicts: VerdictWord, sessions: int = 1) -> Decision:
    runs = [run("a", number=n, verdict=word, sessions=sessions) for n, word in enumerate(verdicts)]
    return decision.decide(rules, runs)


@pytest.mark.parametrize(("retests", "retries"), [(0, 0), (0, 2), (1, 1), (2, 0)])
def test_no_order_of_verdicts_accepts_beyond_the_signed_number_of_runs(
    retests: int, retries: int
) -> None:
    rules = rule(retests, retries)
    most = 1 + retests + retries
    for count in range(most + 3):
        for words in product(WORDS, repeat=count):
            found = decided(rules, *words)
            if found.state == "accepted":
                before = words[: words.index("ACCEPTED")]
                assert before.count("REJECTED") <= retests, words
                assert len(before) < most, words
            elif found.state == "rejected":
                assert words.count("REJECTED") > retests, words
            else:
                assert (found.next_sessions is None) == (count >= most), words
            if found.next_sessions is not None:
                assert decided(rules, *words, "ACCEPTED").state == "accepted", words


def test_the_next_run_has_the_parts_that_its_place_asks() -> None:
    rules = rule(1, 1, sessions=3)
    assert decided(rules).next_sessions == 1
    assert decided(rules, "INCONCLUSIVE").next_sessions == 1
    found = decided(rules, "REJECTED")
    assert (found.state, found.next_sessions) == ("retest", 3)
    assert found.reason == "rejected, with 1 of 1 retests left"
    assert decided(rules, "REJECTED", "REJECTED").state == "retest", "one part is too few"


def test_used_up_runs_are_said() -> None:
    found = decided(rule(1, 0), "REJECTED", "INCONCLUSIVE")
    assert (found.state, found.next_sessions) == ("open", None)
    assert found.reason.endswith("retests left, and all 2 runs of a node are used up")
