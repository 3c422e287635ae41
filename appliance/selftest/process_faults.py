"""The real family of the self-test: workloads that go wrong, in processes, by the whole flow.

One small run of the cases below is planned and made as any run is: forked launches on this
machine's processors, a journal on disk, interim analyses by the judge. Each case is then judged
alone, as if the run had been of it only, so that every fault has a word of its own. What the slow
device is compared with comes from the same run, where another case measured what the machine does
without the fault, launch by launch between the others; so it matters little what else the machine
does. Processes of coming launches begin beside the end of those before, as on accelerators: a fault
of the one must not be taken for one of the other.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from appliance.errors import ApplianceError, EvidenceError, RunInterrupted
from appliance.evidence.baseline_key import device_name, key_of
from appliance.judging.limits import NO_RECORDS
from appliance.judging.verdict import Judge, judge
from appliance.planning.criterion_scope import matches
from appliance.planning.plan import Place, PlanInputs, make_plan, requests
from appliance.probe import node
from appliance.records.baseline import Baseline, Baselines, Level, Peaks
from appliance.records.criteria import Criteria, Criterion
from appliance.records.journal import (
    Checked,
    Injected,
    InterimAnalysis,
    LaunchEnded,
    Line,
    RunEnded,
    RunStarted,
    ServerProbed,
)
from appliance.records.json import Parameters, sha256, to_json
from appliance.records.plan import Case, Launch, Plan
from appliance.records.suite import LaunchMode, Protocol, Suite, SuiteCase
from appliance.records.system import System
from appliance.records.verdict import Clock, Verdict
from appliance.runner import describing, execution
from appliance.scheduling.left_time import Given
from appliance.selftest.expected_outcomes import (
    FAIL,
    NEVER_PASS,
    NOT_REJECTED,
    Expected,
    Row,
    against,
    caught_row,
    control_row,
    fault_of,
    unseen_row,
)
from appliance.selftest.virtual_faults import FUNCTIONAL
from appliance.storage.journal import Journal
from appliance.stress import kinds
from appliance.stress.aggregates import kind_of
from appliance.vendors.base import Vendor
from appliance.verification import run_checks
from appliance.version import VERSION

MARGIN = 0.1
MARGIN_PER_SPREAD = 1.5  # the least at which a healthy run passes
PROTOCOL = Protocol(
    mode="forked",
    calibration_seconds=0.1,
    warmup_steps=2,
    warmup_seconds=0.0,
    blocks=2,
    block_steps=10,
    block_seconds=0.0,
    interim_analyses=(6,),
    last_checks="all",
)
SPEED = Criterion(
    id="speed",
    kind="perf",
    title="Step time",
    cases="timed-*",
    metric="step_seconds",
    within_of_baseline=MARGIN,
)
CRITERIA = Criteria(
    name="selftest",
    version=1,
    summary="What the self-test judges real processes by",
    criterion=(*FUNCTIONAL, SPEED),
)
NO_PEAKS = Peaks(peak=())
NO_BASELINES = Baselines(baseline=())
REFERENCE = "reference"
CORRECTNESS = Expected(words=FAIL, criteria=("correctness",), reasons=("check",))
SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One case of the run. `poses_as` is the workload that a fault claims to be.

    With `expected` None there is nothing wrong with it, or nothing that shows. Several trials may
    be of one case that goes wrong in several ways, each ruled by the checks of its own `stress`.
    """

    id: str
    name: str
    workload: str
    poses_as: str = ""
    expected: Expected | None = None
    small: bool = True
    parameters: Parameters = field(default_factory=dict)
    launches: int = 1
    time_limit_seconds: float = 60.0
    stress: str = ""

    @property
    def is_injected(self) -> bool:
        return bool(self.poses_as)


def _faulty_matmul(
    name: str, workload: str, expected: Expected = CORRECTNESS, **more: object
) -> Trial:
    """A trial of a faulty matmul."""
    return _faulty(name, workload, "gemm", expected, **more)


