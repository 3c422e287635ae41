"""Small records for tests: a plan, the events of a healthy run, and the journal made of them.

Everything is fixed: the same call gives the same records. A test takes what is healthy and
breaks the one thing that it is about.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from appliance.evidence.qualification import stack
from appliance.evidence.repeats import digest_of
from appliance.judging.limits import NO_RECORDS
from appliance.judging.verdict import judge
from appliance.planning.check_sampling import sampled_steps
from appliance.planning.criterion_scope import planned_bounds
from appliance.planning.launch_constants import NUM_EMPTY_BLOCKS
from appliance.planning.plan import all_launches, case_seed, fresh_controls
from appliance.planning.sessions import rounds
from appliance.records.baseline import Baselines, Peaks
from appliance.records.criteria import Criteria, Criterion
from appliance.records.journal import (
    Artifact,
    Block,
    Calibrated,
    Check,
    Checked,
    Counted,
    Difference,
    Digested,
    Environment,
    Event,
    Float32Products,
    Injected,
    InterimAnalysis,
    KernelLogRead,
    LaunchEnded,
    LaunchStarted,
    Libraries,
    Line,
    MismatchExamined,
    NotObserved,
    Outcome,
    Phase,
    Reading,
    Repeated,
    RunEnded,
    RunResumed,
    RunStarted,
    ServerProbed,
    SessionBegan,
    SessionEnded,
    Started,
    Warmed,
)
from appliance.records.json import Parameters, sha256, to_json
from appliance.records.plan import Case, Launch, Plan
from appliance.records.qualified import ObservedCase, Qualified, QualifiedRecord, ReachedLoad
from appliance.records.suite import Protocol
from appliance.records.system import Conditions, Device, Fact, Identity, System
from appliance.records.verdict import Verdict, VerdictWord
from appliance.records.workload import Work

TENSOR = "output.value float32 (4,)"
FLIPPED = Difference(
    tensors=(TENSOR,),
    num_tensors=1,
    num_bytes=1,
    total_bytes=20,
    num_elements=1,
    total_elements=4,
    first_indices=(2,),
    xor_bits=(*(0,) * 30, 1, 0),
    largest_ulp=2**30,
)
"""One high bit of one number."""
SEED = "5e" * 32
RUN = "20261121T120000Z-abcdef"
STEP_NS = 10_000_000
"""Step time of the healthy runs, before each launch's own small difference."""
SPREAD_NS = (12_345, -9_876, 3_210, -4_567, 8_901, -2_468, 6_543)
PROTOCOL = Protocol(
    mode="fresh",
    calibration_seconds=0.03,
    warmup_steps=1,
    warmup_seconds=0.0,
    blocks=2,
    block_steps=3,
    block_seconds=0.03,
    interim_analyses=(5,),
    last_checks="one",
)
FIRST_TIMED = 1 + PROTOCOL.warmup_steps
"""Number of the first step of a block, after the first of all and those that warm up."""
FUNCTIONAL = Criteria(
    name="functional",
    version=1,
    summary="what every run must show",
    criterion=(
        Criterion(id="completion", kind="completion", title="Every launch completed"),
        Criterion(id="integrity", kind="integrity", title="Clocks agree, nothing was injected"),
        Criterion(id="correctness", kind="numeric", title="Every check within its bound"),
        Criterion(id="repeatability", kind="determinism", title="Same inputs, same output"),
    ),
)


def limited(at_most: float, *, required: bool = True, cases: str = "*") -> Criteria:
    """The functional criteria and one limit on the step time, in seconds."""
    limit = Criterion(
        id="speed",
        kind="perf",
        title="Step time",
        cases=cases,
        required=required,
        metric="step_seconds",
        at_most=at_most,
    )
    return replace(FUNCTIONAL, criterion=(*FUNCTIONAL.criterion, limit))


# ------------------------------------------------------------------ plans


