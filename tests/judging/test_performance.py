"""Rulings on times and on the node: every kind of limit, and what keeps each from passing."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from support.baselines import a_level
from support.builders import (
    FUNCTIONAL,
    PROTOCOL,
    SYSTEM,
    a_case,
    a_plan,
    a_system,
    bare_lines,
    ended,
    healthy_events,
    limited,
    verdict_of,
    with_bounds,
    word_of,
)
from support.timed_evidence import (
    LAUNCH_SD,
    SECONDS,
    criteria,
    perf,
    ruling_on,
    rulings,
    steady,
    tail,
    timed,
)

from appliance.evidence.baseline_key import device_name, key_of
from appliance.judging.verdict import Judge, judge
from appliance.records.baseline import Baseline, Baselines, Peak, Peaks, Tolerance
from appliance.records.criteria import Criterion
from appliance.records.journal import (
    Block,
    Calibrated,
    Counted,
    Event,
    Injected,
    LaunchEnded,
    Reading,
)
from appliance.records.plan import Launch, Plan
from appliance.records.system import Fact
from appliance.records.workload import Work

CASE = "gemm@cpu:0"
NOT_AGAINST = {"pass", "not_applicable"}
LONG = a_plan(a_case(launches=10), protocol=replace(PROTOCOL, interim_analyses=(5, 10), blocks=1))


def a_baseline(
    plan: Plan,
    seconds: float = SECONDS,
    level: Mapping[str, object] = MappingProxyType({}),
    **fields: object,
) -> Baseline:
    case = plan.cases[0]
    steps = a_level(math.log(seconds), LAUNCH_SD, **level)
    made = Baseline(
        key=key_of(case, plan.protocol, SYSTEM),
        kind="same_device",
        devices=(device_name(SYSTEM, case.device),),
        num_launches=480,
        num_runs=12,
        run_seconds=3600.0,
        steps=steps,
        wall=steps,
        smallest_margin=0.006,
        smallest_margin_of_three=0.006,
        bundles=("b" * 64,),
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def of(*items: Baseline) -> Baselines:
    return Baselines(baseline=items)


# ------------------------------------------------------------------ baselines


@pytest.mark.parametrize(
    ("seconds", "ruling", "reason"),
    [
        (1.00, "pass", ""),
        (1.03, "inconclusive", "noise"),
        (1.08, "fail", "over_limit"),
        (0.80, "inconclusive", "too_good"),
    ],
)
def test_a_baseline_and_its_margin_are_a_limit(seconds: float, ruling: str, reason: str) -> None:
    lines = timed(LONG, steady(SECONDS * seconds))
    actual = ruling_on(
        rulings(
            LONG, lines, criteria(perf(within_of_baseline=0.03)), baselines=of(a_baseline(LONG))
        )
    )
    assert (actual.ruling, actual.reason) == (ruling, reason)
    assert actual.statistic is not None
    assert actual.statistic.limit == pytest.approx(SECONDS * 1.03)
    assert actual.statistic.count == 10


def test_the_margin_of_the_workload_class_is_used_where_the_criterion_says_class() -> None:
    requested = criteria(perf(within_of_baseline="class"), margins={"compute": 0.07})
    actual = ruling_on(
        rulings(LONG, timed(LONG, steady()), requested, baselines=of(a_baseline(LONG)))
    )
    assert actual.statistic is not None
    assert actual.statistic.limit == pytest.approx(SECONDS * 1.07)


def test_the_tolerance_limit_of_a_population_may_be_wider_than_the_margin() -> None:
    tolerance = Tolerance(p=0.95, gamma=0.95, k=2.5, log_limit=math.log(SECONDS * 1.05))
    baseline = a_baseline(
        LONG,
        level={"device_sd": 0.02, "tolerance": tolerance},
        kind="population",
        devices=("a", "b"),
    )
    actual = ruling_on(
        rulings(
            LONG,
            timed(LONG, steady(SECONDS * 1.03)),
            criteria(perf(within_of_baseline=0.01)),
            baselines=of(baseline),
        )
    )
    assert actual.ruling == "pass"
    assert actual.statistic is not None
    assert actual.statistic.limit == pytest.approx(SECONDS * 1.05)


def test_a_baseline_of_another_key_is_a_mismatch_and_never_a_pass() -> None:
    other = replace(a_baseline(LONG).key, software={"torch": "1.0"})
    requested = criteria(perf(within_of_baseline=0.5))
    lines = timed(LONG, steady())
    actual = ruling_on(rulings(LONG, lines, requested, baselines=of(a_baseline(LONG, key=other))))
    assert (actual.ruling, actual.reason) == ("inconclusive", "baseline_mismatch")
    actual = ruling_on(rulings(LONG, lines, requested))
    assert (actual.ruling, actual.reason) == ("inconclusive", "baseline_missing")


# ------------------------------------------------------------------ peaks

PEAK = Peak(
    model="Test Processor 9000",
    quantity="float32_flops_per_second",
    value=4e11,
    unit="FLOP/s",
    per="device",
    is_confirmed=True,
    source="these tests",
)
OF_FLOAT = a_plan(
    a_case(launches=10, work=Work(units=4.0, unit="samples", flops=2e9, precision="float32")),
    protocol=LONG.protocol,
)


@pytest.mark.parametrize(
    ("fraction", "ruling"), [(0.3, "pass"), (0.5, "inconclusive"), (0.7, "fail")]
)
def test_a_part_of_the_peak_is_a_limit(fraction: float, ruling: str) -> None:
    requested = criteria(perf(metric="flops_per_second", fraction_of_peak=fraction))
    lines = timed(OF_FLOAT, steady())  # 2e9 operations in 10 ms are 2e11/s, half of the peak
    actual = ruling_on(rulings(OF_FLOAT, lines, requested, peaks=Peaks(peak=(PEAK,))))
    assert actual.ruling == ruling
    actual = ruling_on(rulings(OF_FLOAT, lines, requested))
    assert (actual.ruling, actual.reason) == ("inconclusive", "peak_missing")


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (2.5e11, ("pass", "")),
        (1.95e11, ("inconclusive", "above_peak")),
        (1e11, ("fail", "above_peak")),
    ],
)
def test_a_rate_above_the_peak_is_a_fault_of_integrity(
    value: float, answer: tuple[str, str]
) -> None:
    lines = timed(OF_FLOAT, steady())
    peaks = Peaks(peak=(replace(PEAK, value=value),))
    actual = ruling_on(rulings(OF_FLOAT, lines, FUNCTIONAL, peaks=peaks), "integrity")
    assert (actual.ruling, actual.reason) == answer


# ------------------------------------------------------------------ clocks


def scale_blocks(event: Event) -> Event:
    assert isinstance(event, Block)
    wall = tuple(time * 9 // 10 for time in event.wall_ns)
    return replace(event, wall_ns=wall, block_wall_ns=event.block_wall_ns * 9 // 10)


def calibrated(**fields: tuple[int, ...]) -> Callable[[Event], Event]:
    return lambda event: replace(event, **fields)  # type: ignore[type-var]


SPAN = (10**9,) * 3


def of_device(event: int, *, inner: int | None = 998) -> Callable[[Event], Event]:
    """The device's clock, and its host's inside of the spans, in thousandths of the host's."""

    def change(one: Event) -> Event:
        assert isinstance(one, Calibrated)
        within = None if inner is None else (inner * 10**6,) * 3
        spans = (event * 10**6,) * 3
        return replace(one, wall_ns=SPAN, raw_ns=SPAN, event_ns=spans, inner_ns=within)

    return change


