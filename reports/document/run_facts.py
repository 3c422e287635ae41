"""How the run of page 1 was made: suite, protocol, launches, order, criteria, risks and times."""

from __future__ import annotations

from appliance.challenge import ledger
from appliance.evidence.journal_index import JournalIndex
from appliance.judging import order_match
from appliance.planning import challenge_window
from appliance.planning.criterion_scope import MOST_ATTEMPTS
from appliance.planning.sessions import judged_analyses, seconds_between
from appliance.records.json import sha256
from appliance.records.plan import Plan
from appliance.records.verdict import Verdict
from appliance.storage.bundle import CHALLENGE, CRITERIA, RECEIPT, Bundle
from reports import guard_bands, judging, words
from reports.model import Row, labelled
from reports.words import NOT_REPORTED, count

SHOWN_DIGITS = 12  # of the challenge's digest on page 1; the list of evidence has all of it
ONE_SESSION = "one session: the level of a run was not sampled"
MOST_DATES = 3  # of sessions on page 1; the journal has them all


def rows(
    bundle: Bundle, verdict: Verdict, index: JournalIndex, hidden: frozenset[str]
) -> tuple[Row, ...]:
    plan, criteria = bundle.plan, bundle.criteria
    banded = guard_bands.row_value(bundle, verdict)
    return (
        labelled(
            "Suite",
            f"{plan.suite}, version {plan.suite_version}: {plan.suite_summary}",
        ),
        _chosen(plan.digests.get("suite", NOT_REPORTED)),
        labelled("Protocol", _protocol(plan)),
        labelled("Launches", _launches(verdict)),
        *_order_row(bundle),
        labelled("Criteria", f"{criteria.name}, version {criteria.version}: {criteria.summary}"),
        _chosen(bundle.digests[CRITERIA]),
        labelled("Inputs", *_freshness(bundle)),
        labelled("Risks", judging.risks(plan, criteria, index.attempt)),
        *((labelled("Guard bands", banded),) if banded else ()),
        labelled("Suite score", judging.score_words(verdict.score, hidden)),
        labelled(
            "Run",
            f"{_times(index)}; {_sessions(plan, index)}",
            f"planned {words.utc(plan.created_utc)}",
        ),
        *(() if verdict.num_interruptions else (labelled("Interruptions", "none"),)),
    )


def _order_row(bundle: Bundle) -> tuple[Row, ...]:
    """How the node compares with what was bought, and for whom the run was made."""
    customer, challenge = _customer(bundle)
    if bundle.order is None and bundle.files.get(CHALLENGE) is None:
        return (labelled("Order, customer", "no order was given, no customer is named", challenge),)
    return (*_ordered_row(bundle), labelled("Customer", customer, challenge))


def _customer(bundle: Bundle) -> tuple[str, str]:
    """The buyer by his own challenge: his reference, and whose receipts count the attempts."""
    data = bundle.files.get(CHALLENGE)
    if data is None:
        return "not named", "no challenge was given"
    challenge = challenge_window.parse(data)
    return challenge.note or "not named", f"challenge of {words.utc(challenge.issued_utc)}"


def _ordered_row(bundle: Bundle) -> tuple[Row, ...]:
    if bundle.order is None:
        return (labelled("Order", "none was given"),)
    counts = order_match.counts(order_match.match(bundle.order, bundle.system))
    return (labelled("Order", f"{bundle.order.name}: {counts}"),)


def _chosen(digest: str) -> Row:
    """The digest of the file in the row above, which its signer chose."""
    return Row(label="", value="", note=f"chosen by the signer, sha256 {digest}")


def _freshness(bundle: Bundle) -> tuple[str, str]:
    """Who chose the inputs, and which attempt this is, as far as it is known."""
    data = bundle.files.get(CHALLENGE)
    seed = (
        "drawn from a seed of the node"
        if data is None
        else f"drawn from the seed of challenge {sha256(data)[:SHOWN_DIGITS]}"
    )
    return seed, _attempt(bundle)


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
    analyses = sorted(
        {
            number
            for case in plan.cases
            if case.launches
            for number in judged_analyses(protocol.interim_analyses, case.launches, plan.sessions)
        }
    ) or [0]
    judged = words.listed([str(launches) for launches in analyses])
    repeats = (
        f", {count(protocol.repeats, 'launch', 'launches')} that must repeat its bits"
        if protocol.repeats
        else ""
    )
    warm = f" and {protocol.warmup_seconds:g} s" if protocol.warmup_seconds else ""
    return (
        f"For each case one untimed launch for reference{repeats}, then up to "
        f"{count(analyses[-1], f'{protocol.mode} launch', f'{protocol.mode} launches')} of at "
        f"least {count(protocol.warmup_steps, 'warm-up step')}{warm}, "
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
        f"{planned:,} planned, {completed:,} completed, {decided:,} not needed, {missing:,} "
        f"missing; failure rate {verdict.num_failed:,} of {verdict.num_made:,} made{rate}"
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
