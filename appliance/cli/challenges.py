"""The buyer's verbs `challenge create`, `begin`, `close` and `ledger`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.options import JsonOption, KeyOptions, TrustOptions, grouped
from appliance.cli.output import conclude, print_json, say, say_lines
from appliance.errors import UsageError

if TYPE_CHECKING:
    from appliance.signing.keys import Key
    from appliance.verbs.challenge import AttemptRow, Begun, LedgerTable

ChallengeOption = Annotated[Path, typer.Option(help="Your challenge, its ledger beside it.")]
NO_KEY = "name your key, which signs receipts, with --key and --certificate (`bench keys create`)"


def _buyers(signing: KeyOptions) -> Key:
    """The buyer's key; UsageError where none is named."""
    key = signing.own_key()
    if key is None:
        raise UsageError(NO_KEY)
    return key


@grouped
def create(
    *,
    signing: KeyOptions,
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("challenge.json"),
    days: Annotated[float, typer.Option(help="Days until it ends.")] = 14.0,
    criteria: Annotated[
        str | None, typer.Option(help="Criteria that the run must use, by name or path.")
    ] = None,
    suite: Annotated[
        str | None, typer.Option(help="Suite that the run must make, by name or path.")
    ] = None,
    note: Annotated[str, typer.Option(help="Your own reference, stored in the file.")] = "",
    uncounted: Annotated[
        bool, typer.Option("--uncounted", help="Count no attempts: fix the inputs alone.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Draw the nonce that a run's seeds must derive from, and open the ledger of its attempts."""
    from appliance.challenge import book
    from appliance.records.json import to_data
    from appliance.verbs import challenge

    key = None if uncounted else signing.own_key()
    if key is None and not uncounted:
        raise UsageError(f"{NO_KEY}; or say --uncounted, and the number of attempts stays unknown")
    request = challenge.Request(
        out=out,
        days=days,
        criteria=criteria,
        suite=suite,
        note=note,
        key=key,
    )
    issued = challenge.issue(request)
    stored = "" if uncounted else f" with its ledger {book.ledger_path(out)}"
    conclude(
        f"{out} is valid until {issued.not_after_utc}: store it{stored}, send it to whoever runs "
        f"the node (`bench accept --challenge {out}`), and give it to `bench verify --challenge`",
        to_data(issued),
        as_json=as_json,
    )


@grouped
def begin(
    *,
    signing: KeyOptions,
    request: Annotated[Path, typer.Option(help="The node's request, or a file with its text.")],
    challenge: ChallengeOption = Path("challenge.json"),
    hours: Annotated[
        float, typer.Option(help="Hours until the run must have ended and come back.")
    ] = 24.0,
    out: Annotated[
        Path | None, typer.Option(help="File for the receipt; CHALLENGE.receipt-N.json by default.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a plan's digest with a signed receipt: the next attempt at a challenge begins."""
    from appliance.verbs import challenge as challenges

    key = _buyers(signing)
    begun = challenges.begin(challenge, request, key, hours=hours, out=out)
    _conclude_begun(begun, as_json=as_json)


def _conclude_begun(begun: Begun, *, as_json: bool) -> None:
    from appliance.challenge import qr_code
    from appliance.records.json import to_data

    picture = begun.path.with_suffix(".png")
    qr_code.save(begun.text, picture)
    receipt = begun.receipt
    if not as_json:
        say_lines(qr_code.printed(begun.text))
        say(f"receipt ({len(begun.text)} characters): {begun.text}")
    conclude(
        f"attempt {receipt.attempt} of the run {receipt.run_id} is begun; it must be back by "
        f"{receipt.not_after_utc}: carry {begun.path}, {picture} or the text to the node "
        "(`bench accept --resume FOLDER --receipt FILE`)",
        {
            "receipt": to_data(receipt),
            "file": str(begun.path),
            "picture": str(picture),
            "text": begun.text,
        },
        as_json=as_json,
    )


@grouped
def close(
    *,
    path: Annotated[Path, typer.Argument(help="Folder of the run, or its report.pdf.")],
    signing: KeyOptions,
    trusted: TrustOptions,
    challenge: ChallengeOption = Path("challenge.json"),
    as_json: JsonOption = False,
) -> None:
    """Verify the bundle of an attempt, and note in the ledger that it came back."""
    from appliance.records.json import to_data
    from appliance.verbs import challenge as challenges

    key = _buyers(signing)
    returned = challenges.close(
        challenge,
        path,
        key,
        trusted=trusted.certificates(),
        allow_development=trusted.allow_dev,
    )
    conclude(
        f"attempt {returned.attempt} came back: {returned.verdict}",
        to_data(returned),
        as_json=as_json,
    )


def ledger(
    *, challenge: ChallengeOption = Path("challenge.json"), as_json: JsonOption = False
) -> None:
    """Show every attempt at a challenge: under way, returned, or failed as it never came back."""
    from appliance.records.json import to_data
    from appliance.verbs import challenge as challenges

    shown = challenges.table(challenge)
    if as_json:
        print_json(to_data(shown))
    else:
        _print(shown)


def _print(shown: LedgerTable) -> None:
    from rich.table import Table

    from appliance.cli.console import console

    out = console()
    grid = Table(box=None, pad_edge=False)
    for name in ("attempt", "run", "begun", "window until", "came back", "result"):
        grid.add_column(name, no_wrap=True)
    for row in shown.attempts:
        grid.add_row(
            str(row.attempt),
            row.run_id,
            row.begun_utc,
            row.not_after_utc,
            row.returned_utc or "-",
            _result(row),
        )
    out.print(grid)
    out.print(
        f"{len(shown.attempts)} of at most {shown.most_attempts} attempts of the challenge "
        f"{shown.challenge[:12]} by {shown.buyer}, numbered without a gap",
        markup=False,
    )


def _result(row: AttemptRow) -> str:
    if row.state == "returned":
        return str(row.verdict)
    return "FAILED: never came back" if row.state == "failed" else "under way"
