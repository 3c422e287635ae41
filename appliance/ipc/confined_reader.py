"""What somebody else wrote, read in a confined child: this process sees a record's JSON alone.

An order, criteria, a suite, a baseline, a challenge, a receipt or a certificate comes from whoever
sent it. TOML, X.509 and the checks of what they say are done in the child; it answers with the
record in canonical JSON, or with the sentence that refuses the file. A child that does not survive
its limits is such a sentence too, of the class of errors that the file's other faults have. Files
that are shipped with the package are read without one. Where records are too many to be handed
over, as those of a whole run, a child reads the same bytes first (`rehearse`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from appliance.errors import ApplianceError, BenchError, EvidenceError, UsageError
from appliance.ipc import confined_child
from appliance.ipc.confined_child import Limits
from appliance.records.json import from_json, to_json

R = TypeVar("R")
SECONDS = 5
MEMORY_BYTES = 300 * 10**6
LARGEST_ANSWER = 2**27  # the baselines of a whole fleet
SLOWEST = 2 * 10**6  # bytes a second that a run's records are read at; a quarter of what is usual
SMALL = 64 * 10**6  # bytes of a run that are read in the memory that any evidence may take
MEMORY_FOR_A_BYTE = 3


def record(
    kind: type[R], what: str, work: Callable[[], R], *, death: type[BenchError] = UsageError
) -> R:
    """The record that `work` makes of a file; `what` it is called stands in sentences.

    Raises what `work` raises, and a `death` where reading takes more than any such file needs.
    """
    if confined_child.is_confined():
        return work()

    def written() -> bytes:
        made = work()
        try:
            return to_json(made, kind)
        except ApplianceError:
            raise death(f"{what} has a number that no such file has") from None

    return from_json(kind, content(what, written, death=death), name=what)


def content(what: str, work: Callable[[], bytes], *, death: type[BenchError] = UsageError) -> bytes:
    """The bytes that `work` takes from a file; errors as of `record`."""
    if confined_child.is_confined():
        return work()
    limits = Limits(
        seconds=SECONDS,
        memory_bytes=MEMORY_BYTES,
        most_memory_bytes=MEMORY_BYTES,
        answer_bytes=LARGEST_ANSWER,
        death=death,
    )
    return confined_child.call(what, work, limits)


def rehearse(
    what: str,
    work: Callable[[], object],
    size: int,
    *,
    passes: int = 1,
    death: type[BenchError] = EvidenceError,
) -> None:
    """Do `work` on `size` bytes in a confined child, and keep nothing of it.

    Whoever then does the same work on the same bytes takes no more time and memory than evidence
    of this size may take that is gone through so often (`passes`). Raises as `record`.
    """
    if confined_child.is_confined():
        return
    memory = confined_child.MEMORY_BYTES + MEMORY_FOR_A_BYTE * max(0, size - SMALL)
    limits = Limits(
        seconds=passes * (SECONDS + size // SLOWEST),
        memory_bytes=memory,
        most_memory_bytes=memory,
        death=death,
    )

    def done() -> bytes:
        work()
        return b""

    confined_child.call(what, done, limits)