def _faulty(
    name: str, workload: str, poses_as: str, expected: Expected | None, **more: object
) -> Trial:
    trial = Trial(
        id=name.replace(" ", "-").replace(",", ""),
        name=name,
        workload=f"workloads.injected.{workload}",
        poses_as=poses_as,
        expected=expected,
    )
    return replace(trial, **more)  # type: ignore[arg-type]


TIMED: Parameters = {"m": 256, "n": 512, "k": 4096, "dtype": "float32"}
EXACT: Parameters = {"m": 128, "n": 128, "k": 512}
TRAINING: Parameters = {"num_steps": 8, "target": 0.01}

TRIALS = (
    Trial(id=REFERENCE, name="", workload="gemm", parameters=TIMED, launches=6),
    Trial(
        id="timed-control",
        name="nothing; a matmul, timed",
        workload="gemm",
        parameters=TIMED,
        launches=6,
    ),
    Trial(
        id="exact-control",
        name="nothing; a matmul of integers",
        workload="gemm_exact",
        parameters=EXACT,
    ),
    Trial(
        id="training-control",
        name="nothing; training",
        workload="digits_mlp",
        parameters=TRAINING,
    ),
    _faulty(
        "slow device, x1.3",
        "slow_device",
        "gemm",
        Expected(words=NEVER_PASS, criteria=("speed",)),
        id="timed-slow",
        parameters=TIMED,
        launches=6,
    ),
    _faulty_matmul(
        "bit flip, highest of the exponent", "bit_flip", parameters={"bit": 30, "after": 1}
    ),
    _faulty_matmul("bit flip, in the middle", "bit_flip", parameters={"bit": 20, "after": 1}),
    _faulty_matmul("bit flip, lowest that shows", "bit_flip", parameters={"bit": 12, "after": 1}),
    *(
        _faulty(
            f"bit flip in an exact matmul, bit {bit} of 15",
            "exact_bit_flip",
            "gemm_exact",
            CORRECTNESS,
            parameters={**EXACT, "bit": bit, "after": 1},
        )
        for bit in (15, 7, 0)
    ),
    _faulty_matmul("stale output", "stale_output"),
    _faulty_matmul("unwritten output", "unwritten_output", parameters={"after": 1}),
    _faulty_matmul("precision downgrade, bfloat16 for float32", "lower_precision"),
    _faulty_matmul("cached output", "cached_output"),
    _faulty_matmul("zeros", "zeros", parameters={"after": 1}),
    _faulty_matmul("NaN in one element", "not_a_number", parameters={"after": 1}),
    _faulty_matmul("rescaled by 1.001", "rescaled", parameters={"after": 1}),
    _faulty(
        "skipped optimiser step",
        "skipped_update",
        "digits_mlp",
        CORRECTNESS,
        parameters=TRAINING,
    ),
    _faulty_matmul(
        "crash",
        "crash",
        Expected(words=FAIL, criteria=("completion",), reasons=("crashed",)),
        parameters={"after": 1},
    ),
    _faulty_matmul(
        "crash as the last output is checked",
        "late_crash",
        Expected(words=FAIL, criteria=("completion",), reasons=("crashed",)),
        parameters={"after": 1},
    ),
    _faulty_matmul(
        "hang",
        "hang",
        Expected(words=FAIL, criteria=("completion",), reasons=("timed_out",)),
        parameters={"after": 1},
        time_limit_seconds=4.0,
    ),
    _faulty_matmul(
        "zero work",
        "zero_work",
        Expected(words=NEVER_PASS, criteria=("correctness",)),
        parameters={"m": 128, "n": 128, "k": 1024},
    ),
    *(
        _faulty(
            f"bit flip beside a burn-in: {kind}",
            "wrong_stress",
            kinds.BURN_IN,
            CORRECTNESS,
            id="stress",
            parameters={kinds.PARAMETER: kinds.EVERY, kinds.LAUNCHES: 2},
            stress=kind,
        )
        for kind in kinds.KINDS
    ),
    _faulty("a fault that nothing shows", "nothing", "gemm", None),
)


