"""Which cases of two bundles are the same thing, and what else is another in them.

Devices are paired by their serials, so that a node whose devices were counted in another order
is still compared device by device. What differs in workload version, parameters, data or way of
launching is refused with its reason: a ratio of two such times means nothing. A case that one
side has no time for is refused too, but that leaves the comparison open. Nothing is computed here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from typing import Literal

from appliance.challenge.window import inputs_seed
from appliance.errors import EvidenceError, UsageError
from appliance.evidence.baseline_key import LIBRARIES, SYSTEM_NAMES, device_name, suite_id
from appliance.evidence.determinism import answer_of
from appliance.evidence.journal_index import index_of
from appliance.evidence.launches import CaseEvidence
from appliance.records.json import Number, Parameters, Record, sha256, to_json
from appliance.records.plan import Case, Plan
from appliance.records.system import Identity, identity_differences
from appliance.records.verdict import (
    CaseResult,
    Clock,
    Reason,
    Ruling,
    RulingWord,
    Verdict,
    VerdictWord,
)
from appliance.storage.bundle import STATEMENT, Bundle

TOLERATED_INTERRUPTIONS = 1
DAY = 86_400.0
FIRMWARE = re.compile(r"firmware|bios|microcode|driver", re.IGNORECASE)

Sameness = Literal["same", "other", "unknown"]
Topic = Literal["device", "host", "firmware", "software", "plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDevice(Record):
    """A device and the one of the reference that it is compared with; None where there is none."""

    id: str
    name: str
    model: str
    reference_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedBundle(Record):
    """One of the bundles. `days` are from the reference's plan to this one's.

    `sameness` says whether its devices are the reference's, by serials or the system's own name.
    """

    label: str
    path: str
    run_id: str
    created_utc: str
    bench_version: str
    suite: str
    suite_version: int
    criteria: str
    signer: str
    role: str
    is_development: bool
    statement_sha256: str
    verdict: VerdictWord
    devices: tuple[PairedDevice, ...]
    sameness: Sameness
    days: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCase(Record):
    """A case that is not compared, and why.

    "not_comparable": the two are different things. "no_timing": they are the same, but one side
    has no time to compare, which leaves the comparison open.
    """

    label: str
    case: str
    kind: Literal["not_comparable", "no_timing"]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RulingChange(Record):
    """A ruling that is another in the bundle `label`; None where there is none."""

    label: str
    criterion: str
    case: str
    required: bool
    reference: RulingWord | None
    reference_reason: Reason
    other: RulingWord | None
    other_reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Record):
    """One thing that is another in the bundle `label` than in the reference."""

    label: str
    topic: Topic
    sentence: str


# ------------------------------------------------------------------ what is compared


@dataclass(frozen=True, kw_only=True)
class Side:
    """A verified bundle with the label that it gets, and its records by name."""

    label: str
    path: str
    bundle: Bundle

    @cached_property
    def evidence(self) -> Mapping[str, CaseEvidence]:
        """What its journal says of each case."""
        return index_of(self.plan, self.bundle.lines).cases

    @property
    def plan(self) -> Plan:
        return self.bundle.plan

    @property
    def inputs_seed(self) -> str:
        """The seed from which all inputs were made."""
        return inputs_seed(self.plan, self.bundle.lines)

    @property
    def identity(self) -> Identity:
        return self.bundle.system.identity

    @property
    def verdict(self) -> Verdict:
        if self.bundle.verdict is None:
            raise EvidenceError(f"{self.path} says not what was decided: verify it")
        return self.bundle.verdict

    def results(self) -> dict[str, CaseResult]:
        return {result.case: result for result in self.verdict.cases}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A case and its counterpart; `no_timing` says why their times are not compared."""

    reference: Case
    other: Case
    reference_result: CaseResult
    other_result: CaseResult
    no_timing: str = ""

    @property
    def is_timed(self) -> bool:
        return self.reference.is_timed and not self.no_timing


def check_sides(sides: Sequence[Side]) -> None:
    if len(sides) < 2:  # noqa: PLR2004 - a comparison is of two
        raise UsageError("one bundle is nothing to compare: name two or more")
    names: dict[str, str] = {}
    for side in sides:
        if side.plan.injectors:
            raise UsageError(
                f"{side.path} injects faults on purpose ({', '.join(side.plan.injectors)}), so "
                "its times are of no device: leave it out"
            )
        if side.plan.rerun_of:
            raise UsageError(
                f"{side.path} repeats one launch of another run ({side.plan.rerun_of}): compare "
                "whole runs"
            )
        earlier = names.setdefault(side.plan.run_id, side.path)
        if earlier != side.path or [one.path for one in sides].count(side.path) > 1:
            raise UsageError(
                f"run {side.plan.run_id} is named twice ({earlier}, {side.path}): compare it with "
                "another"
            )


