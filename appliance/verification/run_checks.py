"""Whether a run was conducted as its plan says: pure functions of plan and journal.

A hash chain shows that nothing was changed after it was written; it does not show that the
right things were done. Whoever writes a journal could leave a slow launch out, make one again,
or stop when he likes what he sees. So the journal is walked through once beside the plan, and
every interim analysis at the samples is taken again on what was known then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from appliance.challenge.window import inputs_seed
from appliance.errors import EvidenceError, UsageError
from appliance.evidence.software_fault import is_lack_of_software
from appliance.judging.verdict import Judge
from appliance.planning import sessions
from appliance.planning.check_sampling import sampled_steps
from appliance.planning.criterion_scope import (
    MOST_ATTEMPTS,
    judged_first_steps,
    planned_bounds,
)
from appliance.planning.launch_constants import (
    FIRST_BUILT_ALONE,
    MOST_SESSIONS,
    SEGMENTED,
    SHARED_MEMORY,
    may_stand_by,
    may_step_ahead,
)
from appliance.planning.plan import (
    all_launches,
    case_analyses,
    case_seed,
    checked_launch,
    fresh_controls,
    launch_groups,
    launch_id,
)
from appliance.planning.seeds import is_secret
from appliance.records.criteria import Criteria
from appliance.records.journal import (
    AheadEnded,
    AheadIdle,
    AttemptBegun,
    Block,
    Calibrated,
    Checked,
    Counted,
    Injected,
    InterimAnalysis,
    KernelLogged,
    KernelLogRead,
    LaunchAhead,
    LaunchEnded,
    LaunchStarted,
    LibrariesHashed,
    LibrariesMapped,
    Line,
    NotObserved,
    Outcome,
    PhaseBegan,
    Reading,
    ReadingsFolded,
    RunEnded,
    RunPlanned,
    RunResumed,
    RunStarted,
    ServerProbed,
    SessionBegan,
    SessionEnded,
    Started,
    UsersCounted,
    Warmed,
    Witnessed,
)
from appliance.records.json import sha256, to_json
from appliance.records.plan import Bounds, Case, Launch, Plan
from appliance.records.qualified import IdleNeighbour
from appliance.records.suite import Framework, LibraryMode
from appliance.records.system import System
from appliance.scheduling.idle_neighbours import is_harmless
from appliance.scheduling.left_time import LeftTime
from appliance.storage import suite_file, units
from appliance.vendors.registry import unknown_vendor

WITHOUT_START: frozenset[Outcome] = frozenset({"not_run", "unsupported", "software"})
UNSTARTED_REASONS = frozenset(
    {"decided", "reference_failed", sessions.TIME_LIMIT, sessions.NO_TIME}
)
"""Those that start no process."""
SERVER_LOST = "server_lost"
FILE_FORM = re.compile(r"[0-9]{1,20}(:-?[0-9]{1,20}){4}")
"""Device, inode, size and times of a file, as launches name what they have mapped."""
DIGEST_FORM = re.compile(r"[0-9a-f]{64}")
VERSION_FORM = re.compile(r"[0-9]+(\.[0-9]+){0,3}([.+-]?[a-z][a-z0-9.]{0,20})?")
MOST_RANKS = 2**16
RELATIVE = 1e-9  # bounds computed on another machine may differ by this much


def check_vendors(system: System) -> None:
    """EvidenceError unless bench has the vendor of every device: the self-test's have none."""
    if unknown := unknown_vendor(system.identity.devices):
        raise EvidenceError(f"system.json: {unknown}")


def check_plan(plan: Plan, system: System, files: Mapping[str, str]) -> None:
    """EvidenceError unless the plan names these files and this machine, and agrees with itself.

    `files` are the sha256 of the bundle's files, by name.
    """
    digests = {
        "criteria": files["criteria.toml"],
        "baselines": files["baselines.json"],
        "peaks": files["peaks.json"],
        "qualified": files["qualified.json"],
        "identity": sha256(to_json(system.identity)),
    }
    for name, file in (("challenge", "challenge.json"), ("order", "order.toml")):
        if file in files:
            digests[name] = files[file]
    for name, digest in digests.items():
        if plan.digests.get(name) != digest:
            raise EvidenceError(f"plan.json was made with another {name} than the bundle holds")
    if set(plan.digests) != {*digests, "suite"}:
        raise EvidenceError("plan.json names other files than it was made with")
    if plan.repeat is not None and not plan.rerun_of:
        raise EvidenceError("plan.json fixes the steps of its launches and repeats no dispute")
    check_seed(plan)
    _check_words(plan)
    _check_protocol(plan)
    _check_cases(plan, _named_devices(plan, system))
    planned = [launch.id for launch in plan.launches]
    grouped = [launch for group in plan.groups for launch in group]
    if len(set(planned)) != len(planned) or sorted(grouped) != sorted(planned):
        raise EvidenceError("plan.json: its groups do not hold each launch exactly once")
    if not plan.rerun_of:
        _check_drawn(plan)


def _named_devices(plan: Plan, system: System) -> set[str]:
    """The node's devices; EvidenceError for one that is listed twice, or words as a version."""
    listed = [device.id for device in system.identity.devices]
    if len(set(listed)) != len(listed):
        raise EvidenceError("system.json lists a device twice")
    if not VERSION_FORM.fullmatch(plan.bench_version):
        raise EvidenceError(f"plan.json: {plan.bench_version[:40]!r} is no version of bench")
    return set(listed)


def _check_words(plan: Plan) -> None:
    """EvidenceError for a plan that says of itself what no plan says that has such cases."""
    if plan.redacted and not is_secret(plan.redacted):
        raise EvidenceError("plan.json: what was redacted has a salt, and this is none of its sums")
    has_load = any(case.workload in SEGMENTED for case in plan.cases)
    if (plan.hours is not None or plan.stress) and not has_load:
        raise EvidenceError("plan.json is of hours of load or of stress, and has no case of them")


def check_seed(plan: Plan) -> None:
    """EvidenceError for a seed from which nothing can be drawn again."""
    if not is_secret(plan.seed):
        raise EvidenceError("plan.json: its seed must be 32 bytes in hexadecimal")