@pytest.mark.parametrize(
    ("kind", "change", "answer"),
    [
        (Block, scale_blocks, ("fail", "clock")),
        (Calibrated, calibrated(wall_ns=(9 * 10**8,) * 3, raw_ns=SPAN), ("fail", "clock")),
        (Calibrated, calibrated(wall_ns=(994 * 10**6,) * 3, raw_ns=SPAN), ("fail", "clock")),
        (Calibrated, calibrated(wall_ns=(998 * 10**6,) * 3, raw_ns=SPAN), ("pass", "")),
        (Calibrated, of_device(900), ("fail", "clock")),
        (Calibrated, of_device(977), ("fail", "clock")),
        (Calibrated, of_device(990), ("inconclusive", "clock")),
        (Calibrated, of_device(997), ("pass", "")),
        (Calibrated, of_device(1001), ("pass", "")),
        (Calibrated, of_device(1010), ("inconclusive", "clock")),
        (Calibrated, of_device(1030), ("fail", "clock")),
        # Another user has the device, and the first mark waits for a tenth of the time.
        (Calibrated, of_device(910, inner=900), ("inconclusive", "clock")),
        (Calibrated, of_device(870, inner=900), ("fail", "clock")),
        # No bracket was recorded: a clock that is too fast is certain, one too slow is not.
        (Calibrated, of_device(966, inner=None), ("inconclusive", "clock")),
        (Calibrated, of_device(1030, inner=None), ("fail", "clock")),
        (Calibrated, of_device(998, inner=None), ("pass", "")),
        (LaunchEnded, lambda event: replace(event, wall_ns=10**6), ("fail", "clock")),
    ],
)
def test_clocks_that_do_not_agree_are_found(
    kind: type, change: Callable[[Event], Event], answer: tuple[str, str]
) -> None:
    events = [
        change(event) if isinstance(event, kind) else event
        for event in map(longer, healthy_events(LONG))
    ]
    actual = ruling_on(verdict_of(LONG, events).rulings, "integrity")
    assert (actual.ruling, actual.reason) == answer


