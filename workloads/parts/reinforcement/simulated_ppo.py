"""Proximal policy optimisation on a simulation of brax: the workload that two rows share.

A step is a rollout of all environments and all updates from it
(`parts/reinforcement/brax_program.py`), and its unit is a step of one environment, counted by the
simulation's own counters and checked.

Everything is judged against something that does not share its code. Counters, resets, the order
of the samples and the observations of every step are compared exactly; actions, values,
advantages, rewards and statistics in float64; every update by Adam's formula, and the loss and
gradients of drawn minibatches by torch in float64. The physics of drawn steps is simulated again
in float64 on the host (`physics.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from appliance.records.journal import Check
from appliance.records.workload import Bound, Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.numerics.parameters import require_choice, require_positive, require_share
from workloads.parts.reinforcement import physics, reinforcement
from workloads.parts.reinforcement.perceptrons import forward_flops, training_flops
from workloads.parts.reinforcement.reinforcement import (
    ACTIVATIONS,
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

BUILDS_WITH = ("workloads.parts.reinforcement.brax_program",)
"""What building a row of this kind imports: JAX and brax, which start nothing by that."""
WIDTHS: Mapping[str, tuple[int, int]] = {"ant": (27, 8), "hopper": (11, 3)}
"""By environment: numbers of an observation and of an action."""
HIDDEN: Mapping[str, int] = {"ant": 2, "hopper": 1}
"""Positions that an observation leaves out: where the body is on the ground."""
COSTS: Mapping[str, float] = {"ant": 0.5, "hopper": 1e-3}
"""Of an action's square, in the reward."""
HEIGHTS: Mapping[str, float] = {"hopper": 1.25}
"""Of the body at position nought: the first position that is observed is its height."""
FASTEST: Mapping[str, float] = {"hopper": 10.0}
"""Velocities in an observation are cut off here."""
DEVIATION = "deviation"
_SEED = 2**32
_ROWS = 8192
"""Samples whose value is computed again, at most."""
_TRANSITIONS = 1024
"""Steps whose physics is simulated again, at most."""
_UPDATES = 8
"""Minibatches whose gradients are computed again, at most."""
# Roundings of float32, each four times or more what was measured; see the docstring.
_ACTIONS, _VALUES, _ADVANTAGES, _STATISTICS, _REWARDS = 64.0, 256.0, 32.0, 64.0, 64.0
_LOSS, _GRADIENTS = 128.0, 1024.0


@dataclass(kw_only=True)
class State:
    """Of JAX: `learner` (weights, optimiser, statistics) and `simulation`; `key` of the seed."""

    run: Callable[..., Any]
    learner: Any
    simulation: Any
    key: Any
    seed: int
    cycle: InputCycle


@dataclass(kw_only=True)
class Learned:
    """Everything that a step made, as arrays of JAX on the device.

    `rollout` has (steps, environments, ...), `gradients` (updates, ...) of each weight.
    """

    rollout: Mapping[str, Any]
    order: Any
    losses: Any
    gradients: Mapping[str, Any]
    weights: Mapping[str, Any]
    mean: Mapping[str, Any]
    square: Mapping[str, Any]
    statistics: Mapping[str, Any]

    @property
    def loss(self) -> Any:
        """Mean of all updates, for who follows the training."""
        return self.losses.mean()


