"""What may be compared with what: baselines with a case, and a case with the vendor's peaks.

A measured figure means something only for the same device model, workload, parameters, data,
launches, software and power limit; GPU libraries alone have moved one device's bfloat16 rate by
48 % between two releases. So the comparison is strict: what is not known on one side differs
from what is known on the other, and a baseline that differs in anything is no baseline. A peak
is an upper bound, never a target: where it is not known nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from appliance.records.baseline import Baseline, BaselineKey, Baselines, Peak, Peaks
from appliance.records.json import sha256, to_json
from appliance.records.plan import Case
from appliance.records.suite import Protocol
from appliance.records.system import Device, Fact, Facts, System
from appliance.records.verdict import Reason
from appliance.records.workload import Bound, Work
from appliance.storage.device_file import quantities

LIBRARIES = (
    "torch",
    "onnxruntime",
    "transformers",
    "numpy",
    "python",
    "torch_blas",
    "torch_onednn",
    "torch_cpu_capability",
)
"""Facts of the node's software that change speed; the others only read, check or plot."""
DEVICE_SOFTWARE = (
    "driver",
    "driver_version",
    "runtime",
    "runtime_version",
    "firmware",
    "firmware_version",
    "microcode",
    "governor",
    "boost",
    "usable_processors",
)
"""Facts of a device that change its speed and that an administrator may change."""
TOGETHER = "devices_together"
"""Under this name a key holds how many devices work at once: they share power, air and host."""
TIMING = "timing"
"""Under this name a key holds how a launch warms up and how long it is timed."""
IMAGE = "image_digest"
POWER_LIMITS = ("power_limit", "power_limit_watts")
SYSTEM_NAMES = ("system_uuid", "system_serial")
CORES = ("physical_cores", "usable_processors")


# ------------------------------------------------------------------ keys


def key_of(case: Case, protocol: Protocol, system: System) -> BaselineKey:
    """What must be the same for a figure of this case on this node to be comparable.

    The case is named without its device; the model is empty if the node has no such device.
    """
    device = _device(system, case.device)
    facts = {} if device is None else device.facts
    return BaselineKey(
        model="" if device is None else device.model,
        case=case.id if case.scope == "pair" else suite_id(case),  # links are not all alike
        workload=case.workload,
        version=case.version,
        parameters=case.parameters,
        data_pattern=case.data_pattern,
        mode=protocol.mode,
        software={
            **stated(LIBRARIES, system.identity.software),
            **stated(DEVICE_SOFTWARE, facts),
            **({} if device is None or case.alone else _together(device, system)),
            TIMING: _timing(protocol),
        },
        image=_text(system.identity.host.get(IMAGE)),
        power_limit_watts=_power_limit(facts),
    )


def suite_id(case: Case) -> str:
    """The case's name in its suite, which is the same for every device."""
    return case.id.partition("@")[0]


def _together(device: Device, system: System) -> Mapping[str, str]:
    count = sum(one.vendor == device.vendor for one in system.identity.devices)
    return {TOGETHER: str(count)}


def _timing(protocol: Protocol) -> str:
    return (
        f"{protocol.warmup_steps} steps and {protocol.warmup_seconds:g} s of warm-up, "
        f"{protocol.blocks} blocks of {protocol.block_steps} steps and {protocol.block_seconds:g} s"
    )


def _power_limit(facts: Facts) -> float | None:
    limits = (_number(facts.get(name)) for name in POWER_LIMITS)
    return next((limit for limit in limits if limit is not None), None)


def stated(names: Sequence[str], facts: Facts) -> Mapping[str, str]:
    """Those of the facts that have a value."""
    texts = {name: _text(facts.get(name)) for name in names}
    return {name: value for name, value in texts.items() if value is not None}


def _text(fact: Fact | None) -> str | None:
    if fact is None or fact.value is None:
        return None
    value = fact.value
    # JSON reads 2.0 as 2, and a key must be the same before and after.
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _number(fact: Fact | None) -> float | None:
    """The fact where it is a positive number."""
    value = None if fact is None else fact.value
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def mismatch(key: BaselineKey, other: BaselineKey) -> str:
    """One clause that names what differs first: "torch 2.12.0, this run has 2.13.0"; or ""."""
    differing = next(_differences(key, other), None)
    if differing is None:
        return ""
    name, first, second = differing
    return f"{name} {first}, this run has {second}"


def _differences(key: BaselineKey, other: BaselineKey) -> Iterator[tuple[str, str, str]]:
    """Everything that differs: its name, and both values in words."""
    plain: tuple[tuple[str, object, object], ...] = (
        ("device model", key.model, other.model),
        ("case", key.case, other.case),
        ("workload", key.workload, other.workload),
        ("workload version", key.version, other.version),
        *pairs("parameter ", key.parameters, other.parameters),
        ("data pattern", key.data_pattern, other.data_pattern),
        ("launch mode", key.mode, other.mode),
        *pairs("", key.software, other.software),
        ("image digest", key.image, other.image),
        ("power limit in watts", key.power_limit_watts, other.power_limit_watts),
    )
    for name, first, second in plain:
        # JSON reads 1.0 as 1, so these are the same; True is another parameter than 1.
        if first != second or isinstance(first, bool) is not isinstance(second, bool):
            yield name, worded(first), worded(second)


def pairs(
    prefix: str, first: Mapping[str, object], second: Mapping[str, object]
) -> tuple[tuple[str, object, object], ...]:
    """Entries of two mappings side by side; None where one has none."""
    names = sorted({*first, *second})
    return tuple((f"{prefix}{name}", first.get(name), second.get(name)) for name in names)


