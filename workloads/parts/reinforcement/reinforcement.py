"""Reinforcement learning in float64 on the host: what judges every row of that kind.

Nothing here shares code with what is timed. Advantages are added up in numpy, the loss and its
gradients are torch's in float64, the optimiser is Adam's formula. A step makes many updates, and
an update divides by the size of a gradient, so errors would grow from one to the next. Therefore
each update is judged from what the device reported of the one before: `Adam.follow` gives the
weights at every update from the reported gradients, and the gradients are recomputed at those.

Where a loss has a branch point (a ratio at the edge of its clip, a rectifier at zero), a rounding
decides which side a sample takes. The reference is made with the edge moved out and in by `EDGE`;
between both lie all choices that a rounding may make, and what they differ in is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from appliance.records.journal import Check
from workloads.parts.numerics.precision import unit_roundoff

Array = NDArray[np.float64]
Arrays = Mapping[str, Array]
Loss = Callable[[Mapping[str, torch.Tensor], float], torch.Tensor]
"""The loss of one minibatch, of its weights and of the side of its branch points: -1, 0 or 1."""

ROUNDING = unit_roundoff(torch.float32)
EDGE = 2e-5
"""Distance from a branch point within which a rounding may choose the side; 300 roundings of
float32."""
_SMALLEST = 1e-30
_FLOOR = 0.01
"""Share of the whole gradient's norm below which one tensor's own norm is no yardstick."""
_PER_UPDATE, _SPARE = 4, 16
"""Roundings of one element in one update, and beside them."""
_NORM = 384
"""Roundings of the norm of a whole gradient: 80 were seen of 200,000 numbers on a processor."""


# ------------------------------------------------------------------ what a rollout is worth


def advantages(
    rewards: Array,
    values: Array,
    ends: Array,
    cuts: Array,
    *,
    discount: float,
    trace: float,
    unroll: int,
) -> Array:
    """Generalised advantages (steps, environments) of Schulman et al. 2016.

    `values` has one row more than the others. `ends`: 1 where an episode ended of itself, so
    that nothing follows; `cuts`: 1 where it was cut off, which says nothing of its value. Every
    `unroll` steps the sum begins anew.
    """
    advantages = np.zeros_like(rewards)
    running = np.zeros(rewards.shape[1])
    for step in reversed(range(len(rewards))):
        if (step + 1) % unroll == 0:
            running = np.zeros_like(running)
        goes_on = discount * (1 - ends[step])
        surprise = rewards[step] + goes_on * values[step + 1] - values[step]
        running = (1 - cuts[step]) * (surprise + trace * goes_on * running)
        advantages[step] = running
    return advantages


# ------------------------------------------------------------------ optimiser


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam of Kingma and Ba, with the whole gradient clipped to a norm first if `clip` is set.

    `has_short_betas`: the device raises the betas to their powers as numbers of float32, as optax
    does and torch does not. It is another rule: 0.999 in float32 is 1.3e-8 more, so that 1 less
    its 1000th power is 7.5e-6 off, of which an update has half. At step 905 dqn was seen 25
    roundings of the weights' terms away from the betas as written, and 1.3 from these.
    """

    learning_rate: float
    epsilon: float
    clip: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    has_short_betas: bool = False

    def follow(self, start: Followed, gradients: Sequence[Arrays]) -> Iterator[Followed]:
        """Yield what each update begins with, and last what the last one leaves."""
        now = start
        for gradient in gradients:
            yield now
            now = self._next(now, self._clipped(gradient))
        yield now

    @property
    def _raised(self) -> tuple[float, ...]:
        """The betas whose powers undo that the moments began at nought."""
        if not self.has_short_betas:
            return self.betas
        return tuple(float(np.float32(beta)) for beta in self.betas)

    def _clipped(self, gradient: Arrays) -> Arrays:
        if not self.clip:
            return gradient
        norm = math.sqrt(sum(float(np.square(part).sum()) for part in gradient.values()))
        factor = self.clip / norm if norm >= self.clip else 1.0
        return {name: part * factor for name, part in gradient.items()}

    def _next(self, now: Followed, gradient: Arrays) -> Followed:
        number = now.number + 1
        first, second = (1 - beta**number for beta in self._raised)
        mean = _faded(now.mean, gradient, self.betas[0])
        square = _faded(now.square, {n: g * g for n, g in gradient.items()}, self.betas[1])
        moves = {
            name: self.learning_rate
            * mean[name]
            / first
            / (np.sqrt(square[name] / second) + self.epsilon)
            for name in mean
        }
        # The device's own 1 - beta ** number is a difference of numbers near 1.
        amplified = 1 + 1 / second
        return Followed(
            number=number,
            weights={name: now.weights[name] - move for name, move in moves.items()},
            mean=mean,
            square=square,
            sizes={
                name: now.sizes[name] + amplified * np.abs(move) for name, move in moves.items()
            },
            mean_sizes=_faded(
                now.mean_sizes, {n: np.abs(g) for n, g in gradient.items()}, self.betas[0]
            ),
        )


