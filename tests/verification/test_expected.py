"""A plan holds what the suite that was expected asks for, with the variants that its seed draws."""

from __future__ import annotations

import runpy
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import (
    FUNCTIONAL,
    PROTOCOL,
    SYSTEM,
    a_case,
    a_plan,
    healthy_events,
    with_bounds,
)
from support.bundles import Draft, analysed, healthy, sealed
from support.known_facts import facts_of

from appliance.errors import EvidenceError
from appliance.planning import placement, workload_manifest, workload_sizes
from appliance.planning.plan import Place, PlanInputs, launch_groups, make_plan, requests
from appliance.planning.workload_manifest import Variant, WorkloadFacts
from appliance.records.json import Parameters, sha256
from appliance.records.plan import Case, Plan
from appliance.records.request import Answer, Question
from appliance.records.suite import MemoryClass, Suite, SuiteCase
from appliance.records.system import Device, System
from appliance.signing import keys
from appliance.storage import suite_file
from appliance.verification import verify
from appliance.verification.facts import Facts
from appliance.verification.suite_checks import check_suite
from appliance.verification.terms import Expectations, Terms
from appliance.version import VERSION
from appliance.worker.describe import describe

ROOT = Path(__file__).parents[2]
VARIANTS = (
    Variant(name="one more", parameters={"batch": 5}),
    Variant(name="silu", parameters={"activation": "silu"}),
)
GEMM = WorkloadFacts(
    name="gemm",
    domain="",
    parts=("torch",),
    libraries=(),
    summary="",
    data_pattern="random",
    version=1,
    is_timed=True,
    is_repeatable=True,
    alone=False,
    bound_by="compute",
    injector="",
    needs=(),
    data=(),
    parameters={"batch": 64, "depth": 3, "activation": "gelu", "scale": 1.0, "has_bias": True},
    small={"batch": 2},
    variants=VARIANTS,
)
WHOLE: Parameters = {**GEMM.parameters, "batch": 4}
KNOWN = {"gemm": GEMM}


def suite_of(plan: Plan, *items: SuiteCase, varies: bool = True) -> Suite:
    return Suite(
        name="mine",
        version=1,
        summary="",
        time_limit_seconds=plan.time_limit_seconds,
        variants=varies,
        protocol=plan.protocol,
        case=items,
    )


def item_of(case: Case, **fields: object) -> SuiteCase:
    given = SuiteCase(
        id=case.id.partition("@")[0],
        workload=case.workload,
        small=case.small,
        parameters=case.parameters,
        launches=case.launches,
        weight=case.weight,
        expected_seconds=case.expected_seconds,
        reference_seconds=case.reference_seconds,
        time_limit_seconds=case.time_limit_seconds,
        memory_limit_gib=1.0,
    )
    return replace(given, **fields)  # type: ignore[arg-type]


# ------------------------------------------------------------------ the suite's own cases


def test_a_plan_holds_what_its_suite_places_here_and_says_what_it_does_not() -> None:
    case = a_case(parameters={"batch": 4})
    plan = with_bounds(a_plan(case), FUNCTIONAL)
    far = item_of(a_case("far"), num_nodes=2)
    suite = suite_of(plan, item_of(case), far)
    _, wanted = placement.place(suite, SYSTEM.identity.devices, plan.seed)
    whole = replace(plan, not_planned=wanted)
    check_suite(whole, SYSTEM, FUNCTIONAL, suite, {})
    for other in (
        plan,  # silent of what it lacks
        replace(whole, not_planned=(replace(wanted[0], reason="it rained"),)),
        replace(whole, cases=(replace(case, parameters={"batch": 5}),)),
        replace(whole, cases=(replace(case, memory_class_gib=24),)),
        replace(whole, cases=(replace(case, agents=2),)),
        replace(whole, cases=(replace(case, memory_limit_bytes=2**31),)),
        replace(whole, cases=(case, replace(case, id="gemm~x@cpu:0", variant="x", variant_of="y"))),
    ):
        with pytest.raises(EvidenceError, match=r"suite mine|did not draw"):
            check_suite(other, SYSTEM, FUNCTIONAL, suite, {})


