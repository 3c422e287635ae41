"""A burn-in asks for stress by names, the plan states it, and what is no burn-in refuses it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import a_case, a_plan

from appliance.errors import UsageError
from appliance.records.plan import Plan
from appliance.storage.suite_file import load_suite
from appliance.stress import scratch
from appliance.stress.kinds import (
    KINDS,
    NO_LINKS,
    canonical,
    kinds_of,
    parsed,
    unlinked,
    with_stress,
)
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
    with pytest.raises(
        UsageError, match=r"^--stress is .*give all, or some of host, disk, copies, links"
    ):
        PlanOptions(stress=text)


def test_every_burn_in_of_a_suite_is_stressed_and_shares_the_host() -> None:
    (case,) = with_stress(BURN_IN, "host,disk", 8).case
    assert kinds_of(case.workload, case.parameters) == ("host", "disk")
    assert case.parameters["stress_launches"] == 8
    assert with_stress(BURN_IN, "", 8) is BURN_IN


def test_suite_without_a_burn_in_is_refused() -> None:
    with pytest.raises(UsageError, match="--stress is for a burn-in, and suite smoke has none"):
        with_stress(load_suite("smoke")[0], "disk", 1)


def test_links_need_two_devices_at_once_and_one_says_so() -> None:
    def planned(num_devices: int) -> Plan:
        (item,) = with_stress(BURN_IN, canonical("all"), num_devices).case
        case = a_case("burn_in", launches=1, parameters=item.parameters)
        return a_plan(replace(case, workload="burn_in"))

    one, two = planned(1), planned(2)
    (alone,), (linked,) = one.cases, two.cases
    assert kinds_of("burn_in", alone.parameters) == ("host", "disk", "copies")
    assert kinds_of("burn_in", linked.parameters) == tuple(KINDS)
    assert (unlinked(one), unlinked(two)) == ((f"stress links: {NO_LINKS}",), ())


def test_scratch_is_asked_for_room_where_the_disk_is_stressed(tmp_path: Path) -> None:
    case = a_case("burn_in", launches=1, parameters={"stress": "disk", "stress_launches": 8})
    plan = a_plan(replace(case, workload="burn_in"))
    scratch.check(tmp_path, plan)
    unstressed = a_plan(a_case("gemm"))
    scratch.check(tmp_path / "gone", unstressed)
    (sentence,) = scratch.unused(tmp_path / "gone", unstressed)
    assert "gone is not used: it is for the disk stress of a burn-in" in sentence
    assert not scratch.unused(None, unstressed)
    assert not scratch.unused(tmp_path, plan)
    with pytest.raises(UsageError, match=r"^--scratch is .*gone, which is no folder: name one"):
        scratch.check(tmp_path / "gone", plan)
    size = scratch.file_bytes(tmp_path, 8)
    assert size % scratch.REGION == 0
    assert 8 * size < shutil.disk_usage(tmp_path).free / 10


def test_scratch_without_room_says_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = a_case("burn_in", launches=1, parameters={"stress": "disk", "stress_launches": 8})
    monkeypatch.setattr(scratch, "SHARE", 1e-12)
    with pytest.raises(UsageError, match=r"^--scratch: .* bytes free: make .* name another folder"):
        scratch.check(tmp_path, a_plan(replace(case, workload="burn_in")))


def test_other_workloads_have_no_stress() -> None:
    assert kinds_of("gemm", {"stress": "host"}) == ()
