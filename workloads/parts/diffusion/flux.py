"""The four networks of FLUX.1 and what they make of each other, on a device or in float64.

Two text encoders read a prompt (T5 gives a state for each token, CLIP one for all), a transformer
tells the velocity that takes packed latents from noise towards an image, and the decoder of an
autoencoder makes pixels of them. All are the libraries' classes. `Networks` says how they are
called, once for the timed path and once for the reference, which is handed what the device had
before each call: so one call is judged at a time, and errors do not grow from call to call.

Times and guidance are rounded as FLUX's own pipeline rounds them, which multiplies by 1000 in the
latents' format: float64 is given the rounded product, since the sine of a time near 1000 knows
nothing of the one meant. The library embeds times and guidance as sines of their products with
frequencies, in float32 even where all else is float64. Those frequencies are exponentials, which
one device rounds up and another down, and a product of 3500 turns one unit in the last place into
4e-4 of a sine: a hundred times what all else errs by. So the reference is handed the sines that
the device makes (`with_sines_of`), and these are held by themselves to `exact_sines`. T5's states
are normalised in float32 as well; that is a rounding, and far below every bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

from workloads.parts.datasets.captions import begin_and_end
from workloads.parts.diffusion.diffusers_objects import diffusers_object
from workloads.parts.drawing.drawn import Drawer, HostDraws
from workloads.parts.drawing.weights import NO_GAINS, fill
from workloads.parts.inference import redrawn

CHANNELS, PACKED, SHRUNK = 16, 2, 8
"""Of a latent; latents packed into a token, by side; pixels of a latent, by side."""
SCALING, SHIFT = 0.3611, 0.1159
"""Of FLUX.1's latents: the deviation's inverse and the mean."""
GUIDANCE = 3.5
_TIMES = 1000
_PERIOD = 10_000
"""Largest period of an embedded time."""
EXP_ULPS, SINE_ULPS = 3, 4
"""What a device's exponential and sine may miss by, in units in the last place (OpenCL C
Specification 3.0, "Relative Error as ULPs"), the widest that a vendor states."""
_SHORT, _LONG = (256, 0.5), (4096, 1.15)
"""Tokens of an image, and how far its times are shifted towards noise."""
_HEAD = 8
"""An eighth of a head turns with nothing but the kind of token, the rest with row and column."""
NAMES = ("transformer", "t5", "clip", "autoencoder")
WITHOUT_BUFFERS = ("transformer", "t5")
"""The large ones, of which a reference has a part at a time."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Widths and depths of the four networks; `groups`: of the autoencoder's normalisation."""

    heads: int
    head_width: int
    double_layers: int
    single_layers: int
    t5_hidden: int
    t5_inner: int
    t5_layers: int
    t5_heads: int
    t5_head_width: int
    t5_vocabulary: int
    clip_hidden: int
    clip_layers: int
    clip_heads: int
    clip_vocabulary: int
    clip_length: int
    autoencoder_width: int
    groups: int

    def transformer(self) -> Any:
        eighth = self.head_width // _HEAD
        place = (self.head_width - eighth) // 2
        return diffusers_object(
            "FluxTransformer2DModel",
            patch_size=1,
            in_channels=CHANNELS * PACKED**2,
            num_layers=self.double_layers,
            num_single_layers=self.single_layers,
            attention_head_dim=self.head_width,
            num_attention_heads=self.heads,
            joint_attention_dim=self.t5_hidden,
            pooled_projection_dim=self.clip_hidden,
            guidance_embeds=True,
            axes_dims_rope=(eighth, place, place),
        )

    def t5(self) -> T5EncoderModel:
        return T5EncoderModel(
            T5Config(
                vocab_size=self.t5_vocabulary,
                d_model=self.t5_hidden,
                d_kv=self.t5_head_width,
                d_ff=self.t5_inner,
                num_layers=self.t5_layers,
                num_heads=self.t5_heads,
                feed_forward_proj="gated-gelu",
                dropout_rate=0.0,
            )
        )

    def clip(self) -> CLIPTextModel:
        begin, end = begin_and_end(self.clip_vocabulary)
        return CLIPTextModel(
            CLIPTextConfig(
                vocab_size=self.clip_vocabulary,
                hidden_size=self.clip_hidden,
                intermediate_size=4 * self.clip_hidden,
                num_hidden_layers=self.clip_layers,
                num_attention_heads=self.clip_heads,
                projection_dim=self.clip_hidden,
                max_position_embeddings=self.clip_length,
                bos_token_id=begin,
                eos_token_id=end,
                pad_token_id=end,
            )
        )

    def autoencoder(self) -> Any:
        return diffusers_object(
            "AutoencoderKL",
            in_channels=3,
            out_channels=3,
            latent_channels=CHANNELS,
            block_out_channels=tuple(self.autoencoder_width * by for by in (1, 2, 4, 4)),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=2,
            norm_num_groups=self.groups,
            use_quant_conv=False,
            use_post_quant_conv=False,
        )

    @property
    def gains(self) -> dict[str, dict[str, float]]:
        """T5 does not divide the scores of its attention; its queries are smaller instead."""
        return {"t5": {"SelfAttention.q.weight": self.t5_head_width**-0.5}}


