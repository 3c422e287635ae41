"""Drawings of a metric over the fleet as SVG text: how it is distributed, and rack by rack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from reports.fleet.figures import percent

WIDTH, HEIGHT = 660, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 650, 14, 168
_FONT = 'font-family="DejaVu Sans, sans-serif" font-size="10"'
BINS = 60
_INK, _MUTED = 'stroke="#16191d" class="ink"', 'stroke="#5a636d" class="muted"'
_BAR, _MARK = 'fill="#8a94a0" class="bar"', 'fill="#7f1d1d" class="mark"'
"""Colours on white paper, and classes whose colours the style sheet changes in a dark scheme."""
MOST_TICKS = 8
NEAR = 4
"""Times the largest difference within which a fence is drawn: one far off would hide the rest."""
LEAST = 0.01


@dataclass(frozen=True, kw_only=True)
class Fences:
    """Relative differences between which a device is like the others."""

    low: float
    high: float


def histogram(effects: Sequence[float], is_beyond: Sequence[bool], fences: Fences | None) -> Markup:
    """Devices by their difference from what is expected of them; those beyond the fences marked.

    `fences` is None where too few devices are tested to have any.
    """
    values, marked = np.array(effects), np.array(is_beyond, dtype=bool)
    low, high = _reach(values, fences or Fences(low=-LEAST, high=LEAST))
    edges = np.linspace(low, high, BINS + 1)
    inside, _ = np.histogram(values[~marked], edges)
    beyond, _ = np.histogram(values[marked], edges)
    most = max(1, int((inside + beyond).max()))
    drawn = (fences.low, fences.high) if fences else ()
    parts = [_fence(value, low, high) for value in drawn if low < value < high]
    for number in range(BINS):
        left = _x(edges[number], low, high)
        width = _x(edges[number + 1], low, high) - left - 0.6
        bottom = float(_BOTTOM)
        for count, colour, least in ((inside[number], _BAR, 1.5), (beyond[number], _MARK, 4.0)):
            if count:
                height = max(least, count / most * (_BOTTOM - _TOP))
                parts.append(
                    f'<rect x="{left:.1f}" y="{bottom - height:.1f}" width="{width:.1f}" '
                    f'height="{height:.1f}" {colour}/>'
                )
                bottom -= height
    parts += _axis(low, high)
    parts.append(_text(_LEFT - 6, _TOP + 8, f"{most:,}", "end"))
    parts.append(_text(_LEFT - 6, _TOP + 20, "devices", "end"))
    title = (
        f"Histogram of {len(values):,} devices by their difference in step time, from "
        f"{low * 100:+.1f} % to {high * 100:+.1f} %; "
    )
    title += (
        f"{int(marked.sum())} lie beyond the fences at {percent(fences.low)} and "
        f"{percent(fences.high)}."
        if fences
        else "too few to have fences."
    )
    return _svg(parts, title)


def racks(differences: Sequence[tuple[str, float, bool]]) -> Markup:
    """Racks in their order by the difference of their middle; those that differ are marked."""
    values = np.array([value for _, value, _ in differences])
    low, high = _reach(values, Fences(low=-LEAST, high=LEAST))
    step = (_RIGHT - _LEFT) / max(1, len(values))
    parts = []
    for number, (name, value, is_found) in enumerate(differences):
        x = _LEFT + step * (number + 0.5)
        y = _BOTTOM - (value - low) / (high - low) * (_BOTTOM - _TOP)
        colour, size = (_MARK, 3.2) if is_found else (_BAR, 2.0)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" {colour}/>')
        if is_found:
            side, shift = ("end", -5) if x > (_LEFT + _RIGHT) / 2 else ("start", 5)
            parts.append(_text(x + shift, y + 3.5, name, side))
    zero = _BOTTOM - (0 - low) / (high - low) * (_BOTTOM - _TOP)
    parts.insert(0, f'<path d="M{_LEFT} {zero:.1f}H{_RIGHT}" {_MUTED} stroke-width="0.8"/>')
    parts += [
        _text(_LEFT - 6, _TOP + 4, f"{high * 100:+.1f} %", "end"),
        _text(_LEFT - 6, _BOTTOM, f"{low * 100:+.1f} %", "end"),
        _text((_LEFT + _RIGHT) / 2, _BOTTOM + 20, "racks in the order of their names", "middle"),
    ]
    found = [name for name, _, is_found in differences if is_found]
    title = f"Middle of each of {len(values)} racks; {', '.join(found) or 'none'} differ as groups."
    return _svg(parts, title)


# ------------------------------------------------------------------ pieces


def _reach(values: np.ndarray, fences: Fences) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    near = NEAR * max(LEAST, float(np.abs(known).max(initial=0.0)))
    low = min(max(fences.low, -near), float(known.min(initial=0.0)))
    high = max(min(fences.high, near), float(known.max(initial=0.0)))
    space = 0.04 * (high - low)
    return low - space, high + space


def _x(value: float, low: float, high: float) -> float:
    return float(_LEFT + (value - low) / (high - low) * (_RIGHT - _LEFT))


def _fence(value: float, low: float, high: float) -> str:
    x = _x(value, low, high)
    return (
        f'<path d="M{x:.1f} {_TOP}V{_BOTTOM}" {_INK} stroke-width="1" '
        f'stroke-dasharray="4 3"/>{_text(x, _TOP - 3, f"{value * 100:+.1f} %", "middle")}'
    )


def _axis(low: float, high: float) -> list[str]:
    span = high - low
    steps = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    widest = 10.0 ** float(np.ceil(np.log10(span / MOST_TICKS)))
    step = next((one for one in steps if span / one <= MOST_TICKS), widest)
    parts = [f'<path d="M{_LEFT} {_BOTTOM}H{_RIGHT}" {_INK} stroke-width="0.8"/>']
    for number in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1):
        x = _x(number * step, low, high)
        parts.append(f'<path d="M{x:.1f} {_BOTTOM}v4" {_INK} stroke-width="0.8"/>')
        parts.append(
            _text(x, _BOTTOM + 16, f"{number * step * 100:+.3g} %".replace("+0 %", "0 %"), "middle")
        )
    middle = (_LEFT + _RIGHT) / 2
    return [*parts, _text(middle, _BOTTOM + 34, "step time against what is expected", "middle")]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#16191d" {_FONT}>'
        f"{escape(text)}</text>"
    )


def _svg(parts: Sequence[str], title: str) -> Markup:
    return Markup(  # noqa: S704 - what is foreign in it was escaped
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
