"""The nodes of a fleet as the buyer lists them: TOML, CSV, a folder of orders, Slurm's own list.

Names become options of `sbatch` and names of folders, so they have one strict form, whoever wrote
them down.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from appliance.challenge.campaign import NODE_NAME
from appliance.errors import UsageError
from appliance.foreign_text import one_line
from appliance.records.json import Record
from appliance.storage import input_file, order_file, toml_file

MOST_NODES = 100_000
LONGEST_FIELD = 120
"""Characters of a rack or a serial."""
COLUMNS = ("name", "rack", "serial", "devices")
LISTED = ", and each node of a list apart (`scontrol show hostnames`)"
LARGEST = 32 * 2**20
"""Bytes of an inventory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryNode(Record):
    """A node: what Slurm calls it, where it stands, and what it should be, None for unknown."""

    name: str
    rack: str = ""
    serial: str | None = None
    devices: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory(Record):
    """inventory.toml: the nodes of a fleet."""

    schema: Literal["bench/inventory/1"] = "bench/inventory/1"
    node: tuple[InventoryNode, ...]


def read(path: Path) -> tuple[InventoryNode, ...]:
    """The nodes of an inventory, by their names; UsageError for one that is not plain."""
    data = input_file.read(path, what="inventory")
    name = str(path)
    nodes = _of_csv(data, name) if path.suffix == ".csv" else _of_toml(data, name)
    return checked(nodes, name)


def of_names(names: Iterable[str], source: str) -> tuple[InventoryNode, ...]:
    """Nodes of which nothing is known but their names, each once."""
    return checked([InventoryNode(name=name) for name in sorted(set(names))], source)


def orders(folder: Path) -> Mapping[str, bytes]:
    """The own order of each node in a folder of NODE.toml files, read strictly."""
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise UsageError(f"{folder} cannot be read ({error.strerror})") from None
    found: dict[str, bytes] = {}
    for path in paths:
        if path.suffix != ".toml":
            raise UsageError(f"{path} is no order: the folder holds NODE.toml files and no other")
        data = input_file.read(path, what="order", follow=False)
        order_file.read(data, str(path))
        found[path.stem] = data
    return found


def checked(nodes: Sequence[InventoryNode], source: str) -> tuple[InventoryNode, ...]:
    """The nodes by their names; UsageError for a name that is none, or that stands there twice."""
    if not 1 <= len(nodes) <= MOST_NODES:
        raise UsageError(f"{source} has {len(nodes)} nodes: a campaign has 1 to {MOST_NODES}")
    seen: dict[str, str] = {}
    for node in nodes:
        _check(node, source)
        host = node.name.lower()
        if host in seen:
            is_same = seen[host] == node.name
            twin = "" if is_same else f", as {seen[host]} too: names of hosts have no case"
            raise UsageError(f"{source}: the node {node.name} stands there twice{twin}; remove one")
        seen[host] = node.name
    _check_serials(nodes, source)
    return tuple(sorted(nodes, key=lambda node: node.name))


def _check(node: InventoryNode, source: str) -> None:
    if not NODE_NAME.fullmatch(node.name):
        raise UsageError(
            f"{source}: {_shown(node.name)} is no node's name: write letters, digits, dots and "
            "dashes, at most 63, with a letter or a digit first and last"
            f"{LISTED if '[' in node.name else ''}"
        )
    for what, text in (("rack", node.rack), ("serial", node.serial), *_devices(node)):
        if text is not None and (len(text) > LONGEST_FIELD or not text.isprintable()):
            raise UsageError(
                f"{source}: the {what} of {node.name} must be printable, and of at most "
                f"{LONGEST_FIELD} characters"
            )


def _devices(node: InventoryNode) -> Sequence[tuple[str, str]]:
    return [("device's serial", one) for one in node.devices or ()]


def _check_serials(nodes: Sequence[InventoryNode], source: str) -> None:
    """UsageError where two nodes should have one device, which one of them cannot."""
    owners: dict[str, str] = {}
    for node in nodes:
        for serial in node.devices or ():
            if serial in owners:
                raise UsageError(
                    f"{source}: the device {_shown(serial)} is in {owners[serial]} and in "
                    f"{node.name}: a device is in one node, once"
                )
            owners[serial] = node.name


def _of_toml(data: bytes, name: str) -> list[InventoryNode]:
    try:
        inventory = toml_file.parse(Inventory, data, name)
    except UsageError as error:
        raise UsageError(f"{error}; thousands of nodes go into a CSV file") from None
    return list(inventory.node)


def _of_csv(data: bytes, name: str) -> list[InventoryNode]:
    if len(data) > LARGEST:
        raise UsageError(f"{name} has more than {LARGEST // 2**20} MiB, which no inventory has")
    try:
        text = data.decode("utf-8-sig")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        columns = tuple(rows.fieldnames or ())
        if "name" not in columns or set(columns) - set(COLUMNS) or len(set(columns)) < len(columns):
            raise UsageError(
                f"{name} begins with the columns {_shown(', '.join(columns))}: write name, and of "
                "rack, serial, devices what is known"
            )
        return list(islice((_row(row, name, rows.line_num) for row in rows), MOST_NODES + 1))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{name} is not CSV in UTF-8: {error}") from None


def _row(row: Mapping[str | None, object], name: str, line: int) -> InventoryNode:
    values = {key: value for key, value in row.items() if isinstance(value, str)}
    if None in row or len(values) < len(row):
        raise UsageError(f"{name}, line {line}: it has more or fewer cells than columns")
    serial, devices = values.get("serial") or None, values.get("devices") or None
    return InventoryNode(
        name=values["name"],
        rack=values.get("rack", ""),
        serial=serial,
        devices=None if devices is None else tuple(devices.split()),
    )


def _shown(text: str) -> str:
    return f'"{one_line(text)[:LONGEST_FIELD]}"'
