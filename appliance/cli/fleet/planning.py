"""The verb `fleet plan`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.options import JsonOption, KeyOptions, grouped
from appliance.cli.output import print_json, say
from appliance.errors import UsageError

if TYPE_CHECKING:
    from appliance.fleet.campaign_toml import CampaignFile
    from appliance.fleet.inventory import InventoryNode

NO_NODES = "name the nodes with --inventory FILE, --from-sinfo or --orders FOLDER"


@grouped
def plan(
    *,
    file: Annotated[
        Path, typer.Argument(metavar="CAMPAIGN.toml", help="What to accept by, and how to start.")
    ],
    signing: KeyOptions,
    inventory: Annotated[
        Path | None, typer.Option(help="The nodes: TOML, or CSV with name,rack,serial,devices.")
    ] = None,
    from_sinfo: Annotated[
        bool, typer.Option("--from-sinfo", help="Every node that Slurm has, of the partition.")
    ] = False,
    orders: Annotated[
        Path | None, typer.Option(help="Folder with the own order of each node, NODE.toml.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; the campaign's name by default.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan a campaign over many nodes: draw its nonce, derive one a node, and sign all of it."""
    from appliance.fleet import campaign_toml, planning, risk
    from appliance.fleet import inventory as inventories
    from appliance.records.json import to_data

    key = signing.own_key()
    if key is None:
        raise UsageError(
            "name your key, which signs the campaign, with --key and --certificate (`bench keys "
            "create`)"
        )
    campaign_file = campaign_toml.read(file)
    own: Mapping[str, bytes] = {} if orders is None else inventories.orders(orders)
    nodes = _nodes(campaign_file, inventory, own, from_sinfo=from_sinfo)
    folder = out or Path(campaign_file.name)
    campaign = planning.plan(campaign_file, nodes, own, folder, key)
    if as_json:
        print_json({"folder": str(folder), "campaign": to_data(campaign)})
        return
    for sentence in risk.sentences(campaign.risk, campaign.retest):
        say(sentence)
    say(
        f"{folder} has {len(nodes)} nodes, one challenge each, valid until "
        f"{campaign.not_after_utc}: put it where every node sees it, and go on with "
        f"`bench fleet submit {folder} --trust CERTIFICATE`"
    )


def _nodes(
    file: CampaignFile,
    inventory: Path | None,
    orders: Mapping[str, bytes],
    *,
    from_sinfo: bool,
) -> tuple[InventoryNode, ...]:
    """The nodes of the inventory; UsageError where none is named, or two are."""
    from appliance.fleet import inventory as inventories
    from appliance.fleet import slurm

    if inventory is not None and from_sinfo:
        raise UsageError("--inventory and --from-sinfo both say which nodes there are: give one")
    if inventory is not None:
        return inventories.read(inventory)
    if from_sinfo:
        return inventories.of_names(slurm.nodes(file.partition), "sinfo")
    if orders:
        return inventories.of_names(orders, "the folder of orders")
    raise UsageError(NO_NODES)
