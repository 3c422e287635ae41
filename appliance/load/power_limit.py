"""At what power a device worked while its power limit held it back.

A device at its own limit draws it: an H100 under products is held back in nearly all of its time
and draws 99 % of 700 W (tests/recorded/h100_0_12/node). One that is held back while it draws far
less is held by something else that reports as its power limit: that of its board or module, or
firmware.

The power that is read is a mean over the last second (nvml.h, nvmlDeviceGetPowerUsage; the same
H100 read 256, 605 and 688 W, half a second apart, from the begin of a launch on), and the reason
stays for some tenths of a second after the work. So of readings that are half a second apart only
those count before which two others in a row said the same, of a device that was busy all the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

CAPPED = "throttled_power_cap"
AT_WORK = 0.9
"""Share of the time in which something must have run; bursts with pauses between them have less."""
BEFORE = 2
"""Readings in a row before one whose mean then holds nothing else."""

Values = Mapping[str, float | None]


def settled_watts(readings: Iterable[tuple[Values, int]]) -> Iterator[tuple[float, int]]:
    """Power and number of the readings that count, of those of one launch in their order.

    Each stands with its number: a group of readings is of the inside of a minute, and counts.
    """
    row = 0
    for values, number in readings:
        row = row + number if _is_held(values) else 0
        watts = values.get("power_watts")
        if row > BEFORE and watts is not None:
            yield watts, number


def _is_held(values: Values) -> bool:
    use = values.get("utilisation_fraction")
    return (values.get(CAPPED) or 0.0) > 0.0 and (use is None or use >= AT_WORK)
