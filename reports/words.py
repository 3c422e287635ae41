"""Values to words: how every number, name and foreign text of a record is written on a page.

Rounding happens here and nowhere before, so that a figure on paper can be looked up in the
bundle. Text that a machine gave is hostile until `clean` has seen it: a device may call itself
anything, and a bidirectional control or a private glyph can make one name look like another.
Characters outside the scripts that the report's fonts carry are shown by their number rather
than dropped, so that two different names never become one.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial

from appliance.records.json import Scalar
from appliance.records.system import Fact
from appliance.records.verdict import RulingWord
from appliance.records.vocabulary import METRICS, SHARES

NOT_REPORTED = "not reported"
GIB = 2**30
_LONGEST = 2_000  # characters of one foreign text; the bundle has the rest
_SHOWN = (  # first and last code point of what DejaVu Sans draws, without combining marks
    (0x20, 0x2E9),  # Latin
    (0x370, 0x525),  # Greek, Cyrillic
    (0x1E00, 0x1EFB),
    (0x1F00, 0x1FFF),
    (0x2010, 0x20B5),  # punctuation, currency
    (0x2100, 0x2109),
    (0x210B, 0x2149),
    (0x2150, 0x2185),
    (0x2190, 0x2311),  # arrows, mathematics
    (0x2500, 0x269C),  # boxes, shapes, symbols
    (0x2713, 0x2718),  # ticks and crosses
)
_HIDDEN = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_FACTORS = (*(10.0**power for power in range(-6, 16, 3)), 0.01, 2.0**10, 2.0**20, 2.0**30, 2.0**40)
"""What the number of a written quantity may have been divided by."""
_SCALED = frozenset(("FLOP/s", "OP/s", "B/s", "Hz", "T/s", "bit/s"))
_UNIT_NAMES = {
    "bytes": "B",
    "hertz": "Hz",
    "seconds": "s",
    "watts": "W",
    "joules": "J",
    "volts": "V",
    "celsius": "°C",
    "percent": "%",
    "transfers per second": "T/s",
    "transfers/s": "T/s",
    "bits per second": "bit/s",
    "bytes_per_second": "B/s",
    "bytes/s": "B/s",
    "bits_per_second": "bit/s",
    "flops_per_second": "FLOP/s",
}
_METRIC_UNITS = {"flops_per_second": "FLOP/s", "bytes_per_second": "B/s"}
_READINGS = {
    "foreign_processors": "Processors used by others",
    "stolen_processors": "Processors taken by the hypervisor",
    "load1": "Load over a minute",
}
RULINGS: dict[RulingWord, str] = {
    "pass": "✓ pass",
    "fail": "✗ FAIL",
    "inconclusive": "◆ inconclusive",
    "not_applicable": "- not applicable",
}
"""A ruling with its shape, so that a grey copy reads."""
_SPELT = """BIOS BLAS BMC CPU DIMM DNS ECC FLOP GPU HTTP ID INT8 IO IP JAX L1 L1d L1i L2 L3 MAC MKL
MTU NIC NUMA NVMe NumPy ONNX OS PCI PCIe RAM RAS SMBIOS SMT SSD SciPy TF32 TPM URL UUID
VBIOS WWN oneDNN OpenMP"""
_NAMES = {"ld_preload": "LD_PRELOAD is set", "memory_bytes": "Memory"}
_WORDS = {word.lower(): word for word in _SPELT.split()} | {"load1": "load over a minute"}


def clean(text: str) -> str:
    """The text on one line, with nothing in it that hides, reorders or cannot be drawn."""
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text)} characters)"
    line = " ".join(short.split())
    return line if line.isascii() and line.isprintable() else "".join(map(_shown, line))


def brief(text: str, longest: int = 100) -> str:
    """The begin of a foreign text that must fit a line or a cell; the bundle has the rest."""
    return text if len(text) <= longest else f"{text[:longest]} … ({len(text)} characters)"


@lru_cache(maxsize=1024)
def _shown(character: str) -> str:
    point = ord(character)
    is_drawn = any(first <= point <= last for first, last in _SHOWN)
    if is_drawn and unicodedata.category(character) not in _HIDDEN:
        return character
    return f"[U+{point:04X}]"


def figure(value: float, digits: int = 4) -> str:
    """A number to so many significant digits; exact zero is "0"."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else ("infinite" if value > 0 else "-infinite")
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e7:  # noqa: PLR2004 - beyond these, an exponent reads better
        return f"{value:.{digits - 1}e}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    places = digits - 1 - math.floor(math.log10(abs(rounded)))  # 0.99996 is 1.000
    return f"{rounded:,.{max(0, places)}f}"


