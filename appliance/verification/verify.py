"""The verb `verify`: numbered checks of a bundle, offline, and its verdict derived once more.

A folder, or a zip of it, is checked as a whole; a report.pdf or report.html is checked with the
files that it carries. Names and sizes come first, then the signature over the digests, and only
what was signed is parsed. Checks stand in the order in which they depend on each other: one that
rests on a failed one is not done, and says so. Nothing is believed that can be derived: the word at
the end is the judge's, taken from the raw samples, and the signed one must agree with it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from mmap import mmap
from pathlib import Path
from typing import Any, Literal

from cryptography import x509

from appliance.challenge.entries import Receipt
from appliance.errors import EvidenceError, GivenUpError, RecordFormError
from appliance.ipc import confined_child
from appliance.judging.verdict import Judge
from appliance.planning import challenge_window, library_ranges
from appliance.plausibility.clock_checks import check_clock
from appliance.records.journal import LaunchEnded, Line
from appliance.records.json import Record, from_json, sha256, to_data, to_json
from appliance.records.plan import Plan
from appliance.records.signer import Signer
from appliance.records.suite import Suite
from appliance.records.verdict import EXIT_CODES, Verdict, VerdictWord
from appliance.signing import dsse, html_attachments, keys, pades
from appliance.storage import bundle as bundles
from appliance.storage import criteria_file, limits, qualified_file, suite_file
from appliance.storage.bundle import Bundle
from appliance.stress.checks import check_stress
from appliance.verification import (
    attempt_checks,
    evidence_path,
    facts_checks,
    fold_checks,
    input_checks,
    launch_checks,
    run_checks,
    suite_checks,
)
from appliance.verification.evidence_path import Given, Kind
from appliance.verification.facts import Facts, shipped
from appliance.verification.facts import read as read_facts
from appliance.verification.observation_checks import (
    check_begun,
    check_observations,
    check_probed,
)
from appliance.verification.schedule_checks import check_schedule
from appliance.verification.terms import ANYBODY, Expectations, Terms
from appliance.version import VERSION

RELATIVE = 1e-9  # figures may differ by this much between machines; words may not differ
NOT_VERIFIED = 4
NOT_DERIVED = 3
ONLY_STATED = "a statement alone says what was decided, and shows nothing: verify the folder"
SLOWEST_READING = 25 * 10**6  # bytes a second; a tenth of what is usual
SLOWEST_DERIVATION = 2 * 10**6  # bytes a second; a quarter of what is usual
SMALL = 100 * 10**6  # bytes; as much is checked in the memory that any evidence may take
MOST_REASONS = 3  # of workloads that cannot be compared; a sentence is to be read

READ_BY_THEN = frozenset({bundles.PLAN, bundles.VERDICT, *bundles.RENDERINGS})
"""Files that no check reads once the judge takes the lines."""
ANSWERS = frozenset({"facts", "expectations"})
"""Checks without which what is expected of a run is not answered."""
NOT_SHOWN = (
    "no signature shows that the times are true, that the devices are those named, that the run "
    "was made when it says (a challenge shows that the plan was written after it, and not that the "
    "launches were made after it), or that readings were not left out: who distrusts the signer "
    "makes the run again, or watches it"
)
"""What every verdict is printed with: what the owner of the key can forge, and no reader sees."""
WORDS = "the words of the page: verify the folder or report.pdf for them"
"""What is not compared of a report.html alone, unless it is rendered again."""

Status = Literal["pass", "fail", "not_done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLine(Record):
    """One numbered check and what came of it."""

    number: int
    name: str
    status: Status
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(Record):
    """All checks, and the verdict as derived here: None unless every check allows to state it.

    `claimed` is the verdict that was signed, whatever it is worth. `not_compared` is what could not
    be compared with anything that the signer has not chosen, a sentence each: with an expectation
    it leaves the verdict open. `not_shown` is what no signature can show. `attempt` is the number
    that the buyer's receipt gives the run, None where nobody counts or the check failed; `journal`
    is the sha256 of its journal, None where it is not there.
    """

    schema: Literal["bench/verification/3"] = "bench/verification/3"
    path: str
    kind: Kind
    run_id: str | None
    signer: str | None
    claimed: VerdictWord | None
    verdict: VerdictWord | None
    attempt: int | None
    journal: str | None
    checks: tuple[CheckLine, ...]
    not_compared: tuple[str, ...]
    not_shown: str
    exit_code: int

    @property
    def faults(self) -> tuple[str, ...]:
        """Sentence of each check that failed."""
        return tuple(check.sentence for check in self.checks if check.status == "fail")


class _NotDone(Exception):
    """A check cannot be made of what is at hand, and nothing is wrong with that."""

    def __init__(self, reason: str = "rests on a check that was not done") -> None:
        super().__init__(reason)


def verify(path: Path, terms: Terms = ANYBODY) -> Verification:
    """Check a bundle's folder, a zip of it, or one of its pages or statements.

    Raises UsageError if there is nothing at `path`, EvidenceError if what is there is of no kind
    that can be evidence, or if the facts of the terms are not of a release that they trust.
    """
    return _examined(path, terms)[1]


def examine(given: Given, terms: Terms = ANYBODY) -> tuple[Verification, Bundle | None]:
    """As `verify`, of what was read already, with the records that were checked.

    None where they could not be read. They are worth what the verification says of them, and of a
    run that was judged they have its last line alone: the others take most of the memory.
    """
    examination = _examination(given, terms)
    return _verification(examination, _checks(examination)), examination.parsed


def check_finished(bundle: Bundle, lines: list[Line]) -> None:
    """EvidenceError for a run that has ended and does not hold together, before it is signed.

    These are the checks that `verify` makes of what is signed: the run was made as its plan says,
    each launch can be one, and analyses and verdict follow from the samples. `lines` are those that
    the bundle is read without. The judge takes them off the list, which is empty then: they are
    most of a large run's memory, and what he keeps of them is much of the rest.
    """
    _checked_conduct(replace(bundle, lines=tuple(lines)), datetime.now(UTC))
    judge = _judge_of(bundle)
    run_checks.check_interim_analyses(judge, _taken_off(lines))
    _derived(bundle, judge)


def _taken_off(lines: list[Line]) -> Iterator[Line]:
    """Each line in its order; the list no longer has it, and is empty at the end."""
    lines.reverse()
    while lines:
        yield lines.pop()


def check_unfinished(bundle: Bundle) -> None:
    """As `check_finished`, of a run that somebody goes on with: as far as its journal goes."""
    digests = {name: bundles.digest_of(data) for name, data in bundle.files.items()}
    run_checks.check_conduct(bundle.plan, bundle.lines, digests, is_ended=False)
    launch_checks.check_launches(bundle.plan, bundle.lines)
    run_checks.check_interim_analyses(_judge_of(bundle), bundle.lines)


def verify_confined(path: Path, terms: Terms = ANYBODY) -> Verification:
    """As `verify`, in a child with limits that no evidence needs (see ipc/confined_child.py).

    Raises EvidenceError, too, for evidence that the child did not survive. Of a PDF the answer is
    the same whether its parser finds it wrong or runs out of time or memory, which is chance.
    """
    return verify_seen(path, terms)[0]


def verify_seen(path: Path, terms: Terms = ANYBODY) -> tuple[Verification, str]:
    """As `verify_confined`, with a digest of what was read (see `digest_of_read`).

    The digest is empty where no file could be read, and where nobody reads them once more
    (`are_words_next`): a large journal would be hashed for nothing.
    """
    room = evidence_path.journal_room(path, terms.total)

    def work() -> bytes:
        examination, verification = _examined(path, terms, room, is_kept=False)
        return _packed({"": _answer(verification), "seen": examination.seen.encode()})

    try:
        parts = _taken_apart(confined_child.call(str(path), work, _limits(terms.total)))
    except GivenUpError:
        if not evidence_path.is_of_kind(path, "pdf"):
            raise
        return _unreadable_pdf(path, terms), ""
    return _of_answer(parts[""], path), parts["seen"].decode()


def digest_of_read(given: Given, files: Mapping[str, bytes]) -> str:
    """The sha256 over names and digests of the files that were read, and of the page they came in.

    By it a second child knows that it has read the same, and nobody changed it meanwhile.
    """
    page = b"" if given.is_whole else given.content or b""
    digests = {"": bundles.digest_of(page)}
    digests |= {name: bundles.digest_of(data) for name, data in files.items()}
    return sha256(json.dumps(sorted(digests.items())).encode())


def _unreadable_pdf(path: Path, terms: Terms) -> Verification:
    """What is said of a PDF in which nothing can be read, as of one without a byte."""
    given = Given(path=path, kind="pdf", content=b"", total=terms.total)
    return examine(given, terms)[0]


def read_confined(path: Path, terms: Terms = ANYBODY) -> tuple[Verification, Mapping[str, bytes]]:
    """As `verify_confined`, with the files that were verified: those of a page are what it carries.

    Nobody can change them between the checks and what is made of them, and no PDF, HTML or zip is
    parsed outside of the child, which may take their size in memory once more to hand them over.
    Of a run that does not hold together, whoever signed it, only the verdict that it claims comes.
    """
    room = evidence_path.journal_room(path, terms.total)

    def work() -> bytes:
        examination, verification = _examined(path, terms, room)
        files = examination.files
        if any(line.status == "fail" and line.name != "signer" for line in verification.checks):
            files = {name: data for name, data in files.items() if name == bundles.VERDICT}
        copied = sum(map(len, files.values()))
        confined_child.allow_memory(confined_child.MEMORY_BYTES + copied)
        return _packed({"": _answer(verification), **files})

    limits_here = replace(
        _limits(terms.total),
        most_memory_bytes=_memory_bytes(terms.total) + terms.total,
        answer_bytes=2 * terms.total,
    )
    files = _taken_apart(confined_child.call(str(path), work, limits_here))
    return _of_answer(files.pop(""), path), files


def _examined(
    path: Path, terms: Terms, room: mmap | None = None, *, is_kept: bool = True
) -> tuple[_Examination, Verification]:
    examination = _examination(evidence_path.given(path, terms.total, room), terms)
    examination.is_kept = is_kept
    return examination, _verification(examination, _checks(examination))


def _examination(given: Given, terms: Terms) -> _Examination:
    facts = shipped() if terms.facts is None else terms.facts
    return _Examination(
        given=given,
        trusted=terms.trusted,
        allow_development=terms.allow_development,
        expectations=terms.expectations,
        facts=read_facts(facts, terms.trusted) if isinstance(facts, bytes) else facts,
        moment=terms.moment or datetime.now(UTC),
        unknown_journal=terms.unknown_journal,
        are_words_next=terms.are_words_next,
    )


def _limits(total: int) -> confined_child.Limits:
    return confined_child.Limits(
        seconds=_derivation_seconds(total),
        most_memory_bytes=_memory_bytes(total),
        mapped_bytes=total,
    )


def _answer(verification: Verification) -> bytes:
    return to_json(replace(verification, path=""))  # which need not be Unicode


def _of_answer(answer: bytes, path: Path) -> Verification:
    return replace(from_json(Verification, answer, name="the answer"), path=str(path))


def _packed(parts: Mapping[str, bytes]) -> bytes:
    """Files one behind the other, with a list of their names and lengths before them."""
    head = json.dumps([[name, len(data)] for name, data in parts.items()]).encode()
    return b"".join((head, b"\n", *parts.values()))


def _taken_apart(packed: bytes) -> dict[str, bytes]:
    begin = packed.index(b"\n") + 1
    files: dict[str, bytes] = {}
    for name, length in json.loads(packed[: begin - 1]):
        files[name] = packed[begin : begin + length]
        begin += length
    return files


def to_document(verification: Verification) -> Any:
    """The verification as plain JSON values."""
    return to_data(verification)


# ------------------------------------------------------------------ the examination


@dataclass(kw_only=True)
class _Examination:
    """What was given, and what the checks so far have found."""

    given: Given
    trusted: Sequence[bytes]
    allow_development: bool
    expectations: Expectations
    facts: Facts
    moment: datetime
    unknown_journal: int
    is_kept: bool = True  # whether somebody wants the files when all checks are made
    is_trusted: bool = False
    not_compared: list[str] = field(default_factory=list)
    are_words_next: bool = False
    unread: str = ""  # what a person would read, and nothing signed holds to anything
    files: Mapping[str, bytes] = field(default_factory=dict)
    size: int = 0  # of all files that were found
    seen: str = ""  # their digest
    signer: Signer | None = None
    statements: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    signed_journal: str = ""
    parsed: Bundle | None = None
    holder: x509.Certificate | None = None
    judge: Judge | None = None
    verdict: Verdict | None = None
    receipt: Receipt | None = None

    @property
    def is_unread(self) -> bool:
        """Whether the journal is too large to be parsed for a signer whom nobody trusts."""
        return not self.is_trusted and self._journal_bytes > self.unknown_journal

    @property
    def parsed_bytes(self) -> int:
        """How many bytes of the files are parsed."""
        unread = self._journal_bytes if self.is_unread else 0
        return sum(map(len, self.files.values())) - unread

    @property
    def _journal_bytes(self) -> int:
        return len(self.files.get(bundles.JOURNAL, b""))

    @property
    def replayed(self) -> Judge:
        """The judge, once he has read the journal."""
        if self.judge is None:
            raise _NotDone
        return self.judge

    @property
    def bundle(self) -> Bundle:
        if self.parsed is None:
            raise _NotDone
        return self.parsed

    @property
    def certificate(self) -> x509.Certificate:
        if self.holder is None:
            raise _NotDone
        return self.holder


@dataclass(frozen=True, kw_only=True)
class _Check:
    """One check: its name, the names of those it rests on, and what does it."""

    name: str
    rests_on: tuple[str, ...]
    run: Callable[[_Examination], str]
    parses: bool = False  # what a stranger wrote, with parsers that he may make slow
    turn: int = 1  # 0 before the records are parsed, 2 where the lines are taken


def _checks(examination: _Examination) -> tuple[CheckLine, ...]:
    """Make every check that can be made; a failed one takes along those that rest on it."""
    made: dict[str, CheckLine] = {}
    for number, check in sorted(enumerate(CHECKS, 1), key=lambda one: one[1].turn):
        missing = [name for name in check.rests_on if made[name].status != "pass"]
        if missing:
            outcome: tuple[Status, str] = ("not_done", f'rests on "{missing[0]}"')
        else:
            outcome = _outcome(check, examination)
        made[check.name] = CheckLine(
            number=number, name=check.name, status=outcome[0], sentence=outcome[1]
        )
        confined_child.give_back()
    return tuple(made[check.name] for check in CHECKS)


def _outcome(check: _Check, examination: _Examination) -> tuple[Status, str]:
    size = examination.size or examination.given.size
    limit = _parsing_seconds if check.parses else _derivation_seconds
    try:
        with confined_child.processor_seconds(limit(size)):
            return "pass", check.run(examination)
    except EvidenceError as error:
        return "fail", str(error)
    except _NotDone as reason:
        return "not_done", str(reason)


def _parsing_seconds(size: int) -> int:
    """Processor time that a check may take which reads files of so many bytes in all."""
    return 2 + size // SLOWEST_READING


def _derivation_seconds(size: int) -> int:
    """Processor time that a check may take which derives something from so many bytes."""
    return 3 + size // SLOWEST_DERIVATION


def _memory_bytes(size: int) -> int:
    """Memory that signed files of so many bytes may need: parsed they are three times as large."""
    return confined_child.MEMORY_BYTES + 3 * max(0, size - SMALL)


def _verification(examination: _Examination, checks: tuple[CheckLine, ...]) -> Verification:
    bundle, derived = examination.parsed, examination.verdict
    is_sound = all(check.status != "fail" for check in checks)
    # What was asked for and could not be checked leaves the verdict open, as all else does.
    is_answered = not examination.unread and (
        not examination.expectations.are_any
        or (
            not examination.not_compared
            and all(check.status == "pass" for check in checks if check.name in ANSWERS)
        )
    )
    word = derived.verdict if derived is not None and is_sound and is_answered else None
    exit_code = NOT_DERIVED if word is None else EXIT_CODES[word]
    return Verification(
        path=str(examination.given.path),
        kind=examination.given.kind,
        run_id=bundle.plan.run_id if bundle else None,
        signer=examination.signer.subject if examination.signer else None,
        claimed=bundle.verdict.verdict if bundle and bundle.verdict else None,
        verdict=word,
        attempt=None if examination.receipt is None else examination.receipt.attempt,
        journal=_journal_digest(examination.files),
        checks=checks,
        not_compared=tuple(filter(None, (examination.unread, *examination.not_compared))),
        not_shown=NOT_SHOWN,
        exit_code=exit_code if is_sound else NOT_VERIFIED,
    )


def _journal_digest(files: Mapping[str, bytes]) -> str | None:
    journal = files.get(bundles.JOURNAL)
    return bundles.digest_of(journal) if journal else None


# ------------------------------------------------------------------ the checks


def _files(examination: _Examination) -> str:
    given = examination.given
    files = given.files()
    if given.kind == "dsse":
        needed: tuple[str, ...] = (bundles.STATEMENT,)
        optional: tuple[str, ...] = ()
    elif given.is_whole:
        needed, optional = bundles.FINISHED_FILES, bundles.OPTIONAL_FILES
    else:
        needed = bundles.CARRIED_FILES
        optional = (bundles.JOURNAL, *bundles.OPTIONAL_FILES)
    bundles.check_names(files, needed=needed, optional=optional)
    examination.files, examination.size = files, sum(map(len, files.values()))
    if examination.are_words_next:  # they are let go of before all is done
        examination.seen = digest_of_read(given, files)
    return f"{len(files)} files, none missing and none too many"


def _signer(examination: _Examination) -> str:
    if examination.given.kind == "dsse":
        return _signer_of_statement(examination)
    data = examination.files[bundles.SIGNER]
    signer = from_json(Signer, data, name=bundles.SIGNER)
    examination.holder = keys.certificate_of(signer)
    examination.signer = signer
    sentence = keys.check_trust(
        examination.certificate,
        examination.trusted,
        allow_development=examination.allow_development,
        moment=examination.moment,
    )
    examination.is_trusted = True
    return sentence


def _signer_of_statement(examination: _Examination) -> str:
    """Of a statement alone, which names a key and carries no certificate."""
    data = examination.files[bundles.STATEMENT]
    examination.holder = keys.signer_among(examination.trusted, data, bundles.STATEMENT)
    return keys.check_trust(
        examination.certificate,
        examination.trusted,
        allow_development=False,
        moment=examination.moment,
    )


def _statement(examination: _Examination) -> str:
    files = examination.files
    names = bundles.data_names(files)
    subjects = _subjects(examination, bundles.STATEMENT, dsse.ACCEPTANCE)
    if examination.given.kind == "dsse":
        return f"signed over {len(subjects)} data files, of which none is here"
    examination.signed_journal = subjects.get(bundles.JOURNAL, "")
    absent = sorted(subjects.keys() - set(names))
    if not examination.given.is_whole:
        absent = [name for name in absent if not bundles.may_stay_behind(name)]
    bundles.check_digests(
        {name: files[name] for name in names}, subjects, absent, bundles.STATEMENT
    )
    confined_child.allow_memory(_memory_bytes(examination.parsed_bytes))
    return f"signed over {len(subjects)} data files, all as they were"


def _report(examination: _Examination) -> str:
    given = examination.given
    if given.kind == "pdf":
        pades.check_pdf(given.content or b"", examination.certificate)
        return "report.pdf is signed as a whole by the same signer"
    if given.kind == "dsse":
        raise _NotDone(ONLY_STATED)
    if given.kind == "html":
        examination.unread = "" if examination.are_words_next else WORDS
        raise _NotDone("the page's own words are not signed in it, what it carries is")
    pages = (bundles.STATEMENT, *bundles.RENDERINGS)
    subjects = _subjects(examination, bundles.REPORT, dsse.REPORT)
    absent = sorted(subjects.keys() - set(pages))
    files = {name: examination.files[name] for name in pages}
    bundles.check_digests(files, subjects, absent, bundles.REPORT)
    return "report.html, report.pdf and the statement are those that were signed"


def _subjects(examination: _Examination, name: str, kind: str) -> Mapping[str, str]:
    """The digests that a statement signs; what it says of the run is compared with the records."""
    data, certificate = examination.files[name], examination.certificate
    statement = dsse.open_statement(data, certificate, kind, name)
    examination.statements.append((name, statement.predicate))
    return statement.subjects


def _records(examination: _Examination) -> str:
    if examination.given.kind == "dsse":
        raise _NotDone(ONLY_STATED)
    try:
        parsed = bundles.records_of(examination.files)
    except RecordFormError as error:
        raise EvidenceError(f"{error}{_of_another_version(examination.files)}") from None
    if parsed.signer is None or parsed.verdict is None:
        raise EvidenceError("the bundle says neither who signed nor what was decided")
    if parsed.verdict.run_id != parsed.plan.run_id:
        raise EvidenceError("verdict.json is of another run than plan.json")
    stated = keys.predicate(parsed)
    for name, predicate in examination.statements:
        if predicate != stated:
            raise EvidenceError(f"{name} says another thing of the run than the bundle does")
    examination.parsed = parsed
    return f"run {parsed.plan.run_id}, every record in its strict form"


def _of_another_version(files: Mapping[str, bytes]) -> str:
    """What to do where another version of bench wrote the plan, as the end of a sentence."""
    try:
        plan = json.loads(files.get(bundles.PLAN, b""))
    except (ValueError, RecursionError):
        return ""
    version = plan.get("bench_version") if isinstance(plan, dict) else None
    if not isinstance(version, str) or version == VERSION:
        return ""
    return f"; plan.json is by bench {version} and this is {VERSION}: verify it with that version"


def _chain(examination: _Examination) -> str:
    bundle = examination.bundle
    if bundles.JOURNAL not in examination.files:
        raise _NotDone("rulings not re-derived: the journal is not attached; verify the folder")
    if examination.is_unread:
        size = limits.size_words(examination.unknown_journal)
        raise _NotDone(
            f"a journal of more than {size} is parsed only of a signer that you trust: name the "
            "certificate with --trust"
        )
    lines, digest = bundles.unchained_lines_of(examination.files)
    if digest != examination.signed_journal:
        raise EvidenceError("journal.jsonl was changed while it was read: verify it once more")
    examination.parsed = replace(bundle, lines=lines)
    return f"{len(lines)} lines, each chained to the one before, the first to the plan"


def _conduct(examination: _Examination) -> str:
    run_checks.check_vendors(examination.bundle.system)
    return _checked_conduct(examination.bundle, examination.moment)


def _checked_conduct(bundle: Bundle, moment: datetime) -> str:
    """What is in order at this moment; EvidenceError for a run not made as its plan says."""
    digests = {name: bundles.digest_of(data) for name, data in bundle.files.items()}
    run_checks.check_plan(bundle.plan, bundle.system, digests)
    run_checks.check_bounds(bundle.plan, bundle.criteria)
    run_checks.check_conduct(bundle.plan, bundle.lines, digests)
    run_checks.check_first_steps(bundle.plan, bundle.criteria, bundle.lines)
    run_checks.check_standbys(bundle.plan, bundle.system, bundle.qualified.idle, bundle.lines)
    launch_checks.check_launches(bundle.plan, bundle.lines)
    fold_checks.check_folds(bundle.plan, bundle.lines)
    check_stress(bundle.plan, bundle.lines)
    check_observations(bundle.plan, bundle.lines)
    check_clock(bundle.plan, bundle.lines)
    check_probed(bundle.plan, bundle.system)
    check_begun(bundle.lines[0], moment)
    inputs = input_checks.check_inputs(bundle.plan, bundle.lines)
    _check_logs(bundle)
    _check_libraries(bundle)
    scheduled = check_schedule(
        bundle.plan, bundle.system, bundle.criteria, qualified_file.load_observed()
    )
    sentence = (
        f"{len(bundle.plan.launches)} planned launches, each accounted for, in the plan's order"
        f"{inputs}{scheduled}"
    )
    challenge = bundle.files.get(bundles.CHALLENGE)
    if challenge is None:
        if bundle.plan.num_attempts:
            raise EvidenceError("plan.json counts the attempts of a challenge that is missing")
        return sentence
    challenge_window.check(bundle.plan, bundle.lines, challenge_window.parse(challenge))
    return f"{sentence}; seeds derive from the challenge, within its time by the node's clock"


def _check_logs(bundle: Bundle) -> None:
    """Only launches that did not complete leave logs."""
    events = [line.event for line in bundle.lines]
    ends = [event for event in events if isinstance(event, LaunchEnded)]
    unfinished = {event.launch for event in ends if event.outcome != "completed"}
    streams = ("stdout", "stderr")
    allowed = {bundles.log_name(launch, stream) for launch in unfinished for stream in streams}
    for name in sorted(bundle.files):
        if bundles.LOG_NAME.fullmatch(name) and name not in allowed:
            raise EvidenceError(f"{name} is of no launch that failed; verify the folder as made")


def _check_libraries(bundle: Bundle) -> None:
    """No case ran on a library outside its range.

    By the versions that the node recorded. A case that was not started, because the plan says that
    its software is lacking, is accepted by nothing, so its reason needs no proof.
    """
    plan = bundle.plan
    software = library_ranges.installed(bundle.system.identity.software)
    known = library_ranges.known_stacks(
        bundle.qualified,
        {case.workload: case.version for case in plan.cases},
        [device.model for device in bundle.system.identity.devices],
    )
    stack = library_ranges.Stack(allowed=plan.ranges, installed=software, known=known)
    for case in plan.cases:
        lack = library_ranges.unplanned_lack(case, stack)
        if lack:
            raise EvidenceError(f"case {case.id} is planned, and system.json says {lack}")


def _interim_analyses(examination: _Examination) -> str:
    """The judge takes the lines, which every other check has read by then."""
    bundle = examination.bundle
    examination.judge = _judge_of(bundle)
    lines = list(bundle.lines)
    files = bundle.files
    if not examination.is_kept:  # the large ones have been read, and what they say is parsed
        files = {name: data for name, data in files.items() if name not in READ_BY_THEN}
    examination.files = files
    examination.parsed = bundle = replace(bundle, files=files, lines=bundle.lines[-1:])
    count = run_checks.check_interim_analyses(examination.judge, _taken_off(lines))
    return f"{count} interim analyses made again, each with the same answer"


def _judge_of(bundle: Bundle) -> Judge:
    return Judge(
        plan=bundle.plan,
        criteria=bundle.criteria,
        baselines=bundle.baselines,
        peaks=bundle.peaks,
        qualified=bundle.qualified,
        system=bundle.system,
        order=bundle.order,
    )


def _verdict(examination: _Examination) -> str:
    derived = _derived(examination.bundle, examination.replayed)
    examination.verdict = derived
    count = f"{len(derived.rulings)} rulings"
    return f"{derived.verdict}, derived again from the raw samples: {count}. {derived.scope}"


def _derived(bundle: Bundle, judge: Judge) -> Verdict:
    """The verdict of a judge who has read the journal; EvidenceError if it is another here."""
    derived = judge.verdict()
    if derived == bundle.verdict:
        return derived
    where = _first_difference(derived, bundle.verdict)
    if where is not None:
        made_by = bundle.plan.bench_version
        hint = "" if made_by == VERSION else f"; it was made by bench {made_by}, this is {VERSION}"
        raise EvidenceError(
            f"verdict.json does not follow from the journal: {where or 'all of it'} differs{hint}"
        )
    return derived


def _pages(examination: _Examination) -> str:
    if not examination.given.is_whole:
        raise _NotDone("the other page is in the folder")
    files = examination.files
    pdf = files[bundles.PDF]
    pades.check_pdf(pdf, examination.certificate)
    num_pdf = bundles.check_carried(pades.attachments(pdf), files, bundles.PDF)
    num_html = bundles.check_carried(
        html_attachments.carried_files(files[bundles.HTML]), files, bundles.HTML
    )
    confined_child.collect_garbage()  # a PDF's objects hold each other
    return f"report.pdf is signed and carries {num_pdf} of these files, report.html {num_html}"


def _expected(examination: _Examination) -> str:
    bundle, wanted = examination.bundle, examination.expectations
    clauses = []
    criteria = sha256(examination.files[bundles.CRITERIA])
    if wanted.criteria_digest is None:
        clauses.append(_chosen_criteria(bundle, criteria))
    elif wanted.criteria_digest.lower() != criteria:
        raise EvidenceError(f"judged by other criteria than you expect: {criteria}")
    else:
        clauses.append("judged by the criteria that you expect")
    if bundle.baselines.baseline:
        digest = sha256(examination.files[bundles.BASELINES])
        clauses.append(f"baselines chosen by the signer: {digest}")
    unknown: tuple[str, ...] = ()
    if wanted.suite is None:
        clauses.append(_chosen_suite(bundle))
    else:
        sentence, unknown = _expect_suite(examination, wanted.suite)
        clauses.append(sentence)
    for name, data in ((bundles.ORDER, wanted.order), (bundles.CHALLENGE, wanted.challenge)):
        if data is not None and examination.files.get(name) != data:
            own = "its own is another" if name in examination.files else "it has none"
            raise EvidenceError(f"the run was not made for the {name} that you expect: {own}")
        if data is not None:
            clauses.append(f"made for your {name}")
    if unknown:
        raise _NotDone("; ".join((*clauses, *_not_compared(unknown))))
    return "; ".join(clauses)


def _attempt(examination: _Examination) -> str:
    bundle, data = examination.bundle, examination.expectations.ledger
    receipt = attempt_checks.check_receipt(bundle.plan, bundle.lines, examination.files)
    if receipt is None:
        if data is not None:
            raise EvidenceError("the run was not made by a receipt of the ledger that you expect")
        return attempt_checks.UNKNOWN
    clauses = [f"attempt {receipt.attempt} of its challenge, begun {receipt.utc}"]
    if data is None:
        clauses.append("not compared with the buyer's ledger (--ledger)")
    elif not bundle.plan.rerun_of:
        clauses.append(
            attempt_checks.check_ledger(receipt, data, examination.files, examination.moment)
        )
    examination.receipt = receipt
    return "; ".join(clauses)


def _not_compared(unknown: Sequence[str]) -> tuple[str, ...]:
    """What could not be asked of the plan's workloads; the first reasons stand for all."""
    first, rest = unknown[:MOST_REASONS], len(unknown) - MOST_REASONS
    more = (f"{rest} more workloads are like these",) if rest > 0 else ()
    return ("not checked: the drawn variants and parameters of some workloads", *first, *more)


