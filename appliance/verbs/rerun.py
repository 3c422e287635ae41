"""The verb `run --from`: one launch of a bundle made again, and both laid side by side.

Who disputes a result repeats it: the same case, seed, inputs, parameters and protocol, as many
steps, with its untimed launch before it as then, on whatever machine this is. What is another here
is listed first, because it may be the reason. The folder is evidence like that of any run, but one
launch accepts nothing: its plan names what it repeats, and the judge goes by that.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.judging.verdict import judge
from appliance.linux.sysfs import Tree
from appliance.planning.criterion_scope import planned_bounds
from appliance.probe import node, redaction
from appliance.records.journal import Injected, Line, RunEnded, RunStarted
from appliance.records.json import Parameters, sha256, to_json
from appliance.records.plan import Case, Launch, Plan
from appliance.records.request import Answer, CaseRequest, Refused
from appliance.records.system import Device, System
from appliance.records.verdict import Verdict
from appliance.runner import execution
from appliance.storage import bundle as bundles
from appliance.storage.bundle import Bundle
from appliance.storage.journal import Journal
from appliance.storage.toml_file import did_you_mean
from appliance.vendors.base import Vendor
from appliance.verbs import datasets
from appliance.verbs.accept import check_writable, tidy
from appliance.verbs.rerun_diff import (
    Rerun,
    Told,
    check_pairs,
    disagreements,
    inputs,
    launch_differences,
    outcome_pair,
    times,
    told,
)
from appliance.verification import launch_checks, run_checks, verify
from appliance.version import VERSION

NUM_THREADS = "num_threads"


# ------------------------------------------------------------------ what is asked


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person disputes. `case` may leave its device out where only one has it."""

    source: Path
    case: str
    launch: int
    out: Path = Path("out")
    data: Path | None = None


@dataclass(frozen=True, kw_only=True)
class _Dispute:
    """The disputed launch as its bundle tells it."""

    bundle: Bundle
    case: Case
    launch: Launch
    told: Mapping[int, Told]


@dataclass(frozen=True, kw_only=True)
class _Here:
    """This machine: the device that takes the part of the one of then, and its vendor."""

    vendor: Vendor
    device: Device
    system: System
    case: Case
    data: Path | None
    salt: str = ""
    redactor: redaction.Redactor | None = None


def rerun(request: Request, observer: execution.Observer) -> Rerun:
    """Make the disputed launch again and compare it; leaves an unsigned folder.

    Raises EvidenceError for a bundle that is not sound, UsageError for a case or launch that it
    does not have and for a workload that is another here.
    """
    check_writable(request.out)
    dispute = _dispute(request)
    here = _here(dispute, request.data)
    plan = _plan(dispute, here)
    folder = request.out / plan.run_id
    made = _make(dispute, here, plan, folder, observer)
    return _compared(dispute, here, plan, folder, made)


# ------------------------------------------------------------------ the bundle


def _dispute(request: Request) -> _Dispute:
    bundle = _sound(request.source)
    case = _case(bundle.plan, request.case)
    numbers = {item.number: item for item in bundle.plan.launches if item.case == case.id}
    if request.launch not in numbers:
        raise UsageError(
            f"{case.id} has no launch {request.launch}: name one of {min(numbers)} to "
            f"{max(numbers)} with --launch"
        )
    made = {
        number: found
        for number in {0, request.launch}
        if (found := told(bundle.lines, numbers[number].id)) is not None
    }
    if request.launch not in made:
        raise UsageError(
            f"launch {request.launch} of {case.id} was planned and not made, so there is nothing "
            "to repeat: name one that was"
        )
    return _Dispute(bundle=bundle, case=case, launch=numbers[request.launch], told=made)


def _sound(path: Path) -> Bundle:
    """A bundle whose journal follows from its plan; it need not be signed."""
    if path.is_file():
        raise UsageError(f"{path} is a file: name the folder of its run, out/<run id>")
    files = bundles.files_of(path, complete=False)
    if bundles.REPORT in files:
        found = verify.verify(path, allow_development=True)
        faults = [line for line in found.checks if line.status == "fail" and line.name != "signer"]
        if faults:
            raise EvidenceError(f"{path} is not sound: {faults[0].sentence}")
        return bundles.read(path)
    bundle = bundles.read(path, complete=False)
    plan = bundle.plan
    if plan.rerun_of:
        raise UsageError(f"{path} repeats {plan.rerun_of} itself: name the folder of that run")
    digests = {name: sha256(data) for name, data in files.items()}
    run_checks.check_plan(plan, bundle.system, digests)
    run_checks.check_bounds(plan, bundle.criteria)
    run_checks.check_conduct(plan, bundle.lines, digests)
    launch_checks.check_launches(plan, bundle.lines)
    return bundle


