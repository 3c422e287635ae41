"""Weights of a reference that are drawn ahead: the same bits, in the order that a decoder asks."""

from __future__ import annotations

import pytest
import torch

from workloads.parts.language.decoder import Shape, decode, weights_of
from workloads.parts.numerics.weights import draw, drawn_ahead

SHAPE = Shape(
    vocabulary=40,
    hidden=16,
    intermediate=24,
    layers=3,
    heads=4,
    epsilon=1e-5,
    theta=10_000.0,
    shared_heads=2,
)
TOKENS = torch.tensor([[1, 7, 3, 39]])


def test_decoder_asks_for_weights_in_the_stated_order() -> None:
    asked = []

    def weight(name: str, *sizes: int) -> torch.Tensor:
        asked.append((name, sizes))
        return draw(name, sizes, 1).double()

    decode(SHAPE, weight, TOKENS, first=1)
    assert asked == list(weights_of(SHAPE))


@pytest.mark.parametrize("most", [1, 4, 100])
def test_logits_have_the_bits_of_weights_drawn_one_by_one(most: int) -> None:
    def weight(name: str, *sizes: int) -> torch.Tensor:
        return draw(name, sizes, 5).to(torch.bfloat16).double()

    with drawn_ahead(weights_of(SHAPE), 5, torch.bfloat16, most) as ahead:
        result = decode(SHAPE, ahead, TOKENS, first=1)
    assert torch.equal(result, decode(SHAPE, weight, TOKENS, first=1))


def test_weight_out_of_order_is_refused() -> None:
    with (
        drawn_ahead([("one", (2,)), ("two", (3,))], 1, torch.float32) as weight,
        pytest.raises(ValueError, match=r"weight two of shape \(3,\) is not the next"),
    ):
        weight("two", 3)
    with drawn_ahead([("one", (2,))], 1, torch.float32) as weight:
        weight("one", 2)
        with pytest.raises(ValueError, match="not the next"):
            weight("one", 2)
