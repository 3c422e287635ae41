"""A family of operators as one workload, judged operator by operator.

One step calls every operator of the family once, on the next of its input sets, so that a launch
has as many steps as sets. The inputs are drawn on the device, and the reference is made of what the
host draws itself, one set at a time, so damage to what the device works on shows.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.drawing.drawn import Drawer, Draws, HostDraws
from workloads.parts.matmul.products import FLOATS
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.operators.catalog import Operator
from workloads.parts.operators.inputs import cut_to_tf32
from workloads.parts.operators.rules import Reference, judge, refer

Inputs = dict[str, dict[str, torch.Tensor]]
"""By operator and name."""


@dataclass(kw_only=True)
class State:
    """Input sets on the device, and the seed that they are drawn from."""

    inputs: list[Inputs]
    seed: int
    cycle: InputCycle


@dataclass(frozen=True, kw_only=True)
class Results:
    """What a step made, by operator: floating-point outputs, and integers."""

    values: dict[str, torch.Tensor] = field(default_factory=dict)
    numbers: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OperatorFamily(Workload[State, Results]):
    """`size` is the edge that the shapes are made from; odd ones leave ragged tiles.

    `precision`: that of the operations, where the tensors' format is another.
    """

    small: ClassVar[Parameters] = {"size": 29}
    domain: ClassVar[str] = "operators"
    is_timed: ClassVar[bool] = False
    data_pattern: ClassVar[str] = "standard normal numbers; special values in inputs of their own"
    formats: ClassVar[tuple[str, ...]] = tuple(FLOATS)
    precision: ClassVar[str] = ""

    size: int = 509
    dtype: str = "float32"
    num_inputs: int = 2

    def __post_init__(self) -> None:
        require_positive(self, "size", "num_inputs")
        require_choice("dtype", self.dtype, self.formats)

    @abstractmethod
    def operators(self) -> tuple[Operator, ...]:
        """The operators of the family at these parameters."""

    @property
    def steps(self) -> int:
        return self.num_inputs

    @property
    def format(self) -> torch.dtype:
        """Number format of the tensors; that of tf32 is float32."""
        return FLOATS.get(self.dtype, torch.float32)

    def work(self) -> Work:
        operators = self.operators()
        elements = sum(math.prod(i.shape) for each in operators for i in each.inputs.values())
        flops = sum(each.flops for each in operators)
        return Work(
            units=len(operators),
            unit="operators",
            flops=flops or None,
            bytes=elements * self.format.itemsize,
            precision=(self.precision or self.dtype) if flops else "",
        )

    def build(self, target: Target, seed: int) -> State:
        draws = Draws(target=target, seed=seed)
        return State(
            inputs=[self._draw(draws, number) for number in range(self.num_inputs)],
            seed=seed,
            cycle=InputCycle(of=self.num_inputs),
        )

    def _draw(self, drawer: Drawer, number: int) -> Inputs:
        """The input set of a number, wherever the drawer makes it."""
        return {
            operator.name: {
                name: self._cut(
                    item.fill(
                        drawer, f"set {number}, {operator.name}: {name}", item.shape, self.format
                    )
                )
                for name, item in operator.inputs.items()
            }
            for operator in self.operators()
        }

    def _cut(self, values: torch.Tensor) -> torch.Tensor:
        """Without the bits that the operations do not read."""
        is_cut = self.dtype == "tf32" and values.is_floating_point()
        return cut_to_tf32(values) if is_cut else values

    def step(self, state: State) -> Results:
        inputs = state.inputs[state.cycle.advance()]
        results = Results()
        for operator in self.operators():
            for name, output in operator.run(inputs[operator.name]).items():
                stored = results.values if output.is_floating_point() else results.numbers
                stored[name] = output
        return results

    def snapshot(self, state: State) -> dict[str, dict[str, Reference]]:
        """References of the next step's outputs, by operator; none depends on the device."""
        number = (state.cycle.number + 1) % self.num_inputs
        inputs = self._draw(HostDraws(seed=state.seed), number)
        return {each.name: refer(each, inputs[each.name], self.format) for each in self.operators()}

    def check(self, before: object, state: State, output: Results) -> Iterator[Check]:
        del state
        assert isinstance(before, dict)  # noqa: S101 - narrows for the type checker
        actual = {**output.values, **output.numbers}
        for operator in self.operators():
            for name, reference in before[operator.name].items():
                yield from judge(operator, name, actual.get(name), reference)
