"""Writes appliance/suite_times.json and docs/reference/suite-times.md.

    scripts/write_suite_times.py

For each model of the qualified records a node of one device is planned, with every feature of that
kind of device and every library, by the arithmetic of `bench plan`: recorded times where there are
some, else estimates, else the allowances of the suites. The schedules are of the H100 whose probe
is recorded in tests/recorded/h100.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.planning import workload_manifest, workload_sizes  # noqa: E402 - after the path
from appliance.planning.launch_constants import SEGMENTED  # noqa: E402 - the same
from appliance.planning.placement import place  # noqa: E402 - the same
from appliance.planning.plan import (  # noqa: E402 - the same
    Place,
    PlanInputs,
    plan_cases,
    plan_of,
    requests,
)
from appliance.records.json import from_json, to_json  # noqa: E402 - the same
from appliance.records.plan import Plan  # noqa: E402 - the same
from appliance.records.qualified import ObservedCase  # noqa: E402 - the same
from appliance.records.request import Answer  # noqa: E402 - the same
from appliance.records.suite import Suite  # noqa: E402 - the same
from appliance.records.system import Device, System  # noqa: E402 - the same
from appliance.scheduling.forecast import known_times, with_known_times  # noqa: E402 - the same
from appliance.scheduling.suite_times import (  # noqa: E402 - the same
    PATH,
    SuiteTime,
    SuiteTimes,
    amount,
)
from appliance.scheduling.within import plan_within  # noqa: E402 - the same
from appliance.scheduling.words import markdown  # noqa: E402 - the same
from appliance.storage import criteria_file, qualified_file, suite_file  # noqa: E402 - the same

PAGE = ROOT / "docs" / "reference" / "suite-times.md"
SYSTEM = ROOT / "tests" / "recorded" / "h100" / "system.json"
SEED = "00" * 32
MINUTES = (30, 60, 240)
UNLIMITED = 1e9
"""A suite's limit is for who runs it: what is recorded may be slower."""
FORMATS = frozenset({"float64", "float32", "float16", "bfloat16", "float8", "int8", "jax"})
HEAD = """# How long the suites take

<!-- written by scripts/write_suite_times.py -->

Planned times on one device of each model that has qualified records, if every case is decided at
its first interim analysis. An *allowance* is what the suite's file says, for a device that nobody
has timed; it is no measurement and mostly far too long. An *estimate* adds up the parts of a launch
around a step that was timed, or that is *assumed* of its operations and bytes
([how](../how-to/minutes.md)). `bench qualify` records a device's own
times. "-": one such device runs none of it, or, of a processor, the rows are sized for
accelerators. `bench list suites` prints the same.

"""
MIDDLE = """
## A schedule

What `bench plan --suite acceptance --minutes N` plans on the {model} whose probe is
recorded: one device, a seed of zeros, criteria `accelerator`
([how it is chosen](../how-to/minutes.md)).
"""


def device_of(model: str) -> Device:
    """A device of this model: the recorded one, or a processor."""
    system = from_json(System, SYSTEM.read_bytes(), name=SYSTEM.name)
    recorded = {one.model: one for one in system.identity.devices}
    if model in recorded:
        return recorded[model]
    return Device(
        id="cpu:0",
        vendor="cpu",
        index=0,
        model=model,
        serial=None,
        memory_bytes=None,
        facts={},
    )


def answer_of(suite: Suite, device: Device) -> Answer:
    """What is shipped of every case: nothing computes, so nothing needs to be installed."""
    return workload_sizes.shipped().answer(requests(suite, [device], SEED))


def inputs_of(suite: Suite, device: Device) -> PlanInputs:
    """What a plan of the suite is made of on a node of this device alone."""
    is_processor = device.vendor == "cpu"
    features = FORMATS if is_processor else FORMATS | {"tf32"}
    manifest = workload_manifest.load()
    data = frozenset(name for facts in manifest.values() for name in facts.data)
    criteria = criteria_file.load_criteria("functional" if is_processor else "accelerator")[0]
    return PlanInputs(
        suite=suite,
        answer=answer_of(suite, device),
        places=[Place(device=device, features=features, available_datasets=data)],
        criteria=criteria,
        digests={},
        seed=SEED,
        run_id="",
        created_utc="",
        bench_version="",
        manifest=manifest,
    )


def time_of(suite: Suite, model: str, observed: Sequence[ObservedCase]) -> SuiteTime | None:
    """The planned minutes of the suite on the model.

    None where one such device runs none of it, and for full sizes on a processor.
    """
    device = device_of(model)
    if device.vendor == "cpu" and not all(
        item.small or item.workload in SEGMENTED for item in suite.case
    ):
        return None
    inputs = inputs_of(replace(suite, time_limit_seconds=UNLIMITED), device)
    if not place(suite, [device], SEED)[0]:
        return None
    cases, lacking = plan_cases(inputs)
    known = known_times(cases, {device.id: model}, observed, suite.protocol)
    plan = plan_of(inputs, with_known_times(cases, known), lacking)
    sources = [one.source for one in known.values()]
    return SuiteTime(
        suite=suite.name,
        model=model,
        minutes=round(plan.expected_seconds / 60, 2),
        num_cases=len(cases),
        num_recorded=sources.count("recorded"),
        num_estimated=sources.count("estimated"),
        num_assumed=sources.count("assumed"),
        is_disturbed="recorded" in sources
        and any(one.disturbed for one in observed if one.model == model),
    )


def times() -> tuple[SuiteTime, ...]:
    """Of every shipped suite on every qualified model."""
    observed = qualified_file.load_observed()
    found = (
        time_of(suite_file.load_suite(name)[0], model, observed)
        for name in suite_file.list_suites()
        for model in models()
    )
    return tuple(one for one in found if one is not None)


def models() -> list[str]:
    """Models of which the package has a qualified record of any kind."""
    records = qualified_file.load_records()
    return sorted({one.model for one in records.record} | {one.model for one in records.observed})


def schedule(minutes: int) -> Plan:
    """The acceptance suite within so many minutes on the recorded device."""
    system = from_json(System, SYSTEM.read_bytes(), name=SYSTEM.name)
    (device,) = system.identity.devices
    suite = suite_file.load_suite("acceptance")[0]
    return plan_within(inputs_of(suite, device), minutes, qualified_file.load_observed())


def page(known: Sequence[SuiteTime]) -> str:
    """The whole page."""
    by_place = {(one.suite, one.model): one for one in known}
    lines = [f"| suite | {' | '.join(models())} |", f"|---|{'---|' * len(models())}"]
    for name in suite_file.list_suites():
        cells = (by_place.get((name, model)) for model in models())
        words = ("-" if one is None else f"{amount(one.minutes)}, {one.source}" for one in cells)
        lines.append(f"| `{name}` | {' | '.join(words)} |")
    system = from_json(System, SYSTEM.read_bytes(), name=SYSTEM.name)
    middle = MIDDLE.format(model=system.identity.devices[0].model)
    return HEAD + "\n".join([*lines, middle.rstrip(), *_schedules()]) + "\n"


def _schedules() -> Iterator[str]:
    for minutes in MINUTES:
        yield f"\n### {minutes} minutes\n"
        yield from markdown(schedule(minutes))


def main() -> None:
    known = times()
    PATH.write_bytes(to_json(SuiteTimes(time=known)))
    PAGE.write_text(page(known))


if __name__ == "__main__":
    main()
