"""The self-test: every fault is caught, and a judge that misses one is called unsound."""

import importlib
import json
import math
import pkgutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.program import ROOT, bench
from typer.testing import CliRunner

import workloads
import workloads.injected
from appliance.cli import main
from appliance.records.journal import Injected
from appliance.selftest import process_faults, simulation, summary, virtual_faults, virtual_node
from appliance.selftest.expected_outcomes import FAIL, NEVER_PASS, Expected, Row, catching, fault_of
from appliance.selftest.summary import Behaviour, Result
from appliance.selftest.time_model import Timing
from appliance.selftest.virtual_faults import SPEED, Scenario, behaving, healthy_node
from workloads.contract.target import Artifacts, Target
from workloads.injected.product import flip

SCENARIOS = {scenario.name: scenario for scenario in virtual_faults.scenarios()}
SLOW = Expected(words=FAIL, criteria=("speed",))
ROW = Row(
    family="virtual",
    injected="a fault",
    expected="fail: speed",
    ruling="fail",
    criterion="speed",
    reason="over_limit",
    explanation="slower",
    verdict="REJECTED",
    concealed="REJECTED",
    is_ok=True,
)
BEHAVIOUR = Behaviour(
    slowdown=0.05,
    num_nodes=10,
    num_pass=0,
    num_fail=10,
    num_inconclusive=0,
    mean_launches=9.0,
    num_wrong=0,
    is_ok=True,
)


# ------------------------------------------------------------------ the virtual family


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_is_ruled_as_expected(name: str) -> None:
    row = SCENARIOS[name].row()
    assert row.is_ok, row
    assert (row.verdict == "ACCEPTED") == (SCENARIOS[name].expected is None)


def test_evidence_that_was_altered_is_refused() -> None:
    rows = list(virtual_faults.chain_rows())
    assert [row for row in rows if not row.is_ok] == []
    assert [row.ruling for row in rows] == ["verified", *["refused"] * (len(rows) - 1)]
    assert len({row.explanation for row in rows}) >= 4  # each for a reason of its own


def test_a_run_that_names_an_injector_is_not_accepted_though_every_check_passes() -> None:
    row = virtual_faults.invisible_row()
    assert row.is_ok, row
    assert (row.verdict, row.concealed) == ("INCONCLUSIVE", "ACCEPTED")
    assert (row.ruling, row.criterion, row.reason) == ("inconclusive", "integrity", "injected")


def test_an_injector_told_by_the_journal_alone_is_enough() -> None:
    node = healthy_node(SPEED, num_cases=1)
    lines = list(simulation.simulate(node, seed=1).lines)
    output = Injected(injector="something", cases=(virtual_faults.ONE,))
    reported = [lines[0], replace(lines[0], event=output), *lines[1:]]
    assert node.judge(lines).verdict().verdict == "ACCEPTED"
    assert node.judge(reported).verdict().verdict == "INCONCLUSIVE"


# ------------------------------------------------------------------ the self-test's own judgement


def test_a_fault_that_slips_through_is_not_ok() -> None:
    row = Scenario(name="none at all", node=healthy_node(SPEED, num_cases=1), expected=SLOW).row()
    assert not row.is_ok
    assert "slipped through" in row.explanation
    assert row.concealed == "ACCEPTED"


def test_a_fault_that_another_criterion_caught_by_chance_is_not_ok() -> None:
    node = behaving(healthy_node(SPEED, num_cases=1), Timing(effect=math.log(1.2)))
    expected = Expected(words=FAIL, criteria=("integrity",))
    row = Scenario(name="slow", node=node, expected=expected).row()
    assert (row.is_ok, row.concealed) == (False, "REJECTED")


def test_a_healthy_run_that_is_rejected_is_not_ok() -> None:
    node = behaving(healthy_node(SPEED, num_cases=1), Timing(effect=math.log(1.2)))
    row = Scenario(name="nothing", node=node, expected=None).row()
    assert not row.is_ok
    assert "not accepted" in row.explanation


def test_a_fault_that_spoils_its_neighbours_is_not_ok() -> None:
    node = behaving(healthy_node(SPEED, num_cases=2), Timing(effect=math.log(1.2)))
    row = Scenario(name="slow", node=node, expected=SLOW, affected=(virtual_faults.ONE,)).row()
    assert not row.is_ok
    assert "case-01@virtual:0" in row.explanation


def test_a_criterion_that_was_to_pass_must_pass() -> None:
    node = behaving(healthy_node(SPEED, num_cases=1), Timing(effect=math.log(1.2)))
    verdict = simulation.simulate(node, seed=1).verdict
    assert fault_of(SLOW, "REJECTED", verdict) == ""
    assert "was to pass" in fault_of(replace(SLOW, passing=("speed",)), "REJECTED", verdict)
    assert "names its fault" in fault_of(SLOW, "ACCEPTED", verdict)


