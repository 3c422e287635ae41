"""Writes appliance/workload_sizes.json: what a step of each workload and each shipped case does.

Part of `make generate`; run that after a change of a suite, or of a workload's version, parameters
or work; a test compares what it would write with what is there. It resolves every request in this
process as the worker does, so it needs what a run needs; who plans reads the file alone.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.planning import workload_manifest, workload_sizes  # noqa: E402 - after the path
from appliance.planning.workload_sizes import SizesFile, WorkloadSizes  # noqa: E402 - the same
from appliance.records.json import to_data  # noqa: E402 - the same
from appliance.records.request import CaseRequest  # noqa: E402 - the same
from appliance.records.workload import Resolved  # noqa: E402 - the same
from appliance.storage.suite_file import list_suites, load_suite  # noqa: E402 - the same
from appliance.worker.parameters import AnyWorkload, resolve  # noqa: E402 - the same
from appliance.worker.workload_loader import load_workload  # noqa: E402 - the same

OWN_SUITES = sorted((ROOT / "tests" / "suites").glob("*.toml"))
"""Suites by which the whole flow is tested: what they plan is compared like the shipped ones."""


def requests() -> dict[str, list[CaseRequest]]:
    """Each workload at its defaults, and what the suites may ask of it; the same once."""
    manifest = workload_manifest.load()
    distinct: dict[str, dict[str, CaseRequest]] = {name: {} for name in sorted(manifest)}
    suites = (load_suite(name)[0] for name in (*list_suites(), *map(str, OWN_SUITES)))
    for request in chain(
        chain.from_iterable(map(workload_sizes.defaults, manifest)),
        chain.from_iterable(workload_sizes.requests(suite, manifest) for suite in suites),
    ):
        complete = manifest[request.workload].complete(request)
        key = json.dumps(complete, sort_keys=True)
        distinct[request.workload].setdefault(key, request)
    return {name: [*wanted.values()] for name, wanted in distinct.items()}


def is_by_rank(kind: type[AnyWorkload], wanted: list[CaseRequest]) -> bool:
    """Whether the work of a workload's first job is in proportion to its ranks."""
    job = next((one for one in wanted if one.num_devices == workload_sizes.FEWEST_RANKS), None)
    fewest = job and resolve(kind, job)
    if job is None or not isinstance(fewest, Resolved):
        return False
    for count in workload_sizes.RANKS[1:]:
        other = resolve(kind, replace(job, num_devices=count))
        scaled = workload_sizes.with_ranks(fewest, count)
        if not isinstance(other, Resolved) or replace(other, parameters={}) != replace(
            scaled, parameters={}
        ):
            return False
    return True


def sizes(name: str, wanted: list[CaseRequest]) -> WorkloadSizes:
    """A workload's answers; what it refuses is left out, and refused by it again in a plan."""
    kind = load_workload(name)
    defaults = workload_manifest.load()[name].parameters
    by_rank = is_by_rank(kind, wanted)
    most = workload_sizes.FEWEST_RANKS if by_rank else max(workload_sizes.RANKS)
    answers = (resolve(kind, request) for request in wanted if request.num_devices <= most)
    return WorkloadSizes(
        name=name,
        version=kind.version,
        is_by_rank=by_rank,
        resolved=tuple(
            replace(
                one,
                parameters=workload_sizes.changed(one.parameters, defaults),
                variant="",
            )
            for one in answers
            if isinstance(one, Resolved)
        ),
    )


def content() -> bytes:
    """The file's bytes."""
    return written(tuple(sizes(name, wanted) for name, wanted in requests().items()))


def written(workloads: tuple[WorkloadSizes, ...]) -> bytes:
    """JSON with a line for each answer."""
    data = to_data(SizesFile(workload=workloads))
    blocks = (
        json.dumps({**one, "resolved": []}, ensure_ascii=False).removesuffix("]}")
        + "\n"
        + ",\n".join(f" {json.dumps(item, ensure_ascii=False)}" for item in one["resolved"])
        + "]}"
        for one in data["workload"]
    )
    head = json.dumps({**data, "workload": []}).removesuffix("]}")
    return (head + "\n" + ",\n".join(blocks) + "\n]}\n").encode()


def main() -> None:
    """Write the file anew."""
    workload_sizes.FILE.write_bytes(content())


if __name__ == "__main__":
    main()
