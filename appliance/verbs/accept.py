"""The verbs `run` and `accept`: prepare, make every launch, judge, and leave an unsigned folder.

A run that was cut short goes on with `resume`, on the same machine and the same plan only, and so
does one whose next session is due.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.challenge import request as receipts
from appliance.challenge.request import Awaiting
from appliance.errors import EvidenceError, UsageError
from appliance.evidence.budget import Budget
from appliance.judging.verdict import Judge
from appliance.planning import coverage, sessions
from appliance.planning.criterion_scope import judged_first_steps
from appliance.probe import node
from appliance.readiness import disk_space, interference
from appliance.readiness.out_folder import check_writable
from appliance.records.journal import (
    AttemptBegun,
    LaunchEnded,
    LaunchStarted,
    Line,
    RunEnded,
    RunResumed,
)
from appliance.records.json import sha256, to_json
from appliance.records.verdict import Verdict
from appliance.runner import execution
from appliance.runner.head_start import HeadStart
from appliance.runner.session_change import Pause, end_session
from appliance.storage import bundle, input_file, qualified_file
from appliance.storage.journal import Journal
from appliance.stress import kinds, scratch
from appliance.verbs.preparation import (
    RUN_FOLDER,
    Prepared,
    begin,
    begin_journal,
    make_folder,
    prepare,
    prepare_again,
)
from appliance.verbs.run_begin import tidy, work_folder
from appliance.verbs.run_options import RunOptions


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A judged run: its folder, what was decided, and what its time went to.

    `ended` is the moment of its last line, in seconds of the monotonic clock.
    """

    folder: Path
    verdict: Verdict
    budget: Budget
    ended: float


def _judge(prepared: Prepared) -> Judge:
    return Judge(
        plan=prepared.plan,
        criteria=prepared.criteria,
        baselines=prepared.baselines,
        peaks=prepared.peaks,
        qualified=prepared.qualified,
        system=prepared.system,
        order=prepared.order,
    )


def run(
    options: RunOptions, observer: execution.Observer, ahead: HeadStart | None = None
) -> Finished | Awaiting:
    """Prepare, make every launch, judge; leaves an unsigned folder. `ahead` has named the run.

    Under a challenge that counts attempts it prepares alone, as the plan needs the buyer's receipt.
    Raises SessionsLeft at the end of a session after which the plan has no fixed pause.
    """
    since_ns = time.monotonic_ns() if ahead is None else ahead.since_ns
    check_writable(options.out)
    _refuse_early(options)
    prepared = prepare(
        options,
        challenge=options.challenge,
        redact=options.redact,
        run_id=None if ahead is None else ahead.run_id,
    )
    if options.suite is None:
        observer.suite_chosen(prepared.plan)
    disk_space.drop_left_files(options.out)
    disk_space.check(options.out, prepared.plan)
    scratch.check(options.scratch, prepared.plan)
    folder = options.out / prepared.plan.run_id
    if prepared.plan.num_attempts:
        make_folder(folder, prepared.files, prepared.node)
        return receipts.ask(folder, prepared.plan, prepared.files)
    if options.receipt is not None:
        raise UsageError(f"{options.challenge} counts no attempts: leave --receipt out")
    journal = begin(folder, prepared.plan, prepared.files, prepared.node, since_ns=since_ns)
    return _finish(folder, prepared, journal, observer, ahead=ahead, scratch_folder=options.scratch)


def _refuse_early(options: RunOptions) -> None:
    """UsageError for a receipt of a plan that is not made yet."""
    if options.receipt not in (None, receipts.STDIN) or (options.receipt and not options.challenge):
        raise UsageError(
            "a receipt answers a plan that there is: make one with --challenge, and name the "
            "receipt with --resume FOLDER"
        )


