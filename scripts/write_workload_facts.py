"""Writes appliance/workload_facts.json: what every workload says of itself, parameters and all.

Run it after adding a workload, or after a change of its version, its parameters or its variants;
a test compares what it would write with what is there. It imports every workload, so it needs
what a run needs; who verifies reads the file alone.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import workloads  # noqa: E402 - the script runs where nothing is installed
from appliance.planning.workload_manifest import FILE, Variant, WorkloadFacts, WorkloadFile  # noqa: E402 - the same
from appliance.records.json import Scalar, to_data  # noqa: E402 - the same
from workloads.contract.workload import Workload  # noqa: E402 - the same


def kinds() -> Iterator[tuple[str, type[Workload[Any, Any]]]]:
    """Every workload of the folder with its module's name, by which a suite calls it."""
    for module in sorted(pkgutil.iter_modules(workloads.__path__), key=lambda one: one.name):
        if not module.ispkg:
            found = getattr(importlib.import_module(f"workloads.{module.name}"), "WORKLOAD", None)
            if found is not None:
                yield module.name, found


def facts(name: str, kind: type[Workload[Any, Any]]) -> WorkloadFacts:
    """What the workload's class says of itself; nothing of it is built."""
    return WorkloadFacts(
        name=name,
        version=kind.version,
        is_timed=kind.is_timed,
        is_repeatable=kind.is_repeatable,
        alone=kind.alone,
        bound_by=kind.bound_by,
        injector=kind.injector,
        needs=tuple(sorted(kind.needs)),
        parameters={
            field.name: cast("Scalar", field.default) for field in dataclasses.fields(kind)
        },
        small=dict(kind.small),
        variants=tuple(
            Variant(name=variant, parameters=dict(change))
            for variant, change in kind.variants.items()
        ),
    )


def content() -> bytes:
    """The file's bytes."""
    file = WorkloadFile(workload=tuple(facts(name, kind) for name, kind in kinds()))
    return (json.dumps(to_data(file), indent=1, ensure_ascii=False) + "\n").encode()


def main() -> None:
    """Write the file anew."""
    FILE.write_bytes(content())


if __name__ == "__main__":
    main()
