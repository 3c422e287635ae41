"""Plots as SVG text, drawn here: the same string stands in the HTML and the PDF.

A plotting library would cost a second to import and would not give the same bytes twice. A
plot holds at most `MOST_POINTS` samples: above that each launch is cut into runs of samples
of which the smallest and the largest are drawn, so that no stall disappears. Shapes and words
carry the meaning, never colour alone, because these pages are copied in grey.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from reports.words import clean, count, figure

MOST_POINTS = 400
WIDTH, HEIGHT = 660, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 652, 14, 158
_FONT = 'font-family="DejaVu Sans, sans-serif"'
_FEW, _LARGE_DOT, _SMALL_DOT = 40, 4.4, 2.6  # samples of a launch; widths of a dot
_BUSY = 12  # launches above which a label has its number only
_TAIL = 0.1  # share of the largest samples that may lie beyond the axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One launch: its samples in milliseconds in their order, its statistic, or why not."""

    label: str
    samples: tuple[float, ...]
    median: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Milliseconds to vertical places."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def y(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return _BOTTOM - share * (_BOTTOM - _TOP)


def launches(title: str, strips: Sequence[Strip], interval: tuple[float, float] | None) -> Markup:
    """Every launch of a case side by side; `interval` of the mean in milliseconds.

    Samples far beyond the others are drawn as triangles at the edge and counted in words.
    """
    values = [value for strip in strips for value in strip.samples if math.isfinite(value)]
    medians = [strip.median for strip in strips if strip.median is not None]
    shown = [value for value in (*medians, *(interval or ())) if math.isfinite(value)]
    axis = _axis(values, shown)
    step = (_RIGHT - _LEFT) / max(1, len(strips))
    parts = [_grid(axis), "" if interval is None else _band(axis, interval)]
    for number, strip in enumerate(strips):
        parts.append(_strip(strip, axis, _LEFT + number * step, step, len(strips)))
    parts.append(_frame())
    above = [value for value in values if value > axis.high]
    if above:
        words = f"▲ {count(len(above), 'sample')} above the axis, the largest {figure(max(above))}"
        parts.append(_text(_RIGHT - 4, 10, f"{words} ms", "end"))
    body = "".join(parts)
    return Markup(  # noqa: S704 - every text in it went through escape
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img">'
        f"<title>{escape(clean(title))}</title>{body}</svg>"
    )


