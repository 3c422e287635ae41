"""Stable Diffusion 2 fine-tuned on images with captions: a U-Net that learns to see through noise.

One step encodes the images (a frozen variational autoencoder) and their captions (a frozen text
encoder), draws latents, adds noise of a strength that goes with a drawn time, and trains the
U-Net with AdamW to tell the noise, or the velocity between noise and image, by mean squared
error. All three are the library's classes at the published sizes, with random weights; those of
the autoencoder's last layers are scaled so that latents have unit variance and hardly any noise
of their own, as trained ones have. Noise and times are drawn from the seed with the images, so
that every device is asked the same.

The checks of `parts/training` follow the step in float64, frozen networks and all, and hold
every bit of those against what it was: noise or times of another step, a caption of another
image, a changed autoencoder, a convolution in a lower precision and a lost or stale gradient
would each be seen.

`ERROR_BOUNDS` allows about three times what was measured. Once the network tells most of the noise,
what its images ask for all but cancels, and gradients err by more. The factor common to all logits
is a mean: a small step has 2,048 of them and is allowed 4.4, a full one half a million and is
allowed one. Of the published depth and width no error was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional
from transformers import CLIPTextConfig, CLIPTextModel

from appliance.generator.maps import NORMAL, integers
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.parts.auditing.sampling import Sampling
from workloads.parts.datasets.captions import begin_and_end, captioned_images, require_room
from workloads.parts.diffusion.diffusers_objects import BUILDS_WITH, diffusers_object
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.numerics.classifier import Result
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.numerics.size import count_training_flops
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.inputs import DrawnInputs, Inputs, Tensors, of_rank
from workloads.parts.training.supervised import Replicated
from workloads.parts.vision.prototypes import wide

ERROR_BOUNDS = ErrorBounds(loss=4, logits=200, gradients=160)
_LATENTS, _SHRUNK = 4, 8
"""Channels of the latents, and how many pixels a latent is wide."""
_TIMES = 1000
_UNITS = 0.3556
"""Mean square of SiLU of a standard normal variable: what comes into the encoder's last layer."""
_LOG_VARIANCE = -8.0
"""Of the latents' own noise: a trained encoder hardly has any."""
_HALVED = 8
"""The U-Net halves the latents three times; what is left must be more than one."""


