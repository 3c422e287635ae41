"""A number that stands for every bit of a tensor, made where the tensor lies.

Of small tensors together it is made on the host, of the bits that are there after one copy.

    s = sum over i of  x_i w_i   modulo 2**63

x are the words of the tensor in their logical order, zero-extended to 64 bits, w odd pseudo-random
weights made of i alone. One changed element alters the sum with certainty, but for the top bit of
a 64-bit word; changes of several that know nothing of the weights escape with probability 2**-31
at most (2**-47 for 16-bit words). Integers add up the same in any order, so the host and
every device make the same number of the same bits. Dtype and shape are part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch

from workloads.parts.numerics.host_copies import SMALL, small_on_host

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_AT_ONCE = 2**22  # words: 32 MiB in 64 bits
SHORT = 2**18
"""Words of a tensor, whose weights are kept for others of its size: batches have few sizes."""
_STEP, _MIX = 0x9E3779B97F4A7C15 - 2**64, 0x2545F4914F6CDD1D  # odd, of a random number generator


def checksum(tensor: torch.Tensor) -> int:
    """Number from 0 to 2**63 - 1 for dtype, shape and bits."""
    kind = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
    total = int.from_bytes(hashlib.sha256(kind).digest()[:8], "big")
    flat = tensor.detach().contiguous().reshape(-1)
    words = flat.view(_WORDS[flat.element_size()])
    mask = (1 << (8 * words.element_size())) - 1 if words.element_size() < 8 else -1  # noqa: PLR2004 - bytes of 64 bits
    for first in range(0, len(words), _AT_ONCE):
        part = words[first : first + _AT_ONCE].to(torch.int64, copy=True).bitwise_and_(mask)
        total += int(part.mul_(_weights_of(first, part)).sum())
    return total % 2**63


def _weights_of(first: int, words: torch.Tensor) -> torch.Tensor:
    """Weights of words from the place `first` on; the same tensor for those of many short ones."""
    if first or len(words) > SHORT or words.device.type != "cpu":
        return _weights(first, len(words), words.device)
    return _first_weights(len(words))


@lru_cache(maxsize=4)
def _first_weights(count: int) -> torch.Tensor:
    return _weights(0, count, torch.device("cpu"))


def _weights(first: int, count: int, device: torch.device) -> torch.Tensor:
    index = torch.arange(first, first + count, dtype=torch.int64, device=device).mul_(_STEP)
    return index.bitwise_xor_(index >> 29).mul_(_MIX).bitwise_or_(1)


def checksum_all(tensors: Mapping[str, torch.Tensor]) -> int:
    """One number for all tensors and their names."""
    return _joined(small_on_host(tensors, few=SMALL))


def checksums_of_sets(sets: Sequence[Mapping[str, torch.Tensor]]) -> list[int]:
    """That number for each of several sets, whose small tensors are copied to the host together."""
    named = {(n, name): one for n, own in enumerate(sets) for name, one in own.items()}
    named = small_on_host(named, few=SMALL)
    return [_joined({name: named[n, name] for name in own}) for n, own in enumerate(sets)]


def _joined(tensors: Mapping[str, torch.Tensor]) -> int:
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {checksum(tensor)} ".encode())
    return int.from_bytes(total.digest()[:8], "big") % 2**63
