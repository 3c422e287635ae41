"""Which libraries a case needs, and whether they are installed in versions that it runs on.

A version outside the ranges of pyproject.toml was never tried: a name may be missing, a result may
mean something else. So the case is not started, unless somebody has qualified exactly the stack
that is installed. What is planned so can be derived again of the plan and the recorded versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from appliance import extras
from appliance.planning.workload_manifest import WorkloadFacts
from appliance.records.plan import Case
from appliance.records.qualified import Qualified
from appliance.records.request import CaseRequest
from appliance.records.system import Facts

ALWAYS = (extras.TORCH,)
"""What a workload needs of which nothing is known."""
OR = extras.OR
Versions = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Versions that are allowed and that are installed, by distribution.

    One of which no version is known is not installed. `known` are the stacks that were qualified
    for a workload, for each model of device apart.
    """

    allowed: Mapping[str, str]
    installed: Versions
    known: Mapping[str, Sequence[Sequence[Versions]]] = field(default_factory=dict)

    def lack(self, workload: str, libraries: Iterable[str]) -> str:
        """What is missing of the libraries or outside its range, with the fix; or empty."""
        needed = [name for name in libraries if name in self.allowed]
        absent = [name for name in needed if name not in self.installed]
        if absent:
            return f"not installed: {', '.join(absent)}: {extras.line_that_brings(absent)}"
        outside = [name for name in needed if not self._is_inside(name)]
        if not outside or self._is_known(workload, needed, outside):
            return ""
        named = ", ".join(
            f"{name} {self.installed[name]} is outside {self.allowed[name]}" for name in outside
        )
        wanted = (f'"{name}{self.allowed[name].partition(OR)[0]}"' for name in outside)
        return f"{named}: pip install {' '.join(wanted)}"

    def _is_inside(self, name: str) -> bool:
        return extras.is_in_range(self.installed[name], self.allowed[name])

    def _is_known(self, workload: str, needed: Sequence[str], outside: Sequence[str]) -> bool:
        """Whether a record of each model names all that is outside, and nothing otherwise."""

        def is_this(stack: Versions) -> bool:
            named = [name for name in needed if name in stack]
            is_same = all(stack[name] == self.installed[name] for name in named)
            return is_same and all(name in stack for name in outside)

        of_models = self.known.get(workload, ())
        return bool(of_models) and all(any(map(is_this, stacks)) for stacks in of_models)


def allowed(ranges: Mapping[str, str], of_vendor: Mapping[str, str]) -> dict[str, str]:
    """The ranges of the package, and beside them those that are right for a vendor's devices."""
    return {
        name: f"{text}{OR}{of_vendor[name]}" if name in of_vendor else text
        for name, text in ranges.items()
    }


def known_stacks(
    qualified: Qualified, versions: Mapping[str, int], models: Iterable[str]
) -> dict[str, list[list[Versions]]]:
    """The qualified stacks of workloads in these versions, for each model of device apart."""
    named = sorted(set(models))
    return {
        workload: [
            [
                record.stack
                for record in qualified.record
                if (record.workload, record.version, record.model) == (workload, version, model)
            ]
            for model in named
        ]
        for workload, version in versions.items()
    }


def installed(software: Facts) -> dict[str, str]:
    """Versions of distributions as the node's software facts have them."""
    return {name: str(fact.value) for name, fact in software.items() if fact.value is not None}


def facts_of(
    request: CaseRequest, manifest: Mapping[str, WorkloadFacts]
) -> Iterator[WorkloadFacts]:
    """What is known of a request's workload, and of the one that it follows, if it names one."""
    names = (request.workload, str(request.parameters.get("workload", "")))
    yield from (manifest[name] for name in dict.fromkeys(names) if name in manifest)


def libraries(request: CaseRequest, manifest: Mapping[str, WorkloadFacts]) -> tuple[str, ...]:
    """Distributions that a request's workload needs, and the one that it follows."""
    known = list(facts_of(request, manifest))
    named = {name for facts in known for name in facts.libraries}
    return tuple(sorted(named)) if known else ALWAYS


def unplanned_lack(case: Case, stack: Stack) -> str:
    """What a planned case lacks by the recorded versions, though the plan does not say so."""
    return "" if case.software else stack.lack(case.workload, case.libraries)
