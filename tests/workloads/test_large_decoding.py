"""Decoders too large for a pass in float64: what that finds is found by a pass in float32.

At small size, with the limit taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from support.subjects import Subject
from transformers import DynamicCache

from workloads.llama import Llama
from workloads.parts.language import decoder, decoding

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = {"new_tokens": 8, "layers": 2, "hidden": 64, "intermediate": 128, "heads": 2}
OWN = "a layer of the reference against float64"
LOGITS = "logits against float32"
UNLIMITED = 10**15


def judged(
    folder: Path,
    least: int,
    spoil: Callable[[Any], Any],
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
) -> dict[str, Any]:
    """Checks of a step of a spoilt device, by a reference in float32 from so many weights on."""
    monkeypatch.setattr(decoding, "LARGE", least)
    workload = Llama(**{**Llama.small, **SIZES, "dtype": dtype})
    subject = Subject.__new__(Subject)
    subject.workload, subject.folder = workload, folder / str(least)
    subject.state = subject.build()
    subject.before = workload.snapshot(subject.state)
    with spoil(subject.state) or contextmanager(lambda: iter([None]))():
        subject.output = workload.step(subject.state)
    return {check.name: check for check in subject.checks()}


def outside(checks: dict[str, Any]) -> set[str]:
    return {name for name, check in checks.items() if not check.is_within}


@contextmanager
def stale(state: Any) -> Iterator[None]:
    """The second layer's cache keeps what an earlier position left."""
    del state
    real = DynamicCache.update

    def update(cache: Any, key: Any, value: Any, layer: int, *given: Any, **named: Any) -> Any:
        keys, values = real(cache, key, value, layer, *given, **named)
        return (keys.roll(1, dims=2), values) if layer == 1 else (keys, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DynamicCache, "update", update)
        yield


def wrong_gate(state: Any) -> None:
    with torch.no_grad():
        state.model.model.layers[0].mlp.gate_proj.weight.mul_(-1)


def wrong_head(state: Any) -> None:
    with torch.no_grad():
        state.model.lm_head.weight.mul_(1.02)


def healthy(state: Any) -> None:
    del state


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_float32_finds_what_float64_finds_and_is_itself_held_to_it(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for spoil, is_found in (
        (healthy, False),
        (stale, True),
        (wrong_gate, True),
        (wrong_head, True),
    ):
        folder = tmp_path / spoil.__name__
        short, exact = (
            judged(folder, least, spoil, monkeypatch, dtype) for least in (0, UNLIMITED)
        )
        assert short[OWN].is_within
        assert OWN not in exact
        found = {name.replace("float32", "float64") for name in outside(short)}
        assert found == outside(exact)
        assert bool(found) == is_found
        check = short[LOGITS]
        difference = abs(check.error - exact["logits against float64"].error)
        assert difference < check.bound / 500


def test_reference_that_is_wrong_itself_is_found_in_the_drawn_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = decoder.layer

    def wrong(shape: Any, weight: Any, values: torch.Tensor, name: str) -> torch.Tensor:
        made = real(shape, weight, values, name)
        return made * (1 + 1e-4) if values.dtype is torch.float32 else made

    monkeypatch.setattr(decoder, "layer", wrong)
    checks = judged(tmp_path, 0, healthy, monkeypatch, "bfloat16")
    assert outside(checks) == {OWN}


def test_layer_that_is_made_in_float64_follows_from_seed_and_step(tmp_path: Path) -> None:
    workload = Llama(**{**Llama.small, **SIZES, "layers": 8})
    state = Subject(workload, tmp_path).build()
    before = [workload.snapshot(state)]
    for _ in range(7):
        workload.step(state)
        before.append(workload.snapshot(state))
    drawn = [[workload._drawn(one, seed) for one in before] for seed in (1, 1, 99)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) > 2


def test_only_large_models_in_16_bits_are_followed_in_float32() -> None:
    kinds = {
        dtype: Llama(dtype=dtype).reference_dtype for dtype in ("bfloat16", "float16", "float32")
    }
    assert kinds == {
        "bfloat16": torch.float32,
        "float16": torch.float32,
        "float32": torch.float64,
    }
    assert Llama(**{**Llama.small, "dtype": "bfloat16"}).reference_dtype is torch.float64
