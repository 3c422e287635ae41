"""The verb `run --from`: one launch of a bundle made again, and both laid side by side.

Who disputes a result repeats it: the same case, seed, inputs, parameters and protocol, as many
steps, with its untimed launch before it as then, on whatever machine this is. What is another here
is listed first, because it may be the reason. The folder is evidence like that of any run, but one
launch accepts nothing: its plan names what it repeats, and the judge goes by that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from appliance.errors import EvidenceError, UsageError
from appliance.judging.verdict import judge
from appliance.planning.criterion_scope import planned_bounds
from appliance.probe import node, redaction
from appliance.readiness.out_folder import check_writable
from appliance.records.journal import AttemptBegun, Line, RunEnded
from appliance.records.json import Parameters, sha256, to_json
from appliance.records.plan import Case, Launch, Plan
from appliance.records.request import Answer, CaseRequest, Refused
from appliance.records.system import Device, System, identity_differences
from appliance.records.verdict import CaseResult, Verdict
from appliance.records.workload import Resolved
from appliance.runner import describing, execution
from appliance.storage import bundle, limits
from appliance.storage.bundle import Bundle
from appliance.storage.toml_file import did_you_mean
from appliance.vendors.base import Vendor
from appliance.verbs import datasets
from appliance.verbs.preparation import Node, begin, redacted_node
from appliance.verbs.rerun_diff import (
    LaunchEvidence,
    Rerun,
    check_pairs,
    disagreements,
    inputs,
    launch_differences,
    launch_evidence,
    outcome_pair,
    times,
)
from appliance.verbs.run_begin import new_run_id, tidy, work_folder
from appliance.verification import launch_checks, run_checks, verify
from appliance.verification.terms import Terms
from appliance.version import VERSION

NUM_THREADS = "num_threads"


# ------------------------------------------------------------------ the request


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person disputes. `case` may leave its device out where only one has it."""

    source: Path
    case: str
    launch: int
    out: Path = Path("out")
    data: Path | None = None
    scratch: Path | None = None


@dataclass(frozen=True, kw_only=True)
class _Dispute:
    """The disputed launch as its bundle reports it."""

    source: Bundle
    case: Case
    launch: Launch
    evidence: Mapping[int, LaunchEvidence]


@dataclass(frozen=True, kw_only=True)
class _Here:
    """This machine, and the device that takes the part of the one of then."""

    node: Node
    device: Device
    case: Case
    data: Path | None
    scratch: Path | None
    out: Path


@dataclass(frozen=True, kw_only=True)
class _Repeated:
    """The launches as they were made now: their plan, folder, verdict and journal."""

    plan: Plan
    folder: Path
    verdict: Verdict
    lines: tuple[Line, ...]


def rerun(request: Request, observer: execution.Observer) -> Rerun:
    """Make the disputed launch again and compare it; leaves an unsigned folder.

    Raises EvidenceError for a bundle that is not sound, UsageError for a case or launch that it
    does not have and for a workload that is another here.
    """
    check_writable(request.out)
    dispute = _dispute(request)
    here = _here(dispute, request)
    plan = _plan(dispute, here)
    repeated = _make(dispute, here, plan, observer)
    return _compared(dispute, here, repeated)


# ------------------------------------------------------------------ the bundle


def _dispute(request: Request) -> _Dispute:
    source = _sound(request.source)
    case = _case(source.plan, request.case)
    numbers = {
        item.number: item
        for item in source.plan.launches
        if item.case == case.id and not item.is_repeat
    }
    if request.launch not in numbers:
        raise UsageError(
            f"{case.id} has no launch {request.launch}: name one of {min(numbers)} to "
            f"{max(numbers)} with --launch"
        )
    evidence = _evidence(
        source.lines, {number: numbers[number].id for number in sorted({0, request.launch})}
    )
    if request.launch not in evidence:
        raise UsageError(
            f"launch {request.launch} of {case.id} was planned and not made, so there is nothing "
            "to repeat: name one that was"
        )
    return _Dispute(source=source, case=case, launch=numbers[request.launch], evidence=evidence)


