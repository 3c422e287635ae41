"""One update of proximal policy optimisation on a brax simulation, as one program of JAX.

The rollout, the advantages, the shuffles and all updates are compiled together and run on the
device without a word from the host. What the check needs is written out on the way: the
simulation's coordinates before every step, and the gradients of every update. All random numbers
come from JAX's counter-based generator (threefry), keyed with the seed and the number of the
step, so every device draws the same.

Import it inside a function: it imports JAX and brax.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.parts.reinforcement import jax_devices
from workloads.parts.reinforcement.jax_devices import quietly

import jax  # isort: skip
import optax  # isort: skip
from jax import numpy as jnp  # isort: skip


def _brax() -> tuple[Any, Any, Any]:
    from brax import envs  # noqa: PLC0415 - it writes to stderr as it loads
    from brax.envs.wrappers import training  # noqa: PLC0415
    from brax.generalized import constraint  # noqa: PLC0415

    return envs, training, constraint


envs, training, constraint = quietly(_brax)

ACTIVATIONS = {"swish": jax.nn.swish, "tanh": jnp.tanh}
LEAST_DEVIATION = 1e-3
"""Added to the standard deviation of an action."""
SPREAD = (1e-6, 1e6)
"""Limits of the standard deviation by which observations are divided."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the program is compiled for; see the workload's parameters of the same names."""

    environment: str
    episode: int
    num_envs: int
    unroll: int
    rollouts: int
    epochs: int
    minibatches: int
    grouped: int
    activation: str
    has_free_deviation: bool
    learning_rate: float
    epsilon: float
    norm: float
    discount: float
    trace: float
    reward_scale: float
    clip: float
    value_clip: float
    value_weight: float
    entropy_weight: float

    @property
    def length(self) -> int:
        """Steps of each environment."""
        return self.unroll * self.rollouts

    @property
    def units(self) -> int:
        """What is shuffled: samples, or groups of consecutive ones."""
        return self.length * self.num_envs // self.grouped


@lru_cache(maxsize=8)
def environment(name: str) -> Any:
    """The simulation without wrappers."""
    return quietly(lambda: envs.get_environment(name))


def optimizer(settings: Settings) -> Any:
    """Adam, after the clip of the gradient's norm if there is one."""
    adam = optax.adam(settings.learning_rate, eps=settings.epsilon)
    if not settings.norm:
        return adam
    return optax.chain(optax.clip_by_global_norm(settings.norm), adam)


def moments(state: Any) -> Any:
    """The part of the optimiser's state that has `count`, `mu` and `nu`."""
    return next(part for part in jax.tree.leaves(state, is_leaf=_has_moments) if _has_moments(part))


def _has_moments(part: Any) -> bool:
    return hasattr(part, "mu")


# ------------------------------------------------------------------ the networks


def apply(weights: Any, tower: str, inputs: Any, activation: str) -> Any:
    last = max(int(name.split(".")[1]) for name in weights if name.startswith(f"{tower}."))
    for number in range(last + 1):
        inputs = inputs @ weights[f"{tower}.{number}.matrix"] + weights[f"{tower}.{number}.bias"]
        if number < last:
            inputs = ACTIVATIONS[activation](inputs)
    return inputs


def policy(weights: Any, inputs: Any, settings: Settings) -> tuple[Any, Any]:
    """Mean and standard deviation of the normal that an action is drawn from, then squashed."""
    out = apply(weights, "policy", inputs, settings.activation)
    if settings.has_free_deviation:
        return out, jnp.broadcast_to(jnp.exp(weights["deviation"]), out.shape)
    mean, raw = jnp.split(out, 2, axis=-1)
    return mean, jax.nn.softplus(raw) + LEAST_DEVIATION


def log_prob(mean: Any, deviation: Any, drawn: Any) -> Any:
    """Logarithm of the density of tanh(drawn)."""
    normal = -0.5 * jnp.square((drawn - mean) / deviation) - jnp.log(deviation)
    normal -= 0.5 * jnp.log(2 * jnp.pi)
    squash = 2 * (jnp.log(2.0) - drawn - jax.nn.softplus(-2 * drawn))
    return jnp.sum(normal - squash, axis=-1)


