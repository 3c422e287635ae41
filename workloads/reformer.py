"""Reformer training by masked tokens: attention by buckets of a hash, and reversible layers.

One step is forward, loss over 15 % of the positions, backward and AdamW, on generated text of 4096
tokens. Layers attend by turns to their neighbourhood, and to what a hash puts into the same bucket:
sorting, gathering and scattering count here as much as products. No activation is kept for the
backward pass: each layer's is computed back from its output. `parts/language/hashed.py` says what
was done to make that repeatable.

The checks of `parts/training` recompute the step with the device's buckets, none of which may
be one that float64 would not have chosen up to a rounding. Lost or doubled positions in a sort, a
bucket from another layer, a drifting reversal, a product in a lower precision and a weight that
the optimiser missed would each be seen.

The backward pass makes the input of each rectifier anew, off by a rounding of what it was, and
one step in 58 so has a unit on the other side of zero than in its forward pass. What float64 makes
on the way back is put on the device's sides too (`parts/training`), each of them near zero: left to
itself it would be 30 times out of bounds below such a unit.

A step of more operations than float64 follows in its time is sampled: it is run once more, and the
calls of all modules are followed in both passes, on one drawn text, from what the device gave them
(`parts/training/sampled_checks.py`). The backward pass of the layers is made in float64 of what
their parts made on the device, what it makes anew is held to what there was in the forward pass,
and its buckets to those. A layer that is wrong for every text in either pass is found in every
step, what is wrong for one text alone with the probability that it is drawn.

The bounds allow twice to three times and more what was measured (`calibration/reformer.toml`).
Most of the logits' error is at masked positions that are memorised; the gradients' bound grows
below a loss of 0.1, as their errors do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from transformers import ReformerConfig, ReformerForMaskedLM

from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.parts.auditing.sampling import Plan, Sampling, beyond
from workloads.parts.datasets.text import FIRST_ORDINARY, Language, masked_text
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.drawing.initial_weights import initialized
from workloads.parts.language.hashed import reformer
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.numerics.size import count_flops
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.inputs import DrawnInputs, Inputs, Tensors, of_rank
from workloads.parts.training.supervised import Supervised

ACTIVATIONS = ("relu", "gelu", "silu")


@dataclass(frozen=True, kw_only=True)
class Reformer(Supervised):
    """`chunk` is the number of neighbours in sorted order that attend to one another.

    `inner` is the width of the feed-forward layers, `head` that of one head of attention.
    """

    summary: ClassVar[str] = "Reformer training by masked tokens"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {
        "batch": 4,
        "length": 128,
        "chunk": 16,
        "vocabulary": 256,
        "hidden": 64,
        "inner": 128,
        "layers": 4,
        "heads": 2,
        "head": 16,
        "dtype": "float32",
    }
    checks_later: ClassVar[bool] = True
    reuses_output: ClassVar[bool] = True
    data_pattern: ClassVar[str] = "generated text with masked tokens"
    domain: ClassVar[str] = "language"
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one text less": {"batch_change": -1},
        "one layer more": {"extra_layers": 1},
        "two hashes": {"hashes": 2},
        "smooth activation": {"activation": "gelu"},
    }

    length: int = 4096
    chunk: int = 64
    hashes: int = 1
    vocabulary: int = 320
    hidden: int = 256
    inner: int = 512
    layers: int = 6
    heads: int = 12
    head: int = 64
    activation: str = "relu"
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "length", "chunk", "hashes", "hidden", "inner", "heads", "head")
        require_positive(self, "layers")
        require_choice("activation", self.activation, ACTIVATIONS)
        if self.layers + self.extra_layers < 2:  # noqa: PLR2004 - the kinds of attention
            raise ParameterError(f"layers is {self.layers}: give 2 at least, one of each kind")
        if self.hidden % 4:
            raise ParameterError(f"hidden is {self.hidden}: give a multiple of 4")
        if self.length % self.chunk or not self.chunk < self.length <= self.chunk**2:
            message = f"length is {self.length}: give a multiple of chunk ({self.chunk})"
            raise ParameterError(f"{message} below its square {self.chunk**2}, or equal to that")
        if self.vocabulary <= FIRST_ORDINARY:
            message = f"vocabulary is {self.vocabulary}: give more than {FIRST_ORDINARY}"
            raise ParameterError(message)

    def work(self) -> Work:
        """Forward pass and twice that: what is made anew in the backward pass is no progress."""

        def loss() -> torch.Tensor:
            tokens = torch.empty(self.count, self.length, dtype=torch.long)
            total: torch.Tensor = self.model()(tokens, labels=tokens).loss
            return total

        flops = 3 * count_flops(loss, with_backward=False)
        return Work(units=self.count, unit="sequences", flops=flops, precision=self.dtype)

    def model(self) -> ReformerForMaskedLM:
        rows = next(n for n in range(math.isqrt(self.length), 0, -1) if self.length % n == 0)
        kinds = ("local", "lsh")
        return reformer(
            ReformerConfig(
                is_decoder=False,
                attention_head_size=self.head,
                attn_layers=[kinds[n % 2] for n in range(self.layers + self.extra_layers)],
                axial_pos_shape=(rows, self.length // rows),
                axial_pos_embds_dim=(self.hidden // 4, self.hidden - self.hidden // 4),
                feed_forward_size=self.inner,
                hidden_act=self.activation,
                hidden_size=self.hidden,
                local_attn_chunk_length=self.chunk,
                lsh_attn_chunk_length=self.chunk,
                max_position_embeddings=self.length,
                num_attention_heads=self.heads,
                num_buckets=2 ** int(math.log2(2 * self.length // self.chunk)),
                num_hashes=self.hashes,
                vocab_size=self.vocabulary,
                hidden_dropout_prob=0.0,
                local_attention_probs_dropout_prob=0.0,
                lsh_attention_probs_dropout_prob=0.0,
                pad_token_id=None,  # else every step waits for the device to look for padding
            )
        )

    def fresh(self, drawer: Drawer, device: torch.device) -> torch.nn.Module:
        return initialized(self.model, drawer, device)

    def source(self) -> Inputs:
        return DrawnInputs(draw=self.draw)

    def draw(self, drawer: Drawer, rank: int) -> Callable[[int], Tensors]:
        """What makes input sets of a rank where the drawer draws; all have one language."""
        language = Language.of(drawer, self.vocabulary)

        def batch(index: int) -> Tensors:
            tokens, labels = masked_text(
                language, of_rank(str(index), rank), count=self.count, length=self.length
            )
            return {"input_ids": tokens, "labels": labels}

        return batch

    def sampling(self, seed: int) -> Plan:
        sampled = Sampling(seed=seed, batch=self.count, tries_roundings=True)
        return beyond("hashed attention", lambda: self.work().flops, sampled)

    def error_bounds(self) -> ErrorBounds:
        return ErrorBounds(
            loss=4,
            logits=96,
            gradients=64,
            has_branch_points=True,
            recomputes=True,
            converged_loss=0.1,
        )


WORKLOAD = Reformer
