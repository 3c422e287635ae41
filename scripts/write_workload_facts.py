"""Writes appliance/workload_facts.json: what every workload says of itself, parameters and all.

Part of `make generate`; run that after adding a workload, or after a change of its version, its
parameters or its variants; a test compares what it would write with what is there. It imports every
workload, so it needs what a run needs; who verifies reads the file alone.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import pkgutil
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from packaging.requirements import Requirement  # noqa: E402 - after the path

import workloads  # noqa: E402 - the script runs where nothing is installed
from appliance import extras  # noqa: E402 - the same
from appliance.errors import ApplianceError  # noqa: E402 - the same
from appliance.planning.workload_manifest import FILE, Variant, WorkloadFacts, WorkloadFile  # noqa: E402 - the same
from appliance.records.json import Scalar, to_data  # noqa: E402 - the same
from workloads.contract.workload import Workload  # noqa: E402 - the same

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLLOWS = ("workloads.parts.curves.curves", "workloads.parts.reinforcement.jax_devices")
"""An import that happens only for a workload that is followed and needs the library itself."""


@cache
def imported(module: str) -> frozenset[str]:
    """Names in the import statements of a module, at its top or in a function.

    A package of which it reads a file (`package_file`) counts as imported.
    """
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
    types_alone = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names: set[str] = set()
    for node in set(ast.walk(tree)) - types_alone:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "package_file":
            names |= {ast.literal_eval(node.args[0])}
    return frozenset(names)


DONE_WITHOUT = ("triton",)
"""What a module imports where torch has brought it, and does the same without elsewhere."""


def libraries(module: str) -> set[str]:
    """Top names of the libraries that a workload's module and those below it import."""
    seen: set[str] = set()
    pending = [module]
    while pending:
        one = pending.pop()
        if one not in seen and one.startswith("workloads"):
            pending += [name for name in imported(one) if (one, name) != FOLLOWS]
        seen.add(one)
    return {name.partition(".")[0] for name in seen} - {"workloads", "appliance", *DONE_WITHOUT}


@cache
def parts_of_libraries() -> dict[str, str]:
    """The part of the suite that brings a library, "" for the base."""
    optional = PROJECT["optional-dependencies"]
    suite = Requirement(optional[extras.RUN][0]).extras
    listed = {"": PROJECT["dependencies"], **{part: optional[part] for part in suite}}
    return {
        extras.module_of(extras.normal(item)): part
        for part, items in listed.items()
        for item in items
    }


def parts(name: str) -> tuple[str, ...]:
    """The parts of the package that a workload's imports need."""
    named = libraries(f"workloads.{name}") - set(sys.stdlib_module_names)
    known = parts_of_libraries()
    if named - known.keys():
        raise ApplianceError(f"no part of pyproject.toml brings {named - known.keys()} of {name}")
    return tuple(sorted({extras.TORCH, *(known[one] for one in named)} - {""}))


def distributions(name: str) -> tuple[str, ...]:
    """What must be installed for it: of the shared parts what it imports, all of its own ones."""
    named = libraries(f"workloads.{name}")
    listed = {
        part: sorted({extras.normal(item) for item in items} - {extras.DISTRIBUTION})
        for part, items in {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}.items()
    }
    shared = [one for part in ("", extras.TORCH) for one in listed[part]]
    imports = {one for one in shared if extras.module_of(one) in named}
    own = {one for part in parts(name) if part != extras.TORCH for one in listed[part]}
    return tuple(sorted({extras.TORCH} | imports | own))


def kinds() -> Iterator[tuple[str, type[Workload[Any, Any]]]]:
    """Every workload of the folder with its module's name, by which a suite calls it."""
    for module in sorted(pkgutil.iter_modules(workloads.__path__), key=lambda one: one.name):
        if not module.ispkg:
            kind = getattr(importlib.import_module(f"workloads.{module.name}"), "WORKLOAD", None)
            if kind is not None:
                yield module.name, kind


def facts(name: str, kind: type[Workload[Any, Any]]) -> WorkloadFacts:
    """What the workload's class says of itself; nothing of it is built."""
    return WorkloadFacts(
        name=name,
        version=kind.version,
        domain=kind.domain,
        parts=parts(name),
        libraries=distributions(name),
        summary=kind.summary,
        data_pattern=kind.data_pattern,
        is_timed=kind.is_timed,
        is_repeatable=kind.is_repeatable,
        alone=kind.alone,
        bound_by=kind.bound_by,
        injector=kind.injector,
        needs=tuple(sorted(kind.needs)),
        data=tuple(kind.data),
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
