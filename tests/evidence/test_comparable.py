"""What may be compared: keys, baselines for a case, peaks, and limits that cannot be asked for."""

import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.baselines import a_level
from support.builders import FUNCTIONAL, PROTOCOL, a_case, a_plan, a_system, limited, with_bounds

from appliance.errors import UsageError
from appliance.evidence.baseline_key import (
    TIMING,
    TOGETHER,
    device_name,
    find,
    is_named,
    key_of,
    least_seconds,
    misfit,
    mismatch,
    peak_for,
)
from appliance.judging.criteria_check import check_limits, check_margins, rounded_up
from appliance.records.baseline import (
    Baseline,
    BaselineKey,
    Baselines,
    Peak,
    Peaks,
    Tolerance,
)
from appliance.records.criteria import Criteria, Criterion
from appliance.records.json import from_json, to_json
from appliance.records.plan import Case
from appliance.records.system import Fact, System
from appliance.records.workload import Work


def with_facts(system: System, **facts: float | str) -> System:
    """The same node, whose first device tells these facts as well."""
    first, *others = system.identity.devices
    reported = {**first.facts, **{name: Fact(value=value) for name, value in facts.items()}}
    devices = (replace(first, facts=reported), *others)
    return replace(system, identity=replace(system.identity, devices=devices))


def with_software(system: System, **versions: str | None) -> System:
    reported = {name: Fact(value=version) for name, version in versions.items()}
    return replace(system, identity=replace(system.identity, software=reported))


def with_host(system: System, **facts: str) -> System:
    reported = {name: Fact(value=value) for name, value in facts.items()}
    return replace(system, identity=replace(system.identity, host=reported))


def without_serial(system: System) -> System:
    devices = tuple(replace(device, serial=None) for device in system.identity.devices)
    return replace(system, identity=replace(system.identity, devices=devices))


NODE = with_software(a_system(), torch="2.13.0", numpy="2.4.0")
CASE = a_case(parameters={"size": 512, "dtype": "float32"})


def a_baseline(
    system: System = NODE, case: Case = CASE, *, device: str | None = None, launch_sd: float = 0.005
) -> Baseline:
    return Baseline(
        key=key_of(case, PROTOCOL, system),
        kind="same_device",
        devices=(device or device_name(system, case.device),),
        num_launches=480,
        num_runs=12,
        run_seconds=3600.0,
        steps=a_level(math.log(0.01), launch_sd),
        wall=a_level(math.log(0.01), launch_sd),
        smallest_margin=0.02,
        smallest_margin_of_three=0.02,
        bundles=("a" * 64, "b" * 64),
    )


LIMIT = Tolerance(p=0.95, gamma=0.95, k=2.5, log_limit=math.log(0.01) + 0.025)


def a_population(system: System = NODE, case: Case = CASE) -> Baseline:
    return replace(
        a_baseline(system, case),
        kind="population",
        devices=("one", "two"),
        steps=a_level(math.log(0.01), 0.005, device_sd=0.01, tolerance=LIMIT),
    )


def result(
    *baselines: Baseline, system: System = NODE, case: Case = CASE
) -> tuple[Baseline | None, str, str]:
    return find(Baselines(baseline=baselines), case, PROTOCOL, system)


# ------------------------------------------------------------------ keys


def test_key_names_what_speed_depends_on() -> None:
    system = with_host(with_facts(NODE, microcode="0x1", power_limit=700), image_digest="sha256:1")
    key = key_of(replace(CASE, version=3), replace(PROTOCOL, mode="forked"), system)
    assert (key.model, key.case, key.workload, key.version) == (
        "Test Processor 9000",
        "gemm",
        "gemm",
        3,
    )
    assert (key.mode, key.image, key.power_limit_watts) == ("forked", "sha256:1", 700.0)
    assert key.parameters == {"size": 512, "dtype": "float32"}
    assert key.software == {
        "torch": "2.13.0",
        "numpy": "2.4.0",
        "microcode": "0x1",
        TOGETHER: "1",
        TIMING: "1 steps and 0 s of warm-up, 2 blocks of 3 steps and 0.03 s",
    }


