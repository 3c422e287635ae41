"""What `make test-stacks` reads, changes and writes; the stacks themselves are run by hand."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from appliance.storage import suite_file

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import other_stacks as stacks  # noqa: E402 - a script, found by its path

PYPROJECT = (ROOT / "pyproject.toml").read_text()
PROJECT = tomllib.loads(PYPROJECT)["project"]
PLAN = {
    "cases": [
        {"id": "gemm@cpu:0", "software": "", "unsupported": ""},
        {"id": "bert", "software": "", "unsupported": ""},
        {"id": "dqn", "software": "jax 0.9 is outside >=0.10,<0.11", "unsupported": ""},
        {"id": "ppo", "software": "", "unsupported": ""},
        {"id": "pna", "software": "", "unsupported": ""},
        {"id": "lost", "software": "", "unsupported": ""},
    ]
}
RULINGS = [
    ("gemm@cpu:0", "correctness", "pass", "", ""),
    ("gemm@cpu:0", "completion", "pass", "", ""),
    ("gemm@cpu:0", "speed", "fail", "over_limit", "slower than its limit"),
    ("bert", "correctness", "fail", "check", "loss is 3 times its bound in /tmp/x/y/logs"),
    ("pna", "correctness", "pass", "", ""),
    ("pna", "completion", "inconclusive", "crashed", "launch pna/r1 crashed: AttributeError"),
    ("ppo", "correctness", "inconclusive", "software", "cannot run: software: no module flax"),
]
VERDICT = {
    "rulings": [
        dict(zip(("case", "criterion", "ruling", "reason", "explanation"), one, strict=True))
        for one in RULINGS
    ]
}


def test_row_is_accepted_by_its_checks_and_launches_and_not_by_its_times() -> None:
    rows = stacks.rows_of(PLAN, VERDICT)
    assert [(row.case, row.result) for row in rows] == [
        ("gemm", "accepted"),
        ("bert", "failed"),
        ("dqn", "cannot run"),
        ("ppo", "cannot run"),
        ("pna", "failed"),
        ("lost", "failed"),
    ]
    assert rows[2].reason == "jax 0.9 is outside >=0.10,<0.11"
    assert rows[5].reason == "nothing was ruled on its checks"


def test_ranges_of_a_stack_allow_its_versions_and_no_others() -> None:
    text = stacks.with_ranges_of(PYPROJECT, {"torch": "2.8.0+cu128", "scikit-learn": "1.7.2"})
    changed = tomllib.loads(text)
    optional = changed["project"]["optional-dependencies"]
    assert optional["torch"] == [
        "pillow>=12",
        "scikit-learn==1.7.2",
        "torch==2.8.0",
        "transformers>=5.23,<6",
    ]
    assert optional["onnx"] == PROJECT["optional-dependencies"]["onnx"]
    assert changed["project"]["requires-python"] == PROJECT["requires-python"]
    assert changed["build-system"] == tomllib.loads(PYPROJECT)["build-system"]
    assert changed["tool"] == tomllib.loads(PYPROJECT)["tool"]


def test_lower_bounds_are_those_of_everything_that_a_run_needs() -> None:
    wanted = [*stacks.requirements(PROJECT)]
    low = stacks.floors(wanted)
    assert low.keys() == {item.name for item in wanted}
    assert all(item.specifier.contains(low[item.name]) for item in wanted)
    assert (low["torch"], low["transformers"], low["numpy"]) == ("2.13", "5.23", "2.0")
    assert {Requirement(one).name for one in PROJECT["dependencies"]} <= low.keys()


def test_pins_of_a_lock_are_versions_without_how_they_were_built() -> None:
    lock = "# extras: run\ntorch==2.13.0+cpu \\\n    --hash=sha256:00\nray==2.0 ; x == 'y'\n"
    assert stacks.pins(lock) == {"torch": "2.13.0", "ray": "2.0"}


@pytest.mark.parametrize(
    ("installed", "wanted", "is_same"),
    [("2.13.0+cpu", "2.13", True), ("2.8.0", "2.13", False), (None, "2.13", False)],
)
def test_versions_are_compared_however_they_were_built(
    installed: str | None,
    wanted: str,
    is_same: bool,  # noqa: FBT001 - a row of the table
) -> None:
    assert stacks.is_same(installed, wanted) is is_same


def test_part_of_the_suite_is_a_suite(tmp_path: Path) -> None:
    whole = stacks.SUITE.read_text()
    assert stacks.part_of_suite(whole, []) == whole
    file = tmp_path / "part.toml"
    file.write_text(stacks.part_of_suite(whole, ["gemm-fp32", "bert"]))
    suite, _ = suite_file.load_suite(str(file))
    assert [case.id for case in suite.case] == ["gemm-fp32", "bert"]
    with pytest.raises(ValueError, match="nothing: smoke-all has no such case"):
        stacks.part_of_suite(whole, ["bert", "nothing"])


def test_python_that_the_machine_lacks_is_said() -> None:
    assert stacks.interpreter(f"{sys.version_info[0]}.{sys.version_info[1]}") == sys.executable
    with pytest.raises(stacks.CannotMakeError, match=r"this machine has no Python 3\.99"):
        stacks.interpreter("3.99")


def test_new_results_take_the_place_of_old_ones_and_others_stay() -> None:
    rows = stacks.rows_of(PLAN, VERDICT)
    first = stacks.Result(stack="torch-2.8.0", date="2026-01-01", fault="torch 2.8.0: no space")
    other = stacks.Result(stack="lower-bounds", date="2026-01-02", rows=rows)
    both = stacks.merged([], [other, first])
    assert [one["stack"] for one in both] == ["torch-2.8.0", "lower-bounds"]
    again = stacks.merged(both, [stacks.Result(stack="torch-2.8.0", date="2026-02-01", rows=rows)])
    assert [one["date"] for one in again] == ["2026-02-01", "2026-01-02"]
    text = stacks.page(both)
    assert "| lower-bounds |  | 1 | 3 | 2 | 2026-01-02 |" in text
    assert "- torch-2.8.0: no rows: torch 2.8.0: no space" in text
    assert "- lower-bounds, `bert`: failed: loss is 3 times its bound in logs" in text
    assert "| python-3.13 | not run yet | | | | |" in text


def test_page_is_that_of_the_record() -> None:
    assert stacks.PAGE.read_text() == stacks.page(json.loads(stacks.RECORD.read_text()))
