"""Measured figures name constants that exist, and say enough to be measured again."""

from __future__ import annotations

import importlib
from functools import reduce
from pathlib import Path

import pytest

from appliance.errors import UsageError
from workloads.parts.numerics import calibration

FIGURES = calibration.figures()


def constant(name: str) -> object:
    """What a dotted name stands for: the longest module in it, then attributes."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[end:], module)
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("name", sorted({figure.justifies for figure in FIGURES}))
def test_a_figure_justifies_a_constant_that_exists(name: str) -> None:
    assert name.startswith("workloads.")
    assert constant(name) is not None


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.justifies)
def test_a_figure_says_what_was_measured(figure: calibration.Figure) -> None:
    assert bool(figure.largest) != bool(figure.smallest)
    assert figure.quantity.strip()
    assert figure.setting.strip()
    assert figure.device.strip()
    assert figure.seeds >= 0


@pytest.mark.parametrize(
    "text", ["[[figure]]\njustifies = 1", "[[figure]]\nunknown = 'key'", "[[figure"]
)
def test_a_file_that_is_wrong_is_named(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "room.toml").write_text(text)
    monkeypatch.setattr(calibration, "FOLDER", tmp_path)
    with pytest.raises(UsageError, match=r"room\.toml"):
        calibration.figures()


def test_a_name_that_is_gone_is_refused() -> None:
    with pytest.raises(AttributeError):
        constant("workloads.parts.training.rules.Limits.never")
