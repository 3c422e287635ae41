"""Steps of reversible layers on drawn rows: both passes are followed, faults of each are found."""

from __future__ import annotations

import importlib
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from support.planted_faults import FACTOR, Sent, outside, wrong

from appliance.records.journal import Check
from workloads.contract.target import Artifacts, Target
from workloads.parts.auditing import sampling
from workloads.parts.auditing.errors import Errors
from workloads.parts.auditing.rounded import Rounded
from workloads.parts.auditing.selection import draw_rows
from workloads.parts.language.hashed import FixedHashes, Repeatable
from workloads.parts.training.sampled_checks import AGAIN, GRADIENTS, OUTPUTS, WEIGHTS

pytestmark = pytest.mark.usefixtures("one_thread")

SEED = 5
SIZES = {"batch": 3, "length": 64, "hidden": 32, "inner": 64, "heads": 2, "head": 8}
BRANCHES = "units on the other side of a branch point"
LAYERS = "reformer.encoder.layers"


@pytest.fixture(autouse=True)
def _no_step_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in sampling.MOST_OPERATIONS:
        monkeypatch.setitem(sampling.MOST_OPERATIONS, kind, 0.0)


def built(folder: Path, **parameters: Any) -> tuple[Any, Any]:
    kind = importlib.import_module("workloads.reformer").WORKLOAD
    row = kind(**{**kind.small, **SIZES, **parameters})
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(folder))
    return row, row.build(target, SEED)


def judged(row: Any, state: Any, faulty: AbstractContextManager[Any]) -> dict[str, Check]:
    """Checks of a step on a faulty device, which is so again when the step is run again."""
    before = row.snapshot(state)
    with faulty:
        output = row.step(state)
        return {check.name: check for check in row.check(before, state, output)}


@contextmanager
def replaced(kind: type, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, name, make(getattr(kind, name)))
        yield


def on_device(module: torch.nn.Module, given: torch.Tensor) -> bool:
    """Of the second layer; what float64 computes is not the device's."""
    return given.dtype != torch.float64 and getattr(module, "number", 0) == 1


def backward(spoil: Callable[[list[torch.Tensor]], None], *, is_given: bool) -> Any:
    """A device that goes back wrongly through the second layer alone."""

    def make(real: Any) -> Any:
        def back(layer: Any, *given: Any, **named: Any) -> Any:
            names = ("next_attn_output", "hidden_states", "grad_attn_output", "grad_hidden_states")
            if not on_device(layer, named["hidden_states"]):
                return real(layer, *given, **named)
            if is_given:
                values = [named[name] for name in names]
                spoil(values)
                return real(layer, *given, **{**named, **dict(zip(names, values, strict=True))})
            made = list(real(layer, *given, **named))
            spoil(made)
            return made_of(real, made)

        return back

    return replaced(Repeatable, "backward_pass", make)


def made_of(real: Any, values: list[torch.Tensor]) -> Any:
    return real.__globals__["ReformerBackwardOutput"](*values)


def scaled(place: int) -> Callable[[list[torch.Tensor]], None]:
    def spoil(values: list[torch.Tensor]) -> None:
        values[place] = values[place] * FACTOR

    return spoil


def other_buckets(real: Any) -> Any:
    """The backward pass sorts by buckets of the position before."""

    def back(layer: Any, *given: Any, **named: Any) -> Any:
        if on_device(layer, named["hidden_states"]) and named["buckets"] is not None:
            named["buckets"] = named["buckets"].roll(1, dims=-1)
        return real(layer, *given, **named)

    return back


def other_hashes(real: Any) -> Any:
    """A hash that puts every sixteenth position into the next bucket."""

    def hashed(module: Any, vectors: torch.Tensor, *given: Any) -> torch.Tensor:
        buckets: torch.Tensor = real(module, vectors, *given).clone()
        if vectors.dtype != torch.float64:
            buckets[..., ::16] = (buckets[..., ::16] + 1) % module.num_buckets
        return buckets

    return hashed


class Lost(Sent):
    """What sends nothing back."""

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        del ctx
        return torch.zeros_like(gradients[0])


