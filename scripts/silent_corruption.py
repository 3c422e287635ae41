"""Planted faults through the shipped digest, on real products: how many of each kind are missed.

    python scripts/silent_corruption.py [FAULTS] [PROCESSES] [--write] [--table=FILE]
    python scripts/silent_corruption.py burn-in [FAULTS]

Each fault is planted in a product that torch made, digested as a burn-in digests it, compared with
the right product's digests, and taken out again; every thousandth time the product must have its
own digests again. Nothing is predicted: a fault counts as detected if the two numbers differ.
`--write` puts the table into docs/explanation/burn-in.md. After every piece a line says how far it
is, and `--table` has the table so far, so that a run that is cut short still shows what it planted.

With `burn-in` the faults are planted in products of a burn-in's own steps, every other one, and go
its whole way: digest, ring, comparison on the device, mailbox, counts and check.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 - after the path

from workloads.burn_in import BurnIn  # noqa: E402 - the same
from workloads.contract.target import Artifacts, Target  # noqa: E402 - the same
from workloads.parts.burning.formats import Format  # noqa: E402 - the same
from workloads.parts.memory.digests import (  # noqa: E402 - the same
    Scratch,
    digest,
    digest_into,
    make_weights,
    on_host,
)
from workloads.parts.memory.planted_faults import SHARES, Planter, words_of  # noqa: E402

PAGE = ROOT / "docs" / "explanation" / "burn-in.md"
MARKS = ("<!-- faults -->", "<!-- end of faults -->")
NUM_FAULTS = 1_000_000
NUM_BURNT_IN = 10_000
PER_PRODUCT = 500
PER_PIECE, FEWEST_PIECES, MOST_PIECES = 10_000, 20, 400
SIZE = 64
PRODUCTS_A_ROUND = 12
ONE_SET = 2**16  # bytes: what a repeat of a mismatch writes to is smaller than the pool
SHAPES = ((128, 128, 128), (256, 192, 128), (127, 256, 253), (512, 512, 64), (64, 1024, 64))
"""(m, n, k) of the products in turn; one is odd."""
DTYPES = (torch.bfloat16, torch.float32, torch.float16)
CPU = torch.device("cpu")

Seen = Counter[tuple[str, str, str]]


def _products(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Products of each shape and dtype in turn, each with another of the same operands' kind."""
    rng = torch.Generator().manual_seed(seed)
    while True:
        for m, n, k in SHAPES:
            for dtype in DTYPES:
                made = [
                    (torch.randn(m, k, generator=rng) @ torch.randn(k, n, generator=rng)).to(dtype)
                    for _ in range(2)
                ]
                yield made[0], made[1]


def injected(seed: int, count: int) -> Seen:
    """Counts of (kind, dtype, "planted" or "missed") of so many faults."""
    torch.set_num_threads(1)
    seen: Seen = Counter()
    rng = torch.Generator().manual_seed(seed)
    products = islice(_products(seed), seed % (len(SHAPES) * len(DTYPES)), None)
    for begin in range(0, count, PER_PRODUCT):
        product, stale = next(products)
        weights = make_weights((product.shape[0], product.shape[1]), product.dtype, rng, CPU)
        right = digest(product, on_host(weights))
        planter = Planter(stale=stale, seed=seed + begin)
        out, scratch = torch.zeros(2, dtype=torch.int64), Scratch.make(product.shape[0], CPU)
        kept = words_of(product).copy()
        for _ in range(min(PER_PRODUCT, count - begin)):
            kind, name = planter.draw_kind(), str(product.dtype).removeprefix("torch.")
            planter.plant(kind, product)
            digest_into(product, weights, out.zero_(), scratch)
            seen[kind, name, "planted"] += 1
            seen[kind, name, "missed"] += torch.equal(out, right)
            words_of(product)[...] = kept
        if not torch.equal(digest(product, weights), right):
            raise AssertionError("a healthy product does not have its own digests")
    return seen


@dataclass(frozen=True, kw_only=True)
class Corrupted(BurnIn):
    """A burn-in of which every other product of the steps after the first has a planted fault."""

    planter: Planter
    log: list[str]

    def multiply(
        self, form: Format, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor
    ) -> None:
        """One product, and in every other one a fault; repeats of a mismatch are left alone."""
        super().multiply(form, left, right, out)
        self.log.append("")
        count = len(self.log)
        is_repeat = bool(out.storage_offset() == 0 and out.untyped_storage().nbytes() < ONE_SET)
        if count > PRODUCTS_A_ROUND and count % 2 and not is_repeat:
            self.log[-1] = self.planter.draw_kind()
            self.planter.plant(self.log[-1], out)


