"""The kernels of STREAM (McCalpin 1995) on float32, and the exact check of what they give.

c = a, c = s b, c = a + b and c = a + s b. Each result is one rounding of an exact value (s is a
power of two, so a fused multiply-add earns no other bits), hence the same bits on every device.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from appliance.generator import drawing
from appliance.generator.drawing import Drawn
from appliance.records.journal import Check

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Exact = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

SCALE = -0.5
FORMULAS: dict[str, Callable[[Exact, Exact], Exact]] = {
    "copy": lambda first, _: first,
    "scale": lambda _, second: SCALE * second,
    "add": lambda first, second: first + second,
    "triad": lambda first, second: first + SCALE * second,
}
ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}  # arrays read or written
ITEM = torch.float32.itemsize
PIECE = 2**16  # elements that the host compares at once, inside its own cache


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
    another library than the one that is judged, and on one thread, which a busy host slows
    the least.
    """
    if result.shape != first.shape or result.dtype != first.dtype:
        return max(first.size, 1)
    wrong = 0
    for start in range(0, len(first), PIECE):
        piece = slice(start, start + PIECE)
        one, two = first[piece].astype(np.float64), second[piece].astype(np.float64)
        bits = FORMULAS[name](one, two).astype(np.float32).view(np.int32)
        wrong += int(np.count_nonzero(bits != result[piece].view(np.int32)))
    return wrong


def compare(name: str, first: torch.Tensor, second: torch.Tensor, output: torch.Tensor) -> Check:
    """Count the elements of a kernel's output that are wrong, given its inputs."""
    arrays = (one.cpu().numpy() for one in (first, second, output))
    return _counted(name, num_wrong(name, *arrays), output.numel())


def compare_drawn(name: str, first: Drawn, second: Drawn, output: torch.Tensor) -> Check:
    """As `compare`, of inputs in float32 that the host draws itself, a piece at a time."""
    result = output.cpu().numpy()
    if result.shape != first.shape:
        return _counted(name, first.count, first.count)
    wrong = 0
    for start in range(0, first.count, drawing.PIECE):
        piece = result[start : start + drawing.PIECE]
        one, two = (
            drawing.part(drawn, start, len(piece)).view(np.float32) for drawn in (first, second)
        )
        wrong += num_wrong(name, one, two, piece)
    return _counted(name, wrong, first.count)


def _counted(name: str, wrong: int, count: int) -> Check:
    return Check(
        name=f"{name}: elements that differ",
        error=wrong,
        bound=0,
        kind="exact",
        detects=1,
        detects_what=f"wrong elements among {count}",
    )