def value(weights: Any, inputs: Any, settings: Settings) -> Any:
    return apply(weights, "value", inputs, settings.activation)[..., 0]


def normalised(observations: Any, statistics: Any) -> Any:
    deviation = jnp.sqrt(statistics["squares"] / statistics["count"])
    return (observations - statistics["mean"]) / jnp.clip(deviation, *SPREAD)


def _gathered(statistics: Any, observations: Any) -> Any:
    """Statistics with a batch of observations (samples, width) added to them."""
    count = observations.shape[0]
    total = statistics["count"] + count
    mean = observations.mean(axis=0)
    squares = jnp.square(observations - mean).sum(axis=0)
    deviation = mean - statistics["mean"]
    return {
        "count": total,
        "mean": statistics["mean"] + deviation * (count / total),
        "squares": statistics["squares"]
        + squares
        + jnp.square(deviation) * (statistics["count"] * count / total),
    }


# ------------------------------------------------------------------ one update


@lru_cache(maxsize=8)
def program(settings: Settings) -> Any:
    """The compiled function of a step: learner and simulation as it leaves them, and its record."""
    env = training.wrap(environment(settings.environment), episode_length=settings.episode)

    def update(learner: Any, simulation: Any, seed: Any, number: Any) -> Any:
        return quietly(lambda: traced(learner, simulation, seed, number))  # as it is traced

    def traced(learner: Any, simulation: Any, seed: Any, number: Any) -> Any:
        key = jax.random.fold_in(seed, number)
        simulation, rollout = _rollout(env, learner, simulation, key, settings)
        advantages = _advantages(rollout, settings)
        order = _order(key, settings)
        samples = _samples(rollout, advantages, settings)
        learned, losses, gradients = _learn(learner, samples, order, settings)
        observations = rollout["observations"][:-1]
        learned["statistics"] = _gathered(
            learner["statistics"], observations.reshape(-1, observations.shape[-1])
        )
        record = {
            "rollout": {**rollout, "advantages": advantages},
            "order": order,
            "losses": losses,
            "gradients": gradients,
        }
        return jax_devices.strong((learned, simulation, record))

    with_precision = jax.default_matmul_precision("highest")
    return jax.jit(with_precision(update))


def noise(key: Any, settings: Settings) -> Any:
    """Normal numbers of all actions of a step."""
    shape = (settings.length, settings.num_envs, environment(settings.environment).action_size)
    return jax.random.normal(jax.random.fold_in(key, 0), shape, jnp.float32)


def _order(key: Any, settings: Settings) -> Any:
    """For each epoch the units in the order in which minibatches take them."""
    keys = [jax.random.fold_in(key, 1 + epoch) for epoch in range(settings.epochs)]
    orders = [jax.random.permutation(one, settings.units) for one in keys]
    return jnp.stack(orders).astype(jnp.int32)


def _rollout(
    env: Any, learner: Any, simulation: Any, key: Any, settings: Settings
) -> tuple[Any, Any]:
    weights, statistics = learner["weights"], learner["statistics"]

    def one(state: Any, normal: Any) -> tuple[Any, Any]:
        inputs = normalised(state.obs, statistics)
        mean, deviation = policy(weights, inputs, settings)
        drawn = mean + deviation * normal
        after = env.step(state, jnp.tanh(drawn))
        return after, {
            "observations": state.obs,
            "positions": state.pipeline_state.q,
            "velocities": state.pipeline_state.qd,
            "drawn": drawn,
            "log_probs": log_prob(mean, deviation, drawn),
            "values": value(weights, inputs, settings),
            "rewards": after.reward,
            "dones": after.done,
            "cuts": after.info["truncation"],
            "counters": after.info["steps"],
            "returns": after.info["episode_metrics"]["sum_reward"],
        }

    simulation, rollout = jax.lax.scan(one, simulation, noise(key, settings))
    last = {
        "observations": simulation.obs,
        "positions": simulation.pipeline_state.q,
        "velocities": simulation.pipeline_state.qd,
        "values": value(weights, normalised(simulation.obs, statistics), settings),
    }
    rollout |= {name: jnp.concatenate([rollout[name], leaf[None]]) for name, leaf in last.items()}
    return simulation, rollout