def test_key_is_the_same_after_a_round_trip_through_json() -> None:
    """What is judged in memory and what verify reads from the bundle must not differ."""
    system = with_facts(NODE, usable_processors=2.0, power_limit=350.0, governor="performance")
    case = replace(CASE, parameters={"rate": 1.0, "size": 512})
    key = key_of(case, PROTOCOL, system)
    again = key_of(
        from_json(Case, to_json(case), name="case"),
        PROTOCOL,
        from_json(System, to_json(system), name="system"),
    )
    assert mismatch(key, again) == ""
    assert mismatch(from_json(BaselineKey, to_json(key), name="key"), again) == ""
    assert device_name(system, "cpu:0") == device_name(
        from_json(System, to_json(system), name="system"), "cpu:0"
    )


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        (lambda key: replace(key, model="B"), "device model Test Processor 9000, this run has B"),
        (lambda key: replace(key, version=2), "workload version 1, this run has 2"),
        (
            lambda key: replace(key, parameters={**key.parameters, "size": 1024}),
            "parameter size 512, this run has 1024",
        ),
        (
            lambda key: replace(key, parameters={"dtype": "float32"}),
            "parameter size 512, this run has none reported",
        ),
        (lambda key: replace(key, data_pattern="zeros"), "data pattern random, this run has zeros"),
        (lambda key: replace(key, mode="forked"), "launch mode fresh, this run has forked"),
        (
            lambda key: replace(key, software={**key.software, "torch": "2.14.0"}),
            "torch 2.13.0, this run has 2.14.0",
        ),
        (
            lambda key: replace(key, image="sha256:2"),
            "image digest none reported, this run has sha256:2",
        ),
        (
            lambda key: replace(key, power_limit_watts=500.0),
            "power limit in watts none reported, this run has 500",
        ),
    ],
)
def test_mismatch_names_the_one_thing_that_differs(
    change: Callable[[BaselineKey], BaselineKey], clause: str
) -> None:
    key = key_of(CASE, PROTOCOL, NODE)
    assert mismatch(key, key) == ""
    assert mismatch(key, change(key)) == clause


def test_true_is_another_parameter_than_one() -> None:
    key = key_of(replace(CASE, parameters={"fused": True}), PROTOCOL, NODE)
    assert mismatch(key, replace(key, parameters={"fused": 1})) != ""


def test_a_launch_that_is_timed_otherwise_is_another_measurement() -> None:
    key = key_of(CASE, PROTOCOL, NODE)
    longer = key_of(CASE, replace(PROTOCOL, block_seconds=1.0), NODE)
    assert mismatch(key, longer).startswith("timing ")
    more_analyses = key_of(CASE, replace(PROTOCOL, interim_analyses=(5, 10, 20)), NODE)
    assert mismatch(key, more_analyses) == ""


def test_devices_that_work_at_once_are_part_of_the_key_unless_the_case_is_alone() -> None:
    eight = a_system(*(f"cpu:{index}" for index in range(8)))
    assert mismatch(key_of(CASE, PROTOCOL, a_system()), key_of(CASE, PROTOCOL, eight)) == (
        "devices_together 1, this run has 8"
    )
    alone = replace(CASE, alone=True)
    assert mismatch(key_of(alone, PROTOCOL, a_system()), key_of(alone, PROTOCOL, eight)) == ""


# ------------------------------------------------------------------ devices


def test_a_device_is_named_by_serial_then_system_then_its_facts() -> None:
    assert device_name(a_system(), "cpu:0") == "serial-0"
    bare = with_host(without_serial(a_system()))
    in_system = with_host(bare, system_uuid="4c4c", system_serial="S7")
    assert device_name(in_system, "cpu:0") == "Test Processor 9000 cpu:0 in the system 4c4c"
    assert device_name(with_host(bare, system_serial="S7"), "cpu:0").endswith("the system S7")
    nameless = device_name(bare, "cpu:0")
    assert "in a system without a serial (facts " in nameless
    assert device_name(with_facts(bare, microcode="0x2"), "cpu:0") != nameless
    assert [is_named(system, "cpu:0") for system in (a_system(), in_system, bare)] == [
        True,
        True,
        False,
    ]


def test_a_device_that_is_not_there_matches_nothing() -> None:
    case = replace(CASE, device="cpu:7", id="gemm@cpu:7")
    assert key_of(case, PROTOCOL, NODE).model == ""
    assert result(a_baseline(), case=case)[1] == "baseline_mismatch"
    assert peak_for(peaks_of(), NODE, case, "flops_per_second") is None


# ------------------------------------------------------------------ finding


def test_the_very_device_comes_before_its_population() -> None:
    own, population = a_baseline(), a_population()
    assert result(population, own) == (own, "", "")
    assert result(population) == (population, "", "")


def test_no_baseline_for_the_case_is_missing() -> None:
    assert result() == (None, "baseline_missing", "there is no baseline for gemm")
    other = a_baseline(case=a_case("bert"))
    assert result(other)[:2] == (None, "baseline_missing")


def test_a_baseline_of_other_software_is_named() -> None:
    older = a_baseline(with_software(NODE, torch="2.12.0", numpy="2.4.0"))
    assert result(older) == (
        None,
        "baseline_mismatch",
        "the baseline is for torch 2.12.0, this run has 2.13.0",
    )


