"""Whether a run's cases, checks and figures are those that a release of bench has of them.

A bundle says itself what its steps did, which checks it made within which bounds, and by which peak
figures and records it was judged. All of it is compared with the facts of a release (facts.py).
Where those are of the release that made the run, a difference is a fault. Where they are not, or
have nothing of a case, it cannot be known here, and what was not compared is said in a sentence
each: nothing that was not compared looks compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from appliance.errors import EvidenceError
from appliance.linux.fact_reader import value_of
from appliance.plausibility.reading_checks import (
    excused_counter,
    impossible_reading,
    unread_launch,
)
from appliance.records.baseline import Peaks
from appliance.records.journal import (
    Check,
    Checked,
    Counted,
    Digested,
    Environment,
    KernelLogRead,
    LaunchEnded,
    LaunchStarted,
    Line,
    NotObserved,
    ServerProbed,
    StageTimes,
)
from appliance.records.plan import Case, Plan
from appliance.records.qualified import Qualified
from appliance.records.system import System
from appliance.records.workload import Resolved
from appliance.verification import input_checks
from appliance.verification.facts import Facts
from appliance.verification.known_checks import KnownCheck, WorkloadChecks, pattern
from appliance.verification.observation_checks import moment_of
from appliance.version import is_before_release

RELATIVE = 1e-9  # figures of another machine may differ by this much
NAMED = 3  # cases that a sentence names before it counts the others
OWN_CHECKS = frozenset(
    {
        "steps beyond those in which the target is to be reached",
        "a product of float32 operands in TF32",
    }
)
"""Checks that the appliance makes itself, beside those of the workload."""
OWN_PHASES = frozenset({"repeated", "repeatability"})
"""Phases of checks of its own, whose bounds are fixed or hold two outputs of one launch."""
OUTPUTS = frozenset({"first", "last"})
TOLD: Mapping[type[Environment | StageTimes | Digested], str] = {
    Environment: "what it ran in",
    Digested: "the bits of its first output",
    StageTimes: "the times of its stages",
}
"""What a launch that completed has said, in a sentence."""
PROCESSORS = "cpu"
RAN_IN = ("python", "torch")
"""Versions that each launch reads of itself, and the probe of the node."""
OF_INPUTS = frozenset({input_checks.CHECK, "known answers of the input generator"})
"""Made before the first step alone, of a workload that draws its inputs on the device."""


class Judged(Protocol):
    """What is compared of a bundle."""

    @property
    def plan(self) -> Plan: ...
    @property
    def system(self) -> System: ...
    @property
    def peaks(self) -> Peaks: ...
    @property
    def qualified(self) -> Qualified: ...
    @property
    def lines(self) -> Sequence[Line]: ...


@dataclass(kw_only=True)
class Comparison:
    """What was compared with which facts, and what could not be, by kind: the cases or a reason."""

    plan: Plan
    facts: Facts
    open: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_of_same_release(self) -> bool:
        """Whether what differs from the facts is a fault; who repeats a run keeps the other's."""
        return self.plan.bench_version == self.facts.version and not self.plan.rerun_of

    def differs(self, fault: str, kind: str, case: str = "") -> None:
        """A fault of the same release, else something that cannot be compared."""
        if self.is_of_same_release:
            raise EvidenceError(fault)
        self.left(kind, case)

    def left(self, kind: str, case: str = "") -> None:
        """Something that was not compared, of a case or of the whole run."""
        cases = self.open.setdefault(kind, [])
        cases += [case] if case and case not in cases else []

    def sentences(self) -> tuple[str, ...]:
        """What was not compared, a sentence each."""
        made_by = self.plan.bench_version
        is_same = made_by == self.facts.version
        why = "" if is_same else f" (made by bench {made_by}, compared with {self.facts.version})"
        return tuple(f"{kind}{_of(cases)}{why}" for kind, cases in self.open.items())


def _of(cases: Sequence[str]) -> str:
    if not cases:
        return ""
    more = f" and {len(cases) - NAMED} more" if len(cases) > NAMED else ""
    return f" of {', '.join(cases[:NAMED])}{more}"


