"""What is fixed before a run: the node as probed, the plan, and the files that hold them.

Everything that a ruling will use is written into the run's folder before the first launch, so
whatever happens afterwards, the folder says what was planned. A run that goes on is prepared
again from its files, on the same machine only.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from appliance import extras
from appliance.challenge import ledger
from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.ipc import confined_reader
from appliance.judging.criteria_check import (
    chance_sentences,
    check_health,
    check_limits,
    check_margins,
    planned_chances,
)
from appliance.linux.sysfs import Tree
from appliance.planning import challenge_window, library_ranges, workload_manifest
from appliance.planning.criterion_scope import MOST_ATTEMPTS
from appliance.planning.plan import Place, PlanInputs, requests
from appliance.planning.sessions import seconds_of_run
from appliance.probe import conditions, node, redaction
from appliance.records.baseline import Baselines, Peaks
from appliance.records.criteria import Criteria
from appliance.records.journal import Injected, Line, RunPlanned, RunStarted
from appliance.records.json import from_json, sha256, to_json
from appliance.records.order import Challenge, Order
from appliance.records.plan import Case, Plan
from appliance.records.qualified import Qualified
from appliance.records.request import Answer
from appliance.records.suite import Suite
from appliance.records.system import System, identity_differences
from appliance.runner import describing
from appliance.scheduling import launch_kinds
from appliance.scheduling.hours import with_hours
from appliance.scheduling.within import plan_whole, plan_within
from appliance.storage import (
    bundle,
    criteria_file,
    device_file,
    input_file,
    limits,
    order_file,
    qualified_file,
    suite_file,
)
from appliance.storage.journal import Journal
from appliance.stress.kinds import canonical, with_stress
from appliance.vendors.base import Vendor
from appliance.verbs import datasets
from appliance.verbs.run_begin import new_run_id
from appliance.verbs.run_options import PlanOptions
from appliance.verification import run_checks
from appliance.version import RELEASED, VERSION, is_before_release

RUN_FOLDER = "name the folder of the run, out/<run id>"
DIGESTED = {
    "criteria": bundle.CRITERIA,
    "baselines": bundle.BASELINES,
    "peaks": bundle.PEAKS,
    "qualified": bundle.QUALIFIED,
    "challenge": bundle.CHALLENGE,
    "order": bundle.ORDER,
}
"""Files whose digest the plan has, by the name of the digest."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """This machine as probed; `system` is what the run's files show, redacted under `salt`."""

    vendor: Vendor
    probed: System
    system: System
    redactor: redaction.Redactor | None = None
    salt: str = ""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """All that is fixed before a run, as records and as the files that hold them."""

    plan: Plan
    system: System
    criteria: Criteria
    baselines: Baselines
    peaks: Peaks
    qualified: Qualified
    order: Order | None
    files: Mapping[str, bytes]
    node: Node
    data: Path | None

    @property
    def chances(self) -> tuple[str, ...]:
        """How often a healthy device passes its limits around baselines, in a sentence."""
        chances = planned_chances(self.criteria, self.baselines, self.plan, self.system)
        return chance_sentences(chances)

    def bundle(self, folder: Path, lines: tuple[Line, ...]) -> bundle.Bundle:
        """What the run has left so far, with these lines of its journal."""
        return bundle.Bundle(
            folder=folder,
            files=self.files,
            plan=self.plan,
            system=self.system,
            criteria=self.criteria,
            baselines=self.baselines,
            peaks=self.peaks,
            qualified=self.qualified,
            lines=lines,
            verdict=None,
            signer=None,
            order=self.order,
        )


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """The files that a run is planned from; `contents` by the names of their digests."""

    suite: Suite
    criteria: Criteria
    order: Order | None
    challenge: Challenge | None
    data: Path | None
    contents: Mapping[str, bytes]
    sessions: int = 1
    pause_seconds: float | None = None
    minutes: int | None = None
    hours: float | None = None
    stress: str = ""

    @property
    def is_counted(self) -> bool:
        """Whether the buyer counts attempts, so that none begins without his receipt."""
        return self.challenge is not None and self.challenge.is_counted

    @property
    def digests(self) -> dict[str, str]:
        return {name: sha256(content) for name, content in self.contents.items()}