@contextmanager
def wrong_gradient(weight: Any) -> Iterator[None]:
    handle = weight.register_hook(lambda gradient: gradient * FACTOR)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize(
    ("dtype", "change"),
    [("float32", {}), ("bfloat16", {"hashes": 2}), ("float16", {"activation": "gelu"})],
)
def test_healthy_steps_pass_and_every_weight_is_followed(
    dtype: str, change: dict[str, Any], tmp_path: Path
) -> None:
    row, state = built(tmp_path, dtype=dtype, **change)
    for _ in range(2):
        checks = judged(row, state, nullcontext())
        assert not outside(checks)
        assert checks[AGAIN].error == 0.0
        for kind in (OUTPUTS, GRADIENTS, WEIGHTS):
            assert 0 < checks[kind].error <= 0.6 * checks[kind].bound
    assert "; 0 others" in checks[WEIGHTS].detects_what


def test_faults_of_either_pass_of_one_layer_are_found(tmp_path: Path) -> None:
    """Each is there again when the step is run again, so that nothing else could show it."""
    row, state = built(tmp_path)
    layers = state.model.get_submodule(LAYERS)
    for number, layer in enumerate(layers):
        layer.number = number
    apply: Any = Sent.apply
    hashes = layers[1].attention.self_attention
    assert isinstance(hashes, FixedHashes)
    faults: dict[str, tuple[str, AbstractContextManager[Any]]] = {
        "forward: product": (
            OUTPUTS,
            wrong(layers[1].feed_forward.dense.dense, lambda y: y * FACTOR),
        ),
        "forward: values": (OUTPUTS, wrong(hashes.value, lambda y: y * FACTOR)),
        "forward: hash": (BRANCHES, replaced(FixedHashes, "_hash_vectors", other_hashes)),
        "backward: activation": (GRADIENTS, wrong(layers[1].feed_forward.dense.act_fn, apply)),
        "backward: weight": (WEIGHTS, wrong_gradient(hashes.query_key.weight)),
        "backward: positions": (
            WEIGHTS,
            wrong_gradient(next(state.model.reformer.embeddings.position_embeddings.parameters())),
        ),
        "backward: drift": (OUTPUTS, backward(scaled(1), is_given=False)),
        "backward: other stream": (OUTPUTS, backward(scaled(0), is_given=False)),
        "backward: gradient": (GRADIENTS, backward(scaled(3), is_given=False)),
        "backward: gradient before": (GRADIENTS, backward(scaled(2), is_given=True)),
        "backward: buckets": (OUTPUTS, replaced(Repeatable, "backward_pass", other_buckets)),
    }
    for name, (check, faulty) in faults.items():
        found = outside(judged(row, state, faulty))
        assert check in found, (name, found)
        assert AGAIN not in found, name
    assert not outside(judged(row, state, nullcontext()))


def test_lost_gradient_of_queries_is_found_in_16_bits(tmp_path: Path) -> None:
    """Of which roundings are allowed a part that was tried, and not all."""
    row, state = built(tmp_path, dtype="bfloat16", head=64, hidden=64)
    attention = state.model.get_submodule(LAYERS)[1].attention.self_attention
    row.step(state)
    apply: Any = Lost.apply
    result = judged(row, state, wrong(attention.query_key, apply))
    assert GRADIENTS in outside(result)
    assert AGAIN not in outside(result)


def test_fault_of_one_text_is_found_when_it_is_drawn_and_not_else(tmp_path: Path) -> None:
    row, state = built(tmp_path, layers=2)
    module = state.model.get_submodule(f"{LAYERS}.0.feed_forward.output.dense")
    found = []

    def spoil(made: torch.Tensor) -> torch.Tensor:
        other = made.clone()
        other[2] *= 1.01
        return other

    for number in range(4):
        drawn = draw_rows(SEED + number, row.batch, 1).drawn
        result = judged(row, state, wrong(module, spoil))
        assert (OUTPUTS in outside(result)) == (2 in drawn)
        found.append(2 in drawn)
    assert set(found) == {True, False}


@pytest.mark.parametrize("beyond", [math.inf, math.nan])
def test_what_was_tried_in_vain_allows_nothing(beyond: float) -> None:
    errors = Errors(average=lambda own: own)
    exact = torch.tensor([1.0, 1.0], dtype=torch.float64)
    tried = torch.tensor([beyond, 1.0], dtype=torch.float64)
    errors.rounded = {("gradients", "query"): deque([tried])}
    errors.compare("gradients", "query", torch.tensor([5.0, 7.0]), exact)
    assert errors.largest["gradients"] == pytest.approx(math.hypot(4.0, 6.0) / math.sqrt(2.0))


def test_a_trial_keeps_what_its_format_cannot_hold() -> None:
    with Rounded(torch.float16):
        squares = torch.tensor([1000.0, 1.0 + 2.0**-20], dtype=torch.float64).square()
    assert squares.tolist() == [1e6, 1.0]