def compare(bundle: Judged, facts: Facts) -> tuple[str, ...]:
    """What could not be compared with the facts, a sentence each; none is best.

    EvidenceError for what contradicts the facts of the release that made the run.
    """
    comparison = Comparison(plan=bundle.plan, facts=facts)
    compare_release(comparison, bundle)
    _compare_peaks(comparison, bundle)
    _compare_qualified(comparison, bundle)
    compare_ranges(comparison, bundle)
    made = _made(bundle.lines)
    for case in bundle.plan.cases:
        _compare_words(comparison, case)
        _compare_work(comparison, case)
        _compare_checks(comparison, case, made)
    return comparison.sentences()


def compare_release(comparison: Comparison, bundle: Judged) -> None:
    """EvidenceError for a run that the release which made it cannot have made.

    Nothing is compared with the facts of a release that do not say its day, as older ones do not.
    """
    released = comparison.facts.file.released
    if not released:
        return
    if comparison.is_of_same_release:
        version = comparison.facts.version
        _check_day("journal.jsonl begins", bundle.lines[0].utc, released, version)
        _check_day("plan.json is of", bundle.plan.created_utc, released, version)
        _check_day("system.json is of", bundle.system.conditions.utc, released, version)
    counts = [line.event for line in bundle.lines if isinstance(line.event, Counted)]
    counted = {one.device for one in counts}
    devices = {name for case in bundle.plan.cases for name in case.all_devices}
    for device in sorted(devices - counted):
        comparison.differs(
            f"journal.jsonl: the counters of {device} were never read, and every run reads them",
            "counters",
        )
    for device in sorted({one.device for one in counts if _is_unexplained(one)}):
        comparison.differs(
            f"journal.jsonl: no counter of {device} could be read, and every run says why",
            "counters",
        )

    for fault in (impossible_reading(bundle.lines), unread_launch(bundle.lines)):
        if fault:
            comparison.differs(fault, "readings")
    if excused := excused_counter(bundle.system, bundle.lines):
        comparison.differs(excused, "counters")
    _compare_described(comparison, bundle.system)
    _compare_watched(comparison, bundle.lines)
    _compare_told(comparison, bundle.lines)
    _compare_ran_in(comparison, bundle)


def _compare_watched(comparison: Comparison, lines: Sequence[Line]) -> None:
    """The kernel's log, and a probe of the servers of which launches were forked."""
    if not any(isinstance(line.event, KernelLogRead | NotObserved) for line in lines):
        comparison.differs(
            "journal.jsonl: the kernel's log was never read, and every run reads it or says why",
            "the kernel's log",
        )
    events = [line.event for line in lines]
    last: KernelLogRead | NotObserved | LaunchEnded | None = None
    was_read = False
    for one in events:
        if isinstance(one, KernelLogRead | NotObserved):
            last, was_read = one, isinstance(one, KernelLogRead)
        elif isinstance(one, LaunchEnded) and one.outcome == "completed":
            last = one
    if was_read and isinstance(last, LaunchEnded):
        comparison.differs(
            "journal.jsonl: the kernel's log was not read to the end of the run, and no word says "
            "why",
            "the kernel's log",
        )
    probed = {one.framework for one in events if isinstance(one, ServerProbed)}
    forked = [one for one in events if isinstance(one, LaunchStarted) and one.framework]
    for one in forked:
        if one.framework not in probed:
            comparison.differs(
                f"journal.jsonl: launch {one.launch} was forked of a {one.framework} server, and "
                "none was probed",
                "probes of servers",
            )


