"""What the launches of a qualification showed, row by row: checks, bits, times, memory, power.

Pure: from the plans and journals of its stages to the records that are written down. A row may
have launches in several runs, because a qualification goes on where it was cut short.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import median

import numpy as np

from appliance.evidence import budget, device_health
from appliance.evidence.disturbance import disturbance
from appliance.evidence.launches import CaseEvidence, LaunchEvidence
from appliance.evidence.qualification import device_digest, stack
from appliance.evidence.repeats import Repeats, repeats_of
from appliance.judging.functional import CORES, POWER, is_burn_in
from appliance.qualifying.rows import row_of
from appliance.records.journal import Checked
from appliance.records.plan import Case
from appliance.records.qualified import (
    FreshControl,
    LaunchPair,
    ObservedCase,
    ObservedCheck,
    Qualified,
    QualifiedRecord,
    ReachedLoad,
)
from appliance.records.suite import SuiteCase
from appliance.records.system import Device, System
from appliance.statistics.tolerance import paired_ratio
from appliance.stress import kinds

PAIRS = "qualify-pairs"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One case of one run, with its node; `stage` is the suite's name.

    `journal` is the sha256 of the run's journal.
    """

    evidence: CaseEvidence
    system: System
    stage: str
    journal: str
    created_utc: str
    bench_version: str

    @property
    def case(self) -> Case:
        return self.evidence.case

    @property
    def key(self) -> tuple[str, bool, str]:
        """What is one row: its name, its size and the model of the device."""
        return row_of(self.case.id)[0], self.case.small, _model(self)

    @property
    def launches(self) -> tuple[LaunchEvidence, ...]:
        return tuple(one for one in self.evidence.all_launches if one.ended is not None)


def qualified(seen: Iterable[Seen]) -> Qualified:
    """The records of all rows; a row of which no launch was made stands there with its reason."""
    rows: dict[tuple[str, bool, str], list[Seen]] = {}
    for one in seen:
        rows.setdefault(one.key, []).append(one)
    observed = [_observed(row) for row in rows.values()]
    records = filter(None, (repeat_record(one) for row in rows.values() for one in row))
    return Qualified(record=grown((), records), observed=tuple(observed))


# ------------------------------------------------------------------ repeats


def repeat_record(seen: Seen) -> QualifiedRecord | None:
    """What a case's repeats say of its model and stack; None where they differ, or are too few."""
    case, repeats = seen.case, repeats_of(seen.evidence)
    has_form = not repeats.has_mismatch
    num_clean = len(repeats.first) - 1 if has_form else 0
    if num_clean < 1 and (has_form or not repeats.operators):
        return None
    device = _device(seen)
    return QualifiedRecord(
        workload=case.workload,
        version=case.version,
        model=device.model,
        stack=stack(seen.system, device, case.libraries),
        form="deterministic" if has_form else "no_deterministic_form",
        num_clean=num_clean,
        devices=(device_digest(seen.system, device),),
        operators=repeats.operators,
        sources=(f"{seen.stage}/{case.id}, journal {seen.journal}",),
        recorded_utc=seen.created_utc,
        bench_version=seen.bench_version,
        load=_reached(seen),
    )


def _reached(seen: Seen) -> ReachedLoad | None:
    """What a burn-in at full size reached; None of others, or where somebody else used the device.

    Stress beside it takes of its load, so that a record is of a burn-in alone.
    """
    case = seen.case
    has_stress = bool(case.parameters.get(kinds.PARAMETER))
    if not is_burn_in(case) or has_stress or disturbance(seen.evidence, seen.system):
        return None
    (ledger,) = device_health.of_devices((_device(seen),), (seen.evidence,), "cases")
    power, cores, loop = ledger.observe(POWER), ledger.observe(CORES), ledger.plain_loop()
    reached = ReachedLoad(
        power_fraction=None if power.gap else power.low,
        core_use=None if cores.gap else cores.low,
        loop_power=None if loop is None else loop.power,
        loop_speed=None if loop is None else loop.speed,
    )
    return None if reached == ReachedLoad() else reached


def _least(known: ReachedLoad | None, new: ReachedLoad | None) -> ReachedLoad | None:
    """The least of both, of each what one alone knows."""
    if known is None or new is None:
        return known or new
    names = (one.name for one in fields(ReachedLoad))
    pairs = {name: (getattr(known, name), getattr(new, name)) for name in names}
    both = {name: [one for one in pair if one is not None] for name, pair in pairs.items()}
    return ReachedLoad(**{name: min(values, default=None) for name, values in both.items()})


def grown(
    known: Iterable[QualifiedRecord], new: Iterable[QualifiedRecord]
) -> tuple[QualifiedRecord, ...]:
    """The known records, joined with the new ones that are of the same key."""
    records = {record_key(one): one for one in known}
    for one in new:
        key = record_key(one)
        records[key] = joined(records[key], one) if key in records else one
    return tuple(records.values())


def record_key(record: QualifiedRecord) -> tuple[object, ...]:
    """What a record of repeats is of; two of one key are joined."""
    return (record.workload, record.version, record.model, *sorted(record.stack.items()))


