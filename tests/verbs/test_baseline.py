"""The verb `baseline`: real signed bundles in, figures and refusals out."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.builders import PROTOCOL, a_case, a_plan, a_system, block, healthy_events
from support.bundles import (
    CRITERIA,
    NOTHING_KNOWN,
    Draft,
    analysed,
    as_drawn,
    healthy,
    rejected,
    sealed,
)
from support.program import called
from typer.testing import CliRunner

from appliance.cli.main import app
from appliance.errors import BenchError, EvidenceError, OutputError, UsageError
from appliance.evidence.baseline_key import find
from appliance.judging.criteria_check import check_margins, rounded_up
from appliance.records.baseline import Baseline, Baselines, Peak, Peaks
from appliance.records.criteria import Criteria
from appliance.records.journal import Block, Event, Reading
from appliance.records.json import sha256, to_json
from appliance.records.plan import Case
from appliance.records.qualified import FreshControl, LaunchPair, ObservedCase
from appliance.records.request import Answer
from appliance.records.suite import Protocol
from appliance.records.system import Fact, System
from appliance.records.workload import Description, Resolved, Work
from appliance.signing import keys
from appliance.signing.keys import Key
from appliance.statistics.tails import test_rate as rate_word
from appliance.statistics.tolerance import tolerance_factor
from appliance.storage import bundle, criteria_file, device_file, qualified_file
from appliance.storage.criteria_file import parse_criteria
from appliance.storage.device_file import parse_baselines
from appliance.verbs.baselines import create as baseline
from appliance.verbs.baselines.check import check, load
from appliance.verbs.baselines.create import Created, create, criteria_for, table
from appliance.verbs.baselines.criteria_draft import STAGE_SECONDS, slow_rate
from appliance.verbs.baselines.levels import spread_of
from appliance.verbs.baselines.measurements import measured_in, verified
from appliance.verbs.baselines.plan import plan as baseline_plan

TIMED = replace(PROTOCOL, interim_analyses=(2, 5), block_seconds=0.02)
DAY_ONE = (10_000_000, 10_050_000, 9_960_000, 10_010_000, 9_980_000)
DAY_TWO = (10_200_000, 10_260_000, 10_190_000, 10_230_000, 10_220_000)
"""Step times of five launches in nanoseconds; a day later all of them are 2 % slower."""
WEEK = (1.0, 1.001, 0.9988, 1.0006, 0.9994, 1.0002)
"""Levels of the runs of six days."""


def node(*serials: str, **software: str) -> System:
    """A node whose processors have these serials."""
    system = a_system(*(f"cpu:{index}" for index in range(len(serials))))
    devices = tuple(
        replace(device, serial=serial or None)
        for device, serial in zip(system.identity.devices, serials, strict=True)
    )
    versions = {name: Fact(value=value) for name, value in {"torch": "2.13.0", **software}.items()}
    return replace(
        system, identity=replace(system.identity, devices=devices, software=versions, host={})
    )


NODE = node("serial-0")


@pytest.fixture(scope="module")
def key() -> Key:
    return keys.development_key()


@pytest.fixture(scope="module")
def make(key: Key, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make the signed folder of a run in which `steps[case]` are the times of its launches."""

    def made(
        run: str,
        steps: Mapping[str, Sequence[int]],
        *,
        system: System = NODE,
        protocol: Protocol = TIMED,
        change: Callable[[Case], Case] = lambda case: case,
        altered: Callable[[Event], Event] = lambda event: event,
        day: int = 0,
    ) -> Path:
        cases = [
            change(
                a_case(
                    case.partition("@")[0],
                    device=case.partition("@")[2],
                    launches=len(values),
                    checked_launch=1,
                )
            )
            for case, values in steps.items()
        ]
        exact = change(a_case("exact", is_timed=False))
        plan = as_drawn(a_plan(*cases, exact, protocol=protocol))
        digests = {
            "suite": "5" * 64,
            "criteria": sha256(CRITERIA),
            "baselines": sha256(to_json(NOTHING_KNOWN["baselines"])),
            "peaks": sha256(to_json(NOTHING_KNOWN["peaks"])),
            "qualified": sha256(to_json(NOTHING_KNOWN["qualified"])),
            "identity": sha256(to_json(system.identity)),
        }
        plan = replace(plan, run_id=f"20261121T120000Z-{run:>06}", digests=digests)

        def at_its_time(event: Event) -> Event:
            if not isinstance(event, Block):
                return event
            case, _, number = event.launch.partition("/")
            step = steps[case][int(number) - 1]
            return block(event.launch, event.index, (step - 1000, step, step + 1000))

        events = analysed(plan, [altered(at_its_time(event)) for event in healthy_events(plan)])
        others = {bundle.SYSTEM: to_json(system)}
        number = day or 1 + sum(map(ord, run)) % 21  # none of which is to come
        draft = Draft(plan=plan, events=tuple(events), others=others, day=number)
        return sealed(tmp_path_factory.mktemp("run") / run, draft, key)

    return made