# ------------------------------------------------------------------ pairs


def paired_devices(reference: Side, other: Side) -> Mapping[str, str]:
    """The reference's device for each of `other`: by serial, else by id, else the next alike."""
    ours, theirs = reference.identity.devices, other.identity.devices
    serials = {device.serial: device.id for device in ours if device.serial}
    counterparts = {
        device.id: serials[device.serial]
        for device in theirs
        if device.serial is not None and device.serial in serials
    }
    free = {device.id: device for device in ours if device.id not in counterparts.values()}
    left = [device for device in theirs if device.id not in counterparts]
    for device in [one for one in left if one.id in free]:
        counterparts[device.id] = free.pop(device.id).id
    for device in [one for one in left if one.id not in counterparts]:
        alike = next((one for one in free.values() if one.model == device.model), None)
        if alike is not None:
            counterparts[device.id] = free.pop(alike.id).id
    return counterparts


def _renamed(case: Case, devices: Mapping[str, str]) -> str:
    """What the reference calls this case; a name that it has not where it lacks the device."""
    return f"{suite_id(case)}@{devices.get(case.device, f'no {case.device}')}"


def pairs_of(
    reference: Side, other: Side, devices: Mapping[str, str]
) -> tuple[list[Pair], list[RefusedCase]]:
    """Cases that are the same thing in both, in the reference's order, and what is refused."""
    theirs = {_renamed(case, devices): case for case in other.plan.cases}
    our_results, their_results = reference.results(), other.results()
    pairs: list[Pair] = []
    refused: list[RefusedCase] = []
    for case in reference.plan.cases:
        counterpart = theirs.pop(case.id, None)
        if counterpart is None:
            refused.append(_refused(other, case.id, f"only {reference.label} has it"))
            continue
        pair = Pair(
            reference=case,
            other=counterpart,
            reference_result=our_results[case.id],
            other_result=their_results[counterpart.id],
        )
        why = "; ".join(_different(pair, reference.label, other.label))
        if why:
            refused.append(_refused(other, case.id, why))
            continue
        why = _no_timing(reference, other, pair) if case.is_timed else ""
        if why:
            refused.append(replace(_refused(other, case.id, why), kind="no_timing"))
        pairs.append(replace(pair, no_timing=why))
    for name, case in theirs.items():
        why = f"{reference.label} has no device like {case.device} of {other.label}"
        is_paired = case.device in devices
        refused.append(
            _refused(other, name, f"only {other.label} has it")
            if is_paired
            else _refused(other, case.id, why)
        )
    return pairs, refused


def _refused(side: Side, case: str, reason: str) -> RefusedCase:
    return RefusedCase(label=side.label, case=case, kind="not_comparable", reason=reason)


def _different(pair: Pair, ours: str, theirs: str) -> Iterator[str]:
    """Clauses on why the two are different things; none where they are the same."""
    first, second = pair.reference, pair.other
    if first.injector or second.injector:
        yield f"it injects {first.injector or second.injector} on purpose"
    if first.workload != second.workload:
        yield f"workload {first.workload} in {ours}, {second.workload} in {theirs}"
    elif first.version != second.version:
        version = f"{first.workload} version {first.version} in {ours}"
        yield f"{version}, version {second.version} in {theirs}"
    if first.data_pattern != second.data_pattern:
        yield f"its data are {first.data_pattern} in {ours}, {second.data_pattern} in {theirs}"
    for name in sorted({*first.parameters, *second.parameters}):
        values = _value(first.parameters, name), _value(second.parameters, name)
        if values[0] != values[1]:
            yield f"{name} is {values[0]} in {ours}, {values[1]} in {theirs}"
    if (first.steps, first.is_timed) != (second.steps, second.is_timed):
        yield f"it is made of other steps in {ours} than in {theirs}"
    modes = _modes(pair.reference_result), _modes(pair.other_result)
    if all(modes) and (modes[0] != modes[1] or len(modes[0]) > 1):
        yield f"its launches are {_either(modes[0])} in {ours}, {_either(modes[1])} in {theirs}"


def _value(parameters: Parameters, name: str) -> str:
    """A parameter as canonical JSON writes it, so that 1.0 is 1 and true is neither."""
    if name not in parameters:
        return "not set"
    return to_json({name: parameters[name]}, Parameters).decode().partition(":")[2][:-1]


def _modes(result: CaseResult) -> frozenset[str]:
    """How its timed launches were made, of those that have a time."""
    return frozenset(
        launch.mode
        for launch in result.launches
        if launch.mode is not None and launch.log_seconds is not None
    )


def _either(modes: frozenset[str]) -> str:
    return " and ".join(sorted(modes))


