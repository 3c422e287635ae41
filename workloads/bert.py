"""BERT training by masked tokens: matrix products, attention, layer normalisation and AdamW.

One step is forward, loss over 15 % of the positions, backward and update, on generated text
whose tokens follow from their neighbours. Dropout is off, so that float64 can follow. The
checks of `parts/training` recompute the step: a product in a lower precision, a wrong mask,
a lost or stale gradient and a weight that the optimiser missed would each be seen, in the first
step and in the last.

`ERROR_BOUNDS` allows three times what was measured. As the loss falls gradients shrink faster than
their errors, most of all that of the two kinds of text, a sum over all tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from transformers import BertConfig, BertForMaskedLM

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.auditing.sampling import Plan, Sampling, beyond, never
from workloads.parts.datasets.text import (
    FIRST_ORDINARY,
    Language,
    masked_text,
    num_masked,
    wanted_masked_text,
)
from workloads.parts.distributed.sharding import num_batches, require_parallel
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.drawing.initial_weights import initialized
from workloads.parts.matmul.tf32 import refuse_processor
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.numerics.precision import dtype_named
from workloads.parts.numerics.size import count_parameters, count_training_flops
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.checks import check_step
from workloads.parts.training.inputs import DrawnInputs, Tensors, of_rank
from workloads.parts.training.optimizers import AdamW
from workloads.parts.training.state import (
    Before,
    Trained,
    Training,
    begin_training,
    loss_scale_for,
    take_snapshot,
)
from workloads.parts.training.step import train_step

ERROR_BOUNDS = ErrorBounds(loss=4, logits=32, gradients=24, converged_loss=7)
ACTIVATIONS = ("gelu", "silu", "relu")


@dataclass(frozen=True, kw_only=True)
class Bert(Workload[Training, Trained]):
    """`ranks` train together, shared out as `parallel` says (`parts/distributed`).

    `tf32`: what float32 products there are keep 10 bits of their operands, for which the worker
    sets the device. `batch_change` and `extra_layers` are added to `batch` and `layers`, so that
    one variant serves every size.
    """

    summary: ClassVar[str] = "BERT training by masked tokens"
    version: ClassVar[int] = 4
    small: ClassVar[Parameters] = {
        "batch": 8,
        "length": 64,
        "vocabulary": 1024,
        "hidden": 128,
        "layers": 2,
        "heads": 4,
        "dtype": "float32",
    }
    checks_later: ClassVar[bool] = True
    reuses_output: ClassVar[bool] = True
    data_pattern: ClassVar[str] = "generated text with masked tokens"
    domain: ClassVar[str] = "language"
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one sequence less": {"batch_change": -1},
        "one layer more": {"extra_layers": 1},
        "silu": {"activation": "silu"},
        "relu": {"activation": "relu"},
    }

    batch: int = 32
    length: int = 512
    vocabulary: int = 30_522
    hidden: int = 768
    layers: int = 12
    heads: int = 12
    activation: str = "gelu"
    dtype: str = "bfloat16"
    tf32: bool = False
    batch_change: int = 0
    extra_layers: int = 0
    learning_rate: float = 1e-4
    num_inputs: int = 4
    ranks: int = 1
    parallel: str = "none"

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
        if self.batch + self.batch_change < 1:
            message = f"batch_change is {self.batch_change}: leave one of the {self.batch} at least"
            raise ParameterError(message)
        require_choice("activation", self.activation, ACTIVATIONS)
        dtype_named(self.dtype)
        require_parallel(self.ranks, self.parallel)
        if self.parallel == "tensor" and self.heads % self.ranks:
            message = f"ranks is {self.ranks}: give a divisor of heads, which is {self.heads}"
            raise ParameterError(message)

    def work(self) -> Work:
        shape = (self._count, self.length)
        batches = num_batches(self.ranks, self.parallel)
        flops = count_training_flops(self._model, {"input_ids": shape, "labels": shape})
        return Work(
            units=batches * self._count,
            unit="sequences",
            flops=batches * flops,
            precision="tf32" if self._is_short else self.dtype,
        )

    @property
    def _count(self) -> int:
        return self.batch + self.batch_change

    @property
    def _is_short(self) -> bool:
        """Whether the products of the step are made in TF32."""
        return self.tf32 and self.dtype == "float32"

    def num_parameters(self) -> int:
        return count_parameters(self._model)

    def _model(self) -> BertForMaskedLM:
        config = BertConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=4 * self.hidden,
            num_hidden_layers=self.layers + self.extra_layers,
            hidden_act=self.activation,
            num_attention_heads=self.heads,
            max_position_embeddings=self.length,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        return BertForMaskedLM(config)

    def build(self, target: Target, seed: int) -> Training:
        if self.tf32:
            refuse_processor(target)
        error_bounds = replace(ERROR_BOUNDS, has_branch_points=self.activation == "relu")
        return begin_training(
            target,
            seed=seed,
            make=partial(initialized, self._model),
            rule=AdamW(learning_rate=self.learning_rate),
            inputs=DrawnInputs(draw=self._draw),
            num_inputs=self.num_inputs,
            ranks=self.ranks,
            parallel=self.parallel,
            dtype=dtype_named(self.dtype),
            loss_scale=loss_scale_for(self._count * num_masked(self.length)),
            error_bounds=error_bounds.in_tf32() if self._is_short else error_bounds,
            sampling=self._sampling(seed),
        )

    def _sampling(self, seed: int) -> Plan:
        """Sequences that float64 follows of a long step; of weights in shares it follows all."""
        if self.parallel not in ("none", "ddp"):
            return never
        sampled = Sampling(seed=seed, batch=self._count)
        return beyond("products", lambda: self.work().flops, sampled)

    def _draw(self, drawer: Drawer, rank: int) -> Callable[[int], Tensors]:
        """What makes input sets of a rank where the drawer draws; all have one language."""
        shape = {"count": self._count, "length": self.length}
        for index in range(self.num_inputs):
            name = of_rank(str(index), rank)
            drawer.expect(wanted_masked_text(self.vocabulary, name, **shape))
        language = Language.of(drawer, self.vocabulary)

        def batch(index: int) -> Tensors:
            tokens, labels = masked_text(language, of_rank(str(index), rank), **shape)
            return {"input_ids": tokens, "labels": labels}

        return batch

    def step(self, state: Training) -> Trained:
        return train_step(state)

    def snapshot(self, state: Training) -> Before:
        return take_snapshot(state)

    def check(self, before: object, state: Training, output: Trained) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        yield from check_step(before, state, output)


WORKLOAD = Bert
