"""A comparison of bundles to what its page says: strings and two drawings, from its record alone.

The first drawing is what a reader looks for: every case's ratio with its interval beside the
margin. The second is the performance profile. Both carry letters and shapes and no meaning in
colour alone, because these pages are copied in grey.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from appliance.comparison.case_pairs import ComparedBundle, RulingChange, Sameness, Topic
from appliance.comparison.compare_runs import (
    CaseComparison,
    CheckPair,
    Comparison,
    Drift,
    Profile,
    Timing,
    Word,
    has_failed_since,
)
from appliance.records.verdict import RulingWord
from reports import words
from reports.model import Grid, cleaned
from reports.words import clean, count

WORDS: dict[Word, str] = {"within": "WITHIN", "beyond": "BEYOND", "open": "OPEN"}
SHAPES: dict[Word, str] = {"within": "✓ within", "beyond": "✗ BEYOND", "open": "◆ open"}
SAMENESS: dict[Sameness, str] = {
    "same": "the reference's own",
    "other": "others than the reference's",
    "unknown": "whether the reference's is not known: neither devices nor system have a serial",
}
TOPICS: dict[Topic, str] = {
    "plan": "What was run",
    "device": "Devices",
    "firmware": "Firmware and drivers",
    "software": "Software",
    "host": "Host",
}
NONE = "–"  # noqa: RUF001 - a dash in a table
PERCENT_DIGITS = 2
MANY_FOLD = 2.0  # a check whose error grew or shrank less than this is as it was
NEGLIGIBLE = 0.01  # of the bound: errors below are noise of the arithmetic
MOST_CASES = 60  # lines of one drawing

WIDTH = 660
_LEFT, _RIGHT = 170, 560
_LINE, _HEAD, _FOOT = 15, 18, 34
_FONT = 'font-family="DejaVu Sans, sans-serif"'
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "1 4")

_Place = Callable[[float], float]  # a value to a place on an axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """One bundle against the reference: its cases, its drawing, and what else is another."""

    label: str
    title: str
    drift: str
    cases: Grid
    ratios: Markup
    checks: Grid | None
    rulings: Grid | None
    refused: Grid | None
    differences: tuple[Grid, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The whole page, ready to be laid out."""

    word: Word
    title: str
    summary: str
    generator: str
    bundles: Grid
    development: str
    against: tuple[Against, ...]
    profile: Markup
    scores: Grid
    model: Grid | None
    model_note: str
    method: tuple[str, ...]


def page(comparison: Comparison) -> Page:
    """All that the page says of a comparison."""
    others = comparison.bundles[1:]
    return cleaned(
        Page(
            word=comparison.word,
            title=WORDS[comparison.word],
            summary=comparison.summary,
            generator=f"bench {comparison.bench_version}",
            bundles=_bundles(comparison.bundles),
            development=_development(comparison.bundles),
            against=tuple(_against(comparison, bundle) for bundle in others),
            profile=_profile_drawing(comparison.profiles),
            scores=_scores(comparison.profiles),
            model=_model(comparison),
            model_note=_model_note(comparison),
            method=_method(comparison),
        )
    )


# ------------------------------------------------------------------ the bundles


def _bundles(bundles: Sequence[ComparedBundle]) -> Grid:
    return Grid(
        columns=("", "Run", "Planned", "Suite, criteria", "Signed by", "Verdict", "Devices"),
        rows=tuple(
            (
                bundle.label,
                f"{bundle.run_id} ({bundle.path})",
                words.utc(bundle.created_utc),
                f"{bundle.suite}, version {bundle.suite_version}; {bundle.criteria}",
                f"{bundle.signer} ({bundle.role})",
                bundle.verdict,
                _devices(bundle),
            )
            for bundle in bundles
        ),
        notes=tuple(
            f"{bundle.label}: the statement's sha256 is {bundle.statement_sha256}"
            for bundle in bundles
        ),
    )


