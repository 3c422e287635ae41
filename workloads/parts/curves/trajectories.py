"""Trainings that are the same everywhere: first weights, data and order from a counter, not a seed.

A loss curve can be compared with a recorded one only if both start from the same bits. So the
weights and the order of the data come from numpy's Philox counter as raw integers, whose
stream, unlike that of torch's or numpy's distributions, no version may change. They belong to
the `number` of the trajectory, never to the seed of a run.

What a run's seed may change is a `Relabelling`: the order of pixels, of hidden units and of the
images within a batch. In exact arithmetic the loss curve stays the same, whatever is relabelled,
while every matrix has other bits and every sum another order. So a curve that was played back
from a recording has wrong gradients, and a device that is right is inside the band.

Products are in the dtype of the trajectory with float32 results, all else is float32: nothing is
left to the lists by which torch chooses a precision, which differ between vendors.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Artifacts
from workloads.parts.curves.variations import Variation, engine, perturb
from workloads.parts.datasets.digits import digits
from workloads.parts.numerics.classifier import Classifier, Result
from workloads.parts.numerics.precision import dtype_named
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.optimizers import AdamW
from workloads.parts.training.state import Before, Training, gradient
from workloads.parts.training.step import train_step

PIXELS, CLASSES, BRIGHTEST = 64, 10, 16
HELD_OUT = 5  # every so many-th image
BATCH = 256
RATE = 0.01
ERROR_BOUNDS = ErrorBounds(loss=4, logits=16, gradients=64)
FIRST, SECOND, ORDER = range(3)  # what is drawn, each from a stream of its own

Integers = NDArray[np.uint64]


def raw(key: int, stream: int, count: int) -> Integers:
    """Draw 64-bit integers: the Philox 4x64 counter under `key`, one stream per purpose.

    `key` has at most 64 bits.
    """
    words: Integers = np.random.Philox(key=key | (stream << 64)).random_raw(count)
    return words


def permutation(key: int, stream: int, count: int) -> torch.Tensor:
    """Order of `count` things; two equal draws, one in 2**44 for a thousand, keep their order."""
    return torch.from_numpy(np.argsort(raw(key, stream, count), kind="stable"))


def _uniform(key: int, stream: int, shape: tuple[int, int]) -> torch.Tensor:
    """Weights between plus and minus one over the root of the inputs, exact in float32."""
    share = (raw(key, stream, math.prod(shape)) >> np.uint64(40)).astype(np.float64) / 2.0**24
    weights = ((2 * share - 1) / math.sqrt(shape[1])).astype(np.float32)
    return torch.from_numpy(weights.reshape(shape))


# ------------------------------------------------------------------ the network


class Perceptron(Classifier):
    """One hidden layer on the digits; keeps what its layers gave in the last pass."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(PIXELS, width), nn.Linear(width, CLASSES))
        self.activations: dict[str, torch.Tensor] = {}

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> Result:
        first, second = self.layers
        whole = inputs.dtype
        hidden = first(inputs).to(whole)
        logits = second(nn.functional.gelu(hidden)).to(whole)
        self.activations = {"hidden": hidden.detach(), "logits": logits.detach()}
        return Result(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


# ------------------------------------------------------------------ a trajectory


@dataclass(frozen=True, kw_only=True)
class Relabelling:
    """Orders of pixels, hidden units and images within a batch, which change no loss.

    `pixels[i]` is the pixel that stands in place i, and so on; `images` is used in every batch.
    """

    pixels: torch.Tensor
    units: torch.Tensor
    images: torch.Tensor

    @staticmethod
    def none(width: int) -> Relabelling:
        """Everything where it was."""
        orders = (torch.arange(count) for count in (PIXELS, width, BATCH))
        return Relabelling(**dict(zip(("pixels", "units", "images"), orders, strict=True)))

    @staticmethod
    def drawn(seed: int, width: int) -> Relabelling:
        """Orders that belong to a run's seed."""
        key = seed % 2**64
        return Relabelling(
            pixels=permutation(key, 0, PIXELS),
            units=permutation(key, 1, width),
            images=permutation(key, 2, BATCH),
        )


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """A training that can be begun anywhere: `number` stands for its weights and its order."""

    width: int
    number: int

    def weights(self) -> Mapping[str, torch.Tensor]:
        """First weights, float32: [width, 64], [width], [10, width], [10]."""
        return {
            "layers.0.weight": _uniform(self.number, FIRST, (self.width, PIXELS)),
            "layers.0.bias": torch.zeros(self.width),
            "layers.1.weight": _uniform(self.number, SECOND, (CLASSES, self.width)),
            "layers.1.bias": torch.zeros(CLASSES),
        }

    def order(self, num_steps: int) -> torch.Tensor:
        """Images of each step's batch, [steps, 256]: one random order of all after another."""
        count = len(training_images()[1])
        draws = raw(self.number, ORDER, (num_steps * BATCH // count + 1) * count)
        passes = np.argsort(draws.reshape(-1, count), axis=1, kind="stable")
        return torch.from_numpy(passes.reshape(-1)[: num_steps * BATCH].reshape(num_steps, BATCH))

    def digest(self, num_steps: int) -> str:
        """Sha256 of all that the trajectory starts from: weights, images, labels, order."""
        total = hashlib.sha256()
        for tensor in (*self.weights().values(), *training_images(), self.order(num_steps)):
            total.update(repr((tuple(tensor.shape), str(tensor.dtype))).encode())
            total.update(tensor.contiguous().numpy().tobytes())
        return total.hexdigest()

    def model(self, relabelling: Relabelling) -> Perceptron:
        """The network with its first weights, relabelled."""
        model = Perceptron(self.width)
        weights = self.weights()
        pixels, units = relabelling.pixels, relabelling.units
        model.load_state_dict(
            {
                "layers.0.weight": weights["layers.0.weight"][units][:, pixels],
                "layers.0.bias": weights["layers.0.bias"][units],
                "layers.1.weight": weights["layers.1.weight"][:, units],
                "layers.1.bias": weights["layers.1.bias"],
            }
        )
        return model

    def begin(
        self,
        *,
        num_steps: int,
        dtype: str,
        device: torch.device,
        relabelling: Relabelling,
        artifacts: Artifacts,
    ) -> Training:
        """Everything that `train_step` needs for so many steps."""
        images, labels = training_images()
        images = images[:, relabelling.pixels]
        model = self.model(relabelling).to(device)
        rule = AdamW(learning_rate=RATE)
        return Training(
            model=model,
            rule=rule,
            optimizer=rule.make(model),
            batches=[
                {"inputs": images[chosen].to(device), "labels": labels[chosen].to(device)}
                for chosen in self.order(num_steps)[:, relabelling.images]
            ],
            cycle=InputCycle(of=num_steps),
            dtype=dtype_named(dtype),
            error_bounds=ERROR_BOUNDS,
            artifacts=artifacts,
        )


def follow(
    trajectory: Trajectory,
    num_steps: int,
    dtype: str,
    variation: Variation,
    *,
    before_step: Callable[[int, Training], None] = lambda *_: None,
) -> tuple[NDArray[np.float64], Training]:
    """Train on the host; return the loss of each step, and the training as it ended.

    `before_step(number, state)` is called before each step.
    """
    width = trajectory.width
    seed = variation.relabelled
    state = trajectory.begin(
        num_steps=num_steps,
        dtype=dtype,
        device=torch.device("cpu"),
        relabelling=Relabelling.none(width) if seed is None else Relabelling.drawn(seed, width),
        artifacts=Artifacts(Path()),  # never asked: nothing is checked here
    )
    if variation.perturbed is not None:
        perturb(state.model.parameters(), variation.perturbed)
    losses = []
    with engine([state.model], variation):
        for number in range(num_steps):
            before_step(number, state)
            losses.append(train_step(state).loss.item())
    return np.array(losses), state


# ------------------------------------------------------------------ the data


def training_images() -> tuple[torch.Tensor, torch.Tensor]:
    """Images [1437, 64] in float32 between 0 and 1, and their labels."""
    return _images(is_held_out=False)


def held_out_images() -> tuple[torch.Tensor, torch.Tensor]:
    """The 360 images that training never sees, and their labels."""
    return _images(is_held_out=True)


def _images(*, is_held_out: bool) -> tuple[torch.Tensor, torch.Tensor]:
    pixels, shown = digits()
    chosen = (np.arange(len(shown)) % HELD_OUT == 0) == is_held_out
    images = torch.from_numpy(pixels[chosen]).float() / BRIGHTEST
    return images, torch.from_numpy(shown[chosen])


def num_right(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Number of images that the model reads rightly, in float32, where the model is."""
    with torch.no_grad():
        right: torch.Tensor = (model(images, labels).logits.argmax(1) == labels).sum()
    return right


def num_wanted(target: float, count: int) -> int:
    """Least number of `count` images that is a share of `target`."""
    return math.ceil(round(target * count, 6))


def steps_to(right: Sequence[int], wanted: int) -> float:
    """Steps until at least `wanted` images were read rightly; infinite if they never were."""
    return next((float(n) for n, count in enumerate(right, start=1) if count >= wanted), math.inf)


# ------------------------------------------------------------------ one pass on the host


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What one forward and backward pass gave."""

    loss: torch.Tensor
    activations: Mapping[str, torch.Tensor]
    gradients: Mapping[str, torch.Tensor]


def pass_on_host(before: Before, width: int, dtype: torch.dtype) -> Pass:
    """Make the pass of the step that started from `before` by torch on the host."""
    model = Perceptron(width)
    model.load_state_dict(dict(before.weights))
    inputs, labels = before.batch["inputs"], before.batch["labels"]
    if dtype is torch.float64:
        model, inputs = model.double(), inputs.double()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
        loss = model(inputs, labels).loss
    torch.autograd.backward(loss)
    return Pass(
        loss=loss.detach(),
        activations=model.activations,
        gradients={name: gradient(p) for name, p in model.named_parameters()},
    )
