"""V-JEPA training of a ViT-H/16: what is hidden of a video is foreseen, as features not pixels.

Of each clip of 16 frames a target encoder sees everything; its features, normalised, are what is
to be foreseen. The encoder in training sees what two masks leave of the clip, one made of many
small blocks and one of two large ones, each the same in all frames. A predictor of 12 layers is
given what it saw and the places that were hidden, and the mean absolute difference between its
features and the targets is the loss. AdamW updates both, and the target encoder moves towards
the encoder. The layers are those of the library's VJEPA2; as the method has it, and unlike that
library's forward pass, the encoder in training is not shown what it is to foresee.

A mask hides equally many places in every clip and step, as many as the blocks of the paper (8 of 15
% of a frame, 2 of 70 %; arXiv 2404.08471) hide on average: 63 and 84 %, measured over 2,000 masks
of 14 by 14 places. The checks of `parts/training` follow the step in float64, target encoder and
all; an absolute value is written with a rectifier, so that float64 takes its branch points as the
device took them. Masks of another step, frames in another order, a product in a lower precision and
a lost gradient would each be seen; the checks of `parts/vision/teacher.py` hold the target encoder
to its formula and against collapse.

`ERROR_BOUNDS` allows about three times what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch.nn import functional
from transformers import VJEPA2Config, VJEPA2Model

from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.parts.auditing.sampling import Sampling
from workloads.parts.datasets.videos import moving_shapes
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.numerics.classifier import Result
from workloads.parts.numerics.depth import count_by_depth
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.numerics.size import count_training_flops
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.inputs import DrawnInputs, Inputs, Tensors, of_rank
from workloads.parts.training.state import Trained
from workloads.parts.vision.masks import Grid, block_masks, tubes
from workloads.parts.vision.prototypes import wide
from workloads.parts.vision.teacher import SelfTaught, Taught

ERROR_BOUNDS = ErrorBounds(loss=4, logits=128, gradients=48, has_branch_points=True)
_PATCH = 16
_TUBELET = 2
"""Frames that one token spans."""
_BLOCKS = (0.15, 0.7)
"""Share of a frame that each block of a mask covers, for either mask."""
_HIDDEN = (0.63, 0.84)
"""Share of a frame that is hidden by either mask."""
_ASPECTS = (0.75, 1.5)
_SPREAD = 0.72
"""Standard deviation of weights times the root of the width; 0.02 at 1280, as the authors have."""


class Foresight(Taught):
    """The loss of an encoder and a predictor on clips that a target encoder sees whole."""

    def __init__(self, model: VJEPA2Model) -> None:
        super().__init__(model.encoder)
        self.predictor: Any = model.predictor

    def forward(
        self,
        videos: torch.Tensor,
        seen_0: torch.Tensor,
        hidden_0: torch.Tensor,
        seen_1: torch.Tensor,
        hidden_1: torch.Tensor,
    ) -> Result:
        """Loss, and features of all hidden places: foreseen, then true, a row each.

        `videos` (batch, frames, 3, side, side); `seen_` and `hidden_` are numbers of places
        (batch, places) for either mask.
        """
        masks = ((seen_0, hidden_0), (seen_1, hidden_1))
        tokens = self.student.embeddings(videos)
        foreseen = [
            self._foresee(self._encode(tokens, seen), seen, hidden, number)
            for number, (seen, hidden) in enumerate(masks)
        ]
        with torch.no_grad():
            whole = wide(self.teacher(pixel_values_videos=videos).last_hidden_state)
            whole = functional.layer_norm(whole, whole.shape[-1:])
            true = [_at(whole, hidden) for _, hidden in masks]
        losses = [_distance(mine, other) for mine, other in zip(foreseen, true, strict=True)]
        rows = [features.flatten(0, 1) for features in (*foreseen, *true)]
        return Result(loss=torch.stack(losses).mean(), logits=torch.cat(rows))

    def _encode(self, tokens: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Features of the places that are seen, of nothing else."""
        features = _at(tokens, seen)
        for layer in self.student.layer:
            features = layer(features, seen)[0]
        encoded: torch.Tensor = self.student.layernorm(features)
        return encoded

    def _foresee(
        self, encoded: torch.Tensor, seen: torch.Tensor, hidden: torch.Tensor, number: int
    ) -> torch.Tensor:
        """Features of the hidden places, by the mask token with this number.

        In the library's predictor the number of tokens waits for the device; here it is known.
        """
        known = self.predictor.embeddings.predictor_embeddings(encoded)
        token = self.predictor.embeddings.mask_tokens[number]
        features = torch.cat((known, token.expand(*hidden.shape, -1)), dim=1)
        places = torch.cat((seen, hidden), dim=1)
        order = places.argsort(dim=1)
        features, places = self.predictor.sort_tokens(features, places, order)
        for layer in self.predictor.layer:
            features = layer(features, places)[0]
        features = self.predictor.unsort_tokens(self.predictor.layernorm(features), order)
        foreseen: torch.Tensor = self.predictor.proj(features[:, seen.shape[1] :])
        return foreseen


