"""A Llama decoder written out in float64: the reference of cached decoding.

It shares no code with the library that runs on the device and keeps no cache: the whole
sequence goes through every layer at once. Weights come by name, a layer at a time, so that the
full size needs the memory of one layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

Weight = Callable[..., torch.Tensor]
"""Gives the weight of a name and a shape, in float64 on the host."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    epsilon: float
    theta: float

    @property
    def head(self) -> int:
        return self.hidden // self.heads


def decode(shape: Shape, weight: Weight, tokens: torch.Tensor, first: int) -> torch.Tensor:
    """Logits (sequence, position, vocabulary) of the positions from `first` on."""
    wide, inner = shape.hidden, shape.intermediate
    values = weight("model.embed_tokens.weight", shape.vocabulary, wide)[tokens]
    turns = _rotations(shape, tokens.shape[1])
    for number in range(shape.layers):
        name = f"model.layers.{number}"
        read = _normed(values, weight(f"{name}.input_layernorm.weight", wide), shape.epsilon)
        query, key, value = (
            _split(read @ weight(f"{name}.self_attn.{which}_proj.weight", wide, wide).T, shape)
            for which in "qkv"
        )
        mixed = _attend(_rotate(query, turns), _rotate(key, turns), value)
        values = values + mixed @ weight(f"{name}.self_attn.o_proj.weight", wide, wide).T
        gain = weight(f"{name}.post_attention_layernorm.weight", wide)
        read = _normed(values, gain, shape.epsilon)
        gate = functional.silu(read @ weight(f"{name}.mlp.gate_proj.weight", inner, wide).T)
        up = read @ weight(f"{name}.mlp.up_proj.weight", inner, wide).T
        values = values + (gate * up) @ weight(f"{name}.mlp.down_proj.weight", wide, inner).T
    last = _normed(values[:, first:], weight("model.norm.weight", wide), shape.epsilon)
    return last @ weight("lm_head.weight", shape.vocabulary, wide).T


def _normed(values: torch.Tensor, gain: torch.Tensor, epsilon: float) -> torch.Tensor:
    return gain * values / (values.square().mean(dim=-1, keepdim=True) + epsilon).sqrt()


def _split(values: torch.Tensor, shape: Shape) -> torch.Tensor:
    count, length, _ = values.shape
    return values.view(count, length, shape.heads, shape.head).transpose(1, 2)


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    length = query.shape[2]
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
    angles = torch.arange(length).double()[:, None] * frequencies
    return torch.polar(torch.ones_like(angles), angles)


def _rotate(values: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Turn the pairs that Llama's checkpoints keep half a head apart."""
    real, imaginary = values.chunk(2, dim=-1)
    turned = torch.complex(real.contiguous(), imaginary.contiguous()) * turns
    return torch.cat((turned.real, turned.imag), dim=-1)