@dataclass(kw_only=True)
class Networks:
    """Those that a caller needs; None for the others."""

    transformer: Any = None
    t5: Any = None
    clip: Any = None
    autoencoder: Any = None

    def read(self, words: torch.Tensor, pieces: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """States (prompt, token, hidden) of T5's `pieces`, and CLIP's of `words` (prompt, hidden).

        Both token numbers are int64 (prompt, token).
        """
        return (
            self.t5(input_ids=pieces).last_hidden_state,
            self.clip(input_ids=words).pooler_output,
        )

    def velocity(
        self,
        latents: torch.Tensor,
        text: torch.Tensor,
        pooled: torch.Tensor,
        times: torch.Tensor,
        guidance: torch.Tensor,
    ) -> torch.Tensor:
        """Velocity of packed latents (image, token, 64); `times` are from 0 to 1 (image)."""
        side = math.isqrt(latents.shape[1])
        velocity: torch.Tensor = self.transformer(
            hidden_states=latents,
            encoder_hidden_states=text,
            pooled_projections=pooled,
            timestep=times,
            guidance=guidance,
            img_ids=places(side).to(latents.device),
            txt_ids=torch.zeros(text.shape[1], 3, device=latents.device),
            return_dict=False,
        )[0]
        return velocity

    def sines(self, products: torch.Tensor) -> torch.Tensor:
        """Cosines and sines (product, 256) that the network embeds times (times 1000) as."""
        sines: torch.Tensor = self.transformer.time_text_embed.time_proj(products)
        return sines

    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        """Images (image, 3, row, column), from about -1 to 1, of packed latents."""
        unpacked = unpack(latents) / SCALING + SHIFT
        images: torch.Tensor = self.autoencoder.decode(unpacked, return_dict=False)[0]
        return images


def on_device(sizes: Sizes, drawer: Drawer, device: torch.device, dtype: torch.dtype) -> Networks:
    """Every network in the format that runs, its weights drawn by its name and theirs."""
    networks = {}
    for name in NAMES:
        if name in WITHOUT_BUFFERS:
            with torch.device("meta"):
                network = nn.Module.to(getattr(sizes, name)(), dtype).eval()
            network = redrawn.moved_empty(network, device)
        else:
            network = nn.Module.to(getattr(sizes, name)(), device, dtype).eval()
        fill(network, drawer, prefix=f"{name} ", gains=sizes.gains.get(name, NO_GAINS))
        networks[name] = network.requires_grad_(requires_grad=False)
    return Networks(**networks)


def in_float64(sizes: Sizes, seed: int, dtype: torch.dtype) -> Networks:
    """The same networks on the host, their weights drawn again in the format `dtype`."""
    networks, drawer = {}, HostDraws(seed=seed)
    for name in NAMES:
        prefix, gains = f"{name} ", sizes.gains.get(name, NO_GAINS)
        if name in WITHOUT_BUFFERS:
            networks[name] = redrawn.streamed(
                getattr(sizes, name), drawer, dtype=dtype, prefix=prefix, gains=gains
            )
            continue
        network = nn.Module.to(getattr(sizes, name)(), dtype).eval()
        network.requires_grad_(requires_grad=False)
        fill(network, drawer, prefix=prefix, gains=gains)
        networks[name] = network.double()
    return Networks(**networks)


class _SinesOf(nn.Module):
    """The embedding of times that other networks make, on their device and in their format."""

    def __init__(self, networks: Networks, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self._sines = networks.sines
        self._device, self._dtype = device, dtype

    def forward(self, products: torch.Tensor) -> torch.Tensor:
        made = self._sines(products.to(self._device, self._dtype))
        return made.to(products.device, products.dtype)


def with_sines_of(
    exact: Networks, networks: Networks, device: torch.device, dtype: torch.dtype
) -> Networks:
    """Have the reference embed times as the networks on the device do; returns the reference."""
    exact.transformer.time_text_embed.time_proj = _SinesOf(networks, device, dtype)
    return exact


def exact_sines(products: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """In float64: cosines, then sines, of products (number) with frequencies, and their errors.

    What a device's may be off, element by element: a frequency is the exponential of a number that
    two roundings made, by a function that may miss by EXP_ULPS; its product is rounded once, and
    the sine may miss by SINE_ULPS of 1.
    """
    exponents = torch.arange(width // 2, dtype=torch.float64) * (-math.log(_PERIOD) * 2 / width)
    frequencies = exponents.exp()
    unit = torch.finfo(torch.float32).eps / 2
    relative = (2 * exponents.abs() + 2 * EXP_ULPS + 1) * unit
    angles = products.double()[:, None] * frequencies
    allowed = angles.abs() * relative + 2 * SINE_ULPS * unit
    return torch.cat((angles.cos(), angles.sin()), 1), torch.cat((allowed, allowed), 1)


def places(side: int) -> torch.Tensor:
    """Row and column of each token of an image, in the last two of three numbers."""
    rows = torch.arange(side).repeat_interleave(side)
    return torch.stack((torch.zeros_like(rows), rows, torch.arange(side).repeat(side)), 1).float()


def unpack(latents: torch.Tensor) -> torch.Tensor:
    """Latents (image, channel, row, column) of tokens that hold two by two of them."""
    count, length, _ = latents.shape
    side = math.isqrt(length)
    blocks = latents.view(count, side, side, CHANNELS, PACKED, PACKED)
    wide = side * PACKED
    return blocks.permute(0, 3, 1, 4, 2, 5).reshape(count, CHANNELS, wide, wide)


def schedule(steps: int, tokens: int) -> list[float]:
    """Shares of noise before each step and after the last, shifted for the size of the image."""
    slope = (_LONG[1] - _SHORT[1]) / (_LONG[0] - _SHORT[0])
    shift = math.exp(_SHORT[1] + slope * (tokens - _SHORT[0]))
    even = [1 - number / steps for number in range(steps)]
    return [shift / (shift + 1 / share - 1) for share in even] + [0.0]


def rounded_times(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Float64 times that the network's multiplication makes what the device's product is."""
    return products(values, dtype).double() / _TIMES


def products(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Times or guidance (number) times 1000, as the network rounds them."""
    return values.to(dtype) * _TIMES
