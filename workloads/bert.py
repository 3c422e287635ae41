"""BERT training by masked tokens: matrix products, attention, layer normalisation and AdamW.

One step is forward, loss over 15 % of the positions, backward and update, on generated text
whose tokens follow from their neighbours. Dropout is off, so that float64 can follow. The
checks of `parts/training.py` recompute the step: a product in a lower precision, a wrong mask,
a lost or stale gradient and a weight that the optimiser missed would each be seen, in the first
step and in the last.

`GROWTH` allows three to five times what was measured on a processor (small size, and the full
depth and width with 2 sequences of 128; one rounding is 5.4e-7 in float32 and 3.9e-3 in
bfloat16 with float32 sums): loss 0.3 and 0.006 roundings, logits 7.2 and 11, gradients 1.5 and
2.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from transformers import BertConfig, BertForMaskedLM

from appliance.records import Check, Work
from workloads.contract import ParameterError, Target, Turn, Workload
from workloads.parts import training
from workloads.parts.optimizers import AdamW
from workloads.parts.parameters import require_positive
from workloads.parts.precision import dtype_named
from workloads.parts.size import count_parameters, count_training_flops
from workloads.parts.text import FIRST_ORDINARY, masked_text
from workloads.parts.training import Before, Growth, Trained, Training

GROWTH = Growth(loss=4, logits=32, gradients=8)


@dataclass(frozen=True, kw_only=True)
class Bert(Workload[Training, Trained]):
    summary: ClassVar[str] = "BERT training by masked tokens"
    version: ClassVar[int] = 1
    small: ClassVar[Mapping[str, bool | int | float | str]] = {
        "batch": 8,
        "length": 64,
        "vocabulary": 1024,
        "hidden": 128,
        "layers": 2,
        "heads": 4,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "generated text with masked tokens"

    batch: int = 32
    length: int = 512
    vocabulary: int = 30_522
    hidden: int = 768
    layers: int = 12
    heads: int = 12
    dtype: str = "bfloat16"
    rate: float = 1e-4
    num_inputs: int = 4

    def __post_init__(self) -> None:
        require_positive(
            self, "batch", "length", "vocabulary", "hidden", "layers", "heads", "num_inputs"
        )
        if self.hidden % self.heads:
            message = f"hidden is {self.hidden}: give a multiple of heads, which is {self.heads}"
            raise ParameterError(message)
        if self.vocabulary <= FIRST_ORDINARY:
            message = f"vocabulary is {self.vocabulary}: give more than {FIRST_ORDINARY}"
            raise ParameterError(message)
        dtype_named(self.dtype)

    def work(self) -> Work:
        shape = (self.batch, self.length)
        flops = count_training_flops(self._model, {"input_ids": shape, "labels": shape})
        return Work(units=self.batch, unit="sequences", flops=flops, precision=self.dtype)

    def num_parameters(self) -> int:
        return count_parameters(self._model)

    def _model(self) -> BertForMaskedLM:
        config = BertConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=4 * self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            max_position_embeddings=self.length,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        return BertForMaskedLM(config)

    def build(self, target: Target, seed: int) -> Training:
        model = training.seeded(seed, self._model).train().to(target.device)
        rng = torch.Generator().manual_seed(seed)
        rule = AdamW(rate=self.rate)
        return Training(
            model=model,
            rule=rule,
            optimizer=rule.make(model),
            batches=[self._batch(rng, target.device) for _ in range(self.num_inputs)],
            turn=Turn(of=self.num_inputs),
            dtype=dtype_named(self.dtype),
            growth=GROWTH,
            artifacts=target.artifacts,
        )

    def _batch(self, rng: torch.Generator, device: torch.device) -> dict[str, torch.Tensor]:
        tokens, labels = masked_text(
            rng, count=self.batch, length=self.length, vocabulary=self.vocabulary
        )
        return {"input_ids": tokens.to(device), "labels": labels.to(device)}

    def step(self, state: Training) -> Trained:
        return training.step(state)

    def snapshot(self, state: Training) -> Before:
        return training.snapshot(state)

    def check(self, before: object, state: Training, output: Trained) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        return training.check(before, state, output)


WORKLOAD = Bert