def test_a_job_is_checked_with_all_of_its_devices() -> None:
    def one(index: int) -> Device:
        first = SYSTEM.identity.devices[0]
        return replace(first, id=f"vendor:{index}", vendor="vendor", index=index)

    identity = replace(SYSTEM.identity, devices=(one(0), one(1)))
    system: System = replace(SYSTEM, identity=identity)
    case = replace(
        a_case(parameters={"ranks": 2}),
        id="gemm@vendor:all",
        device="vendor:0",
        devices=("vendor:0", "vendor:1"),
        scope="job",
        ranks=2,
    )
    plan = with_bounds(a_plan(case), FUNCTIONAL)
    suite = suite_of(plan, item_of(case, scope="job", parameters={"ranks": 4}))
    plain = {"gemm": replace(GEMM, parameters={"ranks": 1}, small={}, variants=())}
    for known in ({}, plain):  # a rank on each, whatever the suite says
        check_suite(plan, system, FUNCTIONAL, suite, known)
        other = replace(plan, cases=(replace(case, parameters={"ranks": 4}),))
        with pytest.raises(EvidenceError):
            check_suite(other, system, FUNCTIONAL, suite, known)


# ------------------------------------------------------------------ what the seed draws


def drawn_plan() -> tuple[Plan, Suite, Case, Case]:
    """A plan of one case and the variant that its seed draws of it, and the suite of both."""
    case = a_case(parameters=WHOLE)
    plan = with_bounds(a_plan(case), FUNCTIONAL)
    suite = suite_of(plan, item_of(case, parameters={"batch": 4}))
    *_, one = placement.place(suite, SYSTEM.identity.devices, plan.seed)[0]
    chosen = next(item for item in VARIANTS if item.name == GEMM.drawn(one.request))
    varied = replace(
        case,
        id=one.case_id(chosen.name),
        variant=chosen.name,
        variant_of=case.id,
        weight=0.0,
        parameters={**WHOLE, **chosen.parameters},
    )
    return replace(plan, bench_version=VERSION, cases=(case, varied)), suite, case, varied


def requested(
    plan: Plan, suite: Suite, known: Mapping[str, WorkloadFacts] = KNOWN
) -> tuple[str, ...]:
    return check_suite(plan, SYSTEM, FUNCTIONAL, suite, known)


def other_than(varied: Case) -> Variant:
    return next(item for item in VARIANTS if item.name != varied.variant)


def test_a_plan_with_the_variant_that_was_drawn_is_whole() -> None:
    plan, suite, *_ = drawn_plan()
    assert requested(plan, suite) == ()


def test_a_plan_without_the_variant_that_was_drawn_is_refused() -> None:
    plan, suite, case, varied = drawn_plan()
    with pytest.raises(EvidenceError) as fault:
        requested(replace(plan, cases=(case,)), suite)
    assert str(fault.value) == (
        f"the plan lacks case {varied.id}, the variant that the run's seed draws of {case.id}"
    )


def test_a_plan_with_another_variant_than_was_drawn_is_refused() -> None:
    plan, suite, case, varied = drawn_plan()
    other = other_than(varied)
    changed = replace(
        varied,
        id=f"gemm~{other.name.replace(' ', '-')}@cpu:0",
        variant=other.name,
        parameters={**WHOLE, **other.parameters},
    )
    sentence = (
        f'case {changed.id} is the variant "{other.name}" of {case.id}, of which the run\'s seed '
        f'draws "{varied.variant}"'
    )
    for cases in ((case, changed), (case, changed, varied)):
        with pytest.raises(EvidenceError) as fault:
            requested(replace(plan, cases=cases), suite)
        assert str(fault.value) == sentence
    with pytest.raises(EvidenceError, match=f"{changed.id} is a variant that the run's seed did n"):
        requested(replace(plan, cases=(case, varied, changed)), suite)


@pytest.mark.parametrize(
    ("name", "value", "reported"),
    [
        ("depth", 2, "2, and by suite and workload it is 3"),
        ("has_bias", 1, "1, and by suite and workload it is True"),
        ("width", 8, "8, and by suite and workload it is None"),
    ],
)
def test_a_case_with_other_parameters_is_refused(name: str, value: int, reported: str) -> None:
    plan, suite, case, varied = drawn_plan()
    for one, rest in ((varied, case), (case, varied)):
        corrupted = replace(one, parameters={**one.parameters, name: value})
        with pytest.raises(EvidenceError) as fault:
            requested(replace(plan, cases=(corrupted, rest)), suite)
        assert str(fault.value) == f'case {one.id}: its parameter "{name}" is {reported}'


def test_a_variant_without_its_change_is_refused() -> None:
    plan, suite, case, varied = drawn_plan()
    corrupted = replace(varied, parameters=WHOLE)
    with pytest.raises(EvidenceError, match=rf"case {varied.id}: its parameter .* by suite and"):
        requested(replace(plan, cases=(case, corrupted)), suite)


