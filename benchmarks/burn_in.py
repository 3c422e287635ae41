"""Whether a burn-in keeps processors busy in hot phases, and what its digests and tests cost.

A burn-in that sizes itself works through hot steps, each format in turn; of these the processor
time of the whole process is set against the time that all cores had, and the time that threads
spent in digests and in tests of memory against all processor time. The aims are 95 % at least of
the cores' time, and 10 % at most of it for digests. Other load on the machine lowers the first; so
the time that the lanes' threads ran, or waited for a core that others had, is printed beside it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

AIM_BUSY, AIM_DIGESTS = 0.95, 0.10
CYCLES = 4
"""Hot steps of each format that are measured."""
HOT_SECONDS = 1e6
"""A phase so long that all steps are hot."""
MEMORY_BYTES = 2**31


def seconds(work: Callable[[], object]) -> float:
    """Seconds of one call, the second of two."""
    work()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def wanted_seconds() -> float:
    """Seconds that this thread has run, or was ready to run and waited for a core (Linux)."""
    ran, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
    return (int(ran) + int(waited)) * 1e-9


def wanting(spent: Counter[str], work: Callable[..., Any]) -> Callable[..., Any]:
    """The same work, with the time that its thread wanted a core added up."""

    def run(*args: Any, **options: Any) -> Any:
        begin = wanted_seconds()
        try:
            return work(*args, **options)
        finally:
            spent["wanted"] += wanted_seconds() - begin  # type: ignore[assignment]

    return run


def timed(spent: Counter[str], name: str, work: Callable[..., Any]) -> Callable[..., Any]:
    """The same work, with the processor time of its thread added up."""

    def run(*args: Any, **options: Any) -> Any:
        begin = time.thread_time()
        try:
            return work(*args, **options)
        finally:
            spent[name] += time.thread_time() - begin  # type: ignore[assignment]

    return run


def measure_burn_in() -> None:
    import torch  # noqa: PLC0415 - the other parts do without

    from workloads.burn_in import BurnIn  # noqa: PLC0415
    from workloads.contract.target import Artifacts, Target  # noqa: PLC0415
    from workloads.parts.memory import digests, memory_tests  # noqa: PLC0415

    workload = BurnIn(by_device=True, phase_seconds=HOT_SECONDS, memory_bytes=MEMORY_BYTES)
    spent: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        target = Target(
            device=torch.device("cpu"), artifacts=Artifacts(Path(name)), seconds=seconds
        )
        state = workload.build(target, 1)
        for _ in range(2 * len(state.formats)):
            workload.step(state)  # the first products, and all of the memory once
        with (
            mock.patch.object(digests, "digest_into", timed(spent, "digests", digests.digest_into)),
            mock.patch.object(
                memory_tests, "run", wanting(spent, timed(spent, "memory", memory_tests.run))
            ),
            mock.patch.object(BurnIn, "_rounds", wanting(spent, BurnIn._rounds)),  # noqa: SLF001
        ):
            begin = time.perf_counter(), time.process_time()
            count = CYCLES * len(state.formats)
            shares = [step(workload, state, spent) for _ in range(count)]
            wall, used = time.perf_counter() - begin[0], time.process_time() - begin[1]
    cores = len(os.sched_getaffinity(0))
    for burnt in state.formats:
        own = [one for one in shares if one[0] == burnt.format.name]
        part = sum(one[1] for one in own) / sum(one[2] for one in own)
        print(
            f"burn_in: {burnt.format.name:9} {burnt.hot_rounds:4} rounds a step   "
            f"digests {part:.3f} of the processor time"
        )
    print(
        f"burn_in: hot steps of {wall:.1f} s kept {cores} cores busy {used / wall / cores:.3f} of "
        f"the time (aim {AIM_BUSY} at least); of that digests {spent['digests'] / used:.3f} "
        f"(aim {AIM_DIGESTS} at most), tests of memory {spent['memory'] / used:.3f}"
    )
    print(
        f"burn_in: the lanes ran, or waited for a core that others had, "
        f"{spent['wanted'] / wall / len(state.lanes):.3f} of the time"
    )


def step(workload: Any, state: Any, spent: Counter[str]) -> tuple[str, float, float]:
    """One step: its format, the time of its digests and all processor time."""
    name = state.formats[state.num_steps % len(state.formats)].format.name
    begin, used = spent["digests"], time.process_time()
    workload.step(state)
    return name, spent["digests"] - begin, time.process_time() - used
