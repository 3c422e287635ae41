"""The verbs `fleet status` and `fleet gate`: where nodes stand."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.fleet.folders import CampaignArgument, opened
from appliance.cli.options import JsonOption, TrustOptions, grouped
from appliance.cli.output import conclude, print_json, say
from appliance.errors import SchedulerError

if TYPE_CHECKING:
    from rich.table import Table

    from appliance.fleet.folder import CampaignFolder
    from appliance.fleet.node_runs import Reader
    from appliance.fleet.states import FleetStatus

SECONDS = 15.0
"""Between two looks of the live table."""
MOST_ROWS = 60
"""Of a live table; a finished campaign's has all."""


@grouped
def status(
    *,
    campaign: CampaignArgument,
    trusted: TrustOptions,
    once: Annotated[bool, typer.Option("--once", help="Show the table once and end.")] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="Drain nodes that are finally rejected, with a reason.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show where each node stands, until all are done; 0 all accepted, 1 any rejected, 3 open."""
    from appliance.cli.console import console
    from appliance.records.json import to_data

    folder, reader = opened(campaign, trusted)
    out = console()
    shown = _now(folder, reader)
    if out.is_terminal and not once and not as_json:
        shown = _live(folder, reader, shown)
    if as_json:
        print_json(to_data(shown))
    else:
        out.print(_table(shown, len(shown.nodes)))
        say(_sentence(shown))
    if drain:
        _drain(folder, shown)
    raise typer.Exit(shown.exit_code)


@grouped
def gate(
    *,
    campaign: CampaignArgument,
    trusted: TrustOptions,
    node: Annotated[
        str | None, typer.Option(help="The node; by default this one, as Slurm calls it.")
    ] = None,
    max_age: Annotated[
        str | None, typer.Option(help="How old the run may be, as in 12h or 30d.")
    ] = None,
    allow_open: Annotated[
        bool, typer.Option("--allow-open", help="Pass a node that has no verdict yet.")
    ] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="Drain the node, with the reason, unless it passes.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask for a valid verdict of a node, for health checks and epilogs; 0 only if it has one."""
    from appliance.fleet import gate as gates
    from appliance.records.json import to_data

    folder, _ = opened(campaign, trusted)
    reader = gates.reader_of(folder, trusted.certificates(), allow_development=trusted.allow_dev)
    answer = gates.ask(
        folder,
        folder.node(node or gates.here()),
        reader,
        most_seconds=None if max_age is None else gates.seconds_of(max_age),
        takes_open=allow_open,
    )
    if drain and answer.exit_code:
        gates.drain(folder, answer.node, answer.sentence)
    conclude(answer.sentence, to_data(answer), as_json=as_json)
    raise typer.Exit(answer.exit_code)


def _now(folder: CampaignFolder, reader: Reader) -> FleetStatus:
    from appliance.fleet import states
    from appliance.planning.challenge_window import utc_words

    return states.of_campaign(folder, reader, utc_words(datetime.now(UTC)))


def _live(folder: CampaignFolder, reader: Reader, shown: FleetStatus) -> FleetStatus:
    """The table anew every few seconds, until every node is done or a person stops it."""
    from rich.live import Live

    from appliance.cli.console import console
    from appliance.fleet.states import FINAL

    with Live(_table(shown, MOST_ROWS), console=console(), transient=True) as live:
        while not all(one.state in FINAL for one in shown.nodes):
            time.sleep(SECONDS)
            shown = _now(folder, reader)
            live.update(_table(shown, MOST_ROWS))
    return shown


def _table(shown: FleetStatus, most_rows: int) -> Table:
    from rich.table import Table

    from appliance.fleet.states import FINAL

    grid = Table(box=None, pad_edge=False)
    for name in ("node", "rack", "state", "attempts", "job", "run", "what is wrong"):
        grid.add_column(name)
    moving = sorted(shown.nodes, key=lambda one: one.state in FINAL)
    rows = moving if len(shown.nodes) > most_rows else shown.nodes
    for one in rows[:most_rows]:
        job = "-" if one.job is None else f"{one.job} {one.job_state}"
        cells = (one.name, one.rack or "-", one.state, str(one.attempts), job, one.run_id or "-")
        grid.add_row(*cells, one.sentence)
    return grid


def _sentence(shown: FleetStatus) -> str:
    counts = ", ".join(f"{number} {state}" for state, number in shown.counts.items() if number)
    trouble = f"; the scheduler was not asked: {shown.scheduler}" if shown.scheduler else ""
    return f"{shown.campaign}, {len(shown.nodes)} nodes: {counts}{trouble}"


def _drain(folder: CampaignFolder, shown: FleetStatus) -> None:
    """Drain what is finally rejected; SchedulerError names the first node that cannot be."""
    from appliance.fleet import gate as gates

    for one in shown.nodes:
        if one.state != "rejected":
            continue
        try:
            gates.drain(folder, one.name, f"REJECTED by the run {one.run_id}")
        except SchedulerError as error:
            raise SchedulerError(f"{one.name} is not drained: {error}") from None
        say(f"{one.name} is drained: REJECTED by the run {one.run_id}")
