"""Plots as SVG text, drawn here: the same string stands in the HTML and the PDF.

A plotting library would cost a second to import and would not give the same bytes twice. A
plot holds at most `MOST_POINTS` samples: above that each launch is cut into runs of samples
of which the smallest and the largest are drawn, so that no stall disappears. Shapes and words
carry the meaning, never colour alone, because these pages are copied in grey.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, pairwise

from markupsafe import Markup, escape

from reports.words import clean, count, figure

MOST_POINTS = 400
WIDTH, HEIGHT, COURSE_HEIGHT = 660, 172, 104
_LEFT, _RIGHT, _TOP, _BOTTOM, _COURSE_BOTTOM = 58, 652, 14, 140, 72
_FONT = 'font-family="DejaVu Sans, sans-serif"'
_FEW, _LARGE_DOT, _SMALL_DOT = 40, 4.4, 2.6  # samples of a launch; widths of a dot
_TRACE_HEIGHT = 48
_BAR_LEFT, _BAR_HEIGHT = 8, 42
_LETTER = 6.2  # width of a letter at most
_DARK, _SHADES = ("#1f3b63", "#ffffff"), ("#c3cedd", "#e2e8f0")
_BUSY = 12  # launches above which a label has its number only
_TAIL = 0.1  # share of the largest samples that may lie beyond the axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The median of a block in milliseconds, and the places of its first and last sample."""

    first: int
    last: int
    median: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One launch: its samples in milliseconds in their order, its blocks' medians, or why not.

    The first `cut` samples are those before its steady part.
    """

    label: str
    samples: tuple[float, ...]
    levels: tuple[Level, ...] = ()
    cut: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A block's median in milliseconds, and when it ended in minutes since the run began."""

    launch: str
    minutes: float
    median: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One reading over the run: (minutes since it began, value), with its unit in the label."""

    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a bar; `share` is its part of the whole, the marked ones are dark."""

    label: str
    share: float
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class _Axis:
    """Milliseconds to vertical places."""

    low: float
    high: float
    ticks: tuple[float, ...]
    bottom: int = _BOTTOM

    def y(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.bottom - share * (self.bottom - _TOP)


def launches(title: str, strips: Sequence[Strip], interval: tuple[float, float] | None) -> Markup:
    """Every launch of a case side by side; `interval` of the mean in milliseconds.

    Samples far beyond the others are drawn as triangles at the edge and counted in words.
    """
    values = [value for strip in strips for value in strip.samples if math.isfinite(value)]
    medians = [level.median for strip in strips for level in strip.levels]
    shown = [value for value in (*medians, *(interval or ())) if math.isfinite(value)]
    axis = _axis(values, shown)
    step = (_RIGHT - _LEFT) / max(1, len(strips))
    lefts = [_LEFT + number * step for number in range(len(strips))]
    parts = [_cut(strip, left, step) for strip, left in zip(strips, lefts, strict=True)]
    parts += [_grid(axis), "" if interval is None else _band(axis, interval)]
    for strip, left in zip(strips, lefts, strict=True):
        parts.append(_strip(strip, axis, left, step, len(strips)))
    parts.append(_frame(axis, "launch", HEIGHT))
    above = [value for value in values if value > axis.high]
    if above:
        words = f"▲ {count(len(above), 'sample')} above the axis, the largest {figure(max(above))}"
        parts.append(_text(_RIGHT - 4, 10, f"{words} ms", "end"))
    return _drawing(title, "".join(parts), HEIGHT)


def course(title: str, moments: Sequence[Moment], interval: tuple[float, float] | None) -> Markup:
    """The medians of all blocks over the time of the run; nothing where there is no course.

    The blocks of one launch are joined, so that a level that shifts inside a launch, between
    launches or slowly over the run shows as what it is.
    """
    known = [moment for moment in moments if math.isfinite(moment.median)]
    times = [moment.minutes for moment in known]
    if len(known) < 2 or min(times) == max(times):  # noqa: PLR2004 - a course has two ends
        return Markup()
    axis = _axis([moment.median for moment in known], list(interval or ()), _COURSE_BOTTOM)
    begin, span = min(times), max(times) - min(times)

    def place(moment: Moment) -> str:
        x = _LEFT + 10 + (moment.minutes - begin) / span * (_RIGHT - _LEFT - 20)
        return f"{x:.1f} {axis.y(moment.median):.1f}"

    joined: dict[str, list[str]] = {}
    for moment in known:
        joined.setdefault(moment.launch, []).append(place(moment))
    lines = [f"M{'L'.join(places)}" for places in joined.values() if len(places) > 1]
    dots = [f"M{point}h0" for places in joined.values() for point in places]
    labels = "".join(
        _text(_LEFT + 10 + (tick - begin) / span * (_RIGHT - _LEFT - 20), axis.bottom + 12, label)
        for tick, label in _labelled(_ticks(begin, max(times)))
    )
    body = "".join(
        (
            _grid(axis),
            "" if interval is None else _band(axis, interval),
            _path(lines, 'stroke="#6f83a0" stroke-width="0.9" fill="none"'),
            _path(dots, 'stroke="#111111" stroke-width="4" stroke-linecap="round" fill="none"'),
            labels,
            _frame(axis, "minutes since the run began", COURSE_HEIGHT),
        )
    )
    return _drawing(title, body, COURSE_HEIGHT)


def traces(title: str, series: Sequence[Trace]) -> Markup:
    """Readings over the time of the run, one strip below the other; nothing without a course."""
    known = [
        replace(one, points=tuple(point for point in one.points if all(map(math.isfinite, point))))
        for one in series
    ]
    times = [minutes for one in known for minutes, _ in one.points]
    if not times or min(times) == max(times):
        return Markup()
    begin, end = min(times), max(times)
    drawn = [one for one in known if one.points]
    bottom = _TOP + len(drawn) * _TRACE_HEIGHT
    parts = [
        _trace(one, _TOP + number * _TRACE_HEIGHT, begin, end) for number, one in enumerate(drawn)
    ]
    labels = [
        _text(_LEFT + (tick - begin) / (end - begin) * (_RIGHT - _LEFT), bottom + 12, label)
        for tick, label in _labelled(_ticks(begin, end))
    ]
    name = _text((_LEFT + _RIGHT) / 2, bottom + 24, "minutes since the run began")
    return _drawing(title, "".join((*parts, *labels, name)), bottom + 28)


def parts(title: str, pieces: Sequence[Part]) -> Markup:
    """One bar of parts side by side; a label stands in each that has room for it."""
    body, left = [], float(_BAR_LEFT)
    shades = cycle(_SHADES)
    for piece in pieces:
        width = piece.share * (_RIGHT - _BAR_LEFT)
        fill, ink = _DARK if piece.is_marked else (next(shades), "#111111")
        body.append(
            f'<rect x="{left:.1f}" y="6" width="{width:.1f}" height="30" fill="{fill}" '
            'stroke="#ffffff" stroke-width="0.8"/>'
        )
        lines = (piece.label, f"{100 * piece.share:.0f} %")
        if max(map(len, lines)) * _LETTER <= width:
            for place, line in enumerate(lines):
                y = 18 + place * 12
                body.append(_text(left + width / 2, y, line, more=f'style="fill: {ink}"'))
        left += width
    return _drawing(title, "".join(body), _BAR_HEIGHT) if body else Markup()


def _trace(one: Trace, top: float, begin: float, end: float) -> str:
    """One strip: its smallest and largest value at the left, its course as a line."""
    values = [value for _, value in one.points]
    low, high = min(values), max(values)
    foot, reach = top + _TRACE_HEIGHT - 8, _TRACE_HEIGHT - 22
    points = thinned(values, MOST_POINTS // 2)
    places = [
        f"{_LEFT + (one.points[place][0] - begin) / (end - begin) * (_RIGHT - _LEFT):.1f} "
        f"{foot - (value - low) / ((high - low) or 1.0) * reach:.1f}"
        for place, value in points
    ]
    line = _path([f"M{'L'.join(places)}"], 'stroke="#3b4f6b" stroke-width="0.9" fill="none"')
    dots = _path(
        [f"M{place}h0" for place in places],
        'stroke="#111111" stroke-width="1.6" stroke-linecap="round" fill="none"',
    )
    edge = f'<path d="M{_LEFT} {foot}H{_RIGHT}" stroke="#bbbbbb" stroke-width="0.6" fill="none"/>'
    ends = (
        _text(_LEFT - 6, foot + 3, figure(low), "end"),
        _text(_LEFT - 6, foot - reach + 3, figure(high), "end") if high > low else "",
    )
    return "".join((edge, line, dots, *ends, _text(_LEFT, top + 8, one.label, "start")))


def _drawing(title: str, body: str, height: int) -> Markup:
    return Markup(  # noqa: S704 - every text in it went through escape
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">'
        f"<title>{escape(clean(title))}</title>{body}</svg>"
    )


def thinned(samples: Sequence[float], most: int) -> list[tuple[int, float]]:
    """At most `most` samples with their places: smallest and largest of each equal run."""
    if len(samples) <= most:
        return list(enumerate(samples))
    num_runs = max(1, most // 2)
    edges = [len(samples) * number // num_runs for number in range(num_runs + 1)]
    indices: set[int] = set()
    for begin, end in pairwise(edges):
        places = range(begin, end)
        indices |= {min(places, key=samples.__getitem__), max(places, key=samples.__getitem__)}
    return [(place, samples[place]) for place in sorted(indices)]


def _axis(values: Sequence[float], shown: Sequence[float], bottom: int = _BOTTOM) -> _Axis:
    """From the smallest sample to the largest, or to where nine in ten and all of `shown` fit.

    A few stalls would otherwise press all other samples into one line.
    """
    ordered = sorted(values) or sorted(shown) or [0.0, 1.0]
    low, common = ordered[0], ordered[-1 - int(len(ordered) * _TAIL)]
    reach = common + 2 * (common - low)
    low, high = min([low, *shown]), max([min(ordered[-1], reach), *shown])
    spread = (high - low) or abs(high) * 0.1 or 1.0
    low, high = max(0.0, low - 0.08 * spread), high + 0.08 * spread
    return _Axis(low, high, _ticks(low, high), bottom)


def _ticks(low: float, high: float) -> tuple[float, ...]:
    """Round numbers inside the axis, about four of them."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return tuple(number * step for number in range(first, last + 1))


def _labelled(ticks: Sequence[float]) -> list[tuple[float, str]]:
    """Each tick with its number, written to the places that tell them apart."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    places = max(0, -math.floor(math.log10(step)))
    return [(tick, f"{tick:.{places}f}") for tick in ticks]


def _grid(axis: _Axis) -> str:
    lines = "".join(f"M{_LEFT} {axis.y(tick):.1f}H{_RIGHT}" for tick in axis.ticks)
    labels = "".join(
        _text(_LEFT - 6, axis.y(tick) + 3, label, "end") for tick, label in _labelled(axis.ticks)
    )
    middle = (_TOP + axis.bottom) / 2
    turned = f'transform="rotate(-90 11 {middle:.0f})"'
    name = _text(11, middle, "step time, ms", "middle", turned)
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
    bars = [
        f"M{begin + level.first * pace:.1f} {axis.y(level.median):.1f}"
        f"H{begin + (level.last + 1) * pace:.1f}"
        for level in strip.levels
        if math.isfinite(level.median)
    ]
    return "".join(
        (
            _path(dots, style),
            _path(beyond, 'fill="#1c2b40"'),
            _path(bars, 'stroke="#111111" stroke-width="1.8" fill="none"'),
            _note(strip.note, left, width) if strip.note else "",
            _text(centre, _BOTTOM + 14, words, "middle"),
        )
    )


def _cut(strip: Strip, left: float, width: float) -> str:
    """The part before the steady one: a grey field that ends in a line, below all else."""
    if not strip.cut or not strip.samples:
        return ""
    begin = left + 0.1 * width
    end = begin + 0.8 * width * min(1.0, strip.cut / len(strip.samples))
    return (
        f'<rect x="{begin:.1f}" y="{_TOP}" width="{end - begin:.1f}" height="{_BOTTOM - _TOP}" '
        f'fill="#ebedef"/>'
        f'<path d="M{end:.1f} {_TOP}V{_BOTTOM}" stroke="#777777" stroke-width="0.7" '
        f'stroke-dasharray="2 2" fill="none"/>'
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
    short = note if len(note) <= 22 else f"{note[:21]}…"  # noqa: PLR2004 - what the plot's height takes
    turned = f'transform="rotate(-90 {x:.1f} {y:.0f})" font-weight="bold"'
    return (
        _path([cross], 'stroke="#999999" stroke-width="0.8" fill="none"')
        + plate
        + _text(x, y, short, "middle", turned)
    )


def _frame(axis: _Axis, name: str, height: int) -> str:
    edges = f"M{_LEFT} {_TOP}V{axis.bottom}H{_RIGHT}"
    words = _text((_LEFT + _RIGHT) / 2, height - 3, name)
    return f'<path d="{edges}" stroke="#333333" stroke-width="0.9" fill="none"/>{words}'


def _path(pieces: Sequence[str], style: str) -> str:
    return f'<path d="{"".join(pieces)}" {style}/>' if pieces else ""


def _text(x: float, y: float, words: str, anchor: str = "middle", more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="9" fill="#222222" '
        f"{_FONT} {more}>{escape(clean(words))}</text>"
    )