def a_case(
    name: str = "gemm",
    *,
    device: str = "cpu:0",
    launches: int = 5,
    steps: int | None = None,
    is_timed: bool = True,
    alone: bool = False,
    checked_launch: int | None = 2,
    work: Work | None = None,
    parameters: Parameters | None = None,
    unsupported: str = "",
    injector: str = "",
) -> Case:
    return Case(
        id=f"{name}@{device}",
        workload=name,
        version=1,
        summary=f"The {name} of the tests",
        parameters=parameters or {},
        small=True,
        work=work or Work(units=4.0, unit="samples", flops=2e9),
        num_parameters=None,
        steps=steps,
        is_timed=is_timed,
        is_repeatable=True,
        alone=alone,
        bound_by="compute",
        data_pattern="random",
        scenario="",
        weight=1.0,
        injector=injector,
        ranks=1,
        device=device,
        launches=launches if is_timed else 0,
        checked_launch=checked_launch if is_timed and steps is None else None,
        expected_seconds=1.0,
        reference_seconds=2.0,
        time_limit_seconds=60.0,
        memory_limit_bytes=2**30,
        unsupported=unsupported,
    )


def a_plan(*cases: Case, protocol: Protocol = PROTOCOL, sessions: int = 1) -> Plan:
    """A plan of these cases (one case if none is given), in rounds, not shuffled."""
    cases = cases or (a_case(),)
    launches = all_launches(cases, protocol, sessions)
    places = rounds(launches)
    return Plan(
        run_id=RUN,
        created_utc="2026-11-21T12:00:00Z",
        bench_version="0.1.0",
        seed=SEED,
        suite="tests",
        suite_version=1,
        suite_summary="made by builders",
        criteria="functional",
        digests={},
        protocol=protocol,
        cases=cases,
        launches=launches,
        groups=tuple((launch.id,) for launch in sorted(launches, key=lambda one: places[one.id])),
        num_limits=0,
        bounds=(),
        expected_seconds=60.0,
        longest_seconds=60.0,
        time_limit_seconds=300.0,
        injectors=tuple(dict.fromkeys(case.injector for case in cases if case.injector)),
        rerun_of="",
        sessions=sessions,
    )


def with_bounds(plan: Plan, criteria: Criteria) -> Plan:
    """The same plan with the bounds that planning stores for these criteria."""
    num_limits, bounds = planned_bounds(
        criteria,
        plan.cases,
        plan.protocol.interim_analyses,
        plan.sessions,
        num_attempts=plan.num_attempts,
    )
    return replace(plan, num_limits=num_limits, bounds=bounds)


# ------------------------------------------------------------------ what happened


def healthy_events(plan: Plan, *, step_ns: int = STEP_NS) -> list[Event]:
    """Events of a run in which every launch of `plan` completed and every check was within."""
    launches = {launch.id: launch for launch in plan.launches}
    cases = {case.id: case for case in plan.cases}
    events: list[Event] = [
        RunStarted(run_id=plan.run_id, plan=sha256(to_json(plan)), system="0" * 64, pid=1),
        *(
            Injected(
                injector=name, cases=tuple(case.id for case in plan.cases if case.injector == name)
            )
            for name in plan.injectors
        ),
        healthy_server(),
    ]
    session = 1
    for group in plan.groups:
        for name in group:
            launch = launches[name]
            case = cases[launch.case]
            if launch.session > session:
                events += session_change(session, plan.digests.get("identity", ""))
                session = launch.session
            events += launch_events(plan, case, launch, step_ns=step_ns)
            if launch.number == case.launches and case.is_timed:
                reason = "nothing has failed; performance is reported, not judged"
                events.append(
                    InterimAnalysis(
                        case=case.id, launches=case.launches, is_decided=False, reason=reason
                    )
                )
    return [*events, RunEnded(launches=len(plan.launches))]


def healthy_server(seconds: float = 0.1) -> ServerProbed:
    """The probe of a fork server that may be forked."""
    return ServerProbed(
        device="cpu:0",
        framework="torch",
        library_mode="default",
        is_healthy=True,
        seconds=seconds,
        reason="",
    )


