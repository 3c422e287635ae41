"""Verify holds the versions that a node recorded to the ranges, and the ranges to its own."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from support.builders import a_case, a_plan
from support.bundles import SYSTEM
from support.known_facts import facts_file

from appliance.errors import EvidenceError
from appliance.records.plan import Plan
from appliance.records.qualified import Qualified
from appliance.records.system import Fact
from appliance.verification import facts_checks
from appliance.verification.facts import Facts
from appliance.verification.verify import _check_libraries
from appliance.version import VERSION

RANGES = {"torch": ">=2.13,<2.14", "transformers": ">=5.23,<6"}


def check(plan: Plan, **versions: str) -> None:
    installed = {"torch": "2.13.0+cpu", "transformers": "5.23.0", **versions}
    software = {name: Fact(value=version) for name, version in installed.items()}
    system = replace(SYSTEM, identity=replace(SYSTEM.identity, software=software))
    bundle: Any = SimpleNamespace(plan=plan, system=system, qualified=Qualified(record=()))
    _check_libraries(bundle)
    comparison = facts_checks.Comparison(plan=plan, facts=facts(plan))
    facts_checks.compare_ranges(comparison, bundle)


def facts(plan: Plan) -> Facts:
    """Those of a release with these ranges."""
    ranges = {"cpu": {**RANGES, "jax": ">=0.10"}}
    file = replace(facts_file(plan), ranges=ranges, bench_version=VERSION)
    return Facts(file=file)


def planned(*, software: str = "", ranges: dict[str, str] = RANGES, version: str = VERSION) -> Plan:
    case = replace(a_case("bert"), libraries=("torch", "transformers"), software=software)
    return replace(a_plan(a_case(), case), ranges=ranges, bench_version=version)


def test_stack_in_its_ranges_is_let_through() -> None:
    check(planned())


def test_case_that_ran_on_a_version_outside_its_range_is_found() -> None:
    with pytest.raises(EvidenceError, match=r"case bert@cpu:0 is planned.*transformers 5\.17\.0"):
        check(planned(), transformers="5.17.0")
    check(planned(software="transformers 5.17.0 is outside"), transformers="5.17.0")


@pytest.mark.parametrize(
    "ranges",
    [
        {"torch": RANGES["torch"]},
        {**RANGES, "transformers": ">=5"},
        {**RANGES, "transformers": RANGES["transformers"] + " or ==5.17.0"},
    ],
)
def test_plan_with_ranges_of_its_own_is_found(ranges: dict[str, str]) -> None:
    with pytest.raises(EvidenceError, match="allows other versions of libraries"):
        check(planned(ranges=ranges))
    check(planned(ranges=ranges, version="0.0.1"))  # of which nothing is known here