def resume(options: RunOptions, observer: execution.Observer) -> Finished | Awaiting:
    """Go on with the run in `options.resume`: interrupted, between sessions, or not begun yet.

    `order` and `redact`, where set, are what the run must have been begun with. Raises UsageError
    on another machine, for a run that is signed or outside its receipt's window, EvidenceError if a
    file of the run was changed meanwhile or the receipt is not for it.
    """
    folder = options.resume
    if folder is None:
        raise UsageError(f"no run to go on with: {RUN_FOLDER}")
    if (folder / bundle.REPORT).exists():
        raise UsageError(f"{folder} is finished and signed; start a new run instead")
    prepared = prepare_again(folder, options.data)
    _check_unchanged(folder, prepared, options)
    disk_space.check(folder, prepared.plan, journal_bytes=_journal_bytes(folder))
    scratch.check(options.scratch, prepared.plan)
    if prepared.plan.num_attempts:
        return _resume_attempt(folder, prepared, options, observer)
    if options.receipt is not None:
        raise UsageError(f"{folder} was planned under no challenge that asks for a receipt")
    journal, dropped = _reopened(folder, prepared)
    return _finish(folder, prepared, journal, observer, dropped, scratch_folder=options.scratch)


def _journal_bytes(folder: Path) -> int:
    """What a run has of its journal; 0 where it has not begun."""
    journal = folder / bundle.JOURNAL
    return journal.stat().st_size if journal.exists() else 0


def _resume_attempt(
    folder: Path, prepared: Prepared, options: RunOptions, observer: execution.Observer
) -> Finished | Awaiting:
    """Begin a run by its receipt, or go on with one inside the receipt's window."""
    bound = receipts.bound(folder, prepared.plan, prepared.files, options.receipt)
    if bound is None:
        return receipts.ask(folder, prepared.plan, prepared.files)
    if not (folder / bundle.JOURNAL).exists():
        receipts.refuse_now(bound.receipt)
        bundle.write(folder / bundle.RECEIPT, bound.data)
        journal = begin_journal(folder, prepared.plan, prepared.files, prepared.node)
        dropped = ""
    else:
        journal, dropped = _reopened(folder, prepared, bound)
    if not any(isinstance(line.event, AttemptBegun) for line in journal.lines):
        journal.append(bound.event, sync=True)
    return _finish(folder, prepared, journal, observer, dropped, scratch_folder=options.scratch)


def _reopened(
    folder: Path, prepared: Prepared, bound: receipts.Bound | None = None
) -> tuple[Journal, str]:
    """The journal of a run that goes on, any interruption noted, and what was cut off its end."""
    from appliance.verification import verify  # noqa: PLC0415 - half a second, which others save

    redactor = prepared.node.redactor

    def check(lines: tuple[Line, ...]) -> None:
        try:
            verify.check_unfinished(prepared.bundle(folder, lines))
        except EvidenceError as error:
            raise EvidenceError(
                f"{folder} cannot go on: {error}; put the run's own journal back, or start a new "
                "run"
            ) from None

    journal, lines, dropped = Journal.reopen(
        folder / bundle.JOURNAL,
        sha256(prepared.files[bundle.PLAN]),
        rewrite=None if redactor is None else redactor.record,
        check=check,
    )
    if not sessions.has_ended(lines) and bound is not None:
        receipts.refuse_now(bound.receipt)
    if not (sessions.has_ended(lines) or sessions.is_paused(lines)):
        _note_interruption(journal, lines, dropped)
    return journal, dropped


def _check_unchanged(folder: Path, prepared: Prepared, options: RunOptions) -> None:
    """UsageError if the options are not those that the run was begun with."""
    order = input_file.read_if(options.order, fix="name the order")
    if order is not None and prepared.files.get(bundle.ORDER) != order:
        raise UsageError(
            f"{folder} was not begun with {options.order}: leave it out, or start a new run"
        )
    if options.redact and prepared.node.redactor is None:
        raise UsageError(f"{folder} was begun without --redact: start a new run with it")


def _note_interruption(journal: Journal, lines: Sequence[Line], dropped: str) -> None:
    """Record that the run was cut short, and end the launches that it was cut short in."""
    open_launches = _open_launches(lines)
    event = RunResumed(
        interruption=1 + sum(isinstance(line.event, RunResumed) for line in lines),
        interrupted=tuple(open_launches),
        dropped=dropped,
        pid=os.getpid(),
    )
    journal.append(event, sync=True)
    for launch, begin_ns in open_launches.items():
        ended = LaunchEnded(
            launch=launch,
            outcome="interrupted",
            reason="the appliance was stopped",
            detail="",
            exit_code=None,
            wall_ns=max(0, lines[-1].monotonic_ns - begin_ns),
            peak_memory_bytes=None,
        )
        journal.append(ended, sync=True)


