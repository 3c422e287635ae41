"""Parts of the package: what is missing is named with the line that installs it, before a run."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.bundles import healthy, sealed
from support.locked import PROJECT, metadata
from support.program import sentences

from appliance import extras
from appliance.errors import UsageError
from appliance.planning import workload_manifest
from appliance.records.request import CaseRequest
from appliance.signing import keys
from appliance.storage import suite_file

ROOT = Path(__file__).parents[1]
TINY = ROOT / "tests" / "suites" / "tiny.toml"
OF_RUNS = (  # what the parent of a run does without
    "docker",
    "duckdb",
    "jinja2",
    "markupsafe",
    "statsmodels",
    "weasyprint",
)
OF_PARTS = (*OF_RUNS, "jax", "onnxruntime", "torch")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Modules that are not to be found; the parts are those of pyproject.toml."""
    missing: set[str] = set()
    monkeypatch.setattr(extras.metadata, "requires", lambda _: metadata())
    monkeypatch.setattr(
        extras,
        "util",
        SimpleNamespace(find_spec=lambda name: None if name in missing else util.find_spec(name)),
    )
    extras.parts.cache_clear()
    yield missing
    extras.parts.cache_clear()


def request(name: str, **parameters: str) -> CaseRequest:
    return CaseRequest(workload=name, small=True, parameters=parameters)


# ------------------------------------------------------------------ as data


def test_parts_are_those_of_the_project(installed: set[str]) -> None:
    assert not installed
    assert extras.parts().keys() == {"", *PROJECT["optional-dependencies"]}
    assert {"numpy", "docker", "scipy"} <= {*extras.parts()[""]}
    assert extras.parts()["onnx"] == ("onnx", "onnxruntime", "onnxscript")
    of_developers = {"cuda", "fleet", "s3", "test"}  # which another lock may lack
    assert not {part for part in extras.parts() if extras.absent(part)} - of_developers


def test_names_are_compared_as_indexes_do() -> None:
    assert extras.normal("Typing_Extensions>=4") == "typing-extensions"
    assert extras.normal('docker>=7.1; extra == "start"') == "docker"


def test_base_holds_neither_torch_nor_pages_nor_models(installed: set[str]) -> None:
    assert not installed
    heavy = {"torch", "weasyprint", "jinja2", "statsmodels", "pandas", "transformers"}
    assert not heavy & {*extras.parts()[""]}


def test_library_of_the_suite_stands_in_one_part() -> None:
    of_suite = [name for part, names in extras.parts().items() for name in names
                if part not in {"", "report", "compare", "fleet", "cuda", "test"}]  # fmt: skip
    assert len(of_suite) == len(set(of_suite))


@pytest.mark.parametrize(
    ("module", "part"),
    [
        ("PIL.Image", "torch"),
        ("sklearn.datasets", "torch"),
        ("onnxruntime", "onnx"),
        ("torch_geometric.nn", "graphs"),
        ("ale_py", "atari"),
        ("statsmodels", "compare"),
        ("no_such_module", "run"),
        (None, "run"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_line_names_the_part_of_a_module(module: str | None, part: str) -> None:
    assert extras.line_for(module) == f'pip install "bench-appliance[{part}]"'


def absent(_: str) -> None:
    """In place of the metadata of the package, which is not installed."""
    raise extras.metadata.PackageNotFoundError


@pytest.fixture
def from_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras.metadata, "requires", absent)


def test_folder_s_project_file_says_what_the_installed_package_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extras.metadata, "requires", lambda _: metadata())
    installed = extras.parts.__wrapped__(), extras.ranges()
    monkeypatch.setattr(extras.metadata, "requires", absent)
    assert (extras.parts.__wrapped__(), extras.ranges()) == installed
    assert "torch" in installed[0]["torch"]


@pytest.mark.usefixtures("from_a_folder")
def test_project_file_of_somebody_else_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "other"\ndependencies = ["six"]\n')
    monkeypatch.setattr(extras, "PROJECT", tmp_path / "pyproject.toml")
    assert not extras.requirements()
    assert not extras.ranges()


@pytest.mark.usefixtures("from_a_folder")
def test_without_an_installed_package_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "PROJECT", Path("no such file"))
    extras.parts.cache_clear()
    extras.require("report", "a report")
    assert extras.line_for("jax") == 'pip install "bench-appliance[run]"'
    extras.parts.cache_clear()


