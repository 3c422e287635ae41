"""What is shipped of workloads and torch is what the worker says of them."""

from __future__ import annotations

import os
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from appliance.planning import workload_manifest, workload_sizes
from appliance.probe import libraries
from appliance.records.json import to_json
from appliance.records.request import CaseRequest, Question
from appliance.records.workload import Resolved
from appliance.runner.environment import usable_cores
from appliance.worker.describe import describe
from appliance.worker.parameters import resolve
from appliance.worker.workload_loader import load_workload

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "write_workload_sizes.py"))
REQUESTS: Mapping[str, list[CaseRequest]] = SCRIPT["requests"]()
MANIFEST = workload_manifest.load()
FILE = workload_sizes.load()
SHIPPED = workload_sizes.shipped()


def test_every_workload_of_a_shipped_suite_has_its_sizes() -> None:
    assert [one.name for one in FILE.workload] == [*REQUESTS], "run `make generate`"


def covering(requests: Sequence[CaseRequest]) -> list[CaseRequest]:
    """Some of the requests of a workload, in which every value of every parameter stands.

    The first is that at full size; the others are at small size where they can be, for seconds.
    """
    facts = MANIFEST[requests[0].workload]
    chosen = [requests[0]]
    values = {at: set(facts.complete(one).items()) for at, one in enumerate(requests)}
    pending = set.union(*values.values()) - values[0]
    while pending:
        new = {at: len(each & pending) for at, each in values.items()}
        best = max(new, key=lambda at: (new[at] > 0, requests[at].small, new[at]))
        chosen.append(requests[best])
        pending -= values[best]
    return chosen


@pytest.mark.parametrize("name", REQUESTS)
def test_the_sizes_are_those_of_the_workload(name: str) -> None:
    """Of so many requests that each value of a parameter is in one; all would take minutes."""
    kind = load_workload(name)
    for request in covering(REQUESTS[name]):
        shipped, answer = SHIPPED.resolved(request), resolve(kind, request)
        known = to_json(answer) if isinstance(answer, Resolved) else None  # refused anew in a plan
        assert (shipped and to_json(shipped)) == known, "run `make generate`"


def test_the_software_is_what_an_import_shows() -> None:
    read = libraries.software(usable_cores(), os.environ)
    if read is None:
        pytest.skip("torch's header does not name its library for matrices")
    imported = describe(Question(requests=())).software
    differing = {name for name in read if read[name].value != imported[name].value}
    assert read.keys() == imported.keys()
    assert differing <= {"torch_threads"}  # of this process, which has its own number