def _case(plan: Plan, name: str) -> Case:
    """The case of that name, with its device or, where one device has it, without."""
    found = [case for case in plan.cases if name in (case.id, case.id.partition("@")[0])]
    if not found:
        known = [name for case in plan.cases for name in (case.id, case.id.partition("@")[0])]
        raise UsageError(f'run {plan.run_id} has no case "{name}"{did_you_mean(name, known)}')
    if len(found) > 1:
        names = ", ".join(case.id for case in found)
        raise UsageError(f'"{name}" was run on several devices: name one of {names}')
    return found[0]


# ------------------------------------------------------------------ this machine


def _here(dispute: _Dispute, data: Path | None) -> _Here:
    """The device to use; UsageError if this machine or this bench cannot repeat the case."""
    devices = {device.id: device for device in dispute.bundle.system.identity.devices}
    then = devices[dispute.case.device]
    vendor = node.present(then.vendor)
    case = dispute.case
    answer = execution.describe((_request(case),))
    _check_workload(dispute.bundle.plan, case, answer)
    place = datasets.folder(data)
    _check_data(case, answer, place)
    system = node.probe((vendor,), software=answer.software)
    device = _device(then, system.identity.devices)
    _check_features(case, answer, vendor, device)
    moved = replace(case, id=f"{case.id.partition('@')[0]}@{device.id}", device=device.id)
    here = _Here(vendor=vendor, device=device, system=system, case=moved, data=place)
    return _redacted(here, dispute) if dispute.bundle.plan.redacted else here


def _redacted(here: _Here, dispute: _Dispute) -> _Here:
    """What is redacted stays so when it is repeated; under the same salt where that is at hand."""
    then, folder = dispute.bundle.plan, dispute.bundle.folder
    has_salt = folder is not None and redaction.salt_path(folder).exists()
    salt = redaction.of_run(folder, then.redacted) if folder and has_salt else redaction.draw()
    redactor = redaction.Redactor(salt, redaction.private(Tree(), here.system))
    return replace(here, system=redactor.record(here.system), salt=salt, redactor=redactor)


def _request(case: Case) -> CaseRequest:
    return CaseRequest(workload=case.workload, small=case.small, parameters=case.parameters)


def _check_workload(plan: Plan, case: Case, answer: Answer) -> None:
    """UsageError unless the workload here is the one of then, with all of its parameters."""
    then = f"run {plan.run_id} was made by bench {plan.bench_version}, this is {VERSION}"
    found = next((item for item in answer.descriptions if item.name == case.workload), None)
    if found is None:
        raise UsageError(f'this bench has no workload "{case.workload}" ({then}): use that one')
    if found.version != case.version:
        raise UsageError(
            f"{case.workload} was version {case.version} then and is {found.version} here ({then}):"
            " use that one"
        )
    resolved = answer.resolved[0]
    if isinstance(resolved, Refused):
        raise UsageError(f"{case.id} cannot be made here: {resolved.error} ({then})")
    if to_json(resolved.parameters, Parameters) != to_json(case.parameters, Parameters):
        raise UsageError(f"{case.workload} has other parameters here ({then}): use that one")


