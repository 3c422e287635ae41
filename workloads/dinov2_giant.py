"""DINOv2 training of a ViT-g/14: a student that agrees with its own slow average on many crops.

One step sees two large and eight small crops of each image. The student sees all, and in half of
the large ones some patches hidden; the teacher sees the large ones whole. The student learns, by
the teacher's assignment of prototypes, what the other crops show (DINO) and what the hidden
patches show (iBOT). Then AdamW updates the student, and the teacher moves towards it. Heads,
prototypes, crops, masks, loss weights, the teacher's temperature and its momentum are those of
the authors' ViT-g/14 (arXiv 2304.07193); layer scale begins at 1, with which a network of random
weights distinguishes its inputs from the first step on. Left out are the regulariser that spreads
features by nearest neighbours, because a neighbour changes with a rounding, and stochastic depth.

Masks hide equally many patches in every step. The checks of
`parts/training` follow the step in float64, teacher and all: masks of another step, a crop of
another image, a product in a lower precision or a lost gradient would each be seen; those of
`parts/vision/teacher.py` hold the teacher to its formula and against collapse.

`ERROR_BOUNDS` allows about three times what was measured (`calibration/dinov2_giant.toml`).

Input sets are many, because few are soon memorised: then the student's answers come near to
the teacher's, and the gradient is the difference of two that all but cancel, whose roundings
stay: with 4 sets at small size it was off by 43 % in bfloat16 within 240 steps, and a bound above
that says nothing. With 64 sets its errors stay where they are at first. At full size 16 sets, of
65 MB each, last for the fewer steps that a launch makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional
from transformers import Dinov2Config, Dinov2Model
from transformers.models.dinov2.modeling_dinov2 import Dinov2Embeddings

from appliance.generator.maps import WORDS
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.parts.auditing.sampling import Sampling
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.numerics.classifier import Result
from workloads.parts.numerics.depth import count_by_depth
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.numerics.size import count_training_flops
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.inputs import DrawnInputs, Inputs, Tensors, of_rank
from workloads.parts.training.state import Trained
from workloads.parts.vision.crops import LARGE, SMALL, drawn_crops, drawn_scenes
from workloads.parts.vision.masks import Grid, block_masks
from workloads.parts.vision.prototypes import Head, assigned, cross_entropy
from workloads.parts.vision.teacher import SelfTaught, Taught

ERROR_BOUNDS = ErrorBounds(loss=4, logits=128, gradients=48)
_PATCH = 14
_NUM_LARGE, _NUM_SMALL = 2, 8
_LEAST_HIDDEN, _MOST_HIDDEN = 0.1, 0.5
"""Shares of the patches that are hidden in the first and the last of the masked crops."""
_ASPECTS = (0.3, 1 / 0.3)
_SPREAD = 0.8
"""Standard deviation of weights times the root of the width; 0.02 at 1536, as the authors have."""


class Embeddings(Dinov2Embeddings):
    """Takes the positions of smaller images by a fixed matrix, the same bits every time.

    The library resamples the learned positions by a bicubic filter in each pass, in float32 and
    with a gradient that some devices add up in any order; here the filter is its own matrix.
    """

    resampled: torch.Tensor

    def prepare(self, side: int) -> None:
        """Make the matrix for images of `side` by `side` patches."""
        across = round((self.position_embeddings.shape[1] - 1) ** 0.5)
        cells = torch.eye(across * across, device="cpu").view(-1, 1, across, across)
        resized = functional.interpolate(cells, size=(side, side), mode="bicubic")
        matrix = resized.flatten(1).T.contiguous().to(self.position_embeddings.device)
        self.register_buffer("resampled", matrix, persistent=False)

    def interpolate_pos_encoding(
        self, embeddings: torch.Tensor, height: int, width: int
    ) -> torch.Tensor:
        positions = self.position_embeddings
        if embeddings.shape[1] == positions.shape[1]:
            return positions
        if embeddings.shape[1] != len(self.resampled) + 1:
            raise ValueError(f"no positions were prepared for {height} by {width} pixels")
        kind = positions.device.type
        with torch.autocast("cpu" if kind == "meta" else kind, enabled=False):
            fewer = self.resampled @ positions[0, 1:]
        return torch.cat((positions[:, :1], fewer[None]), dim=1)


class Student(nn.Module):
    """A backbone, a head for whole images and a head for patches."""

    def __init__(self, backbone: nn.Module, image_head: nn.Module, patch_head: nn.Module) -> None:
        super().__init__()
        self.backbone: Any = backbone
        self.image_head = image_head
        self.patch_head = patch_head


class Distillation(Taught):
    """The losses of a student on crops of which its teacher sees the large ones."""

    def __init__(self, student: Student, temperature: float) -> None:
        super().__init__(student)
        self.temperature = temperature

    def forward(
        self,
        large: torch.Tensor,
        small: torch.Tensor,
        masks: torch.Tensor,
        hidden: torch.Tensor,
    ) -> Result:
        """Loss, and the prototypes of all crops: the student's, then the teacher's.

        `large` (2 * batch, 3, side, side) and `small` (8 * batch, ...) view by view; `masks`
        (2 * batch, patches) is 1 where a patch is hidden, `hidden` the numbers of those patches.
        """
        seen = _features(self.student, large, bool_masked_pos=masks.bool())
        glimpsed = _features(self.student, small)
        answers = self.student.image_head(torch.cat((seen[:, 0], glimpsed[:, 0])))
        patches = self.student.patch_head(_chosen(seen, hidden))
        with torch.no_grad():
            whole = _features(self.teacher, large)
            teacher_logits = self.teacher.image_head(whole[:, 0])
            teacher_patches = self.teacher.patch_head(_chosen(whole, hidden))
            targets = assigned(teacher_logits, self.temperature)
            patch_targets = assigned(teacher_patches, self.temperature)
        loss = _image_loss(targets, answers, len(large))
        weights = 1 / masks.sum(dim=1)[hidden // masks.shape[1]]
        loss = loss + (weights * cross_entropy(patch_targets, patches)).sum() / len(large)
        return Result(loss=loss, logits=torch.cat((answers, teacher_logits)))


def _features(model: Student, images: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
    """Features of the class token and of the patches (count, 1 + patches, width)."""
    features: torch.Tensor = model.backbone(pixel_values=images, **more).last_hidden_state
    return features


def _chosen(features: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    return features[:, 1:].flatten(0, 1).index_select(0, hidden)


def _image_loss(targets: torch.Tensor, answers: torch.Tensor, num_large: int) -> torch.Tensor:
    """Mean over all pairs of a large crop of the teacher's and another crop of the student's."""
    views = targets.view(_NUM_LARGE, -1, targets.shape[-1])
    large, small = answers[:num_large], answers[num_large:]
    other = cross_entropy(views.flip(0).flatten(0, 1), large).mean()
    both = views.sum(dim=0).repeat(_NUM_SMALL, 1)
    near = cross_entropy(both, small).mean()
    pairs = _NUM_LARGE + _NUM_LARGE * _NUM_SMALL
    return (_NUM_LARGE * other + _NUM_SMALL * near) / pairs


@dataclass(frozen=True, kw_only=True)
class Dinov2Giant(SelfTaught):
    """`is_shared`: one head for images and patches, as the authors' smaller models have.

    `num_inputs`: so many that no launch gets to know them by heart.
    """

    summary: ClassVar[str] = "DINOv2 self-supervised training, ViT-g/14 on many crops"
    version: ClassVar[int] = 4
    small: ClassVar[Parameters] = {
        "batch": 4,
        "num_inputs": 64,
        "side": 56,
        "small_side": 28,
        "hidden": 64,
        "layers": 3,
        "heads": 4,
        "head_hidden": 128,
        "bottleneck": 32,
        "prototypes": 256,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "crops of generated scenes"
    domain: ClassVar[str] = "self-supervised vision"
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one head": {"is_shared": True},
        "plain layers": {"feed_forward": "mlp"},
        "sharper teacher": {"temperature": 0.04},
        "another layer": {"extra_layers": 1},
        "one image less": {"batch_change": -1},
    }

    side: int = 224
    small_side: int = 98
    hidden: int = 1536
    layers: int = 40
    heads: int = 24
    head_hidden: int = 2048
    bottleneck: int = 384
    prototypes: int = 131_072
    feed_forward: str = "swiglu"
    is_shared: bool = False
    temperature: float = 0.07
    momentum: float = 0.994
    num_inputs: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "side", "small_side", "hidden", "layers", "heads")
        require_positive(self, "head_hidden", "bottleneck", "prototypes")
        require_choice("feed_forward", self.feed_forward, ("swiglu", "mlp"))
        for name in ("side", "small_side"):
            if (side := getattr(self, name)) % _PATCH:
                raise ParameterError(f"{name} is {side}: give a multiple of {_PATCH}")
        if self.small_side >= self.side:
            raise ParameterError(f"small_side is {self.small_side}: give less than {self.side}")
        if self.hidden % self.heads:
            message = f"hidden is {self.hidden}: give a multiple of heads, which is {self.heads}"
            raise ParameterError(message)
        if self.layers + self.extra_layers < 1:
            raise ParameterError(f"extra_layers is {self.extra_layers}: leave one layer at least")
        if not self.temperature > 0:
            raise ParameterError(f"temperature is {self.temperature}: give more than 0")

    def error_bounds(self) -> ErrorBounds:
        return ERROR_BOUNDS

    def sampled(self, seed: int) -> Sampling:
        """The hidden patches, of which an image has its own number, count their own rows."""
        return replace(super().sampled(seed), counted=(sum(self._hidden_patches()),))

    def work(self) -> Work:
        flops = count_by_depth(self._count_flops, layers=self.layers + self.extra_layers)
        work = Work(units=self.count, unit="images", flops=flops, precision=self.dtype)
        return self.on_all_ranks(work)

    def _count_flops(self, layers: int) -> int:
        shallow = replace(self, layers=layers, extra_layers=0)
        return count_training_flops(shallow.model, self._shapes())

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        large = _NUM_LARGE * self.count
        return {
            "large": (large, 3, self.side, self.side),
            "small": (_NUM_SMALL * self.count, 3, self.small_side, self.small_side),
            "masks": (large, self._patches),
            "hidden": (sum(self._hidden_patches()),),
        }

    @property
    def _patches(self) -> int:
        return (self.side // _PATCH) ** 2

    def _hidden_patches(self) -> list[int]:
        """Of each masked crop, how many patches are hidden: evenly from the least to the most."""
        number = self.count  # half of the large crops
        step = (_MOST_HIDDEN - _LEAST_HIDDEN) / number
        shares = [_LEAST_HIDDEN + step * (index + 0.5) for index in range(number)]
        return [max(1, round(share * self._patches)) for share in shares]

    def network(self) -> Student:
        head = self._head()
        return Student(self._backbone(), head, head if self.is_shared else self._head())

    def taught(self, network: Student) -> Distillation:
        return Distillation(network, self.temperature)

    def _backbone(self) -> Dinov2Model:
        config = Dinov2Config(
            hidden_size=self.hidden,
            num_hidden_layers=self.layers + self.extra_layers,
            num_attention_heads=self.heads,
            mlp_ratio=4,
            use_swiglu_ffn=self.feed_forward == "swiglu",
            image_size=self.side,
            patch_size=_PATCH,
            initializer_range=_SPREAD * self.hidden**-0.5,
        )
        backbone = Dinov2Model(config)
        embeddings: Any = backbone.embeddings
        embeddings.__class__ = Embeddings
        embeddings.prepare(self.small_side // _PATCH)
        return backbone

    def _head(self) -> Head:
        return Head(
            width=self.hidden,
            hidden=self.head_hidden,
            bottleneck=self.bottleneck,
            prototypes=self.prototypes,
        )

    def source(self) -> Inputs:
        return DrawnInputs(draw=self.draw)

    def draw(self, drawer: Drawer, rank: int) -> Callable[[int], Tensors]:
        """What makes input sets of a rank where the drawer draws."""

        def batch(index: int) -> Tensors:
            name = of_rank(str(index), rank)
            shown = drawn_scenes(drawer, name, self.count)
            large, small = (
                drawn_crops(drawer, f"{kind} {name}", shown, views=views, side=side, share=share)
                for kind, views, side, share in (
                    ("large", _NUM_LARGE, self.side, LARGE),
                    ("small", _NUM_SMALL, self.small_side, SMALL),
                )
            )
            masks = self._masks(drawer, name)
            hidden = masks.flatten().nonzero().flatten()
            return {"large": large, "small": small, "masks": masks, "hidden": hidden}

        return batch

    def _masks(self, drawer: Drawer, name: str) -> torch.Tensor:
        """Masks (2 * batch, patches) as numbers; half of them hide nothing."""
        across, counts = self.side // _PATCH, self._hidden_patches()
        drawn = block_masks(
            drawer,
            name,
            Grid(height=across, width=across),
            counts=counts,
            blocks=[max(1.0, count / 2) for count in counts],
            aspects=_ASPECTS,
        )
        shape = (_NUM_LARGE * self.count,)
        order = drawer.tensor(f"masked {name}", WORDS, torch.int64, shape).argsort(stable=True)
        masks = torch.zeros(*shape, self._patches, dtype=torch.int64, device=drawn.device)
        return masks.index_copy_(0, order[: len(drawn)], drawn.to(torch.int64))

    def teacher_output(self, output: Trained) -> torch.Tensor:
        """The teacher's prototypes of the first view of each image."""
        first = (_NUM_LARGE + _NUM_SMALL) * self.count
        return output.logits[first : first + self.count]


WORKLOAD = Dinov2Giant
