"""A bundle to what the report says: pure, from the bundle's files alone, so that anyone can.

The same bundle gives the same view on every machine and every day: times come from the plan
and the journal, never from a clock, and the list of evidence leaves out what is made after the
pages (the statements and the pages themselves).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from appliance.challenge import ledger, qr_code
from appliance.errors import EvidenceError
from appliance.evidence.journal_index import JournalIndex, index_of
from appliance.judging import order_match
from appliance.judging.verdict import PRECEDENCE, requirements
from appliance.planning import challenge_window
from appliance.planning.criterion_scope import MOST_ATTEMPTS
from appliance.planning.sessions import num_in_all, seconds_between
from appliance.records.criteria import Criterion
from appliance.records.json import sha256
from appliance.records.order import Order
from appliance.records.plan import Plan
from appliance.records.signer import Signer
from appliance.records.system import Device
from appliance.records.verdict import Reason, Ruling, RulingWord, Verdict
from appliance.storage.bundle import (
    CHALLENGE,
    CRITERIA,
    JOURNAL,
    LOGS,
    ORDER,
    RECEIPT,
    Bundle,
    data_names,
)
from appliance.storage.criteria_file import ORDER_LINE
from reports import (
    burn_in,
    cases,
    families,
    guard_bands,
    health,
    judging,
    machine,
    pairs,
    performance,
    plots,
    words,
)
from reports.model import (
    Certificate,
    Chapter,
    Grid,
    OpenCase,
    OpenRuling,
    OrderRow,
    OrderTable,
    Requirement,
    Row,
    View,
    cleaned,
)
from reports.words import NOT_REPORTED, count

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FEW_DEVICES = 4  # that stand below one another on page 1
SHOWN_DIGITS = 16  # of the suite's digest on page 1; plan.json has all of it
MOST_DEVICES = 8  # devices named on page 1; the system pages have them all
MOST_INTERRUPTIONS = 2  # stated on page 1; the journal has them all
MOST_WORDS = 400  # characters of a sentence on page 1 that the judge wrote; page 2 has all of it
OTHERS = "Not alone:"
"""How the judge's sentence begins that says that others used the node."""
MOST_RESERVATIONS = 9  # of page 1
MOST_ALIKE = 12  # explanations of one criterion and reason; verdict.json has them all
MOST_LOGS = 24  # files that the list of evidence names; of more it has the number and one digest
OF_RUN = "the run"
LIMITS = (
    "This verdict holds for the devices and cases named here, at the time given; it does not "
    "prove that whoever administered the node was honest, nor how the node will do under work "
    "that was not run."
)
REASONS: dict[Reason, str] = {
    "": "",
    "crashed": "crashed",
    "timed_out": "did not end in time",
    "check": "check outside its bound",
    "interrupted": "interrupted",
    "unsupported": "not supported here",
    "not_run": "not run",
    "software": "cannot run: software",
    "coverage": "not covered by a case or check",
    "evidence_missing": "evidence missing",
    "noise": "too noisy to tell",
    "over_limit": "over the limit",
    "clock": "clock fault",
    "unstable": "no steady level",
    "environment": "disturbed by others",
    "setting": "another setting than asked for",
    "budget": "too few launches planned",
    "baseline_missing": "no baseline",
    "baseline_mismatch": "baseline of something else",
    "peak_missing": "no vendor's figure",
    "above_peak": "faster than the vendor's peak",
    "too_good": "faster than the baseline can explain",
    "injected": "fault injected on purpose",
    "rerun": "repeats a disputed launch",
    "converted": "made of another version's journal",
    "transient": "a mismatch seen once",
    "disagreement": "other bits than its equals",
    "unqualified": "no qualified record",
    "unplanned": "no deterministic phase planned",
    "no_deterministic_form": "no deterministic form",
    "stalled": "stalled",
    "health": "health counter or reading",
    "not_observed": "not observed",
    "not_shown": "the driver shows none",
    "fabric": "way between devices",
    "absent": "the device cannot have it",
    "inventory": "not what was ordered",
}
ONE_SESSION = "one session: the level of a run was not sampled"
MOST_DATES = 3  # of sessions on page 1; the journal has them all
LONGEST_CELL = 300  # characters of a cell of the order; the bundle has the rest
CLASSES = ("integrity", "correctness", "health", "performance")
"""What a criterion's precedence is called, the highest first."""
_SERIALS = ("system_serial", "system_uuid", "chassis_serial", "board_serial")


