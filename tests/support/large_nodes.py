"""Synthetic acceptance runs of many devices, judged by the real judge, for the report's tests.

The suite, its facts and the plan are those of production; the times are drawn by the simulation, on
devices whose facts are those of the recorded H100. A few devices are slow, hot or lose memory rows,
so that there is something to find. `python tests/support/large_nodes.py NUMBER FOLDER` writes
a bundle's data files there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from support.recorded_runs import CRITERIA_DATA, FOLDER
from support.recorded_runs import _read as read_record
from support.report_samples import ORGANISATION

from appliance.evidence.baseline_key import device_name, least_seconds, suite_id
from appliance.judging.verdict import Judge
from appliance.planning import workload_manifest, workload_sizes
from appliance.planning.plan import Place, PlanInputs, make_plan, requests
from appliance.records.baseline import Baseline, Baselines, Peaks
from appliance.records.criteria import Criteria
from appliance.records.journal import (
    Counted,
    Event,
    LaunchEnded,
    LaunchStarted,
    Line,
    Reading,
    RunEnded,
    RunStarted,
)
from appliance.records.json import sha256, to_json
from appliance.records.plan import Case, Plan
from appliance.records.qualified import Qualified
from appliance.records.request import Answer
from appliance.records.suite import Suite
from appliance.records.system import System
from appliance.records.vocabulary import THROTTLES
from appliance.selftest.simulation import simulate
from appliance.selftest.time_model import Timing
from appliance.selftest.virtual_node import Node, baseline
from appliance.storage import bundle, device_file
from appliance.storage.criteria_file import parse_criteria
from appliance.storage.suite_file import load_suite

SEED = "5e" * 32
FEATURES = frozenset({"float8", "float16", "bfloat16", "float32", "float64", "tf32"})
LIMITS = b"""
[[criterion]]
id = "speed"
kind = "perf"
title = "As fast as this model was"
metric = "step_seconds"
within_of_baseline = "class"

[[criterion]]
id = "stalls"
kind = "tail"
title = "Few steps stall"
metric = "stall_rate"
at_most = 0.02
"""
SLOW, HOT, LOSING = 5, 2, 3
"""Devices by their index: one slower in everything, one that throttles, one that remaps rows."""


@cache
def large(num_devices: int, *, rows: int = 26, limits: bool = True) -> bundle.Bundle:
    """An acceptance run of `rows` rows on so many devices, with its verdict and signer."""
    criteria_data = CRITERIA_DATA + (LIMITS if limits else b"")
    criteria = parse_criteria(criteria_data, name="criteria.toml")
    system = _system(num_devices)
    peaks = _peaks()
    plan = _plan(system, criteria, rows)
    timings = {case.id: _timing(case) for case in plan.cases}
    baselines = Baselines(
        baseline=tuple(_baseline(case, plan, system) for case in _first_of_row(plan))
        if limits
        else ()
    )
    files = {
        bundle.SYSTEM: to_json(system),
        bundle.CRITERIA: criteria_data,
        bundle.BASELINES: to_json(baselines),
        bundle.PEAKS: to_json(peaks),
        bundle.QUALIFIED: to_json(Qualified(record=())),
        bundle.SIGNER: to_json(ORGANISATION),
    }
    digests = {
        "suite": sha256(b"acceptance"),
        **{
            name: sha256(files[file])
            for name, file in (
                ("criteria", bundle.CRITERIA),
                ("baselines", bundle.BASELINES),
                ("peaks", bundle.PEAKS),
                ("qualified", bundle.QUALIFIED),
            )
        },
        "identity": sha256(to_json(system.identity)),
    }
    plan = replace(plan, digests=digests)
    files[bundle.PLAN] = to_json(plan)
    node = Node(
        plan=plan,
        system=system,
        criteria=criteria,
        baselines=baselines,
        peaks=peaks,
        timings=timings,
        digests={name: sha256(files[name]) for name in (bundle.PLAN, bundle.SYSTEM)},
    )
    observed = _observed(simulate(node, seed=1).lines, plan)
    lines, journal = _chained(_counted_beside(observed, plan), files[bundle.PLAN])
    judging: Judge = node.judge(lines)
    verdict = judging.verdict()
    files[bundle.JOURNAL] = journal
    files[bundle.VERDICT] = to_json(verdict)
    return replace(bundle.records_of(files), lines=tuple(lines))


@cache
def _system(num_devices: int) -> System:
    recorded: System = read_record(System, FOLDER / "system.json")
    (one,) = recorded.identity.devices
    devices = tuple(
        replace(
            one,
            id=f"cuda:{index}",
            index=index,
            serial=f"165{index:04d}",
            facts={
                **one.facts,
                "uuid": replace(one.facts["uuid"], value=f"GPU-{index:08x}"),
                "pci_address": replace(
                    one.facts["pci_address"], value=f"0000:{index + 16:02x}:00.0"
                ),
            },
        )
        for index in range(num_devices)
    )
    return replace(recorded, identity=replace(recorded.identity, devices=devices))


@cache
def _peaks() -> Peaks:
    """The vendor's figures of the one model that all devices are."""
    return device_file.load_peaks([_system(1).identity.devices[0].model])


