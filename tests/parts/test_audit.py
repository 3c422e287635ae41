"""A large model's audit, on a small Llama: what is wrong in a drawn layer is found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from appliance.records.journal import Check
from workloads.contract.failures import ParameterError
from workloads.contract.target import Artifacts, Target
from workloads.llava import Llava
from workloads.llm_full import LlmFull
from workloads.llm_lora import LlmLora
from workloads.parts.numerics.precision import dtype_named
from workloads.parts.training.audit import Audit
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.checks import check_step
from workloads.parts.training.inputs import GeneratedInputs
from workloads.parts.training.optimizers import AdamW
from workloads.parts.training.state import Trained, Training, begin_training, take_snapshot
from workloads.parts.training.step import train_step

SEED, LAYERS, VOCABULARY = 11, 6, 97
OUTPUT_CHECK = "outputs of the drawn layers against float64"
SLOPES = "gradients of the drawn layers against float64"
SAME = {"loss and logits of the step run again", "gradients of the step run again"}


def model() -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            use_cache=False,
        )
    )


def next_token_loss(logits: torch.Tensor, batch: Any) -> torch.Tensor:
    labels = batch["labels"][:, 1:].reshape(-1)
    rows = logits[:, :-1].reshape(len(labels), -1)
    return torch.nn.functional.cross_entropy(rows, labels)


def batches(seed: int) -> Iterator[dict[str, torch.Tensor]]:
    rng = torch.Generator().manual_seed(seed)
    while True:
        tokens = torch.randint(VOCABULARY, (4, 1), generator=rng) + 3 * torch.arange(24)
        yield {"input_ids": tokens % VOCABULARY, "labels": tokens % VOCABULARY}


def trained(folder: Path, *, count: int = 2, dtype: str = "float32", **fields: Any) -> Training:
    return begin_training(
        Target(device=torch.device("cpu"), artifacts=Artifacts(folder)),
        seed=SEED,
        make=lambda *_: model(),
        rule=AdamW(learning_rate=1e-3),
        inputs=GeneratedInputs(generate=batches),
        num_inputs=3,
        dtype=dtype_named(dtype),
        error_bounds=ErrorBounds(loss=4, logits=32, gradients=16),
        audit=Audit(
            make=model,
            layers=("model.layers",),
            ends=("model.embed_tokens", "model.norm", "lm_head"),
            loss=next_token_loss,
            seed=SEED,
            count=count,
        ),
        **fields,
    )


def judged(
    state: Training,
    faulty: AbstractContextManager[None] | None = None,
    spoil: Callable[[Trained], object] = lambda _: None,
) -> list[Check]:
    """Checks of a step, where the device is faulty in the step and when it is run again."""
    before = take_snapshot(state)
    with faulty or nullcontext():
        output = train_step(state)
        spoil(output)
        return list(check_step(before, state, output))


def outside(checks: list[Check]) -> set[str]:
    return {check.name for check in checks if not check.is_within}


@contextmanager
def scaled(layer: torch.nn.Module, factor: float) -> Iterator[None]:
    """A device that gets one kernel wrong every time; float64 does not run on it."""

    def spoil(module: torch.nn.Module, given: Any, made: torch.Tensor) -> torch.Tensor:
        del module, given
        return made if made.dtype == torch.float64 else made * factor

    handle = layer.register_forward_hook(spoil)
    yield
    handle.remove()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_healthy_step_passes_and_keeps_its_state(dtype: str, tmp_path: Path) -> None:
    state = trained(tmp_path, dtype=dtype)
    for _ in range(4):
        before = take_snapshot(state)
        output = train_step(state)
        kept = {name: weight.detach().clone() for name, weight in state.trained.items()}
        checks = list(check_step(before, state, output))
        assert not outside(checks)
        assert all(c.error <= c.bound / 2 for c in checks if c.name in {OUTPUT_CHECK, SLOPES})
        assert all(torch.equal(kept[name], w) for name, w in state.trained.items())
        assert all(output.gradients[name] is w.grad for name, w in state.trained.items())
    assert "probability 0.333" in next(c.detects_what for c in checks if c.name == OUTPUT_CHECK)


def test_parts_of_a_batch_and_clipping_are_run_again_alike(tmp_path: Path) -> None:
    state = trained(tmp_path, micro_batches=2, clip=0.5)
    assert not outside(judged(state))


def layer_of(state: Training, number: int) -> Any:
    return state.model.get_submodule(f"model.layers.{number}.mlp.down_proj")


def test_fault_is_found_where_the_layer_is_drawn_and_nowhere_else(tmp_path: Path) -> None:
    state = trained(tmp_path)
    plan = state.audit
    assert plan is not None
    for number in range(LAYERS):
        drawn = plan.drawn(state.model, state.cycle.number + 1)
        result = outside(judged(state, scaled(layer_of(state, number), 1.01)))
        assert (OUTPUT_CHECK in result) == (f"model.layers.{number}" in drawn)
        assert not result & SAME  # the device is wrong alike when it runs the step again


def test_share_of_layers_is_the_probability_that_is_told(tmp_path: Path) -> None:
    state = trained(tmp_path)
    plan = state.audit
    assert plan is not None
    draws = [plan.drawn(state.model, number) for number in range(600)]
    for layer in range(LAYERS):
        share = sum(f"model.layers.{layer}" in drawn for drawn in draws) / len(draws)
        assert math.isclose(share, 2 / LAYERS, abs_tol=0.08)  # four deviations


def test_fault_in_the_head_is_found_always(tmp_path: Path) -> None:
    state = trained(tmp_path)
    result = outside(judged(state, scaled(state.model.get_submodule("lm_head"), 1.01)))
    assert OUTPUT_CHECK in result


def test_fault_that_comes_once_shows_in_any_layer(tmp_path: Path) -> None:
    state = trained(tmp_path)
    before = take_snapshot(state)
    with scaled(layer_of(state, 0), 1 + 2.0**-20):
        output = train_step(state)
    assert outside(list(check_step(before, state, output))) >= SAME


def test_wrong_gradient_of_one_layer_is_found(tmp_path: Path) -> None:
    state = trained(tmp_path)

    def spoil(output: Trained) -> object:
        return output.gradients["model.layers.3.mlp.up_proj.weight"].mul_(1.0001)

    assert "gradients of the step run again" in outside(judged(state, spoil=spoil))


def test_audit_of_no_layer_is_refused() -> None:
    with pytest.raises(ParameterError):
        Audit(make=model, layers=("model.layers",), ends=(), loss=next_token_loss, seed=1, count=0)


ROWS: dict[str, tuple[Any, dict[str, Any]]] = {
    "adapters in parts": (LlmLora, {}),
    "all weights": (LlmFull, {}),
    "all weights in bfloat16": (LlmFull, {"dtype": "bfloat16", "weights": "bfloat16"}),
    "images": (Llava, {}),
    "images in bfloat16": (Llava, {"dtype": "bfloat16", "weights": "bfloat16"}),
}


@pytest.mark.parametrize("name", ROWS)
def test_large_rows_follow_drawn_layers_at_full_size(name: str, tmp_path: Path) -> None:
    kind, given = ROWS[name]
    assert kind().audit(SEED) is not None
    assert kind(**kind.small).audit(SEED) is None
    row = kind(**{**kind.small, "followed": "layers", **given})
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(tmp_path))
    state = row.build(target, SEED)
    for _ in range(3):
        before = row.snapshot(state)
        output = row.step(state)
        checks = list(row.check(before, state, output))
        assert not outside(checks)
        close = [c for c in checks if c.name in {OUTPUT_CHECK, SLOPES}]
        assert len(close) == 2
        assert all(c.error <= c.bound / 2 for c in close), close


@pytest.mark.parametrize("name", ["adapters in parts", "images"])
def test_large_rows_find_a_device_that_is_wrong_every_time(name: str, tmp_path: Path) -> None:
    kind, _ = ROWS[name]
    row = kind(**{**kind.small, "followed": "layers"})
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(tmp_path))
    state = row.build(target, SEED)
    plan = state.audit
    assert plan is not None
    layer = state.model.get_submodule(plan.drawn(state.model, 0)[-1])
    before = row.snapshot(state)
    with scaled(layer.get_submodule("mlp.down_proj"), 1.01):
        output = row.step(state)
        checks = list(row.check(before, state, output))
    assert OUTPUT_CHECK in outside(checks)
