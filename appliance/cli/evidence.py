"""Verbs about the evidence of a run: report, sign, verify, compare."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from appliance.cli.options import (
    FolderArgument,
    JsonOption,
    RoleOption,
    SigningOptions,
    TrustOptions,
    grouped,
    names_in,
    refuse_parts,
    refuse_runs,
    role_of,
)
from appliance.cli.output import bench, conclude, print_json, say
from appliance.errors import EvidenceError, UsageError
from appliance.storage import input_file, limits


def report(
    *,
    folder: FolderArgument,
    signer: Annotated[Path | None, typer.Option(help="Certificate (PEM) of who will sign.")] = None,
    role: RoleOption = "tester",
    as_json: JsonOption = False,
) -> None:
    """Render the pages of a judged run for the one who will sign it."""
    from appliance.cli.console import working

    refuse_runs(folder, "report")
    with working(f"rendering the pages of {folder}"):
        from appliance.signing import keys
        from appliance.verbs import publish

        if signer is None:
            record = keys.signer_record(keys.development_key(), role_of(role))
        else:
            record = keys.signer_of(input_file.read(signer), role_of(role))
        left = publish.report(folder, record)
    if left:
        say(left)
    conclude(
        f"rendered for {record.subject}: {folder / 'report.pdf'} and report.html, not yet signed",
        {"folder": str(folder), "signer": record.subject, "sha256": record.sha256},
        as_json=as_json,
    )


@grouped
def sign(*, folder: FolderArgument, signing: SigningOptions, as_json: JsonOption = False) -> None:
    """Sign the evidence and the pages of a judged run."""
    from appliance.cli.console import working

    refuse_runs(folder, "sign")
    with working(f"signing {folder}"):
        from appliance.verbs import publish

        key, role = signing.signer()
        left = publish.sign(folder, key, role)
    if left:
        say(left)
    conclude(
        f"signed: {folder / 'report.pdf'}",
        {"folder": str(folder), "report": str(folder / "report.pdf")},
        as_json=as_json,
    )


@grouped
def verify(
    *,
    path: Annotated[
        Path,
        typer.Argument(
            help="Folder of a run, a zip of it, or its report.pdf, report.html or "
            "statement.dsse.json."
        ),
    ],
    trusted: TrustOptions,
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
    ledger: Annotated[
        Path | None,
        typer.Option(help="Your ledger of its attempts; by default the one beside the challenge."),
    ] = None,
    largest: Annotated[
        int,
        typer.Option(
            min=1,
            max=limits.LARGEST_TOTAL // limits.MIB,
            help="Most MiB that the evidence may have in all.",
        ),
    ] = limits.TOTAL // limits.MIB,
    facts: Annotated[
        Path | None,
        typer.Option(help="Signed facts of the release that made the run, if it is another one."),
    ] = None,
    pages: Annotated[
        bool,
        typer.Option("--pages", help="Write the pages again, and compare what they say."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check evidence offline, and derive its verdict again from the raw samples."""
    from appliance.cli.console import working

    with working(f"verifying {path}"):
        from appliance.cli.results import print_verification
        from appliance.verification import verify
        from appliance.verification.terms import Expectations, Terms
        from reports.document import written_again

        certificates = trusted.certificates()
        _refuse_unfinished(path)
        if expect_criteria is not None:
            _check_digest(expect_criteria)
        terms = Terms(
            trusted=certificates,
            allow_development=trusted.allow_dev,
            facts=None if facts is None else input_file.read(facts, what="facts"),
            expectations=Expectations(
                criteria_digest=expect_criteria,
                suite=expect_suite,
                order=input_file.read_if(order),
                challenge=input_file.read_if(challenge),
                ledger=_ledger(challenge, ledger),
            ),
            total=largest * limits.MIB,
        )
        verification = written_again.verified(path, terms, is_asked=pages)
    if as_json:
        print_json(verify.to_document(verification))
    else:
        print_verification(path, verification)
    raise typer.Exit(verification.exit_code)


def _refuse_unfinished(path: Path) -> None:
    """UsageError for a folder of runs, EvidenceError for a run that is not signed yet.

    Either names the next command. A run that lacks other files is for the checks to refuse.
    """
    refuse_runs(path, "verify")
    refuse_parts(path, "verify")
    _refuse_unsigned(path)


def _refuse_unsigned(path: Path) -> None:
    """EvidenceError, with the next command, for the folder of a run that is not signed yet."""
    from appliance.storage import bundle

    names = names_in(path)
    later = names & {*bundle.FINISHED_FILES} - {*bundle.RUN_FILES}
    if bundle.PLAN not in names:
        return
    if not later:
        raise EvidenceError(
            f"{path} is not finished, so there is nothing to verify: "
            f"`{bench('accept', '--resume', str(path))}` goes on with it"
        )
    if later <= {bundle.VERDICT, bundle.SIGNER}:
        raise EvidenceError(
            f"{path} is judged and not signed: `{bench('sign', str(path))}` renders and signs it"
        )


def _check_digest(text: str) -> None:
    """UsageError for what is no sha256, as a name of criteria."""
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise UsageError(
            f'--expect-criteria is "{text}": give the 64 hexadecimal digits that `sha256sum FILE` '
            "prints of your criteria"
        )


def _ledger(challenge: Path | None, named: Path | None) -> bytes | None:
    """The ledger that was named; else the one beside the challenge, where there is one."""
    from appliance.challenge import book

    if named is not None or challenge is None:
        return input_file.read_if(named)
    return book.ledger_of(challenge)


@grouped
def compare(
    *,
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Folders of runs or report.pdf files; the first is A."),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for comparison.html and comparison.json.")
    ] = Path("comparison"),
    margin: Annotated[
        float, typer.Option(help="Relative difference in step time that is tolerated.")
    ] = 0.03,
    trusted: TrustOptions,
    as_json: JsonOption = False,
) -> None:
    """Compare runs with the first of them: times, checks, rulings, devices and software."""
    from appliance.cli.console import working
    from appliance.records.json import to_data

    if len(paths) == 1:
        raise UsageError(f"{paths[0]} alone has nothing to be compared with: name two runs or more")
    for number, path in enumerate(paths):
        refuse_runs(path, "compare", *paths[:number], after=paths[number + 1 :])
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is nothing at {path}: name out/<run id> or a report.pdf")
    with working(f"comparing {len(paths)} runs"):
        from appliance.comparison.compare_runs import check_margin
        from appliance.verbs import compare

        check_margin(margin)
        for path in paths:
            _refuse_unsigned(path)
        compared = compare.run(
            paths,
            out=out,
            margin=margin,
            trusted=trusted.certificates(),
            allow_development=trusted.allow_dev,
        )
    if as_json:
        print_json(to_data(compared.comparison))
    else:
        for sentence in compare.sentences(compared):
            say(sentence)
    raise typer.Exit(compared.exit_code)
