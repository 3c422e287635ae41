"""Drawings of a comparison as SVG text: ratios with their intervals, and performance profiles.

Shapes and letters carry the meaning and never colour alone, because these pages are copied in grey.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from appliance.comparison.compare_runs import CaseComparison, Profile, Timing
from reports.words import clean

MOST_CASES = 60  # lines of one drawing
WIDTH = 660
_LEFT, _RIGHT = 170, 535
_LINE, _HEAD, _FOOT = 15, 18, 34
_MOST_PERCENT = 300.0  # where the axis ends at most; what lies beyond is marked, with its figure
_FONT = 'font-family="DejaVu Sans, sans-serif"'
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "1 4")

_Place = Callable[[float], float]  # a value to a place on an axis


def shape(timing: Timing) -> str:
    """What came of a case, with its shape, so that a grey copy reads."""
    if timing.word == "beyond":
        return "✗ slower" if timing.ratio > 1 else "▲ faster"
    return "✓ no change" if timing.word == "within" else "◆ undecided"


def ratios(label: str, timed: Sequence[tuple[CaseComparison, Timing]], margin: float) -> Markup:
    """Each case's step time against A's in percent, with its interval beside the margin."""
    shown = timed[:MOST_CASES]
    low, high = _reach(shown, margin)
    bottom = _HEAD + _LINE * len(shown)

    def x(percent: float) -> float:
        held = min(max(percent, low), high)
        return _LEFT + (held - low) / (high - low) * (_RIGHT - _LEFT)

    fast, slow = x((1 / (1 + margin) - 1) * 100), x(margin * 100)
    parts = [
        (
            f'<rect x="{fast:.1f}" y="{_HEAD}" width="{slow - fast:.1f}" height="{bottom - _HEAD}" '
            'fill="#e4e8ee"/>'
        ),
        _path(f"M{x(0):.1f} {_HEAD}V{bottom}", 'stroke="#333333" stroke-width="0.9"'),
        _path(
            f"M{fast:.1f} {_HEAD}V{bottom}M{slow:.1f} {_HEAD}V{bottom}",
            'stroke="#5b6b80" stroke-width="0.7" stroke-dasharray="4 3"',
        ),
    ]
    for number, (item, timing) in enumerate(shown):
        parts.append(_ratio_line(item, timing, x, _HEAD + _LINE * (number + 0.5), high))
    step = _tick((high - low) / 2)
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        tick = number * step
        parts.append(_text(x(tick), bottom + 12, f"{tick:+g}" if number else "0", "middle"))
    name = f"step time of {label} against A, percent"
    parts.append(_text((_LEFT + _RIGHT) / 2, bottom + 26, name, "middle"))
    parts.append(_text(_LEFT, _HEAD - 6, "← faster", "start"))
    parts.append(_text(_RIGHT, _HEAD - 6, "slower →", "end"))
    rest = len(timed) - len(shown)
    if rest:
        parts.append(_text(_LEFT - 8, _HEAD - 6, f"{rest} more in the table", "end"))
    return _svg(f"Step times of {label} against A", parts, bottom + _FOOT)


def _reach(shown: Sequence[tuple[CaseComparison, Timing]], margin: float) -> tuple[float, float]:
    """Both ends of the axis in percent: all of the data, and the margin with room around it."""
    ends = [
        (bound - 1) * 100
        for _, timing in shown
        for bound in (timing.ratio, timing.low, timing.high)
        if bound is not None and math.isfinite(bound)
    ]
    least = min([-margin * 150, *ends])
    most = min(_MOST_PERCENT, max([margin * 150, *ends]))
    room = 0.04 * (most - least)
    return max(-100.0, least - room), most + room


def _ratio_line(item: CaseComparison, timing: Timing, x: _Place, y: float, high_end: float) -> str:
    centre = x((timing.ratio - 1) * 100)
    parts = [_text(_LEFT - 8, y + 3, _shortened(item.case), "end")]
    if timing.low is not None and timing.high is not None:
        low, high = x((timing.low - 1) * 100), x((timing.high - 1) * 100)
        ends = f"M{low:.1f} {y - 3:.1f}v6M{high:.1f} {y - 3:.1f}v6"
        line = f"M{low:.1f} {y:.1f}H{high:.1f}{ends}"
        parts.append(_path(line, 'stroke="#1c2b40" stroke-width="1.2"'))
    shapes = {
        "within": f'<circle cx="{centre:.1f}" cy="{y:.1f}" r="3.2" fill="#1c2b40"/>',
        "beyond": _path(
            f"M{centre - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8", 'stroke="#7f1d1d" stroke-width="2.2"'
        ),
        "open": f'<path d="M{centre - 4:.1f} {y:.1f}l4 -4l4 4l-4 4z" fill="#ffffff" '
        'stroke="#1c2b40" stroke-width="1.2"/>',
    }
    parts.append(shapes[timing.word])
    beyond = (timing.ratio - 1) * 100
    figure = f" ▶ {beyond:+.0f} %" if beyond > high_end else ""
    parts.append(_text(_RIGHT + 8, y + 3, f"{shape(timing)}{figure}", "start"))
    return "".join(parts)


def _shortened(name: str, longest: int = 30) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def profiles(known: Sequence[Profile]) -> Markup:
    """Share of cases that take at most so many times A's time, a line for each bundle."""
    top, bottom, left, right = 16, 176, 58, 590
    longest = max((profile.longest_ratio for profile in known), default=1.2)

    def x(ratio: float) -> float:
        return left + (ratio - 1) / (longest - 1) * (right - left)

    def y(share: float) -> float:
        return bottom - share * (bottom - top)

    grid = "".join(f"M{left} {y(share):.1f}H{right}" for share in (0.25, 0.5, 0.75, 1.0))
    parts = [_path(grid, 'stroke="#dddddd" stroke-width="0.7"')]
    parts += [_text(left - 6, y(part / 4) + 3, f"{part * 25} %", "end") for part in range(5)]
    num_ticks = 4
    for number in range(num_ticks + 1):
        tick = 1 + (longest - 1) * number / num_ticks
        parts.append(_text(x(tick), bottom + 13, f"{tick:.2f}", "middle"))
    parts.append(_path(f"M{left} {top}V{bottom}H{right}", 'stroke="#333333" stroke-width="0.9"'))
    middle = (left + right) / 2
    parts.append(_text(middle, bottom + 27, "step time against A, at most", "middle"))
    drawn = [profile for profile in known if profile.num_cases]
    for number, profile in enumerate(drawn):
        steps = zip(profile.ratios, profile.shares, strict=True)
        line = "".join(f"H{x(ratio):.1f}V{y(share):.1f}" for ratio, share in steps)
        line = f"M{x(1):.1f} {bottom}{line}"
        dash = _DASHES[number % len(_DASHES)]
        style = f'stroke="#1c2b40" stroke-width="1.6" stroke-dasharray="{dash}"'
        parts.append(_path(f"{line}H{right}", style))
        height = top + 12 * number
        parts.append(_path(f"M{right + 8} {height}h26", style))
        parts.append(_text(right + 40, height + 3, profile.label, "start"))
    return _svg("Performance profiles", parts, bottom + _FOOT)


def _tick(reach: float) -> float:
    """A round step that gives about three ticks on each side."""
    rough = reach / 3
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)


def _svg(title: str, parts: Sequence[str], height: float) -> Markup:
    return Markup(  # noqa: S704 - every text in it went through escape
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" role="img">'
        f"<title>{escape(clean(title))}</title>{''.join(parts)}</svg>"
    )


def _path(line: str, style: str) -> str:
    return f'<path d="{line}" fill="none" {style}/>'


def _text(x: float, y: float, label: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="9" fill="#222222" '
        f"{_FONT}>{escape(clean(label))}</text>"
    )
