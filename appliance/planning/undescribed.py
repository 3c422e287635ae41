"""What is planned of a case whose workload cannot be asked, because its software is lacking.

Such a case is never started; it stands in the plan so that it is not passed over. What is shipped
beside the workloads says of it whatever else the worker would: its version, parameters and
variants. Of a workload of one's own nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping

from appliance.planning.workload_manifest import WorkloadFacts
from appliance.records.request import CaseRequest
from appliance.records.workload import Description, Resolved, Work


def description(
    name: str, manifest: Mapping[str, WorkloadFacts], data: tuple[str, ...] = ()
) -> Description:
    """What the plan needs to know of the workload; the types of its parameters are left out."""
    known = manifest.get(name)
    return Description(
        name=name,
        version=known.version if known else 0,
        summary=known.summary if known else "",
        parameters=(),
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
    )


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
