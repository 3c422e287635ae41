"""A digest of every word of a matrix, computed where the matrix lies, and the same in any order.

    h = sum over i, j of  x_ij r_i c_j   modulo 2**64

x are the words of the matrix (16 or 32 bits; 64-bit elements are two words) as sums of their
signed bytes, s_0 + 256 s_1 + ..., which tells all words apart; r and c are odd weights. Integers
add up the same in any order, so a correct result has one digest on every device of every vendor.
Two digests are made. What they detect:

- one changed word, and so any single flipped bit, any stale or unwritten element of up to 32 bits:
  with certainty, in each digest, because an odd weight has an inverse;
- two words that changed places: with certainty, where the matrix has at most 2**16 rows and 2**15
  words a row. The weights of the first digest are 1 + 2 a modulo 2**16 for a column and 1 + 2**16 b
  modulo 2**32 for a row, a and b permuted numbers, so the products of any two places differ modulo
  2**32, and words differ by less than 2**32;
- any other change that does not depend on the weights: missed with a probability of at most 2**-32
  (2**-48 for 16-bit words; 2**-27 and 2**-43 for one equal change over a whole rectangle), by the
  second digest alone, whose weights are random in all bits.

No two words share one 64-bit word: packed, two flipped top bits would cancel for any weights.

A matrix is read once. Where the device multiplies 8-bit integers, three kernels make the digests:
one product of the matrix's bytes with the weights' base-128 digits, exact in 32 bits (byte p of a
word weighs 256**p c_j modulo 2**64, which is ten digits); one multiplication of its few columns
by the rows' weights and the powers of 128; one sum. Where Triton and a compiler are there, one
kernel does all (`digest_kernel`). Either is taken only if it gives the numbers of the plain way
on a trial matrix of the same shape, when the weights are made. The plain way, which the host
takes for itself, multiplies words in 64-bit integers a few rows at a time; it shares nothing with
the other two but the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from workloads.parts.memory import digest_kernel

NUM_DIGESTS = 2
_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int32}
_DIGITS = 10  # base 128: ten of seven bits hold 64
_DIGIT_BITS = 7
_COLUMNS_A_DIGEST = 12  # the rest are zeros: a device wants a multiple of eight columns
_COLUMNS = NUM_DIGESTS * _COLUMNS_A_DIGEST
_MOST_BYTES = 2**17  # in a row, so that 32 bits hold a sum of 128 * 127 for each
_FEWEST_ROWS = 17  # that the product of 8-bit integers takes
_PLAIN_PIECE = 2**17  # elements at once: a megabyte in 64 bits
_SIGNS = {2: 0x8080, 4: 0x80808080}  # the top bit of every byte of a word
MOST_ROWS, MOST_WORDS = 2**16, 2**15
"""Sides up to which two words that changed places are found with certainty."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Odd weights for one shape on one device.

    `rows` and `columns` are (2, m) and (2, words of a row), int64. `digits` (bytes of a row, 24)
    and `powers` (m, 24) serve the product of 8-bit integers; None where it is not taken.
    `kernel` digests in one launch; None where it is not taken.
    """

    rows: torch.Tensor
    columns: torch.Tensor
    digits: torch.Tensor | None = None
    powers: torch.Tensor | None = None
    kernel: digest_kernel.Kernel | None = None

    @property
    def way(self) -> str:
        """Which of the ways is taken: "kernel", "bytes" or "plain"."""
        if self.kernel is not None:
            return "kernel"
        return "plain" if self.digits is None else "bytes"


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """Room for the columns of one product of bytes; two streams must not share it."""

    sums: torch.Tensor
    scaled: torch.Tensor

    @classmethod
    def make(cls, rows: int, device: torch.device) -> Scratch:
        """Make room for matrices of at most so many rows."""
        return cls(
            sums=torch.zeros(rows, _COLUMNS, dtype=torch.int32, device=device),
            scaled=torch.zeros(rows, _COLUMNS, dtype=torch.int64, device=device),
        )


def make_weights(
    shape: tuple[int, int],
    dtype: torch.dtype,
    generator: torch.Generator,
    device: torch.device,
    *,
    is_plain: bool = False,
) -> Weights:
    """Draw weights on the host for matrices of this shape and dtype (16, 32 or 64 bits).

    `is_plain` takes the plain way whatever the device can.
    """
    words = shape[1] * dtype.itemsize // _WORDS[dtype.itemsize].itemsize
    rows = _drawn(shape[0], _row_places(shape[0], generator), generator)
    columns = _drawn(words, _column_places(words, generator), generator)
    plain = Weights(rows=rows.to(device), columns=columns.to(device))
    if is_plain:
        return plain
    for make in (_with_kernel, _with_bytes):
        fast = make(plain, rows, columns, dtype, device)
        if fast is not None and _agree(fast, plain, shape, dtype, device):
            return fast
    return plain


def _drawn(count: int, places: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Odd weights (2, count): of the first digest the low half is given, the rest is random."""
    drawn = torch.randint(-(2**62), 2**62, (NUM_DIGESTS, count), generator=generator) * 2 + 1
    drawn[0] = (drawn[0] >> 32 << 32) | places
    return drawn


