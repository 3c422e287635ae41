"""The data files: a wrong one is refused in one sentence that names the file and the key."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.baselines import a_level
from support.builders import SYSTEM, a_plan

from appliance.errors import UsageError
from appliance.evidence.baseline_key import key_of
from appliance.records.baseline import Baseline, Baselines
from appliance.records.json import to_json
from appliance.storage import criteria_file, device_file, suite_file, toml_file

SUITE = """
name = "s"
version = 1
summary = "a suite"
time_limit_seconds = 60

[protocol]
mode = "fresh"
calibration_seconds = 0.1
warmup_steps = 3
warmup_seconds = 0
blocks = 1
block_steps = 5
block_seconds = 0.5
interim_analyses = [5, 10]
last_checks = "one"

[[case]]
id = "gemm-fp32"
workload = "gemm"
parameters = { dtype = "float32" }
expected_seconds = 1.5
reference_seconds = 2
time_limit_seconds = 60
memory_limit_gib = 4
"""
CRITERIA = """
name = "c"
version = 1
summary = "limits"

[[criterion]]
id = "completion"
kind = "completion"
title = "Completed"

[[criterion]]
id = "speed"
kind = "perf"
title = "Fast"
metric = "step_seconds"
at_most = 0.5
"""


def refusal(folder: Path, text: str, change: tuple[str, str], *, is_suite: bool = True) -> str:
    """The sentence with which the changed file is refused."""
    assert change[0] in text
    path = folder / "given.toml"
    path.write_text(text.replace(*change, 1))
    with pytest.raises(UsageError) as refused:
        (suite_file.load_suite if is_suite else criteria_file.load_criteria)(str(path))
    sentence = str(refused.value)
    assert sentence.startswith("given.toml")
    assert "\n" not in sentence
    for jargon in ("pydantic", "Input", "input should", "instance", "validation", "argument"):
        assert jargon not in sentence
    return sentence


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('name = "s"', 'nmae = "s"'), 'key "name" is missing'),
        (
            ('name = "s"', 'name = "s"\nsumary = ""'),
            'unknown key "sumary" (did you mean "summary"?)',
        ),
        (('name = "s"', "name = 3"), 'key "name" must be text'),
        (('name = "s"', "name = 2026-01-01"), 'key "name" must be text'),
        (("version = 1", "version = 1.5"), 'key "version" must be an integer'),
        (("version = 1", "version = true"), 'key "version" must be an integer'),
        (("limit_seconds = 60", "limit_seconds = nan"), '"time_limit_seconds" is nan'),
        (("limit_seconds = 60", 'limit_seconds = "nan"'), '"time_limit_seconds" is nan'),
        (("limit_seconds = 60", "limit_seconds = inf"), '"time_limit_seconds" is inf'),
        (("limit_seconds = 60", "limit_seconds = -1"), '"time_limit_seconds" is -1'),
        (("limit_seconds = 60", "limit_seconds = [1]"), "must be a number"),
        (("[protocol]", "[protokoll]"), 'key "protocol" is missing'),
        (('mode = "fresh"', 'mode = "frehs"'), 'key "mode" of protocol cannot be "frehs"'),
        (('mode = "fresh"', 'mode = "frehs"'), 'did you mean "fresh"?'),
        (('mode = "fresh"', 'mod = "fresh"'), 'key "mode" of protocol is missing'),
        (("[protocol]", "[protokoll]"), 'unknown key "protokoll" (did you mean "protocol"?)'),
        (("warmup_steps", "warmup_stpes = 3\nwarmup_steps"), 'did you mean "warmup_steps"?'),
        (("warmup_steps = 3", "warmup_steps = -1"), '"warmup_steps" of protocol'),
        (("blocks = 1", "blocks = 0"), "at least one block of one step"),
        (("block_steps = 5", "block_steps = 0"), "at least one block of one step"),
        (("block_seconds = 0.5", "block_seconds = 0"), '"block_seconds" is 0'),
        (("[5, 10]", "[]"), '"interim_analyses" of protocol'),
        (("[5, 10]", "[5, 5]"), '"interim_analyses" of protocol'),
        (("[5, 10]", "[10, 5]"), '"interim_analyses" of protocol'),
        (("[5, 10]", "[0]"), '"interim_analyses" of protocol'),
        (("[5, 10]", "[1000000]"), "ends at 1000000 launches"),
        (("gemm-fp32", "g" * 81), "80 in all"),
        (("[5, 10]", '[5, "x"]'), "item 2 of protocol interim_analyses must be an integer"),
        (("[[case]]", "[case]"), 'key "case" must be a list'),
        (("workload =", "wrokload ="), 'key "workload" of case 1 is missing'),
        (("workload =", "wrokload = 1\nworkload ="), 'did you mean "workload"?'),
        (('"float32" }', "[1] }"), 'key "dtype" of case 1 parameters must be a finite number'),
        (('"float32" }', "nan }"), 'key "dtype" of case 1 parameters must be a finite number'),
        (('"float32" }', "inf }"), 'key "dtype" of case 1 parameters must be a finite number'),
        (('"float32" }', "9007199254740993 }"), 'parameter "dtype" is beyond 2**53'),
        (('{ dtype = "float32" }', "3"), 'key "parameters" of case 1 must be a table'),
        (("gib = 4", "gib = nan"), 'case "gemm-fp32": key "memory_limit_gib" is nan'),
        (("gib = 4", "gib = 4\nlaunches = 0"), "must have at least 1 launch"),
        (("gib = 4", 'gib = 4\nlaunches = "5"'), 'key "launches" of case 1 must be an integer'),
        (("expected_seconds = 1.5", "expected_seconds = 0"), '"expected_seconds" is 0'),
        (("gemm-fp32", "gemm@cpu"), "letters, digits, dot, dash and underscore"),
        (("gemm-fp32", "../gemm"), "letters, digits, dot, dash and underscore"),
        (("gemm-fp32", ""), "letters, digits, dot, dash and underscore"),
        (("version = 1", 'version = 1\nschema = "bench/suite/9"'), 'cannot be "bench/suite/9"'),
        (("version = 1", "version 1"), "is not TOML"),
        (("version = 1", "version = " + "[" * 5000), "nested too deep: line 3"),
    ],
)
def test_a_wrong_suite_is_refused(tmp_path: Path, change: tuple[str, str], sentence: str) -> None:
    assert sentence in refusal(tmp_path, SUITE, change)


def test_a_suite_that_plans_nothing_is_refused(tmp_path: Path) -> None:
    head, case = SUITE.split("[[case]]")
    change = (f"[[case]]{case}", "")
    assert 'key "case" is missing' in refusal(tmp_path, SUITE, change)
    empty = (SUITE, f"case = []\n{head}")
    assert "plans nothing" in refusal(tmp_path, SUITE, empty)


def test_two_cases_of_one_name_are_refused(tmp_path: Path) -> None:
    case = "[[case]]" + SUITE.split("[[case]]")[1]
    assert 'case "gemm-fp32" stands there twice' in refusal(tmp_path, SUITE, (case, case + case))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("at_most = 0.5", "at_most = nan"), 'criterion "speed" has nan for "at_most"'),
        (("at_most = 0.5", 'at_most = "nan"'), 'criterion "speed" has nan for "at_most"'),
        (("at_most = 0.5", "at_most = inf"), 'criterion "speed" has inf for "at_most"'),
        (("at_most = 0.5", "at_most = 0"), 'criterion "speed" has the limit 0'),
        (("at_most = 0.5", "at_most = -3"), 'criterion "speed" has the limit -3'),
        (("at_most = 0.5", 'at_most = "much"'), 'key "at_most" of criterion 2 must be a number'),
        (("at_most = 0.5", ""), 'needs one of "at_most" and "at_least"'),
        (("at_most = 0.5", "at_most = 1\nat_least = 1"), "and no other limit"),
        (("at_most = 0.5", 'at_most = 1\nunit = "TFLOP/s"'), 'in "TFLOP/s": use s, ms, us'),
        (("at_most = 0.5", "at_most = 1\nmargin = nan"), 'has nan for "margin"'),
        (("at_most = 0.5", "at_most = 1\nquantile = 0.9"), 'takes no "quantile"'),
        (("at_most = 0.5", "fraction_of_peak = 0.5"), "has no peak to be compared with"),
        (
            ('step_seconds"\nat_most = 0.5', 'flops_per_second"\nfraction_of_peak = 1.5'),
            "asks for 1.5 of the peak, which nothing can reach",
        ),
        (("at_most = 0.5", "within_of_baseline = nan"), 'has nan for "within_of_baseline"'),
        (
            ("at_most = 0.5", 'within_of_baseline = "clas"'),
            'key "within_of_baseline" of criterion 2 must be a number like 0.03, or "class"',
        ),
        (("at_most = 0.5", "within_of_baseline = -0.1"), "which nothing can meet"),
        (('"step_seconds"\nat_most = 0.5', '"stall_rate"\nat_most = 0.5'), "is of kind perf"),
        (
            (
                '"perf"\ntitle = "Fast"\nmetric = "step_seconds"',
                '"tail"\ntitle = "Fast"\nmetric = "latency_seconds"',
            ),
            'needs a "quantile" between 0 and 1',
        ),
        (
            (
                '"perf"\ntitle = "Fast"\nmetric = "step_seconds"\nat_most = 0.5',
                '"tail"\ntitle = "Fast"\nmetric = "stall_rate"\nat_most = 1.5',
            ),
            "which everything meets",
        ),
        (('summary = "limits"', 'summary = ""\nalpha_pass = 0.5'), '"alpha_pass" is 0.5'),
        (('summary = "limits"', 'summary = ""\nalpha_fail = nan'), '"alpha_fail" is nan'),
        (('summary = "limits"', 'summary = ""\nmargins = { compute = 0 }'), '"compute" of margins'),
        (
            ('summary = "limits"', 'summary = ""\nmargins = { comptue = 1 }'),
            'did you mean "compute"',
        ),
        (("at_most", "at_least"), 'its limit must be "at_most"'),
        (("step_seconds", "units_per_second"), 'its limit must be "at_least"'),
        (("step_seconds", "step_second"), 'did you mean "step_seconds"?'),
        (("step_seconds", ""), 'needs a "metric"'),
        (('"perf"', '"pref"'), 'key "kind" of criterion 2 cannot be "pref" (did you mean "perf"?)'),
        (('"perf"', '"numeric"'), "is functional: it is always required and takes no limit"),
        (('title = "Completed"', 'title = "C"\nrequired = false'), "is functional"),
        (('id = "speed"', 'id = "completion"'), 'criterion "completion" stands there twice'),
        (("at_most", "atmost = 1\nat_most"), '"atmost" of criterion 2 (did you mean "at_most"?)'),
        (('"limits"', '"limits'), "is not TOML"),
        (('id = "speed"', 'id = ""'), 'criterion 2 needs a key "id" of 1 to 120 characters'),
        (('id = "speed"', 'id = "a\\u001b[2J"'), "criterion 2 has a character in its key"),
        (('title = "Completed"', f'title = "{"x" * 121}"'), 'key "title" of 1 to 120'),
        (("version = 1", f"version = {'9' * 5000}"), "a number of thousands of digits"),
        (("version = 1", f"version = 0x{'f' * 5000}"), "a number of thousands of digits"),
    ],
)
def test_wrong_criteria_are_refused(tmp_path: Path, change: tuple[str, str], sentence: str) -> None:
    assert sentence in refusal(tmp_path, CRITERIA, change, is_suite=False)


def test_right_files_are_read_with_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SUITE)
    suite, data = suite_file.load_suite(str(path))
    assert (suite.case[0].parameters, suite.protocol.interim_analyses) == (
        {"dtype": "float32"},
        (5, 10),
    )
    assert data == SUITE.encode()
    path.write_text(CRITERIA)
    criteria, _ = criteria_file.load_criteria(str(path))
    assert criteria.criterion[1].at_most == 0.5


@pytest.mark.parametrize("word", ["nan", "inf", "1"])
def test_a_parameter_that_is_a_text_stays_one(tmp_path: Path, word: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SUITE.replace('"float32"', f'"{word}"'))
    assert suite_file.load_suite(str(path))[0].case[0].parameters == {"dtype": word}


@pytest.mark.parametrize(
    ("load", "name", "sentence"),
    [
        (suite_file.load_suite, "smok", 'no suite called "smok" (did you mean "smoke"?)'),
        (suite_file.load_suite, "xyz", "there are: "),
        (suite_file.load_suite, "none/x.toml", "cannot be read (No such file"),
        (suite_file.load_suite, "./", "cannot be read (Is a directory)"),
        (criteria_file.load_criteria, "functionl", 'did you mean "functional"?'),
        (criteria_file.load_criteria, "functional.toml", "cannot be read (No such file"),
    ],
)
def test_an_unknown_name_is_refused(
    load: Callable[[str], object], name: str, sentence: str
) -> None:
    with pytest.raises(UsageError) as refused:
        load(name)
    assert sentence in str(refused.value)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(UsageError, match="x is not TOML"):
        criteria_file.parse_criteria(b"\xff\xfe", "x")


# ------------------------------------------------------------------ what is shipped


def test_every_suite_that_is_shipped_can_be_read() -> None:
    assert {"smoke", "intake"} <= set(suite_file.list_suites())
    for name in suite_file.list_suites():
        suite, _ = suite_file.load_suite(name)
        assert suite.name == name


def test_the_functional_criteria_are_those_that_hold_anyway() -> None:
    assert "functional" in criteria_file.list_criteria()
    criteria, _ = criteria_file.load_criteria("functional")
    assert [item.kind for item in criteria.criterion] == list(criteria_file.FUNCTIONAL_KINDS)
    assert all(item.required and item.cases == "*" for item in criteria.criterion)


def test_only_the_baselines_of_the_models_at_hand_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = a_plan()
    key = key_of(plan.cases[0], plan.protocol, SYSTEM)
    baseline = Baseline(
        key=key,
        kind="same_device",
        devices=("serial-0",),
        num_launches=480,
        num_runs=12,
        run_seconds=3600.0,
        steps=a_level(-4.0, 0.1),
        wall=a_level(-4.0, 0.1),
        smallest_margin=0.2,
        smallest_margin_of_three=0.2,
        bundles=("b" * 64,),
    )
    file = tmp_path / "a.json"
    file.write_bytes(to_json(Baselines(baseline=(baseline,))))
    monkeypatch.setattr(device_file, "BASELINES", tmp_path)
    assert device_file.load_baselines([key.model]).baseline == (baseline,)
    assert device_file.load_baselines(["B"]).baseline == ()
    assert device_file.load_baselines(["B"], file).baseline == (baseline,)
    with pytest.raises(UsageError, match="cannot be read"):
        device_file.load_baselines([], tmp_path / "b.json")


def test_did_you_mean_names_the_nearest_or_all() -> None:
    assert toml_file.did_you_mean("smok", ["smoke", "soak"]) == ' (did you mean "smoke"?)'
    assert toml_file.did_you_mean("zzz", ["b", "a"]) == " (there are: a, b)"
    assert toml_file.did_you_mean("zzz", []) == ""
