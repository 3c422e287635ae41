"""Virtual nodes: a real plan for devices that do not exist, with the times that they truly take.

The plan is made by planning from a suite that is drawn up here, so it has the order, the interim
analyses and the bounds of every plan. Baselines, criteria and peaks are records like any others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from appliance.evidence.baseline_key import key_of
from appliance.judging.limits import NO_RECORDS
from appliance.judging.verdict import Judge
from appliance.planning.plan import Place, PlanInputs, make_plan
from appliance.records.baseline import Baseline, Baselines, Level, Peaks
from appliance.records.criteria import Criteria
from appliance.records.journal import Line
from appliance.records.json import sha256, to_json
from appliance.records.plan import Case, Plan
from appliance.records.request import Answer
from appliance.records.suite import Protocol, Suite, SuiteCase
from appliance.records.system import Conditions, Device, Fact, Identity, System
from appliance.records.workload import Description, Resolved, Work
from appliance.selftest.time_model import LAUNCH_SD, Timing
from appliance.version import VERSION

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SEED = "5e" * 32
MODEL = "Virtual device"
VENDOR = "virtual"
NUM_DEVICES, NUM_RUNS, RUN_LAUNCHES = 16, 64, 40  # of the reference population
BUILD_SECONDS = 2.0
PROTOCOL = Protocol(
    mode="fresh",
    calibration_seconds=1.0,
    warmup_steps=10,
    warmup_seconds=0.0,
    blocks=4,
    block_steps=75,
    block_seconds=1.0,
    interim_analyses=(5, 10, 20, 40),
    last_checks="one",
)
WORK = Work(units=64.0, unit="samples", flops=4e12, precision="bfloat16")
NO_PEAKS = Peaks(peak=())


@dataclass(frozen=True, kw_only=True)
class Node:
    """A virtual node with its plan: all that a run of it is judged by, and its true times.

    `held_back` is the share of the time of steps in which heat holds its devices back, which their
    counters alone show; None: nobody reads counters of them.
    """

    plan: Plan
    system: System
    criteria: Criteria
    baselines: Baselines
    peaks: Peaks
    timings: Mapping[str, Timing]
    digests: Mapping[str, str]
    held_back: float | None = None

    def judge(self, lines: Sequence[Line] = ()) -> Judge:
        """The judge of production on this node's files, who has read these lines."""
        judge = Judge(
            plan=self.plan,
            criteria=self.criteria,
            baselines=self.baselines,
            peaks=self.peaks,
            system=self.system,
        )
        for line in lines:
            judge.take(line)
        return judge


def make_node(
    timings: Mapping[str, Timing],
    *,
    criteria: Criteria,
    protocol: Protocol = PROTOCOL,
    num_devices: int = 1,
    work: Work = WORK,
    peaks: Peaks = NO_PEAKS,
    gap_seconds: float = 0.0,
) -> Node:
    """A node whose suite has one case for each of the timings, on each of its devices.

    Its baselines are of a population whose step time is the timing's own without effects.
    `gap_seconds` only lengthens what is planned; pass it to `simulate` too.
    """
    system = _system(num_devices)
    suite = _suite(timings, protocol, gap_seconds)
    plan = make_plan(
        PlanInputs(
            suite=suite,
            answer=_answer(timings, work),
            places=[
                Place(device=device, features=frozenset(), available_datasets=frozenset())
                for device in system.identity.devices
            ],
            criteria=criteria,
            digests={},
            seed=SEED,
            run_id="virtual",
            created_utc=utc(0),
            bench_version=VERSION,
        )
    )
    node = Node(
        plan=plan,
        system=system,
        criteria=criteria,
        baselines=_baselines(plan, system, timings),
        peaks=peaks,
        timings={case.id: timings[_suite_case(case)] for case in plan.cases},
        digests={},
    )
    return with_plan(node, plan)


def _baselines(plan: Plan, system: System, timings: Mapping[str, Timing]) -> Baselines:
    """One for each case of the suite, on its first device."""
    first = {_suite_case(case): case for case in reversed(plan.cases)}
    return Baselines(
        baseline=tuple(
            baseline(case, plan.protocol, system, step_seconds=timings[name].step_seconds)
            for name, case in first.items()
        )
    )


def _suite_case(case: Case) -> str:
    """The name that a case of the plan has in the suite."""
    return case.id.partition("@")[0]