def thinned(samples: Sequence[float], most: int) -> list[tuple[int, float]]:
    """At most `most` samples with their places: smallest and largest of each equal run."""
    if len(samples) <= most:
        return list(enumerate(samples))
    num_runs = max(1, most // 2)
    edges = [len(samples) * number // num_runs for number in range(num_runs + 1)]
    kept: set[int] = set()
    for begin, end in pairwise(edges):
        places = range(begin, end)
        kept |= {min(places, key=samples.__getitem__), max(places, key=samples.__getitem__)}
    return [(place, samples[place]) for place in sorted(kept)]


def _axis(values: Sequence[float], shown: Sequence[float]) -> _Axis:
    """From the smallest sample to the largest, or to where nine in ten and all of `shown` fit.

    A few stalls would otherwise press all other samples into one line.
    """
    ordered = sorted(values) or sorted(shown) or [0.0, 1.0]
    low, common = ordered[0], ordered[-1 - int(len(ordered) * _TAIL)]
    reach = common + 2 * (common - low)
    low, high = min([low, *shown]), max([min(ordered[-1], reach), *shown])
    spread = (high - low) or abs(high) * 0.1 or 1.0
    low, high = max(0.0, low - 0.08 * spread), high + 0.08 * spread
    return _Axis(low, high, _ticks(low, high))


def _ticks(low: float, high: float) -> tuple[float, ...]:
    """Round numbers inside the axis, about four of them."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return tuple(number * step for number in range(first, last + 1))


def _grid(axis: _Axis) -> str:
    lines = "".join(f"M{_LEFT} {axis.y(tick):.1f}H{_RIGHT}" for tick in axis.ticks)
    step = axis.ticks[1] - axis.ticks[0] if len(axis.ticks) > 1 else 1.0
    places = max(0, -math.floor(math.log10(step)))
    labels = "".join(
        _text(_LEFT - 6, axis.y(tick) + 3, f"{tick:.{places}f}", "end") for tick in axis.ticks
    )
    turned = f'transform="rotate(-90 11 {(_TOP + _BOTTOM) / 2:.0f})"'
    name = _text(11, (_TOP + _BOTTOM) / 2, "step time, ms", "middle", turned)
    return f'<path d="{lines}" stroke="#dddddd" stroke-width="0.7" fill="none"/>{labels}{name}'


def _band(axis: _Axis, interval: tuple[float, float]) -> str:
    top, bottom = axis.y(interval[1]), axis.y(interval[0])
    edges = f"M{_LEFT} {top:.1f}H{_RIGHT}M{_LEFT} {bottom:.1f}H{_RIGHT}"
    return (
        f'<rect x="{_LEFT}" y="{top:.1f}" width="{_RIGHT - _LEFT}" '
        f'height="{max(0.5, bottom - top):.1f}" fill="#e4e8ee"/>'
        f'<path d="{edges}" stroke="#5b6b80" stroke-width="0.7" stroke-dasharray="4 3" '
        f'fill="none"/>'
    )


def _strip(strip: Strip, axis: _Axis, left: float, width: float, num_strips: int) -> str:
    begin, end, centre = left + 0.1 * width, left + 0.9 * width, left + width / 2
    pace = (end - begin) / max(1, len(strip.samples))
    dots: list[str] = []
    beyond: list[str] = []
    for place, value in thinned(strip.samples, MOST_POINTS // max(1, num_strips)):
        if math.isfinite(value):
            x, y = begin + (place + 0.5) * pace, axis.y(value)
            is_beyond = value > axis.high
            (beyond if is_beyond else dots).append(
                f"M{x - 3:.1f} {y + 5:.1f}l3 -5l3 5z" if is_beyond else f"M{x:.1f} {y:.1f}h0"
            )
    words = strip.label if num_strips <= _BUSY else strip.label.partition(" ")[0]
    width_of_dot = _LARGE_DOT if len(strip.samples) <= _FEW else _SMALL_DOT
    style = f'stroke="#6f83a0" stroke-width="{width_of_dot}" stroke-linecap="round" fill="none"'
    return "".join(
        (
            _path(dots, style),
            _path(beyond, 'fill="#1c2b40"'),
            ""
            if strip.median is None or not math.isfinite(strip.median)
            else _path(
                [f"M{begin:.1f} {axis.y(strip.median):.1f}H{end:.1f}"],
                'stroke="#111111" stroke-width="1.8" fill="none"',
            ),
            _note(strip.note, left, width) if strip.note else "",
            _text(centre, _BOTTOM + 14, words, "middle"),
        )
    )


def _note(note: str, left: float, width: float) -> str:
    """A launch that has not completed: a crossed field with the reason written in it."""
    x, y = left + width / 2 + 3, (_TOP + _BOTTOM) / 2
    cross = f"M{left + 4:.1f} {_TOP + 4}L{left + width - 4:.1f} {_BOTTOM - 4}"
    cross += f"M{left + width - 4:.1f} {_TOP + 4}L{left + 4:.1f} {_BOTTOM - 4}"
    plate = (
        f'<rect x="{x - 12:.1f}" y="{_TOP + 4}" width="17" height="{_BOTTOM - _TOP - 8}" '
        'fill="#ffffff"/>'
    )
    short = note if len(note) <= 26 else f"{note[:25]}…"  # noqa: PLR2004 - what the plot's height takes
    turned = f'transform="rotate(-90 {x:.1f} {y:.0f})" font-weight="bold"'
    return (
        _path([cross], 'stroke="#999999" stroke-width="0.8" fill="none"')
        + plate
        + _text(x, y, short, "middle", turned)
    )


def _frame() -> str:
    edges = f"M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}"
    axis = _text((_LEFT + _RIGHT) / 2, HEIGHT - 3, "launch", "middle")
    return f'<path d="{edges}" stroke="#333333" stroke-width="0.9" fill="none"/>{axis}'


def _path(pieces: Sequence[str], style: str) -> str:
    return f'<path d="{"".join(pieces)}" {style}/>' if pieces else ""


def _text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="9" fill="#222222" '
        f"{_FONT} {more}>{escape(clean(words))}</text>"
    )
