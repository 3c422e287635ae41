"""Tensors of any size read on the host piece by piece, on all threads that torch may use.

A tensor that is copied from an accelerator as a whole comes at the pace at which the host makes
fresh memory, 1 to 3 GB/s, whatever the bus gives (an H100 gives 25 GB/s and more into page-locked
memory), and what is made of it on the host in float64 makes fresh memory for each operator. So a
thread copies one piece into a buffer that is used again and again, waits for that copy alone, and
works on parts of the piece; meanwhile the other threads copy and work on theirs. Each bit that is
read is the device's, and every element is read.

Torch's own operators run on one thread each meanwhile. What is made of the parts is the same
however many threads there are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch

from workloads.parts.numerics.threads import on_each

Result = TypeVar("Result")
BUFFER = 2**24
"""Bytes of one buffer."""
MOST_BUFFERS = 16
"""Buffers of a process: as many threads hash what a bus of the fifth generation brings."""
SMALL = 2**20
"""Bytes that are copied as they come: to borrow a buffer and to wait for an event takes longer."""
LOCKED_FROM = 2**30
"""Bytes that a process has staged before its buffers are page-locked.

Locking takes 20 ms a buffer (0.85 GB/s on an H100's host), which less would not win back.
"""
ELEMENTS = 2**19
"""Of each tensor in a part, four MiB in float64.

Two threads are quickest with a quarter of it, which stays in their caches (15 ns an element of an
optimizer's check against 23 on an EPYC). But every operator gives the interpreter up and takes it
again, for which all threads wait in turn: with a quarter 16 threads of an H100's host took 15 s for
1.2e9 elements, where their work alone is 1.5 s.
"""
_START = 64
"""Multiple of bytes at which each piece begins in a buffer, whatever its numbers."""


class Buffers:
    """Buffers that are made when they are first needed, and lent to one thread at a time.

    Those that are made once `locked_from` bytes were staged are page-locked; they take the places
    of the others.
    """

    def __init__(self, most: int, locked_from: int = LOCKED_FROM) -> None:
        self._free: list[torch.Tensor] = []
        self._lock = threading.Lock()
        self._may_lend = threading.BoundedSemaphore(most)
        self._left = locked_from
        self._locks = False

    @contextmanager
    def lent(self, num_bytes: int) -> Iterator[torch.Tensor]:
        """A buffer, for so many bytes of it."""
        with self._may_lend:
            with self._lock:
                self._count(num_bytes)
                buffer = self._free.pop() if self._free else _new_buffer(is_locked=self._locks)
                locks = self._locks
            try:
                yield buffer
            finally:
                with self._lock:
                    if locks == self._locks:
                        self._free.append(buffer)

    def _count(self, num_bytes: int) -> None:
        self._left -= num_bytes
        if self._left <= 0 and not self._locks:
            self._locks = True
            self._free.clear()


def _new_buffer(*, is_locked: bool) -> torch.Tensor:
    """Page-locked if it is to be, there is an accelerator, and the host has such memory to give."""
    try:
        pin_memory = is_locked and torch.accelerator.is_available()
        return torch.empty(BUFFER, dtype=torch.uint8, pin_memory=pin_memory)
    except RuntimeError:
        return torch.empty(BUFFER, dtype=torch.uint8)


_buffers = Buffers(MOST_BUFFERS)


def is_far(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies where the host cannot read it."""
    return tensor.device.type != "cpu"


@contextmanager
def staged(pieces: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """The same flat tensors, which lie in order, on the host until the block ends.

    Those that lie there are given as they are; the others take no more than a buffer together.
    """
    pieces = [piece.detach() for piece in pieces]
    num_bytes = sum(piece.nbytes for piece in pieces if is_far(piece))
    if num_bytes <= SMALL:
        yield [piece.cpu() if is_far(piece) else piece for piece in pieces]
        return
    with _buffers.lent(num_bytes) as buffer:
        try:
            copies = _copied(pieces, buffer)
        finally:  # also before another thread has the buffer of a copy that did not end
            _wait_for({piece.device for piece in pieces if is_far(piece)})
        yield copies


def _copied(pieces: Sequence[torch.Tensor], buffer: torch.Tensor) -> list[torch.Tensor]:
    """Pieces of which the far ones are on their way into the buffer, one behind the other."""
    result, first = [], 0
    for piece in pieces:
        if is_far(piece):
            place = buffer[first : first + piece.nbytes].view(piece.dtype)
            result.append(place.copy_(piece, non_blocking=True))
            first += -(-piece.nbytes // _START) * _START
        else:
            result.append(piece)
    return result


def _wait_for(devices: set[torch.device]) -> None:
    """Wait for what this thread has asked of its streams so far, and let others have the processor.

    The copies went into the stream that is this thread's, after all that was asked of it before. A
    new thread begins on the first device, which another rank may have.
    """
    for device in devices:
        with torch.get_device_module(device.type).device(device):
            event = torch.Event(device, blocking=True)
            event.record()
            event.synchronize()


# ------------------------------------------------------------------ several tensors together


def by_parts_of(
    rows: Sequence[Sequence[torch.Tensor]],
    work: Callable[[int, list[torch.Tensor]], Result],
) -> list[list[Result]]:
    """What some work gives of the parts of each row of tensors, in order.

    The tensors of a row have as many elements each. The work is given the number of the row and
    flat parts on the host, all of the same elements, and must not keep them. It is torch's: each
    of its operators has one thread. An exception of the work passes through.
    """
    flat = [in_one_order(row) for row in rows]
    pieces = [piece for number, row in enumerate(flat) for piece in _pieces(number, row)]

    def of_piece(piece: tuple[int, slice]) -> list[Result]:
        number, where = piece
        with staged([one[where] for one in flat[number]]) as near:
            return [work(number, parts) for parts in _parts(near)]

    results: list[list[Result]] = [[] for _ in rows]
    for (number, _), some in zip(pieces, on_each(pieces, of_piece), strict=True):
        results[number] += some
    return results


def in_one_order(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors flat, with the same elements at the same places; the far ones where they lie.

    What lies otherwise is put in order on the host. Raises ValueError for tensors of other shapes,
    of which no element stands beside another.
    """
    shapes = {tuple(one.shape) for one in tensors}
    if len(shapes) != 1:
        raise ValueError(f"tensors of one kind have the shapes {sorted(shapes)}")
    views = _views(tensors, tensors) or _views(tensors, [one for one in tensors if is_far(one)])
    return [one.contiguous().reshape(-1) for one in views or [one.cpu() for one in tensors]]


def _views(
    tensors: Sequence[torch.Tensor], first: Sequence[torch.Tensor]
) -> list[torch.Tensor] | None:
    """The tensors with their dimensions in the order in which the first of them lie, if any."""
    for order in _orders(tensors[0].dim()):
        if all(one.permute(order).is_contiguous() for one in first):
            return [one.detach().permute(order) for one in tensors]
    return None


def _orders(dimensions: int) -> Iterator[tuple[int, ...]]:
    """Orders in which torch lays out dimensions: as they are, or the channels last."""
    own = tuple(range(dimensions))
    yield own
    if dimensions > 2:  # noqa: PLR2004 - the first is the batch, the second the channels
        yield (0, *own[2:], 1)


def _pieces(number: int, row: Sequence[torch.Tensor]) -> list[tuple[int, slice]]:
    """Cuts of a row, of whole parts or of less than one; the far tensors of each fit a buffer."""
    width = sum(one.element_size() for one in row if is_far(one))
    whole = (BUFFER - _START * len(row)) // max(1, width)
    at_once = whole // ELEMENTS * ELEMENTS or whole
    count = row[0].numel()
    return [(number, slice(first, first + at_once)) for first in range(0, count, at_once)]


def _parts(near: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    for first in range(0, near[0].numel(), ELEMENTS):
        yield [one[first : first + ELEMENTS] for one in near]


# ------------------------------------------------------------------ copies of whole tensors


def copied(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies of tensors on the host, whose fresh memory all threads fill."""
    results = [torch.empty_like(one, device="cpu") for one in tensors]
    pairs = []
    for number, (source, result) in enumerate(zip(tensors, results, strict=True)):
        views = _views([source, result], [source, result])
        if views is None:  # a view with gaps, say
            results[number] = source.to("cpu", copy=True)
        else:
            pairs.append([one.reshape(-1) for one in views])
    pieces = [piece for number, row in enumerate(pairs) for piece in _pieces(number, row)]

    def copy(piece: tuple[int, slice]) -> None:
        source, result = (one[piece[1]] for one in pairs[piece[0]])
        with staged([source]) as (near,):
            result.copy_(near)

    on_each(pieces, copy)
    return results