@pytest.mark.parametrize(
    "change",
    [
        {"is_repeatable": False},
        {"alone": True},
        {"bound_by": "memory"},
        {"injector": "slow"},
        {"needs": ("float8",)},
        {"is_timed": False, "launches": 0},
    ],
)
def test_a_case_that_says_another_thing_than_its_workload_is_refused(
    change: dict[str, object],
) -> None:
    plan, suite, case, varied = drawn_plan()
    corrupted = replace(case, **change)  # type: ignore[arg-type]
    with pytest.raises(EvidenceError, match=f"case gemm@cpu:0: its {next(iter(change))} is "):
        requested(replace(plan, cases=(corrupted, varied)), suite)


def test_a_variant_has_the_name_and_the_weight_of_one() -> None:
    plan, suite, case, varied = drawn_plan()
    renamed = replace(varied, id="gemm-more@cpu:0")  # it would be judged as a case of the suite
    with pytest.raises(EvidenceError, match="case gemm-more@cpu:0 is not named as the variant"):
        requested(replace(plan, cases=(case, renamed)), suite)
    heavy = replace(varied, weight=1.0)
    with pytest.raises(EvidenceError, match=f"case {varied.id} is not planned as suite mine says"):
        requested(replace(plan, cases=(case, heavy)), suite)


def test_a_seed_that_is_no_number_is_a_fault_of_the_plan() -> None:
    plan, suite, *_ = drawn_plan()
    with pytest.raises(EvidenceError, match="its seed must be 32 bytes in hexadecimal"):
        requested(replace(plan, seed="chosen"), suite)


def test_a_fault_in_a_plan_of_another_bench_says_so() -> None:
    plan, suite, case, _ = drawn_plan()
    with pytest.raises(EvidenceError, match=f"was made by bench 0.0.9, this is {VERSION}$"):
        requested(replace(plan, bench_version="0.0.9", cases=(case,)), suite)


# ------------------------------------------------------------------ what no variant is drawn of


def test_a_suite_without_variants_and_a_workload_without_any_have_none() -> None:
    plan, suite, case, varied = drawn_plan()
    fixed = replace(plan, cases=(case,))
    none = {"gemm": replace(GEMM, variants=())}
    assert requested(fixed, replace(suite, variants=False)) == ()
    assert requested(fixed, suite, none) == ()
    with pytest.raises(EvidenceError, match="is a variant that the run's seed did not draw"):
        requested(plan, replace(suite, variants=False))
    with pytest.raises(EvidenceError, match="of which the run's seed can draw none"):
        requested(plan, suite, none)
    assert varied.variant


def test_a_variant_that_cannot_run_here_is_planned_all_the_same() -> None:
    plan, suite, case, varied = drawn_plan()
    lacking = replace(varied, unsupported="cpu:0 has no float8")
    assert requested(replace(plan, cases=(case, lacking)), suite) == ()


def test_no_variant_is_drawn_of_a_case_that_is_too_large_for_the_node() -> None:
    plan, suite, case, _ = drawn_plan()
    large = replace(suite.case[0], memory=(MemoryClass(gib=192),))
    small = replace(item_of(a_case("gemm"), id="other"), parameters={}, variants=False)
    suite = replace(suite, case=(large, small))
    _, lacking = placement.place(suite, SYSTEM.identity.devices, plan.seed)
    other = replace(case, id="other@cpu:0", parameters={**GEMM.parameters, **GEMM.small})
    assert requested(replace(plan, cases=(other,), not_planned=lacking), suite) == ()


# ------------------------------------------------------------------ what cannot be told


def test_another_version_and_an_unknown_workload_are_told_and_are_no_fault() -> None:
    plan, suite, case, varied = drawn_plan()
    newer = replace(plan, cases=(replace(case, version=2), replace(varied, version=2)))
    (sentence,) = requested(newer, suite)
    assert sentence == (f'workload "gemm" is of version 2, and bench {VERSION} has version 1')
    assert requested(replace(plan, cases=(case,)), suite, {}) == (
        f'workload "gemm" is not known to bench {VERSION}',
    )
    with pytest.raises(EvidenceError, match='the plan has workload "gemm" in two versions'):
        requested(replace(plan, cases=(case, replace(varied, version=2))), suite)


