"""Learn Atari by proximal policy optimisation: the emulator on the host, the network on the device.

A step plays 128 steps of 128 games of ale-py's vector environment, frame by frame as the
network decides, and from these 16,384 samples makes 64 updates of the Nature network with Adam:
four times over all, in 16 minibatches. The setting is CleanRL's: rate 2.5e-4, discount 0.99,
ratios and values clipped at 0.1, the gradient's norm at 0.5. Its unit is a step of one game; one
that ends begins anew within its step, so that no step is a reset alone, and the emulator's own
count of frames is checked.

Another emulator is told the same actions from the first on, and must show the same frames,
rewards and ends. Actions are those that the seed's numbers draw from the probabilities in float64,
the order of the samples is the seed's, advantages are added up in float64, all updates are held to
Adam's formula, and the loss and gradients of drawn minibatches to float64
(`parts/reinforcement/reinforcement.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.numerics.parameters import require_choice, require_positive, require_share
from workloads.parts.numerics.size import count_flops, count_parameters
from workloads.parts.reinforcement import atari, reinforcement
from workloads.parts.reinforcement.reinforcement import (
    EDGE,
    ROUNDING,
    Adam,
    Array,
    Arrays,
    Followed,
    Slopes,
    Surrogate,
    compared,
    counted,
    differing,
)
from workloads.parts.training.state import gradient, seeded

CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, side and stride of the Nature network's layers."""
FEATURES = 64 * 7 * 7
VALUE_WEIGHT, EPSILON = 0.5, 1e-5
_VALUES, _ADVANTAGES, _LOSS, _GRADIENTS = 512.0, 32.0, 256.0, 4096.0
_SURE = 1e-5
"""Distance of a drawn number from the edge of an action's share, from which the draw is sure."""
_UPDATES, _ROWS = 8, 2048
"""Minibatches whose gradients, and samples whose values, are computed again, at most."""


class Nature(nn.Module):
    """Three convolutions and a layer of `hidden` units, then one head each for action and value."""

    def __init__(self, hidden: int, actions: int) -> None:
        super().__init__()
        channels = [atari.FRAMES, *(width for width, _, _ in CONVOLUTIONS)]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(channels[number], width, side, stride)
            for number, (width, side, stride) in enumerate(CONVOLUTIONS)
        )
        self.hidden = nn.Linear(FEATURES, hidden)
        self.actor = nn.Linear(hidden, actions)
        self.critic = nn.Linear(hidden, 1)

    def draw(self) -> None:
        """First weights: orthogonal, biases nought, the policy's last matrix small."""
        gains: dict[nn.Module, float] = {self.actor: 0.01, self.critic: 1.0}
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d) and layer.bias is not None:
                nn.init.orthogonal_(layer.weight, gains.get(layer, math.sqrt(2)))
                nn.init.zeros_(layer.bias)

    def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (samples, actions) and values (samples,) of frames (samples, 4, 84, 84), uint8."""
        inputs = frames.float() / 255
        for layer in self.convolutions:
            inputs = torch.relu(layer(inputs))
        inputs = torch.relu(self.hidden(inputs.flatten(1)))
        return self.actor(inputs), self.critic(inputs)[:, 0]


@dataclass(kw_only=True)
class State:
    """`frames` are those that the next step begins with, on the host; `rng` draws on the host."""

    model: Nature
    optimizer: torch.optim.Optimizer
    machine: atari.Machine
    frames: NDArray[np.uint8]
    clocks: NDArray[np.int32]
    seed: int
    cycle: InputCycle


@dataclass(kw_only=True)
class Rollout:
    """(steps, games, ...) on the device; `frames` and `values` have one row more."""

    frames: torch.Tensor
    actions: torch.Tensor
    log_probs: torch.Tensor
    values: torch.Tensor
    rewards: torch.Tensor
    ends: torch.Tensor
    cuts: torch.Tensor
    clocks: torch.Tensor
    advantages: torch.Tensor


@dataclass(kw_only=True)
class Learned:
    """Everything that a step made; `gradients` (updates, ...) of each weight, before the clip."""

    rollout: Rollout
    losses: torch.Tensor
    gradients: Mapping[str, torch.Tensor]
    weights: Mapping[str, torch.Tensor]
    mean: Mapping[str, torch.Tensor]
    square: Mapping[str, torch.Tensor]

    @property
    def loss(self) -> torch.Tensor:
        """Mean of all updates, for who follows the training."""
        return self.losses.mean()


@dataclass(frozen=True, kw_only=True)
class Before:
    """Host copies of what a step starts from; `past_actions`: the emulator's so far."""

    number: int
    weights: Mapping[str, torch.Tensor]
    mean: Mapping[str, torch.Tensor]
    square: Mapping[str, torch.Tensor]
    frames: NDArray[np.uint8]
    clocks: NDArray[np.int32]
    past_actions: tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, kw_only=True)
