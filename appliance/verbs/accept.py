"""The verbs `plan`, `run` and `accept`: probe, plan, run, judge, and close the bundle.

Everything that a ruling will use is written into the run's folder before the first launch, so
whatever happens afterwards, the folder says what was meant to be done and what was done. A run
that was cut short goes on with `resume`, on the same machine and the same plan only.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.judging.criteria_check import check_health, check_limits, check_margins
from appliance.judging.verdict import Judge
from appliance.linux.sysfs import Tree
from appliance.planning import challenge_window, coverage
from appliance.planning import plan as planning
from appliance.probe import node, redaction
from appliance.records.baseline import Baselines, Peaks
from appliance.records.criteria import Criteria
from appliance.records.journal import (
    Injected,
    LaunchEnded,
    LaunchStarted,
    Line,
    RunEnded,
    RunResumed,
    RunStarted,
)
from appliance.records.json import from_json, sha256, to_json
from appliance.records.order import Order
from appliance.records.plan import Case, Plan
from appliance.records.system import Device, Identity, System
from appliance.records.verdict import Verdict
from appliance.runner import execution
from appliance.storage import bundle, criteria_file, device_file, input_file, order_file, suite_file
from appliance.storage.journal import Journal, Rewrite
from appliance.vendors.base import Vendor
from appliance.verbs import datasets
from appliance.verbs.run_options import PlanOptions, RunOptions
from appliance.version import VERSION


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """All that is fixed before a run, as records and as the files that hold them.

    `devices` are as the vendor told them, where `system` may be redacted under `salt`.
    """

    plan: Plan
    system: System
    criteria: Criteria
    baselines: Baselines
    peaks: Peaks
    order: Order | None
    files: dict[str, bytes]
    vendor: Vendor
    devices: tuple[Device, ...]
    data: Path | None
    redactor: redaction.Redactor | None = None
    salt: str = ""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A judged run: its folder and what was decided."""

    folder: Path
    verdict: Verdict


def prepare(
    options: PlanOptions, *, challenge: Path | None = None, redact: bool = False
) -> Prepared:
    """Probe the node and plan the run; nothing is written and no device is touched."""
    vendor = node.present(options.vendor)
    suite, suite_bytes = suite_file.load_suite(options.suite_name)
    criteria, criteria_bytes = criteria_file.load_criteria(
        options.criteria or default_criteria(vendor)
    )
    order_bytes = input_file.read_if(options.order, fix="name the buyer's order")
    order = None if order_bytes is None else order_file.read(order_bytes, _name(options.order))
    data = datasets.folder(options.data)
    now = datetime.now(UTC)
    # Drawn or derived before the suite's variants are, and when suite and criteria are fixed.
    challenge_bytes = input_file.read_if(challenge, fix="name the buyer's challenge")
    seed = secrets.token_hex(32)
    if challenge is not None and challenge_bytes is not None:
        fixed = {"suite": sha256(suite_bytes), "criteria": sha256(criteria_bytes)}
        seed = _seed_of(challenge_bytes, challenge, fixed, now)
    answer = execution.describe(planning.requests(suite, vendor.probe(), seed))
    found = node.probe((vendor,), software=answer.software)
    if order is not None:
        order_file.check_here(order, found, _name(options.order))
    salt = redaction.draw() if redact else ""
    redactor = _redactor(salt, found)
    system = found if redactor is None else redactor.record(found)
    models = [device.model for device in system.identity.devices]
    peaks = device_file.load_peaks(models)
    baselines = device_file.load_baselines(models, options.baseline)
    files = {
        "system.json": to_json(system),
        "criteria.toml": criteria_bytes,
        "baselines.json": to_json(baselines),
        "peaks.json": to_json(peaks),
    }
    digests = {
        "suite": sha256(suite_bytes),
        "criteria": sha256(criteria_bytes),
        "baselines": sha256(files["baselines.json"]),
        "peaks": sha256(files["peaks.json"]),
        "identity": node.identity_digest(system.identity),
    }
    if challenge_bytes is not None:
        files[bundle.CHALLENGE] = challenge_bytes
        digests["challenge"] = sha256(challenge_bytes)
    if order_bytes is not None:
        files[bundle.ORDER] = order_bytes
        digests["order"] = sha256(order_bytes)
    plan = planning.make_plan(
        suite=suite,
        answer=answer,
        places=_places(vendor, found.identity, data),
        criteria=criteria,
        digests=digests,
        seed=seed,
        run_id=f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        created_utc=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        bench_version=VERSION,
    )
    if redactor is not None:
        plan = _redacted(plan, redactor)
    check_health(criteria, system)
    check_limits(criteria, plan.cases, peaks, system)
    check_margins(criteria, baselines, plan.cases, plan.protocol, system)
    return Prepared(
        plan=plan,
        system=system,
        criteria=criteria,
        baselines=baselines,
        peaks=peaks,
        order=order,
        files={"plan.json": to_json(plan), **files},
        vendor=vendor,
        devices=found.identity.devices,
        data=data,
        redactor=redactor,
        salt=salt,
    )


def _name(path: Path | None) -> str:
    return "" if path is None else path.name


