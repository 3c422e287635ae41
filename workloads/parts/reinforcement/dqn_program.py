"""One update of deep Q-learning on a game of gymnax, as one program of JAX.

Rounds of all games, the replay buffer, the draw from it and the update are compiled together and
run on the device without a word from the host. The buffer is a ring of rounds, given to the
program to be overwritten. Random numbers come from JAX's counter-based generator (threefry), keyed
with the seed and the number of the step, so every device draws the same.

Import it inside a function: it imports JAX and gymnax.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from workloads.parts.reinforcement import jax_devices
from workloads.parts.reinforcement.jax_devices import quietly

import jax  # isort: skip
import optax  # isort: skip
from jax import numpy as jnp  # isort: skip


def _gymnax() -> Any:
    import gymnax  # noqa: PLC0415 - it warns as it loads

    return gymnax


GYMNAX = quietly(_gymnax)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the program is compiled for; see the workload's parameters of the same names."""

    game: str
    num_envs: int
    rounds: int
    slots: int
    batch: int
    learning_rate: float
    discount: float
    target_every: int
    exploration: tuple[float, float, int]


@lru_cache(maxsize=4)
def _game(name: str) -> Any:
    """The game and its parameters."""
    return GYMNAX.make(name)


def num_actions(name: str) -> int:
    return int(_game(name)[0].num_actions)


def optimizer(settings: Settings) -> Any:
    return optax.adam(settings.learning_rate)


def q_values(weights: Any, observations: Any) -> Any:
    last = len(weights) // 2 - 1
    inputs = observations.astype(jnp.float32)
    for number in range(last + 1):
        inputs = inputs @ weights[f"q.{number}.matrix"] + weights[f"q.{number}.bias"]
        if number < last:
            inputs = jax.nn.relu(inputs)
    return inputs


# ------------------------------------------------------------------ draws


def draws(key: Any, settings: Settings) -> dict[str, Any]:
    """All random numbers of a step: of exploring, and the places in the buffer."""
    shape = (settings.rounds, settings.num_envs)
    keys = [jax.random.fold_in(key, number) for number in range(4)]
    actions = num_actions(settings.game)
    return {
        "chance": jax.random.uniform(keys[0], shape, jnp.float32),
        "random": jax.random.randint(keys[1], shape, 0, actions, jnp.int32),
        "ages": jax.random.randint(keys[2], (settings.batch,), 0, settings.slots - 1, jnp.int32),
        "games": jax.random.randint(keys[3], (settings.batch,), 0, settings.num_envs, jnp.int32),
    }


def threshold(steps: Any, settings: Settings) -> Any:
    """Share of actions that are random after so many environment steps (int32)."""
    start, end, anneal = settings.exploration
    gone = jnp.minimum(steps.astype(jnp.float32) / anneal, 1.0)
    return start + (end - start) * gone


@lru_cache(maxsize=4)
def draws_on_host(seed: int, number: int, steps: int, settings: Settings) -> dict[str, Any]:
    """The same draws and threshold, by the host."""
    with jax_devices.on_host():
        key = jax.random.fold_in(jax_devices.seed_words(seed), number)
        drawn = draws(key, settings)
        rounds = jnp.arange(settings.rounds, dtype=jnp.int32) * settings.num_envs + steps
        drawn["threshold"] = threshold(rounds, settings)
        return {name: np.asarray(leaf) for name, leaf in drawn.items()}


# ------------------------------------------------------------------ one update


@lru_cache(maxsize=4)
def program(settings: Settings) -> Any:
    """The compiled function of a step, which may overwrite the buffer that it is given."""

    def update(learner: Any, games: Any, buffer: Any, seed: Any, number: Any) -> Any:
        drawn = draws(jax.random.fold_in(seed, number), settings)
        games, rounds = _play(learner["weights"], games, drawn, settings)
        buffer = _stored(buffer, rounds, settings)
        learned, loss, gradients = _learn(learner, buffer, drawn, settings)
        record = {"rounds": rounds, "loss": loss, "gradients": gradients}
        return jax_devices.strong((learned, games, buffer, record))

    return jax.jit(jax.default_matmul_precision("highest")(update), donate_argnums=2)


def _play(weights: Any, games: Any, drawn: Any, settings: Settings) -> tuple[Any, Any]:
    def one(now: Any, round_: Any) -> tuple[Any, Any]:
        share = threshold(now["steps"], settings)
        greedy = jnp.argmax(q_values(weights, now["observations"]), axis=-1).astype(jnp.int32)
        action = jnp.where(round_["chance"] < share, round_["random"], greedy)
        after, seen = _advance(settings.game, now, action)
        return after, seen

    rounds = {name: drawn[name] for name in ("chance", "random")}
    return jax.lax.scan(one, games, rounds)


