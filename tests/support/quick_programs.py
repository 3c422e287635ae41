"""Steps of JAX compiled as programs that run once or twice are.

Compiling is most of what a small step costs, and a test makes few of them. A step that was
compiled so is judged as any other: by the same float64, within the same bounds.

Import it inside a function: it imports JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from types import ModuleType
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


@contextmanager
def quickly_compiled() -> Iterator[None]:
    """While it is entered, programs of steps are compiled quickly, each once a process."""
    with (
        mock.patch.object(brax_program, "program", partial(_compiled, brax_program)),
        mock.patch.object(dqn_program, "program", partial(_compiled, dqn_program)),
    ):
        yield
