"""What a workload's parameters are, and whether the values that a suite gives them fit.

The fields of a workload's dataclass are its parameters: a boolean, an integer, a number or a
text, or a Literal of those. A value of another type is refused, and so is a number that is not
finite; only an integer for a number is taken. Nothing here knows which workloads exist.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
import traceback
import typing
from collections.abc import Mapping
from typing import Any, Literal, cast

from appliance.evidence.software_fault import ANY_MESSAGE, class_names
from appliance.planning.workload_manifest import complete, drawn
from appliance.records.json import Parameters, Scalar
from appliance.records.request import CaseRequest, Lacking, Refused
from appliance.records.workload import Description, Parameter, Resolved
from appliance.storage.toml_file import did_you_mean
from workloads.contract.failures import ParameterError
from workloads.contract.workload import Workload

TypeName = Literal["bool", "int", "float", "str"]
TYPES: Mapping[type, TypeName] = {bool: "bool", int: "int", float: "float", str: "str"}
WORDS: Mapping[TypeName, str] = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a finite number",
    "str": "a text",
}
AnyWorkload = Workload[Any, Any]


COLOURS = re.compile(r"\x1b\[[0-9;]*m")
LARGEST = 2**53
"""Integers above it are not the same in every reader of JSON."""


class Unfit(ValueError):
    """A value that is refused; one sentence."""


def description(name: str, kind: type[AnyWorkload]) -> Description:
    """What the plan needs to know of a workload."""
    return Description(
        name=name,
        version=kind.version,
        summary=kind.summary,
        parameters=tuple(
            Parameter(name=name, type=_type(kind, name), default=default)
            for name, default in _defaults(kind).items()
        ),
        small=dict(kind.small),
        needs=tuple(sorted(kind.needs)),
        data=tuple(kind.data),
        steps=kind().steps,
        alone=kind.alone,
        is_timed=kind.is_timed,
        is_repeatable=kind.is_repeatable,
        bound_by=kind.bound_by,
        data_pattern=kind.data_pattern,
        injector=kind.injector,
        domain=kind.domain,
        variants={name: dict(change) for name, change in kind.variants.items()},
    )


def resolve(kind: type[AnyWorkload], request: CaseRequest) -> Resolved | Refused | Lacking:
    """One request with all of its parameters, its work and its size; or why not.

    No device is used for that, so a library that lacks a name or a call is software's fault.
    """
    try:
        variant = _drawn(kind, request)
        parameters = _complete(kind, request, kind.variants.get(variant, {}))
        workload = kind(**parameters)
        return Resolved(
            parameters=parameters,
            work=workload.work(),
            num_parameters=workload.num_parameters(),
            steps=workload.steps,
            scenario=workload.scenario,
            ranks=workload.ranks,
            variant=variant,
            evaluate_every=workload.evaluate_every,
        )
    except (Unfit, ParameterError) as error:
        return Refused(error=one_line(error))
    except Exception as error:  # noqa: BLE001 - whatever a workload raises is an answer, no end
        traceback.print_exc(file=sys.stderr)
        what = f"{type(error).__name__}: {one_line(error)}"
        if not ANY_MESSAGE.isdisjoint(class_names(error)):
            fix = "install the versions of the locks (`bench doctor` compares them)"
            return Lacking(lack=f'workload "{request.workload}" cannot be sized ({what}): {fix}')
        return Refused(error=f'workload "{request.workload}" refuses its parameters ({what})')


def one_line(error: BaseException) -> str:
    """An error's text as one line of at most 300 characters, without terminal colours."""
    return " ".join(COLOURS.sub("", str(error)).split())[:300]


def _drawn(kind: type[AnyWorkload], request: CaseRequest) -> str:
    """Name of the variant that the request's number draws; empty where there is none to draw."""
    return drawn(tuple(kind.variants), request.draw)


def _complete(
    kind: type[AnyWorkload], request: CaseRequest, change: Parameters
) -> dict[str, Scalar]:
    """All parameters of the request, with a variant's change; Unfit for one that is not there."""
    defaults = _defaults(kind)
    for name in request.parameters:
        if name not in defaults:
            hint = did_you_mean(name, defaults)
            raise Unfit(f'workload "{request.workload}" has no parameter "{name}"{hint}')
    return fitted(kind, complete(request, defaults=defaults, small=kind.small, change=change))


def fitted(kind: type[AnyWorkload], parameters: Parameters) -> dict[str, Scalar]:
    """The values in the types of their parameters, as JSON writes 1.0 as 1; Unfit if one is not."""
    return {name: _typed(kind, name, value) for name, value in parameters.items()}


def _defaults(kind: type[AnyWorkload]) -> dict[str, Scalar]:
    return {field.name: cast("Scalar", field.default) for field in dataclasses.fields(kind)}


def _typed(kind: type[AnyWorkload], name: str, value: Scalar) -> Scalar:
    wanted = _type(kind, name)
    if wanted == "float" and type(value) is int:
        value = float(value)
    is_finite = not isinstance(value, float) or math.isfinite(value)
    if TYPES[type(value)] != wanted or not is_finite:
        raise Unfit(f'parameter "{name}" must be {WORDS[wanted]}, not {value!r}')
    if type(value) is int and abs(value) > LARGEST:
        raise Unfit(f'parameter "{name}" must be at most 2**53, not {value}')
    choices = _choices(kind, name)
    if choices and value not in choices:
        hint = did_you_mean(str(value), [str(choice) for choice in choices])
        raise Unfit(f'parameter "{name}" cannot be {value!r}{hint}')
    return value


def _type(kind: type[AnyWorkload], name: str) -> TypeName:
    choices = _choices(kind, name)
    return TYPES[type(choices[0]) if choices else typing.get_type_hints(kind)[name]]


def _choices(kind: type[AnyWorkload], name: str) -> tuple[Scalar, ...]:
    """Values of a Literal; empty for a plain type."""
    return typing.get_args(typing.get_type_hints(kind)[name])