def test_a_reason_that_was_asked_for_must_be_given() -> None:
    node = behaving(healthy_node(SPEED, num_cases=1), Timing(effect=math.log(1.2)))
    verdict = simulation.simulate(node, seed=1).verdict
    caught = catching(replace(SLOW, reasons=("over_limit",)), verdict)
    assert caught is not None
    assert caught.case == virtual_faults.ONE
    assert catching(replace(SLOW, reasons=("unstable",)), verdict) is None


@pytest.mark.parametrize(
    ("row", "outcome", "is_ok"),
    [
        (ROW, BEHAVIOUR, True),
        (replace(ROW, is_ok=False), BEHAVIOUR, False),
        (ROW, replace(BEHAVIOUR, is_ok=False), False),
    ],
)
def test_one_row_that_is_not_ok_fails_the_self_test(
    row: Row,
    outcome: Behaviour,
    is_ok: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = Result(rows=(ROW, row), behaviour=(outcome,))
    monkeypatch.setattr(summary, "run", lambda _: result)
    done = CliRunner().invoke(main.app, ["selftest"])
    assert done.exit_code == (0 if is_ok else 1)
    assert ("nothing slipped through" in done.stderr) == is_ok
    assert ("not ok" in done.stderr) == (not is_ok)
    as_json = CliRunner().invoke(main.app, ["selftest", "--json"])
    assert as_json.exit_code == done.exit_code
    document = json.loads(as_json.stdout)
    assert document["is_ok"] == is_ok
    assert document["rows"][0]["criterion"] == "speed"
    assert document["behaviour"][0]["num_fail"] == 10


# ------------------------------------------------------------------ how slow is slow


def test_nodes_are_ruled_by_how_slow_they_are() -> None:
    healthy, slow = summary.behaviour((0.0, 0.06), num_nodes=20)
    assert (healthy.num_pass, healthy.num_wrong, healthy.is_ok) == (20, 0, True)
    assert (slow.num_fail, slow.num_wrong, slow.is_ok) == (20, 0, True)
    assert 5 <= slow.mean_launches < 17


def test_more_wrong_words_than_chance_allows_are_not_ok() -> None:
    node = healthy_node(SPEED, num_cases=1)
    rows = [
        summary._behaviour(slowdown, ["pass"] * num_pass + ["fail"] * (100 - num_pass), 5.0, node)
        for slowdown, num_pass in ((0.0, 100), (0.0, 50), (0.05, 0), (0.05, 2), (0.05, 50))
    ]
    assert [row.is_ok for row in rows] == [True, False, True, True, False]
    assert [row.num_wrong for row in rows] == [0, 50, 0, 2, 50]


# ------------------------------------------------------------------ the injected workloads


MODULES = sorted(
    module.name
    for module in pkgutil.iter_modules(workloads.injected.__path__)
    if module.name != "product"
)
KINDS = {name: importlib.import_module(f"workloads.injected.{name}").WORKLOAD for name in MODULES}


def test_every_injector_has_a_name_of_its_own_and_is_tried() -> None:
    injectors = [kind.injector for kind in KINDS.values()]
    assert all(injectors)
    assert len(set(injectors)) == len(injectors)
    tried = {
        trial.workload.rpartition(".")[2] for trial in process_faults.TRIALS if trial.is_injected
    }
    assert tried == set(MODULES)


def test_no_workload_that_measures_a_device_injects_anything() -> None:
    for module in pkgutil.iter_modules(workloads.__path__):
        if not module.ispkg and module.name != "contract":
            path = Path(workloads.__path__[0]) / f"{module.name}.py"
            text = path.read_text().replace("inject_adapter_in_model", "")  # a library's own word
            assert "inject" not in text, module.name


def test_no_suite_that_is_shipped_has_an_injector() -> None:
    for path in (ROOT / "workloads" / "suites").glob("*.toml"):
        assert "injected" not in path.read_text(), path.name


def checks_of(name: str, folder: Path, made: int = 23, **parameters: object) -> list[bool]:
    """Whether all checks of the first output, and of the last, are within their bounds."""
    kind = KINDS[name]
    workload = kind(**{**kind.small, **parameters})
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(folder))
    state = workload.build(target, 7)
    result = []
    for number in range(made):
        before = workload.snapshot(state)
        output = workload.step(state)
        if number in (0, made - 1):
            checks = list(workload.check(before, state, output))
            result.append(all(check.is_within for check in checks))
    return result