def _no_timing(reference: Side, other: Side, pair: Pair) -> str:
    """Why one of the two has no time that may be compared, or nothing."""
    for side, result in ((reference, pair.reference_result), (other, pair.other_result)):
        if result.withheld:
            return f"{side.label}: {result.withheld}"
        was_cut = any(launch.outcome == "interrupted" for launch in result.launches)
        if was_cut and side.verdict.num_interruptions > TOLERATED_INTERRUPTIONS:
            times = side.verdict.num_interruptions
            return f"{side.label} was interrupted {times} times, in this case too"
        values = launch_times(result, "steps") + launch_times(result, "wall")
        if not values:
            return f"{side.label} has no timed launch of it"
        if not all(math.isfinite(value) for value in values):
            return f"{side.label} has a step time that is not finite"
    return ""


def launch_times(result: CaseResult, clock: Clock) -> list[float]:
    """ln(seconds) of a step of the timed launches by this clock, in their order."""
    times = (launch.location(clock) for launch in result.launches)
    return [time for time in times if time is not None]


def common_clock(results: Iterable[CaseResult]) -> Clock:
    """The wall where one of the cases was judged by it: like is compared with like."""
    clocks = (result.clocks for result in results)
    return "wall" if any(one is not None and one.judged == "wall" for one in clocks) else "steps"


# ------------------------------------------------------------------ the same bits


@dataclass(frozen=True, kw_only=True)
class Bits:
    """Whether first outputs are the same bit for bit; `are_same` None: they need not be."""

    are_same: bool | None
    note: str


def answers(side: Side) -> Mapping[str, str]:
    """All digests of each case as one text; empty where there is none or launches differ."""
    return {name: answer_of(evidence) for name, evidence in side.evidence.items()}


def bits_of(
    reference: Side, other: Side, pair: Pair, ours: Mapping[str, str], theirs: Mapping[str, str]
) -> Bits:
    """Of a case that both have; `ours` and `theirs` are the `answers` of the two sides."""
    why = next(_other_bits(reference, other, pair), "")
    first, second = ours[pair.reference.id], theirs[pair.other.id]
    if not why and not (first and second):
        label = other.label if first else reference.label
        why = f"{label} has no digest, or not the same one in all of its launches"
    if why:
        return Bits(are_same=None, note=f"first outputs are not comparable bit by bit: {why}")
    if first == second:
        return Bits(are_same=True, note="first outputs are the same, bit for bit")
    return Bits(
        are_same=False,
        note=f"first outputs differ between {reference.label} and {other.label}, though inputs, "
        "model and libraries are the same: run a third node of this model to see which is wrong",
    )


def _other_bits(reference: Side, other: Side, pair: Pair) -> Iterator[str]:
    """Why two sound nodes may give other bits; nothing where they must give the same."""
    if reference.inputs_seed != other.inputs_seed:
        yield "the seeds differ, and so do the inputs"
    if not (pair.reference.is_repeatable and pair.other.is_repeatable):
        yield f"{pair.reference.workload} is not bitwise reproducible by design"
    models = _model(reference, pair.reference), _model(other, pair.other)
    if None in models or models[0] != models[1]:
        yield f"the device is {models[0]} in {reference.label}, {models[1]} in {other.label}"
    for name in LIBRARIES:
        values = [_software(side, name) for side in (reference, other)]
        if values[0] != values[1]:
            yield f"{name} is {values[0]} in {reference.label}, {values[1]} in {other.label}"


def _software(side: Side, name: str) -> str:
    fact = side.identity.software.get(name)
    return "not reported" if fact is None or fact.value is None else str(fact.value)


def _model(side: Side, case: Case) -> str | None:
    return next((one.model for one in side.identity.devices if one.id == case.device), None)


# ------------------------------------------------------------------ what is another


def compared_bundles(
    reference: Side, others: Sequence[Side], paired: Mapping[str, Mapping[str, str]]
) -> tuple[ComparedBundle, ...]:
    own = {device.id: device.id for device in reference.identity.devices}
    return tuple(
        _compared_bundle(reference, side, paired.get(side.label, own))
        for side in (reference, *others)
    )


def _compared_bundle(reference: Side, side: Side, devices: Mapping[str, str]) -> ComparedBundle:
    plan, signer = side.plan, side.bundle.signer
    if signer is None:
        raise EvidenceError(f"{side.path} says not who signed it: verify it")
    system = side.bundle.system
    return ComparedBundle(
        label=side.label,
        path=side.path,
        run_id=plan.run_id,
        created_utc=plan.created_utc,
        bench_version=plan.bench_version,
        suite=plan.suite,
        suite_version=plan.suite_version,
        criteria=plan.criteria,
        signer=signer.subject,
        role=signer.role,
        is_development=signer.is_development,
        statement_sha256=sha256(side.bundle.files[STATEMENT]),
        verdict=side.verdict.verdict,
        devices=tuple(
            PairedDevice(
                id=device.id,
                name=device_name(system, device.id),
                model=device.model,
                reference_id=devices.get(device.id),
            )
            for device in side.identity.devices
        ),
        sameness="same" if side is reference else _sameness(reference, side),
        days=_days(reference.plan.created_utc, plan.created_utc),
    )