def _open_launches(lines: Sequence[Line]) -> dict[str, int]:
    """Launches that began and did not end, with the time of their begin."""
    begins: dict[str, int] = {}
    for line in lines:
        if isinstance(line.event, LaunchStarted):
            begins[line.event.launch] = line.monotonic_ns
        elif isinstance(line.event, LaunchEnded):
            begins.pop(line.event.launch, None)
    return begins


def _finish(
    folder: Path,
    prepared: Prepared,
    journal: Journal,
    observer: execution.Observer,
    dropped: str = "",
    *,
    ahead: HeadStart | None = None,
    scratch_folder: Path | None = None,
) -> Finished:
    """Make the sessions that are left, judge all launches, and tidy up.

    `dropped` is an unfinished line that the journal had. `ahead` has begun to import.
    """
    observer.preflight_warnings(
        (
            *coverage.preflight_warnings(prepared.plan, prepared.criteria),
            *interference.sentences(prepared.node.system),
            *kinds.unlinked(prepared.plan),
            *scratch.unused(scratch_folder, prepared.plan),
        )
    )
    judge = _judge(prepared)
    journal.follow(judge.take)
    watch = interference.InterferenceWatch(
        processors=interference.num_processors(prepared.system),
        say=observer.preflight_warnings,
        since=len(journal.lines),
    )
    journal.follow(watch.take)
    work = work_folder(folder, prepared.plan.run_id)
    try:
        while not sessions.has_ended(journal.lines):
            if sessions.is_paused(journal.lines):
                prepared = _begin_session(folder, prepared, journal, dropped)
            _make_launches(
                folder,
                prepared,
                journal,
                observer,
                judge,
                ahead=ahead,
                scratch_folder=scratch_folder,
            )
        ended = time.monotonic()
        verdict = judge.verdict()
        bundle.write(folder / bundle.VERDICT, to_json(verdict))
    finally:
        journal.close()
    tidy(work)
    return Finished(folder=folder, verdict=verdict, budget=judge.budget, ended=ended)


def _begin_session(folder: Path, prepared: Prepared, journal: Journal, dropped: str) -> Prepared:
    """Wait for the rest of the pause, and begin the next session: the run as prepared anew.

    `dropped` is an unfinished line that the journal had. Raises UsageError on another machine or
    where the clock was set back, RunInterrupted after a signal in the pause.
    """
    pause = Pause(folder=folder, plan=prepared.plan, last=journal.lines[-1])
    pause.wait()
    again = prepare_again(folder, prepared.data)
    identity = node.identity_digest(again.node.system.identity)
    journal.append(pause.end(identity, dropped), sync=True)
    return again


def _make_launches(
    folder: Path,
    prepared: Prepared,
    journal: Journal,
    observer: execution.Observer,
    judge: Judge,
    *,
    ahead: HeadStart | None,
    scratch_folder: Path | None,
) -> None:
    here = prepared.node
    execution.run(
        plan=prepared.plan,
        vendors={here.vendor.name: here.vendor},
        devices={device.id: device for device in here.probed.identity.devices},
        journal=journal,
        folder=folder,
        work=work_folder(folder, prepared.plan.run_id),
        data=prepared.data,
        interim_analysis=judge.interim_analysis,
        observer=observer,
        redact=None if here.redactor is None else here.redactor.data,
        ahead=ahead,
        scratch=scratch_folder,
        observed=qualified_file.load_observed(),
        idle=prepared.qualified.idle,
        judged_first_steps=judged_first_steps(prepared.criteria, prepared.plan.cases),
    )
    session = sessions.current(journal.lines)
    if session < prepared.plan.sessions:
        end_session(folder, prepared.plan, journal, session)
        observer.session_ended(prepared.plan, session)
    else:
        journal.append(RunEnded(launches=len(prepared.plan.launches)), sync=True)
