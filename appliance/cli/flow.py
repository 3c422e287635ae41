"""Verbs that plan and make a run on this machine, and watch one: plan, run, accept, watch."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from appliance.cli.options import JsonOption, SigningOptions, grouped, refuse_runs
from appliance.cli.output import answer, command, print_json, say, say_lines
from appliance.errors import ReceiptAwaited, UsageError
from appliance.verbs.run_options import PlanOptions, RunOptions, SuiteArgument
from appliance.version import VERSION

if TYPE_CHECKING:
    from appliance.challenge.request import Awaiting
    from appliance.runner.head_start import HeadStart
    from appliance.verbs.accept import Finished
    from appliance.verbs.preparation import Prepared
    from appliance.watching.status import Status


@grouped
def accept(
    *,
    suite_name: SuiteArgument = None,
    options: RunOptions,
    signing: SigningOptions,
    as_json: JsonOption = False,
) -> None:
    """Probe, run a suite, judge it, and leave a signed report."""
    options = options.of_suite(suite_name)
    _say_begin("accept", options, as_json=as_json)
    from appliance.verbs import publish

    key, role = signing.signer()
    publish.require_renderer()
    _wait_until_idle(options, as_json=as_json)
    finished = _finished(options, as_json=as_json)
    left = publish.sign(finished.folder, key, role)
    if left and not options.quiet:
        say(left)
    _conclude(finished, is_signed=True, quiet=options.quiet, as_json=as_json)


@grouped
def run(
    *,
    suite_name: SuiteArgument = None,
    options: RunOptions,
    source: Annotated[
        Path | None, typer.Option("--from", help="Repeat one launch of the run in this folder.")
    ] = None,
    case: Annotated[str | None, typer.Option(help="With --from: the case of the launch.")] = None,
    launch: Annotated[int | None, typer.Option(help="With --from: its number.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a suite and judge it, or repeat one launch of a run (--from); signs nothing."""
    options = options.of_suite(suite_name)
    if source is not None or case is not None or launch is not None:
        _rerun(options, source, case, launch, as_json=as_json)
    _say_begin("run", options, as_json=as_json)
    _wait_until_idle(options, as_json=as_json)
    finished = _finished(options, as_json=as_json)
    _conclude(finished, is_signed=False, quiet=options.quiet, as_json=as_json)


@grouped
def plan(
    *, suite_name: SuiteArgument = None, options: PlanOptions, as_json: JsonOption = False
) -> None:
    """Show what a suite would run here; writes nothing."""
    from appliance.cli.console import working

    options = options.of_suite(suite_name)
    with working("probing this node and planning the run"):
        from appliance.cli.progress import default_sentence
        from appliance.cli.results import print_plan
        from appliance.judging.order_match import match, sentences
        from appliance.planning import coverage
        from appliance.qualifying import expectation, memory
        from appliance.records.json import to_data
        from appliance.scheduling.words import table
        from appliance.storage.qualified_file import load_observed
        from appliance.stress import kinds
        from appliance.verbs.preparation import prepare

        prepared = prepare(options)
    if as_json:
        print_json(to_data(prepared.plan))
        raise typer.Exit(_order_code(prepared))
    if options.suite is None:
        say(default_sentence(prepared.plan))
    print_plan(prepared.plan)
    for line in table(prepared.plan):
        say(line)
    observed = load_observed()
    known = expectation.expected(prepared.plan, prepared.system, observed)
    if known:
        say(expectation.sentence(prepared.plan, known))
    for sentence in memory.sentences(prepared.plan, prepared.system, observed):
        say(sentence)
    for sentence in (*prepared.chances, *kinds.unlinked(prepared.plan)):
        say(sentence)
    for sentence in coverage.unmatched(prepared.plan, prepared.criteria):
        say(sentence)
    if prepared.order is not None:
        for sentence in sentences(match(prepared.order, prepared.system)):
            say(sentence)
    raise typer.Exit(_order_code(prepared))


def _order_code(prepared: Prepared) -> int:
    """1 where a required line of the order is not met, which no run would accept; else 0."""
    from appliance.judging.order_match import match
    from appliance.records.verdict import EXIT_CODES

    matched = match(prepared.order, prepared.system)
    is_met = all(one.draft.ruling != "fail" for one in matched if one.line.required)
    return 0 if is_met else EXIT_CODES["REJECTED"]


