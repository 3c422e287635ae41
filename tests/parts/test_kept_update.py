"""What is kept of a first step's update is read for the very same bits, and for no others."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from appliance.records.journal import Check
from workloads.contract.target import Artifacts, Target
from workloads.parts.auditing import equal_bits
from workloads.parts.training import comparisons
from workloads.parts.vision import teacher

pytestmark = pytest.mark.usefixtures("one_thread")
UPDATE = "updated weights, given the gradients"


@pytest.fixture(autouse=True)
def _no_model_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equal_bits, "FEWEST", 1)


@contextmanager
def passes() -> Iterator[list[int]]:
    """Counts the passes over all tensors."""
    made: list[int] = []
    real = comparisons.examine

    def counted(*given: Any) -> Any:
        made.append(1)
        return real(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparisons, "examine", counted)
        yield made


def launch(
    folder: Path,
    known: dict[str, str] | None,
    spoil: Callable[[Any], object] = lambda _: None,
    seed: int = 5,
    name: str = "digits_mlp",
) -> tuple[dict[str, Check], dict[str, str]]:
    """Checks of a launch's first step, and the files that it made or read."""
    said: dict[str, str] = {}

    def report(file: str, _: Path, digest: str, is_made: bool) -> None:  # noqa: FBT001 - contract
        assert is_made == (known is None)
        said[file] = digest

    kind = importlib.import_module(f"workloads.{name}").WORKLOAD
    row = kind(**kind.small)
    artifacts = Artifacts(folder, known and dict(known), report)
    state = row.build(Target(device=torch.device("cpu"), artifacts=artifacts), seed)
    before = row.snapshot(state)
    output = row.step(state)
    spoil(output)
    return {check.name: check for check in row.check(before, state, output)}, said


def test_a_launch_with_the_same_bits_reads_what_the_untimed_one_made(tmp_path: Path) -> None:
    with passes() as made:
        first, known = launch(tmp_path, None)
        again, said = launch(tmp_path, known)
    assert (len(made), said) == (1, known)
    assert comparisons.KEPT in known
    assert again == first
    assert all(check.is_within for check in again.values())


@pytest.mark.parametrize("kind", ["weights", "gradients", "moments"])
def test_one_other_bit_in_one_element_is_looked_at_anew(kind: str, tmp_path: Path) -> None:
    _, known = launch(tmp_path, None)

    def flip(output: Any) -> None:
        tensor = next(iter(getattr(output, kind).values()))
        tensor = next(iter(tensor.values())) if isinstance(tensor, dict) else tensor
        tensor.view(-1)[-1:].view(torch.int32).bitwise_xor_(1 << 22)

    with passes() as made:
        checks, _ = launch(tmp_path, known, flip)
    assert len(made) == 1
    assert not all(check.is_within for check in checks.values())


def test_a_teacher_is_followed_once_for_equal_bits(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        made: list[int] = []
        real = teacher._followed
        patch.setattr(teacher, "_followed", lambda *given: (made.append(1), real(*given))[1])
        first, known = launch(tmp_path, None, name="vjepa")
        again, _ = launch(tmp_path, known, name="vjepa")
        assert (len(made), again) == (1, first)

        def flip(output: Any) -> None:
            tensor = next(one for name, one in output.statistics.items() if "teacher" in name)
            tensor.view(-1)[:1].view(torch.int32).bitwise_xor_(1 << 22)

        wrong, _ = launch(tmp_path, known, flip, name="vjepa")
    assert len(made) == 2
    assert not wrong["teacher, given the student's weights"].is_within


def test_another_start_is_looked_at_anew(tmp_path: Path) -> None:
    _, known = launch(tmp_path, None)
    with passes() as made:
        checks, _ = launch(tmp_path, known, seed=6)
    assert len(made) == 1
    assert checks[UPDATE].is_within


def test_a_small_model_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    _, known = launch(tmp_path, None)
    assert comparisons.KEPT not in known