# ------------------------------------------------------------------ the run


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """The run as it was made: what it was judged by, and its lines."""

    plan: Plan
    system: System
    lines: tuple[Line, ...]


def rows(
    folder: Path, observe: Callable[[str], None], trials: Sequence[Trial] = TRIALS
) -> Iterator[Row]:
    """Make the run in a folder and judge each of its cases; `observe` receives every launch.

    Raises ApplianceError where the run itself was not conducted as planned, RunInterrupted if a
    person stops it.
    """
    run = make(folder, observe, trials)
    for trial in trials:
        if trial.id != REFERENCE:
            yield _row(trial, run, trials)


def make(
    folder: Path, observe: Callable[[str], None], trials: Sequence[Trial] = TRIALS
) -> RecordedRun:
    """Plan the trials, and make every launch and interim analysis."""
    vendor = node.present("cpu")
    plan, system = _planned(vendor, trials)
    files = {"plan.json": sha256(to_json(plan)), "system.json": sha256(to_json(system))}
    journal = Journal.create(folder / "journal.jsonl", files["plan.json"])
    try:
        judge = _judge(plan, system)
        journal.follow(judge.take)
        _record_start(journal, plan, files)
        execution.run(
            plan=plan,
            vendors={vendor.name: vendor},
            overlaps=True,
            devices={device.id: device for device in system.identity.devices},
            journal=journal,
            folder=folder,
            work=folder / "work",
            data=None,
            interim_analysis=judge.interim_analysis,
            observer=_Observer(observe),
            num_threads=1,  # threads wait for each other, and so for whatever else runs here
        )
        journal.append(RunEnded(launches=len(plan.launches)))
        run = RecordedRun(plan=plan, system=system, lines=journal.lines)
        _check_execution(run, files)
    except EvidenceError as error:
        raise ApplianceError(f"the self-test was not run as it was planned: {error}") from None
    except RunInterrupted:
        raise RunInterrupted("the self-test was stopped; start it anew") from None
    finally:
        journal.close()
    return run


def _record_start(journal: Journal, plan: Plan, files: Mapping[str, str]) -> None:
    journal.append(
        RunStarted(
            run_id=plan.run_id,
            plan=files["plan.json"],
            system=files["system.json"],
            pid=os.getpid(),
        )
    )
    for injector in plan.injectors:
        cases = tuple(case.id for case in plan.cases if case.injector == injector)
        journal.append(Injected(injector=injector, cases=cases))


def _check_execution(run: RecordedRun, files: Mapping[str, str]) -> None:
    """Raises EvidenceError where launches or interim analyses are not those of the plan."""
    run_checks.check_conduct(run.plan, run.lines, files)
    run_checks.check_interim_analyses(_judge(run.plan, run.system), run.lines)


def _planned(vendor: Vendor, trials: Sequence[Trial]) -> tuple[Plan, System]:
    suite = _suite(trials)
    seed = sha256(b"selftest")
    answer = describing.describe(requests(suite, vendor.probe(), seed))
    system = node.probe((vendor,), software=describing.software())
    places = [
        Place(device=device, features=vendor.features(device), available_datasets=frozenset())
        for device in system.identity.devices
    ]
    plan = make_plan(
        PlanInputs(
            suite=suite,
            answer=answer,
            places=places,
            criteria=CRITERIA,
            digests={
                "suite": sha256(to_json(suite)),
                "criteria": sha256(to_json(CRITERIA)),
                "baselines": sha256(to_json(NO_BASELINES)),
                "peaks": sha256(to_json(NO_PEAKS)),
                "qualified": sha256(to_json(NO_RECORDS)),
                "identity": sha256(to_json(system.identity)),
            },
            seed=seed,
            run_id="selftest",
            created_utc=system.conditions.utc,
            bench_version=VERSION,
        )
    )
    return plan, system