@pytest.fixture(scope="module")
def one(make: Callable[..., Path]) -> Path:
    return make("a", {"gemm@cpu:0": DAY_ONE})


@pytest.fixture(scope="module")
def two(make: Callable[..., Path]) -> Path:
    return make("b", {"gemm@cpu:0": DAY_TWO})


@pytest.fixture(scope="module")
def week(make: Callable[..., Path]) -> list[Path]:
    """Runs of six days, whose levels differ by 0.08 %."""
    return [
        make(f"w{day}", {"gemm@cpu:0": [round(step * level) for step in DAY_ONE]}, day=day)
        for day, level in enumerate(WEEK, 1)
    ]


def of(*folders: Path, kind: baseline.Kind = "same-device") -> Created:
    return create(folders, kind=kind, allow_development=True)


def refused(*folders: Path, kind: baseline.Kind = "same-device") -> BenchError:
    with pytest.raises(BenchError) as error:
        of(*folders, kind=kind)
    return error.value


def logs(*days: Sequence[int]) -> np.ndarray:
    return np.log(np.array([step * 1e-9 for day in days for step in day]))


def only(created: Created) -> Baseline:
    (result,) = created.baselines.baseline
    return result


# ------------------------------------------------------------------ figures


def test_one_run_gives_its_mean_and_carries_no_margin(one: Path) -> None:
    created = of(one)
    baseline = only(created)
    level, values = baseline.steps, logs(DAY_ONE)
    assert level.log_seconds == pytest.approx(values.mean())
    assert level.launch_sd == pytest.approx(values.std(ddof=1))
    assert level.within_sd == pytest.approx(values.std(ddof=1))
    assert (level.freedom, level.run_launches, level.run_sd, level.error_sd) == (0, 5, 0.0, 0.0)
    assert baseline.smallest_margin == baseline.smallest_margin_of_three == math.inf
    assert (baseline.kind, baseline.devices) == ("same_device", ("serial-0",))
    assert (baseline.num_launches, baseline.num_runs) == (5, 1)
    assert (level.device_sd, level.tolerance) == (None, None)
    assert any("the baseline carries no margin" in note for note in created.notes)
    with pytest.raises(UsageError, match="carries no margin yet, so no criteria can be written"):
        criteria_for(created, "mine")


def test_two_runs_add_the_spread_between_them(one: Path, two: Path) -> None:
    created = of(one, two)
    result = only(created)
    first, second = logs(DAY_ONE), logs(DAY_TWO)
    within = (first.var(ddof=1) + second.var(ddof=1)) / 2
    means = np.array([first.mean(), second.mean()])
    between = means.var(ddof=1) - within / 5  # balanced one-way random effects
    level = result.steps
    assert level.log_seconds == pytest.approx(logs(DAY_ONE, DAY_TWO).mean())
    assert level.launch_sd == pytest.approx(math.sqrt(within + between))
    assert level.launch_sd > 4 * math.sqrt(within)
    assert (level.freedom, level.error_freedom) == (1, 1)
    assert level.run_sd == pytest.approx(means.std(ddof=1))
    assert level.error_sd == pytest.approx(means.std(ddof=1) / math.sqrt(2))
    assert (result.num_launches, result.num_runs) == (10, 2)


def test_a_week_carries_a_margin_and_more_in_three_sessions(week: list[Path]) -> None:
    created = of(*week)
    baseline = only(created)
    means = np.log(np.array(WEEK))
    assert baseline.steps.run_sd == pytest.approx(means.std(ddof=1), rel=0.02)
    assert baseline.steps.freedom == 5
    assert 0.001 < baseline.smallest_margin < 0.02
    assert 0.001 < baseline.smallest_margin_of_three < 0.02
    assert created.notes == ()


def test_sessions_of_a_run_are_runs_of_their_own(tmp_path: Path, key: Key) -> None:
    """Two launches in each session but the last, as the first interim analysis wants."""
    created = of(sealed(tmp_path / "three", healthy(sessions=3), key))
    levels = [item.steps for item in created.baselines.baseline]
    assert {(level.freedom, level.run_launches) for level in levels} == {(2, 5)}
    assert {item.num_runs for item in created.baselines.baseline} == {3}


def test_baseline_names_the_statements_that_it_came_from(one: Path, two: Path) -> None:
    digests = tuple(sha256((folder / bundle.STATEMENT).read_bytes()) for folder in (one, two))
    assert only(of(one, two)).bundles == digests


def test_a_baseline_is_found_for_the_run_that_made_it(one: Path) -> None:
    created = of(one)
    result = bundle.read(one)
    case = result.plan.cases[0]
    assert find(created.baselines, case, result.plan.protocol, result.system) == (
        only(created),
        "",
        "",
    )


