"""Whether devices of one vendor reach each other at the rate of the links between them.

Links can read active while nothing goes over them: the service that sets up the switches has not
finished, or peer access is dead and every copy goes by way of the host. So this is ruled from three
things together, all of them in the bundle: the state of the switches and the way from each device
to each other that the vendor's library reports (`fabric`, `connection_to_N` of system.json), and
the rate of the copies from each to each other that the run has timed (workload device_copy_pair).

Where the library names links between two, copies must be faster than the way over the host could
be: faster than PCIe carries in the device's generation and lanes. Links that carry little more than
that (one link of some parts) are held to half of what they carry instead, whichever is less; for a
copy may use one engine that fills one link of several, and a healthy device is not to be rejected
for it. Where the way is over the host, a copy that was made and was right is enough; its rate is
reported. Copies that are slow beside others who use the devices say nothing of the links.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from appliance.evidence.case_results import log_seconds
from appliance.evidence.launches import CaseEvidence
from appliance.judging.functional import RulingDraft, inconclusive
from appliance.judging.limits import RulingInputs
from appliance.judging.performance import undisturbed
from appliance.linux.fact_reader import value_of
from appliance.records.criteria import Criterion
from appliance.records.system import Device
from appliance.records.vocabulary import CONNECTION

COPIES = "device_copy_pair"
LEAST_SHARE = 0.5
LANE_BYTES_PER_SECOND = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""What a lane carries in one direction, by generation (PCI Express Base Specification 6.0: 2.5 to
64 GT/s, less the line code)."""
HOST = "cpu"
"""The vendor whose devices are processors, which nothing joins."""
READY = ("none", "completed")
"""States of switches that keep nothing from working: there are none, or they are set up."""
FAILED = "error"
LINKS = re.compile(r" x(\d+)$")
MOST_NAMED = 4

Rates = Mapping[tuple[str, str], float]
"""Bytes per second of the fastest launch, by the device copied from and the one copied to."""


def ruling(
    criterion: Criterion, cases: Sequence[CaseEvidence], inputs: RulingInputs
) -> RulingDraft:
    """One ruling over all devices of which a vendor has two or more."""
    groups = list(_groups(inputs.system.identity.devices))
    if not groups:
        return RulingDraft(
            ruling="not_applicable",
            reason="absent",
            explanation="no two accelerators of one vendor are here, so there is no way between",
            action="Nothing: it applies to two devices or more.",
        )
    rates = _rates(cases)
    broken = [fault for group in groups for fault in _broken(group)]
    slow = [fault for group in groups for fault in _slow(group, rates)]
    if broken:
        return _failed(criterion, [*broken, *slow])
    if slow:
        copies = [one for one in cases if one.case.workload == COPIES]
        return undisturbed(_failed(criterion, slow), copies, inputs)
    unready = [state for group in groups for state in _unready(group)]
    if unready:
        action = "Wait until the service that sets up the switches is done, and run again."
        return inconclusive("fabric", _some(unready), action)
    gaps = [gap for group in groups for gap in _gaps(group, rates)]
    return _unseen(criterion, gaps) if gaps else RulingDraft(ruling="pass")


def _failed(criterion: Criterion, faults: Sequence[str]) -> RulingDraft:
    return RulingDraft(
        ruling="fail",
        reason="fabric",
        explanation=f"{criterion.title}: {_some(faults)}",
        action="Look at the links, the switches and the service that sets them up, at peer "
        "access and at the host's IOMMU, and run again.",
    )


def _unseen(criterion: Criterion, gaps: Sequence[str]) -> RulingDraft:
    is_meant = criterion.if_not_observed == "not_applicable"
    if is_meant:
        return RulingDraft(
            ruling="not_applicable",
            reason="not_observed",
            explanation=_some(gaps),
            action="Run suite node to have it judged; the criteria do not insist on it.",
        )
    return inconclusive(
        "not_observed", _some(gaps), "Run a suite that copies between all devices, like node."
    )


def _groups(devices: Sequence[Device]) -> Iterator[list[Device]]:
    for vendor in dict.fromkeys(device.vendor for device in devices):
        group = [device for device in devices if device.vendor == vendor]
        if vendor != HOST and len(group) > 1:
            yield group


def _rates(cases: Sequence[CaseEvidence]) -> Rates:
    rates: dict[tuple[str, str], float] = {}
    for evidence in cases:
        times = [value for value in log_seconds(evidence) if math.isfinite(value)]
        if evidence.case.workload == COPIES and len(evidence.case.all_devices) > 1 and times:
            first, second = evidence.case.all_devices[:2]
            rate = evidence.case.work.units / math.exp(min(times))
            rates[first, second] = max(rate, rates.get((first, second), 0.0))
    return rates


def _broken(group: Sequence[Device]) -> Iterator[str]:
    for device in group:
        state = value_of(device.facts, "fabric")
        if isinstance(state, str) and FAILED in state:
            yield f"the switches of {device.id} are {state}"


def _slow(group: Sequence[Device], rates: Rates) -> Iterator[str]:
    for one, other in permutations(group, 2):
        rate, least = rates.get((one.id, other.id)), _least(one, other)
        if rate is not None and least is not None and rate < least:
            yield (
                f"copies from {one.id} to {other.id} move {rate / 1e9:.4g} GB/s, which is not over "
                f"{_way(one, other)}: at least {least / 1e9:.4g} GB/s are required"
            )


def _unready(group: Sequence[Device]) -> Iterator[str]:
    for device in group:
        state = value_of(device.facts, "fabric")
        if isinstance(state, str) and state not in READY:
            yield f"the switches of {device.id} are not ready ({state})"


def _gaps(group: Sequence[Device], rates: Rates) -> Iterator[str]:
    for one, other in permutations(group, 2):
        way = _way(one, other)
        if not isinstance(way, str):
            yield f"how {one.id} is joined to {other.id} is not reported"
        elif LINKS.search(way) and _least(one, other) is None:
            yield f"what links and PCIe of {one.id} carry is not reported"
        elif (one.id, other.id) not in rates:
            yield f"no copy from {one.id} to {other.id} was timed"


def _way(one: Device, other: Device) -> object:
    return value_of(one.facts, f"{CONNECTION}{other.index}")


def _least(one: Device, other: Device) -> float | None:
    """Bytes per second that copies over the links between them exceed; None if it is not known."""
    links = LINKS.search(str(_way(one, other)))
    rate, lanes, generation = (
        _number(one, name)
        for name in ("link_bytes_per_second", "pcie_width_highest", "pcie_generation_highest")
    )
    if links is None or rate is None or lanes is None or generation is None:
        return None
    lane = LANE_BYTES_PER_SECOND.get(int(generation))
    return None if lane is None else min(LEAST_SHARE * int(links[1]) * rate, lanes * lane)


def _number(device: Device, name: str) -> float | None:
    value = value_of(device.facts, name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _some(sentences: Sequence[str]) -> str:
    rest = len(sentences) - MOST_NAMED
    return "; ".join(sentences[:MOST_NAMED]) + (f"; and {rest} more" if rest > 0 else "")