def _check_protocol(plan: Plan) -> None:
    """EvidenceError for a protocol that no suite may have, one without any timing for instance."""
    try:
        suite_file.check_protocol(plan.protocol, "plan.json")
    except UsageError as error:
        raise EvidenceError(str(error)) from None
    if not 1 <= plan.sessions <= MOST_SESSIONS:
        raise EvidenceError(f"plan.json: a run cannot have {plan.sessions} sessions")
    is_paused = plan.pause_seconds is not None
    if is_paused and not (plan.sessions > 1 and 0 <= (plan.pause_seconds or 0) < math.inf):
        raise EvidenceError("plan.json: its sessions cannot have such a pause between them")


def _check_drawn(plan: Plan) -> None:
    """EvidenceError unless the order and the launches that check more are those of the seed.

    Whoever may choose them spares his devices what they are bad at: a launch while others work, or
    the check of a launch that goes wrong.
    """
    launches = all_launches(plan.cases, plan.protocol, plan.sessions)
    if (plan.launches, plan.groups) != (
        launches,
        launch_groups(plan.cases, launches, plan.seed),
    ):
        raise EvidenceError("plan.json: its launches are not in the order that its seed draws")
    for case in plan.cases:
        name = (case.variant_of or case.id).partition("@")[0]
        drawn = checked_launch(plan.protocol, name, case.num_assured, plan.seed, plan.sessions)
        if case.checked_launch != drawn:
            raise EvidenceError(
                f"plan.json: {case.id} checks its last output in another launch than its seed draws"
            )


def check_bounds(plan: Plan, criteria: Criteria) -> None:
    """EvidenceError unless the plan holds the bounds that its criteria and cases need.

    They are computed again: whoever may choose the bounds chooses the verdict.
    """
    if plan.criteria != criteria.name:
        raise EvidenceError("plan.json names other criteria than criteria.toml does")
    if plan.num_attempts not in (0, MOST_ATTEMPTS):
        raise EvidenceError(f"plan.json cannot be for {plan.num_attempts} attempts of a challenge")
    number, bounds = planned_bounds(
        criteria,
        plan.cases,
        plan.protocol.interim_analyses,
        plan.sessions,
        num_attempts=plan.num_attempts,
    )
    same = plan.num_limits == number and len(plan.bounds) == len(bounds)
    if not same or not all(map(_is_same, plan.bounds, bounds)):
        raise EvidenceError("plan.json: its bounds are not those that its criteria need")
    injectors = tuple(dict.fromkeys(case.injector for case in plan.cases if case.injector))
    if plan.injectors != injectors:
        raise EvidenceError("plan.json names other injected faults than its cases do")


def _is_same(bounds: Bounds, wanted: Bounds) -> bool:
    if bounds.interim_analyses != wanted.interim_analyses or len(bounds.z) != len(wanted.z):
        return False
    pairs = zip((bounds.alpha, *bounds.z), (wanted.alpha, *wanted.z), strict=True)
    return all(math.isclose(one, other, rel_tol=RELATIVE) for one, other in pairs)


def _check_cases(plan: Plan, devices: set[str]) -> None:
    numbers: dict[str, list[int]] = {case.id: [] for case in plan.cases}
    if len(numbers) != len(plan.cases) or not plan.cases:
        raise EvidenceError("plan.json: it needs cases, each of its own name")
    for case in plan.cases:
        _check_size(case, plan.sessions)
    for launch in plan.launches:
        expected = launch_id(launch.case, launch.number)
        if launch.case not in numbers or launch.id != expected:
            raise EvidenceError(f"plan.json: launch {launch.id} belongs to no case of the plan")
        if launch.is_timed != (launch.number > 0):
            raise EvidenceError(f"plan.json: launch {launch.id} is timed or not against the rule")
        if not 1 <= launch.session <= plan.sessions:
            raise EvidenceError(f"plan.json: launch {launch.id} is of no session of the run")
        numbers[launch.case].append(launch.number)
    for case in plan.cases:
        if not _has_its_launches(plan, case, sorted(numbers[case.id])):
            raise EvidenceError(f"plan.json: case {case.id} has not the launches that it says")
        if not {case.device, *case.all_devices} <= devices:
            raise EvidenceError(f"plan.json: case {case.id} is for a device that system.json lacks")


def _check_size(case: Case, num_sessions: int) -> None:
    """EvidenceError for a case that no suite can plan: without a launch, a rank or a step."""
    least = num_sessions * case.is_timed
    counts = {
        "launches": (case.launches, least, suite_file.MOST_LAUNCHES * least),
        "assured": (case.num_assured, least, case.launches),
        "waits": (case.waits, 0, units.LARGEST_INT),
        "ranks": (case.ranks, 1, MOST_RANKS),
        "steps": (1 if case.steps is None else case.steps, 1, units.LARGEST_INT),
        "evaluate_every": (case.evaluate_every, 0, units.LARGEST_INT),
    }
    for name, (count, least, most) in counts.items():
        if not least <= count <= most:
            raise EvidenceError(f"plan.json: case {case.id} cannot have {count} for its {name}")


def _has_its_launches(plan: Plan, case: Case, numbers: list[int]) -> bool:
    """All of them; of a launch that is repeated for a dispute, the reference and that one."""
    if plan.rerun_of:
        repeated = plan.rerun_of.partition("/")[2]
        return numbers[:1] == [0] and repeated in {f"{case.id}/{number}" for number in numbers}
    return numbers == list(range(-plan.protocol.repeats, case.launches + 1))


# ------------------------------------------------------------------ the journal beside the plan


@dataclass(frozen=True, slots=True)
class _Server:
    """A fork server, as launches name it."""

    device: str
    ranks: int
    framework: Framework | None
    library_mode: LibraryMode


