"""The facts of a device from AMD's command line tool.

Keys are those of `amd-smi static`, `metric`, `firmware`, `version`, `partition` and `xgmi`
(https://github.com/ROCm/rocm-systems, projects/amdsmi/amdsmi_cli/subcommands). The limits of
power have been in `limit` itself up to release 7.1 and are in `limit.ppt0` since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from appliance.linux.sysfs import Unreadable, or_none
from appliance.vendors.amd import values
from appliance.vendors.amd.values import Queries, Query, Unit, count, needed, text

Ask = Callable[[], Mapping[str, Any]]
"""The entry of this device in what one command answers; raises Unreadable."""


WITHHELD = ": the device has none, or this user may not read it (run as root)"
"""The tool does not say which."""


def unit(
    address: str,
    listed: Mapping[str, Any],
    *,
    static: Ask,
    metric: Ask,
    firmware: Ask,
    version: Ask,
    partition: Ask,
    xgmi: Ask,
    states: Ask,
) -> Unit:
    """One device of the tool; each command is run when the first fact of it is read."""
    name = _query("static", static, "asic", "market_name")
    board = _query("static", static, "board", "product_name")
    serial = _query("static", static, "board", "product_serial")
    return Unit(
        address=address,
        order=count(listed.get("hip_id")),
        model=values.either(name, board),
        serial=values.either(serial, _query("static", static, "asic", "asic_serial")),
        queries={
            "product": values.either(board, name),
            **_identity(listed, static, firmware, version),
            **_memory(static, metric),
            **_limits(static, metric),
            **_parts(static, partition),
            **_links(xgmi, states),
        },
    )


def section(entry: Any, *keys: str) -> Any:
    """A value inside sections. Raises Unreadable if a section is not there, or is "N/A"."""
    current = entry
    for key in keys:
        if not isinstance(current, Mapping) or key not in current:
            raise Unreadable(f"amd-smi does not tell {'.'.join(keys)}{WITHHELD}")
        current = current[key]
    if current == values.NO_VALUE:
        raise Unreadable(f"amd-smi has no value of {'.'.join(keys)}{WITHHELD}")
    return current


def _query(
    command: str, ask: Ask, *keys: str, make: Callable[[Any], Any] = text, unit: str = ""
) -> Query:
    def read() -> Any:
        return needed(make(section(ask(), *keys)))

    return Query(read, f"amd-smi {command}: {'.'.join(keys)}", unit)


def _identity(listed: Mapping[str, Any], static: Ask, firmware: Ask, version: Ask) -> Queries:
    def answer() -> Mapping[str, Any]:
        return listed

    def image(key: str) -> Query:
        part = _query("static", static, key, "part_number")
        return values.both(part, _query("static", static, key, "version"))

    return {
        "uuid": values.either(_query("list", answer, "hip_uuid"), _query("list", answer, "uuid")),
        "board_part_number": _query("static", static, "board", "model_number"),
        "vbios": values.either(image("ifwi"), image("vbios")),
        "firmware": _query("firmware", firmware, "fw_list", make=_firmware),
        "driver": _query("static", static, "driver", "version"),
        "driver_api": _query("version", version, "rocm_version", make=_release),
        "architecture": _query("static", static, "asic", "target_graphics_version"),
        "compute_units": _query("static", static, "asic", "num_compute_units", make=count),
    }


def _memory(static: Ask, metric: Ask) -> Queries:
    total = _query("metric", metric, "mem_usage", "total_vram", make=_bytes, unit="bytes")
    size = _query("static", static, "vram", "size", make=_bytes, unit="bytes")
    return {
        "memory": values.either(total, size),
        "memory_type": _query("static", static, "vram", "type"),
        "ecc_mode": _query("static", static, "ras", make=_ecc_mode),
    }


def _limits(static: Ask, metric: Ask) -> Queries:
    def watts(new: str, old: str) -> Query:
        recent = _query("static", static, "limit", "ppt0", new, make=values.quantity, unit="watts")
        return values.either(
            recent, _query("static", static, "limit", old, make=values.quantity, unit="watts")
        )

    def clock(name: str) -> Query:
        return _query(
            "metric", metric, "clock", name, "max_clk", make=values.quantity, unit="hertz"
        )

    return {
        "power_limit": watts("socket_power_limit", "socket_power"),
        "power_limit_lowest": watts("min_power_limit", "min_power"),
        "power_limit_highest": watts("max_power_limit", "max_power"),
        "highest_graphics_clock": clock("gfx_0"),
        "highest_memory_clock": clock("mem_0"),
        "slowdown_temperature": _query(
            "static",
            static,
            "limit",
            "slowdown_hotspot_temperature",
            make=values.quantity,
            unit="celsius",
        ),
    }


def _parts(static: Ask, partition: Ask) -> Queries:
    def divided(answer: object) -> str:
        return values.division(text(answer))

    def query(recent: str, *old: str) -> Query:
        now = _query("partition", partition, recent, make=divided)
        return values.either(now, _query("static", static, "partition", *old, make=divided))

    return {
        "partition_mode": values.either(
            query("accelerator_type", "accelerator_partition"),
            _query("static", static, "partition", "compute_partition", make=divided),
        ),
        "memory_partition_mode": query("memory", "memory_partition"),
    }


def _links(xgmi: Ask, states: Ask) -> Queries:
    def query(read: Callable[[dict[str, int]], Any]) -> Query:
        return _query("xgmi", states, "link_status", make=lambda counts: read(values.links(counts)))

    return {
        "link_kind": query(lambda counts: "XGMI" if sum(counts.values()) else None),
        "num_links": query(
            lambda counts: counts["U"] + counts["D"] if sum(counts.values()) else None
        ),
        "num_links_up": query(lambda counts: counts["U"] if sum(counts.values()) else None),
        "link_bytes_per_second": _query(
            "xgmi",
            xgmi,
            "link_metrics",
            "max_bandwidth",
            make=values.quantity,
            unit="bytes per second",
        ),
    }


def _bytes(answer: object) -> int | None:
    size = values.quantity(answer)
    return int(size) if size else None


def _release(answer: object) -> str:
    return f"ROCm {text(answer)}"


def _firmware(answer: Any) -> str:
    return values.joined_firmware(
        (str(section(one, "fw_id")), str(section(one, "fw_version"))) for one in answer
    )


def _ecc_mode(answer: Any) -> str:
    """By the block of the memory's controller; another part of the node may count instead."""
    state = section(answer, "ecc_block_state", "UMC")
    if state == "DISABLED" and or_none(lambda: section(answer, "poison_schema")) == "ENABLED":
        raise Unreadable("the driver keeps no error counts of its memory; the host's firmware may")
    mode = {"ENABLED": "on", "DISABLED": "off"}.get(str(state))
    return needed(mode)
