"""Any shipped workload at its small size with one fault in its output: for whole runs with faults.

What `workloads/injected/` does to a product, this does to every other workload: it steps and checks
as that one does, and spoils one field of what the step hands out, or leaves a part of the step
out. It is named with a dot, "faulty.corrupting", by tests that put this folder's parent on
PYTHONPATH.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload

Leaf = Any
OF_TORCH = tuple(f"workloads.{name}" for name in ("bert", "llama", "markov_lm", "resnet50"))
"""Of those that `of` may name, those that take seconds to import: once in the server of a run."""


def _flip(leaf: torch.Tensor, bit: int) -> torch.Tensor:
    """One bit of the largest element, counted from the lowest."""
    wrong = leaf.detach().clone().contiguous()
    words = wrong.view(-1).view({2: torch.int16, 4: torch.int32}[wrong.element_size()])
    words[int(leaf.detach().abs().argmax())] ^= 1 << bit
    return wrong


def _unwritten(leaf: torch.Tensor) -> torch.Tensor:
    wrong = leaf.detach().clone()
    wrong.reshape(-1)[-max(1, wrong.numel() // 16) :] = math.nan
    return wrong


FAULTS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda leaf: leaf,
    "not_a_number": lambda leaf: torch.full_like(leaf, math.nan),
    "infinite": lambda leaf: torch.full_like(leaf, math.inf),
    "zeros": torch.zeros_like,
    "rescaled": lambda leaf: leaf.detach() * 1.01,
    "unwritten": _unwritten,
    "highest_bit": lambda leaf: _flip(leaf, 8 * leaf.element_size() - 2),
    "middle_bit": lambda leaf: _flip(leaf, 8 * leaf.element_size() // 2),
}
OF_STEPS = ("stale", "wrong_inputs", "skipped_update")
"""The output of the step before; a step on another input set; a step without its optimiser."""


@dataclass(kw_only=True)
class State:
    inner: Any
    number: int = -1
    kept: list[Any] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Corrupting(Workload[State, Any]):
    """`of`: the workload, with what is `given` over its small parameters, as JSON.

    `where`: field of its output, or key; all of it if it is one tensor. `fault` begins after
    `after` steps.
    """

    summary: ClassVar[str] = "Another workload with a fault in its output"
    version: ClassVar[int] = 1
    small: ClassVar[Parameters] = {}
    injector: ClassVar[str] = "corrupted output"
    builds_with: ClassVar[tuple[str, ...]] = OF_TORCH

    of: str = "gemm"
    given: str = "{}"
    where: str = ""
    fault: str = "none"
    after: int = 0

    def __post_init__(self) -> None:
        if self.fault not in (*FAULTS, *OF_STEPS):
            raise ParameterError(f'there is no fault "{self.fault}"')

    @property
    def _inner(self) -> Workload[Any, Any]:
        kind = importlib.import_module(f"workloads.{self.of}").WORKLOAD
        workload: Workload[Any, Any] = kind(**{**kind.small, **json.loads(self.given)})
        return workload

    @property
    def steps(self) -> int | None:
        return self._inner.steps

    def work(self) -> Work:
        return self._inner.work()

    def build(self, target: Target, seed: int) -> State:
        return State(inner=self._inner.build(target, seed))

    def snapshot(self, state: State) -> object:
        return self._inner.snapshot(state.inner)

    def step(self, state: State) -> Any:
        state.number += 1
        if state.number < self.after:
            output = self._inner.step(state.inner)
        elif self.fault == "skipped_update":
            output = _without_optimizer(state.inner, self._inner.step)
        elif self.fault == "wrong_inputs":
            output = _on_other_inputs(state.inner, self._inner.step)
        else:
            output = self._inner.step(state.inner)
            if self.fault in FAULTS and self.fault != "none":
                output = _replaced(output, self.where, FAULTS[self.fault])
        if self.fault == "stale":
            state.kept.append(_copied(output))
            return state.kept.pop(0) if len(state.kept) > 1 else output
        return output

    def check(self, before: object, state: State, output: Any) -> Iterator[Check]:
        return self._inner.check(before, state.inner, output)


def _replaced(output: Any, where: str, spoil: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The output with one tensor of the field spoiled, the first of several."""
    if isinstance(output, torch.Tensor):
        return spoil(output)
    if isinstance(output, np.ndarray):
        return spoil(torch.from_numpy(output)).numpy()
    if isinstance(output, Mapping):
        key = where or next(iter(output))
        return {**output, key: _replaced(output[key], "", spoil)}
    return replace(output, **{where: _replaced(getattr(output, where), "", spoil)})


def _copied(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output.detach().clone()
    if isinstance(output, np.ndarray):
        return output.copy()
    if isinstance(output, Mapping):
        return {key: _copied(value) for key, value in output.items()}
    if is_dataclass(output) and not isinstance(output, type):
        return replace(
            output, **{item.name: _copied(getattr(output, item.name)) for item in fields(output)}
        )
    return output


def _held(state: Any, name: str) -> Any:
    """The attribute of a training state, or of the one that the state holds."""
    return getattr(state, name, None) or getattr(getattr(state, "training", None), name)


def _without_optimizer(state: Any, step: Callable[[Any], Any]) -> Any:
    optimizer = _held(state, "optimizer")
    optimizer.step = lambda *_: None
    try:
        return step(state)
    finally:
        del optimizer.step


def _on_other_inputs(state: Any, step: Callable[[Any], Any]) -> Any:
    cycle: InputCycle = _held(state, "cycle")
    cycle.number += 1
    try:
        return step(state)
    finally:
        cycle.number -= 1


WORKLOAD = Corrupting
