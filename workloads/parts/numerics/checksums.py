"""A number that stands for every bit of a tensor, made where the tensor lies.

Of small tensors together it is made on the host, of the bits that are there after one copy.

    s = sum over i of  x_i w_i   modulo 2**63

x are the words of the tensor in their logical order, zero-extended to 64 bits, w odd pseudo-random
weights made of i alone. One changed element alters the sum with certainty, but for the top bit of
a 64-bit word; changes of several that know nothing of the weights escape with probability 2**-31
at most (2**-47 for 16-bit words). Integers add up the same in any order, so the host and
every device make the same number of the same bits. Dtype and shape are part of it. A long tensor of
the host is added up on all threads, in parts that stay in a processor's cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch

from workloads.parts.numerics.host_copies import SMALL, small_on_host
from workloads.parts.numerics.threads import on_each

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_AT_ONCE = 2**22  # words of a device: 32 MiB in 64 bits
_IN_CACHE = 2**16  # words of a host's processor: 512 KiB in 64 bits
_OF_A_THREAD = 2**20  # words that one thread adds up at once
SHORT = 2**18
"""Words of a tensor, whose weights are kept for others of its size: batches have few sizes."""
_STEP, _MIX = 0x9E3779B97F4A7C15 - 2**64, 0x2545F4914F6CDD1D  # odd, of a random number generator


def checksum(tensor: torch.Tensor) -> int:
    """Number from 0 to 2**63 - 1 for dtype, shape and bits."""
    return checksums([tensor])[0]


def checksums(tensors: Sequence[torch.Tensor]) -> list[int]:
    """That number for each of many tensors; short ones that are alike are summed up together."""
    alike: dict[tuple[torch.dtype, torch.Size, torch.device], list[int]] = {}
    for place, tensor in enumerate(tensors):
        alike.setdefault((tensor.dtype, tensor.shape, tensor.device), []).append(place)
    sums = [0] * len(tensors)
    for places in alike.values():
        together = max(1, SHORT // max(1, tensors[places[0]].numel()))
        for first in range(0, len(places), together):
            own = places[first : first + together]
            for place, one in zip(own, _of_alike([tensors[n] for n in own]), strict=True):
                sums[place] = one
    return sums


def _of_alike(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Those of tensors of one format, shape and device."""
    kind = f"{tensors[0].dtype} {tuple(tensors[0].shape)}".encode()
    total = int.from_bytes(hashlib.sha256(kind).digest()[:8], "big")
    rows = torch.stack([_words(one) for one in tensors]) if len(tensors) > 1 else _words(tensors[0])
    rows = rows.reshape(len(tensors), tensors[0].numel())
    mask = (1 << (8 * rows.element_size())) - 1 if rows.element_size() < 8 else -1  # noqa: PLR2004 - bytes of 64 bits
    is_near, count = rows.device.type == "cpu", rows.shape[1]
    if is_near and count > SHORT:
        cuts = [slice(first, first + _OF_A_THREAD) for first in range(0, count, _OF_A_THREAD)]
        given = on_each(cuts, lambda cut: _added(rows, cut, mask, _IN_CACHE))
    else:
        given = [_added(rows, slice(0, count), mask, _AT_ONCE)]
    return [(total + sum(some)) % 2**63 for some in zip(*given, strict=True)]


def _added(rows: torch.Tensor, cut: slice, mask: int, at_once: int) -> list[int]:
    """Of each row the sum over a cut of its words, so many at once; modulo 2**64 or more."""
    sums = [0] * len(rows)
    for first in range(cut.start, min(cut.stop, rows.shape[1]), at_once):
        part = rows[:, first : min(first + at_once, cut.stop)]
        part = part.to(torch.int64, copy=True).bitwise_and_(mask)
        given = part.mul_(_weights_of(first, part[0])).sum(dim=1).tolist()
        sums = [one + more for one, more in zip(sums, given, strict=True)]
    return sums


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements, flat and in their logical order, as integers of their bits."""
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(_WORDS[flat.element_size()])


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
    return checksums_of_sets([tensors])[0]


def checksums_of_sets(sets: Sequence[Mapping[str, torch.Tensor]]) -> list[int]:
    """That number for each of several sets, whose small tensors are copied to the host together."""
    named = {(n, name): one for n, own in enumerate(sets) for name, one in own.items()}
    named = small_on_host(named, few=SMALL)
    sums = dict(zip(named, checksums(list(named.values())), strict=True))
    return [_joined({name: sums[n, name] for name in own}) for n, own in enumerate(sets)]


def _joined(checksums: Mapping[str, int]) -> int:
    total = hashlib.sha256()
    for name, one in sorted(checksums.items()):
        total.update(f"{name} {one} ".encode())
    return int.from_bytes(total.digest()[:8], "big") % 2**63
