"""T5 training from text to text: an encoder, a causal decoder and attention between them.

One step is forward, loss over every token of the target, backward and AdamW. The target is the
source token by token in another language of as few successors, so that the loss falls with what
the decoder learns of its own text, and further with what it reads in the source. Dropout is
off, so that float64 can follow; it takes the sides of the rectifiers that the device took
(`parts/training`). The checks of `parts/training` recompute the step: a source that is not
read, a shifted target, a wrong bias of relative positions, a product in a lower precision and
a weight that the optimiser missed would each be seen. A step of more operations than a host
follows in 20 s is sampled, as at full size.

The bounds allow four times what was measured; gradients err by more as the loss falls. The library
takes the means of its normalisations in float32, in float64 too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers import T5Config, T5ForConditionalGeneration

from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.parts.auditing.sampling import Plan, Sampling, beyond, never
from workloads.parts.datasets.text import FIRST_ORDINARY, Language, dictionary, translated_text
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.drawing.initial_weights import initialized
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.numerics.size import count_training_flops
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.inputs import DrawnInputs, Inputs, Tensors, of_rank
from workloads.parts.training.supervised import Supervised

_START: dict[str, Any] = {"decoder_start_token_id": 0}
ACTIVATIONS = ("relu", "silu", "gated-gelu", "gated-silu")


@dataclass(frozen=True, kw_only=True)
class T5(Supervised):
    """`inner` is the width of the feed-forward layers, `head` that of one head of attention."""

    summary: ClassVar[str] = "T5-small training from text to text"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {
        "batch": 8,
        "length": 32,
        "vocabulary": 512,
        "hidden": 64,
        "inner": 256,
        "layers": 2,
        "heads": 4,
        "head": 16,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "generated texts and their translations"
    domain: ClassVar[str] = "language"
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one input less": {"batch_change": -1},
        "one layer more": {"extra_layers": 1},
        "smooth activation": {"activation": "silu"},
        "gated activation": {"activation": "gated-gelu"},
    }

    batch: int = 16
    length: int = 1024
    vocabulary: int = 32_128
    hidden: int = 512
    inner: int = 2048
    layers: int = 6
    heads: int = 8
    head: int = 64
    activation: str = "relu"
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "length", "hidden", "inner", "layers", "heads", "head")
        require_choice("activation", self.activation, ACTIVATIONS)
        if self.vocabulary <= FIRST_ORDINARY:
            message = f"vocabulary is {self.vocabulary}: give more than {FIRST_ORDINARY}"
            raise ParameterError(message)

    def work(self) -> Work:
        shape = (self.count, self.length)
        flops = count_training_flops(self.model, {"input_ids": shape, "labels": shape})
        return Work(units=self.count, unit="sequences", flops=flops, precision=self.dtype)

    def sampling(self, seed: int) -> Plan:
        """All inputs share the bias of relative positions, of which there are `length`."""
        if self.length == self.count:
            return never  # a first dimension of that size could be either's
        sampled = Sampling(seed=seed, batch=self.count, whole=(self.length,))
        return beyond("products", lambda: self.work().flops, sampled)

    def model(self) -> T5ForConditionalGeneration:
        return T5ForConditionalGeneration(
            T5Config(
                vocab_size=self.vocabulary,
                d_model=self.hidden,
                d_kv=self.head,
                d_ff=self.inner,
                num_layers=self.layers + self.extra_layers,
                num_heads=self.heads,
                feed_forward_proj=self.activation,
                dropout_rate=0.0,
                use_cache=False,
                **_START,
            )
        )

    def fresh(self, drawer: Drawer, device: torch.device) -> torch.nn.Module:
        return initialized(self.model, drawer, device)

    def source(self) -> Inputs:
        return DrawnInputs(draw=self.draw)

    def draw(self, drawer: Drawer, rank: int) -> Callable[[int], Tensors]:
        """What makes input sets of a rank where the drawer draws; all have one language."""
        language = Language.of(drawer, self.vocabulary)
        translations = dictionary(language)

        def batch(index: int) -> Tensors:
            name = of_rank(str(index), rank)
            source, target = translated_text(
                language, translations, name, count=self.count, length=self.length
            )
            return {"input_ids": source, "labels": target}

        return batch

    def error_bounds(self) -> ErrorBounds:
        return ErrorBounds(
            loss=4,
            logits=96,
            gradients=16,
            has_branch_points=self.activation == "relu",
            converged_loss=5,
        )


WORKLOAD = T5
