"""NVLinks of a device: how many work, what they counted, and which devices they join.

Of a module that is soldered or plugged to a baseboard every link must work. The links of a card
go over bridges between neighbours, which may be left out: of a card those that worked at the
probe must go on working. The counters of links up to the fourth generation are
gone with the fifth (NVML change log, "Changes between v560 and v565"), which has others instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from appliance.linux import pci
from appliance.linux.fact_reader import fact
from appliance.linux.sysfs import Unreadable, or_none
from appliance.records.system import Device, Fact, Facts
from appliance.records.vocabulary import CONNECTION
from appliance.vendors.nvidia.nvml import Handle, Nvml, Refusal, as_text, attempt, first

KIND = "NVLink"
NO_LINKS = "this part has no such links"
NONE_UP = "no link works, so that none counts"
VERSIONS = {1: "1", 2: "2", 3: "2.2", 4: "3", 5: "3.1", 6: "4", 7: "5", 8: "6"}
"""nvmlNvlinkVersion_t (nvml.h)."""
CARD = re.compile(r"PCIe|\bNVL\b|RTX|Quadro|GeForce|TITAN|\bA[34]0\b|\bL[0-9]", re.IGNORECASE)
"""Names of parts that are cards; the others with links sit on a baseboard with all of them."""
COUNTERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "link_replays": (
        ("NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY",),
        ("NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",),
    ),
    "link_recoveries": (
        ("NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY",),
        ("NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS",),
        ("NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",),
    ),
    "link_errors": (
        ("NVML_FI_DEV_NVLINK_ERROR_DL_CRC",),
        ("NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS",),
        (
            "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
            "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        ),
    ),
}
"""Field values that count, in order of preference. Those called TOTAL are of all links at once."""
PATHS = {
    0: "same board",
    10: "PCIe switch",
    20: "PCIe switches",
    30: "host bridge",
    40: "one socket",
    50: "between sockets",
}
"""The way over the host by nvmlGpuTopologyLevel_t."""
SWITCH = 2
"""NVML_NVLINK_DEVICE_TYPE_SWITCH."""
TO_SWITCH = "switch"
P2P_NVLINK, P2P_OK = 2, 0
"""NVML_P2P_CAPS_INDEX_NVLINK and NVML_P2P_STATUS_OK."""
NOT_SUPPORTED = 3
"""NVML_ERROR_NOT_SUPPORTED."""
MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Links:
    """The links of one device. Every method raises Unreadable."""

    nvml: Nvml
    handle: Handle

    def number(self) -> int:
        """Links that the part has; some have none."""
        return first(
            lambda: self.nvml.field(self.handle, "NVML_FI_DEV_NVLINK_LINK_COUNT"), self._answering
        )

    def count(self) -> int:
        """Links that the part has, at least one."""
        count = self.number()
        if not count:
            raise Unreadable(NO_LINKS)
        return count

    def shown(self) -> bool:
        """Whether the driver shows links: not where it supports none of the questions about them.

        It answers so for a device that is passed through to a virtual machine, whatever links the
        part has. Any other refusal (no permission, a lost device) leaves it unknown.
        """
        nvml, handle = self.nvml, self.handle
        answers = (
            attempt(lambda: nvml.field(handle, "NVML_FI_DEV_NVLINK_LINK_COUNT")),
            attempt(partial(nvml.whole, "nvmlDeviceGetNvLinkVersion", handle, 0)),
            *self._states(),
        )
        gaps = [answer for answer in answers if isinstance(answer, Unreadable)]
        if len(gaps) < len(answers):
            return True
        for gap in gaps:
            if not isinstance(gap, Refusal) or gap.code != NOT_SUPPORTED:
                raise gap
        return False

    def up(self) -> tuple[int, ...]:
        """Numbers of the links that work."""
        return tuple(link for link in range(self.count()) if self._is_up(link))

    def down(self, device: Device) -> int:
        """Links that should work and do not."""
        if CARD.search(device.model):
            at_probe = device.facts.get("num_links_up")
            if at_probe is None or not isinstance(at_probe.value, int):
                raise Unreadable(at_probe.hint if at_probe else NO_LINKS)
            return max(0, at_probe.value - len(self.up()))
        return self.count() - len(self.up())

    def counted(self, name: str) -> int:
        """Sum of a counter over the links that work."""
        links = self.up()
        if not links:
            raise Unreadable(NONE_UP)
        return first(*(partial(self._sum, fields, links) for fields in COUNTERS[name]))

    def facts(self) -> Facts:
        """What the links are and how many work."""
        nvml, handle = self.nvml, self.handle

        def kind() -> str:
            self.count()
            version = nvml.whole("nvmlDeviceGetNvLinkVersion", handle, 0)
            return f"{KIND} {VERSIONS[version]}" if version in VERSIONS else KIND

        def rate() -> int:
            up = self.up()
            if not up:
                raise Unreadable(NONE_UP)
            return (
                first(
                    lambda: nvml.field(handle, "NVML_FI_DEV_NVLINK_GET_SPEED", up[0]),
                    lambda: nvml.field(handle, "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON"),
                )
                * MEGABYTE
            )

        return {
            "links_shown": fact(self.shown, source="NVML nvmlDeviceGetNvLinkState"),
            "link_kind": fact(kind, source="NVML nvmlDeviceGetNvLinkVersion"),
            "num_links": fact(self.number, source="NVML NVML_FI_DEV_NVLINK_LINK_COUNT"),
            "num_links_up": fact(lambda: len(self.up()), source="NVML nvmlDeviceGetNvLinkState"),
            "link_bytes_per_second": fact(
                rate, source="NVML NVML_FI_DEV_NVLINK_GET_SPEED", unit="bytes per second"
            ),
        }

    def ends(self) -> tuple[str, ...]:
        """For each link that works the PCI address of the device at its end, "switch", or ""."""
        return tuple(self._end(link) for link in or_none(self.up) or ())

    def _end(self, link: int) -> str:
        ask = partial(self.nvml.whole, "nvmlDeviceGetNvLinkRemoteDeviceType", self.handle, link)
        if or_none(ask) == SWITCH:
            return TO_SWITCH

        def address() -> str:
            info = self.nvml.ask("nvmlDeviceGetNvLinkRemotePciInfo", self.handle, link)
            return pci.address(as_text(info.busId))

        return or_none(address) or ""

    def _answering(self) -> int:
        """Links for which the driver has a state, where it does not give their number."""
        states = self._states()
        if states and all(isinstance(state, Unreadable) for state in states):
            raise next(state for state in states if isinstance(state, Unreadable))
        return sum(isinstance(state, bool) for state in states)

    def _states(self) -> tuple[bool | Unreadable, ...]:
        """Of every link that a part may have, whether it works, or why that is not known."""
        most = self.nvml.constant("NVML_NVLINK_MAX_LINKS")
        return tuple(attempt(partial(self._is_up, link)) for link in range(most))

    def _is_up(self, link: int) -> bool:
        return self.nvml.whole("nvmlDeviceGetNvLinkState", self.handle, link) == 1

    def _sum(self, names: Sequence[str], links: Sequence[int]) -> int:
        is_total = names[0].endswith("_TOTAL")
        scopes: Sequence[int] = (0,) if is_total else links
        wanted = [(name, scope) for name in names for scope in scopes]
        total = 0
        for value in self.nvml.fields(self.handle, wanted):
            if isinstance(value, Unreadable):  # a sum with a gap is none
                raise value
            total += value
        return total


@dataclass(frozen=True, slots=True)
class End:
    """A device as an end of connections: its number, its handle, its PCI address or ""."""

    number: int
    handle: Handle
    address: str


def connections(nvml: Nvml, ends: Sequence[End]) -> dict[int, Facts]:
    """For each device, by its number, how it is connected to each of the others."""
    reach = {end.number: Links(nvml, end.handle).ends() for end in ends}

    def between(one: End, other: End) -> Fact:
        def word() -> str:
            num_links = _joined(nvml, one, other, reach)
            return f"{KIND} x{num_links}" if num_links else _path(nvml, one.handle, other.handle)

        return fact(word, source="NVML nvmlDeviceGetTopologyCommonAncestor, NvLinkRemotePciInfo")

    return {
        one.number: {
            f"{CONNECTION}{other.number}": between(one, other)
            for other in ends
            if other.number != one.number
        }
        for one in ends
    }


def _joined(nvml: Nvml, one: End, other: End, reach: Mapping[int, Sequence[str]]) -> int:
    """Links from one device to another: straight ones, or both devices' links to the switches."""
    here, there = reach[one.number], reach[other.number]
    straight = here.count(other.address) if other.address else 0
    through = min(here.count(TO_SWITCH), there.count(TO_SWITCH))
    if straight or not through:
        return straight
    status = nvml.whole("nvmlDeviceGetP2PStatus", one.handle, other.handle, P2P_NVLINK)
    return through if status == P2P_OK else 0


def _path(nvml: Nvml, one: Handle, other: Handle) -> str:
    level = nvml.whole("nvmlDeviceGetTopologyCommonAncestor", one, other)
    if level not in PATHS:
        raise Unreadable(f"the driver calls the way between them {level}, which is unknown")
    return PATHS[level]
