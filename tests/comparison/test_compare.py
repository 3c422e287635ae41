"""Two or more bundles side by side: the statistics, what is refused, the document and its page."""

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.nonparametric import rank_compare_2indep
from statsmodels.stats.weightstats import ttost_ind
from support import bundles as whole
from support.builders import a_case, a_system, repeated
from support.bundles import Draft, analysed, rejected, sealed
from support.compared_runs import KEY, compared, draft, scaled, side, slower

from appliance.comparison.case_pairs import RefusedCase, RulingChange, Side, pairs_of
from appliance.comparison.compare_runs import Comparison, Word, _clock_words, compare, headline
from appliance.comparison.mixed_model import (
    TimedLaunch,
    contrast,
    mixed_model,
    order,
    pooled,
    profile,
)
from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.records.journal import Block, Event, Reading, Repeated, RunStarted
from appliance.records.json import from_json, to_json
from appliance.records.system import Fact, System
from appliance.verbs import compare as comparing
from reports.comparing import page as pages
from reports.comparing import rendering

LIMIT = math.log1p(0.03)
MOST_UNLIKELY = 1e-6
values = st.lists(st.floats(-3, 3), min_size=5, max_size=12).filter(lambda few: np.std(few) > 1e-3)


# ------------------------------------------------------------------ two sets of launches


@given(values, values)
def test_interval_is_that_of_welch(first: list[float], second: list[float]) -> None:
    result = contrast(first, second, floor=0.0)
    assert result is not None
    known = stats.ttest_ind(second, first, equal_var=False)
    assert result.interval() == pytest.approx(tuple(known.confidence_interval(0.95)), rel=1e-9)
    assert result.degrees == pytest.approx(float(known.df), rel=1e-9)


@given(values, values, st.floats(0.01, 2))
def test_risks_are_those_of_one_sided_tests(
    first: list[float], second: list[float], margin: float
) -> None:
    result = contrast(first, second, floor=0.0)
    assert result is not None
    within, slower, faster = result.risks(margin)
    known = ttost_ind(np.array(second), np.array(first), -margin, margin, usevar="unequal")
    assert within == pytest.approx(float(known[0]), rel=1e-9, abs=1e-15)
    for risk, shift, alternative in ((slower, margin, "greater"), (faster, -margin, "less")):
        shifted = [value - shift for value in second]
        test = stats.ttest_ind(shifted, first, equal_var=False, alternative=alternative)
        assert risk == pytest.approx(float(test.pvalue), rel=1e-9, abs=1e-15)


def test_a_floor_weakens_within_and_nothing_else() -> None:
    first, second = [0.0, 1e-4, 2e-4, 3e-4, 4e-4], [0.018, 0.0181, 0.0182, 0.0183, 0.0184]
    bare, floored = (contrast(first, second, floor=floor) for floor in (0.0, LIMIT / 3))
    assert bare is not None
    assert floored is not None
    assert bare.risks(LIMIT)[0] < 1e-6
    assert floored.risks(LIMIT)[0] > 0.01
    assert bare.risks(LIMIT)[1:] == floored.risks(LIMIT)[1:]


@pytest.mark.parametrize(
    "second",
    [
        [0.0, 0.1, 0.2, 0.3],
        [0.0, 0.1, 0.2, 0.3, math.nan],
        [0.1] * 6,
        [0.0, 0.1, 0.2, -math.inf, 1],
    ],
)
def test_too_little_allows_no_test(second: list[float]) -> None:
    assert contrast([0.0, 0.1, 0.2, 0.3, 0.4], second, floor=0.01) is None
    assert contrast(second, [0.0, 0.1, 0.2, 0.3, 0.4], floor=0.01) is None


