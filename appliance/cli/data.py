"""The verbs `data list`, `data fetch` and `data verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from appliance.cli.listing import print_rows
from appliance.cli.options import JsonOption
from appliance.cli.output import say


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