def test_the_nearest_of_several_misfits_is_named() -> None:
    far = a_baseline(with_software(a_system(), torch="2.11.0", numpy="1.0"))
    near = a_baseline(with_software(NODE, torch="2.12.0", numpy="2.4.0"))
    assert "torch 2.12.0" in result(far, near)[2]


def test_a_baseline_of_another_device_is_none() -> None:
    assert result(a_baseline(device="serial-9")) == (
        None,
        "baseline_mismatch",
        "the baseline is of serial-9, this device is serial-0",
    )


def test_a_version_that_is_not_reported_differs() -> None:
    known = a_baseline()
    silent = with_software(NODE, torch=None, numpy="2.4.0")
    assert result(known, system=silent)[2] == (
        "the baseline is for torch 2.13.0, this run has none reported"
    )


def test_misfit_compares_all_that_a_probe_tells() -> None:
    assert misfit(a_baseline(), NODE) == ""
    assert misfit(a_population(), NODE) == ""
    newer = with_software(NODE, torch="2.14.0", numpy="2.4.0")
    assert misfit(a_baseline(), newer) == ("the baseline is for torch 2.13.0, this node has 2.14.0")
    assert misfit(a_baseline(device="serial-9"), NODE) == (
        "the baseline is of serial-9, not of serial-0"
    )
    empty = replace(NODE, identity=replace(NODE.identity, devices=()))
    assert misfit(a_baseline(), empty) == "this node has no device"


# ------------------------------------------------------------------ peaks


def a_peak(quantity: str, value: float, *, per: str = "device") -> Peak:
    return Peak(
        model="Test Processor 9000",
        quantity=quantity,
        value=value,
        unit="FLOP/s",
        per="core" if per == "core" else "device",
        is_confirmed=True,
        source="made up",
    )


def peaks_of(*peaks: Peak) -> Peaks:
    return Peaks(
        peak=peaks
        or (
            a_peak("float32_flops_per_second", 1e12),
            a_peak("float64_flops_per_second", 3e11),
            a_peak("float64_matrix_flops_per_second", 6e11),
            a_peak("int8_operations_per_second", 9e12),
            a_peak("memory_bytes_per_second", 2e11),
        )
    )


def working(precision: str, *, memory_bound: bool = False) -> Case:
    case = replace(CASE, work=Work(flops=2e9, bytes=4e8, precision=precision))
    return replace(case, bound_by="memory") if memory_bound else case


@pytest.mark.parametrize(
    ("precision", "peak"),
    [("float32", 1e12), ("float64", 6e11), ("int8", 9e12), ("bfloat16", None), ("", None)],
)
def test_peak_is_that_of_the_format_and_the_larger_of_its_two(
    precision: str, peak: float | None
) -> None:
    assert peak_for(peaks_of(), NODE, working(precision), "flops_per_second") == peak


def test_memory_bounds_only_cases_that_it_limits() -> None:
    assert peak_for(peaks_of(), NODE, working("", memory_bound=True), "bytes_per_second") == 2e11
    assert peak_for(peaks_of(), NODE, working(""), "bytes_per_second") is None


def test_figures_per_core_are_times_the_larger_count_of_cores() -> None:
    peaks = peaks_of(a_peak("float32_flops_per_second", 1e11, per="core"))
    case = working("float32")
    assert peak_for(peaks, NODE, case, "flops_per_second") == 2e11  # two physical cores
    threads = with_facts(NODE, usable_processors=4.0)
    assert peak_for(peaks, threads, case, "flops_per_second") == 4e11
    first = replace(NODE.identity.devices[0], facts={})
    unknown = replace(NODE, identity=replace(NODE.identity, devices=(first,)))
    assert peak_for(peaks, unknown, case, "flops_per_second") is None


def test_figures_of_another_model_are_none() -> None:
    others = tuple(replace(peak, model="Test Processor 8000") for peak in peaks_of().peak)
    assert peak_for(Peaks(peak=others), NODE, working("float32"), "flops_per_second") is None


def test_least_time_is_that_of_the_tighter_bound() -> None:
    assert least_seconds(peaks_of(), NODE, working("float32")) == pytest.approx(2e9 / 1e12)
    both = working("float32", memory_bound=True)
    assert least_seconds(peaks_of(), NODE, both) == pytest.approx(4e8 / 2e11)
    assert least_seconds(Peaks(peak=()), NODE, both) is None


# ------------------------------------------------------------------ what cannot be asked for


def a_limit(**keys: object) -> Criteria:
    limit = Criterion(id="speed", kind="perf", title="Speed", **keys)  # type: ignore[arg-type]
    return replace(FUNCTIONAL, criterion=(*FUNCTIONAL.criterion, limit))


