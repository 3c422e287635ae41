"""The kernels of STREAM (McCalpin 1995) on float32, and the exact check of what they give.

c = a, c = s b, c = a + b and c = a + s b. Each result is one rounding of an exact value (s is a
power of two, so a fused multiply-add earns no other bits), hence the same bits on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from appliance.generator import drawing
from appliance.generator.drawing import Drawn
from appliance.records.journal import Check
from workloads.parts.numerics.threads import by_parts

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Exact = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

SCALE = -0.5
ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}  # arrays read or written
ITEM = torch.float32.itemsize
PIECE = 2**17
"""Elements that a thread of the host compares at once, inside its own cache.

Two threads are as fast as one where the pieces have 65,536 elements, and twice as fast from 131,072
on: they wait for the interpreter between the operations (an EPYC with two cores).
"""


def _copied(first: Array, second: Array, out: Exact) -> None:
    del second
    np.copyto(out, first)


def _scaled(first: Array, second: Array, out: Exact) -> None:
    del first
    np.multiply(second, SCALE, out=out, dtype=np.float64)


def _added(first: Array, second: Array, out: Exact) -> None:
    np.add(first, second, out=out, dtype=np.float64)


def _triad(first: Array, second: Array, out: Exact) -> None:
    _scaled(first, second, out)
    np.add(out, first, out=out)


FORMULAS: Mapping[str, Callable[[Array, Array, Exact], None]] = {
    "copy": _copied,
    "scale": _scaled,
    "add": _added,
    "triad": _triad,
}
"""Write the values in float64, of inputs in float32."""


def run(name: str, first: torch.Tensor, second: torch.Tensor, out: torch.Tensor) -> None:
    """One kernel from the inputs into `out`."""
    if name == "copy":
        out.copy_(first)
    elif name == "scale":
        torch.mul(second, SCALE, out=out)
    elif name == "add":
        torch.add(first, second, out=out)
    else:
        torch.add(first, second, alpha=SCALE, out=out)


def num_wrong(name: str, first: Array, second: Array, result: Array) -> int:
    """Elements whose bits are not those of the exact value rounded once.

    In float64, where the value is exact or its second rounding harmless, by numpy in pieces:
    another library than the one that is judged.
    """
    if result.shape != first.shape or result.dtype != first.dtype:
        return max(first.size, 1)
    formula, wrong = FORMULAS[name], 0
    exact = np.empty(min(PIECE, first.size), np.float64)
    rounded = np.empty_like(exact, np.float32)
    for start in range(0, len(first), PIECE):
        piece = slice(start, start + PIECE)
        size = len(first[piece])
        formula(first[piece], second[piece], exact[:size])
        np.copyto(rounded[:size], exact[:size], casting="same_kind")
        given = result[piece].view(np.int32)
        wrong += int(np.count_nonzero(rounded[:size].view(np.int32) != given))
    return wrong


def compare_drawn(
    first: Drawn, second: Drawn, outputs: Mapping[str, torch.Tensor]
) -> Iterator[Check]:
    """Count the elements of each kernel's output that are wrong, of inputs in float32.

    The host draws a part of the inputs itself, and reads the same part of each output, on each of
    its threads: neither lies there as a whole.
    """
    known = {
        name: output
        for name, output in outputs.items()
        if output.shape == first.shape and output.dtype == torch.float32
    }

    def wrong_in(part: slice) -> list[int]:
        count = part.stop - part.start
        one, two = (
            drawing.rows(drawn, part.start, count).view(np.float32) for drawn in (first, second)
        )
        return [
            num_wrong(name, one, two, output[part].cpu().numpy()) for name, output in known.items()
        ]

    wrong = dict.fromkeys(known, 0)
    for counts in by_parts(first.count, drawing.PIECE, wrong_in):
        for name, count in zip(known, counts, strict=True):
            wrong[name] += count
    for name in outputs:
        yield _counted(name, wrong.get(name, first.count), first.count)


def _counted(name: str, wrong: int, count: int) -> Check:
    return Check(
        name=f"{name}: elements that differ",
        error=wrong,
        bound=0,
        kind="exact",
        detects=1,
        detects_what=f"wrong elements among {count}",
    )
