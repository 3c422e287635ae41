"""Inputs drawn where they are used: on the device by its integers, on the host by NumPy.

A workload says what it wants, as a `Drawn` or through `Draws`, which keeps account of it for the
launch: what was drawn, and the number that sums it up as it lies on the device. The launch holds
these to the generator on the host before anything is believed of a step, and the journal has them,
so that whoever verifies it draws them again. What a check needs it draws on the host itself and
takes nothing from the device.

On a device the words are made in eager operations: 8 ms for 3 x 8192 x 8192 normal numbers at
3 TB/s, where compiling a kernel takes longer. Triton's is used for tensors of `LARGE` blocks on, if
it is there and gives the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch

from appliance.generator import drawing, philox
from appliance.generator.drawing import Drawn, Summed
from appliance.generator.formats import Bits
from appliance.generator.maps import Map
from appliance.generator.philox import BLOCK
from appliance.records.journal import Check
from workloads.contract.target import Target
from workloads.parts.drawing import device_tensors, device_words
from workloads.parts.drawing.device_tensors import INTEGERS, Expected

LARGE = 2**26
"""Blocks of a tensor from which on a compiled kernel is worth its compilation."""
AT_ONCE = 2**20
"""Blocks whose words are held at once, 32 MiB."""
Wanted = tuple[str, Map, torch.dtype, tuple[int, ...]]
"""What a drawer's `tensor` takes."""


