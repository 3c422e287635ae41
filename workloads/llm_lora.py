"""LoRA fine-tuning of a Llama model: small matrices beside large ones that stay as they are.

One step is eight passes forward and backward over eight packed sequences each, whose gradients
add up, and one AdamW step of the adapters. The weights of the model are in bfloat16 and frozen:
every bit of them must be the same after the step. The gradient still goes through all of them.

An adapter adds B A x to the output of a layer. Libraries begin with B = 0, which leaves A
without a gradient in the first step; here B begins small instead, so that a gradient which is
lost can be told from one that is zero.

The checks of `parts/training` recompute the step: float64 takes all passes at once, so that
a pass that was left out or counted twice shows in each gradient, as do texts that see each
other, a product in a lower precision, a frozen weight that moved and an adapter that did not.

The bounds (`error_bounds`) allow four times what was measured at first
(`calibration/llm_lora.toml`). The library normalises and rotates in float32, in float64 too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from peft import LoraConfig, inject_adapter_in_model
from transformers import LlamaForCausalLM

from appliance.records.json import Parameters
from workloads.parts.drawing.weights import Gains
from workloads.parts.language.llm import CausalTuning
from workloads.parts.numerics.parameters import require_positive
from workloads.parts.numerics.precision import dtype_named, set_format

ADAPTED = ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_SMALL = 0.05
"""Standard deviation of B times the root of the rank, where A x has one of 1."""


@dataclass(frozen=True, kw_only=True)
class LlmLora(CausalTuning):
    """`rank` is the inner size of an adapter, whose output is scaled by `alpha` over `rank`."""

    summary: ClassVar[str] = "LoRA fine-tuning of the Llama-3.1 shape on packed texts"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {
        "shape": "own",
        "vocabulary": 512,
        "hidden": 64,
        "intermediate": 192,
        "layers": 2,
        "heads": 4,
        "groups": 2,
        "rank": 4,
        "batch": 2,
        "accumulation": 2,
        "length": 48,
        "learning_rate": 3e-3,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "generated texts, packed"
    domain: ClassVar[str] = "language model tuning"
    gains: ClassVar[Gains] = {".lora_B.default.weight": _SMALL}
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one sequence more": {"batch_change": 1},
        "one layer more": {"extra_layers": 1},
        "other activation": {"activation": "gelu"},
        "more texts": {"texts": 7},
        "smaller adapters": {"rank": 2},
    }

    batch: int = 8
    accumulation: int = 8
    rank: int = 8
    alpha: int = 16
    learning_rate: float = 3e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "rank", "alpha")

    def adapted(self, model: LlamaForCausalLM) -> torch.nn.Module:
        settings = LoraConfig(
            r=self.rank, lora_alpha=self.alpha, target_modules=list(ADAPTED), lora_dropout=0.0
        )
        network: torch.nn.Module = inject_adapter_in_model(settings, model)
        return network

    def settle(self, model: torch.nn.Module) -> None:
        """What is frozen goes into the format of the products; adapters stay in float32."""
        for parameter in model.parameters():
            if not parameter.requires_grad:
                set_format(parameter, dtype_named(self.dtype))


WORKLOAD = LlmLora
