"""Verbs about this machine: start (a run in a container), probe, doctor, qualify, selftest."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from appliance.cli.options import JsonOption, SigningOptions, grouped
from appliance.cli.output import print_json, say
from appliance.errors import UsageError
from appliance.verbs.run_options import (
    DataOption,
    EngineOption,
    OutOption,
    StartOptions,
    SuiteArgument,
    VendorOption,
)

if TYPE_CHECKING:
    from appliance.records.system import System
    from appliance.verbs.start import Started


@grouped
def start(
    *,
    suite_name: SuiteArgument = None,
    options: StartOptions,
    signing: SigningOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the `docker run` line and start nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a suite in a container that is closed off, and sign it out here."""
    from appliance.cli.console import working

    with working("looking at the container engine and this machine"):
        from appliance.verbs.start import dry_line, start

    options = options.of_suite(suite_name)
    if options.resume is not None:
        options.refuse_changes(
            "--resume",
            *("criteria", "challenge", "baseline", "suite", "sessions", "pause", "minutes"),
            "quick",
            "hours",
            "stress",
        )
    key, role = signing.signer()
    inside = replace(options, quiet=options.quiet or as_json)
    if options.wait_idle is not None and not dry_run:
        from appliance.readiness import idle_wait

        idle_wait.wait(options.wait_idle, options.vendor, _unsaid if inside.quiet else say)
    if dry_run:
        with working("looking at the container engine and this machine"):
            line = dry_line(inside)
        _print_line(*line, as_json=as_json)
    started = start(inside, key, role, say=say, write=_pass_on)
    _conclude(started, quiet=options.quiet, as_json=as_json)


def _unsaid(_text: str) -> None:
    """What is said where a person asked for nothing but the verdict."""


def _pass_on(text: bytes) -> None:
    """The output of a container, as it comes."""
    sys.stderr.buffer.write(text)
    sys.stderr.buffer.flush()


def _print_line(line: str, missing: tuple[str, ...], *, as_json: bool) -> NoReturn:
    if as_json:
        print_json({"line": line, "missing": list(missing)})
    else:
        typer.echo(line)
        for sentence in missing:
            say(f"would not start: {sentence}")
        if not missing:
            say("it leaves an unsigned run: `bench sign` its folder, or omit --dry-run")
    raise typer.Exit(UsageError.exit_code if missing else 0)


def _conclude(started: Started, *, quiet: bool, as_json: bool) -> NoReturn:
    from appliance.cli.results import print_result
    from appliance.verbs.start import to_document

    verification = started.verification
    word = verification.verdict or "NOT VERIFIED"
    if as_json:
        print_json(to_document(started))
    elif quiet:
        say(f"{word}  {started.folder}")
    else:
        print_result(started.folder, started.verdict, started.budget, is_signed=True)
        say(f"verified here: {word}, {len(verification.checks)} checks, {verification.signer}")
    for sentence in verification.faults:
        say(f"bench: {sentence}")
    raise typer.Exit(verification.exit_code)