def view(bundle: Bundle) -> View:
    """All that the report says of a bundle; EvidenceError if its verdict or signer is missing."""
    plan, verdict, signer = bundle.plan, bundle.verdict, bundle.signer
    if verdict is None or signer is None:
        missing = "verdict.json" if verdict is None else "signer.json"
        raise EvidenceError(f"the bundle has no {missing}, so there is no report to make of it")
    created = words.moment(plan.created_utc) or EPOCH
    criteria = requirements(bundle.criteria)
    index = index_of(plan, bundle.lines)
    hidden = cases.untimed(plan, verdict)
    modified = words.moment(index.end_utc) if index.end_utc else None
    sections = cases.sections(index, verdict, bundle.peaks, bundle.qualified, bundle.system)
    rows = families.members(index, verdict, sections)
    burnt, copied = burn_in.sections(index), pairs.sections(plan, verdict)
    return cleaned(
        View(
            run_id=plan.run_id,
            subject=_subject_words(bundle),
            generator=f"bench {plan.bench_version}",
            created=created,
            modified=modified or created,
            is_development=signer.is_development,
            certificate=_certificate(bundle, verdict, signer, index, hidden),
            performance=performance.page(bundle, verdict, hidden),
            chapters=chapters(has_burn_in=bool(burnt), has_pairs=bool(copied)),
            requirements=_requirements(bundle, verdict, criteria),
            order=_order(bundle),
            open_rulings=_open_rulings(
                verdict, (*criteria, *order_match.requirements(bundle.order))
            ),
            legend=cases.legend(verdict),
            cases=sections,
            families=families.sections(rows),
            heat_map=families.heat_map(rows),
            appendix=families.appendix(rows, index),
            not_planned=tuple(
                Row(label=item.case, value=item.device or "the node", note=item.reason)
                for item in plan.not_planned
            ),
            burn_in=burnt,
            pairs=copied,
            health=health.chapter(bundle.criteria, bundle.system.identity.devices, index),
            judging=judging.chapter(bundle, verdict, criteria, hidden, index),
            budget=machine.budget_section(index.budget.now()),
            system=machine.system_groups(bundle.system, bundle.peaks),
            environment=machine.environment_groups(bundle.system, index),
            evidence=_evidence(bundle),
            files=_files(bundle),
        )
    )


def chapters(*, has_burn_in: bool, has_pairs: bool) -> tuple[Chapter, ...]:
    """The contents: what there is, numbered; what a person looks up stands in the appendix."""
    wanted = [
        (True, "performance", "Performance"),
        (True, "summary", "Requirements"),
        (True, "cases", "Cases"),
        (has_burn_in, "burn-in", "Burn-in"),
        (has_pairs, "pairs", "Copies between devices"),
        (True, "health", "Health of the devices"),
        (True, "judging", "Judging"),
        (True, "system", "System"),
        (True, "environment", "Environment"),
        (True, "evidence", "Evidence"),
        (True, "verify", "How to verify with public tools"),
    ]
    appendix = [("checks", "Every check"), ("launches", "Launches, clocks and readings")]
    present = [(anchor, title) for is_here, anchor, title in wanted if is_here]
    return (
        *(
            Chapter(number=str(number), title=title, anchor=anchor)
            for number, (anchor, title) in enumerate(present, 1)
        ),
        *(
            Chapter(number=letter, title=title, anchor=anchor)
            for letter, (anchor, title) in zip("AB", appendix, strict=True)
        ),
    )


# ------------------------------------------------------------------ page 1


