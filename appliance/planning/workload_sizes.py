"""What a step of each shipped case does, so that a plan needs no library that computes it.

The work, the number of parameters and the steps of a workload follow from its version and its
full parameters alone. scripts/write_workload_sizes.py asks the workloads for every case, memory
class, variant and number of ranks of the shipped suites, and writes them into a file beside
workload_facts.json; a test asks again. A request that does not stand there is for the worker to
answer, and so is every request of a workload whose module is of another version.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from appliance.planning import workload_manifest
from appliance.planning.undescribed import description
from appliance.planning.workload_manifest import WorkloadFacts
from appliance.records.json import Parameters, Record, Scalar
from appliance.records.request import Answer, CaseRequest
from appliance.records.suite import Suite, SuiteCase
from appliance.records.workload import Description, Resolved
from appliance.storage import toml_file

FILE = Path(__file__).parents[1].joinpath("workload_sizes.json")
RANKS = (2, 4, 8)
"""Devices of a job whose sizes are shipped, where the work is not in proportion to them."""
FEWEST_RANKS = RANKS[0]
_VERSION = re.compile(r"^    version: ClassVar\[int\] = (\d+)$", re.MULTILINE)

Key = frozenset[tuple[str, type[object], Scalar]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSizes(Record):
    """The resolved requests of one workload, in one version.

    Of their parameters those are left out that have the default; variants are named by the draw.
    With `is_by_rank` the work of a job is in proportion to its ranks, and only jobs of
    FEWEST_RANKS stand here.
    """

    name: str
    version: int
    is_by_rank: bool
    resolved: tuple[Resolved, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizesFile(Record):
    """appliance/workload_sizes.json."""

    schema: Literal["bench/workload-sizes/1"] = "bench/workload-sizes/1"
    workload: tuple[WorkloadSizes, ...]


def find(sizes: WorkloadSizes, parameters: Parameters, facts: WorkloadFacts) -> Resolved | None:
    """What a step with these full parameters does; None where that is not among the sizes.

    `facts` are those of the same version of the workload.
    """

    def known(wanted: Parameters) -> Resolved | None:
        key = _key(changed(_typed(wanted, facts.parameters), facts.parameters))
        return next((one for one in sizes.resolved if _key(one.parameters) == key), None)

    exact, ranks = known(parameters), parameters.get("ranks")
    if exact is None and sizes.is_by_rank and type(ranks) is int and ranks > FEWEST_RANKS:
        fewest = known({**parameters, "ranks": FEWEST_RANKS})
        return None if fewest is None else with_ranks(fewest, ranks)
    return exact


def load() -> SizesFile:
    """The sizes of every shipped case."""
    return toml_file.parse_json(SizesFile, FILE.read_bytes(), FILE.name)


@dataclass(frozen=True, kw_only=True)
class ShippedAnswers:
    """What the worker would say of requests, from the shipped facts and sizes.

    `versions` are those of the modules that a launch would import.
    """

    manifest: Mapping[str, WorkloadFacts]
    file: SizesFile
    versions: Mapping[str, int]
    _by_key: Mapping[str, Mapping[Key, Resolved]] = field(init=False)
    _by_rank: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        by_key = {
            one.name: {_key(item.parameters): item for item in one.resolved}
            for one in self.file.workload
            if self.is_current(one.name) and one.version == self.versions[one.name]
        }
        by_rank = frozenset(one.name for one in self.file.workload if one.is_by_rank)
        object.__setattr__(self, "_by_key", by_key)
        object.__setattr__(self, "_by_rank", by_rank)

    def description(self, name: str) -> Description:
        """What the plan needs to know of a workload of the manifest."""
        return description(name, self.manifest, data=self.manifest[name].data)

    def resolved(self, request: CaseRequest) -> Resolved | None:
        """The request as the worker would resolve it; None where it must be asked."""
        sizes = self._by_key.get(request.workload)
        if sizes is None:
            return None
        facts = self.manifest[request.workload]
        complete = _typed(facts.complete(request), facts.parameters)
        followed = str(complete.get("workload", ""))
        if followed in self.manifest and followed not in self._by_key:
            return None
        known = sizes.get(_key(changed(complete, facts.parameters)))
        if known is None and request.num_devices > FEWEST_RANKS and facts.name in self._by_rank:
            fewest = {**complete, "ranks": FEWEST_RANKS}
            known = sizes.get(_key(changed(fewest, facts.parameters)))
            known = None if known is None else with_ranks(known, request.num_devices)
        if known is None:
            return None
        return replace(known, parameters=complete, variant=facts.drawn(request))

    def answer(self, requests: Sequence[CaseRequest]) -> Answer:
        """All that is known of the requests, as an answer of the worker; no software is named."""
        resolved = [self.resolved(request) for request in requests]
        names = dict.fromkeys(request.workload for request in requests)
        return Answer(
            descriptions=tuple(self.description(name) for name in names),
            resolved=tuple(one for one in resolved if one is not None),
            software={},
        )

    def is_current(self, name: str) -> bool:
        """Whether facts and module of this name are there and of one version."""
        return name in self.manifest and self.manifest[name].version == self.versions.get(name)


def shipped() -> ShippedAnswers:
    """The shipped facts and sizes beside the modules of this installation."""
    manifest = workload_manifest.load()
    return ShippedAnswers(manifest=manifest, file=load(), versions=module_versions(manifest))


def with_ranks(resolved: Resolved, ranks: int) -> Resolved:
    """The same job with another number of ranks, each of which has the same work."""

    def times(value: float | None) -> float | None:
        return None if value is None else value / resolved.ranks * ranks

    work = resolved.work
    units = work.units / resolved.ranks * ranks
    work = replace(work, units=units, flops=times(work.flops), bytes=times(work.bytes))
    return replace(resolved, work=work, ranks=ranks)


def changed(parameters: Parameters, defaults: Parameters) -> dict[str, Scalar]:
    """Those of the parameters that do not have their default."""
    return {
        name: value
        for name, value in parameters.items()
        if name not in defaults or _entry(name, value) != _entry(name, defaults[name])
    }


def _typed(parameters: Parameters, defaults: Parameters) -> dict[str, Scalar]:
    """An integer where the parameter is a number becomes one, as the worker has it."""
    return {
        name: float(value)
        if type(value) is int and isinstance(defaults.get(name), float)
        else value
        for name, value in parameters.items()
    }


def _key(parameters: Parameters) -> Key:
    return frozenset(_entry(name, value) for name, value in parameters.items())


def _entry(name: str, value: Scalar) -> tuple[str, type[object], Scalar]:
    """One parameter so that True is not 1; JSON has one form for 1.0 and 1."""
    is_whole = isinstance(value, float) and value.is_integer()
    value = int(value) if is_whole else value
    return name, type(value), value


# ------------------------------------------------------------------ what the modules say


def module_names() -> list[str]:
    """Modules of workloads/ that may be a workload."""
    modules = pkgutil.iter_modules(map(str, _folders()))
    return sorted(
        one.name
        for one in modules
        if not one.ispkg and one.name != "contract" and not one.name.startswith("_")
    )


def _folders() -> list[Path]:
    """Of the modules of workloads, which are looked up and not imported."""
    spec = find_spec("workloads")
    return [Path(one) for one in (spec.submodule_search_locations or ())] if spec else []


def module_versions(names: Iterable[str]) -> dict[str, int]:
    """The versions in the modules of workloads, which are read and not imported."""
    folders = _folders()
    versions = {}
    for name in names:
        path = next((one / f"{name}.py" for one in folders), None)
        if path is not None and path.is_file():
            version = _VERSION.search(path.read_text("utf-8"))
            if version:
                versions[name] = int(version[1])
    return versions


# ------------------------------------------------------------------ what is shipped


def defaults(name: str) -> tuple[CaseRequest, CaseRequest]:
    """A workload at its full and at its small size."""
    full = CaseRequest(workload=name, small=False, parameters={})
    return full, replace(full, small=True)


def requests(suite: Suite, manifest: Mapping[str, WorkloadFacts]) -> Iterator[CaseRequest]:
    """All that planning a suite may ask of the worker, on any node and under any seed."""
    for item in suite.case:
        facts = manifest[item.workload]
        is_varied = suite.variants if item.variants is None else item.variants
        draws = (None, *(range(len(facts.variants)) if is_varied else ()))
        tables = [one.parameters for one in item.memory] or [{}]
        for table in tables:
            for num_devices in _counts(item, facts):
                for draw in draws:
                    yield CaseRequest(
                        workload=item.workload,
                        small=item.small,
                        parameters={**item.parameters, **table},
                        num_devices=num_devices,
                        draw=draw,
                    )


def _counts(item: SuiteCase, facts: WorkloadFacts) -> tuple[int, ...]:
    """Numbers of ranks of a job; 0 is one whose parameters say it, as on processors.

    The fewest is always among them, of which the sizes of others may be made.
    """
    if item.scope != "job" or "ranks" not in facts.parameters:
        return (0,)
    more = (count for count in RANKS if count >= item.num_devices and count != FEWEST_RANKS)
    return (0, FEWEST_RANKS, *more)
