"""Where a wrong matrix is wrong: checksums of its rows and columns (Huang and Abraham 1984).

The checksums are those of `digests`, integers modulo 2**64 over the words of the elements,
not sums of the values: a sum of rounded values is blind to damage below its own rounding, which
for a matrix stored in 16 bits is most bits of the mantissa. One wrong element alters the checksum
of its row and of its column with certainty.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workloads.parts.memory.digests import Weights, row_checksums, signed_words

_WORDS = {2: torch.int16, 4: torch.int32}
_PIECE = 2**17  # elements at once


@dataclass(frozen=True, kw_only=True)
class Tile:
    """The smallest rectangle that holds all that is wrong; last row and column included.

    `num_rows` and `num_columns` are how many of them are wrong.
    """

    first_row: int
    last_row: int
    first_column: int
    last_column: int
    num_rows: int
    num_columns: int

    def __str__(self) -> str:
        rows = _span("row", self.first_row, self.last_row, self.num_rows)
        return f"{rows}, {_span('column', self.first_column, self.last_column, self.num_columns)}"


def _span(name: str, first: int, last: int, count: int) -> str:
    if first == last:
        return f"{name} {first}"
    some = "" if count == last - first + 1 else f" ({count} of them)"
    return f"{name}s {first} to {last}{some}"


def column_checksums(matrix: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Sum over i of x_ij r_i modulo 2**64 for every column: (n, 2), int64, on the device."""
    rows = max(1, _PIECE // matrix.shape[1])
    total = torch.zeros(2, matrix.shape[1], dtype=torch.int64, device=matrix.device)
    for piece, weight in zip(
        torch.split(matrix, rows), torch.split(weights.rows.T, rows), strict=True
    ):
        words = signed_words(piece.view(_WORDS[matrix.element_size()]))
        for index in range(2):
            total[index] += (words * weight[:, index : index + 1]).sum(0)
    return total.T.contiguous()


def wrong_rows(checksums: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Which rows differ, (m,), bool, from two sets of row or column checksums."""
    return (checksums != expected).any(dim=1)


def locate(matrix: torch.Tensor, right: torch.Tensor, weights: Weights) -> Tile | None:
    """Tile in which a matrix differs from the right one, or None where their digests agree."""
    rows = wrong_rows(row_checksums(matrix, weights), row_checksums(right, weights))
    columns = wrong_rows(column_checksums(matrix, weights), column_checksums(right, weights))
    return tile_of(rows, columns)


def tile_of(rows: torch.Tensor, columns: torch.Tensor) -> Tile | None:
    """Tile of the rows and columns that are marked wrong; None if none is."""
    where = rows.nonzero().flatten().tolist(), columns.nonzero().flatten().tolist()
    if not all(where):
        return None
    (first_row, *_), (first_column, *_) = where
    return Tile(
        first_row=first_row,
        last_row=where[0][-1],
        first_column=first_column,
        last_column=where[1][-1],
        num_rows=len(where[0]),
        num_columns=len(where[1]),
    )
