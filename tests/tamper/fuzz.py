"""Gives verify hostile inputs, one after another, each in processes forked from a warm one.

`make tamper` runs 20,000 of them, by scripts/fuzz_verify.py. An input fails where it verifies
without having been signed anew, where the verifier raises anything but a domain error or is killed,
and where it takes more than 5 s of a processor or 500 MB. Memory is what the machine loses to both
processes at one moment (see memory.py); the sum of their peaks is an upper bound, which counts what
both share twice.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import select
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tamper.memory import Sampler
from tamper.mutations import Genuine, Input, drawn

from appliance.errors import ApplianceError, BenchError
from appliance.storage import bundle
from appliance.verification.terms import Terms
from appliance.verification.verify import verify, verify_confined

MOST_SECONDS = 5.0
MOST_BYTES = 500 * 10**6
LIMIT_SECONDS = 90  # by the clock, on a machine that does much else; then it is ended, and fails
LIMIT_BYTES = 4 * 2**30  # of its address space, so that this machine goes on
WORST = 10
WORST_BY = (("time", "seconds"), ("memory", "peak_bytes"))
REFUSED, NOT_STATED = 4, 3
Fields = dict[str, Any]
NOTHING: Fields = {"kind": "?", "is_signed": False, "code": 5, "crash": ""}
BOTH = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
"""Who verifies and the child in which he does."""
SAMPLE_SECONDS = 0.01
KILLED = "what reads it ended ("  # by a signal, which no input may bring about


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of an input: an exit code or `crash`, what it took of processors and memory.

    `peak_bytes` are the most that the process and its confined child were seen to take together,
    `bound_bytes` the sum of the peaks of both, which nothing exceeds.
    """

    number: int
    kind: str
    is_signed: bool
    code: int
    crash: str
    seconds: float
    peak_bytes: int
    bound_bytes: int

    @property
    def fault(self) -> str:
        """Why it fails, or nothing."""
        if self.crash:
            return f"crashed: {self.crash}"
        refused = {REFUSED, NOT_STATED} if self.kind == "html" else {REFUSED}
        if self.code not in refused and not self.is_signed:
            return f"ended with {self.code}, and nobody signed it"
        if self.seconds > MOST_SECONDS:
            return f"took {self.seconds:.1f} s"
        if self.peak_bytes > MOST_BYTES:
            return f"took {self.peak_bytes / 1e6:.0f} MB"
        return ""


def genuine_of(folder: Path) -> Genuine:
    """The bundle of which inputs are drawn; verify is warm once it has seen it."""
    result = verify(folder, Terms(allow_development=True))
    assert result.exit_code == 0, result.faults
    verify(folder / bundle.PDF, Terms(allow_development=True))
    return Genuine(files=dict(bundle.files_of(folder)))


def tried(genuine: Genuine, seed: int, number: int) -> Outcome:
    """Draw the input in a process of its own, and verify it in another, which alone is measured."""
    with tempfile.TemporaryDirectory(dir=_folder()) as name:
        path = Path(name) / "given"
        fields, _ = _forked(lambda: _drawn(genuine, seed, number, path))
        used = Used()
        if not fields["crash"]:
            place = path / str(fields.pop("alone"))
            verdict, used = _forked(lambda: _verified(place))
            fields |= {name: verdict[name] for name in ("code", "crash")}
            used.bound_bytes = verdict.get("bound_bytes", used.bound_bytes)
    return Outcome(
        number=number,
        seconds=used.seconds,
        peak_bytes=used.peak_bytes or used.bound_bytes,  # it was too quick to be looked at
        bound_bytes=used.bound_bytes,
        **fields,
    )


@dataclass(kw_only=True)
class Used:
    """Processor time of a fork and its children, their most memory as seen, and as it can be."""

    seconds: float = 0.0
    peak_bytes: int = 0
    bound_bytes: int = 0


