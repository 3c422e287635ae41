"""Why an AMD device is slower than it could be, in the words that all vendors share.

MI300 and later count, per cause, the firmware's cycles in which it held the device back; a cause
is active if its count grew since the reading before, so that none is missed between two readings.
The library's own amdsmi_get_violation_status does the same with two readings 100 ms apart, and
waits for them, which would hold up whoever watches several devices. MI200 and earlier give a
mask; the Python library makes a boolean of it, so that only "some cause" is left.

Sources (2026-11): ROCm documentation, "GPU violations" (amdsmi, docs/conceptual/gpu-violations.md);
amdsmi.h, amdsmi_gpu_metrics_t; Linux, drivers/gpu/drm/amd/pm/swsmu: inc/amdgpu_smu.h
(SMU_THROTTLER_*_BIT), inc/pmfw_if/smu_v13_0_6_ppsmc.h (THROTTLER_*_BIT).
"""

from __future__ import annotations

from collections.abc import Mapping

from appliance.records.vocabulary import THROTTLES
from appliance.vendors.amd.values import count

CAUSES: Mapping[str, tuple[int, str]] = {
    "prochot": (0, "hardware"),
    "ppt": (1, "power_cap"),
    "socket_thm": (2, "thermal"),
    "vr_thm": (3, "thermal"),
    "hbm_thm": (4, "thermal"),
}
"""Causes of MI300 and later: the firmware's bit, and our word. A hot processor's signal
(PROCHOT) can come from outside, too, so its cause is left open."""
CYCLES = "accumulation_counter"
RANGES = (
    (range(8), "power_cap"),
    (range(16, 24), "current"),
    (range(32, 46), "thermal"),
    (range(46, 48), "hardware"),
    (range(48, 64), "other"),
)
"""Bits of the mask of MI200 and earlier: PPT, TDC and EDC, temperatures and regulators, PROCHOT."""
MASKED = tuple(name for _, name in RANGES)


class Residency:
    """What the counts were at the reading before, for each device."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, int]] = {}

    def active(self, address: str, metrics: Mapping[str, object]) -> dict[str, bool]:
        """Causes of `CAUSES` with whether they held the device back since the reading before.

        Empty at the first reading, where the device counts none, and if no cycle has passed.
        """
        fields = {cause: f"{cause}_residency_acc" for cause in CAUSES} | {CYCLES: CYCLES}
        counts = {cause: count(metrics.get(field)) for cause, field in fields.items()}
        now = {cause: value for cause, value in counts.items() if value is not None}
        before = self._before.get(address, {})
        if CYCLES in now and now[CYCLES] != before.get(CYCLES):
            self._before[address] = now
        if CYCLES not in now or now[CYCLES] <= before.get(CYCLES, now[CYCLES]):
            return {}
        return {
            cause: now[cause] > before[cause]
            for cause in CAUSES
            if cause in now and cause in before
        }


def by_cause(active: Mapping[str, bool]) -> dict[str, float | None]:
    """Readings of every reason and of the mask; None for what the vendor does not report."""
    readings: dict[str, float | None] = dict.fromkeys(_names())
    for cause, is_active in active.items():
        name = f"throttled_{CAUSES[cause][1]}"
        readings[name] = max(readings[name] or 0.0, float(is_active))
    if active:
        mask = sum(1 << CAUSES[cause][0] for cause, is_active in active.items() if is_active)
        readings["throttle_mask"] = float(mask)
    return readings


def by_mask(mask: object) -> dict[str, float | None]:
    """Readings of the mask of MI200 and earlier, or of what the library leaves of it."""
    readings: dict[str, float | None] = dict.fromkeys(_names())
    if mask is True:
        return readings | {"throttled_other": 1.0}
    if mask is False:
        return readings | {f"throttled_{name}": 0.0 for name in MASKED}
    bits = count(mask)
    if bits is None:
        return readings
    readings["throttle_mask"] = float(bits)
    for numbers, name in RANGES:
        readings[f"throttled_{name}"] = float(any(bits >> bit & 1 for bit in numbers))
    return readings


def _names() -> list[str]:
    return ["throttle_mask", *(f"throttled_{name}" for name in THROTTLES)]
