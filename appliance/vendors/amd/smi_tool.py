"""AMD's devices through its command line tool: `amd-smi COMMAND --json`.

It stands in where the tool is there and its Python library is not. The keys are those of the
tool's own source (https://github.com/ROCm/rocm-systems, projects/amdsmi/amdsmi_cli/subcommands;
of 6.4 and 7.0 https://github.com/ROCm/amdsmi, amdsmi_cli/amdsmi_commands.py), which marks it as
example code: keys have moved between releases, so each is looked for where it has been. Numbers
are pairs of "value" and "unit". A call starts a program of about a second, so readings are
taken at most every `PAUSE_SECONDS`; between, the last answer stands. Counters are queried anew.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from appliance.linux import pci
from appliance.linux.sysfs import Unreadable, or_none
from appliance.vendors.amd import values
from appliance.vendors.amd.smi_facts import section as at
from appliance.vendors.amd.smi_facts import unit
from appliance.vendors.amd.throttles import by_cause, by_mask
from appliance.vendors.amd.values import Once, Readers, Unit, count

Tool = Callable[[Sequence[str]], str]
"""Runs amd-smi with arguments and answers with its standard output; raises Unreadable."""
Entry = Mapping[str, Any]
COMMAND = "amd-smi"
NO_TOOL = "the command line tool amd-smi is not installed"
LIMIT_SECONDS = 60.0
PAUSE_SECONDS = 5.0
CAUSES = {
    "prochot": "prochot_violation_status",
    "ppt": "ppt_violation_status",
    "socket_thm": "socket_thermal_violation_status",
    "vr_thm": "vr_thermal_violation_status",
    "hbm_thm": "hbm_thermal_violation_status",
}
"""Keys of `metric`, section "throttle", by cause."""
NO_PAGES = "No bad pages found."


def run(arguments: Sequence[str]) -> str:
    """Standard output of the installed tool. Raises Unreadable if it is not there or fails."""
    program = shutil.which(COMMAND)
    if program is None:
        raise Unreadable(NO_TOOL)
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program, our own arguments
            [program, *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        raise Unreadable(f"`{COMMAND} {' '.join(arguments)}` fails: run it to see why") from None
    return done.stdout


def document(output: str) -> Any:
    """The JSON document in what the tool printed; it may print warnings before. Unreadable."""
    for begin in re.finditer(r"^[ \t]*(?=[\[{])", output, re.MULTILINE):
        try:
            return json.JSONDecoder().raw_decode(output, begin.end())[0]
        except ValueError:
            continue
    raise Unreadable(f"{COMMAND} printed no JSON")


def entries(answer: Any, *sections: str) -> tuple[Entry, ...]:
    """Entries of one device each: of the first section that is there, or of the whole list."""
    content = answer
    if isinstance(answer, Mapping):
        present = [answer[name] for name in (*sections, "gpu_data") if name in answer]
        content = present[0] if present else [answer]
    return tuple(_flat(content))


def _flat(content: Any) -> Iterator[Entry]:
    if isinstance(content, Mapping):
        yield content
    elif isinstance(content, list):
        for one in content:
            yield from _flat(one)


class Commands:
    """Answers of the tool by device; a device is identified by its number in `list`."""

    def __init__(self, tool: Tool, clock: Callable[[], float] = time.monotonic) -> None:
        self._tool = tool
        self._clock = clock
        self._numbers: dict[str, int] = {}
        self._metric: tuple[float, tuple[Entry, ...]] | None = None

    def ask(self, *arguments: str, sections: Sequence[str] = ()) -> tuple[Entry, ...]:
        return entries(document(self._tool([*arguments, "--json"])), *sections)

    def listed(self) -> tuple[Entry, ...]:
        """What `list` reports, with the numbers of programs where this release has them."""
        try:
            listing = self.ask("list", "-e")
        except Unreadable:
            listing = self.ask("list")
        self._numbers = {
            pci.address(str(one["bdf"])): number
            for one in listing
            if "bdf" in one and (number := count(one.get("gpu"))) is not None
        }
        return listing

    def metric(self, *, anew: bool) -> tuple[Entry, ...]:
        now = self._clock()
        if anew or self._metric is None or now - self._metric[0] >= PAUSE_SECONDS:
            self._metric = (now, self.ask("metric"))
        return self._metric[1]

    def of(self, address: str, listing: Sequence[Entry]) -> Entry:
        """The entry of one device, by its address or number. Raises Unreadable."""
        number = self.number(address)
        for one in listing:
            bdf = or_none(_address(one))
            if bdf == address or (
                bdf is None and count(one.get("gpu", one.get("gpu_id"))) == number
            ):
                return one
        raise Unreadable(f"{COMMAND} tells nothing of this device")

    def number(self, address: str) -> int:
        if not self._numbers:
            self.listed()
        if address not in self._numbers:
            raise Unreadable(f"{COMMAND} does not list this device")
        return self._numbers[address]


def _address(entry: Entry) -> Callable[[], str]:
    return lambda: pci.address(str(entry.get("bdf", "")))


class CommandLine:
    """Source that asks the tool."""

    name = COMMAND

    def __init__(self, tool: Tool = run, clock: Callable[[], float] = time.monotonic) -> None:
        self._commands = Commands(tool, clock)
        self._topology: Once[tuple[Entry, ...]] = Once(lambda: self._commands.ask("topology"))

    def units(self) -> tuple[Unit, ...]:
        """Devices that the tool lists; each command is run once for all of them."""
        commands = self._commands
        listing = commands.listed()
        static = Once(lambda: commands.ask("static"))
        metric = Once(lambda: commands.metric(anew=True))
        firmware = Once(lambda: commands.ask("firmware"))
        version = Once(lambda: commands.ask("version"))
        parts = Once(lambda: commands.ask("partition", sections=("current_partition",)))
        xgmi = Once(lambda: commands.ask("xgmi", sections=("xgmi_metric",)))
        states = Once(self._link_states)
        self._topology = Once(lambda: commands.ask("topology"))

        def one(entry: Entry) -> Unit:
            address = pci.address(str(entry.get("bdf", "")))
            return unit(
                address,
                entry,
                static=lambda: commands.of(address, static()),
                metric=lambda: commands.of(address, metric()),
                firmware=lambda: commands.of(address, firmware()),
                version=lambda: version()[0],
                partition=lambda: commands.of(address, parts()),
                xgmi=lambda: commands.of(address, xgmi()),
                states=lambda: commands.of(address, states()),
            )

        return tuple(one(entry) for entry in listing if or_none(_address(entry)) is not None)

    def connection(self, address: str, other: str) -> str:
        """XGMI between two devices: "bandwidth" is the lowest and the highest rate."""
        links = entries(self._commands.of(address, self._topology()).get("links", []))
        link = self._commands.of(other, links)
        if link.get("link_type") != "XGMI":
            raise Unreadable("no link of the vendor's joins them")
        slowest, _, fastest = str(link.get("bandwidth", "")).partition("-")
        return values.connected(
            values.number(link.get("num_hops")), values.number(slowest), values.number(fastest)
        )

    def readings(self, address: str) -> Readers:
        """Readings of one moment, at most `PAUSE_SECONDS` old."""
        entry = Once(lambda: self._commands.of(address, self._commands.metric(anew=False)))

        def value(*keys: str) -> Callable[[], Any]:
            return lambda: at(entry(), *keys)

        def inside(*keys: str) -> Callable[[], float | None]:
            return lambda: values.quantity(at(entry(), *keys))

        def warm(key: str) -> Callable[[], float | None]:
            return lambda: values.celsius(values.quantity(at(entry(), "temperature", key)))

        readings: Readers = {
            "graphics_clock_hertz": lambda: _slowest(entry()),
            "memory_clock_hertz": inside("clock", "mem_0", "clk"),
            "power_watts": inside("power", "socket_power"),
            "energy_joules": lambda: inside("energy", "total_energy_consumption")() or None,
            "temperature_celsius": lambda: or_none(warm("edge")) or warm("hotspot")(),
            "hotspot_temperature_celsius": warm("hotspot"),
            "memory_temperature_celsius": warm("mem"),
            "utilisation_fraction": inside("usage", "gfx_activity"),
            "memory_utilisation_fraction": inside("usage", "umc_activity"),
            "memory_used_bytes": inside("mem_usage", "used_vram"),
            "fan_fraction": inside("fan", "usage"),
            "pcie_generation": lambda: values.generation(inside("pcie", "speed")()),
            "pcie_width": lambda: values.lanes(value("pcie", "width")()),
        }
        throttles = Once(lambda: _throttling(entry()))

        def read(name: str) -> Callable[[], float | None]:
            return lambda: throttles()[name]

        return {**readings, **{name: read(name) for name in by_cause({})}}

    def counters(self, address: str) -> Readers:
        """Counts of errors; "cache_" is what other blocks than the memory's have."""
        entry = Once(lambda: self._commands.of(address, self._commands.metric(anew=True)))
        pages = Once(lambda: self._commands.of(address, self._commands.ask("bad-pages")))
        states = Once(lambda: self._commands.of(address, self._link_states()))

        def beyond(kind: str) -> Callable[[], int | None]:
            return lambda: count(at(entry(), "ecc", f"cache_{kind}_count"))

        def memory(kind: str) -> Callable[[], int | None]:
            return lambda: _of_memory(at(entry(), "ecc"), kind)

        return {
            "ecc_corrected": memory("correctable"),
            "ecc_uncorrected": memory("uncorrectable"),
            "ecc_deferred": lambda: count(at(entry(), "ecc", "total_deferred_count")),
            "ras_corrected": beyond("correctable"),
            "ras_uncorrected": beyond("uncorrectable"),
            "pages_retired_uncorrected": lambda: _pages(pages(), "retired"),
            "pages_pending": lambda: _pages(pages(), "pending", "un_res"),
            "pcie_replays": lambda: count(at(entry(), "pcie", "replay_count")),
            "pcie_naks": lambda: values.total(
                at(entry(), "pcie"), "nak_sent_count", "nak_received_count"
            ),
            "link_errors": lambda: values.total(
                at(entry(), "ecc_blocks", "XGMI_WAFL"), "correctable_count", "uncorrectable_count"
            ),
            "links_down": lambda: values.links(at(states(), "link_status"))["D"],
        }

    def answers(self, address: str) -> bool | None:
        """False if the tool does not list the device any more; None if it has no value of it."""
        try:
            self._commands.listed()
        except Unreadable:
            return None
        if or_none(lambda: self._commands.number(address)) is None:
            return False
        readers = (read for read in self.readings(address).values())
        return True if any(or_none(read) is not None for read in readers) else None

    def _link_states(self) -> tuple[Entry, ...]:
        return self._commands.ask("xgmi", sections=("link_port_status", "link_status"))


