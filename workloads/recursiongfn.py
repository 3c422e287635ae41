"""GFlowNet that builds molecules of fragments: many small passes one after the other, then one.

One step lets a graph transformer build 128 trees of at most nine fragments
(`parts/graphs/fragments.py`), action by action, by its own chances, then balances each trajectory
against the logarithm of its reward (`parts/graphs/flow.py`), backward and Adam. The reward is that
of a fixed random network. The noise that draws the actions comes from the host, so every device
draws the same of the same policy, and moves on, so that no trajectory is memorised
(`parts/graphs/shifted_noise.py`). The unit is a trajectory; how many actions one has is the
policy's choice, up to 26.

Every trajectory is played again one tree at a time in plain Python, with its chances backwards
counted: an action that a state does not allow is seen exactly. Rewards, chances and the balance of
what was played are computed again in float64 with weights of the host's own proxy. And the checks
of `parts/training` follow the step in float64, noise and choices and all: an action must be the
one that float64 draws, unless two lie within a rounding; a product in a lower precision, a stale
gradient and a weight that Adam missed would each be seen.

Bounds allow four times what was measured. As it learns, the terms of a balance stay as large as
they were and cancel. So the balance is held to the size of its terms, and the gradients to the root
of the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.graphs import fragments
from workloads.parts.graphs.flow import FORBIDDEN, GAIN, Played, Policy, draw
from workloads.parts.graphs.fragments import Vocabulary
from workloads.parts.graphs.shifted_noise import ShiftedNoise
from workloads.parts.numerics.inputs import InputSets
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.numerics.precision import rounding
from workloads.parts.numerics.size import count_parameters
from workloads.parts.reinforcement.reinforcement import compared, counted
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.checks import check_step
from workloads.parts.training.inputs import GeneratedInputs
from workloads.parts.training.optimizers import AdamW
from workloads.parts.training.state import Before, Trained, Training, begin_training, take_snapshot
from workloads.parts.training.step import train_step

LEAST_SPREAD = 0.01
ERROR_BOUNDS = ErrorBounds(loss=4, logits=16, gradients=16, has_branch_points=True, branch_points=1)
_BALANCE = 0.25
"""Roundings of the terms of a trajectory's balance. 0.045 were seen, in 3 seeds of 2000 steps."""
_WORTH = 16
"""Roundings of a reward's logarithm, in units of the root mean square of all."""
_MEMORY = 2**34 // 4  # numbers of noise that a launch may keep


@dataclass(kw_only=True)
class State:
    """`policy` is the model of the training."""

    training: Training
    policy: Policy

    @property
    def cycle(self) -> InputCycle:
        """Of the training: a launch asks when the noise of its first step comes again."""
        return self.training.cycle


@dataclass(kw_only=True)
class Sampled:
    """What was played in a step, and what was learned of it."""

    played: Played
    trained: Trained


