"""What Intel's tool xpu-smi reports of cards, in JSON, and the kernel driver does not show.

Keys and units by intel/xpumanager: cli/src/core_stub/devices_stub.cpp (discovery; the names of the
properties in lower case), lib_core_stub.cpp (config, health, topology), statistics_stub.cpp (stats)
and doc/smi_user_guide.md; those of version 2 by ial/cmn/cmd_config.cpp, cmd_health.cpp and
cmd_stats.cpp of its tag v2.0.0. It renamed keys, counts errors in another form, and tells nothing
of Xe Links any more. Both are read, each by the keys that it answers with.

A card is named by its PCI address, which every command takes, so that nothing hangs on the tool's
own numbering; the matrix of the topology alone goes by numbers.

Starting it takes about as long as a step that is timed, so it is called when the node is probed and
when errors are counted, never for a reading. A child that is being timed never starts it at all.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.linux.fact_reader import firmware
from appliance.linux.pci import address
from appliance.linux.sysfs import Unreadable, number

Tool = Callable[[Sequence[str]], str]
"""Runs the tool with these arguments and answers with what it printed; raises Unreadable."""

PROGRAM = "xpu-smi"
SILENT = "BENCH_XPU_TOOL"
"""Variable that keeps a child from starting the tool: it knows its device and needs no serials."""
LIMIT_SECONDS = 30
NOT_INSTALLED = "xpu-smi is not installed: install it (package xpu-smi) to have this"
FILTERS = ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR", "ZE_FLAT_DEVICE_HIERARCHY")
"""Variables that would hide cards from the tool, too."""
MEBI = 2**20
RAS = "XPUM_STATS_RAS_ERROR_CAT_"
"""Beginning of the names of errors, as version 1 calls its metrics and this module both."""
CATEGORIES = {
    "RESET": "Reset",
    "PROGRAMMING_ERRORS": "Programming Errors",
    "DRIVER_ERRORS": "Driver Errors",
    "CACHE_ERRORS": "Cache Errors",
    "NON_COMPUTE_ERRORS": "Mem Errors",
}
"""What version 2 calls the categories of errors."""
TOTALS = {"_CORRECTABLE": "correctable_total", "_UNCORRECTABLE": "uncorrectable_total"}
NO_PORTS = "xpu-smi of version 2 tells nothing of Xe Links: version 1.3 does"


def run(arguments: Sequence[str]) -> str:
    """Start the tool that is installed here."""
    program = shutil.which(PROGRAM)
    if os.environ.get(SILENT):
        raise Unreadable("xpu-smi is not called while a case runs")
    if program is None:
        raise Unreadable(NOT_INSTALLED)
    variables = {name: value for name, value in os.environ.items() if name not in FILTERS}
    try:
        completed = subprocess.run(  # noqa: S603 - a fixed program with our own arguments
            [program, *arguments],
            capture_output=True,
            check=False,
            env=variables,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreadable(f"xpu-smi did not answer ({type(error).__name__})") from None
    return completed.stdout


@dataclass(slots=True)
class Answers:
    """The tool's answers, each queried once. Every method raises Unreadable.

    A tool that is missing or hangs is not called a second time.
    """

    tool: Tool
    silence: str = ""
    """Why the tool is not called; set by the first call that it did not answer."""
    _responses: dict[tuple[str, ...], Mapping[str, Any]] = field(default_factory=dict)

    def ask(self, *arguments: str) -> Mapping[str, Any]:
        """The JSON object that these arguments give."""
        if arguments not in self._responses:
            self._responses[arguments] = self._response(arguments)
        return self._responses[arguments]

    def _response(self, arguments: tuple[str, ...]) -> Mapping[str, Any]:
        if self.silence:
            raise Unreadable(self.silence)
        try:
            printed = self.tool((*arguments, "-j"))
        except Unreadable as gap:
            self.silence = gap.hint or NOT_INSTALLED
            raise
        return _parsed(printed, arguments)

    def number(self, card: str) -> int:
        """The number that the tool gave the card of this PCI address."""
        for one in _rows(self.ask("discovery"), "device_list"):
            if _address(one.get("pci_bdf_address")) == card:
                return whole(one, "device_id")
        raise Unreadable(f"xpu-smi does not list {card}")

    def properties(self, card: str) -> Mapping[str, Any]:
        return self.ask("discovery", "-d", card)

    def settings(self, card: str) -> Mapping[str, Any]:
        return self.ask("config", "-d", card)

    def power_range(self, card: str) -> str:
        """The range of the power limit ("1 to 600"); version 1 misspells its key."""
        settings = self.settings(card)
        name = "power_valid_range"
        return text(settings, name if name in settings else "power_vaild_range")

    def health(self, card: str, part: str) -> Mapping[str, Any]:
        """Status, description and thresholds of one part of a card."""
        parts = self.ask("health", "-d", card)
        answer = parts.get(part, parts.get(f"{part}_health"))
        if not isinstance(answer, Mapping):
            if part == "xe_link_port" and "memory_health" in parts:
                raise Unreadable(NO_PORTS)
            raise Unreadable(f"xpu-smi does not tell the health of {part}")
        return answer

    def statistic(self, card: str, name: str) -> int:
        """A count of the whole card, by the name that version 1 gives its metrics."""
        answer = self.ask("stats", "-d", card, "-r")
        errors = answer.get("ras_errors")
        if isinstance(errors, Mapping) and name.startswith(RAS):
            return _error_total(errors, name.removeprefix(RAS))
        for one in _rows(answer, "device_level"):
            if one.get("metrics_type") == name:
                return whole(one, "value")
        raise Unreadable(f"xpu-smi does not tell {name} of this card")

    def connections(self, card: str, other: str) -> list[Mapping[str, Any]]:
        """Rows of the topology from any tile of one card to any tile of another."""
        pair = self.number(card), self.number(other)
        rows = _rows(self.ask("topology", "-m"), "topo_list")
        return [
            row for row in rows if (row.get("local_device_id"), row.get("remote_device_id")) == pair
        ]

    def ports_in_use(self, card: str) -> int:
        """Ports of Xe Link over which the card reaches another."""
        mine = self.number(card)
        rows = _rows(self.ask("topology", "-m"), "topo_list")
        return sum(ports(row) for row in rows if row.get("local_device_id") == mine)


def _error_total(errors: Mapping[str, Any], kind: str) -> int:
    """Errors of one kind, as version 2 counts them by category."""
    ending = next((one for one in TOTALS if kind.endswith(one)), "")
    category = CATEGORIES.get(kind.removesuffix(ending), "")
    counts = errors.get(category)
    if not isinstance(counts, Mapping):
        raise Unreadable(f"xpu-smi does not tell {kind} of this card")
    return whole(counts, TOTALS.get(ending, "total"))


def ports(row: Mapping[str, Any]) -> int:
    """Ports that carry lanes in one row of the topology: those of a direct Xe Link."""
    listed = row.get("port_list")
    if row.get("link_type") != "XL" or not isinstance(listed, list):
        return 0
    return sum(1 for lanes in listed if isinstance(lanes, int) and lanes > 0)


def listed_ports(settings: Mapping[str, Any], key: str) -> int:
    """How many ports of all tiles stand in a list of the settings ("0, 1, 2")."""
    tiles = _rows(settings, "tile_config_data")
    texts = [tile[key] for tile in tiles if isinstance(tile.get(key), str)]
    if not texts:
        raise Unreadable(f"xpu-smi does not tell {key} of this card")
    return sum(len([part for part in text.split(",") if part.strip()]) for text in texts)


def text(answer: Mapping[str, Any], key: str) -> str:
    """A text of an answer; raises Unreadable where it is missing or is "unknown"."""
    value = answer.get(key)
    if not isinstance(value, str):
        raise Unreadable(f"xpu-smi does not tell {key}")
    return firmware(value)


def whole(answer: Mapping[str, Any], key: str) -> int:
    """An integer of an answer; the tool writes some of them as text, and some with a point."""
    value = answer.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Unreadable(f"xpu-smi does not tell {key}")
    if isinstance(value, float):
        if not value.is_integer():
            raise Unreadable(f"xpu-smi says {value} for {key}, which is no integer")
        return int(value)
    return number(str(value), f"xpu-smi's {key}")


def rate(answer: Mapping[str, Any], key: str) -> float:
    """A number with a fraction, as text or not."""
    try:
        return float(answer[key])
    except (KeyError, TypeError, ValueError):
        raise Unreadable(f"xpu-smi does not tell {key}") from None


def _parsed(printed: str, arguments: Sequence[str]) -> Mapping[str, Any]:
    command = " ".join((PROGRAM, *arguments))
    try:
        answer = json.loads(printed)
    except ValueError:
        raise Unreadable(f"{command} did not answer in JSON") from None
    if not isinstance(answer, dict):
        raise Unreadable(f"{command} did not answer with an object")
    if "error" in answer:
        raise Unreadable(f"{command} says: {str(answer['error'])[:120]}")
    return answer


def _rows(answer: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    rows = answer.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _address(value: object) -> str:
    try:
        return address(str(value))
    except Unreadable:
        return ""
