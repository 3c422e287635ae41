"""Outputs of one step held against each other: the same bits, or the same within a spread.

Repeatability is judged on copies in the host's memory, because the state that made the first
output is gone by the time the second one is there. Between processes and devices it is judged by
digests, which the journal keeps. An output is a tensor or array, or a dataclass, tuple, list or
dict of them; how a tensor becomes an array is the worker's business, which alone knows torch.

Every array is known by its path, number format and shape, so that the same bytes in another form
are not the same output.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Frozen = dict[str, NDArray[Any]]
Copy = Callable[[Any], NDArray[Any]]


def freeze(output: Any, copy: Copy) -> Frozen:
    """Every array of an output by its name, copied by `copy` so that no later step changes it.

    Raises TypeError for an output that holds something else than arrays and plain values.
    """
    return {_name(path, leaf): copy(leaf) for path, leaf in _leaves(output, "output")}


def digest(output: Any, copy: Copy) -> str:
    """SHA-256 over all arrays of an output, in the order of their names: name, size, bytes.

    `copy` gives an array's bytes; one copy at a time is held. A digest tells any two outputs
    apart that differ in a bit, a number format, a shape or the place of an array.
    """
    hasher = hashlib.sha256()
    arrays = {_name(path, leaf): leaf for path, leaf in _leaves(output, "output")}
    for name in sorted(arrays):
        content = copy(arrays[name])
        hasher.update(f"{name}\0{content.nbytes}\0".encode())
        hasher.update(content.data)
    return hasher.hexdigest()


def _name(path: str, leaf: Any) -> str:
    """Path, number format and shape: "output.logits float32 (8, 10)"."""
    return f"{path} {str(leaf.dtype).rpartition('.')[2]} {tuple(leaf.shape)}"


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        children = [
            (f".{item.name}", getattr(node, item.name)) for item in dataclasses.fields(node)
        ]
    elif isinstance(node, Mapping):
        children = [(f"[{key!r}]", child) for key, child in node.items()]
    elif isinstance(node, tuple | list):
        children = [(f"[{number}]", child) for number, child in enumerate(node)]
    elif isinstance(node, bool | int | float | str | bytes | np.generic) or node is None:
        yield path, _plain(node)
        return
    elif isinstance(node, np.ndarray) or hasattr(node, "__dlpack__"):  # of torch or JAX
        yield path, node
        return
    else:
        raise TypeError(f"{path} is a {type(node).__name__}, not a tensor or array")
    for name, child in children:
        yield from _leaves(child, path + name)


def _plain(value: Any) -> NDArray[Any]:
    if isinstance(value, bool | int | float | np.generic):
        return np.asarray(value)
    return np.frombuffer(repr(value).encode(), np.uint8)


def bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Bytes of an array, copied."""
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def values(array: NDArray[Any]) -> NDArray[np.float64]:
    """Numbers of an array in float64, copied and flat; a complex one as its two parts."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if np.iscomplexobj(flat):
        flat = flat.view(flat.real.dtype)
    return flat.astype(np.float64)


def differing_bytes(first: Frozen, second: Frozen) -> float:
    """Number of bytes that differ; infinite if the outputs are not of one shape."""
    if not _are_alike(first, second):
        return math.inf
    return float(sum(np.count_nonzero(first[path] != second[path]) for path in first))


def relative_difference(first: Frozen, second: Frozen) -> float:
    """Largest difference of two numbers over the largest number of their array; NaN stays NaN."""
    if not _are_alike(first, second):
        return math.inf
    return max(
        (_relative(first[path], second[path]) for path in first),
        key=lambda error: math.inf if math.isnan(error) else error,
        default=0.0,
    )


def _relative(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    if np.array_equal(first, second):
        return 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.abs(first - second).max() / np.abs(first).max())


def _are_alike(first: Frozen, second: Frozen) -> bool:
    return {path: array.shape for path, array in first.items()} == {
        path: array.shape for path, array in second.items()
    }