@dataclass(frozen=True, kw_only=True)
class RecursionGfn(Workload[State, Sampled]):
    """`kinds` of fragments, of which a tree has `largest` at most, each with `points` at most.

    `batch_change` and `extra_layers` are added to `batch` and `layers`, so that one variant serves
    every size.
    """

    summary: ClassVar[str] = "GFlowNet: molecules from fragments by trajectory balance"
    version: ClassVar[int] = 2
    domain: ClassVar[str] = "generative flow"
    bound_by: ClassVar[Bound] = "latency"
    data_pattern: ClassVar[str] = "trees of fragments that the policy itself builds"
    small: ClassVar[Parameters] = {
        "batch": 16,
        "kinds": 12,
        "largest": 4,
        "points": 3,
        "hidden": 32,
        "layers": 2,
        "learning_rate": 1e-3,
    }
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one trajectory less": {"batch_change": -1},
        "one layer more": {"extra_layers": 1},
        "silu": {"activation": "silu"},
        "sharper reward": {"sharpness": 3.0},
    }

    batch: int = 128
    kinds: int = 72
    largest: int = 9
    points: int = 4
    hidden: int = 128
    layers: int = 4
    heads: int = 2
    activation: str = "gelu"
    sharpness: float = 2.0
    learning_rate: float = 1e-4
    num_inputs: int = 4
    batch_change: int = 0
    extra_layers: int = 0

    def __post_init__(self) -> None:
        require_positive(self, "batch", "kinds", "largest", "points", "hidden", "layers", "heads")
        require_positive(self, "num_inputs")
        require_choice("activation", self.activation, ("gelu", "silu"))
        if self.largest < 3 or self.points < 2:  # noqa: PLR2004 - else a tree has no choice
            name, least = ("largest", 3) if self.largest < 3 else ("points", 2)  # noqa: PLR2004
            raise ParameterError(f"{name} is {getattr(self, name)}: give {least} at least")
        if self.hidden % self.heads:
            message = f"hidden is {self.hidden}: give a multiple of heads, which is {self.heads}"
            raise ParameterError(message)
        for name, whole in (("batch_change", self.batch), ("extra_layers", self.layers)):
            change = getattr(self, name)
            if whole + change < 1:
                raise ParameterError(f"{name} is {change}: leave one of the {whole} at least")
        for name in ("learning_rate", "sharpness"):
            if not 0 < getattr(self, name) < 100:  # noqa: PLR2004 - more has no meaning
                raise ParameterError(f"{name} is {getattr(self, name)}: give from 0 to 100")
        if self.num_inputs * self._noise > _MEMORY:
            message = f"num_inputs is {self.num_inputs}: give fewer, or less of batch and kinds"
            raise ParameterError(f"{message}; their noise takes more than 16 GiB")

    @property
    def _count(self) -> int:
        return self.batch + self.batch_change

    @property
    def words(self) -> Vocabulary:
        return Vocabulary(kinds=self.kinds, largest=self.largest, points=self.points)

    @property
    def _noise(self) -> int:
        return self._count * self.words.num_steps * self.words.num_actions

    def work(self) -> Work:
        """Trajectories, and the operations of as many states as the longest may have.

        How long a trajectory is, the policy decides; but a batch keeps its shape, whatever is
        drawn. One that has ended goes on in its last state, and a tree has room for its largest
        number of nodes: all of it is computed, and counted, as is what a mask hides.
        """
        states = self._count * self.words.num_steps
        # Played and then learned; which points are taken wants no gradient.
        state = 4 * self._state_flops() - self._points_flops()
        flops = states * state + self._count * self._proxy_flops()
        return Work(units=self._count, unit="trajectories", flops=flops, precision="float32")

    def _state_flops(self) -> int:
        """One pass of the policy over one state; its tokens are the nodes and the whole."""
        width, tokens = self.hidden, self.words.largest + 1
        layer = tokens * 12 * width * width + 2 * tokens * tokens * width
        heads = width * (1 + tokens * self.kinds + self.largest * self.points)
        layers = self.layers + self.extra_layers
        return 2 * (layers * layer + heads) + self._points_flops()

    def _points_flops(self) -> int:
        """What a token learns of the points that are taken at its node."""
        return 2 * self.largest * self.points * self.hidden

    def _proxy_flops(self) -> int:
        """The reward of one tree."""
        width = fragments.PROXY_WIDTH
        return 2 * (2 * width * width + width)

    def num_parameters(self) -> int:
        """Of the policy; the proxy learns nothing and is no part of it."""
        frozen = count_parameters(lambda: fragments.Proxy(self.words))
        return count_parameters(self._model) - frozen

    def _model(self) -> Policy:
        policy = Policy(
            words=self.words,
            width=self.hidden,
            layers=self.layers + self.extra_layers,
            heads=self.heads,
            activation=self.activation,
            sharpness=self.sharpness,
        )
        draw(policy)
        return policy

    def build(self, target: Target, seed: int) -> State:
        state = begin_training(
            target,
            seed=seed,
            make=lambda *_: self._model(),
            rule=AdamW(learning_rate=self.learning_rate, decay=0.0),
            inputs=GeneratedInputs(generate=self._generate),
            num_inputs=self.num_inputs,
            dtype=torch.float32,
            error_bounds=self._error_bounds,
        )
        assert isinstance(state.model, Policy)  # noqa: S101 - what was made
        assert isinstance(state.batches, InputSets)  # noqa: S101 - what `begin` placed
        state.batches = ShiftedNoise(drawn=state.batches)
        state.cycle, state.checksums = InputCycle(of=len(state.batches)), None
        return State(training=state, policy=state.model)

    @property
    def _error_bounds(self) -> ErrorBounds:
        """With what a balance's terms add to the loss and the gradients when they cancel.

        Each trajectory's balance errs as its terms do, whose size goes with the actions of the
        longest and the logarithm of their number; the gradients err as the balances do, relative
        to the root of the loss. At small size their error was 4e-6 of it, from a loss of 15 to
        one of 0.03.
        """
        size = self.words.num_steps * math.log(self.words.num_actions)
        return replace(
            ERROR_BOUNDS, loss=max(ERROR_BOUNDS.loss, size / 12), converged_loss=(size / 24) ** 2
        )

    def _generate(self, seed: int) -> Iterator[dict[str, torch.Tensor]]:
        """Gumbel noise of steps, on the host."""
        rng = torch.Generator().manual_seed(seed)
        shape = (self.words.num_steps, self._count, self.words.num_actions)
        while True:
            drawn = torch.empty(shape).exponential_(generator=rng)
            yield {"noise": -drawn.clamp(min=torch.finfo(drawn.dtype).tiny).log()}

    def step(self, state: State) -> Sampled:
        trained = train_step(state.training)
        assert state.policy.played is not None  # noqa: S101 - kept by the forward pass
        return Sampled(played=state.policy.played, trained=trained)

    def snapshot(self, state: State) -> Before:
        return take_snapshot(state.training)

    def check(self, before: object, state: State, output: Sampled) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        assert isinstance(state.training.batches, ShiftedNoise)  # noqa: S101 - what was built
        yield state.training.batches.check(before.number, before.batch)
        yield from self._check_played(before, output)
        yield from check_step(before, state.training, output.trained)

    def _check_played(self, before: Before, output: Sampled) -> Iterator[Check]:
        """Play the actions again one by one, and balance them in float64."""
        actions = output.played.actions.detach().cpu()
        shape = (self.words.num_steps, self._count)
        if actions.shape != shape:
            yield counted("trajectories missing or too many", float("inf"))
            return
        again = fragments.replayed(actions.numpy(), self.words)
        yield counted("actions that a state does not allow", again.faults)
        if again.faults:
            return
        policy = self._followed(before)
        with torch.no_grad():
            log_rewards = policy.proxy(again.ends)
            chances = policy.chances(again.trees, actions)
            logits = policy.logits(again.trees)
        yield self._check_choosy(logits)
        size = rounding(torch.float32)
        what = "error of one number, relative to itself or to the root mean square of all"
        yield compared(
            "logarithms of rewards against float64",
            _host(output.played.log_rewards),
            log_rewards.numpy(),
            _WORTH * size,
            what,
        )
        yield compared(
            "chances backwards against those counted",
            _host(output.played.log_back),
            again.log_back,
            size,
            what,
        )
        terms = [GAIN * policy.flow.detach(), *chances.unbind(dim=1), -log_rewards]
        yield _check_balance(output, [*terms, -torch.from_numpy(again.log_back)])
        yield compared(
            "chances of the actions against float64",
            _host(output.trained.logits),
            chances.numpy(),
            ERROR_BOUNDS.logits * size,
            what,
        )

    def _check_choosy(self, logits: torch.Tensor) -> Check:
        """A policy that says the same of every action that a state allows has learned nothing."""
        spread = logits[logits > FORBIDDEN / 2].std(correction=0).item()
        return Check(
            name="logits differ among the actions that a state allows",
            error=LEAST_SPREAD / spread if spread > 0 else math.inf,
            bound=1.0,
            detects=LEAST_SPREAD,
            detects_what="standard deviation of the logits; 0.3 in a fresh policy",
        )

    def _followed(self, before: Before) -> Policy:
        """The policy as it was before the step, in float64, with a proxy of the host's own."""
        policy = self._model().double()
        with torch.no_grad():
            for name, weight in policy.named_parameters():
                if weight.requires_grad:
                    weight.copy_(before.weights[name])
        return policy


def _check_balance(output: Sampled, terms: Sequence[torch.Tensor]) -> Check:
    """Hold the loss to the mean square of sums of these terms (trees,) of float64.

    A sum that is off by d moves its square by no more than 2 |sum| d + d². Where the terms cancel,
    d goes with them and not with what they leave.
    """
    bound = _BALANCE * rounding(torch.float32)
    each = torch.stack([term.expand_as(terms[-1]) for term in terms])
    sums, sizes = each.sum(dim=0), each.abs().sum(dim=0)
    movable = (sums.square() + 2 * sums.abs() * sizes + bound * sizes.square()).mean()
    return compared(
        "loss against the balance of what was played",
        _host(output.trained.loss),
        sums.square().mean().numpy(),
        bound,
        "error of every balance, relative to the sum of its terms without their signs",
        movable.numpy(),
    )


def _host(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    return tensor.detach().cpu().double().numpy()


WORKLOAD = RecursionGfn
