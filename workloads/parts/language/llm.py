"""Tuning of Llama models by what comes next, on packed texts: shapes, inputs and memory.

Texts are laid end to end without padding, and positions that begin again at 0 keep them apart:
so every token of a step is one that the rate may count. Which positions see each other comes
with the inputs: a library that had to find out would wait for the device in every pass.

Activations are made anew in the backward pass, a layer at a time. Of the logits, which would
fill more memory than the model, a few positions of every sequence leave the step; the loss is
over all of them, and the gradients come from all of them.

Weights are drawn by name on the device (`parts/drawing/weights.py`), of the variance that keeps
signals the same size.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.initialization import no_init_weights

from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.parts.datasets.text import FIRST_ORDINARY, Language, packed_text
from workloads.parts.distributed.sharding import num_batches, require_parallel
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.drawing.weights import NO_GAINS, Gains, begin
from workloads.parts.numerics.depth import count_by_depth
from workloads.parts.numerics.parameters import require_choice, require_even_heads, require_positive
from workloads.parts.numerics.size import count_flops, count_parameters
from workloads.parts.training.audit import Audit, What, is_of_layers, loss_of_next, require_followed
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.inputs import DrawnInputs, Inputs, Tensors, of_rank
from workloads.parts.training.step import require_micro_batches
from workloads.parts.training.supervised import Supervised

NUM_POSITIONS = 16
"""Positions of a sequence whose logits leave the step."""
LARGE: dict[str, dict[str, int]] = {
    "8B": {
        "vocab_size": 128_256,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "70B": {
        "vocab_size": 128_256,
        "hidden_size": 8192,
        "intermediate_size": 28_672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
    },
}
"""Llama 3.1 by the names of its sizes, as its published configurations have them."""
_ROTATION = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_CHECKPOINTING = {"use_reentrant": False, "preserve_rng_state": False}
"""Nothing is drawn in a pass, so no generator's state has to be kept for the second time."""
ACTIVATIONS = ("silu", "gelu")


