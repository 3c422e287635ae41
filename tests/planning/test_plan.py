"""The plan: everything is drawn from the seed, and what cannot be planned is refused."""

import hashlib
import hmac
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st
from support.builders import FUNCTIONAL, PROTOCOL, SEED, a_case, a_plan, limited
from support.planned_suites import NAMES, description, place, planned, suite, suite_case

from appliance.errors import UsageError
from appliance.planning.coverage import sentences
from appliance.planning.plan import Place, case_analyses, case_seed, launch_groups, requests
from appliance.planning.seeds import derive_seed
from appliance.records.criteria import Criteria
from appliance.records.json import from_json, to_json
from appliance.records.plan import NotPlanned, Plan
from appliance.records.request import Answer, Refused
from appliance.records.workload import Resolved, Work
from appliance.statistics.group_sequential import group_bounds

OTHER = "00" * 32


def numbers(plan: Plan) -> list[list[int]]:
    number = {launch.id: launch.number for launch in plan.launches}
    return [[number[name] for name in group] for group in plan.groups]


# ------------------------------------------------------------------ seeds


def hkdf(secret: bytes, info: bytes, length: int, salt: bytes = b"") -> bytes:
    """RFC 5869, written out."""
    key = hmac.digest(salt or bytes(32), secret, hashlib.sha256)
    done, last = b"", b""
    for counter in range(1, -(-length // 32) + 1):
        last = hmac.digest(key, last + info + bytes([counter]), hashlib.sha256)
        done += last
    return done[:length]


def test_hkdf_is_that_of_the_rfc() -> None:
    secret, salt, info = b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA))
    expected = (  # RFC 5869, appendix A.1
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    )
    assert hkdf(secret, info, 42, salt).hex() == expected
    assert (
        HKDF(algorithm=SHA256(), length=42, salt=salt, info=info).derive(secret).hex() == expected
    )


@given(seed=st.binary(min_size=32, max_size=32), label=st.text(max_size=20))
def test_seeds_derive_from_the_run_by_label(seed: bytes, label: str) -> None:
    expected = int.from_bytes(hkdf(seed, f"bench:{label}".encode(), 8), "big") >> 1
    assert derive_seed(seed.hex(), label) == expected
    assert 0 <= expected < 2**63


def test_inputs_are_the_same_on_every_device_and_others_for_another_case() -> None:
    first, second, bert = a_case(), a_case(device="cpu:1"), a_case("bert")
    assert case_seed(SEED, first) == case_seed(SEED, second)
    assert len({case_seed(SEED, first), case_seed(SEED, bert), case_seed(OTHER, first)}) == 3


# ------------------------------------------------------------------ what is planned


def test_the_same_seed_makes_the_same_plan_and_another_another_order() -> None:
    assert to_json(planned()) == to_json(planned())
    assert planned(seed=OTHER).groups != planned().groups
    assert set(planned(seed=OTHER).groups) == set(planned().groups)


def test_a_plan_comes_back_from_its_file() -> None:
    assert from_json(Plan, to_json(planned()), name="plan.json") == planned()


def test_a_case_is_what_suite_worker_and_place_say() -> None:
    case = planned().cases[0]
    assert (case.id, case.workload, case.version, case.device) == (
        "gemm-1@cpu:0",
        "gemm",
        3,
        "cpu:0",
    )
    assert (case.parameters, case.num_parameters) == ({"size": 5, "dtype": "float32"}, 7)
    assert (case.launches, case.memory_limit_bytes, case.small) == (5, 2**29, True)
    assert [request.parameters for request in requests(suite(), [place(0).device], SEED)] == [
        {"size": 5}
    ] * 4


def test_every_launch_stands_in_one_group() -> None:
    plan = planned(places=(place(0), place(1)))
    grouped = [name for group in plan.groups for name in group]
    assert sorted(grouped) == sorted(launch.id for launch in plan.launches)
    assert len(grouped) == len(set(grouped)) == 2 * (3 * 6 + 1)
    assert grouped[0].partition("/")[2] == "0"


@pytest.mark.parametrize("seed", [SEED, OTHER, "a1" * 32])
def test_reference_launches_come_first_and_each_round_has_one_launch_of_every_case(
    seed: str,
) -> None:
    rounds = [group[0] for group in numbers(planned(seed=seed))]
    assert rounds == [0] * 4 + [number for n in range(1, 6) for number in [n] * 3]


