"""JAX beside torch: its device for a target, float64 on the host, and its arrays as numbers.

Import this inside a function: importing JAX starts nothing, but a process that has run it cannot
be forked, and `describe` has no use for it. What of the environment JAX reads when it first
touches a device is set here: it takes memory as it needs it, because a check wants some too.
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax  # reads the environment

Loaded = TypeVar("Loaded")
Array = NDArray[np.float64]
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
"""For programs that run once or twice: compiled in a quarter of the time, and slower."""


def device_of(device: torch.device) -> Any:
    """JAX's name for a torch device; raises RuntimeError if JAX was installed without it."""
    if device.type == "cpu":
        return jax.devices("cpu")[0]
    return jax.devices("gpu")[device.index or 0]


def quietly(load: Callable[[], Loaded]) -> Loaded:
    """What `load` imports, without the notes and warnings that libraries give as they load."""
    unread = io.StringIO()
    with (
        contextlib.redirect_stdout(unread),
        contextlib.redirect_stderr(unread),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        return load()


@contextlib.contextmanager
def on_host_in_float64() -> Iterator[None]:
    """While it is entered, JAX computes on the host and knows float64; put back afterwards."""
    with jax.enable_x64(new_val=True), jax.default_device(jax.devices("cpu")[0]):
        yield


@contextlib.contextmanager
def on_host() -> Iterator[None]:
    """While it is entered, JAX computes on the host."""
    with jax.default_device(jax.devices("cpu")[0]):
        yield


def strong(tree: Any) -> Any:
    """The arrays of a tree with their types as they are, so that a second call compiles nothing.

    What JAX derives from a number of Python's is "weakly" typed, and counts as another type.
    """
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), tree)


def copied(tree: Any) -> Any:
    """A tree of copies in the host's memory, as numpy arrays."""
    return jax.tree.map(np.array, tree)


def in_float64(leaf: Any) -> Array:
    """Values of one array of any library in float64, on the host; not to be written into."""
    if isinstance(leaf, torch.Tensor):
        leaf = leaf.detach().cpu()
    return np.asarray(leaf, dtype=np.float64)


def all_in_float64(leaves: Mapping[str, Any]) -> dict[str, Array]:
    """The same of every array of a dict."""
    return {name: in_float64(leaf) for name, leaf in leaves.items()}


def seed_words(seed: int) -> NDArray[np.uint32]:
    """The key of JAX's generator for a seed of 64 bits."""
    return np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def placed(tree: Any, device: Any) -> Any:
    """The arrays of a tree in the memory of a device, committed to it."""
    return jax.device_put(tree, device)


def wait(tree: Any) -> None:
    """Return when every array of a tree is there."""
    jax.block_until_ready(tree)  # type: ignore[no-untyped-call]


def leaves(tree: Any) -> list[Any]:
    """The arrays of a tree in their order."""
    return list(jax.tree.leaves(tree))