def launch_events(
    plan: Plan, case: Case, launch: Launch, *, step_ns: int = STEP_NS
) -> Iterator[Event]:
    """Events of one healthy launch, from its start to its end."""
    name = launch.id
    yield LaunchStarted(
        launch=name,
        mode="fresh" if launch.id in fresh_controls(plan.launches) else plan.protocol.mode,
        library_mode="deterministic" if launch.is_repeat else "default",
    )
    yield Environment(launch=name, rank=0, facts={"torch": Fact(value="2.13")})
    yield float32_products(case, launch, "before")
    if launch.is_repeat:
        yield repeated(name)
        yield float32_products(case, launch, "after")
        yield ended(name)
        return
    if case.is_timed:
        yield Artifact(
            launch=name,
            rank=0,
            name="reference.npy",
            sha256="a" * 64,
            size_bytes=64,
            is_made=launch.number == 0,
        )
    yield Started(launch=name, rank=0, build_ns=5 * step_ns, first_step_ns=2 * step_ns)
    yield digested(name)
    yield checked(name, "first")
    yield calibrated(name)
    if launch.is_timed:
        yield Reading(launch=name, device=case.device, values={"load": 0.5, "kelvin": None})
        yield from _timed(plan, case, launch, step_ns + SPREAD_NS[launch.number % len(SPREAD_NS)])
    else:
        yield Libraries(launch=name, rank=0, files={"/lib/libm.so.6": "d" * 64})
        if case.steps is not None and not case.is_timed:
            yield replace(checked(name, "last"), step=case.steps - 1)
        if not case.is_repeatable:
            yield checked(name, "repeatability", error=0.0, bound=0.01)
    yield float32_products(case, launch, "after")
    yield ended(name)


def calibrated(launch: str) -> Calibrated:
    span, empty = (10**7,) * 3, (3_000,) * NUM_EMPTY_BLOCKS
    return Calibrated(
        launch=launch, rank=0, wall_ns=span, raw_ns=span, event_ns=None, empty_ns=empty
    )


def float32_products(
    case: Case, launch: Launch, moment: Literal["before", "after"]
) -> Float32Products:
    formats = dict.fromkeys(("matmul", "convolution"), "tf32" if case.in_tf32 else "ieee")
    return Float32Products(launch=launch.id, rank=0, moment=moment, formats=formats)


def _timed(plan: Plan, case: Case, launch: Launch, step_ns: int) -> Iterator[Event]:
    if case.steps is not None:
        yield replace(block(launch.id, 0, (step_ns,) * case.steps), first_step=0)
        yield replace(checked(launch.id, "last"), step=case.steps - 1)
        return
    yield Warmed(launch=launch.id, rank=0, wall_ns=(step_ns,) * plan.protocol.warmup_steps)
    for index in range(plan.protocol.blocks):
        # The steps of a block differ a little; their median is the launch's own.
        yield block(launch.id, index, (step_ns - 1000, step_ns, step_ns + 1000))
    yield from drawn(plan, case, launch, num_steps=3 * plan.protocol.blocks)
    if launch.number == case.checked_launch or case.checked_launch is None:
        yield replace(checked(launch.id, "last"), step=FIRST_TIMED + 3 * plan.protocol.blocks - 1)


def block(launch: str, index: int, wall_ns: tuple[int, ...]) -> Block:
    return Block(
        launch=launch,
        rank=0,
        index=index,
        first_step=FIRST_TIMED + index * len(wall_ns),
        wall_ns=wall_ns,
        event_ns=None,
        block_wall_ns=sum(wall_ns) + 1000,
        block_raw_ns=sum(wall_ns) + 1000,
    )


def drawn(plan: Plan, case: Case, launch: Launch, num_steps: int) -> Iterator[Checked]:
    """Of inference, checks of the timed outputs that the seed draws."""
    if case.scenario:
        for step in sampled_steps(case_seed(plan.seed, case), launch.id, plan.protocol.block_steps):
            if step < num_steps:
                yield replace(checked(launch.id, "sampled"), step=FIRST_TIMED + step)