def test_rounds_are_shuffled_and_not_all_alike() -> None:
    cases = tuple(suite_case(f"gemm{n}") for n in range(8))
    answer = Answer(
        descriptions=tuple(description(case.workload) for case in cases),
        resolved=(
            Resolved(
                parameters={}, work=Work(), num_parameters=None, steps=None, scenario="", ranks=1
            ),
        )
        * 8,
        software={},
    )
    plan = planned(suite(*cases), answer=answer)
    names = [group[0].partition("@")[0] for group in plan.groups]
    orders = {tuple(names[start : start + 8]) for start in range(0, len(names), 8)}
    assert len(orders) == 6


@pytest.mark.parametrize("seed", [SEED, OTHER, "a1" * 32])
def test_first_launch_is_of_a_case_that_needs_fewest_libraries_and_the_rest_stays_as_drawn(
    seed: str,
) -> None:
    plan = planned(seed=seed)
    needs = {
        "gemm": ("numpy", "torch", "transformers"),
        "bert": ("torch",),
        "llama": ("numpy", "torch"),
        "exact": (),  # what it needs is not known
    }
    of_case = {one.id: needs[one.id.partition("-")[0]] for one in plan.cases}
    cases = tuple(replace(one, libraries=of_case[one.id]) for one in plan.cases)
    groups = launch_groups(cases, plan.launches, seed)
    assert groups[0][0].startswith("bert")
    assert set(groups) == set(plan.groups)
    unmoved = [group for group in plan.groups if group != groups[0] and group != plan.groups[0]]
    assert [group for group in groups[1:] if group != plan.groups[0]] == unmoved
    lacking = tuple(
        replace(one, software="lacks torch") if one.id.startswith("bert") else one for one in cases
    )
    assert launch_groups(lacking, plan.launches, seed)[0][0].startswith("llama")


def test_devices_work_together_unless_the_case_is_alone() -> None:
    plan = planned(places=(place(0), place(1)))
    sizes = {group[0].partition("-")[0]: len(group) for group in plan.groups}
    assert sizes == {"gemm": 2, "bert": 1, "llama": 2, "exact": 2}
    assert all(len({name.partition("/")[2] for name in group}) == 1 for group in plan.groups)


def test_an_untimed_case_has_its_reference_launch_only() -> None:
    exact = next(case for case in planned().cases if case.workload == "exact")
    assert (exact.launches, exact.checked_launch) == (0, None)


# ------------------------------------------------------------------ launches, limits and bounds

ANALYSED = replace(PROTOCOL, interim_analyses=(5, 10, 20))


def test_a_case_without_a_limit_on_its_times_is_made_up_to_the_first_look_only() -> None:
    unjudged = planned(suite(suite_case("gemm"), protocol=ANALYSED))
    assert (unjudged.cases[0].launches, unjudged.num_limits, unjudged.bounds) == (5, 0, ())
    advisory = planned(
        suite(suite_case("gemm"), protocol=ANALYSED), criteria=limited(1.0, required=False)
    )
    assert (advisory.cases[0].launches, advisory.num_limits) == (5, 0)
    judged = planned(suite(suite_case("gemm"), protocol=ANALYSED), criteria=limited(1.0))
    assert (judged.cases[0].launches, judged.num_limits) == (20, 1)
    few = suite(suite_case("gemm", launches=7), protocol=ANALYSED)
    assert planned(few, criteria=limited(1.0)).cases[0].launches == 7


def test_the_bounds_are_those_of_the_runs_number_of_limits() -> None:
    cases = tuple(suite_case(name) for name in ("gemm", "bert", "llama", "exact"))
    plan = planned(
        suite(*cases, protocol=ANALYSED), criteria=limited(1.0), places=(place(0), place(1))
    )
    assert plan.num_limits == 6
    result = {(item.alpha, item.interim_analyses): item.z for item in plan.bounds}
    assert set(result) == {(0.01, (5, 10, 20)), (0.008 / 6, (5, 10, 20))}
    assert result[0.01, (5, 10, 20)] == group_bounds(0.01, (5, 10, 20))
    assert all(
        low < high
        for low, high in zip(*(result[key] for key in sorted(result, reverse=True)), strict=True)
    )


def test_the_time_limit_holds_for_a_node_that_is_decided_at_its_first_look() -> None:
    given = suite(suite_case("gemm"), protocol=ANALYSED, limit=7.0)
    plan = planned(given, criteria=limited(1.0))
    assert (plan.expected_seconds, plan.longest_seconds) == (7.0, 22.0)


def test_a_fault_that_a_workload_injects_stands_in_the_plan() -> None:
    plan = planned(suite(suite_case("faulty"), suite_case("gemm")))
    assert plan.injectors == ("bit_flip",)
    assert [case.injector for case in plan.cases] == ["bit_flip", ""]
    assert planned().injectors == ()