class Drawer(Protocol):
    """What makes drawn tensors by their names, on a device or on the host."""

    def tensor(
        self, name: str, values: Map, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> torch.Tensor:
        """The tensor called `name`; no two of a build have one name."""
        ...

    def expect(self, wanted: Iterable[Wanted]) -> None:
        """Name tensors that will be asked for, so that a device draws small ones together.

        Each has the bits that it would have alone.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Draws the tensors of one build on its device, and keeps account of them."""

    target: Target
    seed: int
    expected: Expected = field(default_factory=Expected, compare=False, repr=False)

    def tensor(
        self, name: str, values: Map, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> torch.Tensor:
        """The tensor called `name`, on the device; of one without elements no account is kept."""
        drawn = self.described(name, values, dtype, shape)
        return self.of(drawn) if drawn.count else on_device(drawn, self.target.device)

    def of(self, drawn: Drawn) -> torch.Tensor:
        """The tensor that `drawn` describes, on the device."""
        made = self.expected.take(drawn, self.target.device)
        if made is None:
            tensor = on_device(drawn, self.target.device)
            made = tensor, checksum(drawn, tensor)
        self.target.drawn.append(Summed(drawn=drawn, checksum=made[1]))
        return made[0]

    def expect(self, wanted: Iterable[Wanted]) -> None:
        """Name tensors that will be asked for, so that the device draws small ones together."""
        self.expect_drawn(self.described(*one) for one in wanted)

    def expect_drawn(self, drawns: Iterable[Drawn]) -> None:
        """The same by what they are."""
        if not is_drawn_by_host(self.target.device):
            self.expected.add(drawns)

    def on_host(self) -> Draws:
        """What draws on the host, on the same account, for inputs that lie there."""
        host = replace(self.target, device=torch.device("cpu"))
        return replace(self, target=host, expected=Expected())

    def into(self, drawn: Drawn, out: torch.Tensor) -> torch.Tensor:
        """Write the tensor that `drawn` describes into `out`, which lies on the host."""
        fill(drawn, out)
        self.target.drawn.append(Summed(drawn=drawn, checksum=checksum(drawn, out)))
        return out

    def described(
        self, name: str, values: Map, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> Drawn:
        """What the tensor called `name` is, without making it."""
        return described(self.seed, name, values, dtype, shape)


@dataclass(frozen=True, kw_only=True)
class HostDraws:
    """Draws the tensors of a build on the host, for a check, which needs no account of them."""

    seed: int

    def tensor(
        self, name: str, values: Map, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> torch.Tensor:
        """The tensor called `name`, on the host."""
        return on_host(described(self.seed, name, values, dtype, shape))

    def expect(self, wanted: Iterable[Wanted]) -> None:
        """Nothing: the host draws each when it is asked for."""


def described(
    seed: int, name: str, values: Map, dtype: torch.dtype, shape: tuple[int, ...]
) -> Drawn:
    """A drawn tensor by torch's number format."""
    return Drawn(seed, name, values, str(dtype).removeprefix("torch."), shape)


# ------------------------------------------------------------------ on the host


def on_host(drawn: Drawn) -> torch.Tensor:
    """The tensor on the host, made by NumPy on the threads that torch may use."""
    if not drawn.count:
        return torch.empty(drawn.shape, dtype=getattr(torch, drawn.dtype))  # with torch's strides
    return _torch(drawing.whole(drawn, torch.get_num_threads()), drawn.dtype)


def fill(drawn: Drawn, out: torch.Tensor) -> None:
    """Write the tensor into one of the host, contiguous, on the threads that torch may use."""
    bits = out.view(-1).view(INTEGERS[out.element_size()]).numpy()
    drawing.fill(drawn, bits.view(f"u{out.element_size()}"), torch.get_num_threads())


def rows_on_host(drawn: Drawn, first: int, count: int, memory: Bits | None = None) -> torch.Tensor:
    """Rows (count, ...) of the tensor from `first` on; nothing else of it is made.

    They lie in `memory` (`drawing.rows`) where it is given.
    """
    made = drawing.rows(drawn, first, count, torch.get_num_threads(), memory)
    return _torch(made, drawn.dtype)


def permutation(seed: int, name: str, count: int) -> torch.Tensor:
    """The numbers below `count` in random order, int64 on the host: sorted by a word each."""
    words = philox.words(philox.key_of(seed, name), 0, count)
    return torch.from_numpy(np.argsort(words, kind="stable"))


def _torch(bits: Bits, dtype: str) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(bits)).view(getattr(torch, dtype))


# ------------------------------------------------------------------ on the device


def on_device(drawn: Drawn, device: torch.device) -> torch.Tensor:
    """The tensor on its device, made there."""
    return on_host(drawn) if is_drawn_by_host(device) else drawn_by_device(drawn, device)


def is_drawn_by_host(device: torch.device) -> bool:
    """Whether NumPy draws what lies there, which is faster than torch's operations."""
    return device.type == "cpu"


def drawn_by_device(drawn: Drawn, device: torch.device) -> torch.Tensor:
    """The tensor by the device's own operations; processors, which have faster, take them too."""
    dtype = getattr(torch, drawn.dtype)
    out = torch.empty(drawn.count, dtype=dtype, device=device)
    in_block, num_blocks = device_tensors.in_block(drawn), device_tensors.num_blocks(drawn)
    make = _source(device) if num_blocks >= LARGE else device_words.words
    for first in range(0, num_blocks, AT_ONCE):
        words = make(drawn.key, first, min(AT_ONCE, num_blocks - first), device)
        part = out[first * in_block : (first + AT_ONCE) * in_block]
        part.copy_(device_tensors.values(drawn, words.view(-1))[: len(part)])
    return out.view(drawn.shape)


@lru_cache(maxsize=8)
def _source(device: torch.device) -> device_words.Source:
    """What makes the words of a large tensor: a compiled kernel that gives the right ones."""
    try:
        from workloads.parts.drawing import triton_words  # noqa: PLC0415 - not everywhere

        given = triton_words.words((1, 2), 2**33, 5, device).cpu()
    except Exception:  # noqa: BLE001 - a compiler's own, of any kind; it is wanted for speed alone
        return device_words.words
    is_right = torch.equal(given, _right_words((1, 2), 2**33, 5))
    return triton_words.words if is_right else device_words.words


def _right_words(key: philox.Key, first_block: int, num_blocks: int) -> torch.Tensor:
    words = philox.words(key, first_block * BLOCK, num_blocks * BLOCK)
    return torch.from_numpy(words.view(np.int64)).view(-1, BLOCK)


# ------------------------------------------------------------------ the account


def checksum(drawn: Drawn, tensor: torch.Tensor) -> int:
    """The number from 0 to 2**63 - 1 that sums a drawn tensor up, made where it lies."""
    runs = drawing.sampled_runs(drawn)
    if not is_drawn_by_host(tensor.device):
        return device_tensors.checksums([tensor], [runs])[0]
    flat = tensor.detach().reshape(-1).view(INTEGERS[tensor.element_size()])
    bits = flat.numpy().view(f"u{flat.element_size()}")
    return sum(drawing.weighed(bits[first : first + count], first) for first, count in runs) % 2**63


def checks(target: Target) -> Iterator[Check]:
    """What the launch holds of the inputs that it drew: the generator's answers, and each tensor.

    Nothing where none were drawn.
    """
    if not target.drawn:
        return
    yield Check(
        name="known answers of the input generator",
        error=num_wrong_answers(target.device),
        bound=0,
        kind="exact",
        detects=1,
        detects_what=f"wrong answers of {len(philox.ANSWERS) + 1}",
    )
    wrong = [one for one in target.drawn if one.checksum != drawing.checksum(one.drawn)]
    yield Check(
        name="inputs as drawn",
        error=len(wrong),
        bound=0,
        kind="exact",
        detects=1,
        detects_what=f"wrong elements among the {drawing.RUNS * drawing.RUN:,} or fewer that are "
        f"read of each of {len(target.drawn)} tensors{_named(wrong)}",
    )


def _named(wrong: list[Summed]) -> str:
    return f'; "{wrong[0].drawn.name}" differs' if wrong else ""


@lru_cache(maxsize=8)
def num_wrong_answers(device: torch.device) -> int:
    """How many known answers the device, or the host, does not give."""
    wrong = philox.num_wrong_answers()
    if device.type == "cpu":
        return wrong
    answers = [answer for _, _, answer in philox.ANSWERS]
    pairs = zip(device_words.answers(device), answers, strict=True)
    return max(wrong, sum(given != answer for given, answer in pairs))