def _faded(old: Arrays, new: Arrays, beta: float) -> dict[str, Array]:
    return {name: beta * old[name] + (1 - beta) * new[name] for name in old}


@dataclass(frozen=True, kw_only=True)
class Followed:
    """Weights and moments before an update, and the sizes of the terms that made them."""

    number: int
    weights: Arrays
    mean: Arrays
    square: Arrays
    sizes: Arrays
    mean_sizes: Arrays

    @classmethod
    def begin(cls, number: int, weights: Arrays, mean: Arrays, square: Arrays) -> Followed:
        """What a step begins with, after `number` updates."""
        return cls(
            number=number,
            weights=weights,
            mean=mean,
            square=square,
            sizes={name: np.abs(weight) for name, weight in weights.items()},
            mean_sizes={name: np.abs(part) for name, part in mean.items()},
        )


def check_updates(
    end: Followed, reported: Followed, count: int, *, is_clipped: bool = False
) -> Iterator[Check]:
    """Hold weights and moments after `count` updates to the formula, fed with all gradients.

    `is_clipped`: by the norm of the whole gradient, a long sum in float32.
    """
    bound = (_SPARE + _PER_UPDATE * count + (_NORM if is_clipped else 0)) * ROUNDING
    for name, exact, actual, sizes in (
        ("weights", end.weights, reported.weights, end.sizes),
        ("first moments", end.mean, reported.mean, end.mean_sizes),
        ("second moments", end.square, reported.square, end.square),
    ):
        errors = [
            np.max(np.abs(actual[key] - exact[key]) / (sizes[key] + _SMALLEST)) for key in exact
        ]
        yield Check(
            name=f"updated {name}, given the gradients",
            error=float(np.max(errors)),
            bound=bound,
            detects=bound,
            detects_what="error of one element, relative to the terms that make it",
        )


def check_learning(
    start: Arrays, end: Arrays, gradients: Sequence[Arrays], *, what: str = "tensors"
) -> Check:
    """A model that stands still agrees with itself; so what stands still is counted."""
    still = sum(
        np.array_equal(start[name], end[name]) or not any(part[name].any() for part in gradients)
        for name in start
    )
    name = f"{what} without a gradient or a change"
    return Check(name=name, error=float(still), bound=0.0, kind="exact")


# ------------------------------------------------------------------ losses and gradients


def gradients_of(loss: Loss, weights: Arrays, side: float) -> tuple[float, dict[str, Array]]:
    """Loss and gradients in float64 with the branch points moved to one side."""
    leaves = {
        name: torch.from_numpy(part).clone().requires_grad_() for name, part in weights.items()
    }
    value = loss(leaves, side)
    slopes = torch.autograd.grad(value, list(leaves.values()))
    return value.item(), {name: slope.numpy() for name, slope in zip(leaves, slopes, strict=True)}