@pytest.mark.parametrize(("first_sd", "second_sd"), [(0.005, 0.005), (0.003, 0.02)])
def test_at_the_margin_neither_word_comes_more_often_than_its_risk(
    first_sd: float, second_sd: float
) -> None:
    draws, risk = 4000, 0.01
    chance = np.random.default_rng(20261121)
    ours = chance.normal(0, first_sd, (draws, 6))
    theirs = chance.normal(LIMIT, second_sd, (draws, 6))
    result = [contrast(a, b, floor=LIMIT / 3) for a, b in zip(ours, theirs, strict=True)]
    risks = [one.risks(LIMIT) for one in result if one is not None]
    assert len(risks) == draws
    for column in (0, 1):
        number = sum(each[column] <= risk for each in risks)
        assert stats.binomtest(number, draws, risk, "greater").pvalue > MOST_UNLIKELY


def test_pooled_difference_is_the_weighted_mean_and_covers() -> None:
    chance, weights, draws = np.random.default_rng(7), [1.0, 1.0, 2.0, 4.0], 2000
    truth = sum(weight * 0.01 * place for place, weight in enumerate(weights)) / sum(weights)
    covered = 0
    for _ in range(draws):
        parts = [
            contrast(chance.normal(0, 0.01, 5), chance.normal(0.01 * place, 0.02, 7), floor=0.0)
            for place in range(len(weights))
        ]
        known = [part for part in parts if part is not None]
        result = pooled(known, weights)
        means = sum(w * one.difference for w, one in zip(weights, known, strict=True)) / 8
        assert result.difference == pytest.approx(means)
        low, high = result.interval()
        covered += low <= truth <= high
    assert stats.binomtest(covered, draws, 0.94, "less").pvalue > MOST_UNLIKELY
    assert stats.binomtest(covered, draws, 0.965, "greater").pvalue > MOST_UNLIKELY


def test_pooling_one_difference_changes_nothing_and_no_weight_leaves_out() -> None:
    one = contrast([0.0, 0.1, 0.2, 0.3, 0.5], [0.1, 0.1, 0.3, 0.2, 0.9], floor=0.5)
    other = contrast([9.0, 9.1, 9.2, 9.3, 9.5], [0.1, 0.1, 0.3, 0.2, 0.9], floor=0.5)
    assert one is not None
    assert other is not None
    for result in (pooled([one], [3.0]), pooled([one, other], [1.0, 0.0])):
        assert result.difference == pytest.approx(one.difference)
        assert result.interval() == pytest.approx(one.interval())
        assert result.risks(LIMIT) == pytest.approx(one.risks(LIMIT))


# ------------------------------------------------------------------ order and profile


