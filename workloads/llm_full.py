"""Tuning of all weights of a Llama model: the largest memory and traffic that training asks for.

One step is forward, loss over every token that has one before it in its text, backward and
AdamW, on packed sequences; weights, gradients and moments are in bfloat16, as is usual where a
model just fits. A gain of one cannot then take a step of 2e-5, which is a hundredth of what lies
between it and its neighbour: gains would never move, and are frozen for all to see.

The checks of `parts/training` recompute the step: texts that see each other, a product in a
lower precision, a lost part of the batch and a weight that the optimiser missed would each be
seen.

The bounds (`error_bounds`) allow four times what was measured at first
(`calibration/llm_full.toml`). The library normalises and rotates in float32, in float64 too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from transformers import LlamaForCausalLM

from appliance.records.json import Parameters
from workloads.parts.language.llm import CausalTuning
from workloads.parts.numerics.parameters import require_choice
from workloads.parts.numerics.precision import dtype_named, set_format


@dataclass(frozen=True, kw_only=True)
class LlmFull(CausalTuning):
    """`weights` is the format in which weights, gradients and moments are kept."""

    summary: ClassVar[str] = "Llama-3.1 shape tuned in all its weights on packed texts"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {
        "shape": "own",
        "vocabulary": 512,
        "hidden": 64,
        "intermediate": 192,
        "layers": 2,
        "heads": 4,
        "groups": 2,
        "length": 48,
        "learning_rate": 1e-3,
        "dtype": "float32",
        "weights": "float32",
    }
    data_pattern: ClassVar[str] = "generated texts, packed"
    domain: ClassVar[str] = "language model tuning"
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one sequence more": {"batch_change": 1},
        "one layer more": {"extra_layers": 1},
        "other activation": {"activation": "gelu"},
        "more texts": {"texts": 7},
    }

    shape: Literal["8B", "70B", "own"] = "70B"
    batch: int = 2
    learning_rate: float = 2e-5
    weights: str = "bfloat16"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("weights", self.weights, ("float32", "bfloat16"))

    def adapted(self, model: LlamaForCausalLM) -> torch.nn.Module:
        return model

    def settle(self, model: torch.nn.Module) -> None:
        """Gains lie around one: in bfloat16 they learn nothing, and are frozen."""
        for parameter in model.parameters():
            set_format(parameter, dtype_named(self.weights))
        model.to(dtype_named(self.weights))  # of which only buffers are left
        if self.weights == "bfloat16":
            for parameter in model.parameters():
                parameter.requires_grad_(parameter.dim() > 1)


WORKLOAD = LlmFull
