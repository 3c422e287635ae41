"""A copy of a launch's first output, for a workload whose steps write each where the last one lay.

Such an output is checked after the last block only if it is copied before the next step: each
tensor to memory of the same device or of the host, where there is room. The copy is there while
steps are timed, so it takes no more than a share of what is free; else the output is checked at
once, as it was made.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import psutil
import torch

from appliance.linux import cgroup
from appliance.linux.sysfs import Tree, Unreadable
from appliance.worker import outputs, torch_device

HOST = torch.device("cpu")
DEVICE_SHARE = 0.5
"""Part of the memory that a device has free after the first step, which had all that steps take."""
HOST_SHARE = 0.125
"""Part of the memory that this process may still take of its host, which other launches share."""


def kept(output: Any, memory_limit_bytes: int, tree: Tree | None = None) -> Any | None:
    """The output, copied; None where there is no room for it, or nobody knows.

    `memory_limit_bytes` is what this process may hold of its host. Raises TypeError for an output
    that holds something else than arrays and plain values.
    """
    if not _has_room(_sizes(output), memory_limit_bytes, tree or Tree()):
        return None
    try:
        return outputs.mapped(output, _copied)
    except Exception as error:
        if not torch_device.is_lack_of_memory(error):
            raise
        return None


def _copied(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else np.array(leaf)


def _sizes(output: Any) -> Mapping[torch.device, int]:
    """Bytes of the output by the device that holds them."""
    sizes: Counter[torch.device] = Counter()
    for leaf in outputs.arrays(output):
        sizes[leaf.device if isinstance(leaf, torch.Tensor) else HOST] += int(leaf.nbytes)
    return sizes


def _has_room(sizes: Mapping[torch.device, int], memory_limit_bytes: int, tree: Tree) -> bool:
    return all(
        size <= (_room_on_host(memory_limit_bytes, tree) if one == HOST else _room_on(one))
        for one, size in sizes.items()
    )


def _room_on(device: torch.device) -> float:
    try:
        free, _ = torch.accelerator.get_memory_info(device)
    except RuntimeError:  # a device that does not say
        return 0.0
    return DEVICE_SHARE * free


def _room_on_host(memory_limit_bytes: int, tree: Tree) -> float:
    try:
        left = cgroup.memory_left(tree)
    except Unreadable:
        return 0.0
    own = memory_limit_bytes - psutil.Process(os.getpid()).memory_info().rss
    free = int(psutil.virtual_memory().available)
    return HOST_SHARE * max(0, min(own, free, free if left is None else left))