@dataclass(frozen=True, kw_only=True)
class Slopes:
    """One update's loss and gradients as reported, and what float64 needs to judge them."""

    loss: Loss
    weights: Arrays
    reported_loss: float
    reported: Arrays


def check_slopes(
    slopes: Iterable[Slopes], *, loss_bound: float, gradient_bound: float
) -> Iterator[Check]:
    """Hold losses and gradients of updates to float64 at the weights that they had."""
    losses, gradients = [0.0], [0.0]
    for one in slopes:
        low_loss, low = gradients_of(one.loss, one.weights, -1.0)
        high_loss, high = gradients_of(one.loss, one.weights, 1.0)
        middle = (low_loss + high_loss) / 2
        losses.append(abs(one.reported_loss - middle) / max(1.0, abs(middle)))
        error = _gradient_error(one.reported, low, high)
        if error > gradient_bound:
            _, still = gradients_of(one.loss, one.weights, 0.0)
            error = min(error, _gradient_error_about(still, one.reported, low, high))
        gradients.append(error)
    yield Check(
        name="losses against float64",
        error=float(np.max(losses)),
        bound=loss_bound,
        detects=loss_bound,
        detects_what="error of one update's loss, relative to itself or to 1 if that is more",
    )
    yield Check(
        name="gradients against float64",
        error=float(np.max(gradients)),
        bound=gradient_bound,
        detects=gradient_bound,
        detects_what="error of one tensor's gradient in one update, relative to its norm",
    )


def _gradient_error(reported: Arrays, low: Arrays, high: Arrays) -> float:
    """Distance from the middle of both sides, beyond what lies between them."""
    middle = {name: (part + high[name]) / 2 for name, part in low.items()}
    between = {name: _distance(high[name], part) for name, part in low.items()}
    return _relative(reported, middle, between, low)


def _gradient_error_about(still: Arrays, reported: Arrays, low: Arrays, high: Arrays) -> float:
    """Distance from the gradients with no branch point moved, beyond what either side moves them.

    What two samples move may all but cancel between the two sides. Then a device that rounds
    only one of them to the other side, or neither, is further from the middle than the sides are
    from one another, and still right.
    """
    moved = {
        name: _distance(part, low[name]) + _distance(part, high[name])
        for name, part in still.items()
    }
    return _relative(reported, still, moved, low)


def _relative(reported: Arrays, exact: Arrays, allowed: Mapping[str, float], low: Arrays) -> float:
    norms = {name: float(np.linalg.norm(part)) for name, part in low.items()}
    floor = _FLOOR * math.sqrt(sum(norm * norm for norm in norms.values()))
    errors = [
        max(0.0, _distance(reported[name], part) - allowed[name])
        if np.isfinite(reported[name]).all()
        else math.nan
        for name, part in exact.items()
    ]
    return float(np.max([e / (norms[n] + floor) for e, n in zip(errors, exact, strict=True)]))


def _distance(one: Array, other: Array) -> float:
    return float(np.linalg.norm(one - other))


@dataclass(frozen=True, kw_only=True)
class Surrogate:
    """The loss of proximal policy optimisation (Schulman et al. 2017) on one minibatch.

    All of shape (samples,): what the rollout had of each taken action and of each state, and
    what the advantages made of it.
    """

    log_probs: torch.Tensor
    values: torch.Tensor
    advantages: torch.Tensor
    clip: float
    value_clip: float
    value_weight: float
    entropy_weight: float
    correction: int = 0

    def loss(
        self, log_probs: torch.Tensor, values: torch.Tensor, entropy: torch.Tensor, side: float
    ) -> torch.Tensor:
        """The loss of a network that gives these, branch points moved by `side` edges."""
        targets = self.advantages + self.values
        spread = self.advantages.std(correction=self.correction)
        gain = (self.advantages - self.advantages.mean()) / (spread + 1e-8)
        ratio = (log_probs - self.log_probs).exp()
        near = self.clip + side * EDGE
        policy = -torch.minimum(ratio * gain, ratio.clamp(1 - near, 1 + near) * gain).mean()
        wrong = (values - targets).square()
        if self.value_clip:
            near = self.value_clip + side * EDGE
            held = self.values + (values - self.values).clamp(-near, near)
            wrong = torch.maximum(wrong, (held - targets).square())
        value = 0.5 * wrong.mean()
        return policy + self.value_weight * value - self.entropy_weight * entropy.mean()