@dataclass(frozen=True, kw_only=True)
class CausalTuning(Supervised):
    """`shape` names a published size, or is "own": then the fields after it are the size.

    A step takes `accumulation` parts of `batch` sequences of `length` tokens, each of `texts`
    texts. `ranks` train together, shared out as `parallel` says (`parts/distributed`). `followed`:
    whether float64 follows the "whole" step, or some "layers" (`parts/training/audit.py`), which it
    does of itself ("auto") for a model that would fill the host and take hours there.
    """

    shape: Literal["8B", "70B", "own"] = "8B"
    vocabulary: int = 1024
    hidden: int = 64
    intermediate: int = 192
    layers: int = 2
    heads: int = 4
    groups: int = 2
    length: int = 1024
    texts: int = 4
    accumulation: int = 1
    activation: str = "silu"
    followed: What = "auto"
    ranks: int = 1
    parallel: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "vocabulary", "hidden", "intermediate", "layers", "heads", "groups")
        require_positive(self, "length", "texts", "accumulation")
        require_choice("shape", self.shape, (*LARGE, "own"))
        require_choice("activation", self.activation, ACTIVATIONS)
        require_even_heads(self.hidden, self.heads)
        if self.heads % self.groups:
            raise ParameterError(f"groups is {self.groups}: give a divisor of heads, {self.heads}")
        if self.texts >= self.length:
            raise ParameterError(f"texts is {self.texts}: give fewer than length, {self.length}")
        if self.vocabulary <= FIRST_ORDINARY:
            message = f"vocabulary is {self.vocabulary}: give more than {FIRST_ORDINARY}"
            raise ParameterError(message)
        require_followed(self.followed)
        require_parallel(self.ranks, self.parallel)
        require_micro_batches(self.accumulation * self.count, self.accumulation)

    @property
    def tokens(self) -> int:
        """Tokens of one step: all of them text, since nothing is padded."""
        batches = num_batches(self.ranks, self.parallel)
        return batches * self.accumulation * self.count * self.length

    def config(self) -> LlamaConfig:
        own = {
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.groups,
        }
        sizes: dict[str, Any] = dict(LARGE.get(self.shape, own))
        sizes["num_hidden_layers"] += self.extra_layers
        return LlamaConfig(
            **sizes,
            hidden_act=self.activation,
            max_position_embeddings=131_072,
            rms_norm_eps=1e-5,
            rope_parameters=dict(_ROTATION),
            use_cache=False,
            attention_dropout=0.0,
        )

    @abstractmethod
    def adapted(self, model: LlamaForCausalLM) -> torch.nn.Module:
        """Return what is trained of the model: all of it, or adapters on it."""

    def model(self) -> torch.nn.Module:
        """Weights have no values worth keeping yet: `build` draws them by name."""
        return self.adapted(LlamaForCausalLM(self.config()))

    def num_parameters(self) -> int:
        """Size of the language model, without adapters."""
        return count_parameters(lambda: LlamaForCausalLM(self.config()))

    def work(self) -> Work:
        """Products of one pass forward and backward; what is made anew is not counted."""
        passes = num_batches(self.ranks, self.parallel) * self.accumulation
        flops = passes * count_by_depth(
            self._count_flops, layers=int(self.config().num_hidden_layers)
        )
        return Work(units=self.tokens, unit="tokens", flops=flops, precision=self.dtype)

    def _count_flops(self, *, layers: int) -> int:
        """Of one pass over one batch, of a model with so many layers."""

        def loss() -> torch.Tensor:
            config = self.config()
            config.num_hidden_layers = layers
            tokens = torch.empty(self.count, self.length, dtype=torch.long)
            mask = torch.empty(self.count, 1, self.length, self.length, dtype=torch.bool)
            total: torch.Tensor = self.adapted(LlamaForCausalLM(config))(
                input_ids=tokens, position_ids=tokens, attention_mask=mask, labels=tokens
            ).loss
            return total

        return count_flops(loss)

    def source(self) -> Inputs:
        return DrawnInputs(draw=self.draw)

    def draw(self, drawer: Drawer, rank: int) -> Callable[[int], Tensors]:
        """What makes input sets of a rank where the drawer draws; all have one language."""
        language = Language.of(drawer, self.config().vocab_size)

        def batch(index: int) -> Tensors:
            text = packed_text(
                language,
                of_rank(str(index), rank),
                count=self.accumulation * self.count,
                length=self.length,
                texts=self.texts,
            )
            return {
                "input_ids": text.tokens,
                "position_ids": text.positions,
                "attention_mask": text.visible(),
                "labels": text.labels,
            }

        return batch

    def error_bounds(self) -> ErrorBounds:
        """Bounds that widen as the loss falls; `calibration/` has what was measured."""
        return ErrorBounds(loss=4, logits=128, gradients=32, converged_loss=12)

    @property
    def micro_batches(self) -> int:
        return self.accumulation

    def audit(self, seed: int) -> Audit | None:
        if not is_of_layers(self.followed, self.num_parameters()):
            return None
        return Audit(
            make=self.model,
            layers=("model.layers",),
            ends=("model.embed_tokens", "model.norm", "lm_head"),
            loss=loss_of_next,
            seed=seed,
            outputs=10,
            gradients=16,
        )

    def together(self) -> dict[str, Any]:
        return {"ranks": self.ranks, "parallel": self.parallel}

    gains: ClassVar[Gains] = NO_GAINS
    """Of weights whose names end so."""

    def fresh(self, drawer: Drawer, device: torch.device) -> torch.nn.Module:
        with no_init_weights():
            model: Any = self.model()
        self.settle(model)
        begin(model, drawer, device, gains=self.gains)
        model.activation_checkpointing_enable(_CHECKPOINTING)
        network: torch.nn.Module = model
        return network

    def settle(self, model: torch.nn.Module) -> None:
        """Say of every parameter whether it learns, and bring it into its format."""

    def result(self, output: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss over every position, and the logits of those that are kept."""
        return output.loss, output.logits[:, :: -(-self.length // NUM_POSITIONS)]
