"""A bundle to what the report says: pure, from the bundle's files alone, so that anyone can.

The same bundle gives the same view on every machine and every day: times come from the plan
and the journal, never from a clock, and the list of evidence leaves out what is made after the
pages (the statements and the pages themselves).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from appliance.bundle import CHALLENGE, CRITERIA, JOURNAL, LOGS, ORDER, Bundle, data_names
from appliance.errors import EvidenceError
from appliance.records import (
    Criterion,
    Device,
    Line,
    Plan,
    Ruling,
    RulingWord,
    RunResumed,
    Signer,
    Verdict,
    sha256,
)
from reports import cases, machine, words
from reports.model import Certificate, Grid, OpenRuling, Requirement, Row, View, cleaned
from reports.words import NOT_REPORTED, count

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_DEVICES = 8  # devices named on page 1; the system pages have them all
LIMITS = (
    "This verdict holds for the devices and cases named here, at the time given; it does not "
    "prove that whoever administered the node was honest, nor how the node will do under work "
    "that was not run."
)
REASONS = {
    "": "",
    "crashed": "crashed",
    "timed_out": "did not end in time",
    "check": "check outside its bound",
    "interrupted": "interrupted",
    "unsupported": "not supported here",
    "not_run": "not run",
    "coverage": "not covered by a case or check",
    "evidence_missing": "evidence missing",
    "noise": "too noisy to tell",
    "over_limit": "over the limit",
    "clock": "clock fault",
}
_SERIALS = ("system_serial", "system_uuid", "chassis_serial", "board_serial")


def view(bundle: Bundle) -> View:
    """All that the report says of a bundle; EvidenceError if its verdict or signer is missing."""
    plan, verdict, signer = bundle.plan, bundle.verdict, bundle.signer
    if verdict is None or signer is None:
        missing = "verdict.json" if verdict is None else "signer.json"
        raise EvidenceError(f"the bundle has no {missing}, so there is no report to make of it")
    created = words.moment(plan.created_utc) or EPOCH
    modified = words.moment(bundle.lines[-1].utc) if bundle.lines else None
    return cleaned(
        View(
            run_id=plan.run_id,
            subject=_subject_words(bundle),
            generator=f"bench {plan.bench_version}",
            created=created,
            modified=modified or created,
            is_development=signer.is_development,
            certificate=_certificate(bundle, verdict, signer),
            requirements=_requirements(bundle, verdict),
            open_rulings=_open_rulings(verdict),
            cases=cases.sections(plan, verdict, bundle.lines),
            system=machine.system_groups(bundle.system, bundle.peaks),
            environment=machine.environment_groups(bundle.system, bundle.lines),
            evidence=_evidence(bundle),
            files=_files(bundle),
            has_logs=any(name.startswith(f"{LOGS}/") for name in bundle.files),
        )
    )


# ------------------------------------------------------------------ page 1


def _certificate(bundle: Bundle, verdict: Verdict, signer: Signer) -> Certificate:
    return Certificate(
        word=verdict.verdict,
        counts=_counts(verdict.rulings),
        scope=verdict.scope,
        subject=_subject(bundle),
        devices=_devices(bundle.system.identity.devices),
        run=_run(bundle, verdict),
        interruptions=tuple(_interruptions(bundle.lines)),
        signer=_signer(signer),
        limits=LIMITS,
    )


def _counts(rulings: Sequence[Ruling]) -> str:
    required = [ruling.ruling for ruling in rulings if ruling.required]
    told = [f"{required.count('pass')} pass", f"{required.count('fail')} fail"]
    told.append(f"{required.count('inconclusive')} inconclusive")
    if "not_applicable" in required:
        told.append(f"{required.count('not_applicable')} not applicable")
    return f"{count(len(required), 'required ruling')}: {', '.join(told)}"


def _subject_words(bundle: Bundle) -> str:
    models = [device.model for device in bundle.system.identity.devices]
    counted = (f"{models.count(model)} x {model}" for model in dict.fromkeys(models))
    return ", ".join(counted) or "no device"


def _subject(bundle: Bundle) -> tuple[Row, ...]:
    host = bundle.system.identity.host
    parts = [
        machine.first_known(host, names)
        for names in (("system_vendor", "board_vendor"), ("system_product", "board_product"))
    ]
    known = [text for text in parts if text != NOT_REPORTED]
    serial = next((name for name in _SERIALS if name in host and host[name].value), "")
    missing = host["system_serial"].hint if not serial and "system_serial" in host else ""
    return (
        _row("System", " ".join(known) or NOT_REPORTED),
        _row(
            words.label(serial) if serial else "System serial",
            machine.first_known(host, (serial,)),
            missing,
        ),
        _row("Node", machine.first_known(bundle.system.conditions.facts, ("hostname",))),
    )


def _row(label: str, value: str, note: str = "") -> Row:
    return Row(label=label, value=value, note=note, is_known=value != NOT_REPORTED)


def _devices(devices: Sequence[Device]) -> Grid:
    shown = devices[:MOST_DEVICES]
    rest = len(devices) - len(shown)
    return Grid(
        columns=("Device", "Model", "Serial or UUID", "Memory"),
        rows=tuple(
            (
                device.id,
                device.model,
                device.serial or NOT_REPORTED,
                NOT_REPORTED if device.memory_bytes is None else words.size(device.memory_bytes),
            )
            for device in shown
        ),
        notes=(f"and {count(rest, 'more device')}, listed under System",) if rest else (),
    )


def _run(bundle: Bundle, verdict: Verdict) -> tuple[Row, ...]:
    plan, criteria = bundle.plan, bundle.criteria
    return (
        _row("Suite", f"{plan.suite}, version {plan.suite_version}: {plan.suite_summary}"),
        _row("Protocol", _protocol(plan)),
        _row("Launches", _launches(verdict)),
        _row("Criteria", f"{criteria.name}, version {criteria.version}: {criteria.summary}"),
        _row("", f"criteria chosen by the signer: {sha256(bundle.files[CRITERIA])}"),
        _row("Planned", words.utc(plan.created_utc)),
        _row("Run", _times(bundle.lines)),
        _row("Run id", plan.run_id),
        _row(
            "Interruptions", str(verdict.num_interruptions) if verdict.num_interruptions else "none"
        ),
    )


def _protocol(plan: Plan) -> str:
    """One sentence that says how the launches were made."""
    protocol = plan.protocol
    checked = (
        "every launch"
        if protocol.last_checks == "all"
        else "one launch of each case, drawn by the seed"
    )
    looks = protocol.looks
    judged = ", ".join(map(str, looks[:-1])) + (" and " if looks[1:] else "") + str(looks[-1])
    return (
        f"Each case is made once untimed for reference, then in up to "
        f"{count(looks[-1], f'{protocol.mode} launch', f'{protocol.mode} launches')} of "
        f"{count(protocol.warmup_steps, 'warm-up step')} and "
        f"{count(protocol.blocks, 'block')} of at least {count(protocol.block_steps, 'step')} "
        f"and {protocol.block_seconds:g} s; it is judged after {judged} "
        f"({count(len(looks), 'look')}); the first output is checked in every launch, the last "
        f"timed one in {checked}."
    )


def _launches(verdict: Verdict) -> str:
    planned = sum(result.num_planned for result in verdict.cases)
    completed = sum(result.num_completed for result in verdict.cases)
    decided = sum(result.num_decided for result in verdict.cases)
    missing = planned - completed - decided
    return f"{planned} planned, {completed} completed, {decided} not needed, {missing} missing"


def _times(lines: Sequence[Line]) -> str:
    if not lines:
        return NOT_REPORTED
    first, last = lines[0].utc, lines[-1].utc
    begin, end = words.moment(first), words.moment(last)
    took = "" if begin is None or end is None else words.span((end - begin).total_seconds())
    return f"{words.utc(first)} to {words.utc(last)}" + (f" ({took})" if took else "")


def _interruptions(lines: Sequence[Line]) -> Iterable[str]:
    for line in lines:
        event = line.event
        if isinstance(event, RunResumed):
            cut = ", ".join(event.interrupted) or "no launch"
            yield (
                f"Interruption {event.interruption}, resumed {words.utc(line.utc)}: cut {cut}. "
                "A timed launch that was cut keeps its records and is not made again."
            )


def _signer(signer: Signer) -> tuple[Row, ...]:
    return (
        _row("Signer", signer.subject),
        _row("Role", signer.role),
        _row("Certificate sha256", signer.sha256),
        _row("Valid until", words.utc(signer.not_after_utc)),
    )


# ------------------------------------------------------------------ rulings


def _requirements(bundle: Bundle, verdict: Verdict) -> tuple[Requirement, ...]:
    """One per criterion of the file, then those that are always required and not in it."""
    known = {criterion.id: criterion for criterion in bundle.criteria.criterion}
    names = dict.fromkeys([*known, *(ruling.criterion for ruling in verdict.rulings)])
    return tuple(
        _requirement(
            name,
            known.get(name),
            [ruling for ruling in verdict.rulings if ruling.criterion == name],
        )
        for name in names
    )


def _requirement(name: str, criterion: Criterion | None, rulings: Sequence[Ruling]) -> Requirement:
    found: list[RulingWord] = [ruling.ruling for ruling in rulings]
    word = cases.worst(found)
    reason = next((ruling.reason for ruling in rulings if ruling.ruling == word), "coverage")
    cases_judged = {ruling.case for ruling in rulings if ruling.case}
    return Requirement(
        id=name,
        title="Required always, whatever the criteria say"
        if criterion is None
        else _title(criterion),
        cases=str(len(cases_judged)),
        ruling=word,
        passed=str(found.count("pass")),
        failed=str(found.count("fail")),
        inconclusive=str(found.count("inconclusive")),
        not_applicable=str(found.count("not_applicable")),
        reason=REASONS.get(reason, reason),
        is_required=criterion is None or criterion.required,
    )


def _title(criterion: Criterion) -> str:
    unit = {"step_seconds": "s", "flops_per_second": "FLOP/s", "bytes_per_second": "B/s"}
    limits = [
        f"{bound} {words.quantity(limit, unit.get(criterion.metric, ''))}"
        for bound, limit in (("at least", criterion.at_least), ("at most", criterion.at_most))
        if limit is not None
    ]
    scope = "" if criterion.cases == "*" else f" (cases {criterion.cases})"
    return f"{criterion.title}{': ' if limits else ''}{', '.join(limits)}{scope}"


def _open_rulings(verdict: Verdict) -> tuple[OpenRuling, ...]:
    """Every ruling that is not a pass, the required and the worst first."""
    found = [ruling for ruling in verdict.rulings if ruling.ruling != "pass"]
    found.sort(key=lambda one: (not one.required, cases.WORST_FIRST.index(one.ruling)))
    return tuple(
        OpenRuling(
            ruling=ruling.ruling,
            criterion=ruling.criterion,
            case=ruling.case or "no case",
            reason=REASONS.get(ruling.reason, ruling.reason),
            explanation=ruling.explanation,
            action=ruling.action,
            is_required=ruling.required,
        )
        for ruling in found
    )


# ------------------------------------------------------------------ evidence


def _evidence(bundle: Bundle) -> tuple[Row, ...]:
    plan, files = bundle.plan, bundle.files
    lines = files[JOURNAL].splitlines()
    given = (
        _row(title, sha256(files[name]) if name in files else "none was given")
        for title, name in (("Buyer's challenge", CHALLENGE), ("Buyer's order", ORDER))
    )
    return (
        _row("Journal", f"{count(len(lines), 'line')}, each with the digest of the one before"),
        _row("Journal head", sha256(lines[-1]) if lines else NOT_REPORTED),
        _row("Plan", sha256(files["plan.json"])),
        _row("Seed of the run", plan.seed),
        *given,
        *(_row(f"{words.label(name)}, as planned", found) for name, found in plan.digests.items()),
        _row("Baselines", _baselines(bundle)),
    )


def _baselines(bundle: Bundle) -> str:
    found = bundle.baselines.baseline
    if not found:
        return "none for this device: performance is reported and not compared"
    return f"{count(len(found), 'case')} with a measured figure of ours"


def _files(bundle: Bundle) -> Grid:
    return Grid(
        columns=("File", "Bytes", "sha256"),
        rows=tuple(
            (name, f"{len(bundle.files[name]):,}", sha256(bundle.files[name]))
            for name in data_names(bundle.files)
        ),
    )
