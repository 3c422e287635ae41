"""What verbs of a campaign share: its folder, whom to trust, and which of its nodes are meant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.options import TrustOptions

if TYPE_CHECKING:
    from appliance.fleet.folder import CampaignFolder
    from appliance.fleet.node_runs import Reader

CampaignArgument = Annotated[
    Path,
    typer.Argument(metavar="CAMPAIGN", help="Folder of the campaign, made by `bench fleet plan`."),
]
NodesOption = Annotated[
    list[str] | None, typer.Option("--node", help="This node alone; may be given several times.")
]


def opened(campaign: Path, trusted: TrustOptions) -> tuple[CampaignFolder, Reader]:
    """The campaign in a folder, and who reads its bundles; both of the same trusted signers."""
    from appliance.fleet import folder as folders
    from appliance.fleet.node_runs import Reader

    certificates = trusted.certificates()
    folder = folders.opened(campaign, certificates, allow_development=trusted.allow_dev)
    reader = Reader(folder=folder, trusted=certificates, allow_development=trusted.allow_dev)
    return folder, reader
