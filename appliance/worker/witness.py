"""A witness of other users of a device: a train of equal pieces of work that should run through.

The device gets many short pieces of the same work at once, with a mark of its own clock after each.
Alone it makes them one after another in equal times. A device that is shared by time slices stands
still for us while another has it, and one of the pieces seems to take the whole slice. How long
the pieces took is recorded; what stands out is for the judge. It takes about 10 ms, knows no
vendor, and says nothing of processors, which have no clock of their own.

Only pieces count that the device began after all had been handed over: a host that is held up while
it hands over work leaves gaps, too. So the whole of that is measured, and recorded with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from appliance.worker.timing import Stopwatch

LEAST_PIECE_NS = 30_000
"""A piece that takes longer than its handing over, some 10 us, leaves a queue behind it."""
COUNTS = (2**16, 2**18, 2**20, 2**22, 2**23, 2**24)
"""How many numbers a piece is made of; the first that takes long enough, or for which there is
room."""
TRAIN_NS = 10_000_000
LEAST_PIECES, MOST_PIECES = 16, 256
MakePiece = Callable[[int], Callable[[], object] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Nanoseconds that each piece took by the device's clock, and their handing over the host."""

    piece_ns: tuple[int, ...]
    issue_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A train of `pieces`, each on so many numbers as `count`, that `make_piece` makes work on.

    Its memory is taken for each look anew: a device that its steps fill has none to spare between.
    """

    make_piece: MakePiece
    count: int
    pieces: int

    def look(self, stopwatch: Stopwatch) -> Train | None:
        """Run the train once on a device that has nothing else to do; None where it has no room."""
        work = self.make_piece(self.count)
        if work is None:
            return None
        work()  # the first call may choose a kernel
        stopwatch.synchronise()
        begin = stopwatch.now()
        marks = [stopwatch.mark()]
        for _ in range(self.pieces):
            work()
            marks.append(stopwatch.mark())
        issue_ns = stopwatch.now() - begin
        stopwatch.synchronise()
        pairs = pairwise(marks)
        return Train(piece_ns=tuple(stopwatch.between(*pair) for pair in pairs), issue_ns=issue_ns)


def make_witness(make_piece: MakePiece, stopwatch: Stopwatch) -> Witness | None:
    """A witness for this device; None where it has no clock, or one that stands still, or no room.

    `make_piece` makes work on so many numbers, None where the device has no room for them.
    """
    if stopwatch.mark() is None:
        return None
    longest: Witness | None = None
    for count in COUNTS:
        tried = Witness(make_piece=make_piece, count=count, pieces=LEAST_PIECES)
        train = tried.look(stopwatch)
        if train is None:
            break
        if not any(train.piece_ns):
            return None  # by such a clock no work is long enough, and ever more would be made
        took = min(train.piece_ns)
        longest = replace(
            tried, pieces=min(MOST_PIECES, max(LEAST_PIECES, TRAIN_NS // max(1, took)))
        )
        if took >= LEAST_PIECE_NS:
            break
    return longest
