"""A burn-in asks for stress by names, the plan states it, and what is no burn-in refuses it."""

from __future__ import annotations

import pytest

from appliance.errors import UsageError
from appliance.storage.suite_file import load_suite
from appliance.stress.kinds import KINDS, canonical, kinds_of, parsed, with_stress
from appliance.verbs.run_options import PlanOptions

BURN_IN = load_suite("burn-in")[0]


def test_kinds_stand_in_their_order_however_they_are_named() -> None:
    assert parsed("copies, host") == ("host", "copies")
    assert parsed("all") == tuple(KINDS)
    assert parsed("") == ()
    assert canonical("all") == ",".join(KINDS)
    assert canonical(None) == ""


@pytest.mark.parametrize("text", ["", "disc", "disk,disk", "disk,", "all,disk"])
def test_what_names_no_kind_is_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--stress is .*give all, or some of host, disk, copies"):
        PlanOptions(stress=text)


def test_every_burn_in_of_a_suite_is_stressed_and_shares_the_host() -> None:
    (case,) = with_stress(BURN_IN, "host,disk", 8).case
    assert kinds_of(case.workload, case.parameters) == ("host", "disk")
    assert case.parameters["stress_launches"] == 8
    assert with_stress(BURN_IN, "", 8) is BURN_IN


def test_suite_without_a_burn_in_is_refused() -> None:
    with pytest.raises(UsageError, match="--stress is for a burn-in, and suite smoke has none"):
        with_stress(load_suite("smoke")[0], "disk", 1)


def test_other_workloads_have_no_stress() -> None:
    assert kinds_of("gemm", {"stress": "host"}) == ()
