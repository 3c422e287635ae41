"""The verbs `fleet submit`, `resume` and `cancel`, and `fleet run`, which the jobs call."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.fleet.folders import CampaignArgument, NodesOption, opened
from appliance.cli.options import JsonOption, TrustOptions, grouped
from appliance.cli.output import conclude, print_json, say
from appliance.errors import UsageError

if TYPE_CHECKING:
    from appliance.fleet.submitting import Submitted


@grouped
def submit(
    *,
    campaign: CampaignArgument,
    trusted: TrustOptions,
    node: NodesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give Slurm a job for each node that is due: not done, and no job of it under way."""
    from appliance.fleet import submitting

    folder, reader = opened(campaign, trusted)
    done = submitting.submit(folder, reader, only=node or ())
    _conclude(done, as_json=as_json)


@grouped
def resume(
    *,
    campaign: CampaignArgument,
    trusted: TrustOptions,
    node: NodesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit what is due, after taking back jobs that wait for nodes which are gone.

    Nodes that are named get one attempt more than the campaign gives them, as after a repair.
    """
    from appliance.fleet import submitting

    folder, reader = opened(campaign, trusted)
    done = submitting.submit(folder, reader, only=node or (), again=True)
    _conclude(done, as_json=as_json)


@grouped
def cancel(
    *,
    campaign: CampaignArgument,
    trusted: TrustOptions,
    node: NodesOption = None,
    as_json: JsonOption = False,
) -> None:
    """End the campaign's jobs, queued and running; what they recorded stays."""
    from appliance.fleet import submitting

    folder, _ = opened(campaign, trusted)
    cancelled = submitting.cancel(folder, only=node or (), say=say)
    conclude(
        f"{len(cancelled)} jobs are cancelled; `bench fleet submit` begins again where they ended",
        {"cancelled": dict(cancelled)},
        as_json=as_json,
    )


def run(
    *,
    campaign: CampaignArgument,
    node: Annotated[str, typer.Option(help="The node that this is.")],
    attempt: Annotated[int, typer.Option(min=1, max=999, help="Number of the attempt.")],
    sessions: Annotated[int, typer.Option(min=1, help="Parts of the run.")] = 1,
) -> None:
    """Make the node's run, here: what the campaign's jobs call, in the place of this process."""
    from appliance.fleet import folder as folders
    from appliance.fleet import on_node

    folder = folders.opened_on_node(campaign)
    command = on_node.command(folder, folder.node(node), attempt, sessions)
    environment = {**os.environ, **command.environment}
    try:
        os.execvpe(command.words[0], command.words, environment)  # noqa: S606 - wanted so
    except OSError as error:
        raise UsageError(
            f"{command.words[0]} cannot be started on {node} ({error.strerror}): name bench on the "
            "nodes in the campaign's launcher"
        ) from None


def _conclude(done: Submitted, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "submitted": dict(done.jobs),
                "passed_over": dict(done.passed_over),
                "taken_back": dict(done.taken_back),
                "finished": done.finished,
                "under_way": done.under_way,
            }
        )
        return
    for name, reason in done.passed_over.items():
        say(f"{name} is passed over: {reason}")
    for name, job in done.taken_back.items():
        say(f"{name}: job {job} waited for a node that is gone, and is taken back")
    say(
        f"{len(done.jobs)} jobs submitted, {done.under_way} under way before, {done.finished} "
        f"nodes finished, {len(done.passed_over)} passed over"
    )