def _advance(name: str, now: Any, action: Any) -> Any:
    """The games after a round, and what was seen of it."""
    game, parameters = _game(name)

    def one(state: Any, action: Any) -> Any:
        # The key is for games of chance; this one has none.
        return game.step(jnp.zeros(2, jnp.uint32), state, action, parameters)

    observations, state, rewards, ends, cuts, _ = jax.vmap(one)(now["state"], action)
    after = {
        "state": state,
        "observations": _packed(observations),
        "steps": now["steps"] + action.shape[0],
    }
    seen = {
        "observations": now["observations"],
        "actions": action,
        "rewards": rewards,
        "ends": ends.astype(jnp.float32),
        "cuts": cuts.astype(jnp.float32),
        "times": state.time.astype(jnp.int32),
    }
    return jax_devices.strong((after, seen))


def _packed(observations: Any) -> Any:
    """Fields of nought and one in a byte each, (games, width)."""
    return observations.reshape(len(observations), -1).astype(jnp.uint8)


STORED = ("observations", "actions", "rewards", "ends")


def _stored(buffer: Any, rounds: Any, settings: Settings) -> Any:
    """The ring with the rounds written over its oldest."""
    rows = (buffer["oldest"] + jnp.arange(settings.rounds)) % settings.slots
    return {
        **{name: buffer[name].at[rows].set(rounds[name]) for name in STORED},
        "oldest": (buffer["oldest"] + settings.rounds) % settings.slots,
    }


def _learn(learner: Any, buffer: Any, drawn: Any, settings: Settings) -> Any:
    row = (buffer["oldest"] + drawn["ages"]) % settings.slots
    place, later = (row, drawn["games"]), ((row + 1) % settings.slots, drawn["games"])
    next_values = q_values(learner["target"], buffer["observations"][later]).max(axis=-1)
    goes_on = settings.discount * (1 - buffer["ends"][place])
    targets = buffer["rewards"][place] + goes_on * next_values

    def loss_of(weights: Any) -> Any:
        estimates = q_values(weights, buffer["observations"][place])
        chosen = jnp.take_along_axis(estimates, buffer["actions"][place][:, None], axis=-1)[:, 0]
        return jnp.square(chosen - targets).mean()

    loss, gradients = jax.value_and_grad(loss_of)(learner["weights"])
    moves, state = optimizer(settings).update(gradients, learner["optimizer"], learner["weights"])
    weights = optax.apply_updates(learner["weights"], moves)
    updates = learner["updates"] + 1
    is_due = updates % settings.target_every == 0
    target = jax.tree.map(lambda new, old: jnp.where(is_due, new, old), weights, learner["target"])
    learned = {"weights": weights, "target": target, "optimizer": state, "updates": updates}
    return learned, loss, gradients


# ------------------------------------------------------------------ the beginning, and the host


@lru_cache(maxsize=4)
def _on_host(name: str) -> Any:
    return jax.jit(lambda now, action: _advance(name, now, action))


def replay(name: str, games: Any, actions: Any) -> tuple[Any, list[Any]]:
    """Games and what was seen, round after round, when the host plays these actions."""
    records = []
    with jax_devices.on_host():
        for action in actions:
            games, seen = _on_host(name)(games, jnp.asarray(action, jnp.int32))
            records.append(jax_devices.copied(seen))
    return jax_devices.copied(games), records


def begin(settings: Settings, rng: np.random.Generator) -> tuple[Any, Any]:
    """Games after random play by the host, and the buffer that it filled."""
    game, parameters = _game(settings.game)
    with jax_devices.on_host():
        keys = jnp.zeros((settings.num_envs, 2), jnp.uint32)
        observations, state = jax.vmap(game.reset, in_axes=(0, None))(keys, parameters)
        games = jax_devices.strong(
            {
                "state": state,
                "observations": _packed(observations),
                "steps": jnp.zeros((), jnp.int32),
            }
        )
    actions = rng.integers(
        num_actions(settings.game), size=(settings.slots, settings.num_envs), dtype=np.int32
    )
    games, seen = replay(settings.game, games, actions)
    buffer = {name: np.stack([one[name] for one in seen]) for name in STORED}
    return games, {**buffer, "oldest": np.zeros((), np.int32)}


def learner(weights: Any, settings: Settings) -> Any:
    """What a training begins with; the target network begins as a copy."""
    with jax_devices.on_host():
        state = optimizer(settings).init({name: jnp.asarray(w) for name, w in weights.items()})
        return {
            "weights": weights,
            "target": {name: weight.copy() for name, weight in weights.items()},
            "optimizer": jax_devices.copied(state),
            "updates": np.zeros((), np.int32),
        }


def moments(state: Any) -> Any:
    """The part of the optimiser's state that has `count`, `mu` and `nu`."""
    return state[0]