def small(value: float) -> str:
    """An error or a bound, as the rulings write it."""
    return brief_figure(value) if math.isfinite(value) else figure(value)


def brief_figure(value: float) -> str:
    """A number to three digits at most; those up to a million without an exponent."""
    written = f"{value:.3g}"
    return f"{float(written):,.0f}" if "e+" in written and abs(value) < 1e6 else written  # noqa: PLR2004 - beyond it an exponent reads better


def _plain(value: float) -> str:
    """A number without a unit: what is whole has no places."""
    return f"{value:,.0f}" if math.isfinite(value) and value == round(value) else figure(value)


def scaled(value: float, unit: str) -> str:
    """A rate with the SI prefix that suits it: 1.234 TFLOP/s."""
    if not math.isfinite(value):
        return figure(value)
    factor, prefix = next((pair for pair in _PREFIXES if abs(value) >= pair[0]), (1.0, ""))
    return f"{figure(value / factor)} {prefix}{unit}"


def duration(seconds: float) -> str:
    """Seconds as s, ms or µs."""
    if not math.isfinite(seconds) or abs(seconds) >= 1 or seconds == 0:
        return f"{figure(seconds)} s"
    if abs(seconds) >= 1e-3:  # noqa: PLR2004 - a millisecond
        return f"{figure(seconds * 1e3)} ms"
    return f"{figure(seconds * 1e6)} µs"


def span(seconds: float) -> str:
    """A length of time as people say it: 3 min 12 s."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    words = [f"{hours} h"] * (hours > 0) + [f"{minutes} min"] * (hours + minutes > 0)
    return " ".join([*words, f"{whole % 60} s"])


def size(num_bytes: float) -> str:
    """Bytes in the binary unit that suits them, as memory is sold."""
    for factor, unit in ((2**40, "TiB"), (GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(num_bytes) >= factor:
            return f"{num_bytes / factor:,.4g} {unit}"
    return f"{num_bytes:g} B"


def quantity(value: float, unit: str) -> str:
    """A number with its unit, in the form that this kind of quantity is read in."""
    unit = _UNIT_NAMES.get(unit, unit)
    if unit == "B" and math.isfinite(value):
        return size(value)
    if unit in _SCALED:
        return scaled(value, unit)
    if unit == "s":
        return duration(value)
    if isinstance(value, int):
        number = str(value)
    else:
        number = _plain(value) if unit in ("", "steps") else figure(value)
    if unit in ("fraction", "share") and math.isfinite(value):
        return f"{figure(value * 100, 3)} %"
    return f"{number} {unit}".rstrip()


def percent(value: float, digits: int = 3) -> str:
    """A fraction as a percentage."""
    if not math.isfinite(value):
        return figure(value)
    return f"{value * 100:.{digits}g} %" if abs(value) < 10 else f"{figure(value * 100)} %"  # noqa: PLR2004 - beyond it .3g has an exponent


def of_bound(share: float) -> str:
    """How far an error came, of its bound: 32 % of its bound, 89.6 times its bound."""
    if share >= 10:  # noqa: PLR2004 - a thousand percent
        return f"{brief_figure(share)} times its bound"
    return f"{percent(share)} of its bound"


def metric(name: str) -> str:
    """A measured quantity's heading: `latency_p99_seconds` becomes "Latency, 99th percentile"."""
    if name in METRICS:
        return METRICS[name]
    match = re.fullmatch(r"latency_p([0-9]+)_seconds", name)
    return label(name) if match is None else f"Latency, {match[1]}th percentile"


def measured(name: str, value: float, unit: str) -> str:
    """A value of a measured quantity in its SI unit, as this quantity is read."""
    if name in SHARES:
        return percent(value)
    return quantity(
        value, unit or ("s" if name.endswith("_seconds") else _METRIC_UNITS.get(name, ""))
    )


def in_unit_of(name: str, value: float, end: float, unit: str) -> str:
    """An end of an interval as a number in the unit that its value is written in."""
    if unit == "steps":
        return _plain(end)
    written = measured(name, value, unit).partition(" ")
    number = float(written[0].replace(",", "")) if math.isfinite(value) else math.nan
    if not (written[2] and number and math.isfinite(value / number) and math.isfinite(end)):
        return measured(name, end, unit)
    factor = min(_FACTORS, key=lambda one: abs(math.log(value / number / one)))
    return figure(end / factor)


