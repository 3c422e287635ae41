"""Two or more verified bundles, side by side: numbers only, from their files and nothing else.

The first bundle is the reference; every other one is compared with it, case by case. Launches
are the units. A case is "within" where two one-sided tests show that its step times differ by
less than the margin, "beyond" where a test shows that they differ by more, and "open" where the
launches show neither: no difference found is never the same as none there. Everything that the
page and the JSON document say stands in one record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from appliance.comparison.case_pairs import (
    Bits,
    ComparedBundle,
    Difference,
    Pair,
    RefusedCase,
    RulingChange,
    Side,
    answers,
    bits_of,
    check_sides,
    common_clock,
    compared_bundles,
    differences,
    launch_times,
    paired_devices,
    pairs_of,
    ruling_changes,
)
from appliance.comparison.mixed_model import (
    FLOOR,
    Contrast,
    TimedLaunch,
    contrast,
    mixed_model,
    order,
    pooled,
    profile,
)
from appliance.errors import UsageError
from appliance.evidence.baseline_key import device_name, suite_id
from appliance.evidence.disturbance import disturbance
from appliance.records.journal import Phase
from appliance.records.json import Number, Record
from appliance.records.plan import Case
from appliance.records.verdict import CaseResult, CheckResult, Clock
from appliance.statistics.estimates import CONFIDENCE, LEAST_LAUNCHES

MARGIN = 0.03
RISK_WITHIN = 0.01
"""Risk that a case at the margin is called within; each case may take it, for all must pass."""
RISK_BEYOND = 0.01
"""Risk that anything is called beyond where nothing is; all tests of a comparison share it."""
LONGEST_RATIO = 1.2
"""Where performance profiles end: nodes that are to be alike differ by less."""
LEAST_DEVICES, LEAST_WORKLOADS = 3, 2

Word = Literal["within", "beyond", "open"]


# ------------------------------------------------------------------ the document


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing(Record):
    """Step times of one case in two bundles; `ratio` above 1 is slower than the reference.

    `ratio` is of geometric means over launches, its interval Welch's t on ln(seconds); None with
    fewer than five launches on a side. `reference_faster` is the probability that a launch of the
    reference is the faster one, ties halved. The risks are one-sided p-values: of "within" the
    larger of two, taken with a launch spread of at least a third of the margin.
    """

    reference_seconds: Number
    seconds: Number
    reference_launches: int
    launches: int
    ratio: Number
    low: Number | None
    high: Number | None
    confidence: Number
    reference_faster: Number
    reference_faster_low: Number | None
    reference_faster_high: Number | None
    reference_faster_method: str
    risk_within: Number | None
    risk_slower: Number | None
    risk_faster: Number | None
    word: Word
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPair(Record):
    """The worst comparison of one check in both bundles, as error over bound; None: not made."""

    name: str
    phase: Phase
    reference: Number | None
    other: Number | None
    is_reference_within: bool | None
    is_other_within: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseComparison(Record):
    """One case in the reference and in the bundle `label`; `timing` None for an untimed case.

    `same_bits` says whether both gave the same first output from the same inputs; None where they
    need not, as `bits_note` says.
    """

    label: str
    case: str
    other_case: str
    timing: Timing | None
    checks: tuple[CheckPair, ...]
    same_bits: bool | None
    bits_note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift(Record):
    """All compared cases of a bundle together: weighted geometric mean of their ratios.

    Interval by Satterthwaite's t. `is_same_device` says whether it is a drift of the same devices
    over `days`; otherwise it is a difference between devices.
    """

    label: str
    num_cases: int
    ratio: Number
    low: Number
    high: Number
    confidence: Number
    is_same_device: bool
    days: Number
    word: Word
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Record):
    """Performance profile of one bundle against the reference.

    `shares[i]` of `num_cases` timed cases take at most `ratios[i]` times the reference's time;
    between two ratios the share is that of the lower. A case without a time never counts as
    reached. `score` is the area below, from 1 to `longest_ratio`, divided by that width.
    """

    label: str
    num_cases: int
    ratios: tuple[Number, ...]
    shares: tuple[Number, ...]
    longest_ratio: Number
    score: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEffect(Record):
    """What the mixed model makes of a device: relative step time, shrunk towards the others."""

    device: str
    effect: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedModel(Record):
    """ln(step time) with fixed workloads, random devices and random device x workload.

    Spreads are standard deviations of ln(seconds). `note` says where the fit did not converge or
    lies on a bound.
    """

    num_launches: int
    num_devices: int
    num_workloads: int
    device_sd: Number
    interaction_sd: Number
    launch_sd: Number
    effects: tuple[DeviceEffect, ...]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Record):
    """comparison.json: what two or more runs have in common and where they differ.

    `word` is "beyond" if any case, drift or ruling is, "within" if every comparable case is, else
    "open"; other bits from the same inputs leave it open too. `model` None comes with
    `model_left_out`, which says why.
    """

    schema: Literal["bench/comparison/1"] = "bench/comparison/1"
    bench_version: str
    margin: Number
    risk_within: Number
    risk_beyond: Number
    word: Word
    summary: str
    bundles: tuple[ComparedBundle, ...]
    cases: tuple[CaseComparison, ...]
    refused: tuple[RefusedCase, ...]
    rulings: tuple[RulingChange, ...]
    drifts: tuple[Drift, ...]
    profiles: tuple[Profile, ...]
    model: MixedModel | None
    model_left_out: str
    differences: tuple[Difference, ...]


# ------------------------------------------------------------------ the comparison


@dataclass(frozen=True, kw_only=True)
class _Limits:
    """What every test of this comparison is made at; `risk_beyond` of one test, one direction."""

    margin: float
    risk_beyond: float

    @property
    def log_margin(self) -> float:
        return math.log1p(self.margin)


@dataclass(frozen=True, kw_only=True)
class _Matched:
    """The reference and the other sides, with what of them is compared, by the side's label.

    `devices` gives each device's counterpart of the reference; `refused` are the cases of all.
    """

    reference: Side
    others: Sequence[Side]
    devices: Mapping[str, Mapping[str, str]]
    pairs: Mapping[str, Sequence[Pair]]
    refused: tuple[RefusedCase, ...]


def check_margin(margin: float) -> None:
    """UsageError for a margin that is none."""
    if not 0 < margin < 1:
        raise UsageError(f"--margin {margin:g} is no margin: give a part of 1, like 0.03 for 3 %")


def compare(sides: Sequence[Side], *, margin: float, bench_version: str) -> Comparison:
    """Compare every side with the first. `margin` is relative: 0.03 for three percent.

    Raises UsageError if there are fewer than two, if one injects faults or repeats a dispute, if
    no case is common, or if the margin is none.
    """
    check_margin(margin)
    check_sides(sides)
    matched = _matched(sides[0], sides[1:])
    if not any(matched.pairs.values()):
        raise UsageError(_nothing_common(matched.refused))
    num_tests = max(1, _num_tests(matched.pairs, margin))
    limits = _Limits(margin=margin, risk_beyond=RISK_BEYOND / num_tests)
    comparison = _compared(matched, limits, bench_version)
    summary = _summary(comparison) + _not_alone(sides)
    return replace(comparison, word=_word(comparison), summary=summary)


def _not_alone(sides: Sequence[Side]) -> str:
    """Of whose times others had a share, with the figures of the first case that shows it."""
    clauses = {side.label: clause for side in sides if (clause := _disturbed(side))}
    if not clauses:
        return ""
    those = "; ".join(f"{label}: {clause}" for label, clause in clauses.items())
    return f" Not alone, so that a difference may be that of other load ({those})."


def _disturbed(side: Side) -> str:
    clauses = (disturbance(one, side.bundle.system) for one in side.evidence.values())
    return next(filter(None, clauses), "")


def _matched(reference: Side, others: Sequence[Side]) -> _Matched:
    devices = {side.label: paired_devices(reference, side) for side in others}
    pairs: dict[str, list[Pair]] = {}
    refused: list[RefusedCase] = []
    for side in others:
        pairs[side.label], left_out = pairs_of(reference, side, devices[side.label])
        refused += left_out
    return _Matched(
        reference=reference, others=others, devices=devices, pairs=pairs, refused=tuple(refused)
    )


def _compared(matched: _Matched, limits: _Limits, bench_version: str) -> Comparison:
    """Everything but `word` and `summary`, which follow from the rest."""
    reference, others, pairs = matched.reference, matched.others, matched.pairs
    bundles = compared_bundles(reference, others, matched.devices)
    cases = tuple(_case_comparisons(matched, limits))
    drifts = (_drift(bundle, pairs[bundle.label], limits) for bundle in bundles[1:])
    model, left_out = _model(reference, others, pairs)
    return Comparison(
        bench_version=bench_version,
        margin=limits.margin,
        risk_within=RISK_WITHIN,
        risk_beyond=RISK_BEYOND,
        word="open",
        summary="",
        bundles=bundles,
        cases=cases,
        refused=matched.refused,
        rulings=tuple(
            change
            for side in others
            for change in ruling_changes(reference, side, pairs[side.label])
        ),
        drifts=tuple(drift for drift in drifts if drift is not None),
        profiles=tuple(_profile(side.label, cases, matched.refused) for side in others),
        model=model,
        model_left_out=left_out,
        differences=tuple(
            difference
            for side in others
            for difference in differences(reference, side, matched.devices[side.label])
        ),
    )


def _case_comparisons(matched: _Matched, limits: _Limits) -> Iterator[CaseComparison]:
    reference = matched.reference
    own = answers(reference)
    for side in matched.others:
        digests = answers(side)
        for pair in matched.pairs[side.label]:
            bits = bits_of(reference, side, pair, own, digests)
            yield _case_comparison(side.label, pair, limits, bits)


def label_of(number: int) -> str:
    """A, B, C, ... and after Z: A2, B2, ..."""
    round_number, letter = divmod(number, 26)
    return chr(ord("A") + letter) + (str(round_number + 1) if round_number else "")


def _nothing_common(refused: Sequence[RefusedCase]) -> str:
    why = f": {refused[0].case}: {refused[0].reason}" if refused else ""
    return f"the bundles have no case in common that can be compared{why}"


def _contrast(pair: Pair, margin: float) -> Contrast | None:
    """What tests of this case rest on; None where its times allow none."""
    if not pair.is_timed:
        return None
    ours, theirs = _times(pair)
    return contrast(ours, theirs, floor=FLOOR * math.log1p(margin))


def _times(pair: Pair) -> tuple[list[float], list[float]]:
    """ln(seconds) of the launches of both, by the clock that both can be judged by."""
    results = (pair.reference_result, pair.other_result)
    clock = common_clock(results)
    return launch_times(results[0], clock), launch_times(results[1], clock)


def _num_tests(pairs: Mapping[str, Sequence[Pair]], margin: float) -> int:
    """Tests that may each call something beyond by chance: both directions of cases and drifts."""
    of_each = [
        sum(_contrast(pair, margin) is not None for pair in of_side) for of_side in pairs.values()
    ]
    return 2 * sum(number + (number > 0) for number in of_each)


# ------------------------------------------------------------------ one case


def _case_comparison(label: str, pair: Pair, limits: _Limits, bits: Bits) -> CaseComparison:
    return CaseComparison(
        label=label,
        case=pair.reference.id,
        other_case=pair.other.id,
        timing=_timing(label, pair, limits) if pair.is_timed else None,
        checks=tuple(_check_pairs(pair)),
        same_bits=bits.are_same,
        bits_note=bits.note,
    )


def _timing(label: str, pair: Pair, limits: _Limits) -> Timing:
    first, second = _times(pair)
    means = [math.fsum(values) / len(values) for values in (first, second)]
    ordered, difference = order(first, second), _contrast(pair, limits.margin)
    ratio = math.exp(means[1] - means[0])
    low, high = (None, None) if difference is None else map(math.exp, difference.interval())
    risks = (None, None, None) if difference is None else difference.risks(limits.log_margin)
    word = _ruled(difference, limits)
    return Timing(
        reference_seconds=math.exp(means[0]),
        seconds=math.exp(means[1]),
        reference_launches=len(first),
        launches=len(second),
        ratio=ratio,
        low=low,
        high=high,
        confidence=CONFIDENCE,
        reference_faster=ordered.probability,
        reference_faster_low=ordered.low,
        reference_faster_high=ordered.high,
        reference_faster_method=ordered.method,
        risk_within=risks[0],
        risk_slower=risks[1],
        risk_faster=risks[2],
        word=word,
        explanation=(
            _explained(difference, word, ratio, limits)
            if difference is not None
            else _untested(len(first), len(second))
        )
        + _clock_words(label, pair),
    )


def _clock_words(label: str, pair: Pair) -> str:
    """That the times are not those of one report, where one side alone is judged by the wall."""
    clocks = (pair.reference_result.clocks, pair.other_result.clocks)
    ours, theirs = ("wall" if one is not None and one.judged == "wall" else "" for one in clocks)
    if ours == theirs:
        return ""
    by_wall, by_steps = (label_of(0), label) if ours else (label, label_of(0))
    return (
        f"; both times are wall times of blocks, since {by_wall} is judged by those, and not the "
        f"step times that {by_steps} reports"
    )


def _ruled(difference: Contrast | None, limits: _Limits) -> Word:
    if difference is None:
        return "open"
    within, slower, faster = difference.risks(limits.log_margin)
    if within <= RISK_WITHIN:
        return "within"
    return "beyond" if min(slower, faster) <= limits.risk_beyond else "open"


def _explained(difference: Contrast, word: Word, ratio: float, limits: _Limits) -> str:
    speed, margin = _percent_words(ratio), f"{limits.margin * 100:g} %"
    if word != "open":
        return f"{speed}, {word} {margin}"
    low, high = difference.interval()
    interval = f"{_percent_words(math.exp(low))} to {_percent_words(math.exp(high))}"
    if max(abs(low), abs(high)) < limits.log_margin:
        why = f"inside {margin}, but so few launches may have missed a slow mode"
    elif low > limits.log_margin or high < -limits.log_margin:
        why = f"beyond {margin} by itself, but not at the risk that all tests share"
    else:
        why = f"neither within nor beyond {margin} is shown"
    return f"{speed}, by its launches {interval}: {why}"


def _untested(first: int, second: int) -> str:
    if min(first, second) < LEAST_LAUNCHES:
        return f"{first} and {second} launches, and at least {LEAST_LAUNCHES} on each side tell"
    return "all launches of one side took the same time to the last digit, as no clock gives"


def _percent_words(ratio: float) -> str:
    """1.021 as "2.1 % slower"."""
    part = (ratio - 1) * 100
    if abs(part) < 0.005:  # noqa: PLR2004 - what two digits show as nothing
        return "as fast"
    return f"{abs(part):.2f} % {'slower' if part > 0 else 'faster'}"


def _check_pairs(pair: Pair) -> Iterator[CheckPair]:
    """Every check that one of the two made, by phase and name."""
    ours = {(check.phase, check.name): check for check in pair.reference_result.checks}
    theirs = {(check.phase, check.name): check for check in pair.other_result.checks}
    for phase, name in dict.fromkeys([*ours, *theirs]):
        first, second = ours.get((phase, name)), theirs.get((phase, name))
        yield CheckPair(
            name=name,
            phase=phase,
            reference=_part_of_bound(first),
            other=_part_of_bound(second),
            is_reference_within=None if first is None else first.num_outside == 0,
            is_other_within=None if second is None else second.num_outside == 0,
        )


def _part_of_bound(result: CheckResult | None) -> float | None:
    """Error over bound; of a bound of zero, zero or infinity."""
    if result is None:
        return None
    error, bound = result.worst.error, result.worst.bound
    if bound > 0:
        return error / bound
    return 0.0 if result.worst.is_within else math.inf


# ------------------------------------------------------------------ all cases together


def _drift(bundle: ComparedBundle, pairs: Sequence[Pair], limits: _Limits) -> Drift | None:
    """The difference over all cases that allow a test; None without any."""
    contrasts = [
        (pair.reference.weight, difference)
        for pair in pairs
        if (difference := _contrast(pair, limits.margin)) is not None
    ]
    if not contrasts:
        return None
    weights = [weight for weight, _ in contrasts]
    if not sum(weights) > 0:
        weights = [1.0] * len(contrasts)
    difference = pooled([one for _, one in contrasts], weights)
    word, ratio = _ruled(difference, limits), math.exp(difference.difference)
    low, high = map(math.exp, difference.interval())
    return Drift(
        label=bundle.label,
        num_cases=len(contrasts),
        ratio=ratio,
        low=low,
        high=high,
        confidence=CONFIDENCE,
        is_same_device=bundle.sameness == "same",
        days=bundle.days,
        word=word,
        explanation=_explained(difference, word, ratio, limits),
    )


def _profile(
    label: str, cases: Sequence[CaseComparison], refused: Sequence[RefusedCase]
) -> Profile:
    ratios = [
        item.timing.ratio for item in cases if item.label == label and item.timing is not None
    ]
    ratios += [math.inf for item in refused if (item.label, item.kind) == (label, "no_timing")]
    steps, shares, score = profile(ratios, LONGEST_RATIO) if ratios else ((), (), math.nan)
    return Profile(
        label=label,
        num_cases=len(ratios),
        ratios=steps,
        shares=shares,
        longest_ratio=LONGEST_RATIO,
        score=score,
    )


def _model(
    reference: Side, others: Sequence[Side], pairs: Mapping[str, Sequence[Pair]]
) -> tuple[MixedModel | None, str]:
    """The mixed model over every launch that is compared, or why there is none."""
    by_case: dict[tuple[str, str], list[TimedLaunch]] = {}
    clocks = _workload_clocks(pair for of_side in pairs.values() for pair in of_side)
    for side in others:
        for pair in pairs[side.label]:
            if pair.is_timed:
                by_case[reference.label, pair.reference.id] = _timed_launches(
                    reference, pair.reference, pair.reference_result, clocks
                )
                by_case[side.label, pair.other.id] = _timed_launches(
                    side, pair.other, pair.other_result, clocks
                )
    launches = [launch for of_case in by_case.values() for launch in of_case]
    num_devices = len({launch.device for launch in launches})
    num_workloads = len({launch.workload for launch in launches})
    if num_devices < LEAST_DEVICES or num_workloads < LEAST_WORKLOADS:
        return None, (
            f"a mixed model wants at least {LEAST_DEVICES} devices and {LEAST_WORKLOADS} timed "
            f"cases in common; here are {num_devices} and {num_workloads}"
        )
    fit = mixed_model(launches)
    if isinstance(fit, str):
        return None, fit
    model = MixedModel(
        num_launches=len(launches),
        num_devices=num_devices,
        num_workloads=num_workloads,
        device_sd=fit.device_sd,
        interaction_sd=fit.interaction_sd,
        launch_sd=fit.launch_sd,
        effects=tuple(
            DeviceEffect(device=device, effect=math.expm1(effect)) for device, effect in fit.effects
        ),
        note=fit.note,
    )
    return model, ""


def _timed_launches(
    side: Side, case: Case, result: CaseResult, clocks: Mapping[str, Clock]
) -> list[TimedLaunch]:
    device, workload = device_name(side.bundle.system, case.device), suite_id(case)
    return [
        TimedLaunch(device=device, workload=workload, log_seconds=value)
        for value in launch_times(result, clocks[workload])
    ]


def _workload_clocks(pairs: Iterable[Pair]) -> Mapping[str, Clock]:
    """Of each workload the clock that it can be judged by on all devices."""
    results: dict[str, list[CaseResult]] = {}
    for pair in pairs:
        results.setdefault(suite_id(pair.reference), []).append(pair.reference_result)
        results.setdefault(suite_id(pair.other), []).append(pair.other_result)
    return {workload: common_clock(of_all) for workload, of_all in results.items()}


# ------------------------------------------------------------------ what it comes to


def has_failed_since(change: RulingChange) -> bool:
    """Whether a required ruling was a pass and is a fail."""
    return change.required and (change.reference, change.other) == ("pass", "fail")


def _word(comparison: Comparison) -> Word:
    words = [item.timing.word for item in comparison.cases if item.timing is not None]
    is_beyond = "beyond" in (*words, *(drift.word for drift in comparison.drifts))
    if is_beyond or any(map(has_failed_since, comparison.rulings)):
        return "beyond"
    has_gap = any(item.kind == "no_timing" for item in comparison.refused)
    has_gap |= any(item.same_bits is False for item in comparison.cases)
    return "open" if has_gap or not words or "open" in words else "within"


def said(word: Word, ratio: float) -> str:
    """What a person is told of a difference: no change, slower, faster or undecided."""
    if word == "beyond":
        return "slower" if ratio > 1 else "faster"
    return "no change" if word == "within" else "undecided"


def headline(comparison: Comparison) -> str:
    """What the comparison comes to, and how many cases are slower and faster, in capitals first.

    A regression is a case or all together slower, or a required ruling that has failed since.
    """
    timed = [item.timing for item in comparison.cases if item.timing is not None]
    beyond = [one.ratio > 1 for one in timed if one.word == "beyond"]
    slower, faster = sum(beyond), len(beyond) - sum(beyond)
    counts = f"{slower} of {len(timed)} cases slower, {faster} faster"
    if comparison.word == "within":
        return f"NO CHANGE: {counts}"
    if comparison.word == "open":
        return f"UNDECIDED: {counts}, {sum(one.word == 'open' for one in timed)} undecided"
    has_failed = sum(map(has_failed_since, comparison.rulings))
    drifts = [one.ratio > 1 for one in comparison.drifts if one.word == "beyond"]
    failed = f", {has_failed} required rulings failed since" if has_failed else ""
    together = f", all together {'slower' if any(drifts) else 'faster'}" if drifts else ""
    is_regression = slower or has_failed or any(drifts)
    return f"{'REGRESSION' if is_regression else 'FASTER'}: {counts}{together}{failed}"


def _summary(comparison: Comparison) -> str:
    return " ".join(_summary_of(comparison, bundle) for bundle in comparison.bundles[1:])


def _summary_of(comparison: Comparison, bundle: ComparedBundle) -> str:
    """One or two sentences on one bundle."""
    own = [item for item in comparison.cases if item.label == bundle.label]
    words = [said(item.timing.word, item.timing.ratio) for item in own if item.timing is not None]
    counts = (
        f"{words.count(word)} {word}" for word in ("no change", "slower", "faster", "undecided")
    )
    parts = [f"of {len(words)} timed cases, by a margin of {comparison.margin * 100:g} %", *counts]
    refused = sum(item.label == bundle.label for item in comparison.refused)
    if refused:
        parts.append(f"{refused} not compared")
    text = f"{bundle.label} against {comparison.bundles[0].label}: {', '.join(parts)}."
    text += f" {_summary_of_bits(own)}"
    drift = next((item for item in comparison.drifts if item.label == bundle.label), None)
    if drift is not None:
        what = "the same devices are" if drift.is_same_device else "over all cases it is"
        text += (
            f" Together, {what} {_percent_words(drift.ratio)} ({said(drift.word, drift.ratio)})."
        )
    failed = [change for change in comparison.rulings if change.label == bundle.label]
    num_failed = sum(map(has_failed_since, failed))
    if num_failed:
        text += f" {num_failed} required ruling{'s' * (num_failed > 1)} went from pass to fail."
    return text


def _summary_of_bits(cases: Sequence[CaseComparison]) -> str:
    """One sentence on whether first outputs are the same, bit for bit."""
    known = [item for item in cases if item.same_bits is not None]
    if not known:
        return f"{cases[0].bits_note[:1].upper()}{cases[0].bits_note[1:]}." if cases else ""
    differing = [item.case for item in known if not item.same_bits]
    if differing:
        return (
            f"First outputs of {len(differing)} of {len(known)} cases differ bit by bit from the "
            f"same inputs, {differing[0]} first."
        )
    return f"First outputs of {len(known)} cases are the same, bit for bit."