def _plan(system: System, criteria: Criteria, rows: int) -> Plan:
    suite, _ = load_suite("acceptance")
    suite = replace(
        suite,
        time_limit_seconds=1e9,
        variants=False,
        protocol=replace(suite.protocol, repeats=0, block_steps=30, warmup_seconds=0.0),
        case=tuple(replace(item, scope="device") for item in suite.case),
    )
    known = [item for item in suite.case if _is_shipped(replace(suite, case=(item,)), system)]
    suite = replace(suite, case=tuple(known[:rows]))
    manifest = workload_manifest.load()
    data = frozenset(name for facts in manifest.values() for name in facts.data)
    devices = system.identity.devices
    return make_plan(
        PlanInputs(
            suite=suite,
            answer=_answer(suite, system),
            places=[
                Place(device=device, features=FEATURES, available_datasets=data)
                for device in devices
            ],
            criteria=criteria,
            digests={},
            seed=SEED,
            run_id="20261121T124603Z-5e5e5e",
            created_utc="2026-01-01T00:00:00Z",
            bench_version="0.5.0",
            manifest=manifest,
        )
    )


def _is_shipped(suite: Suite, system: System) -> bool:
    """Whether the sizes of a suite of one row are shipped for these devices."""
    return len(_answer(suite, system).resolved) == len(
        requests(suite, system.identity.devices, SEED)
    )


def _answer(suite: Suite, system: System) -> Answer:
    asked = requests(suite, system.identity.devices, SEED)
    return workload_sizes.shipped().answer(asked)


def _first_of_row(plan: Plan) -> Iterable[Case]:
    return {suite_id(case): case for case in reversed(plan.cases)}.values()


def _baseline(case: Case, plan: Plan, system: System) -> Baseline:
    """A row's baseline of these very devices: that of the simulation without a tolerance limit."""
    one = baseline(case, plan.protocol, system, step_seconds=_seconds(case))
    level = replace(one.steps, device_sd=None)
    names = tuple(device_name(system, device.id) for device in system.identity.devices)
    return replace(one, kind="same_device", devices=names, steps=level, wall=level)


def _seconds(case: Case) -> float:
    """Step time of a row: by its name, and so long that its device could do it."""
    share = int(sha256(suite_id(case).encode())[:4], 16) / 0xFFFF
    system = _system(1)
    peaks = _peaks()
    alone = replace(case, device=system.identity.devices[0].id)
    least = least_seconds(peaks, system, alone) or 0.0
    return max(0.02 + 0.38 * share, (2 + share) * least)


def _index(name: str) -> int:
    return int(name.rpartition(":")[2])


def _timing(case: Case) -> Timing:
    own = int(sha256(case.id.encode())[:4], 16) / 0xFFFF - 0.5
    effect = 0.008 * own + (0.06 if _index(case.device) == SLOW else -0.004)
    return Timing(
        step_seconds=_seconds(case), effect=effect, launch_sd=0.004, step_sd=0.003, has_events=True
    )


