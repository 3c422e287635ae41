"""The verbs `list suites`, `list criteria`, `list workloads`, and how a list is printed."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from appliance.cli.options import JsonOption
from appliance.cli.output import print_json


def suites(*, as_json: JsonOption = False) -> None:
    """Suites that are shipped, with their planned times on the devices that were qualified."""
    from appliance.records.json import to_data
    from appliance.scheduling import suite_times
    from appliance.storage import suite_file

    shipped = [suite_file.load_suite(name)[0] for name in suite_file.list_suites()]
    known = suite_times.load()
    if as_json:
        print_json(
            [
                {
                    "name": suite.name,
                    "summary": suite.summary,
                    "times": [to_data(one) for one in known if one.suite == suite.name],
                }
                for suite in shipped
            ]
        )
        return
    for suite in shipped:
        typer.echo(f"{suite.name:18} {suite.summary}")
        for one in known:
            if one.suite == suite.name:
                typer.echo(f"{'':18}   {one.sentence}")


def criteria(*, as_json: JsonOption = False) -> None:
    """Criteria files that are shipped."""
    from appliance.storage import criteria_file

    files = [criteria_file.load_criteria(name)[0] for name in criteria_file.list_criteria()]
    print_rows([{"name": one.name, "summary": one.summary} for one in files], as_json=as_json)


def workloads(*, as_json: JsonOption = False) -> None:
    """Workloads with their sizes, units, variants, and the suites that use them."""
    from appliance.cli.results import print_workloads
    from appliance.records.json import to_data
    from appliance.verbs import listing

    listed = listing.listed()
    if as_json:
        print_json([to_data(one) for one in listed])
    else:
        print_workloads(listed)


def print_rows(rows: Sequence[dict[str, str]], *, as_json: bool) -> None:
    """Names with their summaries on stdout."""
    if as_json:
        print_json(rows)
        return
    for row in rows:
        typer.echo(f"{row['name']:18} {row['summary']}")