def _devices(bundle: ComparedBundle) -> str:
    models = [device.model for device in bundle.devices]
    listed = ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models))
    return f"{listed}: {SAMENESS[bundle.sameness]}" if bundle.label != "A" else listed


def _development(bundles: Sequence[ComparedBundle]) -> str:
    labels = [bundle.label for bundle in bundles if bundle.is_development]
    if not labels:
        return ""
    return f"DEVELOPMENT KEY on {', '.join(labels)}: proves nothing about who signed"


# ------------------------------------------------------------------ one against the reference


def _against(comparison: Comparison, bundle: ComparedBundle) -> Against:
    own = [item for item in comparison.cases if item.label == bundle.label]
    timed = [(item, item.timing) for item in own if item.timing is not None]
    drift = next((item for item in comparison.drifts if item.label == bundle.label), None)
    return Against(
        label=bundle.label,
        title=f"{bundle.label} against {comparison.bundles[0].label}",
        drift=_drift(drift),
        cases=_cases(bundle.label, own),
        ratios=_ratio_drawing(bundle.label, timed, comparison.margin),
        checks=_checks([(item.case, pair) for item in own for pair in item.checks], bundle.label),
        rulings=_rulings([item for item in comparison.rulings if item.label == bundle.label]),
        refused=_refused(comparison, bundle.label),
        differences=_differences(comparison, bundle.label),
    )


def _drift(drift: Drift | None) -> str:
    if drift is None:
        return "No case allows a test, so nothing is said of all together."
    what = "All cases together"
    if drift.is_same_device:
        days = "" if math.isnan(drift.days) else f" over {words.figure(abs(drift.days), 3)} days"
        what = f"Drift of the same devices{days}"
    interval = f"{_percent(drift.low)} to {_percent(drift.high)}"
    cases = count(drift.num_cases, "case")
    level = f"{drift.confidence * 100:g} %"
    return (
        f"{what}: step time {_percent(drift.ratio)} ({level}: {interval}; {cases}). "
        f"{SHAPES[drift.word]}: {drift.explanation}."
    )


def _percent(ratio: float) -> str:
    """1.021 as "+2.10 %": longer step times are positive."""
    return f"{(ratio - 1) * 100:+.{PERCENT_DIGITS}f} %"


def _cases(label: str, cases: Sequence[CaseComparison]) -> Grid:
    return Grid(
        columns=(
            "Case",
            "A",
            label,
            "Step time",
            "95 % interval",
            "P(A faster)",
            "Launches",
            "Ruling",
            "Worst check of bound",
        ),
        rows=tuple(_case_row(item) for item in cases),
        notes=(
            "P(A faster) is the probability that a launch of A is the faster one: 0.5 is alike.",
            *(
                f"{item.case}: {item.timing.explanation}."
                for item in cases
                if item.timing is not None and item.timing.word != "within"
            ),
            *(f"{item.case}: {item.bits_note}." for item in cases if item.same_bits is False),
        ),
    )


def _case_row(item: CaseComparison) -> tuple[str, ...]:
    checks = f"{_worst([pair.reference for pair in item.checks])} → " + _worst(
        [pair.other for pair in item.checks]
    )
    timing = item.timing
    if timing is None:
        return (item.case, *[NONE] * 7, checks)
    return (
        item.case,
        words.duration(timing.reference_seconds),
        words.duration(timing.seconds),
        _percent(timing.ratio),
        _interval(timing),
        _faster(timing),
        f"{timing.reference_launches}, {timing.launches}",
        SHAPES[timing.word],
        checks,
    )


def _interval(timing: Timing) -> str:
    if timing.low is None or timing.high is None:
        return "too few launches"
    return f"{_percent(timing.low)} to {_percent(timing.high)}"


def _faster(timing: Timing) -> str:
    low, high = timing.reference_faster_low, timing.reference_faster_high
    interval = "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
    return f"{timing.reference_faster:.2f}{interval}"


