"""What is watched beside the launches: error counters of their devices, and the kernel's log.

Both are read when no launch runs: when the run begins, before the first process of a group is
started, after the last has ended, and when the run ends. So nothing is read while steps are
timed, and whatever grows falls between two readings that name the launch.

The journal stays small: counters that equal the reading before them are recorded as the same. Of
the kernel's log only those lines are stored that a vendor calls a fault of a device of the run. A
log that may not be read is recorded once, with what would allow it; a run that goes on reads what
was logged meanwhile, if the node was not started again; it may be in a pause between two sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from appliance.linux.boot_clock import BOOT_ID
from appliance.linux.kernel_log import KernelLog
from appliance.linux.kernel_log import Record as LogRecord
from appliance.linux.sysfs import Tree, Unreadable
from appliance.records.journal import (
    Counted,
    Event,
    KernelLogged,
    KernelLogRead,
    Line,
    NotObserved,
    SessionBegan,
)
from appliance.records.plan import Case, Launch
from appliance.records.system import Device
from appliance.records.vocabulary import possible_counts
from appliance.vendors.base import KernelFault, Vendor

LOGGED = (KernelLogRead, KernelLogged)
LONGEST_TEXT = 300
MOST_FAULTS = 500
"""Lines stored of one run: a device that fails may fill the log with the same line."""
TOO_MANY = f"more than {MOST_FAULTS} faults were logged, and the rest is not stored: see dmesg"
STARTED_AGAIN = (
    "the node was started again during the run, and the end of the log before that is lost: "
    "start a new run"
)
OVERWRITTEN = (
    "the kernel logged so much that lines were overwritten before they were read: "
    "enlarge its buffer (log_buf_len=) and run again"
)


@dataclass(kw_only=True)
class CounterLog:
    """Counters and log of one run; `record` keeps an event.

    `vendors` are by name, `devices` those that the plan uses, by id. `open_log` opens the kernel's
    log from its oldest line.
    """

    vendors: Mapping[str, Vendor]
    devices: Mapping[str, Device]
    record: Callable[[Event], object]
    open_log: Callable[[], KernelLog] = lambda: KernelLog(from_start=True)
    counters: dict[str, dict[str, int | None]] = field(default_factory=dict)
    log: KernelLog | None = None
    boot: str = ""
    sequence: int = -1
    num_faults: int = 0

    def begin(self, lines: Sequence[Line]) -> None:
        """Say where everything stands; `lines` are those of a run that goes on, else empty."""
        for device in self.devices.values():
            vendor = self.vendors[device.vendor]
            counters = possible_counts(vendor.counters(device))
            self.counters[device.id] = counters
            self.record(
                Counted(
                    device=device.id,
                    counters=counters,
                    hints=dict(sorted(vendor.hints(device).items())),
                    absent=tuple(sorted(vendor.absent(device))),
                )
            )
        self._begin_log([line.event for line in lines])

    def before(self, launches: Iterable[tuple[Launch, Case]]) -> None:
        """Count the devices of launches that are about to start."""
        for launch, case in launches:
            self._count(launch, case, "before")

    def after(self, launches: Sequence[tuple[Launch, Case]]) -> None:
        """Count again when all of them have ended, and read what the kernel logged meanwhile."""
        for launch, case in launches:
            self._count(launch, case, "after")
        self._drain({name: launch.id for launch, case in launches for name in case.all_devices})

    def end(self) -> None:
        """Say where everything has come to."""
        for device in self.devices.values():
            counters = possible_counts(self.vendors[device.vendor].counters(device))
            self.record(Counted(device=device.id, counters=counters, moment="after"))
        self._drain({})
        if self.log is not None:
            self.record(KernelLogRead(boot=self.boot, sequence=self.sequence))

    def close(self) -> None:
        if self.log is not None:
            self.log.close()
            self.log = None

    # -------------------------------------------------------------- counters

    def _count(self, launch: Launch, case: Case, moment: Literal["before", "after"]) -> None:
        for name in case.all_devices:
            device = self.devices[name]
            counters = possible_counts(self.vendors[device.vendor].counters(device))
            is_same = counters == self.counters.get(name)
            self.counters[name] = counters
            self.record(
                Counted(
                    device=name,
                    counters={} if is_same else counters,
                    launch=launch.id,
                    moment=moment,
                    is_same=is_same,
                )
            )

    # -------------------------------------------------------------- the kernel's log

    def _begin_log(self, events: Sequence[Event]) -> None:
        """Open the log where the run began or was cut short, and record it."""
        self.num_faults = sum(isinstance(event, KernelLogged) for event in events)
        read = [event for event in events if isinstance(event, KernelLogRead)]
        try:
            self.log = self.open_log()
            self.boot = Tree().line(BOOT_ID)
            if read and read[-1].boot == self.boot:
                self.sequence = max(event.sequence for event in events if isinstance(event, LOGGED))
                self._drain({})
            elif read and not isinstance(events[-1], SessionBegan):  # booted in no pause
                self._lose(STARTED_AGAIN)
            else:
                for entry in self.log.new():
                    self.sequence = entry.sequence
        except Unreadable as gap:
            self._lose(gap.hint)
        if self.log is not None:
            self.record(KernelLogRead(boot=self.boot, sequence=self.sequence))

    def _lose(self, hint: str) -> None:
        """Read the log no longer, and record why."""
        self.close()
        self.record(NotObserved(what="kernel_log", hint=hint))

    def _drain(self, launches: Mapping[str, str]) -> None:
        """Keep what was logged since the last time; `launches` are those that ran, by device."""
        if self.log is None:
            return
        try:
            for entry in self._new(self.log):
                fault = self._fault(entry)
                if fault is not None:
                    self._keep(fault, entry, launches.get(fault.device, ""))
        except Unreadable as gap:
            self._lose(gap.hint)

    def _keep(self, fault: KernelFault, entry: LogRecord, launch: str) -> None:
        """Record a fault. Raises Unreadable where there are too many of them."""
        if self.num_faults >= MOST_FAULTS:
            raise Unreadable(TOO_MANY)
        self.num_faults += 1
        self.record(
            KernelLogged(
                launch=launch,
                device=fault.device,
                code=fault.code,
                is_fatal=fault.is_fatal,
                meaning=fault.meaning,
                text=_plain(entry.text),
                sequence=entry.sequence,
            )
        )

    def _new(self, log: KernelLog) -> Iterator[LogRecord]:
        """Records after the last one; Unreadable where the kernel has lost some of them."""
        for entry in log.new():
            if entry.sequence <= self.sequence:
                continue
            if entry.sequence > self.sequence + 1 and self.sequence >= 0:
                raise Unreadable(OVERWRITTEN)
            self.sequence = entry.sequence
            yield entry

    def _fault(self, entry: LogRecord) -> KernelFault | None:
        for vendor in self.vendors.values():
            own = [device for device in self.devices.values() if device.vendor == vendor.name]
            fault = vendor.kernel_fault(entry.text, own)
            if fault is not None:
                return fault
        return None


def _plain(text: str) -> str:
    """A line of the log as Unicode that JSON can hold, not too long."""
    return text.encode("utf-8", "replace").decode("utf-8")[:LONGEST_TEXT]
