"""Walking over the tensors and arrays of a state or an output, each by its path."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import torch

Leaf = torch.Tensor | np.ndarray
Path_ = tuple[str, ...]
Node = TypeVar("Node")


def _children(node: object) -> Iterator[tuple[str, object]]:
    if isinstance(node, torch.nn.Module):
        yield from node.named_parameters()
        yield from node.named_buffers()
        yield from ((f"{name}.grad", p.grad) for name, p in node.named_parameters())
    elif isinstance(node, torch.optim.Optimizer):
        for number, value in enumerate(node.state.values()):
            yield str(number), value
    elif isinstance(node, dict):
        yield from ((str(key), value) for key, value in node.items())
    elif isinstance(node, list | tuple):
        yield from ((str(number), value) for number, value in enumerate(node))
    elif dataclasses.is_dataclass(node) and not isinstance(node, type):
        yield from ((f.name, getattr(node, f.name, None)) for f in dataclasses.fields(node))
    elif hasattr(node, "__dict__") and not isinstance(node, type) and not callable(node):
        yield from vars(node).items()


def leaves(
    node: object, path: Path_ = (), seen: dict[int, object] | None = None
) -> dict[Path_, Leaf]:
    """Every tensor and array that can be reached, by its path."""
    seen = {} if seen is None else seen
    if node is None or isinstance(node, str | bytes | int | float) or id(node) in seen:
        return {}
    seen[id(node)] = node  # kept, so that no other object takes its number
    if isinstance(node, torch.Tensor | np.ndarray):
        return {path: node}
    if hasattr(node, "__dlpack__"):
        return {path: torch.from_dlpack(node)}  # of JAX: the same memory, which a test may spoil
    result: dict[Path_, Leaf] = {}
    for name, child in list(_children(node)):
        result |= leaves(child, (*path, name), seen)
    return result


def bytes_of(leaf: Leaf) -> bytes:
    return view(leaf).tobytes()


def view(leaf: Leaf) -> np.ndarray:
    """The bytes of a leaf, without a copy where it lies in order already."""
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)


def digest(node: object) -> str:
    """Digest of the bits of every tensor that can be reached."""
    total = hashlib.sha256()
    for path, leaf in sorted(leaves(node).items()):
        total.update(repr((path, tuple(leaf.shape), str(leaf.dtype))).encode())
        total.update(view(leaf))
    return total.hexdigest()


def fresh(leaf: Leaf) -> Leaf:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf.copy()


def replaced(node: Any, path: Path_, leaf: Leaf) -> Any:
    """A copy of an output with one leaf replaced; the rest is shared."""
    if not path:
        return leaf
    head, rest = path[0], path[1:]
    if isinstance(node, dict):
        key = next(key for key in node if str(key) == head)
        return {**node, key: replaced(node[key], rest, leaf)}
    if isinstance(node, list | tuple):
        items = list(node)
        items[int(head)] = replaced(items[int(head)], rest, leaf)
        return type(node)(*items) if hasattr(node, "_fields") else type(node)(items)
    return dataclasses.replace(node, **{head: replaced(getattr(node, head), rest, leaf)})


def frozen(output: Any) -> Any:
    """A copy of an output that later steps cannot write into."""
    for path, leaf in leaves(output).items():
        output = replaced(output, path, fresh(leaf))
    return output


def identity(leaf: Leaf) -> str:
    """Shape, dtype and bits of one leaf."""
    return f"{tuple(leaf.shape)} {leaf.dtype} {hashlib.sha256(view(leaf)).hexdigest()}"


def copies(node: object) -> dict[Path_, Leaf]:
    """A copy of every leaf that can be reached."""
    return {path: fresh(leaf) for path, leaf in leaves(node).items()}


def is_floating(leaf: Leaf) -> bool:
    if isinstance(leaf, torch.Tensor):
        return leaf.is_floating_point()
    return np.issubdtype(leaf.dtype, np.floating)


def norm(leaf: Leaf) -> float:
    tensor = torch.as_tensor(leaf).detach()
    size = tensor.abs() if tensor.is_complex() else tensor
    return torch.linalg.vector_norm(size.double()).item()


def like(leaf: Leaf, tensor: torch.Tensor) -> Leaf:
    """The tensor as the kind of array that `leaf` is."""
    return tensor if isinstance(leaf, torch.Tensor) else tensor.numpy()


def instances(node: object, kind: type[Node]) -> list[Node]:
    """Every object of a class that can be reached."""
    result: list[Node] = []
    seen: dict[int, object] = {}
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if one is None or isinstance(one, str | bytes | int | float) or id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(one, kind):
            result.append(one)
        if not isinstance(one, torch.Tensor | np.ndarray) and not hasattr(one, "__dlpack__"):
            waiting += [child for _, child in _children(one)]
    return result