def longer(event: Event) -> Event:
    """Blocks twenty times as long, which a moment without a processor cannot explain."""
    if not isinstance(event, Block):
        return event
    whole = event.block_wall_ns * 20
    wall = tuple(time * 20 for time in event.wall_ns)
    return replace(event, wall_ns=wall, block_wall_ns=whole, block_raw_ns=whole)


def test_a_launch_that_did_not_compare_its_clocks_is_not_accepted() -> None:
    events = [event for event in healthy_events(LONG) if not isinstance(event, Calibrated)]
    actual = ruling_on(verdict_of(LONG, events).rulings, "integrity")
    assert (actual.ruling, actual.reason) == ("inconclusive", "evidence_missing")


# ------------------------------------------------------------------ steadiness and neighbours


def stepped(launch: Launch) -> Sequence[float]:
    """Five percent slower from 60 % of the steps on, in each launch."""
    times = steady()(launch)
    return [time * (1.0 if index < 24 else 1.05) for index, time in enumerate(times)]


def test_launches_that_become_slower_while_timed_do_not_pass() -> None:
    actual = ruling_on(rulings(LONG, timed(LONG, stepped), limited(SECONDS * 1.2)))
    assert (actual.ruling, actual.reason) == ("inconclusive", "unstable")
    result = judge(
        plan=LONG,
        criteria=FUNCTIONAL,
        lines=timed(LONG, stepped),
        baselines=of(),
        peaks=Peaks(peak=()),
        system=SYSTEM,
    ).cases[0]
    assert {launch.series for launch in result.launches if launch.num_steps} == {"slowdown"}


def test_launches_that_become_slower_and_are_beyond_the_limit_fail_all_the_same() -> None:
    actual = ruling_on(rulings(LONG, timed(LONG, stepped), limited(SECONDS * 0.9)))
    assert (actual.ruling, actual.reason) == ("fail", "over_limit")


