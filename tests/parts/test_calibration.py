"""Measured figures name constants that exist, and say enough to be measured again."""

from __future__ import annotations

import importlib
from functools import reduce
from pathlib import Path

import pytest

from appliance.errors import UsageError
from workloads.parts.numerics import calibration


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


@pytest.fixture(scope="module")
def figures() -> list[calibration.Figure]:
    """All that is shipped; each file takes a process to read."""
    return calibration.figures()


def test_every_figure_justifies_a_constant_that_exists(figures: list[calibration.Figure]) -> None:
    names = sorted({figure.justifies for figure in figures})
    assert [name for name in names if not name.startswith("workloads.")] == []
    assert [name for name in names if constant(name) is None] == []


def test_every_figure_says_what_was_measured(figures: list[calibration.Figure]) -> None:
    for figure in figures:
        assert bool(figure.largest) != bool(figure.smallest), figure
        assert figure.quantity.strip(), figure
        assert figure.setting.strip(), figure
        assert figure.device.strip(), figure
        assert figure.seeds >= 0, figure


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
