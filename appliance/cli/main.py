"""The commands: options in, one sentence or one JSON document out, and the exit code.

This is the one place where errors become messages. Text for people goes to stderr; with
`--json` one JSON document goes to stdout. Every verb imports what it needs when it is called,
so that `bench --help` is quick and `verify` needs no torch. Exit codes: 0 accepted or done,
1 rejected, 2 usage or configuration, 3 inconclusive, 4 evidence does not verify, 5 the
appliance failed, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from appliance.cli.sanitize import harmless
from appliance.errors import BenchError, RunInterrupted, UsageError
from appliance.storage import input_file
from appliance.vendors.visibility import NOT_VISIBLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appliance.records.system import System
    from appliance.signing.keys import Key
    from appliance.verbs.accept import Finished
    from appliance.verbs.publish import Role
    from appliance.verbs.start import Started

EXIT_CODES = {"ACCEPTED": 0, "REJECTED": 1, "INCONCLUSIVE": 3}

app = typer.Typer(
    name="bench",
    help="Hardware acceptance for AI nodes: probe, run, judge, and leave a signed report.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
keys_app = typer.Typer(help="Make and show signing keys.", no_args_is_help=True)
data_app = typer.Typer(help="Fetch, verify and list data sets.", no_args_is_help=True)
list_app = typer.Typer(help="List suites, workloads or criteria.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")
app.add_typer(data_app, name="data")
app.add_typer(list_app, name="list")
baseline_app = typer.Typer(help="Make and check baselines of signed runs.", no_args_is_help=True)
app.add_typer(baseline_app, name="baseline")

SUITE = "smoke"
SuiteOption = Annotated[
    str | None, typer.Option(help="Name of a suite, or the path of its TOML file; else smoke.")
]
CriteriaOption = Annotated[
    str | None,
    typer.Option(help="Name or file; without it functional, or accelerator for accelerators."),
]
BaselineOption = Annotated[
    Path | None, typer.Option(help="Baselines to compare with, made by `bench baseline create`.")
]
VendorOption = Annotated[
    str | None, typer.Option(help=f"cpu, {', '.join(NOT_VISIBLE)}; else the one that is found.")
]
OutOption = Annotated[Path, typer.Option(help="Folder that gets out/<run id>.")]
ChallengeOption = Annotated[
    Path | None, typer.Option(help="The buyer's challenge, from which all seeds derive.")
]
OrderOption = Annotated[
    Path | None, typer.Option(help="The buyer's order, which the node is compared with.")
]
RedactOption = Annotated[
    bool, typer.Option("--redact", help="Write no host name and no address of this machine.")
]
DataOption = Annotated[Path | None, typer.Option(help="Folder with the data sets.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Only the verdict.")]
KeyOption = Annotated[
    Path | None, typer.Option(envvar="BENCH_SIGN_KEY_FILE", help="Private key (PEM) to sign with.")
]
CertificateOption = Annotated[
    Path | None, typer.Option(envvar="BENCH_SIGN_CERT_FILE", help="Its certificate (PEM).")
]
TrustOption = Annotated[
    list[Path] | None, typer.Option(help="Certificate (PEM) of a signer that you trust.")
]
AllowDevOption = Annotated[
    bool, typer.Option("--allow-dev", help="Take a development key as a trusted signer.")
]
RoleOption = Annotated[str, typer.Option(help="Who signs: tester, vendor, buyer or witness.")]
FolderArgument = Annotated[Path, typer.Argument(help="Folder of a run, out/<run id>.")]


def main() -> NoReturn:
    """Run a command and leave with its documented exit code."""
    try:
        # held back by who started us (scripts/entry.py), as an interpreter that loads dies of it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code = app(standalone_mode=False)
    except typer.Exit as done:
        code = done.exit_code
    except BenchError as error:
        if str(error):  # a run inside a container has said it already
            _say(f"bench: {error}")
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _say("bench: stopped")
        code = RunInterrupted.exit_code
    except Exception as error:  # noqa: BLE001 - no traceback reaches a user
        code = _leave_with(error)
    sys.stdout.flush()
    raise SystemExit(code if isinstance(code, int) else 0)


def _leave_with(error: Exception) -> int:
    """A wrong option says so (2); anything else is a fault of the appliance (5)."""
    show = getattr(error, "show", None)
    if callable(show):  # the option parser's own errors
        show()
        return int(getattr(error, "exit_code", 2))
    if os.environ.get("BENCH_DEBUG"):
        traceback.print_exception(error)
    _say(
        f"bench: the appliance itself failed ({type(error).__name__}: {error}); "
        "set BENCH_DEBUG=1 to see where, and report it"
    )
    return 5


def _say(text: str) -> None:
    typer.echo(harmless(text), err=True)


def _done(sentence: str, document: object, *, as_json: bool) -> None:
    """What was done: a sentence for a person, or the one document."""
    if as_json:
        _print_json(document)
    else:
        _say(sentence)


def _print_json(document: object) -> None:
    typer.echo(json.dumps(document, indent=2))


# ------------------------------------------------------------------ the flow


@app.command()
def accept(
    suite: SuiteOption = None,
    criteria: CriteriaOption = None,
    vendor: VendorOption = None,
    baseline: BaselineOption = None,
    challenge: ChallengeOption = None,
    order: OrderOption = None,
    out: OutOption = Path("out"),
    data: DataOption = None,
    key: KeyOption = None,
    certificate: CertificateOption = None,
    role: RoleOption = "tester",
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the interrupted run in this folder.")
    ] = None,
    redact: RedactOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Probe, run a suite, judge it, and leave a signed report."""
    from appliance.verbs import publish

    signer, role_word = _key(key, certificate), _role(role)
    publish.require_renderer()
    finished = _run(
        suite=suite,
        criteria=criteria,
        vendor=vendor,
        baseline=baseline,
        challenge=challenge,
        order=order,
        redact=redact,
        out=out,
        data=data,
        resume=resume,
        quiet=quiet or as_json,
    )
    publish.sign(finished.folder, signer, role_word)
    _conclude(finished, is_signed=True, quiet=quiet, as_json=as_json)


