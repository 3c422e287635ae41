"""What is planned of a case whose workload cannot be asked, because its software is lacking.

Such a case is never started; it stands in the plan so that it is not passed over. What is shipped
beside the workloads says of it whatever else the worker would: its version, parameters and
variants. Of a workload of one's own nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from typing import Literal

from appliance.planning.workload_manifest import WorkloadFacts
from appliance.records.json import Scalar
from appliance.records.request import CaseRequest
from appliance.records.workload import Description, Parameter, Resolved, Work

_TYPES: Mapping[type[Scalar], Literal["bool", "int", "float", "str"]] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
}


def description(
    name: str, manifest: Mapping[str, WorkloadFacts], data: tuple[str, ...] = ()
) -> Description:
    """What is shipped of the workload; of one's own it is the name alone."""
    known = manifest.get(name)
    return Description(
        name=name,
        version=known.version if known else 0,
        summary=known.summary if known else "",
        parameters=tuple(starmap(_parameter, known.parameters.items())) if known else (),
        small=known.small if known else {},
        needs=known.needs if known else (),
        data=data,
        steps=None,
        alone=known.alone if known else False,
        is_timed=known.is_timed if known else False,
        is_repeatable=known.is_repeatable if known else True,
        bound_by=known.bound_by if known else "compute",
        data_pattern=known.data_pattern if known else "",
        injector=known.injector if known else "",
        domain=known.domain if known else "",
        variants={one.name: one.parameters for one in known.variants} if known else {},
    )


def _parameter(name: str, default: Scalar) -> Parameter:
    return Parameter(name=name, type=_TYPES[type(default)], default=default)


def resolved(request: CaseRequest, manifest: Mapping[str, WorkloadFacts]) -> Resolved:
    """The request with the parameters that it would have; its work and size are not known."""
    known = manifest.get(request.workload)
    parameters = dict(request.parameters) if known is None else known.complete(request)
    ranks = parameters.get("ranks", 1)
    return Resolved(
        parameters=parameters,
        work=Work(),
        num_parameters=None,
        steps=None,
        scenario="",
        ranks=ranks if isinstance(ranks, int) and not isinstance(ranks, bool) else 1,
        variant="" if known is None else known.drawn(request),
    )
