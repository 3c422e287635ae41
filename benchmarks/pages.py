"""What signing a run costs, pages and all: processor time and the most memory, by process.

A run of smoke is made here, and an acceptance on 64 devices is synthetic: each takes a minute and
more. Each is signed in a process of its own, imports included, as `bench sign` does; the folder is
read first by a confined child, whose share stands apart.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEVICES = 64
MIB = 2**20


def make(folder: Path, num_devices: int) -> None:
    """A judged run in a folder: smoke of this machine where no number of devices is asked for."""
    if not num_devices:
        words = ("run", "--suite", "smoke", "--vendor", "cpu", "--out", str(folder.parent / "out"))
        argv = [sys.executable, "-m", "appliance", *words]
        subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
        (made,) = (path for path in (folder.parent / "out").glob("*-*") if path.is_dir())
        made.rename(folder)
        return
    from support import large_nodes  # noqa: PLC0415 - another process signs it

    made = large_nodes.large(num_devices)
    folder.mkdir(parents=True)
    for name in set(made.files) - {"signer.json"}:
        (folder / name).write_bytes(made.files[name])


def sign(folder: Path) -> dict[str, float]:
    """Seconds and MiB of this process and of its children, and the pages' sizes in MiB."""
    from appliance.signing import keys  # noqa: PLC0415 - imports are measured
    from appliance.verbs import publish  # noqa: PLC0415 - the same

    publish.sign(folder, keys.development_key(), "tester")
    figures = {}
    for who, what in ((resource.RUSAGE_SELF, ""), (resource.RUSAGE_CHILDREN, "child_")):
        used = resource.getrusage(who)
        figures |= {
            f"{what}seconds": used.ru_utime + used.ru_stime,
            f"{what}mib": used.ru_maxrss / 1024,
        }
    for kind in ("html", "pdf"):
        figures[kind] = (folder / f"report.{kind}").stat().st_size / MIB
    return figures


def measure_pages() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-pages-") as name:
        for what, number in (("smoke", 0), (f"{DEVICES} devices", DEVICES)):
            folder = Path(name) / str(number)
            _child("make", str(folder), str(number))
            made = json.loads(_child("sign", str(folder)))
            print(
                f"pages of {what}, signed: {made['seconds']:.1f} s of processor time and "
                f"{made['mib']:.0f} MiB; before, in a confined child, "
                f"{made['child_seconds']:.1f} s and {made['child_mib']:.0f} MiB; "
                f"HTML {made['html']:.1f} MiB, PDF {made['pdf']:.1f} MiB"
            )
    print(f"pages: aims: smoke 3 s; {DEVICES} devices 30 s and 500 MiB")


def _child(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, __file__, *words],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )
    return done.stdout


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        print(json.dumps(sign(Path(sys.argv[2]))))