def compared(  # noqa: PLR0917 - in the order of the sentence that they make
    name: str, actual: Array, exact: Array, bound: float, what: str, sizes: Array | None = None
) -> Check:
    """One array held to another, element by element; `sizes` what each is measured by.

    By default that is its own size or, if it is more, the root mean square of all.
    """
    if actual.shape != exact.shape:
        error = math.inf
    elif exact.size == 0:
        error = 0.0
    else:
        if sizes is None:
            sizes = np.maximum(np.abs(exact), np.sqrt(np.mean(np.square(exact))))
        error = float(np.max(np.abs(actual - exact) / (sizes + _SMALLEST)))
    return Check(name=name, error=error, bound=bound, detects=bound, detects_what=what)


def compared_advantages(rollout: Mapping[str, Array], exact: Array, bound: float) -> Check:
    """Advantages of a rollout with `values` and `rewards`, held to those in float64."""
    size = np.abs(rollout["values"]).max() + np.abs(rollout["rewards"]).max()
    return compared(
        "advantages against float64",
        rollout["advantages"],
        exact,
        bound,
        "error of one advantage, relative to itself or to the largest value and reward",
        np.maximum(np.abs(exact), size),
    )


def counted(name: str, faults: float | np.integer) -> Check:
    """A count that must be nought."""
    return Check(name=name, error=float(faults), bound=0.0, kind="exact")


def differing(actual: NDArray[np.generic], exact: NDArray[np.generic]) -> float:
    """Elements that are not the same; infinite if the shapes differ."""
    if actual.shape != exact.shape:
        return math.inf
    return float(np.count_nonzero(actual != exact))


# ------------------------------------------------------------------ multilayer perceptrons


def names_of(tower: str, sizes: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a perceptron's weights, layer by layer: its matrix, its bias."""
    layers = pairwise(sizes)
    return [
        named
        for number, (width, height) in enumerate(layers)
        for named in (
            (f"{tower}.{number}.matrix", (width, height)),
            (f"{tower}.{number}.bias", (height,)),
        )
    ]


def drawn(
    towers: Mapping[str, Sequence[int]], gains: Mapping[str, float], rng: torch.Generator
) -> dict[str, NDArray[np.float32]]:
    """First weights of perceptrons: normal over the root of the width, biases nought.

    The last matrix of a tower is multiplied by its gain.
    """
    weights = {}
    for tower, sizes in towers.items():
        for name, shape in names_of(tower, sizes):
            if len(shape) == 1:
                weights[name] = np.zeros(shape, np.float32)
                continue
            gain = gains.get(tower, 1.0) if name == f"{tower}.{len(sizes) - 2}.matrix" else 1.0
            matrix = torch.randn(shape, generator=rng) * (gain / math.sqrt(shape[0]))
            weights[name] = matrix.numpy()
    return weights


ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "swish": torch.nn.functional.silu,
    "tanh": torch.tanh,
}


def perceptron(
    weights: Mapping[str, torch.Tensor],
    tower: str,
    inputs: torch.Tensor,
    activate: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """What one tower of weights gives for inputs of shape (samples, width)."""
    last = max(int(name.split(".")[1]) for name in weights if name.startswith(f"{tower}."))
    for number in range(last + 1):
        inputs = inputs @ weights[f"{tower}.{number}.matrix"] + weights[f"{tower}.{number}.bias"]
        if number < last:
            inputs = activate(inputs)
    return inputs