def test_each_device_of_a_node_has_its_own(make: Callable[..., Path]) -> None:
    steps = {"gemm@cpu:0": DAY_ONE, "gemm@cpu:1": DAY_TWO}
    created = of(make("c", steps, system=node("s-0", "s-1")))
    assert [item.devices for item in created.baselines.baseline] == [("s-0",), ("s-1",)]
    assert [
        round(1000 * math.exp(item.steps.log_seconds), 1) for item in created.baselines.baseline
    ] == [
        10.0,
        10.2,
    ]


def test_a_population_has_a_tolerance_limit(make: Callable[..., Path]) -> None:
    steps = {"gemm@cpu:0": DAY_ONE, "gemm@cpu:1": DAY_TWO}
    folder = make("d", steps, system=node("s-0", "s-1"))
    created = of(folder, kind="population")
    result = only(created)
    means = np.array([logs(DAY_ONE).mean(), logs(DAY_TWO).mean()])
    factor = tolerance_factor(2, 0.95, 0.95)
    assert result.kind == "population"
    assert result.devices == ("s-0", "s-1")
    level = result.steps
    assert level.log_seconds == pytest.approx(means.mean())
    assert level.device_sd == pytest.approx(means.std(ddof=1))
    assert level.tolerance is not None
    assert (level.tolerance.p, level.tolerance.gamma, level.tolerance.k) == (0.95, 0.95, factor)
    limit = means.mean() + factor * means.std(ddof=1)
    assert level.tolerance.log_limit == pytest.approx(limit)
    # Both devices are of one run, which is one level of a run.
    assert (level.freedom, result.smallest_margin) == (0, math.inf)
    assert any("16 are wanted" in note for note in created.notes)


def test_a_population_of_one_is_none(one: Path, two: Path) -> None:
    assert "a population needs 2 devices, and there is 1" in str(
        refused(one, two, kind="population")
    )


def test_a_node_without_a_name_is_said(make: Callable[..., Path]) -> None:
    created = of(make("e", {"gemm@cpu:0": DAY_ONE}, system=node("")))
    assert "without a serial" in only(created).devices[0]
    assert any("a machine that looks alike counts as the same" in note for note in created.notes)


# ------------------------------------------------------------------ random effects


def test_spread_is_unbiased_for_runs_of_unequal_length() -> None:
    """Monte Carlo of 2000 fits; the mean of each component is within 6 standard errors."""
    random = np.random.default_rng(20261121)
    within, between = 1e-4, 9e-4
    fits = []
    for _ in range(2000):
        runs = [
            random.normal(level, math.sqrt(within), size).tolist()
            for size, level in zip(
                (5, 7, 10, 5, 6, 20), random.normal(0.0, math.sqrt(between), 6), strict=True
            )
        ]
        fits.append(spread_of([runs]))
    for truth, values in (
        (within, np.array([fit.within for fit in fits])),
        (between, np.array([fit.between for fit in fits])),
    ):
        assert abs(values.mean() - truth) < 6 * values.std() / math.sqrt(len(values))


def test_runs_of_different_devices_do_not_count_as_spread_between_runs() -> None:
    far_apart = [[[0.0, 0.01, -0.01]], [[1.0, 1.01, 0.99]]]
    assert spread_of(far_apart).between == 0.0
    same_device = [[[0.0, 0.01, -0.01], [1.0, 1.01, 0.99]]]
    assert spread_of(same_device).between == pytest.approx(0.5 - 1e-4 / 3)


def test_runs_of_one_launch_show_the_spread_between_them() -> None:
    values = [0.0, 0.02, -0.01, 0.03, 0.01]
    spread = spread_of([[[value] for value in values]])
    assert spread.launch_sd == pytest.approx(np.std(values, ddof=1))


# ------------------------------------------------------------------ what is refused


def test_a_bundle_that_was_changed_is_refused(make: Callable[..., Path]) -> None:
    folder = make("f", {"gemm@cpu:0": DAY_ONE})
    text = (folder / bundle.JOURNAL).read_bytes().replace(b"10000000", b"10000001", 1)
    (folder / bundle.JOURNAL).write_bytes(text)
    error = refused(folder)
    assert isinstance(error, EvidenceError)
    assert "does not verify" in str(error)


def test_a_development_key_needs_leave(one: Path) -> None:
    with pytest.raises(EvidenceError, match="development"):
        create([one])


def test_the_same_run_twice_is_refused(one: Path) -> None:
    assert "are the same run" in str(refused(one, one))


def test_runs_with_other_software_are_not_mixed(make: Callable[..., Path], one: Path) -> None:
    other = make("g", {"gemm@cpu:0": DAY_TWO}, system=node("serial-0", torch="2.14.0"))
    error = refused(one, other)
    assert isinstance(error, UsageError)
    assert "is not comparable with" in str(error)
    assert "torch 2.13.0, this run has 2.14.0" in str(error)


