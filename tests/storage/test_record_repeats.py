"""The script that records clean repeats from the journals of runs."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from support.builders import ended, examined, repeated
from support.bundles import Draft, files_of, healthy

from appliance.planning import workload_manifest
from appliance.records.journal import Event, Repeated
from appliance.signing.keys import development_key
from appliance.storage import bundle
from appliance.storage.qualified_file import QUALIFIED, load_qualified, parse_qualified

SCRIPT = Path(__file__).parents[2] / "scripts" / "record_repeats.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record_repeats", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses are looked up there
    spec.loader.exec_module(module)
    return module


def run_folder(folder: Path, draft: Draft) -> Path:
    folder.mkdir()
    for name, data in files_of(draft, development_key()).items():
        bundle.write(folder / name, data)
    return folder


def flipped(change: Callable[[Repeated], Repeated]) -> Draft:
    launch = "gemm@cpu:0/r2"

    def differing(events: list[Event]) -> list[Event]:
        result: list[Event] = []
        for event in events:
            if event == ended(launch):
                result.append(examined(launch, "", ""))
            is_it = isinstance(event, Repeated) and event.launch == launch
            result.append(change(repeated(launch, answer="flipped")) if is_it else event)
        return result

    return healthy(repeats=3).with_events(differing)


def test_repeats_of_runs_add_up_and_each_journal_counts_once(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "records.json"
    one = run_folder(tmp_path / "one", healthy(repeats=3))
    two = run_folder(tmp_path / "two", healthy(repeats=10))
    assert script.main([str(one), "--out", str(out)]) == 0
    assert "gemm 1 on A processor: 2 clean repeats, 1 device(s)" in capsys.readouterr().out
    assert script.main([str(one), str(two), "--out", str(out)]) == 0
    records = parse_qualified(out.read_bytes(), out.name).record
    assert {(one.workload, one.num_clean) for one in records} == {
        ("gemm", 11),
        ("bert", 11),
        ("exact", 11),
    }
    assert all(len(one.sources) == 2 for one in records)
    assert load_qualified(["A processor"], tmp_path).record == records
    assert load_qualified(["Another"], tmp_path).record == ()


def test_a_mismatch_is_not_recorded_as_clean(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "records.json"
    run = run_folder(tmp_path / "run", flipped(lambda event: event))
    assert script.main([str(run), "--out", str(out)]) == 1
    assert "not recorded: gemm@cpu:0 of" in capsys.readouterr().err
    assert {one.workload for one in parse_qualified(out.read_bytes(), "").record} == {
        "bert",
        "exact",
    }


def test_what_the_library_has_no_deterministic_form_of_is_recorded_so(
    script: ModuleType, tmp_path: Path
) -> None:
    out = tmp_path / "records.json"
    draft = flipped(lambda event: replace(event, operators=("scatter_add_",)))
    assert script.main([str(run_folder(tmp_path / "run", draft)), "--out", str(out)]) == 0
    (record,) = [
        one for one in parse_qualified(out.read_bytes(), "").record if one.workload == "gemm"
    ]
    assert (record.form, record.num_clean) == ("no_deterministic_form", 0)
    assert record.operators == ("scatter_add_",)


def test_a_folder_that_is_no_run_is_refused_in_one_sentence(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([str(tmp_path / "none"), "--out", str(tmp_path / "out.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_shipped_records_are_sound_and_of_workloads_that_there_are() -> None:
    known = workload_manifest.load()
    assert QUALIFIED.is_dir()
    for path in QUALIFIED.glob("*.json"):
        for record in parse_qualified(path.read_bytes(), path.name).record:
            assert record.version <= known[record.workload].version, record.workload
            assert record.sources