def test_what_the_suite_says_of_a_workload_that_is_not_known_is_held() -> None:
    plan, suite, case, varied = drawn_plan()
    for corrupted in (
        replace(plan, cases=(replace(case, parameters={**WHOLE, "batch": 3}), varied)),
        replace(plan, cases=(case, replace(varied, weight=1.0))),
        replace(plan, cases=(case, replace(varied, id="gemm~x@cpu:0"))),
    ):
        with pytest.raises(EvidenceError):
            requested(corrupted, suite, {})


# ------------------------------------------------------------------ the verb


SUITE = """schema = "bench/suite/2"
name = "mine"
version = 1
summary = "the cases of a small bundle"
time_limit_seconds = 300
{variants}
[protocol]
mode = "fresh"
calibration_seconds = 0.03
warmup_steps = 1
warmup_seconds = 0.0
blocks = 2
block_steps = 3
block_seconds = 0.03
interim_analyses = [2, 5]
last_checks = "one"
"""
CASE = """[[case]]
id = "{name}"
workload = "{name}"
small = true
launches = 5
expected_seconds = 1
reference_seconds = 2
time_limit_seconds = 60
memory_limit_gib = 1
"""
ANALYSES = replace(PROTOCOL, interim_analyses=(2, 5))


def verified(tmp_path: Path, *, versions: int = 1, varies: bool = False) -> verify.Verification:
    """A sound bundle of three cases, of which this bench knows the workloads in these versions."""
    names = ("gemm", "bert", "exact")
    path = tmp_path / "mine.toml"
    head = SUITE.format(variants="variants = true" if varies else "")
    path.write_text(head + "".join(CASE.format(name=name) for name in names))
    plain = replace(GEMM, version=versions, parameters={}, small={})
    words = {name: a_case(name).summary for name in names}
    known = {
        name: replace(plain, name=name, summary=words[name], is_timed=name != "exact")
        for name in names
    }
    cases = [a_case(name, launches=2, is_timed=name != "exact") for name in names]
    drawn = (1, 1, None)  # the only timed launch before the last of an interim analysis
    pairs = zip(cases, drawn, strict=True)
    plan = a_plan(*(replace(case, checked_launch=one) for case, one in pairs), protocol=ANALYSES)
    plan = replace(
        plan,
        suite="mine",
        suite_version=1,
        suite_summary="the cases of a small bundle",
        groups=launch_groups(plan.cases, plan.launches, plan.seed),
        digests={**healthy().plan.digests, "suite": sha256(path.read_bytes())},
    )
    draft = Draft(plan=plan, events=tuple(analysed(plan, healthy_events(plan))))
    folder = sealed(tmp_path / "run", draft, keys.development_key())
    wanted = Expectations(suite=str(path))
    file = replace(facts_of(plan).file, workload=tuple(known.values()), bench_version=VERSION)
    facts = Facts(file=file)
    return verify.verify(folder, Terms(allow_development=True, expectations=wanted, facts=facts))


def test_verify_accepts_a_plan_that_the_suite_makes(tmp_path: Path) -> None:
    result = verified(tmp_path)
    assert (result.exit_code, result.verdict, result.faults) == (0, "ACCEPTED", ())
    assert result.checks[-1].sentence.endswith("the suite is the one that you expect")


def test_verify_finds_the_variant_that_was_left_out(tmp_path: Path) -> None:
    result = verified(tmp_path, varies=True)
    assert (result.exit_code, result.verdict) == (4, None)
    (fault,) = result.faults
    assert fault.startswith("the plan lacks case gemm~")


def test_verify_states_no_verdict_where_the_suite_cannot_be_compared(tmp_path: Path) -> None:
    result = verified(tmp_path, versions=2, varies=True)
    check = result.checks[-1]
    assert (result.exit_code, result.verdict, result.faults) == (3, None, ())
    assert (check.name, check.status) == ("expectations", "not_done")
    assert "; not checked: the drawn variants and parameters of some workloads; " in check.sentence
    assert f'workload "bert" is of version 1, and bench {VERSION} has version 2' in check.sentence


# ------------------------------------------------------------------ real plans


def vendor_device(index: int) -> Device:
    first = SYSTEM.identity.devices[0]
    name = f"vendor:{index}"
    return replace(first, id=name, vendor="vendor", index=index, memory_bytes=200 * 2**30)


