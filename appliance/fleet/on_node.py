"""The verb `fleet run`: what a job does on its node, or a person without any scheduler.

It claims the attempt's number, which no second job can, goes on with a run that an earlier attempt
left unfinished, once, and else begins a new one, in the place of this process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from appliance.challenge.campaign import CampaignNode
from appliance.errors import OutputError, UsageError
from appliance.fleet.folder import CHALLENGE, CRITERIA, CampaignFolder
from appliance.fleet.node_runs import run_folders
from appliance.storage import bundle, plain_files

HERE = "SLURMD_NODENAME"
JOB = "SLURM_JOB_ID"
BY_HAND = "no job"


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command line, and the variables that it gets beside ours."""

    words: tuple[str, ...]
    environment: Mapping[str, str]


def command(folder: CampaignFolder, node: CampaignNode, attempt: int, sessions: int) -> Command:
    """Claim the attempt, and say what to run for it.

    UsageError on another node, or for an attempt that another job has begun; OutputError where the
    folder cannot be written.
    """
    here = os.environ.get(HERE)
    if here is not None and here != node.name:
        raise UsageError(f"this job is on {here}, and its run is of {node.name}")
    jobs = folder.jobs(node.name)
    job = os.environ.get(JOB, BY_HAND)
    _claim(jobs / f"attempt-{attempt}.begun", job, f"attempt {attempt} of {node.name}")
    launcher = folder.campaign.launcher
    unfinished = _unfinished(folder, node)
    begun = None if unfinished is None else ("--resume", str(unfinished))
    words = begun or _new(folder, node, sessions)
    if launcher.data:
        words = (*words, "--data", launcher.data)
    if launcher.kind == "docker":
        words = ("start", "--image", launcher.image, *words)
    else:
        words = ("accept", *words)
    return Command(words=(launcher.program, *words), environment=_signing(folder))


def _new(folder: CampaignFolder, node: CampaignNode, sessions: int) -> tuple[str, ...]:
    """Options of a new run: everything that the campaign fixes, and where its bundle goes."""
    order = folder.order_path(node)
    vendor = folder.campaign.launcher.vendor
    return (
        *("--suite", str(folder.suite), "--criteria", str(folder.path / CRITERIA)),
        *("--challenge", str(folder.node_folder(node.name) / CHALLENGE)),
        *("--out", str(folder.runs(node.name))),
        *(() if order is None else ("--order", str(order))),
        *(() if sessions == 1 else ("--sessions", str(sessions), "--pause", folder.campaign.pause)),
        *(("--vendor", vendor) if vendor else ()),
    )


def _signing(folder: CampaignFolder) -> Mapping[str, str]:
    launcher = folder.campaign.launcher
    if not launcher.key:
        return {}
    return {"BENCH_SIGN_KEY_FILE": launcher.key, "BENCH_SIGN_CERT_FILE": launcher.certificate}


def _unfinished(folder: CampaignFolder, node: CampaignNode) -> Path | None:
    """The newest run, if it began and was not signed, and nobody has gone on with it before.

    One that cannot go on, as the node has other parts since, is so left to lie the second time.
    """
    runs = run_folders(folder.runs(node.name))
    if not runs or (runs[-1] / bundle.REPORT).exists():
        return None
    if not (runs[-1] / bundle.JOURNAL).exists():
        return None
    try:
        mark = os.open(folder.jobs(node.name) / f"{runs[-1].name}.resumed", plain_files.NEW, 0o644)
    except FileExistsError:
        return None
    except OSError as error:
        raise _unwritten(folder.jobs(node.name), error) from None
    os.close(mark)
    return runs[-1]


def _claim(path: Path, job: str, what: str) -> None:
    """Make the file of an attempt; whoever comes second is refused, but for the same job.

    Where the disk does not take it the attempt has not begun, and no file says that it has.
    """
    try:
        descriptor = os.open(path, plain_files.NEW, 0o644)
    except FileExistsError:
        if job == BY_HAND or plain_files.read(path, 100) != job.encode():
            raise UsageError(f"{what} has begun in another job: a number is used once") from None
        return
    except OSError as error:
        raise _unwritten(path, error) from None
    try:
        with os.fdopen(descriptor, "w") as stream:
            stream.write(job)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise _unwritten(path, error) from None


def _unwritten(path: Path, error: OSError) -> OutputError:
    return OutputError(f"{path} cannot be written ({error.strerror})")