def _redactor(salt: str, system: System) -> redaction.Redactor | None:
    """What keeps the machine's names and addresses out of a run; None where nothing does."""
    if not salt:
        return None
    return redaction.Redactor(salt, redaction.private(Tree(), system))


def _redacted(plan: Plan, redactor: redaction.Redactor) -> Plan:
    """The plan without names in what a library may have said; it names the salt's digest."""
    cases = (replace(one, unsupported=redactor.text(one.unsupported)) for one in plan.cases)
    return replace(plan, cases=tuple(cases), redacted=redactor.commitment)


def default_criteria(vendor: Vendor) -> str:
    """The criteria that a run is judged by where nobody names any."""
    return "functional" if vendor.torch_type == "cpu" else "accelerator"


def _seed_of(data: bytes, path: Path, digests: Mapping[str, str], now: datetime) -> str:
    """The seed that the challenge gives; UsageError if no run may begin under it."""
    try:
        challenge = challenge_window.parse(data, path.name)
    except EvidenceError as error:
        raise UsageError(f"{error}: give the file that the buyer sent, as it was sent") from None
    reason = challenge_window.refusal(challenge, now, digests["criteria"], digests["suite"])
    if reason:
        raise UsageError(reason)
    return challenge_window.run_seed(challenge)


def run(options: RunOptions, observer: execution.Observer) -> Finished:
    """Prepare, make every launch, judge; leaves an unsigned folder."""
    check_writable(options.out)
    prepared = prepare(options, challenge=options.challenge, redact=options.redact)
    folder = options.out / prepared.plan.run_id
    try:
        folder.mkdir()
    except OSError as error:
        raise OutputError(f"{folder} cannot be made ({error.strerror})") from None
    if prepared.salt:
        redaction.keep(prepared.salt, redaction.salt_path(folder))
    for name, text in prepared.files.items():
        bundle.write(folder / name, text)
    journal = Journal.create(
        folder / "journal.jsonl", sha256(prepared.files["plan.json"]), rewrite=_rewrite(prepared)
    )
    journal.append(
        RunStarted(
            run_id=prepared.plan.run_id,
            plan=sha256(prepared.files["plan.json"]),
            system=sha256(prepared.files["system.json"]),
            pid=os.getpid(),
        ),
        sync=True,
    )
    for injector in prepared.plan.injectors:
        journal.append(_injected(injector, prepared.plan.cases), sync=True)
    return _go_on(folder, prepared, journal, observer)


def _rewrite(prepared: Prepared) -> Rewrite | None:
    return None if prepared.redactor is None else prepared.redactor.record


def _injected(injector: str, cases: Sequence[Case]) -> Injected:
    """What the journal says of a fault that the run injects, before the first launch."""
    injecting = (case.id for case in cases if case.injector == injector)
    return Injected(injector=injector, cases=tuple(injecting))


def resume(options: RunOptions, observer: execution.Observer) -> Finished:
    """Go on with the interrupted run in the folder `options.resume`.

    `order` and `redact`, where set, are what the run must have been begun with. Raises UsageError
    on another machine or for a run that is signed, EvidenceError if a file of the run was changed
    meanwhile.
    """
    folder = options.resume
    if folder is None:
        raise UsageError("name the folder of the run, out/<run id>")
    if (folder / "report.dsse.json").exists():
        raise UsageError(f"{folder} is finished and signed; start a new run instead")
    prepared = _prepared_again(folder, options.data)
    ordered = input_file.read_if(options.order, fix="name the order")
    if ordered is not None and prepared.files.get(bundle.ORDER) != ordered:
        raise UsageError(
            f"{folder} was not begun with {options.order}: leave it out, or start a new run"
        )
    if options.redact and prepared.redactor is None:
        raise UsageError(f"{folder} was begun without --redact: start a new run with it")
    journal, lines, dropped = Journal.reopen(
        folder / "journal.jsonl",
        sha256(prepared.files["plan.json"]),
        rewrite=_rewrite(prepared),
    )
    if not any(isinstance(line.event, RunEnded) for line in lines):
        _note_interruption(journal, lines, dropped)
    return _go_on(folder, prepared, journal, observer)


