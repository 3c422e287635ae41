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
PEM = "own/certificate.pem"
OWN = "--key own/key.pem --certificate"
MISTAKES: tuple[tuple[str, str], ...] = (
    ("an unknown verb", "bench acept"),
    ("an unknown option", "bench accept --siute smoke"),
    ("an option before its verb", "bench --json verify out/RUN"),
    ("an option without its value", "bench accept --suite"),
    ("an option twice", "bench verify out/RUN --expect-suite smoke --expect-suite intake"),
    ("an argument that is left out", "bench baseline plan"),
    ("an argument too many", "bench verify out/RUN out/UNSIGNED"),
    ("a variable without a value", 'bench verify ""'),
    ("no name of a suite", 'bench accept --suite ""'),
    ("an unknown suite", "bench plan --suite smok"),
    ("two suites", "bench plan smoke --suite intake"),
    ("a number that is none", "bench plan --sessions two"),
    ("a date for a number of days", "bench challenge create --days 24.12.2026"),
    ("an unknown vendor", "bench plan --vendor nvida"),
    ("a minute and other minutes", "bench plan --quick --minutes 30"),
    ("stress without a burn-in", "bench plan smoke --stress disk"),
    ("an unknown kind of stress", "bench plan burn-in --stress dsk"),
    ("an order that the node does not meet", "bench plan smoke --order order.toml"),
    ("a file that is not there", "bench plan smoke --order missing.toml"),
    ("a file that is no TOML", "bench plan smoke --criteria ./key.pem"),
    ("a folder for a file", "bench plan smoke --order out"),
    ("no wait", "bench accept smoke --wait-idle 0"),
    ("a file for the folder of runs", "bench accept smoke --out order.toml"),
    ("the folder of a run for that of runs", "bench accept smoke --out out/RUN"),
    ("an unfinished run", "bench verify out/UNFINISHED"),
    ("a folder of runs", "bench verify out"),
    ("a run's number for its folder", "bench verify RUN"),
    ("a file of a run", "bench verify out/RUN/journal.jsonl"),
    ("a folder of runs to sign", "bench sign out"),
    ("a folder of runs beside a run", "bench compare out/RUN out"),
    ("a folder that is no run", "bench verify empty"),
    ("a folder of runs to go on with", "bench accept --resume out"),
    ("a file to sign", "bench sign out/RUN/report.pdf"),
    ("a run to sign that is signed", "bench sign out/RUN"),
    ("one run to compare", "bench compare out/RUN"),
    ("a run to compare that is not there", "bench compare out/RUN out/GONE"),
    ("a margin in percent", "bench compare out/RUN out/UNSIGNED --margin 5"),
    ("a run to compare that is not signed", "bench compare out/RUN out/UNSIGNED"),
    ("criteria by name", "bench verify out/RUN --expect-criteria functional"),
    ("a run without a file of its own", "bench verify out/SHORT --allow-dev"),
    ("a run without its logs", "bench verify out/CRASHED --allow-dev"),
    ("a signed run that goes on", "bench accept --resume out/RUN"),
    ("a key without its certificate", "bench sign out/UNSIGNED --key key.pem"),
    (
        "a key whose certificate is another's",
        f"bench sign out/UNSIGNED {OWN} other/certificate.pem",
    ),
    ("a certificate for a key", f"bench sign out/UNSIGNED --key {PEM} --certificate {PEM}"),
    ("a key with a passphrase", f"bench sign out/UNSIGNED --key locked.pem --certificate {PEM}"),
    ("a key for a certificate to trust", "bench verify out/RUN --trust own/key.pem"),
    ("a file that is no certificate", "bench keys show order.toml"),
    ("a second key in a folder", "bench keys create Example --out own"),
    ("a baseline of a page", "bench baseline create out/RUN/report.pdf --allow-dev --out b.json"),
    ("a launch that there was not", "bench run --from out/RUN --case gemm --launch 99"),
    ("a folder that is no campaign", "bench fleet status out"),
    ("a folder that is no collection", "bench fleet site out"),
    ("a watch of what is not there", "bench watch out/GONE"),
    ("an unknown data set", "bench data fetch cifar10"),
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
    own, _ = keys.create_key("Example", folder / "own")
    keys.create_key("Other", folder / "other")
    locked, _ = keys.create_key("Example", folder / "locked", b"a passphrase")
    locked.rename(folder / "locked.pem")
    shutil.copy(own, folder / "key.pem")
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
launch printed. `own` and `other` have keys with their certificates, `locked.pem` has a passphrase.

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
