"""The verbs `list` and `data`: what is shipped, what can be fetched, and how a list is printed."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from appliance.cli.options import JsonOption
from appliance.cli.output import answer, print_json, say

NAME_WIDTH = 18
ALLOWANCE = "allowance: what the suite allows a case that was timed on no such device"
LEAST_WIDTH = 40  # columns that a text gets at least, however narrow the terminal


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
        _print_entry(suite.name, suite.summary)
        for sentence in suite_times.sentences([one for one in known if one.suite == suite.name]):
            _print_entry("", sentence, indent=2)
    say(ALLOWANCE)


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


# ------------------------------------------------------------------ data


def available(*, as_json: JsonOption = False) -> None:
    """Data sets with their size and licence."""
    from appliance.verbs import datasets

    print_rows(datasets.rows(), as_json=as_json)


def fetch(
    *,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Data sets; all if none.")
    ] = None,
    to: Annotated[Path, typer.Option(help="Folder to put them into.")] = Path("data"),
    mirror: Annotated[Path | None, typer.Option(help="Folder to take them from.")] = None,
) -> None:
    """Fetch data sets, checked against their digests."""
    from appliance.verbs import datasets

    datasets.fetch(names or [], to, mirror=mirror, progress=say)


def verify(
    *,
    folder: Annotated[Path, typer.Argument(help="Folder with data sets.")],
) -> None:
    """Check the data sets in a folder against their digests."""
    from appliance.verbs import datasets

    datasets.verify(folder, progress=say)


# ------------------------------------------------------------------ printing


def print_rows(rows: Sequence[dict[str, str]], *, as_json: bool) -> None:
    """Names with their summaries on stdout."""
    if as_json:
        print_json(rows)
        return
    for row in rows:
        _print_entry(row["name"], row["summary"])


def _print_entry(name: str, text: str, *, indent: int = 0) -> None:
    """A name with its text beside it; on a terminal lines end between words."""
    head = f"{name:{NAME_WIDTH}} {'':{indent}}"
    if not sys.stdout.isatty():
        answer(head + text)
        return
    width = max(LEAST_WIDTH, shutil.get_terminal_size().columns)
    answer(
        textwrap.fill(
            text,
            width,
            initial_indent=head,
            subsequent_indent=" " * (NAME_WIDTH + 1 + indent),
            break_long_words=False,
            break_on_hyphens=False,
        )
    )