def joined(known: QualifiedRecord, new: QualifiedRecord) -> QualifiedRecord:
    """Two records of one key; what a source has shown already counts once."""
    if set(new.sources) <= set(known.sources):
        return known
    has_form = "no_deterministic_form" not in (known.form, new.form)
    return QualifiedRecord(
        workload=known.workload,
        version=known.version,
        model=known.model,
        stack=known.stack,
        form="deterministic" if has_form else "no_deterministic_form",
        num_clean=known.num_clean + new.num_clean if has_form else 0,
        devices=_together(known.devices, new.devices),
        operators=_together(known.operators, new.operators),
        sources=_together(known.sources, new.sources),
        load=_least(known.load, new.load),
        recorded_utc=max(known.recorded_utc, new.recorded_utc),
        bench_version=new.bench_version,
    )


def _together(known: Iterable[str], new: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *new)))


def merged(known: Qualified, new: Qualified) -> Qualified:
    """Records taken together: repeats add up, and of a case that both saw the newer one stays.

    Rows of which no launch was made are left out. Processes that waited are of one source once.
    """
    cases = {case_key(one): one for one in known.observed}
    cases |= {case_key(one): one for one in new.observed if one.outcomes}
    idle = {(one.model, one.source): one for one in (*known.idle, *new.idle)}
    return Qualified(
        record=grown(known.record, new.record),
        observed=tuple(cases.values()),
        idle=tuple(idle.values()),
    )


def case_key(one: ObservedCase) -> tuple[object, ...]:
    """What an observed case is of."""
    return (one.case, one.size, one.version, one.model, *sorted(one.stack.items()))


# ------------------------------------------------------------------ one row


def not_made(
    name: str,
    item: SuiteCase,
    *,
    version: int,
    model: str,
    stack: Mapping[str, str],
    device: str,
    reason: str,
) -> ObservedCase:
    """What stands for a row that has no place on this node."""
    return ObservedCase(
        case=name,
        workload=item.workload,
        version=version,
        size="small" if item.small else "full",
        parameters=item.parameters,
        model=model,
        stack=stack,
        devices=(device,),
        num_seeds=0,
        outcomes={},
        fault=reason,
        checks=(),
        same_by_default=None,
        num_default=0,
        same_when_deterministic=None,
        num_deterministic=0,
        step_seconds=None,
        num_steps=0,
        units_per_second=None,
        unit="",
        flops_per_second=None,
        host_memory_bytes=None,
        device_memory_bytes=None,
        power_watts=None,
        fresh_ratio=None,
        launch_seconds=None,
        repeat_seconds=None,
        disturbed="",
        sources=(),
        recorded_utc="",
        bench_version="",
    )


def _observed(row: Sequence[Seen]) -> ObservedCase:
    first, last = row[0], row[-1]
    case, device = first.case, _device(first)
    launches = [launch for one in row for launch in one.launches]
    forked = [launch for one in row if one.stage != PAIRS for launch in one.launches]
    control = _fresh_control(row)
    seconds, num_steps = _step_seconds(forked or launches)
    by_default, num_default = _default_bits(row)
    repeats = [repeats_of(one.evidence) for one in row if one.evidence.repeats]
    rates = _rates(case, seconds)
    return ObservedCase(
        case=row_of(case.id)[0],
        workload=case.workload,
        version=case.version,
        size="small" if case.small else "full",
        parameters=case.parameters,
        model=device.model,
        stack=stack(first.system, device, case.libraries),
        devices=tuple(dict.fromkeys(device_digest(one.system, _device(one)) for one in row)),
        num_seeds=len({row_of(one.case.id)[1] for one in row if one.evidence.checks}),
        outcomes=dict(sorted(Counter(_outcome(launch) for launch in launches).items())),
        fault=_fault(case, launches),
        checks=_checks(checked for one in row for checked in one.evidence.checks),
        same_by_default=by_default,
        num_default=num_default,
        same_when_deterministic=_same(repeats),
        num_deterministic=max((len(one.first) for one in repeats), default=0),
        step_seconds=seconds,
        num_steps=num_steps,
        units_per_second=rates[0],
        unit=case.work.unit,
        flops_per_second=rates[1],
        host_memory_bytes=_host_memory(launches),
        device_memory_bytes=_reading(launches, "memory_used_bytes"),
        power_watts=_power(launches),
        fresh_ratio=None if control is None else _ratio(control),
        launch_seconds=_wall(launch for launch in launches if launch.number >= 0),
        repeat_seconds=_wall(launch for launch in launches if launch.number < 0),
        disturbed=next(filter(None, (disturbance(one.evidence, one.system) for one in row)), ""),
        sources=tuple(dict.fromkeys(f"{one.stage}, journal {one.journal}" for one in row)),
        recorded_utc=last.created_utc,
        bench_version=last.bench_version,
        stage_seconds=_stage_seconds(launches),
        fresh_control=control,
    )


