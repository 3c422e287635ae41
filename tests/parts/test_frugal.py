"""Float64 with fewer activations in memory: the same bits, and fewer tensors kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from workloads.bert import Bert
from workloads.contract.target import Artifacts, Target
from workloads.diffusion import Diffusion
from workloads.dinov2_giant import Dinov2Giant
from workloads.parts.numerics import low_memory
from workloads.parts.training.state import Training
from workloads.whisper import Whisper

ROWS: dict[str, Any] = {
    "bert": Bert,
    "whisper": Whisper,
    "diffusion": Diffusion,
    "dinov2": Dinov2Giant,
}


def followed(state: Training, *, is_frugal: bool) -> tuple[dict[str, torch.Tensor], int]:
    """Gradients of a batch in float64, and how many elements were kept for the backward pass."""
    model = state.model.double().train()
    model.zero_grad(set_to_none=True)
    if is_frugal:
        assert low_memory.spare(model, least=0) > 0
    batch = {
        name: tensor.double() if tensor.is_floating_point() else tensor
        for name, tensor in state.batches[0].items()
    }
    kept: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss, _ = state.result(model(**batch))
    torch.autograd.backward(loss)
    slopes = {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }
    return slopes, sum(kept)


@pytest.mark.parametrize("name", ROWS)
def test_the_same_bits_with_fewer_tensors_kept(name: str, tmp_path: Path) -> None:
    kind = ROWS[name]
    row = kind(**{**kind.small, **({"dtype": "float32"} if "dtype" in kind.small else {})})
    state = row.build(Target(device=torch.device("cpu"), artifacts=Artifacts(tmp_path)), 5)
    state = getattr(state, "training", state)
    plain, all_kept = followed(state, is_frugal=False)
    spared, few_kept = followed(state, is_frugal=True)
    assert plain.keys() == spared.keys()
    assert all(torch.equal(slope, spared[path]) for path, slope in plain.items())
    assert few_kept < 0.7 * all_kept


def test_small_models_are_left_alone() -> None:
    assert low_memory.spare(torch.nn.Linear(4, 4)) == 0