@dataclass
class _Walk:
    """What is known of the run at one line of its journal.

    `halted` launches were running when the parent died; `unexcused` ones were cut short by a
    person, which only a resumption excuses. It `is_paused` between sessions, and `is_beginning`
    once a process goes on with it, until a launch starts that was not made before. A fork server is
    `unhealthy` once its probe failed or it was lost, so that losing servers cannot be used to
    choose results; the next one in its place has `left_out` workloads whose import is why, of which
    nothing is forked then; `ahead` are launches whose processes wait, `standby` the orders of those
    that wait behind these, of which `idle` are set up. `is_calibrated` are launches under way that
    have compared their clocks, `num_blocks` counts the blocks that they have timed;
    `forked_by` is the server of each launch that was forked, `frameworks` what forks the launches
    of a case. A group after the `last_place` is not begun in this session, as its time was over
    when that one had ended. `left_time` says which launches that are not assured there was time
    for. Launches beside which the next one builds are those that `shares_memory` names; a case is
    `cramped` once one of its launches lacked memory so, which excuses it once. `unhashed` are files
    that launches have mapped and whose digest is still due, each with the first of them, `hashed`
    the others.
    """

    plan: Plan
    cases: Mapping[str, Case]
    launches: Mapping[str, Launch]
    places: Mapping[str, int]
    devices: frozenset[str]
    controls: frozenset[str]
    clock: sessions.SessionClock
    left_time: LeftTime
    session: int = 1
    is_paused: bool = False
    is_beginning: bool = False
    number: int = 0
    num_resumed: int = 0
    place: int = 0
    last_place: float = math.inf
    is_ended: bool = False
    has_launched: bool = False
    attempt: int = 0
    open: set[str] = field(default_factory=set)
    ahead: set[str] = field(default_factory=set)
    standby: dict[str, LaunchAhead] = field(default_factory=dict)
    idle: set[str] = field(default_factory=set)
    shares_memory: set[str] = field(default_factory=set)
    cramped: set[str] = field(default_factory=set)
    is_calibrated: set[str] = field(default_factory=set)
    num_blocks: dict[str, int] = field(default_factory=dict)
    halted: set[str] = field(default_factory=set)
    unexcused: set[str] = field(default_factory=set)
    probed: set[_Server] = field(default_factory=set)
    unhealthy: set[_Server] = field(default_factory=set)
    lost: set[_Server] = field(default_factory=set)
    replaced: set[Framework | None] = field(default_factory=set)
    """In the place of one that was `lost` another is probed, once for each framework."""
    left_out: dict[_Server, set[str]] = field(default_factory=dict)
    forked_by: dict[str, _Server] = field(default_factory=dict)
    frameworks: dict[str, Framework | None] = field(default_factory=dict)
    ended: dict[str, Outcome] = field(default_factory=dict)
    decided: set[str] = field(default_factory=set)
    stepped: set[str] = field(default_factory=set)
    unreached: set[str] = field(default_factory=set)
    interim_analyses: dict[str, list[int]] = field(default_factory=dict)
    injected: list[str] = field(default_factory=list)
    unhashed: dict[str, str] = field(default_factory=dict)
    hashed: set[str] = field(default_factory=set)
    log_boot: str = ""
    log_sequence: int = -1

    def fault(self, what: str) -> EvidenceError:
        return EvidenceError(f"journal.jsonl line {self.number}: {what}")


def check_conduct(
    plan: Plan, lines: Sequence[Line], files: Mapping[str, str], *, is_ended: bool = True
) -> None:
    """EvidenceError at the first line of the journal that the plan does not allow.

    `is_ended` False is for a run that somebody goes on with.
    """
    walk = _Walk(
        plan=plan,
        cases={case.id: case for case in plan.cases},
        launches={launch.id: launch for launch in plan.launches},
        places={name: place for place, group in enumerate(plan.groups) for name in group},
        devices=frozenset(name for case in plan.cases for name in case.all_devices),
        controls=fresh_controls(plan.launches, plan.protocol.fresh_every),
        clock=sessions.SessionClock(plan),
        left_time=LeftTime(plan),
    )
    events = [line.event for line in lines]
    started = RunStarted(
        run_id=plan.run_id,
        plan=files["plan.json"],
        system=files["system.json"],
        pid=events[0].pid if events and isinstance(events[0], RunStarted) else 0,
    )
    if not events or events[0] != started:
        raise EvidenceError("journal.jsonl does not begin with this plan on this machine")
    walk.clock.take(lines[0])
    walk.left_time.take(lines[0])
    for walk.number, line in enumerate(lines[1:], 2):
        walk.clock.take(line)
        _step(walk, line.event)
        walk.left_time.take(line)
    if is_ended and not walk.is_ended:
        raise EvidenceError("journal.jsonl: the run did not end; go on with bench accept --resume")
    _check_pauses(plan, lines)
    _check_samples(plan, walk, lines)


def _check_pauses(plan: Plan, lines: Sequence[Line]) -> None:
    """EvidenceError unless each session began after the end of the one before, by every clock."""
    ended: tuple[SessionEnded, str] | None = None
    for number, line in enumerate(lines, 1):
        if isinstance(line.event, SessionEnded):
            ended = line.event, line.utc
        elif isinstance(line.event, SessionBegan) and ended is not None:
            reason = sessions.refusal(*ended, line.event, line.utc, plan.pause_seconds)
            if reason:
                raise EvidenceError(f"journal.jsonl line {number}: {reason}")


def _check_samples(plan: Plan, walk: _Walk, lines: Sequence[Line]) -> None:
    """EvidenceError unless each completed launch checked those outputs that the seed had drawn."""
    of_inputs = inputs_seed(plan, lines)
    timed: dict[tuple[str, int], list[Block]] = {}
    sampled: dict[tuple[str, int], set[int]] = {}
    for event in (line.event for line in lines):
        if isinstance(event, Block):
            timed.setdefault((event.launch, event.rank), []).append(event)
        elif isinstance(event, Checked) and event.phase == "sampled":
            sampled.setdefault((event.launch, event.rank), set()).add(event.step)
    for (name, rank), blocks in timed.items():
        case = walk.cases[walk.launches[name].case]
        if not case.scenario or case.steps is not None or walk.ended.get(name) != "completed":
            continue
        first, number = blocks[0].first_step, sum(block.num_steps for block in blocks)
        seed = case_seed(of_inputs, case)
        drawn = sampled_steps(seed, name, plan.protocol.block_steps)
        wanted = {first + step for step in drawn if step < number}
        if sampled.get((name, rank), set()) != wanted:
            raise EvidenceError(
                f"journal.jsonl: launch {name} checked other timed outputs than the seed had drawn"
            )


