"""Learn a game by deep Q-learning: SpaceInvaders-MinAtar, played and learned on the device.

A step plays 5 rounds of 128 games, which an epsilon-greedy policy steers, writes them over the
oldest of the 131,072 transitions of the replay buffer, draws 65,536 of these and makes one update
of a perceptron of 120 and 84 rectified units with Adam. The target network follows every 25
updates. Its unit is a step of one game, counted by the games' own clocks. The buffer is full
before the first step: the host has filled it by playing at random.

The games know no chance, so the host plays the same actions again and every field, reward and end
must be equal; so must the buffer, all of it, the places drawn from it, and the target network.
Actions are those of the network in float64 wherever it has a favourite. Loss and gradients are
held to float64, and the update to Adam's formula (`parts/reinforcement/reinforcement.py`).

Healthy errors reach at most a quarter of their bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.numerics.parameters import require_choice, require_positive, require_share
from workloads.parts.reinforcement import reinforcement
from workloads.parts.reinforcement.perceptrons import forward_flops, training_flops
from workloads.parts.reinforcement.reinforcement import (
    EDGE,
    ROUNDING,
    Adam,
    Arrays,
    Followed,
    Slopes,
    counted,
    differing,
)

WIDTH, ACTIONS = 600, 4
"""Fields of an observation (10 x 10, six kinds of thing); what a player can do."""
GAMES = ("SpaceInvaders-MinAtar",)
PROGRAM = "workloads.parts.reinforcement.dqn_program"
"""Brings gymnax, whose games make arrays on JAX's default device as they are imported."""
_LOSS, _GRADIENTS = 128.0, 1024.0
_SURE = 1e-4
"""Lead of the best action over the second, relative to the largest value, that must decide."""


@dataclass(kw_only=True)
class State:
    """Of JAX: `learner` (weights, target, optimiser), `games`, `buffer`, and the seed's `key`."""

    run: Callable[..., Any]
    learner: Any
    games: Any
    buffer: Any
    key: Any
    seed: int
    cycle: InputCycle


