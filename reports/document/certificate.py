"""Page 1: the verdict with its scope, what stands against it, of which node, signed by whom."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from appliance.challenge import qr_code
from appliance.evidence.journal_index import JournalIndex
from appliance.judging.verdict import LACKS_ROOM
from appliance.planning.sessions import NO_TIME
from appliance.records.json import sha256
from appliance.records.plan import Plan
from appliance.records.signer import Signer
from appliance.records.system import Device
from appliance.records.verdict import Ruling, Verdict
from appliance.storage.bundle import CHALLENGE, Bundle
from reports import machine, performance, plots, words
from reports.document import run_facts
from reports.document.open_rulings import is_open
from reports.document.reasons import REASONS
from reports.model import Certificate, Grid, Row, labelled
from reports.words import NOT_REPORTED, count

FEW_DEVICES = 4  # that stand below one another on page 1
MOST_DEVICES = 8  # devices named on page 1; the system pages have them all
MOST_INTERRUPTIONS = 2  # stated on page 1; the journal has them all
MOST_WORDS = 400  # characters of a sentence on page 1 that the judge wrote; page 2 has all of it
MOST_OTHERS = 3  # requirements that failed beside the one that decided, named on page 1
OF_CASE = " of "
"""What stands between criterion and case where the judge says what decided."""
OTHERS = "Not alone:"
"""How the judge's sentence begins that says that others used the node."""
MOST_RESERVATIONS = 9  # of page 1
LIMITS = (
    "This verdict holds for the devices and cases named here, at the time given; it does not "
    "prove that whoever administered the node was honest, nor how the node will do under work "
    "that was not run."
)
_SERIALS = ("system_serial", "system_uuid", "chassis_serial", "board_serial")


def certificate(
    bundle: Bundle,
    verdict: Verdict,
    signer: Signer,
    index: JournalIndex,
    hidden: frozenset[str],
) -> Certificate:
    scope, *of_judge = _sentences(verdict.scope)
    reservations = [_explained(one, bundle.plan) for one in of_judge]
    digest = data_digest(bundle)
    return Certificate(
        word=verdict.verdict,
        scoped=_scoped(bundle, verdict),
        place="" if _num_unreached(verdict) else verdict.decided_by.partition(OF_CASE)[2],
        banners=tuple(_banners(bundle.plan)),
        counts=_counts(verdict.rulings),
        decided=_decided(verdict) + _also(verdict, bundle.system.identity.devices),
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
        run=run_facts.rows(bundle, verdict, index, hidden),
        interruptions=interruptions(index),
        signer=_signer(signer),
        limits=LIMITS,
    )


def data_digest(bundle: Bundle) -> str:
    """The sha256 over the list of data files as sha256sum writes it: what the pages are made of."""
    listed = "".join(f"{bundle.digests[name]}  {name}\n" for name in sorted(bundle.data))
    return sha256(listed.encode())


def code_text(run_id: str, digest: str) -> str:
    """What the QR code of page 1 holds."""
    return f"bench {run_id} data sha256:{digest}"


def _sentences(text: str) -> list[str]:
    """The sentences of the judge, apart: the first is what was judged."""
    return re.split(r"(?<=\.) (?=[A-Z0-9])", text)


def _explained(sentence: str, plan: Plan) -> str:
    """A sentence of the scope; of cases that cannot be placed here, with why, if all have one."""
    head, colon, rest = sentence.partition(f": {LACKS_ROOM}")
    if not colon:
        return sentence
    left_out = frozenset() if plan.schedule is None else plan.schedule.left_out
    reasons = {one.reason for one in plan.not_planned if one.case not in left_out}
    why = f"each: {reasons.pop()}" if len(reasons) == 1 else "chapter 3 has the reason of each"
    return f"{head} ({why}){rest}"


def _most(reservations: Sequence[str]) -> tuple[str, ...]:
    """As many as page 1 has room for, each cut to a length; verdict.json has them whole."""
    rest = len(reservations) - MOST_RESERVATIONS
    shown = [cut_short(one) for one in reservations[:MOST_RESERVATIONS]]
    more = (f"And {rest} more in the scope of verdict.json.",) if rest > 0 else ()
    return (*shown, *more)


def cut_short(sentence: str) -> str:
    """A sentence that fits page 1, cut behind the last whole item of its list."""
    if len(sentence) <= MOST_WORDS:
        return sentence
    return f"{sentence[:MOST_WORDS].rpartition(', ')[0] or sentence[:MOST_WORDS]} … (verdict.json)"


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
    if num_unreached := _num_unreached(verdict):
        return f": no time for {num_unreached:,} of {count(len(verdict.cases), 'case')}"
    criterion, of, _ = verdict.decided_by.partition(OF_CASE)
    return f": {criterion}{of.rstrip()}" if criterion else ""


def _num_unreached(verdict: Verdict) -> int:
    """Cases for which the minutes left no time, where one of them decided; none of a criterion."""
    unreached = {
        result.case
        for result in verdict.cases
        if all((one.outcome, one.reason) == ("not_run", NO_TIME) for one in result.launches)
    }
    decisive = _decisive(verdict)
    return len(unreached) if decisive is not None and decisive.case in unreached else 0


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
    action = "" if one is None else words.continued(one.action.rstrip("."))
    what = (
        "Do not accept the node as it is"
        if verdict.verdict == "REJECTED"
        else "Neither accept nor reject the node yet"
    )
    return f"{what}{f'; next: {action}' if action else ''}."