def _suite(trials: Sequence[Trial]) -> Suite:
    return Suite(
        name="selftest",
        version=1,
        summary="Workloads that go wrong on purpose, and those that they are made of",
        time_limit_seconds=600.0,
        protocol=PROTOCOL,
        case=tuple(
            SuiteCase(
                id=trial.id,
                workload=trial.workload,
                small=trial.small,
                parameters=trial.parameters,
                launches=trial.launches,
                expected_seconds=SECONDS,
                reference_seconds=SECONDS,
                time_limit_seconds=trial.time_limit_seconds,
                memory_limit_gib=4.0,
            )
            for trial in {trial.id: trial for trial in trials}.values()
        ),
    )


def _judge(plan: Plan, system: System) -> Judge:
    """The judge of the interim analyses; there is nothing yet to compare times with."""
    return Judge(
        plan=plan, criteria=CRITERIA, baselines=NO_BASELINES, peaks=NO_PEAKS, system=system
    )


class _Observer:
    """Reports every launch that is made."""

    def __init__(self, observe: Callable[[str], None]) -> None:
        self._observe = observe

    def suite_chosen(self, plan: Plan) -> None: ...
    def preflight_warnings(self, sentences: Sequence[str]) -> None: ...
    def run_begins(self, plan: Plan, num_done: int, session: int) -> None: ...
    def session_ended(self, plan: Plan, session: int) -> None: ...
    def server_probed(self, event: ServerProbed) -> None: ...
    def launch_ended(self, launch: Launch, event: LaunchEnded) -> None: ...
    def analysed(self, event: InterimAnalysis) -> None: ...
    def time_given(self, given: Given) -> None: ...

    def launch_started(self, launch: Launch, mode: LaunchMode) -> None:
        del mode
        self._observe(f"launch {launch.number} of {launch.case.partition('@')[0]}")


# ------------------------------------------------------------------ each case alone


def _row(trial: Trial, run: RecordedRun, trials: Sequence[Trial]) -> Row:
    """What became of one trial."""
    baselines = _baselines(run, trials)
    run = _of_stress(run, trial.stress) if trial.stress else run
    named = _verdict(run, alone(run.plan, trial), baselines)
    if not trial.is_injected:
        fault = against(named) if named.verdict == "REJECTED" else ""
        return control_row("real", trial.name, NOT_REJECTED, named, fault)
    concealed = _verdict(run, concealing(alone(run.plan, trial), trial), baselines)
    if trial.expected is None:
        return unseen_row(
            "real",
            trial.name,
            named=named,
            concealed=concealed,
            without_name=("ACCEPTED", "INCONCLUSIVE"),  # the machine may be busy
        )
    fault = fault_of(trial.expected, named.verdict, concealed)
    return caught_row(
        "real",
        trial.name,
        trial.expected,
        named=named.verdict,
        concealed=concealed,
        fault=fault,
    )


def _of_stress(run: RecordedRun, kind: str) -> RecordedRun:
    """The run without the checks of the other kinds of stress, which go wrong too."""
    lines = (
        line
        for line in run.lines
        if not isinstance(line.event, Checked) or kind_of(line.event.check) in ("", kind)
    )
    return replace(run, lines=tuple(lines))


def alone(plan: Plan, trial: Trial) -> Plan:
    """The plan as it would be for this trial only; limits and bounds stay those of the run."""
    cases = tuple(case for case in plan.cases if _is_of(case.id, trial))
    launches = tuple(launch for launch in plan.launches if _is_of(launch.case, trial))
    own = {launch.id for launch in launches}
    groups = tuple(tuple(name for name in group if name in own) for group in plan.groups)
    return replace(
        plan,
        cases=cases,
        launches=launches,
        groups=tuple(group for group in groups if group),
        injectors=tuple(dict.fromkeys(case.injector for case in cases if case.injector)),
    )


def concealing(plan: Plan, trial: Trial) -> Plan:
    """The plan with no word of the fault: the case poses as the workload that it was made of."""
    cases = tuple(replace(case, workload=trial.poses_as, injector="") for case in plan.cases)
    return replace(plan, cases=cases, injectors=())


