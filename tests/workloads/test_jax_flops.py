"""Model operations of the rows that run on JAX, against the products of the program they trace.

The walk below knows nothing of networks: it adds up 2mnk of every product in the traced program of
a whole step, as often as the loops around it say. What the simulation multiplies is no operation
of the model: its step is walked by itself and taken away.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from workloads.brax_ppo import BraxPpo
from workloads.contract.target import Artifacts, Target
from workloads.dqn import Dqn
from workloads.parts.reinforcement import reinforcement
from workloads.parts.reinforcement.perceptrons import forward_flops, training_flops
from workloads.parts.reinforcement.simulated_ppo import SimulatedPpo
from workloads.ppo import Ppo

ALWAYS = "always"
OPEN_ENDED = ("while", "cond")
"""What is inside is done as often as the data says, or not at all: it is told apart."""

OTHER_PRODUCTS = ("conv_general_dilated", "ragged_dot", "ragged_dot_general", "scaled_dot")
"""None is there; one that came in would have to be counted."""


def products(jaxpr: Any, times: int = 1, where: str = ALWAYS) -> Counter[str]:
    """Operations of all products, by whether they are always made."""
    result: Counter[str] = Counter()
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        assert name not in OTHER_PRODUCTS
        if name == "dot_general":
            result[where] += times * product(equation)
        repeats = equation.params["length"] if name == "scan" else 1
        for inner in inner_programs(equation.params):
            result += products(inner, times * repeats, name if name in OPEN_ENDED else where)
    return result


def product(equation: Any) -> int:
    """2mnk, times the batch."""
    (contracted, _), _ = equation.params["dimension_numbers"]
    shape = equation.invars[0].aval.shape
    inner = math.prod(shape[axis] for axis in contracted)
    made: int = math.prod(equation.outvars[0].aval.shape)
    return 2 * inner * made


def inner_programs(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        for one in value:
            yield from inner_programs(one)
    elif hasattr(value, "eqns"):
        yield value
    elif hasattr(value, "jaxpr"):
        yield value.jaxpr


def shaped(shape: Sequence[int], dtype: str) -> Any:
    import jax  # noqa: PLC0415

    return jax.ShapeDtypeStruct(tuple(shape), dtype)  # type: ignore[no-untyped-call]


# ------------------------------------------------------------------ the counters themselves


def test_the_walk_multiplies_by_loops_and_tells_apart_what_may_not_run():
    import jax  # noqa: PLC0415
    from jax import numpy as jnp  # noqa: PLC0415

    def program(rows: Any, weights: Any) -> Any:
        def once(now: Any) -> Any:
            return jax.jit(jnp.dot)(now, weights)

        after, _ = jax.lax.scan(lambda now, _: (once(now), None), rows, None, 7)
        after = jax.lax.while_loop(lambda now: now.sum() > 0, once, after)
        after = jax.lax.cond(after.sum() > 0, once, jnp.tanh, after)
        return jax.vmap(once)(jnp.stack([after] * 5))

    traced = jax.make_jaxpr(program)(shaped((2, 3), "float32"), shaped((3, 3), "float32"))
    one = 2 * 2 * 3 * 3
    assert products(traced.jaxpr) == {ALWAYS: (7 + 5) * one, "while": one, "cond": one}


@pytest.mark.parametrize("sizes", [[600, 120, 84, 4], [27, 32, 16], [5, 3], [11, 256, 256, 1]])
def test_the_closed_form_of_a_perceptron_is_what_torch_counts(sizes: list[int]):
    rows = 40
    with torch.device("meta"):
        weights = {
            name: torch.empty(shape, requires_grad=True)
            for name, shape in reinforcement.names_of("q", sizes)
        }
        with FlopCounterMode(display=False) as counter:
            made = reinforcement.perceptron(weights, "q", torch.empty(rows, sizes[0]), torch.tanh)
            assert counter.get_total_flops() == forward_flops(sizes, rows)
            torch.autograd.backward(made.sum())
    assert counter.get_total_flops() == training_flops(sizes, rows)


# ------------------------------------------------------------------ proximal policy optimisation


def of_program(workload: SimulatedPpo) -> dict[str, int]:
    """Of the whole step, without those of the simulation's own step as often as it is made."""
    import jax  # noqa: PLC0415

    from workloads.parts.reinforcement import brax_program as brax  # noqa: PLC0415 - imports JAX

    settings = workload._settings
    wrapped = brax.training.wrap(
        brax.environment(settings.environment), episode_length=settings.episode
    )
    keys = shaped((settings.num_envs, 2), "uint32")
    simulation = brax.quietly(lambda: jax.eval_shape(wrapped.reset, keys))
    learner = brax.learner(workload._first_weights(1), settings)
    step = brax.program(settings).trace(
        learner, simulation, shaped((2,), "uint32"), shaped((), "int32")
    )
    width = brax.environment(settings.environment).action_size
    actions = shaped((settings.num_envs, width), "float32")
    physics = brax.quietly(lambda: jax.make_jaxpr(wrapped.step)(simulation, actions))
    result = products(step.jaxpr.jaxpr)
    for name, operations in products(physics.jaxpr).items():
        result[name] -= settings.length * operations
    return {name: left for name, left in result.items() if left}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (Ppo, Ppo.small),
        (Ppo, {**Ppo.small, "policy_layers": 3, "has_free_deviation": False, "epochs": 3}),
        (Ppo, {**Ppo.small, "num_envs": 16, "grouped": 2, "value_clip": 0.0, "value_layers": 1}),
        (Ppo, {}),
        (BraxPpo, BraxPpo.small),
        (BraxPpo, {}),
    ],
    ids=["small", "deeper", "grouped", "full", "ant small", "ant full"],
)
def test_a_step_on_a_simulation_has_the_operations_that_are_counted(
    kind: type[SimulatedPpo], changes: dict[str, Any]
):
    workload = kind(**changes)
    assert of_program(workload) == {ALWAYS: workload.work().flops}


