"""Plots as SVG text, drawn here: the same string stands in the HTML and the PDF.

A plotting library would cost a second to import and would not give the same bytes twice. A
plot holds at most `MOST_POINTS` samples: above that each launch is cut into runs of samples
of which the smallest and the largest are drawn, so that no stall disappears. Shapes and words
carry the meaning, never colour alone, because these pages are copied in grey.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, pairwise

from markupsafe import Markup, escape

from reports.words import clean, figure

MOST_POINTS = 400
WIDTH, NARROW, HEIGHT, COURSE_HEIGHT = 660, 400, 126, 104
_LEFT, _RIGHT, _WIDE, _TOP, _BOTTOM, _COURSE_BOTTOM = 54, 394, 652, 14, 97, 72
_FONT = 'font-family="DejaVu Sans, sans-serif"'
_WIDE_FONT, _NARROW_FONT = 9, 11  # of drawings across the page and across two fifths of it
_NUMBER_ROOM, _FIELD_ROOM = 17, 30  # width that a number below an axis, and in a field, takes
_FEW, _LARGE_DOT, _SMALL_DOT = 40, 4.4, 2.6  # samples of a launch; widths of a dot
_TRACE_HEIGHT = 48
_BAR_LEFT, _BAR_TOP, _BAR_HEIGHT = 8, 6, 36
_BAR_MIDDLE, _BAR_STEP = 27, 11  # where a word of a part stands; from line to line
_LETTER = 6.2  # width of a letter at most
_DARK, _SHADES = ("#1f3b63", "#ffffff"), ("#c3cedd", "#e2e8f0")
MOST_BARS, MOST_RATIO = 60, 2.5  # rows of one drawing, and the end of its axis at most
_RATIO_LEFT, _RATIO_RIGHT = 190, 600
_BAR_STEPS = ((14, 13.0), (24, 10.5), (MOST_BARS, 8.8))  # bars at most, and from one to the next
_HEAT_LEFT, _HEAT_STEP, _DEVICES_BOTTOM = 150, 12, 97
HEAT_EDGES = (0.005, 0.015, 0.03, 0.06)
"""Slower than the median of its row by so much, a field is a shade darker."""
_HEAT_SHADES = ("#eef1f4", "#d3dae2", "#a9b5c3", "#67788b", "#1f2a36")
_HEAT_INKS = ("#16191d", "#16191d", "#16191d", "#ffffff", "#ffffff")
_DIAMOND = '<path d="M{left:.1f} {y:.1f}l3 -3.6l3 3.6l-3 3.6z" fill="#ffffff" stroke="#111111"/>'
_SQUARE = '<rect x="{left:.1f}" y="{top:.1f}" width="5.2" height="5.2" fill="#111111"/>'
_NEAR = 1.5  # times the largest figure: a limit further above is not drawn, but said
_QUIET, _INK = 4, 'fill="#000000"'
_NOTE_LETTERS, _NOTE_STEP = 12, 13  # that a plot's height takes; from line to line
_MANY_MS = 10_000  # from which an axis is in seconds
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
class Stretch:
    """A stretch of the run by its word, in minutes since the run began; shaded, or striped."""

    label: str
    begin: float
    end: float
    is_shaded: bool = False
    is_striped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a bar; `share` is its part of the whole, the marked ones are dark."""

    label: str
    share: float
    is_marked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioBar:
    """Speeds of one row as ratios; the ends, the limit and the two marks where there are any.

    `figure` is how the table beside the drawing writes the value.
    """

    label: str
    value: float
    figure: str
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    reference: float | None = None
    datasheet: float | None = None
    is_failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePoint:
    """One device of a family: its step time in milliseconds with its interval."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
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


def launches(
    title: str,
    strips: Sequence[Strip],
    interval: tuple[float, float] | None,
    limit: float | None = None,
) -> Markup:
    """Every launch of a case side by side; `interval` of the mean and `limit` in milliseconds.

    Samples far beyond the others are drawn as triangles at the edge and counted in words.
    """
    values = [value for strip in strips for value in strip.samples if math.isfinite(value)]
    medians = [level.median for strip in strips for level in strip.levels]
    shown = [value for value in (*medians, *(interval or ())) if math.isfinite(value)]
    is_near = limit is not None and limit < _NEAR * max(shown, default=math.inf)
    axis = _axis(values, [*shown, limit] if is_near and limit is not None else shown)
    step = (_RIGHT - _LEFT) / max(1, len(strips))
    lefts = [_LEFT + number * step for number in range(len(strips))]
    parts = [_cut(strip, left, step) for strip, left in zip(strips, lefts, strict=True)]
    parts += [_grid(axis), "" if interval is None else _band(axis, interval)]
    for strip, left in zip(strips, lefts, strict=True):
        parts.append(_strip(strip, axis, left, step, len(strips)))
    if limit is not None:
        parts.append(_limit_line(axis, limit, is_near=is_near))
    name, labels = _launch_labels([strip.label for strip in strips], step)
    parts += [
        _text(left + step / 2, _BOTTOM + 14, label)
        for left, label in zip(lefts, labels, strict=True)
        if label
    ]
    parts.append(_frame(axis, name, HEIGHT))
    above = [value for value in values if value > axis.high]
    if above:
        words = f"▲ {len(above)} above, up to {figure(max(above))} ms"
        parts.append(_text(_RIGHT - 4, 10, words, "end"))
    return _drawing(title, "".join(parts), HEIGHT, NARROW)


def _launch_labels(labels: Sequence[str], step: float) -> tuple[str, list[str]]:
    """The axis' name with the mode that most launches have, and each label as far as it has room.

    `labels` are numbers, each with its mode or its outcome: "3 forked".
    """
    modes = [label.partition(" ")[2] for label in labels]
    usual = max(modes, key=modes.count, default="")
    every = max(1, math.ceil(_NUMBER_ROOM / step))
    written = []
    for place, (label, mode) in enumerate(zip(labels, modes, strict=True)):
        is_short = mode == usual or len(label) * _LETTER > step
        shown = label.partition(" ")[0] if is_short else label
        written.append(shown if place % every == 0 else "")
    return f"launch ({usual})" if usual else "launch", written


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
    return _drawing(title, body, COURSE_HEIGHT, NARROW)


def traces(title: str, series: Sequence[Trace], stretches: Sequence[Stretch] = ()) -> Markup:
    """Readings over the time of the run, strips below each other, without what never varied.

    `stretches` are marked through all strips, with their words above where these have room.
    """
    known = [
        replace(one, points=tuple(point for point in one.points if all(map(math.isfinite, point))))
        for one in series
    ]
    known = [one for one in known if len({value for _, value in one.points}) > 1]
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
        _text(_LEFT + (tick - begin) / (end - begin) * (_WIDE - _LEFT), bottom + 12, label)
        for tick, label in _labelled(_ticks(begin, end))
    ]
    name = _text((_LEFT + _WIDE) / 2, bottom + 24, "minutes since the run began")
    marked = [_stretch(one, begin, end, bottom) for one in stretches]
    return _drawing(title, "".join((*marked, *parts, *labels, name)), bottom + 28)


def _stretch(one: Stretch, begin: float, end: float, bottom: int) -> str:
    """A stretch as a field behind the strips, as far as it lies in their time."""
    first, last = max(one.begin, begin), min(one.end, end)
    if first >= last:
        return ""
    left, right = (
        _LEFT + (moment - begin) / (end - begin) * (_WIDE - _LEFT) for moment in (first, last)
    )
    pieces = []
    if one.is_shaded or one.is_striped:
        field = f'x="{left:.1f}" y="{_TOP}" width="{right - left:.1f}" height="{bottom - _TOP}"'
        pieces.append(f'<rect {field} fill="{"#e3e9f0" if one.is_shaded else "#f3efe2"}"/>')
    if one.is_striped:
        lines = [f"M{left + step:.1f} {_TOP}V{bottom}" for step in range(3, int(right - left), 6)]
        pieces.append(_path(lines, 'stroke="#c9bf9f" stroke-width="0.5" fill="none"'))
    edge = f"M{left:.1f} {_TOP - 3}V{bottom}"
    pieces.append(_path([edge], 'stroke="#999999" stroke-width="0.5" fill="none"'))
    if right - left > _LETTER * len(one.label):
        pieces.append(_text((left + right) / 2, _TOP - 5, one.label))
    return "".join(pieces)


def ratios(title: str, bars: Sequence[RatioBar]) -> Markup:
    """A bar for each row on one axis from 0, with 1.0 marked; nothing without a bar."""
    shown = bars[:MOST_BARS]
    if not shown:
        return Markup()
    ends = [
        end
        for one in shown
        for end in (one.value, one.limit, one.high, one.reference, one.datasheet)
        if end is not None
    ]
    top = max((one for one in ends if math.isfinite(one)), default=1.0)
    reach = min(MOST_RATIO, max(1.25, top * 1.05))
    step = next(step for most, step in _BAR_STEPS if len(shown) <= most)
    bottom = math.ceil(_TOP + step * len(shown))

    def x(ratio: float) -> float:
        return _RATIO_LEFT + min(max(ratio, 0.0), reach) / reach * (_RATIO_RIGHT - _RATIO_LEFT)

    ticks = _labelled(_ticks(0.0, reach))
    lines = "".join(f"M{x(tick):.1f} {_TOP}V{bottom}" for tick, _ in ticks)
    body = [_path([lines], 'stroke="#dddddd" stroke-width="0.7" fill="none"')]
    body += [_text(x(tick), bottom + 11, label) for tick, label in ticks]
    body += [
        _ratio_bar(one, x, _TOP + step * (number + 0.5), reach) for number, one in enumerate(shown)
    ]
    one_line = f"M{x(1.0):.1f} {_TOP - 3}V{bottom}"
    body.append(_path([one_line], 'stroke="#111111" stroke-width="1.1" fill="none"'))
    body.append(_text(x(1.0), _TOP - 5, "1.0"))
    if len(bars) > len(shown):
        body.append(_text(_RATIO_RIGHT, bottom + 11, f"{len(bars) - len(shown)} more in the table"))
    return _drawing(title, "".join(body), bottom + 15)


def is_beyond_axis(one: RatioBar) -> bool:
    """Whether a ratio is beyond the longest axis, so that its figure alone says what it is."""
    return not math.isfinite(one.value) or one.value > MOST_RATIO


def _ratio_bar(one: RatioBar, x: Callable[[float], float], y: float, reach: float) -> str:
    is_beyond = is_beyond_axis(one)
    width = max(0.5, x(one.value) - _RATIO_LEFT)
    bar = f'x="{_RATIO_LEFT}" y="{y - 3.6:.1f}" width="{width:.1f}" height="7.2"'
    pieces = [
        _text(_RATIO_LEFT - 6, y + 3, _shortened(one.label), "end"),
        f'<rect {bar} fill="#9fb0c6"/>',
    ]
    if one.low is not None and one.high is not None and not is_beyond:
        low, high = x(one.low), x(one.high)
        line = f"M{low:.1f} {y:.1f}H{high:.1f}M{low:.1f} {y - 2.5:.1f}v5"
        end = f"{high - 4:.1f} {y - 2.5:.1f}l4 2.5l-4 2.5" if one.high > reach else ""
        line += f"M{end or f'{high:.1f} {y - 2.5:.1f}v5'}"
        pieces.append(_path([line], 'stroke="#111111" stroke-width="0.9" fill="none"'))
    for value, shape in ((one.reference, _DIAMOND), (one.datasheet, _SQUARE)):
        if value is not None and value <= reach:
            pieces.append(shape.format(x=x(value), y=y, left=x(value) - 3, top=y - 2.6))
    if one.is_failed:
        at = x(one.value if one.low is None else one.low)
        cross = f"M{at - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6"
        pieces.append(_path([cross], 'stroke="#7f1d1d" stroke-width="1.8" fill="none"'))
    if one.limit is not None and one.limit <= reach:
        at = x(one.limit)
        pieces.append(
            f'<rect x="{at - 1.1:.1f}" y="{y - 5.6:.1f}" width="2.2" height="11.2" fill="#111111"/>'
        )
    before, after = "▶ " if is_beyond else "", " ✗" if one.is_failed else ""
    figures = f"{before}{one.figure}{after}"
    pieces.append(_text(_RATIO_RIGHT + 6, y + 3, figures, "start"))
    return "".join(pieces)


def _shortened(name: str, longest: int = 34) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def devices(
    title: str, points: Sequence[DevicePoint], limit: float | None, axis_of: Sequence[float] = ()
) -> Markup:
    """Step times of one case on several devices, side by side; `limit` in milliseconds.

    `axis_of` are further values that the axis must hold. What failed is a cross.
    """
    ends = [
        value
        for one in points
        for value in (one.value, one.low, one.high)
        if value is not None and math.isfinite(value)
    ]
    if not ends:
        return Markup()
    near = [] if limit is None or limit > _NEAR * max(ends) else [limit]
    axis = _axis(ends, [*ends, *near, *axis_of], _DEVICES_BOTTOM)
    step = (_RIGHT - _LEFT) / len(points)
    body = [_grid(axis)]
    if limit is not None:
        body.append(_limit_line(axis, limit, is_near=bool(near)))
    every = max(1, math.ceil(len(points) * 11 / (_RIGHT - _LEFT) * 3))
    for number, one in enumerate(points):
        x = _LEFT + (number + 0.5) * step
        body.append(_device_point(one, axis, x))
        if number % every == 0:
            body.append(_text(x, axis.bottom + 11, one.label))
    body.append(_frame(axis, "", axis.bottom + 14))
    return _drawing(title, "".join(body), axis.bottom + 15, NARROW)


def _limit_line(axis: _Axis, limit: float, *, is_near: bool) -> str:
    """A broken line at the limit, in words too; where it is far above, the words alone."""
    words = _text(
        _LEFT + 2,
        _TOP - 4,
        f"- - limit {figure(limit)} ms" + ("" if is_near else " (above)"),
        "start",
    )
    if not is_near:
        return words
    line = f"M{_LEFT} {axis.y(limit):.1f}H{_RIGHT}"
    style = 'stroke="#7f1d1d" stroke-width="1" stroke-dasharray="6 3" fill="none"'
    return words + _path([line], style)


def _device_point(one: DevicePoint, axis: _Axis, x: float) -> str:
    if not math.isfinite(one.value):
        return ""
    y = axis.y(one.value)
    pieces = []
    if one.low is not None and one.high is not None:
        line = f"M{x:.1f} {axis.y(one.low):.1f}V{axis.y(one.high):.1f}"
        pieces.append(_path([line], 'stroke="#6f83a0" stroke-width="1.4" fill="none"'))
    if one.is_marked:
        cross = f"M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6"
        pieces.append(_path([cross], 'stroke="#7f1d1d" stroke-width="1.8" fill="none"'))
    else:
        pieces.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="#111111"/>')
    return "".join(pieces)


def heat(
    title: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float | None]]],
) -> Markup:
    """Rows by columns of relative step times (0.03: three percent slower), darker the slower.

    Where columns have room for it, what is shaded has its figure in percent too.

    A field that is None is crossed out; the figure of each row's slowest stands at its right.
    """
    if not rows or not columns:
        return Markup()
    width = (_RATIO_RIGHT - _HEAT_LEFT) / len(columns)
    bottom = _TOP + _HEAT_STEP * len(rows)
    every = max(1, math.ceil(22 / width))
    body = [
        _text(_HEAT_LEFT + (number + 0.5) * width, _TOP - 4, name)
        for number, name in enumerate(columns)
        if number % every == 0
    ]
    for number, (name, values) in enumerate(rows):
        top = _TOP + number * _HEAT_STEP
        body.append(_text(_HEAT_LEFT - 6, top + 9, _shortened(name, 26), "end"))
        body += [
            _field(value, _HEAT_LEFT + i * width, top, width) for i, value in enumerate(values)
        ]
        known = [value for value in values if value is not None]
        if known:
            place = max(known)
            body.append(_text(_RATIO_RIGHT + 5, top + 9, f"{100 * place:+.1f} %", "start"))
    return _drawing(title, "".join(body), bottom + 4)


def _field(value: float | None, left: float, top: float, width: float) -> str:
    if value is None or not math.isfinite(value):
        cross = f"M{left + 1:.1f} {top + 1:.1f}L{left + width - 1:.1f} {top + _HEAT_STEP - 2:.1f}"
        return _path([cross], 'stroke="#999999" stroke-width="0.7" fill="none"')
    shade = sum(value >= edge for edge in HEAT_EDGES)
    field = (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(0.6, width - 0.6):.1f}" '
        f'height="{_HEAT_STEP - 1}" fill="{_HEAT_SHADES[shade]}"/>'
    )
    if not shade or width < _FIELD_ROOM:
        return field
    ink = f'style="fill: {_HEAT_INKS[shade]}"'
    return field + _text(left + width / 2, top + 9, f"{100 * value:+.1f}", more=ink)


def code(title: str, rows: Sequence[Sequence[bool]]) -> Markup:
    """A QR code of these fields, with the quiet zone that a camera needs."""
    size = len(rows) + 2 * _QUIET
    dark = [
        f"M{x + _QUIET} {y + _QUIET}h1v1h-1z"
        for y, row in enumerate(rows)
        for x, is_dark in enumerate(row)
        if is_dark
    ]
    return Markup(  # noqa: S704 - the title went through escape, the rest is numbers
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" width="96" '
        f'height="96" role="img" shape-rendering="crispEdges"><title>{escape(clean(title))}</title>'
        f'<rect width="{size}" height="{size}" fill="#ffffff"/>{_path(dark, _INK)}</svg>'
    )


def parts(title: str, pieces: Sequence[Part]) -> Markup:
    """One bar of parts side by side; in each stands as much of its label and share as has room."""
    body, left = [], float(_BAR_LEFT)
    shades = cycle(_SHADES)
    for piece in pieces:
        width = piece.share * (_WIDE - _BAR_LEFT)
        fill, ink = _DARK if piece.is_marked else (next(shades), "#111111")
        body.append(
            f'<rect x="{left:.1f}" y="{_BAR_TOP}" width="{width:.1f}" height="{_BAR_HEIGHT}" '
            f'fill="{fill}" stroke="#ffffff" stroke-width="0.8"/>'
        )
        body += _part_text(piece, left + width / 2, width, ink)
        left += width
    return _drawing(title, "".join(body), _BAR_HEIGHT + 2 * _BAR_TOP) if body else Markup()


def _part_text(piece: Part, middle: float, width: float, ink: str) -> Iterator[str]:
    """A label over its share, the label in two lines if need be, or the share alone."""
    share = f"{100 * piece.share:.0f} %"
    first, _, last = piece.label.rpartition(" ")
    for lines in ((piece.label, share), (first, last, share), (share,)):
        if max(map(len, lines)) * _LETTER <= width and all(lines):
            for place, line in enumerate(lines):
                y = _BAR_MIDDLE + _BAR_STEP * (place - (len(lines) - 1) / 2)
                yield _text(middle, y, line, more=f'style="fill: {ink}"')
            return


def _trace(one: Trace, top: float, begin: float, end: float) -> str:
    """One strip: its smallest and largest value at the left, its course as a line."""
    values = [value for _, value in one.points]
    low, high = min(values), max(values)
    foot, reach = top + _TRACE_HEIGHT - 8, _TRACE_HEIGHT - 22
    points = thinned(values, MOST_POINTS // 2)
    places = [
        f"{_LEFT + (one.points[place][0] - begin) / (end - begin) * (_WIDE - _LEFT):.1f} "
        f"{foot - (value - low) / ((high - low) or 1.0) * reach:.1f}"
        for place, value in points
    ]
    line = _path([f"M{'L'.join(places)}"], 'stroke="#3b4f6b" stroke-width="0.9" fill="none"')
    dots = _path(
        [f"M{place}h0" for place in places],
        'stroke="#111111" stroke-width="1.6" stroke-linecap="round" fill="none"',
    )
    edge = f'<path d="M{_LEFT} {foot}H{_WIDE}" stroke="#bbbbbb" stroke-width="0.6" fill="none"/>'
    ends = (
        _text(_LEFT - 6, foot + 3, figure(low), "end"),
        _text(_LEFT - 6, foot - reach + 3, figure(high), "end") if high > low else "",
    )
    return "".join((edge, line, dots, *ends, _text(_LEFT, top + 8, one.label, "start")))


def _drawing(title: str, body: str, height: int, width: int = WIDTH) -> Markup:
    return Markup(  # noqa: S704 - every text in it went through escape
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" {_FONT} '
        f'font-size="{_NARROW_FONT if width == NARROW else _WIDE_FONT}">'
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
    """Round numbers inside the axis, about four of them and two at least."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    steps = [power * factor for factor in (10, 5, 2, 1, 0.5)]
    wanted = [step for step in steps if step >= rough]
    for step in (*wanted[::-1][:1], *(step for step in steps if step < rough)):
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first >= 1:
            break
    return tuple(number * step for number in range(first, last + 1))