@given(
    st.lists(st.integers(0, 6), min_size=5, max_size=9),
    st.lists(st.integers(0, 6), min_size=5, max_size=9),
)
def test_order_is_that_of_statsmodels_with_ties(first: list[int], second: list[int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = order(first, second)
    with np.errstate(all="ignore"):  # it divides by zero where all are equal
        known = rank_compare_2indep(np.array(second), np.array(first))
    assert result.probability == pytest.approx(float(known.prob1))
    if result.method.startswith("Brunner"):
        low, high = known.conf_int()
        assert (result.low, result.high) == pytest.approx((max(low, 0), min(high, 1)))


def test_one_side_all_faster_has_an_exact_bound_and_equal_launches_none() -> None:
    fast, slow = [1.0, 2, 3, 4, 5], [6.0, 7, 8, 9, 10, 11, 12]
    result = order(fast, slow)
    assert (result.probability, result.high) == (1.0, 1.0)
    assert result.low == pytest.approx(stats.binomtest(5, 5).proportion_ci(0.95).low)
    result = order(slow, fast)
    assert (result.probability, result.low) == (0.0, 0.0)
    assert result.high == pytest.approx(stats.binomtest(0, 5).proportion_ci(0.95).high)
    same = order([1.0] * 5, [1.0] * 6)
    assert (same.probability, same.low, same.high) == (0.5, None, None)
    assert order([1.0, 2, 3, 4], slow).low is None


@given(st.lists(st.floats(0.7, 1.5) | st.just(math.inf), min_size=1, max_size=12))
def test_profile_is_a_share_and_its_score_the_area_below(ratios: list[float]) -> None:
    steps, shares, score = profile(ratios, 1.2)
    assert steps[0] == 1.0
    assert list(steps) == sorted(set(steps))
    for step, share in zip(steps, shares, strict=True):
        assert share == pytest.approx(sum(ratio <= step for ratio in ratios) / len(ratios))
    ends = [*steps[1:], 1.2]
    widths = [end - begin for begin, end in zip(steps, ends, strict=True)]
    area = sum(width * share for width, share in zip(widths, shares, strict=True))
    assert score == pytest.approx(area / 0.2)


def test_profile_of_the_reference_itself_scores_one() -> None:
    assert profile([1.0] * 4, 1.2) == ((1.0,), (1.0,), pytest.approx(1.0))


# ------------------------------------------------------------------ many devices


def rows(
    effects: Sequence[float], *, workloads: int = 12, launches: int = 5, sd: float = 0.004
) -> list[TimedLaunch]:
    chance = np.random.default_rng(5)
    return [
        TimedLaunch(
            device=f"device [{device}] of C(x) ~ 'quoted'",
            workload=f"workload {workload}",
            log_seconds=workload / 3 + effect + between + chance.normal(0, sd),
        )
        for device, effect in enumerate(effects)
        for workload in range(workloads)
        for between in [chance.normal(0, 0.002)]
        for _ in range(launches)
    ]


def test_mixed_model_finds_the_slow_device_and_shrinks_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = mixed_model(rows([0.0, 0.001, -0.001, 0.002, 0.03]))
    assert not isinstance(result, str)
    effects = [effect for _, effect in result.effects]
    assert [name for name, _ in result.effects][4].startswith("device [4]")
    assert max(effects) == effects[4]
    assert 0.02 < effects[4] < 0.03 - 0.0064  # its distance from the mean of all, and less
    assert result.device_sd == pytest.approx(
        float(np.std([0, 1, -1, 2, 30], ddof=1)) / 1e3, rel=0.1
    )
    assert result.interaction_sd == pytest.approx(0.002, rel=0.35)
    assert result.launch_sd == pytest.approx(0.004, rel=0.15)


def test_mixed_model_says_in_a_sentence_what_its_fit_is_worth() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = mixed_model(rows([0.0, 0.0, 0.0], workloads=2))
    assert not isinstance(result, str)
    assert re.match("The fit|A spread", result.note)
    same = [replace(row, log_seconds=1.0) for row in rows([0.0, 0.0, 0.0])]
    assert mixed_model(same) == "no workload has two launches on one device that differ"
    assert isinstance(mixed_model(rows([0.0, 0.1, 0.2], launches=1)), str)


# ------------------------------------------------------------------ bundles


def words(result: Comparison) -> dict[str, Word]:
    return {item.case: item.timing.word for item in result.cases if item.timing is not None}


GEMM, BERT = "gemm@cpu:0", "bert@cpu:0"


def test_what_is_alike_is_within_and_what_is_slower_is_beyond() -> None:
    result = compared(draft("a"), draft("b", slower(0.06)))
    assert words(result) == {GEMM: "beyond", BERT: "within"}
    assert result.word == "beyond"
    timing = {item.case: item.timing for item in result.cases}[GEMM]
    assert timing is not None
    assert timing.ratio == pytest.approx(1.06, rel=1e-6)
    assert timing.seconds == pytest.approx(timing.reference_seconds * 1.06, rel=1e-6)
    assert timing.low is not None
    assert timing.high is not None
    assert timing.low < 1.06 < timing.high
    assert timing.explanation == "6.00 % slower, beyond 3 %"
    assert compared(draft("a"), draft("b", slower(0.06)), margin=0.2).word == "within"
    assert compared(draft("a"), draft("b", slower(0.004))).word == "within"


def beside_others(events: list[Event]) -> list[Event]:
    """Readings by which others used half of two processors."""
    values = {"foreign_processors": 1.0}
    return [replace(one, values=values) if isinstance(one, Reading) else one for one in events]


def test_a_run_that_was_not_alone_is_named_with_what_others_used() -> None:
    device = replace(whole.SYSTEM.identity.devices[0], facts={"usable_processors": Fact(value=2.0)})
    system = replace(whole.SYSTEM, identity=replace(whole.SYSTEM.identity, devices=(device,)))
    alone, disturbed = draft("a", system=system), draft("b", beside_others, system=system)
    assert "Not alone" not in compared(alone, draft("c", system=system)).summary
    words = compared(alone, disturbed).summary.partition(" Not alone, ")[2]
    assert words.startswith("so that a difference may be that of other load (B: others used 50 %")


def test_times_by_the_wall_are_said_not_to_be_those_that_a_report_has() -> None:
    (pair,) = pairs_of(side("A", draft("a")), side("B", draft("b")), {"cpu:0": "cpu:0"})[0][:1]
    clocks = pair.other_result.clocks
    assert clocks is not None
    by_wall = replace(pair.other_result, clocks=replace(clocks, judged="wall"))
    assert _clock_words("B", pair) == ""
    assert "since B is judged by those" in _clock_words("B", replace(pair, other_result=by_wall))


def other_bits(events: list[Event]) -> list[Event]:
    """The bert case gave another first output, the same in all of its launches."""
    return [
        repeated(event.launch, answer="other")
        if isinstance(event, Repeated) and event.launch.startswith("bert")
        else event
        for event in events
    ]


def bits(result: Comparison) -> dict[str, bool | None]:
    return {item.case: item.same_bits for item in result.cases}


def test_first_outputs_of_one_seed_are_compared_bit_by_bit() -> None:
    alike = compared(draft("a"), draft("b"))
    assert set(bits(alike).values()) == {True}
    assert (alike.word, "3 cases are the same, bit for bit" in alike.summary) == ("within", True)
    result = compared(draft("a"), draft("b", other_bits))
    assert bits(result) == {GEMM: True, BERT: False, "exact@cpu:0": True}
    assert result.word == "open"
    assert f"1 of 3 cases differ bit by bit from the same inputs, {BERT} first" in result.summary
    assert "differ between A and B" in rendering.html(pages.page(result)).decode()


def test_bits_are_not_compared_where_they_need_not_be_the_same() -> None:
    first = side("A", draft("a"))
    for changed, why in (
        (with_seed("1f" * 32), "the seeds differ"),
        (with_system(model="Another"), "the device is A processor in A, Another in B"),
        (with_system(torch="2.14.0"), "torch is not reported in A, 2.14.0 in B"),
    ):
        second = changed(side("B", draft("b", other_bits)))
        result = compare([first, second], margin=0.03, bench_version="0.1.0")
        assert set(bits(result).values()) == {None}
        assert all(why in item.bits_note for item in result.cases), result.cases[0].bits_note
        assert why in result.summary or why.capitalize() in result.summary


def with_seed(seed: str) -> Callable[[Side], Side]:
    return lambda one: replace(
        one, bundle=replace(one.bundle, plan=replace(one.bundle.plan, seed=seed))
    )


def with_system(*, model: str = "", torch: str = "") -> Callable[[Side], Side]:
    """The same bundle from a node of another device model, or with another torch."""

    def changed(one: Side) -> Side:
        system = one.bundle.system
        identity = system.identity
        devices = tuple(replace(device, model=model or device.model) for device in identity.devices)
        facts = {**identity.software, **({"torch": Fact(value=torch)} if torch else {})}
        identity = replace(identity, devices=devices, software=facts)
        return replace(one, bundle=replace(one.bundle, system=replace(system, identity=identity)))

    return changed


def test_a_launch_of_other_bits_or_none_leaves_nothing_to_compare() -> None:
    def torn(events: list[Event]) -> list[Event]:
        return [
            repeated(event.launch, answer="other")
            if isinstance(event, Repeated) and event.launch == f"{BERT}/r2"
            else event
            for event in events
        ]

    def silent(events: list[Event]) -> list[Event]:
        return [event for event in events if not isinstance(event, Repeated)]

    assert bits(compared(draft("a"), draft("b", torn)))[BERT] is None
    assert set(bits(compared(draft("a"), draft("b", silent))).values()) == {None}


def test_faster_by_more_than_the_margin_is_beyond_too() -> None:
    result = compared(draft("a"), draft("b", slower(-0.06)))
    assert (result.word, words(result)[GEMM]) == ("beyond", "beyond")


def test_noise_and_few_launches_are_open() -> None:
    chance = np.random.default_rng(3)
    noisy = scaled(lambda _: float(chance.normal(1, 0.06)))
    result = compared(draft("a"), draft("b", noisy))
    assert set(words(result).values()) == {"open"}
    assert result.word == "open"
    few = (a_case(launches=3), a_case("bert"))
    result = compared(draft("a", cases=few), draft("b", cases=few))
    assert words(result) == {GEMM: "open", BERT: "within"}
    timing = result.cases[0].timing
    assert timing is not None
    assert (timing.low, timing.high, timing.risk_within) == (None, None, None)
    assert timing.explanation.startswith("3 and 3 launches")
    assert result.word == "open"


def test_a_clock_that_stands_is_open() -> None:
    def copied(events: list[Event]) -> list[Event]:
        first = next(event for event in events if isinstance(event, Block))
        return [
            replace(event, wall_ns=first.wall_ns, block_wall_ns=first.block_wall_ns)
            if isinstance(event, Block)
            else event
            for event in events
        ]

    result = compared(draft("a"), draft("b", copied))
    assert words(result) == {GEMM: "open", BERT: "open"}
    assert "to the last digit" in result.cases[0].timing.explanation  # type: ignore[union-attr]


def test_what_is_another_thing_is_refused_with_its_reason() -> None:
    ours = (a_case(parameters={"k": 1, "x": 1.0}), a_case("bert"), a_case("llama"))
    theirs = (
        a_case(parameters={"k": 2, "x": 1}),
        replace(a_case("bert"), version=2),
        a_case("llama"),
        a_case("markov_lm"),
    )
    result = compared(draft("a", cases=ours), draft("b", cases=theirs))
    assert {(item.case, item.kind, item.reason) for item in result.refused} == {
        (GEMM, "not_comparable", "k is 1 in A, 2 in B"),
        (BERT, "not_comparable", "bert version 1 in A, version 2 in B"),
        ("markov_lm@cpu:0", "not_comparable", "only B has it"),
    }
    assert words(result) == {"llama@cpu:0": "within"}
    assert result.word == "within"


def test_forked_and_fresh_launches_are_not_compared() -> None:
    ours, theirs = draft("a"), draft("b", mode="forked")
    with pytest.raises(UsageError, match="no case in common"):
        compared(replace(ours, plan=ours.plan), _only_timed(theirs))


def _only_timed(made: Draft) -> Draft:
    """The same run without its untimed case, which may be compared however it was launched."""
    names = [case.id for case in made.plan.cases if case.is_timed]
    return draft(
        made.plan.run_id[-1],
        cases=[case for case in made.plan.cases if case.id in names],
        mode=made.plan.protocol.mode,
    )


def test_no_case_in_common_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no case in common that can be compared: gemm@cpu:0"):
        compared(draft("a", cases=(a_case(),)), draft("b", cases=(a_case("bert"),)))


def test_a_failed_check_withholds_the_time_and_is_beyond() -> None:
    failed = _of_run("20261121T120000Z-b", rejected(repeats=3))
    result = compared(draft("a"), failed)
    (refused,) = result.refused
    assert (refused.case, refused.kind) == (GEMM, "no_timing")
    assert "B: no timing is shown" in refused.reason
    (item,) = [item for item in result.cases if item.case == GEMM]
    assert item.timing is None
    (pair,) = [pair for pair in item.checks if pair.phase == "last"]
    assert (pair.is_reference_within, pair.is_other_within) == (True, False)
    assert pair.other == pytest.approx(2.0)
    changed = {(one.criterion, one.case): (one.reference, one.other) for one in result.rulings}
    assert changed == {("correctness", GEMM): ("pass", "fail")}
    assert result.word == "beyond"
    assert "from pass to fail" in result.summary
    (drawn,) = result.profiles
    assert (drawn.num_cases, drawn.shares[-1]) == (2, 0.5)


def _of_run(run_id: str, made: Draft) -> Draft:
    """The same run by another name."""
    plan = replace(made.plan, run_id=run_id)
    events = [
        replace(event, run_id=run_id) if isinstance(event, RunStarted) else event
        for event in made.events
    ]
    return replace(made, plan=plan, events=tuple(analysed(plan, events)))


def test_devices_are_paired_by_their_serials() -> None:
    node = a_system("cpu:0", "cpu:1")
    first, second = node.identity.devices
    turned = replace(
        node,
        identity=replace(
            node.identity,
            devices=(
                replace(first, serial=second.serial),
                replace(second, serial=first.serial),
            ),
        ),
    )
    cases = (a_case(device="cpu:0"), a_case(device="cpu:1"))
    slow = scaled(lambda launch: 1.06 if launch.startswith("gemm@cpu:1") else 1.0)
    result = compared(
        draft("a", cases=cases, system=node), draft("b", slow, cases=cases, system=turned)
    )
    assert words(result) == {"gemm@cpu:0": "beyond", "gemm@cpu:1": "within"}
    assert [item.other_case for item in result.cases] == ["gemm@cpu:1", "gemm@cpu:0"]
    assert result.bundles[1].sameness == "same"
    sentences = [item.sentence for item in result.differences if item.topic == "device"]
    assert sentences == ["cpu:0 is compared with cpu:1 of A", "cpu:1 is compared with cpu:0 of A"]


def test_drift_of_the_same_devices_is_told_over_its_days() -> None:
    node = a_system()
    everything = scaled(lambda _: 1.05)
    later = draft("b", everything, system=node, created="2027-11-21T12:00:00Z")
    result = compared(draft("a", system=node), later)
    (drift,) = result.drifts
    assert (drift.is_same_device, drift.days, drift.word) == (True, 365.0, "beyond")
    assert drift.ratio == pytest.approx(1.05, rel=1e-6)
    assert drift.low < 1.05 < drift.high
    assert ", all together slower" in headline(result)
    alone = replace(result, cases=(), drifts=(replace(drift, ratio=0.9),), rulings=())
    assert headline(alone) == "FASTER: 0 of 0 cases slower, 0 faster, all together faster"


def test_nodes_without_a_name_are_not_called_the_same() -> None:
    assert compared(draft("a"), draft("b")).bundles[1].sameness == "unknown"
    other = a_system()
    device = replace(other.identity.devices[0], serial="another")
    other = replace(other, identity=replace(other.identity, devices=(device,)))
    result = compared(draft("a", system=a_system()), draft("b", system=other))
    assert result.bundles[1].sameness == "other"
    assert result.drifts[0].is_same_device is False
    (difference,) = [item for item in result.differences if item.topic == "device"]
    assert difference.sentence == "cpu:0: serial was serial-0 and is another"


def test_three_devices_and_two_workloads_get_a_mixed_model_and_fewer_do_not() -> None:
    names = ("cpu:0", "cpu:1", "cpu:2")
    cases = [a_case(name, device=device) for name in ("gemm", "bert") for device in names]
    node = a_system(*names)
    chance = np.random.default_rng(11)
    slow = scaled(lambda name: (1.04 if "cpu:2" in name else 1.0) * float(chance.normal(1, 0.002)))
    result = compared(
        draft("a", slow, cases=cases, system=node), draft("b", slow, cases=cases, system=node)
    )
    assert result.model is not None
    assert result.model.num_launches == 2 * 6 * 5
    assert (result.model.num_devices, result.model.num_workloads) == (3, 2)
    effects = {item.device: item.effect for item in result.model.effects}
    assert max(effects, key=effects.__getitem__) == "serial-2"
    few = compared(draft("a"), draft("b"))
    assert few.model is None
    assert few.model_left_out.endswith("here are 1 and 2")


def test_one_run_twice_alone_injected_or_repeated_is_refused() -> None:
    with pytest.raises(UsageError, match="name two or more"):
        compared(draft("a"))
    with pytest.raises(UsageError, match="is named twice"):
        compared(draft("a"), draft("a"))
    with pytest.raises(UsageError, match="injects faults on purpose"):
        compared(draft("a"), draft("b", cases=(a_case(injector="a slow device"),)))
    again = draft("b")
    again = replace(again, plan=replace(again.plan, rerun_of="another/gemm@cpu:0/3"))
    with pytest.raises(UsageError, match="repeats one launch"):
        compared(draft("a"), again)


@pytest.mark.parametrize("margin", [0.0, -0.1, 1.0, 3.0, math.nan])
def test_a_margin_that_is_none_is_refused(margin: float) -> None:
    with pytest.raises(UsageError, match="--margin"):
        compared(draft("a"), draft("b"), margin=margin)


def test_identity_differences_have_their_topics() -> None:
    before, after = a_system(), a_system()
    host = {"bios_version": "1.0", "kernel": "6.1", "system_uuid": "one"}
    new = {**host, "bios_version": "1.1", "kernel": "6.12"}
    before, after = (_with_host(node, facts) for node, facts in ((before, host), (after, new)))
    result = compared(draft("a", system=before), draft("b", system=after))
    reported = {(item.topic, item.sentence) for item in result.differences}
    assert ("firmware", "host: bios_version was 1.0 and is 1.1") in reported
    assert ("host", "host: kernel was 6.1 and is 6.12") in reported
    assert not any("seed" in sentence for _, sentence in reported)
    ours, theirs = draft("a"), draft("b")
    theirs = replace(theirs, plan=replace(theirs.plan, seed="0" * 64, suite_version=2))
    reported = {(item.topic, item.sentence) for item in compared(ours, theirs).differences}
    assert ("plan", "the seed is another one, and so are inputs and order") in reported
    assert ("plan", "suite was tests, version 1 and is tests, version 2") in reported


def _with_host(node: System, facts: Mapping[str, str]) -> System:
    known = {name: {"value": value} for name, value in facts.items()}
    fact = type(next(iter(node.identity.host.values())))
    host = {name: fact(**entry) for name, entry in known.items()}
    return replace(node, identity=replace(node.identity, host=host))


# ------------------------------------------------------------------ page and document


def test_document_reads_back_and_the_page_has_every_case_and_stands_alone() -> None:
    hostile = replace(whole.SYSTEM.identity.devices[0], model="<script>alert(1)</script>\u202e")
    system = replace(whole.SYSTEM, identity=replace(whole.SYSTEM.identity, devices=(hostile,)))
    cases = (a_case(), a_case("bert"), replace(a_case("llama"), version=2))
    result = compared(draft("a"), draft("b", slower(0.06), cases=cases, system=system))
    assert from_json(Comparison, to_json(result), name="comparison.json") == result
    page = rendering.html(pages.page(result)).decode()
    assert "<script" not in page
    assert "\u202e" not in page
    assert not re.search(r"(src|href)=|url\(|@import", page)
    for item in (*result.cases, *result.refused):
        assert item.case in page
    assert "REGRESSION: 1 of 2 cases slower, 0 faster" in page
    assert "6.00 % slower, beyond 3 %" in page
    assert "+6.00 %" in page
    assert page == rendering.html(pages.page(result)).decode()


@pytest.fixture(scope="module")
def sealed_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    made = {
        "a": draft("a"),
        "same": draft("b", slower(0.002)),
        "slow": draft("c", slower(0.06)),
        "noisy": draft("d", scaled(lambda launch: 1 + 0.03 * (int(launch[-1]) - 3))),
    }
    return {name: sealed(folder / name, one, KEY) for name, one in made.items()}


@pytest.mark.parametrize(
    ("other", "code", "word"), [("same", 0, "within"), ("slow", 1, "beyond"), ("noisy", 3, "open")]
)
def test_signed_bundles_are_compared_with_their_exit_code(
    sealed_runs: dict[str, Path], tmp_path: Path, other: str, code: int, word: str
) -> None:
    result = comparing.run(
        [sealed_runs["a"], sealed_runs[other]], out=tmp_path, margin=0.03, allow_development=True
    )
    assert (result.exit_code, result.comparison.word) == (code, word)
    text = (tmp_path / "comparison.json").read_bytes()
    assert from_json(Comparison, text, name="comparison.json") == result.comparison
    assert (tmp_path / "comparison.html").read_text().startswith("<!DOCTYPE html>")
    said = {"within": "NO CHANGE: ", "beyond": "REGRESSION: 1 of ", "open": "UNDECIDED: "}[word]
    assert comparing.sentences(result)[-1].startswith(said)


def test_a_pdf_that_carries_its_journal_is_as_good_as_its_folder(
    sealed_runs: dict[str, Path], tmp_path: Path
) -> None:
    paths = [sealed_runs["a"] / "report.pdf", sealed_runs["same"]]
    result = comparing.run(paths, out=tmp_path, margin=0.03, allow_development=True)
    assert result.exit_code == 0


def test_what_does_not_verify_is_named(sealed_runs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"a does not verify: .*development"):
        comparing.run([sealed_runs["a"], sealed_runs["same"]], out=tmp_path, margin=0.03)
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in sealed_runs["same"].iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    (broken / "verdict.json").write_bytes(b"{}")
    with pytest.raises(EvidenceError, match=r"broken does not verify: verdict\.json"):
        comparing.run(
            [sealed_runs["a"], broken], out=tmp_path / "c", margin=0.03, allow_development=True
        )
    assert not (tmp_path / "c").exists()


def test_a_comparison_is_never_put_into_a_run(sealed_runs: dict[str, Path]) -> None:
    with pytest.raises(OutputError, match="--out"):
        comparing.run(
            [sealed_runs["a"], sealed_runs["same"]],
            out=sealed_runs["a"],
            margin=0.03,
            allow_development=True,
        )


def test_what_changed_alike_is_said_once(sealed_runs: dict[str, Path], tmp_path: Path) -> None:
    result = comparing.run(
        [sealed_runs["a"], sealed_runs["same"]], out=tmp_path, margin=0.03, allow_development=True
    )
    one = RulingChange(
        label="B",
        criterion="one",
        case="x@cpu:0",
        required=True,
        reference="pass",
        reference_reason="",
        other="inconclusive",
        other_reason="coverage",
    )
    pairs = (("x@cpu:0", "one"), ("x@cpu:0", "two"), ("y@cpu:0", "one"), ("y@cpu:0", "two"))
    changes = tuple(replace(one, case=case, criterion=name) for case, name in (*pairs, ("", "two")))
    refused = tuple(
        RefusedCase(label="B", case=case, kind="no_timing", reason=reason)
        for case, reason in (("x@cpu:0", "gone"), ("y@cpu:0", "gone"), ("z@cpu:0", "new"))
    )
    comparison = replace(result.comparison, rulings=changes, refused=refused)
    shown = comparing.sentences(replace(result, comparison=comparison))
    assert [line for line in shown if "compared: " in line or " pass " in line] == [
        "B: x@cpu:0, y@cpu:0: not compared: gone",
        "B: z@cpu:0: not compared: new",
        "B: x@cpu:0, y@cpu:0: one, two were pass and are inconclusive",
        "B: the node: two was pass and is inconclusive",
    ]