def test_runs_that_were_timed_otherwise_are_not_mixed(make: Callable[..., Path], one: Path) -> None:
    longer = replace(TIMED, block_seconds=0.015)
    other = make("h", {"gemm@cpu:0": DAY_TWO}, protocol=longer)
    assert "timing" in str(refused(one, other))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"injector": "slow device"}, "slow device"),
        ({"workload": "own.gemm"}, "own.gemm, from outside the appliance"),
    ],
)
def test_a_run_with_an_injected_fault_is_refused(
    change: Mapping[str, str], fault: str, make: Callable[..., Path]
) -> None:
    folder = make("i", {"gemm@cpu:0": DAY_ONE}, change=lambda case: replace(case, **change))
    assert f"injected a fault ({fault})" in str(refused(folder))


@pytest.mark.parametrize("foreign", [0.01, 1.0])
def test_a_run_that_others_disturbed_is_refused_by_name(
    make: Callable[..., Path], foreign: float
) -> None:
    def beside(event: Event) -> Event:
        values = {"foreign_processors": foreign}
        return replace(event, values=values) if isinstance(event, Reading) else event

    usable = {"usable_processors": Fact(value=2.0)}
    identity = NODE.identity
    devices = tuple(replace(device, facts=usable) for device in identity.devices)
    system = replace(NODE, identity=replace(identity, devices=devices))
    run = make(f"f{foreign:.0f}", {"gemm@cpu:0": DAY_ONE}, system=system, altered=beside)
    if foreign < 1:
        assert of(run).baselines.baseline
        return
    fault = str(refused(run))
    assert fault.startswith(
        f"{run} was disturbed in gemm@cpu:0 (others used 50 % of the processors"
    )
    assert fault.endswith("made of runs that had their devices alone; run it again")


def test_a_run_whose_results_were_wrong_is_refused(tmp_path: Path, key: Key) -> None:
    error = refused(sealed(tmp_path / "run", rejected(), key))
    assert isinstance(error, UsageError)
    assert "was rejected" in str(error)


def test_a_short_run_is_refused_by_name(make: Callable[..., Path]) -> None:
    run = make("j", {"gemm@cpu:0": DAY_ONE, "bert@cpu:0": DAY_ONE[:2]})
    fault = refused(run)
    assert isinstance(fault, UsageError)
    assert str(fault).startswith(f"{run} is short: 2 launches of bert@cpu:0 completed, and a run")


def test_runs_that_overlap_in_time_are_refused(make: Callable[..., Path]) -> None:
    first, second = (make(f"ov{day}", {"gemm@cpu:0": DAY_ONE}, day=9) for day in (1, 2))
    fault = refused(first, second)
    assert isinstance(fault, UsageError)
    assert "overlap in time on the same device" in str(fault)
    elsewhere = make("ov3", {"gemm@cpu:0": DAY_TWO}, day=9, system=node("serial-1"))
    assert len(of(first, elsewhere).baselines.baseline) == 2


@pytest.mark.parametrize(
    ("readings", "clause"),
    [
        ({"throttled_thermal": 1.0, "temperature_celsius": 91.0}, "was hot: cpu:0 came to 91"),
        ({"temperature_celsius": 95.0}, "was hot: cpu:0 came to 95"),
        ({"throttled_power_brake": 1.0}, "was throttled: cpu:0 was held back in 100 %"),
        ({"throttled_power_cap": 1.0, "temperature_celsius": 80.0}, ""),
    ],
)
def test_runs_that_were_hot_or_throttled_are_refused_by_name(
    make: Callable[..., Path], readings: Mapping[str, float], clause: str
) -> None:
    def read(event: Event) -> Event:
        return replace(event, values=readings) if isinstance(event, Reading) else event

    limit = {"slowdown_temperature": Fact(value=95.0, unit="celsius")}
    devices = tuple(replace(device, facts=limit) for device in NODE.identity.devices)
    system = replace(NODE, identity=replace(NODE.identity, devices=devices))
    name = f"t{len(clause)}{len(readings)}"
    run = make(name, {"gemm@cpu:0": DAY_ONE}, system=system, altered=read)
    if clause:
        fault = refused(run)
        assert isinstance(fault, UsageError)
        assert clause in str(fault)
    else:
        assert of(run).baselines.baseline


def test_launches_that_all_took_the_same_time_are_no_baseline(make: Callable[..., Path]) -> None:
    folder = make("l", {"gemm@cpu:0": (10_000_000,) * 5})
    assert "to the last digit" in str(refused(folder))


def test_a_file_is_not_a_run(one: Path) -> None:
    assert isinstance(refused(one / bundle.PDF), UsageError)
    assert isinstance(refused(one / "nowhere"), UsageError)
    assert isinstance(refused(), UsageError)


