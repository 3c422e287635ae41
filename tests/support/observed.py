"""What was observed of a case, for tests of what goes by it."""

from __future__ import annotations

from appliance.records.plan import Case
from appliance.records.qualified import ObservedCase


def an_observed_case(
    case: Case, model: str, *, seconds: float, recorded: str = "2026-11-22T00:00:00Z"
) -> ObservedCase:
    """A launch of the case's work took so many seconds on this model."""
    return ObservedCase(
        case=case.id.partition("@")[0],
        workload=case.workload,
        version=case.version,
        size="full",
        parameters=case.parameters,
        model=model,
        stack={"torch": "1"},
        devices=("d",),
        num_seeds=1,
        outcomes={"completed": 1},
        fault="",
        checks=(),
        same_by_default=None,
        num_default=0,
        same_when_deterministic=None,
        num_deterministic=0,
        step_seconds=None,
        num_steps=0,
        units_per_second=None,
        unit="products",
        flops_per_second=None,
        host_memory_bytes=None,
        device_memory_bytes=None,
        power_watts=None,
        fresh_ratio=None,
        launch_seconds=seconds,
        repeat_seconds=None,
        disturbed="",
        sources=(),
        recorded_utc=recorded,
        bench_version="0.5.0",
    )