def readings(plan: Plan, foreign: float | None) -> list[Event]:
    return [
        replace(event, values={"foreign_processors": foreign})
        if isinstance(event, Reading)
        else event
        for event in healthy_events(plan)
    ]


USABLE = replace(
    SYSTEM,
    identity=replace(
        SYSTEM.identity,
        devices=(
            replace(SYSTEM.identity.devices[0], facts={"usable_processors": Fact(value=2.0)}),
        ),
    ),
)


@pytest.mark.parametrize(
    ("foreign", "answer"),
    [
        (1.0, ("inconclusive", "environment")),
        (0.05, ("fail", "over_limit")),
        (None, ("fail", "over_limit")),
    ],
)
def test_a_slow_run_beside_others_says_nothing_of_the_device(
    foreign: float | None, answer: tuple[str, str]
) -> None:
    verdict = verdict_of(LONG, readings(LONG, foreign), limited(0.005), system=USABLE)
    actual = ruling_on(verdict.rulings)
    assert (actual.ruling, actual.reason) == answer
    assert verdict.verdict != "ACCEPTED"


# ------------------------------------------------------------------ tails


def stalling(part: float) -> Callable[[Launch], Sequence[float]]:
    def draw(launch: Launch) -> Sequence[float]:
        times = np.array(steady(steps=200)(launch))
        rng = np.random.default_rng([7, launch.number])
        stalls = rng.random(len(times)) < part
        return [float(each) for each in times * np.where(stalls, 1.5 + rng.exponential(), 1.0)]

    return draw


@pytest.mark.parametrize(
    ("part", "ruling"), [(0.0, "pass"), (0.03, "fail"), (0.005, "inconclusive")]
)
def test_stalls_are_counted_where_the_median_does_not_see_them(part: float, ruling: str) -> None:
    requested = criteria(tail("stall_rate", 0.008), perf(at_most=SECONDS * 1.1))
    actual = rulings(LONG, timed(LONG, stalling(part)), requested)
    assert ruling_on(actual, "tail").ruling == ruling
    assert ruling_on(actual).ruling == "pass"


@pytest.mark.parametrize(
    ("at_most", "ruling"), [(10.6, "pass"), (9.9, "fail"), (10.06, "inconclusive")]
)
def test_a_percentile_of_latency_is_judged_by_early_stopping(at_most: float, ruling: str) -> None:
    plan = a_plan(replace(a_case(launches=10), scenario="single_stream"), protocol=LONG.protocol)
    requested = criteria(tail("latency_seconds", at_most, unit="ms", quantile=0.9))
    actual = ruling_on(rulings(plan, timed(plan, steady(sd=1e-4)), requested), "tail")
    assert actual.ruling == ruling


def two_modes(launch: Launch) -> Sequence[float]:
    slower = 1.08 if launch.number in (3, 8) else 1.0
    return [slower * time for time in steady(sd=0.002)(launch)]


@pytest.mark.parametrize(
    ("draw", "at_most", "ruling"),
    [
        (steady(sd=0.002), 0.10, "pass"),
        (two_modes, 0.10, "inconclusive"),
        (two_modes, 0.02, "fail"),
    ],
)
def test_slow_launches_are_pooled_over_the_node(
    draw: Callable[[Launch], Sequence[float]], at_most: float, ruling: str
) -> None:
    cases = tuple(a_case(f"gemm{number}", launches=10) for number in range(6))
    plan = a_plan(*cases, protocol=LONG.protocol)
    actual = [
        item
        for item in rulings(plan, timed(plan, draw), criteria(tail("slow_launch_rate", at_most)))
        if item.criterion == "tail"
    ]
    assert [(item.case, item.ruling) for item in actual] == [("", ruling)]


# ------------------------------------------------------------------ health and inventory


def counted(*counts: int | None) -> list[Event]:
    events = healthy_events(LONG)
    before, last = (
        Counted(device="cpu:0", counters={"ecc_uncorrected": count}) for count in counts
    )
    return [events[0], before, *events[1:-1], replace(last, moment="after"), events[-1]]


