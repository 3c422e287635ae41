"""All tests in two parts: beside each other in three workers, then one by one what may not be.

    scripts/run_tests.py [--quick] [OPTIONS OF PYTEST...]

Tests marked `serial` are the second part; `--quick` leaves it out, those of containers, and every
test that takes a fifth of a second or more. The exit code is the first that failed. The last lines
state the wall time of each part, how much memory the machine had in use at most beyond what it had
at the start, how long images of the container engine were made, and pytest's closing lines: of
each part, and of both together.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

NUM_WORKERS = 3
"""For two processors: a fifth of their time the tests wait for processes that they have started."""
PARALLEL = ("-n", f"{NUM_WORKERS}", "--dist", "loadgroup", "--no-loadscope-reorder")
SLOWEST = "--durations=20"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
COMPILED = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3"}
UNCACHED = "PYTHONDONTWRITEBYTECODE"
"""With it every process would compile again what it imports, and pytest rewrite all tests."""
NO_TESTS_COLLECTED = 5  # pytest's exit code
CLOSING = re.compile(r"^(?:=+ )?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s")
IMAGES = re.compile(r"^engine images made in ([\d.]+) s")
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Part:
    """How one run of pytest went."""

    name: str
    code: int
    seconds: float
    closing: str
    images_seconds: float


class Memory:
    """How much of the machine's memory was in use at most beyond what was at the start."""

    def __init__(self) -> None:
        self._before = psutil.virtual_memory().available
        self._least = self._before
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self._least = min(self._least, psutil.virtual_memory().available)
            time.sleep(1.0)

    @property
    def most_gib(self) -> float:
        return (self._before - self._least) / GIB


def run_part(name: str, words: Sequence[str], programs: str, *, workers: bool) -> Part:
    """Run pytest, show what it says as it says it, and keep its closing line."""
    argv = [sys.executable, "-m", "pytest", "--part", name, SLOWEST, *words]
    begin, closing, images = time.monotonic(), "", 0.0
    with subprocess.Popen(  # noqa: S603 - this interpreter's pytest
        [*argv, *(PARALLEL if workers else ())],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(os.environ, programs, workers=workers),
    ) as process:
        for line in process.stdout or ():
            sys.stdout.write(line)
            sys.stdout.flush()
            closing = line.strip() if CLOSING.match(line) else closing
            images += sum(float(found) for found in IMAGES.findall(line))
    return Part(
        name=name,
        code=process.returncode,
        seconds=time.monotonic() - begin,
        closing=closing,
        images_seconds=images,
    )


def environment(own: Mapping[str, str], programs: str, *, workers: bool) -> dict[str, str]:
    """Variables of a run of pytest: one thread where workers share the processors.

    What JAX compiles goes into the folder `programs`, so that each of its programs is compiled
    once in a run of the tests and not in each process.
    """
    threads = dict.fromkeys(THREADS, "1") if workers else {}
    kept = {name: value for name, value in own.items() if name != UNCACHED}
    return {**kept, **threads, "JAX_COMPILATION_CACHE_DIR": programs, **COMPILED}


def counted(parts: Sequence[Part]) -> str:
    """Pytest's closing line for all parts together."""
    counts: Counter[str] = Counter()
    for part in parts:
        for number, word in re.findall(r"(\d+) ([a-z]+)", part.closing.split(" in ")[0]):
            counts[word] += int(number)
    shown = ", ".join(f"{number} {word}" for word, number in counts.items() if word != "deselected")
    return f"{shown or 'no tests ran'} in {sum(part.seconds for part in parts):.2f}s"


def code_of(parts: Sequence[Part]) -> int:
    """No tests in one part is no failure; in none at all it is, as in pytest."""
    failed = [part.code for part in parts if part.code not in {0, NO_TESTS_COLLECTED}]
    if failed:
        return failed[0]
    return 0 if any(part.code == 0 for part in parts) else NO_TESTS_COLLECTED


def main(words: Sequence[str]) -> int:
    memory = Memory()
    is_quick = "--quick" in words
    words = [word for word in words if word != "--quick"]
    with tempfile.TemporaryDirectory(prefix="programs-") as programs:
        parts = [run_part("quick" if is_quick else "parallel", words, programs, workers=True)]
        if not is_quick:
            parts.append(run_part("serial", words, programs, workers=False))
    print()
    for part in parts:
        print(f"{part.name} part: {part.seconds:.0f} s: {part.closing.strip('= ')}")
    images = sum(part.images_seconds for part in parts)
    print(f"of these, the making of engine images: {images:.0f} s")
    print(f"memory: {memory.most_gib:.1f} GiB at most beyond what was in use at the start")
    print(f"{f' {counted(parts)} ':=^100}")
    return code_of(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