def burnt_in(count: int, folder: Path) -> tuple[int, int, list[str]]:
    """Faults planted in a burn-in, those that it counted, and its checks that were outside."""
    torch.set_num_threads(1)
    stale = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(2)).bfloat16()
    workload = Corrupted(
        size=SIZE,
        chain_size=16,
        memory_bytes=2**24,
        formats="bfloat16",
        lanes=1,
        rounds=50,
        planter=Planter(stale=stale, seed=1),
        log=[],
    )
    state = workload.build(Target(device=CPU, artifacts=Artifacts(folder)), 3)
    output = workload.step(state)
    while sum(map(bool, workload.log)) < count:
        output = workload.step(state)
    counted = state.num_wrong
    outside = [one.name for one in workload.check(None, state, output) if not one.is_within]
    return sum(map(bool, workload.log)), counted, outside


def table(seen: Seen) -> str:
    """A row for each kind: faults planted in each dtype, and how many were missed."""
    names = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
    rows = [f"| kind | {' | '.join(names)} | missed |", "|---|" + "---|" * (len(names) + 1)]
    for kind in SHARES:
        counts = [f"{seen[kind, name, 'planted']:,}" for name in names]
        missed = sum(seen[kind, name, "missed"] for name in names)
        rows.append(f"| {kind} | {' | '.join(counts)} | {missed:,} |")
    return "\n".join(rows)


def write(made: str) -> None:
    """Put the table and its sentence between their marks in the page of burn-ins."""
    text = PAGE.read_text()
    begin, end = (text.index(mark) for mark in MARKS)
    PAGE.write_text(f"{text[: begin + len(MARKS[0])]}\n{made}\n{text[end:]}")


def main_burn_in() -> None:
    """Plant faults in a burn-in; ends with 1 if it did not count each."""
    count = int(sys.argv[2]) if len(sys.argv) > 2 else NUM_BURNT_IN  # noqa: PLR2004 - given
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        planted, counted, outside = burnt_in(count, Path(folder))
    print(f"{planted:,} planted in a burn-in's products, {counted:,} counted; outside: {outside}")
    raise SystemExit(planted != counted or not outside)


def in_pieces(count: int, processes: int, show: Callable[[Seen], None]) -> Seen:
    """Counts of so many faults, planted in several processes; `show` has those so far."""
    number = min(MOST_PIECES, max(FEWEST_PIECES, -(-count // PER_PIECE)))
    sizes = [count // number + (piece < count % number) for piece in range(number)]
    seen: Seen = Counter()
    with ProcessPoolExecutor(processes) as pool:
        for made in as_completed(pool.submit(injected, *piece) for piece in enumerate(sizes)):
            seen += made.result()
            show(seen)
    return seen


def total(seen: Seen, what: str) -> int:
    """How many were "planted" or "missed"."""
    return sum(number for key, number in seen.items() if key[2] == what)


def used_seconds() -> float:
    """Processor time of this process and of those that have ended."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def main() -> None:
    """Plant the faults in several processes; ends with 1 if one was missed."""
    is_written = "--write" in sys.argv
    sys.argv = [one for one in sys.argv if one != "--write"]
    if sys.argv[1:2] == ["burn-in"]:
        main_burn_in()
    files = [Path(one.partition("=")[2]) for one in sys.argv if one.startswith("--table=")]
    sys.argv = [one for one in sys.argv if not one.startswith("--table=")]
    count = int(sys.argv[1]) if len(sys.argv) > 1 else NUM_FAULTS
    processes = int(sys.argv[2]) if len(sys.argv) > 2 else 2  # noqa: PLR2004 - given
    begin = time.perf_counter()

    def show(seen: Seen) -> None:
        planted, missed = total(seen, "planted"), total(seen, "missed")
        seconds = time.perf_counter() - begin
        print(f"{planted:,} of {count:,}, {missed:,} missed, {seconds:.0f} s", file=sys.stderr)
        for file in files:
            file.write_text(f"{planted:,} of {count:,} planted\n\n{table(seen)}\n")

    seen = in_pieces(count, processes, show)
    missed = total(seen, "missed")
    shapes = ", ".join(f"{m} x {n}" for m, n, _ in SHAPES)
    said = (
        f"Of {total(seen, 'planted'):,} in products of {len(SHAPES)} shapes ({shapes}), {missed:,} "
        f"were missed; it took {time.perf_counter() - begin:.0f} s of {processes} processes and "
        f"{used_seconds():.0f} s of processor time:"
    )
    print(f"{table(seen)}\n{said}")
    if is_written:
        write(f"{said}\n\n{table(seen)}")
    raise SystemExit(missed > 0)


if __name__ == "__main__":
    main()
