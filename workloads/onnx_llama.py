"""One decoder block of Llama 3.1 served by ONNX Runtime: what a prompt costs in each of its layers.

What a step is and what its checks see, `parts/inference/onnx_inference.py` says. The block has a
key for four queries' heads, rotations slowed for long texts and a causal mask; an answer is the
hidden state of one position, and every one of every sequence is compared. Inputs have the variance
that normalised hidden states have.

Healthy sessions reach a fifth of their bounds (`calibration/onnx_llama.toml`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from appliance.generator.maps import NORMAL
from appliance.records.json import Parameters
from workloads.contract.failures import ParameterError
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.inference.onnx_inference import OnnxInference, Tensors
from workloads.parts.numerics.parameters import require_even_heads, require_positive


class Served(torch.nn.Module):
    """Hidden states (sequence, position, hidden) in, those of the next layer out.

    Sines, cosines and the mask of `length` positions are constants, as a server would have them.
    """

    def __init__(self, config: LlamaConfig, length: int) -> None:
        super().__init__()
        self.layer = LlamaDecoderLayer(config, 0)
        positions = torch.arange(length)[None]
        cosines, sines = LlamaRotaryEmbedding(config)(torch.empty(0), positions)
        self.register_buffer("cosines", cosines)
        self.register_buffer("sines", sines)
        self.register_buffer("future", torch.full((1, 1, length, length), -torch.inf).triu(1))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(
            hidden, attention_mask=self.future, position_embeddings=(self.cosines, self.sines)
        )
        return result


@dataclass(frozen=True, kw_only=True)
class OnnxLlama(OnnxInference):
    """`shared_heads`: heads of keys and values, each of which several queries share."""

    summary: ClassVar[str] = "One decoder block of Llama-3.1-8B's shape through ONNX Runtime"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {
        "batch": 2,
        "sequence": 32,
        "hidden": 128,
        "intermediate": 448,
        "heads": 8,
        "shared_heads": 2,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "normally distributed hidden states"
    unit_roundoffs: ClassVar[float] = 60.0
    turned: ClassVar[Mapping[str, float]] = {"float32": 1e-11, "float16": 1e-5}
    unit: ClassVar[str] = "sequences"
    answer: ClassVar[str] = "a position's hidden state"

    sequence: int = 512
    hidden: int = 4096
    intermediate: int = 14_336
    heads: int = 32
    shared_heads: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "sequence", "hidden", "intermediate", "heads", "shared_heads")
        require_even_heads(self.hidden, self.heads)
        if self.heads % self.shared_heads:
            message = f"shared_heads is {self.shared_heads}: give a divisor of heads, {self.heads}"
            raise ParameterError(message)

    def network(self) -> Served:
        config = LlamaConfig(  # type: ignore[call-arg] # the library takes more than it declares
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=1,
            num_attention_heads=self.heads,
            num_key_value_heads=self.shared_heads,
            max_position_embeddings=131_072,
            rms_norm_eps=1e-5,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 500_000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
            attn_implementation="eager",  # products that any provider has
        )
        return Served(config, self.sequence)

    def inputs(self, drawer: Drawer, index: int) -> Tensors:
        shape = (self.batch, self.sequence, self.hidden)
        return {"hidden": drawer.tensor(f"hidden {index}", NORMAL, torch.float32, shape)}

    def blank(self) -> Tensors:
        return {"hidden": torch.empty(self.batch, self.sequence, self.hidden)}


WORKLOAD = OnnxLlama