def test_a_rate_above_the_peak_is_refused(
    make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_format(case: Case) -> Case:
        return replace(case, work=Work(flops=2e9, precision="float32"))

    folder = make("m", {"gemm@cpu:0": DAY_ONE}, change=with_format)  # 2 GFLOP in 10 ms
    monkeypatch.setattr(device_file, "load_peaks", lambda _: peaks(2.1e11))
    assert only(of(folder)).num_launches == 5
    monkeypatch.setattr(device_file, "load_peaks", lambda _: peaks(1.8e11))
    assert "it cannot take less than" in str(refused(folder))


def peaks(value: float) -> Peaks:
    return Peaks(
        peak=(
            Peak(
                model="Test Processor 9000",
                quantity="float32_flops_per_second",
                value=value,
                unit="FLOP/s",
                per="device",
                is_confirmed=True,
                source="made up",
            ),
        )
    )


# ------------------------------------------------------------------ files


def test_the_table_names_case_spread_and_margin(one: Path, two: Path) -> None:
    lines = table(of(one, two))
    head = "case step launch sd run sd runs launches carries in 3 sessions"
    assert lines[0].split() == head.split()
    assert lines[1].split()[:3] == ["gemm", "10.11", "ms"]
    assert lines[-1].startswith("largest of the smallest margins: ")


def with_pairs(one: Path, fresh: float) -> ObservedCase:
    """What a qualified record says of the case's own workload on its model."""
    item = measured_in(verified(one, (), None, allow=True))[0]
    noise = (0.001, -0.001, 0.002, -0.002, 0.0, 0.001, -0.001, 0.0)
    pairs = tuple(LaunchPair(forked=1.0, fresh=fresh + more) for more in noise)
    return replace(
        qualified_file.load_observed()[0],
        workload=item.case.workload,
        version=item.case.version,
        model=item.key.model,
        fresh_control=FreshControl(vendor="cuda", pairs=pairs),
    )


@pytest.mark.parametrize(
    ("fresh", "said"),
    [
        (1.0, "forked launches are as fresh ones within the margin"),
        (1.03, "forked launches differ from fresh ones: compare it"),
        (1.01, "the pairs show neither"),
    ],
)
def test_pairs_of_the_qualified_record_are_told(one: Path, fresh: float, said: str) -> None:
    created = baseline.create([one], allow_development=True, observed=[with_pairs(one, fresh)])
    (sentence,) = created.pairs
    assert f"fresh over forked {fresh:.4f}" in sentence
    assert "8 pairs" in sentence
    assert said in sentence
    assert f"launches: {sentence}" in baseline.report(created, Path("b.json"), None)
    assert baseline.to_document(created)["pairs"] == [sentence]


def test_a_case_without_pairs_is_named(one: Path) -> None:
    other = replace(with_pairs(one, 1.0), model="another")
    created = baseline.create([one], allow_development=True, observed=[other])
    (sentence,) = created.pairs
    assert sentence.startswith("no pairs of forked and fresh launches are known of ")
    assert sentence.endswith("`bench qualify` makes them")


def test_criteria_ask_what_the_baseline_carries(week: list[Path]) -> None:
    created = of(*week)
    criteria = parse_criteria(criteria_for(created, "mine"), "mine.toml")
    assert [item.kind for item in criteria.criterion] == [
        "completion",
        "integrity",
        "numeric",
        "determinism",
        "perf",
    ]
    speed = criteria.criterion[-1]
    assert isinstance(speed.within_of_baseline, float)
    assert 0 <= speed.within_of_baseline - only(created).smallest_margin < 0.001
    assert created.margins == {"gemm": speed.within_of_baseline}
    assert (speed.cases, speed.metric) == ("gemm", "step_seconds")
    made = bundle.read(week[0])
    check_margins(criteria, created.baselines, made.plan.cases, made.plan, made.system)


def test_drift_is_limited_where_the_suite_can_hold_its_stage(week: list[Path]) -> None:
    """These runs' suite has one case of five launches, each of a fraction of a second."""
    created = of(*week)
    protocol = bundle.read(week[0]).plan.protocol
    blocks = protocol.blocks * protocol.block_seconds
    assert created.load_seconds == pytest.approx(5 * (protocol.calibration_seconds + blocks))
    assert b"# Drift is not judged: the suite holds" in criteria_for(created, "mine")
    held = replace(created, load_seconds=float(STAGE_SECONDS))
    criteria = parse_criteria(criteria_for(held, "mine"), "mine.toml")
    drift = criteria.criterion[-1]
    assert (drift.kind, drift.metric, drift.cases) == ("drift", "drift_over_run", "*")
    assert (drift.sustained_seconds, drift.required) == (STAGE_SECONDS, True)
    assert drift.at_most == max(0.02, created.largest_margin)


def test_the_margin_of_a_case_is_the_largest_of_its_devices(make: Callable[..., Path]) -> None:
    wide = (10_000_000, 10_500_000, 9_600_000, 10_100_000, 9_800_000)
    runs = [
        make(
            f"n{day}",
            {
                "gemm@cpu:0": [round(step * level) for step in DAY_ONE],
                "gemm@cpu:1": [round(step * level**5) for step in wide],
            },
            system=node("s-0", "s-1"),
            day=day,
        )
        for day, level in enumerate(WEEK, 1)
    ]
    created = of(*runs)
    carried = [item.smallest_margin for item in created.baselines.baseline]
    assert created.margins["gemm"] == rounded_up(max(carried))
    assert max(carried) > 2 * min(carried)


@pytest.mark.parametrize("launches", [21, 25, 40, 50, 100, 200, 1000])
def test_the_rate_of_slow_launches_is_one_that_so_many_can_show(launches: int) -> None:
    rate = slow_rate(launches)
    assert rate is not None
    assert rate <= 0.20
    assert rate * 100 == pytest.approx(round(rate * 100))
    risks = {"risk_pass": 0.01, "risk_fail": 0.01}
    allowed = 0 if launches < 31 else 1 if launches < 39 else 2
    assert rate_word(allowed, launches, limit=rate, **risks) == "pass"
    below = rate - 0.01
    assert below <= 0 or rate_word(allowed, launches, limit=below, **risks) != "pass"
    if allowed == 0:
        assert rate == pytest.approx(math.ceil(100 * (1 - 0.01 ** (1 / launches))) / 100)


def test_too_few_launches_get_no_criterion_that_they_cannot_pass() -> None:
    assert [slow_rate(launches) for launches in (0, 5, 20)] == [None, None, None]


def test_a_suite_of_many_cases_gets_the_criterion_of_slow_launches(
    make: Callable[..., Path],
) -> None:
    created = of(
        *(
            make(
                f"o{day}",
                {
                    f"case-{number}@cpu:0": [round(s * level) for s in DAY_ONE]
                    for number in range(6)
                },
                day=day,
            )
            for day, level in enumerate(WEEK, 1)
        )
    )
    criteria = parse_criteria(criteria_for(created, 'a "name"'), "mine.toml")
    (slow,) = (item for item in criteria.criterion if item.kind == "tail")
    assert (slow.metric, slow.at_most) == ("slow_launch_rate", 0.15)
    assert criteria.name == 'a "name"'


def test_written_files_are_read_again_and_never_overwritten(
    week: list[Path], tmp_path: Path
) -> None:
    created = of(*week)
    out, criteria = tmp_path / "one.json", tmp_path / "one.toml"
    baseline.write(created, out, criteria)
    assert parse_baselines(out.read_bytes(), out.name) == created.baselines
    assert device_file.load_baselines((), out) == created.baselines
    assert criteria_file.load_criteria(str(criteria))[0].name == "one"
    with pytest.raises(OutputError, match="is there already"):
        baseline.write(created, out)
    with pytest.raises(UsageError, match=r"ends in \.toml"):
        baseline.write(created, tmp_path / "two.json", tmp_path / "two")
    assert not (tmp_path / "two.json").exists()


# ------------------------------------------------------------------ soundness of a file


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"launch_sd": 0.0}, "launch_sd"),
        ({"launch_sd": math.nan}, "launch_sd"),
        ({"run_sd": -0.1}, "a spread of launches or runs"),
        ({"correlation": 1.0}, "a spread of launches or runs"),
        ({"freedom": 7}, "7 degrees of freedom"),
        ({"smallest_margin": -0.1}, "smallest margin"),
        ({"smallest_margin_of_three": math.nan}, "smallest margin"),
        ({"log_seconds": 1000.0}, "no time of a step"),  # milliseconds, say
        ({"log_seconds": math.nan}, "no time of a step"),
        ({"num_launches": 4}, "too few"),
        ({"num_runs": 0}, "too few"),
        ({"bundles": ()}, "no bundle"),
        ({"devices": ()}, "no device"),
        ({"kind": "population"}, "as a population"),
        ({"device_sd": 0.01}, "as a population"),
    ],
)
def test_a_figure_that_cannot_be_one_is_named(
    one: Path, change: dict[str, object], sentence: str
) -> None:
    sound = only(of(one))
    if hasattr(sound.steps, next(iter(change))):
        change = {"steps": replace(sound.steps, **change)}  # type: ignore[arg-type]
    corrupted = replace(sound, **change)  # type: ignore[arg-type]
    data = to_json(Baselines(baseline=(corrupted,)))
    with pytest.raises(UsageError) as error:
        parse_baselines(data, "mine.json")
    assert 'mine.json: baseline 1, of the case "gemm",' in str(error.value)
    assert sentence in str(error.value)


