"""Steps of JAX compiled as programs that run once or twice are.

Compiling is most of what a small step costs, and a test makes few of them. A step that was
compiled so is judged as any other: by the same float64, within the same bounds.

Import it inside a function: it imports JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import jax

from workloads.parts.reinforcement import brax_program, dqn_program, jax_devices

_BUILDERS: dict[ModuleType, Callable[[Any], Any]] = {
    module: module.program.__wrapped__ for module in (brax_program, dqn_program)
}


def compiled_anew(module: ModuleType, settings: Any) -> Any:
    """The step's program of `module` with whatever was changed there meanwhile."""
    if module is brax_program:
        brax_program.environment(settings.environment)  # has functions of its own to compile
    quick = partial(jax.jit, compiler_options=jax_devices.QUICK)
    with mock.patch.object(jax, "jit", quick):
        return _BUILDERS[module](settings)


_compiled = lru_cache(maxsize=16)(compiled_anew)


# ------------------------------------------------------------------ a step in pieces


@lru_cache(maxsize=4)
def _advance(name: str, episode: int) -> Any:
    """The step of a wrapped environment, compiled on its own."""
    env = brax_program.training.wrap(brax_program.environment(name), episode_length=episode)
    return jax.jit(env.step, compiler_options=jax_devices.QUICK)


def _looped(body: Callable[..., Any], carry: Any, inputs: Any) -> tuple[Any, Any]:
    """What `jax.lax.scan` says that it does, one step after the other."""
    made = []
    for number in range(len(jax.tree.leaves(inputs)[0])):
        carry, one = body(carry, jax.tree.map(lambda leaf: leaf[number], inputs))  # noqa: B023
        made.append(one)
    return carry, jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *made)


def _in_pieces(settings: brax_program.Settings) -> Callable[..., Any]:
    """The step's program as three: what each environment does, the advantages, the updates.

    Most of the compiling is the simulation's, which settings of one environment share.
    """
    quick = partial(jax.jit, compiler_options=jax_devices.QUICK)
    advance = _advance(settings.environment, settings.episode)
    scan, play = jax.lax.scan, brax_program._rollout
    advantages = quick(brax_program._advantages, static_argnums=1)
    learn = quick(brax_program._learn, static_argnums=3)

    def step(*arguments: Any) -> Any:
        with mock.patch.object(jax.lax, "scan", scan):
            return advance(*arguments)

    def rollout(_: Any, *arguments: Any) -> Any:
        with mock.patch.object(jax.lax, "scan", _looped):
            return play(SimpleNamespace(step=step), *arguments)

    with mock.patch.object(jax, "jit", lambda function: function):
        update = _BUILDERS[brax_program](settings)

    def run(*arguments: Any) -> Any:
        with mock.patch.multiple(
            brax_program, _rollout=rollout, _advantages=advantages, _learn=learn
        ):
            return update(*arguments)

    return run


@contextmanager
def simulated_apart() -> Iterator[None]:
    """While it is entered, programs of brax share the compiled simulation of their environment."""
    with mock.patch.object(brax_program, "program", _in_pieces):
        yield


@contextmanager
def quickly_compiled() -> Iterator[None]:
    """While it is entered, programs of steps are compiled quickly, each once a process."""
    with (
        mock.patch.object(brax_program, "program", partial(_compiled, brax_program)),
        mock.patch.object(dqn_program, "program", partial(_compiled, dqn_program)),
    ):
        yield
