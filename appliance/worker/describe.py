"""What the plan needs from a child before any launch: workloads, requests, and software."""

from __future__ import annotations

import platform
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

import torch

from appliance import extras
from appliance.planning import library_ranges, workload_manifest
from appliance.probe import libraries
from appliance.records.request import Answer, CaseRequest, Lacking, Question, Refused
from appliance.records.system import DeviceLibraries, Fact, Facts
from appliance.records.workload import Description, Resolved
from appliance.worker.parameters import AnyWorkload, description, one_line, resolve
from appliance.worker.workload_loader import WorkloadAbsent, import_fault, load_workload
from workloads.contract.failures import ParameterError

Loaded = type[AnyWorkload] | Refused | Lacking


def describe(question: Question) -> Answer:
    """The requests resolved in their order, their workloads, and the software.

    What cannot be loaded is described by nothing. Nothing else is imported: the libraries of all
    workloads take many seconds.
    """
    requested = dict.fromkeys(request.workload for request in question.requests)
    kinds = {name: _loaded(name) for name in requested}
    answers = (_resolved(kinds[request.workload], request) for request in question.requests)
    lack = Drivers(question.libraries).lack
    resolved = [
        _with_lack(answer, lack(request))
        for answer, request in zip(answers, question.requests, strict=True)
    ]
    loaded = {name: kind for name, kind in kinds.items() if isinstance(kind, type)}
    return Answer(
        descriptions=tuple(_descriptions(loaded)),
        resolved=tuple(resolved),
        software=_software(),
    )


def _loaded(name: str) -> Loaded:
    """The workload, or why there is none; what its libraries raise ends no other's description."""
    try:
        return load_workload(name)
    except WorkloadAbsent as absent:
        return Lacking(lack=str(absent)) if absent.is_software else Refused(error=str(absent))
    except Exception as error:  # noqa: BLE001 - importing touches no device, so it is software
        traceback.print_exc(file=sys.stderr)
        return Lacking(lack=import_fault(name, error))


def _resolved(kind: Loaded, request: CaseRequest) -> Resolved | Refused | Lacking:
    return resolve(kind, request) if isinstance(kind, type) else kind


def _with_lack(answer: Resolved | Refused | Lacking, sentence: str) -> Resolved | Refused | Lacking:
    """The answer, and what the devices lack of what is needed for it."""
    if sentence and isinstance(answer, Resolved):
        return Lacking(lack=sentence, resolved=answer)
    return answer


def _descriptions(kinds: Mapping[str, type[AnyWorkload]]) -> Iterator[Description]:
    """One that cannot be described (its data is not installed) takes no other down with it."""
    for name, kind in kinds.items():
        try:
            yield description(name, kind)
        except ParameterError as error:
            print(f"{name} is left out: {one_line(error)}", file=sys.stderr)  # noqa: T201 - a log


# ------------------------------------------------------------------ what the devices lack


class Drivers:
    """What there is to drive devices with; asked once, and only if a request needs it."""

    def __init__(self, wanted: DeviceLibraries | None) -> None:
        self._wanted = wanted

    @cached_property
    def _manifest(self) -> Mapping[str, workload_manifest.WorkloadFacts]:
        return workload_manifest.load()

    def lack(self, request: CaseRequest) -> str:
        """One sentence with the fix; empty where nothing is lacking."""
        return self.lack_of(library_ranges.libraries(request, self._manifest))

    def lack_of(self, needed: Collection[str]) -> str:
        """The same of the distributions that a workload needs, which it has imported."""
        return (
            next(filter(None, map(extras.contradiction, needed)), "")
            or (libraries.ONNX in needed and self._of_onnx)
            or (libraries.JAX in needed and self._of_jax)
            or ""
        )

    @cached_property
    def _of_onnx(self) -> str:
        if self._wanted is None:
            return ""
        import onnxruntime  # noqa: PLC0415 - only where a request needs it

        return libraries.provider_lack(self._wanted, onnxruntime.get_available_providers())

    @cached_property
    def _of_jax(self) -> str:
        return "" if self._wanted is None else libraries.plugin_lack(self._wanted)


# ------------------------------------------------------------------ the software


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
        **libraries.versions(),
        **{name: Fact(value=value, source="worker") for name, value in facts.items()},
    }
