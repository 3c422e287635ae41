"""Launches that end for want of software: in their first step it is that, later a crash.

One run as a person starts it, of workloads of one's own, so that what the journal holds, what the
judge says, what is printed and what is on the page are all of the same run.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.program import WITH_FAULTS, bench

from appliance.errors import EvidenceError
from appliance.records.journal import Line
from appliance.records.json import adapter, from_json, sha256
from appliance.records.plan import Plan
from appliance.records.request import Answer, CaseRequest, Lacking
from appliance.runner import describing
from appliance.vendors import registry
from appliance.verification.run_checks import check_conduct

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

HEAD = """
schema = "bench/suite/2"
name = "lacking"
version = 1
summary = "Workloads that lack something"
time_limit_seconds = 3600

[protocol]
mode = "forked"
calibration_seconds = 0.03
warmup_steps = 1
warmup_seconds = 0.0
blocks = 1
block_steps = 3
block_seconds = 1e-9
interim_analyses = [1]
last_checks = "all"
"""
CASE = """
[[case]]
id = "{fault}-{at}"
workload = "faulty.misbehaving"
launches = 1
parameters = {{ fault = "{fault}", at = {at} }}
expected_seconds = 1
reference_seconds = 1
time_limit_seconds = 300
memory_limit_gib = 4
"""
LACKS = {
    "lack_a_name": ("AttributeError", "object has no attribute 'activation_checkpointing_enable'"),
    "lack_a_library": ("ModuleNotFoundError", "No module named 'no_such_library'"),
    "lack_a_kernel": ("NotImplementedError", "Could not run 'aten::linalg_qr'"),
}


@dataclass(frozen=True)
class Run:
    """A finished run, and what was printed of it."""

    folder: Path
    done: subprocess.CompletedProcess[str]

    @property
    def verdict(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "verdict.json").read_text())
        return document

    def completion(self, case: str) -> dict[str, Any]:
        (ruling,) = (
            one
            for one in self.verdict["rulings"]
            if one["case"] == f"{case}@cpu:0" and one["criterion"] == "completion"
        )
        return dict(ruling)

    def ended(self, launch: str) -> dict[str, Any]:
        lines = [
            json.loads(line) for line in (self.folder / "journal.jsonl").read_text().splitlines()
        ]
        events = [line["event"] for line in lines]
        (event,) = (
            one
            for one in events
            if one["kind"] == "launch_ended" and one["launch"] == launch.replace("/", "@cpu:0/")
        )
        return dict(event)

    def conduct(self, **changes: str) -> None:
        """`check_conduct` of the journal in which a launch's end has other fields."""
        plan = from_json(Plan, (self.folder / "plan.json").read_bytes(), name="plan.json")
        lines = []
        for text in (self.folder / "journal.jsonl").read_text().splitlines():
            record = json.loads(text)
            event = record["event"]
            if event["kind"] == "launch_ended" and event["launch"] == changes.get("launch"):
                event |= changes
            lines.append(adapter(Line).validate_json(json.dumps(record)))
        names = ("plan.json", "system.json")
        files = {name: sha256((self.folder / name).read_bytes()) for name in names}
        check_conduct(plan, lines, files)


def run(folder: Path, *cases: tuple[str, int]) -> Run:
    return run_suite(folder, [CASE.format(fault=fault, at=at) for fault, at in cases])


def run_suite(folder: Path, cases: Sequence[str], ahead: Sequence[Path] = ()) -> Run:
    """A run of these cases, with folders ahead of all others where modules are looked for."""
    suite = folder / "lacking.toml"
    suite.write_text(HEAD + "".join(cases))
    words = ("run", "--suite", str(suite), "--vendor", "cpu", "--out", str(folder / "out"))
    paths = os.pathsep.join([*map(str, ahead), WITH_FAULTS["PYTHONPATH"]])
    done = bench(*words, env={**WITH_FAULTS, "PYTHONPATH": paths})
    (made,) = (path for path in (folder / "out").iterdir() if (path / "plan.json").exists())
    return Run(made, done)


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Every lack in the first step of all, where it is software."""
    return run(tmp_path_factory.mktemp("lacking"), *((fault, 0) for fault in LACKS))


@pytest.fixture(scope="module")
def crashing(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One in the first step, and one in a later step, which is a crash."""
    cases = (("lack_a_name", 0), ("lack_a_name", 2))
    return run(tmp_path_factory.mktemp("crashing"), *cases)