@app.command()
def run(
    suite: SuiteOption = None,
    criteria: CriteriaOption = None,
    vendor: VendorOption = None,
    baseline: BaselineOption = None,
    challenge: ChallengeOption = None,
    order: OrderOption = None,
    out: OutOption = Path("out"),
    data: DataOption = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the interrupted run in this folder.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Repeat one launch of the run in this folder.")
    ] = None,
    case: Annotated[str | None, typer.Option(help="With --from: the case of the launch.")] = None,
    launch: Annotated[int | None, typer.Option(help="With --from: its number.")] = None,
    redact: RedactOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a suite and judge it, or repeat one launch of a run (--from); signs nothing."""
    if source is not None or case is not None or launch is not None:
        fixed = {"vendor": vendor, "criteria": criteria, "challenge": challenge, "order": order}
        fixed |= {"suite": suite, "baseline": baseline, "resume": resume}
        _nothing_new("--from", fixed)
        _rerun(source, case, launch, out, data, quiet=quiet, as_json=as_json)
    finished = _run(
        suite=suite,
        criteria=criteria,
        vendor=vendor,
        baseline=baseline,
        challenge=challenge,
        order=order,
        redact=redact,
        out=out,
        data=data,
        resume=resume,
        quiet=quiet or as_json,
    )
    _conclude(finished, is_signed=False, quiet=quiet, as_json=as_json)


@app.command()
def start(
    suite: SuiteOption = None,
    criteria: CriteriaOption = None,
    vendor: VendorOption = None,
    image: Annotated[
        str | None, typer.Option(help="Image to start; bench-VENDOR if none is named.")
    ] = None,
    baseline: BaselineOption = None,
    challenge: ChallengeOption = None,
    order: OrderOption = None,
    redact: RedactOption = False,
    out: OutOption = Path("out"),
    data: DataOption = None,
    key: KeyOption = None,
    certificate: CertificateOption = None,
    role: RoleOption = "tester",
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the interrupted run in this folder.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", "--socket", help="Socket of the container engine to use."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory that the container may use, as in 64g.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which the run is interrupted.")
    ] = None,
    relax_seccomp: Annotated[
        bool, typer.Option("--relax-seccomp", help="Start without the engine's system call filter.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the `docker run` line and start nothing.")
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a suite in a container that is closed off, and sign it out here."""
    from appliance.container.container_options import bytes_of
    from appliance.verbs import start as starting

    if resume is not None:
        fixed = {"criteria": criteria, "challenge": challenge, "baseline": baseline}
        _nothing_new("--resume", {**fixed, "suite": suite})
    request = starting.Request(
        vendor=vendor,
        image=image,
        suite=suite or SUITE,
        criteria=criteria,
        baseline=baseline,
        challenge=challenge,
        order=order,
        is_redacted=redact,
        out=out,
        data=data,
        resume=resume,
        engine=engine,
        relaxes_seccomp=relax_seccomp,
        memory_bytes=None if memory is None else bytes_of(memory),
        timeout=timeout,
        is_quiet=quiet or as_json,
    )
    signer, role_word = _key(key, certificate), _role(role)
    if dry_run:
        _print_line(starting.dry_line(request), as_json=as_json)
    started = starting.start(request, signer, role_word, say=_say, write=_pass_on)
    _conclude_start(started, quiet=quiet, as_json=as_json)