def _labelled(ticks: Sequence[float]) -> list[tuple[float, str]]:
    """Each tick with its number, written to the places that tell them apart."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    places = max(0, -math.floor(math.log10(step)))
    return [(tick, f"{tick:.{places}f}") for tick in ticks]


def _grid(axis: _Axis) -> str:
    lines = "".join(f"M{_LEFT} {axis.y(tick):.1f}H{_RIGHT}" for tick in axis.ticks)
    unit, per_ms = ("s", 1e-3) if axis.high >= _MANY_MS else ("ms", 1.0)
    written = _labelled([tick * per_ms for tick in axis.ticks])
    labels = "".join(
        _text(_LEFT - 6, axis.y(tick) + 3, label, "end")
        for tick, (_, label) in zip(axis.ticks, written, strict=True)
    )
    middle = (_TOP + axis.bottom) / 2
    turned = f'transform="rotate(-90 11 {middle:.0f})"'
    name = _text(11, middle, f"step time, {unit}", "middle", turned)
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
    begin, end = left + 0.1 * width, left + 0.9 * width
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
    """A launch that has not completed: a crossed field with its outcome and its reason in it."""
    x, y = left + width / 2 + 3, (_TOP + _BOTTOM) / 2
    cross = f"M{left + 4:.1f} {_TOP + 4}L{left + width - 4:.1f} {_BOTTOM - 4}"
    cross += f"M{left + width - 4:.1f} {_TOP + 4}L{left + 4:.1f} {_BOTTOM - 4}"
    lines = [
        words if len(words) <= _NOTE_LETTERS else f"{words[: _NOTE_LETTERS - 1]}…"
        for words in note.split(": ", 1)
    ][: 2 if width > 2 * _NOTE_STEP else 1]
    plate = (
        f'<rect x="{x - 12:.1f}" y="{_TOP + 4}" width="{_NOTE_STEP * len(lines) + 4}" '
        f'height="{_BOTTOM - _TOP - 8}" fill="#ffffff"/>'
    )
    written = ""
    for number, words in enumerate(lines):
        place = x + number * _NOTE_STEP
        turned = f'transform="rotate(-90 {place:.1f} {y:.0f})" font-weight="bold"'
        written += _text(place, y, words, "middle", turned)
    return _path([cross], 'stroke="#999999" stroke-width="0.8" fill="none"') + plate + written


def _frame(axis: _Axis, name: str, height: int) -> str:
    edges = f"M{_LEFT} {_TOP}V{axis.bottom}H{_RIGHT}"
    words = _text((_LEFT + _RIGHT) / 2, height - 3, name)
    return f'<path d="{edges}" stroke="#333333" stroke-width="0.9" fill="none"/>{words}'


def _path(pieces: Sequence[str], style: str) -> str:
    return f'<path d="{"".join(pieces)}" {style}/>' if pieces else ""


def _text(x: float, y: float, words: str, anchor: str = "middle", more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222222" {more}>'
        f"{escape(clean(words))}</text>"
    )