def _certificate(
    bundle: Bundle,
    verdict: Verdict,
    signer: Signer,
    index: JournalIndex,
    hidden: frozenset[str],
) -> Certificate:
    scope, *reservations = _sentences(verdict.scope)
    digest = data_digest(bundle)
    return Certificate(
        word=verdict.verdict,
        scoped=_scoped(bundle, verdict),
        banners=tuple(_banners(bundle.plan)),
        counts=_counts(verdict.rulings),
        decided=_decided(verdict),
        recommendation=_recommendation(bundle, verdict),
        scope=scope,
        reservations=_most([*sorted(reservations, key=_is_quiet), *_reservations(bundle)]),
        digest=digest,
        code=plots.code(
            f"Digest over the data files: {digest}",
            qr_code.modules(code_text(bundle.plan.run_id, digest)),
        ),
        subject=_subject(bundle),
        devices=_devices(bundle.system.identity.devices),
        run=_run(bundle, verdict, index, hidden),
        interruptions=_interruptions(index),
        signer=_signer(signer),
        limits=LIMITS,
    )


def data_digest(bundle: Bundle) -> str:
    """The sha256 over the list of data files as sha256sum writes it: what the pages are made of."""
    data = bundle.data
    return sha256("".join(f"{sha256(data[name])}  {name}\n" for name in sorted(data)).encode())


def code_text(run_id: str, digest: str) -> str:
    """What the QR code of page 1 holds."""
    return f"bench {run_id} data sha256:{digest}"


def _sentences(text: str) -> list[str]:
    """The sentences of the judge, apart: the first is what was judged."""
    return re.split(r"(?<=\.) (?=[A-Z0-9])", text)


def _most(reservations: Sequence[str]) -> tuple[str, ...]:
    """As many as page 1 has room for, each cut to a length; verdict.json has them whole."""
    rest = len(reservations) - MOST_RESERVATIONS
    shown = [words.brief(one, MOST_WORDS) for one in reservations[:MOST_RESERVATIONS]]
    more = (f"And {rest} more in the scope of verdict.json.",) if rest > 0 else ()
    return (*shown, *more)


def _is_quiet(sentence: str) -> bool:
    """Whether a reservation is another than that others used the node, which stands first."""
    return not sentence.startswith(OTHERS)


def _reservations(bundle: Bundle) -> Iterable[str]:
    """What the verdict does not say of itself: who chose the inputs, and what was not compared."""
    if bundle.files.get(CHALLENGE) is None:
        yield "No challenge of a buyer: the node drew its own inputs."
    if bundle.order is None:
        yield "No order was given: nothing was compared with what was bought."


def _scoped(bundle: Bundle, verdict: Verdict) -> str:
    """What the verdict is of, in the words beside it: scope of an acceptance, else what decided."""
    if verdict.verdict == "ACCEPTED":
        is_judged = performance.is_judged(bundle, verdict)
        return ", performance judged" if is_judged else ", functional only"
    return f": {verdict.decided_by}" if verdict.decided_by else ""


def _recommendation(bundle: Bundle, verdict: Verdict) -> str:
    """One sentence on what to do with the node, which follows from the verdict alone."""
    if tuple(_banners(bundle.plan)) or bundle.plan.converted_from:
        return "Take this run for no acceptance: it was made for another end."
    if verdict.verdict == "ACCEPTED":
        is_alone = all(map(_is_quiet, _sentences(verdict.scope)))
        noise = "" if is_alone else ", and take its times for no baseline: the node was not alone"
        if performance.is_judged(bundle, verdict):
            return f"Accept the node, in function and within the limits on speed{noise}."
        return (
            "Accept the node as working; before its speed is paid for, run it again with limits "
            f"(bench accept --criteria, --baseline){noise}."
        )
    one = _decisive(verdict)
    action = "" if one is None else one.action.rstrip(".")
    what = (
        "Do not accept the node as it is"
        if verdict.verdict == "REJECTED"
        else "Neither accept nor reject the node yet"
    )
    return f"{what}{f'; next: {action}' if action else ''}."


def _decisive(verdict: Verdict) -> Ruling | None:
    """The ruling that decided, None for an acceptance."""
    return next(
        (one for one in verdict.rulings if verdict.decided_by == _called(one) and _is_open(one)),
        None,
    )