def test_a_baseline_twice_in_a_file_is_refused(one: Path) -> None:
    item = only(of(one))
    with pytest.raises(UsageError, match="twice"):
        parse_baselines(to_json(Baselines(baseline=(item, item))), "mine.json")


def test_shipped_baselines_are_those_of_the_models_at_hand(
    one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = of(one)
    monkeypatch.setattr(device_file, "BASELINES", tmp_path)
    (tmp_path / "one.json").write_bytes(to_json(created.baselines))
    assert device_file.load_baselines(["Test Processor 9000"]) == created.baselines
    assert device_file.load_baselines(["another"]) == Baselines(baseline=())
    with pytest.raises(UsageError, match="cannot be read"):
        device_file.load_baselines([], tmp_path / "nowhere.json")


# ------------------------------------------------------------------ checking


def an_answer(created: Created, *, version: int = 1, work: Work | None = None) -> Answer:
    names = {item.key.workload for item in created.baselines.baseline}
    return Answer(
        descriptions=tuple(
            Description(
                name=name,
                version=version,
                summary="",
                parameters=(),
                small={},
                needs=(),
                data=(),
                steps=None,
                alone=False,
                is_timed=True,
                is_repeatable=True,
                bound_by="compute",
                data_pattern="random",
                injector="",
            )
            for name in sorted(names)
        ),
        resolved=tuple(
            Resolved(
                parameters=item.key.parameters,
                work=work or Work(),
                num_parameters=None,
                steps=None,
                scenario="",
                ranks=1,
            )
            for item in created.baselines.baseline
        ),
        software={},
    )


def checked(
    created: Created,
    *,
    system: System = NODE,
    answer: Answer | None = None,
    criteria: Criteria | None = None,
) -> tuple[int, dict[str, tuple[str, str]]]:
    findings = check(
        Path("mine.json"),
        created.baselines,
        system=system,
        answer=answer or an_answer(created),
        criteria=criteria,
    )
    return findings.exit_code, {one.name: (one.status, one.sentence) for one in findings.findings}


def test_a_sound_file_on_its_own_machine_is_passed(week: list[Path]) -> None:
    created = of(*week)
    criteria = parse_criteria(criteria_for(created, "mine"), "mine.toml")
    code, result = checked(created, criteria=criteria)
    assert code == 0
    assert {name: status for name, (status, _) in result.items()} == {
        "figures": "pass",
        "peaks": "not_done",  # none is known for this model
        "margins": "pass",
        "fit": "pass",
    }


def test_other_software_does_not_fit(one: Path) -> None:
    code, result = checked(of(one), system=node("serial-0", torch="2.14.0"))
    assert code == 3
    assert result["fit"] == (
        "misfit",
        "gemm cannot be compared here: the baseline is for torch 2.13.0, this node has 2.14.0",
    )


def test_another_device_does_not_fit_and_one_of_several_does(make: Callable[..., Path]) -> None:
    steps = {"gemm@cpu:0": DAY_ONE, "gemm@cpu:1": DAY_TWO}
    created = of(make("p", steps, system=node("s-0", "s-1")))
    assert checked(created, system=node("s-1", "s-7"))[0] == 0
    assert checked(created, system=node("s-6", "s-7"))[0] == 3


def test_a_workload_of_another_version_does_not_fit(one: Path) -> None:
    created = of(one)
    code, result = checked(created, answer=an_answer(created, version=2))
    assert code == 3
    assert "is for version 1 of gemm, this appliance has 2" in result["fit"][1]


def test_a_rate_above_the_peak_is_found(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created = of(one)
    answer = an_answer(created, work=Work(flops=2e9, precision="float32"))
    monkeypatch.setattr(device_file, "load_peaks", lambda _: peaks(2.1e11))
    code, result = checked(created, answer=answer)
    assert (code, result["peaks"][0]) == (0, "pass")
    monkeypatch.setattr(device_file, "load_peaks", lambda _: peaks(1.8e11))
    code, result = checked(created, answer=answer)
    assert (code, result["peaks"][0]) == (2, "fail")
    assert "cannot take less than" in result["peaks"][1]


def test_a_margin_below_the_smallest_is_found(week: list[Path]) -> None:
    created = of(*week)
    text = criteria_for(created, "mine")
    criteria = parse_criteria(text, "mine.toml")
    (speed,) = (item for item in criteria.criterion if item.kind == "perf")
    little = replace(speed, within_of_baseline=only(created).smallest_margin - 0.001)
    others = tuple(item for item in criteria.criterion if item.kind != "perf")
    code, result = checked(created, criteria=replace(criteria, criterion=(*others, little)))
    assert (code, result["margins"][0]) == (2, "fail")
    needed = rounded_up(only(created).smallest_margin)
    assert f"raise it to at least {needed:g}" in result["margins"][1]
    assert checked(created, criteria=replace(criteria, criterion=others))[1]["margins"][0] == (
        "not_done"
    )


def test_a_margin_that_only_sessions_carry_is_found_by_their_number(week: list[Path]) -> None:
    created = of(*week)
    made = only(created)
    between = (made.smallest_margin + made.smallest_margin_of_three) / 2
    criteria = parse_criteria(criteria_for(created, "mine"), "mine.toml")
    (speed,) = (item for item in criteria.criterion if item.kind == "perf")
    criteria = replace(criteria, criterion=(replace(speed, within_of_baseline=between),))
    words = {}
    for sessions in (1, 3):
        findings = check(
            Path("mine.json"),
            created.baselines,
            system=NODE,
            answer=an_answer(created),
            criteria=criteria,
            sessions=sessions,
        ).findings
        words[sessions] = next(one for one in findings if one.name == "margins")
    assert (words[1].status, words[3].status) == ("fail", "pass")
    assert "less than it carries in a run of 1 session: raise it to" in words[1].sentence
    assert "carries in a run of 3 sessions" in words[3].sentence


def test_what_is_no_baseline_file_is_one_sentence(tmp_path: Path) -> None:
    noise = tmp_path / "noise.json"
    noise.write_bytes(b"\x00\xff")
    done = called("baseline", "check", str(noise))
    assert done.returncode == 2
    assert "noise.json: this is no such file: invalid json" in done.stderr
    done = called("baseline", "check", str(tmp_path / "none.json"))
    assert done.returncode == 2
    assert done.stderr.endswith("; name a file that `bench baseline create` wrote\n")


def test_an_empty_file_is_no_baseline(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_bytes(to_json(Baselines(baseline=())))
    with pytest.raises(UsageError, match="has no baseline in it"):
        load(path)


# ------------------------------------------------------------------ the verb


def test_the_verb_writes_both_files_and_one_document(week: list[Path], tmp_path: Path) -> None:
    out, criteria = tmp_path / "mine.json", tmp_path / "mine.toml"
    words = ["baseline", "create", *map(str, week), "--out", str(out)]
    words += ["--criteria", str(criteria), "--allow-dev", "--json"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    document = json.loads(done.stdout)
    assert done.exit_code == 0
    assert document["file"] == str(out)
    assert document["baselines"] == json.loads(out.read_bytes())
    assert document["largest_margin"] == pytest.approx(only(of(*week)).smallest_margin)
    assert document["notes"] == document["left_out"] == []
    assert criteria_file.load_criteria(str(criteria))[0].name == "mine"


def test_the_verb_speaks_to_people_on_stderr(one: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine.json"
    words = ["baseline", "create", str(one), "--out", str(out), "--allow-dev"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "smallest margin" in done.stderr
    assert "note: gemm: these runs cannot show how far the level of a run varies" in done.stderr
    assert f"bench accept --baseline {out}" in done.stderr


def test_the_verb_knows_its_kinds(one: Path, tmp_path: Path) -> None:
    words = ["baseline", "create", str(one), "--out", str(tmp_path / "x.json"), "--kind", "popular"]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, UsageError)
    assert 'did you mean "population"' in str(done.exception)


# ------------------------------------------------------------------ baseline plan


def test_a_plan_says_what_a_baseline_carries(week: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "week.json"
    created = of(*week)
    baseline.write(created, out)
    words = ["baseline", "plan", str(out), "--margin", "0.4"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert f"carries {100 * only(created).smallest_margin:.2f} % in one session" in done.stderr
    (enough,) = baseline_plan(created.baselines, margin=0.4, sessions=1)
    assert (enough.is_enough, enough.more_runs, enough.sessions_needed) == (True, 0, 1)


def test_a_plan_says_how_many_runs_are_missing(week: list[Path], tmp_path: Path) -> None:
    created = of(*week[:3])
    (lacking,) = baseline_plan(created.baselines, margin=0.004, sessions=3)
    assert not lacking.is_enough
    runs = lacking.more_runs
    assert runs is not None
    assert 1 <= runs <= 20
    assert lacking.launches == 5
    out = tmp_path / "three.json"
    baseline.write(created, out)
    words = ["baseline", "plan", str(out), "--margin", "0.004", "--sessions", "3"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 3
    assert f"{5 * runs} more launches in {runs} runs on as many days carry it" in done.stderr
    assert f"together: {runs} more runs of all cases on {runs} days" in done.stderr
    document = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert json.loads(document.stdout)[0]["more_runs"] == runs


def test_a_plan_for_one_run_asks_for_five_first(one: Path) -> None:
    (lacking,) = baseline_plan(of(one).baselines, margin=0.03, sessions=1)
    assert (lacking.chance, lacking.more_runs, lacking.sessions_needed) == (0.0, 4, None)
