"""Who else used a case's devices, or the node's processors, by what was read during its launches.

A device that another program uses makes sound hardware look slow, and its clock look false. Of
processors the readings hold what others used of them. Of an accelerator they hold its whole use,
ours included, so only those readings count in which no work of this run can be on it: before a
launch's process has reported anything, and long enough after the launch before it, since drivers
report the use of the last moments. What stands there is another's. Presence alone disturbs
nothing (monitoring daemons hold devices open all the time); use does.

On one H100, 451 such readings of a quiet device all reported a use of 0 %, and each of the 18
beside another program's matrix products 99 or 100 % (version 0.4.0).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from appliance.evidence.launches import CaseEvidence, IdleReading, LaunchEvidence, UsersSeen
from appliance.planning.placement import GIB
from appliance.records.journal import (
    LaunchEnded,
    Line,
    Reading,
    RunResumed,
    ServerProbed,
    SessionBegan,
    UsersCounted,
    Witnessed,
)
from appliance.records.plan import Case
from appliance.records.system import Device, System

DISTURBED_SHARE = 0.1
"""Least use by others that disturbs: of the node's processors, or of a device's time."""
DISTURBED_PART = 1 / 3  # of the readings
LOADED_PART = 0.5
"""Of its power limit a device draws less than this while it is idle; an H100 draws 10 to 20 %."""
HELD_BYTES = 2**27
"""Memory in use that is more than a driver's own: somebody may be there. An idle H100 has none."""
SETTLED_NS = 1_500_000_000
"""After our own work, until a reading no longer has any of it: NVML's use is that of the last
sixth of a second to a second (nvml.h, nvmlUtilization_t)."""
LEAST_PIECES, GAP_NS = 8, 300_000
"""Of a train of equal work: pieces that must be free of the host, and the least gap."""
HIDDEN = "the list of them leaves out even our own: start the container with --pid=host"


@dataclass
class IdleTimes:
    """Since when each device has had no work of this run, from the lines of the journal in order.

    A device that no launch of the session has used yet is idle. Whatever a fork server's probe or
    an interrupted run left behind ends with the line that reports it.
    """

    cases: Mapping[str, Case]
    """The case of each launch."""
    _since: dict[str, int] = field(default_factory=dict)

    def take(self, line: Line) -> None:
        """Note the end of whatever may have used a device."""
        event = line.event
        if isinstance(event, LaunchEnded):
            if event.launch in self.cases:
                self._used(self.cases[event.launch].all_devices, line)
        elif isinstance(event, ServerProbed | RunResumed):
            devices = {name for case in self.cases.values() for name in case.all_devices}
            self._used(devices, line)
        elif isinstance(event, SessionBegan):
            self._since.clear()  # no work of this run was in the pause, whose clock may be another

    def is_settled(self, device: str, line: Line) -> bool:
        """Whether a reading of this line can hold no work of an earlier launch."""
        since = self._since.get(device)
        return since is None or line.monotonic_ns - since >= SETTLED_NS

    def _used(self, devices: Iterable[str], line: Line) -> None:
        self._since.update(dict.fromkeys(devices, line.monotonic_ns))


def idle_reading(reading: Reading | UsersCounted) -> IdleReading:
    """What a reading that holds no work of this run says of others."""
    values = reading.values
    return IdleReading(
        device=reading.device,
        memory_bytes=values.get("memory_used_bytes"),
        utilisation=values.get("utilisation_fraction"),
        power_watts=values.get("power_watts"),
    )