def _sound(path: Path) -> Bundle:
    """A bundle whose journal follows from its plan; it need not be signed."""
    if path.is_file():
        raise UsageError(f"{path} is a file: name the folder of its run, out/<run id>")
    if os.path.lexists(path / bundle.REPORT):
        # Whoever signed it: what is disputed may be a stranger's, and is read to its end.
        terms = Terms(allow_development=True, unknown_journal=limits.TOTAL)
        verification, files = verify.read_confined(path, terms)
        faults = [
            line for line in verification.checks if line.status == "fail" and line.name != "signer"
        ]
        if faults:
            raise EvidenceError(f"{path} is not sound: {faults[0].sentence}")
        return bundle.read_files(files, folder=path)
    files = bundle.files_of(path, complete=False)
    bundle.rehearse(path, files, lambda: _check_unsigned(path, files))
    return bundle.read_files(files, complete=False, folder=path)


def _check_unsigned(path: Path, files: Mapping[str, bytes]) -> None:
    """UsageError for a run that repeats another, EvidenceError for what no run leaves."""
    source = bundle.read_files(files, complete=False, folder=path)
    plan = source.plan
    if plan.rerun_of:
        raise UsageError(f"{path} repeats {plan.rerun_of} itself: name the folder of that run")
    digests = {name: sha256(data) for name, data in files.items()}
    run_checks.check_vendors(source.system)
    run_checks.check_plan(plan, source.system, digests)
    run_checks.check_bounds(plan, source.criteria)
    run_checks.check_conduct(plan, source.lines, digests)
    launch_checks.check_launches(plan, source.lines)


def _case(plan: Plan, name: str) -> Case:
    """The case of that name, with its device or, where one device has it, without."""
    cases = [case for case in plan.cases if name in (case.id, case.id.partition("@")[0])]
    if not cases:
        known = [name for case in plan.cases for name in (case.id, case.id.partition("@")[0])]
        raise UsageError(f'run {plan.run_id} has no case "{name}"{did_you_mean(name, known)}')
    if len(cases) > 1:
        names = ", ".join(case.id for case in cases)
        raise UsageError(f'"{name}" was run on several devices: name one of {names}')
    return cases[0]


# ------------------------------------------------------------------ this machine


def _here(dispute: _Dispute, request: Request) -> _Here:
    """The device to use; UsageError if this machine or this bench cannot repeat the case."""
    devices = {device.id: device for device in dispute.source.system.identity.devices}
    then = devices[dispute.case.device]
    vendor = node.present(then.vendor)
    case = dispute.case
    answer = describing.describe((_request(case),))
    _check_workload(dispute.source.plan, case, answer)
    place = datasets.folder(request.data)
    _check_data(case, answer, place)
    probed = node.probe((vendor,), software=describing.software())
    device = _device(then, probed.identity.devices)
    _check_features(case, answer, vendor, device)
    moved = replace(case, id=f"{case.id.partition('@')[0]}@{device.id}", device=device.id)
    here = redacted_node(vendor, probed, _salt(dispute.source))
    return _Here(
        node=here,
        device=device,
        case=moved,
        data=place,
        scratch=request.scratch,
        out=request.out,
    )


def _salt(source: Bundle) -> str:
    """What is redacted stays so when it is repeated, under the same salt if that is available."""
    if not source.plan.redacted:
        return ""
    folder = source.folder
    if folder is None or not redaction.salt_path(folder).exists():
        return redaction.draw()
    return redaction.of_run(folder, source.plan.redacted)


def _request(case: Case) -> CaseRequest:
    return CaseRequest(workload=case.workload, small=case.small, parameters=case.parameters)


def _check_workload(plan: Plan, case: Case, answer: Answer) -> None:
    """UsageError unless the workload here is the one of then, with all of its parameters."""
    then = f"run {plan.run_id} was made by bench {plan.bench_version}, this is {VERSION}"
    described = next((item for item in answer.descriptions if item.name == case.workload), None)
    if described is None:
        raise UsageError(f'this bench has no workload "{case.workload}" ({then}): use that one')
    if described.version != case.version:
        raise UsageError(
            f"{case.workload} was version {case.version} then and is {described.version} here "
            f"({then}): use that one"
        )
    resolved = answer.resolved[0]
    if not isinstance(resolved, Resolved):
        reason = resolved.error if isinstance(resolved, Refused) else resolved.lack
        raise UsageError(f"{case.id} cannot be made here: {reason} ({then})")
    if to_json(resolved.parameters, Parameters) != to_json(case.parameters, Parameters):
        raise UsageError(f"{case.workload} has other parameters here ({then}): use that one")


