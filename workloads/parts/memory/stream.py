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

SCALE = -0.5
ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}  # arrays read or written
ITEM = torch.float32.itemsize


def _copied(first: Array, second: Array, out: Array) -> Array:
    del second, out
    return first


def _scaled(first: Array, second: Array, out: Array) -> Array:
    del first
    return np.multiply(second, np.float32(SCALE), out=out)


def _added(first: Array, second: Array, out: Array) -> Array:
    return np.add(first, second, out=out)


def _triad(first: Array, second: Array, out: Array) -> Array:
    return np.add(first, _scaled(first, second, out), out=out)


FORMULAS: Mapping[str, Callable[[Array, Array, Array], Array]] = {
    "copy": _copied,
    "scale": _scaled,
    "add": _added,
    "triad": _triad,
}
"""Give the exact values rounded once, in `out` where they are not an input themselves.

A float32 addition rounds the exact sum once, and the product is exact where it is no subnormal
number: what is drawn is 2**-15 in size at least.
"""


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

    By numpy: another library than the one that is judged. Each call hands the interpreter over, on
    which the other threads wait, so there are few.
    """
    if result.shape != first.shape or result.dtype != first.dtype:
        return max(first.size, 1)
    exact = FORMULAS[name](first, second, np.empty_like(first)).view(np.int32)
    given = result.view(np.int32)
    return 0 if np.array_equal(exact, given) else int(np.count_nonzero(exact != given))


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
