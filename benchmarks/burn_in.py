"""Whether a burn-in keeps processors busy in hot phases, and what its digests and tests cost.

A burn-in that sizes itself works through hot steps, each format in turn; of these the processor
time of the whole process is set against the time that all cores had, and the time that threads
spent in digests and in tests of memory against all processor time. The aims are 95 % at least of
the cores' time, and 10 % at most of it for digests. Other load on the machine lowers the first; so
another figure leaves that out: each lane's work is counted without the time that its thread was
ready and waited for a core (/proc/thread-self/schedstat), a step lasts as long as its longest lane
and what the main thread does besides, and the processor time is set against that. What the lanes
wait for each other or for Python's lock still counts as idle. Load that disturbs caches and memory
lengthens the work, which no figure can take out.
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


def own_clock() -> float:
    """Seconds that pass but for those in which this thread is ready and waits for a core."""
    _, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
    return time.perf_counter() - int(waited) * 1e-9


def lanes_clocked(spent: Counter[str], in_lanes: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with what the longest lane took by its own clock, and the whole by the caller."""

    def run(lanes: Any, work: Callable[..., Any]) -> Any:
        took = []

        def clocked(number: int, meet: Callable[[], object]) -> Any:
            begin = own_clock()
            try:
                return work(number, meet)
            finally:
                took.append(own_clock() - begin)

        begin = own_clock()
        try:
            return in_lanes(lanes, clocked)
        finally:
            spent["joined"] += own_clock() - begin  # type: ignore[assignment]
            spent["longest lane"] += max(took)  # type: ignore[assignment]

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

    from workloads import burn_in  # noqa: PLC0415
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
            mock.patch.object(memory_tests, "run", timed(spent, "memory", memory_tests.run)),
            mock.patch.object(burn_in, "in_lanes", lanes_clocked(spent, burn_in.in_lanes)),
        ):
            begin = time.perf_counter(), time.process_time(), own_clock()
            count = CYCLES * len(state.formats)
            shares = [step(workload, state, spent) for _ in range(count)]
            wall, used = time.perf_counter() - begin[0], time.process_time() - begin[1]
            alone = own_clock() - begin[2] - spent["joined"] + spent["longest lane"]
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
        f"burn_in: without the waits for cores that others had, {alone:.1f} s, of which the cores "
        f"were busy {used / alone / cores:.3f} (aim {AIM_BUSY} at least)"
    )


def step(workload: Any, state: Any, spent: Counter[str]) -> tuple[str, float, float]:
    """One step: its format, the time of its digests and all processor time."""
    name = state.formats[state.num_steps % len(state.formats)].format.name
    begin, used = spent["digests"], time.process_time()
    workload.step(state)
    return name, spent["digests"] - begin, time.process_time() - used
