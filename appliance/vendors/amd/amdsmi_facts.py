"""The facts of a device from AMD's Python library.

Every function, key and unit is one of amdsmi 7.0.2 (amdsmi_interface.py; units in amdsmi.h,
https://rocm.docs.amd.com/projects/amdsmi).
"""

from __future__ import annotations

from typing import Any

from appliance.linux.sysfs import Unreadable, or_none
from appliance.vendors.amd import values
from appliance.vendors.amd.amdsmi_calls import XGMI, Calls
from appliance.vendors.amd.values import Queries, Query, Unit, count, needed, number, text

ASIC, BOARD = "amdsmi_get_gpu_asic_info", "amdsmi_get_gpu_board_info"
VRAM, CAPS = "amdsmi_get_gpu_vram_info", "amdsmi_get_power_cap_info"
COMPUTE, NUMA = "amdsmi_get_gpu_compute_partition", "amdsmi_get_gpu_memory_partition"
STATUS = "amdsmi_get_gpu_xgmi_link_status: status"
UMC = 1
"""AMDSMI_GPU_BLOCK_UMC, the controller of the device's memory."""
COUNTED_ELSEWHERE = "the driver keeps no error counts of its memory; the host's firmware may"
LIMITS = {
    "power_limit": "power_cap",
    "power_limit_default": "default_power_cap",
    "power_limit_lowest": "min_power_cap",
    "power_limit_highest": "max_power_cap",
}


def unit(calls: Calls, address: str, handle: Any) -> Unit:
    """One device of the library; each fact is queried when it is read."""
    name = calls.query(ASIC, "market_name", handle)
    board = calls.query(BOARD, "product_name", handle)
    serial = calls.query(BOARD, "product_serial", handle)
    order = calls.query("amdsmi_get_gpu_enumeration_info", "hip_id", handle, make=count)
    return Unit(
        address=address,
        order=count(or_none(order.read)),
        model=values.either(name, board),
        serial=values.either(serial, calls.query(ASIC, "asic_serial", handle)),
        queries={
            "product": values.either(board, name),
            **_identity(calls, handle),
            **_memory(calls, handle),
            **_limits(calls, handle),
            **_parts(calls, handle),
            **_links(calls, handle),
        },
    )


def _identity(calls: Calls, handle: Any) -> Queries:
    own = calls.query("amdsmi_get_gpu_enumeration_info", "hip_uuid", handle)
    other = "amdsmi_get_gpu_device_uuid"
    vbios = "amdsmi_get_gpu_vbios_info"
    return {
        "uuid": values.either(own, Query(lambda: text(calls.ask(other, handle)), other)),
        "board_part_number": calls.query(BOARD, "model_number", handle),
        "vbios": values.both(
            calls.query(vbios, "part_number", handle), calls.query(vbios, "version", handle)
        ),
        "firmware": Query(lambda: _firmware(calls, handle), "amdsmi_get_fw_info: fw_list"),
        "driver": calls.query("amdsmi_get_gpu_driver_info", "driver_version", handle),
        "driver_api": Query(lambda: _release(calls), "amdsmi_get_rocm_version"),
        "architecture": calls.query(ASIC, "target_graphics_version", handle),
        "compute_units": calls.query(ASIC, "num_compute_units", handle, make=count),
    }


def _memory(calls: Calls, handle: Any) -> Queries:
    def exact() -> int:
        kind = calls.member("AmdSmiMemoryType", "VRAM")
        return needed(count(calls.ask("amdsmi_get_gpu_memory_total", handle, kind)) or None)

    def kind(answer: object) -> str:
        number_of = needed(count(answer))
        return text(calls.member("AmdSmiVramType", number_of).name)

    rounded = calls.query(VRAM, "vram_size", handle, make=values.mebibytes, unit="bytes")
    return {
        "memory": values.either(Query(exact, "amdsmi_get_gpu_memory_total", "bytes"), rounded),
        "memory_type": calls.query(VRAM, "vram_type", handle, make=kind),
        "ecc_mode": Query(lambda: _ecc_mode(calls, handle), "amdsmi_get_gpu_ecc_enabled"),
    }