def _facts(examination: _Examination) -> str:
    bundle, facts = examination.bundle, examination.facts
    left = facts_checks.compare(bundle, facts)
    examination.not_compared += left
    what = "cases, their checks and the figures that they are judged by"
    if left:
        return f"{what}: compared with bench {facts.version} as far as it has them"
    return f"{what} are those of bench {facts.version}"


CHECKS = (
    _Check(name="files", rests_on=(), run=_files, parses=True, turn=0),
    # An untrusted signer's evidence is checked all the same: whether it is sound is of use.
    _Check(name="signer", rests_on=("files",), run=_signer, parses=True, turn=0),
    _Check(name="statement", rests_on=("files",), run=_statement, parses=True, turn=0),
    _Check(name="report", rests_on=("statement",), run=_report, parses=True, turn=0),
    _Check(name="records", rests_on=("statement",), run=_records, parses=True),
    _Check(name="chain", rests_on=("records",), run=_chain),
    _Check(name="conduct", rests_on=("chain",), run=_conduct),
    _Check(name="interim analyses", rests_on=("conduct",), run=_interim_analyses, turn=2),
    _Check(name="verdict", rests_on=("conduct",), run=_verdict, turn=2),
    _Check(name="facts", rests_on=("conduct",), run=_facts),
    _Check(name="pages", rests_on=("report",), run=_pages, parses=True, turn=0),
    _Check(name="attempt", rests_on=("conduct",), run=_attempt),
    _Check(name="expectations", rests_on=("records",), run=_expected),
)