def with_plan(node: Node, plan: Plan) -> Node:
    """The same node with another plan, which names the digests of what it is judged by."""
    digests = {
        "suite": sha256(plan.suite.encode()),
        "criteria": sha256(to_json(node.criteria)),
        "baselines": sha256(to_json(node.baselines)),
        "peaks": sha256(to_json(node.peaks)),
        "qualified": sha256(to_json(NO_RECORDS)),
        "identity": sha256(to_json(node.system.identity)),
    }
    named = replace(plan, digests=digests)
    files = {"plan.json": sha256(to_json(named)), "system.json": sha256(to_json(node.system))}
    return replace(node, plan=named, digests=files)


def with_injector(node: Node, injector: str, cases: Sequence[str] = ()) -> Node:
    """The same node, whose plan names this fault for these cases (all if none is named)."""
    wanted = set(cases) or {case.id for case in node.plan.cases}
    named = tuple(
        replace(case, injector=injector) if case.id in wanted else case for case in node.plan.cases
    )
    return with_plan(node, replace(node.plan, cases=named, injectors=(injector,)))


def with_timing(node: Node, changes: Mapping[str, Timing]) -> Node:
    """The same node with other true times of these cases, which neither plan nor baseline know."""
    return replace(node, timings={**node.timings, **changes})


def baseline(case: Case, protocol: Protocol, system: System, *, step_seconds: float) -> Baseline:
    """What a reference population of virtual devices would have shown for a case."""
    level = Level(
        log_seconds=math.log(step_seconds),
        launch_sd=LAUNCH_SD,
        within_sd=LAUNCH_SD,
        within_freedom=NUM_RUNS * (RUN_LAUNCHES - 1),
        run_sd=LAUNCH_SD / math.sqrt(RUN_LAUNCHES),
        run_launches=RUN_LAUNCHES,
        freedom=NUM_RUNS - NUM_DEVICES,
        correlation=0.0,
        error_sd=LAUNCH_SD / 2 / math.sqrt(NUM_DEVICES),
        error_freedom=NUM_DEVICES - 1,
        device_sd=LAUNCH_SD / 2,
        tolerance=None,
    )
    return Baseline(
        key=key_of(case, protocol, system),
        kind="population",
        devices=tuple(f"reference {number}" for number in range(NUM_DEVICES)),
        num_launches=NUM_RUNS * RUN_LAUNCHES,
        num_runs=NUM_RUNS,
        run_seconds=3600.0,
        steps=level,
        wall=level,
        smallest_margin=1.5 * LAUNCH_SD,
        smallest_margin_of_three=1.5 * LAUNCH_SD,
        bundles=(sha256(b"virtual"),),
    )


def _system(num_devices: int) -> System:
    devices = tuple(
        Device(
            id=f"{VENDOR}:{index}",
            vendor=VENDOR,
            index=index,
            model=MODEL,
            serial=f"V{index:04d}",
            memory_bytes=2**36,
            facts={},
        )
        for index in range(num_devices)
    )
    return System(
        identity=Identity(
            devices=devices,
            host={},
            memory_modules=(),
            disks=(),
            interfaces=(),
            software={"torch": Fact(value="virtual")},
        ),
        conditions=Conditions(utc=utc(0), facts={}, foreign_processes=()),
    )


def _suite(timings: Mapping[str, Timing], protocol: Protocol, gap_seconds: float) -> Suite:
    steps = protocol.warmup_steps + protocol.blocks * protocol.block_steps
    return Suite(
        name="virtual",
        version=1,
        summary="Drawn from a model on a virtual clock",
        time_limit_seconds=1e9,
        protocol=protocol,
        case=tuple(
            SuiteCase(
                id=name,
                workload=name,
                expected_seconds=BUILD_SECONDS + gap_seconds + steps * timing.step_seconds,
                reference_seconds=BUILD_SECONDS,
                time_limit_seconds=1e6,
                memory_limit_gib=1.0,
            )
            for name, timing in timings.items()
        ),
    )


def _answer(timings: Mapping[str, Timing], work: Work) -> Answer:
    """The answer of `worker describe` for virtual workloads."""
    return Answer(
        descriptions=tuple(
            Description(
                name=name,
                version=1,
                summary="Takes the time of its model",
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
            for name in timings
        ),
        resolved=tuple(
            Resolved(
                parameters={}, work=work, num_parameters=None, steps=None, scenario="", ranks=1
            )
            for _ in timings
        ),
        software={},
    )


def utc(nanoseconds: int) -> str:
    """The moment so long after the virtual clock began, as a journal writes it."""
    moment = EPOCH + timedelta(microseconds=nanoseconds // 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