def _check_data(case: Case, answer: Answer, place: Path | None) -> None:
    described = next(item for item in answer.descriptions if item.name == case.workload)
    missing = (
        sorted(set(described.data) - datasets.available_datasets(place)) if described.data else []
    )
    if missing:
        raise UsageError(
            f"{case.id} needs the data set {missing[0]}, which is not available: "
            f"`bench data fetch {missing[0]} --to FOLDER`, then --data FOLDER"
        )


def _check_features(case: Case, answer: Answer, vendor: Vendor, device: Device) -> None:
    described = next(item for item in answer.descriptions if item.name == case.workload)
    lacks = sorted(set(described.needs) - vendor.features(device))
    if lacks:
        raise UsageError(f"{case.id} cannot be made here: {device.id} has no {', '.join(lacks)}")


def _device(then: Device, here: Sequence[Device]) -> Device:
    """The same device by its serial, else the one of the same id."""
    by_serial = [device for device in here if then.serial and device.serial == then.serial]
    by_id = [device for device in here if device.id == then.id]
    for device in (*by_serial, *by_id):
        return device
    names = ", ".join(device.id for device in here)
    raise UsageError(f"this machine has no device {then.id}: it has {names}")


# ------------------------------------------------------------------ the run


def _plan(dispute: _Dispute, here: _Here) -> Plan:
    """The plan of then with nothing in it but the untimed launch and the disputed one."""
    then, number = dispute.source.plan, dispute.launch.number
    checked = None if here.case.checked_launch is None or number == 0 else number
    case = replace(here.case, checked_launch=checked)
    launches = tuple(
        Launch(id=f"{case.id}/{one}", case=case.id, number=one, is_timed=one > 0)
        for one in sorted({0, number})
    )
    seconds = case.reference_seconds + (case.expected_seconds if number else 0.0)
    num_limits, bounds = planned_bounds(
        dispute.source.criteria,
        (case,),
        then.protocol.interim_analyses,
        num_attempts=then.num_attempts,
    )
    now = datetime.now(UTC)
    return replace(
        then,
        run_id=new_run_id(now),
        created_utc=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        bench_version=VERSION,
        digests={**then.digests, "identity": node.identity_digest(here.node.system.identity)},
        cases=(case,),
        launches=launches,
        groups=tuple((launch.id,) for launch in launches),
        num_limits=num_limits,
        bounds=bounds,
        expected_seconds=seconds,
        longest_seconds=seconds,
        injectors=(case.injector,) if case.injector else (),
        rerun_of=f"{then.run_id}/{dispute.launch.id}",
        sessions=1,
        pause_seconds=None,
        repeat=dispute.evidence[number].repeat,
        redacted="" if here.node.redactor is None else here.node.redactor.commitment,
    )


def _make(dispute: _Dispute, here: _Here, plan: Plan, observer: execution.Observer) -> _Repeated:
    """Make the launches in a folder of their own, and judge them."""
    folder = here.out / plan.run_id
    journal = begin(folder, plan, _files(dispute, here, plan), here.node)
    for line in dispute.source.lines:
        if isinstance(line.event, AttemptBegun):  # the inputs of then are made again
            journal.append(line.event, sync=True)
    work = work_folder(folder, plan.run_id)
    try:
        execution.run(
            plan=plan,
            vendors={here.node.vendor.name: here.node.vendor},
            devices={here.device.id: here.device},
            journal=journal,
            folder=folder,
            work=work,
            data=here.data,
            interim_analysis=_interim_analysis,
            observer=observer,
            num_threads=_num_threads(dispute),
            scratch=here.scratch,
            redact=None if here.node.redactor is None else here.node.redactor.data,
        )
        journal.append(RunEnded(launches=len(plan.launches)), sync=True)
        verdict = _verdict(dispute.source, plan, journal.lines, here.node.system)
        bundle.write(folder / bundle.VERDICT, to_json(verdict))
    finally:
        journal.close()
    tidy(work)
    return _Repeated(plan=plan, folder=folder, verdict=verdict, lines=tuple(journal.lines))


