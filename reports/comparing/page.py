"""A comparison of bundles to what its page says: strings and two drawings, from its record alone.

The first drawing is what a reader looks for: every case's ratio with its interval beside the
margin. The second is the performance profile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

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
    headline,
)
from appliance.records.verdict import RulingWord
from reports import words
from reports.comparing import drawings
from reports.model import Grid, cleaned
from reports.words import count

SHAPES: dict[Word, str] = {"within": "✓ no change", "beyond": "✗ changed", "open": "◆ undecided"}
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
            title=headline(comparison),
            summary=comparison.summary,
            generator=f"bench {comparison.bench_version}",
            bundles=_bundles(comparison.bundles),
            development=_development(comparison.bundles),
            against=tuple(_against(comparison, bundle) for bundle in others),
            profile=drawings.profiles(comparison.profiles),
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
        ratios=drawings.ratios(bundle.label, timed, comparison.margin),
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
            *_explanations(cases),
            *(f"{item.case}: {item.bits_note}." for item in cases if item.same_bits is False),
        ),
    )


def _explanations(cases: Sequence[CaseComparison]) -> Iterable[str]:
    """Why a case is not within the margin; once where it is the same of several."""
    alike: dict[str, list[str]] = {}
    for item in cases:
        if item.timing is not None and item.timing.word != "within":
            alike.setdefault(item.timing.explanation, []).append(item.case)
    return (f"{words.cases(names)}: {why}." for why, names in alike.items())


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
        drawings.shape(timing),
        checks,
    )


def _interval(timing: Timing) -> str:
    if timing.low is None or timing.high is None:
        return "too few"
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
        f"No change: two one-sided tests show a difference below {margin}, each at a risk of "
        f"{comparison.risk_within * 100:g} %, with a launch spread of at least a third of the "
        "margin. "
        f"Slower or faster: a test shows more than {margin}; all tests of this page share "
        f"a risk of {comparison.risk_beyond * 100:g} %. Undecided: the launches show neither, so "
        "more of them are needed."
    )
    cases = (
        "Compared are cases of the same workload, version, parameters and way of launching. Every "
        "bundle was verified first, and its verdict derived again."
    )
    return units, tests, cases