def _worst(parts: Sequence[float | None]) -> str:
    known = [part for part in parts if part is not None]
    return _part(max(known, key=_badness)) if known else "none"


def _badness(part: float) -> float:
    return math.inf if math.isnan(part) else part


def _part(part: float) -> str:
    return f"{part:.2f}" if math.isfinite(part) else words.figure(part)


def _checks(pairs: Sequence[tuple[str, CheckPair]], label: str) -> Grid | None:
    """Checks that came to another side of their bound, or whose error is another altogether."""
    shown = [(case, pair) for case, pair in pairs if _has_changed(pair)]
    if not shown:
        return None
    return Grid(
        columns=("Case", "Check", "Output", "A, of the bound", f"{label}, of the bound"),
        rows=tuple(
            (
                case,
                pair.name,
                pair.phase,
                _check_words(pair.reference, is_within=pair.is_reference_within),
                _check_words(pair.other, is_within=pair.is_other_within),
            )
            for case, pair in shown
        ),
    )


def _has_changed(pair: CheckPair) -> bool:
    if pair.is_reference_within is not pair.is_other_within:
        return True
    first, second = pair.reference, pair.other
    if first is None or second is None:
        return first is not second
    small, large = sorted((first, second))
    return large > NEGLIGIBLE and not large <= MANY_FOLD * small


def _check_words(part: float | None, *, is_within: bool | None) -> str:
    if part is None:
        return "not made"
    return _part(part) if is_within else f"✗ {_part(part)}"


def _rulings(changes: Sequence[RulingChange]) -> Grid | None:
    if not changes:
        return None
    ordered = sorted(
        changes, key=lambda change: (not has_failed_since(change), not change.required)
    )
    return Grid(
        columns=("Requirement", "Case", "A", ordered[0].label),
        rows=tuple(
            (
                change.criterion + ("" if change.required else " (informative)"),
                change.case or "the node",
                _ruling(change.reference, change.reference_reason),
                _ruling(change.other, change.other_reason),
            )
            for change in ordered
        ),
    )


def _ruling(word: RulingWord | None, reason: str) -> str:
    if word is None:
        return "not ruled"
    return words.RULINGS[word] + (f" ({reason.replace('_', ' ')})" if reason else "")


def _refused(comparison: Comparison, label: str) -> Grid | None:
    shown = [item for item in comparison.refused if item.label == label]
    if not shown:
        return None
    return Grid(columns=("Case", "Why"), rows=tuple((item.case, item.reason) for item in shown))


def _differences(comparison: Comparison, label: str) -> tuple[Grid, ...]:
    own = [item for item in comparison.differences if item.label == label]
    return tuple(
        Grid(
            columns=(title,),
            rows=tuple((item.sentence,) for item in own if item.topic == topic),
        )
        for topic, title in TOPICS.items()
        if any(item.topic == topic for item in own)
    )


# ------------------------------------------------------------------ all together


def _scores(profiles: Sequence[Profile]) -> Grid:
    return Grid(
        columns=("", "Score", "Cases", "No slower than A", "Not reached"),
        rows=tuple(
            (
                profile.label,
                words.figure(profile.score),
                str(profile.num_cases),
                _share(profile.shares[:1]),
                _share(tuple(1 - share for share in profile.shares[-1:])),
            )
            for profile in profiles
        ),
        notes=(
            (
                "The score is the area below the line, from 1 to its end: 1 is never slower than "
                "A. It is reported and gates nothing."
            ),
        ),
    )


def _share(shares: Sequence[float]) -> str:
    return f"{shares[0] * 100:.0f} %" if shares else NONE