def _fresh_control(row: Sequence[Seen]) -> FreshControl | None:
    """The pairs of which both launches were timed, one forked and one fresh; None without any."""
    pairs: dict[tuple[str, str, int], dict[str, float]] = {}
    for one in row:
        for launch in one.launches if one.stage == PAIRS else ():
            seconds, _ = _step_seconds([launch])
            if seconds and launch.mode is not None:
                place = (one.journal, one.case.device, (launch.number + 1) // 2)
                pairs.setdefault(place, {})[launch.mode] = seconds
    whole = tuple(LaunchPair(**one) for one in pairs.values() if len(one) > 1)
    return FreshControl(vendor=_device(row[0]).vendor, pairs=whole) if whole else None


def _stage_seconds(launches: Iterable[LaunchEvidence]) -> Mapping[str, float]:
    """Seconds of each stage over all launches that ran; those of before are not measured."""
    passed = [
        budget.launch_stages(launch.stage_times, launch.ended.wall_ns)
        for launch in launches
        if launch.ended is not None
    ]
    seconds = [{part: one * 1e-9 for part, one in stages.items()} for stages in passed]
    return budget.together(seconds).seconds


def _outcome(launch: LaunchEvidence) -> str:
    assert launch.ended is not None  # noqa: S101 - only those that ended are counted
    return launch.ended.outcome


def _fault(case: Case, launches: Sequence[LaunchEvidence]) -> str:
    """The last launch that did not complete, in a sentence; or why none could be made."""
    for launch in reversed(launches):
        ended = launch.ended
        if ended is not None and ended.outcome != "completed":
            named = ": ".join(filter(None, (ended.reason, ended.detail)))
            return f"{launch.id} {ended.outcome} ({named})"[:300]
    return case.unsupported or case.software


def _checks(checks: Iterable[Checked]) -> tuple[ObservedCheck, ...]:
    by_name: dict[str, list[Checked]] = {}
    for one in checks:
        by_name.setdefault(one.check.name, []).append(one)
    return tuple(_check(name, made) for name, made in by_name.items())


def _check(name: str, made: Sequence[Checked]) -> ObservedCheck:
    worst = max(made, key=lambda one: _share(one.check.error, one.check.bound)).check
    return ObservedCheck(
        name=name,
        error=worst.error,
        bound=worst.bound,
        phases=tuple(dict.fromkeys(one.phase for one in made)),
        num_made=len(made),
        num_outside=sum(not one.check.is_within for one in made),
    )


def _share(error: float, bound: float) -> float:
    if math.isnan(error) or math.isnan(bound):
        return math.inf
    if bound > 0.0:
        return error / bound
    return 0.0 if error == 0.0 else math.inf


def _default_bits(row: Sequence[Seen]) -> tuple[bool | None, int]:
    """Whether processes of one seed gave the same bits in the default mode, and how many."""
    digests: dict[str, list[str]] = {}
    for one in row:
        name = f"{row_of(one.case.id)}{one.case.device}"
        for launch in one.launches:
            first = [each.digest for each in launch.digested if each.phase == "first"]
            if first:
                digests.setdefault(name, []).append("".join(first))
    several = [each for each in digests.values() if len(each) > 1]
    if not several:
        return None, 0
    return all(len(set(each)) == 1 for each in several), max(map(len, several))


def _same(repeats: Sequence[Repeats]) -> bool | None:
    several = [one for one in repeats if len(one.first) > 1 or one.examined]
    return not any(one.has_mismatch for one in several) if several else None


def _step_seconds(launches: Iterable[LaunchEvidence]) -> tuple[float | None, int]:
    """Median over launches of their median step, and the number of steps."""
    timed = [one.step_seconds("steps") for one in launches if one.is_completed and one.blocks]
    if not timed:
        return None, 0
    return float(median(float(np.median(one)) for one in timed)), sum(map(len, timed))


def _rates(case: Case, seconds: float | None) -> tuple[float | None, float | None]:
    if not seconds:
        return None, None
    flops = case.work.flops
    return case.work.units / seconds, None if flops is None else flops / seconds


def _largest(values: Iterable[float | None]) -> int | None:
    known = [value for value in values if value is not None]
    return int(max(known)) if known else None


def _host_memory(launches: Iterable[LaunchEvidence]) -> int | None:
    return _largest(one.ended.peak_memory_bytes for one in launches if one.ended is not None)


def _reading(launches: Iterable[LaunchEvidence], name: str) -> int | None:
    return _largest(one.highs.get(name) for launch in launches for one in launch.readings)


def _power(launches: Iterable[LaunchEvidence]) -> float | None:
    """The largest reading of power: a short row is seldom read while it computes."""
    values = [one.highs.get("power_watts") for launch in launches for one in launch.readings]
    return max((float(value) for value in values if value is not None), default=None)


def _wall(launches: Iterable[LaunchEvidence]) -> float | None:
    walls = [one.ended.wall_ns * 1e-9 for one in launches if one.ended and one.is_completed]
    return float(median(walls)) if walls else None


def _ratio(control: FreshControl) -> float | None:
    ratio = paired_ratio(control.seconds)
    return None if ratio is None else ratio.ratio


def _device(seen: Seen) -> Device:
    return next(one for one in seen.system.identity.devices if one.id == seen.case.device)


def _model(seen: Seen) -> str:
    return _device(seen).model
