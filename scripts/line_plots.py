"""Lines over a number, as SVG text for documents; no plotting library, the same bytes each time.

Dashes and the shape of the points tell the lines apart, never colour alone, because documents are
copied in grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 660, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 500, 14, 258
_FONT = 'font-family="DejaVu Sans, sans-serif" font-size="11" fill="#222222"'
_INKS = ("#111111", "#3c5a86", "#8a4b2a", "#5d7d4a", "#777777")
_DASHES = ("", "7 3", "2 3", "9 3 2 3")
_ROOM = 9  # between lines of the legend's text and its sample
_SIZE = 3.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line; `look` chooses its colour and point, `dash` its dashes."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    look: int
    dash: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    label: str
    ticks: tuple[float, ...]

    def place(self, value: float, begin: float, end: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        return begin + (end - begin) * (min(max(value, low), high) - low) / (high - low)


def drawn(title: str, across: Axis, up: Axis, lines: Sequence[Line]) -> str:
    """The whole SVG; axes reach from their first tick to their last."""
    parts = [_grid(across, up)]
    for row, line in enumerate(lines):
        ink, dash = _INKS[line.look % len(_INKS)], _DASHES[line.dash % len(_DASHES)]
        style = f'stroke="{ink}" stroke-width="1.5" fill="none" stroke-dasharray="{dash}"'
        points = [
            (across.place(x, _LEFT, _RIGHT), up.place(y, _BOTTOM, _TOP))
            for x, y in zip(line.x, line.y, strict=True)
        ]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        middle = _TOP + 10 + 17 * row
        sample = [(_RIGHT + 26.0, float(middle))]
        parts += [
            f'<path d="{path}" {style}/>',
            f'<path d="M{_RIGHT + 12} {middle}h28" {style}/>',
            *(_point(x, y, line.look, ink) for x, y in (*points, *sample)),
            _text(_RIGHT + 40 + _ROOM, middle + 4, line.label, "start"),
        ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img"><title>{escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def _grid(across: Axis, up: Axis) -> str:
    columns = [(across.place(tick, _LEFT, _RIGHT), tick) for tick in across.ticks]
    rows = [(up.place(tick, _BOTTOM, _TOP), tick) for tick in up.ticks]
    lines = "".join(f"M{_LEFT} {y:.1f}H{_RIGHT}" for y, _ in rows)
    lines += "".join(f"M{x:.1f} {_TOP}V{_BOTTOM}" for x, _ in columns)
    middle = (_TOP + _BOTTOM) / 2
    return "".join(
        (
            f'<path d="{lines}" stroke="#dddddd" stroke-width="0.8" fill="none"/>',
            f'<path d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}" stroke="#333333" fill="none"/>',
            *(_text(x, _BOTTOM + 15, f"{tick:g}", "middle") for x, tick in columns),
            *(_text(_LEFT - 6, y + 4, f"{tick:g}", "end") for y, tick in rows),
            _text((_LEFT + _RIGHT) / 2, HEIGHT - 8, across.label, "middle"),
            _text(14, middle, up.label, "middle", f' transform="rotate(-90 14 {middle:.0f})"'),
        )
    )


def _point(x: float, y: float, look: int, ink: str) -> str:
    size = _SIZE
    half = f"a{size} {size} 0 1 0"
    shapes = (
        f"M{x - size:.1f} {y:.1f}{half} {2 * size} 0{half} {-2 * size} 0z",
        f"M{x - size:.1f} {y - size:.1f}h{2 * size}v{2 * size}h{-2 * size}z",
        f"M{x:.1f} {y - size:.1f}l{size} {2 * size}h{-2 * size}z",
        f"M{x:.1f} {y - size:.1f}l{size} {size}l{-size} {size}l{-size} {-size}z",
    )
    return f'<path d="{shapes[look % len(shapes)]}" fill="{ink}"/>'


def _text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {_FONT}{more}>{escape(words)}</text>'
    )
