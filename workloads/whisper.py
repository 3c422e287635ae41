"""Whisper training to classify sound: two convolutions over time, then attention over all of it.

One step is forward, loss, backward and AdamW of the encoder and a classifier on top, on 30
seconds of generated melodies a clip; the class of a clip is its melody. The mel spectrograms
are drawn on the device before the first step (`parts/datasets/melodies.py`). The table of positions
is constant, as it is in Whisper. Dropout is off, so that float64 can follow. The checks of
`parts/training` recompute the step: a convolution or a product in a lower precision, labels
of other clips, a part of the batch left out and a weight that the optimiser missed would each
be seen. A step of more operations than a host follows in 20 s is sampled, as at full size.

The bounds allow three times what was measured. Means over time leave gradients that are small
beside what they are summed from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from transformers import WhisperConfig, WhisperForAudioClassification

from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.parts.auditing.sampling import Plan, Sampling, beyond
from workloads.parts.datasets.melodies import drawn_songs, drawn_spectrograms
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.drawing.initial_weights import initialized
from workloads.parts.numerics.initial import scaled
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.numerics.size import count_flops
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.inputs import DrawnInputs, Inputs, Tensors, of_rank
from workloads.parts.training.supervised import Supervised

ACTIVATIONS = ("gelu", "silu")


@dataclass(frozen=True, kw_only=True)
class Whisper(Supervised):
    """`positions` is the number of places that the encoder attends to, 50 for each second."""

    summary: ClassVar[str] = "Whisper-tiny encoder training to classify melodies"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {
        "batch": 8,
        "positions": 75,
        "bins": 40,
        "hidden": 64,
        "layers": 2,
        "heads": 4,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "generated melodies in noise"
    domain: ClassVar[str] = "speech"
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one clip less": {"batch_change": -1},
        "one layer more": {"extra_layers": 1},
        "other activation": {"activation": "silu"},
        "three melodies": {"classes": 3},
    }

    batch: int = 64
    positions: int = 1500
    bins: int = 80
    classes: int = 2
    hidden: int = 384
    layers: int = 4
    heads: int = 6
    activation: str = "gelu"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "positions", "bins", "hidden", "layers", "heads")
        require_choice("activation", self.activation, ACTIVATIONS)
        if self.hidden % (2 * self.heads):
            message = f"hidden is {self.hidden}: give a multiple of twice heads, {2 * self.heads}"
            raise ParameterError(message)
        if self.classes < 2:  # noqa: PLR2004 - one class leaves nothing to learn
            raise ParameterError(f"classes is {self.classes}: give 2 or more")

    @property
    def _frames(self) -> int:
        return 2 * self.positions

    def work(self) -> Work:
        def loss() -> torch.Tensor:
            features = torch.empty(self.count, self.bins, self._frames)
            labels = torch.empty(self.count, dtype=torch.long)
            total: torch.Tensor = self.model()(features, labels=labels).loss
            return total

        flops = count_flops(loss)
        return Work(units=self.count, unit="clips", flops=flops, precision=self.dtype)

    def sampling(self, seed: int) -> Plan:
        return beyond("products", lambda: self.work().flops, Sampling(seed=seed, batch=self.count))

    def model(self) -> WhisperForAudioClassification:
        config = WhisperConfig(
            num_mel_bins=self.bins,
            max_source_positions=self.positions,
            d_model=self.hidden,
            encoder_layers=self.layers + self.extra_layers,
            encoder_attention_heads=self.heads,
            encoder_ffn_dim=4 * self.hidden,
            activation_function=self.activation,
        )
        config.num_labels = self.classes
        model = WhisperForAudioClassification(config)
        scaled(model)
        return model

    def fresh(self, drawer: Drawer, device: torch.device) -> torch.nn.Module:
        return initialized(self.model, drawer, device)

    def source(self) -> Inputs:
        return DrawnInputs(draw=self.draw)

    def draw(self, drawer: Drawer, rank: int) -> Callable[[int], Tensors]:
        """What makes input sets of a rank where the drawer draws; all have the same melodies."""
        songs = drawn_songs(drawer, self.classes)

        def batch(index: int) -> Tensors:
            clips, labels = drawn_spectrograms(
                drawer,
                of_rank(str(index), rank),
                songs,
                count=self.count,
                bins=self.bins,
                frames=self._frames,
            )
            return {"input_features": clips, "labels": labels}

        return batch

    def error_bounds(self) -> ErrorBounds:
        return ErrorBounds(loss=4, logits=64, gradients=128, scale=10)


WORKLOAD = Whisper
