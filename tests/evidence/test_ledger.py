"""The health ledger: what a run's counters, sensors, links and kernel log come to.

First by records made for the purpose, one fault each. Then through the vendors' own modules on
recorded machines: a run that begins on a healthy one and goes on, from its third launch, on one
with a fault, judged by the criteria that are shipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from faulty.vendor import Vendor
from support.builders import (
    Watching,
    a_case,
    a_plan,
    bare_lines,
    ended,
    resumed,
    verdict_of,
    watched_events,
)
from support.watched_runs import (
    ACCELERATOR,
    CALM,
    DEVICE,
    FAIL,
    HEALTHY,
    PLAN,
    RECORDED,
    Recorded,
    answer,
    asking,
    fault,
    ruling,
    run_of,
    system,
    watching,
)

from appliance.errors import UsageError
from appliance.evidence import device_health
from appliance.evidence.journal_index import JournalIndex
from appliance.records.journal import Counted, Event, LaunchEnded, Reading
from appliance.records.system import Fact
from appliance.records.verdict import Ruling, Verdict
from appliance.records.vocabulary import COUNTERS, HARMFUL_THROTTLES, THROTTLES, metric_words
from appliance.storage import criteria_file
from appliance.vendors.cpu import Cpu
from appliance.verbs.preparation import default_criteria


def judged(one: Watching, logged: Sequence[Event] | None = (), **facts: Fact) -> Verdict:
    events = watched_events(PLAN, {DEVICE: one}, logged)
    return verdict_of(PLAN, events, ACCELERATOR, system=system(**facts))


# ------------------------------------------------------------------ the shipped criteria


def test_accelerators_are_judged_by_their_health_unless_others_are_named() -> None:
    card = Vendor()
    card.torch_type = "anything"
    assert (default_criteria(Cpu()), default_criteria(card)) == (
        "functional",
        "accelerator",
    )


def test_a_healthy_card_is_accepted() -> None:
    result = judged(watching())
    assert (result.verdict, result.decided_by) == ("ACCEPTED", "")
    others = {one.criterion: one.reason for one in result.rulings if one.ruling != "pass"}
    assert others == {"repeatability": "unplanned", "fabric": "absent"}


@pytest.mark.parametrize(
    ("name", "criterion"),
    [
        ("ecc_uncorrected", "ecc-uncorrected"),
        ("ecc_deferred", "ecc-deferred"),
        ("row_remap_pending", "row-remap-pending"),
        ("row_remap_failed", "row-remap-failed"),
        ("pages_pending", "pages-pending"),
        ("ras_uncorrected", "ras-uncorrected"),
        ("resets", "resets"),
        ("reset_wanted", "reset-wanted"),
        ("links_down", "links-down"),
        ("pcie_fatal", "pcie-fatal"),
        ("pcie_non_fatal", "pcie-non-fatal"),
        ("lost", "lost"),
    ],
)
def test_one_count_of_each_kind_rejects(name: str, criterion: str) -> None:
    result = judged(watching({name: 1}))
    one = ruling(result, criterion)
    assert (result.verdict, result.decided_by) == ("REJECTED", criterion)
    assert (one.ruling, one.reason) == ("fail", "health")
    assert DEVICE in one.explanation
    assert one.action
    assert one.statistic is not None
    assert (one.statistic.value, one.statistic.limit) == (1.0, 0.0)


@pytest.mark.parametrize("name", ["ecc_corrected", "pcie_replays", "link_errors"])
def test_corrected_errors_are_told_and_decide_nothing(name: str) -> None:
    result = judged(watching({name: 1}))
    assert result.verdict == "ACCEPTED"
    assert ruling(result, name.replace("_", "-")).ruling == "fail"


@pytest.mark.parametrize("reason", HARMFUL_THROTTLES)
def test_a_power_cap_hides_no_harmful_throttling(reason: str) -> None:
    result = judged(watching(values={f"throttled_{reason}": 1.0, "throttled_power_cap": 1.0}))
    assert result.decided_by == "throttling"
    share = ruling(result, "throttling").statistic
    assert share is not None
    assert share.value == pytest.approx(3 / 5)  # launches 3 to 5 of the five timed ones


@pytest.mark.parametrize("reason", sorted(set(THROTTLES) - set(HARMFUL_THROTTLES)))
def test_other_reasons_are_no_fault(reason: str) -> None:
    assert judged(watching(values={f"throttled_{reason}": 1.0})).verdict == "ACCEPTED"


def test_a_slot_of_eight_lanes_rejects_and_a_slow_one_is_told() -> None:
    result = judged(
        Watching(counters=lambda _: HEALTHY, values=lambda _: {**CALM, "pcie_width": 8})
    )
    assert (result.verdict, result.decided_by) == ("REJECTED", "pcie-lanes")
    slow = judged(
        Watching(counters=lambda _: HEALTHY, values=lambda _: {**CALM, "pcie_generation": 4})
    )
    assert (slow.verdict, ruling(slow, "pcie-generation").ruling) == ("ACCEPTED", "fail")


@pytest.mark.parametrize(
    ("logged", "word", "by"),
    [
        ((), "ACCEPTED", ""),
        ((fault("Xid 79", is_fatal=True),), "REJECTED", "kernel-faults-fatal"),
        ((fault("Xid 79", is_fatal=True, device=""),), "REJECTED", "kernel-faults-fatal"),
        ((fault("Xid 13", is_fatal=False),), "ACCEPTED", ""),
        (None, "ACCEPTED", ""),
    ],
)
def test_the_kernels_log_is_judged_or_not_observed(
    logged: Sequence[Event] | None, word: str, by: str
) -> None:
    result = judged(watching(), logged)
    assert (result.verdict, result.decided_by) == (word, by)
    if logged is None:
        one = ruling(result, "kernel-faults-fatal")
        assert (one.ruling, one.reason) == ("not_applicable", "not_observed")
        assert "--device /dev/kmsg" in one.explanation
        assert "Not observed, so not judged: No fatal fault of a device" in result.scope


def test_what_is_not_observed_is_inconclusive_unless_the_criterion_says_otherwise() -> None:
    events = watched_events(PLAN, {DEVICE: watching()}, None)
    metric = "kernel_faults_fatal"
    assert answer(events, metric).ruling == "inconclusive"
    assert answer(events, metric, if_not_observed="not_applicable").ruling == "not_applicable"
    lenient = {one.id for one in ACCELERATOR.criterion if one.if_not_observed != "inconclusive"}
    assert lenient == {"kernel-faults-fatal", "fabric"}


def test_a_fatal_fault_is_one_also_where_the_log_was_lost_later() -> None:
    events = watched_events(PLAN, {DEVICE: watching()}, None)
    events[-1:-1] = [fault("Xid 79", is_fatal=True)]
    assert answer(events, "kernel_faults_fatal").ruling == "fail"


# ------------------------------------------------------------------ not reported, absent


@pytest.mark.parametrize(
    "metric",
    sorted(
        one.metric
        for one in ACCELERATOR.criterion
        if one.kind == "health" and one.required and one.metric in COUNTERS
    ),
)
def test_a_counter_that_is_forbidden_is_inconclusive_with_its_hint(metric: str) -> None:
    one = Watching(
        counters=lambda _: {**HEALTHY, metric: None},
        values=lambda _: CALM,
        hints={metric: "run as root to read it"},
    )
    result = judged(one)
    actual = next(r for r in result.rulings if metric_words(metric) in r.explanation)
    assert result.verdict == "INCONCLUSIVE"
    assert (actual.ruling, actual.reason) == ("inconclusive", "not_observed")
    assert "run as root to read it" in actual.explanation


@pytest.mark.parametrize("metric", ["links_down", "pages_pending", "resets", "ecc_uncorrected"])
def test_what_a_card_cannot_have_is_not_applicable_and_keeps_nothing_from_passing(
    metric: str,
) -> None:
    def without(absent: tuple[str, ...]) -> Verdict:
        return judged(
            Watching(
                counters=lambda _: {**HEALTHY, metric: None},
                values=lambda _: CALM,
                absent=absent,
            )
        )

    result = without((metric,))
    assert result.verdict == "ACCEPTED"
    (own,) = [one.id for one in ACCELERATOR.criterion if one.metric == metric]
    assert (ruling(result, own).ruling, ruling(result, own).reason) == ("not_applicable", "absent")
    assert without(()).verdict == "INCONCLUSIVE"  # unreadable is never not applicable


def test_absent_is_inconclusive_where_the_criterion_does_not_say_otherwise() -> None:
    one = Watching(counters=lambda _: {}, absent=("links_down",))
    events = watched_events(PLAN, {DEVICE: one})
    actual = answer(events, "links_down")
    assert (actual.ruling, actual.reason) == ("inconclusive", "absent")
    assert answer(events, "links_down", if_absent="not_applicable").ruling == "not_applicable"


def test_a_value_that_is_told_counts_whatever_the_vendor_says_is_absent() -> None:
    one = Watching(counters=lambda n: {"links_down": int(n > 2)}, absent=("links_down",))
    events = watched_events(PLAN, {DEVICE: one})
    assert answer(events, "links_down", if_absent="not_applicable").ruling == "fail"


def test_a_run_of_which_nothing_applies_is_not_accepted() -> None:
    one = Watching(counters=lambda _: {}, absent=("links_down",))
    events = watched_events(PLAN, {DEVICE: one})[:1]  # nothing ran
    result = verdict_of(
        PLAN, events, asking("links_down", if_absent="not_applicable"), system=system()
    )
    assert result.verdict == "INCONCLUSIVE"


def test_only_a_criterion_of_health_may_not_apply() -> None:
    text = b"""
