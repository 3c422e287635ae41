"""BERT served by ONNX Runtime: the likeliest word at the masked place of each sequence.

What a step is and what its checks see, `parts/inference/onnx_inference.py` says. An answer is the
logits of the masked token alone, as a request would have it: those of every position would be a
gigabyte to bring back. Queries are drawn three times as large as signals would keep them, so that
heads attend to some tokens more than to others; the word that is chosen must be float64's.

Healthy sessions reach at most 0.42 of their bounds, and choose no other word
(`calibration/onnx_bert.toml`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers import BertConfig, BertForMaskedLM

from appliance.generator.maps import integers
from appliance.records.json import Parameters
from workloads.contract.failures import ParameterError
from workloads.parts.datasets.text import FIRST_ORDINARY, MASK
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.drawing.weights import Gains
from workloads.parts.inference.onnx_inference import OnnxInference, Tensors
from workloads.parts.numerics.parameters import require_positive


class Served(torch.nn.Module):
    """Tokens (sequence, position) and masked places in; logits (sequence, word) out."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        hidden = self.network.bert(input_ids=tokens).last_hidden_state
        index = places[:, None, None].expand(-1, 1, hidden.shape[2])
        logits: torch.Tensor = self.network.cls(hidden.gather(1, index).squeeze(1))
        return logits


@dataclass(frozen=True, kw_only=True)
class OnnxBert(OnnxInference):
    summary: ClassVar[str] = "BERT-base inference through ONNX Runtime, one masked word a sequence"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {
        "batch": 4,
        "sequence": 64,
        "vocabulary": 1000,
        "hidden": 64,
        "layers": 2,
        "heads": 4,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "random words with one masked"
    unit_roundoffs: ClassVar[float] = 60.0
    turned: ClassVar[Mapping[str, float]] = {"float32": 1e-11, "float16": 1e-5}
    gains: ClassVar[Gains] = {"query.weight": 3.0}
    unit: ClassVar[str] = "sequences"
    answer: ClassVar[str] = "a word's logits"
    choices: ClassVar[str] = "words"
    exempt_faults: ClassVar[Mapping[str, str]] = {
        "a step in a lower precision": (
            "inputs are integers and weights lie in the session's file, where this fault"
            " cannot be put; a test puts the answers of a session in float16 before the check"
        )
    }

    batch: int = 32
    sequence: int = 512
    vocabulary: int = 30_522
    hidden: int = 768
    layers: int = 12
    heads: int = 12
    dtype: str = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "sequence", "vocabulary", "hidden", "layers", "heads")
        if self.hidden % self.heads:
            raise ParameterError(f"hidden is {self.hidden}: give a multiple of heads, {self.heads}")
        if self.vocabulary <= FIRST_ORDINARY:
            raise ParameterError(f"vocabulary is {self.vocabulary}: give {FIRST_ORDINARY + 1} up")

    def network(self) -> Served:
        config = BertConfig(  # type: ignore[call-arg] # the library takes more than it declares
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=4 * self.hidden,
            max_position_embeddings=max(512, self.sequence),
            attn_implementation="eager",  # products that any provider has
        )
        network = BertForMaskedLM(config)
        network.tie_weights()
        return Served(network)

    def inputs(self, drawer: Drawer, index: int) -> Tensors:
        words, shape = integers(FIRST_ORDINARY, self.vocabulary - 1), (self.batch, self.sequence)
        tokens = drawer.tensor(f"tokens {index}", words, torch.int64, shape)
        masked = integers(0, self.sequence - 1)
        places = drawer.tensor(f"masked {index}", masked, torch.int64, (self.batch,))
        return {"tokens": tokens.scatter(1, places[:, None], MASK), "places": places}

    def blank(self) -> Tensors:
        return {
            "tokens": torch.empty(self.batch, self.sequence, dtype=torch.long),
            "places": torch.empty(self.batch, dtype=torch.long),
        }


WORKLOAD = OnnxBert