@dataclass(kw_only=True)
class Learned:
    """Everything that a step made, as arrays of JAX on the device.

    `rounds` has (rounds, games, ...); `games` is how they stand now, `buffer` likewise.
    """

    rounds: Mapping[str, Any]
    games: Any
    buffer: Mapping[str, Any]
    loss: Any
    gradients: Mapping[str, Any]
    weights: Mapping[str, Any]
    target: Mapping[str, Any]
    mean: Mapping[str, Any]
    square: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Before:
    """Copies on the host of what the next step starts from."""

    number: int
    seed: int
    count: int
    learner: Mapping[str, Any]
    mean: Arrays
    square: Arrays
    games: Any
    buffer: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Dqn(Workload[State, Learned]):
    """`buffer`: transitions that the replay buffer holds.

    Over the first `explore_until` environment steps the share of random actions falls from 1 to
    `explore`.
    """

    summary: ClassVar[str] = "Deep Q-learning of SpaceInvaders-MinAtar, played on the device"
    version: ClassVar[int] = 1
    domain: ClassVar[str] = "reinforcement learning"
    needs: ClassVar[frozenset[str]] = frozenset({"jax"})
    bound_by: ClassVar[Bound] = "memory"
    data_pattern: ClassVar[str] = "a game that the learner itself plays"
    builds_with: ClassVar[tuple[str, ...]] = ("jax", "optax", PROGRAM)
    starts_when_imported: ClassVar[tuple[str, ...]] = (PROGRAM,)
    small: ClassVar[Parameters] = {
        "num_envs": 16,
        "batch": 256,
        "buffer": 512,
        "explore_until": 2000,
        "target_every": 2,
    }
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one round more": {"rounds": 6},
        "shorter sight": {"discount": 0.95},
        "more random": {"explore": 0.2},
        "wider": {"second_width": 100},
    }

    game: str = GAMES[0]
    num_envs: int = 128
    rounds: int = 5
    batch: int = 65_536
    buffer: int = 131_072
    first_width: int = 120
    second_width: int = 84
    target_every: int = 25
    learning_rate: float = 2.5e-4
    discount: float = 0.99
    explore: float = 0.05
    explore_until: int = 250_000

    def __post_init__(self) -> None:
        require_choice("game", self.game, GAMES)
        require_positive(self, *(n for n, value in vars(self).items() if type(value) is int))
        for name in ("learning_rate", "discount", "explore"):
            require_share(name, getattr(self, name))
        if self.buffer % self.num_envs or self.buffer < self.num_envs * (self.rounds + 2):
            least = self.num_envs * (self.rounds + 2)
            message = f"buffer is {self.buffer}: give a multiple of num_envs, {least} or more"
            raise ParameterError(message)

    def work(self) -> Work:
        """Environment steps, and the networks' products; what a game computes is not counted.

        Each round asks the network what to do; of a batch the target network says what follows,
        and the network learns.
        """
        steps = self.num_envs * self.rounds
        flops = forward_flops(self._sizes, steps + self.batch)
        flops += training_flops(self._sizes, self.batch)
        return Work(units=steps, unit="environment steps", flops=flops, precision="float32")

    @property
    def _sizes(self) -> list[int]:
        return [WIDTH, self.first_width, self.second_width, ACTIONS]

    def num_parameters(self) -> int:
        return sum(int(np.prod(shape)) for _, shape in reinforcement.names_of("q", self._sizes))

    @property
    def _settings(self) -> Any:
        from workloads.parts.reinforcement import dqn_program  # noqa: PLC0415 - imports JAX

        return dqn_program.Settings(
            game=self.game,
            num_envs=self.num_envs,
            rounds=self.rounds,
            slots=self.buffer // self.num_envs,
            batch=self.batch,
            learning_rate=self.learning_rate,
            discount=self.discount,
            target_every=self.target_every,
            exploration=(1.0, self.explore, self.explore_until),
        )

    def build(self, target: Target, seed: int) -> State:
        from workloads.parts.reinforcement import dqn_program, jax_devices  # noqa: PLC0415 - imports JAX

        settings = self._settings
        rng = torch.Generator().manual_seed(seed)
        weights = reinforcement.drawn({"q": self._sizes}, {"q": 1.0}, rng)
        games, buffer = dqn_program.begin(settings, np.random.default_rng(seed))
        parts = (
            dqn_program.learner(weights, settings),
            games,
            buffer,
            jax_devices.seed_words(seed),
        )
        device = jax_devices.device_of(target.device)
        learner, games, buffer, key = jax_devices.placed(parts, device)
        return State(
            run=dqn_program.program(settings),
            learner=learner,
            games=games,
            buffer=buffer,
            key=key,
            seed=seed,
            cycle=InputCycle(of=2**31 - 1),
        )

    def step(self, state: State) -> Learned:
        number = np.int32(state.cycle.advance())
        state.learner, state.games, state.buffer, record = state.run(
            state.learner, state.games, state.buffer, state.key, number
        )
        moments = state.learner["optimizer"][0]
        return Learned(
            games=state.games,
            buffer=state.buffer,
            weights=state.learner["weights"],
            target=state.learner["target"],
            mean=moments.mu,
            square=moments.nu,
            **record,
        )

    def wait(self, state: State) -> None:
        from workloads.parts.reinforcement import jax_devices  # noqa: PLC0415 - imports JAX

        jax_devices.wait((state.learner, state.games, state.buffer))

    def snapshot(self, state: State) -> Before:
        from workloads.parts.reinforcement import jax_devices  # noqa: PLC0415 - imports JAX

        moments = jax_devices.copied(state.learner["optimizer"][0])
        learner = {name: state.learner[name] for name in ("weights", "target", "updates")}
        return Before(
            number=state.cycle.number + 1,
            seed=state.seed,
            count=int(moments.count),
            learner=jax_devices.copied(learner),
            mean=moments.mu,
            square=moments.nu,
            games=jax_devices.copied(state.games),
            buffer=jax_devices.copied(state.buffer),
        )

    def check(self, before: object, state: State, output: Learned) -> Iterator[Check]:
        del state
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        return _Judge(self, before, output).checks()


# ------------------------------------------------------------------ the judgement