def test_run_that_only_lacks_software_is_inconclusive(lacking: Run) -> None:
    assert lacking.done.returncode == 3, lacking.done.stderr
    assert lacking.verdict["verdict"] == "INCONCLUSIVE"
    assert "fail" not in {one["ruling"] for one in lacking.verdict["rulings"]}
    assert lacking.verdict["num_failed"] == 0


@pytest.mark.parametrize("fault", LACKS)
def test_first_step_without_its_software_is_that(lacking: Run, fault: str) -> None:
    reason, message = LACKS[fault]
    end = lacking.ended(f"{fault}-0/0")
    assert (end["outcome"], end["reason"], end["stage"]) == ("software", reason, "first_step")
    assert message in end["detail"]
    ruling = lacking.completion(f"{fault}-0")
    assert (ruling["ruling"], ruling["reason"]) == ("inconclusive", "software")
    begin = f"cannot run: software: launch {fault}-0@cpu:0/0 failed in its first step: {reason}"
    assert ruling["explanation"].startswith(begin)
    assert f"{fault}-0@cpu:0 reference: cannot run: software ({reason}" in lacking.done.stderr


def test_journal_says_it_again_to_who_verifies(lacking: Run) -> None:
    lacking.conduct()
    for launch in (f"{fault}-0@cpu:0/0" for fault in LACKS):
        with pytest.raises(EvidenceError, match="its exception and stage say software"):
            lacking.conduct(launch=launch, outcome="crashed")
        with pytest.raises(EvidenceError, match="its exception and stage say crashed"):
            lacking.conduct(launch=launch, stage="later")


def test_later_step_without_its_software_is_a_crash(crashing: Run) -> None:
    assert crashing.done.returncode == 1, crashing.done.stderr
    assert crashing.verdict["verdict"] == "REJECTED"
    end = crashing.ended("lack_a_name-2/1")
    assert (end["outcome"], end["reason"], end["stage"]) == ("crashed", "AttributeError", "later")
    assert crashing.completion("lack_a_name-2")["reason"] == "crashed"
    assert crashing.completion("lack_a_name-0")["reason"] == "software"


def test_crash_cannot_be_passed_off_as_software(crashing: Run) -> None:
    crashing.conduct()
    launch = "lack_a_name-2@cpu:0/1"
    for stage in ("first_step", "later"):  # the case had made its first step before
        with pytest.raises(EvidenceError, match="its exception and stage say crashed"):
            crashing.conduct(launch=launch, outcome="software", stage=stage)


def test_page_says_software_and_the_signed_bundle_verifies_as_inconclusive(lacking: Run) -> None:
    signed = bench("sign", str(lacking.folder), env=WITH_FAULTS)
    assert signed.returncode in (0, 3), signed.stderr
    page = (lacking.folder / "report.html").read_text()
    assert "cannot run: software: AttributeError" in page
    assert 'class="word word-REJECTED"' not in page
    verified = bench("verify", str(lacking.folder), "--allow-dev")
    assert verified.returncode == 3, verified.stderr
    assert "INCONCLUSIVE" in verified.stderr


# ------------------------------------------------------------------ before the first launch

NAMED = """
[[case]]
id = "{name}"
workload = "{name}"
small = true
launches = 1
expected_seconds = 1
reference_seconds = 1
time_limit_seconds = 300
memory_limit_gib = 4
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two rows, one of which needs a library that says it is of a version below its range."""
    folder = tmp_path_factory.mktemp("outside")
    about = folder / "ahead" / "transformers-5.0.0.dist-info"
    about.mkdir(parents=True)
    text = "Metadata-Version: 2.1\nName: transformers\nVersion: 5.0.0\n"
    (about / "METADATA").write_text(text)
    cases = [NAMED.format(name=name) for name in ("gemm", "bert")]
    return run_suite(folder, cases, ahead=[folder / "ahead"])


def test_library_outside_its_range_is_said_before_anything_runs(outside: Run) -> None:
    assert outside.done.returncode == 3, outside.done.stderr
    lack = "transformers 5.0.0 is outside >=5."
    first = outside.done.stderr.partition("gemm@cpu:0 reference")[0]
    assert f"the run cannot be accepted: bert@cpu:0 cannot run: software: {lack}" in first
    assert outside.verdict["verdict"] == "INCONCLUSIVE"
    ruling = outside.completion("bert")
    assert (ruling["ruling"], ruling["reason"]) == ("inconclusive", "software")
    assert ruling["explanation"].startswith(f"cannot run: software: {lack}")
    assert 'pip install "transformers>=5.' in ruling["explanation"]
    for number in (0, 1):
        end = outside.ended(f"bert/{number}")
        assert (end["outcome"], end["reason"], end["wall_ns"]) == ("software", "unavailable", "0")