def _forked(work: Callable[[], Fields]) -> tuple[Fields, Used]:
    """What a fork answers, with what it took."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _in_child(work, writer)
    os.close(writer)
    sampler = Sampler(child)
    reply = _read(reader, child, sampler)
    _, status, usage = os.wait4(child, 0)
    os.close(reader)
    death = f"ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "no answer"
    fields: Fields = {**NOTHING, "crash": death}
    fields = {**NOTHING, **json.loads(reply)} if reply else fields
    return fields, Used(
        seconds=usage.ru_utime + usage.ru_stime,
        peak_bytes=sampler.peak_bytes,
        bound_bytes=usage.ru_maxrss * 1024,
    )


def _read(reader: int, child: int, sampler: Sampler) -> bytes:
    """What the child says until it ends, with looks at its memory; it is ended if it does not."""
    reply, end = b"", time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        ready, _, _ = select.select([reader], [], [], SAMPLE_SECONDS)
        if not ready:
            sampler.look()
            continue
        piece = os.read(reader, 65536)
        if not piece:
            break
        reply += piece
    else:
        os.kill(child, signal.SIGKILL)
    if time.monotonic() >= end:
        os.kill(child, signal.SIGKILL)
    return reply


def _in_child(work: Callable[[], Fields], writer: int) -> None:
    """Never returns."""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
        os.write(writer, json.dumps(work()).encode())
    except BaseException as error:  # noqa: BLE001 - whatever it is, the child ends here
        crash = f"in the fuzzer itself: {type(error).__name__}: {error}"[:300]
        os.write(writer, json.dumps({"crash": crash}).encode())
    finally:
        os._exit(0)


def _drawn(genuine: Genuine, seed: int, number: int, folder: Path) -> Fields:
    given = drawn(seed, number, genuine)
    folder.mkdir()
    written(given, folder)
    return {"kind": given.kind, "is_signed": given.is_signed, "alone": given.alone}


def _verified(path: Path) -> Fields:
    code, crash = 5, ""
    try:
        code = verify_confined(path, Terms(allow_development=True)).exit_code
    except ApplianceError as error:
        crash = str(error)[:300]
    except BenchError as error:
        code, crash = REFUSED, str(error) if KILLED in str(error) else ""
    except Exception as error:  # noqa: BLE001 - a crash, to be reported
        crash = f"{type(error).__name__}: {error}"[:300]
    return {"code": code, "crash": crash, "bound_bytes": sum(map(_peak_bytes, BOTH))}


def _peak_bytes(who: int) -> int:
    return resource.getrusage(who).ru_maxrss * 1024


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


def outcomes(
    genuine: Genuine, seed: int, numbers: Sequence[int], workers: int
) -> Iterator[Outcome]:
    """What came of each input, so many at a time, by processes of one thread that may fork."""
    _given[:] = [(genuine, seed)]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        yield from pool.map(_tried, numbers)


_given: list[tuple[Genuine, int]] = []
"""What the processes of a pool are born with: a key cannot be sent to them."""


def _tried(number: int) -> Outcome:
    return tried(*_given[-1], number)


def summary(seen: Sequence[Outcome]) -> str:
    """Counts by kind and exit code, and the worst by time and memory."""
    counts = Counter((one.kind, "signed anew" if one.is_signed else "", one.code) for one in seen)
    lines = [
        f"{kind:12} {how:12} exit {code}: {number}"
        for (kind, how, code), number in sorted(counts.items())
    ]
    for title, key in WORST_BY:
        worst = sorted(seen, key=lambda one: -getattr(one, key))[:WORST]
        lines += [f"the {WORST} worst by {title}:"]
        lines += [
            f"  {one.number}: {one.kind}, {one.seconds:.2f} s, {one.peak_bytes / 1e6:.0f} MB, "
            f"at most {one.bound_bytes / 1e6:.0f} MB"
            for one in worst
        ]
    return "\n".join(lines)
