"""What i915 and xe report of a card in /sys: clocks, power, heat, reasons of throttling.

The files and their units, each by its source in Linux:

- xe clocks: device/tile*/gt*/freq0/{act,max,rp0}_freq, MHz (drivers/gpu/drm/xe/xe_gt_freq.c);
  tile*/memory/freq0/max_freq, MHz (xe_vram_freq.c); gtidle/name ends in "-mc" for the part that
  serves media alone (xe_gt_idle.c).
- i915 clocks: drm/card*/gt/gt*/rps_{act,max,RP0}_freq_mhz (drivers/gpu/drm/i915/gt/
  intel_gt_sysfs_pm.c).
- Throttling: freq0/throttle/{status,reason_*} (xe_gt_throttle.c), throttle_reason_* (i915).
- Power, energy, temperature, fans: hwmon, microwatts, microjoules, millidegrees, revolutions
  (Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon and -i915-hwmon).
- Temperatures of a Max card, where hwmon has none: /sys/class/intel_pmt/telem*, raw words of
  32 bits whose places intel/compute-runtime lists in sysman_product_helper_pvc.cpp; which of the
  nodes belong to a card, and how they are read, is in its sysman_pmt.cpp.
- Error counts: drm/card*/gt/gt*/error_counter of Intel's i915 package
  (intel-gpu/intel-gpu-i915-backports, drivers/gpu/drm/i915/gt/sysfs_gt_errors.c).

Nothing under /sys/kernel/debug is read: it needs root, and its files are no interface.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from appliance.linux.sysfs import Tree, Unreadable, or_none
from appliance.records.vocabulary import THROTTLES
from appliance.vendors.intel.cards import Card

MEGA, MICRO, MILLI = 10**6, 1e-6, 1e-3
NO_DRIVER = "no Intel driver (i915 or xe) has the card: load it"
NO_HWMON = "the driver shows no such sensor of this card: a newer kernel may (xe from 6.15 on)"
ASLEEP = "the card is asleep (RC6) and no clock runs in it; it wakes with the next work"
NO_LIMIT = "the limit is switched off"
NO_TELEMETRY = "the driver shows no such sensor, and /sys/class/intel_pmt has none of this card"
NO_COUNTS = "this kernel driver counts no errors: Intel's i915 package or xpu-smi does"
TELEMETRY = "/sys/class/intel_pmt"
TELEMETRY_OF_MAX = "0xb15a0edc"
"""Layout of the telemetry of a Max card's tile, by its guid file."""
HOTTEST_OF_TILE, HOTTEST_OF_MEMORY = (44,), (28, 36)
"""Places of TileMaxTemperature and HBM0/1MaxDeviceTemperature in it, bytes; values in celsius."""
WORD = struct.Struct("<I")
STATUS = "status"
"""The driver's name for "some reason or other"."""

