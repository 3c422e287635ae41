"""Small suites, the descriptions of their workloads, and plans of them."""

from collections.abc import Sequence

from support.builders import FUNCTIONAL, PROTOCOL, SEED

from appliance.planning.plan import Place, PlanInputs, make_plan
from appliance.records.criteria import Criteria
from appliance.records.plan import Plan
from appliance.records.request import Answer
from appliance.records.suite import Protocol, Suite, SuiteCase
from appliance.records.system import Device
from appliance.records.workload import Description, Resolved, Work

NAMES = ("gemm", "bert", "llama", "exact")


def description(name: str) -> Description:
    return Description(
        name=name,
        version=3,
        summary=f"The {name}",
        parameters=(),
        small={},
        needs=("float8",) if name == "llama" else (),
        data=("shakespeare",) if name == "char_lm" else (),
        steps=None,
        alone=name == "bert",
        is_timed=name != "exact",
        is_repeatable=True,
        bound_by="memory" if name == "bert" else "compute",
        data_pattern="random",
        injector="bit_flip" if name == "faulty" else "",
    )


def place(index: int, *, features: Sequence[str] = ("float8",)) -> Place:
    device = Device(
        id=f"cpu:{index}",
        vendor="cpu",
        index=index,
        model="M",
        serial=None,
        memory_bytes=None,
        facts={},
    )
    return Place(device=device, features=frozenset(features), available_datasets=frozenset())


def suite_case(name: str, *, launches: int | None = None) -> SuiteCase:
    return SuiteCase(
        id=f"{name}-1",
        workload=name,
        small=True,
        parameters={"size": 5},
        launches=launches,
        expected_seconds=1.0,
        reference_seconds=2.0,
        time_limit_seconds=60.0,
        memory_limit_gib=0.5,
    )


def suite(*cases: SuiteCase, protocol: Protocol = PROTOCOL, limit: float = 1000.0) -> Suite:
    return Suite(
        name="mine",
        version=2,
        summary="tests",
        time_limit_seconds=limit,
        protocol=protocol,
        case=cases or tuple(map(suite_case, NAMES)),
    )


def planned(
    given_suite: Suite | None = None,
    *,
    seed: str = SEED,
    criteria: Criteria = FUNCTIONAL,
    places: Sequence[Place] = (place(0),),
    answer: Answer | None = None,
    sessions: int = 1,
    pause_seconds: float | None = None,
) -> Plan:
    return make_plan(
        plan_inputs(
            given_suite,
            seed=seed,
            criteria=criteria,
            places=places,
            answer=answer,
            sessions=sessions,
            pause_seconds=pause_seconds,
        )
    )


def plan_inputs(
    given_suite: Suite | None = None,
    *,
    seed: str = SEED,
    criteria: Criteria = FUNCTIONAL,
    places: Sequence[Place] = (place(0),),
    answer: Answer | None = None,
    sessions: int = 1,
    pause_seconds: float | None = None,
) -> PlanInputs:
    given_suite = given_suite or suite()
    resolved = Resolved(
        parameters={"size": 5, "dtype": "float32"},
        work=Work(),
        num_parameters=7,
        steps=None,
        scenario="",
        ranks=1,
    )
    return PlanInputs(
        suite=given_suite,
        answer=answer
        or Answer(
            descriptions=tuple(map(description, (*NAMES, "char_lm", "faulty"))),
            resolved=(resolved,) * len(given_suite.case),
            software={},
        ),
        places=places,
        criteria=criteria,
        digests={"suite": "0" * 64},
        seed=seed,
        run_id="run",
        created_utc="2026-11-21T12:00:00Z",
        bench_version="0.1.0",
        sessions=sessions,
        pause_seconds=pause_seconds,
    )