def _at(tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The tokens at the given places of each clip."""
    return tokens.gather(1, places[..., None].expand(-1, -1, tokens.shape[-1]))


def _distance(foreseen: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Mean absolute difference; |x| is 2 max(x, 0) - x."""
    difference = wide(foreseen) - true
    return (2 * torch.relu(difference) - difference).mean()


@dataclass(frozen=True, kw_only=True)
class Vjepa(SelfTaught):
    summary: ClassVar[str] = "V-JEPA self-supervised training, ViT-H/16 on videos"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {
        "batch": 4,
        "frames": 8,
        "side": 64,
        "hidden": 64,
        "layers": 2,
        "heads": 4,
        "predictor_hidden": 48,
        "predictor_layers": 2,
        "predictor_heads": 4,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "generated videos of moving shapes"
    domain: ClassVar[str] = "video"
    variants: ClassVar[Mapping[str, Parameters]] = {
        "silu": {"activation": "silu"},
        "no query, key and value biases": {"has_biases": False},
        "another layer": {"extra_layers": 1},
        "another layer of the predictor": {"extra_predictor_layers": 1},
        "one clip less": {"batch_change": -1},
    }

    batch: int = 24
    frames: int = 16
    side: int = 224
    hidden: int = 1280
    layers: int = 32
    heads: int = 16
    predictor_hidden: int = 384
    predictor_layers: int = 12
    predictor_heads: int = 12
    mask_tokens: int = 10
    activation: str = "gelu"
    has_biases: bool = True
    extra_predictor_layers: int = 0
    momentum: float = 0.998

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "frames", "side", "hidden", "layers", "heads")
        require_positive(self, "predictor_hidden", "predictor_layers", "predictor_heads")
        require_choice("activation", self.activation, ("gelu", "silu"))
        if self.side % _PATCH or self.side < 2 * _PATCH:
            raise ParameterError(f"side is {self.side}: give a multiple of {_PATCH}, not the first")
        if self.frames % _TUBELET:
            raise ParameterError(f"frames is {self.frames}: give a multiple of {_TUBELET}")
        if self.mask_tokens < len(_HIDDEN):
            raise ParameterError(f"mask_tokens is {self.mask_tokens}: give one for each mask, 2")
        for kind in ("", "predictor_"):
            extra = getattr(self, f"extra_{kind}layers")
            if getattr(self, f"{kind}layers") + extra < 1:
                message = f"extra_{kind}layers is {extra}: leave one layer at least"
                raise ParameterError(message)
        self._require_heads()

    def _require_heads(self) -> None:
        """Each head turns by frame, row and column, in pairs of elements."""
        for width, heads in (("hidden", "heads"), ("predictor_hidden", "predictor_heads")):
            size, number = getattr(self, width), getattr(self, heads)
            if size % number or size // number < 6:  # noqa: PLR2004 - a pair for each of three
                message = f"{width} is {size}: give a multiple of {heads}, 6 times it at least"
                raise ParameterError(message)

    def error_bounds(self) -> ErrorBounds:
        return ERROR_BOUNDS

    def sampled(self, seed: int) -> Sampling:
        """Attention over a clip's places is the longest part: in half of the modules of a step."""
        return replace(super().sampled(seed), replayed=0.5)

    def work(self) -> Work:
        flops = count_by_depth(
            self._count_flops,
            layers=self.layers + self.extra_layers,
            predictor_layers=self.predictor_layers + self.extra_predictor_layers,
        )
        work = Work(units=self.count, unit="clips", flops=flops, precision=self.dtype)
        return self.on_all_ranks(work)

    def _count_flops(self, **layers: int) -> int:
        parameters: dict[str, Any] = {**layers, "extra_layers": 0, "extra_predictor_layers": 0}
        shallow = replace(self, **parameters)
        return count_training_flops(shallow.model, self._shapes())

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {
            "videos": (self.count, self.frames, 3, self.side, self.side)
        }
        for number, hidden in enumerate(self._hidden_places()):
            shapes[f"seen_{number}"] = (self.count, self._depth * (self._across**2 - hidden))
            shapes[f"hidden_{number}"] = (self.count, self._depth * hidden)
        return shapes

    @property
    def _across(self) -> int:
        return self.side // _PATCH

    @property
    def _depth(self) -> int:
        return self.frames // _TUBELET

    def _hidden_places(self) -> list[int]:
        """Of each frame, how many places either mask hides; it leaves one at least."""
        places = self._across**2
        return [min(places - 1, round(share * places)) for share in _HIDDEN]

    def network(self) -> VJEPA2Model:
        config = VJEPA2Config(
            patch_size=_PATCH,
            crop_size=self.side,
            frames_per_clip=self.frames,
            tubelet_size=_TUBELET,
            hidden_size=self.hidden,
            num_attention_heads=self.heads,
            num_hidden_layers=self.layers + self.extra_layers,
            mlp_ratio=4.0,
            qkv_bias=self.has_biases,
            hidden_act=self.activation,
            pred_hidden_size=self.predictor_hidden,
            pred_num_attention_heads=self.predictor_heads,
            pred_num_hidden_layers=self.predictor_layers + self.extra_predictor_layers,
            pred_num_mask_tokens=self.mask_tokens,
            pred_zero_init_mask_tokens=False,
            initializer_range=_SPREAD * self.hidden**-0.5,
        )
        return VJEPA2Model(config)

    def taught(self, network: VJEPA2Model) -> Foresight:
        return Foresight(network)

    def source(self) -> Inputs:
        return DrawnInputs(draw=self.draw)

    def draw(self, drawer: Drawer, rank: int) -> Callable[[int], Tensors]:
        """What makes input sets of a rank where the drawer draws."""

        def batch(index: int) -> Tensors:
            name = of_rank(str(index), rank)
            videos = moving_shapes(
                drawer, name, count=self.count, frames=self.frames, side=self.side
            )
            made = {"videos": videos}
            for number in range(len(_HIDDEN)):
                masks = self._masks(drawer, f"{number} {name}", number)
                made[f"seen_{number}"] = tubes(~masks, self._depth)
                made[f"hidden_{number}"] = tubes(masks, self._depth)
            return made

        return batch

    def _masks(self, drawer: Drawer, name: str, number: int) -> torch.Tensor:
        """Masks (clip, place of a frame) of one of the two kinds."""
        grid = Grid(height=self._across, width=self._across)
        return block_masks(
            drawer,
            name,
            grid,
            counts=[self._hidden_places()[number]] * self.count,
            blocks=[_BLOCKS[number] * grid.cells] * self.count,
            aspects=_ASPECTS,
        )

    def teacher_output(self, output: Trained) -> torch.Tensor:
        """Mean of the target features over the places that the first mask hides in each clip."""
        first = output.logits[len(output.logits) // 2 :]
        places = self._depth * self._hidden_places()[0]
        return first[: self.count * places].view(self.count, places, -1).mean(dim=1)


WORKLOAD = Vjepa
