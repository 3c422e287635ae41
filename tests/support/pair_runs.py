"""Runs of copies between two devices."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from support.builders import STEP_NS, a_case, a_plan, a_system, launch_events, verdict_of

from appliance.records.journal import Event, RunEnded, RunStarted
from appliance.records.json import sha256, to_json
from appliance.records.plan import Case, Plan
from appliance.records.verdict import Verdict
from appliance.records.workload import Work

NUM_BYTES = 2.0**29


def pair_case(first: str, second: str, name: str = "pairs") -> Case:
    return replace(
        a_case(name, device=first, alone=True, work=Work(units=NUM_BYTES, unit="bytes")),
        id=f"{name}@{first}+{second}",
        scope="pair",
        devices=(first, second),
    )


def node(number: int) -> Plan:
    names = [f"cpu:{index}" for index in range(number)]
    return a_plan(*(pair_case(first, second) for first, second in permutations(names, 2)))


def judged(plan: Plan, slow: dict[str, float]) -> Verdict:
    """A healthy run of which some pairs take longer by a factor."""
    cases = {case.id: case for case in plan.cases}
    launches = {launch.id: launch for launch in plan.launches}
    events: list[Event] = [
        RunStarted(run_id=plan.run_id, plan=sha256(to_json(plan)), system="0" * 64, pid=1)
    ]
    for (name,) in plan.groups:
        case = cases[launches[name].case]
        step_ns = round(STEP_NS * slow.get(case.id.partition("@")[2], 1.0))
        events += launch_events(plan, case, launches[name], step_ns=step_ns)
    devices = dict.fromkeys(name for case in plan.cases for name in case.all_devices)
    return verdict_of(
        plan, [*events, RunEnded(launches=len(plan.launches))], system=a_system(*devices)
    )
