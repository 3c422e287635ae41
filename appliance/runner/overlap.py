"""Whether the process of the next launch may begin beside the end of the one before, and how far.

Once a launch times nothing any more, what is left of it (checks, digests, a second build, the end
of its process) keeps its device idle for the most part. A repeat times nothing from its begin on.
The next process may meanwhile be forked, set its device up, build its state and make its first
step; it then waits until the earlier one has ended, so that nothing runs beside a comparison of
clocks, a warm-up, a timed step, or a first step whose time counts. It builds where the memory of
host and device holds both by what earlier launches of its case held in this run, of the first one
by what records of the device's model say; else it sets its device up alone.

Where records show that a process which merely waits on a device slows no step of another, the
process behind the next one begins there, too: it sets its device up beside the same end, and stands
by while the next launch is timed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from appliance.linux import cgroup
from appliance.linux.sysfs import Tree, Unreadable
from appliance.planning.launch_constants import (
    FIRST_BUILT_ALONE,
    SHARED_MEMORY,
    may_step_ahead,
)
from appliance.records.journal import AheadThrough, LaunchEnded
from appliance.records.plan import Case, Launch
from appliance.records.qualified import ObservedCase
from appliance.records.system import Device
from appliance.storage.qualified_file import is_same_work

SHARE = 0.9
"""Part of a device's memory that both launches may hold together."""
GROWTH = 2.0
"""How many times of what it holds the earlier launch may come to hold in its checks.

A step that is made again and watched, a second build: what lacked memory there would be taken for a
fault of the device.
"""
RECORDED_GROWTH = 2.0
"""How many times of what records say the first launch of a case may come to hold: they are of other
devices of its model, and of other libraries."""
ROOM_TO_BEGIN = 0.75
"""Part of a device's memory that may be held where another process so much as sets the device up.

That alone holds memory (0.5 GB on an H100), and what is checked may need more than the steps did: a
step of 77 of 79 GiB that was run again lacked memory while another process waited beside it.
"""
HOST_SHARE = 0.5
"""Part of the memory that the run may still take of its host, which the next launch may take."""
USED = "memory_used_bytes"
EXCLUSIVE = "exclusive"


def takes_several(device: Device) -> bool:
    """Whether a device takes two processes at once: in an exclusive mode the second is refused.

    That would be a crash of a healthy device's launch.
    """
    mode = device.facts.get("compute_mode")
    return mode is None or EXCLUSIVE not in str(mode.value)


def may_follow(launch: Launch, earlier: Launch, *, has_first_bits: bool) -> bool:
    """Whether a launch that is forked may be ordered while this one ends.

    Not where it reads what the earlier one is yet to report: files of an untimed launch, or the
    bits of a case's first repeat. One of another wave or session begins once it is known what there
    is time for.
    """
    is_same_part = (launch.wave, launch.session) == (earlier.wave, earlier.session)
    is_of_case = launch.case == earlier.case
    waits_for_files = is_of_case and earlier.number == 0
    waits_for_bits = is_of_case and launch.is_repeat and not has_first_bits
    return is_same_part and not (waits_for_files or waits_for_bits)


def recorded_bytes(
    cases: Iterable[Case], devices: Mapping[str, Device], observed: Sequence[ObservedCase]
) -> dict[str, int]:
    """What records say that launches of each case hold of its device, by the case's name.

    Not of a case whose untimed launch builds alone, nor of one that nobody has recorded.
    """
    known: dict[str, int] = {}
    for case in cases:
        model = devices[case.device].model
        held = [
            one.device_memory_bytes
            for one in observed
            if is_same_work(one, case, model) and one.device_memory_bytes is not None
        ]
        if held and case.workload not in FIRST_BUILT_ALONE:
            known[case.id] = max(held)
    return known