def _step(walk: _Walk, event: object) -> None:
    if walk.is_ended:
        raise walk.fault("something was recorded after the end of the run")
    if isinstance(event, RunStarted):
        raise walk.fault("the run starts a second time")
    if walk.is_paused and not isinstance(event, SessionBegan):
        raise walk.fault("something was recorded between two sessions")
    rule = RULES.get(type(event))
    if rule is not None:
        rule(walk, event)
    else:
        _record(walk, str(getattr(event, "launch", "")))


SECOND = 2
"""Line that says how long planning took."""


def _planned(walk: _Walk, event: RunPlanned) -> None:
    if walk.number != SECOND or event.wall_ns < 0:
        raise walk.fault("what planning took is said once, before all else")


def _resume(walk: _Walk, event: RunResumed) -> None:
    walk.num_resumed += 1
    if event.interruption != walk.num_resumed:
        raise walk.fault(f"this is interruption {walk.num_resumed}, not {event.interruption}")
    if set(event.interrupted) != walk.open:
        raise walk.fault("the launches said to be interrupted are not those that were running")
    walk.halted = set(walk.open)
    walk.ahead.clear()  # what waited has ended with its parent
    walk.standby.clear()
    walk.idle.clear()
    walk.unexcused.clear()
    _forget_servers(walk)
    walk.is_beginning = True
    walk.log_boot = ""


def _forget_servers(walk: _Walk) -> None:
    """A process that goes on starts its own."""
    walk.probed.clear()
    walk.unhealthy.clear()
    walk.lost.clear()
    walk.replaced.clear()
    walk.left_out.clear()


def _end_session(walk: _Walk, event: SessionEnded) -> None:
    """A session ends when each launch that was planned in it is accounted for, and not later."""
    if event.session != walk.session or walk.session >= walk.plan.sessions:
        raise walk.fault(f"session {event.session} ends, which the plan does not say here")
    left = [
        launch.id
        for launch in walk.plan.launches
        if launch.session <= walk.session and launch.id not in walk.ended
    ]
    if walk.open or walk.unexcused or left:
        name = next(iter([*sorted(walk.open), *sorted(walk.unexcused), *left]))
        raise walk.fault(f"session {event.session} ends, and launch {name} is not accounted for")
    _require_none_ahead(walk)
    _require_hashed(walk, f"session {event.session} ends")
    walk.is_paused = True


def _begin_session(walk: _Walk, event: SessionBegan) -> None:
    if not walk.is_paused or event.session != walk.session + 1:
        raise walk.fault(f"session {event.session} begins, which the plan does not say here")
    if event.identity != walk.plan.digests["identity"]:
        raise walk.fault(f"session {event.session} begins on another machine than the run")
    walk.session, walk.is_paused, walk.is_beginning = event.session, False, True
    walk.last_place = math.inf
    walk.log_boot = ""
    _forget_servers(walk)


def _begin_attempt(walk: _Walk, event: AttemptBegun) -> None:
    """Once, before the first launch, one of those that the plan has bounds for."""
    if walk.attempt or walk.has_launched:
        raise walk.fault("a receipt is bound a second time, or after the first launch")
    if not 1 <= event.attempt <= walk.plan.num_attempts or not is_secret(event.nonce):
        raise walk.fault(f"attempt {event.attempt} is begun, for which the plan has no bounds")
    walk.attempt = event.attempt


def _inject(walk: _Walk, event: Injected) -> None:
    cases = tuple(case.id for case in walk.plan.cases if case.injector == event.injector)
    if event.injector not in walk.plan.injectors or event.cases != cases:
        raise walk.fault(f'the injected fault "{event.injector}" is not as the plan says')
    if walk.has_launched:
        raise walk.fault("an injected fault is named after the first launch")
    walk.injected.append(event.injector)


def _count(walk: _Walk, event: Counted) -> None:
    """Counters are read of the plan's devices, between launches, and named for the right one."""
    explained = [name for name in event.hints if event.counters.get(name) is not None]
    if explained or any(event.counters.get(name) is not None for name in event.absent):
        raise walk.fault(f"a counter of {event.device} is read, and it says why there is none")
    if event.device not in walk.devices:
        raise walk.fault(f"counters are recorded of {event.device}, which the plan does not use")
    if walk.open:
        raise walk.fault(f"counters of {event.device} are recorded while a launch runs")
    if event.launch:
        case = walk.cases[_launch(walk, event.launch).case]
        if event.device not in case.all_devices:
            raise walk.fault(f"{event.launch} is counted on {event.device}, where it does not run")
        if event.moment == "after" and event.launch not in walk.ended:
            raise walk.fault(f"{event.launch} is counted after its end, before it has one")


def _count_users(walk: _Walk, event: UsersCounted) -> None:
    """Processes are counted on the plan's devices, inside a launch while that runs."""
    if event.device not in walk.devices:
        raise walk.fault(f"processes are counted on {event.device}, which the plan does not use")
    if event.launch:
        launch = _launch(walk, event.launch)
        if event.device not in walk.cases[launch.case].all_devices:
            raise walk.fault(f"{launch.id} is counted on {event.device}, where it does not run")
    if (event.moment == "inside") != (event.launch in walk.open):
        raise walk.fault(f"processes on {event.device} are counted at another moment than is said")
    there = (walk.cases[walk.launches[name].case].all_devices for name in walk.standby)
    num_waiting = sum(event.device in names for names in there)
    if event.num_waiting != (num_waiting if event.moment == "inside" else 0):
        raise walk.fault(f"{event.num_waiting} processes are said to wait on {event.device}")


def _log(walk: _Walk, event: KernelLogRead | KernelLogged | NotObserved) -> None:
    """The kernel's log is read between launches."""
    if walk.open:
        raise walk.fault("the kernel's log is read while a launch runs")
    if isinstance(event, KernelLogged) and event.launch:
        _launch(walk, event.launch)
    if isinstance(event, NotObserved):
        walk.log_boot = ""
    if isinstance(event, KernelLogRead):
        if walk.log_boot not in ("", event.boot):
            raise walk.fault("the kernel's log is read of another boot, and nobody went on with it")
        if event.boot == walk.log_boot and event.sequence < walk.log_sequence:
            raise walk.fault("the kernel's log is read up to an earlier place than before")
        walk.log_boot, walk.log_sequence = event.boot, event.sequence


