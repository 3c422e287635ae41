"""The shipped sizes: which requests they answer, and which are for the worker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.builders import SYSTEM

from appliance.planning import workload_manifest, workload_sizes
from appliance.planning.plan import requests
from appliance.planning.workload_sizes import ShippedAnswers
from appliance.records.json import Scalar
from appliance.records.request import CaseRequest
from appliance.records.system import Device
from appliance.storage.suite_file import MEMORY_CLASSES, list_suites, load_suite

MANIFEST = workload_manifest.load()
FILE = workload_sizes.load()
VERSIONS = workload_sizes.module_versions(MANIFEST)
COUNTS = (1, 2, 4, 8)
"""Devices of a node."""
SHIPPED = ShippedAnswers(manifest=MANIFEST, file=FILE, versions=VERSIONS)


def device(index: int, gib: int) -> Device:
    first = SYSTEM.identity.devices[0]
    name = f"vendor:{index}"
    return replace(first, id=name, vendor="vendor", index=index, memory_bytes=gib * 2**30)


def small(workload: str, **parameters: Scalar) -> CaseRequest:
    return CaseRequest(workload=workload, small=True, parameters=parameters)


def test_every_module_states_the_version_of_its_facts() -> None:
    assert {name: facts.version for name, facts in MANIFEST.items()} == VERSIONS


@pytest.mark.parametrize("suite", list_suites())
def test_no_case_of_a_shipped_suite_is_asked_of_the_worker(suite: str) -> None:
    shipped = load_suite(suite)[0]
    nodes = [
        SYSTEM.identity.devices,
        *(
            tuple(device(index, gib) for index in range(count))
            for count in COUNTS
            for gib in MEMORY_CLASSES
        ),
    ]
    asked = {
        (one.workload, one.num_devices)
        for node in nodes
        for seed in ("00" * 32, "b7" * 32)
        for one in requests(shipped, node, seed)
        if SHIPPED.resolved(one) is None
    }
    assert asked == set(), "run `make generate`"


def test_a_request_is_answered_with_all_of_its_parameters() -> None:
    answer = SHIPPED.resolved(small("gemm"))
    assert answer is not None
    assert answer.parameters == MANIFEST["gemm"].complete(small("gemm"))
    assert answer.work.flops is not None


@pytest.mark.parametrize(
    "request_of_ones_own",
    [
        small("gemm", no_such=1),
        small("gemm", num_inputs=True),
        small("gemm", dtype="float16", num_inputs=12345),
        small("faulty.misbehaving"),
    ],
)
def test_what_no_shipped_suite_asks_is_asked_of_the_worker(
    request_of_ones_own: CaseRequest,
) -> None:
    assert SHIPPED.resolved(request_of_ones_own) is None


def test_a_whole_number_stands_for_a_number() -> None:
    (name,) = (
        name for name, value in MANIFEST["bert"].parameters.items() if isinstance(value, float)
    )
    default = MANIFEST["bert"].parameters[name]
    assert SHIPPED.resolved(small("bert", **{name: default})) is not None
    assert SHIPPED.resolved(small("bert", **{name: 1})) is None


def test_a_module_of_another_version_is_asked() -> None:
    for versions in ({**VERSIONS, "gemm": VERSIONS["gemm"] + 1}, {}):
        there = ShippedAnswers(manifest=MANIFEST, file=FILE, versions=versions)
        assert there.resolved(small("gemm")) is None


def test_sizes_of_another_version_than_the_facts_answer_nothing() -> None:
    newer = {**MANIFEST, "gemm": replace(MANIFEST["gemm"], version=VERSIONS["gemm"] + 1)}
    there = ShippedAnswers(manifest=newer, file=FILE, versions=VERSIONS)
    assert there.resolved(small("gemm")) is None


def test_a_workload_that_follows_another_needs_that_ones_version_too() -> None:
    suite = load_suite("curves")[0]
    item = next(one for one in suite.case if one.workload == "loss_curve")
    request = CaseRequest(workload="loss_curve", small=item.small, parameters=item.parameters)
    followed = str(MANIFEST["loss_curve"].complete(request)["workload"])
    assert SHIPPED.resolved(request) is not None
    versions = {**VERSIONS, followed: VERSIONS[followed] + 1}
    there = ShippedAnswers(manifest=MANIFEST, file=FILE, versions=versions)
    assert there.resolved(request) is None