def _check_data(case: Case, answer: Answer, place: Path | None) -> None:
    described = next(item for item in answer.descriptions if item.name == case.workload)
    missing = sorted(set(described.data) - datasets.at_hand(place)) if described.data else []
    if missing:
        raise UsageError(
            f"{case.id} needs the data set {missing[0]}, which is not at hand: "
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
    then, number = dispute.bundle.plan, dispute.launch.number
    checked = None if here.case.checked_launch is None or number == 0 else number
    case = replace(here.case, checked_launch=checked)
    launches = tuple(
        Launch(id=f"{case.id}/{one}", case=case.id, number=one, is_timed=one > 0)
        for one in sorted({0, number})
    )
    seconds = case.reference_seconds + (case.expected_seconds if number else 0.0)
    num_limits, bounds = planned_bounds(dispute.bundle.criteria, (case,), then.protocol.looks)
    now = datetime.now(UTC)
    return replace(
        then,
        run_id=f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        created_utc=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        bench_version=VERSION,
        digests={**then.digests, "identity": node.identity_digest(here.system.identity)},
        cases=(case,),
        launches=launches,
        groups=tuple((launch.id,) for launch in launches),
        num_limits=num_limits,
        bounds=bounds,
        expected_seconds=seconds,
        longest_seconds=seconds,
        injectors=(case.injector,) if case.injector else (),
        rerun_of=f"{then.run_id}/{dispute.launch.id}",
        repeat=dispute.told[number].repeat,
        redacted="" if here.redactor is None else here.redactor.commitment,
    )


def _make(
    dispute: _Dispute, here: _Here, plan: Plan, folder: Path, observer: execution.Observer
) -> tuple[Verdict, tuple[Line, ...]]:
    """Make the launches and judge them; the verdict and the journal's lines."""
    kept = (*bundles.PREPARED_FILES, *bundles.OPTIONAL_FILES)
    files = {
        **{name: data for name, data in dispute.bundle.files.items() if name in kept},
        bundles.PLAN: to_json(plan),
        bundles.SYSTEM: to_json(here.system),
    }
    try:
        folder.mkdir()
    except OSError as error:
        raise OutputError(f"{folder} cannot be made ({error.strerror})") from None
    if here.salt:
        redaction.keep(here.salt, redaction.salt_path(folder))
    for name, text in files.items():
        bundles.write(folder / name, text)
    journal = Journal.create(
        folder / bundles.JOURNAL,
        sha256(files[bundles.PLAN]),
        rewrite=None if here.redactor is None else here.redactor.record,
    )
    journal.append(
        RunStarted(
            run_id=plan.run_id,
            plan=sha256(files[bundles.PLAN]),
            system=sha256(files[bundles.SYSTEM]),
            pid=os.getpid(),
        ),
        sync=True,
    )
    work = folder.parent / ".work" / plan.run_id
    try:
        for injector in plan.injectors:
            journal.append(Injected(injector=injector, cases=(here.case.id,)), sync=True)
        execution.run(
            plan=plan,
            vendors={here.vendor.name: here.vendor},
            devices={here.device.id: here.device},
            journal=journal,
            folder=folder,
            work=work,
            data=here.data,
            look=_look,
            observer=observer,
            num_threads=_num_threads(dispute),
            redact=None if here.redactor is None else here.redactor.data,
        )
        journal.append(RunEnded(launches=len(plan.launches)), sync=True)
        verdict = _verdict(dispute.bundle, plan, journal.lines, here.system)
        bundles.write(folder / bundles.VERDICT, to_json(verdict))
    finally:
        journal.close()
    tidy(work)
    return verdict, tuple(journal.lines)


def _look(case: str, lines: Sequence[Line]) -> tuple[bool, str]:
    """No look decides anything: both launches are made, whatever they show."""
    del case, lines
    return False, "a dispute is repeated, not judged"


def _verdict(bundle: Bundle, plan: Plan, lines: Sequence[Line], system: System) -> Verdict:
    return judge(
        plan=plan,
        criteria=bundle.criteria,
        lines=lines,
        baselines=bundle.baselines,
        peaks=bundle.peaks,
        system=system,
        order=bundle.order,
    )


def _num_threads(dispute: _Dispute) -> int | None:
    """As many as the launch had then; None where it did not tell."""
    found = dispute.told[dispute.launch.number].facts.get(NUM_THREADS)
    value = None if found is None else found.value
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


# ------------------------------------------------------------------ side by side


def _compared(
    dispute: _Dispute,
    here: _Here,
    plan: Plan,
    folder: Path,
    made: tuple[Verdict, tuple[Line, ...]],
) -> Rerun:
    verdict, lines = made
    now = {
        launch.number: found
        for launch in plan.launches
        if (found := told(lines, launch.id)) is not None
    }
    outcomes = tuple(outcome_pair(number, dispute.told[number], now[number]) for number in now)
    checks = tuple(
        pair for number in now for pair in check_pairs(number, dispute.told[number], now[number])
    )
    bundle = dispute.bundle
    then = _verdict(bundle, bundle.plan, bundle.lines, bundle.system)
    results = (
        next(item for item in then.cases if item.case == dispute.case.id),
        next(item for item in verdict.cases if item.case == here.case.id),
    )
    against = (*disagreements(outcomes, checks), *_not_made(plan, now))
    return Rerun(
        run_id=plan.run_id,
        rerun_of=plan.rerun_of,
        folder=str(folder),
        case=here.case.id,
        launch=dispute.launch.number,
        agrees=not against,
        disagreements=against,
        differences=tuple(_differences(dispute, here, now)),
        outcomes=outcomes,
        checks=checks,
        inputs=inputs(dispute.told[0].artifacts, now[0].artifacts if 0 in now else {}),
        times=tuple(times(results, dispute.launch.number)),
        no_times=tuple(
            f"{word}: {result.withheld}"
            for word, result in zip(("then", "now"), results, strict=True)
            if result.withheld
        ),
    )


def _differences(dispute: _Dispute, here: _Here, now: Mapping[int, Told]) -> Iterator[str]:
    """What is another now: bench, machine, software, and how the launch was made."""
    bundle, number = dispute.bundle, dispute.launch.number
    if bundle.plan.bench_version != VERSION:
        yield f"bench was {bundle.plan.bench_version} and is {VERSION}"
    yield from node.differences(bundle.system.identity, here.system.identity)
    if here.device.id != dispute.case.device:
        yield f"the device was {dispute.case.device} then and is {here.device.id} now"
    yield from launch_differences(dispute.told[number], now.get(number))


def _not_made(plan: Plan, now: Mapping[int, Told]) -> Iterator[str]:
    for launch in plan.launches:
        if launch.number not in now:
            yield f"launch {launch.number} was not made now, because the one before it failed"