def _column_places(count: int, generator: torch.Generator) -> torch.Tensor:
    """1 + 2 a, which no two of 2**15 columns share modulo 2**16."""
    return 1 + 2 * torch.randperm(max(count, MOST_WORDS), generator=generator)[:count]


def _row_places(count: int, generator: torch.Generator) -> torch.Tensor:
    """1 + 2**16 b, which no two of 2**16 rows share modulo 2**32."""
    return (1 + (torch.randperm(max(count, MOST_ROWS), generator=generator)[:count] << 16)) & (
        2**32 - 1
    )


def _with_kernel(
    plain: Weights,
    rows: torch.Tensor,
    columns: torch.Tensor,
    dtype: torch.dtype,
    device: torch.device,
) -> Weights | None:
    del rows, columns, dtype
    kernel = digest_kernel.find(device)
    return None if kernel is None else replace(plain, kernel=kernel)


def _with_bytes(
    plain: Weights,
    rows: torch.Tensor,
    columns: torch.Tensor,
    dtype: torch.dtype,
    device: torch.device,
) -> Weights | None:
    size = _WORDS[dtype.itemsize].itemsize
    row_bytes = columns.shape[1] * size
    if row_bytes % 8 or row_bytes > _MOST_BYTES or rows.shape[1] < _FEWEST_ROWS:
        return None
    digits = _digits(columns, size)
    return replace(
        plain,
        digits=digits.T.contiguous().to(device).T,  # by columns, as the fastest kernels want it
        powers=_powers(rows).to(device),
    )


def _digits(columns: torch.Tensor, size: int) -> torch.Tensor:
    """Base-128 digits of the weight of every byte of a row: (bytes, 24), int8."""
    parts = [columns << (8 * byte) for byte in range(size)]
    weights = torch.stack(parts, dim=2).reshape(NUM_DIGESTS, -1)
    mask = (1 << _DIGIT_BITS) - 1
    table = torch.zeros(weights.shape[1], NUM_DIGESTS, _COLUMNS_A_DIGEST, dtype=torch.int8)
    for place in range(_DIGITS):
        table[:, :, place] = ((weights >> (_DIGIT_BITS * place)) & mask).T.to(torch.int8)
    return table.view(-1, _COLUMNS)


def _place_powers() -> torch.Tensor:
    """Powers of 128 modulo 2**64 for the columns of one digest, zero for its unused ones."""
    powers = [1 << (_DIGIT_BITS * place) for place in range(_DIGITS)]
    signed = [power - 2**64 if power >= 2**63 else power for power in powers]
    return torch.tensor(signed + [0] * (_COLUMNS_A_DIGEST - _DIGITS))


