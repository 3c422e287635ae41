"""A Llama decoder written out: the reference of cached decoding.

It shares no code with the library that runs on the device and keeps no cache: the whole
sequence goes through every layer at once. Weights come by name, a layer at a time, so that the
full size needs the memory of one layer. All is computed in the format in which they come.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

Weight = Callable[..., torch.Tensor]
"""Gives the weight of a name and a shape, on the host, in the format of the reference."""
Watch = Callable[[str, torch.Tensor, torch.Tensor], None]
"""Is told the name of each layer, what it was given and what it made."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """How Llama 3.1 reaches beyond the `original` positions that it was trained on.

    Rotations slower than `low` turns in them are slowed by `factor`, those faster than `high` are
    left alone, and those between are mixed of both.
    """

    factor: float
    low: float
    high: float
    original: int


@dataclass(frozen=True, kw_only=True)
class Shape:
    """`shared_heads`: heads of keys and values, each of which several queries share."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    epsilon: float
    theta: float
    shared_heads: int | None = None
    stretch: Stretch | None = None

    @property
    def head(self) -> int:
        return self.hidden // self.heads

    @property
    def key_heads(self) -> int:
        return self.shared_heads or self.heads


def decode(
    shape: Shape, weight: Weight, tokens: torch.Tensor, first: int, watch: Watch | None = None
) -> torch.Tensor:
    """Logits (sequence, position, vocabulary) of the positions from `first` on."""
    wide = shape.hidden
    values = weight("model.embed_tokens.weight", shape.vocabulary, wide)[tokens]
    for number in range(shape.layers):
        given, name = values, layer_name(number)
        values = layer(shape, weight, given, name)
        if watch is not None:
            watch(name, given, values)
    last = _normed(values[:, first:], weight("model.norm.weight", wide), shape.epsilon)
    return last @ weight("lm_head.weight", shape.vocabulary, wide).T


def layer_name(number: int) -> str:
    """What the names of a layer's weights begin with."""
    return f"model.layers.{number}"


def layer(shape: Shape, weight: Weight, values: torch.Tensor, name: str) -> torch.Tensor:
    """Pass values (sequence, position, hidden) through the layer called `name`."""
    wide, inner, narrow = shape.hidden, shape.intermediate, shape.key_heads * shape.head
    turns = _rotations(shape, values.shape[1])
    read = _normed(values, weight(f"{name}.input_layernorm.weight", wide), shape.epsilon)
    query, key, value = (
        _split(read @ weight(f"{name}.self_attn.{which}_proj.weight", size, wide).T, shape)
        for which, size in {"q": wide, "k": narrow, "v": narrow}.items()
    )
    mixed = _attend(_rotate(query, turns), _rotate(key, turns), value)
    values = values + mixed @ weight(f"{name}.self_attn.o_proj.weight", wide, wide).T
    gain = weight(f"{name}.post_attention_layernorm.weight", wide)
    read = _normed(values, gain, shape.epsilon)
    gate = functional.silu(read @ weight(f"{name}.mlp.gate_proj.weight", inner, wide).T)
    up = read @ weight(f"{name}.mlp.up_proj.weight", inner, wide).T
    return values + (gate * up) @ weight(f"{name}.mlp.down_proj.weight", wide, inner).T


def _normed(values: torch.Tensor, gain: torch.Tensor, epsilon: float) -> torch.Tensor:
    return gain * values / (values.square().mean(dim=-1, keepdim=True) + epsilon).sqrt()


def _split(values: torch.Tensor, shape: Shape) -> torch.Tensor:
    count, length, width = values.shape
    return values.view(count, length, width // shape.head, shape.head).transpose(1, 2)


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    length, sharing = query.shape[2], query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(sharing, dim=1) for each in (key, value))
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[3])
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, -math.inf).softmax(dim=-1) @ value
    return mixed.transpose(1, 2).flatten(2)


def _rotations(shape: Shape, length: int) -> torch.Tensor:
    """Unit complex numbers (position, half a head).

    Frequencies are constants in float32 in every Llama: they are rounded first, like weights.
    """
    exponents = torch.arange(0, shape.head, 2, dtype=torch.float32) / shape.head
    frequencies = (1.0 / shape.theta**exponents).double()
    if shape.stretch is not None:
        frequencies = _slowed(frequencies, shape.stretch).float().double()
    angles = torch.arange(length).double()[:, None] * frequencies
    return torch.polar(torch.ones_like(angles), angles)


def _slowed(frequencies: torch.Tensor, stretch: Stretch) -> torch.Tensor:
    """Radians a position, of which the slow ones are slowed further."""
    turns = frequencies * stretch.original / (2 * math.pi)
    share = ((turns - stretch.low) / (stretch.high - stretch.low)).clamp(0, 1)
    return frequencies * (share + (1 - share) / stretch.factor)


def _rotate(values: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Turn the pairs that Llama's checkpoints keep half a head apart."""
    real, imaginary = values.chunk(2, dim=-1)
    pairs = torch.complex(real.contiguous(), imaginary.contiguous())
    turned = pairs * turns.to(pairs.dtype)
    return torch.cat((turned.real, turned.imag), dim=-1)
