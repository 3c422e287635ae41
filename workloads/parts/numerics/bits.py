"""Results that must be exact, compared by their bits, and a digest that no order can change."""

from __future__ import annotations

import torch

_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_ROWS_AT_ONCE = 1024


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The words of a tensor as integers on the host, so that NaN equals itself."""
    host = tensor.detach().cpu().contiguous()
    return host.view(_WORDS[host.element_size()])


def num_differing(output: torch.Tensor, exact: torch.Tensor) -> int:
    """Number of elements whose bits differ; all of them if shape or dtype differ."""
    if output.shape != exact.shape or output.dtype != exact.dtype:
        return max(output.numel(), exact.numel(), 1)
    one, two = bits(output), bits(exact)
    return 0 if torch.equal(one, two) else int((one != two).sum())


def weighted_digest(matrix: torch.Tensor, seed: int) -> int:
    """Sum of words times odd pseudo-random row and column weights, modulo 2**64.

    Integers add up the same in any order, so equal bits have one digest on every vendor.
    One changed element alters it with certainty, as its weight is odd; several that do not
    depend on the weights escape with probability 2**-32 at most (2**-48 for 16-bit words).
    """
    rng = torch.Generator().manual_seed(seed)

    def odd(count: int) -> torch.Tensor:
        return torch.randint(-(2**62), 2**62, (count,), generator=rng) * 2 + 1

    words = bits(matrix)
    mask = (1 << (8 * words.element_size())) - 1 if words.dtype != torch.int64 else -1
    rows, columns = odd(words.shape[0]), odd(words.shape[1])
    parts = zip(torch.split(words, _ROWS_AT_ONCE), torch.split(rows, _ROWS_AT_ONCE), strict=True)
    return sum(int((((w.long() & mask) * columns).sum(1) * r).sum()) for w, r in parts) % 2**64
