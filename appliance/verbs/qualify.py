"""The verb `qualify`: show on this machine that the suite is right for a device.

First it times steps beside a process that waits (`qualifying.idle_stage`). Rows are made in stages
(`qualifying.schedule`), each a run of its own with a plan and a journal, so that a row which
crashes, hangs or exhausts memory takes no other down, and a stop loses one launch at most. Called
again with the same folder it goes on with what is left.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Literal

from appliance.errors import EvidenceError, OutputError, RunInterrupted, UsageError
from appliance.evidence.qualification import device_digest, stack
from appliance.planning import placement, workload_manifest
from appliance.planning.plan import PlanInputs, make_plan, requests
from appliance.probe import node
from appliance.qualifying import idle_stage, observation, page, rows, runs, schedule
from appliance.qualifying.rows import Shipped, row_of
from appliance.readiness.out_folder import check_writable
from appliance.records.json import Record, from_json, sha256, to_json
from appliance.records.plan import Case, NotPlanned, Plan
from appliance.records.qualified import ObservedCase, Qualified
from appliance.records.suite import Suite
from appliance.records.system import identity_differences
from appliance.runner import describing, execution
from appliance.storage import (
    bundle,
    criteria_file,
    input_file,
    limits,
    qualified_file,
    suite_file,
)
from appliance.vendors.registry import VENDORS
from appliance.verbs import datasets
from appliance.verbs.preparation import Node, begin, places_of, stack_of
from appliance.verbs.run_begin import new_run_id, tidy, work_folder
from appliance.version import VERSION

STATE = "qualification.json"
LARGEST_STATE = 64 * limits.KIB
LEAST_MINUTES, MOST_MINUTES = 0.1, 7 * 24 * 60.0
GRACE_SECONDS = 20.0
"""How long a launch that was begun within the minutes may go on after them."""
STEPS_OF_FULL = 16
"""Steps of one launch at full size, with those that are not timed."""
TIME_IS_UP = "the end of its minutes"
NO_TIME = "the minutes were over before its turn"
LARGE = ("acceptance", "extended")
REDUCED = "smoke-all"


@dataclass(frozen=True, kw_only=True)
class QualifyOptions:
    """What is qualified, where to, and how long; `workloads` empty means all.

    Among them `idle_stage.NAME` stands for the trial of a process that waits, which is no row.
    """

    out: Path
    minutes: float
    vendor: str | None = None
    workloads: tuple[str, ...] = ()
    data: Path | None = None

    def __post_init__(self) -> None:
        """UsageError for minutes that are none."""
        if not LEAST_MINUTES <= self.minutes <= MOST_MINUTES:
            raise UsageError(
                f"--minutes is {self.minutes:g}: give a number from {LEAST_MINUTES:g} to "
                f"{MOST_MINUTES:g}"
            )

    @property
    def rows(self) -> tuple[str, ...]:
        """The workloads whose rows are made; empty where it is all of them, or none."""
        return tuple(name for name in self.workloads if name != idle_stage.NAME)

    @property
    def has_rows(self) -> bool:
        return bool(self.rows) or not self.workloads

    @property
    def names_idle(self) -> bool:
        return idle_stage.NAME in self.workloads


@dataclass(frozen=True, slots=True, kw_only=True)
class State(Record):
    """qualification.json: what all runs of a qualification share, so that it can go on."""

    schema: Literal["bench/qualification/1"] = "bench/qualification/1"
    seed: str
    vendor: str


def read_state(path: Path) -> State:
    """What a folder's qualification.json holds. EvidenceError where it is not as it was written."""
    fix = "name another folder with --out"
    try:
        data = input_file.read(path, fix=fix, follow=False, most=LARGEST_STATE)
        state = from_json(State, data, name=str(path))
    except EvidenceError as error:
        raise EvidenceError(f"{error}; {fix}") from None
    if not re.fullmatch(r"[0-9a-f]{64}", state.seed):
        raise EvidenceError(f"{path}: seed must be of 64 hexadecimal digits; {fix}")
    if state.vendor not in VENDORS:
        raise EvidenceError(f'{path}: there is no vendor called "{state.vendor}"; {fix}')
    return state


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a qualification came to; `num_left` are small rows that were not made with a seed.

    `notes` are lines on steps beside a process that waits; `lacks_idle`: they were asked for by
    name, and not timed.
    """

    qualified: Qualified
    files: tuple[Path, ...]
    num_left: int
    notes: tuple[str, ...] = ()
    lacks_idle: bool = False

    @property
    def exit_code(self) -> int:
        """1 where a row showed a fault, 3 where small rows or what was named are left, else 0."""
        if any(page.is_faulty(one) for one in self.qualified.observed):
            return 1
        return 3 if self.num_left or self.lacks_idle else 0


def shipped() -> Shipped:
    """The rows of the package."""
    return Shipped(
        manifest=workload_manifest.load(),
        reduced=suite_file.load_suite(REDUCED)[0],
        large=[suite_file.load_suite(name)[0] for name in LARGE],
    )


def qualify(
    options: QualifyOptions, observer: execution.Observer, known: Shipped | None = None
) -> Result:
    """Make the rows that the minutes have room for, and write what they showed.

    Raises UsageError for a folder of another machine, EvidenceError for one whose files are not as
    they were written, OutputError for a full disk, RunInterrupted after a signal; what was seen
    until then is in the folder.
    """
    deadline = time.monotonic() + 60.0 * options.minutes
    known = known or shipped()
    rows.check_names(known, options.rows)
    check_writable(options.out)
    with execution.interruption() as signalled:
        work = _Qualification(
            options=options,
            observer=observer,
            known=known,
            deadline=deadline,
            signalled=signalled,
            past=runs.read(options.out, is_foreign=True),
        )
        try:
            work.make()
        except OutputError as error:
            with suppress(OutputError):
                work.write()
            cause = str(error).partition(": make room")[0]
            raise OutputError(
                f"{cause}: what was seen is kept; make room, then go on with "
                f"`bench qualify --out {options.out}`"
            ) from None
        result = work.write()
        if signalled():
            raise RunInterrupted(
                f"stopped by {signalled()}; what was seen is in {result.files[0]}, and "
                f"`bench qualify --out {options.out}` goes on with it"
            )
    return result


@dataclass(kw_only=True)
class _Qualification:
    """One call of the verb under way."""

    options: QualifyOptions
    observer: execution.Observer
    known: Shipped
    deadline: float
    signalled: Callable[[], str]
    past: list[runs.StageRun]
    here: Node = field(init=False)
    state: State = field(init=False)
    data: Path | None = field(init=False)
    failed: set[tuple[str, bool]] = field(init=False)
    idle: idle_stage.IdleStage = field(init=False)
    stage_end: float = 0.0
    rates: Sequence[float] = ()
    reasons: dict[tuple[str, bool], str] = field(default_factory=dict)
    lacking: list[ObservedCase] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = self._state()
        vendor = node.present(self.state.vendor)
        probed = node.probe((vendor,), software=describing.software())
        self.here = Node(vendor=vendor, probed=probed, system=probed)
        self.data = datasets.folder(self.options.data)
        self.failed = runs.failed(self.past)
        for run in self.past:  # each may have been put there
            changed = identity_differences(run.system.identity, probed.identity)
            if changed:
                raise UsageError(
                    f"{self.options.out} was begun on another machine or with other libraries "
                    f"({'; '.join(changed[:3])}): name another folder with --out"
                )
        place = idle_stage.Place(vendor=vendor, system=probed, interrupted=self.signalled)
        if self.options.names_idle and not place.is_measured:
            raise UsageError(f"{idle_stage.ON_PROCESSORS}: leave --workload {idle_stage.NAME} out")
        self.idle = idle_stage.IdleStage(out=self.options.out, place=place)

    def _state(self) -> State:
        """What was fixed when the qualification began, or is now."""
        path = self.options.out / STATE
        if path.exists():
            state = read_state(path)
            if self.options.vendor not in (None, state.vendor):
                raise UsageError(
                    f"{self.options.out} is of {state.vendor}: name another folder with --out, or "
                    "leave --vendor out"
                )
            return state
        vendor = node.present(self.options.vendor)
        state = State(seed=secrets.token_hex(32), vendor=vendor.name)
        bundle.write(path, to_json(state))
        return state

    @property
    def left_seconds(self) -> float:
        return self.deadline - time.monotonic()

    def make(self) -> None:
        """Make the stages one after another, until the minutes are over or a person stops it."""
        if self.options.names_idle or not self.options.workloads:
            self.idle.make(
                lambda: self.left_seconds, lambda line: self.observer.preflight_warnings((line,))
            )
        if self.options.has_rows:
            self._make_rows()

    def _make_rows(self) -> None:
        chosen = self.options.rows
        available = datasets.available_datasets(self.data)
        suites: dict[str, Callable[[], Suite]] = {
            "small": lambda: rows.small(self.known, chosen, available),
            "again": lambda: rows.small(self.known, chosen, available),
            "pairs": lambda: rows.control(self.known, chosen),
            "full": lambda: rows.full(self.known, chosen),
        }
        for stage, part in schedule.STAGES:
            self.stage_end = time.monotonic() + part * self.left_seconds
            suite = suites[stage]()
            is_planned = any(run.stage == suite.name for run in self.past)
            if self.signalled() or (self.left_seconds <= 0 and is_planned):
                continue
            plan = self._plan(stage, suite)
            if plan is not None:
                self.rates = self._rates() if stage == "full" else []
                self._make(plan)
                self.past = runs.read(self.options.out)

    # -------------------------------------------------------------- planning

    def _plan(self, stage: str, suite: Suite) -> Plan | None:
        """The launches of a stage that are left; None where there is none."""
        devices = self.here.probed.identity.devices
        placed, lacking = placement.place(suite, devices, self.state.seed)
        self.lacking += [self._lacking(suite, one) for one in lacking]
        if not placed:
            return None
        vendor = self.here.vendor
        libraries = stack_of(vendor)
        answer = describing.describe_present(
            requests(suite, devices, self.state.seed), stack=libraries, libraries=vendor.libraries
        )
        now = datetime.now(UTC)
        plan = make_plan(
            PlanInputs(
                suite=suite,
                answer=answer,
                places=places_of(self.here, self.data),
                criteria=criteria_file.load_criteria("functional")[0],
                digests={
                    "suite": sha256(to_json(suite)),
                    "identity": node.identity_digest(self.here.system.identity),
                },
                seed=self.state.seed,
                run_id=new_run_id(now),
                created_utc=f"{now:%Y-%m-%dT%H:%M:%SZ}",
                bench_version=VERSION,
                manifest=self.known.manifest,
                ranges=libraries.allowed,
            )
        )
        plan = schedule.scheduled(plan, stage, runs.done(self.past, suite.name))
        seconds = min(schedule.expected_seconds(plan), max(0.0, self.left_seconds))
        plan = replace(plan, expected_seconds=seconds, longest_seconds=seconds)
        return plan if plan.launches else None

    def _lacking(self, suite: Suite, lacking: NotPlanned) -> ObservedCase:
        """What stands for a row that this node is too small for."""
        item = next(one for one in suite.case if one.id == lacking.case)
        devices = self.here.probed.identity.devices
        device = next((one for one in devices if one.id == lacking.device), devices[0])
        facts = self.known.manifest.get(item.workload)
        return observation.not_made(
            row_of(item.id)[0],
            item,
            version=facts.version if facts else 0,
            model=device.model,
            stack=stack(self.here.system, device, facts.libraries if facts else ()),
            device=device_digest(self.here.system, device),
            reason=lacking.reason,
        )

    # -------------------------------------------------------------- making

    def _make(self, plan: Plan) -> None:
        """Make the launches of a stage; those that it has no time for are not begun."""
        folder = self.options.out / runs.RUNS / plan.run_id
        folder.parent.mkdir(exist_ok=True)
        files = {bundle.PLAN: to_json(plan), bundle.SYSTEM: to_json(self.here.system)}
        journal = begin(folder, plan, files, self.here)
        sizes = {case.id: case.small for case in plan.cases}
        journal.follow(lambda line: self._note(runs.fault_of(line, sizes)))
        cases = {case.id: case for case in plan.cases}
        if self.left_seconds <= 0:  # its plan names the rows that are left
            journal.close()
            return
        try:
            execution.run(
                plan=plan,
                vendors={self.here.vendor.name: self.here.vendor},
                devices={one.id: one for one in self.here.probed.identity.devices},
                journal=journal,
                folder=folder,
                work=work_folder(folder, plan.run_id),
                data=self.data,
                interim_analysis=lambda _: (False, ""),
                observer=self.observer,
                interrupted=self._interrupted,
                wanted=lambda launch: self._is_wanted(cases[launch.case]),
            )
        except RunInterrupted:
            pass  # by a signal or the end of the minutes, which whoever called asks for
        finally:
            journal.close()
            tidy(work_folder(folder, plan.run_id))

    def _note(self, row: tuple[str, bool] | None) -> None:
        self.failed |= {row} if row else set()

    def _interrupted(self) -> str:
        return self.signalled() or (TIME_IS_UP if self.left_seconds < -GRACE_SECONDS else "")

    def _is_wanted(self, case: Case) -> bool:
        """Whether a launch of the case is begun now."""
        row = row_of(case.id)[0], case.small
        if time.monotonic() >= self.stage_end or row in self.failed:
            return False
        if case.unsupported or case.software or case.small:
            return True
        reason = self._too_long(case)
        if reason:
            self.reasons[row] = reason
        return not reason

    def _too_long(self, case: Case) -> str:
        """Why a row at full size has no room in what is left; of an accelerator nothing is known.

        Processors need what its operations take at the median rate of the small rows.
        """
        if self.here.vendor.torch_type != "cpu":
            return ""
        if not case.work.flops or not self.rates:
            return "how long it takes on processors is not known"
        seconds = STEPS_OF_FULL * case.work.flops / median(self.rates)
        if seconds <= min(self.left_seconds, case.time_limit_seconds):
            return ""
        return f"it needs about {seconds:.0f} s, and {max(0.0, self.left_seconds):.0f} s were left"

    def _rates(self) -> list[float]:
        """Operations a second of the rows that were made before this stage."""
        observed = observation.qualified(runs.seen(self.past)).observed
        return [one.flops_per_second for one in observed if one.flops_per_second]

    # -------------------------------------------------------------- writing

    def write(self) -> Result:
        """Write the records and a page for each model; what was not made stands there with why."""
        seen = observation.qualified(runs.seen(runs.read(self.options.out)))
        made = tuple(self._explained(one) for one in seen.observed)
        named = {(one.case, one.size) for one in made}
        rest = {(one.case, one.size): one for one in self.lacking}
        lacking = tuple(one for place, one in rest.items() if place not in named)
        idle = tuple(self.idle.records.values())
        qualified = replace(seen, observed=(*made, *lacking), idle=idle)
        out = self.options.out
        files = [out / bundle.QUALIFIED]
        bundle.write(files[0], to_json(qualified))
        for model, text in _pages(qualified):
            files.append(out / f"{qualified_file.slug(model)}.md")
            bundle.write(files[-1], text.encode())
        seeds = len(rows.SEEDS)
        num_left = sum(
            one.size == "small" and one.num_seeds < seeds and self._could_be_made(one)
            for one in made
        )
        return Result(
            qualified=qualified,
            files=tuple(files),
            num_left=num_left,
            notes=tuple(self.idle.notes),
            lacks_idle=self.options.names_idle and not self.idle.is_whole,
        )

    def _could_be_made(self, one: ObservedCase) -> bool:
        return (one.case, True) not in self.failed and not {
            "software",
            "unsupported",
        } & one.outcomes.keys()

    def _explained(self, one: ObservedCase) -> ObservedCase:
        if one.outcomes or one.fault:
            return one
        return replace(one, fault=self.reasons.get((one.case, one.size == "small"), NO_TIME))


def _pages(qualified: Qualified) -> Iterator[tuple[str, str]]:
    for model in page.models(qualified):
        yield model, page.page(qualified, model)