@dataclass(frozen=True, kw_only=True)
class _Figures:
    """What a run is compared with: vendor's figures, baselines and records of its devices."""

    baselines: Baselines
    peaks: Peaks
    qualified: Qualified = field(default_factory=lambda: Qualified(record=()))
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """When a run was planned, and what it is named and drawn by."""

    now: datetime
    run_id: str
    seed: str


# ------------------------------------------------------------------ a new run


def prepare(
    options: PlanOptions,
    *,
    challenge: Path | None = None,
    redact: bool = False,
    run_id: str | None = None,
) -> Prepared:
    """Probe the node and plan the run; nothing is written and no device is touched.

    `challenge` is the buyer's file; without one the node draws the run's seed. `redact`: no host
    name and no address of this machine stands in any record. `run_id` is drawn where it has none.
    """
    since = conditions.observe(Tree())
    vendor = node.present(options.vendor)
    inputs = _read(options, vendor, challenge)
    now = datetime.now(UTC)
    _check_clock(now)
    # Drawn or derived before the suite's variants are, and when suite and criteria are fixed.
    seed = _seed(inputs, now)
    stack = stack_of(vendor)
    answer = describing.describe_present(
        requests(inputs.suite, vendor.probe(), seed), stack=stack, libraries=vendor.libraries
    )
    here = _probed(vendor, answer, since, draw_salt=redact)
    if inputs.order is not None and options.order is not None:
        order_file.check_here(inputs.order, here.probed, options.order.name)
    figures = _figures(here.system, options.baseline)
    moment = _Moment(now=now, run_id=run_id or new_run_id(now), seed=seed)
    plan = _plan(inputs, here, figures, answer, ranges=stack.allowed, moment=moment)
    plan, figures = _with_records(plan, figures, here.system)
    check_health(inputs.criteria, here.system)
    able = tuple(case for case in plan.cases if not case.software)
    check_limits(inputs.criteria, able, figures.peaks, here.system)
    check_margins(inputs.criteria, figures.baselines, able, plan, here.system)
    return Prepared(
        plan=plan,
        system=here.system,
        criteria=inputs.criteria,
        baselines=figures.baselines,
        peaks=figures.peaks,
        qualified=figures.qualified,
        order=inputs.order,
        files=_files(plan, here.system, inputs, figures),
        node=here,
        data=inputs.data,
    )


def stack_of(vendor: Vendor) -> library_ranges.Stack:
    """The libraries that are installed here, and the versions that may be for these devices.

    UsageError where bench itself is not installed and nothing says which libraries it needs.
    """
    extras.require_known()
    allowed = library_ranges.allowed(extras.ranges(), vendor.libraries.ranges)
    versions = {name: extras.importable_version(name) for name in allowed}
    models = [device.model for device in vendor.probe()]
    known = library_ranges.known_stacks(
        qualified_file.load_qualified(models),
        {name: facts.version for name, facts in workload_manifest.load().items()},
        models,
    )
    return library_ranges.Stack(
        allowed=allowed,
        installed={name: version for name, version in versions.items() if version is not None},
        known=known,
    )


def default_criteria(vendor: Vendor) -> str:
    """The criteria that a run is judged by where nobody names any."""
    return "functional" if vendor.torch_type == "cpu" else "accelerator"