def checked(launch: str, phase: Phase, *, error: float = 1e-6, bound: float = 1e-5) -> Checked:
    check = Check(name=f"{phase} output", error=error, bound=bound)
    return Checked(launch=launch, rank=0, phase=phase, step=0, check=check)


def digested(launch: str, *, answer: str = "") -> Digested:
    """The digest of a first output: that of all launches and devices of the case, or `answer`'s."""
    digest = sha256((answer or launch.partition("@")[0]).encode())
    return Digested(launch=launch, rank=0, phase="first", step=0, what="output", digest=digest)


def repeated(launch: str, *, answer: str = "", rank: int = 0) -> Repeated:
    """The bits of a repeat: those of all repeats and devices of the case, or `answer`'s."""
    digest = sha256((answer or launch.partition("@")[0]).encode())
    return Repeated(
        launch=launch,
        rank=rank,
        digests={TENSOR: digest, "output.loss float32 ()": "e" * 64},
        operators=(),
        settings={"deterministic": "True"},
    )


def examined(launch: str, *answers: str, tensors: tuple[str, ...] = (TENSOR,)) -> MismatchExamined:
    """Repeats after a mismatch; "" is the answer of the case, another text that of `repeated`."""
    return MismatchExamined(
        launch=launch,
        rank=0,
        tensors=tensors,
        num_wanted=100,
        answers=tuple(digest_of(repeated(launch, answer=answer)) for answer in answers),
        difference=FLIPPED,
    )


FULL_LOAD = ReachedLoad(power_fraction=0.98, core_use=0.98, loop_power=0.99, loop_speed=0.98)


def records(
    plan: Plan,
    system: System | None = None,
    *,
    num_clean: int = 1000,
    load: ReachedLoad | None = FULL_LOAD,
) -> Qualified:
    """Qualified records of all cases of a plan on the devices of a system, by default SYSTEM."""
    system = system or SYSTEM
    devices = {device.id: device for device in system.identity.devices}
    result = {
        (case.workload, case.version, devices[case.device].model): QualifiedRecord(
            workload=case.workload,
            version=case.version,
            model=devices[case.device].model,
            stack=stack(system, devices[case.device], case.libraries),
            form="deterministic",
            num_clean=num_clean,
            devices=("0" * 64,),
            operators=(),
            sources=(f"tests/{case.id}, journal {'1' * 64}",),
            recorded_utc="2026-11-21T12:00:00Z",
            bench_version="0.5.0",
            load=load if case.workload == "burn_in" else None,
        )
        for case in plan.cases
    }
    return Qualified(record=tuple(result.values()))


def observed_case(case: Case, system: System | None = None, **changes: Any) -> ObservedCase:
    """What was seen of a case on the first device of a system, by default of SYSTEM."""
    system = system or SYSTEM
    device = system.identity.devices[0]
    measured: dict[str, Any] = {
        "case": case.id.partition("@")[0],
        "workload": case.workload,
        "version": case.version,
        "size": "full",
        "parameters": case.parameters,
        "model": device.model,
        "stack": stack(system, device, case.libraries),
        "devices": ("0" * 64,),
        "num_seeds": 1,
        "outcomes": {"completed": 1},
        "fault": "",
        "checks": (),
        "same_by_default": None,
        "num_default": 0,
        "same_when_deterministic": None,
        "num_deterministic": 0,
        "step_seconds": 0.5,
        "num_steps": 10,
        "units_per_second": 123.0,
        "unit": "items",
        "flops_per_second": None,
        "host_memory_bytes": None,
        "device_memory_bytes": None,
        "power_watts": None,
        "fresh_ratio": None,
        "launch_seconds": None,
        "repeat_seconds": None,
        "disturbed": "",
        "sources": ("tests, journal 1",),
        "recorded_utc": "2026-11-21T12:00:00Z",
        "bench_version": "0.5.0",
    }
    return ObservedCase(**{**measured, **changes})


