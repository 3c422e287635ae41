"""A wrong product or a wrong word of memory: counted where it lies, and looked at afterwards.

Counting must not wait for the device, or the check would cost what it guards. So the device keeps
what is needed: how often each product was wrong, and the first row that ever was. The host looks
when the device has come to rest: it multiplies the same operands again, and again, because a
fault that returns is a broken device, and one that does not may have been a particle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from workloads.parts.memory import abft, digests, memory_patterns
from workloads.parts.memory.memory_patterns import PATTERNS

REPEATS = 100
"""Times that the operands of a mismatch are multiplied again."""
NEIGHBOURHOOD = 2**16
"""Words around a wrong one that are written and read again."""
_WORDS = {2: torch.int16, 4: torch.int32}

Matrices = tuple[torch.Tensor, torch.Tensor]
Multiply = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


@dataclass(frozen=True, kw_only=True)
class Event:
    """A mismatch that was looked at: where, and in how many of the repeats it came again."""

    where: str
    num_again: int


@dataclass(frozen=True, kw_only=True)
class Operands:
    """A pair of operands, what they should digest to on the host, and the weights for that."""

    pair: Matrices
    known: Matrices
    weights: digests.Weights

    @classmethod
    def make(cls, pair: Matrices, weights: digests.Weights, device: torch.device) -> Operands:
        """Digest the operands on the host, then copy them to the device."""
        left, right = pair
        return cls(
            pair=(left.to(device), right.to(device)),
            known=(host_digest(left, weights), host_digest(right, weights)),
            weights=weights,
        )

    def corner(self, m: int, n: int, k: int) -> Matrices:
        """The operands of a product of (m, k) by (k, n)."""
        left, right = self.pair
        return left[:m, :k], right[:k, :n]

    def unhealthy(self) -> list[str]:
        """Which of the two is no longer what it was."""
        return [
            f"the {name} operand is not what it was"
            for name, matrix, known in zip(("left", "right"), self.pair, self.known, strict=True)
            if not torch.equal(digests.digest(matrix, self.weights).cpu(), known)
        ]


@dataclass(kw_only=True)
class Slot:
    """One product of every round: (m, k) by (k, n).

    `expected` are the right row checksums, `bad_values` the first row that was ever wrong and
    `bad_row` its number.
    """

    kind: str
    m: int
    n: int
    k: int
    weights: digests.Weights
    expected: torch.Tensor
    bad_values: torch.Tensor
    bad_row: torch.Tensor

    @classmethod
    def make(
        cls,
        kind: str,
        shape: tuple[int, int, int],
        dtype: torch.dtype,
        rng: torch.Generator,
        device: torch.device,
    ) -> Slot:
        """Make a slot that expects nothing yet; `shape` is (m, n, k)."""
        m, n, k = shape
        return cls(
            kind=kind,
            m=m,
            n=n,
            k=k,
            weights=digests.make_weights((m, n), dtype, rng, device),
            expected=torch.zeros(m, digests.NUM_DIGESTS, dtype=torch.int64, device=device),
            bad_values=torch.zeros(n, dtype=dtype, device=device),
            bad_row=torch.zeros(1, dtype=torch.int64, device=device),
        )

    @property
    def name(self) -> str:
        return f"product {self.m} x {self.k} x {self.n} of {self.kind}"

    @property
    def expected_digest(self) -> torch.Tensor:
        """The two digests of the right product, on the device."""
        return digests.combine(self.expected, self.weights)

    def compare(
        self, product: torch.Tensor, count: torch.Tensor, *, is_first: bool
    ) -> torch.Tensor:
        """Digest a product; if it is wrong, add one to `count` (0-D) and keep its first wrong row.

        `is_first` takes the product as the right one. Never waits for the device.
        """
        sums = digests.row_checksums(product, self.weights)
        if is_first:
            self.expected.copy_(sums)
        bad = abft.wrong_rows(sums, self.expected)
        is_wrong = bad.any()
        row = bad.to(torch.uint8).argmax().reshape(1)
        is_new = is_wrong & (count == 0)
        self.bad_values.copy_(torch.where(is_new, product.index_select(0, row)[0], self.bad_values))
        self.bad_row.copy_(torch.where(is_new, row, self.bad_row))
        count.add_(is_wrong)
        return digests.combine(sums, self.weights)

    def investigate(self, operands: Operands, multiply: Multiply, product: torch.Tensor) -> Event:
        """Multiply the operands again, find the tile, and compare the operands' digests.

        `product` is what lies where the product was made last, which may be right again.
        """
        left, right = operands.corner(self.m, self.n, self.k)
        again = torch.empty_like(product, memory_format=torch.contiguous_format)
        times = torch.zeros((), dtype=torch.int64, device=again.device)
        for _ in range(REPEATS):
            again.fill_(torch.nan)
            multiply(left, right, again)
            sums = digests.row_checksums(again, self.weights)
            times.add_(abft.wrong_rows(sums, self.expected).any())
        where = ", ".join([f"{self.name}, {self._place(product, again)}", *operands.unhealthy()])
        return _event(where, int(times))

    def _place(self, product: torch.Tensor, again: torch.Tensor) -> str:
        """Rows and columns that are wrong, and the first wrong word.

        The whole product is looked at while it is in memory; a later round of the same step may
        have written over it, and then the row that was kept is.
        """
        tile = abft.locate(product, again, self.weights)
        row = int(self.bad_row)
        stored, right = _words(self.bad_values), _words(again[row])
        columns = (stored != right).nonzero().flatten().tolist()
        if not columns:  # every repeat is wrong in the same way
            return f"row {row}"
        size = self.bad_values.element_size()
        read, wanted = (
            f"{int(one[columns[0]]) % 2 ** (8 * size):0{2 * size}x}" for one in (stored, right)
        )
        place = f"row {row}, {len(columns)} of its elements" if tile is None else str(tile)
        return f"{place}: {read} for {wanted} at row {row}, column {columns[0]}"


def investigate_word(pool: torch.Tensor, address: int, word: int, pattern: str) -> Event:
    """Write and read a pattern again around a wrong word, and put back what was there."""
    start = max(0, address - NEIGHBOURHOOD // 2)
    memory = pool[start : start + NEIGHBOURHOOD]
    saved = memory.clone()
    times = torch.zeros((), dtype=torch.int64, device=memory.device)
    for _ in range(REPEATS):
        memory_patterns.write(pattern, memory, start)
        times.add_(memory_patterns.read_back(pattern, memory, start).count > 0)
    memory.copy_(saved)
    wanted = memory_patterns.expected_word(pattern, address)
    read = f"{word % 2**64:016x} for {wanted % 2**64:016x}"
    return _event(f"memory word {address:,}, pattern {pattern}: {read}", int(times))


def keep_first(
    mismatch: memory_patterns.MismatchCount,
    pattern: str,
    count: torch.Tensor,
    first_bad_word: torch.Tensor,
) -> None:
    """Add one to `count` (0-D) if a pattern came back wrong, and keep the first such word.

    `first_bad_word` is (address, word, number of the pattern). Never waits for the device.
    """
    is_wrong = mismatch.count > 0
    number = torch.full_like(mismatch.first[:1], PATTERNS.index(pattern))
    is_new = is_wrong & (count == 0)
    first_bad_word.copy_(torch.where(is_new, torch.cat([mismatch.first, number]), first_bad_word))
    count.add_(is_wrong)


def host_digest(matrix: torch.Tensor, weights: digests.Weights) -> torch.Tensor:
    """The two digests of a matrix as the host computes them."""
    return digests.digest(matrix.cpu(), digests.on_host(weights))


def _event(where: str, times: int) -> Event:
    return Event(where=f"{where}, wrong again in {times} of {REPEATS} repeats", num_again=times)


def _words(row: torch.Tensor) -> torch.Tensor:
    host = row.cpu()
    return host.view(_WORDS[host.element_size()])
