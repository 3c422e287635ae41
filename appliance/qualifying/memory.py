"""Whether the cases of a plan fit the memory of its devices, by the peaks observed before.

What a row took at full size on a device of any model says about what it takes on another: its
parameters are the same, the libraries' work space may not be. So it is said beside the plan, and
neither places a case nor refuses one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from appliance.records.plan import Case, Plan
from appliance.records.qualified import ObservedCase
from appliance.records.system import Device, System
from appliance.storage.qualified_file import is_same_work

GIB = 2**30


def sentences(plan: Plan, system: System, observed: Sequence[ObservedCase]) -> Iterator[str]:
    """A sentence for each row that took more than a device has, and one for those that fit."""
    full = [one for one in observed if one.size == "full"]
    devices = {device.id: device for device in system.identity.devices}
    tight: dict[str, None] = {}
    num_fitting = 0
    for case in plan.cases:
        device = devices.get(case.device)
        most = None if device is None else _largest(case, device, full)
        if device is None or most is None or device.memory_bytes is None:
            continue
        peak, model = most
        if peak <= device.memory_bytes:
            num_fitting += 1
            continue
        row = case.id.partition("@")[0]
        here = f"{device.id} has {device.memory_bytes / GIB:.0f} GiB"
        tight[f"{row} used {peak / GIB:.0f} GiB on {model} before; {here}"] = None
    yield from tight
    if num_fitting:
        yield (
            f"{num_fitting} of {len(plan.cases)} cases used no more memory before, at full size, "
            "than their devices have here"
        )


def _largest(
    case: Case, device: Device, observed: Sequence[ObservedCase]
) -> tuple[int, str] | None:
    """The largest peak that was observed of this work on any model, and the model; else None."""
    peaks = [
        (peak, one.model)
        for one in observed
        if is_same_work(one, case, one.model) and (peak := _peak(one, device)) is not None
    ]
    return max(peaks, default=None)


def _peak(one: ObservedCase, device: Device) -> int | None:
    """The peak of the device's kind of memory: a processor's is the host's, if it did the work."""
    if device.vendor != "cpu":
        return one.device_memory_bytes
    return one.host_memory_bytes if one.device_memory_bytes is None else None
