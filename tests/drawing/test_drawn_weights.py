"""Weights that the generator draws: the same bits where a model lies and where a reference does."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

from appliance.generator import maps
from workloads.contract.target import Artifacts, Target
from workloads.parts.drawing import drawn
from workloads.parts.drawing.drawn import Draws, HostDraws
from workloads.parts.drawing.weights import fill, values_of, weight

HOST = torch.device("cpu")


class Small(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.matrix = nn.Linear(300, 70, bias=False, dtype=dtype)
        self.norm = nn.LayerNorm(300, bias=False, dtype=dtype)


def filled(folder: Path, dtype: torch.dtype) -> tuple[Small, Target]:
    target = Target(device=HOST, artifacts=Artifacts(folder))
    model = Small(dtype)
    fill(model, Draws(target=target, seed=3))
    return model, target


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_reference_draws_the_bits_that_a_model_was_filled_with(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    model, _ = filled(tmp_path, dtype)
    for name, parameter in model.named_parameters():
        again = weight(HostDraws(seed=3), name, tuple(parameter.shape), dtype)
        assert again.dtype == dtype
        assert torch.equal(parameter, again)


def test_launch_keeps_account_of_every_weight(tmp_path: Path) -> None:
    _, target = filled(tmp_path, torch.bfloat16)
    assert [one.drawn.name for one in target.drawn] == ["matrix.weight", "norm.weight"]
    assert [check.error for check in drawn.checks(target)] == [0, 0]


@pytest.mark.parametrize("shape", [(300,), (70, 300)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_device_draws_the_weights_of_the_host(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    one = drawn.described(5, "w", values_of("w", shape), dtype, shape)
    integers = torch.int32 if dtype.itemsize == 4 else torch.int16
    by_device, by_host = drawn.drawn_by_device(one, HOST), drawn.on_host(one)
    assert torch.equal(by_device.view(integers), by_host.view(integers))


def test_matrices_keep_the_size_of_signals_and_gains_lie_around_one() -> None:
    matrix = weight(HostDraws(seed=1), "a", (4096, 256), torch.float32)
    gain = weight(HostDraws(seed=1), "b", (100_000,), torch.float32)
    assert abs(float(matrix.std()) * 16 - 1) < 0.01
    assert abs(float(matrix.mean())) < 1e-3
    assert abs(float(gain.mean()) - 1) < 1e-3
    assert abs(float(gain.std()) - 0.1) < 1e-3


def test_weight_depends_on_seed_and_name() -> None:
    given = [
        weight(HostDraws(seed=seed), name, (3, 4), torch.float32)
        for seed, name in ((1, "a"), (1, "b"), (2, "a"))
    ]
    assert all(not torch.equal(one, other) for one, other in pairwise([*given, given[0]]))


def test_variance_of_a_row_is_a_square_root_and_no_power() -> None:
    assert values_of("w", (11_008, 4096)) == maps.normal(0.0, 2.0**-6)
    assert str(values_of("w", (4096, 11_008))) == "normal 0.0 by 0.009531160645787792"


def test_convolutions_biases_and_gains_of_a_model_have_their_own_distributions() -> None:
    gains = {"first.weight": 3.0, "bias": 2.0}
    assert values_of("last.weight", (8, 4, 3, 3), gains) == maps.normal(0.0, 1 / 6)
    assert values_of("first.weight", (8, 16), gains) == maps.normal(0.0, 3 / 4)
    assert values_of("norm.weight", (8,), gains) == maps.normal(1.0, 0.1)
    assert values_of("first.bias", (8,), gains) == maps.normal(0.0, 0.2)