def _compare_told(comparison: Comparison, lines: Sequence[Line]) -> None:
    """What each launch says that completed: variables that change a library's arithmetic, say."""
    told: dict[str, set[type]] = {}
    digesting = {one.id for one in comparison.plan.cases if one.is_repeatable}
    repeats = {one.id for one in comparison.plan.launches if one.is_repeat}
    for event in (line.event for line in lines):
        if isinstance(event, LaunchStarted):
            told[event.launch] = set()
        elif isinstance(event, Environment | StageTimes | Digested):
            told.setdefault(event.launch, set()).add(type(event))
        elif isinstance(event, LaunchEnded) and event.outcome == "completed":
            case = event.launch.rpartition("/")[0]
            digests = case in digesting and event.launch not in repeats
            due = TOLD.keys() - (set() if digests else {Digested})
            for kind in sorted(due - told.get(event.launch, set()), key=TOLD.__getitem__):
                comparison.differs(
                    f"journal.jsonl: launch {event.launch} completed and does not say {TOLD[kind]}",
                    TOLD[kind],
                )


def _compare_ran_in(comparison: Comparison, bundle: Judged) -> None:
    """Versions that a launch ran with, which are those that the node has."""
    software = bundle.system.identity.software
    for event in (line.event for line in bundle.lines):
        if not isinstance(event, Environment):
            continue
        for name in RAN_IN:
            there = value_of(software, name)
            here = value_of(event.facts, name)
            if here is None or (there is not None and here != there):
                said = "does not say its version of" if here is None else f"ran with {here} as its"
                comparison.differs(
                    f"journal.jsonl: launch {event.launch} {said} {name}, and system.json has "
                    f"{there}",
                    TOLD[Environment],
                )


def _is_unexplained(counted: Counted) -> bool:
    """Whether none of a device's counters was read when a run began, and no hint says why."""
    is_begin = not counted.launch and counted.moment == "before"
    none_read = all(value is None for value in counted.counters.values())
    could_be = counted.counters.keys() - {*counted.absent}
    return is_begin and none_read and bool(could_be) and not could_be & counted.hints.keys()


def _check_day(what: str, utc: str, released: str, version: str) -> None:
    if is_before_release(moment_of(utc), released):
        raise EvidenceError(
            f"{what} {utc}, and bench {version} was released on {released}: no run of it is older"
        )


def _compare_described(comparison: Comparison, system: System) -> None:
    """A machine of which nothing is said: what cannot be read stands there with the reason.

    Processors are called what their facts say.
    """
    for device in system.identity.devices:
        model, memory = (value_of(device.facts, name) for name in ("model", "memory"))
        other = model not in (None, device.model) or memory not in (None, device.memory_bytes)
        if device.vendor == PROCESSORS and other:
            comparison.differs(
                f"system.json: {device.id} is called otherwise than it was read", "the machine"
            )
    parts = {
        "the host": system.identity.host,
        "its software": system.identity.software,
        "its conditions": system.conditions.facts,
    }
    for name, facts in parts.items():
        if not facts:
            comparison.differs(
                f"system.json says nothing of {name}, and every run does", "the machine"
            )


# ------------------------------------------------------------------ figures and records


def _compare_peaks(comparison: Comparison, bundle: Judged) -> None:
    """Lower peaks would make a limit that is a part of the peak easy."""
    models = [device.model for device in bundle.system.identity.devices]
    if bundle.peaks != comparison.facts.peaks(models):
        comparison.differs(
            "peaks.json has other figures than the device files of bench "
            f"{comparison.facts.version}",
            "peak figures",
        )


def _compare_qualified(comparison: Comparison, bundle: Judged) -> None:
    """More clean repeats would turn what is transient into a fault, fewer the other way round."""
    devices = bundle.system.identity.devices
    if bundle.qualified != comparison.facts.qualified(bundle.plan.cases, devices):
        comparison.differs(
            "qualified.json has other records than the package of bench "
            f"{comparison.facts.version} has of these devices",
            "qualified records",
        )


def compare_ranges(comparison: Comparison, bundle: Judged) -> None:
    """EvidenceError for other ranges than the same release has.

    Wider ranges would let a case run on a library that is known to be wrong.
    """
    plan, known = bundle.plan, comparison.facts.file.ranges
    needed = {name for case in plan.cases for name in case.libraries}
    for vendor in sorted({device.vendor for device in bundle.system.identity.devices}):
        allowed = known.get(vendor)
        if allowed is None:
            comparison.left("ranges of libraries")
        elif plan.ranges != {name: allowed[name] for name in sorted(needed & allowed.keys())}:
            comparison.differs(
                "plan.json allows other versions of libraries than bench "
                f"{comparison.facts.version}",
                "ranges of libraries",
            )


