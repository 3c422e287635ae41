"""A digest of every word of a matrix, computed where the matrix lies, and the same in any order.

    h = sum over i, j of  x_ij r_i c_j   modulo 2**64

x are the words of the matrix (16 or 32 bits) zero-extended to 64, r and c odd pseudo-random
weights. Integers add up the same in any order, so a correct result has one digest on every
device of every vendor. One changed element alters it with certainty, because an odd weight has an
inverse; more of them escape one digest with probability 2**-32 at most (2**-48 for 16-bit words),
2**-27 for one equal change over a whole rectangle. Two independent digests are made. No two
words share one 64-bit word: packed, two flipped top bits would cancel for any weights.

The inner sums, one for each row, are kept: they are the row checksums of `abft`, and say in which
rows a wrong matrix is wrong.

Two ways lead to the same numbers. The plain one multiplies words by weights in 64-bit integers,
operations that every device has, a few rows at a time so that they stay in a cache. It moves
many times what the matrix holds. Where the device multiplies 8-bit integers, the sums are one
product of the matrix's bytes with the weights' base-128 digits, exact in 32 bits: byte p of a
word weighs 256**p c_j modulo 2**64, which is ten digits. That way is taken only if it gives the
numbers of the plain way on a trial matrix of the same shape, when the weights are made.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

NUM_DIGESTS = 2
_WORDS = {2: torch.int16, 4: torch.int32}
_DIGITS = 10  # base 128: ten of seven bits hold 64
_DIGIT_BITS = 7
_COLUMNS = 24  # two weights of ten digits; a device wants a multiple of eight
_MOST_BYTES = 2**17  # in a row, so that 32 bits hold a sum of 128 * 127 for each
_FEWEST_ROWS = 17  # that the product of 8-bit integers takes
_PLAIN_PIECE = 2**17  # elements at once: a megabyte in 64 bits
_BYTES_PIECE = 2**25  # bytes at once, so that their copy stays in a large cache
_SIGN = -128


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Odd weights for one shape on one device.

    `rows` and `columns` are (2, m) and (2, n), int64. `digits` (bytes of a row, 24) and `offset`
    (24) serve the product of 8-bit integers; None where the plain way is taken.
    """

    rows: torch.Tensor
    columns: torch.Tensor
    digits: torch.Tensor | None = None
    offset: torch.Tensor | None = None


def make_weights(
    shape: tuple[int, int],
    dtype: torch.dtype,
    generator: torch.Generator,
    device: torch.device,
    *,
    is_plain: bool = False,
) -> Weights:
    """Draw weights on the host for matrices of this shape and dtype (16 or 32 bits).

    `is_plain` takes the plain way whatever the device can.
    """
    rows, columns = (
        torch.randint(-(2**62), 2**62, (NUM_DIGESTS, count), generator=generator) * 2 + 1
        for count in shape
    )
    plain = Weights(rows=rows.to(device), columns=columns.to(device))
    row_bytes = shape[1] * dtype.itemsize
    if is_plain or row_bytes % 8 or row_bytes > _MOST_BYTES or shape[0] < _FEWEST_ROWS:
        return plain
    digits = _digits(columns, dtype)
    fast = Weights(
        rows=plain.rows,
        columns=plain.columns,
        digits=digits.to(device),
        offset=(digits.long().sum(0) * -_SIGN).to(device),
    )
    return fast if _agree(fast, plain, shape, dtype, device) else plain


def _digits(columns: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Base-128 digits of the weight of every byte of a row, one column for each digit."""
    parts = [columns << (8 * byte) for byte in range(dtype.itemsize)]
    weights = torch.stack(parts, dim=2).reshape(NUM_DIGESTS, -1)
    mask = (1 << _DIGIT_BITS) - 1
    table_columns = [
        (weight >> (_DIGIT_BITS * place)) & mask for weight in weights for place in range(_DIGITS)
    ]
    table = torch.zeros(weights.shape[1], _COLUMNS, dtype=torch.int8)
    table[:, : len(table_columns)] = torch.stack(table_columns, dim=1).to(torch.int8)
    return table


def _agree(
    fast: Weights,
    plain: Weights,
    shape: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> bool:
    """Whether the device has the product of 8-bit integers, and it is right for this shape."""
    words = torch.randint(-(2**15), 2**15, shape, generator=torch.Generator().manual_seed(1))
    trial = (words * 65537).to(_WORDS[dtype.itemsize]).to(device).view(dtype)
    try:
        return torch.equal(row_checksums(trial, fast), row_checksums(trial, plain))
    except (RuntimeError, NotImplementedError):
        return False


def row_checksums(matrix: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Sum over j of x_ij c_j modulo 2**64 for every row: (m, 2), int64, on the device."""
    if weights.digits is None or weights.offset is None:
        return _plain_checksums(matrix, weights.columns)
    return _byte_checksums(matrix, weights.digits, weights.offset)


def _plain_checksums(matrix: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    size = matrix.element_size()
    mask = (1 << (8 * size)) - 1
    blocks = []
    for piece in torch.split(matrix, max(1, _PLAIN_PIECE // matrix.shape[1])):
        words = piece.view(_WORDS[size]).to(torch.int64).bitwise_and_(mask)
        blocks.append(torch.stack([(words * column).sum(1) for column in columns], dim=1))
    return torch.cat(blocks)


def _byte_checksums(
    matrix: torch.Tensor, digits: torch.Tensor, offset: torch.Tensor
) -> torch.Tensor:
    """Flip every byte's top bit, which subtracts 128 from it; `offset` adds that again."""
    raw = matrix.view(torch.int8)
    count = max(1, raw.shape[0] * raw.shape[1] // _BYTES_PIECE)
    pieces = raw.tensor_split(min(count, raw.shape[0] // _FEWEST_ROWS))
    products = [torch._int_mm(piece.bitwise_xor(_SIGN), digits) for piece in pieces]  # noqa: SLF001 - no public name
    sums = torch.cat(products).to(torch.int64).add_(offset)
    totals = []
    for first in range(0, NUM_DIGESTS * _DIGITS, _DIGITS):
        total = sums[:, first + _DIGITS - 1].clone()
        for place in reversed(range(first, first + _DIGITS - 1)):  # Horner's rule, modulo 2**64
            total = total * (1 << _DIGIT_BITS) + sums[:, place]
        totals.append(total)
    return torch.stack(totals, dim=1)


def combine(checksums: torch.Tensor, weights: Weights) -> torch.Tensor:
    """The two digests of a matrix from its row checksums: (2,), int64, on the device."""
    return (checksums * weights.rows.T).sum(0)


def digest(matrix: torch.Tensor, weights: Weights) -> torch.Tensor:
    """The two digests of a matrix, (2,), int64, on its device."""
    return combine(row_checksums(matrix, weights), weights)


def on_host(weights: Weights) -> Weights:
    """The same weights on the host, where the plain way is taken."""
    return Weights(rows=weights.rows.cpu(), columns=weights.columns.cpu())