def probe(
    *,
    file: Annotated[
        Path | None, typer.Argument(help="With --as-order: file to write; without, it is printed.")
    ] = None,
    vendor: VendorOption = None,
    as_order: Annotated[
        bool, typer.Option("--as-order", help="Write an order that this node meets.")
    ] = False,
    redact: Annotated[
        bool, typer.Option("--redact", help="Write no host name and no address of this machine.")
    ] = False,
    redact_with: Annotated[
        Path | None, typer.Option(help="Redact under the salt of a run, out/RUN.salt.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what this node is: devices, host, conditions; or write an order of it."""
    if file is not None and not as_order:
        raise UsageError(f"{file} is not written without --as-order; leave it out, or add that")
    if as_order and (redact or redact_with is not None or as_json):
        raise UsageError("--as-order writes no names and no JSON: give it alone")
    system = _probed(vendor)
    if as_order:
        _write_order(system, file)
        return
    if redact or redact_with is not None:
        system = _redacted(system, redact_with)
    if as_json:
        from appliance.records.json import to_data

        print_json(to_data(system))
    else:
        from appliance.cli.results import print_system

        print_system(system)


def _probed(vendor: str | None) -> System:
    """The node with the devices of a vendor, or with its processors where none is visible."""
    from appliance.cli.console import working

    with working("probing this node"):
        from appliance.probe import node

        visible, absence = node.visible(vendor)
    if absence:
        say(f"bench: {absence}; the processors are shown instead")
    with working("probing this node"):
        return node.probe((visible,))


def _write_order(system: System, file: Path | None) -> None:
    from appliance.verbs import order_draft

    text = order_draft.draft(system)
    if file is None:
        typer.echo(text, nl=False)
        return
    order_draft.write(text, file)
    say(f"{file}: an order that this node meets; read it, and strike out what was not bought")


def _redacted(system: System, salt: Path | None) -> System:
    """The system without names, under the salt of a run or one that is stored nowhere."""
    from appliance.linux.sysfs import Tree
    from appliance.probe import redaction

    text = redaction.draw() if salt is None else redaction.read_salt(salt)
    return redaction.Redactor(text, redaction.private(Tree(), system)).record(system)


def doctor(
    *,
    out: OutOption = Path("out"),
    data: DataOption = None,
    engine: EngineOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a run needs of this machine, what is missing, and how to fix it."""
    from appliance.cli.console import console, working

    with working("looking at this machine"):  # imports take longer than a person waits for a word
        from appliance.verbs import doctor

        rows = doctor.examine(out=out, data=data, engine=engine)
    if as_json:
        print_json(doctor.to_document(rows))
    else:
        out_of_text = console()
        out_of_text.print(doctor.shown(rows, out_of_text.width))
        say(doctor.summary(rows))
    raise typer.Exit(0 if doctor.can_accept(rows) else UsageError.exit_code)


def qualify(
    *,
    out: Annotated[Path, typer.Option(help="Folder that gets the records; an old one goes on.")],
    minutes: Annotated[
        float, typer.Option(help="Minutes after which no more row is begun.")
    ] = 20.0,
    vendor: VendorOption = None,
    workload: Annotated[
        list[str] | None, typer.Option(help="A workload, or idle_neighbour; all without any.")
    ] = None,
    data: DataOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only what it came to.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show on this machine that the suite is right for a device, and record what it did.

    On accelerators steps are first timed beside a process that waits on the device, once for each
    model: about 80 s (idle_neighbour; naming workloads alone leaves it out). Then the most valuable
    first: small rows with a first seed, then a second, full sizes, repeats, a control in fresh
    processes, and what is left of full sizes.
    """
    if not (quiet or as_json):
        say("qualifying: probing this node and planning the rows")
    from appliance.cli.progress import observer
    from appliance.qualifying.page import sentence
    from appliance.records.json import to_data
    from appliance.verbs.qualify import QualifyOptions, qualify

    options = QualifyOptions(
        out=out, minutes=minutes, vendor=vendor, workloads=tuple(workload or ()), data=data
    )
    with observer(quiet=quiet or as_json) as watching:
        result = qualify(options, watching)
    if as_json:
        print_json(to_data(result.qualified))
    else:
        for note in result.notes:
            say(note)
        left = f"; {result.num_left} small rows are left: the same command goes on with them"
        if options.has_rows:
            say(sentence(result.qualified) + (left if result.num_left else ""))
        say(f"written: {', '.join(map(str, result.files))}")
    raise typer.Exit(result.exit_code)


def selftest(*, as_json: JsonOption = False) -> None:
    """Inject faults into the judge on this machine; fails if one slips through."""
    from appliance.cli.console import console

    out = console()
    with out.status("injecting faults into the judge") as status:
        from appliance.selftest import summary

        result = summary.run(status.update)
    if as_json:
        print_json(summary.to_document(result))
    else:
        summary.print_result(result, out)
    raise typer.Exit(0 if result.is_ok else 1)