def _is_of(case: str, trial: Trial) -> bool:
    return case.partition("@")[0] == trial.id


def _verdict(run: RecordedRun, plan: Plan, baselines: Baselines) -> Verdict:
    """The verdict on the lines that are of this plan, by the criteria that are for its cases."""
    launches = {launch.id for launch in plan.launches}
    cases = {case.id for case in plan.cases}
    relevant = [
        criterion
        for criterion in CRITERIA.criterion
        if any(matches(criterion, case) for case in cases)
    ]
    return judge(
        plan=plan,
        criteria=replace(CRITERIA, criterion=tuple(relevant)),
        lines=list(_lines(run.lines, plan, launches, cases)),
        baselines=baselines,
        peaks=NO_PEAKS,
        system=run.system,
    )


def _lines(
    lines: Sequence[Line], plan: Plan, launches: set[str], cases: set[str]
) -> Iterator[Line]:
    """Those lines that are of these launches, of these cases or of the whole run."""
    for line in lines:
        event = line.event
        if isinstance(event, Injected):
            if event.injector in plan.injectors:
                yield line
        elif isinstance(event, InterimAnalysis):
            if event.case in cases:
                yield line
        elif getattr(event, "launch", None) is None or getattr(event, "launch", "") in launches:
            yield line


def _baselines(run: RecordedRun, trials: Sequence[Trial]) -> Baselines:
    """What the reference case of the same run measured, for every case that is compared with it.

    None where it varied more than the margin can resolve: `bench baseline` would refuse it too.
    """
    reference = next((trial for trial in trials if trial.id == REFERENCE), None)
    if reference is None:
        return NO_BASELINES
    verdict = _verdict(run, alone(run.plan, reference), NO_BASELINES)
    steps, wall = _level(verdict, "steps"), _level(verdict, "wall")
    if MARGIN_PER_SPREAD * max(steps.launch_sd, wall.launch_sd) > MARGIN:
        return NO_BASELINES
    plans = [
        plan
        for trial in trials
        for own in [alone(run.plan, trial)]
        for plan in (own, concealing(own, trial))
        if matches(SPEED, trial.id)
    ]
    return Baselines(
        baseline=tuple(_baseline(case, steps, wall, run) for plan in plans for case in plan.cases)
    )


def _level(verdict: Verdict, clock: Clock) -> Level:
    """What the launches took by a clock; of infinite spread where one of them has no time."""
    times = [launch.location(clock) for case in verdict.cases for launch in case.launches]
    values = [value for value in times if value is not None]
    is_whole = len(values) == PROTOCOL.interim_analyses[0]
    launch_sd = float(np.std(values, ddof=1)) if is_whole else math.inf
    mean_sd = launch_sd / math.sqrt(max(1, len(values)))
    return Level(
        log_seconds=float(np.mean(values)) if is_whole else math.nan,
        launch_sd=launch_sd,
        within_sd=launch_sd,
        within_freedom=max(0, len(values) - 1),
        # Both cases share one run, and so its level: only launches are left to scatter.
        run_sd=mean_sd,
        run_launches=max(1, len(values)),
        freedom=max(0, len(values) - 1),
        correlation=0.0,
        error_sd=mean_sd,
        error_freedom=max(0, len(values) - 1),
        device_sd=None,
        tolerance=None,
    )


def _baseline(case: Case, steps: Level, wall: Level, run: RecordedRun) -> Baseline:
    return Baseline(
        key=key_of(case, run.plan.protocol, run.system),
        kind="same_device",
        devices=(device_name(run.system, case.device),),
        num_launches=PROTOCOL.interim_analyses[0],
        num_runs=1,
        run_seconds=1.0,
        steps=steps,
        wall=wall,
        smallest_margin=MARGIN_PER_SPREAD * max(steps.launch_sd, wall.launch_sd),
        smallest_margin_of_three=MARGIN_PER_SPREAD * max(steps.launch_sd, wall.launch_sd),
        bundles=(),
    )
