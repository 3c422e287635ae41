"""Following the loss of any training workload: which it is, where it starts, what a step says.

A training workload is one whose step returns an object with a `loss`, itself or in one of its
fields. Its state is walked for the tensors that it starts from, so nothing is asked of a workload
that it has not anyway. Weights are the parameters of the modules found there that learn; of a
state of JAX, the arrays called `weights` of its `learner`.

This is the one part that imports a workload by its name; the worker is the other place. What is
found is a module of workloads/ and nothing else: a workload that injects a fault is not, so no
band can hide one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import sys
import typing
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from appliance import extras
from appliance.records.json import Scalar
from workloads.contract.failures import ParameterError
from workloads.contract.workload import Workload
from workloads.parts.curves import variations

AnyWorkload = Workload[Any, Any]
FOLDER = Path(__file__).parents[2]
NUM_STEPS = 50
TAIL = 5  # last losses, whose mean says how far the loss fell
DTYPE = "float32"  # of a workload without a choice
DEPTH = 8  # fields of fields that are walked

# ------------------------------------------------------------------ which


def find(name: str) -> type[AnyWorkload]:
    """The workload of that name; ParameterError if workloads/ has none."""
    if not (name.isidentifier() and (FOLDER / f"{name}.py").is_file()):
        raise ParameterError(f"workload is {name}: `bench list workloads` names those there are")
    try:
        workload = getattr(importlib.import_module(f"workloads.{name}"), "WORKLOAD", None)
    except ModuleNotFoundError as error:
        line = extras.line_for(error.name)
        raise ParameterError(f"workload is {name}, which needs {error.name}: {line}") from None
    if not (isinstance(workload, type) and issubclass(workload, Workload)):
        raise ParameterError(f"workload is {name}, which is a module and no workload")
    return workload


@lru_cache(maxsize=64)
def training_workload(name: str, dtype: str, *, is_small: bool) -> AnyWorkload:
    """A training workload at its small parameters or its defaults, in a dtype.

    Raises ParameterError where it cannot be followed: it has no loss, other ranks or no such dtype.
    """
    kind = find(name)
    if not is_training(kind):
        raise ParameterError(f"workload is {name}, which trains nothing: name one that has a loss")
    parameters: dict[str, Scalar] = dict(kind.small) if is_small else {}
    if "dtype" in {field.name for field in dataclasses.fields(kind)}:
        parameters["dtype"] = dtype
    elif dtype != DTYPE:
        raise ParameterError(f"dtype is {dtype}: {name} has no dtype to choose, leave {DTYPE}")
    workload = kind(**parameters)
    if workload.ranks != 1:
        raise ParameterError(f"workload is {name}, which is a training of several ranks")
    return workload


def is_training(kind: type[AnyWorkload]) -> bool:
    """Whether a step of it says a loss; those that follow a training themselves do not count."""
    result = typing.get_type_hints(kind.step).get("return")
    return kind.is_timed and (_has_loss(result) or any(map(_has_loss, _types_in(result))))


def _has_loss(kind: Any) -> bool:
    """Whether there is a field or a property of that name."""
    if not isinstance(kind, type):
        return False
    is_made = isinstance(getattr(kind, "loss", None), property)
    return is_made or "loss" in {name for name, _ in _hints(kind)}


def _types_in(kind: Any) -> list[Any]:
    return [hint for _, hint in _hints(kind)] if isinstance(kind, type) else []


def _hints(kind: type) -> list[tuple[str, Any]]:
    if not dataclasses.is_dataclass(kind):
        return [(name, None) for name in getattr(kind, "__annotations__", {})]
    return list(typing.get_type_hints(kind).items())


def parameters_of(workload: AnyWorkload) -> dict[str, Scalar]:
    """All parameters by name."""
    fields = dataclasses.fields(workload)
    return {field.name: getattr(workload, field.name) for field in fields}


# ------------------------------------------------------------------ what each step says


def loss_of(output: Any) -> torch.Tensor:
    """The loss in a step's output: a tensor of one element.

    Raises ParameterError if there is none.
    """
    inner = [getattr(output, field.name) for field in dataclasses.fields(output)]
    for place in (output, *inner):
        loss = getattr(place, "loss", None)
        if _is_array(loss):
            loss = torch.from_numpy(np.array(loss))
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            return loss.detach().reshape(())
    raise ParameterError(f"{type(output).__name__} has no loss that is one number")


# ------------------------------------------------------------------ where it starts


def models(state: object) -> list[torch.nn.Module]:
    """Modules in a state, each once; a part of one that was found is not named again."""
    return [node for _, node in _walk(state) if isinstance(node, torch.nn.Module)]


def weights(state: object) -> list[torch.Tensor]:
    """Weights that learn."""
    return [
        weight
        for model in models(state)
        for weight in model.parameters()
        if weight.requires_grad and weight.dtype is torch.float32
    ]


def learner(state: object) -> dict[str, Any] | None:
    """Of a state of JAX, what learns: its `weights` are a dict of arrays, which never change."""
    part = getattr(state, "learner", None)
    return part if isinstance(part, dict) and "weights" in part else None


def can_be_moved(state: object) -> bool:
    """Whether there are weights that `perturb` can move."""
    return learner(state) is not None or bool(weights(state))


def perturb(state: object, seed: int) -> None:
    """Move the weights of a state by one unit in the last place, as `variations.perturb` does."""
    start = kept_weights(state)
    variations.perturb(start, seed)
    put_weights(state, start)


def kept_weights(state: object) -> list[torch.Tensor]:
    """Copies of the weights that learn."""
    part = learner(state)
    if part is None:
        return [weight.detach().clone() for weight in weights(state)]
    return [torch.from_numpy(np.array(array)) for array in part["weights"].values()]


def put_weights(state: object, copies: Sequence[torch.Tensor]) -> None:
    """Put weights back that `kept_weights` returned."""
    part = learner(state)
    if part is None:
        with torch.no_grad():
            for weight, copy in zip(weights(state), copies, strict=True):
                weight.copy_(copy)
        return
    from workloads.parts.reinforcement import jax_devices  # noqa: PLC0415 - imports JAX

    names = part["weights"].items()
    part["weights"] = {
        name: jax_devices.placed(copy.numpy(), next(iter(array.devices())))
        for (name, array), copy in zip(names, copies, strict=True)
    }


def start_digest(state: object) -> str:
    """Sha256 of every tensor in a state: weights, statistics, inputs, targets, masks."""
    total = hashlib.sha256()
    for path, node in _walk(state):
        for name, tensor in _tensors(node):
            host = tensor.detach().cpu().contiguous()
            total.update(repr((path, name, tuple(host.shape), str(host.dtype))).encode())
            total.update(host.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def _tensors(node: object) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(node, torch.nn.Module):
        yield from node.named_parameters()
        yield from node.named_buffers()
    elif isinstance(node, torch.Tensor):
        yield "", node
    elif isinstance(node, np.ndarray) and node.dtype.kind in "biuf":
        yield "", torch.from_numpy(np.array(node, order="C"))
    elif _is_array(node) and (array := np.array(node)).dtype.kind in "biuf":
        yield "", torch.from_numpy(array)


def _walk(state: object) -> Iterator[tuple[str, object]]:
    """Modules, tensors and arrays with their paths, each once, in the order of the fields."""
    seen: dict[int, object] = {}
    waiting: list[tuple[str, object, int]] = [("", state, 0)]
    while waiting:
        path, node, depth = waiting.pop(0)
        if id(node) in seen or depth > DEPTH:
            continue
        seen[id(node)] = node  # kept, so that no other object takes its number
        if isinstance(node, torch.nn.Module | torch.Tensor | np.ndarray) or _is_array(node):
            yield path, node
        else:
            waiting += [(f"{path}.{name}", child, depth + 1) for name, child in _children(node)]


def _children(node: object) -> list[tuple[str, object]]:
    """What a container or an object of workloads/ has; of libraries' objects JAX's leaves alone."""
    if isinstance(node, dict):
        return [(str(key), value) for key, value in node.items()]
    if isinstance(node, list | tuple):
        return [(str(number), value) for number, value in enumerate(node)]
    if isinstance(node, type) or not type(node).__module__.startswith("workloads."):
        return [(str(number), leaf) for number, leaf in enumerate(_leaves(node))]
    if dataclasses.is_dataclass(node):
        return [(field.name, getattr(node, field.name)) for field in dataclasses.fields(node)]
    return list(getattr(node, "__dict__", {}).items())


def _is_array(node: object) -> bool:
    """Whether it is an array of JAX; a process that has none has not imported it."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(node, jax.Array)


def _leaves(node: object) -> list[object]:
    """Arrays of an object that JAX knows how to take apart; what is run through has none."""
    jax = sys.modules.get("jax")
    if jax is None or isinstance(node, Iterator):
        return []
    return [leaf for leaf in jax.tree.leaves(node) if _is_array(leaf)]