@pytest.mark.parametrize(
    ("counts", "answer"),
    [
        ((3, 3), ("pass", "")),
        ((3, 4), ("fail", "health")),
        ((3, None), ("inconclusive", "not_observed")),
        ((None, None), ("inconclusive", "not_observed")),
        ((3, 2), ("inconclusive", "not_observed")),
    ],
)
def test_counters_are_judged_by_their_growth(
    counts: tuple[int | None, int | None], answer: tuple[str, str]
) -> None:
    requested = criteria(
        Criterion(id="ecc", kind="health", title="ECC", metric="ecc_uncorrected", at_most=0.0)
    )
    actual = ruling_on(verdict_of(LONG, counted(*counts), requested).rulings, "ecc")
    assert (actual.ruling, actual.reason) == answer


@pytest.mark.parametrize(
    ("metric", "at_most", "answer"),
    [
        ("load", 0.5, ("pass", "")),
        ("load", 0.4, ("fail", "health")),
        ("kelvin", 400.0, ("inconclusive", "not_observed")),
        ("colour", 1.0, ("inconclusive", "not_observed")),
    ],
)
def test_readings_are_judged_by_the_worst_and_never_by_what_is_not_reported(
    metric: str, at_most: float, answer: tuple[str, str]
) -> None:
    requested = criteria(
        Criterion(id="warm", kind="health", title="Reading", metric=metric, at_most=at_most)
    )
    actual = ruling_on(verdict_of(LONG, healthy_events(LONG), requested).rulings, "warm")
    assert (actual.ruling, actual.reason) == answer


@pytest.mark.parametrize(
    ("metric", "fields", "answer"),
    [
        ("devices.count", {"at_least": 2.0}, ("pass", "")),
        ("devices.count", {"at_least": 3.0}, ("fail", "inventory")),
        ("devices.memory_bytes", {"at_least": 2.0**36}, ("pass", "")),
        ("devices.memory_bytes", {"at_least": 2.0**36 + 1}, ("fail", "inventory")),
        ("devices.model", {"equals": "Test Processor 9000"}, ("pass", "")),
        ("devices.model", {"equals": "Another"}, ("fail", "inventory")),
        ("devices.physical_cores", {"at_least": 2.0}, ("pass", "")),
        ("devices.colour", {"equals": "blue"}, ("inconclusive", "evidence_missing")),
        ("host.system_uuid", {"equals": "x"}, ("fail", "inventory")),
        ("host.memory", {"at_least": 1.0}, ("inconclusive", "evidence_missing")),
    ],
)
def test_the_inventory_is_that_of_the_system(
    metric: str, fields: dict[str, float | str], answer: tuple[str, str]
) -> None:
    requested = criteria(
        replace(Criterion(id="found", kind="inventory", title="Parts", metric=metric), **fields)
    )
    system = a_system("cpu:0", "cpu:1")
    actual = ruling_on(
        verdict_of(LONG, healthy_events(LONG), requested, system=system).rulings, "found"
    )
    assert (actual.case, actual.ruling, actual.reason) == ("", *answer)


# ------------------------------------------------------------------ injected faults and reruns


@pytest.mark.parametrize("workload", ["gemm", "faulty.gemm"])
def test_a_run_that_injects_a_fault_is_never_accepted(workload: str) -> None:
    case = replace(a_case(injector="bit_flip" if workload == "gemm" else ""), workload=workload)
    verdict = verdict_of(a_plan(case), healthy_events(a_plan(case)))
    assert verdict.verdict == "INCONCLUSIVE"
    assert verdict.decided_by.startswith("integrity")
    against = {item.reason for item in verdict.rulings if item.ruling not in NOT_AGAINST}
    assert against == {"injected"}


