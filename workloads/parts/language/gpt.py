"""A small GPT in plain torch, in the shape of nanoGPT: pre-norm blocks, no biases, tied head.

Written out because its dropout must draw masks that a float64 copy can draw again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch.nn import functional

from workloads.parts.training.dropout import Dropout


class Predicted(NamedTuple):
    loss: torch.Tensor
    logits: torch.Tensor


class Block(torch.nn.Module):
    """Causal self-attention and a two-layer perceptron, each added to what it reads."""

    def __init__(self, width: int, heads: int, rate: float, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = torch.nn.LayerNorm(width, bias=False)
        self.attention_in = torch.nn.Linear(width, 3 * width, bias=False)
        self.attention_out = torch.nn.Linear(width, width, bias=False)
        self.norm_perceptron = torch.nn.LayerNorm(width, bias=False)
        self.perceptron_in = torch.nn.Linear(width, 4 * width, bias=False)
        self.perceptron_out = torch.nn.Linear(4 * width, width, bias=False)
        self.dropout = Dropout(rate, generator)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = values + self.dropout(self._attend(self.norm_attention(values)))
        hidden = functional.gelu(self.perceptron_in(self.norm_perceptron(values)))
        result: torch.Tensor = values + self.dropout(self.perceptron_out(hidden))
        return result

    def _attend(self, values: torch.Tensor) -> torch.Tensor:
        batch, length, width = values.shape
        split = self.attention_in(values).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        future = torch.ones(length, length, dtype=torch.bool, device=values.device).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(dim=-1)
        mixed = self.dropout(weights).to(value.dtype) @ value
        result: torch.Tensor = self.attention_out(mixed.transpose(1, 2).reshape(values.shape))
        return result


class Gpt(torch.nn.Module):
    """Next-token model; forward returns the mean loss and the logits.

    `generator` draws the dropout masks; it lives on the device that trains.
    """

    def __init__(
        self,
        *,
        vocabulary: int,
        context: int,
        layers: int,
        heads: int,
        width: int,
        dropout: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(vocabulary, width)
        self.positions = torch.nn.Embedding(context, width)
        self.dropout = Dropout(dropout, generator)
        self.blocks = torch.nn.ModuleList(
            Block(width, heads, dropout, generator) for _ in range(layers)
        )
        self.norm = torch.nn.LayerNorm(width, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                depth = math.sqrt(2 * layers) if name.endswith("_out.weight") else 1.0
                torch.nn.init.normal_(weight, std=0.02 / depth)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> Predicted:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        values = self.dropout(self.tokens(tokens) + self.positions(positions))
        for block in self.blocks:
            values = block(values)
        logits = functional.linear(self.norm(values), self.tokens.weight)
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return Predicted(loss, logits)
