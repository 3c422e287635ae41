"""The verbs `fleet collect`, `fleet site` and `fleet report`: from bundles to tables and pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from appliance.cli.options import JsonOption, KeyOptions, TrustOptions, grouped
from appliance.cli.output import answer, conclude, conclude_lines, print_json
from appliance.errors import UsageError

CollectionArgument = Annotated[
    Path, typer.Argument(metavar="COLLECTION", help="Folder that `bench fleet collect` filled.")
]


@grouped
def collect(
    *,
    campaign: Annotated[
        Path,
        typer.Argument(
            metavar="CAMPAIGN", help="Folder of the campaign, or its campaign.dsse.json."
        ),
    ],
    places: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FROM",
            help="Folders, zips or addresses of object storage (s3://...) that hold bundles; "
            "by default the campaign's own nodes.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the ledger, tables and statement.")] = Path(
        "collection"
    ),
    processes: Annotated[
        int, typer.Option(min=0, help="Processes that verify; 0 is one a processor.")
    ] = 0,
    trusted: TrustOptions,
    signing: KeyOptions,
    as_json: JsonOption = False,
) -> None:
    """Verify the bundles of a campaign, and make tables and a signed statement of them."""
    from appliance.cli.console import working
    from appliance.records.json import to_data

    with working("collecting bundles"):
        from appliance import extras

        extras.require("fleet", "collecting")
        from appliance.collection import campaigns
        from appliance.collection import collect as collecting
        from appliance.signing import keys

        folder = campaign if campaign.is_dir() else campaign.parent
        wanted = places or [str(folder / campaigns.NODES)]
        request = collecting.Request(
            campaign=campaign,
            places=collecting.names(wanted),
            out=out,
            trusted=tuple(trusted.certificates()),
            allow_development=trusted.allow_dev,
            key=signing.own_key() or keys.development_key(),
            **({"num_processes": processes} if processes else {}),
        )
        done = collecting.collect(request)
    conclude_lines(
        (
            (
                f"{done.num_nodes} nodes of {done.campaign}: {done.accepted} accepted, "
                f"{done.rejected} rejected, {done.open} open"
            ),
            (
                f"{done.num_bundles} bundles count and {done.num_refused} do not "
                f"({done.num_new} read by this call)"
            ),
            f"signed: {done.statement}",
        ),
        to_data(done),
        as_json=as_json,
    )


@grouped
def site(
    *,
    collection: CollectionArgument,
    out: Annotated[Path, typer.Option(help="Folder for the site, which is replaced.")] = Path(
        "site"
    ),
    signing: KeyOptions,
    as_json: JsonOption = False,
) -> None:
    """Write a collection as static pages, with a signed summary on paper."""
    from appliance.cli.console import working
    from appliance.records.json import to_data

    with working(f"writing {out}"):
        from appliance import extras

        extras.require("fleet", "a fleet's site")
        extras.require_rendering("a fleet's site")
        from appliance.signing import keys
        from reports.fleet import site as sites

        done = sites.write(collection, out, signing.own_key() or keys.development_key())
    conclude(
        f"{done.num_pages} pages: {out / 'index.html'}; summary: {out / sites.SUMMARY}",
        to_data(done),
        as_json=as_json,
    )


def report(
    *,
    collection: CollectionArgument,
    query: Annotated[
        str | None, typer.Option(help="One of the site's queries, as nodes or beyond.")
    ] = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on stdout, of one query.")] = False,
) -> None:
    """Give a collection to other tools: every node, and what stands out, as JSON or CSV."""
    if as_json == as_csv:
        raise UsageError("a fleet's report is JSON or CSV: give --json or --csv")
    from appliance import extras

    extras.require("fleet", "a fleet's report")
    from appliance.collection import report as reports

    if as_json:
        print_json(reports.document(collection, query))
        return
    answer(reports.csv_text(collection, query or reports.NODES), ends_line=False)
