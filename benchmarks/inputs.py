"""Time of drawing inputs on this host, as a ratio of how version 0.4.0 drew them over how we do.

Operands of 8192 x 8192 normal numbers, three as `gemm` has of a side: drawn by torch's generator,
which is serial, and rounded to the format, in the very steps of 0.4.0, and by ours on NUM_THREADS
threads. Two ways each, in turn:

- into memory that is at hand, which both write again each time: what drawing takes. It is what our
  way made before, in pages of 2 MiB where the system gives them, which make no difference to 0.4.0;
- into fresh memory, which both take from the system anew and give back: what a launch that keeps
  none takes. It is drawing and the first touch of every page together. That depends on the host:
  by pages of 4 KiB, as torch's allocator has them, or of 2 MiB, as NumPy's asks for; and a virtual
  machine that had given memory back to its hypervisor waits for it, 2 s a gigabyte on one of ours.

The ratio is of the least times of all pairs, which other load on the host disturbs the least; that
of processor time beside it says what threads add. On a device the old way also copied the operands,
which is counted and not timed. Beside it what a device would move: bytes of torch's eager
operations on 64-bit integers, counted by its dispatcher, with the words' way to values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from appliance.generator.drawing import Drawn

SIDE, NUM_INPUTS, NUM_PAIRS, NUM_THREADS = 8192, 3, 8, 2
PAUSE_SECONDS = 0.05
"""Before each way: torch's threads keep a processor for some ms while they wait for more work."""
BANDWIDTH = 3e12  # bytes a second, of an accelerator like the H100 (3.35e12 by its vendor)


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor time of drawing a side of all input sets."""
    time.sleep(PAUSE_SECONDS)
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
    from workloads.parts.drawing.drawn import described  # noqa: PLC0415

    form = getattr(torch, dtype)
    names = [f"left {number}" for number in range(NUM_INPUTS)]
    drawn = [described(1, name, NORMAL, form, (SIDE, SIDE)) for name in names]
    for where, aim, ratios in (
        ("memory at hand", " (aim: 10)", into_held_memory(drawn, form)),
        ("fresh memory", "", into_fresh_memory(drawn, form)),
    ):
        wall, busy, now = ratios
        print(
            f"inputs: {NUM_INPUTS} x {SIDE} x {SIDE} normal numbers in {dtype} on {NUM_THREADS} "
            f"threads into {where}: {now:.3f} s; as 0.4.0 drew them takes {wall:.1f} times as "
            f"long{aim}, {busy:.1f} times the processor time"
        )
    copied = NUM_INPUTS * SIDE**2 * form.itemsize / 1e9
    print(f"inputs: as 0.4.0 drew them in {dtype} {copied:.2f} GB more are copied to a device")


def into_held_memory(drawn: Sequence[Drawn], form: torch.dtype) -> tuple[float, float, float]:
    """What `compared` says of drawing into tensors that both write again and again."""
    import torch  # noqa: PLC0415

    from appliance.generator.maps import NORMAL  # noqa: PLC0415
    from workloads.parts.drawing.drawn import described, fill, on_host  # noqa: PLC0415

    rng = torch.Generator().manual_seed(1)
    held = [on_host(one) for one in drawn]
    drawn_in = torch.promote_types(form, torch.float32)
    wide = on_host(described(1, "wide", NORMAL, drawn_in, drawn[0].shape))

    def before() -> None:
        for out in held:
            if wide.dtype == form:
                torch.randn(out.shape, generator=rng, out=out)
            else:
                out.copy_(torch.randn(out.shape, generator=rng, out=wide))

    def now() -> None:
        for one, out in zip(drawn, held, strict=True):
            fill(one, out)

    return compared(before, now)


def into_fresh_memory(drawn: Sequence[Drawn], form: torch.dtype) -> tuple[float, float, float]:
    """What `compared` says of drawing into tensors that are taken from the system each time."""
    import torch  # noqa: PLC0415

    from workloads.parts.drawing.drawn import on_host  # noqa: PLC0415

    rng = torch.Generator().manual_seed(1)
    return compared(
        # as `DenseProduct.build` of 0.4.0 drew its left operands (parts/matmul/dense.py)
        lambda: [normal_before(rng, one.shape, form) for one in drawn],
        lambda: [on_host(one) for one in drawn],
    )


def compared(before: Callable[[], object], now: Callable[[], object]) -> tuple[float, float, float]:
    """Ratios of wall and of processor time, and the wall time of now: the least of all pairs."""
    pairs = [(seconds(before), seconds(now)) for _ in range(NUM_PAIRS)]
    old, new = ([min(pair[way][clock] for pair in pairs) for clock in (0, 1)] for way in (0, 1))
    return old[0] / new[0], old[1] / new[1], new[0]


def normal_before(rng: torch.Generator, shape: tuple[int, ...], form: torch.dtype) -> torch.Tensor:
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
