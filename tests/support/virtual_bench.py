"""`bench` on a virtual node: several of them share a machine, and each has a device of its own.

The node is the one that Slurm's daemon names (SLURMD_NODENAME). Its processors get the serial that
the file VIRTUAL_SERIALS/NODE holds, else the node's name, and its system the node's name. All the
rest is the program as it is, so what it leaves verifies as any other run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from appliance.cli import main  # noqa: E402 - after the path
from appliance.linux.sysfs import Tree  # noqa: E402 - the same
from appliance.probe import host  # noqa: E402 - the same
from appliance.records.system import Device, Fact, Facts  # noqa: E402 - the same
from appliance.vendors import cpu  # noqa: E402 - the same

NODE, SERIALS = "SLURMD_NODENAME", "VIRTUAL_SERIALS"
_probe, _facts = cpu.Cpu.probe, host.host_facts


def name() -> str:
    return os.environ.get(NODE, "no-node")


def serial() -> str:
    """The serial of this node's device."""
    file = Path(os.environ.get(SERIALS, "/nonexistent")) / name()
    return file.read_text().strip() if file.exists() else name()


def _of_this_node(vendor: cpu.Cpu) -> tuple[Device, ...]:
    return tuple(replace(device, serial=serial()) for device in _probe(vendor))


def _system_of_this_node(tree: Tree, environment: Mapping[str, str]) -> Facts:
    """Two systems with one serial would be one: where the machine's can be read, all have it."""
    return {**_facts(tree, environment), "system_serial": Fact(value=name(), source=NODE)}


if __name__ == "__main__":
    host.host_facts = _system_of_this_node
    cpu.Cpu.probe = _of_this_node  # type: ignore[method-assign]
    sys.argv[0] = "bench"
    main.main()