def _advantages(rollout: Any, settings: Settings) -> Any:
    goes_on = settings.discount * (1 - rollout["dones"] * (1 - rollout["cuts"]))
    values = rollout["values"]
    surprise = settings.reward_scale * rollout["rewards"] + goes_on * values[1:] - values[:-1]
    is_last = jnp.arange(settings.length) % settings.unroll == settings.unroll - 1

    def add(running: Any, step: Any) -> tuple[Any, Any]:
        surprise, goes_on, cut, is_last = step
        running = jnp.where(is_last, 0.0, running)
        running = (1 - cut) * (surprise + settings.trace * goes_on * running)
        return running, running

    steps = (surprise, goes_on, rollout["cuts"], is_last)
    return jax.lax.scan(add, jnp.zeros(settings.num_envs), steps, reverse=True)[1]


def _samples(rollout: Any, advantages: Any, settings: Settings) -> Any:
    """All samples, (units, grouped, ...): steps of one environment lie beside each other."""

    def flat(leaf: Any) -> Any:
        leaf = jnp.swapaxes(leaf[: settings.length], 0, 1)
        return leaf.reshape(settings.units, settings.grouped, *leaf.shape[2:])

    names = ("observations", "drawn", "log_probs", "values")
    return {"advantages": flat(advantages), **{name: flat(rollout[name]) for name in names}}


def _learn(learner: Any, samples: Any, order: Any, settings: Settings) -> Any:
    rule = optimizer(settings)
    batches = order.reshape(settings.epochs * settings.minibatches, -1)

    def learn(now: Any, batch: Any) -> tuple[Any, Any]:
        weights, state = now
        taken = jax.tree.map(lambda leaf: leaf[batch].reshape(-1, *leaf.shape[2:]), samples)
        loss, gradient = jax.value_and_grad(_loss)(weights, taken, learner["statistics"], settings)
        moves, state = rule.update(gradient, state, weights)
        return (optax.apply_updates(weights, moves), state), (loss, gradient)

    start = (learner["weights"], learner["optimizer"])
    (weights, state), (losses, gradients) = jax.lax.scan(learn, start, batches)
    return {"weights": weights, "optimizer": state}, losses, gradients


def _loss(weights: Any, taken: Any, statistics: Any, settings: Settings) -> Any:
    inputs = normalised(taken["observations"], statistics)
    mean, deviation = policy(weights, inputs, settings)
    ratio = jnp.exp(log_prob(mean, deviation, taken["drawn"]) - taken["log_probs"])
    gain = taken["advantages"]
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    held = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
    actor = -jnp.minimum(ratio * gain, held * gain).mean()
    targets = taken["advantages"] + taken["values"]
    now = value(weights, inputs, settings)
    wrong = jnp.square(now - targets)
    if settings.value_clip:
        near = jnp.clip(now - taken["values"], -settings.value_clip, settings.value_clip)
        wrong = jnp.maximum(wrong, jnp.square(taken["values"] + near - targets))
    entropy = jnp.sum(0.5 + 0.5 * jnp.log(2 * jnp.pi) + jnp.log(deviation), axis=-1).mean()
    return actor + settings.value_weight * 0.5 * wrong.mean() - settings.entropy_weight * entropy


# ------------------------------------------------------------------ the simulation in float64


@lru_cache(maxsize=8)
def _exact_environment(name: str) -> Any:
    """The simulation with all its numbers in float64, on the host."""
    with jax_devices.on_host_in_float64():
        env = quietly(lambda: envs.get_environment(name))
        env.sys = jax.tree.map(_doubled, env.sys)
    return env


def _started(env: Any, positions: Any, velocities: Any) -> tuple[Any, Any]:
    """A start state and its observation; all else that the simulation keeps follows from these."""
    start = env.pipeline_init(positions, velocities)
    return start, env._get_obs(start)  # noqa: SLF001 - the environment's own


@lru_cache(maxsize=8)
def _exact_start(name: str) -> Any:
    """The library's start states in float64 on the host, from coordinates."""
    return jax.jit(jax.vmap(partial(_started, _exact_environment(name))))