@dataclass(kw_only=True)
class Room:
    """The most memory that launches of each case have held: of their device, and of the host.

    `recorded` is what records say of devices in cases of which no launch has been over; of the host
    the case's limit stands for it then. `cramped` are cases of which a launch lacked memory beside
    a build: none builds beside theirs.
    """

    devices: dict[str, float] = field(default_factory=dict)
    host: dict[str, int] = field(default_factory=dict)
    recorded: Mapping[str, int] = field(default_factory=dict)
    cramped: set[str] = field(default_factory=set)
    tree: Tree = field(default_factory=Tree)

    def held(self, case: str, values: Mapping[str, float | None]) -> None:
        """Note what a device says once the steps of a launch are over, alone on it.

        Where a process stood by it is more than the launch held: later ones have less room then.
        """
        used = values.get(USED)
        if used is not None:
            self.devices[case] = max(used, self.devices.get(case, 0.0))

    def ended(self, case: str, event: LaunchEnded) -> None:
        """Note what a launch held of the host, and whether it lacked what it had to share."""
        if event.reason == SHARED_MEMORY:
            self.cramped.add(case)
        if event.outcome == "completed" and event.peak_memory_bytes is not None:
            self.host[case] = max(event.peak_memory_bytes, self.host.get(case, 0))

    def through(
        self,
        launch: Launch,
        case: Case,
        device: Device,
        values: Mapping[str, float | None],
        beside: Sequence[tuple[Launch, Case]] = (),
    ) -> AheadThrough:
        """How far the next launch may go, by what its device reads now, beside those that run.

        Repeats among them have only begun, and are yet to take what others of their case held.
        """
        if self.cramped.intersection(one.id for _, one in beside):
            return "device"
        begun = [one for launch, one in beside if launch.is_repeat]
        here = _begun_on(case, beside)
        has_room = self._on_host(case, [one.id for one in begun]) and self._on_device(
            case, device, values.get(USED), here
        )
        if not has_room:
            return "device"
        return "first_step" if may_step_ahead(launch, case) else "build"

    def may_begin(
        self,
        case: Case,
        device: Device,
        values: Mapping[str, float | None],
        beside: Sequence[tuple[Launch, Case]] = (),
    ) -> bool:
        """Whether a process may so much as set up a device that now has these readings.

        Repeats among those that run come to hold what others of their case held, as far as known.
        """
        used = values.get(USED)
        if device.vendor == "cpu" or used is None or device.memory_bytes is None:
            return True
        coming = sum(self.devices.get(one, 0.0) for one in _begun_on(case, beside))
        return max(used, coming) <= ROOM_TO_BEGIN * device.memory_bytes

    def may_stand_by(
        self, device: Device, values: Mapping[str, float | None], before: Sequence[Case]
    ) -> bool:
        """Whether a process may set up a device and wait there while these launches are timed.

        They begin now, so that what others of their cases held in this run is what comes. Each must
        have room for its checks, which may hold twice of that.
        """
        names = [one.id for one in before]
        if self.cramped.intersection(names) or not all(self._on_host(one, ()) for one in before):
            return False
        if device.vendor == "cpu":
            return True
        there = [one.id for one in before if device.id in one.all_devices]
        peaks, used = [self.devices.get(name) for name in there], values.get(USED)
        if None in peaks or used is None or device.memory_bytes is None:
            return False
        held = sum(one or 0.0 for one in peaks)
        has_room = used + held <= ROOM_TO_BEGIN * device.memory_bytes
        return has_room and GROWTH * held <= SHARE * device.memory_bytes

    def relied_on(self, case: str) -> int | None:
        """What is recorded of a case, where no launch of this run has shown what one holds."""
        is_first = case not in self.host or case not in self.devices
        return self.recorded.get(case) if is_first else None

    def _on_host(self, case: Case, begun: Iterable[str]) -> bool:
        limit = case.memory_limit_bytes if case.id in self.recorded else None
        peak, free = self.host.get(case.id, limit), free_host_bytes(self.tree)
        coming = [self.host.get(one) for one in begun]
        if peak is None or free is None or None in coming:
            return False
        return peak <= HOST_SHARE * (free - sum(one or 0 for one in coming))

    def _on_device(
        self, case: Case, device: Device, used: float | None, begun: Iterable[str]
    ) -> bool:
        if device.vendor == "cpu":
            return True  # its memory is the host's
        peak = self.devices.get(case.id)
        if peak is None and case.id in self.recorded:
            peak = RECORDED_GROWTH * self.recorded[case.id]
        coming = [self.devices.get(one) for one in begun]
        if peak is None or used is None or device.memory_bytes is None or None in coming:
            return False
        held = max(used, sum(one or 0.0 for one in coming))
        return GROWTH * held + peak <= SHARE * device.memory_bytes


def _begun_on(case: Case, beside: Sequence[tuple[Launch, Case]]) -> list[str]:
    """Cases of repeats that have begun on the device of another case."""
    return [one.id for launch, one in beside if launch.is_repeat and case.device in one.all_devices]


def free_host_bytes(tree: Tree) -> int | None:
    """Memory of the host that this process may still take; None where that is not known.

    A container sees all that the host has free, and is ended at the limit of its own.
    """
    available = int(psutil.virtual_memory().available)
    try:
        left = cgroup.memory_left(tree)
    except Unreadable:
        return None
    return available if left is None else min(available, left)