def worded(value: object) -> str:
    if value is None:
        return "none reported"
    return f"{value:g}" if isinstance(value, float) else str(value) or "(none)"


# ------------------------------------------------------------------ devices and baselines


def device_name(system: System, device_id: str) -> str:
    """What a baseline calls this very device: its serial, else its place in a named system.

    Where neither has a name (virtual machines), the text says so and has a digest of what the
    device reports of itself; two alike machines then have the same name.
    """
    device = _device(system, device_id)
    if device is None:
        return f"{device_id}, not in this node"
    if device.serial:
        return device.serial
    name = _system_name(system)
    if name is not None:
        return f"{device.model} {device.id} in the system {name}"
    digest = sha256(to_json(device.facts, Facts))[:16]
    return f"{device.model} {device.id} in a system without a serial (facts {digest})"


def is_named(system: System, device_id: str) -> bool:
    """Whether the name of this device distinguishes it from every other machine's."""
    device = _device(system, device_id)
    return device is not None and bool(device.serial or _system_name(system))


def _system_name(system: System) -> str | None:
    names = (_text(system.identity.host.get(name)) for name in SYSTEM_NAMES)
    return next((name for name in names if name), None)


def _device(system: System, device_id: str) -> Device | None:
    return next((one for one in system.identity.devices if one.id == device_id), None)


def find(
    baselines: Baselines, case: Case, protocol: Protocol, system: System
) -> tuple[Baseline | None, Reason, str]:
    """The baseline for this case on this node, else the reason and one sentence.

    That of this very device comes before that of a population; that of another device is none.
    """
    name = suite_id(case)
    wanted, device = key_of(case, protocol, system), device_name(system, case.device)
    known = [item for item in baselines.baseline if item.key.case == name]
    if not known:
        return None, "baseline_missing", f"there is no baseline for {name}"
    same = [item for item in known if not mismatch(item.key, wanted)]
    for item in same:
        if item.kind == "same_device" and device in item.devices:
            return item, "", ""
    for item in same:
        if item.kind == "population":
            return item, "", ""
    if same:
        others = ", ".join(same[0].devices)
        return None, "baseline_mismatch", f"the baseline is of {others}, this device is {device}"
    nearest = min(known, key=lambda item: len(tuple(_differences(item.key, wanted))))
    return None, "baseline_mismatch", f"the baseline is for {mismatch(nearest.key, wanted)}"


def misfit(baseline: Baseline, system: System) -> str:
    """Why nothing on this node can be compared with a baseline: one clause, or "" if it can be.

    Only what a probe reports is compared; the case and its protocol are the plan's.
    """
    key, clauses = baseline.key, []
    for device in system.identity.devices:
        here = replace(
            key,
            model=device.model,
            software={
                **{name: key.software[name] for name in (TIMING,) if name in key.software},
                **stated(LIBRARIES, system.identity.software),
                **stated(DEVICE_SOFTWARE, device.facts),
                **(_together(device, system) if TOGETHER in key.software else {}),
            },
            image=_text(system.identity.host.get(IMAGE)),
            power_limit_watts=_power_limit(device.facts),
        )
        name = device_name(system, device.id)
        differing = next(_differences(key, here), None)
        if differing is not None:
            what, there, actual = differing
            clauses.append(f"the baseline is for {what} {there}, this node has {actual}")
        elif baseline.kind == "same_device" and name not in baseline.devices:
            clauses.append(f"the baseline is of {', '.join(baseline.devices)}, not of {name}")
        else:
            return ""
    return clauses[0] if clauses else "this node has no device"


# ------------------------------------------------------------------ peaks


def peak_for(peaks: Peaks, system: System, case: Case, metric: str) -> float | None:
    """The vendor's figure that bounds this metric of this case, in SI units; None if unknown.

    For flops_per_second in the case's number format it is the larger of the vector and the matrix
    figure. bytes_per_second is bounded only where the case is bound by memory: the data of others
    may stay in a cache. A figure per core is times the cores: the physical ones or the processors
    that may be used, whichever are more, so that it stays a bound.
    """
    device = _device(system, case.device)
    return None if device is None else _peak_of(peaks, device, case.work, case.bound_by, metric)


def least_seconds(peaks: Peaks, system: System, case: Case) -> float | None:
    """The shortest step that the vendor's figures allow this case, in seconds; None if unknown."""
    device = _device(system, case.device)
    return None if device is None else least_of(peaks, device, case.work, case.bound_by)


def least_of(peaks: Peaks, device: Device, work: Work, bound_by: Bound) -> float | None:
    """As `least_seconds`, of a device and the work of a step."""
    amounts = {"flops_per_second": work.flops, "bytes_per_second": work.bytes}
    times = [
        amount / peak
        for metric, amount in amounts.items()
        if amount is not None and math.isfinite(amount) and amount > 0
        if (peak := _peak_of(peaks, device, work, bound_by, metric)) is not None
    ]
    return max(times, default=None)


def _peak_of(
    peaks: Peaks, device: Device, work: Work, bound_by: Bound, metric: str
) -> float | None:
    names = quantities(work, bound_by, metric)
    figures = [
        figure
        for peak in peaks.peak
        if peak.model == device.model and peak.quantity in names
        if (figure := _of_device(peak, device)) is not None
    ]
    return max(figures, default=None)


def _of_device(peak: Peak, device: Device) -> float | None:
    """The figure of the whole device; None where it is per core and their number is unknown."""
    if not (math.isfinite(peak.value) and peak.value > 0):
        return None
    if peak.per == "device":
        return peak.value
    counts = [count for name in CORES if (count := _number(device.facts.get(name))) is not None]
    return peak.value * max(counts) if counts else None