def _banners(plan: Plan) -> Iterable[str]:
    """What makes this run another thing than an acceptance."""
    if plan.injectors:
        yield (
            f"This run injects faults on purpose ({', '.join(plan.injectors)}); it accepts nothing."
        )
    if plan.rerun_of:
        yield f"This run repeats {plan.rerun_of} to settle a dispute; it accepts nothing."


def _decided(verdict: Verdict) -> str:
    """What decided the verdict: the criterion, and why in the judge's own sentence."""
    if not verdict.decided_by:
        return ""
    decisive = _decisive(verdict)
    explanation = "" if decisive is None else decisive.explanation or REASONS[decisive.reason]
    short = explanation if len(explanation) <= MOST_WORDS else f"{explanation[:MOST_WORDS]}…"
    return f"Decided by {verdict.decided_by}{f': {short}' if short else ''}."


def _called(ruling: Ruling) -> str:
    """A ruling as `Verdict.decided_by` names it."""
    return f"{ruling.criterion} of {ruling.case}" if ruling.case else ruling.criterion


def _is_open(ruling: Ruling) -> bool:
    return ruling.ruling != "pass"


def _counts(rulings: Sequence[Ruling]) -> str:
    required = [ruling.ruling for ruling in rulings if ruling.required]
    clauses = [f"{required.count('pass')} pass", f"{required.count('fail')} fail"]
    clauses.append(f"{required.count('inconclusive')} inconclusive")
    if "not_applicable" in required:
        clauses.append(f"{required.count('not_applicable')} not applicable")
    return f"{count(len(required), 'required ruling')}: {', '.join(clauses)}"


def _subject_words(bundle: Bundle) -> str:
    models = [device.model for device in bundle.system.identity.devices]
    counted = (f"{models.count(model)} x {words.brief(model)}" for model in dict.fromkeys(models))
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
    """The devices by serial; many of them in two columns, with what they share said once."""
    shown = devices[:MOST_DEVICES]
    rest = len(devices) - len(shown)
    notes = (f"and {count(rest, 'more device')}, listed under System",) if rest else ()
    rows = [
        (
            device.id,
            words.brief(device.model),
            words.brief(device.serial or NOT_REPORTED),
            _memory(device),
        )
        for device in shown
    ]
    columns = ("Device", "Model", "Serial or UUID", "Memory")
    kinds = dict.fromkeys((model, memory) for _, model, _, memory in rows)
    if len(rows) <= FEW_DEVICES or len(kinds) > 1:
        return Grid(columns=columns, rows=tuple(rows), notes=notes)
    named = [(name, serial) for name, _, serial, _ in rows] + [("", "")] * (len(rows) % 2)
    half = len(named) // 2
    model, memory = next(iter(kinds))
    return Grid(
        columns=("Device", "Serial or UUID", "Device", "Serial or UUID"),
        rows=tuple((*named[i], *named[i + half]) for i in range(half)),
        notes=(f"each {model}, {memory}", *notes),
    )


def _memory(device: Device) -> str:
    return NOT_REPORTED if device.memory_bytes is None else words.size(device.memory_bytes)


def _run(
    bundle: Bundle, verdict: Verdict, index: JournalIndex, hidden: frozenset[str]
) -> tuple[Row, ...]:
    plan, criteria = bundle.plan, bundle.criteria
    banded = guard_bands.row_value(bundle, verdict)
    return (
        _row(
            "Suite",
            f"{plan.suite}, version {plan.suite_version}: {plan.suite_summary}",
            _freshness(bundle),
        ),
        _row("Protocol", _protocol(plan)),
        _row("Launches", _launches(verdict)),
        *_order_row(bundle),
        _row("Criteria", f"{criteria.name}, version {criteria.version}: {criteria.summary}"),
        Row(
            label="",
            value="",
            note=f"suite, criteria chosen by the signer: {sha256(bundle.files[CRITERIA])}",
        ),
        _row("Risks", judging.risks(plan, criteria, index.attempt)),
        *((_row("Guard bands", banded),) if banded else ()),
        _row("Suite score", judging.score_words(verdict.score, hidden)),
        _row(
            "Run",
            f"{_times(index)}; {_sessions(plan, index)}",
            f"planned {words.utc(plan.created_utc)}",
        ),
        *(() if verdict.num_interruptions else (_row("Interruptions", "none"),)),
    )


