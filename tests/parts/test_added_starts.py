"""Starts of this processor are added to a recorded curve only where a right run follows it."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.records.json import to_json
from workloads.parts.curves import bands

NAME = "digits_mlp"
FILE = f"{NAME}-small-float32.json"
SCRIPT = Path(__file__).parents[2] / "scripts" / "add_band_starts.py"
SPEC = importlib.util.spec_from_file_location("add_band_starts", SCRIPT)
assert SPEC is not None
assert SPEC.loader is not None
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Recorded bands of one workload alone, in a folder of the test's own, read anew each time."""
    shutil.copy(bands.FOLDER / FILE, tmp_path)
    monkeypatch.setattr(bands, "FOLDER", tmp_path)
    monkeypatch.setattr(bands, "load_loss_band", bands.load_loss_band.__wrapped__)
    return tmp_path


def band() -> bands.LossBand:
    return bands.load_loss_band(NAME, "float32", is_small=True)


def forget_starts(folder: Path, scale: float = 1.0) -> bands.LossBand:
    """Write the band as from another processor's starts, its losses times `scale`."""
    recorded = band()
    curves = tuple(
        replace(
            curve,
            inputs_sha256=("0" * 64,),
            losses=tuple(scale * loss for loss in curve.losses),
        )
        for curve in recorded.curves
    )
    other = replace(recorded, curves=curves)
    (folder / FILE).write_bytes(to_json(other))
    return other


def test_start_that_is_known_changes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / FILE).read_bytes()
    assert script.main([]) == 0
    assert capsys.readouterr().out == f"{NAME}: known already\n"
    assert (folder / FILE).read_bytes() == before


def test_start_of_a_right_run_is_added_and_the_losses_stay(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = forget_starts(folder)
    assert script.main([NAME]) == 0
    assert capsys.readouterr().out == f"{NAME}: added {len(before.curves)}\n"
    curves = band().curves
    assert [curve.losses for curve in curves] == [curve.losses for curve in before.curves]
    assert all(len(set(curve.inputs_sha256)) == 2 for curve in curves)


def test_curve_that_a_right_run_leaves_is_left_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = forget_starts(folder, scale=1.01)
    assert script.main([NAME]) == 0
    assert "must be recorded anew" in capsys.readouterr().out
    assert band() == before


@pytest.mark.parametrize("words", [[], ["no_such_workload"]])
def test_damaged_band_and_unknown_name_are_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (folder / FILE).write_text("{}")
    assert script.main(words) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith("add_band_starts: ")
