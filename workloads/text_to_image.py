"""Text to image as FLUX.1 does it: two text encoders, a flow of Euler steps, a decoder.

One step reads a batch of prompts, takes noise through `denoising_steps` steps of the transformer
along FLUX's shifted schedule, with its guidance as an input, and decodes the latents to pixels.
Images are what is counted: one image once, whatever the number of steps.

Every latent and velocity on the way is part of the output, so that float64 judges one call at a
time from what the device itself had before it, and errors do not grow from step to step. Noise
must be what was drawn, and every latent the one before plus its velocity times the step, to a few
roundings: of all images and all steps. The velocities of `checked` pairs of a step and an image
are recomputed in float64, those of the first and of the last step among them, the others drawn by
the seed and the number of the step; so are the text states and the pixels of the images of those
pairs. A skipped or repeated denoising step, a prompt or noise of another image, a stale cache of
features, a product in a lower precision and a wrong schedule would each be seen. In float64 a
velocity must also change with its prompt, and no image may be constant.

Weights are drawn on the device, and again for the reference, a layer at a time at full size.

What an embedded time is depends on how a device rounds exponentials, which sines of products to
3500 magnify; so the sines are compared by themselves, each to the bound that its product gives, and
velocities are followed from them (`parts/diffusion/flux.py`). What that moves, and how far healthy
devices stay below their bounds, is in `calibration/text_to_image.toml`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.generator.maps import NORMAL, integers
from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.suite import Scenario
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.parts.datasets.captions import begin_and_end
from workloads.parts.diffusion import flux
from workloads.parts.diffusion.diffusers_objects import BUILDS_WITH
from workloads.parts.diffusion.flux import CHANNELS, GUIDANCE, PACKED, SHRUNK, Networks, Sizes
from workloads.parts.drawing.drawn import Drawer, Draws, HostDraws
from workloads.parts.inference.inference import Inference
from workloads.parts.numerics.parameters import require_positive
from workloads.parts.numerics.precision import (
    LEAST_SHARE,
    dtype_named,
    on_host,
    rounding,
    unit_roundoff,
)
from workloads.parts.numerics.size import count_flops, count_parameters

ERROR_BOUNDS = {"text": 60.0, "pooled": 60.0, "velocities": 60.0, "images": 60.0}
"""Roundings that the worst value may be off, in units of the values' root mean square."""
SCALE = {"text": 2.0, "pooled": 4.0, "velocities": 4.0, "images": 4.0}
"""Roundings that a factor common to all values may be off."""
EULER = 4.0
"""Unit roundoffs of a step: of its length, the product, the sum and the storing of it."""
SHORTEST = 4
"""Words of a prompt, with its beginning and end."""


@dataclass(kw_only=True)
class Inputs:
    """Token numbers of CLIP and T5 (image, token) and packed noise (image, token, 64)."""

    words: torch.Tensor
    pieces: torch.Tensor
    noise: torch.Tensor


@dataclass(kw_only=True)
class State:
    networks: Networks
    inputs: list[Inputs]
    cycle: InputCycle
    seed: int


@dataclass(kw_only=True)
class Made:
    """`text`, `pooled`: states of T5 and CLIP; `latents` (step + 1, image, token, 64).

    `velocities` (step, image, token, 64); `images` (image, 3, row, column), about -1 to 1.
    """

    text: torch.Tensor
    pooled: torch.Tensor
    latents: torch.Tensor
    velocities: torch.Tensor
    images: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Before:
    number: int
    inputs: Inputs