def _pass_on(text: bytes) -> None:
    """What a container says, as it comes."""
    sys.stderr.buffer.write(text)
    sys.stderr.buffer.flush()


def _print_line(answer: tuple[str, tuple[str, ...]], *, as_json: bool) -> NoReturn:
    line, missing = answer
    if as_json:
        _print_json({"line": line, "missing": list(missing)})
    else:
        typer.echo(line)
        for sentence in missing:
            _say(f"would not start: {sentence}")
        _say("it leaves an unsigned run: `bench sign` its folder, or leave --dry-run away")
    raise typer.Exit(0)


def _conclude_start(started: Started, *, quiet: bool, as_json: bool) -> NoReturn:
    from appliance.cli.progress import print_result
    from appliance.verbs import start as starting

    verification = started.verification
    word = verification.verdict or "NOT VERIFIED"
    if as_json:
        _print_json(starting.to_document(started))
    elif quiet:
        _say(f"{word}  {started.folder}")
    else:
        print_result(started.folder, started.verdict, is_signed=True)
        _say(f"verified here: {word}, {len(verification.checks)} checks, {verification.signer}")
    for sentence in verification.faults:
        _say(f"bench: {sentence}")
    raise typer.Exit(verification.exit_code)


def _rerun(
    source: Path | None,
    case: str | None,
    launch: int | None,
    out: Path,
    data: Path | None,
    *,
    quiet: bool,
    as_json: bool,
) -> NoReturn:
    from appliance.cli.progress import observer
    from appliance.records.json import to_data
    from appliance.verbs import rerun as rerunning
    from appliance.verbs.rerun_diff import sentences

    if source is None or case is None or launch is None:
        raise UsageError("--from, --case and --launch go together: they name what to repeat")
    request = rerunning.Request(source=source, case=case, launch=launch, out=out, data=data)
    with observer(quiet=quiet or as_json) as watching:
        found = rerunning.rerun(request, watching)
    if as_json:
        _print_json(to_data(found))
    else:
        for sentence in sentences(found)[-1 if quiet else 0 :]:
            _say(sentence)
    raise typer.Exit(0 if found.agrees else 1)