# ------------------------------------------------------------------ comparisons


def _first_difference(derived: Verdict, stated: Verdict | None) -> str | None:
    """As `difference`, of two verdicts; of a long one a part at a time is made plain data."""
    if stated is None:
        return ""
    for name in (one.name for one in fields(Verdict)):
        one, other = getattr(derived, name), getattr(stated, name)
        pairs: Iterable[tuple[str, object, object]] = [(name, one, other)]
        if isinstance(one, tuple) and len(one) == len(other):
            pairs = ((f"{name}[{place}]", one[place], other[place]) for place in range(len(one)))
        for where, left, right in pairs:
            found = None if left == right else difference(_plain(left), _plain(right), where)
            if found is not None:
                return found
    return None


def _plain(value: object) -> Any:
    return to_data(value) if isinstance(value, Record) else value


def difference(left: Any, right: Any, where: str = "") -> str | None:
    """Where two JSON values differ, words exactly and figures by more than 1e-9; or None."""
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        parts = [(f"{where}.{key}".lstrip("."), (left[key], right[key])) for key in left]
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = enumerate(zip(left, right, strict=True))
        parts = [(f"{where}[{index}]", pair) for index, pair in pairs]
    elif isinstance(left, float) and isinstance(right, float):
        return None if math.isclose(left, right, rel_tol=RELATIVE) else where
    else:
        return None if type(left) is type(right) and left == right else where
    differences = (difference(*pair, place) for place, pair in parts)
    return next((place for place in differences if place is not None), None)


