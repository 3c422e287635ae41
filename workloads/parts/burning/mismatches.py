"""A wrong product or a wrong word of memory: counted where it lies, and looked at afterwards.

Counting must not wait for the device, or the check would cost what it guards. So the device keeps
what is needed: how often each product was wrong, and the digests of a step, which say in which
round. The products of a step still lie in memory when the host looks, as the device has come to
rest: it multiplies the same operands again, and again, because a
fault that returns is a broken device, and one that does not may have been a particle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import torch

from workloads.parts.burning.formats import Format
from workloads.parts.memory import abft, digests, memory_tests
from workloads.parts.memory.memory_tests import Memory, Patterns, Wrong

REPEATS = 100
"""Times that the operands of a mismatch are multiplied again."""
FEW = 10
"""Times that memory is tested again where a test rests, or goes over all of it."""
NEIGHBOURHOOD = 2**16
"""Words around a wrong one that are written and read again."""
MOST_BITS = 8
"""Flipped bits of a word that are named."""
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

SIDES = ("left", "right")

Matrices = tuple[torch.Tensor, torch.Tensor]
Multiply = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


@dataclass(frozen=True, kw_only=True)
class Event:
    """A mismatch that was looked at: where, and in how many of the repeats it came again."""

    where: str
    num_again: int

    def at(self, circumstances: str, seen: datetime) -> Event:
        """The same, with its circumstances and when it was seen, in UTC, to the second."""
        moment = seen.strftime("%Y-%m-%dT%H:%M:%SZ")
        return replace(self, where=f"{self.where}, {circumstances}, seen at {moment}")


@dataclass(frozen=True, kw_only=True)
class Operands:
    """A pair of operands, what they should digest to on the host, and the weights for that.

    `expected` are the same digests (2, 2) where the operands lie; `wrong` counts there how often
    each of the two was read as another one than it was, `wrong_on_host` is its copy.
    """

    pair: Matrices
    known: Matrices
    weights: digests.Weights
    expected: torch.Tensor
    wrong: torch.Tensor
    wrong_on_host: torch.Tensor

    @classmethod
    def make(
        cls, form: Format, pair: Matrices, weights: digests.Weights, device: torch.device
    ) -> Operands:
        """Digest the operands on the host, then copy them to the device as the format wants them.

        A right operand that lies by columns is digested as it lies.
        """
        laid = pair[0].contiguous(), form.laid(pair[1])
        left, right = (host_digest(_as_it_lies(one), weights) for one in laid)
        return cls(
            pair=(laid[0].to(device), laid[1].to(device)),
            known=(left, right),
            weights=weights,
            expected=torch.stack((left, right)).to(device),
            wrong=torch.zeros(2, dtype=torch.int64, device=device),
            wrong_on_host=torch.zeros(2, dtype=torch.int64, pin_memory=device.type != "cpu"),
        )

    def corner(self, m: int, n: int, k: int) -> Matrices:
        """The operands of a product of (m, k) by (k, n)."""
        left, right = self.pair
        return left[:m, :k], right[:k, :n]

    def unhealthy(self) -> list[str]:
        """Which of the two is no longer what it was."""
        return [
            f"the {name} operand is not what it was"
            for side, name in enumerate(SIDES)
            if not self._is_healthy(side)
        ]

    def _is_healthy(self, side: int) -> bool:
        now = digests.digest(_as_it_lies(self.pair[side]), self.weights).cpu()
        return torch.equal(now, self.known[side])

    def read_again(self, scratch: digests.Scratch) -> None:
        """Digest both where they lie, and count what is another one; waits for nothing."""
        now = torch.zeros_like(self.expected)
        for matrix, out in zip(self.pair, now, strict=True):
            digests.digest_into(_as_it_lies(matrix), self.weights, out, scratch)
        self.wrong.add_((now != self.expected).any(1))
        self.wrong_on_host.copy_(self.wrong, non_blocking=True)

    def damaged(self) -> list[int]:
        """Which of the two was ever read as another one, or is another one now; waits for both."""
        return [
            side
            for side, count in enumerate(self.wrong.tolist())
            if count or not self._is_healthy(side)
        ]

    def investigate(self, side: int, name: str, drawn: Matrices) -> Event:
        """Read one of the two again, and find the words that differ from those drawn anew.

        `name` says of which numbers and format they are; `drawn` is the same pair on the host.
        """
        times = sum(not self._is_healthy(side) for _ in range(REPEATS))
        digest = digests.digest(_as_it_lies(self.pair[side]), self.weights).tolist()
        shown = " ".join(f"{one % 2**64:016x}" for one in digest)
        known = " ".join(f"{int(one) % 2**64:016x}" for one in self.known[side])
        words = difference(self.pair[side], drawn[side])
        where = f"{SIDES[side]} operand of {name} is not what it was, {words}"
        return _event(f"{where}, digests {shown} for {known}", times)


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One product of every round: (m, k) by (k, n), and the weights of its digests."""

    format: Format
    kind: str
    m: int
    n: int
    k: int
    weights: digests.Weights

    @classmethod
    def make(
        cls,
        form: Format,
        kind: str,
        shape: tuple[int, int, int],
        rng: torch.Generator,
        device: torch.device,
    ) -> Slot:
        """Make a slot; `shape` is (m, n, k)."""
        m, n, k = shape
        weights = digests.make_weights((m, n), form.result, rng, device)
        return cls(format=form, kind=kind, m=m, n=n, k=k, weights=weights)

    @property
    def name(self) -> str:
        sides = f"{self.m} x {self.k} x {self.n}"
        return f"product {sides} of {self.kind} in {self.format.name}"

    def empty(self, device: torch.device) -> torch.Tensor:
        """Room for the product, with whatever lies there."""
        return torch.empty((self.m, self.n), dtype=self.format.result, device=device)

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
        again = self.empty(left.device)
        healthy = None
        times = 0
        for _ in range(REPEATS):
            _words_of(again).fill_(-1)  # no product: NaN, or an integer that none is
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
        return difference(product, healthy)


