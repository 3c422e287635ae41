"""Which cases of a suite go on which devices of a node, and which it is too small for.

A function of the suite, the devices and the seed alone, so that whoever verifies a plan can
derive again what it must hold. A case of scope "job" is placed once on all devices of a vendor,
one of scope "pair" on every two of them, once each way, any other once on each device. What a node
lacks of devices, nodes or memory is said in one sentence and never passed over in silence.
Parameters by memory come from the suite's table: the largest class that the device has is taken, so
that what ran always has a name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from appliance.planning.criterion_scope import VARIANT
from appliance.planning.seeds import derive_seed
from appliance.records.plan import NotPlanned
from appliance.records.request import CaseRequest
from appliance.records.suite import MemoryClass, Suite, SuiteCase
from appliance.records.system import Device

GIB = 2**30
LEAST_SHARE = 0.93
"""Of a class's memory a device must report so much.

Error correction on GDDR memory takes a sixteenth of it, and firmware keeps some more; the nearest
two classes are 15 % apart.
"""
TO = "+"
"""Stands between the two devices of a pair: from the first to the second."""
PAIR = 2
NUM_NODES = 1
"""One container sees one node."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A case of the suite with its device, or with all devices of its job, or the two of a pair.

    `draw` is the number that draws a variant of its workload; None for the case itself.
    """

    item: SuiteCase
    devices: tuple[Device, ...]
    memory: MemoryClass | None
    draw: int | None = None

    @property
    def place(self) -> str:
        """What stands behind the "@" of the case's id."""
        first = self.devices[0]
        if self.item.scope == "pair":
            return TO.join(device.id for device in self.devices)
        return first.id if len(self.devices) == 1 else f"{first.vendor}:all"

    def case_id(self, variant: str) -> str:
        """The case's id, with the name of the variant that was drawn; that is empty without one."""
        change = f"{VARIANT}{re.sub(r'[^A-Za-z0-9_.]+', '-', variant)}" if variant else ""
        return f"{self.item.id}{change}@{self.place}"

    @property
    def num_ranks(self) -> int:
        """Ranks of a job with one on each accelerator; 0 where the case's parameters say it."""
        is_shared = self.devices[0].vendor == "cpu"  # any number of ranks shares the processors
        return 0 if is_shared or self.item.scope != "job" else len(self.devices)

    @property
    def request(self) -> CaseRequest:
        """What the worker is asked to resolve."""
        table = self.memory.parameters if self.memory else {}
        return CaseRequest(
            workload=self.item.workload,
            small=self.item.small,
            parameters={**self.item.parameters, **table},
            num_devices=self.num_ranks,
            draw=self.draw,
        )


def place(
    suite: Suite, devices: Sequence[Device], seed: str
) -> tuple[tuple[Placed, ...], tuple[NotPlanned, ...]]:
    """The suite's cases where they go, in its order, then the variants; and what has no place."""
    placed: list[Placed] = []
    lacking: list[NotPlanned] = []
    for item in suite.case:
        for together in _sites(item, devices):
            reason = _too_few(item, devices, together)
            if reason:
                lacking.append(NotPlanned(case=item.id, device="", reason=reason))
                break
            memory_class = _by_memory(item, together)
            if isinstance(memory_class, NotPlanned):
                lacking.append(memory_class)
            else:
                placed.append(Placed(item=item, devices=together, memory=memory_class))
    return (*placed, *_varied(suite, placed, seed)), tuple(lacking)


def requests(placed: Sequence[Placed]) -> tuple[CaseRequest, ...]:
    """What the worker is asked, once for all devices that want the same."""
    return tuple(item.request for item in distinct(placed).values())


def distinct(placed: Sequence[Placed]) -> dict[tuple[object, ...], Placed]:
    """The first of those that ask the same of the worker, in their order, by `key`."""
    by_key: dict[tuple[object, ...], Placed] = {}
    for item in placed:
        by_key.setdefault(key(item), item)
    return by_key


def key(placed: Placed) -> tuple[object, ...]:
    """What is the same for cases that ask the same of the worker."""
    gib = placed.memory.gib if placed.memory else None
    return placed.item.id, placed.draw, gib, placed.num_ranks


def _sites(item: SuiteCase, devices: Sequence[Device]) -> list[tuple[Device, ...]]:
    if item.scope not in ("job", "pair"):
        return [(device,) for device in devices]
    vendors = dict.fromkeys(device.vendor for device in devices)
    alike = [tuple(device for device in devices if device.vendor == name) for name in vendors]
    if item.scope == "job":
        return alike
    return [pair for one in alike for pair in permutations(one, PAIR)] or alike[:1]


def _too_few(item: SuiteCase, devices: Sequence[Device], together: Sequence[Device]) -> str:
    """What the case needs and the node has not, or nothing."""
    if item.num_nodes > NUM_NODES:
        return f"it needs {item.num_nodes} nodes, and this run is of one"
    there = sum(device.vendor == together[0].vendor for device in devices)
    needed = max(item.num_devices, PAIR) if item.scope == "pair" else item.num_devices
    if needed > there and not _are_processes(item, together):
        return f"it needs {needed} devices, and this node has {there}"
    return ""


def _are_processes(item: SuiteCase, together: Sequence[Device]) -> bool:
    """Whether its ranks are processes that share the processors, as many as it says itself."""
    ranks = item.parameters.get("ranks", 0)
    has_enough = isinstance(ranks, int) and ranks >= item.num_devices
    return item.scope == "job" and together[0].vendor == "cpu" and has_enough


def _by_memory(item: SuiteCase, devices: Sequence[Device]) -> MemoryClass | NotPlanned | None:
    """The class of the device with the least memory; None where the case has no table."""
    if not item.memory:
        return None
    for device in devices:
        if device.memory_bytes is None:
            reason = f"its parameters go by memory, and that of {device.id} is not reported"
            return NotPlanned(case=item.id, device=device.id, reason=reason)
    least = min(devices, key=lambda device: device.memory_bytes or 0)
    has = (least.memory_bytes or 0) / GIB
    fitting = [one for one in item.memory if has >= LEAST_SHARE * one.gib]
    if fitting:
        return max(fitting, key=lambda one: one.gib)
    needed = min(one.gib for one in item.memory)
    reason = f"it needs {needed} GiB of memory, and {least.id} has {has:.1f} GiB"
    return NotPlanned(case=item.id, device=least.id, reason=reason)


def _varied(suite: Suite, placed: Sequence[Placed], seed: str) -> list[Placed]:
    """One case of each workload a second time, drawn among those that may vary."""
    candidates: dict[str, list[str]] = {}
    for one in placed:
        is_wanted = suite.variants if one.item.variants is None else one.item.variants
        names = candidates.setdefault(one.item.workload, [])
        if is_wanted and one.item.id not in names:
            names.append(one.item.id)
    varied: list[Placed] = []
    for workload, names in candidates.items():
        if names:
            chosen = names[derive_seed(seed, f"varied case:{workload}") % len(names)]
            draw = derive_seed(seed, f"variant:{workload}")
            varied += [replace(one, draw=draw) for one in placed if one.item.id == chosen]
    return varied
