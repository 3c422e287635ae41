"""Who else has the devices of a run: counted when it begins and ends, and around what is timed.

Counting takes about a millisecond, and what a device is used for shows only once our own work on
it is a while ago. So a device that nobody has and nobody holds memory of costs no time; where
somebody is there before a launch, the launch waits until the device's use is that of others alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from appliance.evidence.disturbance import HELD_BYTES, SETTLED_NS
from appliance.records.journal import Event, LaunchEnded, Started, UsersCounted, WorkerEvent
from appliance.records.plan import Case, Launch
from appliance.records.system import Device
from appliance.records.vocabulary import possible
from appliance.vendors.base import DeviceUsers, Vendor

VALUES = ("memory_used_bytes", "utilisation_fraction", "power_watts")
"""Readings that say what others do on a device."""
MOST_IN_A_ROW, LOOK_NS = 8, 20_000_000_000
"""Launches that may begin ahead one after another before a device is looked at without any, and for
how long they may be more than that: those of a second would be looked between every 9 s."""
NOBODY: Mapping[str, int] = MappingProxyType({})
SILENT, REPORTED, STARTED, DONE = range(4)
"""How far a launch has come: it has said nothing, something, made its first step, was counted."""


@dataclass(kw_only=True)
class UsersLog:
    """Counts the processes on the devices of one run; `record` keeps an event.

    `vendors` are by name, `devices` those that the plan uses, by id.
    """

    vendors: Mapping[str, Vendor]
    devices: Mapping[str, Device]
    record: Callable[[Event], object]
    now: Callable[[], int] = time.monotonic_ns
    sleep: Callable[[float], object] = time.sleep
    _left: dict[str, int] = field(default_factory=dict)
    _stages: dict[str, int] = field(default_factory=dict)
    _others: set[str] = field(default_factory=set)
    _in_a_row: dict[str, int] = field(default_factory=dict)
    _looked: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Say who has the devices before the run does anything."""
        self._count_all()

    def end(self) -> None:
        """Say who has them when it is over."""
        self._count_all()

    def before(self, launches: Iterable[tuple[Launch, Case]], *, is_ahead: bool = False) -> None:
        """Count for launches that are about to start; wait where somebody is there.

        Where `is_ahead`, their own processes are there already, and they are counted inside alone.
        """
        for launch, case in launches:
            self._stages[launch.id] = SILENT
            for name in () if is_ahead else case.all_devices:
                self._before(launch.id, self.devices[name])

    def after(self, launches: Iterable[tuple[Launch, Case]]) -> None:
        """Note that our own work on their devices ends here, as far as any was on them."""
        for _, case in launches:
            self.used(case.all_devices)

    def used(self, devices: Iterable[str]) -> None:
        """Note that these devices may have had work of ours until now."""
        self._left.update(dict.fromkeys(devices, self.now()))

    def take(self, event: Event) -> None:
        """Note how far a launch has come; one that has ended is not counted any more."""
        if isinstance(event, LaunchEnded):
            self._stages[event.launch] = DONE
        if isinstance(event, WorkerEvent) and event.launch in self._stages:
            stage = STARTED if isinstance(event, Started) else REPORTED
            self._stages[event.launch] = max(self._stages[event.launch], stage)

    def is_alone(
        self, launch: str, devices: Sequence[str], waiting: Mapping[str, int] = NOBODY
    ) -> bool:
        """Whether nobody else is seen on the devices of a launch whose steps are over.

        They are counted once more, where that was not done since its first step, and not again in
        this launch: another process of this run may then be there. A device counts that nobody else
        had when it was last looked at with no process of this run on it.
        """
        self.inside(launch, devices, is_ready=False, waiting=waiting)
        self._stages[launch] = DONE
        counted = self._in_a_row.keys() & set(devices)
        self._in_a_row.update({name: self._in_a_row[name] + 1 for name in counted})
        is_due = any(
            self._in_a_row[name] > MOST_IN_A_ROW and self._unlooked_ns(name) >= LOOK_NS
            for name in counted
        )
        return not is_due and not self._others.intersection(devices)

    def may_follow_twice(self, devices: Iterable[str]) -> bool:
        """Whether two more launches may begin ahead before these devices are looked at alone.

        That is asked once the one before both is over and counted (`is_alone`). Where the next one
        takes longer than those before it did, the one after it begins alone after all.
        """
        return all(
            row < MOST_IN_A_ROW or self._unlooked_ns(name) * (row + 1) < LOOK_NS * row
            for name in devices
            if (row := self._in_a_row.get(name, 0))
        )

    def _unlooked_ns(self, name: str) -> int:
        """For how long nobody has looked at a device with no process of this run on it."""
        return self.now() - self._looked[name]

    def inside(
        self,
        launch: str,
        devices: Sequence[str],
        *,
        is_ready: bool,
        waiting: Mapping[str, int] = NOBODY,
    ) -> None:
        """Count beside a reading, until the launch reports, and once when its own must be there.

        On each device so many processes of this run are `waiting` there for launches behind it.
        """
        stage = self._stages.get(launch, DONE)
        if is_ready or stage not in (SILENT, STARTED):
            return
        if stage == STARTED:
            self._stages[launch] = DONE
        for name in devices:
            device = self.devices[name]
            users = self.vendors[device.vendor].users(device)
            if users is not None:
                num_waiting = waiting.get(name, 0)
                if users.count is not None and users.count > 1 + num_waiting:
                    self._others.add(name)
                self._record(device, users, launch, is_inside=True, num_waiting=num_waiting)

    def _before(self, launch: str, device: Device) -> None:
        users, values = self._ask(device)
        if users is None:
            return
        left = self._left.get(device.id)
        early = 0 if left is None else SETTLED_NS - (self.now() - left)
        if early > 0 and _is_somebody_there(users, values):
            self.sleep(early / 1e9)
            users, values = self._ask(device)
        if users is not None:
            self._note(device, users, values)
            self._record(device, users, launch, values)

    def _note(self, device: Device, users: DeviceUsers, values: Mapping[str, float | None]) -> None:
        """Note whether anybody has a device that no process of this run is on."""
        self._in_a_row[device.id], self._looked[device.id] = 0, self.now()
        change = self._others.add if _is_somebody_there(users, values) else self._others.discard
        change(device.id)

    def _count_all(self) -> None:
        for device in self.devices.values():
            users, values = self._ask(device)
            if users is not None:
                self._note(device, users, values)
                self._record(device, users, values=values)

    def _ask(self, device: Device) -> tuple[DeviceUsers | None, Mapping[str, float | None]]:
        vendor = self.vendors[device.vendor]
        users = vendor.users(device)
        if users is None:
            return None, {}
        readings = possible(vendor.read(device))
        return users, {name: readings.get(name) for name in VALUES}

    def _record(
        self,
        device: Device,
        users: DeviceUsers,
        launch: str = "",
        values: Mapping[str, float | None] | None = None,
        *,
        is_inside: bool = False,
        num_waiting: int = 0,
    ) -> None:
        self.record(
            UsersCounted(
                device=device.id,
                count=users.count,
                memory_bytes=users.memory_bytes,
                hint=users.hint,
                launch=launch,
                moment="inside" if is_inside else "before",
                values=dict(values or {}),
                num_waiting=num_waiting,
            )
        )


def _is_somebody_there(users: DeviceUsers, values: Mapping[str, float | None]) -> bool:
    """Whether a device that we left has a process, or memory that is not ours."""
    held = values.get("memory_used_bytes")
    return bool(users.count) or (held is not None and held >= HELD_BYTES)