# ------------------------------------------------------------------ the launch that is checked


@given(seed=st.binary(min_size=32, max_size=32), launches=st.integers(1, 30))
def test_the_checked_launch_is_before_the_first_look_and_never_the_last(
    seed: bytes, launches: int
) -> None:
    protocol = replace(PROTOCOL, interim_analyses=(5, 10))
    plan = planned(
        suite(suite_case("gemm", launches=launches), protocol=protocol),
        seed=seed.hex(),
        criteria=limited(1.0),
    )
    checked = plan.cases[0].checked_launch
    assert checked is not None
    assert 1 <= checked <= max(1, min(5, launches) - 1)


def test_every_launch_may_be_drawn_and_all_devices_check_the_same() -> None:
    drawn = set()
    for byte in range(40):
        plan = planned(seed=f"{byte:02x}" * 32, places=(place(0), place(1)))
        pairs = [case.checked_launch for case in plan.cases if case.workload == "gemm"]
        assert pairs[0] == pairs[1]
        drawn.add(pairs[0])
    assert drawn == {1, 2, 3, 4}


def test_where_all_are_checked_none_is_drawn() -> None:
    plan = planned(suite(protocol=replace(PROTOCOL, last_checks="all")))
    assert {case.checked_launch for case in plan.cases} == {None}


def test_the_last_look_is_all_launches() -> None:
    protocol = replace(PROTOCOL, interim_analyses=(5, 10, 20))
    for launches, expected in ((20, (5, 10, 20)), (10, (5, 10)), (7, (5, 7)), (3, (3,))):
        plan = a_plan(a_case(launches=launches), protocol=protocol)
        assert case_analyses(plan, plan.cases[0]) == expected


# ------------------------------------------------------------------ time


def test_planned_time_counts_groups_by_their_slowest_launch() -> None:
    together = planned(suite(suite_case("gemm")), places=(place(0), place(1)))
    assert together.expected_seconds == 2.0 + 5 * 1.0
    apart = planned(suite(suite_case("bert")), places=(place(0), place(1)))
    assert apart.expected_seconds == 2 * (2.0 + 5 * 1.0)


def test_a_suite_that_takes_longer_than_it_says_is_refused() -> None:
    assert planned(suite(suite_case("gemm"), limit=7.0)).expected_seconds == 7.0
    with pytest.raises(UsageError, match=r"plans 7\.0 s, more than its limit of 6\.9 s"):
        planned(suite(suite_case("gemm"), limit=6.9))


def test_a_case_that_cannot_run_is_planned_as_unsupported_and_takes_no_time() -> None:
    plan = planned(suite(suite_case("llama")), places=(place(0, features=()),))
    assert plan.cases[0].unsupported == "cpu:0 has no float8"
    assert (len(plan.launches), plan.expected_seconds) == (6, 0.0)


# ------------------------------------------------------------------ needs, jobs, variants


def test_a_suites_own_need_is_held_against_the_device_too() -> None:
    given = replace(suite_case("gemm"), needs=("tf32",))
    assert planned(suite(given)).cases[0].unsupported == "cpu:0 has no tf32"
    there = planned(suite(given), places=(place(0, features=("tf32",)),))
    assert there.cases[0].unsupported == ""


@pytest.mark.parametrize(("tf32", "needs"), [(True, ("tf32",)), (False, ())])
def test_a_case_that_asks_for_tf32_needs_it_though_its_suite_does_not_say_so(
    tf32: bool,  # noqa: FBT001 - a parameter of the case
    needs: tuple[str, ...],
) -> None:
    answer = of_ranks(1)
    resolved = tuple(replace(one, parameters={"tf32": tf32}) for one in answer.resolved)
    case = planned(suite(suite_case("bert")), answer=replace(answer, resolved=resolved)).cases[0]
    assert case.needs == needs
    assert case.unsupported == ("cpu:0 has no tf32" if tf32 else "")


def test_what_the_node_is_too_small_for_stands_in_the_plan_with_its_reason() -> None:
    given = suite(suite_case("gemm"), replace(suite_case("bert"), num_devices=2))
    plan = planned(given, answer=of_ranks(1))
    assert [case.id for case in plan.cases] == ["gemm-1@cpu:0"]
    reason = "it needs 2 devices, and this node has 1"
    assert plan.not_planned == (NotPlanned(case="bert-1", device="", reason=reason),)
    assert sentences(plan) == (f"bert-1 is not planned: {reason}",)