@lru_cache(maxsize=8)
def _exact(name: str) -> Any:
    """The library's own step in float64 on the host, from coordinates and an action."""
    env = _exact_environment(name)

    def advance(positions: Any, velocities: Any, action: Any, search: Any) -> Any:
        start, seen = _started(env, positions, velocities)
        zero = jnp.zeros((), positions.dtype)
        state = envs.State(start, seen, zero, zero, {})
        with inexact_search(search):
            after = env.step(state, action)
        return (
            start,
            state.obs,
            {
                "positions": after.pipeline_state.q,
                "velocities": after.pipeline_state.qd,
                "rewards": after.reward,
                "dones": after.done,
            },
        )

    return jax.jit(jax.vmap(advance))


@contextmanager
def inexact_search(roundings: Any) -> Iterator[None]:
    """While a step is traced: the objective of its search is off by so many roundings of float32.

    The library finds the forces of contacts by four steps down a gradient. How long each is, it
    decides by comparing two values of the objective, and where these are nearly equal float32
    decides by its own rounding, which no other start of the step can bring about in float64. A
    value f is off by up to `roundings` times 2**-24 (f + sqrt(f f0)), with f0 at no force, by
    another part of it at each point: of the sum of squares, and of the residuals in it, whose
    terms cancel. Gradients are exact. At 0 all is as the library computes it.
    """
    search = constraint.jaxopt.ProjectedGradient

    def prepared(objective: Any, *rest: Any, **options: Any) -> Any:
        def value(forces: Any) -> Any:
            exact = objective(forces)
            size = exact + jnp.sqrt(exact * objective(jnp.zeros_like(forces)))
            off = roundings * 2.0**-24 * _scattered(exact, roundings) * size
            return exact + jax.lax.stop_gradient(jnp.where(roundings > 0, off, 0.0))

        return search(value, *rest, **options)

    library = constraint.jaxopt
    constraint.jaxopt = SimpleNamespace(ProjectedGradient=prepared, projection=library.projection)
    try:
        yield
    finally:
        constraint.jaxopt = library


def _scattered(value: Any, other: Any) -> Any:
    """A number in [-1, 1) that the bits of two float64 make, without any pattern (murmur's mix)."""
    bits = [jax.lax.bitcast_convert_type(part, jnp.uint64) for part in (value, other)]
    word = bits[0] ^ (bits[1] * jnp.uint64(0x9E3779B97F4A7C15))
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        word = (word ^ (word >> 33)) * jnp.uint64(factor)
    return ((word ^ (word >> 33)) >> 11).astype(jnp.float64) * 2.0**-52 - 1


def _doubled(leaf: Any) -> Any:
    if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating):
        return jnp.asarray(np.asarray(leaf), jnp.float64)
    return leaf


@lru_cache(maxsize=32)
def _compiled(program: Callable[[str], Any], name: str, shapes: tuple[tuple[int, ...], ...]) -> Any:
    """A program of an environment for `BLOCK` of it, given arrays of such shapes for each."""
    with jax_devices.on_host_in_float64():
        given = (
            jax.ShapeDtypeStruct((BLOCK, *shape), jnp.float64)  # type: ignore[no-untyped-call]
            for shape in shapes
        )
        lowered = quietly(lambda: program(name).lower(*given))
        return lowered.compile(compiler_options=jax_devices.QUICK)


BLOCK = 64
"""Environments that the host simulates at once; one size, so one program."""


@lru_cache(maxsize=8)
def seconds(name: str) -> float:
    """Time that one step of the environment takes in the simulation."""
    return float(environment(name).dt)