def _chosen_criteria(bundle: Bundle, digest: str) -> str:
    """Which criteria the signer chose, and whether they are what they call themselves."""
    name = bundle.criteria.name
    is_shipped = name in criteria_file.list_criteria()
    is_other = is_shipped and sha256(criteria_file.load_criteria(name)[1]) != digest
    other = f', which call themselves "{name}" and are not those of bench {VERSION}'
    return f"criteria chosen by the signer: {digest}{other if is_other else ''}"


def _chosen_suite(bundle: Bundle) -> str:
    """Which suite the signer chose, and whether it is what it calls itself."""
    digest, name = bundle.plan.digests.get("suite", "none"), bundle.plan.suite
    shipped = suite_file.digests()
    plan, known = bundle.plan, next((one for one, it in shipped.items() if it == digest), None)
    if known is not None and plan.hours is None and not plan.stress:
        suite = suite_file.load_suite(known)[0]
        _check_called(plan, suite)
    if shipped.get(name) == digest:
        return f"suite chosen by the signer: {name} of bench {VERSION}"
    is_other = f', which calls itself "{name}" and is not that of bench {VERSION}'
    return f"suite chosen by the signer: {digest}{is_other if name in shipped else ''}"


def _check_called(plan: Plan, suite: Suite) -> None:
    """EvidenceError for a plan that calls its suite otherwise than that calls itself."""
    named = (plan.suite, plan.suite_version, plan.suite_summary)
    if plan.hours is None and named != (suite.name, suite.version, suite.summary):
        raise EvidenceError(f"plan.json calls suite {suite.name} otherwise than it calls itself")


