"""The mistakes of docs/reference/mistakes.md, made for real: each command with what it answered.

`PYTHONPATH=tests python tests/support/mistakes.py` writes the page anew. Commands run in a folder
where `out/RUN` is a signed run and the others are copies that lack something.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.bundles import crashed, healthy, sealed
from support.program import ROOT, called

from appliance.signing import keys
from appliance.storage import bundle

PAGE = ROOT / "docs" / "reference" / "mistakes.md"
ORDER = """\
schema = "bench/order/1"
name = "order"
summary = "A node of eight devices"

[[line]]
field = "devices.count"
op = "=="
value = 8
title = "Eight devices"
"""
MISTAKES: tuple[tuple[str, str], ...] = (
    ("an unknown verb", "bench acept"),
    ("an unknown option", "bench accept --siute smoke"),
    ("no name of a suite", 'bench accept --suite ""'),
    ("an unknown suite", "bench plan --suite smok"),
    ("two suites", "bench plan smoke --suite intake"),
    ("a number that is none", "bench plan --sessions two"),
    ("a minute and other minutes", "bench plan --quick --minutes 30"),
    ("stress without a burn-in", "bench plan smoke --stress disk"),
    ("an unknown kind of stress", "bench plan burn-in --stress dsk"),
    ("an order that the node does not meet", "bench plan smoke --order order.toml"),
    ("a file that is not there", "bench plan smoke --order missing.toml"),
    ("an unfinished run", "bench verify out/UNFINISHED"),
    ("a folder of runs", "bench verify out"),
    ("a folder of runs to sign", "bench sign out"),
    ("a folder of runs beside a run", "bench compare out/RUN out"),
    ("a folder that is no run", "bench verify empty"),
    ("a run without a file of its own", "bench verify out/SHORT --allow-dev"),
    ("a run without its logs", "bench verify out/CRASHED --allow-dev"),
    ("a signed run that goes on", "bench accept --resume out/RUN"),
    ("a key without its certificate", "bench sign out/UNSIGNED --key key.pem"),
    ("a container that would not start", "bench start --dry-run --engine missing.sock"),
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one command said on stderr, and its exit code."""

    mistake: str
    command: str
    code: int
    sentence: str


def make(folder: Path) -> None:
    """The folder in which the commands are called."""
    key = keys.development_key()
    run = sealed(folder / "out" / "RUN", healthy(), key)
    for name, lost in (
        ("SHORT", (bundle.CRITERIA,)),
        ("UNSIGNED", (bundle.STATEMENT, bundle.REPORT, bundle.HTML, bundle.PDF)),
        (
            "UNFINISHED",
            (
                *(bundle.STATEMENT, bundle.REPORT, bundle.HTML, bundle.PDF),
                *(bundle.VERDICT, bundle.SIGNER),
            ),
        ),
    ):
        copy = shutil.copytree(run, folder / "out" / name)
        for one in lost:
            (copy / one).unlink()
    shutil.rmtree(sealed(folder / "out" / "CRASHED", crashed(), key) / bundle.LOGS)
    (folder / "empty").mkdir()
    (folder / "order.toml").write_text(ORDER)


def answers(folder: Path) -> Iterator[Answer]:
    """Each mistake, made in a folder that `make` has prepared."""
    for mistake, command in MISTAKES:
        words = [word.strip('"') for word in command.split()[1:]]
        with contextlib.chdir(folder):
            done = called(*words)
        yield Answer(
            mistake=mistake,
            command=command,
            code=done.returncode,
            sentence=_sentence(done.stderr.replace(f"{folder}/", "")),
        )


def _sentence(stderr: str) -> str:
    """The check that failed, or the last line; how many devices this node has is no matter."""
    lines = [re.sub(r"\s+", " ", line).strip() for line in stderr.strip().splitlines()]
    failed = [line for line in lines if re.match(r"[0-9]+ fail ", line)]
    return re.sub(r"count is [0-9]+", "count is 1", (failed or lines)[-1 if not failed else 0])


def page(rows: list[Answer]) -> str:
    """The whole page."""
    table = "\n".join(
        f"| {one.mistake} | `{one.command}` | {one.sentence.replace('|', chr(92) + '|')} "
        f"| {one.code} |"
        for one in rows
    )
    return f"""# Mistakes and what they are answered

What `bench` says to input that it cannot take, word for word: one sentence on stderr that names
the thing and the next command, and an exit code ([all of them](verbs.md)). A test makes each of
these mistakes and holds the answer to this page.
[When something does not go on](../how-to/troubleshooting.md) explains what needs more room.

In these examples `out` holds runs: `RUN` is signed, `UNSIGNED` and `UNFINISHED` lack what their
names say, `SHORT` has lost its criteria, and `CRASHED`, of which a launch crashed, what that
launch printed.

| mistake | command | answer | exit code |
|---|---|---|---|
{table}
"""


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        make(Path(scratch))
        made = list(answers(Path(scratch)))
    PAGE.write_text(page(made))
    sys.stdout.write(page(made))