def _sameness(reference: Side, other: Side) -> Sameness:
    """Whether these are the same devices; unknown where neither they nor their system is named."""
    if not all(_is_named(side) for side in (reference, other)):
        return "unknown"
    ours, theirs = (
        sorted(device_name(side.bundle.system, device.id) for device in side.identity.devices)
        for side in (reference, other)
    )
    return "same" if ours == theirs else "other"


def _is_named(side: Side) -> bool:
    facts = (side.identity.host.get(name) for name in SYSTEM_NAMES)
    has_name = any(fact is not None and fact.value for fact in facts)
    return has_name or all(device.serial for device in side.identity.devices)


def _days(first: str, second: str) -> float:
    """Days between two moments; NaN where one is none."""
    try:
        span = datetime.fromisoformat(second) - datetime.fromisoformat(first)
    except (TypeError, ValueError):
        return math.nan
    return span.total_seconds() / DAY


def differences(reference: Side, side: Side, devices: Mapping[str, str]) -> Iterator[Difference]:
    """Everything that is another: plan, then machine and software as the probe read them."""

    def difference(topic: Topic, sentence: str) -> Difference:
        return Difference(label=side.label, topic=topic, sentence=sentence)

    for sentence in _plan_differences(reference.plan, side.plan):
        yield difference("plan", sentence)
    for device, ours in devices.items():
        if device != ours:
            yield difference("device", f"{device} is compared with {ours} of {reference.label}")
    renamed = replace(
        side.identity,
        devices=tuple(
            replace(device, id=devices.get(device.id, f"{device.id} of {side.label}"))
            for device in side.identity.devices
        ),
    )
    for sentence in identity_differences(reference.identity, renamed):
        yield difference(_topic(sentence), sentence)


def _topic(sentence: str) -> Topic:
    label = sentence.partition(" was ")[0]
    if FIRMWARE.search(label):
        return "firmware"
    if label.startswith("software: "):
        return "software"
    parts = ("host: ", "memory module ", "disk ", "network interface ")
    return "host" if label.startswith(parts) else "device"


def _plan_differences(first: Plan, second: Plan) -> Iterator[str]:
    """What was planned another way, sentence by sentence."""
    settings = (
        ("suite", f"{first.suite}, version {first.suite_version}", second.suite),
        ("criteria", first.criteria, second.criteria),
        ("bench", first.bench_version, second.bench_version),
    )
    theirs = {"suite": f"{second.suite}, version {second.suite_version}"}
    for name, ours, other in settings:
        now = theirs.get(name, other)
        if ours != now:
            yield f"{name} was {ours} and is {now}"
    for name in sorted({*first.digests, *second.digests} - {"identity"}):
        if first.digests.get(name) != second.digests.get(name):
            yield f"the {name} file is another one"
    if first.seed != second.seed:
        yield "the seed is another one, and so are inputs and order"
    for item in fields(first.protocol):
        ours, now = getattr(first.protocol, item.name), getattr(second.protocol, item.name)
        if ours != now:
            yield f"protocol: {item.name} was {ours} and is {now}"


def ruling_changes(reference: Side, side: Side, pairs: Sequence[Pair]) -> Iterator[RulingChange]:
    """Rulings of the common cases, and of the node, that are not the same."""
    names = {pair.other.id: pair.reference.id for pair in pairs}
    ours = _rulings(reference.verdict, {name: name for name in names.values()})
    theirs = _rulings(side.verdict, names)
    for key in dict.fromkeys([*ours, *theirs]):
        first, second = ours.get(key), theirs.get(key)
        known = first or second
        words = [None if one is None else (one.ruling, one.reason) for one in (first, second)]
        if known is None or words[0] == words[1]:
            continue
        yield RulingChange(
            label=side.label,
            criterion=key[0],
            case=key[1],
            required=any(one.required for one in (first, second) if one is not None),
            reference=None if first is None else first.ruling,
            reference_reason="" if first is None else first.reason,
            other=None if second is None else second.ruling,
            other_reason="" if second is None else second.reason,
        )


def _rulings(verdict: Verdict, names: Mapping[str, str]) -> dict[tuple[str, str], Ruling]:
    """Rulings by criterion and the reference's name of the case; those of other cases left out."""
    return {
        (ruling.criterion, names.get(ruling.case, "")): ruling
        for ruling in verdict.rulings
        if not ruling.case or ruling.case in names
    }
