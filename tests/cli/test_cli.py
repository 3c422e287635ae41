"""What a person meets at the command line: one sentence, the documented exit code."""

import importlib
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from support.builders import a_plan, ended
from support.program import BEGIN, TINY, WITH_FAULTS, bench, called, program, sentences

from appliance.cli.progress import Lines
from appliance.scheduling.left_time import Given
from appliance.vendors.registry import MODULES
from appliance.verbs.run_options import PlanOptions, RunOptions, StartOptions


def says(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """One sentence on stderr with these words, the exit code, and nothing like a traceback.

    Before it a run may have said that it begins.
    """
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert len(sentences(done.stderr)) == 1, done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("plan", "--suite", "smok"), ['there is no suite called "smok"', '"smoke"']),
        (("plan", "--criteria", "functionl"), ['"functionl"', '"functional"']),
        (("plan", "--suite", "./nowhere.toml"), ["nowhere.toml", "cannot be read"]),
        (("plan", "--vendor", "cuda"), ["--gpus all"]),
        (("plan", "--vendor", "cpuu"), ["cpuu", "cpu"]),
        (("accept", "--key", "only-a-key.pem"), ["--key and --certificate go together"]),
        (("accept", "--role", "boss"), ['"boss"', "tester"]),
        (("accept", "--resume", "nowhere"), ["nowhere", "cannot be read"]),
        (("accept", "--resume", "nowhere", "--criteria", "node"), ["--criteria", "--resume"]),
        (("accept", "--resume", "nowhere", "--suite", "smoke"), ["--suite", "--resume"]),
        (("start", "--resume", "nowhere", "--suite", "node"), ["--suite", "--resume"]),
        (("run", "--from", "x", "--case", "y", "--launch", "1", "--suite", "z"), ["--suite"]),
        (("plan", "--order", "/dev/zero"), ["/dev/zero", "not a plain", "name the buyer's order"]),
        (("plan", "--suite", "/dev/zero"), ["suite file /dev/zero", "not a plain file"]),
        (
            ("plan", "--suite", TINY, "--baseline", "/dev/zero"),
            ["baseline file /dev/zero", "not a plain file"],
        ),
        (("verify", ".", "--trust", "/dev/zero"), ["/dev/zero", "not a plain file"]),
        (("run", "--resume", "nowhere", "--baseline", "b.json"), ["--baseline", "--resume"]),
        (("run", "--resume", "nowhere", "--minutes", "30"), ["--minutes", "--resume"]),
        (("start", "--resume", "nowhere", "--minutes", "30"), ["--minutes", "--resume"]),
        (("plan", "--suite", TINY, "--minutes", "0"), ["--minutes is 0", "from 1 to"]),
        (("plan", "--suite", TINY, "--minutes", "9", "--sessions", "2"), ["one session"]),
        (("run", "--from", "x", "--case", "y", "--launch", "1", "--order", "z"), ["--order"]),
        (("start", "--resume", "nowhere", "--challenge", "c.json"), ["--challenge"]),
        (("plan", "--vendor", "\x1b[2Jcuda"), ["[U+001B][2Jcuda"]),
        (("report", "nowhere"), ["nowhere"]),
        (("verify", "nowhere"), ["nowhere"]),
        (("keys", "show", "nowhere.pem"), ["nowhere.pem"]),
    ],
)
def test_bad_words_get_one_sentence(words: tuple[str, ...], expected: list[str]) -> None:
    says(called(*words), 2, *expected)


def test_accept_says_that_it_begins_before_it_imports_what_it_needs() -> None:
    noting = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = bench("accept", "--suite", "no-such-suite", env=noting)
    lines = done.stderr.splitlines()
    before, after = lines[: lines.index(BEGIN)], lines[lines.index(BEGIN) :]
    assert not any("scipy" in line for line in before)
    assert any("appliance.verbs.preparation" in line for line in after)


@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_quiet_run_says_no_begin(option: str) -> None:
    assert BEGIN not in called("run", "--suite", "no-such-suite", option).stderr


def test_unknown_option_is_usage() -> None:
    done = bench("accept", "--siute", "smoke")
    assert done.returncode == 2
    assert "--suite" in done.stderr
    assert "Traceback" not in done.stderr