def _say_begin(verb: str, options: RunOptions, *, as_json: bool) -> None:
    """The first word, before the imports that take a second; UsageError for a folder of runs."""
    if options.resume is not None:
        refuse_runs(options.resume, verb, "--resume")
    if not (options.quiet or as_json or options.resume):
        say(f"bench {VERSION}: probing this node and planning the run")


def _wait_until_idle(options: RunOptions, *, as_json: bool) -> None:
    """Before anything is begun, and before our own imports; NodeBusy when the time is over."""
    if options.wait_idle is not None:
        from appliance.readiness import idle_wait
        from appliance.readiness.out_folder import check_writable

        if options.resume is None:
            check_writable(options.out)  # nobody waits for a run that cannot be made
        say_it = _unsaid if options.quiet or as_json else say
        idle_wait.wait(options.wait_idle, options.vendor, say_it)


def _unsaid(_text: str) -> None:
    """What is said where a person asked for nothing but the verdict."""


def _finished(options: RunOptions, *, as_json: bool) -> Finished:
    """The run once it is judged; a plan that waits for its receipt shows what it asks, and ends."""
    from appliance.challenge.request import STDIN, Awaiting

    result = _run(options, as_json=as_json)
    if not isinstance(result, Awaiting):
        return result
    goes_on = options.receipt == STDIN and options.resume is None
    _show_request(result, as_json=as_json and not goes_on)
    if goes_on:
        result = _run(_going_on(options, result), as_json=as_json)
    if isinstance(result, Awaiting):
        raise typer.Exit(ReceiptAwaited.exit_code)
    return result


def _going_on(options: RunOptions, waiting: Awaiting) -> RunOptions:
    """The options with which a planned run takes its receipt."""
    return RunOptions(
        resume=waiting.folder,
        receipt=options.receipt,
        out=options.out,
        data=options.data,
        order=options.order,
        redact=options.redact,
        quiet=options.quiet,
    )


def _show_request(waiting: Awaiting, *, as_json: bool) -> None:
    """What a planned run asks of the buyer: as a file, a QR code and a text."""
    from appliance.challenge import qr_code
    from appliance.records.json import to_data

    picture = waiting.path.with_suffix(".png")
    qr_code.save(waiting.text, picture)
    if as_json:
        print_json(
            {
                "folder": str(waiting.folder),
                "request": to_data(waiting.request),
                "file": str(waiting.path),
                "picture": str(picture),
                "text": waiting.text,
            }
        )
        return
    say_lines(qr_code.printed(waiting.text))
    say(f"request ({len(waiting.text)} characters): {waiting.text}")
    say(f"plan.json has the sha256 {waiting.request.plan}")
    say(
        f"planned, and not begun: the buyer counts attempts; carry {waiting.path}, {picture} or "
        "the text to him (`bench challenge begin --request FILE`), and go on with his receipt "
        f"(`bench accept --resume {waiting.folder} --receipt FILE`)"
    )


def _run(options: RunOptions, *, as_json: bool) -> Finished | Awaiting:
    from appliance.verbs.run_begin import head_start

    with head_start(options) as ahead:
        return _run_ahead(options, ahead, as_json=as_json)


def _run_ahead(options: RunOptions, ahead: HeadStart, *, as_json: bool) -> Finished | Awaiting:
    from appliance.cli.progress import observer
    from appliance.probe.redaction import salt_path
    from appliance.verbs import accept

    is_quiet = options.quiet or as_json
    with observer(quiet=is_quiet) as watching:
        if options.resume is not None:
            fixed = ("vendor", "criteria", "challenge", "suite", "baseline", "sessions", "pause")
            options.refuse_changes("--resume", *fixed, "minutes", "quick", "hours", "stress")
            return accept.resume(options, watching)
        finished = accept.run(options, watching, ahead)
    if options.redact and not is_quiet:
        say(f"salt of the names that were replaced, for you alone: {salt_path(finished.folder)}")
    return finished


