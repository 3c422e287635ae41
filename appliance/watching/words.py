"""A run's state in lines of at most 80 columns, for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from appliance.foreign_text import one_line
from appliance.watching.status import DeviceNow, LaunchNow, Status, StressNow

COLUMNS = 80
MOST_DEVICES, MOST_LAUNCHES = 8, 8
"""Lines of each; the rest is counted, and `--json` has all."""
MINUTE, HOUR, DAY = 60, 3600, 86400
_LENGTHS = ((DAY, HOUR, "d h"), (HOUR, MINUTE, "h min"), (MINUTE, 1, "min s"))
UNITS: Mapping[str, tuple[float, str, str]] = {
    "power_watts": (1.0, "W", ".0f"),
    "temperature_celsius": (1.0, "°C", ".0f"),
    "graphics_clock_hertz": (1e9, "GHz", ".2f"),
    "frequency_hertz": (1e9, "GHz", ".2f"),
}


def lines(status: Status, resume: str) -> list[str]:
    """What the run is at; `resume` is the command that goes on with a run that stopped.

    It stands in a line of its own, which is as long as it is, so that it can be pasted.
    """
    shown = [part for line in _lines(status) for part in _wrapped(one_line(line))]
    is_left = status.state in ("stopped", "paused")
    return [*shown, *(["go on with:", f"  {one_line(resume)}"] if is_left else [])]


def _lines(status: Status) -> Iterator[str]:
    yield f"{status.suite}, run {status.run_id}: {_state(status)}"
    yield f"launches: {status.done} of {status.launches} done{_outcomes(status)}"
    if status.products is None:
        left = status.cases - status.cases_done
        yield f"cases: {status.cases_done} of {status.cases} done, {left} left"
    else:
        yield (
            f"under test: {length(status.seconds_under_test)}; products proven: "
            f"{status.products:,}; mismatches: {status.mismatches:,}"
        )
    yield from map(_stress, status.stress)
    if status.checks_outside:
        yield f"checks outside their bounds: {status.checks_outside}"
    for launch in status.running[:MOST_LAUNCHES]:
        yield _launch(launch)
    if len(status.running) > MOST_LAUNCHES:
        yield f"and {len(status.running) - MOST_LAUNCHES} more launches"
    for device in status.devices[:MOST_DEVICES]:
        yield _device(device)
    if len(status.devices) > MOST_DEVICES:
        yield f"and {len(status.devices) - MOST_DEVICES} more devices"


def _state(status: Status) -> str:
    left = status.remaining_seconds
    if status.state == "running" and left is not None:
        return f"running, about {length(left)} left"
    return "between two sessions" if status.state == "paused" else status.state


def _outcomes(status: Status) -> str:
    others = [f"{number} {name}" for name, number in status.outcomes.items() if name != "completed"]
    interrupted = [f"interrupted {status.interruptions} times"] if status.interruptions else []
    words = [*others, *interrupted]
    return f" ({', '.join(words)})" if words else ""


def _launch(launch: LaunchNow) -> str:
    return f"{launch.launch} of {launch.launches}: {launch.phase}, {length(launch.seconds)}"


def _stress(stress: StressNow) -> str:
    lost = f", lost in {stress.lost} segments" if stress.lost else ""
    return (
        f"stress {stress.kind}: {stress.proven_bytes / 1e9:,.1f} GB proven at "
        f"{stress.bytes_a_second / 1e6:,.0f} MB/s, {100 * stress.share:.0f} % of the time, "
        f"mismatches: {stress.mismatches:,}{lost}"
    )


def _device(device: DeviceNow) -> str:
    parts = []
    for name, value in device.values.items():
        scale, unit, form = UNITS[name]
        parts.append(f"{format(value / scale, form)} {unit}")
    return f"{device.device}: {', '.join(parts) or 'not reported'} ({_ago(device.age_seconds)})"


def _ago(seconds: float) -> str:
    return f"{length(seconds)} ago"


def length(seconds: float) -> str:
    """A length of time: 34 s, 2 min 18 s, 1 h 5 min, 3 d 4 h."""
    whole = round(seconds)
    for larger, smaller, names in (
        (DAY, HOUR, "d h"),
        (HOUR, MINUTE, "h min"),
        (MINUTE, 1, "min s"),
    ):
        if whole >= larger:
            number, rest = divmod(whole // smaller, larger // smaller)
            one, other = names.split()
            return f"{number} {one}" + (f" {rest} {other}" if rest else "")
    return f"{whole} s"


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(
        line, COLUMNS, subsequent_indent="  ", break_long_words=True, break_on_hyphens=False
    )