def _read(options: PlanOptions, vendor: Vendor, challenge: Path | None) -> _Inputs:
    suite, suite_bytes = suite_file.load_suite(options.suite_for(vendor.torch_type))
    criteria, criteria_bytes = criteria_file.load_criteria(
        options.criteria or default_criteria(vendor)
    )
    contents = {"suite": suite_bytes, "criteria": criteria_bytes}
    order = None
    order_bytes = input_file.read_if(options.order, fix="name the buyer's order")
    if options.order is not None and order_bytes is not None:
        order = order_file.read(order_bytes, options.order.name)
        contents["order"] = order_bytes
    data = datasets.folder(options.data)
    stress = canonical(options.stress)
    parsed = None
    challenge_bytes = input_file.read_if(challenge, fix="name the buyer's challenge")
    if challenge is not None and challenge_bytes is not None:
        parsed = _challenge(challenge_bytes, challenge.name)
        contents["challenge"] = challenge_bytes
    return _Inputs(
        suite=with_stress(with_hours(suite, options.hours), stress, len(vendor.probe())),
        criteria=criteria,
        order=order,
        challenge=parsed,
        data=data,
        contents=contents,
        sessions=options.num_sessions,
        pause_seconds=options.pause_seconds,
        minutes=options.within_minutes,
        hours=options.hours,
        stress=stress,
    )


def _challenge(data: bytes, name: str) -> Challenge:
    try:
        return confined_reader.record(Challenge, name, lambda: _challenge_in(data, name))
    except EvidenceError as error:
        raise UsageError(f"{error}: give the file that the buyer sent, as it was sent") from None


def _challenge_in(data: bytes, name: str) -> Challenge:
    challenge = challenge_window.parse(data, name)
    if challenge.is_counted:
        ledger.buyer_of(challenge)
    return challenge


def _seed(inputs: _Inputs, now: datetime) -> str:
    """A drawn seed, or the challenge's; UsageError if no run may begin under that."""
    if inputs.challenge is None:
        return secrets.token_hex(32)
    digests = inputs.digests
    reason = challenge_window.refusal(inputs.challenge, now, digests["criteria"], digests["suite"])
    if reason:
        raise UsageError(reason)
    return challenge_window.run_seed(inputs.challenge)


def _check_window(inputs: _Inputs, plan: Plan, now: datetime) -> None:
    """UsageError where the run, with its pauses, must end after its challenge."""
    if inputs.challenge is not None:
        reason = challenge_window.too_long(inputs.challenge, now, seconds_of_run(plan))
        if reason:
            raise UsageError(reason)


def _probed(vendor: Vendor, answer: Answer, since: conditions.Moment, *, draw_salt: bool) -> Node:
    probed = node.probe((vendor,), software=answer.software, since=since)
    return redacted_node(vendor, probed, redaction.draw() if draw_salt else "")


def redacted_node(vendor: Vendor, probed: System, salt: str) -> Node:
    """The node without the names and addresses of this machine, if there is a salt."""
    if not salt:
        return Node(vendor=vendor, probed=probed, system=probed)
    redactor = redaction.Redactor(salt, redaction.private(Tree(), probed))
    system = redactor.record(probed)
    return Node(vendor=vendor, probed=probed, system=system, redactor=redactor, salt=salt)


def _figures(system: System, baseline: Path | None) -> _Figures:
    models = [device.model for device in system.identity.devices]
    peaks = device_file.load_peaks(models)
    baselines = device_file.load_baselines(models, baseline)
    files = {bundle.BASELINES: to_json(baselines), bundle.PEAKS: to_json(peaks)}
    return _Figures(baselines=baselines, peaks=peaks, files=files)


def _with_records(plan: Plan, figures: _Figures, system: System) -> tuple[Plan, _Figures]:
    """Both with what is known of the planned cases, which is chosen once they are."""
    qualified = qualified_file.load_for_run(plan.cases, system.identity.devices)
    data = to_json(qualified)
    files = {**figures.files, bundle.QUALIFIED: data}
    digests = {**plan.digests, "qualified": sha256(data)}
    return replace(plan, digests=digests), replace(figures, qualified=qualified, files=files)


def _check_clock(now: datetime) -> None:
    """UsageError where the node's clock says a day on which this version did not exist."""
    if is_before_release(now):
        raise UsageError(
            f"the clock of this node says {now:%Y-%m-%d}, and bench {VERSION} was released on "
            f"{RELEASED}: set it, or nobody can verify what is run"
        )