def _nothing_new(option: str, options: Mapping[str, object]) -> None:
    """UsageError for what a run was begun with, where a person seems to want to change it."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise UsageError(
                f"--{name} was fixed when the run began: leave it out with {option}, or start a "
                "new run"
            )


def _run(
    *,
    suite: str | None,
    criteria: str | None,
    vendor: str | None,
    baseline: Path | None,
    challenge: Path | None,
    order: Path | None,
    redact: bool,
    out: Path,
    data: Path | None,
    resume: Path | None,
    quiet: bool,
) -> Finished:
    from appliance.cli.progress import observer
    from appliance.probe.redaction import salt_path
    from appliance.verbs import accept as accepting

    with observer(quiet=quiet) as watching:
        if resume is not None:
            fixed = {"vendor": vendor, "criteria": criteria, "challenge": challenge}
            _nothing_new("--resume", {**fixed, "suite": suite, "baseline": baseline})
            return accepting.resume(resume, data, watching, order=order, redact=redact)
        request = accepting.Request(
            suite=suite or SUITE,
            criteria=criteria,
            vendor=vendor,
            out=out,
            data=data,
            baseline=baseline,
            challenge=challenge,
            order=order,
            redact=redact,
        )
        finished = accepting.run(request, watching)
    if redact and not quiet:
        _say(f"salt of the names that were replaced, for you alone: {salt_path(finished.folder)}")
    return finished


def _conclude(finished: Finished, *, is_signed: bool, quiet: bool, as_json: bool) -> NoReturn:
    from appliance.cli.progress import print_result
    from appliance.probe import container_facts
    from appliance.records.json import to_data

    verdict = finished.verdict
    if not is_signed and container_facts.VARIABLE in os.environ and not as_json:
        raise typer.Exit(EXIT_CODES[verdict.verdict])  # who started the container tells and signs
    if as_json:
        _print_json({"folder": str(finished.folder), "verdict": to_data(verdict)})
    elif quiet:
        _say(f"{verdict.verdict}  {finished.folder}")
    else:
        print_result(finished.folder, verdict, is_signed=is_signed)
    raise typer.Exit(EXIT_CODES[verdict.verdict])


@app.command()
def probe(
    file: Annotated[
        Path | None, typer.Argument(help="With --as-order: file to write; without, it is printed.")
    ] = None,
    vendor: VendorOption = None,
    as_order: Annotated[
        bool, typer.Option("--as-order", help="Write an order that this node meets.")
    ] = False,
    redact: RedactOption = False,
    redact_with: Annotated[
        Path | None, typer.Option(help="Redact under the salt of a run, out/RUN.salt.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what this node is: devices, host, conditions; or write an order of it."""
    from appliance.cli.progress import print_system
    from appliance.probe import node as probing
    from appliance.records.json import to_data

    if file is not None and not as_order:
        raise UsageError(f"{file} is not written without --as-order; leave it out, or add that")
    if as_order and (redact or redact_with is not None or as_json):
        raise UsageError("--as-order writes no names and no JSON: give it alone")
    found, absence = probing.visible(vendor)
    if absence:
        _say(f"bench: {absence}; the processors are shown instead")
    system = probing.probe((found,))
    if as_order:
        _write_order(system, file)
        return
    if redact or redact_with is not None:
        system = _redacted(system, redact_with)
    if as_json:
        _print_json(to_data(system))
    else:
        print_system(system)


def _write_order(system: System, file: Path | None) -> None:
    from appliance.verbs import order_draft

    text = order_draft.draft(system)
    if file is None:
        typer.echo(text, nl=False)
        return
    order_draft.write(text, file)
    _say(f"{file}: an order that this node meets; read it, and strike out what was not bought")


def _redacted(system: System, salt: Path | None) -> System:
    """The system without names, under the salt of a run or one that is kept nowhere."""
    from appliance.linux.sysfs import Tree
    from appliance.probe import redaction

    text = redaction.draw() if salt is None else redaction.read_salt(salt)
    return redaction.Redactor(text, redaction.private(Tree(), system)).record(system)


