"""LLaVA training on images and what is said of them: a vision encoder in front of a Llama.

One step is forward, loss over the caption, backward and AdamW of the vision encoder, the
projector and the language model. The captions name the shape in each picture, its colour, place
and size and what is behind it, and nothing in the text tells them: they are learned from the
pictures alone, of which every one of the batch is read. Matrices, their gradients and moments
are in bfloat16 at full size, vectors in float32. The library takes the features of the last
layer of vision but one, so what comes after has no gradient and stays as it is.

The checks of `parts/training` recompute the step: pictures of other captions or one that was
not read, features at the wrong places, a product in a lower precision and a weight that the
optimiser missed would each be seen.

`error_bounds` allow four times what was measured. What is learned leaves small gradients, whose
relative errors are larger. The library normalises and rotates in float32, in float64 too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaModel,
)
from transformers.initialization import no_init_weights

from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.parts.datasets.captions import captioned_images, require_room
from workloads.parts.datasets.text import IGNORED
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.drawing.weights import begin
from workloads.parts.numerics.parameters import require_choice, require_even_heads, require_positive
from workloads.parts.numerics.precision import dtype_named, set_format
from workloads.parts.numerics.size import count_flops
from workloads.parts.training.audit import Audit, What, is_of_layers, loss_of_next, require_followed
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.inputs import DrawnInputs, Inputs, Tensors, of_rank
from workloads.parts.training.supervised import Supervised

TEXT = 7
"""Tokens of a caption: five words between a beginning and an end."""
_RESERVED = 64
"""Numbers that no word has: the first of them stands for a piece of an image."""
ACTIVATIONS = ("silu", "gelu")


class Placed(LlavaModel):  # type: ignore[no-untyped-call]
    """A model that does not ask the device how many pieces of images it was given.

    As many as places were kept for them: the inputs are made so.
    """

    def get_placeholder_mask(
        self, input_ids: torch.Tensor, inputs_embeds: torch.Tensor, image_features: torch.Tensor
    ) -> torch.Tensor:
        del inputs_embeds, image_features
        is_image: torch.Tensor = input_ids == self.config.image_token_id
        return is_image.unsqueeze(-1)


@dataclass(frozen=True, kw_only=True)
class Llava(Supervised):
    """`side` and `patch` are in pixels; fields that begin with `vision` are of that encoder.

    `weights` is the format in which matrices are kept; products are in `dtype`. `followed`: whether
    float64 follows the "whole" step, or some "layers" of both encoders (`parts/training/audit.py`),
    which it does of itself ("auto") at full size.
    """

    summary: ClassVar[str] = "LLaVA-1.5-7B shape training on captioned images"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {
        "side": 32,
        "patch": 8,
        "vision_hidden": 64,
        "vision_layers": 3,
        "vision_heads": 4,
        "vocabulary": 256,
        "hidden": 64,
        "intermediate": 192,
        "layers": 2,
        "heads": 4,
        "learning_rate": 1e-3,
        "dtype": "float32",
        "weights": "float32",
    }
    data_pattern: ClassVar[str] = "generated images and captions"
    domain: ClassVar[str] = "multimodal"
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one sample more": {"batch_change": 1},
        "one layer more": {"extra_layers": 1},
        "other activation": {"activation": "gelu"},
    }

    batch: int = 1
    side: int = 336
    patch: int = 14
    vision_hidden: int = 1024
    vision_layers: int = 24
    vision_heads: int = 16
    vocabulary: int = 32_064
    hidden: int = 4096
    intermediate: int = 11_008
    layers: int = 32
    heads: int = 32
    activation: str = "silu"
    weights: str = "bfloat16"
    followed: What = "auto"
    learning_rate: float = 2e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "side", "patch", "vision_hidden", "vision_heads", "vision_layers")
        require_positive(self, "vocabulary", "hidden", "intermediate", "layers", "heads")
        require_choice("activation", self.activation, ACTIVATIONS)
        require_choice("weights", self.weights, ("float32", "bfloat16"))
        require_followed(self.followed)
        require_even_heads(self.hidden, self.heads)
        require_room(self.vocabulary - _RESERVED, TEXT)
        if self.side % self.patch:
            raise ParameterError(f"side is {self.side}: give a multiple of patch, {self.patch}")
        if self.vision_hidden % self.vision_heads:
            message = f"vision_hidden is {self.vision_hidden}: give a multiple of vision_heads"
            raise ParameterError(f"{message}, {self.vision_heads}")
        if self.vision_layers < 2:  # noqa: PLR2004 - the last but one is read
            raise ParameterError(f"vision_layers is {self.vision_layers}: give 2 or more")

    @property
    def _pieces(self) -> int:
        return (self.side // self.patch) ** 2

    def work(self) -> Work:
        def loss() -> torch.Tensor:
            tokens = torch.empty(self.count, self._pieces + TEXT, dtype=torch.long)
            images = torch.empty(self.count, 3, self.side, self.side)
            result = self.model()(
                input_ids=tokens, pixel_values=images, attention_mask=self._mask(), labels=tokens
            )
            total: torch.Tensor = result.loss
            return total

        flops = count_flops(loss)
        return Work(units=self.count, unit="samples", flops=flops, precision=self.dtype)

    def model(self) -> LlavaForConditionalGeneration:
        vision = CLIPVisionConfig(
            hidden_size=self.vision_hidden,
            intermediate_size=4 * self.vision_hidden,
            num_hidden_layers=self.vision_layers,
            num_attention_heads=self.vision_heads,
            image_size=self.side,
            patch_size=self.patch,
            projection_dim=768,
        )
        text = LlamaConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers + self.extra_layers,
            num_attention_heads=self.heads,
            max_position_embeddings=4096,
            hidden_act=self.activation,
            use_cache=False,
        )
        model = LlavaForConditionalGeneration(
            LlavaConfig(
                vision_config=vision,
                text_config=text,
                image_token_index=self.vocabulary - _RESERVED,
                image_seq_length=self._pieces,
            )
        )
        model.model.__class__ = Placed
        tower = model.model.vision_tower
        for unread in (tower.encoder.layers[-1], tower.post_layernorm):
            unread.requires_grad_(requires_grad=False)
        return model

    def fresh(self, drawer: Drawer, device: torch.device) -> torch.nn.Module:
        with no_init_weights():
            model = self.model()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                set_format(parameter, dtype_named(self.weights))
        begin(model, drawer, device, zeros=(".bias",))
        return model

    def source(self) -> Inputs:
        return DrawnInputs(draw=self.draw)

    def draw(self, drawer: Drawer, rank: int) -> Callable[[int], Tensors]:
        """What makes input sets of a rank where the drawer draws."""

        def batch(index: int) -> Tensors:
            images, captions = captioned_images(
                drawer,
                of_rank(str(index), rank),
                count=self.count,
                side=self.side,
                vocabulary=self.vocabulary - _RESERVED,
                length=TEXT,
            )
            shape, first = (self.count, self._pieces), self.vocabulary - _RESERVED
            pieces = torch.full(shape, first, device=captions.device)
            labels = torch.cat((torch.full_like(pieces, IGNORED), captions), dim=1)
            return {
                "input_ids": torch.cat((pieces, captions), dim=1),
                "pixel_values": images,
                "attention_mask": self._mask(captions.device),
                "labels": labels,
            }

        return batch

    def _mask(self, device: torch.device | None = None) -> torch.Tensor:
        """What each position sees; a library that had to find out would wait for the device."""
        length = self._pieces + TEXT
        seen = torch.ones(length, length, dtype=torch.bool, device=device).tril()
        return seen.expand(self.count, 1, length, length)

    def audit(self, seed: int) -> Audit | None:
        if not is_of_layers(self.followed, self.num_parameters()):
            return None
        return Audit(
            make=self.model,
            layers=("model.vision_tower.encoder.layers", "model.language_model.layers"),
            ends=(
                "model.vision_tower.embeddings",
                "model.vision_tower.pre_layrnorm",
                "model.multi_modal_projector",
                "model.language_model.embed_tokens",
                "model.language_model.norm",
                "lm_head",
            ),
            loss=loss_of_next,
            seed=seed,
            gradients=24,
        )

    def error_bounds(self) -> ErrorBounds:
        return ErrorBounds(loss=4, logits=80, gradients=32, converged_loss=6)


WORKLOAD = Llava