def _plan(
    inputs: _Inputs,
    here: Node,
    figures: _Figures,
    answer: Answer,
    *,
    ranges: Mapping[str, str],
    moment: _Moment,
) -> Plan:
    planned = PlanInputs(
        suite=inputs.suite,
        answer=answer,
        places=places_of(here, inputs.data),
        criteria=inputs.criteria,
        digests={
            **inputs.digests,
            "baselines": sha256(figures.files[bundle.BASELINES]),
            "peaks": sha256(figures.files[bundle.PEAKS]),
            "identity": node.identity_digest(here.system.identity),
        },
        seed=moment.seed,
        run_id=moment.run_id,
        created_utc=f"{moment.now:%Y-%m-%dT%H:%M:%SZ}",
        bench_version=VERSION,
        manifest=workload_manifest.load(),
        ranges=ranges,
        sessions=inputs.sessions,
        pause_seconds=inputs.pause_seconds,
        num_attempts=MOST_ATTEMPTS if inputs.is_counted else 0,
    )
    observed = qualified_file.load_observed()
    plan = (
        plan_whole(planned, observed)
        if inputs.minutes is None
        else plan_within(planned, inputs.minutes, observed)
    )
    plan = replace(plan, hours=inputs.hours, stress=inputs.stress)
    models = {place.device.id: place.device.model for place in planned.places}
    plan = launch_kinds.with_kinds(plan, models, observed)
    _check_window(inputs, plan, moment.now)
    return plan if here.redactor is None else _without_names(plan, here.redactor)


def places_of(here: Node, data: Path | None) -> tuple[Place, ...]:
    """The node's devices with what they have, and the data sets that are in a folder."""
    available = datasets.available_datasets(data)
    return tuple(
        Place(device=device, features=here.vendor.features(device), available_datasets=available)
        for device in here.probed.identity.devices
    )


def _without_names(plan: Plan, redactor: redaction.Redactor) -> Plan:
    """The plan redacted where a library's message stands in it; it names the salt's digest."""
    cases = (
        replace(
            one,
            unsupported=redactor.text(one.unsupported),
            software=redactor.text(one.software),
        )
        for one in plan.cases
    )
    return replace(plan, cases=tuple(cases), redacted=redactor.commitment)


def _files(plan: Plan, system: System, inputs: _Inputs, figures: _Figures) -> dict[str, bytes]:
    contents = {
        DIGESTED[name]: content for name, content in inputs.contents.items() if name in DIGESTED
    }
    return {
        bundle.PLAN: to_json(plan),
        bundle.SYSTEM: to_json(system),
        **figures.files,
        **contents,
    }


# ------------------------------------------------------------------ a run that goes on


def prepare_again(folder: Path, data: Path | None) -> Prepared:
    """What a run in `folder` was prepared with, on the machine that it began on.

    Raises UsageError on another machine, EvidenceError if one of its files was changed.
    """
    plan, system, files = _files_of(folder)
    bundle.rehearse(folder, files, lambda: _check_planned(folder, files))
    here = _same_node(folder, plan, system)
    order = files.get(bundle.ORDER)
    return Prepared(
        plan=plan,
        system=system,
        criteria=criteria_file.parse_criteria(files[bundle.CRITERIA], bundle.CRITERIA),
        baselines=from_json(Baselines, files[bundle.BASELINES], name=bundle.BASELINES),
        peaks=from_json(Peaks, files[bundle.PEAKS], name=bundle.PEAKS),
        qualified=from_json(Qualified, files[bundle.QUALIFIED], name=bundle.QUALIFIED),
        order=None if order is None else order_file.read(order, bundle.ORDER),
        files=files,
        node=here,
        data=datasets.folder(data),
    )


def _files_of(folder: Path) -> tuple[Plan, System, dict[str, bytes]]:
    """Plan, system and all files of a run, whose digests are those of the plan."""
    files = {name: _file_of(folder, name) for name in bundle.PREPARED_FILES}
    bundle.rehearse(folder, files, lambda: _planned(files))
    plan, system = _planned(files)
    for digest, name in DIGESTED.items():
        if digest in plan.digests and name not in files:
            files[name] = _file_of(folder, name)
    digests = {name: sha256(files[file]) for name, file in DIGESTED.items() if file in files}
    digests["identity"] = node.identity_digest(system.identity)
    for name, digest in digests.items():
        if digest != plan.digests.get(name):
            path = folder / DIGESTED.get(name, bundle.SYSTEM)
            raise EvidenceError(
                f"{path} is not the file that the run was planned with: put that one back, or "
                "start a new run"
            )
    return plan, system, files