def _read(walk: _Walk, event: Reading | ReadingsFolded) -> None:
    """A launch's readings are of its devices."""
    _record(walk, event.launch)
    if event.device not in walk.cases[walk.launches[event.launch].case].all_devices:
        raise walk.fault(f"{event.device} is read for {event.launch}, which does not run on it")


def _start(walk: _Walk, event: LaunchStarted) -> None:
    if set(walk.plan.injectors) != set(walk.injected):
        raise walk.fault("a launch starts before the injected faults are named")
    if walk.plan.num_attempts and not walk.attempt:
        raise walk.fault("a launch starts before the receipt of its attempt is bound")
    launch = _launch(walk, event.launch)
    case = walk.cases[launch.case]
    if case.software:
        raise walk.fault(f"launch {launch.id} starts, and its software cannot run it by the plan")
    if launch.id in walk.open:
        raise walk.fault(f"launch {launch.id} is started while it runs")
    is_again = launch.id in walk.ended
    if is_again and not _may_be_made_again(walk, launch):
        raise walk.fault(f"launch {launch.id} is made a second time, and no result is redrawn")
    if walk.halted or walk.unexcused:
        raise walk.fault("a launch starts before the interrupted ones are accounted for")
    if launch.is_timed and case.id in walk.decided:
        raise walk.fault(f"launch {launch.id} is made although its case was decided")
    if not walk.left_time.allows(launch):
        raise walk.fault(f"launch {launch.id} is made, and the minutes left no time for it")
    interim_analyses = () if walk.plan.rerun_of else case_analyses(walk.plan, case)
    missed = [n for n in interim_analyses if n < launch.number]
    if set(missed) - set(walk.interim_analyses.get(case.id, [])):
        raise walk.fault(f"launch {launch.id} is made without the interim analysis before it")
    _check_mode(walk, launch, case, event)
    _take_place(walk, launch, is_again=is_again)
    _check_turn(walk, event)
    _require_hashed(walk, f"launch {launch.id} starts, which is timed" if launch.is_timed else "")
    walk.is_calibrated.discard(launch.id)
    walk.shares_memory.discard(launch.id)
    walk.shares_memory.update({launch.id} if walk.standby else ())
    walk.num_blocks.pop(launch.id, None)
    walk.is_beginning &= is_again
    walk.ended.pop(launch.id, None)
    walk.has_launched = True
    walk.open.add(launch.id)


def _order_ahead(walk: _Walk, event: LaunchAhead) -> None:
    """A process is started beside the end of the group before its own, which times nothing more."""
    launch = _launch(walk, event.launch)
    case = walk.cases[launch.case]
    if set(event.beside) != walk.open - walk.halted or not event.beside:
        raise walk.fault(f"launch {launch.id} is started beside others than those that run")
    for name in sorted(walk.open):
        if not _is_over(walk, name):
            raise walk.fault(f"launch {launch.id} is started beside {name}, which is timed still")
    if event.idle_beside:
        _stand_by(walk, event, launch)
    else:
        _follow(walk, event, launch)
    is_forked = walk.plan.protocol.mode == "forked" and launch.id not in walk.controls
    if not (is_forked and case.is_of_one_process) or case.fresh_because:
        raise walk.fault(f"launch {launch.id} is started ahead, where its process begins alone")
    if {launch.id} & {*walk.ahead, *walk.standby} or launch.session != walk.session:
        raise walk.fault(f"launch {launch.id} is started ahead a second time, or in a pause")
    if event.through == "first_step" and not may_step_ahead(launch, case):
        raise walk.fault(f"launch {launch.id} is stepped ahead, and its first step is timed")
    if event.through != "device":
        _build_beside(walk, event)
        _build_first(walk, event, launch)
    if event.idle_beside:
        walk.standby[launch.id] = event
    else:
        walk.ahead.add(launch.id)


def _follow(walk: _Walk, event: LaunchAhead, launch: Launch) -> None:
    """The next launch that needs a process is made by the one that stands by for it, if one does.

    That one is ordered beside the end of the launches that it waited for, and no other before it.
    """
    if not all(_comes_next(walk, launch, walk.launches[name]) for name in walk.open):
        raise walk.fault(f"launch {launch.id} is started ahead, and is not made next")
    if not walk.standby:
        return
    order = walk.standby.pop(launch.id, None)
    is_set_up = launch.id in walk.idle
    if order is None or not is_set_up or not set(event.beside) <= set(order.idle_beside):
        raise walk.fault(f"launch {launch.id} is ordered, and the process of another stands by")
    walk.idle.discard(launch.id)


def _stand_by(walk: _Walk, event: LaunchAhead, launch: Launch) -> None:
    """A process stands by behind the group that waits, of which each launch is timed beside it.

    One group does, with its devices set up and no more.
    """
    if set(event.idle_beside) != walk.ahead or len(event.idle_beside) != len(walk.ahead):
        raise walk.fault(f"launch {launch.id} stands by beside others than those that are next")
    for name in event.idle_beside:
        before = walk.launches[name]
        case = walk.cases[before.case]
        if not _comes_next(walk, launch, before):
            raise walk.fault(f"launch {launch.id} stands by, and is not made after {name}")
        if event.through != "device" or not may_stand_by(launch, before, case):
            raise walk.fault(f"launch {launch.id} stands by beside {name}, where none waits")
        if case.id in walk.cramped:
            raise walk.fault(f"launch {launch.id} stands by beside {name}, which had lacked memory")
    if any(walk.places[name] != walk.places[launch.id] for name in walk.standby):
        raise walk.fault(f"launch {launch.id} stands by while the process of another does")


def _set_up(walk: _Walk, event: AheadIdle) -> None:
    """What stands by is set up once, and beside nothing."""
    if event.launch not in walk.standby or event.launch in walk.idle or walk.open:
        raise walk.fault(f"launch {event.launch} is set up, where no process stands by for it")
    walk.idle.add(event.launch)


