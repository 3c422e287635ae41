"""`bench` on a virtual node: several of them share a machine, and each has a device of its own.

The node is the one that Slurm's daemon names (SLURMD_NODENAME). Its processors get the serial that
the file VIRTUAL_SERIALS/NODE holds, else the node's name. All the rest is the program as it is, so
what it leaves verifies as any other run.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from appliance.cli import main  # noqa: E402 - after the path
from appliance.records.system import Device  # noqa: E402 - the same
from appliance.vendors import cpu  # noqa: E402 - the same

NODE, SERIALS = "SLURMD_NODENAME", "VIRTUAL_SERIALS"
_probe = cpu.Cpu.probe


def serial() -> str:
    """The serial of this node's device."""
    node = os.environ.get(NODE, "no-node")
    file = Path(os.environ.get(SERIALS, "/nonexistent")) / node
    return file.read_text().strip() if file.exists() else node


def _of_this_node(vendor: cpu.Cpu) -> tuple[Device, ...]:
    return tuple(replace(device, serial=serial()) for device in _probe(vendor))


if __name__ == "__main__":
    cpu.Cpu.probe = _of_this_node  # type: ignore[method-assign]
    sys.argv[0] = "bench"
    main.main()