def ended(launch: str, outcome: Outcome = "completed", reason: str = "") -> LaunchEnded:
    return LaunchEnded(
        launch=launch,
        outcome=outcome,
        reason=reason,
        detail="",
        exit_code=0 if outcome == "completed" else None,
        wall_ns=10**9,
        peak_memory_bytes=2**20,
    )


def resumed(number: int, *interrupted: str) -> list[Event]:
    """What a resuming parent writes first."""
    return [
        RunResumed(interruption=number, interrupted=interrupted, dropped="", pid=2),
        *(ended(launch, "interrupted", "the appliance was stopped") for launch in interrupted),
    ]


def session_change(session: int, identity: str, *, seconds: float = 0.5) -> list[Event]:
    """The end of a session and the begin of the next, so long after it by the time since boot."""
    since_boot_ns = 10**12 * session
    return [
        SessionEnded(session=session, boot="b" * 8, since_boot_ns=since_boot_ns),
        SessionBegan(
            session=session + 1,
            boot="b" * 8,
            since_boot_ns=since_boot_ns + round(seconds * 1e9),
            identity=identity,
            dropped="",
            pid=2,
        ),
        healthy_server(),
    ]


# ------------------------------------------------------------------ the health of devices


@dataclass(kw_only=True)
class Watching:
    """What is read of one device during a run: its counters at a launch, and a reading under load.

    Both are asked with the number of launches that have ended by then on the device.
    """

    counters: Callable[[int], Mapping[str, int | None]]
    values: Callable[[int], Mapping[str, float | None]] = lambda _: {}
    hints: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    readings: int = 3
    """Of each timed launch."""


def watched_events(
    plan: Plan, devices: Mapping[str, Watching], logged: Sequence[Event] | None = ()
) -> list[Event]:
    """A healthy run in which devices are watched as the runner does it.

    `logged` is what the kernel's log shows after the last launch; None where it cannot be read.
    """
    events = without(healthy_events(plan), lambda one: isinstance(one, Reading))
    cases = {case.id: case for case in plan.cases}
    owners = {launch.id: cases[launch.case] for launch in plan.launches}
    gap = NotObserved(what="kernel_log", hint="add --device /dev/kmsg")
    mark = KernelLogRead(boot="b", sequence=1)
    result: list[Event] = [events[0], *(_count(name, one) for name, one in devices.items())]
    result.append(gap if logged is None else mark)
    ended = dict.fromkeys(devices, 0)
    for event in events[1:-1]:
        launch = getattr(event, "launch", "")
        own = [name for name in owners[launch].all_devices if name in devices] if launch else []
        if isinstance(event, LaunchStarted):
            result += [_count(name, devices[name], launch, ended=ended[name]) for name in own]
        result.append(event)
        for name in own if isinstance(event, Block) and event.index == 0 else ():
            values = dict(devices[name].values(ended[name]))
            result += [Reading(launch=launch, device=name, values=values)] * devices[name].readings
        for name in own if isinstance(event, LaunchEnded) else ():
            ended[name] += 1
            result.append(_count(name, devices[name], launch, "after", ended[name]))
    result += [
        *(logged or ()),
        *(_count(n, one, "", "after", ended[n]) for n, one in devices.items()),
    ]
    return [*result, *(() if logged is None else (mark,)), events[-1]]


def _count(
    name: str,
    one: Watching,
    launch: str = "",
    moment: Literal["before", "after"] = "before",
    ended: int = 0,
) -> Counted:
    is_begin = (launch, moment) == ("", "before")
    return Counted(
        device=name,
        counters=dict(one.counters(ended)),
        launch=launch,
        moment=moment,
        hints=dict(one.hints) if is_begin else {},
        absent=one.absent if is_begin else (),
    )


# ------------------------------------------------------------------ breaking it


def of_launch(event: Event, launch: str) -> bool:
    return getattr(event, "launch", "") == launch


def without(events: Sequence[Event], is_left_out: Callable[[Event], bool]) -> list[Event]:
    return [event for event in events if not is_left_out(event)]