SUITE = Path(TINY).read_text()
GIVEN = 'parameters = { dtype = "float32" }'


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('workload = "gemm_exact"', 'workload = "gemm_exct"', ["gemm_exct", '"gemm_exact"']),
        ("small = true", "smal = true", ['unknown key "smal" of case 1', '"small"']),
        ("interim_analyses = [5, 10]", "interim_analyses = []", ['"interim_analyses" of protocol']),
        ("time_limit_seconds = 1800", "time_limit_seconds = 2", ["more than its limit of 2.0 s"]),
        (GIVEN, "parameters = { kk = 7 }", ["kk", '"k"']),
        (GIVEN, 'parameters = { k = "7" }', ['"gemm"', "k"]),
        (GIVEN, "parameters = { k = -7 }", ["k"]),
        ("[protocol]", "[protocol", ["is not TOML"]),
    ],
)
def test_bad_suite_is_refused_before_anything_runs(
    tmp_path: Path, old: str, new: str, expected: list[str]
) -> None:
    (tmp_path / "bad.toml").write_text(SUITE.replace(old, new, 1))
    done = called("accept", "--suite", str(tmp_path / "bad.toml"), "--out", str(tmp_path / "out"))
    says(done, 2, *expected)
    assert not list((tmp_path / "out").glob("*"))


def test_suite_without_a_case_plans_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(SUITE[: SUITE.index("[[case]]")])
    says(bench("plan", "--suite", str(tmp_path / "bad.toml")), 2, "case")


def test_nan_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(
        'name = "bad"\nversion = 1\nsummary = "s"\n[[criterion]]\nid = "fast"\nkind = "perf"\n'
        'title = "t"\nmetric = "step_seconds"\nat_most = nan\n'
    )
    says(called("plan", "--criteria", str(path)), 2, '"fast"', "nan")


def test_out_that_is_a_file_or_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    says(called("accept", "--out", str(tmp_path / "file")), 2, "is not a folder")
    (tmp_path / "plan.json").write_text("{}")
    says(called("accept", "--out", str(tmp_path)), 2, "--resume")


def test_missing_data_set_names_the_way_to_get_it(tmp_path: Path) -> None:
    done = called("plan", "--suite", "intake", "--data", str(tmp_path))
    says(done, 2, "tinyshakespeare", "bench data fetch tinyshakespeare")


def test_plan_as_json_is_one_document() -> None:
    done = bench("plan", "--suite", TINY, "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["suite"] == "tiny"
    assert len(plan["launches"]) == 12


def test_lists_name_what_is_shipped() -> None:
    assert "smoke" in bench("list", "suites").stdout
    assert "functional" in bench("list", "criteria").stdout


@pytest.mark.parametrize("verb", [PlanOptions, RunOptions, StartOptions])
@pytest.mark.parametrize(
    ("vendor", "expected"),
    [("cuda", "acceptance"), ("rocm", "acceptance"), ("xpu", "acceptance"), ("cpu", "smoke")],
)
def test_default_suite_is_the_full_one_on_accelerators_alone(
    verb: type[PlanOptions], vendor: str, expected: str
) -> None:
    module = importlib.import_module(MODULES[vendor])
    torch_type = getattr(module, vendor.capitalize()).torch_type
    assert verb().suite_for(torch_type) == expected
    assert verb(suite="smoke").suite_for(torch_type) == "smoke"


def test_plan_without_a_suite_says_which_it_took_and_how_long_it_takes() -> None:
    first, *_ = called("plan", "--vendor", "cpu").stderr.splitlines()
    assert re.fullmatch(
        r"no --suite was named, so this is smoke: Every family .*; planned time about \d+ (s|min)",
        first,
    )
    assert "no --suite" not in called("plan", "--vendor", "cpu", "--suite", TINY).stderr


def test_bare_run_of_an_accelerator_plans_every_row_that_it_holds(tmp_path: Path) -> None:
    simulated = {
        "SIMULATED_STATE": str(tmp_path),
        "SIMULATED_DEVICES": "1",
        "SIMULATED_MEMORY": str(80 * 2**30),
    }
    words = ("-m", "faulty.simulated", "plan", "--vendor", "faulty.simulated")
    done = program(*words, env={**WITH_FAULTS, **simulated})
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"so this is acceptance: .*planned time about [\d hmin]+; --suite smoke", done.stderr
    )
    planned = json.loads(program(*words, "--json", env={**WITH_FAULTS, **simulated}).stdout)
    assert planned["suite"] == "acceptance"
    own = [case for case in planned["cases"] if not case["variant"]]
    assert not any(case["small"] for case in own)
    assert len(own) + len(planned["not_planned"]) == 26