class Denoising(nn.Module):
    """The loss of a U-Net on images and captions that two frozen networks encode."""

    def __init__(self, unet: Any, autoencoder: Any, text: Any, scheduler: Any) -> None:
        """Take the library's UNet2DConditionModel, AutoencoderKL, CLIPTextModel, DDPMScheduler."""
        super().__init__()
        self.unet = unet
        self.autoencoder = autoencoder
        self.text = text
        self.scheduler = scheduler
        for frozen in (self.autoencoder, self.text):
            frozen.requires_grad_(requires_grad=False)

    def forward(
        self,
        images: torch.Tensor,
        captions: torch.Tensor,
        draws: torch.Tensor,
        noise: torch.Tensor,
        times: torch.Tensor,
    ) -> Result:
        """Loss, and what the U-Net tells of each image as one row.

        `draws` and `noise` are standard normal, of the latents' shape: the first makes latents
        of their mean and deviation, the second is what the U-Net is to see through.
        """
        with torch.no_grad():
            latents = self._latents(images, draws)
            words = self.text(input_ids=captions).last_hidden_state
            noisy = self.scheduler.add_noise(latents, noise, times)
            goal = noise
            if self.scheduler.config.prediction_type == "v_prediction":
                goal = self.scheduler.get_velocity(latents, noise, times)
        predicted = wide(self.unet(noisy, times, encoder_hidden_states=words).sample)
        return Result(loss=functional.mse_loss(predicted, goal), logits=predicted.flatten(1))

    def _latents(self, images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        spread = self.autoencoder.encode(images).latent_dist
        factor: float = self.autoencoder.config.scaling_factor
        return factor * (wide(spread.mean) + wide(spread.std) * draws)


@dataclass(frozen=True, kw_only=True)
class Diffusion(Replicated):
    """`width`, `autoencoder_width`: channels of the first level, of four.

    `groups`: into how many the channels are parted to be normalised.
    """

    summary: ClassVar[str] = "Stable Diffusion 2 fine-tuning, images and captions on the device"
    version: ClassVar[int] = 2
    small: ClassVar[Parameters] = {
        "batch": 2,
        "side": 128,
        "width": 16,
        "head_width": 16,
        "groups": 4,
        "autoencoder_width": 16,
        "text_hidden": 64,
        "text_layers": 2,
        "text_heads": 4,
        "vocabulary": 64,
        "length": 16,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "generated images of shapes with captions"
    domain: ClassVar[str] = "diffusion"
    builds_with: ClassVar[tuple[str, ...]] = BUILDS_WITH
    variants: ClassVar[Mapping[str, Parameters]] = {
        "noise is told": {"prediction": "epsilon"},
        "cosine schedule": {"schedule": "squaredcos_cap_v2"},
        "gelu": {"activation": "gelu"},
        "one image more": {"batch_change": 1},
    }

    side: int = 512
    width: int = 320
    head_width: int = 64
    groups: int = 32
    autoencoder_width: int = 128
    text_hidden: int = 1024
    text_layers: int = 23
    text_heads: int = 16
    vocabulary: int = 49_408
    length: int = 77
    prediction: str = "v_prediction"
    schedule: str = "scaled_linear"
    activation: str = "silu"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "side", "width", "head_width", "groups", "autoencoder_width")
        require_positive(self, "text_hidden", "text_layers", "text_heads", "vocabulary", "length")
        require_room(self.vocabulary, self.length)
        require_choice("prediction", self.prediction, ("v_prediction", "epsilon"))
        require_choice("schedule", self.schedule, ("scaled_linear", "squaredcos_cap_v2"))
        require_choice("activation", self.activation, ("silu", "gelu"))
        for name, of in {
            "side": _SHRUNK * _HALVED,
            "width": 2 * self.groups,  # of a single channel nothing is left but its shape
            "autoencoder_width": 2 * self.groups,
            "text_hidden": self.text_heads,
        }.items():
            if getattr(self, name) % of:
                raise ParameterError(f"{name} is {getattr(self, name)}: give a multiple of {of}")
        if self.side == _SHRUNK * _HALVED:
            message = f"side is {self.side}: give more, attention over one latent learns nothing"
            raise ParameterError(message)
        if self.width % self.head_width:
            message = f"head_width is {self.head_width}: give a divisor of width, {self.width}"
            raise ParameterError(message)

    def error_bounds(self) -> ErrorBounds:
        return ERROR_BOUNDS

    def work(self) -> Work:
        flops = count_training_flops(self.model, self._shapes())
        work = Work(units=self.count, unit="images", flops=flops, precision=self.dtype)
        return self.on_all_ranks(work)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        latents = (self.count, _LATENTS, self.side // _SHRUNK, self.side // _SHRUNK)
        return {
            "images": (self.count, 3, self.side, self.side),
            "captions": (self.count, self.length),
            "draws": latents,
            "noise": latents,
            "times": (self.count,),
        }

    def sampled(self, seed: int) -> Sampling:
        """A processor's normalisations in bfloat16 were off by 52 roundings in their biases."""
        return replace(super().sampled(seed), weights=160.0)

    def model(self) -> Denoising:
        scheduler = diffusers_object(
            "DDPMScheduler",
            num_train_timesteps=_TIMES,
            beta_start=0.00085,
            beta_end=0.012,
            beta_schedule=self.schedule,
            prediction_type=self.prediction,
        )
        return Denoising(self._unet(), self._autoencoder(), self._text(), scheduler)

    def _unet(self) -> Any:
        channels = tuple(factor * self.width for factor in (1, 2, 4, 4))
        return diffusers_object(
            "UNet2DConditionModel",
            sample_size=self.side // _SHRUNK,
            in_channels=_LATENTS,
            out_channels=_LATENTS,
            cross_attention_dim=self.text_hidden,
            # the library's name for the number of heads
            attention_head_dim=[number // self.head_width for number in channels],
            use_linear_projection=True,
            block_out_channels=channels,
            norm_num_groups=self.groups,
            act_fn=self.activation,
        )

    def _autoencoder(self) -> Any:
        model = diffusers_object(
            "AutoencoderKL",
            latent_channels=_LATENTS,
            block_out_channels=tuple(factor * self.autoencoder_width for factor in (1, 2, 4, 4)),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=2,
            norm_num_groups=self.groups,
            sample_size=self.side,
        )
        _scale_latents(model)
        return model

    def _text(self) -> CLIPTextModel:
        begin, end = begin_and_end(self.vocabulary)
        config = CLIPTextConfig(
            hidden_size=self.text_hidden,
            intermediate_size=4 * self.text_hidden,
            num_hidden_layers=self.text_layers,
            num_attention_heads=self.text_heads,
            hidden_act="gelu",
            vocab_size=self.vocabulary,
            max_position_embeddings=self.length,
            projection_dim=512,
            bos_token_id=begin,
            eos_token_id=end,
            pad_token_id=end,
        )
        return CLIPTextModel(config)

    def source(self) -> Inputs:
        return DrawnInputs(draw=self.draw)

    def draw(self, drawer: Drawer, rank: int) -> Callable[[int], Tensors]:
        """What makes input sets of a rank where the drawer draws."""
        shape, times = self._shapes()["noise"], integers(0, _TIMES - 1)

        def batch(index: int) -> Tensors:
            name = of_rank(str(index), rank)
            images, captions = captioned_images(
                drawer,
                name,
                count=self.count,
                side=self.side,
                vocabulary=self.vocabulary,
                length=self.length,
            )
            return {
                "images": images,
                "captions": captions,
                "draws": drawer.tensor(f"draws {name}", NORMAL, torch.float32, shape),
                "noise": drawer.tensor(f"latents' noise {name}", NORMAL, torch.float32, shape),
                "times": drawer.tensor(f"times {name}", times, torch.int64, (self.count,)),
            }

        return batch


@torch.no_grad()
def _scale_latents(model: Any) -> None:
    """Weights of the encoder's last layers that give latents of unit variance and little noise.

    What comes into the last convolution was normalised and passed through SiLU.
    """
    last, mixing = model.encoder.conv_out, model.quant_conv
    nn.init.normal_(last.weight, std=(_UNITS * last.weight[0].numel()) ** -0.5)
    spread = 1 / (model.config.scaling_factor * mixing.in_channels**0.5)
    nn.init.normal_(mixing.weight[:_LATENTS], std=spread)
    nn.init.zeros_(mixing.weight[_LATENTS:])
    nn.init.constant_(mixing.bias[_LATENTS:], _LOG_VARIANCE)


WORKLOAD = Diffusion