def with_end(
    events: Sequence[Event], launch: str, outcome: Outcome, reason: str = ""
) -> list[Event]:
    """The same run, but this launch ended otherwise; what it had recorded stays."""
    return [
        ended(launch, outcome, reason)
        if isinstance(event, LaunchEnded) and event.launch == launch
        else event
        for event in events
    ]


def not_made(
    events: Sequence[Event], launch: str, outcome: Outcome = "not_run", reason: str = ""
) -> list[Event]:
    """The same run, but this launch was never started, and why."""
    kept = without(events, lambda e: of_launch(e, launch) and not isinstance(e, LaunchEnded))
    return with_end(kept, launch, outcome, reason)


# ------------------------------------------------------------------ journals and verdicts


def chain(
    events: Iterable[Event], first_prev: str = "f" * 64, *, day: int = 21
) -> tuple[Line, ...]:
    """The events as the lines of a journal that holds together."""
    lines: list[Line] = []
    for event in events:
        prev = sha256(to_json(lines[-1])) if lines else first_prev
        second = len(lines) % 60
        utc = f"2026-11-{day:02d}T12:{len(lines) // 60 % 60:02d}:{second:02d}.000Z"
        lines.append(
            Line(seq=len(lines), utc=utc, monotonic_ns=10**9 * len(lines), prev=prev, event=event)
        )
    return tuple(lines)


def journal_bytes(lines: Sequence[Line]) -> bytes:
    return b"".join(to_json(line) + b"\n" for line in lines)


def bare_lines(events: Sequence[Event]) -> list[Line]:
    """The events as lines without a chain: quick, and enough for the judge."""
    return [
        Line(seq=seq, utc="2026-11-21T12:00:00.000Z", monotonic_ns=seq, prev="", event=event)
        for seq, event in enumerate(events)
    ]


def a_system(*devices: str) -> System:
    """A node with these devices (cpu:0 if none is named), each with a serial."""
    return System(
        identity=Identity(
            devices=tuple(
                Device(
                    id=device,
                    vendor="cpu",
                    index=number,
                    model="Test Processor 9000",
                    serial=f"serial-{number}",
                    memory_bytes=2**36,
                    facts={"physical_cores": Fact(value=2)},
                )
                for number, device in enumerate(devices or ("cpu:0",))
            ),
            host={"system_uuid": Fact(value="4f6d8c1e-0000-4000-8000-000000000001")},
            memory_modules=(),
            disks=(),
            interfaces=(),
            software={"torch": Fact(value="2.13.0")},
        ),
        conditions=Conditions(utc="2026-11-21T12:00:00Z", facts={}, foreign_processes=()),
    )


SYSTEM = a_system()
NO_BASELINES = Baselines(baseline=())
NO_PEAKS = Peaks(peak=())


def verdict_of(
    plan: Plan,
    events: Sequence[Event],
    criteria: Criteria = FUNCTIONAL,
    *,
    baselines: Baselines = NO_BASELINES,
    peaks: Peaks = NO_PEAKS,
    system: System = SYSTEM,
    qualified: Qualified = NO_RECORDS,
) -> Verdict:
    """The judge's verdict; the plan gets the bounds that these criteria need."""
    return judge(
        plan=with_bounds(plan, criteria),
        criteria=criteria,
        lines=bare_lines(events),
        baselines=baselines,
        peaks=peaks,
        system=system,
        qualified=qualified,
    )


def word_of(plan: Plan, events: Sequence[Event], criteria: Criteria = FUNCTIONAL) -> VerdictWord:
    return verdict_of(plan, events, criteria).verdict


def an_identity(**changes: object) -> Identity:
    device = Device(
        id="cpu:0", vendor="cpu", index=0, model="A", serial=None, memory_bytes=1,
        facts={"microcode": Fact(value="0x1")},
    )  # fmt: skip
    plain = Identity(
        devices=(device,), host={"kernel": Fact(value="6.1")}, memory_modules=(), disks=(),
        interfaces=(), software={},
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]