schema = "bench/criteria/1"
name = "x"
version = 1
summary = "x"
[[criterion]]
id = "x"
kind = "inventory"
title = "x"
metric = "devices.count"
equals = 1
if_absent = "not_applicable"
"""
    with pytest.raises(UsageError, match="if_absent"):
        criteria_file.parse_criteria(text, "x.toml")


@pytest.mark.parametrize(
    ("values", "facts", "criterion", "hint"),
    [
        ({"throttled_thermal": None}, {}, "throttling", "no thermal reason here"),
        ({"pcie_width": None}, {}, "pcie-lanes", "no width here"),
        (
            {},
            {"pcie_width_highest": Fact(value=None, hint="mount /sys")},
            "pcie-lanes",
            "mount /sys",
        ),
    ],
)
def test_a_reading_that_is_not_there_is_inconclusive_with_its_hint(
    values: Mapping[str, None], facts: Mapping[str, Fact], criterion: str, hint: str
) -> None:
    one = Watching(
        counters=lambda _: HEALTHY,
        values=lambda _: {**CALM, **values},
        hints={"throttled_thermal": "no thermal reason here", "pcie_width": "no width here"},
    )
    actual = ruling(judged(one, (), **facts), criterion)
    assert (actual.ruling, actual.reason) == ("inconclusive", "not_observed")
    assert hint in actual.explanation


def test_heat_that_was_seen_fails_where_another_reason_is_not_told() -> None:
    one = Watching(
        counters=lambda _: HEALTHY,
        values=lambda n: {**CALM, "throttled_thermal": float(n > 2), "throttled_current": None},
    )
    assert ruling(judged(one), "throttling").ruling == "fail"


def test_readings_of_an_idle_card_or_outside_the_steps_are_none_under_load() -> None:
    idle = watching(values={"throttled_thermal": 1.0, "utilisation_fraction": 0.1})
    assert judged(idle).verdict == "ACCEPTED"
    unloaded = judged(replace(watching(), readings=0))
    actual = ruling(unloaded, "throttling")
    assert (actual.ruling, "while its steps ran" in actual.explanation) == ("inconclusive", True)


def test_one_stray_reading_of_few_decides_nothing_and_two_do() -> None:
    def shown(*hot: int) -> Ruling:
        one = Watching(
            counters=lambda _: {},
            values=lambda n: {**CALM, "throttled_hardware": float(n in hot)},
            readings=1,
        )
        return answer(watched_events(PLAN, {DEVICE: one}), "throttle_share", at_most=0.02)

    assert (shown().ruling, shown(3, 4).ruling) == ("pass", "fail")
    assert shown(3).ruling == "inconclusive"
    assert "one of 5 readings" in shown(3).explanation
    assert "use a suite with longer launches" in shown(3).explanation


# ------------------------------------------------------------------ time that a device counts

MS = 1_000_000
HELD, BRAKED = "thermal_violation_ns", "power_brake_violation_ns"
UNKNOWN = {"throttled_current"}
"""What a device that counts its time has no reason for."""


def counting(course: Callable[[int], Mapping[str, int | None]], **settings: Any) -> Ruling:
    """The throttling of a card whose counters take this course, by launches that have ended."""
    one = Watching(counters=lambda n: {HELD: 0, BRAKED: 0, **course(n)}, **settings)
    one = replace(one, absent=tuple(UNKNOWN))
    events = watched_events(PLAN, {DEVICE: replace(one, values=without_current(one.values))})
    return answer(events, "throttle_share", at_most=0.02)


def without_current(
    values: Callable[[int], Mapping[str, float | None]],
) -> Callable[[int], Mapping[str, float | None]]:
    return lambda n: {name: one for name, one in values(n).items() if name not in UNKNOWN}


@pytest.mark.parametrize("name", [HELD, BRAKED])
def test_what_a_device_counts_decides_where_no_reading_saw_it(name: str) -> None:
    calm = counting(lambda _: {name: 7}, readings=0)
    assert (calm.ruling, calm.statistic and calm.statistic.count) == ("pass", 6)
    held = counting(lambda n: {name: 400 * MS * n}, readings=0)
    assert (held.ruling, held.reason) == ("fail", "health")
    assert "all of its cases, by its counters" in held.explanation


def test_of_readings_and_counters_the_worse_counts() -> None:
    hot = {"values": lambda n: {**CALM, "throttled_thermal": float(n > 2)}, "readings": 3}
    seen = counting(lambda _: {}, **hot)
    assert (seen.ruling, "60 %" in seen.explanation) == ("fail", True)
    calm = {"values": lambda _: CALM, "readings": 20}
    assert counting(lambda n: {HELD: 400 * MS * n}, **calm).ruling == "fail"
    stray = {"values": lambda n: {**CALM, "throttled_thermal": float(n == 3)}, "readings": 1}
    assert counting(lambda _: {}, **stray).ruling == "pass"  # which the counters would have


def test_one_event_that_a_device_counted_in_little_time_decides_nothing() -> None:
    once = counting(lambda n: {HELD: 450 * MS * (n > 2)}, readings=0)
    assert once.ruling == "inconclusive"
    assert "grew by 0.45 s while steps ran for" in once.explanation
    assert "as by one event: use a suite whose steps run for 25 s" in once.explanation


@pytest.mark.parametrize(
    ("course", "words"),
    [
        ((9, 9, 9, 5, 5, 5, 5), "it went back from 9 to 5"),
        ((9, 9, 9, None, None, None, None), "it was there in"),
        ((9, 9, None, 9, 9, 9, 9), "it was there in"),
        ((0, 0, 10**18, 10**18, 10**18, 10**18, 10**18), "which no device can have counted"),
    ],
)
def test_counters_that_no_device_gives_are_no_pass(
    course: Sequence[int | None], words: str
) -> None:
    """Nor are readings, which may be forged as well: that a counter is wrong stands."""
    for name in (HELD, BRAKED):
        result = counting(lambda n, it=name: {it: course[n]}, values=lambda _: CALM, readings=20)
        assert (result.ruling, words in result.explanation) == ("inconclusive", True)


def test_a_device_that_does_not_count_all_that_may_hold_it_back_is_judged_by_readings() -> None:
    none = counting(lambda _: {BRAKED: None}, readings=0)
    assert (none.ruling, device_health.UNLOADED in none.explanation) == ("inconclusive", True)
    one = Watching(counters=lambda _: {HELD: 0, BRAKED: 0}, readings=0)  # regulators may, too
    events = watched_events(PLAN, {DEVICE: one})
    assert answer(events, "throttle_share", at_most=0.02).ruling == "inconclusive"


# ------------------------------------------------------------------ the power limit


@pytest.mark.parametrize(
    ("limit", "watts", "lowered", "held"),
    [
        (700, 690.0, "pass", "pass"),
        (500, 495.0, "fail", "pass"),  # somebody lowered it
        (700, 420.0, "pass", "fail"),  # something else holds it back
        (None, 690.0, "inconclusive", "inconclusive"),
    ],
)
def test_a_power_limit_is_held_to_the_default_and_to_what_is_drawn(
    limit: float | None, watts: float, lowered: str, held: str
) -> None:
    capped = {"throttled_power_cap": 1.0, "power_watts": watts}
    facts = {"power_limit": Fact(value=limit), "power_limit_default": Fact(value=700)}
    result = judged(watching(values=capped, readings=12), **facts)
    words = [ruling(result, name).ruling for name in ("power-limit", "power-cap")]
    assert (words, result.verdict) == ([lowered, held], "ACCEPTED")


def test_a_power_that_is_a_mean_over_what_was_before_is_not_held_to_the_limit() -> None:
    """As an H100 read it from the begin of each launch on: a mean over the last second."""
    facts = {"power_limit": Fact(value=700), "power_limit_default": Fact(value=700)}
    ramp = [
        {**CALM, "throttled_power_cap": 1.0, "power_watts": watts}
        for watts in (256.0, 605.0, 688.0)
    ]
    one = Watching(counters=lambda _: {}, values=lambda _: CALM, readings=3)
    turn = count()
    events = [
        replace(event, values=ramp[next(turn) % 3]) if isinstance(event, Reading) else event
        for event in watched_events(PLAN, {DEVICE: one})
    ]
    result = verdict_of(PLAN, events, ACCELERATOR, system=system(**facts))
    share = ruling(result, "power-cap").statistic
    assert share is not None
    assert share.value == pytest.approx(1 - 688 / 700)


# ------------------------------------------------------------------ counters over time


@pytest.mark.parametrize(
    ("course", "word"),
    [
        ((5, 5, 5, 5, 5, 5, 5), "pass"),
        ((5, 5, 6, 6, 6, 6, 6), "fail"),
        ((5, 5, 4, 4, 4, 4, 4), "inconclusive"),  # was reset
        ((5, 5, 4, 4, 5, 5, 5), "fail"),  # was reset, and grew
        ((5, 5, None, None, None, None, None), "inconclusive"),  # vanished
        ((5, 5, None, 5, 5, 5, 5), "inconclusive"),
        ((5, 6, None, None, None, None, None), "fail"),
        ((None,) * 7, "inconclusive"),
    ],
)
def test_growth_is_what_was_seen_to_grow(course: Sequence[int | None], word: str) -> None:
    one = Watching(counters=lambda n: {"ecc_uncorrected": course[n]})
    assert answer(watched_events(PLAN, {DEVICE: one}), "ecc_uncorrected").ruling == word


def test_growth_names_the_launch_that_ran_meanwhile() -> None:
    one = Watching(counters=lambda n: {"ecc_uncorrected": int(n > 2)})
    actual = answer(watched_events(PLAN, {DEVICE: one}), "ecc_uncorrected")
    assert f"{PLAN.cases[0].id}/2" in actual.explanation  # its third launch is number 2


TWO = a_plan(a_case("gemm", device=DEVICE), a_case("bert", device=DEVICE))


@pytest.mark.parametrize(("cases", "word"), [("gemm", "pass"), ("bert", "fail"), ("*", "fail")])
def test_a_pattern_of_cases_takes_what_grew_in_their_launches(cases: str, word: str) -> None:
    # in rounds: gemm/0, bert/0, gemm/1, bert/1, ...
    one = Watching(counters=lambda n: {"ecc_uncorrected": int(n > 3)})
    events = watched_events(TWO, {DEVICE: one})
    system_ = system()
    result = verdict_of(TWO, events, asking("ecc_uncorrected", cases=cases), system=system_)
    assert ruling(result, "asked").ruling == word


def test_what_grows_between_launches_counts_for_the_whole_run_alone() -> None:
    events = watched_events(PLAN, {DEVICE: Watching(counters=lambda _: {"resets": 0})})
    place = max(i for i, one in enumerate(events) if isinstance(one, Counted))
    last = events[place]
    assert isinstance(last, Counted)
    events[place] = replace(last, counters={"resets": 1})
    whole = answer(events, "resets")
    assert (whole.ruling, "between launches" in whole.explanation) == ("fail", True)
    assert answer(events, "resets", cases="gemm").ruling == "pass"


def test_counters_that_are_the_same_are_those_before_them() -> None:
    one = Watching(counters=lambda n: {"ecc_uncorrected": int(n > 2)})
    plain = watched_events(PLAN, {DEVICE: one})
    short: list[Event] = []
    last: Mapping[str, int | None] = {}
    for event in plain:
        kept = event
        if isinstance(event, Counted) and event.launch and event.counters == last:
            kept = replace(event, counters={}, is_same=True)
        if isinstance(event, Counted):
            last = event.counters
        short.append(kept)
    assert sum(isinstance(one, Counted) and one.is_same for one in short) == 11
    assert answer(short, "ecc_uncorrected") == answer(plain, "ecc_uncorrected")


def test_the_same_as_nothing_is_nothing() -> None:
    events = watched_events(PLAN, {DEVICE: Watching(counters=lambda _: {})})
    events = [
        replace(one, is_same=bool(one.launch)) if isinstance(one, Counted) else one
        for one in events
    ]
    assert answer(events, "ecc_uncorrected").reason == "not_observed"


def test_an_interrupted_launch_is_counted_to_where_the_run_goes_on() -> None:
    one = Watching(counters=lambda n: {"ecc_uncorrected": int(n > 2)})
    events = watched_events(PLAN, {DEVICE: one})
    cut = f"{PLAN.cases[0].id}/2"
    place = next(i for i, e in enumerate(events) if isinstance(e, LaunchEnded) and e.launch == cut)
    after = events[place + 1]
    assert isinstance(after, Counted)
    begin = replace(after, launch="", moment="before")
    events[place : place + 2] = [*resumed(1, cut), begin]
    actual = answer(events, "ecc_uncorrected")
    assert (actual.ruling, cut in actual.explanation) == ("fail", True)
    assert events[place + 1] == ended(cut, "interrupted", "the appliance was stopped")


def test_every_device_of_a_job_is_judged_and_named() -> None:
    names = ("card:0", "card:1", "card:2")
    job = replace(a_case("train", device=names[0]), devices=names, scope="job")
    plan = a_plan(job)
    sick = Watching(counters=lambda n: {"ecc_uncorrected": int(n > 2)})
    well = Watching(counters=lambda _: {"ecc_uncorrected": 0})
    watched = dict(zip(names, (well, well, sick), strict=True))
    result = verdict_of(
        plan, watched_events(plan, watched), asking("ecc_uncorrected"), system=system(*names)
    )
    actual = ruling(result, "asked")
    assert (actual.ruling, "card:2: 1" in actual.explanation) == ("fail", True)
    assert "card:1" not in actual.explanation
    del watched["card:1"]
    blind = verdict_of(
        plan,
        watched_events(plan, {**watched, "card:2": well}),
        asking("ecc_uncorrected"),
        system=system(*names),
    )
    assert ruling(blind, "asked").reason == "not_observed"
    assert "card:1" in ruling(blind, "asked").explanation


# ------------------------------------------------------------------ clocks and long cases


def test_lost_clock_is_the_mean_under_load_against_the_highest() -> None:
    one = Watching(
        counters=lambda _: {}, values=lambda n: {"graphics_clock_hertz": 2e9 - 1e8 * (n % 2)}
    )
    actual = answer(watched_events(PLAN, {DEVICE: one}), "lost_clock", at_most=0.5)
    assert actual.statistic is not None
    assert actual.statistic.value == pytest.approx(0.03)  # three of five launches at 1.9 of 2.0 GHz


def test_a_long_case_that_throttles_is_not_saved_by_the_others() -> None:
    def values(n: int) -> Mapping[str, float | None]:
        return {**CALM, "throttled_thermal": float(n % 2 == 1 and n == 3)}

    # bert's launch 1 is the fourth on the device: its only hot one, of 12 readings in 60
    one = Watching(counters=lambda _: HEALTHY, values=values, readings=12)
    events = watched_events(TWO, {DEVICE: one})
    actual = answer(events, "throttle_share", TWO, at_most=0.15)
    assert (actual.ruling, "bert@card:0" in actual.explanation) == ("fail", True)
    few = watched_events(TWO, {DEVICE: replace(one, readings=4)})  # 20 readings of each case
    assert answer(few, "throttle_share", TWO, at_most=0.15).ruling == "pass"


def test_nonsense_is_no_pass() -> None:
    one = Watching(counters=lambda _: {}, values=lambda _: {"temperature_celsius": math.nan})
    events = watched_events(PLAN, {DEVICE: one})
    actual = answer(events, "temperature_celsius", at_most=80.0)
    assert (actual.ruling, actual.reason) == ("inconclusive", "evidence_missing")


def test_gaps_are_listed_once_with_what_would_allow_them() -> None:
    one = Watching(
        counters=lambda _: {"ecc_uncorrected": None, "links_down": None, "resets": 0},
        values=lambda _: {"power_watts": None},
        hints={"ecc_uncorrected": "run as root"},
        absent=("links_down",),
    )
    index = JournalIndex(PLAN)
    for line in bare_lines(watched_events(PLAN, {DEVICE: one}, None)):
        index.take(line)
    (result,) = device_health.of_devices(
        system().identity.devices, tuple(index.cases.values()), "run"
    )
    assert {gap.what: gap.hint for gap in result.gaps()} == {
        "ecc_uncorrected": "run as root",
        "power_watts": device_health.UNREPORTED,
        "kernel_log": "add --device /dev/kmsg",
    }


# ------------------------------------------------------------------ through the vendors' modules


HEALTHY_RECORDS = (
    ("nvml", "h100_sxm"),
    ("nvml", "h200_sxm"),
    ("nvml", "b200"),
    ("nvml", "a100_sxm"),
    ("nvml", "card_without_bridge"),
    ("rocm", "mi300x"),
    ("rocm", "mi250x"),
    ("xpu", "max_1550"),
)


@pytest.mark.parametrize(("vendor", "name"), HEALTHY_RECORDS)
def test_a_healthy_recorded_machine_is_accepted(vendor: str, name: str) -> None:
    result, _ = run_of(vendor, name, name)
    against = [one for one in result.rulings if one.required and one.ruling != "pass"]
    assert {one.ruling for one in against} <= {"not_applicable"}, against
    assert result.verdict == "ACCEPTED"


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: f"{one.vendor}-{one.name}")
def test_a_recorded_fault_has_its_ruling(one: Recorded) -> None:
    result, devices = run_of(one.vendor, one.healthy, one.name)
    actual = ruling(result, one.criterion)
    assert (actual.ruling, actual.reason) == one.answer, actual.explanation
    assert any(device.id in actual.explanation for device in devices)
    assert actual.action
    wanted = "REJECTED" if one.answer == FAIL else "INCONCLUSIVE"
    assert result.verdict == (wanted if actual.required else "ACCEPTED")
