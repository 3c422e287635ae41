"""Processors that this process may use, and torch's threads on all of them for a while."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from appliance.linux.cgroup import cpu_quota
from appliance.linux.sysfs import Tree, Unreadable


def usable_processors() -> int:
    """Those of the affinity, within the quota of the control group."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota = cpu_quota(Tree())
    except Unreadable:
        quota = None
    return max(1, min(allowed, allowed if quota is None else math.ceil(quota)))


@contextmanager
def on_threads(number: int) -> Iterator[None]:
    """While it is entered, an operator on the host runs on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
