"""Campaigns over virtual nodes, and the verbs of `bench fleet` as their operator calls them."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from support.program import TINY, called
from support.slurm import SECONDS

LAUNCHES = ("interim_analyses = [5, 10]", "interim_analyses = [1]")
"""What the suite of the tests has, and what is enough for a verdict on function alone."""


def planned(
    folder: Path,
    keys: Path,
    program: Path,
    *more: str,
    concurrency: int = 4,
    settings: str = "minutes = 30",
    nodes: str = "n1,a\nn2,a\nn3,b\nn4,b",
    launcher: str = "",
) -> Path:
    """A campaign over the four nodes, in `folder`."""
    text = Path(TINY).read_text()
    assert LAUNCHES[0] in text
    (folder / "suite.toml").write_text(text.replace(*LAUNCHES))
    (folder / "campaign.toml").write_text(
        f"""
        name = "test"
        suite = "{folder}/suite.toml"
        criteria = "functional"
        concurrency = {concurrency}
        {settings}
        retries = 1
        [launcher]
        {launcher}
        program = "{program}"
        vendor = "cpu"
        key = "{keys}/key.pem"
        certificate = "{keys}/certificate.pem"
        """
    )
    (folder / "nodes.csv").write_text(f"name,rack\n{nodes}\n")
    out = folder / "campaign"
    done = called(
        *("fleet", "plan", str(folder / "campaign.toml"), "--out", str(out)),
        *("--inventory", str(folder / "nodes.csv"), *signing(keys), *more),
    )
    assert done.returncode == 0, done.stderr
    return out


def signing(keys: Path) -> tuple[str, ...]:
    return ("--key", f"{keys}/key.pem", "--certificate", f"{keys}/certificate.pem")


def fleet(verb: str, campaign: Path, keys: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return called("fleet", verb, str(campaign), "--trust", f"{keys}/certificate.pem", *words)


def answer(verb: str, campaign: Path, keys: Path, *words: str) -> dict[str, object]:
    return json.loads(fleet(verb, campaign, keys, "--json", *words).stdout)


def nodes(campaign: Path, keys: Path) -> dict[str, dict[str, object]]:
    """Every node's state by its name, once the scheduler has said what it knows of them.

    Without its answer a node whose job runs would be taken for one that is due.
    """
    end = time.monotonic() + SECONDS
    while (found := answer("status", campaign, keys))["scheduler"]:
        assert time.monotonic() < end, found["scheduler"]
        time.sleep(0.5)
    return {one["name"]: one for one in found["nodes"]}