def _order_row(bundle: Bundle) -> tuple[Row, ...]:
    """How the node compares with what was bought, and for whom the run was made."""
    return (*_ordered_row(bundle), _row("Customer", *_customer(bundle)))


def _customer(bundle: Bundle) -> tuple[str, str]:
    """The buyer by his own challenge: his reference, and whose receipts count the attempts."""
    data = bundle.files.get(CHALLENGE)
    if data is None:
        return "not named", "no challenge was given"
    challenge = challenge_window.parse(data)
    return challenge.note or "not named", f"challenge of {words.utc(challenge.issued_utc)}"


def _ordered_row(bundle: Bundle) -> tuple[Row, ...]:
    if bundle.order is None:
        return (_row("Order", "none was given"),)
    counts = order_match.counts(order_match.match(bundle.order, bundle.system))
    return (_row("Order", f"{bundle.order.name}: {counts}"),)


def _freshness(bundle: Bundle) -> str:
    """Who chose suite and inputs, and which attempt this is, as far as they are known."""
    data = bundle.files.get(CHALLENGE)
    seed = "seed by the node" if data is None else f"seed of challenge {sha256(data)[:12]}"
    suite = f"chosen by the signer: {bundle.plan.digests.get('suite', NOT_REPORTED)[:SHOWN_DIGITS]}"
    return f"{suite}; {seed}; {_attempt(bundle)}"


def _attempt(bundle: Bundle) -> str:
    """Which attempt at its challenge this is, by the buyer's receipt."""
    data = bundle.files.get(RECEIPT)
    if data is None:
        return "the number of attempts is unknown"
    buyer = ledger.buyer_of(challenge_window.parse(bundle.files[CHALLENGE]))
    receipt = ledger.read_receipt(data, buyer, RECEIPT)
    return (
        f"attempt {receipt.attempt} of at most {MOST_ATTEMPTS}, begun {words.utc(receipt.utc)}, "
        f"window until {words.utc(receipt.not_after_utc)}"
    )


def _protocol(plan: Plan) -> str:
    """One sentence that says how the launches were made."""
    protocol = plan.protocol
    checked = (
        "every launch"
        if protocol.last_checks == "all"
        else "one launch of each case, drawn by the seed"
    )
    analyses = [
        num_in_all(protocol.interim_analyses, launches, plan.sessions)
        for launches in protocol.interim_analyses
    ]
    judged = words.listed([str(launches) for launches in analyses])
    return (
        f"For each case one untimed launch for reference, then up to "
        f"{count(analyses[-1], f'{protocol.mode} launch', f'{protocol.mode} launches')} of at "
        f"least {count(protocol.warmup_steps, 'warm-up step')} and {protocol.warmup_seconds:g} s, "
        f"then {count(protocol.blocks, 'block')} of at least {count(protocol.block_steps, 'step')} "
        f"and {protocol.block_seconds:g} s; judged after {judged}; "
        f"the first output is checked in every launch, the last timed one in {checked}."
    )


def _launches(verdict: Verdict) -> str:
    planned = sum(result.num_planned for result in verdict.cases)
    completed = sum(result.num_completed for result in verdict.cases)
    decided = sum(result.num_decided for result in verdict.cases)
    missing = planned - completed - decided
    rate = f" ({words.percent(verdict.num_failed / verdict.num_made)})" if verdict.num_made else ""
    return (
        f"{planned} planned, {completed} completed, {decided} not needed, {missing} missing; "
        f"failure rate {verdict.num_failed} of {verdict.num_made} made{rate}"
    )