def _rerun(
    options: RunOptions,
    source: Path | None,
    case: str | None,
    launch: int | None,
    *,
    as_json: bool,
) -> NoReturn:
    from appliance.cli.progress import observer
    from appliance.records.json import to_data
    from appliance.verbs import rerun
    from appliance.verbs.rerun_diff import sentences

    fixed = ("vendor", "criteria", "challenge", "order", "suite", "baseline", "resume", "receipt")
    options.refuse_changes(
        "--from", *fixed, "sessions", "pause", "minutes", "quick", "hours", "stress"
    )
    _wait_until_idle(options, as_json=as_json)
    if source is None or case is None or launch is None:
        raise UsageError("--from, --case and --launch go together: they name what to repeat")
    request = rerun.Request(
        source=source,
        case=case,
        launch=launch,
        out=options.out,
        data=options.data,
        scratch=options.scratch,
    )
    with observer(quiet=options.quiet or as_json) as watching:
        result = rerun.rerun(request, watching)
    if as_json:
        print_json(to_data(result))
    else:
        for sentence in sentences(result)[-1 if options.quiet else 0 :]:
            say(sentence)
    raise typer.Exit(0 if result.agrees else 1)


def _conclude(finished: Finished, *, is_signed: bool, quiet: bool, as_json: bool) -> NoReturn:
    from appliance.cli.results import print_result
    from appliance.probe import container_facts
    from appliance.records.json import to_data
    from appliance.records.verdict import EXIT_CODES

    verdict = finished.verdict
    exit_code = EXIT_CODES[verdict.verdict]
    if not is_signed and container_facts.VARIABLE in os.environ and not as_json:
        raise typer.Exit(exit_code)  # who started the container reports and signs
    if as_json:
        print_json({"folder": str(finished.folder), "verdict": to_data(verdict)})
    elif quiet:
        say(f"{verdict.verdict}  {finished.folder}")
    else:
        after = time.monotonic() - finished.ended
        print_result(
            finished.folder, verdict, finished.budget, after_seconds=after, is_signed=is_signed
        )
    raise typer.Exit(exit_code)


# ------------------------------------------------------------------ watch


def watch(
    *,
    folder: Annotated[
        Path, typer.Argument(help="Folder of a run, out/<run id>, or of several: the newest.")
    ],
    once: Annotated[bool, typer.Option("--once", help="Say it once and end.")] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="One JSON document a line on stdout; with --once, one."),
    ] = False,
) -> None:
    """Show what a run is at: launches, devices, time left; of a burn-in, what it proved."""
    from appliance.records.verdict import EXIT_CODES
    from appliance.watching.follower import Follower
    from appliance.watching.status import Tracker

    with Follower.at(folder) as follower:
        tracker, shown = Tracker(plan=follower.plan), _Shown(as_json=as_json, is_once=once)
        while True:
            is_written = follower.is_written()  # before the lines: its last are then among them
            for line in follower.new_lines():
                tracker.take(line)
            now = datetime.now(UTC)
            status = tracker.status(str(follower.folder), now, is_written=is_written)
            shown.show(status)
            if once or status.state != "running":
                break
            time.sleep(shown.pause_seconds)
    raise typer.Exit(EXIT_CODES["INCONCLUSIVE"] if status.state == "stopped" else 0)


class _Shown:
    """Shows a run's state: again in its place on a terminal, elsewhere below the last."""

    def __init__(self, *, as_json: bool, is_once: bool) -> None:
        self._as_json = as_json
        self._is_once = is_once
        self._is_moving = not as_json and not is_once and sys.stderr.isatty()
        self._num_lines = 0
        self.pause_seconds = 2.0 if as_json or self._is_moving else 30.0

    def show(self, status: Status) -> None:
        if self._as_json:
            from appliance.records.json import to_data

            document = to_data(status)
            if self._is_once:
                print_json(document)
            else:
                answer(json.dumps(document))
            return
        from appliance.watching import words

        lines = words.lines(status, command("accept", "--resume", status.folder))
        if self._is_moving and self._num_lines:
            typer.echo(f"\x1b[{self._num_lines}A\x1b[J", nl=False, err=True)
        for line in lines:
            say(line)
        self._num_lines = len(lines)