# ------------------------------------------------------------------ deep Q-learning


def of_game(workload: Dqn) -> Counter[str]:
    """Of the whole step; the game has no products."""
    import jax  # noqa: PLC0415

    from workloads.parts.reinforcement import dqn_program as q  # noqa: PLC0415 - imports JAX

    settings = workload._settings
    game, parameters = q._game(settings.game)
    reset: Callable[..., Any] = jax.vmap(game.reset, in_axes=(0, None))
    seen, state = jax.eval_shape(reset, shaped((settings.num_envs, 2), "uint32"), parameters)
    games = {
        "state": state,
        "observations": jax.eval_shape(q._packed, seen),
        "steps": shaped((), "int32"),
    }
    actions = shaped((settings.num_envs,), "int32")
    round_ = jax.make_jaxpr(lambda *given: q._advance(settings.game, *given))(games, actions)
    assert not products(round_.jaxpr)
    shown = jax.eval_shape(lambda *given: q._advance(settings.game, *given)[1], games, actions)
    buffer = {
        name: shaped((settings.slots, *shown[name].shape), shown[name].dtype) for name in q.STORED
    }
    buffer["oldest"] = shaped((), "int32")
    weights = reinforcement.drawn({"q": workload._sizes}, {}, torch.Generator().manual_seed(1))
    step = q.program(settings).trace(
        q.learner(weights, settings), games, buffer, shaped((2,), "uint32"), shaped((), "int32")
    )
    return products(step.jaxpr.jaxpr)


@pytest.mark.parametrize(
    "changes",
    [
        Dqn.small,
        {**Dqn.small, "rounds": 6, "second_width": 100, "batch": 300},
        {**Dqn.small, "num_envs": 8, "first_width": 7},
        {},
    ],
    ids=["small", "more rounds", "narrow", "full"],
)
def test_a_step_of_q_learning_has_the_operations_that_are_counted(changes: dict[str, Any]):
    workload = Dqn(**changes)
    assert of_game(workload) == {ALWAYS: workload.work().flops}


def test_the_step_that_is_built_is_the_one_that_is_walked(tmp_path: Path):
    workload = Dqn(**Dqn.small)
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(tmp_path))
    state = workload.build(target, 1)
    given = (state.learner, state.games, state.buffer, state.key, shaped((), "int32"))
    assert products(state.run.trace(*given).jaxpr.jaxpr) == {ALWAYS: workload.work().flops}