@app.command()
def plan(
    suite: SuiteOption = None,
    criteria: CriteriaOption = None,
    vendor: VendorOption = None,
    baseline: BaselineOption = None,
    order: OrderOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a suite would run here; writes nothing."""
    from appliance.cli.progress import print_plan
    from appliance.judging.order_match import match, sentences
    from appliance.planning import coverage
    from appliance.records.json import to_data
    from appliance.verbs import accept as accepting

    prepared = accepting.prepare(
        accepting.Request(
            suite=suite or SUITE,
            criteria=criteria,
            vendor=vendor,
            data=data,
            baseline=baseline,
            order=order,
        )
    )
    if as_json:
        _print_json(to_data(prepared.plan))
    else:
        print_plan(prepared.plan)
        for sentence in coverage.unmatched(prepared.plan, prepared.criteria):
            _say(sentence)
        if prepared.order is not None:
            for sentence in sentences(match(prepared.order, prepared.system)):
                _say(sentence)


@app.command()
def challenge(
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("challenge.json"),
    days: Annotated[float, typer.Option(help="Days until it ends.")] = 14.0,
    criteria: Annotated[
        str | None, typer.Option(help="Criteria that the run must use, by name or path.")
    ] = None,
    suite: Annotated[
        str | None, typer.Option(help="Suite that the run must make, by name or path.")
    ] = None,
    note: Annotated[str, typer.Option(help="Your own reference, kept in the file.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Draw the nonce that a run's seeds must derive from; for the buyer, once per run."""
    from appliance.records.json import to_data
    from appliance.verbs import challenge as challenging

    asked = challenging.Asked(out=out, days=days, criteria=criteria, suite=suite, note=note)
    made = challenging.issue(asked)
    _done(
        f"{out} is good until {made.not_after_utc}: keep it, send it to whoever runs the node "
        f"(`bench accept --challenge {out}`), and give it to `bench verify --challenge`",
        to_data(made),
        as_json=as_json,
    )


@app.command()
def report(
    folder: FolderArgument,
    signer: Annotated[Path | None, typer.Option(help="Certificate (PEM) of who will sign.")] = None,
    role: RoleOption = "tester",
    as_json: JsonOption = False,
) -> None:
    """Render the pages of a judged run for the one who will sign it."""
    from appliance.signing import keys
    from appliance.verbs import publish

    if signer is None:
        record = keys.signer_record(keys.development_key(), _role(role))
    else:
        record = keys.signer_of(input_file.read(signer), _role(role))
    publish.report(folder, record)
    _done(
        f"rendered for {record.subject}: {folder / 'report.pdf'} and report.html, not yet signed",
        {"folder": str(folder), "signer": record.subject, "sha256": record.sha256},
        as_json=as_json,
    )


@app.command()
def sign(
    folder: FolderArgument,
    key: KeyOption = None,
    certificate: CertificateOption = None,
    role: RoleOption = "tester",
    as_json: JsonOption = False,
) -> None:
    """Sign the evidence and the pages of a judged run."""
    from appliance.verbs import publish

    signer = _key(key, certificate)
    publish.sign(folder, signer, _role(role))
    _done(
        f"signed: {folder / 'report.pdf'}",
        {"folder": str(folder), "report": str(folder / "report.pdf")},
        as_json=as_json,
    )


@app.command()
def verify(
    path: Annotated[Path, typer.Argument(help="Folder of a run, or its report.pdf.")],
    trust: TrustOption = None,
    allow_dev: AllowDevOption = False,
    expect_criteria: Annotated[
        str | None, typer.Option(help="sha256 that the criteria file must have.")
    ] = None,
    expect_suite: Annotated[str | None, typer.Option(help="Suite that must have been run.")] = None,
    order: Annotated[
        Path | None, typer.Option(help="Your order, which the run must have been made for.")
    ] = None,
    challenge: Annotated[
        Path | None, typer.Option(help="Your challenge, which the run must have been made under.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check evidence offline, and derive its verdict again from the raw samples."""
    from appliance.cli.progress import print_verification
    from appliance.verification import verify as verifying

    verification = verifying.verify(
        path,
        trusted=[input_file.read(certificate) for certificate in trust or []],
        allow_development=allow_dev,
        expectations=verifying.Expectations(
            criteria_digest=expect_criteria,
            suite=expect_suite,
            order=input_file.read_if(order),
            challenge=input_file.read_if(challenge),
        ),
    )
    if as_json:
        _print_json(verifying.to_document(verification))
    else:
        print_verification(path, verification)
    raise typer.Exit(verification.exit_code)


# ------------------------------------------------------------------ baselines


@baseline_app.command("create")
def baseline_create(
    folders: Annotated[list[Path], typer.Argument(help="Folders of signed runs, out/<run id>.")],
    out: Annotated[Path, typer.Option(help="File to write, for --baseline of a run.")],
    kind: Annotated[
        str, typer.Option(help="same-device: each device for itself; population: one of all.")
    ] = "same-device",
    criteria: Annotated[
        Path | None, typer.Option(help="Also write criteria with the smallest margins here.")
    ] = None,
    trust: Annotated[
        list[Path] | None, typer.Option(help="Certificate (PEM) of a signer that you trust.")
    ] = None,
    allow_dev: Annotated[
        bool, typer.Option("--allow-dev", help="Take a development key as a trusted signer.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make baselines of signed runs that are comparable with one another."""
    from appliance.storage import toml_file
    from appliance.verbs import baseline

    if kind not in baseline.KINDS:
        hint = toml_file.did_you_mean(kind, baseline.KINDS)
        raise UsageError(f'there is no kind "{kind}"{hint}')
    created = baseline.create(
        folders,
        kind=baseline.KINDS[kind],
        trusted=[input_file.read(certificate) for certificate in trust or []],
        allow_development=allow_dev,
    )
    baseline.write(created, out, criteria)
    for sentence in () if as_json else baseline.report(created, out, criteria):
        _say(sentence)
    if as_json:
        files = {"file": str(out), "criteria": None if criteria is None else str(criteria)}
        _print_json(files | baseline.to_document(created))


@baseline_app.command("check")
def baseline_check(
    file: Annotated[Path, typer.Argument(help="File of `bench baseline create`.")],
    criteria: Annotated[
        str | None, typer.Option(help="Criteria whose margins it must carry.")
    ] = None,
    vendor: VendorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether a file of baselines is sound, and can be compared with on this node."""
    from appliance.probe import node as probing
    from appliance.records.json import to_data
    from appliance.runner import execution
    from appliance.storage import criteria_file
    from appliance.verbs import baseline

    baselines = baseline.load(file)
    parsed = None if criteria is None else criteria_file.load_criteria(criteria)[0]
    answer = execution.describe(baseline.requests(baselines))
    findings = baseline.check(
        file,
        baselines,
        system=probing.probe((probing.present(vendor),), software=answer.software),
        answer=answer,
        criteria=parsed,
    )
    if as_json:
        _print_json(to_data(findings))
    for number, found in enumerate(() if as_json else findings.findings, 1):
        _say(f"{number} {found.status:8} {found.name}: {found.sentence}")
    raise typer.Exit(findings.exit_code)


@app.command()
def compare(
    paths: Annotated[
        list[Path], typer.Argument(help="Folders of runs or report.pdf files; the first is A.")
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for comparison.html and comparison.json.")
    ] = Path("comparison"),
    margin: Annotated[
        float, typer.Option(help="Relative difference in step time that may be.")
    ] = 0.03,
    trust: TrustOption = None,
    allow_dev: AllowDevOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare runs with the first of them: times, checks, rulings, devices and software."""
    from appliance.records.json import to_data
    from appliance.verbs import compare as comparing

    found = comparing.run(
        paths,
        out=out,
        margin=margin,
        trusted=[input_file.read(certificate) for certificate in trust or []],
        allow_development=allow_dev,
    )
    if as_json:
        _print_json(to_data(found.comparison))
    else:
        for sentence in comparing.sentences(found):
            _say(sentence)
    raise typer.Exit(found.exit_code)


@app.command()
def selftest(as_json: JsonOption = False) -> None:
    """Inject faults into the judge on this machine; fails if one slips through."""
    from appliance.cli.progress import console
    from appliance.selftest import summary as testing

    out = console()
    with out.status("") as status:
        result = testing.run(status.update)
    if as_json:
        _print_json(testing.to_document(result))
    else:
        testing.print_result(result, out)
    raise typer.Exit(0 if result.is_ok else 1)


@app.command()
def doctor(
    out: OutOption = Path("out"),
    data: DataOption = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", "--socket", help="Socket of the container engine to use."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a run needs of this machine, what is missing, and how to mend it."""
    from appliance.cli.progress import console
    from appliance.verbs import doctor as examining

    rows = examining.examine(out=out, data=data, engine=engine)
    if as_json:
        _print_json(examining.to_document(rows))
    else:
        console().print(examining.table(rows))
    raise typer.Exit(0 if examining.can_accept(rows) else UsageError.exit_code)


# ------------------------------------------------------------------ lists, keys, data


@list_app.command("suites")
def list_suites(as_json: JsonOption = False) -> None:
    """Suites that are shipped."""
    from appliance.storage import suite_file

    suites = [suite_file.load_suite(name)[0] for name in suite_file.list_suites()]
    rows = [{"name": suite.name, "summary": suite.summary} for suite in suites]
    _list(rows, as_json=as_json)


@list_app.command("criteria")
def list_criteria(as_json: JsonOption = False) -> None:
    """Criteria files that are shipped."""
    from appliance.storage import criteria_file

    files = [criteria_file.load_criteria(name)[0] for name in criteria_file.list_criteria()]
    _list([{"name": item.name, "summary": item.summary} for item in files], as_json=as_json)


@list_app.command("workloads")
def list_workloads(as_json: JsonOption = False) -> None:
    """Workloads with their sizes, units, variants, and the suites that use them."""
    from appliance.cli.progress import print_workloads
    from appliance.records.json import to_data
    from appliance.verbs import listing

    found = listing.listed()
    if as_json:
        _print_json([to_data(item) for item in found])
    else:
        print_workloads(found)


def _list(rows: list[dict[str, str]], *, as_json: bool) -> None:
    if as_json:
        _print_json(rows)
        return
    for row in rows:
        typer.echo(f"{row['name']:18} {row['summary']}")


@keys_app.command("create")
def keys_create(
    name: Annotated[str, typer.Argument(help="Organisation that signs.")],
    out: Annotated[Path, typer.Option(help="Folder for key.pem and certificate.pem.")] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Make a signing key with a certificate of its own, valid for a year."""
    from appliance.signing import keys

    key_file, certificate_file = keys.create_key(name, out)
    _done(
        f"{key_file} is the secret: keep it. Give {certificate_file} to those who verify.",
        {"key": str(key_file), "certificate": str(certificate_file)},
        as_json=as_json,
    )


@keys_app.command("show")
def keys_show(
    certificate: Annotated[Path, typer.Argument(help="Certificate (PEM).")],
    as_json: JsonOption = False,
) -> None:
    """Say whom a certificate names, until when, and its fingerprint."""
    from appliance.signing import keys

    record = keys.signer_of(input_file.read(certificate), "tester")
    _done(
        f"{record.subject}\nvalid until {record.not_after_utc}\nsha256 {record.sha256}",
        {
            "subject": record.subject,
            "not_after_utc": record.not_after_utc,
            "sha256": record.sha256,
        },
        as_json=as_json,
    )


@data_app.command("list")
def data_list(as_json: JsonOption = False) -> None:
    """Data sets with their size and licence."""
    from appliance.verbs import datasets

    _list(datasets.rows(), as_json=as_json)


@data_app.command("fetch")
def data_fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; all if none.")] = None,
    to: Annotated[Path, typer.Option(help="Folder to put them into.")] = Path("data"),
    mirror: Annotated[Path | None, typer.Option(help="Folder to take them from.")] = None,
) -> None:
    """Fetch data sets, checked against their digests."""
    from appliance.verbs import datasets

    datasets.fetch(names or [], to, mirror=mirror, progress=_say)


@data_app.command("verify")
def data_verify(
    folder: Annotated[Path, typer.Argument(help="Folder with data sets.")],
) -> None:
    """Check the data sets in a folder against their digests."""
    from appliance.verbs import datasets

    datasets.verify(folder, progress=_say)


# ------------------------------------------------------------------ options to values


def _key(key: Path | None, certificate: Path | None) -> Key:
    """The signer's key; a development key made on the fly if none is named."""
    from appliance.signing import keys

    if key is None and certificate is None:
        return keys.development_key()
    if key is None or certificate is None:
        raise UsageError("--key and --certificate go together: name both files")
    return keys.load_key(key, certificate)


def _role(word: str) -> Role:
    roles: dict[str, Role] = {
        "tester": "tester",
        "vendor": "vendor",
        "buyer": "buyer",
        "witness": "witness",
    }
    if word not in roles:
        raise UsageError(f'there is no role "{word}": use {", ".join(roles)}')
    return roles[word]


if __name__ == "__main__":
    main()
