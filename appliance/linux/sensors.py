"""What the processors' sensors and error counters say at this moment.

Read at 2 Hz while a launch is timed, so cheap above all: files are located once, a few
processors are asked for their frequency, and nothing is started. Raises Unreadable where the
machine has no such sensor; a count of which one part cannot be read is not known at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from appliance.linux.sysfs import Tree, Unreadable, or_none

CPU = "/sys/devices/system/cpu"
EDAC = "/sys/devices/system/edac/mc"
_HWMON = "/sys/class/hwmon"
_THERMAL = "/sys/class/thermal"
_CHIPS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "apm_xgene")
_ZONES = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal")
_PACKAGE = re.compile(r"Package id \d+|Tctl|Tdie|SoC Temperature")
"""Labels of the sensors that speak for a whole package, so that its cores need not be read."""
_NUM_ASKED = 8
"""Frequencies read at once at most: each costs an interrupt to the processor asked."""
_CPUINFO_START = 4096
"""Bytes of /proc/cpuinfo read: the kernel interrupts every processor that it writes about."""


class Sensors:
    """Sensors and counters of the node's processors."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    @cached_property
    def policies(self) -> tuple[str, ...]:
        """Folders of the processors that change frequency together."""
        names = self._tree.names(f"{CPU}/cpufreq", r"policy\d+")
        if not names:
            raise Unreadable
        return tuple(f"{CPU}/cpufreq/{name}" for name in names)

    def frequency(self) -> float:
        """Mean over some processors, in hertz; of /proc/cpuinfo where no driver is loaded."""
        policies = or_none(lambda: self.policies)
        if policies is None:
            return self._frequency_stated()
        step = -(-len(policies) // _NUM_ASKED)
        values = [self._tree.number(f"{path}/scaling_cur_freq") for path in policies[::step]]
        if min(values) <= 0:
            raise Unreadable
        return 1e3 * sum(values) / len(values)

    def _frequency_stated(self) -> float:
        text = self._tree.text("/proc/cpuinfo", limit=_CPUINFO_START)
        rows = re.findall(r"^cpu MHz\s*: ([0-9]{1,6}\.[0-9]+)$", text, re.MULTILINE)
        if not rows or min(map(float, rows)) <= 0:
            raise Unreadable
        return 1e6 * sum(map(float, rows)) / len(rows)

    def temperature(self) -> float:
        """The hottest processor, in degrees Celsius."""
        if not self._thermometers:
            raise Unreadable
        return max(self._tree.number(path) for path in self._thermometers) / 1e3

    @cached_property
    def _thermometers(self) -> tuple[str, ...]:
        return tuple(self._chips()) or tuple(self._zones())

    def _chips(self) -> Iterable[str]:
        labels: dict[str, str] = {}
        for name in or_none(lambda: self._tree.names(_HWMON, r"hwmon\d+")) or ():
            chip = f"{_HWMON}/{name}"
            if self._says(f"{chip}/name") in _CHIPS:
                for file in self._tree.names(chip, r"temp\d+_input"):
                    label = file.replace("_input", "_label")
                    labels[f"{chip}/{file}"] = self._says(f"{chip}/{label}")
        return [path for path, label in labels.items() if _PACKAGE.fullmatch(label)] or labels

    def _zones(self) -> Iterator[str]:
        for name in or_none(lambda: self._tree.names(_THERMAL, r"thermal_zone\d+")) or ():
            if self._says(f"{_THERMAL}/{name}/type") in _ZONES:
                yield f"{_THERMAL}/{name}/temp"

    def _says(self, path: str) -> str:
        return or_none(lambda: self._tree.line(path)) or ""

    def load(self) -> float:
        """Processes that ran or waited to run, averaged over the last minute."""
        match = re.match(r"[0-9]{1,9}\.[0-9]+ ", self._tree.text("/proc/loadavg"))
        if match is None:
            raise Unreadable("/proc/loadavg is damaged: it holds no load")
        return float(match[0])

    def memory_errors(self, name: str) -> int:
        """Total of `ce_count` (corrected) or `ue_count` (not) of all memory controllers."""
        return self._total(EDAC, r"mc\d+", name)

    def thermal_throttles(self) -> int:
        """How often cores slowed down for their temperature."""
        return self._total(CPU, r"cpu\d+", "thermal_throttle/core_throttle_count")

    def machine_checks(self) -> int:
        """Machine-check exceptions that the kernel has counted."""
        text = self._tree.text("/proc/interrupts")
        row = re.search(r"^ *MCE:((?: +[0-9]+)+)", text, re.MULTILINE)
        if row is None:
            raise Unreadable
        return sum(map(int, row[1].split()))

    def _total(self, folder: str, pattern: str, name: str) -> int:
        members = self._tree.names(folder, pattern)
        counts = [self._tree.number(f"{folder}/{member}/{name}") for member in members]
        if not counts or min(counts) < 0:
            raise Unreadable
        return sum(counts)