def _check_planned(folder: Path, files: Mapping[str, bytes]) -> None:
    """EvidenceError for a plan that no run is made by; anybody may have written it."""
    planned = bundle.records_of(files)
    digests = {name: sha256(data) for name, data in files.items()}
    try:
        run_checks.check_plan(planned.plan, planned.system, digests)
        run_checks.check_bounds(planned.plan, planned.criteria)
    except EvidenceError as error:
        raise EvidenceError(
            f"{folder} cannot go on: {error}; put the run's own files back, or start a new run"
        ) from None


def _file_of(folder: Path, name: str) -> bytes:
    most = limits.of_name(name)
    return input_file.read(folder / name, fix=RUN_FOLDER, follow=False, most=most)


def _planned(files: Mapping[str, bytes]) -> tuple[Plan, System]:
    return bundle.plan_of(files), from_json(System, files[bundle.SYSTEM], name=bundle.SYSTEM)


def _same_node(folder: Path, plan: Plan, system: System) -> Node:
    """This machine, if the run began on it; UsageError with what differs if not."""
    vendor = node.present(system.identity.devices[0].vendor)
    probed = node.probe((vendor,), software=describing.software())
    here = redacted_node(
        vendor, probed, redaction.of_run(folder, plan.redacted) if plan.redacted else ""
    )
    changed = identity_differences(system.identity, here.system.identity)
    if changed:
        raise UsageError(
            f"{folder} cannot go on here, because this is not the machine that it began on: "
            f"{'; '.join(changed)}; go on there, or start a new run"
        )
    return here


# ------------------------------------------------------------------ its folder


def begin(
    folder: Path,
    plan: Plan,
    files: Mapping[str, bytes],
    here: Node,
    *,
    since_ns: int | None = None,
) -> Journal:
    """Make the run's folder with its files, and begin its journal; OutputError if it cannot be.

    `since_ns` is when its planning began, by the monotonic clock; None where nobody says.
    """
    make_folder(folder, files, here)
    return begin_journal(folder, plan, files, here, since_ns=since_ns)


def make_folder(folder: Path, files: Mapping[str, bytes], here: Node) -> None:
    """Make the run's folder with all that was prepared; OutputError if it cannot be."""
    try:
        folder.mkdir()
    except OSError as error:
        raise OutputError(f"{folder} cannot be made ({error.strerror})") from None
    if here.salt:
        redaction.keep(here.salt, redaction.salt_path(folder))
    for name, content in files.items():
        bundle.write(folder / name, content)


def begin_journal(
    folder: Path,
    plan: Plan,
    files: Mapping[str, bytes],
    here: Node,
    *,
    since_ns: int | None = None,
) -> Journal:
    """Begin the journal of a run whose folder is made; `since_ns` as in `begin`."""
    rewrite = None if here.redactor is None else here.redactor.record
    journal = Journal.create(folder / bundle.JOURNAL, sha256(files[bundle.PLAN]), rewrite=rewrite)
    journal.append(_started(plan, files), sync=True)
    if since_ns is not None:
        journal.append(RunPlanned(wall_ns=time.monotonic_ns() - since_ns))
    for injector in plan.injectors:
        journal.append(_injected(injector, plan.cases), sync=True)
    return journal


def _started(plan: Plan, files: Mapping[str, bytes]) -> RunStarted:
    return RunStarted(
        run_id=plan.run_id,
        plan=sha256(files[bundle.PLAN]),
        system=sha256(files[bundle.SYSTEM]),
        pid=os.getpid(),
    )


def _injected(injector: str, cases: tuple[Case, ...]) -> Injected:
    """The journal's record of a fault that the run injects, before the first launch."""
    injecting = (case.id for case in cases if case.injector == injector)
    return Injected(injector=injector, cases=tuple(injecting))