def test_system_libraries_of_the_pages_are_named(
    installed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not installed
    monkeypatch.setattr(extras, "RENDERING", ("libc.so.6", "libnothing.so.7"))
    with pytest.raises(UsageError, match=r"libnothing\.so\.7, which cannot be loaded: sudo apt-"):
        extras.require_rendering("a report")


# ------------------------------------------------------------------ workloads


def test_row_without_its_part_says_the_line(installed: set[str]) -> None:
    workload_manifest.refuse_absent([request("onnx_resnet50"), request("gemm")])
    installed.add("onnxscript")
    with pytest.raises(UsageError) as refusal:
        workload_manifest.refuse_absent([request("onnx_resnet50"), request("gemm")])
    assert str(refusal.value) == (
        'not installed: onnxscript, for onnx_resnet50: pip install "bench-appliance[onnx]"'
    )
    workload_manifest.refuse_absent([request("gemm"), request("dqn")])


def test_one_line_names_the_parts_of_all_rows(installed: set[str]) -> None:
    installed |= {"jax", "peft"}
    names = ("dqn", "ppo", "brax_ppo", "llm_lora", "gemm")
    with pytest.raises(UsageError) as refusal:
        workload_manifest.refuse_absent([request(name) for name in names])
    assert str(refusal.value) == (
        "not installed: jax, peft, for dqn, ppo, brax_ppo and 1 more: "
        'pip install "bench-appliance[jax,lora]"'
    )


def test_row_that_follows_another_needs_its_part(installed: set[str]) -> None:
    installed.add("gymnax")
    workload_manifest.refuse_absent([request("loss_curve", workload="bert")])
    with pytest.raises(UsageError, match=r"gymnax, for dqn: .*\[jax\]"):
        workload_manifest.refuse_absent([request("loss_curve", workload="dqn")])


def test_workload_of_somebody_else_is_left_to_the_worker(installed: set[str]) -> None:
    installed.add("torch")
    workload_manifest.refuse_absent([request("their.module")])


def test_smoke_needs_what_its_lock_holds() -> None:
    known = workload_manifest.load()
    cases = suite_file.load_suite("smoke")[0].case
    assert {part for case in cases for part in known[case.workload].parts} == {"torch", "onnx"}


# ------------------------------------------------------------------ verbs


def bench(*words: object, without: tuple[str, ...], cwd: Path) -> subprocess.CompletedProcess[str]:
    """The program in a process in which some modules cannot be imported; its children can."""
    code = (
        "import importlib.metadata, json, sys\n"
        f"for name in {without!r}: sys.modules[name] = None\n"
        f"wanted = json.loads({json.dumps(metadata())!r})\n"
        "importlib.metadata.requires = lambda _: wanted\n"
        "from appliance.cli.main import main\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        timeout=600,
    )


@pytest.mark.parametrize(
    ("words", "without"),
    [
        (("--help",), OF_PARTS),
        (("probe", "--json"), OF_PARTS),
        (("list", "suites"), OF_PARTS),
        (("plan", "--suite", TINY, "--vendor", "cpu"), OF_RUNS),
        (("run", "--suite", TINY, "--vendor", "cpu", "--quiet"), OF_RUNS),
    ],
)
def test_verb_needs_no_pages_and_no_engine(
    words: tuple[object, ...], without: tuple[str, ...], tmp_path: Path
) -> None:
    done = bench(*words, without=without, cwd=tmp_path)
    assert done.returncode in {0, 3}, done.stderr  # tiny's times are too few to be told steady
    assert "not installed" not in done.stderr


UNINSTALLED = """
import importlib.metadata as metadata

requires = metadata.requires


def of_others(name):
    if name == "bench-appliance":
        raise metadata.PackageNotFoundError(name)
    return requires(name)


metadata.requires = of_others
"""


def test_copy_of_the_tree_plans_without_being_installed(tmp_path: Path) -> None:
    """Its pyproject.toml says what it needs; without that it says what is amiss, not torch."""
    for room in ("appliance", "workloads", "reports"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "sitecustomize.py").write_text(UNINSTALLED)  # for the worker's process too

    def plan() -> subprocess.CompletedProcess[str]:
        words = ("-m", "appliance", "plan", "--suite", str(TINY), "--vendor", "cpu")
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path)},
            timeout=600,
        )

    done = plan()
    assert done.returncode == 0, done.stderr
    assert "suite tiny, 2 cases, 12 launches" in done.stderr
    (tmp_path / "pyproject.toml").unlink()
    done = plan()
    assert done.returncode == 2
    assert done.stderr == (
        "bench: bench itself is not installed, and which libraries it needs is not known without "
        f'{tmp_path / "pyproject.toml"}: pip install "bench-appliance[run]"\n'
    )


def test_verification_needs_the_base_alone(tmp_path: Path) -> None:
    folder = sealed(tmp_path / "bundle", healthy(), keys.development_key())
    for path in (folder, folder / "report.pdf"):
        done = bench("verify", path, "--allow-dev", without=OF_PARTS, cwd=tmp_path)
        assert done.returncode in {0, 1, 3}, done.stderr


@pytest.mark.parametrize(
    ("words", "without", "part"),
    [
        (("accept", "--suite", TINY), "weasyprint", "report"),
        (("accept", "--suite", TINY), "jinja2", "report"),
        (("report", "BUNDLE"), "weasyprint", "report"),
        (("sign", "BUNDLE"), "weasyprint", "report"),
        (("start", "--suite", "smoke"), "weasyprint", "report"),
        (("compare", "BUNDLE", "BUNDLE", "--allow-dev"), "statsmodels", "compare"),
        (("plan", "--suite", "smoke"), "torch", "torch"),
        (("accept", "--suite", "smoke"), "torch", "torch"),
    ],
    ids=str,
)
def test_missing_part_is_one_sentence_before_anything_is_done(
    words: tuple[object, ...], without: str, part: str, tmp_path: Path
) -> None:
    folder = sealed(tmp_path / "bundle", healthy(), keys.development_key())
    (folder / "report.dsse.json").unlink()  # a signed one is refused for that
    given = [folder if word == "BUNDLE" else word for word in words]
    done = bench(*given, without=(without,), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith(f'pip install "bench-appliance[{part}]"\n')
    assert len(sentences(done.stderr)) == 1
    assert not [*(tmp_path / "out").glob("*")]


def test_plan_goes_on_without_the_rows_whose_part_is_missing(tmp_path: Path) -> None:
    done = bench("plan", "--suite", "smoke", without=("onnxruntime",), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stderr.split())
    assert (
        "onnx_resnet50@cpu:0, onnx_resnet50-single@cpu:0 cannot run: software: "
        'not installed: onnxruntime: pip install "bench-appliance[onnx]"' in text
    )
    assert "gemm-fp32@cpu:0 gemm 2" in text