def test_rows_that_need_it_not_run_and_pass(outside: Run) -> None:
    assert outside.completion("gemm")["ruling"] == "pass"
    assert outside.ended("gemm/1")["outcome"] == "completed"


def test_run_without_a_row_for_want_of_software_is_signed_and_verified(outside: Run) -> None:
    outside.conduct()
    with pytest.raises(EvidenceError, match="lacks software that the plan does not name"):
        outside.conduct(launch="bert@cpu:0/1", detail="something else")
    assert bench("sign", str(outside.folder)).returncode in (0, 3)
    assert "transformers 5.0.0 is outside" in (outside.folder / "report.html").read_text()
    verified = bench("verify", str(outside.folder), "--allow-dev")
    assert verified.returncode == 3, verified.stderr


# ------------------------------------------------------------------ libraries that do not import


def broken(folder: Path, library: str, error: str) -> Path:
    """A folder with a library that raises when it is imported, and what torch's package has."""
    module = folder / library / "__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text(f"raise {error}")
    spec = find_spec(library)
    assert spec is not None
    assert spec.origin is not None
    (module.parent / "include").symlink_to(Path(spec.origin).parent / "include")
    return folder


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two rows, one of which needs a library that raises as it is imported."""
    folder = tmp_path_factory.mktemp("half")
    error = "RuntimeError('operator torchvision::nms does not exist')"
    cases = [NAMED.format(name=name) for name in ("gemm", "bert")]
    return run_suite(folder, cases, ahead=[broken(folder / "ahead", "transformers", error)])


def test_library_that_raises_as_it_is_imported_is_software_of_its_rows_alone(half: Run) -> None:
    assert half.done.returncode == 3, half.done.stderr
    assert half.verdict["verdict"] == "INCONCLUSIVE"
    end = half.ended("bert/0")
    assert (end["outcome"], end["reason"], end["stage"]) == ("software", "not_installed", "load")
    line = 'cannot run: software (not_installed: workload "bert" cannot be imported (RuntimeError: '
    assert line in half.done.stderr
    assert half.completion("bert")["reason"] == "software"
    assert half.completion("gemm")["ruling"] == "pass"
    half.conduct()


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A row of which the framework is there and does not import."""
    folder = tmp_path_factory.mktemp("without_torch")
    error = "ImportError('libfabric.so.1: cannot open shared object file', name='torch')"
    cases = [NAMED.format(name="gemm")]
    return run_suite(folder, cases, ahead=[broken(folder / "ahead", "torch", error)])


def test_framework_that_does_not_import_is_software_and_no_crash(without_torch: Run) -> None:
    assert without_torch.done.returncode == 3, without_torch.done.stderr
    assert without_torch.verdict["verdict"] == "INCONCLUSIVE"
    end = without_torch.ended("gemm/0")
    assert (end["outcome"], end["reason"], end["stage"]) == ("software", "not_installed", "load")
    fix = 'pip install "bench-appliance[torch]" --upgrade'
    assert "torch cannot be imported (ImportError: libfabric.so.1: cannot open" in end["detail"]
    assert fix in end["detail"]
    assert fix in without_torch.done.stderr
    assert without_torch.completion("gemm")["reason"] == "software"
    without_torch.conduct()


# ------------------------------------------------------------------ what is asked before a run


def test_no_workload_is_imported_to_learn_what_onnx_runtime_drives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its package is for processors here; only an import is sure of it, and none of torch."""
    wanted = registry.libraries_of("cuda")
    requests = [CaseRequest(workload="onnx_bert", small=True, parameters={})]

    def worker(*_: object) -> Answer:
        raise AssertionError

    monkeypatch.setattr(describing, "_ask", worker)
    monkeypatch.setattr(describing, "software", dict)
    answer = describing.describe_present(requests, libraries=wanted)
    (lacking,) = answer.resolved
    assert isinstance(lacking, Lacking)
    assert lacking.lack.startswith("ONNX Runtime has no CUDAExecutionProvider, only Azure")
    assert lacking.resolved is not None
    assert [one.name for one in answer.descriptions] == ["onnx_bert"]
    monkeypatch.setattr(describing, "PROVIDERS", f"print('{wanted.onnx_provider}')")
    (resolved,) = describing.describe_present(requests, libraries=wanted).resolved
    assert resolved == lacking.resolved
    monkeypatch.setattr(describing, "PROVIDERS", "import a_library_that_does_not_import")
    with pytest.raises(AssertionError):  # whoever imports the workload says what is wrong with it
        describing.describe_present(requests, libraries=wanted)
