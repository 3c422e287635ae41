"""Time of drawing inputs on this host, as a ratio of how version 0.4.0 drew them over how we do.

Operands of 8192 x 8192 normal numbers, three as `gemm` has of a side, all held at once: drawn by
torch's generator, which is serial, and rounded to the format, in the very steps of 0.4.0, and by
ours on NUM_THREADS threads. A launch made them twice, when it built its inputs and to see that a
build repeats, and still does, so the ratio is of either. Fresh memory costs as much as drawing does
on some hosts, and both ways take it anew each time, as a launch does. The ratio is of the least
times of all pairs, which other load on the host disturbs the least; that of processor time beside
it says what threads add. On a device the old way also copied the operands, which is counted and not
timed. Beside it what a device would move: bytes of torch's eager operations on 64-bit integers,
counted by its dispatcher, with the words' way to values.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SIDE, NUM_INPUTS, NUM_PAIRS, NUM_THREADS = 8192, 3, 5, 2
BANDWIDTH = 3e12  # bytes a second, of an accelerator like the H100 (3.35e12 by its vendor)


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor time of drawing a side of all input sets."""
    begin, busy = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begin, time.process_time() - busy


def measure_inputs() -> None:
    import torch  # noqa: PLC0415 - the other parts do without

    before = torch.get_num_threads()
    torch.set_num_threads(NUM_THREADS)
    for dtype in ("bfloat16", "float32"):
        measure_format(dtype)
    torch.set_num_threads(before)
    measure_device()


def measure_format(dtype: str) -> None:
    import torch  # noqa: PLC0415

    from appliance.generator.maps import NORMAL  # noqa: PLC0415
    from workloads.parts.drawing.drawn import described, on_host  # noqa: PLC0415

    form = getattr(torch, dtype)
    rng = torch.Generator().manual_seed(1)

    def as_before() -> object:
        """As `DenseProduct.build` of 0.4.0 drew its left operands (parts/matmul/dense.py)."""
        return [normal_before(rng, (SIDE, SIDE), form) for _ in range(NUM_INPUTS)]

    def as_now() -> object:
        names = [f"left {number}" for number in range(NUM_INPUTS)]
        return [on_host(described(1, name, NORMAL, form, (SIDE, SIDE))) for name in names]

    pairs = [(seconds(as_before), seconds(as_now)) for _ in range(NUM_PAIRS)]
    old, new = ([min(pair[way][clock] for pair in pairs) for clock in (0, 1)] for way in (0, 1))
    wall, busy = (before / now for before, now in zip(old, new, strict=True))
    print(
        f"inputs: {NUM_INPUTS} x {SIDE} x {SIDE} normal numbers in {dtype} on {NUM_THREADS} "
        f"threads: {new[0]:.3f} s; as 0.4.0 drew them takes {wall:.1f} times as long (aim: 10), "
        f"{busy:.1f} times the processor time, and copies "
        f"{NUM_INPUTS * SIDE**2 * form.itemsize / 1e9:.2f} GB to a device"
    )


def normal_before(rng: torch.Generator, shape: tuple[int, int], form: torch.dtype) -> torch.Tensor:
    """0.4.0's `normal`: standard normal numbers rounded to a format."""
    import torch  # noqa: PLC0415

    drawn = torch.promote_types(form, torch.float32)
    return torch.randn(*shape, generator=rng, dtype=drawn).to(form)


def measure_device() -> None:
    import torch  # noqa: PLC0415
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415

    from appliance.generator.maps import NORMAL  # noqa: PLC0415
    from workloads.parts.drawing.drawn import described, drawn_by_device  # noqa: PLC0415

    class Counting(TorchDispatchMode):
        moved = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204 - torch's own
            result = func(*args, **(kwargs or {}))
            if "view" not in func.name() and "slice" not in func.name():
                tensors = [one for one in (*args, result) if isinstance(one, torch.Tensor)]
                self.moved += sum(one.nbytes for one in tensors if one.dim())
            return result

    drawn = described(1, "left 0", NORMAL, torch.bfloat16, (1024, 1024))
    host = torch.device("cpu")
    drawn_by_device(drawn, host)
    with Counting() as counting:
        drawn_by_device(drawn, host)
    whole = counting.moved * NUM_INPUTS * SIDE**2 / drawn.count
    print(
        f"inputs: on a device {NUM_INPUTS} x {SIDE} x {SIDE} move {whole / 1e9:.1f} GB by eager "
        f"operations, {1e3 * whole / BANDWIDTH:.0f} ms at {BANDWIDTH / 1e12:g} TB/s (aim: 50 ms)"
    )