def check_standbys(
    plan: Plan, system: System, idle: Sequence[IdleNeighbour], lines: Iterable[Line]
) -> None:
    """EvidenceError where a launch is timed beside a process that waits, and no record allows it.

    `idle` are the records of the bundle, by which that slows no step on a model of device.
    """
    models = {device.id: device.model for device in system.identity.devices}
    quiet = {name for name, model in models.items() if is_harmless(model, idle)}
    cases = {case.id: case for case in plan.cases}
    launches = {launch.id: cases[launch.case] for launch in plan.launches}
    ordered = (line.event for line in lines if isinstance(line.event, LaunchAhead))
    for event in ordered:
        beside = (event.launch, *event.idle_beside) if event.idle_beside else ()
        used = {name for one in beside for name in launches[one].all_devices}
        if not used <= quiet:
            raise EvidenceError(
                f"journal.jsonl: launch {event.launch} stands by on {min(used - quiet)}, and no "
                "qualified record shows that this slows nothing there"
            )


def check_first_steps(plan: Plan, criteria: Criteria, lines: Iterable[Line]) -> None:
    """EvidenceError where a first step whose time is judged was made beside another launch."""
    judged = judged_first_steps(criteria, plan.cases)
    timed = {one.id for one in plan.launches if one.is_timed and one.case in judged}
    ordered = (line.event for line in lines if isinstance(line.event, LaunchAhead))
    for event in ordered:
        if event.through == "first_step" and event.launch in timed:
            raise EvidenceError(
                f"journal.jsonl: launch {event.launch} is stepped ahead, and the time of its first "
                "step is judged"
            )


def _comes_next(walk: _Walk, launch: Launch, earlier: Launch) -> bool:
    """Whether a launch is of the next group after an earlier one that any process is needed for."""
    places = range(walk.places[earlier.id] + 1, walk.places[launch.id])
    between = [walk.launches[name] for place in places for name in walk.plan.groups[place]]
    part = (launch.wave, launch.session)
    is_after = walk.places[launch.id] > walk.places[earlier.id]
    return is_after and all(
        (one.wave, one.session) == part and _needs_none(walk, one) for one in between
    )


def _needs_none(walk: _Walk, launch: Launch) -> bool:
    """Whether a launch is settled without a process, or will be, by what is known now."""
    case = walk.cases[launch.case]
    reference = walk.ended.get(f"{case.id}/0")
    has_failed = launch.number != 0 and reference not in (None, "completed")
    return bool(
        launch.id in walk.ended
        or case.unsupported
        or case.software
        or has_failed
        or (launch.is_timed and case.id in walk.decided)
        or not walk.left_time.would_allow(launch)
    )


def _build_beside(walk: _Walk, event: LaunchAhead) -> None:
    """Launches share their memory with a build, but none of a case that lacked it so before."""
    cramped = {walk.launches[name].case for name in event.beside} & walk.cramped
    if cramped:
        raise walk.fault(
            f"launch {event.launch} is built beside {min(cramped)}, which had lacked memory so"
        )
    walk.shares_memory.update(event.beside)


def _build_first(walk: _Walk, event: LaunchAhead, launch: Launch) -> None:
    """A case that no launch was over of is built beside another by what is recorded of it.

    Not where its build chooses among shapes, or writes what others are timed on.
    """
    workload = walk.cases[launch.case].workload
    if launch.number == 0 and workload in FIRST_BUILT_ALONE:
        raise walk.fault(f"launch {launch.id} is built beside another, and {workload} first alone")
    is_known = any(
        walk.launches[name].case == launch.case and outcome == "completed"
        for name, outcome in walk.ended.items()
    )
    if not is_known and not event.recorded_bytes:
        raise walk.fault(
            f"launch {launch.id} is built beside another, and nothing says what its case holds"
        )


def _is_over(walk: _Walk, name: str) -> bool:
    """Whether a launch has nothing left to time, warm up or compare clocks in; a repeat never has.

    One whose steps the plan does not count in blocks is one block.
    """
    launch = walk.launches[name]
    case = walk.cases[launch.case]
    num_blocks = walk.plan.protocol.blocks if case.steps is None else 1
    has_timed = walk.num_blocks.get(name, 0) == (num_blocks if launch.is_timed else 0)
    is_over = launch.is_repeat or (has_timed and name in walk.is_calibrated)
    return case.is_of_one_process and is_over


def _end_ahead(walk: _Walk, event: AheadEnded) -> None:
    if event.launch not in {*walk.ahead, *walk.standby}:
        raise walk.fault(f"a process of launch {event.launch} ends that was not started ahead")
    walk.ahead.discard(event.launch)
    walk.standby.pop(event.launch, None)
    walk.idle.discard(event.launch)


def _check_turn(walk: _Walk, event: LaunchStarted) -> None:
    """A launch is made by the process that was started for it, where there is one, and by no other.

    Where one begins, all that wait are of its group.
    """
    if event.is_ahead != (event.launch in walk.ahead) or (
        event.is_ahead and event.mode != "forked"
    ):
        raise walk.fault(f"launch {event.launch} is not made by the process that waits for it")
    walk.ahead.discard(event.launch)
    if any(walk.places[name] != walk.places[event.launch] for name in walk.ahead):
        raise walk.fault(f"launch {event.launch} starts while the process of another waits")
    for name, order in walk.standby.items():
        if not (event.is_ahead and event.launch in order.idle_beside and name in walk.idle):
            raise walk.fault(f"launch {event.launch} starts while that of {name} is not set up")


def _time(walk: _Walk, event: Block | Calibrated | PhaseBegan | Warmed | Witnessed) -> None:
    """What is timed is of a launch that runs, and no process is started ahead beside it."""
    _record(walk, event.launch)
    if walk.ahead or not walk.idle.issuperset(walk.standby):
        raise walk.fault(f"launch {event.launch} is timed beside the start of another's process")
    if isinstance(event, Block) and event.rank == 0:
        walk.num_blocks[event.launch] = walk.num_blocks.get(event.launch, 0) + 1
    elif isinstance(event, Calibrated):
        walk.is_calibrated.add(event.launch)


def _require_none_ahead(walk: _Walk) -> None:
    if walk.ahead or walk.standby:
        name = min({*walk.ahead, *walk.standby})
        raise walk.fault(f"launch {name} was started ahead, and what became of it is not said")