def _files(dispute: _Dispute, here: _Here, plan: Plan) -> dict[str, bytes]:
    """The files of then that are fixed before a run, with the plan and the system of now."""
    fixed = (*bundle.PREPARED_FILES, *bundle.OPTIONAL_FILES)
    return {
        **{name: data for name, data in dispute.source.files.items() if name in fixed},
        bundle.PLAN: to_json(plan),
        bundle.SYSTEM: to_json(here.node.system),
    }


def _interim_analysis(case: str) -> tuple[bool, str]:
    """No interim analysis decides anything: both launches are made, whatever they show."""
    del case
    return False, "a dispute is repeated, not judged"


def _verdict(source: Bundle, plan: Plan, lines: Sequence[Line], system: System) -> Verdict:
    return judge(
        plan=plan,
        criteria=source.criteria,
        lines=lines,
        baselines=source.baselines,
        qualified=source.qualified,
        peaks=source.peaks,
        system=system,
        order=source.order,
    )


def _num_threads(dispute: _Dispute) -> int | None:
    """As many as the launch had then; None where it did not report it."""
    fact = dispute.evidence[dispute.launch.number].facts.get(NUM_THREADS)
    value = None if fact is None else fact.value
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


# ------------------------------------------------------------------ side by side


def _compared(dispute: _Dispute, here: _Here, repeated: _Repeated) -> Rerun:
    plan, then = repeated.plan, dispute.evidence
    now = _evidence(repeated.lines, {launch.number: launch.id for launch in plan.launches})
    outcomes = tuple(outcome_pair(number, then[number], now[number]) for number in now)
    checks = tuple(
        pair for number in now for pair in check_pairs(number, then[number], now[number])
    )
    results = _results(dispute, here, repeated.verdict)
    reasons = (*disagreements(outcomes, checks), *_not_made(plan, now))
    return Rerun(
        run_id=plan.run_id,
        rerun_of=plan.rerun_of,
        folder=str(repeated.folder),
        case=here.case.id,
        launch=dispute.launch.number,
        agrees=not reasons,
        disagreements=reasons,
        differences=tuple(_differences(dispute, here, now)),
        outcomes=outcomes,
        checks=checks,
        inputs=inputs(then[0].artifacts, now[0].artifacts if 0 in now else {}),
        times=tuple(times(results, dispute.launch.number)),
        no_times=_withheld(results),
    )


def _results(dispute: _Dispute, here: _Here, verdict: Verdict) -> tuple[CaseResult, CaseResult]:
    """The case's result then, judged again, and now."""
    source = dispute.source
    then = _verdict(source, source.plan, source.lines, source.system)
    return (
        next(item for item in then.cases if item.case == dispute.case.id),
        next(item for item in verdict.cases if item.case == here.case.id),
    )


def _withheld(results: tuple[CaseResult, CaseResult]) -> tuple[str, ...]:
    return tuple(
        f"{word}: {result.withheld}"
        for word, result in zip(("then", "now"), results, strict=True)
        if result.withheld
    )


def _evidence(lines: Sequence[Line], launches: Mapping[int, str]) -> dict[int, LaunchEvidence]:
    """By number, the evidence of those launches that ended."""
    by_number = {number: launch_evidence(lines, launch) for number, launch in launches.items()}
    return {number: one for number, one in by_number.items() if one is not None}


def _differences(
    dispute: _Dispute, here: _Here, now: Mapping[int, LaunchEvidence]
) -> Iterator[str]:
    """What is another now: bench, machine, software, and how the launch was made."""
    source, number = dispute.source, dispute.launch.number
    if source.plan.bench_version != VERSION:
        yield f"bench was {source.plan.bench_version} and is {VERSION}"
    yield from identity_differences(source.system.identity, here.node.system.identity)
    if here.device.id != dispute.case.device:
        yield f"the device was {dispute.case.device} then and is {here.device.id} now"
    yield from launch_differences(dispute.evidence[number], now.get(number))


def _not_made(plan: Plan, now: Mapping[int, LaunchEvidence]) -> Iterator[str]:
    for launch in plan.launches:
        if launch.number not in now:
            yield f"launch {launch.number} was not made now, because the one before it failed"