class TorchAtari(Workload[State, Learned]):
    """`num_steps` of each game are one rollout, learned `epochs` times in `num_minibatches`."""

    summary: ClassVar[str] = (
        "Proximal policy optimisation on Atari: emulator on host, Nature network"
    )
    version: ClassVar[int] = 1
    domain: ClassVar[str] = "reinforcement learning"
    bound_by: ClassVar[Bound] = "latency"
    data_pattern: ClassVar[str] = "frames of a game that the network itself plays"
    small: ClassVar[Parameters] = {
        "num_envs": 4,
        "num_steps": 6,
        "num_minibatches": 2,
        "epochs": 2,
        "hidden": 32,
    }
    variants: ClassVar[Mapping[str, Parameters]] = {
        "pong": {"game": "pong"},
        "space invaders": {"game": "space_invaders"},
        "one epoch more": {"extra_epochs": 1},
        "shorter trace": {"trace": 0.9},
        "looser clip": {"clip": 0.2},
    }

    game: str = "breakout"
    num_envs: int = 128
    num_steps: int = 128
    num_minibatches: int = 16
    epochs: int = 4
    extra_epochs: int = 0
    hidden: int = 512
    learning_rate: float = 2.5e-4
    norm: float = 0.5
    discount: float = 0.99
    trace: float = 0.95
    clip: float = 0.1
    entropy: float = 0.01

    def __post_init__(self) -> None:
        require_choice("game", self.game, atari.GAMES)
        require_positive(self, "num_envs", "num_steps", "num_minibatches", "epochs", "hidden")
        for name in ("learning_rate", "norm", "discount", "trace", "clip"):
            require_share(name, getattr(self, name))
        for name in ("entropy", "extra_epochs"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ParameterError(f"{name} is {getattr(self, name)}: give 0 or more")
        if self._samples % self.num_minibatches or self._samples < 2 * self.num_minibatches:
            message = f"num_minibatches is {self.num_minibatches}: give a divisor of"
            raise ParameterError(f"{message} {self._samples}, the samples of a step, or fewer")

    @property
    def _samples(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def updates(self) -> int:
        """Updates of one step."""
        return (self.epochs + self.extra_epochs) * self.num_minibatches

    @property
    def rule(self) -> Adam:
        return Adam(learning_rate=self.learning_rate, epsilon=EPSILON, clip=self.norm)

    def work(self) -> Work:
        """Environment steps, and the network's products; the emulator's work is not counted.

        The network sees every sample once as it is played and learns from it in each epoch; it
        sees the last frames of each game as well.
        """
        forward, trained = (count_flops(self._passed, with_backward=way) for way in (False, True))
        epochs = self.epochs + self.extra_epochs
        flops = forward * (self._samples + self.num_envs) + trained * epochs * self._samples
        return Work(units=self._samples, unit="environment steps", flops=flops, precision="float32")

    def _passed(self) -> torch.Tensor:
        """Something that hangs on all that the network makes of one sample."""
        frames = torch.empty(1, atari.FRAMES, atari.SIDE, atari.SIDE, dtype=torch.uint8)
        logits, values = self._model()(frames)
        total: torch.Tensor = logits.sum() + values.sum()
        return total

    def num_parameters(self) -> int:
        return count_parameters(self._model)

    def _model(self) -> Nature:
        return Nature(self.hidden, atari.ACTIONS[self.game])

    def _drawn(self) -> Nature:
        model = self._model()
        model.draw()
        return model

    def build(self, target: Target, seed: int) -> State:
        model = seeded(seed, self._drawn).to(target.device)
        machine = atari.Machine(game=self.game, num_envs=self.num_envs, seed=seed)
        return State(
            model=model,
            optimizer=torch.optim.Adam(model.parameters(), lr=self.learning_rate, eps=EPSILON),
            machine=machine,
            frames=machine.first,
            clocks=machine.first_clocks,
            seed=seed,
            cycle=InputCycle(of=2**31 - 1),
        )

    def draws(self, seed: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Of one step: numbers that choose actions (steps, games), order (epochs, samples)."""
        rng = np.random.default_rng((seed, number))  # torch's own takes 32 bits of a seed
        chances = rng.random((self.num_steps, self.num_envs), np.float32)
        epochs = self.epochs + self.extra_epochs
        orders = np.stack([rng.permutation(self._samples) for _ in range(epochs)])
        return torch.from_numpy(chances), torch.from_numpy(orders)

    def step(self, state: State) -> Learned:
        chances, order = self.draws(state.seed, state.cycle.advance())
        rollout = self._play(state, chances)
        losses, gradients = self._learn(state, rollout, order.to(rollout.values.device))
        weights = dict(state.model.named_parameters())
        moments = {name: state.optimizer.state.get(weight, {}) for name, weight in weights.items()}
        return Learned(
            rollout=rollout,
            losses=losses,
            gradients=gradients,
            weights={name: weight.detach() for name, weight in weights.items()},
            mean={name: moment["exp_avg"] for name, moment in moments.items() if moment},
            square={name: moment["exp_avg_sq"] for name, moment in moments.items() if moment},
        )

    @torch.no_grad()
    def _play(self, state: State, chances: torch.Tensor) -> Rollout:
        device = next(state.model.parameters()).device
        chances = chances.to(device)
        frames = torch.from_numpy(state.frames).to(device, copy=True)
        rows: list[dict[str, torch.Tensor]] = []
        for chance in chances:
            logits, values = state.model(frames)
            log_shares = logits.log_softmax(dim=-1)
            edges = log_shares.exp().cumsum(dim=-1)[:, :-1]
            actions = (chance[:, None] >= edges).sum(dim=-1)
            seen = state.machine.play(actions.cpu().numpy())
            row = {
                "rewards": torch.from_numpy(seen.rewards),
                "ends": torch.from_numpy(seen.ends).float(),
                "cuts": torch.from_numpy(seen.cuts).float(),
                "clocks": torch.from_numpy(seen.clocks),
            }
            row = {name: leaf.to(device, copy=True) for name, leaf in row.items()}
            log_probs = log_shares.gather(-1, actions[:, None])[:, 0]
            rows.append({**row, "frames": frames, "actions": actions, "values": values})
            rows[-1]["log_probs"] = log_probs
            state.frames, state.clocks = seen.frames, seen.clocks
            frames = torch.from_numpy(seen.frames).to(device, copy=True)
        stacked = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        last = {"frames": frames, "values": state.model(frames)[1]}
        stacked |= {name: torch.cat([stacked[name], leaf[None]]) for name, leaf in last.items()}
        return Rollout(advantages=self._advantages(stacked), **stacked)

    def _advantages(self, rollout: Mapping[str, torch.Tensor]) -> torch.Tensor:
        advantages, running = [], torch.zeros_like(rollout["rewards"][0])
        values, over = rollout["values"], torch.maximum(rollout["ends"], rollout["cuts"])
        for step in reversed(range(self.num_steps)):
            goes_on = self.discount * (1 - over[step])
            surprise = rollout["rewards"][step] + goes_on * values[step + 1] - values[step]
            running = surprise + self.trace * goes_on * running
            advantages.append(running)
        return torch.stack(advantages[::-1])

    def _learn(
        self, state: State, rollout: Rollout, order: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        losses: list[torch.Tensor] = []
        gradients: dict[str, list[torch.Tensor]] = {}
        weights = dict(state.model.named_parameters())
        for batch in order.reshape(self.updates, -1):
            state.optimizer.zero_grad(set_to_none=True)
            loss = self._loss(state.model, rollout, batch)
            torch.autograd.backward(loss)
            losses.append(loss.detach())
            for name, weight in weights.items():
                gradients.setdefault(name, []).append(gradient(weight).clone())
            torch.nn.utils.clip_grad_norm_(state.model.parameters(), self.norm)
            state.optimizer.step()
        return torch.stack(losses), {name: torch.stack(all_) for name, all_ in gradients.items()}

    def _loss(self, model: Nature, rollout: Rollout, batch: torch.Tensor) -> torch.Tensor:
        logits, values = model(rollout.frames[:-1].flatten(0, 1)[batch])
        log_shares = logits.log_softmax(dim=-1)
        actions = rollout.actions.flatten()[batch]
        log_probs = log_shares.gather(-1, actions[:, None])[:, 0]
        ratio = (log_probs - rollout.log_probs.flatten()[batch]).exp()
        gain = raw = rollout.advantages.flatten()[batch]
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        held = ratio.clamp(1 - self.clip, 1 + self.clip)
        policy = -torch.minimum(ratio * gain, held * gain).mean()
        old = rollout.values[:-1].flatten()[batch]
        near = old + (values - old).clamp(-self.clip, self.clip)
        targets = raw + old
        wrong = torch.maximum((values - targets).square(), (near - targets).square())
        entropy = -(log_shares.exp() * log_shares).sum(dim=-1).mean()
        loss: torch.Tensor = policy + VALUE_WEIGHT * 0.5 * wrong.mean() - self.entropy * entropy
        return loss

    def snapshot(self, state: State) -> Before:
        def copied(key: str) -> dict[str, torch.Tensor]:
            return {
                name: state.optimizer.state.get(weight, {})
                .get(key, torch.zeros_like(weight))
                .detach()
                .cpu()
                .clone()
                for name, weight in state.model.named_parameters()
            }

        return Before(
            number=state.cycle.number + 1,
            weights={n: w.detach().cpu().clone() for n, w in state.model.named_parameters()},
            mean=copied("exp_avg"),
            square=copied("exp_avg_sq"),
            frames=state.frames.copy(),
            clocks=state.clocks.copy(),
            past_actions=tuple(state.machine.past_actions),
        )

    def check(self, before: object, state: State, output: Learned) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        return _Judge(self, before, state, output).checks()


# ------------------------------------------------------------------ the judgement


def _host(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().double().numpy()


class _Judge:
    """The checks of one step; everything on the host."""

    def __init__(self, workload: TorchAtari, before: Before, state: State, output: Learned) -> None:
        self._workload = workload
        self._before = before
        self._machine = state.machine
        self._output = output
        self._rollout = {name: leaf.detach().cpu() for name, leaf in vars(output.rollout).items()}
        self._chances, self._order = workload.draws(state.seed, before.number)
        self._rng = np.random.default_rng(before.number)

    def checks(self) -> Iterator[Check]:
        with np.errstate(all="ignore"):  # what is not a number is not within its bound
            yield from self._replayed()
            yield self._clocks()
            yield self._advantages()
            yield from self._networks()
            yield from self._converged()

    def _replayed(self) -> Iterator[Check]:
        actions = self._rollout["actions"]
        faults = int(((actions < 0) | (actions >= atari.ACTIONS[self._workload.game])).sum())
        yield counted("actions that the game does not know", faults)
        if faults:
            return
        seen = atari.replayed(self._machine, self._before.past_actions, list(actions.numpy()))
        frames = np.stack([self._before.frames, *(one.frames for one in seen)])
        yield counted("pixels unlike the emulator's", differing(self._own("frames"), frames))
        unlike = sum(
            differing(self._own(name), np.stack([getattr(one, name) for one in seen]))
            for name in ("rewards", "ends", "cuts", "clocks")
        )
        yield counted("rewards, ends and frame numbers unlike the emulator's", unlike)

    def _own(self, name: str) -> NDArray[np.generic]:
        leaf: NDArray[np.generic] = self._rollout[name].numpy()
        return leaf

    def _clocks(self) -> Check:
        """Steps by the emulator's count of frames: four each, or an end and a new game's first."""
        clocks = self._own("clocks").astype(np.int64)
        before = np.concatenate([self._before.clocks[None], clocks[:-1]])
        is_over = (self._rollout["ends"] + self._rollout["cuts"]).numpy() > 0
        advanced = np.count_nonzero(is_over | (clocks - before == atari.SKIPPED))
        return counted(
            "environment steps missing or too many", abs(advanced - self._workload.work().units)
        )

    def _advantages(self) -> Check:
        rollout = {name: _host(leaf) for name, leaf in self._rollout.items() if name != "frames"}
        exact = reinforcement.advantages(
            rollout["rewards"],
            rollout["values"],
            np.maximum(rollout["ends"], rollout["cuts"]),
            np.zeros_like(rollout["ends"]),
            discount=self._workload.discount,
            trace=self._workload.trace,
            unroll=self._workload.num_steps,
        )
        return reinforcement.compared_advantages(rollout, exact, _ADVANTAGES * ROUNDING)

    def _networks(self) -> Iterator[Check]:
        frames = self._rollout["frames"].flatten(0, 1)
        rows = np.sort(self._rng.permutation(len(frames))[:_ROWS])
        weights = {name: weight.double() for name, weight in self._before.weights.items()}
        with torch.no_grad():
            logits, values = _network(weights, frames[rows], 0.0)
        what = "error of one number, relative to itself or to the root mean square of all"
        actual = _host(self._rollout["values"]).reshape(-1)[rows]
        bound = _VALUES * ROUNDING
        yield compared("values against float64", actual, values.numpy(), bound, what)
        taken = rows[rows < self._rollout["actions"].numel()]
        log_shares = logits[: len(taken)].log_softmax(dim=-1)
        actions = self._rollout["actions"].flatten()[taken]
        exact = log_shares.gather(-1, actions[:, None])[:, 0].numpy()
        actual = _host(self._rollout["log_probs"]).reshape(-1)[taken]
        yield compared("log probabilities against float64", actual, exact, bound, what)
        edges = log_shares.exp().cumsum(dim=-1)[:, :-1]
        chances = self._chances.flatten()[taken, None].double()
        low, high = ((chances + shift >= edges).sum(dim=-1) for shift in (-_SURE, _SURE))
        faults = int(((actions < low) | (actions > high)).sum())
        yield counted("actions other than those drawn", faults)

    def _converged(self) -> Iterator[Check]:
        before, output, count = self._before, self._output, self._workload.updates
        everything = {name: _host(part) for name, part in output.gradients.items()}
        if {*map(len, everything.values()), len(output.losses)} != {count}:
            yield counted("updates missing or too many", math.inf)
            return
        start, end = (
            Followed.begin(number, *({n: _host(t) for n, t in part.items()} for part in parts))
            for number, parts in (
                (before.number * count, (before.weights, before.mean, before.square)),
                (0, (output.weights, output.mean, output.square)),
            )
        )
        if not start.weights.keys() == end.mean.keys() == end.square.keys():
            yield counted("weights without moments", math.inf)
            return
        gradients = [{n: part[number] for n, part in everything.items()} for number in range(count)]
        yield reinforcement.check_learning(start.weights, end.weights, gradients)
        wanted = sorted(self._rng.permutation(count)[:_UPDATES].tolist())
        weights: dict[int, Arrays] = {}
        now = start
        for number, now in enumerate(self._workload.rule.follow(start, gradients)):
            if number in wanted:
                weights[number] = now.weights
        yield from reinforcement.check_updates(now, end, count, is_clipped=True)
        yield from reinforcement.check_slopes(
            (self._slopes(number, weights[number], gradients[number]) for number in wanted),
            loss_bound=_LOSS * ROUNDING,
            gradient_bound=_GRADIENTS * ROUNDING,
        )

    def _slopes(self, number: int, weights: Arrays, reported: Arrays) -> Slopes:
        batch = self._order.reshape(self._workload.updates, -1)[number]
        taken = {
            name: self._rollout[name].flatten()[batch]
            for name in ("actions", "log_probs", "advantages", "values")
        }
        frames = self._rollout["frames"].flatten(0, 1)[batch]
        surrogate = Surrogate(
            log_probs=taken["log_probs"].double(),
            values=taken["values"].double(),
            advantages=taken["advantages"].double(),
            clip=self._workload.clip,
            value_clip=self._workload.clip,
            value_weight=VALUE_WEIGHT,
            entropy_weight=self._workload.entropy,
            correction=1,
        )

        def loss(leaves: Mapping[str, torch.Tensor], side: float) -> torch.Tensor:
            logits, values = _network(leaves, frames, side)
            shares = logits.softmax(dim=-1)
            log_probs = shares.gather(-1, taken["actions"][:, None])[:, 0].log()
            return surrogate.loss(log_probs, values, -(shares * shares.log()).sum(dim=-1), side)

        return Slopes(
            loss=loss,
            weights=weights,
            reported_loss=float(self._output.losses[number]),
            reported=reported,
        )


def _network(
    weights: Mapping[str, torch.Tensor], frames: torch.Tensor, side: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and values; units as near to zero as roundings are taken to be on one side."""

    def rectified(inputs: torch.Tensor) -> torch.Tensor:
        return inputs * (inputs > -side * EDGE)

    inputs = frames.double() / 255
    for number, (_, _, stride) in enumerate(CONVOLUTIONS):
        weight, bias = (weights[f"convolutions.{number}.{part}"] for part in ("weight", "bias"))
        inputs = rectified(nn.functional.conv2d(inputs, weight, bias, stride))
    inputs = rectified(inputs.flatten(1) @ weights["hidden.weight"].T + weights["hidden.bias"])
    logits = inputs @ weights["actor.weight"].T + weights["actor.bias"]
    return logits, (inputs @ weights["critic.weight"].T + weights["critic.bias"])[:, 0]


WORKLOAD = TorchAtari
