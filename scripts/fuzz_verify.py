"""Gives verify 20,000 hostile inputs drawn by a seed, and says what came of them: `make tamper`.

`--seed 7 --number 12345 --keep FOLDER` draws one of them again and leaves it in a folder.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.program import TINY, bench, only_run  # noqa: E402 - after the path
from tamper.fuzz import Outcome, genuine_of, outcomes, summary, tried, written  # noqa: E402 - the same
from tamper.mutations import Genuine, drawn  # noqa: E402 - the same

from appliance.errors import ApplianceError  # noqa: E402 - the same

EVERY = 1000  # inputs between two lines


def made() -> Path:
    """A run of two small products, as the tests have it."""
    out = Path(tempfile.mkdtemp(prefix="bench-tamper-"))
    done = bench("accept", "--suite", TINY, "--out", str(out))
    if done.returncode:
        raise ApplianceError(f"no run to draw inputs from: {done.stderr}")
    return only_run(out)


def one(genuine: Genuine, asked: argparse.Namespace) -> None:
    """Draw the input that was asked for, and say what comes of it."""
    if asked.keep:
        shutil.rmtree(asked.keep, ignore_errors=True)
        asked.keep.mkdir(parents=True)
        print(written(drawn(asked.seed, asked.number, genuine), asked.keep))
    print(asdict(tried(genuine, asked.seed, asked.number)))


def many(genuine: Genuine, asked: argparse.Namespace) -> int:
    """How many of the inputs failed."""
    begin, seen = time.monotonic(), list[Outcome]()
    numbers = range(asked.first, asked.first + asked.count)
    with suppress(KeyboardInterrupt):  # what was seen so far is said all the same
        for outcome in outcomes(genuine, asked.seed, numbers, asked.workers):
            seen.append(outcome)
            if outcome.fault:
                print(f"{outcome.number} ({outcome.kind}): {outcome.fault}", flush=True)
            if len(seen) % EVERY == 0:
                print(f"{len(seen)} inputs, {time.monotonic() - begin:.0f} s", flush=True)
    num_faults = sum(bool(outcome.fault) for outcome in seen)
    print(summary(seen))
    print(f"{len(seen)} inputs in {time.monotonic() - begin:.0f} s, {num_faults} faults")
    return num_faults


def main() -> int:
    """1 if any input fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="which inputs are drawn")
    parser.add_argument("--count", type=int, default=20_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--number", type=int, help="one input alone")
    parser.add_argument("--keep", type=Path, help="folder to leave that one input in")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="at a time")
    parser.add_argument("--bundle", type=Path, help="a genuine run; made where none is named")
    asked = parser.parse_args()
    genuine = genuine_of(asked.bundle or made())
    if asked.number is not None:
        one(genuine, asked)
        return 0
    return 1 if many(genuine, asked) else 0


if __name__ == "__main__":
    raise SystemExit(main())
