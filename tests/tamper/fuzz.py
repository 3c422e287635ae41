"""Gives verify hostile inputs, one after another, each in a process forked from a warm one.

`make tamper` runs 20,000 of them; `python tests/tamper/fuzz.py --seed 7 --number 12345` makes one of
them again. An input fails where it verifies without having been signed anew, where the verifier
raises anything but a domain error or is killed, and where it takes more than 5 s or 500 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tamper.mutations import Genuine, Input, drawn  # noqa: E402 - after the path

from appliance.errors import BenchError  # noqa: E402 - the same
from appliance.storage import bundle  # noqa: E402 - the same
from appliance.verification.verify import verify  # noqa: E402 - the same

MOST_SECONDS = 5.0
MOST_BYTES = 500 * 10**6
LIMIT_SECONDS = 30  # then it is ended, and fails
LIMIT_BYTES = 4 * 2**30  # of its address space, so that this machine goes on
WORST = 10
REFUSED = 4


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of an input: an exit code or `crash`, the seconds of verify, the peak in bytes."""

    number: int
    kind: str
    is_signed: bool
    code: int
    crash: str
    seconds: float
    peak_bytes: int

    @property
    def fault(self) -> str:
        """Why it fails, or nothing."""
        if self.crash:
            return f"crashed: {self.crash}"
        if self.code != REFUSED and not self.is_signed:
            return f"ended with {self.code}, and nobody signed it"
        if self.seconds > MOST_SECONDS:
            return f"took {self.seconds:.1f} s"
        if self.peak_bytes > MOST_BYTES:
            return f"took {self.peak_bytes / 1e6:.0f} MB"
        return ""


def genuine_of(folder: Path) -> Genuine:
    """The bundle of which inputs are drawn; verify is warm once it has seen it."""
    result = verify(folder, allow_development=True)
    assert result.exit_code == 0, result.faults
    verify(folder / bundle.PDF, allow_development=True)
    return Genuine(files=dict(bundle.files_of(folder)))


def tried(genuine: Genuine, seed: int, number: int) -> Outcome:
    """Draw the input in a process of its own, and verify it there."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _in_child(genuine, seed, number, writer)
    os.close(writer)
    told = _read(reader, child)
    _, status, usage = os.wait4(child, 0)
    os.close(reader)
    death = "" if told else f"ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "?"
    fields = {"kind": "", "is_signed": False, "code": 5, "crash": death, "seconds": LIMIT_SECONDS}
    fields |= json.loads(told) if told else {}
    return Outcome(number=number, peak_bytes=usage.ru_maxrss * 1024, **fields)


def _read(reader: int, child: int) -> bytes:
    """What the child says until it ends; nothing where it does not end in time."""
    told, end = b"", time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        ready, _, _ = select.select([reader], [], [], max(0.0, end - time.monotonic()))
        piece = os.read(reader, 65536) if ready else b""
        if not piece:
            break
        told += piece
    else:
        os.kill(child, signal.SIGKILL)
    if time.monotonic() >= end:
        os.kill(child, signal.SIGKILL)
    return told


def _in_child(genuine: Genuine, seed: int, number: int, writer: int) -> None:
    """Never returns."""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
        given = drawn(seed, number, genuine)
        fields = _verified(given)
        os.write(writer, json.dumps(fields).encode())
    except BaseException as error:  # noqa: BLE001 - whatever it is, the child ends here
        crash = f"in the fuzzer itself: {type(error).__name__}: {error}"[:300]
        fields = {"kind": "?", "is_signed": False, "code": 5, "crash": crash, "seconds": 0.0}
        os.write(writer, json.dumps(fields).encode())
    finally:
        os._exit(0)


def _verified(given: Input) -> dict[str, object]:
    with tempfile.TemporaryDirectory(dir=_folder()) as name:
        path = written(given, Path(name))
        begin, code, crash = time.monotonic(), 5, ""
        try:
            code = verify(path, allow_development=True).exit_code
        except BenchError as error:
            code = error.exit_code if error.exit_code != 2 else REFUSED  # noqa: PLR2004 - no evidence
        except Exception as error:  # noqa: BLE001 - a crash, to be reported
            crash = f"{type(error).__name__}: {error}"[:300]
        seconds = time.monotonic() - begin
    return {
        "kind": given.kind,
        "is_signed": given.is_signed,
        "code": code,
        "crash": crash,
        "seconds": seconds,
    }


def _folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder of its own in it


def written(given: Input, folder: Path) -> Path:
    """The input as verify is given it: a folder, or one page alone."""
    if given.alone:
        path = folder / given.alone
        path.write_bytes(given.files[given.alone])
        return path
    for name, data in given.files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return folder


def outcomes(genuine: Genuine, seed: int, numbers: Sequence[int], workers: int) -> Iterator[Outcome]:
    """What came of each input, so many at a time."""
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda number: tried(genuine, seed, number), numbers)


def summary(seen: Sequence[Outcome]) -> str:
    """Counts by kind and exit code, and the worst by time and memory."""
    counts = Counter((one.kind, "signed anew" if one.is_signed else "", one.code) for one in seen)
    lines = [f"{kind:12} {how:12} exit {code}: {number}" for (kind, how, code), number in sorted(counts.items())]
    for title, key in (("seconds", "seconds"), ("bytes", "peak_bytes")):
        worst = sorted(seen, key=lambda one: -getattr(one, key))[:WORST]
        lines += [f"the {WORST} worst by {title}:"]
        lines += [
            f"  {one.number}: {one.kind}, {one.seconds:.2f} s, {one.peak_bytes / 1e6:.0f} MB"
            for one in worst
        ]
    return "\n".join(lines)


def main() -> int:
    """1 if any input fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--number", type=int, help="one input alone")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--bundle", type=Path, help="a genuine run; made where none is named")
    parser.add_argument("--keep", type=Path, help="with --number: folder to leave the input in")
    asked = parser.parse_args()
    genuine = genuine_of(asked.bundle or made())
    if asked.number is not None:
        if asked.keep:
            shutil.rmtree(asked.keep, ignore_errors=True)
            asked.keep.mkdir(parents=True)
            print(written(drawn(asked.seed, asked.number, genuine), asked.keep))
        print(asdict(tried(genuine, asked.seed, asked.number)))
        return 0
    begin, seen, num_faults = time.monotonic(), [], 0
    numbers = range(asked.first, asked.first + asked.count)
    for one in outcomes(genuine, asked.seed, numbers, asked.workers):
        seen.append(one)
        if one.fault:
            num_faults += 1
            print(f"{one.number} ({one.kind}): {one.fault}", flush=True)
        if len(seen) % 1000 == 0:
            print(f"{len(seen)} inputs, {time.monotonic() - begin:.0f} s", flush=True)
    print(summary(seen))
    print(f"{len(seen)} inputs in {time.monotonic() - begin:.0f} s, {num_faults} faults")
    return 1 if num_faults else 0


def made() -> Path:
    """A run of two small products, as the tests have it."""
    from support.program import TINY, bench, only_run  # noqa: PLC0415 - the tests' own

    out = Path(tempfile.mkdtemp(prefix="bench-tamper-"))
    done = bench("accept", "--suite", TINY, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return only_run(out)


if __name__ == "__main__":
    raise SystemExit(main())