def _sessions(plan: Plan, index: JournalIndex) -> str:
    """How many there were with their days and the pauses between them; what one cannot show."""
    if plan.sessions == 1:
        return ONE_SESSION
    begins = [index.begin_utc, *(utc for utc, _ in index.session_begins)]
    pauses = [
        words.span(seconds_between(ended, end_utc, began, begin_utc))
        for (end_utc, ended), (begin_utc, began) in zip(
            index.session_ends, index.session_begins, strict=False
        )
    ]
    days = words.listed([words.utc(utc) for utc in begins[:MOST_DATES]])
    rest = " and later" if len(begins) > MOST_DATES else ""
    return (
        f"{plan.sessions} sessions, begun {days}{rest}, with pauses of "
        f"{words.listed(pauses[:MOST_DATES])}{rest}; "
        "times are judged at the launches of all of them"
    )


def _times(index: JournalIndex) -> str:
    first, last = index.begin_utc, index.end_utc
    if not first:
        return NOT_REPORTED
    begin, end = words.moment(first), words.moment(last)
    took = "" if begin is None or end is None else words.span((end - begin).total_seconds())
    return f"{words.utc(first)} to {words.utc(last)}" + (f" ({took})" if took else "")


def _interruptions(index: JournalIndex) -> str:
    """When the run was cut short and in what, or nothing."""
    resumptions = index.resumptions
    if not resumptions:
        return ""
    sentences = [
        f"Interruption {event.interruption}, resumed {words.utc(utc)}, cut "
        f"{', '.join(event.interrupted[:MOST_DEVICES]) or 'no launch'}."
        for utc, event in resumptions[:MOST_INTERRUPTIONS]
    ]
    rest = len(resumptions) - MOST_INTERRUPTIONS
    if rest > 0:
        sentences.append(f"{count(rest, 'more interruption')} stand in journal.jsonl.")
    sentences.append("A timed launch that was cut keeps its records and is not made again.")
    return " ".join(sentences)


def _signer(signer: Signer) -> tuple[Row, ...]:
    return (
        _row("Signer", signer.subject, f"as {signer.role}"),
        _row("Certificate sha256", signer.sha256, f"valid until {words.utc(signer.not_after_utc)}"),
    )


# ------------------------------------------------------------------ rulings


def _requirements(
    bundle: Bundle, verdict: Verdict, criteria: Sequence[Criterion]
) -> tuple[Requirement, ...]:
    """One per criterion of the file, then those that are always required and not in it."""
    criterion_ids = {criterion.id for criterion in bundle.criteria.criterion}
    known = {criterion.id: criterion for criterion in criteria}
    lines = {criterion.id for criterion in order_match.requirements(bundle.order)}
    named = (ruling.criterion for ruling in verdict.rulings)
    names = [name for name in dict.fromkeys([*known, *named]) if name not in lines]
    requirements = tuple(
        _requirement(
            name,
            known.get(name),
            [ruling for ruling in verdict.rulings if ruling.criterion == name],
            bundle,
            is_implied=name not in criterion_ids,
        )
        for name in names
    )
    return (
        requirements
        if bundle.order is None
        else (*requirements, _ordered(bundle.order, verdict, lines))
    )


def _ordered(order: Order, verdict: Verdict, lines: set[str]) -> Requirement:
    """All lines of the order as one requirement; each stands in a table of its own."""
    rulings = [ruling for ruling in verdict.rulings if ruling.criterion in lines]
    required: list[RulingWord] = [ruling.ruling for ruling in rulings if ruling.required]
    word = cases.worst(required or [ruling.ruling for ruling in rulings])
    reason: Reason = next((one.reason for one in rulings if one.ruling == word), "coverage")
    return Requirement(
        id="order",
        title=f"The node is what was bought: {order.name}",
        limit=f"{count(len(lines), 'line')} of order.toml, below",
        cases="the node",
        ruling=word,
        counts=_numbers([ruling.ruling for ruling in rulings]),
        reason=REASONS.get(reason, reason),
        is_required=bool(required),
    )


def _order(bundle: Bundle) -> OrderTable | None:
    """Each line of the order, what was found, and the ruling; None without an order."""
    if bundle.order is None:
        return None
    return OrderTable(
        intro=f"{bundle.order.name}: {bundle.order.summary}",
        rows=tuple(
            OrderRow(
                number=one.id.removeprefix(ORDER_LINE),
                title=one.line.title,
                field=one.line.field,
                ordered=words.brief(one.ordered, LONGEST_CELL),
                actual=words.brief(one.actual, LONGEST_CELL),
                ruling=one.draft.ruling,
                is_required=one.line.required,
            )
            for one in order_match.match(bundle.order, bundle.system)
        ),
    )