@pytest.mark.parametrize(
    ("possible", "impossible"),
    [
        (
            {"metric": "step_seconds", "at_most": 2.0, "unit": "ms"},
            {"metric": "step_seconds", "at_most": 1.8, "unit": "ms"},
        ),
        (
            {"metric": "flops_per_second", "at_least": 1.0, "unit": "TFLOP/s"},
            {"metric": "flops_per_second", "at_least": 1.1, "unit": "TFLOP/s"},
        ),
        (
            {"metric": "units_per_second", "at_least": 500.0},
            {"metric": "units_per_second", "at_least": 550.0},
        ),
        (
            {"metric": "first_step_seconds", "at_most": 0.002},
            {"metric": "first_step_seconds", "at_most": 0.0015},
        ),
    ],
)
def test_a_limit_beyond_the_peak_is_refused(
    possible: dict[str, object], impossible: dict[str, object]
) -> None:
    cases = (working("float32"),)  # 2 GFLOP in one unit, at most 1 TFLOP/s: 2 ms
    check_limits(a_limit(**possible), cases, peaks_of(), NODE)
    with pytest.raises(
        UsageError, match=r'criterion "speed" asks .* of gemm@cpu:0, which is above'
    ):
        check_limits(a_limit(**impossible), cases, peaks_of(), NODE)
    check_limits(a_limit(**impossible), cases, Peaks(peak=()), NODE)


def test_a_limit_on_another_case_is_not_compared() -> None:
    check_limits(limited(1e-9, cases="bert"), (working("float32"),), peaks_of(), NODE)
    with pytest.raises(UsageError):
        check_limits(limited(1e-9, cases="gem*"), (working("float32"),), peaks_of(), NODE)


PLAN = a_plan(
    a_case(parameters=CASE.parameters, launches=40),
    protocol=replace(PROTOCOL, interim_analyses=(5, 10, 20, 40)),
)


def refused_margin(criteria: Criteria, baselines: Baselines) -> str:
    """What is said of a margin at plan time, or nothing."""
    plan = with_bounds(PLAN, criteria)
    try:
        check_margins(criteria, baselines, plan.cases, plan, NODE)
    except UsageError as error:
        return str(error)
    return ""


def test_a_margin_below_what_the_baseline_carries_is_refused() -> None:
    baselines = Baselines(baseline=(a_baseline(launch_sd=0.012),))
    enough = a_limit(metric="step_seconds", within_of_baseline=0.06)
    assert not refused_margin(enough, baselines)
    little = a_limit(metric="step_seconds", within_of_baseline=0.005)
    said = refused_margin(little, baselines)
    assert re.search(r"lets gemm@cpu:0 lose 0\.005 of its baseline, which carries 0\.\d+ ", said)
    assert re.search(r"raise within_of_baseline to 0\.\d+$", said)
    assert not refused_margin(little, Baselines(baseline=()))
    other = Baselines(baseline=(a_baseline(device="serial-9", launch_sd=0.012),))
    assert not refused_margin(little, other)


def test_a_baseline_of_few_runs_says_what_is_missing() -> None:
    few = a_baseline()
    level = replace(few.steps, freedom=2, run_sd=0.004, error_sd=0.004 / 3**0.5, error_freedom=2)
    short = replace(few, num_runs=3, steps=level, wall=level)
    said = refused_margin(
        a_limit(metric="step_seconds", within_of_baseline=0.05), Baselines(baseline=(short,))
    )
    assert re.search(r"add \d+ launches in \d+ runs? to the baseline", said)
    alone = replace(level, freedom=0, run_sd=0.0, error_sd=0.0, error_freedom=0)
    single = replace(few, num_runs=1, steps=alone, wall=alone)
    said = refused_margin(
        a_limit(metric="step_seconds", within_of_baseline=0.05), Baselines(baseline=(single,))
    )
    assert "which carries no margin" in said


def test_the_margin_of_a_class_is_compared_too() -> None:
    baselines = Baselines(baseline=(a_baseline(launch_sd=0.04),))
    by_class = a_limit(metric="step_seconds", within_of_baseline="class")
    assert 'raise the margin "compute" to 0.' in refused_margin(by_class, baselines)
    wider = replace(by_class, margins={**by_class.margins, "compute": 0.3})
    assert not refused_margin(wider, baselines)


def test_margins_are_rounded_up_in_steps_of_a_thousandth() -> None:
    assert [rounded_up(margin) for margin in (0.0412, 0.042, 0.0420001, 0.0001)] == [
        0.042,
        0.042,
        0.043,
        0.001,
    ]
    assert rounded_up(math.inf) == math.inf
