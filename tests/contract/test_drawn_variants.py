"""Every variant that a seed may draw of a workload builds, steps, and has its check within."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support import small_steps

import workloads
from appliance.records.request import CaseRequest
from appliance.records.workload import Resolved
from appliance.worker.parameters import _complete, _drawn, resolve
from workloads.contract.target import Artifacts, Target
from workloads.contract.workload import Workload
from workloads.parts.reinforcement.simulated_ppo import SimulatedPpo


def kinds() -> dict[str, type[Workload[Any, Any]]]:
    """Every workload of the folder, by its module's name."""
    names = [one.name for one in pkgutil.iter_modules(workloads.__path__) if not one.ispkg]
    modules = {name: importlib.import_module(f"workloads.{name}") for name in names}
    return {name: one.WORKLOAD for name, one in modules.items() if hasattr(one, "WORKLOAD")}


KINDS = kinds()
DRAWN = [(name, variant) for name, kind in KINDS.items() for variant in kind.variants]


@pytest.fixture
def one_simulation() -> Iterator[None]:
    """Variants of these change networks and learning and never the simulation.

    It is compiled once for all of them; the contract test has all of a step in one program.
    """
    from support.quick_programs import simulated_apart  # noqa: PLC0415 - imports JAX

    with simulated_apart():
        yield


@pytest.mark.parametrize(("name", "variant"), DRAWN)
def test_variant_is_right_at_small_size(
    tmp_path: Path, name: str, variant: str, request: pytest.FixtureRequest
) -> None:
    kind = KINDS[name]
    if "jax" in kind.needs:
        request.getfixturevalue("quick_programs")
    if issubclass(kind, SimulatedPpo):
        request.getfixturevalue("one_simulation")
    workload = kind(**{**kind.small, **kind.variants[variant]})
    torch.manual_seed(11)
    target = Target(
        device=torch.device("cpu"), artifacts=Artifacts(tmp_path), flops=small_steps.OPERATIONS
    )
    state = workload.build(target, 11)
    before = workload.snapshot(state)
    workload.load(state)
    output = workload.step(state)
    workload.wait(state)
    result = list(workload.check(before, state, output))
    assert result
    assert [check for check in result if not check.is_within] == []


@pytest.mark.parametrize(("name", "variant"), DRAWN)
def test_variant_changes_what_it_names_and_holds_at_full_size(name: str, variant: str) -> None:
    kind = KINDS[name]
    fields = {field.name: field.default for field in dataclasses.fields(kind)}
    change = kind.variants[variant]
    assert change
    assert change.keys() <= fields.keys()
    for given in (fields, {**fields, **kind.small}):
        assert any(given[key] != value for key, value in change.items())
    kind(**change)  # refuses what cannot run


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.variants])
def test_numbers_draw_every_variant_of_a_workload(name: str) -> None:
    kind = KINDS[name]
    requests = [
        CaseRequest(workload=name, small=True, parameters={}, draw=number)
        for number in range(len(kind.variants))
    ]
    assert [_drawn(kind, one) for one in requests] == list(kind.variants)
    complete = [
        _complete(kind, one, change)
        for one, change in zip(requests, kind.variants.values(), strict=True)
    ]
    assert all(
        parameters.items() >= change.items()
        for parameters, change in zip(complete, kind.variants.values(), strict=True)
    )
    first = resolve(kind, requests[0])  # with its work, which takes a second to count
    assert isinstance(first, Resolved)
    assert (first.variant, first.parameters) == (next(iter(kind.variants)), complete[0])


def test_nothing_is_drawn_of_a_workload_without_variants_or_without_a_number() -> None:
    varied = next(kind for kind in KINDS.values() if kind.variants)
    plain = next(kind for kind in KINDS.values() if not kind.variants)
    for kind, number in ((varied, None), (plain, 5)):
        request = CaseRequest(workload="x", small=True, parameters={}, draw=number)
        result = resolve(kind, request)
        assert isinstance(result, Resolved)
        assert result.variant == ""
