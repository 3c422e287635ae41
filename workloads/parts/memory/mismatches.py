"""A wrong product or a wrong word of memory: counted where it lies, and looked at afterwards.

Counting must not wait for the device, or the check would cost what it guards. So the device keeps
what is needed: how often each product was wrong, and the digests of a step, which say in which
round. The products of a step still lie in memory when the host looks, as the device has come to
rest: it multiplies the same operands again, and again, because a
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


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One product of every round: (m, k) by (k, n), and the weights of its digests."""

    kind: str
    m: int
    n: int
    k: int
    weights: digests.Weights

    @classmethod
    def make(
        cls,
        kind: str,
        shape: tuple[int, int, int],
        dtype: torch.dtype,
        rng: torch.Generator,
        device: torch.device,
    ) -> Slot:
        """Make a slot; `shape` is (m, n, k)."""
        m, n, k = shape
        weights = digests.make_weights((m, n), dtype, rng, device)
        return cls(kind=kind, m=m, n=n, k=k, weights=weights)

    @property
    def name(self) -> str:
        return f"product {self.m} x {self.k} x {self.n} of {self.kind}"

    def investigate(
        self,
        operands: Operands,
        multiply: Multiply,
        product: torch.Tensor | None,
        expected: torch.Tensor,
    ) -> Event:
        """Multiply the operands again, find the tile, and compare the operands' digests.

        `product` is what was wrong, None where it has been written over; `expected` are the two
        digests of the right one, on the device.
        """
        left, right = operands.corner(self.m, self.n, self.k)
        again = left.new_empty(self.m, self.n) if product is None else torch.empty_like(product)
        healthy = None
        times = 0
        for _ in range(REPEATS):
            again.fill_(torch.nan)
            multiply(left, right, again)
            is_right = torch.equal(digests.digest(again, self.weights), expected)
            times += not is_right
            if is_right and healthy is None:
                healthy = again.clone()
        place = self._place(product, healthy)
        where = ", ".join([f"{self.name}, {place}", *operands.unhealthy()])
        return _event(where, times)

    def _place(self, product: torch.Tensor | None, healthy: torch.Tensor | None) -> str:
        """The tile that is wrong, how many elements and bits, and the first wrong word."""
        if product is None:
            return "written over before it was looked at"
        if healthy is None:
            return "no repeat is right"
        stored, right = _words(product), _words(healthy)
        apart = stored != right
        tile = abft.tile_of(apart.any(1), apart.any(0))
        if tile is None:
            return "right when it was looked at"
        row, column = apart.nonzero()[0].tolist()
        size = product.element_size()
        read, wanted = (
            f"{int(one[row, column]) % 2 ** (8 * size):0{2 * size}x}" for one in (stored, right)
        )
        count = int(apart.sum())
        elements = "1 element" if count == 1 else f"{count:,} elements"
        return f"{tile}, {elements}: {read} for {wanted} at row {row}, column {column}"


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


def _words(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.cpu().view(_WORDS[matrix.element_size()])
