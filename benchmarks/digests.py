"""Cost of the burn-in's digests and checks, as ratios to the time of the products they guard.

Product and digest are timed in turn, on the same matrices, in processor time of one thread, so
that a busy host counts little. The
aim of 3 % is for accelerators, at sides of 4096 or more: a product grows with the cube of its side
and a digest with the square, so the ratio falls with the side. This machine's is printed; an
accelerator's must be measured on one.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SIDES = (1024, 2048)
DTYPES = ("bfloat16", "float32")
NUM_PAIRS = 5
LARGE = 4096  # of one dtype alone, as a product takes seconds on two cores


def seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def ratio(work: Callable[[], object], product: Callable[[], object], pairs: int) -> float:
    """Median ratio of the two times, taken in turn."""
    work()
    product()
    return statistics.median(seconds(work) / seconds(product) for _ in range(pairs))


def measure_digests() -> None:
    import torch  # noqa: PLC0415 - the other parts do without

    torch.set_num_threads(1)
    sizes = [(side, dtype, NUM_PAIRS) for side in SIDES for dtype in DTYPES]
    for side, dtype, pairs in [*sizes, (LARGE, "bfloat16", 3)]:
        measure_one(side, dtype, pairs)
    print("digests: aim on an accelerator at sides of 4096 or more: at most 0.03")
    measure_step()


def measure_one(side: int, dtype: str, pairs: int) -> None:
    import torch  # noqa: PLC0415

    from workloads.parts.memory.abft import column_checksums  # noqa: PLC0415
    from workloads.parts.memory.digests import digest, make_weights  # noqa: PLC0415

    rng = torch.Generator().manual_seed(1)
    form = getattr(torch, dtype)
    left, right = (torch.randn(side, side, generator=rng).to(form) for _ in range(2))
    out = torch.empty_like(left)

    def product() -> object:
        return torch.mm(left, right, out=out)

    told = []
    for is_plain in (False, True):
        weights = make_weights((side, side), form, rng, torch.device("cpu"), is_plain=is_plain)
        name = weights.way
        told.append(f"{name} {ratio(lambda w=weights: digest(out, w), product, pairs):.4f}")  # type: ignore[misc]
    found = ratio(lambda: column_checksums(out, weights), product, pairs)
    milliseconds = statistics.median(seconds(product) for _ in range(3)) * 1e3
    print(
        f"digests: {dtype:8} {side:5}   product {milliseconds:7.1f} ms   digest over product: "
        f"{'   '.join(told)}   column checksums {found:.4f}"
    )


def measure_step() -> None:
    """A hot step of burn-in over its products alone, on the same operands."""
    import torch  # noqa: PLC0415

    from workloads.burn_in import BurnIn  # noqa: PLC0415
    from workloads.contract.target import Artifacts, Target  # noqa: PLC0415

    workload = BurnIn(
        size=1024, chain_size=128, formats="bfloat16", memory_bytes=2**28, lanes=1, rounds=1
    )
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        target = Target(device=torch.device("cpu"), artifacts=Artifacts(Path(name)))
        state = workload.build(target, 1)
        (burnt,) = state.formats
        outs = [slot.empty(state.device) for slot in burnt.slots]

        def products() -> None:
            for slot, out in zip(burnt.slots, outs, strict=True):
                pair = burnt.operands[slot.kind].corner(slot.m, slot.n, slot.k)
                workload.multiply(burnt.format, *pair, out)

        found = ratio(lambda: workload.step(state), products, NUM_PAIRS)
    print(
        f"digests: burn_in, bfloat16, side 1024: a step over its products alone {found:.3f} "
        "(digests, tests of memory, chain and counts)"
    )