class _Judge:
    """The checks of one step, on the host."""

    def __init__(self, workload: Dqn, before: Before, output: Learned) -> None:
        from workloads.parts.reinforcement import dqn_program, jax_devices  # noqa: PLC0415 - imports JAX

        self._workload = workload
        self._before = before
        self._output = output
        self._program = dqn_program
        self._devices = jax_devices
        self._rounds = {name: np.asarray(leaf) for name, leaf in output.rounds.items()}
        self._buffer = {name: np.asarray(leaf) for name, leaf in output.buffer.items()}
        steps = int(before.games["steps"])
        settings = workload._settings  # noqa: SLF001 - the judge is the workload's own
        self._drawn = dqn_program.draws_on_host(before.seed, before.number, steps, settings)

    def checks(self) -> Iterator[Check]:
        with np.errstate(all="ignore"):  # what is not a number is not within its bound
            yield self._clocks()
            yield from self._replayed()
            yield self._stored()
            yield self._followed()
            yield self._chosen()
            yield from self._converged()

    def _clocks(self) -> Check:
        """Steps by the games' own clocks, which an end sets back to nought."""
        times, ends = self._rounds["times"], self._rounds["ends"] + self._rounds["cuts"]
        before = np.concatenate([np.asarray(self._before.games["state"].time)[None], times[:-1]])
        advanced = np.where(ends > 0, times == 0, times == before + 1).sum()
        missing = abs(int(advanced) - int(self._workload.work().units))
        return counted("environment steps missing or too many", missing)

    def _replayed(self) -> Iterator[Check]:
        games, seen = self._program.replay(
            self._workload.game, self._before.games, self._rounds["actions"]
        )
        faults = sum(
            differing(self._rounds[name][number], leaf)
            for number, one in enumerate(seen)
            for name, leaf in one.items()
        )
        yield counted("fields, rewards and ends unlike the host's", faults)
        pairs = zip(*map(self._devices.leaves, (self._output.games, games)), strict=True)
        faults = sum(differing(np.asarray(actual), exact) for actual, exact in pairs)
        yield counted("games that stand otherwise than the host's", faults)

    def _stored(self) -> Check:
        before, rounds = self._before.buffer, self._workload.rounds
        slots = len(before["actions"])
        rows = (int(before["oldest"]) + np.arange(rounds)) % slots
        faults = differing(self._buffer["oldest"], (before["oldest"] + rounds) % slots)
        for name in self._program.STORED:
            exact = before[name].copy()
            exact[rows] = self._rounds[name]
            faults += differing(self._buffer[name], exact)
        return counted("transitions not as stored", faults)

    def _followed(self) -> Check:
        """The target network is that of before, or the new weights when its turn has come."""
        is_due = (int(self._before.learner["updates"]) + 1) % self._workload.target_every == 0
        exact = self._output.weights if is_due else self._before.learner["target"]
        faults = sum(
            differing(np.asarray(self._output.target[name]), np.asarray(exact[name]))
            for name in exact
        )
        return counted("weights of the target network not as they should be", faults)

    def _chosen(self) -> Check:
        """Actions unlike those drawn, or unlike the best wherever one leads clearly."""
        weights = _tensors(self._devices.all_in_float64(self._before.learner["weights"]))
        seen = torch.from_numpy(self._rounds["observations"].astype(np.float64))
        values = _q_values(weights, seen, 0.0)
        best = values.topk(2, dim=-1)
        lead = (best.values[..., 0] - best.values[..., 1]) / values.abs().amax(dim=-1)
        is_random = self._drawn["chance"] < self._drawn["threshold"][:, None]
        wanted = np.where(is_random, self._drawn["random"], best.indices[..., 0].numpy())
        is_sure = is_random | (lead > _SURE).numpy()
        faults = np.count_nonzero((self._rounds["actions"] != wanted) & is_sure)
        return counted("actions not taken as drawn or as best", faults)

    def _converged(self) -> Iterator[Check]:
        convert, before, output = self._devices.all_in_float64, self._before, self._output
        weights = convert(before.learner["weights"])
        start = Followed.begin(before.count, weights, convert(before.mean), convert(before.square))
        gradients = convert(output.gradients)
        end = Followed.begin(0, *map(convert, (output.weights, output.mean, output.square)))
        yield reinforcement.check_learning(weights, end.weights, [gradients])
        rule = Adam(learning_rate=self._workload.learning_rate, epsilon=1e-8, has_short_betas=True)
        exact = list(rule.follow(start, [gradients]))[-1]
        yield from reinforcement.check_updates(exact, end, 1)
        slopes = Slopes(
            loss=self._loss(),
            weights=weights,
            reported_loss=float(np.asarray(output.loss)),
            reported=gradients,
        )
        yield from reinforcement.check_slopes(
            [slopes], loss_bound=_LOSS * ROUNDING, gradient_bound=_GRADIENTS * ROUNDING
        )

    def _loss(self) -> reinforcement.Loss:
        slots = len(self._buffer["actions"])
        row = (int(self._buffer["oldest"]) + self._drawn["ages"]) % slots
        games = self._drawn["games"]
        target = _tensors(self._devices.all_in_float64(self._before.learner["target"]))

        def taken(name: str, row: NDArray[Any]) -> torch.Tensor:
            return torch.from_numpy(self._buffer[name][row, games].astype(np.float64))

        next_values = _q_values(target, taken("observations", (row + 1) % slots), 0.0)
        goes_on = self._workload.discount * (1 - taken("ends", row))
        targets = taken("rewards", row) + goes_on * next_values.amax(dim=-1)
        actions = taken("actions", row).long()[:, None]
        seen = taken("observations", row)

        def loss(weights: Mapping[str, torch.Tensor], side: float) -> torch.Tensor:
            chosen = _q_values(weights, seen, side).gather(-1, actions)[:, 0]
            return (chosen - targets).square().mean()

        return loss


def _tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(part.copy()) for name, part in arrays.items()}


def _q_values(weights: Mapping[str, torch.Tensor], seen: torch.Tensor, side: float) -> torch.Tensor:
    """Value of each action; units as near to zero as roundings are taken to be on one side."""

    def rectified(inputs: torch.Tensor) -> torch.Tensor:
        return inputs * (inputs > -side * EDGE)

    return reinforcement.perceptron(weights, "q", seen, rectified)


WORKLOAD = Dqn
