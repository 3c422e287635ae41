"""What the plan needs from a child before any launch: workloads, requests, and software."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from appliance.records.request import Answer, CaseRequest, Refused
from appliance.records.system import Fact, Facts
from appliance.records.workload import Description
from appliance.worker.parameters import AnyWorkload, description, one_line, resolve
from appliance.worker.workload_loader import WorkloadAbsent, load_workload
from workloads.contract.failures import ParameterError

LIBRARIES = (
    *("torch", "transformers", "onnxruntime", "onnx", "numpy", "scikit-learn"),
    *("jax", "jaxlib", "optax", "brax", "gymnax", "ale-py"),
)


def describe(requests: tuple[CaseRequest, ...], others: Sequence[str] = ()) -> Answer:
    """The requests resolved in their order, their workloads and `others`, and the software.

    What cannot be loaded is described by nothing. Nothing else is imported: the libraries of all
    workloads take many seconds.
    """
    kinds: dict[str, type[AnyWorkload] | WorkloadAbsent] = {}
    requested = dict.fromkeys(request.workload for request in requests)
    for name in [*others, *requested]:
        if name not in kinds:
            try:
                kinds[name] = load_workload(name, to_build=name in requested)
            except WorkloadAbsent as absent:
                kinds[name] = absent
    resolved = [
        Refused(error=str(kind)) if isinstance(kind, WorkloadAbsent) else resolve(kind, request)
        for kind, request in ((kinds[request.workload], request) for request in requests)
    ]
    loaded = {name: kind for name, kind in kinds.items() if isinstance(kind, type)}
    return Answer(
        descriptions=tuple(_descriptions(loaded)),
        resolved=tuple(resolved),
        software=_software(),
    )


def describe_all(names: Sequence[str]) -> Answer:
    """These workloads, and two resolved requests for each: at full size, then at small size."""
    answer = describe((), names)
    requests = tuple(
        CaseRequest(workload=item.name, small=small, parameters={})
        for item in answer.descriptions
        for small in (False, True)
    )
    return replace(answer, resolved=describe(requests).resolved)


def _descriptions(kinds: Mapping[str, type[AnyWorkload]]) -> Iterator[Description]:
    """One that cannot be described (its data is not installed) takes no other down with it."""
    for name, kind in kinds.items():
        try:
            yield description(name, kind)
        except ParameterError as error:
            print(f"{name} is left out: {one_line(error)}", file=sys.stderr)  # noqa: T201 - a log


def _software() -> Facts:
    """Facts that only an import can show."""
    built = torch.__config__.show()
    blas = [name for name in ("mkl", "open", "accelerate") if f"BLAS_INFO={name}" in built]
    facts = {
        "python": platform.python_version(),
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch_blas": blas[0] if blas else None,
        "torch_onednn": "USE_MKLDNN=1" in built or "USE_MKLDNN=ON" in built,
        "torch_threads": torch.get_num_threads(),
    }
    return {
        **{library: library_version(library) for library in LIBRARIES},
        **{name: Fact(value=value, source="worker") for name, value in facts.items()},
    }


def library_version(library: str) -> Fact:
    try:
        return Fact(value=importlib.metadata.version(library), source="package metadata")
    except importlib.metadata.PackageNotFoundError:
        return Fact(value=None, source="package metadata", hint=f"{library} is not installed")