# ------------------------------------------------------------------ cases


def _compare_words(comparison: Comparison, case: Case) -> None:
    """What the case says that its workload is."""
    known = comparison.facts.of(case)
    if known is None:
        comparison.left("what the workload is", case.id)
        return
    for name in ("summary", "data_pattern", "bound_by", "is_timed", "is_repeatable", "injector"):
        here, there = getattr(case, name), getattr(known, name)
        if here != there:
            comparison.differs(
                f"case {case.id}: its {name} is {here!r}, and its workload's is {there!r}",
                "descriptions",
                case.id,
            )


def _compare_work(comparison: Comparison, case: Case) -> None:
    """The operations, units and steps, from which rates and shares of the peak are made."""
    if case.software:
        return  # it was not started, and what a step of it would do is not known without it
    known = comparison.facts.resolved(case)
    if known is None:
        comparison.left("operations and units", case.id)
        return
    fault = _other_work(case, known)
    if fault:
        comparison.differs(f"case {case.id}: {fault}", "operations and units", case.id)


def _other_work(case: Case, known: Resolved) -> str:
    """What differs from the known work, in words; or nothing."""
    pairs: dict[str, tuple[object, object]] = {
        "units": (case.work.units, known.work.units),
        "unit": (case.work.unit, known.work.unit),
        "operations": (case.work.flops, known.work.flops),
        "bytes": (case.work.bytes, known.work.bytes),
        "precision": (case.work.precision, known.work.precision),
        "number of parameters": (case.num_parameters, known.num_parameters),
        "steps": (case.steps, known.steps),
        "steps between two evaluations": (case.evaluate_every, known.evaluate_every),
        "scenario": (case.scenario, known.scenario),
        "ranks": (case.ranks, max(1, known.ranks)),
    }
    for name, (here, there) in pairs.items():
        is_number = isinstance(here, float) and isinstance(there, float)
        if not (math.isclose(here, there, rel_tol=RELATIVE) if is_number else here == there):  # type: ignore[arg-type]
            return f"its {name} is {here!r}, and of its workload at these parameters {there!r}"
    return ""


# ------------------------------------------------------------------ checks

Made = Mapping[str, Mapping[str, Sequence[Checked]]]


def _made(lines: Iterable[Line]) -> Made:
    """By case and launch, the checks of each that completed, as it was last started."""
    open_: dict[str, list[Checked]] = {}
    done: dict[str, list[Checked]] = {}
    for line in lines:
        event = line.event
        if isinstance(event, LaunchStarted):
            open_[event.launch] = []
            done.pop(event.launch, None)
        elif isinstance(event, Checked):
            open_.setdefault(event.launch, []).append(event)
        elif isinstance(event, LaunchEnded) and event.outcome == "completed":
            done[event.launch] = open_.get(event.launch, [])
    by_case: dict[str, dict[str, list[Checked]]] = {}
    for launch, checks in done.items():
        if not launch.rpartition("/")[2].startswith("r"):  # the deterministic phase checks nothing
            by_case.setdefault(launch.partition("/")[0], {})[launch] = checks
    return by_case


def _compare_checks(comparison: Comparison, case: Case, made: Made) -> None:
    """Bounds that are too wide, and outputs that lack a check, held to what records have.

    At parameters that no record is of, the widest bounds of the workload are held against them,
    and what exceeds those is not compared: it may be wrong or merely new.
    """
    known = comparison.facts.checks(case)
    if known is None:
        comparison.left("names and bounds of checks", case.id)
        return
    exact = known.of(case.parameters) if known.version == case.version else None
    checks = known.of_any() if exact is None else exact
    fault = _other_checks(checks, known, made.get(case.id, {}))
    if fault and exact is not None:
        comparison.differs(f"journal.jsonl: {fault}", "names and bounds of checks", case.id)
    elif fault:
        comparison.left("names and bounds of checks", case.id)
    elif unknown := _unknown(known, made.get(case.id, {})):
        comparison.left(f'the check "{unknown}"', case.id)
    _compare_errors(comparison, case, known, made.get(case.id, {}))