def scalar(value: Scalar, unit: str = "") -> str:
    """Any value of a fact or a parameter."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return clean(f"{value} {unit}") or "(empty)"
    return quantity(value, unit)


def parameter(name: str, value: Scalar) -> str:
    """A workload's parameter, which is exact: a size in its unit, a number in the digits it has."""
    if isinstance(value, bool | str):
        return scalar(value)
    if name.endswith("_bytes"):
        return size(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def fact(reported: Fact) -> str:
    """A fact's value, or that it was not reported."""
    return NOT_REPORTED if reported.value is None else scalar(reported.value, reported.unit)


def label(name: str) -> str:
    """A record's key as a heading: `cpu_model` becomes "CPU model"."""
    if name in _NAMES:
        return _NAMES[name]
    plain = clean(name)
    plain = f"number of {plain[4:]}" if plain.startswith("num_") else plain
    words = [_WORDS.get(word.lower(), word) for word in re.split(r"[_\s]+", plain) if word]
    is_proper = bool(words) and (words[0] in _WORDS.values() or ":" in words[0])
    text = " ".join(words)
    return text if is_proper else text[:1].upper() + text[1:]


def reading(name: str) -> tuple[str, Callable[[float], str]]:
    """Heading of a telemetry value and how its values are written, from the unit in its key."""
    if name in _READINGS:
        return _READINGS[name], figure
    for suffix in sorted([*_UNIT_NAMES, "fraction", "share"], key=len, reverse=True):
        if name.endswith(f"_{suffix}"):
            return label(name.removesuffix(f"_{suffix}")), partial(quantity, unit=suffix)
    return label(name), _plain


def moment(text: str) -> datetime | None:
    """An ISO 8601 time in UTC; None if it is none."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


def utc(text: str) -> str:
    """A time as it is printed, in UTC, or the text itself if it is no time."""
    time = moment(text)
    return clean(text) if time is None else time.strftime("%Y-%m-%d %H:%M:%S UTC")


def continued(sentence: str) -> str:
    """A sentence as the part of another, its first word in lower case if it is a plain word."""
    first, _, rest = sentence.partition(" ")
    return f"{first.lower()} {rest}".rstrip() if first.istitle() else sentence


def listed(items: Sequence[str]) -> str:
    """5, 10 and 20."""
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


FEWEST_JOINED = 3
"""Devices in a row of which the first and the last are named."""
LONGEST_NUMBER = 10
"""Digits; no node has so many devices, and a name may be anything."""


def devices(names: Sequence[str]) -> str:
    """Devices by name; of three and more in a row the first and the last: cpu:0 to cpu:7."""
    runs: list[list[str]] = []
    for name in names:
        vendor, _, number = name.partition(":")
        is_number = number.isdecimal() and len(number) < LONGEST_NUMBER
        before = f"{vendor}:{int(number) - 1}" if is_number else ""
        if runs and runs[-1][-1] == before:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(
        f"{run[0]} to {run[-1]}" if len(run) >= FEWEST_JOINED else ", ".join(run) for run in runs
    )


def _of_one_row(names: Sequence[str]) -> str:
    """Cases of one row by their devices: bert@cpu:0 to cpu:7 (8 devices); "" for any others."""
    rows = {name.partition("@")[0] for name in names}
    on = [name.partition("@")[2] for name in names]
    if len(names) < FEWEST_JOINED or len(rows) > 1 or not all(on):
        return ""
    return f"{rows.pop()}@{devices(on)} ({len(on)} devices)"


def rows(names: Sequence[str]) -> str:
    """Cases as `cases` names them, for a sentence that has said how many there are."""
    said = cases(names)
    counted = f"{len(names):,} cases: "
    return said.removeprefix(counted)


def cases(names: Sequence[str], most: int = 8) -> str:
    """Cases by name; of many the rows of the suite that they are of, with how many of each."""
    if most and (joined := _of_one_row(names)):
        return joined
    if not most:
        return f"{len(names):,} cases"
    if len(names) <= most:
        return ", ".join(names)
    rows: dict[str, int] = {}
    for name in names:
        row = name.partition("@")[0]
        rows[row] = rows.get(row, 0) + 1
    listed = [f"{row} ({number})" if number > 1 else row for row, number in rows.items()]
    rest = len(listed) - 2 * most
    more = f" and {rest} more rows" if rest > 0 else ""
    return f"{len(names):,} cases: {', '.join(listed[: 2 * most])}{more}"


def count(number: int, noun: str, plural: str = "") -> str:
    """1 launch, 5 launches."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