def _requirement(
    name: str,
    criterion: Criterion | None,
    rulings: Sequence[Ruling],
    bundle: Bundle,
    *,
    is_implied: bool,
) -> Requirement:
    ruling_words: list[RulingWord] = [ruling.ruling for ruling in rulings]
    word = cases.worst(ruling_words)
    reason: Reason = next((one.reason for one in rulings if one.ruling == word), "coverage")
    title = "not in the criteria file" if criterion is None else criterion.title
    return Requirement(
        id=name,
        title=f"{title} (required always)" if is_implied else title,
        limit="" if criterion is None else judging.limit_words(criterion, bundle.criteria),
        cases=_matched(criterion, rulings),
        ruling=word,
        counts=_numbers(ruling_words),
        reason=REASONS.get(reason, reason),
        is_required=criterion is None or criterion.required,
    )


def _matched(criterion: Criterion | None, rulings: Sequence[Ruling]) -> str:
    """How many cases were judged, and by which pattern they were chosen."""
    judged = len({ruling.case for ruling in rulings if ruling.case})
    if not judged:
        return "the run" if rulings else "none"
    is_all = criterion is None or criterion.cases == "*"
    named = count(judged, "case") + ("" if is_all or criterion is None else f" ({criterion.cases})")
    return f"{named} and the run" if any(not ruling.case for ruling in rulings) else named


def _numbers(ruling_words: Sequence[RulingWord]) -> str:
    clauses = [
        f"{ruling_words.count(word)} {word.replace('_', ' ')}"
        for word in reversed(cases.WORST_FIRST)
        if word in ruling_words
    ]
    return ", ".join(clauses) or "no ruling"


def _open_rulings(verdict: Verdict, criteria: Sequence[Criterion]) -> tuple[OpenRuling, ...]:
    """Every ruling that is not a pass: the required first, then by precedence.

    A fail of integrity stands before one of correctness, that before one of health, and that
    before one of performance; what is inconclusive follows in the same order. What has the same
    reason stands together, and what is the same in all of it is said once.
    """
    ranks = {criterion.id: PRECEDENCE[criterion.kind] for criterion in criteria}
    groups: dict[tuple[object, ...], list[Ruling]] = {}
    for ruling in filter(_is_open, verdict.rulings):
        key = (ruling.criterion, ruling.required, ruling.ruling, ruling.reason)
        groups.setdefault(key, []).append(ruling)
    ordered = sorted(
        groups.values(),
        key=lambda group: (
            not group[0].required,
            cases.WORST_FIRST.index(group[0].ruling),
            ranks.get(group[0].criterion, 0),
        ),
    )
    return tuple(_joined([_open_ruling(group, ranks) for group in ordered]))


def _joined(several: Sequence[OpenRuling]) -> Iterable[OpenRuling]:
    """Those that follow one another and say the same of the run stand in one box."""

    def key(one: OpenRuling) -> tuple[object, ...]:
        is_of_run = [case.cases for case in one.cases] == [OF_RUN]
        alike = (one.ruling, one.reason, one.precedence, one.is_required, one.action)
        return alike if is_of_run else (one.criterion, *alike)

    for _, group in itertools.groupby(several, key):
        first, *others = group
        if not others:
            yield first
            continue
        yield replace(
            first,
            criterion=", ".join(one.criterion for one in (first, *others)),
            cases=tuple(
                replace(case, cases=one.criterion) for one in (first, *others) for case in one.cases
            ),
        )


