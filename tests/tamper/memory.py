"""What a process and its children take of a machine's memory, looked at while they run.

A peak that the kernel keeps of each process (ru_maxrss) says neither when it was nor what is
shared: parent and child of a fork have most pages in common, and a file that both map is one. So
all of them are looked at together: the first process counts with all that it has resident, each
other with what is its own alone (/proc/PID/smaps_rollup). What children share with each other only
is not seen, and a peak between two looks is missed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Sampler:
    """The most that was seen of a process and its children together, in bytes."""

    pid: int
    peak_bytes: int = 0

    def look(self) -> None:
        """Look once; of a process that has ended nothing is seen."""
        with suppress(OSError, KeyError):
            own = _rollup(self.pid)["Rss"]
            for child in _children(self.pid):
                with suppress(OSError, KeyError):
                    parts = _rollup(child)
                    own += parts["Private_Clean"] + parts["Private_Dirty"]
            self.peak_bytes = max(self.peak_bytes, own)


def _children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def _rollup(pid: int) -> dict[str, int]:
    """Bytes of the process by kind, as the kernel sums them over all that it maps."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    parts = (line.split() for line in lines)
    return {name.rstrip(":"): int(number) * 1024 for name, number, *_ in parts}
