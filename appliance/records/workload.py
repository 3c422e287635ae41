"""What a workload says of itself: its work a step, its parameters, its description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from appliance.records.json import Number, Parameters, Record, Scalar
from appliance.records.suite import Scenario

Bound = Literal["compute", "memory", "latency", "input", "collective"]


# ------------------------------------------------------------------ what is to be done


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Record):
    """What one step does: `units` of `unit`, floating-point operations, bytes moved.

    None means that it is not counted; never a guess. `precision` is the number format of the
    operations as the device files name it ("bfloat16"); empty where they are of several, so that
    no one peak bounds them.
    """

    units: Number = 1.0
    unit: str = "steps"
    flops: Number | None = None
    bytes: Number | None = None
    precision: str = ""


def asks_for_tf32(parameters: Parameters, work: Work) -> bool:
    """Whether a case wants its float32 products made in TF32: by its parameter, or by its work.

    One that does runs nowhere else, and one that does not wants them in full.
    """
    return parameters.get("tf32") is True or work.precision == "tf32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter(Record):
    """One parameter of a workload, as `worker describe` tells it."""

    name: str
    type: Literal["bool", "int", "float", "str"]
    default: Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Description(Record):
    """What the plan needs to know of one workload, without importing it.

    `bound_by` is what limits its speed on a healthy device, which chooses its margin;
    `data_pattern` what its inputs are; `injector` the fault that it injects on purpose, empty
    for every workload that measures a device.
    """

    name: str
    version: int
    summary: str
    parameters: tuple[Parameter, ...]
    small: Parameters
    needs: tuple[str, ...]
    data: tuple[str, ...]
    steps: int | None
    alone: bool
    is_timed: bool
    is_repeatable: bool
    bound_by: Bound
    data_pattern: str
    injector: str
    domain: str = ""
    variants: Mapping[str, Parameters] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved(Record):
    """One case as the worker resolved it: complete parameters, its work, its size.

    `variant` names the change of parameters that was drawn; empty where none was.
    """

    parameters: Parameters
    work: Work
    num_parameters: int | None
    steps: int | None
    scenario: Scenario
    ranks: int
    variant: str = ""
    evaluate_every: int = 0