def _compare_errors(
    comparison: Comparison,
    case: Case,
    known: WorkloadChecks,
    launches: Mapping[str, Sequence[Checked]],
) -> None:
    """Errors that are too small for any result in its number format, all of a case's together."""
    exact = known.of(case.parameters) if known.version == case.version else None
    largest: dict[str, float] = {}
    for one in (one for checks in launches.values() for one in checks if one.phase in OUTPUTS):
        part = one.check.error / one.check.bound if one.check.bound > 0 else math.inf
        name = pattern(one.check.name)
        if math.isnan(part):
            part = math.inf
        largest[name] = max(largest.get(name, 0.0), part)
    checks = known.of_any() if exact is None else exact
    for name, part in largest.items():
        if name not in checks or not part < checks[name].fewest_errors:
            continue
        if exact is not None:
            comparison.differs(
                f'journal.jsonl: the largest error of "{name}" of {case.id} is {part:g} of its '
                f"bound, and in every record of it at least {checks[name].least:.2g}",
                "errors",
                case.id,
            )
        else:
            comparison.left("errors", case.id)


def _other_checks(
    checks: Mapping[str, KnownCheck],
    known: WorkloadChecks,
    launches: Mapping[str, Sequence[Checked]],
) -> str:
    """The first bound that is not as recorded, or the first output that lacks a check; or nothing.

    A check that was recorded at other parameters alone is held to the widest bound that it had.
    """
    elsewhere = known.of_any()
    for launch, made in launches.items():
        for one in made:
            name = pattern(one.check.name)
            check = _held_to(checks.get(name), elsewhere.get(name))
            if one.phase not in OWN_PHASES and check and not check.allows(one.check.bound):
                return _other_bound(launch, one.check, check)
        missing = _missing(checks, made)
        if missing:
            return f"launch {launch} lacks {missing}"
    return ""


def _held_to(check: KnownCheck | None, elsewhere: KnownCheck | None) -> KnownCheck | None:
    """By which record a bound is held; None where nothing is known of the check."""
    if check is None or elsewhere is None or check.bound or not elsewhere.bound:
        return check or elsewhere
    return elsewhere  # zero here, and not at other parameters


def _other_bound(launch: str, made: Check, check: KnownCheck) -> str:
    if check.is_fixed:
        wanted = f"at these parameters that is {check.bound:g} in every run"
    else:
        wanted = f"by the records of healthy runs {check.limit:g} is the most"
    return f'launch {launch} holds "{made.name}" to {made.bound:g}, and {wanted}'


def _missing(checks: Mapping[str, KnownCheck], made: Sequence[Checked]) -> str:
    """A check that every output has, and one of this launch lacks; or nothing.

    Of a launch with a check that is not within its bound no more need be asked.
    """
    if not all(one.check.is_within for one in made):
        return ""
    phases = {one.phase for one in made if one.phase in OUTPUTS} | {"first"}
    for phase in sorted(phases):
        names = {pattern(one.check.name) for one in made if one.phase == phase}
        for check in checks.values():
            is_due = check.is_always or (phase == "first" and check.name in OF_INPUTS)
            if is_due and check.name not in names:
                return f'the check "{check.name}" of its {phase} output'
    return ""


def _unknown(known: WorkloadChecks, launches: Mapping[str, Sequence[Checked]]) -> str:
    """The name of a check that no record of the workload has; or nothing."""
    names = {*known.of_any(), *OWN_CHECKS}
    made = (
        pattern(one.check.name)
        for checks in launches.values()
        for one in checks
        if one.phase not in OWN_PHASES
    )
    return next((name for name in made if name not in names), "")