def made(suite: Suite, devices: tuple[Device, ...], features: frozenset[str]) -> Plan:
    """The plan that planning makes of this suite for these devices, each workload resolved."""
    answer: Answer = describe(Question(requests=requests(suite, devices, SEED)))
    data = frozenset(name for one in answer.descriptions for name in one.data)
    return make_plan(
        PlanInputs(
            suite=suite,
            answer=answer,
            places=[
                Place(device=device, features=features, available_datasets=data)
                for device in devices
            ],
            criteria=FUNCTIONAL,
            digests={},
            seed=SEED,
            run_id="run",
            created_utc="2026-11-21T12:00:00Z",
            bench_version=VERSION,
            manifest=workload_manifest.load(),
        )
    )


SEED = "b7" * 32
FULL_SIZE = ("bert", "resnet50", "dimenet", "ppo")
SLOW = ("diffusion", "lightning_resnet152", "resnet50_jpeg", "vjepa")
DEVICES = (vendor_device(0), vendor_device(1))


def reduced(item: SuiteCase) -> SuiteCase:
    """The row at small size, but for some: to lay out every large model takes a minute."""
    return replace(item, small=item.workload not in FULL_SIZE)


@pytest.fixture(scope="module")
def acceptance() -> tuple[Plan, Suite]:
    """The acceptance suite, but for its slowest rows, on two devices that have no JAX."""
    whole, _ = suite_file.load_suite("acceptance")
    rows = [reduced(item) for item in whole.case if item.workload not in SLOW]
    suite = replace(whole, case=tuple(rows))
    return made(suite, DEVICES, frozenset({"float8", "tf32"})), suite


def on_two_devices(plan: Plan, suite: Suite) -> tuple[str, ...]:
    system = replace(SYSTEM, identity=replace(SYSTEM.identity, devices=DEVICES))
    return check_suite(plan, system, FUNCTIONAL, suite, workload_manifest.load())


def test_the_plan_of_the_acceptance_suite_is_the_one_that_its_seed_makes(
    acceptance: tuple[Plan, Suite],
) -> None:
    plan, suite = acceptance
    varied = [case for case in plan.cases if case.variant]
    assert len(varied) > 20
    assert any(case.scope == "job" for case in plan.cases)
    assert any(case.unsupported for case in varied)
    assert on_two_devices(plan, suite) == ()


def test_no_variant_of_the_acceptance_suite_can_be_left_out(
    acceptance: tuple[Plan, Suite],
) -> None:
    plan, suite = acceptance
    for left_out in [case for case in plan.cases if case.variant]:
        rest = tuple(case for case in plan.cases if case != left_out)
        with pytest.raises(EvidenceError, match=r"the plan lacks case .*~"):
            on_two_devices(replace(plan, cases=rest), suite)


def test_another_seed_draws_other_variants(acceptance: tuple[Plan, Suite]) -> None:
    plan, suite = acceptance
    with pytest.raises(EvidenceError, match="the run's seed"):
        on_two_devices(replace(plan, seed="00" * 32), suite)


def test_the_plan_of_a_small_suite_with_jobs_on_processors_is_the_one_that_its_seed_makes() -> None:
    all_of_it, _ = suite_file.load_suite("smoke-all")
    wanted = ("bert", "gemm", "resnet50", "collectives", "op_fft")
    items = tuple(one for one in all_of_it.case if one.workload in wanted)
    suite = replace(all_of_it, variants=True, case=items)
    plan = made(suite, SYSTEM.identity.devices, frozenset())
    assert any(case.ranks > 1 for case in plan.cases)
    assert {case.workload for case in plan.cases if case.variant} == {"bert", "resnet50"}
    assert check_suite(plan, SYSTEM, FUNCTIONAL, suite, workload_manifest.load()) == ()


# ------------------------------------------------------------------ the file


def test_the_facts_are_those_of_the_workloads() -> None:
    content: Callable[[], bytes] = runpy.run_path(
        str(ROOT / "scripts" / "write_workload_facts.py")
    )["content"]
    assert workload_manifest.FILE.read_bytes() == content(), "run `make generate`"


@pytest.mark.parametrize("file", [workload_manifest.FILE, workload_sizes.FILE])
def test_the_file_is_in_what_is_installed(file: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["appliance"]
    assert file.relative_to(ROOT / "appliance").as_posix() in patterns


def test_every_shipped_suite_asks_for_workloads_whose_facts_are_known() -> None:
    known = workload_manifest.load()
    for name in suite_file.list_suites():
        suite, _ = suite_file.load_suite(name)
        assert {case.workload for case in suite.case} <= known.keys(), name
