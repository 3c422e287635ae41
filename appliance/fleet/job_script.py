"""What Slurm gets for a node: the options of its job, and the script that the node runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from appliance.challenge.campaign import CampaignNode
from appliance.errors import UsageError
from appliance.fleet.folder import CampaignFolder

LEAST_FOR_SIGNAL = 10  # minutes; Slurm may send the signal a minute early
SIGNAL_SECONDS = 120
"""Before the time limit a run is interrupted in order, so that it can go on in another job."""
GPUS = '${SLURM_GPUS_ON_NODE:+"--gres=gpu:$SLURM_GPUS_ON_NODE"}'
"""A step of an exclusive job has none of its accelerators unless it names them (srun, --gres)."""


def options(
    folder: CampaignFolder, node: CampaignNode, attempt: int, *, after: int
) -> tuple[str, ...]:
    """Options of `sbatch`: this node alone and whole; `after` is the job before it, 0 for none."""
    campaign = folder.campaign
    output = folder.jobs(node.name) / f"attempt-{attempt}.out"
    found = [
        f"--job-name={folder.job_name}",
        f"--comment=bench node={node.name} attempt={attempt}",
        f"--nodelist={node.name}",
        "--nodes=1",
        "--exclusive",
        "--mem=0",
        f"--time={campaign.minutes}",
        "--no-requeue",
        "--open-mode=append",
        f"--output={_unexpanded(output)}",
        f"--chdir={folder.path}",
    ]
    if campaign.minutes >= LEAST_FOR_SIGNAL:
        found.append(f"--signal={_signalled(folder)}INT@{SIGNAL_SECONDS}")
    if campaign.reservation:
        found.append(f"--reservation={campaign.reservation}")
    if campaign.partition:
        found.append(f"--partition={campaign.partition}")
    if after:
        found.append(f"--dependency=afterany:{after}")
    return tuple(found)


def _signalled(folder: CampaignFolder) -> str:
    """Whom Slurm signals: what the script became, else ("") the processes of its step.

    The script becomes bench, which `bench start` passes on into the container. With pyxis it
    becomes srun, which would answer with a line of status, and bench is in the step.
    """
    return "" if folder.campaign.launcher.kind == "pyxis" else "B:"


def script(folder: CampaignFolder, node: CampaignNode, attempt: int, sessions: int) -> str:
    """The batch script: one command in the place of the shell."""
    launcher = folder.campaign.launcher
    words = [
        *(launcher.program, "fleet", "run", str(folder.path)),
        *("--node", node.name, "--attempt", str(attempt), "--sessions", str(sessions)),
    ]
    command = shlex.join(words)
    if launcher.kind == "pyxis":
        command = f"srun --ntasks=1 --cpu-bind=none {GPUS} {shlex.join(_pyxis(folder))} {command}"
    return f"#!/bin/sh\nexec {command}\n"


def _pyxis(folder: CampaignFolder) -> Sequence[str]:
    """Pyxis starts the image; the campaign and the key are mounted where they are."""
    launcher = folder.campaign.launcher
    places = {str(folder.path)}
    places |= {str(Path(one).parent) for one in (launcher.key, launcher.certificate) if one}
    if launcher.data:
        places.add(launcher.data)
    if any(set(place) & set(":,") for place in places):
        raise UsageError(
            f"{folder.path} has a colon or a comma in its path, which no mount of pyxis can have"
        )
    mounts = ",".join(f"{place}:{place}" for place in sorted(places))
    return (
        f"--container-image={launcher.image}",
        f"--container-mounts={mounts}",
        "--no-container-mount-home",
        "--no-container-entrypoint",  # the image's starts a run of its own
    )


def _unexpanded(path: Path) -> str:
    """The path, in which Slurm replaces nothing."""
    return str(path).replace("\\", "\\\\").replace("%", "%%")