def _expect_suite(examination: _Examination, wanted: str) -> tuple[str, tuple[str, ...]]:
    """What was found, and why some workloads could not be compared; EvidenceError for a fault.

    The plan names the suite's digest and, where the suite is at hand, plans what it says.
    """
    bundle = examination.bundle
    digest = wanted.lower()
    if re.fullmatch("[0-9a-f]{64}", digest):
        name = next((name for name, one in suite_file.digests().items() if one == digest), None)
    else:
        name = wanted
        digest = sha256(suite_file.load_suite(wanted)[1])
    if bundle.plan.digests.get("suite") != digest:
        own = f"{bundle.plan.suite}, version {bundle.plan.suite_version}"
        raise EvidenceError(
            f"the run was planned from another suite than you expect ({wanted}): it calls it {own}"
        )
    if name is None:
        examination.not_compared.append("cases of the suite: name its file to have them compared")
        return "the plan names the suite's digest", ()
    suite = suite_file.load_suite(name)[0]
    plan, known = bundle.plan, examination.facts.manifest
    _check_called(plan, suite)
    unknown = suite_checks.check_suite(plan, bundle.system, bundle.criteria, suite, known)
    is_varied = any(case.variant for case in plan.cases)
    drawn = ", with the variants that its seed draws" if is_varied and not unknown else ""
    return f"the suite is the one that you expect{drawn}", unknown