@dataclass(frozen=True, kw_only=True)
class TextToImage(Inference[State, Made]):
    """`checked`: pairs of a denoising step and an image that are recomputed, of each output."""

    summary: ClassVar[str] = "FLUX.1-dev shape, text to image, all denoising steps"
    version: ClassVar[int] = 4
    small: ClassVar[Parameters] = {
        "batch": 2,
        "side": 64,
        "denoising_steps": 3,
        "checked": 6,
        "heads": 2,
        "head_width": 32,
        "double_layers": 2,
        "single_layers": 2,
        "t5_hidden": 64,
        "t5_inner": 160,
        "t5_layers": 2,
        "t5_heads": 4,
        "t5_head_width": 16,
        "t5_vocabulary": 500,
        "t5_length": 24,
        "clip_hidden": 64,
        "clip_layers": 2,
        "clip_heads": 4,
        "clip_vocabulary": 500,
        "clip_length": 16,
        "autoencoder_width": 16,
        "groups": 4,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "random words of random number, normal noise"
    domain: ClassVar[str] = "diffusion"
    builds_with: ClassVar[tuple[str, ...]] = BUILDS_WITH

    batch: int = 16
    side: int = 256
    denoising_steps: int = 50
    checked: int = 4
    heads: int = 24
    head_width: int = 128
    double_layers: int = 19
    single_layers: int = 38
    t5_hidden: int = 4096
    t5_inner: int = 10_240
    t5_layers: int = 24
    t5_heads: int = 64
    t5_head_width: int = 64
    t5_vocabulary: int = 32_128
    t5_length: int = 512
    clip_hidden: int = 768
    clip_layers: int = 12
    clip_heads: int = 12
    clip_vocabulary: int = 49_408
    clip_length: int = 77
    autoencoder_width: int = 128
    groups: int = 32
    dtype: str = "bfloat16"
    num_inputs: int = 4

    def __post_init__(self) -> None:
        require_positive(self, *self.small.keys() - {"dtype"}, "num_inputs")
        dtype_named(self.dtype)
        for name, of in {
            "side": SHRUNK * PACKED,
            "head_width": 16,
            "clip_hidden": self.clip_heads,
            "autoencoder_width": self.groups,
        }.items():
            if getattr(self, name) % of:
                raise ParameterError(f"{name} is {getattr(self, name)}: give a multiple of {of}")
        for name in ("clip_length", "t5_length", "clip_vocabulary", "t5_vocabulary"):
            if getattr(self, name) <= SHORTEST:
                raise ParameterError(f"{name} is {getattr(self, name)}: give more than {SHORTEST}")
        for name in ("batch", "denoising_steps", "checked"):
            if getattr(self, name) < 2:  # noqa: PLR2004 - one prompt cannot differ from another
                raise ParameterError(f"{name} is {getattr(self, name)}: give 2 or more")

    @property
    def scenario(self) -> Scenario:
        return "offline"

    @property
    def _tokens(self) -> int:
        """Of an image."""
        return (self.side // (SHRUNK * PACKED)) ** 2

    def _sizes(self) -> Sizes:
        names = Sizes.__dataclass_fields__
        return Sizes(**{name: getattr(self, name) for name in names})

    def num_parameters(self) -> int:
        sizes = self._sizes()
        return sum(count_parameters(getattr(sizes, name)) for name in flux.NAMES)

    def work(self) -> Work:
        """The encoders and the decoder once, the transformer once for each denoising step."""
        sizes, count = self._sizes(), self.batch
        shapes = (count, self._tokens, CHANNELS * PACKED**2)

        def networks(*names: str) -> Networks:
            return Networks(**{name: getattr(sizes, name)().eval() for name in names})

        def encoded() -> torch.Tensor:
            words = torch.empty(count, self.clip_length, dtype=torch.long)
            pieces = torch.empty(count, self.t5_length, dtype=torch.long)
            return networks("t5", "clip").read(words, pieces)[0]

        def moved() -> torch.Tensor:
            text = torch.empty(count, self.t5_length, self.t5_hidden)
            pooled, time = torch.empty(count, self.clip_hidden), torch.empty(count)
            return networks("transformer").velocity(torch.empty(shapes), text, pooled, time, time)

        def decoded() -> torch.Tensor:
            return networks("autoencoder").decode(torch.empty(shapes))

        once, step, last = (
            count_flops(make, with_backward=False) for make in (encoded, moved, decoded)
        )
        flops = once + self.denoising_steps * step + last
        return Work(units=count, unit="images", flops=flops, precision=self.dtype)

    def build(self, target: Target, seed: int) -> State:
        dtype = dtype_named(self.dtype)
        draws = Draws(target=target, seed=seed)
        return State(
            networks=flux.on_device(self._sizes(), draws, target.device, dtype),
            inputs=[self._draw(draws, index) for index in range(self.num_inputs)],
            cycle=InputCycle(of=self.num_inputs),
            seed=seed,
        )

    def _draw(self, drawer: Drawer, index: int) -> Inputs:
        """An input set, where the drawer draws."""
        begin, end = begin_and_end(self.clip_vocabulary)
        words = _prompts(
            drawer,
            f"words {index}",
            (self.batch, self.clip_length),
            words=begin,
            end=end,
            padding=end,
        )
        words[:, 0] = begin
        pieces = _prompts(
            drawer,
            f"pieces {index}",
            (self.batch, self.t5_length),
            words=self.t5_vocabulary,
            end=1,
            padding=0,
        )
        shape = (self.batch, self._tokens, CHANNELS * PACKED**2)
        noise = drawer.tensor(f"noise {index}", NORMAL, dtype_named(self.dtype), shape)
        return Inputs(words=words, pieces=pieces, noise=noise)

    @torch.no_grad()
    def step(self, state: State) -> Made:
        inputs, networks = state.inputs[state.cycle.advance()], state.networks
        text, pooled = networks.read(inputs.words, inputs.pieces)
        latents, velocities = [inputs.noise], []
        guidance = torch.full_like(pooled[:, 0], GUIDANCE)
        for now, coming in itertools.pairwise(flux.schedule(self.denoising_steps, self._tokens)):
            times = torch.full_like(guidance, now)
            velocities.append(networks.velocity(latents[-1], text, pooled, times, guidance))
            moved = latents[-1].float() + (coming - now) * velocities[-1].float()
            latents.append(moved.to(inputs.noise.dtype))
        return Made(
            text=text,
            pooled=pooled,
            latents=torch.stack(latents),
            velocities=torch.stack(velocities),
            images=networks.decode(latents[-1]),
        )

    def snapshot(self, state: State) -> Before:
        number = state.cycle.number + 1
        inputs = self._draw(HostDraws(seed=state.seed), number % state.cycle.of)
        return Before(number=number, inputs=inputs)

    def check(self, before: object, state: State, output: Made) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        missing = self._count_missing(output)
        yield Check(name="outputs of the wrong shape", error=missing, bound=0.0, kind="exact")
        if missing:
            return
        yield from self._compare_path(before, output)
        pairs = self._pairs(before.number, state.seed)
        chosen = sorted({image for _, image in pairs})
        exact = flux.in_float64(self._sizes(), state.seed, dtype_named(self.dtype))
        with torch.no_grad():
            text, pooled = exact.read(before.inputs.words[chosen], before.inputs.pieces[chosen])
            yield from self._compare("text", output.text[chosen], text)
            yield from self._compare("pooled", output.pooled[chosen], pooled)
            yield from self._compare_velocities(state, output, exact, pairs)
            images = exact.decode(on_host(output.latents[-1, chosen]))
            yield from self._compare("images", output.images[chosen], images)
        yield _varies("images have many colours", on_host(output.images).flatten(1))

    def _count_missing(self, output: Made) -> int:
        wide = (self.batch, self._tokens, CHANNELS * PACKED**2)
        wanted = {
            "text": (self.batch, self.t5_length, self.t5_hidden),
            "pooled": (self.batch, self.clip_hidden),
            "latents": (self.denoising_steps + 1, *wide),
            "velocities": (self.denoising_steps, *wide),
            "images": (self.batch, 3, self.side, self.side),
        }
        return sum(getattr(output, name).shape != shape for name, shape in wanted.items())

    def _pairs(self, number: int, seed: int) -> list[tuple[int, int]]:
        """Denoising steps and images, in order: of the first step, of the last, and others."""
        rng = torch.Generator().manual_seed((seed + number) % 2**63)
        last = (self.denoising_steps - 1) * self.batch
        first = int(torch.randint(self.batch, (), generator=rng))
        ends = [first, last + (first + 1) % self.batch]
        order = torch.randperm(self.denoising_steps * self.batch, generator=rng).tolist()
        others = [place for place in order if place not in ends]
        drawn = sorted(ends + others[: max(0, self.checked - len(ends))])
        return [divmod(place, self.batch) for place in drawn]

    def _shares(self) -> torch.Tensor:
        """Noise's share before each denoising step and after the last, in float64."""
        shares = flux.schedule(self.denoising_steps, self._tokens)
        return torch.tensor(shares, dtype=torch.float64)

    def _compare_path(self, before: Before, output: Made) -> Iterator[Check]:
        """Hold every latent of every image against the one before it."""
        latents, velocities = on_host(output.latents), on_host(output.velocities)
        is_other = latents[0] != before.inputs.noise.double()
        yield Check(
            name="noise that is not what was drawn",
            error=int(is_other.sum()),
            bound=0.0,
            kind="exact",
        )
        shares = self._shares()
        moves = shares.diff()[:, None, None, None] * velocities
        error = (latents[1:] - (latents[:-1] + moves)).abs()
        allowed = unit_roundoff(dtype_named(self.dtype)) * (latents[:-1].abs() + moves.abs())
        worst = (error / allowed).amax()
        yield Check(
            name="latents against the ones before and their velocities",
            error=worst.item(),
            bound=EULER,
            detects=EULER,
            detects_what="roundings of one latent",
        )

    def _compare_velocities(
        self, state: State, output: Made, exact: Networks, pairs: list[tuple[int, int]]
    ) -> Iterator[Check]:
        """Recompute the velocities of these steps and images, from the device's latents.

        And once more with the prompt of another image, which must make a difference. What the
        device embeds their times as is compared first, and then taken for granted.
        """
        dtype = dtype_named(self.dtype)
        steps, images = (torch.tensor(numbers) for numbers in zip(*pairs, strict=True))
        shares = self._shares()
        latents = on_host(output.latents[:-1].cpu()[steps, images])
        text, pooled = on_host(output.text.cpu()[images]), on_host(output.pooled.cpu()[images])
        other = int((images[0] + 1) % self.batch)
        latents = torch.cat((latents, latents[:1]))
        text = torch.cat((text, on_host(output.text[other : other + 1])))
        pooled = torch.cat((pooled, on_host(output.pooled[other : other + 1])))
        times = flux.rounded_times(torch.cat((shares[steps], shares[steps[:1]])), dtype)
        guidance = flux.rounded_times(torch.full_like(times, GUIDANCE), dtype)
        device = output.velocities.device
        yield self._compare_sines(state.networks, device, torch.cat((times, guidance[:1])))
        flux.with_sines_of(exact, state.networks, device, dtype)
        expected = exact.velocity(latents, text, pooled, times, guidance)
        yield from self._compare(
            "velocities", output.velocities.cpu()[steps, images], expected[:-1]
        )
        change, first = expected[0] - expected[-1], expected[0]
        share = change.square().mean().sqrt() / first.square().mean().sqrt()
        yield Check(
            name="velocities depend on the prompt",
            error=(LEAST_SHARE / share).item(),
            bound=1.0,
            detects=LEAST_SHARE,
            detects_what="share of a velocity's size that another prompt changes",
        )

    def _compare_sines(
        self, networks: Networks, device: torch.device, times: torch.Tensor
    ) -> Check:
        """Hold the device's sines of these times to float64, each to a bound of its own."""
        products = flux.products(times, dtype_named(self.dtype))
        made = on_host(networks.sines(products.to(device)))
        exact, allowed = flux.exact_sines(products, made.shape[1])
        return Check(
            name="embedded times against float64",
            error=((made - exact).abs() / allowed).amax().item(),
            bound=1.0,
            detects=allowed.amax().item(),
            detects_what="error of the worst conditioned sine; of the others less",
        )

    def _compare(self, name: str, output: torch.Tensor, exact: torch.Tensor) -> Iterator[Check]:
        measured, dtype = on_host(output), dtype_named(self.dtype)
        size = exact.square().mean().sqrt()
        bound = ERROR_BOUNDS[name] * rounding(dtype)
        yield Check(
            name=f"{name} against float64",
            error=((measured - exact).abs().max() / size).item(),
            bound=bound,
            detects=bound,
            detects_what="error of one value, in units of their root mean square",
        )
        factor = (measured * exact).sum() / exact.square().sum()
        bound = SCALE[name] * rounding(dtype)
        yield Check(
            name=f"scale of {name}",
            error=(factor - 1).abs().item(),
            bound=bound,
            detects=bound,
            detects_what="relative error common to all values",
        )


def _prompts(
    drawer: Drawer, name: str, shape: tuple[int, int], *, words: int, end: int, padding: int
) -> torch.Tensor:
    """Random words below `words`, of a random number, then the token that ends, then padding."""
    count, length = shape
    tokens = drawer.tensor(name, integers(2, words - 1), torch.int64, shape)
    many = integers(SHORTEST - 1, length - 1)
    ends = drawer.tensor(f"{name}, how many", many, torch.int64, (count, 1))
    places = torch.arange(length, device=tokens.device).expand(count, -1)
    return tokens.where(places < ends, end).where(places <= ends, padding)


def _varies(name: str, rows: torch.Tensor) -> Check:
    """Hold the row that varies least against the least share of its own size."""
    share = (rows.std(dim=1) / rows.square().mean(dim=1).sqrt()).amin()
    return Check(
        name=name,
        error=(LEAST_SHARE / share).item(),
        bound=1.0,
        detects=LEAST_SHARE,
        detects_what="share of an image's size that varies within it",
    )


WORKLOAD = TextToImage