def _limits(calls: Calls, handle: Any) -> Queries:
    return {
        **{
            name: calls.query(
                CAPS,
                key,
                handle,
                make=values.watts if name == "power_limit_lowest" else values.cap,
                unit="watts",
            )
            for name, key in LIMITS.items()
        },
        "highest_graphics_clock": _clock(calls, handle, "GFX"),
        "highest_memory_clock": _clock(calls, handle, "MEM"),
        "slowdown_temperature": Query(
            lambda: _slowdown(calls, handle), "amdsmi_get_temp_metric: HOTSPOT, CRITICAL", "celsius"
        ),
    }


def _clock(calls: Calls, handle: Any, name: str) -> Query:
    function = "amdsmi_get_clock_info"

    def read() -> float:
        answer = calls.ask(function, handle, calls.member("AmdSmiClkType", name))
        return needed(values.megahertz(calls.picked(answer, "max_clk")))

    return Query(read, f"{function}: {name}, max_clk", "hertz")


def _parts(calls: Calls, handle: Any) -> Queries:
    return {
        "partition_mode": Query(lambda: values.division(text(calls.ask(COMPUTE, handle))), COMPUTE),
        "memory_partition_mode": Query(
            lambda: values.division(text(calls.ask(NUMA, handle))), NUMA
        ),
    }


def _links(calls: Calls, handle: Any) -> Queries:
    def read(letters: str) -> int:
        states = link_states(calls, handle)
        return sum(states[letter] for letter in letters)

    return {
        "link_kind": Query(lambda: "XGMI" if read("UDX") else "none", STATUS),
        "num_links": Query(lambda: read("UD"), STATUS),
        "num_links_up": Query(lambda: read("U"), STATUS),
        "link_bytes_per_second": Query(
            lambda: _link_rate(calls, handle),
            "amdsmi_get_link_metrics: max_bandwidth",
            "bytes per second",
        ),
    }


def link_states(calls: Calls, handle: Any) -> dict[str, int]:
    """Links by state. Raises Unreadable."""
    answer = calls.ask("amdsmi_get_gpu_xgmi_link_status", handle)
    return values.links(calls.picked(answer, "status"))


def connection(calls: Calls, first: Any, second: Any) -> str:
    """The vendor's links between two devices. Raises Unreadable if there are none."""
    link = calls.ask("amdsmi_topo_get_link_type", first, second)
    if calls.picked(link, "type") != XGMI:
        raise Unreadable("no link of the vendor's joins them")
    function = "amdsmi_get_minmax_bandwidth_between_processors"
    rates = or_none(lambda: calls.ask(function, first, second)) or {}
    lowest, highest = number(rates.get("min_bandwidth")), number(rates.get("max_bandwidth"))
    return values.connected(number(calls.picked(link, "hops")), lowest, highest)


def _release(calls: Calls) -> str:
    answer = calls.ask("amdsmi_get_rocm_version")
    if not calls.picked(answer, 0):
        raise Unreadable("the library does not find the release of ROCm")
    return f"ROCm {text(calls.picked(answer, 1))}"


def _firmware(calls: Calls, handle: Any) -> str:
    entries = calls.picked(calls.ask("amdsmi_get_fw_info", handle), "fw_list")
    return values.joined_firmware(
        (calls.picked(one, "fw_name").name, calls.picked(one, "fw_version")) for one in entries
    )


def _ecc_mode(calls: Calls, handle: Any) -> str:
    if needed(count(calls.ask("amdsmi_get_gpu_ecc_enabled", handle))) & UMC:
        return "on"
    schema = or_none(lambda: calls.ask("amdsmi_get_gpu_ras_feature_info", handle)) or {}
    if schema.get("poison_schema"):
        raise Unreadable(COUNTED_ELSEWHERE)
    return "off"


def _slowdown(calls: Calls, handle: Any) -> float:
    sensor = calls.member("AmdSmiTemperatureType", "HOTSPOT")
    limit = calls.member("AmdSmiTemperatureMetric", "CRITICAL")
    return needed(values.celsius(calls.ask("amdsmi_get_temp_metric", handle, sensor, limit)))


def _link_rate(calls: Calls, handle: Any) -> float:
    """Bytes per second of the fastest link; the library counts Gb/s."""
    answer = calls.ask("amdsmi_get_link_metrics", handle)
    rates = [
        number(calls.picked(link, "max_bandwidth"))
        for link in calls.picked(answer, "links")
        if calls.picked(link, "link_type") == XGMI
    ]
    fastest = max((rate for rate in rates if rate), default=None)
    return needed(fastest) * values.UNITS["Gb/s"]
