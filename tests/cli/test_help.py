"""`bench --help` and the light verbs load no heavy library."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "onnxruntime", "docker", "weasyprint", "transformers", "scipy", "pyhanko"}


def loaded(*words: str) -> tuple[set[str], str]:
    """Top-level packages that a command imports, and what it prints."""
    command = [sys.executable, "-X", "importtime", "-m", "appliance.cli.main", *words]
    done = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True, env={"COLUMNS": "200"}
    )
    times = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in times}, done.stdout


@pytest.mark.parametrize("words", [("--help",), ("accept", "--help"), ("verify", "--help")])
def test_help_loads_nothing_heavy(words: tuple[str, ...]) -> None:
    packages, printed = loaded(*words)
    assert "typer" in packages
    assert "Usage" in printed
    assert not packages & HEAVY


def test_help_names_every_verb_of_the_flow() -> None:
    _, printed = loaded("--help")
    flow = ("accept", "probe", "plan", "run", "report", "sign", "verify")
    others = ("compare", "selftest", "baseline", "list", "keys", "data", "challenge")
    verbs = (*flow, *others, "start", "doctor")
    assert [verb for verb in verbs if verb not in printed] == []
