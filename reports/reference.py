"""What the same work did on the same model of device before: beside a case's figures, no limit.

The rates are those of qualified.json, which the verifier holds to the records of the package. No
criterion reads them and no ruling follows from one: a rate holds for the stack of libraries that it
was observed with, and seldom is of more than one device.
"""

from __future__ import annotations

from appliance.evidence.baseline_key import pairs, worded
from appliance.evidence.qualification import stack
from appliance.records.plan import Case
from appliance.records.qualified import Qualified, ReferenceRate
from appliance.records.system import Device, System
from appliance.storage.qualified_file import is_same_work
from reports import words

MOST_DIFFERENCES = 3
"""Of two library stacks, that are named on the page; the records have them all."""


def sentence(case: Case, qualified: Qualified, system: System) -> str:
    """The last rate of this stack, else of another and so marked; empty where none is recorded."""
    device = next((one for one in system.identity.devices if one.id == case.device), None)
    if device is None:
        return ""
    alike = [one for one in qualified.rate if is_same_work(one, case, device.model)]
    own = [one for one in alike if not _differences(one, case, device, system)]
    if not alike:
        return ""
    last = max(own or alike, key=lambda one: one.recorded_utc)
    return " ".join((_rate(last), _stack(last, case, device, system), *_disturbance(last)))


def _rate(one: ReferenceRate) -> str:
    rate = words.quantity(one.units_per_second, f"{one.unit}/s")
    return (
        f"{rate} on {words.count(one.num_devices, 'device')} of this model, {one.model}, recorded "
        f"by bench {one.bench_version} on {one.recorded_utc[:10]}."
    )


def _stack(one: ReferenceRate, case: Case, device: Device, system: System) -> str:
    differences = _differences(one, case, device, system)
    if not differences:
        return "The library stack was the same."
    left = len(differences) - MOST_DIFFERENCES
    more = [f"and {words.count(left, 'more difference')}"] if left > 0 else []
    return f"The library stack was another: {'; '.join([*differences[:MOST_DIFFERENCES], *more])}."


def _differences(one: ReferenceRate, case: Case, device: Device, system: System) -> list[str]:
    """What the stacks differ in, torch first: its kernels do most of the work."""
    here = stack(system, device, case.libraries)
    differing = [item for item in pairs("", one.stack, here) if item[1] != item[2]]
    differing.sort(key=lambda item: item[0] != "torch")
    return [
        f"{name.replace('_', ' ')} {worded(there)}, here {worded(now)}"
        for name, there, now in differing
    ]


def _disturbance(one: ReferenceRate) -> tuple[str, ...]:
    return (f"It is not that of a quiet machine: {one.disturbed}.",) if one.disturbed else ()
