"""Many small tensors to the host in one copy.

A copy to the host waits for the device and costs tens of microseconds, whatever its size, and an
operator of its own on the device as much, besides the loading of a kernel that nothing used before.
A network has hundreds of small tensors. So those of a device are put one behind the other there,
byte by byte, and cut apart again on the host: every bit is the device's, and what is made of them
is made on the host. Longer ones are left to whoever needs them: put together they would take as
much memory again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

import torch

from workloads.parts.numerics import staging

Key = TypeVar("Key", bound=Hashable)
SMALL = 2**20
"""Bytes of a tensor up to which it goes with others, of whatever many."""
TOGETHER = 2**26
"""Bytes that go together at most; of so few all go, however long each is."""


def small_on_host(
    named: Mapping[Key, torch.Tensor], few: int = TOGETHER
) -> dict[Key, torch.Tensor]:
    """The same tensors, of which small ones of an accelerator are copies on the host.

    All of them where they are at most `few` bytes together.
    """
    result = {name: tensor.detach() for name, tensor in named.items()}
    movable = {name: one for name, one in result.items() if _is_movable(one)}
    is_little = sum(one.nbytes for one in movable.values()) <= few
    longest = few if is_little else SMALL
    for group in _groups({n: one for n, one in movable.items() if one.nbytes <= longest}):
        moved = _together([result[name] for name in group])
        result.update(zip(group, moved, strict=True))
    return result


def copies_on_host(named: Mapping[Key, torch.Tensor]) -> dict[Key, torch.Tensor]:
    """Copies of all of these tensors, on the host."""
    result = small_on_host(named)
    left = [name for name, one in result.items() if one.device == named[name].device]
    result.update(zip(left, staging.copied([result[name] for name in left]), strict=True))
    return result


def _is_movable(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type not in {"cpu", "meta"}
        and type(tensor) is torch.Tensor
        and tensor.layout == torch.strided
        and not tensor.is_complex()
        and tensor.nbytes > 0
    )


def _groups(named: Mapping[Key, torch.Tensor]) -> Iterator[list[Key]]:
    """Names of those that go together: of one device, those of the longest numbers first.

    So each begins where its numbers may, whatever went before.
    """
    for device in {tensor.device for tensor in named.values()}:
        group, size = list[Key](), 0
        own = [name for name, tensor in named.items() if tensor.device == device]
        for name in sorted(own, key=lambda name: -named[name].element_size()):
            if size + named[name].nbytes > TOGETHER:
                yield group
                group, size = [], 0
            group.append(name)
            size += named[name].nbytes
        yield group


def _together(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies on the host of tensors of one device, which lie one behind the other.

    Made by NumPy's views: those of torch would count changes of one as changes of all.
    """
    flat = torch.cat([one.contiguous().view(-1).view(torch.uint8) for one in tensors]).cpu().numpy()
    ends = list(accumulate(one.nbytes for one in tensors))
    return [
        torch.from_numpy(flat[end - one.nbytes : end]).view(one.dtype).view(one.shape)
        for end, one in zip(ends, tensors, strict=True)
    ]