def users_seen(counted: UsersCounted, launch: LaunchEvidence, case: Case) -> UsersSeen:
    """Processes on a device beside a launch of this case, which has one for each of its ranks.

    Those of the run that waited there are ours, too.
    """
    is_inside = counted.moment == "inside"
    ranks_of_device = -(-case.ranks // len(case.all_devices))
    return UsersSeen(
        device=counted.device,
        count=counted.count,
        hint=counted.hint,
        num_ours=ranks_of_device + counted.num_waiting if is_inside else 0,
        has_ours=is_inside and launch.has_stepped,
    )


def users_by_device(cases: Iterable[CaseEvidence]) -> Mapping[str, Sequence[UsersSeen]]:
    """All processes that were counted beside launches of these cases, in their order."""
    seen: dict[str, list[UsersSeen]] = {}
    for evidence in cases:
        for launch in evidence.launches:
            for one in launch.users:
                seen.setdefault(one.device, []).append(one)
    return seen


def why_unlisted(seen: Sequence[UsersSeen]) -> str:
    """Why the processes on a device cannot be listed, by what was seen there, or nothing.

    A list that leaves out our own, whose first step is made, shows nobody: in a container drivers
    leave out processes that it cannot name.
    """
    ours = [one.count for one in seen if one.has_ours and one.count is not None]
    if ours and not any(ours):
        return HIDDEN
    return "" if any(one.count is not None for one in seen) else next((s.hint for s in seen), "")


def _num_others(evidence: CaseEvidence, device: str) -> int:
    """The most processes on a device that cannot be ours; 0 also where none can be seen."""
    return max(
        (
            one.count - one.num_ours
            for launch in evidence.launches
            for one in launch.users
            if one.device == device and one.count is not None
        ),
        default=0,
    )


def disturbance(evidence: CaseEvidence, system: System) -> str:
    """Others' use of what this case ran on, as a clause with its figures; or nothing."""
    devices = {device.id: device for device in system.identity.devices}
    for name in evidence.case.all_devices:
        device = devices.get(name)
        if device is not None:
            is_cpu = device.vendor == "cpu"
            clause = _of_processors(evidence, device) if is_cpu else _of_device(evidence, device)
            if clause:
                return clause
    return ""


def _of_processors(evidence: CaseEvidence, device: Device) -> str:
    if "usable_processors" not in device.facts:
        return ""
    usable = device.facts["usable_processors"].value
    if not isinstance(usable, int | float) or usable <= 0:
        return ""
    return others_on_host(
        [
            ((foreign + (reading.values.get("stolen_processors") or 0.0)) / usable, reading.count)
            for launch in evidence.timed
            for reading in launch.readings
            if (foreign := reading.values.get("foreign_processors")) is not None
        ]
    )


def others_on_host(shares: Sequence[tuple[float, int]]) -> str:
    """Whether others disturbed what ran on the host, as a clause; or nothing.

    `shares` are of its processors what others used, each with how many readings said so.
    """
    high = [(share, count) for share, count in shares if share >= DISTURBED_SHARE]
    num_high, total = (sum(count for _, count in some) for some in (high, shares))
    if not high or num_high < DISTURBED_PART * total:
        return ""
    return (
        f"others used {100 * statistics.median(share for share, _ in high):.0f} % of the "
        f"processors in {num_high} of {total} readings"
    )


def _of_device(evidence: CaseEvidence, device: Device) -> str:
    """One launch that was disturbed is enough: it is one of few, and its time stands out."""
    limit = _number(device, "power_limit")
    total: list[IdleReading] = []
    used: list[IdleReading] = []
    for launch in evidence.launches:
        idle = [one for one in launch.idle if one.device == device.id]
        busy = [one for one in idle if _is_used(one, limit)]
        total += idle
        used += busy if len(busy) >= DISTURBED_PART * len(idle) else []
    if not used:
        return _stood_still(evidence, device, total)
    others = _num_others(evidence, device.id)
    who = f"{others} other processes" if others > 1 else "another process"
    return (
        f"{who} used {device.id}: {_figures(used)} in {len(used)} of {len(total)} "
        "readings before the work of a launch began"
    )


def _stood_still(evidence: CaseEvidence, device: Device, idle: Sequence[IdleReading]) -> str:
    """Others who hold the device and whose use no reading shows, but our work stood still.

    No device has proven yet that the witness raises no false alarm on it, so it counts only beside
    somebody who is there: a process, or memory that is not ours.
    """
    held = [one for one in idle if (one.memory_bytes or 0.0) >= HELD_BYTES]
    is_held = bool(held) and len(held) >= DISTURBED_PART * len(idle)
    if _num_others(evidence, device.id) < 1 and not is_held:
        return ""
    looks = [
        share
        for launch in evidence.launches
        for witnessed in launch.witnessed
        if (share := gap_share(witnessed)) is not None
    ]
    gaps = [share for share in looks if share >= DISTURBED_SHARE]
    if not gaps or len(gaps) < DISTURBED_PART * len(looks):
        return ""
    memory = _median([one.memory_bytes for one in held])
    what = "" if memory is None else f" ({memory / GIB:.1f} GiB)"
    percent = 100 * statistics.median(gaps)
    return (
        f"another process holds {device.id}{what}, and a train of equal pieces of work stood still "
        f"for {percent:.0f} % of its time in {len(gaps)} of {len(looks)} looks"
    )


def gap_share(witnessed: Witnessed) -> float | None:
    """Part of a train's time in which its device stood still; None where it cannot be said.

    Only pieces count that began after all were handed over. One that took 0.3 ms and three times
    their median more than that median holds a gap: slices of time are milliseconds.
    """
    begin, free = 0, list[int]()
    for piece in witnessed.piece_ns:
        free += [piece] if begin >= witnessed.issue_ns else []
        begin += piece
    if len(free) < LEAST_PIECES or sum(free) <= 0:
        return None
    middle = statistics.median(free)
    excess = [piece - middle for piece in free]
    return sum(one for one in excess if one >= max(GAP_NS, 3 * middle)) / sum(free)


def _is_used(reading: IdleReading, power_limit: float | None) -> bool:
    """Whether somebody computed on the device; by its power where it does not report its use."""
    if reading.utilisation is not None:
        return reading.utilisation >= DISTURBED_SHARE
    if reading.power_watts is None or power_limit is None:
        return False
    return reading.power_watts >= LOADED_PART * power_limit


def _figures(readings: Sequence[IdleReading]) -> str:
    """Medians of memory, use and power, as far as they were reported."""
    memory = _median([one.memory_bytes for one in readings])
    use = _median([one.utilisation for one in readings])
    power = _median([one.power_watts for one in readings])
    figures = [
        *([] if memory is None else [f"{memory / GIB:.1f} GiB"]),
        *([] if use is None else [f"{100 * use:.0f} %"]),
        *([] if power is None else [f"{power:.0f} W"]),
    ]
    return ", ".join(figures)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _number(device: Device, name: str) -> float | None:
    value = device.facts[name].value if name in device.facts else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