def test_a_suite_of_which_nothing_fits_is_refused_with_the_first_reason() -> None:
    with pytest.raises(UsageError, match="plans nothing: of gemm-1, it needs 3 nodes"):
        planned(
            suite(replace(suite_case("gemm"), num_nodes=3)),
            answer=replace(of_ranks(1), resolved=()),
        )


def accelerator(index: int) -> Place:
    given = place(index)
    named = replace(given.device, id=f"vendor:{index}", vendor="vendor")
    return replace(given, device=named)


def of_ranks(ranks: int, *, variant: str = "") -> Answer:
    resolved = Resolved(
        parameters={"ranks": ranks},
        work=Work(),
        num_parameters=None,
        steps=None,
        scenario="",
        ranks=ranks,
        variant=variant,
    )
    return answer_with(resolved)


def test_a_job_is_one_case_of_all_devices_with_a_rank_on_each() -> None:
    given = suite(replace(suite_case("gemm"), scope="job"))
    plan = planned(given, places=(accelerator(0), accelerator(1)), answer=of_ranks(2))
    (case,) = plan.cases
    assert (case.id, case.device, case.ranks, case.scope) == (
        "gemm-1@vendor:all",
        "vendor:0",
        2,
        "job",
    )
    assert case.devices == case.all_devices == ("vendor:0", "vendor:1")
    alone = planned(given, answer=of_ranks(2)).cases[0]
    assert (alone.id, alone.devices, alone.ranks) == ("gemm-1@cpu:0", (), 2)


def test_ranks_that_fit_neither_the_devices_nor_the_agents_are_refused() -> None:
    job = replace(suite_case("gemm"), scope="job")
    places = (accelerator(0), accelerator(1))
    with pytest.raises(UsageError, match="has 3 ranks on 2 devices"):
        planned(suite(job), places=places, answer=of_ranks(3))
    with pytest.raises(UsageError, match='2 ranks on one device: give it scope = "job"'):
        planned(suite(suite_case("gemm")), places=places[:1], answer=of_ranks(2))
    with pytest.raises(UsageError, match="2 agents cannot share 3 ranks evenly"):
        planned(suite(replace(job, agents=2)), answer=of_ranks(3))
    assert planned(suite(replace(job, agents=2)), answer=of_ranks(4)).cases[0].agents == 2


def varied(variant: str, criteria: Criteria = FUNCTIONAL) -> Plan:
    """A suite of one case, of which the worker has drawn this variant."""
    first, other = (of_ranks(1, variant=name).resolved[0] for name in ("", variant))
    answer = replace(of_ranks(1), resolved=(first, other))
    given = replace(suite(suite_case("gemm")), variants=True)
    return planned(given, answer=answer, criteria=criteria)


def test_a_variant_is_a_case_beside_its_own_without_weight_and_without_limit() -> None:
    base, variant = varied("one layer less", limited(1.0)).cases
    assert (base.id, base.variant_of) == ("gemm-1@cpu:0", "")
    assert (variant.id, variant.variant, variant.variant_of, variant.weight) == (
        "gemm-1~one-layer-less@cpu:0",
        "one layer less",
        "gemm-1@cpu:0",
        0.0,
    )
    assert case_seed(SEED, base) != case_seed(SEED, variant)
    assert varied("one layer less", limited(1.0)).num_limits == 1


def test_a_workload_without_variants_is_planned_once() -> None:
    assert [case.id for case in varied("").cases] == ["gemm-1@cpu:0"]


# ------------------------------------------------------------------ refusals


def answer_with(resolved: Resolved | Refused) -> Answer:
    return Answer(descriptions=tuple(map(description, NAMES)), resolved=(resolved,), software={})


def test_what_the_worker_refuses_is_told_with_its_case() -> None:
    sentence = 'workload "gemm" has no parameter "siez" (did you mean "size"?)'
    with pytest.raises(UsageError) as refused:
        planned(suite(suite_case("gemm")), answer=answer_with(Refused(error=sentence)))
    assert str(refused.value) == f'suite mine, case "gemm-1": {sentence}'


def test_a_workload_that_was_not_described_is_unknown() -> None:
    resolved = Resolved(
        parameters={}, work=Work(), num_parameters=None, steps=None, scenario="", ranks=1
    )
    with pytest.raises(UsageError, match=r'no workload "gem" \(did you mean "gemm"\?\)'):
        planned(suite(suite_case("gem")), answer=answer_with(resolved))


def test_a_missing_data_set_is_refused_with_the_way_to_get_it() -> None:
    with pytest.raises(UsageError, match="bench data fetch shakespeare"):
        planned(suite(suite_case("char_lm")))


def test_no_device_plans_nothing() -> None:
    with pytest.raises(UsageError, match="plans nothing"):
        planned(places=())