def _prepared_again(folder: Path, data: Path | None) -> Prepared:
    fix = "name the folder of the run, out/<run id>"
    files = {name: input_file.read(folder / name, fix=fix) for name in bundle.PREPARED_FILES}
    plan = from_json(Plan, files["plan.json"], name="plan.json")
    optional = {"challenge": bundle.CHALLENGE, "order": bundle.ORDER}
    used = {name: key for key, name in optional.items() if key in plan.digests}
    files |= {name: input_file.read(folder / name, fix=fix) for name in used}
    system = from_json(System, files["system.json"], name="system.json")
    found = {
        "criteria.toml": ("criteria", sha256(files["criteria.toml"])),
        "baselines.json": ("baselines", sha256(files["baselines.json"])),
        "peaks.json": ("peaks", sha256(files["peaks.json"])),
        "system.json": ("identity", node.identity_digest(system.identity)),
        **{name: (key, sha256(files[name])) for name, key in used.items()},
    }
    for name, (key, digest) in found.items():
        if digest != plan.digests[key]:
            raise EvidenceError(f"{folder / name} is not the file that the run was planned with")
    vendor = node.present(system.identity.devices[0].vendor)
    now = node.probe((vendor,), software=execution.describe(()).software)
    salt = redaction.of_run(folder, plan.redacted) if plan.redacted else ""
    redactor = _redactor(salt, now)
    told = now if redactor is None else redactor.record(now)
    changed = node.differences(system.identity, told.identity)
    if changed:
        raise UsageError(
            f"{folder} cannot go on here, because this is not the machine that it began on: "
            f"{'; '.join(changed)}"
        )
    return Prepared(
        plan=plan,
        system=system,
        criteria=criteria_file.parse_criteria(files["criteria.toml"], "criteria.toml"),
        baselines=from_json(Baselines, files["baselines.json"], name="baselines.json"),
        peaks=from_json(Peaks, files["peaks.json"], name="peaks.json"),
        order=order_file.read(files[bundle.ORDER], bundle.ORDER) if bundle.ORDER in files else None,
        files=files,
        vendor=vendor,
        devices=now.identity.devices,
        data=datasets.folder(data),
        redactor=redactor,
        salt=salt,
    )


def _note_interruption(journal: Journal, lines: Sequence[Line], dropped: str) -> None:
    """Say that the run was cut short, and end the launches that it was cut short in."""
    open_launches: dict[str, int] = {}
    for line in lines:
        if isinstance(line.event, LaunchStarted):
            open_launches[line.event.launch] = line.monotonic_ns
        elif isinstance(line.event, LaunchEnded):
            open_launches.pop(line.event.launch, None)
    journal.append(
        RunResumed(
            interruption=1 + sum(isinstance(line.event, RunResumed) for line in lines),
            interrupted=tuple(open_launches),
            dropped=dropped,
            pid=os.getpid(),
        ),
        sync=True,
    )
    for launch, begin in open_launches.items():
        journal.append(
            LaunchEnded(
                launch=launch,
                outcome="interrupted",
                reason="the appliance was stopped",
                detail="",
                exit_code=None,
                wall_ns=max(0, lines[-1].monotonic_ns - begin),
                peak_memory_bytes=None,
            ),
            sync=True,
        )


def _go_on(
    folder: Path, prepared: Prepared, journal: Journal, observer: execution.Observer
) -> Finished:
    """Make the launches that are left, judge all of them, and tidy up."""
    observer.foretold(coverage.foretold(prepared.plan, prepared.criteria))
    judging = Judge(
        plan=prepared.plan,
        criteria=prepared.criteria,
        baselines=prepared.baselines,
        peaks=prepared.peaks,
        system=prepared.system,
        order=prepared.order,
    )
    num_taken = 0

    def take(lines: Sequence[Line]) -> None:
        nonlocal num_taken
        for line in lines[num_taken:]:
            judging.take(line)
        num_taken = len(lines)

    def asked(case: str, lines: Sequence[Line]) -> tuple[bool, str]:
        take(lines)
        return judging.look(case)

    work = folder.parent / ".work" / prepared.plan.run_id
    try:
        if not any(isinstance(line.event, RunEnded) for line in journal.lines):
            execution.run(
                plan=prepared.plan,
                vendors={prepared.vendor.name: prepared.vendor},
                devices={device.id: device for device in prepared.devices},
                journal=journal,
                folder=folder,
                work=work,
                data=prepared.data,
                look=asked,
                observer=observer,
                redact=None if prepared.redactor is None else prepared.redactor.data,
            )
            journal.append(RunEnded(launches=len(prepared.plan.launches)), sync=True)
        take(journal.lines)
        verdict = judging.verdict()
        bundle.write(folder / "verdict.json", to_json(verdict))
    finally:
        journal.close()
    tidy(work)
    return Finished(folder=folder, verdict=verdict)


def tidy(work: Path) -> None:
    """Remove this run's working folder, and the one above it when no other run uses it."""
    shutil.rmtree(work, ignore_errors=True)
    if os.environ.get("HOME") == str(work.parent):  # a container's, which nobody else can use
        shutil.rmtree(work.parent, ignore_errors=True)
    elif work.parent.is_dir() and not any(work.parent.iterdir()):
        work.parent.rmdir()


def _places(vendor: Vendor, identity: Identity, data: Path | None) -> tuple[planning.Place, ...]:
    at_hand = datasets.at_hand(data)
    return tuple(
        planning.Place(device=device, features=vendor.features(device), data=at_hand)
        for device in identity.devices
    )


def check_writable(out: Path) -> None:
    """OutputError unless runs can be put into `out`."""
    if (out / "plan.json").exists():
        raise OutputError(f"{out} is the folder of a run: use --resume {out}, or another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise OutputError(f"{out} is not a folder; name another with --out") from None
    except OSError as error:
        raise OutputError(f"{out} cannot be made ({error.strerror})") from None
    if not os.access(out, os.W_OK | os.X_OK):
        raise OutputError(f"{out} is not writable by user {os.getuid()}; name another with --out")