@pytest.mark.parametrize(
    "name", ["lower_precision", "not_a_number", "rescaled", "unwritten_output", "zeros"]
)
def test_a_spoilt_output_is_outside_from_the_step_that_it_begins_at(
    name: str, tmp_path: Path
) -> None:
    assert checks_of(name, tmp_path) == [False, False]
    assert checks_of(name, tmp_path, after=1) == [True, False]


@pytest.mark.parametrize("name", ["cached_output", "stale_output"])
def test_an_output_of_another_step_is_right_at_first(name: str, tmp_path: Path) -> None:
    assert checks_of(name, tmp_path) == [True, False]


def test_a_fault_that_nothing_shows_is_within_every_bound(tmp_path: Path) -> None:
    assert checks_of("nothing", tmp_path) == [True, True]
    assert checks_of("slow_device", tmp_path, m=16, n=16, k=64, made=5) == [True, True]


@pytest.mark.parametrize("bit", range(32))
def test_every_bit_flip_in_an_exact_product_of_32_bits_shows(bit: int, tmp_path: Path) -> None:
    size = {"m": 64, "n": 64, "k": 64, "dtype": "float32", "magnitude": 15}
    assert checks_of("exact_bit_flip", tmp_path, 2, bit=bit, **size) == [False, False]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("bit", range(16))
def test_every_bit_flip_in_an_exact_product_of_16_bits_shows(
    bit: int, dtype: str, tmp_path: Path
) -> None:
    size = {"m": 64, "n": 64, "k": 64, "dtype": dtype, "magnitude": 15}
    assert checks_of("exact_bit_flip", tmp_path, 2, bit=bit, **size) == [False, False]


@pytest.mark.parametrize("bit", [12, 20, 23, 30, 31])
def test_bit_flips_above_the_rounding_show_in_a_product(bit: int, tmp_path: Path) -> None:
    assert checks_of("bit_flip", tmp_path, bit=bit, after=1) == [True, False]


def test_a_bit_below_the_rounding_does_not_show_in_a_product(tmp_path: Path) -> None:
    assert checks_of("bit_flip", tmp_path, bit=0) == [True, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_flip_changes_one_bit_of_one_element(dtype: torch.dtype) -> None:
    output = torch.tensor([[1.0, -4.0], [2.0, 3.0]], dtype=dtype)
    highest = 8 * dtype.itemsize - 1
    flipped = flip(output, highest)
    assert flipped.dtype == dtype
    assert flipped.tolist() == [[1.0, 4.0], [2.0, 3.0]]
    assert flip(flip(output, 3), 3).tolist() == output.tolist() != flip(output, 3).tolist()


def test_a_skipped_update_shows_at_its_step_alone(tmp_path: Path) -> None:
    size = {"num_steps": 6, "target": 0.01}
    assert checks_of("skipped_update", tmp_path, 6, **size) == [True, False]
    assert checks_of("skipped_update", tmp_path, 3, **size) == [True, True]


# ------------------------------------------------------------------ real processes


def test_a_trial_alone_has_nothing_of_the_others_and_concealed_no_word_of_its_fault() -> None:
    node = virtual_node.with_injector(healthy_node(SPEED, num_cases=3), "f", ["case-01@virtual:0"])
    trial = process_faults.Trial(
        id="case-01", name="", workload="w", poses_as="gemm", expected=SLOW
    )
    alone = process_faults.alone(node.plan, trial)
    assert [case.id for case in alone.cases] == ["case-01@virtual:0"]
    assert {launch.case for launch in alone.launches} == {"case-01@virtual:0"}
    assert all(group for group in alone.groups)
    assert alone.injectors == ("f",)
    hidden = process_faults.concealing(alone, trial)
    assert (hidden.injectors, hidden.cases[0].injector) == ((), "")
    assert hidden.cases[0].workload == "gemm"
    other = process_faults.alone(node.plan, replace(trial, id="case-02"))
    assert other.injectors == ()


@pytest.mark.slow
def test_the_whole_self_test_on_this_machine() -> None:
    done = bench("selftest", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    rows = json.loads(done.stdout)["rows"]
    by_name = {row["injected"]: row for row in rows if row["family"] == "real"}
    trials = [trial for trial in process_faults.TRIALS if trial.id != process_faults.REFERENCE]
    assert set(by_name) == {trial.name for trial in trials}
    for trial in trials:
        row = by_name[trial.name]
        assert row["is_ok"]
        if trial.is_injected:
            assert row["verdict"] != "ACCEPTED"
        if trial.expected is not None:
            assert row["concealed"] != "ACCEPTED"
            assert row["ruling"] in NEVER_PASS
        else:
            assert row["concealed"] != "REJECTED"