REASONS: Mapping[str, str] = {
    "pl1": "power_cap",
    "pl2": "power_cap",
    "psys_pl1": "power_cap",
    "psys_pl2": "power_cap",
    "psys_crit": "power_brake",
    "pl4": "current",  # "PL4, Iccmax etc."
    "iccmax": "current",
    "vr_tdc": "current",  # the design current of the voltage regulator
    "fastvmode": "current",
    "thermal": "thermal",
    "soc_thermal": "thermal",
    "mem_thermal": "thermal",
    "soc_avg_thermal": "thermal",
    "ratl": "thermal",  # running average thermal limit
    "prochot": "hardware",  # a signal of "too hot" that the board may raise, too
    "vr_thermalert": "hardware",  # the regulator is too hot, not the card
    "vr_thermal": "hardware",
    "p0_freq": "other",
}
"""Why a clock is low, by the drivers' names, in the words of all vendors."""
BITS: Mapping[str, int] = {
    "prochot": 0,
    "thermal": 1,
    "ratl": 5,
    "vr_thermalert": 6,
    "vr_tdc": 7,
    "pl4": 8,
    "pl1": 10,
    "pl2": 11,
}
"""Bits of GT0_PERF_LIMIT_REASONS, from which the drivers make the files (xe_gt_regs.h)."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One card through its kernel driver. Every method raises Unreadable for what it lacks."""

    tree: Tree
    card: Card

    # -------------------------------------------------------------- clocks

    def clock(self) -> float:
        """Hertz of the slowest compute part that is awake.

        The driver writes 0 while a part is power gated. That is no speed at which it computes,
        and would drag down every mean of a clock, so an idle card has no reading and a hint.
        """
        running = [value for value in self._clocks("act") if value > 0]
        if not running:
            raise Unreadable(ASLEEP)
        return float(min(running))

    def highest_clock(self) -> int:
        """Hertz, of the design (RP0)."""
        return min(self._clocks("rp0"))

    def clock_limit(self) -> int:
        """Hertz that are allowed now: the design's highest, or what somebody set below it."""
        return min(self._clocks("max"))

    def highest_memory_clock(self) -> int:
        """Hertz; xe reports it of a Max card alone."""
        paths = [f"{tile}/memory/freq0/max_freq" for tile in self.card.tiles()]
        if not paths:
            raise Unreadable("the driver does not tell the clock of the memory")
        return min(self.tree.number(path) for path in paths) * MEGA

    def _clocks(self, which: str) -> list[int]:
        if self.is_xe:
            paths = [f"{part}/freq0/{which}_freq" for part in self._parts()]
        else:
            name = {"act": "act", "max": "max", "rp0": "RP0"}[which]
            paths = [f"{part}/rps_{name}_freq_mhz" for part in self._parts()]
        return [self.tree.number(path) * MEGA for path in paths]

    # -------------------------------------------------------------- throttling

    def throttles(self) -> Mapping[str, float]:
        """1 for each reason that holds on any compute part, else 0."""
        active = self._reasons()
        names = {REASONS.get(name, "other") for name in active - {STATUS}}
        if active == {STATUS}:
            names = {"other"}
        return {name: float(name in names) for name in THROTTLES}

    def throttle_mask(self) -> float:
        """The register that the named reasons come from."""
        return float(sum(1 << BITS[name] for name in self._reasons() if name in BITS))

    def _reasons(self) -> frozenset[str]:
        """The driver's names of what holds now, with "status" if anything does."""
        flags = [(name, self.tree.number(path)) for name, path in self._throttle_files()]
        if not flags:
            raise Unreadable("the driver does not report why this card is slow")
        return frozenset(name for name, value in flags if value)

    def _throttle_files(self) -> Iterator[tuple[str, str]]:
        prefix = "reason_" if self.is_xe else "throttle_reason_"
        for part in self._parts():
            folder = f"{part}/freq0/throttle" if self.is_xe else part
            for name in self.tree.names(folder, rf"{STATUS}|{prefix}\w+"):
                yield name.removeprefix(prefix), f"{folder}/{name}"

    # -------------------------------------------------------------- sensors

    def energy(self) -> float:
        """Joules since the driver was loaded, of the whole card; else of its package."""
        return self._sensor(("energy1_input", "energy2_input")) * MICRO

    def power_limit(self) -> float:
        """Watts, sustained (PL1), of the whole card; else of its package."""
        limit = self._sensor(("power1_max", "power2_max"))
        if not limit:
            raise Unreadable(NO_LIMIT)
        return limit * MICRO

    def rated_power(self) -> float:
        """Watts, as delivered."""
        return self._sensor(("power1_rated_max", "power2_rated_max")) * MICRO

    def temperature(self) -> float:
        """Celsius of the package. i915 has it as temp1, xe as temp2."""
        name = "temp2_input" if self.is_xe else "temp1_input"
        return self._celsius(name, HOTTEST_OF_TILE)

    def memory_temperature(self) -> float:
        """Celsius of the memory: temp3 of xe."""
        return self._celsius("temp3_input" if self.is_xe else "", HOTTEST_OF_MEMORY)

    def _celsius(self, name: str, places: Sequence[int]) -> float:
        value = or_none(lambda: self._sensor((name,))) if name else None
        return value * MILLI if value is not None else float(max(self._telemetry(places)))

    def _sensor(self, names: Sequence[str]) -> int:
        """The first of these files that the device's own hwmon has."""
        folder = self._hwmon()
        for name in names:
            if self.tree.exists(f"{folder}/{name}"):
                return self.tree.number(f"{folder}/{name}")
        raise Unreadable(NO_HWMON)

    def _hwmon(self) -> str:
        """The hwmon of the card; i915 has further ones for its parts ("i915_gt0")."""
        folder = f"{self.card.function.folder}/hwmon"
        names = or_none(lambda: self.tree.names(folder)) or ()
        for name in names:
            if or_none(partial(self.tree.line, f"{folder}/{name}/name")) == self.driver:
                return f"{folder}/{name}"
        raise Unreadable(NO_HWMON)

    def _telemetry(self, places: Sequence[int]) -> list[int]:
        """Words of the telemetry of all tiles; the file is for root unless opened to others."""
        words = [
            WORD.unpack_from(self._raw(folder), place)[0]
            for folder in self._telemetry_folders()
            for place in places
        ]
        if not words:
            raise Unreadable(NO_TELEMETRY)
        return words

    def _telemetry_folders(self) -> Iterator[str]:
        """Those beneath the switch of this card: the monitor is a PCI function beside it."""
        home = self.tree.target(self.card.port().folder) + "/"
        for name in or_none(lambda: self.tree.names(TELEMETRY, r"telem\d+")) or ():
            folder = f"{TELEMETRY}/{name}"
            if (
                self.tree.target(folder).startswith(home)
                and self.tree.line(f"{folder}/guid") == TELEMETRY_OF_MAX
            ):
                yield folder

    def _raw(self, folder: str) -> bytes:
        start = self.tree.number(f"{folder}/offset")
        length = max(HOTTEST_OF_TILE + HOTTEST_OF_MEMORY) + WORD.size
        data = self.tree.data(f"{folder}/telem", start + length)[start:]
        if len(data) < length:
            raise Unreadable(f"{folder}/telem is damaged: it is cut off")
        return data

    # -------------------------------------------------------------- errors

    def errors(self, accepts: Callable[[str], bool]) -> int:
        """Sum of the driver's error counts whose names are accepted, over all compute parts."""
        parts = self._parts()
        if not all(self.tree.exists(f"{part}/error_counter") for part in parts):
            raise Unreadable(NO_COUNTS)
        counts = [
            self.tree.number(f"{part}/error_counter/{name}")
            for part in parts
            for name in self.tree.names(f"{part}/error_counter")
            if accepts(name)
        ]
        if not counts:
            raise Unreadable(NO_COUNTS)
        return sum(counts)

    # -------------------------------------------------------------- the driver

    @property
    def driver(self) -> str:
        return or_none(self.card.driver) or ""

    @property
    def is_xe(self) -> bool:
        return self.driver == "xe"

    def version(self) -> str:
        """The driver's name with its version, or with the kernel's where it came with it."""
        name = self.card.driver()
        own = or_none(lambda: self.tree.line(f"/sys/module/{name}/version"))
        return f"{name} {own or self.tree.line('/proc/sys/kernel/osrelease')}"

    def _parts(self) -> tuple[str, ...]:
        """Folders of the parts that compute, one per tile; never one for media alone."""
        if not self.driver:
            raise Unreadable(NO_DRIVER)
        homes = self.card.tiles() if self.is_xe else [f"{one}/gt" for one in self.card.drm()]
        parts = [f"{home}/{name}" for home in homes for name in self.tree.names(home, r"gt\d+")]
        computing = tuple(part for part in parts if not self._is_for_media(part))
        if not computing:
            raise Unreadable("the driver shows no part of this card that computes")
        return computing

    def _is_for_media(self, part: str) -> bool:
        name = or_none(lambda: self.tree.line(f"{part}/gtidle/name")) or ""
        return name.endswith("-mc")
