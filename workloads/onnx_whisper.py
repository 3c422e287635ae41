"""Whisper's encoder served by ONNX Runtime: spectrograms of 30 seconds in, what was heard out.

What a step is and what its checks see, `parts/inference/onnx_inference.py` says. The encoder is
that of Whisper-large-v3, convolutions and all; an answer is the hidden state of one place in time,
of which there are 50 for each second, and every one of every clip is compared.

Healthy sessions reach a quarter of their bounds (`calibration/onnx_whisper.toml`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder, sinusoids

from appliance.records.json import Parameters
from workloads.parts.datasets.melodies import drawn_songs, drawn_spectrograms
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.inference.onnx_inference import OnnxInference, Tensors
from workloads.parts.numerics.parameters import require_even_heads, require_positive

CLASSES = 16
"""Different melodies."""


class Served(torch.nn.Module):
    """Spectrograms (clip, mel bin, frame) in; hidden states (clip, place, hidden) out."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.network(clips).last_hidden_state
        return hidden


@dataclass(frozen=True, kw_only=True)
class OnnxWhisper(OnnxInference):
    """`positions` is the number of places that the encoder attends to, 50 for each second."""

    summary: ClassVar[str] = "Whisper-large-v3 encoder inference through ONNX Runtime"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {
        "batch": 2,
        "positions": 50,
        "bins": 40,
        "hidden": 64,
        "layers": 2,
        "heads": 4,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "generated melodies in noise"
    unit_roundoffs: ClassVar[float] = 60.0
    turned: ClassVar[Mapping[str, float]] = {"float32": 1e-11, "float16": 1e-5}
    excluded: ClassVar[tuple[str, ...]] = ("embed_positions.weight",)
    unit: ClassVar[str] = "clips"
    answer: ClassVar[str] = "a place's hidden state"

    positions: int = 1500
    bins: int = 128
    hidden: int = 1280
    layers: int = 32
    heads: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "positions", "bins", "hidden", "layers", "heads")
        require_even_heads(self.hidden, self.heads)

    def network(self) -> Served:
        config = WhisperConfig(  # type: ignore[call-arg] # the library takes more than it declares
            num_mel_bins=self.bins,
            max_source_positions=self.positions,
            d_model=self.hidden,
            encoder_layers=self.layers,
            encoder_attention_heads=self.heads,
            encoder_ffn_dim=4 * self.hidden,
            attn_implementation="eager",  # products that any provider has
        )
        encoder = WhisperEncoder(config)
        table = encoder.embed_positions.weight
        with torch.no_grad():
            table.copy_(sinusoids(*table.shape))
        return Served(encoder)

    def inputs(self, drawer: Drawer, index: int) -> Tensors:
        clips, _ = drawn_spectrograms(
            drawer,
            str(index),
            drawn_songs(drawer, CLASSES, name=f"songs {index}"),
            count=self.batch,
            bins=self.bins,
            frames=2 * self.positions,
        )
        return {"clips": clips}

    def blank(self) -> Tensors:
        return {"clips": torch.empty(self.batch, self.bins, 2 * self.positions)}


WORKLOAD = OnnxWhisper