def _may_be_made_again(walk: _Walk, launch: Launch) -> bool:
    """Of untimed launches one that was interrupted, or whose files another process has lost."""
    is_lost = walk.is_beginning and launch.number == 0 and walk.ended[launch.id] == "completed"
    return not launch.is_timed and (is_lost or walk.ended[launch.id] == "interrupted")


def _check_mode(walk: _Walk, launch: Launch, case: Case, event: LaunchStarted) -> None:
    """Forked where that may be, and in the library mode of the phase that it is of."""
    if (event.library_mode == "deterministic") != launch.is_repeat:
        raise walk.fault(f"launch {launch.id} is made in the library mode {event.library_mode}")
    walk.forked_by.pop(launch.id, None)
    if event.mode == "forked":
        is_fresh = walk.plan.protocol.mode == "fresh" or launch.id in walk.controls
        _fork(walk, event, case, is_forbidden=is_fresh or bool(case.fresh_because))


def _fork(walk: _Walk, event: LaunchStarted, case: Case, *, is_forbidden: bool) -> None:
    """A launch is forked by a healthy server, and by the framework that its case always has."""
    server = _server_of(walk, event, case)
    is_left_out = case.workload in walk.left_out.get(server, ())
    if is_forbidden or is_left_out or server in walk.unhealthy:
        raise walk.fault(f"launch {event.launch} is forked, where a fresh process is wanted")
    if walk.frameworks.setdefault(case.id, event.framework) != event.framework:
        raise walk.fault(f"launch {event.launch} is forked by another framework than its case was")
    walk.forked_by[event.launch] = server


def _server_of(walk: _Walk, event: LaunchStarted, case: Case) -> _Server:
    """That of the launch's library mode, or the one for both where none was probed for its own."""
    own = _Server(case.place, case.ranks, event.framework, event.library_mode)
    both = replace(own, library_mode="default")
    return both if both in walk.probed and own not in walk.probed else own


def _probe(walk: _Walk, event: ServerProbed) -> None:
    if event.is_healthy and (event.reason or event.last_words):
        raise walk.fault("a server is healthy and says what is wrong with it")
    server = _Server(event.device, event.ranks, event.framework, event.library_mode)
    walk.probed.add(server)
    if server in walk.lost:
        _replace(walk, server)
    if event.without:
        _leave_out(walk, event, server)
    elif not event.is_healthy:
        walk.unhealthy.add(server)


def _replace(walk: _Walk, server: _Server) -> None:
    """Another server takes the place of one that was lost, once for each framework."""
    if server.framework in walk.replaced:
        raise walk.fault(f"a server of {server.framework} takes the place of a second one lost")
    walk.replaced.add(server.framework)
    walk.lost.discard(server)
    walk.unhealthy.discard(server)


def _leave_out(walk: _Walk, event: ServerProbed, server: _Server) -> None:
    """Another server takes the place of one that imports kept from forking, without these."""
    planned = {case.workload for case in walk.cases.values()}
    left_out = walk.left_out.setdefault(server, set())
    if event.is_healthy or server in walk.unhealthy or left_out.intersection(event.without):
        raise walk.fault("a server leaves out workloads, and nothing shows that it had to")
    if not planned.issuperset(event.without):
        raise walk.fault("a server leaves out a workload that the plan does not have")
    left_out.update(event.without)


def _take_place(walk: _Walk, launch: Launch, *, is_again: bool) -> None:
    """Groups follow one another in the order of the plan, each ended before the next.

    A process that goes on makes untimed launches again before it comes to its place.
    """
    place = walk.places[launch.id]
    if launch.session != walk.session and not is_again:
        raise walk.fault(f"launch {launch.id} is made in session {walk.session}")
    is_before = is_again and walk.is_beginning
    if place < walk.place and not is_before:
        raise walk.fault(f"launch {launch.id} is made out of the order of the plan")
    if place > walk.last_place and not is_again:
        raise walk.fault(f"launch {launch.id} begins after the time limit of the suite")
    if any(walk.places[name] != place for name in walk.open):
        raise walk.fault(f"launch {launch.id} starts while another group runs")
    walk.place = max(walk.place, place)


def _end(walk: _Walk, event: LaunchEnded) -> None:
    launch = _launch(walk, event.launch)
    if launch.id in walk.open:
        _end_open(walk, launch, event)
    elif launch.session != walk.session:
        raise walk.fault(f"launch {launch.id} is left out in session {walk.session}")
    elif launch.id in walk.ended or event.outcome not in WITHOUT_START:
        raise walk.fault(f"launch {launch.id} ends without having started")
    elif event.outcome == "software" and event.detail != (walk.cases[launch.case].software or None):
        raise walk.fault(f"launch {launch.id} lacks software that the plan does not name")
    elif event.reason == "decided" and launch.case not in walk.decided:
        raise walk.fault(
            f"launch {launch.id} is left out as decided, and no interim analysis decided it"
        )
    elif event.reason == sessions.TIME_LIMIT and not walk.clock.is_over:
        raise walk.fault(
            f"launch {launch.id} is left out for want of time, and the session had run "
            f"{walk.clock.seconds:.0f} s of {walk.plan.time_limit_seconds:g} s"
        )
    elif event.reason == sessions.NO_TIME and walk.left_time.allows(launch):
        raise walk.fault(
            f"launch {launch.id} is left out for want of time, and the minutes had time for it"
        )
    if event.reason == sessions.NO_TIME:
        walk.unreached.add(launch.id)
    walk.ended[launch.id] = event.outcome


def _step_once(walk: _Walk, event: Started) -> None:
    _record(walk, event.launch)
    walk.stepped.add(walk.launches[event.launch].case)


def _map(walk: _Walk, event: LibrariesMapped) -> None:
    """What a launch runs is named as files are."""
    _record(walk, event.launch)
    for known in event.files.values():
        if known is not None and not FILE_FORM.fullmatch(known):
            raise walk.fault(f"launch {event.launch} has mapped a file that no disk has")
        if known is not None and known not in walk.hashed:
            walk.unhashed.setdefault(known, event.launch)


def _hash(walk: _Walk, event: LibrariesHashed) -> None:
    """Each file is hashed once, after a launch has mapped it."""
    for known, digest in event.digests.items():
        if walk.unhashed.pop(known, None) is None:
            raise walk.fault("a file is hashed a second time, or one that no launch has mapped")
        if digest is not None and not DIGEST_FORM.fullmatch(digest):
            raise walk.fault("the digest of a library is no sha256")
        walk.hashed.add(known)