def _powers(rows: torch.Tensor) -> torch.Tensor:
    """What every column of the product of bytes weighs in a row: (m, 24)."""
    return (rows.T.unsqueeze(2) * _place_powers()).reshape(-1, _COLUMNS)


def _agree(
    fast: Weights,
    plain: Weights,
    shape: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> bool:
    """Whether the device has this way, and it is right for this shape."""
    word = _WORDS[dtype.itemsize]
    drawn = torch.randint(
        -(2**31),
        2**31,
        (shape[0], plain.columns.shape[1]),
        generator=torch.Generator().manual_seed(1),
    )
    trial = drawn.to(word).to(device)
    try:
        return torch.equal(digest(trial, fast), digest(trial, plain))
    except Exception:  # noqa: BLE001 - a compiler or a library that is not whole raises anything
        return False


# -------------------------------------------------------------------- on the device, read once


def digest_into(
    matrix: torch.Tensor, weights: Weights, out: torch.Tensor, scratch: Scratch
) -> None:
    """Put the two digests of a matrix into `out`, (2,), int64, which holds zeros.

    Never waits for the device. The matrix is read once, by one kernel of one or of three.
    """
    if weights.kernel is not None:
        weights.kernel(_words(matrix), weights.rows, weights.columns, out)
    elif weights.digits is not None and weights.powers is not None:
        count = matrix.shape[0]
        sums, scaled = scratch.sums[:count], scratch.scaled[:count]
        torch._int_mm(matrix.view(torch.int8), weights.digits, out=sums)  # noqa: SLF001 - no public name
        torch.mul(sums, weights.powers, out=scaled)
        torch.sum(scaled.view(count, NUM_DIGESTS, -1), (0, 2), out=out)
    else:
        out.copy_(combine(row_checksums(matrix, weights), weights))


def digest(matrix: torch.Tensor, weights: Weights) -> torch.Tensor:
    """The two digests of a matrix, (2,), int64, on its device."""
    out = torch.zeros(NUM_DIGESTS, dtype=torch.int64, device=matrix.device)
    digest_into(matrix, weights, out, Scratch.make(matrix.shape[0], matrix.device))
    return out


# -------------------------------------------------------------------- by rows


def row_checksums(matrix: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Sum over j of x_ij c_j modulo 2**64 for every row: (m, 2), int64, on the device."""
    if weights.digits is None:
        return _plain_checksums(matrix, weights.columns)
    sums = torch._int_mm(matrix.view(torch.int8), weights.digits)  # noqa: SLF001 - no public name
    scaled = sums.view(-1, NUM_DIGESTS, _COLUMNS_A_DIGEST) * _place_powers().to(matrix.device)
    return scaled.sum(2)


def _plain_checksums(matrix: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    pieces = torch.split(_words(matrix), max(1, _PLAIN_PIECE // columns.shape[1]))
    return torch.cat([_row_sums(signed_words(piece), columns) for piece in pieces])


def _row_sums(words: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    return torch.stack([(words * column).sum(1) for column in columns], dim=1)


def signed_words(words: torch.Tensor) -> torch.Tensor:
    """The number that each word of 16 or 32 bits counts as, int64: its signed bytes, added up.

    Flipping the top bit of every byte adds 128 to each, which is then taken off again.
    """
    size = words.element_size()
    flipped = words.to(torch.int64).bitwise_xor_(_SIGNS[size]).bitwise_and_((1 << (8 * size)) - 1)
    return flipped.sub_(_SIGNS[size])


def _words(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.view(_WORDS[matrix.element_size()])


def combine(checksums: torch.Tensor, weights: Weights) -> torch.Tensor:
    """The two digests of a matrix from its row checksums: (2,), int64, on the device."""
    return (checksums * weights.rows.T).sum(0)


def on_host(weights: Weights) -> Weights:
    """The same weights on the host, where the plain way is taken."""
    return Weights(rows=weights.rows.cpu(), columns=weights.columns.cpu())