# ------------------------------------------------------------------ what was read beside


def _observed(lines: Iterable[Line], plan: Plan) -> Iterator[tuple[Line, Event]]:
    """The events with counters of every device at begin and end, and a reading in each launch."""
    devices = tuple(dict.fromkeys(case.device for case in plan.cases))
    places = _devices_of_launches(plan)
    number = 0
    for line in lines:
        event = line.event
        if isinstance(event, LaunchEnded) and event.outcome == "completed":
            number += 1
            yield line, _reading(event.launch, places[event.launch], number)
        if isinstance(event, RunEnded):
            for device in devices:
                yield line, _counted(device, is_end=True)
        yield line, event
        if isinstance(event, RunStarted):
            for device in devices:
                yield line, _counted(device, is_end=False)


def _devices_of_launches(plan: Plan) -> dict[str, str]:
    cases = {case.id: case.device for case in plan.cases}
    return {launch.id: cases[launch.case] for launch in plan.launches}


def _counted_beside(
    pairs: Iterable[tuple[Line, Event]], plan: Plan
) -> Iterator[tuple[Line, Event]]:
    """The events with the counters, unchanged, just before and after each group of launches."""
    places = _devices_of_launches(plan)
    groups = {name: group for group in plan.groups for name in group}
    running: set[str] = set()

    def counted(launch: str, moment: Literal["before", "after"]) -> Iterator[Event]:
        for name in () if running else groups[launch]:
            yield Counted(
                device=places[name], counters={}, launch=name, moment=moment, is_same=True
            )

    for line, event in pairs:
        if isinstance(event, LaunchStarted):
            yield from ((line, made) for made in counted(event.launch, "before"))
            running.add(event.launch)
        yield line, event
        if isinstance(event, LaunchEnded) and event.launch in running:
            running.remove(event.launch)
            yield from ((line, made) for made in counted(event.launch, "after"))


def _reading(launch: str, device: str, number: int) -> Reading:
    index = _index(device)
    wave = (number * 37 % 100) / 100
    return Reading(
        launch=launch,
        device=device,
        values={
            **{f"throttled_{name}": 0.0 for name in THROTTLES},
            "throttled_power_cap": 1.0 if index == HOT and number % 3 == 0 else 0.0,
            "graphics_clock_hertz": 1.98e9 - (0.25e9 if index == HOT else 0.02e9) * wave,
            "power_watts": 610 + 60 * wave,
            "temperature_celsius": 58.0 + 6 * wave + (19 if index == HOT else index % 4),
            "memory_used_bytes": 40e9 + 2e10 * wave,
            "pcie_width": 16.0,
            "pcie_generation": 5.0,
            "utilisation_fraction": 1.0,
        },
    )


COUNTERS = (
    "ecc_uncorrected",
    "ecc_corrected",
    "ecc_deferred",
    "row_remap_pending",
    "row_remap_failed",
    "rows_remapped",
    "links_down",
    "link_replays",
    "link_recoveries",
    "pcie_replays",
    "pcie_fatal",
    "lost",
    "resets",
)


def _counted(device: str, *, is_end: bool) -> Counted:
    grown = {"ecc_corrected": 7} if is_end and _index(device) == LOSING else {}
    return Counted(
        device=device,
        counters={**dict.fromkeys(COUNTERS, 0), **grown},
        moment="after" if is_end else "before",
    )


def _chained(pairs: Iterable[tuple[Line, Event]], plan: bytes) -> tuple[list[Line], bytes]:
    """The lines, each with the digest of the one before, and the journal that they are."""
    prev, lines, texts = sha256(plan), [], []
    for seq, (line, event) in enumerate(pairs):
        made = replace(line, seq=seq, prev=prev, event=event)
        lines.append(made)
        texts.append(to_json(made))
        prev = sha256(texts[-1])
    return lines, b"".join(text + b"\n" for text in texts)


if __name__ == "__main__":
    made = large(int(sys.argv[1]))
    out = Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for name, text in made.files.items():
        (out / name).write_bytes(text)