def _require_hashed(walk: _Walk, then: str) -> None:
    """Nothing is timed, and no run ends, before all that launches have mapped is hashed."""
    for name in walk.unhashed.values() if then else ():
        raise walk.fault(f"{then}, and the libraries of {name} are not hashed")


def _check_software(walk: _Walk, launch: Launch, event: LaunchEnded) -> None:
    """A crash is the software's, or is not, by its exception and how far the case had come."""
    is_lack = is_lack_of_software(event, has_stepped=launch.case in walk.stepped)
    if event.outcome in ("software", "crashed") and (event.outcome == "software") != is_lack:
        raise walk.fault(
            f"launch {launch.id} is recorded as {event.outcome}, and its exception and stage say "
            f"{'software' if is_lack else 'crashed'}"
        )


def _end_open(walk: _Walk, launch: Launch, event: LaunchEnded) -> None:
    _check_software(walk, launch, event)
    if event.outcome == "not_run" and event.reason in UNSTARTED_REASONS:
        raise walk.fault(f"launch {launch.id} was started, so it cannot be {event.reason}")
    if launch.id in walk.halted and event.outcome != "interrupted":
        raise walk.fault(f"launch {launch.id} was interrupted, so it cannot be {event.outcome}")
    if event.outcome == "interrupted" and launch.id not in walk.halted:
        if event.reason == SERVER_LOST and launch.id in walk.forked_by:
            walk.unhealthy.add(walk.forked_by[launch.id])
            walk.lost.add(walk.forked_by[launch.id])
        elif event.reason == SHARED_MEMORY and launch.id in walk.shares_memory:
            walk.cramped.add(launch.case)
        else:
            walk.unexcused.add(launch.id)
    walk.open.discard(launch.id)
    walk.halted.discard(launch.id)
    if walk.clock.is_over:
        walk.last_place = min(walk.last_place, walk.places[launch.id])


def _interim_analysis(walk: _Walk, event: InterimAnalysis) -> None:
    case = walk.cases.get(event.case)
    if case is None:
        raise walk.fault(f"the plan has no case {event.case}")
    taken = walk.interim_analyses.setdefault(case.id, [])
    if case.id in walk.decided:
        raise walk.fault(f"{case.id} is analysed again after it was decided")
    if event.launches not in case_analyses(walk.plan, case) or event.launches <= max(
        taken, default=0
    ):
        raise walk.fault(
            f"no interim analysis at {case.id} is planned after {event.launches} launches"
        )
    due = [f"{case.id}/{number}" for number in range(1, event.launches + 1)]
    later = f"{case.id}/{event.launches + 1}"
    has_gone_on = later in walk.open or later in walk.ended
    if has_gone_on or any(name not in walk.ended for name in due):
        raise walk.fault(
            f"the interim analysis at {case.id} was not taken after {event.launches} launches"
        )
    if walk.unreached.intersection(due):
        raise walk.fault(f"{case.id} is analysed with launches that there was no time for")
    taken.append(event.launches)
    if event.is_decided:
        walk.decided.add(case.id)


def _record(walk: _Walk, launch: str) -> None:
    name = _launch(walk, launch).id
    if name not in walk.open or name in walk.halted:
        raise walk.fault(f"something is recorded of launch {launch} while it does not run")


def _finish(walk: _Walk, event: RunEnded) -> None:
    if walk.session != walk.plan.sessions:
        raise walk.fault(f"the run ends in session {walk.session} of {walk.plan.sessions}")
    left = [launch.id for launch in walk.plan.launches if launch.id not in walk.ended]
    if walk.open or walk.unexcused or left:
        name = next(iter([*sorted(walk.open), *sorted(walk.unexcused), *left]))
        raise walk.fault(f"the run ends, and launch {name} is not accounted for")
    _require_none_ahead(walk)
    _require_hashed(walk, "the run ends")
    if event.launches != len(walk.plan.launches):
        raise walk.fault("the run ends with another number of launches than planned")
    walk.is_ended = True


def _launch(walk: _Walk, name: str) -> Launch:
    if name not in walk.launches:
        raise walk.fault(f"launch {name} is not in the plan")
    return walk.launches[name]


RULES: Mapping[type, Callable[[_Walk, Any], None]] = {
    RunResumed: _resume,
    AttemptBegun: _begin_attempt,
    Injected: _inject,
    Reading: _read,
    ReadingsFolded: _read,
    Counted: _count,
    UsersCounted: _count_users,
    KernelLogRead: _log,
    KernelLogged: _log,
    NotObserved: _log,
    ServerProbed: _probe,
    LaunchAhead: _order_ahead,
    AheadIdle: _set_up,
    AheadEnded: _end_ahead,
    LaunchStarted: _start,
    Block: _time,
    Calibrated: _time,
    PhaseBegan: _time,
    Warmed: _time,
    Witnessed: _time,
    Started: _step_once,
    LibrariesMapped: _map,
    LibrariesHashed: _hash,
    LaunchEnded: _end,
    InterimAnalysis: _interim_analysis,
    SessionEnded: _end_session,
    SessionBegan: _begin_session,
    RunEnded: _finish,
    RunPlanned: _planned,
}
"""What each kind of line may do; all others are of a launch that runs."""


# ------------------------------------------------------------------ the interim analyses, taken
# again


def check_interim_analyses(judge: Judge, lines: Iterable[Line]) -> int:
    """Give the judge every line, and compare what he says with each interim analysis; their number.

    Raises EvidenceError at the first that he would have answered otherwise, once he has all lines,
    so that his verdict is that of the whole journal.
    """
    count, fault = 0, ""
    for number, line in enumerate(lines, 1):
        event = line.event
        if isinstance(event, InterimAnalysis):
            count += 1
            is_same = judge.interim_analysis(event.case) == (event.is_decided, event.reason)
            if not is_same and not fault:
                fault = (
                    f"journal.jsonl line {number}: the interim analysis of {event.case} does not "
                    "follow from the lines before it"
                )
        judge.take(line)
    if fault:
        raise EvidenceError(fault)
    return count