@dataclass(frozen=True, kw_only=True)
class Before:
    """Copies on the host of what the next step starts from."""

    number: int
    seed: int
    count: int
    weights: Mapping[str, NDArray[np.float32]]
    mean: Mapping[str, NDArray[np.float32]]
    square: Mapping[str, NDArray[np.float32]]
    statistics: Mapping[str, NDArray[np.float32]]
    simulation: Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class SimulatedPpo(Workload[State, Learned]):
    """`minibatch` of `num_minibatches` has so many groups of `grouped` consecutive samples.

    `learning_rate` of Adam; `norm` of the whole gradient at most, 0 for any; `has_free_deviation`:
    the standard deviation of the actions is a weight of its own, not the policy's output. The
    policy has `policy_layers` hidden layers of `policy_width`, the value likewise.
    """

    domain: ClassVar[str] = "reinforcement learning"
    needs: ClassVar[frozenset[str]] = frozenset({"jax"})
    bound_by: ClassVar[Bound] = "latency"
    data_pattern: ClassVar[str] = "a simulation that the policy itself steers"

    environment: str = "ant"
    num_envs: int = 8192
    unroll: int = 5
    num_minibatches: int = 32
    minibatch: int = 1024
    grouped: int = 5
    epochs: int = 4
    episode: int = 1000
    policy_width: int = 32
    policy_layers: int = 4
    value_width: int = 256
    value_layers: int = 5
    activation: str = "swish"
    has_free_deviation: bool = False
    learning_rate: float = 3e-4
    norm: float = 0.0
    discount: float = 0.97
    trace: float = 0.95
    clip: float = 0.3
    value_clip: float = 0.0
    entropy: float = 0.01

    def __post_init__(self) -> None:
        require_choice("environment", self.environment, tuple(WIDTHS))
        require_choice("activation", self.activation, tuple(ACTIVATIONS))
        sizes = [name for name, value in vars(self).items() if type(value) is int]
        require_positive(self, *sizes)
        for name in ("learning_rate", "discount", "trace", "clip"):
            require_share(name, getattr(self, name))
        for name in ("norm", "value_clip", "entropy"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ParameterError(f"{name} is {getattr(self, name)}: give 0 or more")
        if self._samples % (self.num_envs * self.unroll):
            message = f"minibatch is {self.minibatch}: give so many that all minibatches together"
            raise ParameterError(f"{message} are whole unrolls of every environment")
        if self._length % self.grouped:
            message = f"grouped is {self.grouped}: give a divisor of {self._length}, the steps"
            raise ParameterError(f"{message} of each environment")

    @property
    def _samples(self) -> int:
        return self.num_minibatches * self.minibatch * self.grouped

    @property
    def _length(self) -> int:
        """Steps of each environment."""
        return self._samples // self.num_envs

    def work(self) -> Work:
        """Environment steps, and the networks' products; what a simulation computes is not counted.

        Both networks see every sample once as it is played and learn from it in each epoch; the
        value sees the last state of each environment as well.
        """
        samples, towers = self._samples, self._towers
        flops = forward_flops(towers["value"], self.num_envs)
        for sizes in towers.values():
            flops += forward_flops(sizes, samples) + self.epochs * training_flops(sizes, samples)
        return Work(units=samples, unit="environment steps", flops=flops, precision="float32")

    def num_parameters(self) -> int:
        shapes = [shape for tower in self._towers.items() for _, shape in _names(tower)]
        free = WIDTHS[self.environment][1] if self.has_free_deviation else 0
        return free + sum(math.prod(shape) for shape in shapes)

    @property
    def _towers(self) -> dict[str, list[int]]:
        width, actions = WIDTHS[self.environment]
        outputs = actions if self.has_free_deviation else 2 * actions
        return {
            "policy": [width, *[self.policy_width] * self.policy_layers, outputs],
            "value": [width, *[self.value_width] * self.value_layers, 1],
        }

    @property
    def _adam(self) -> Adam:
        epsilon = 1e-5 if self.norm else 1e-8
        return Adam(
            learning_rate=self.learning_rate, epsilon=epsilon, clip=self.norm, has_short_betas=True
        )

    @property
    def _settings(self) -> Any:
        from workloads.parts.reinforcement import brax_program  # noqa: PLC0415 - imports JAX

        return brax_program.Settings(
            environment=self.environment,
            episode=self.episode,
            num_envs=self.num_envs,
            unroll=self.unroll,
            rollouts=self._length // self.unroll,
            epochs=self.epochs,
            minibatches=self.num_minibatches,
            grouped=self.grouped,
            activation=self.activation,
            has_free_deviation=self.has_free_deviation,
            learning_rate=self.learning_rate,
            epsilon=self._adam.epsilon,
            norm=self.norm,
            discount=self.discount,
            trace=self.trace,
            reward_scale=REWARD_SCALE,
            clip=self.clip,
            value_clip=self.value_clip,
            value_weight=VALUE_WEIGHT,
            entropy_weight=self.entropy,
        )

    def build(self, target: Target, seed: int) -> State:
        from workloads.parts.reinforcement import brax_program, jax_devices  # noqa: PLC0415 - imports JAX

        device = jax_devices.device_of(target.device)
        settings = self._settings
        learner = brax_program.learner(self._first_weights(seed), settings)
        rng = np.random.default_rng(seed)
        key = jax_devices.seed_words(seed)
        placed = jax_devices.placed((learner, brax_program.begin(settings, rng), key), device)
        return State(
            run=brax_program.program(settings),
            learner=placed[0],
            simulation=placed[1],
            key=placed[2],
            seed=seed,
            cycle=InputCycle(of=2**31 - 1),
        )

    def _first_weights(self, seed: int) -> dict[str, NDArray[np.float32]]:
        rng = torch.Generator().manual_seed(seed)
        weights = reinforcement.drawn(self._towers, {"policy": POLICY_GAIN}, rng)
        if self.has_free_deviation:
            weights[DEVIATION] = np.zeros(WIDTHS[self.environment][1], np.float32)
        return weights

    def step(self, state: State) -> Learned:
        number = np.int32(state.cycle.advance())
        state.learner, state.simulation, record = state.run(
            state.learner, state.simulation, state.key, number
        )
        moments = _moments(state.learner)
        return Learned(
            weights=state.learner["weights"],
            mean=moments.mu,
            square=moments.nu,
            statistics=state.learner["statistics"],
            **record,
        )

    def wait(self, state: State) -> None:
        from workloads.parts.reinforcement import jax_devices  # noqa: PLC0415 - imports JAX

        jax_devices.wait((state.learner, state.simulation))

    def snapshot(self, state: State) -> Before:
        from workloads.parts.reinforcement import jax_devices  # noqa: PLC0415 - imports JAX

        moments, simulation = _moments(state.learner), state.simulation
        arrays = {
            "positions": simulation.pipeline_state.q,
            "velocities": simulation.pipeline_state.qd,
            "observations": simulation.obs,
            "first_positions": simulation.info["first_pipeline_state"].q,
            "first_velocities": simulation.info["first_pipeline_state"].qd,
            "first_observations": simulation.info["first_obs"],
            "counters": simulation.info["steps"],
            "dones": simulation.done,
            "returns": simulation.info["episode_metrics"]["sum_reward"],
        }
        return Before(
            number=state.cycle.number + 1,
            seed=state.seed,
            count=int(moments.count),
            weights=jax_devices.copied(state.learner["weights"]),
            mean=jax_devices.copied(moments.mu),
            square=jax_devices.copied(moments.nu),
            statistics=jax_devices.copied(state.learner["statistics"]),
            simulation=jax_devices.copied(arrays),
        )

    def check(self, before: object, state: State, output: Learned) -> Iterator[Check]:
        del state
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        return _Judge(self, before, output).checks()


REWARD_SCALE = 0.1
VALUE_WEIGHT = 0.5
POLICY_GAIN = 0.1
"""Of the policy's last matrix, so that the first actions are noise about nought."""


def _names(tower: tuple[str, list[int]]) -> list[tuple[str, tuple[int, ...]]]:
    return reinforcement.names_of(*tower)


def _moments(learner: Any) -> Any:
    from workloads.parts.reinforcement import brax_program  # noqa: PLC0415 - imports JAX

    return brax_program.moments(learner["optimizer"])


# ------------------------------------------------------------------ the judgement


class _Judge:
    """The checks of one step; everything on the host in float64, computed when asked for."""

    def __init__(self, workload: SimulatedPpo, before: Before, output: Learned) -> None:
        from workloads.parts.reinforcement import brax_program, jax_devices  # noqa: PLC0415 - imports JAX

        self._workload = workload
        self._before = before
        self._program = brax_program
        self._devices = jax_devices
        convert = jax_devices.all_in_float64
        self._rollout = convert(output.rollout)
        self._order = np.asarray(output.order)
        self._losses = jax_devices.in_float64(output.losses)
        self._gradients = convert(output.gradients)
        self._end = Followed.begin(0, *map(convert, (output.weights, output.mean, output.square)))
        self._statistics = convert(output.statistics)
        self._start = convert(before.simulation)
        self._rng = np.random.default_rng(before.seed % _SEED + before.number)

    def checks(self) -> Iterator[Check]:
        yield self._finite()
        yield from self._counters()
        yield from self._chain()
        yield self._shuffled()
        with np.errstate(all="ignore"):  # what is not a number is not within its bound
            yield from self._networks()
            yield self._travelled()
            yield self._advantages()
            yield from self._gathered()
            yield from self._converged()
            yield from self._physics()

    # -------------------------------------------------------------- exact

    def _finite(self) -> Check:
        groups = (self._rollout, self._gradients, self._end.weights, self._end.mean)
        leaves = [leaf for group in groups for leaf in group.values()]
        leaves += [*self._end.square.values(), *self._statistics.values(), self._losses]
        faults = sum(np.count_nonzero(~np.isfinite(leaf)) for leaf in leaves)
        return counted("numbers that are not finite", faults)

    def _counters(self) -> Iterator[Check]:
        """Steps by the simulation's own counters, which begin anew after each end."""
        before = self._shifted("counters") * (1 - self._shifted("dones"))
        advanced = np.sum(self._rollout["counters"] - before)
        yield counted(
            "environment steps missing or too many", abs(advanced - self._workload.work().units)
        )
        faults = differing(self._rollout["counters"], before + 1)
        yield counted("counters that did not go up by one", faults)
        is_long = self._rollout["counters"] >= self._workload.episode
        wrong = np.where(is_long, self._rollout["dones"] != 1, self._rollout["cuts"] != 0)
        yield counted("episodes cut off at the wrong step", np.count_nonzero(wrong))

    def _shifted(self, name: str) -> Array:
        """The same quantity one step before."""
        return np.concatenate([self._start[name][None], self._rollout[name][:-1]])

    def _chain(self) -> Iterator[Check]:
        """What a step begins with, what an end leads to, what is seen of the coordinates."""
        names = ("positions", "velocities", "observations")
        faults = sum(differing(self._rollout[n][0], self._start[n]) for n in names)
        yield counted("numbers that the rollout did not begin with", faults)
        is_over = self._rollout["dones"] == 1
        faults = 0.0
        for name in names:
            first = np.broadcast_to(self._start[f"first_{name}"], self._rollout[name][1:].shape)
            faults += int(np.count_nonzero(self._rollout[name][1:][is_over] != first[is_over]))
        yield counted("numbers of environments that did not begin anew", faults)
        yield counted("observations unlike the coordinates", self._unlike())
        exact = np.zeros_like(self._rollout["rewards"])
        running = self._start["returns"] * (1 - self._start["dones"])
        for step, rewards in enumerate(self._rollout["rewards"]):
            exact[step] = running = running + rewards
            running = running * (1 - self._rollout["dones"][step])
        sizes = np.abs(exact) + np.abs(self._rollout["rewards"]) + np.abs(self._start["returns"])
        yield compared(
            "rewards of episodes so far",
            self._rollout["returns"],
            exact,
            _ADVANTAGES * ROUNDING,
            "error of one sum, relative to its terms",
            sizes,
        )

    def _unlike(self) -> float:
        """Numbers observed that are not the coordinates; a height may be a rounding off."""
        name = self._workload.environment
        velocities = self._rollout["velocities"]
        if name in FASTEST:
            velocities = np.clip(velocities, -FASTEST[name], FASTEST[name])
        positions = self._rollout["positions"][..., HIDDEN[name] :].copy()
        near = np.zeros(WIDTHS[name][0])
        if name in HEIGHTS:
            positions[..., 0] += HEIGHTS[name]
            near[0] = 4 * ROUNDING * HEIGHTS[name]
        difference = self._rollout["observations"] - np.concatenate(
            [positions, velocities], axis=-1
        )
        return float(np.count_nonzero(~(np.abs(difference) <= near)))

    def _shuffled(self) -> Check:
        order = self._program.order_on_host(self._before.seed, self._before.number, self._settings)
        return counted("samples out of the order drawn", differing(self._order, order))

    @property
    def _settings(self) -> Any:
        return self._workload._settings  # noqa: SLF001 - the judge is the workload's own

    def _travelled(self) -> Check:
        """Rewards of the steps after which the episode goes on, from how far the body came."""
        cost = COSTS[self._name] * np.square(np.tanh(self._rollout["drawn"])).sum(axis=-1)
        place, seconds = self._rollout["positions"][..., 0], self._program.seconds(self._name)
        exact = (place[1:] - place[:-1]) / seconds + 1 - cost
        goes_on = self._rollout["dones"] == 0
        sizes = (np.abs(place[1:]) + np.abs(place[:-1])) / seconds + 1 + cost
        return compared(
            "rewards against the distance travelled",
            self._rollout["rewards"][goes_on],
            exact[goes_on],
            _REWARDS * ROUNDING,
            "error of one reward, relative to the terms that make it",
            sizes[goes_on],
        )

    # -------------------------------------------------------------- networks

    def _networks(self) -> Iterator[Check]:
        weights = _tensors(self._devices.all_in_float64(self._before.weights))
        observations = self._rollout["observations"].reshape(-1, WIDTHS[self._name][0])
        inputs = self._normalised(observations)
        drawn = self._rollout["drawn"].reshape(-1, WIDTHS[self._name][1])
        with torch.no_grad():
            mean, deviation = self._policy(weights, inputs[: len(drawn)])
            log_probs = _log_prob(mean, deviation, torch.from_numpy(drawn)).numpy()
            rows = self._drawn_rows(len(inputs), _ROWS)
            values = self._value(weights, inputs[rows]).numpy()
        noise = self._program.noise_on_host(
            self._before.seed, self._before.number, self._settings
        ).reshape(drawn.shape)
        exact = (mean + deviation * torch.from_numpy(noise)).numpy()
        sizes = np.abs(exact) + deviation.numpy() * (1 + np.abs(noise))
        what = "error of one number, relative to the terms that make it"
        yield compared("actions against float64", drawn, exact, _ACTIONS * ROUNDING, what, sizes)
        yield compared(
            "log probabilities against float64",
            self._rollout["log_probs"].reshape(-1),
            log_probs,
            _ACTIONS * ROUNDING,
            what,
            np.abs(log_probs) + WIDTHS[self._name][1],
        )
        yield compared(
            "values against float64",
            self._rollout["values"].reshape(-1)[rows],
            values,
            _VALUES * ROUNDING,
            "error of one value, relative to itself or to their root mean square",
        )

    @property
    def _name(self) -> str:
        return self._workload.environment

    def _drawn_rows(self, count: int, most: int) -> NDArray[np.int64]:
        return np.sort(self._rng.permutation(count)[:most])

    def _normalised(self, observations: Array) -> torch.Tensor:
        known = self._devices.all_in_float64(self._before.statistics)
        deviation = np.sqrt(known["squares"] / known["count"])
        low, high = self._program.SPREAD
        return torch.from_numpy((observations - known["mean"]) / np.clip(deviation, low, high))

    def _policy(
        self, weights: Mapping[str, torch.Tensor], inputs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        activate = ACTIVATIONS[self._workload.activation]
        out = reinforcement.perceptron(weights, "policy", inputs, activate)
        if self._workload.has_free_deviation:
            return out, weights[DEVIATION].exp().expand_as(out)
        mean, raw = out.chunk(2, dim=-1)
        return mean, torch.nn.functional.softplus(raw) + self._program.LEAST_DEVIATION

    def _value(self, weights: Mapping[str, torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        activate = ACTIVATIONS[self._workload.activation]
        return reinforcement.perceptron(weights, "value", inputs, activate)[..., 0]

    # -------------------------------------------------------------- sums

    def _advantages(self) -> Check:
        rollout = self._rollout
        exact = reinforcement.advantages(
            REWARD_SCALE * rollout["rewards"],
            rollout["values"],
            rollout["dones"] * (1 - rollout["cuts"]),
            rollout["cuts"],
            discount=self._workload.discount,
            trace=self._workload.trace,
            unroll=self._workload.unroll,
        )
        return reinforcement.compared_advantages(rollout, exact, _ADVANTAGES * ROUNDING)

    def _gathered(self) -> Iterator[Check]:
        known = self._devices.all_in_float64(self._before.statistics)
        seen = self._rollout["observations"][:-1].reshape(-1, WIDTHS[self._name][0])
        mean, squares = seen.mean(axis=0), np.square(seen - seen.mean(axis=0)).sum(axis=0)
        total = known["count"] + len(seen)
        deviation = mean - known["mean"]
        exact = {
            "count": total,
            "mean": known["mean"] + deviation * len(seen) / total,
            "squares": known["squares"]
            + squares
            + deviation**2 * known["count"] * len(seen) / total,
        }
        spread = np.sqrt(exact["squares"] / total)
        sizes = {
            "count": total,
            "mean": np.abs(exact["mean"]) + np.abs(seen).mean(axis=0) + spread,
            "squares": exact["squares"] + total * np.square(seen).mean(axis=0) * ROUNDING,
        }
        for name, value in exact.items():
            yield compared(
                f"statistics of observations: {name}",
                self._statistics[name],
                np.asarray(value),
                _STATISTICS * ROUNDING,
                "error of one number, relative to the terms that make it",
                np.asarray(sizes[name]),
            )

    # -------------------------------------------------------------- updates

    def _converged(self) -> Iterator[Check]:
        convert = self._devices.all_in_float64
        before = self._before
        start = Followed.begin(
            before.count, *map(convert, (before.weights, before.mean, before.square))
        )
        count = self._workload.epochs * self._workload.num_minibatches
        if {len(part) for part in (*self._gradients.values(), self._losses)} != {count}:
            yield counted("updates missing or too many", math.inf)
            return
        gradients = [
            {name: part[number] for name, part in self._gradients.items()}
            for number in range(count)
        ]
        yield reinforcement.check_learning(start.weights, self._end.weights, gradients)
        wanted = set(self._drawn_rows(count, _UPDATES).tolist())
        weights: dict[int, Arrays] = {}
        now = start
        for number, now in enumerate(self._workload._adam.follow(start, gradients)):  # noqa: SLF001
            if number in wanted:
                weights[number] = now.weights
        yield from reinforcement.check_updates(
            now, self._end, count, is_clipped=self._workload.norm > 0
        )
        yield from reinforcement.check_slopes(
            (self._slopes(number, weights[number], gradients[number]) for number in sorted(wanted)),
            loss_bound=_LOSS * ROUNDING,
            gradient_bound=_GRADIENTS * ROUNDING,
        )

    def _slopes(self, number: int, weights: Arrays, reported: Arrays) -> Slopes:
        batch = self._order.reshape(len(self._losses), -1)[number]
        taken = {
            name: torch.from_numpy(self._units(name)[batch].reshape(-1, *shape))
            for name, shape in (
                ("observations", (WIDTHS[self._name][0],)),
                ("drawn", (WIDTHS[self._name][1],)),
                ("log_probs", ()),
                ("values", ()),
                ("advantages", ()),
            )
        }
        inputs = self._normalised(taken["observations"].numpy())
        surrogate = Surrogate(
            log_probs=taken["log_probs"],
            values=taken["values"],
            advantages=taken["advantages"],
            clip=self._workload.clip,
            value_clip=self._workload.value_clip,
            value_weight=VALUE_WEIGHT,
            entropy_weight=self._workload.entropy,
        )

        def loss(leaves: Mapping[str, torch.Tensor], side: float) -> torch.Tensor:
            mean, deviation = self._policy(leaves, inputs)
            entropy = (deviation.log() + 0.5 + 0.5 * math.log(2 * math.pi)).sum(dim=-1)
            log_probs = _log_prob(mean, deviation, taken["drawn"])
            return surrogate.loss(log_probs, self._value(leaves, inputs), entropy, side)

        return Slopes(
            loss=loss,
            weights=weights,
            reported_loss=float(self._losses[number]),
            reported=reported,
        )

    def _units(self, name: str) -> Array:
        """Samples of each environment in order, then cut into groups."""
        leaf = np.swapaxes(self._rollout[name][: self._workload._length], 0, 1)  # noqa: SLF001
        return leaf.reshape(-1, self._workload.grouped, *leaf.shape[2:])

    # -------------------------------------------------------------- physics

    def _physics(self) -> Iterator[Check]:
        length, count = self._rollout["rewards"].shape
        rows = self._drawn_rows(length * count, _TRANSITIONS)
        at = {
            name: leaf[:length].reshape(length * count, -1)[rows]
            for name, leaf in self._rollout.items()
        }
        after = {
            name: self._rollout[name][1:].reshape(length * count, -1)[rows]
            for name in ("positions", "velocities")
        }
        steps = physics.Steps(
            advance=partial(self._program.advance, self._name),
            start={name: at[name] for name in after},
            actions=np.tanh(at["drawn"]),
            after={**after, "rewards": at["rewards"]},
            goes_on=at["dones"][:, 0] == 0,
        )
        yield from steps.checks()
        is_long = at["counters"][:, 0] >= self._workload.episode
        wrong = steps.ended_wrongly(np.where(is_long, 1 - at["cuts"][:, 0], at["dones"][:, 0]))
        wrong |= is_long & (at["dones"][:, 0] != 1)
        yield counted("episodes that ended wrongly", np.count_nonzero(wrong))


def _tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(part.copy()) for name, part in arrays.items()}


def _log_prob(mean: torch.Tensor, deviation: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """Logarithm of the density of tanh(drawn), by the change of variables."""
    normal = ((drawn - mean) / deviation).square() / -2 - (deviation * math.sqrt(2 * math.pi)).log()
    total: torch.Tensor = (normal - torch.log1p(-torch.tanh(drawn).square())).sum(dim=-1)
    return total
