"""AMD's devices through its Python library, which is the preferred source.

One call of amdsmi_get_gpu_metrics_info has most readings (amdsmi.h, amdsmi_gpu_metrics_t: clocks
in MHz, power in W, temperatures in Celsius, rates of PCIe in 0.1 GT/s), so that a device is asked
little while it is timed. Functions and keys are those of amdsmi 7.0.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from appliance.linux.sysfs import Unreadable, or_none
from appliance.vendors.amd import values
from appliance.vendors.amd.amdsmi_calls import NO_ANSWER, Calls, Refused
from appliance.vendors.amd.amdsmi_facts import connection, link_states, unit
from appliance.vendors.amd.throttles import CYCLES, Residency, by_cause, by_mask
from appliance.vendors.amd.values import Once, Readers, Unit, count, number

Answer = Callable[[], Mapping[str, Any]]
RESERVED = 0
"""AMDSMI_MEM_PAGE_STATUS_RESERVED, the state of a page that is retired."""
FIRST_READING = "it is counted from one reading to the next: read again"


class Library:
    """Source that asks the library; `module` is amdsmi, initialised, or recorded answers."""

    name = "amdsmi"

    def __init__(self, module: Any) -> None:
        self._calls = Calls(module)
        self._residency = Residency()

    def units(self) -> tuple[Unit, ...]:
        """Devices that the library lists."""
        handles = self._calls.handles()
        return tuple(unit(self._calls, address, handle) for address, handle in handles.items())

    def connection(self, address: str, other: str) -> str:
        """XGMI between two devices."""
        ends = (self._calls.handle(address), self._calls.handle(other))
        return connection(self._calls, *ends)

    def readings(self, address: str) -> Readers:
        """Readings of one moment."""
        metrics = self._metrics(address)
        handle = Once(lambda: self._calls.handle(address))
        basic: Readers = {
            "graphics_clock_hertz": lambda: _slowest(metrics()),
            "memory_clock_hertz": lambda: values.megahertz(metrics().get("current_uclk")),
            "power_watts": lambda: values.first(
                number, metrics(), "current_socket_power", "average_socket_power"
            ),
            "energy_joules": lambda: self._energy(handle()),
            "temperature_celsius": lambda: values.first(
                values.celsius, metrics(), "temperature_edge", "temperature_hotspot"
            ),
            "hotspot_temperature_celsius": lambda: values.celsius(
                metrics().get("temperature_hotspot")
            ),
            "memory_temperature_celsius": lambda: _hottest_memory(metrics()),
            "utilisation_fraction": lambda: values.share(metrics().get("average_gfx_activity")),
            "memory_utilisation_fraction": lambda: values.share(
                metrics().get("average_umc_activity")
            ),
            "memory_used_bytes": lambda: self._used_memory(handle()),
            "fan_fraction": lambda: self._fan(handle()),
            "pcie_generation": lambda: values.generation(
                values.scaled(metrics().get("pcie_link_speed"), 0.1)
            ),
            "pcie_width": lambda: values.lanes(metrics().get("pcie_link_width")),
        }
        return {**basic, **self._throttles(address, metrics)}

    def counters(self, address: str) -> Readers:
        """Counts of errors. Blocks other than the memory's are what the total has beyond it."""
        handle = Once(lambda: self._calls.handle(address))
        total = Once(lambda: self._calls.ask("amdsmi_get_gpu_total_ecc_count", handle()))
        memory = Once(lambda: self._block(handle(), "UMC"))
        pages = Once(lambda: self._pages(handle()))
        metrics = self._metrics(address)
        return {
            "ecc_corrected": lambda: self._of_memory(memory, total, "correctable_count"),
            "ecc_uncorrected": lambda: self._of_memory(memory, total, "uncorrectable_count"),
            "ecc_deferred": lambda: count(self._calls.picked(total(), "deferred_count")),
            "ras_corrected": lambda: self._beyond(memory(), total(), "correctable_count"),
            "ras_uncorrected": lambda: self._beyond(memory(), total(), "uncorrectable_count"),
            "pages_retired_uncorrected": lambda: pages()[0],
            "pages_pending": lambda: pages()[1],
            "pcie_replays": lambda: count(metrics().get("pcie_replay_count_acc")),
            "pcie_naks": lambda: values.total(
                metrics(), "pcie_nak_sent_count_acc", "pcie_nak_rcvd_count_acc"
            ),
            "link_errors": lambda: values.total(
                self._block(handle(), "XGMI_WAFL"), "correctable_count", "uncorrectable_count"
            ),
            "links_down": lambda: link_states(self._calls, handle())["D"],
        }

    def answers(self, address: str) -> bool | None:
        """Whether any of the plainest questions is answered."""
        statuses: set[int | None] = set()
        for name in ("gpu_metrics_info", "power_info", "gpu_vram_usage"):
            try:
                self._calls.ask(f"amdsmi_get_{name}", self._calls.handle(address))
            except Refused as refused:
                statuses.add(refused.status)
            except Unreadable:
                statuses.add(None)
            else:
                return True
        return False if statuses <= NO_ANSWER else None

    def _metrics(self, address: str) -> Answer:
        return Once(
            lambda: self._calls.ask("amdsmi_get_gpu_metrics_info", self._calls.handle(address))
        )

    def _throttles(self, address: str, metrics: Answer) -> Readers:
        throttling = Once(lambda: self._throttling(address, metrics()))

        def read(name: str) -> Callable[[], float | None]:
            return lambda: throttling()[name]

        return {name: read(name) for name in by_cause({})}

    def _throttling(self, address: str, metrics: Mapping[str, Any]) -> dict[str, float | None]:
        """By counts where the device has them (MI300 and later), else by its mask."""
        if count(metrics.get(CYCLES)) is None:
            return by_mask(metrics.get("indep_throttle_status"))
        active = self._residency.active(address, metrics)
        if not active:
            raise Unreadable(FIRST_READING)
        return by_cause(active)

    def _used_memory(self, handle: Any) -> float | None:
        kind = self._calls.member("AmdSmiMemoryType", "VRAM")
        return count(self._calls.ask("amdsmi_get_gpu_memory_usage", handle, kind))

    def _energy(self, handle: Any) -> float | None:
        """The accumulator counts steps of `counter_resolution` microjoules; 0 is no counter."""
        answer = self._calls.ask("amdsmi_get_energy_count", handle)
        steps = count(self._calls.picked(answer, "energy_accumulator"))
        step = number(self._calls.picked(answer, "counter_resolution"))
        return steps * step / 1e6 if steps and step else None

    def _fan(self, handle: Any) -> float | None:
        speed = number(self._calls.ask("amdsmi_get_gpu_fan_speed", handle, 0))
        most = number(self._calls.ask("amdsmi_get_gpu_fan_speed_max", handle, 0))
        return speed / most if speed is not None and most else None

    def _block(self, handle: Any, name: str) -> Mapping[str, Any]:
        """Error counts of one block. The file xgmi_error is left alone: reading it clears it."""
        kind = self._calls.member("AmdSmiGpuBlock", name)
        answer: Mapping[str, Any] = self._calls.ask("amdsmi_get_gpu_ecc_count", handle, kind)
        return answer

    def _of_memory(self, memory: Answer, total: Answer, key: str) -> int | None:
        """Errors of the memory; of all blocks where the memory is not counted separately."""
        memory_errors = or_none(lambda: count(self._calls.picked(memory(), key)))
        return (
            memory_errors if memory_errors is not None else count(self._calls.picked(total(), key))
        )

    def _beyond(self, memory: Mapping[str, Any], total: Mapping[str, Any], key: str) -> int | None:
        all_blocks, memory_errors = (
            count(self._calls.picked(answer, key)) for answer in (total, memory)
        )
        return (
            None
            if all_blocks is None or memory_errors is None
            else max(0, all_blocks - memory_errors)
        )

    def _pages(self, handle: Any) -> tuple[int, int]:
        """Pages that are retired, and those that are not yet, or cannot be."""
        pages = self._calls.ask("amdsmi_get_gpu_bad_page_info", handle)
        states = [self._calls.picked(page, "status") for page in pages]
        num_retired = sum(state == RESERVED for state in states)
        return num_retired, len(states) - num_retired


def _slowest(metrics: Mapping[str, Any]) -> float | None:
    """Clock of the slowest die: a product waits for the last of them."""
    clocks = metrics.get("current_gfxclks")
    frequencies = [values.megahertz(clock) for clock in clocks] if isinstance(clocks, list) else []
    reported = [clock for clock in frequencies if clock is not None]
    return min(reported) if reported else values.megahertz(metrics.get("current_gfxclk"))


def _hottest_memory(metrics: Mapping[str, Any]) -> float | None:
    """The memory's temperature; MI200 and earlier may report one of each stack instead."""
    stacks = metrics.get("temperature_hbm")
    temperatures = [values.celsius(stack) for stack in stacks] if isinstance(stacks, list) else []
    reported = [stack for stack in temperatures if stack is not None]
    return values.celsius(metrics.get("temperature_mem")) or max(reported, default=None)