def _open_ruling(group: Sequence[Ruling], ranks: Mapping[str, int]) -> OpenRuling:
    one = group[0]
    alike: dict[tuple[str, str], list[str]] = {}
    for ruling in group:
        key = (ruling.explanation, ruling.action)
        alike.setdefault(key, []).append(ruling.case or OF_RUN)
    is_shared = len({action for _, action in alike}) == 1
    is_ordered = one.criterion.startswith(ORDER_LINE)
    precedence = "order" if is_ordered else CLASSES[ranks.get(one.criterion, 0)]
    return OpenRuling(
        ruling=one.ruling,
        criterion=one.criterion,
        precedence="" if precedence == one.criterion else precedence,
        reason=REASONS.get(one.reason, one.reason),
        cases=tuple(
            OpenCase(
                cases=words.cases(names),
                explanation=explanation,
                action="" if is_shared else action,
            )
            for (explanation, action), names in list(alike.items())[:MOST_ALIKE]
        )
        + _others_of(list(alike.values())[MOST_ALIKE:]),
        action=one.action if is_shared else "",
        is_required=one.required,
    )


def _others_of(rest: Sequence[Sequence[str]]) -> tuple[OpenCase, ...]:
    """The cases that a box has no room to explain one by one."""
    names = [name for several in rest for name in several]
    if not names:
        return ()
    return (
        OpenCase(
            cases=words.cases(names, 0 if len(names) > 1 else 1),
            explanation="the same reason, each in words of its own in verdict.json",
            action="",
        ),
    )


# ------------------------------------------------------------------ evidence


def _evidence(bundle: Bundle) -> tuple[Row, ...]:
    plan, files = bundle.plan, bundle.files
    lines = files[JOURNAL].splitlines()
    given = {"challenge": CHALLENGE, "receipt": RECEIPT, "order": ORDER}
    missing = [title for title, name in given.items() if name not in files]
    buyer_rows = [
        _row(f"Buyer's {title}", sha256(files[name]))
        for title, name in given.items()
        if name in files
    ]
    if missing:
        buyer_rows.append(_row(f"Buyer's {words.listed(missing)}", "none was given"))
    return (
        _row("Journal", f"{count(len(lines), 'line')}, each with the digest of the one before"),
        _row("Journal head", sha256(lines[-1]) if lines else NOT_REPORTED),
        _row("Plan", sha256(files["plan.json"])),
        _row("Seed of the run", plan.seed),
        _row("Names and addresses of the host", _redaction(plan)),
        *buyer_rows,
        *_planned(bundle),
        _row("Baselines", _baselines(bundle)),
    )


def _planned(bundle: Bundle) -> Iterable[Row]:
    """What the plan was made of: by name where the bundle has the very file, else by digest."""
    present = {sha256(data) for data in bundle.files.values()}
    alike = [name for name, digest in bundle.plan.digests.items() if digest in present]
    if alike:
        named = ", ".join(words.label(name).lower() for name in alike)
        yield _row("As planned", f"{named}: the files below are those that were planned with")
    for name, digest in bundle.plan.digests.items():
        if name not in alike:
            yield _row(f"{words.label(name)}, as planned", digest)


def _redaction(plan: Plan) -> str:
    if not plan.redacted:
        return "as they were read"
    return f"replaced by salted digests; sha256 of the salt {plan.redacted}"


def _baselines(bundle: Bundle) -> str:
    baselines = bundle.baselines.baseline
    if not baselines:
        return "none for this device: no speed is compared with one"
    return f"{count(len(baselines), 'case')} with a measured figure of ours"


def _files(bundle: Bundle) -> Grid:
    names = data_names(bundle.files)
    logs = [name for name in names if name.startswith(f"{LOGS}/")]
    left = logs if len(logs) > MOST_LOGS else []
    rows = [
        (name, f"{len(bundle.files[name]):,}", sha256(bundle.files[name]))
        for name in names
        if name not in set(left)
    ]
    if left:
        listed = "".join(f"{sha256(bundle.files[name])}  {name}\n" for name in left)
        size = sum(len(bundle.files[name]) for name in left)
        rows.append((f"logs/: {len(left)} files", f"{size:,}", sha256(listed.encode())))
    notes = ("The digest of the logs is over their list, as sha256sum writes it.",) if left else ()
    return Grid(columns=("File", "Bytes", "sha256"), rows=tuple(rows), notes=notes)