def test_run_without_a_suite_says_its_choice_before_the_first_launch() -> None:
    plan = replace(a_plan(), suite="acceptance", expected_seconds=7200.0)
    out = Console(file=io.StringIO(), width=400)
    watching = Lines(out)
    watching.suite_chosen(plan)
    watching.run_begins(plan, 0, 1)
    assert isinstance(out.file, io.StringIO)
    chosen, begins = out.file.getvalue().splitlines()
    assert "this is acceptance" in chosen
    assert "planned time about 2 h; --suite smoke is of minutes" in chosen
    assert begins.startswith("run ")


def test_launches_that_an_untimed_one_took_with_it_are_said_once() -> None:
    plan = a_plan()
    first, *others = (one for one in plan.launches if one.case == plan.launches[0].case)
    out = Console(file=io.StringIO(), width=400)
    watching = Lines(out)
    watching.run_begins(plan, 0, 1)
    watching.launch_ended(first, ended(first.id, "crashed", "out_of_memory"))
    for one in others:
        watching.launch_ended(one, ended(one.id, "not_run", "reference_failed"))
    assert isinstance(out.file, io.StringIO)
    _, line = out.file.getvalue().splitlines()
    assert "crashed (out_of_memory); no other launch of this case is made, " in line


def test_a_case_whose_untimed_launch_was_interrupted_is_not_said_to_end() -> None:
    plan = a_plan()
    out = Console(file=io.StringIO(), width=400)
    watching = Lines(out)
    watching.run_begins(plan, 0, 1)
    watching.launch_ended(plan.launches[0], ended(plan.launches[0].id, "interrupted", "SIGTERM"))
    assert isinstance(out.file, io.StringIO)
    _, line = out.file.getvalue().splitlines()
    assert "interrupted (SIGTERM), " in line


def test_that_too_little_time_is_left_is_said_once() -> None:
    out = Console(file=io.StringIO(), width=400)
    watching = Lines(out)
    for wave, cases in ((1, ()), (2, ("b@cpu:0", "a@cpu:0")), (3, ()), (4, ("a@cpu:0",))):
        watching.time_given(Given(wave=wave, cases=frozenset(cases), left_seconds=20.0))
    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue().splitlines() == [
        "20 s left of the minutes: too few for what waits next",
        "20 s left of the minutes: given to a@cpu:0, b@cpu:0",
        "20 s left of the minutes: given to a@cpu:0",
    ]


def test_minutes_that_hold_no_row_are_refused_with_those_that_do(tmp_path: Path) -> None:
    unrecorded = SUITE.replace(
        GIVEN, 'parameters = { dtype = "float32", k = 8184 }'
    )  # on any model
    slow = unrecorded.replace("reference_seconds = 1\n", "reference_seconds = 90\n")
    (tmp_path / "slow.toml").write_text(slow)
    words = ("plan", "--suite", str(tmp_path / "slow.toml"), "--vendor", "cpu", "--minutes")
    says(called(*words, "1"), 2, "--minutes 1 is too few for suite", "--minutes 2 is the smallest")
    done = called(*words, "2")
    assert done.returncode == 0, done.stderr
    (summary,) = [line for line in done.stderr.splitlines() if line.startswith("within 2 min")]
    assert "1 of 2 rows and variants" in summary
    assert "left out" in done.stderr


def test_run_states_its_schedule_before_the_first_launch(tmp_path: Path) -> None:
    words = ("run", "--suite", TINY, "--vendor", "cpu", "--minutes", "1", "--out", str(tmp_path))
    done = called(*words)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    stated = next(at for at, line in enumerate(lines) if line.startswith("within 1 min: 2 of 2"))
    assert stated < next(at for at, line in enumerate(lines) if line.startswith("[1/"))
    assert lines[stated + 2].split()[:2] == ["gemm", "5"]


@pytest.mark.parametrize(
    ("words", "code"), [(("list", "suites", "--json"), 2), (("verify", "nowhere", "--json"), 2)]
)
def test_an_answer_that_no_disk_takes_is_one_sentence_and_no_verdict(
    words: tuple[str, ...], code: int
) -> None:
    """/dev/full stands for the disk; what the interpreter itself would end with, 1, is REJECTED."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "appliance", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    says(done, code, "No space left on device" if words[0] == "list" else "nowhere")