def _slowest(entry: Entry) -> float | None:
    """Clock of the slowest die: a product waits for the last of them."""
    clocks = at(entry, "clock")
    names = [name for name in clocks if name.startswith("gfx_")]
    frequencies = [values.quantity(or_none(_clock(clocks, name))) for name in names]
    return min((clock for clock in frequencies if clock is not None), default=None)


def _clock(clocks: Entry, name: str) -> Callable[[], Any]:
    return lambda: at(clocks, name, "clk")


def _throttling(entry: Entry) -> dict[str, float | None]:
    """By causes (MI300 and later), else whether anything at all held the device back."""
    section = or_none(lambda: at(entry, "throttle"))
    states = {cause: _is_active(or_none(_key(section, key))) for cause, key in CAUSES.items()}
    active = {cause: value for cause, value in states.items() if value is not None}
    if active:
        return by_cause(active)
    status = or_none(lambda: at(entry, "power", "throttle_status"))
    return by_mask({"THROTTLED": True, "UNTHROTTLED": False}.get(str(status)))


def _key(section: Any, key: str) -> Callable[[], Any]:
    return lambda: at(section, key)


def _is_active(answer: Any) -> bool | None:
    """Whether a cause is active, in any of the forms it has had; of several parts, in any."""
    if isinstance(answer, Mapping):
        parts = [answer["value"]] if "value" in answer else list(answer.values())
        return _is_active(parts)
    if isinstance(answer, list):
        known = [one for one in map(_is_active, answer) if one is not None]
        return any(known) if known else None
    words = {"ACTIVE": True, "NOT ACTIVE": False, "True": True, "False": False}
    return words.get(str(answer))


def _of_memory(section: Any, kind: str) -> int | None:
    """Errors of the memory; of all blocks where the others are not counted separately."""
    total = count(at(section, f"total_{kind}_count"))
    others = or_none(lambda: count(at(section, f"cache_{kind}_count")))
    return total if total is None or others is None else max(0, total - others)


def _pages(entry: Entry, *kinds: str) -> int | None:
    """Pages of some kinds: a list, a single one without its list, or the sentence for none."""
    answers = [at(entry, kind) for kind in kinds]
    numbers = [_number_of_pages(one) for one in answers]
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _number_of_pages(answer: Any) -> int | None:
    if isinstance(answer, list):
        return len(answer)
    return 1 if isinstance(answer, Mapping) else 0 if answer == NO_PAGES else None