def difference(read: torch.Tensor, wanted: torch.Tensor) -> str:
    """The tile of a matrix that is wrong, how many elements, and the first wrong word."""
    stored, right = _words(read), _words(wanted)
    apart = stored != right
    tile = abft.tile_of(apart.any(1), apart.any(0))
    if tile is None:
        return "right when it was looked at"
    row, column = apart.nonzero()[0].tolist()
    size = read.element_size()
    one, other = (
        f"{int(words[row, column]) % 2 ** (8 * size):0{2 * size}x}" for words in (stored, right)
    )
    count = int(apart.sum())
    elements = "1 element" if count == 1 else f"{count:,} elements"
    return f"{tile}, {elements}: {one} for {other} at row {row}, column {column}"


def investigate_word(whole: Memory, patterns: Patterns, first: Sequence[int]) -> Event:
    """Test memory again around a wrong word, and put back what was there.

    A test of the whole memory is made over all of it, and what was there is lost.
    `first` is (address, word read, code of the pass), as `Wrong` has it.
    """
    address, word, code = first
    test, pattern = memory_tests.read_pattern(code)
    start = max(0, address - NEIGHBOURHOOD // 2)
    is_far = test in memory_tests.WHOLE  # the other word may lie anywhere
    memory = whole if is_far else whole.part(start, start + NEIGHBOURHOOD)
    saved = None if is_far else memory.words.clone()
    wrong = Wrong.make(whole.words.device)
    repeats = FEW if is_far or any(one.rest for one in memory_tests.TESTS[test]) else REPEATS
    for _ in range(repeats):
        memory_tests.run(test, memory, patterns, wrong)
    if saved is not None:
        memory.words.copy_(saved)
    wanted = patterns.word(pattern, address)
    flipped = (word ^ wanted) % 2**64
    bits = [str(bit) for bit in range(64) if flipped >> bit & 1]
    shown = ", ".join(bits[:MOST_BITS]) + (" and more" if len(bits) > MOST_BITS else "")
    read = f"{word % 2**64:016x} for {wanted % 2**64:016x}, flipped bits {shown}"
    return _event(f"memory word {address:,}, test {test}: {read}", int(wrong.count), repeats)


def operand_weights(
    form: Format, size: int, rng: torch.Generator, device: torch.device
) -> digests.Weights:
    """Weights for the operands of a format, square matrices; bytes count in pairs."""
    is_bytes = form.operands.itemsize == 1
    shape = (size, size // 2) if is_bytes else (size, size)
    return digests.make_weights(shape, torch.int16 if is_bytes else form.operands, rng, device)


def host_digest(matrix: torch.Tensor, weights: digests.Weights) -> torch.Tensor:
    """The two digests of a matrix as the host computes them."""
    return digests.digest(matrix.cpu(), digests.on_host(weights))


def _event(where: str, times: int, repeats: int = REPEATS) -> Event:
    return Event(where=f"{where}, wrong again in {times} of {repeats} repeats", num_again=times)


def _words(matrix: torch.Tensor) -> torch.Tensor:
    return _words_of(matrix.cpu())


def _words_of(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.view(_WORDS[matrix.element_size()])


def _as_it_lies(matrix: torch.Tensor) -> torch.Tensor:
    """A matrix by rows of memory, bytes in pairs, as digests read words of two bytes at least."""
    rows = matrix if matrix.is_contiguous() else matrix.T
    return rows.view(torch.int16) if rows.element_size() == 1 else rows
