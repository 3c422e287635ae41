"""Suites: what stands in the files, and where a suite's cases go on nodes of many kinds."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from support.builders import FUNCTIONAL, SEED
from support.suite_items import device, item, placed

from appliance.errors import UsageError
from appliance.planning import placement
from appliance.records.plan import NotPlanned
from appliance.records.request import CaseRequest
from appliance.records.suite import MemoryClass
from appliance.storage import criteria_file, suite_file

PRIMARY = (
    "resnet50",
    "lightning-gpus",
    "convnext_large-tf32-fp16",
    "regnet_y_128gf",
    "dinov2-giant-gpus",
    "vjepa-single",
    "vjepa-gpus",
    "diffusion-gpus",
    "diffusion-nodes",
    "bert-tf32-fp16",
    "reformer",
    "llm-lora-single",
    "llm-lora-ddp-gpus",
    "llm-lora-ddp-nodes",
    "llm-lora-mp-gpus",
    "llm-full-mp-gpus",
    "llm-full-mp-nodes",
    "llama",
    "llava-single",
    "rlhf-single",
    "pna",
    "dimenet",
    "recursiongfn",
    "brax",
    "ppo",
    "torchatari",
)
OPTIONAL = (
    "resnet50-noio",
    "resnet152-ddp-gpus",
    "lightning",
    "convnext_large-fp32",
    "convnext_large-tf32",
    "convnext_large-fp16",
    "focalnet",
    "dinov2-giant-single",
    "diffusion-single",
    "bert-fp32",
    "bert-tf32",
    "bert-fp16",
    "t5",
    "whisper",
    "rlhf-gpus",
    "dqn",
)
TABLE = (
    MemoryClass(gib=24, parameters={"batch": 4}),
    MemoryClass(gib=80, parameters={"batch": 16}),
)


# ------------------------------------------------------------------ memory tables


@pytest.mark.parametrize(
    ("gib", "chosen"),
    [
        (80.0, 80),
        (79.6, 80),  # what a device of 80 GiB reports beside its firmware's share
        (141.0, 80),
        (48.0, 24),
        (22.5, 24),  # error correction takes a sixteenth
        (22.0, None),
        (16.0, None),
    ],
)
def test_largest_class_that_the_memory_has_is_taken(gib: float, chosen: int | None) -> None:
    result, lacking = placed(item(memory=TABLE), devices=[device(0, gib=gib)])
    if chosen is None:
        assert result == ()
        assert lacking[0].reason == f"it needs 24 GiB of memory, and vendor:0 has {gib:.1f} GiB"
        assert (lacking[0].case, lacking[0].device) == ("one", "vendor:0")
    else:
        assert lacking == ()
        assert result[0].memory == next(one for one in TABLE if one.gib == chosen)
        assert result[0].request.parameters == result[0].memory.parameters


def test_case_with_a_table_is_not_planned_where_no_memory_is_reported() -> None:
    result, lacking = placed(item(memory=TABLE), item("two"), devices=[device(0, gib=None)])
    assert [one.item.id for one in result] == ["two"]
    assert lacking[0].reason == "its parameters go by memory, and that of vendor:0 is not reported"


def test_a_job_goes_by_its_device_with_the_least_memory() -> None:
    devices = [device(0), device(1, gib=24.0), device(2)]
    result, _ = placed(item(scope="job", memory=TABLE), devices=devices)
    assert (len(result), result[0].request.parameters["batch"]) == (1, 4)
    each, _ = placed(item(memory=TABLE), devices=devices)
    assert [one.request.parameters["batch"] for one in each] == [16, 4, 16]


def test_what_differs_by_memory_is_asked_once_for_each_class() -> None:
    devices = [device(0), device(1, gib=24.0), device(2)]
    result, _ = placed(item(memory=TABLE), devices=devices)
    requested = placement.requests(result)
    assert [one.parameters["batch"] for one in requested] == [16, 4]


# ------------------------------------------------------------------ devices, nodes, jobs


def test_a_job_takes_all_devices_of_its_vendor_with_a_rank_on_each() -> None:
    devices = [device(0), device(1), device(0, vendor="cpu")]
    result, _ = placed(item(scope="job", parameters={"ranks": 2}), devices=devices)
    assert [(one.place, one.num_ranks) for one in result] == [("vendor:all", 2), ("cpu:0", 0)]
    assert result[0].request == CaseRequest(
        workload="w", small=False, parameters={"ranks": 2}, num_devices=2
    )


def test_a_case_that_needs_more_devices_or_nodes_is_not_planned_with_its_reason() -> None:
    result, lacking = placed(
        item("many", num_devices=2, scope="job"),
        item("far", num_nodes=2, scope="job"),
        item("here"),
        devices=[device(0)],
    )
    assert [one.item.id for one in result] == ["here"]
    assert lacking == (
        NotPlanned(case="many", device="", reason="it needs 2 devices, and this node has 1"),
        NotPlanned(case="far", device="", reason="it needs 2 nodes, and this run is of one"),
    )


# ------------------------------------------------------------------ variants


def test_one_case_of_each_workload_is_varied_and_the_seed_draws_it() -> None:
    items = (item("a"), item("b"), item("c", workload="v"), item("d", workload="u", variants=False))
    drawn = set()
    for byte in range(20):
        seed = f"{byte:02x}" * 32
        result, _ = placed(*items, devices=[device(0), device(1)], varies=True, seed=seed)
        varied = [one for one in result if one.draw is not None]
        assert [one.item.workload for one in varied] == ["w", "w", "v", "v"]
        assert varied[0].item.id == varied[1].item.id  # the same on both devices
        assert varied[0].draw == varied[1].draw
        drawn.add((varied[0].item.id, varied[0].draw))
        again, _ = placed(*items, devices=[device(0), device(1)], varies=True, seed=seed)
        assert again == result
    assert {name for name, _ in drawn} == {"a", "b"}
    assert len({draw for _, draw in drawn}) == 20


def test_nothing_varies_where_the_suite_does_not_say_so() -> None:
    result, _ = placed(item("a"), devices=[device(0)])
    assert [one.draw for one in result] == [None]
    output, _ = placed(item("a", variants=True), devices=[device(0)])
    assert [one.draw is None for one in output] == [True, False]


def test_a_case_that_is_not_planned_does_not_vary() -> None:
    result, _ = placed(item("a", num_nodes=2), item("b"), devices=[device(0)], varies=True)
    assert [one.item.id for one in result] == ["b", "b"]


# ------------------------------------------------------------------ the files


def test_the_acceptance_suite_holds_primary_rows_of_one_weight() -> None:
    suite, _ = suite_file.load_suite("acceptance")
    assert [case.id for case in suite.case] == list(PRIMARY)
    assert len(PRIMARY) == 26
    assert {case.weight for case in suite.case} == {1.0}
    assert not any(case.small for case in suite.case)


def test_the_extended_suite_holds_the_rows_of_the_acceptance_suite_as_they_are() -> None:
    accepted, _ = suite_file.load_suite("acceptance")
    extended, _ = suite_file.load_suite("extended")
    rows = {case.id: case for case in extended.case}
    assert all(rows[case.id] == case for case in accepted.case)
    assert set(OPTIONAL) <= set(rows)
    assert {"fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"} <= set(rows)
    assert {case.weight for name, case in rows.items() if name not in PRIMARY} <= {0.0}
    assert accepted.protocol == extended.protocol


@pytest.mark.parametrize("name", ["acceptance", "extended"])
def test_rows_keep_their_names_and_what_they_need(name: str) -> None:
    suite, _ = suite_file.load_suite(name)
    rows = {case.id: case for case in suite.case}
    for row, case in rows.items():
        assert row in PRIMARY or row in OPTIONAL or case.weight == 0.0
        assert (case.num_nodes == 2) == row.endswith("-nodes")
        if row.endswith(("-gpus", "-nodes")):
            assert case.scope == "job"
        if row.endswith("-gpus"):
            assert case.num_devices >= 2
        assert ("tf32" in case.needs) == (row in ("tf32", "convnext_large-tf32", "bert-tf32"))


@pytest.mark.parametrize("name", ["node", "node-small"])
def test_the_node_suites_go_on_nodes_of_any_size(name: str) -> None:
    suite, _ = suite_file.load_suite(name)
    may_lack = criteria_file.load_criteria("node")[0].may_lack
    for devices, pairs, jobs in (
        ([device(0, vendor="cpu")], [], "cpu:0"),
        ([device(0)], [], "vendor:0"),
        ([device(n) for n in range(8)], 56, "vendor:all"),
    ):
        result, lacking = placement.place(suite, devices, SEED)
        assert sum(one.item.scope == "pair" for one in result) == (pairs or 0)
        assert {one.place for one in result if one.item.id == "host-memory"} == {jobs}
        names = {one.case for one in lacking}
        assert all(any(fnmatchcase(case, pattern) for pattern in may_lack) for case in names)
        assert ("pairs" in names) == (len(devices) == 1)
        assert ("collective-ring" in names) == (len(devices) == 1 and devices[0].vendor != "cpu")
    company = {case.id: case.alone for case in suite.case if case.workload == "gemm"}
    assert list(company.values()).count(True) == 1


def test_collectives_take_a_rank_on_each_accelerator() -> None:
    suite, _ = suite_file.load_suite("collectives")
    result, lacking = placement.place(suite, [device(0), device(1), device(2)], SEED)
    assert lacking == ()
    assert {one.num_ranks for one in result} == {3}
    _, lacking = placement.place(suite, [device(0)], SEED)
    assert {one.reason for one in lacking} == {"it needs 2 devices, and this node has 1"}
    on_processors, _ = placement.place(suite, [device(0, vendor="cpu")], SEED)
    assert [one.request.parameters["ranks"] for one in on_processors] == [2, 2, 2, 4, 4, 2, 4]


def test_one_node_can_hold_every_case_of_smoke_all() -> None:
    suite, _ = suite_file.load_suite("smoke-all")
    for devices in ([device(0, vendor="cpu", gib=16.0)], [device(0), device(1)]):
        _, lacking = placement.place(suite, devices, SEED)
        assert lacking == ()
    _, lacking = placement.place(suite, [device(0)], SEED)  # an accelerator has one rank
    assert {item.case for item in lacking} == {c.id for c in suite.case if c.scope == "job"}
    assert all(case.small for case in suite.case)
    assert any(case.agents == 2 for case in suite.case)
    assert any(case.scope == "job" and case.agents == 1 for case in suite.case)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("scope = 'job'", "agents = 2", "has 2 agents, of which only a job has several"),
        ("scope = 'job'", "agents = 0", 'key "agents" must be 1 or more'),
        ("scope = 'job'", "num_nodes = 0", 'key "num_nodes" must be 1 or more'),
        ("scope = 'job'", "memory = [{gib = 20}]", "among 16, 24, 48, 80, 141, 192 GiB"),
        ("scope = 'job'", "memory = [{gib = 80}, {gib = 24}]", "must rise"),
        ("scope = 'job'", "scope = 'rack'", 'key "scope" of case 1 cannot be "rack"'),
        ("scope = 'job'", "weight = -1", "it must be 0 or more"),
        ("[protocol]", "[protocol]\nfresh_every = 2", "launches that are judged are of one kind"),
        ("scope = 'job'", "memory = [{gib = 24, batch = 3}]", 'unknown key "batch"'),
    ],
)
def test_what_cannot_be_placed_is_refused_with_a_sentence(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    text = SUITE.replace(old, new)
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=sentence.replace(".", r"\.")):
        suite_file.load_suite(str(path))


SUITE = """
schema = "bench/suite/2"
name = "mine"
version = 1
summary = "tests"
time_limit_seconds = 10
[protocol]
mode = "fresh"
calibration_seconds = 0.1
warmup_steps = 1
warmup_seconds = 0.0
blocks = 1
block_steps = 2
block_seconds = 0.1
interim_analyses = [2]
last_checks = "one"
[[case]]
id = "one"
workload = "gemm"
scope = 'job'
expected_seconds = 1
reference_seconds = 1
time_limit_seconds = 5
memory_limit_gib = 1
"""


def test_the_suite_of_these_tests_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SUITE)
    suite, _ = suite_file.load_suite(str(path))
    assert suite.case[0].scope == "job"
    assert FUNCTIONAL.may_lack == ()