def test_an_injected_fault_that_only_the_journal_names_is_enough() -> None:
    events = healthy_events(LONG)
    events.insert(1, Injected(injector="bit_flip", cases=()))
    assert word_of(LONG, events) == "INCONCLUSIVE"


def test_a_rerun_of_a_dispute_accepts_nothing() -> None:
    plan = replace(LONG, rerun_of="20261121T120000Z-abcdef/gemm@cpu:0/3")
    verdict = verdict_of(plan, healthy_events(plan))
    assert verdict.verdict == "INCONCLUSIVE"
    assert {item.reason for item in verdict.rulings if item.ruling not in NOT_AGAINST} == {"rerun"}


# ------------------------------------------------------------------ what it comes to


def test_the_criterion_of_the_highest_precedence_is_named() -> None:
    slow = limited(0.005)
    assert verdict_of(LONG, healthy_events(LONG), slow).decided_by == f"speed of {CASE}"
    crashed = [
        ended(f"{CASE}/1", "crashed", "SIGABRT")
        if isinstance(event, LaunchEnded) and event.launch == f"{CASE}/1"
        else event
        for event in healthy_events(LONG)
    ]
    assert verdict_of(LONG, crashed, slow).decided_by == f"completion of {CASE}"
    lied = [
        scale_blocks(event) if isinstance(event, Block) else event for event in map(longer, crashed)
    ]
    assert verdict_of(LONG, lied, slow).decided_by == f"integrity of {CASE}"
    assert verdict_of(LONG, healthy_events(LONG)).decided_by == ""


def test_failed_launches_are_counted() -> None:
    verdict = verdict_of(LONG, healthy_events(LONG))
    assert (verdict.num_made, verdict.num_failed) == (11, 0)


def test_the_score_compares_with_the_baseline_and_names_what_it_leaves_out() -> None:
    plan = a_plan(a_case(launches=10), a_case("bert", launches=10), protocol=LONG.protocol)
    verdict = judge(
        plan=plan,
        criteria=FUNCTIONAL,
        lines=timed(plan, steady(SECONDS * 1.25)),
        baselines=of(a_baseline(plan)),
        peaks=Peaks(peak=()),
        system=SYSTEM,
    )
    assert verdict.score is not None
    assert verdict.score.value == pytest.approx(0.8, rel=0.01)
    assert verdict.score.left_out == ("bert@cpu:0",)


def test_a_slow_device_is_named_among_its_neighbours() -> None:
    devices = tuple(f"cpu:{number}" for number in range(4))
    cases = tuple(
        a_case(name, device=device) for name in ("a", "b", "c", "d", "e") for device in devices
    )
    plan = a_plan(*cases, protocol=LONG.protocol)

    def draw(launch: Launch) -> Sequence[float]:
        slower = 1.08 if "cpu:2/" in launch.id else 1.0
        number = len(launch.id) + launch.number + int(launch.case[-1])
        return [slower * time for time in steady(seed=number)(launch)]

    verdict = judge(
        plan=plan,
        criteria=FUNCTIONAL,
        lines=timed(plan, draw),
        baselines=of(),
        peaks=Peaks(peak=()),
        system=a_system(*devices),
    )
    assert [item.device for item in verdict.stragglers if item.is_flagged] == ["cpu:2"]


def test_a_judge_that_takes_line_by_line_says_what_one_with_all_lines_says() -> None:
    requested = limited(0.02)
    plan, lines = with_bounds(LONG, requested), bare_lines(healthy_events(LONG))
    asking = Judge(
        plan=plan, criteria=requested, baselines=of(), peaks=Peaks(peak=()), system=SYSTEM
    )
    for line in lines:
        asking.take(line)
        asking.interim_analysis(CASE)
    whole = judge(
        plan=plan,
        criteria=requested,
        lines=lines,
        baselines=of(),
        peaks=Peaks(peak=()),
        system=SYSTEM,
    )
    assert asking.verdict() == whole