def advance(
    name: str,
    positions: NDArray[np.float64],
    velocities: NDArray[np.float64],
    actions: NDArray[np.float64],
    search: NDArray[np.float64] | None = None,
) -> tuple[Any, NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Start state, its observation and what one step makes of it, all for many at once.

    `search` (environments,): roundings of float32 by which the search for the contacts' forces
    takes its objective wrongly (`inexact_search`); none where it is left out.
    """
    search = np.zeros(len(positions)) if search is None else search
    arrays = (positions, velocities, actions, search)
    shapes = tuple(part.shape for part in arrays)
    start, seen, after = _advanced(
        name, shapes, *(np.ascontiguousarray(part).tobytes() for part in arrays)
    )
    return start, seen, after


@lru_cache(maxsize=4)
def _advanced(name: str, shapes: tuple[tuple[int, ...], ...], *contents: bytes) -> Any:
    """The same of bytes, so that what was simulated once is not simulated again."""
    parts = zip(contents, shapes, strict=True)
    return _in_blocks(_exact, name, [np.frombuffer(one).reshape(shape) for one, shape in parts])


def _in_blocks(program: Callable[[str], Any], name: str, arrays: Sequence[Any]) -> Any:
    """What a program of an environment makes of arrays for many of it."""
    count = len(arrays[0])
    whole = -(-count // BLOCK) * BLOCK
    padded = [np.concatenate([one, np.repeat(one[:1], whole - count, axis=0)]) for one in arrays]
    run = _compiled(program, name, tuple(one.shape[1:] for one in arrays))
    parts = []
    with jax_devices.on_host_in_float64():
        for first in range(0, whole, BLOCK):
            block = [jnp.asarray(one[first : first + BLOCK], jnp.float64) for one in padded]
            parts.append(jax.tree.map(np.asarray, run(*block)))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *parts)


def _shapes(settings: Settings, start: Any) -> Any:
    """Shape and type of every array of a state of all environments, whose start states are these.

    What a reset adds to them is traced, and not once more what they follow from.
    """
    env = copy.copy(environment(settings.environment))
    types = jax.dtypes.canonicalize_dtype

    def begun(*_: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], types(leaf.dtype)), start)

    env.pipeline_init = begun
    wrapped = training.wrap(env, episode_length=settings.episode)
    keys = jax.ShapeDtypeStruct((settings.num_envs, 2), jnp.uint32)  # type: ignore[no-untyped-call]
    return quietly(lambda: jax.eval_shape(wrapped.reset, keys))


def begin(settings: Settings, rng: np.random.Generator) -> Any:
    """First state of all environments, made on the host in float64 and stored in float32.

    By a program that makes no step: to compile that is left to the check, which a repeat has not.
    """
    env = environment(settings.environment)
    count = settings.num_envs
    noise_scale = env._reset_noise_scale  # noqa: SLF001 - the environment's own
    shape = (count, env.sys.q_size())
    positions = np.asarray(env.sys.init_q) + rng.uniform(-noise_scale, noise_scale, shape)
    velocities = rng.uniform(-noise_scale, noise_scale, (count, env.sys.qd_size()))
    positions, velocities = (
        part.astype(np.float32).astype(np.float64) for part in (positions, velocities)
    )
    arrays = (positions, velocities)
    start, observations = _in_blocks(_exact_start, settings.environment, arrays)
    shapes = _shapes(settings, start)
    empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    start = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), start, shapes.pipeline_state)
    observations = observations.astype(np.float32)
    empty.info.update(first_pipeline_state=start, first_obs=observations)
    return empty.replace(pipeline_state=start, obs=observations)


def learner(weights: Any, settings: Settings) -> Any:
    """What a training begins with: the weights, no moments, statistics of one observation of 1.

    Moments and their count begin at nought; JAX is asked for their shapes alone.
    """
    width = len(weights["policy.0.matrix"])
    state = jax.eval_shape(optimizer(settings).init, weights)
    return {
        "weights": weights,
        "optimizer": jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), state),
        "statistics": {
            "count": np.ones((), np.float32),
            "mean": np.zeros(width, np.float32),
            "squares": np.ones(width, np.float32),
        },
    }


# ------------------------------------------------------------------ the same draws on the host


def _key(seed: int, number: int) -> Any:
    return jax.random.fold_in(jax_devices.seed_words(seed), number)


@lru_cache(maxsize=4)
def noise_on_host(seed: int, number: int, settings: Settings) -> NDArray[np.float64]:
    """The normal numbers of a step's actions, (steps, environments, width)."""
    with jax_devices.on_host():
        return np.asarray(noise(_key(seed, number), settings), np.float64)


@lru_cache(maxsize=4)
def order_on_host(seed: int, number: int, settings: Settings) -> NDArray[np.int32]:
    """The order of a step's samples, (epochs, units)."""
    with jax_devices.on_host():
        return np.asarray(_order(_key(seed, number), settings))
