"""What a verifier must know of the workloads, which he cannot import.

A suite leaves much to a workload: the parameters that it does not name, and the variants of which
the run's seed draws one. Only the workload's module tells them, and that needs torch. So they stand
in a file beside this module, written by scripts/write_workload_facts.py of the workloads
themselves, each with its version: the facts are true of that version and of no other.

The rules by which a request becomes a full set of parameters stand here, too. The worker resolves
by them before a run, and whoever verifies the plan resolves by them once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from appliance import extras
from appliance.errors import UsageError
from appliance.records.json import Parameters, Record, Scalar
from appliance.records.plan import Case
from appliance.records.request import CaseRequest
from appliance.records.suite import Framework
from appliance.records.workload import Bound
from appliance.storage import toml_file

FILE = Path(__file__).parents[1].joinpath("workload_facts.json")
BESIDE_TORCH: tuple[Framework, ...] = ("jax", "onnx")
"""Parts of the package that compute without torch, which has all that is left."""
NAMED = 3
"""Workloads that a sentence names before it counts the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant(Record):
    """One named change of a workload's parameters."""

    name: str
    parameters: Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts(Record):
    """One workload: what its class says of it, its parameters with their defaults, its variants.

    `small` are the parameters of the reduced size. The variants stand in the order of the module,
    by which a number draws one of them. `parts` are those of the package that its imports need,
    and `libraries` the distributions: those of the parts that are its own, and what it imports of
    the part that all of them share.
    """

    name: str
    version: int
    domain: str
    parts: tuple[str, ...]
    libraries: tuple[str, ...]
    summary: str
    data_pattern: str
    is_timed: bool
    is_repeatable: bool
    alone: bool
    bound_by: Bound
    injector: str
    needs: tuple[str, ...]
    data: tuple[str, ...]
    parameters: Parameters
    small: Parameters
    variants: tuple[Variant, ...]

    def drawn(self, request: CaseRequest) -> str:
        """Name of the variant that the request's number draws; empty where there is none."""
        return drawn([one.name for one in self.variants], request.draw)

    def complete(self, request: CaseRequest) -> dict[str, Scalar]:
        """All parameters of the request, as the worker resolves them."""
        name = self.drawn(request)
        change = next((one.parameters for one in self.variants if one.name == name), {})
        return complete(request, defaults=self.parameters, small=self.small, change=change)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFile(Record):
    """appliance/workload_facts.json."""

    schema: Literal["bench/workloads/4"] = "bench/workloads/4"
    workload: tuple[WorkloadFacts, ...]


def load() -> Mapping[str, WorkloadFacts]:
    """The facts of every workload that is shipped, by its name."""
    file = toml_file.parse_json(WorkloadFile, FILE.read_bytes(), FILE.name)
    return {facts.name: facts for facts in file.workload}


def refuse_absent(requests: Sequence[CaseRequest]) -> None:
    """UsageError with the command to give, unless the parts that these workloads need are there.

    For who cannot do without any of them; a plan goes on without. A workload that follows another,
    which it names in a parameter, needs what that one needs.
    """
    known = load()
    named = (
        name
        for request in requests
        for name in (request.workload, str(request.parameters.get("workload", "")))
    )
    facts = [known[name] for name in dict.fromkeys(named) if name in known]
    missing = {part: extras.absent(part) for one in facts for part in one.parts}
    wanted = {part: names for part, names in missing.items() if names}
    if wanted:
        lacking = [one.name for one in facts if set(one.parts) & wanted.keys()]
        others = f" and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
        libraries = ", ".join(name for names in wanted.values() for name in names)
        raise UsageError(
            f"not installed: {libraries}, for {', '.join(lacking[:NAMED])}{others}: "
            f"{extras.line(wanted)}"
        )


def frameworks(cases: Iterable[Case]) -> Mapping[str, Framework]:
    """What computes the steps of each case, by the case's name.

    By the parts that the imports of its workload need; of one that is not shipped, by the features
    that the case needs.
    """
    known = load()
    return {
        case.id: _framework(known[case.workload].parts if case.workload in known else case.needs)
        for case in cases
    }


def _framework(parts: Collection[str]) -> Framework:
    return next((one for one in BESIDE_TORCH if one in parts), "torch")


def drawn(names: Sequence[str], draw: int | None) -> str:
    """The one of these variants that a number draws; empty where there is none to draw."""
    return names[draw % len(names)] if names and draw is not None else ""


def complete(
    request: CaseRequest, *, defaults: Parameters, small: Parameters, change: Parameters
) -> dict[str, Scalar]:
    """The defaults, over them the small ones, over those the ones that the request asks for.

    Over all of them stand a variant's change, and the number of ranks of a job on many devices.
    """
    reduced = small if request.small else {}
    ranks = {"ranks": request.num_devices} if request.num_devices and "ranks" in defaults else {}
    return {**defaults, **reduced, **request.parameters, **change, **ranks}