def _model(comparison: Comparison) -> Grid | None:
    model = comparison.model
    if model is None:
        return None
    return Grid(
        columns=("Device", "Step time against the mean of all"),
        rows=tuple((item.device, _percent(1 + item.effect)) for item in model.effects),
        notes=(
            (
                f"{count(model.num_launches, 'launch', 'launches')}, "
                f"{count(model.num_devices, 'device')}, {count(model.num_workloads, 'workload')}. "
                f"Spread between devices {_spread(model.device_sd)}, of a device between workloads "
                f"{_spread(model.interaction_sd)}, between launches {_spread(model.launch_sd)}."
            ),
            "Effects are shrunk towards the mean, the more so the less is known of a device.",
        ),
    )


def _model_note(comparison: Comparison) -> str:
    if comparison.model is None:
        return f"Left out: {comparison.model_left_out}."
    return comparison.model.note


def _spread(sd: float) -> str:
    return f"{sd * 100:.2f} %"


def _method(comparison: Comparison) -> tuple[str, ...]:
    margin = f"{comparison.margin * 100:g} %"
    units = (
        "Launches are the units, and their geometric means are compared. The interval is Welch's, "
        "on the logarithm of step time; of P(A faster) it is that of Brunner and Munzel."
    )
    tests = (
        f"Within: two one-sided tests show a difference below {margin}, each at a risk of "
        f"{comparison.risk_within * 100:g} %, with a launch spread of at least a third of the "
        "margin. "
        f"Beyond: a test shows more than {margin}, slower or faster; all tests of this page share "
        f"a risk of {comparison.risk_beyond * 100:g} %. Open: the launches show neither, so more "
        "of them are needed."
    )
    cases = (
        "Compared are cases of the same workload, version, parameters and way of launching. Every "
        "bundle was verified first, and its verdict derived again."
    )
    return units, tests, cases


# ------------------------------------------------------------------ drawings


def _ratio_drawing(
    label: str, timed: Sequence[tuple[CaseComparison, Timing]], margin: float
) -> Markup:
    """Each case's step time against A's in percent, with its interval beside the margin."""
    shown = timed[:MOST_CASES]
    ends = [
        (bound - 1) * 100
        for _, timing in shown
        for bound in (timing.ratio, timing.low, timing.high)
        if bound is not None and math.isfinite(bound)
    ]
    reach = min(50.0, max([margin * 150, *map(abs, ends)]) * 1.08)
    bottom = _HEAD + _LINE * len(shown)

    def x(percent: float) -> float:
        held = min(max(percent, -reach), reach)
        return (_LEFT + _RIGHT) / 2 + held / reach * (_RIGHT - _LEFT) / 2

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
        parts.append(_ratio_line(item, timing, x, _HEAD + _LINE * (number + 0.5)))
    step = _tick(reach)
    for number in range(-math.floor(reach / step), math.floor(reach / step) + 1):
        tick = number * step
        parts.append(_text(x(tick), bottom + 12, f"{tick:+g}" if number else "0", "middle"))
    parts.append(
        _text(x(0), bottom + 26, f"step time of {label} against A, percent", "middle"),
    )
    parts.append(_text(x(-reach), _HEAD - 6, "← faster", "start"))
    parts.append(_text(x(reach), _HEAD - 6, "slower →", "end"))
    rest = len(timed) - len(shown)
    if rest:
        parts.append(_text(_LEFT, _HEAD - 6, f"{rest} more in the table", "end"))
    return _svg(f"Step times of {label} against A", parts, bottom + _FOOT)


def _ratio_line(item: CaseComparison, timing: Timing, x: _Place, y: float) -> str:
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
    parts.append(_text(_RIGHT + 8, y + 3, SHAPES[timing.word], "start"))
    return "".join(parts)


def _shortened(name: str, longest: int = 30) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _profile_drawing(profiles: Sequence[Profile]) -> Markup:
    """Share of cases that take at most so many times A's time, a line for each bundle."""
    top, bottom, left, right = 16, 176, 58, 590
    longest = max((profile.longest_ratio for profile in profiles), default=1.2)

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
    drawn = [profile for profile in profiles if profile.num_cases]
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