def _decisive(verdict: Verdict) -> Ruling | None:
    """The ruling that decided, None for an acceptance."""
    return next(
        (one for one in verdict.rulings if verdict.decided_by == _called(one) and is_open(one)),
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


def _also(verdict: Verdict, devices: Sequence[Device]) -> str:
    """What failed beside the ruling that decided, or the one of several devices that it all is on.

    Nothing where the node is not rejected, or nothing else failed.
    """
    fails = [one for one in verdict.rulings if one.required and one.ruling == "fail"]
    others = [one for one in fails if _called(one) != verdict.decided_by]
    if verdict.verdict != "REJECTED" or not others:
        return ""
    places = {one.case.partition("@")[2] for one in fails}
    culprit = next((one for one in devices if places == {one.id} and len(devices) > 1), None)
    if culprit is not None:
        serial = f", serial {words.brief(culprit.serial)}" if culprit.serial else ""
        return f" All {len(fails):,} required rulings that fail are of {culprit.id}{serial}."
    cases: dict[str, list[str]] = {}
    for one in others:
        cases.setdefault(one.criterion, []).append(one.case)
    named = [
        f"{criterion} of {words.cases(of)}" if all(of) else criterion
        for criterion, of in list(cases.items())[:MOST_OTHERS]
    ]
    rest = len(cases) - len(named)
    more = [f"{count(rest, 'more requirement')} of chapter 2"] if rest else []
    return f" Also failed: {words.listed([*named, *more])}."


def _called(ruling: Ruling) -> str:
    """A ruling as `Verdict.decided_by` names it."""
    return f"{ruling.criterion}{OF_CASE}{ruling.case}" if ruling.case else ruling.criterion


def _counts(rulings: Sequence[Ruling]) -> str:
    required = [ruling.ruling for ruling in rulings if ruling.required]
    clauses = [
        f"{required.count(word):,} {word.replace('_', ' ')}"
        for word in ("pass", "fail", "inconclusive", "not_applicable")
        if word != "not_applicable" or word in required
    ]
    return f"{count(len(required), 'required ruling')}: {', '.join(clauses)}"


def subject_words(bundle: Bundle) -> str:
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
        labelled("System", " ".join(known) or NOT_REPORTED),
        labelled(
            words.label(serial) if serial else "System serial",
            machine.first_known(host, (serial,)),
            missing,
        ),
        labelled("Node", machine.first_known(bundle.system.conditions.facts, ("hostname",))),
    )


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


def interruptions(index: JournalIndex) -> str:
    """When the run was cut short and in what, or nothing."""
    resumptions = index.resumptions
    unresumed = _unresumed(index)
    if not (resumptions or unresumed):
        return ""
    sentences = [
        f"Interruption {event.interruption}, resumed {words.utc(utc)}, cut "
        f"{', '.join(_cut(index, number)[:MOST_DEVICES]) or 'no launch'}."
        for number, (utc, event) in enumerate(resumptions[:MOST_INTERRUPTIONS])
    ]
    rest = len(resumptions) - MOST_INTERRUPTIONS
    if rest > 0:
        sentences.append(f"{count(rest, 'more interruption')} stand in journal.jsonl.")
    if unresumed:
        named = [f"{name}{_why_cut(index, name)}" for name in unresumed[:MOST_DEVICES]]
        sentences.append(f"Cut while the run went on: {', '.join(named)}.")
    sentences.append("A timed launch that was cut keeps its records and is not made again.")
    return " ".join(sentences)


def _unresumed(index: JournalIndex) -> list[str]:
    """Launches that were cut short after the last resumption, or with none in the run.

    One that lost its server, or memory to a process beside it, is cut while the run goes on.
    """
    told = {name for _, event in index.resumptions for name in event.interrupted}
    last = len(index.resumptions)
    return [name for before, name in index.cut if before == last and name not in told]


def _why_cut(index: JournalIndex, launch: str) -> str:
    """In brackets why a launch ended, as the journal says; nothing where it does not."""
    evidence = index.launches.get(launch)
    ended = None if evidence is None else evidence.ended
    why = "" if ended is None else ended.detail or ended.reason.replace("_", " ")
    return f" ({why})" if why else ""


def _cut(index: JournalIndex, number: int) -> list[str]:
    """The launches that were open when the run broke off before this resumption, or ended by it.

    A run that is told to end ends its launches itself; one that was killed leaves them open, and
    they are noted as interrupted when it goes on.
    """
    told = [name for _, event in index.resumptions[:number] for name in event.interrupted]
    own = [*index.resumptions[number][1].interrupted]
    own += [name for before, name in index.cut if before == number and name not in told]
    return list(dict.fromkeys(own))


def _signer(signer: Signer) -> tuple[Row, ...]:
    return (
        labelled("Signer", signer.subject, f"as {signer.role}"),
        labelled(
            "Certificate sha256", signer.sha256, f"valid until {words.utc(signer.not_after_utc)}"
        ),
    )
