"""Drawn tensors by a device's own operations, small ones many at once, and what sums them up.

A small tensor takes a device microseconds, and a host as many for each of the operations that it
hands over. So those that will be asked for are named first (`Expected`) and drawn together: one
run of the generator for all of them, one look-up for those of one map, a copy of each into memory
of its own, as it would lie alone, and a sum over each, which the host makes of few elements. They
are at most `TOGETHER` blocks, so that a pass holds 8 MiB of words, some 40 MiB of temporary
integers and 2**24 elements before they are cut, and a sum of `SUMMED` elements at most four tensors
of 32 MiB. Larger tensors are drawn one by one (`drawn`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, groupby

import numpy as np
import torch

from appliance.generator import drawing, maps
from appliance.generator.drawing import Drawn
from appliance.generator.maps import Map
from appliance.generator.philox import BLOCK
from workloads.parts.drawing import device_words
from workloads.parts.drawing.device_words import Stretch

TOGETHER = 2**18
"""Blocks of tensors that are drawn in one pass."""
SUMMED = 2**22
"""Elements that are summed up together."""
WEIGHED_BY_HOST = 2**19
"""Elements that the host reads and weighs in 2 ms: three kinds of operations fewer for the device
(counting, joining, summing up), each of which would have its kernel loaded."""
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By the bytes of an element the integers that have its bits."""
Runs = Sequence[tuple[int, int]]
"""First element and number of elements of each run that is summed up."""


class Expected:
    """Tensors of a build that will be asked for by and by: with the first come more that are small.

    One that nobody asks for is not drawn, unless it came with another.
    """

    def __init__(self) -> None:
        self._waiting: dict[Drawn, None] = {}
        self._made: dict[Drawn, tuple[torch.Tensor, int]] = {}

    def add(self, expected: Iterable[Drawn]) -> None:
        """Name tensors that will be asked for, in about that order."""
        self._waiting |= dict.fromkeys(one for one in expected if 0 < num_blocks(one) <= TOGETHER)

    def take(self, drawn: Drawn, device: torch.device) -> tuple[torch.Tensor, int] | None:
        """The tensor and its checksum, once; None if nobody named it or it is large."""
        if drawn in self._waiting:
            together = self._with(drawn)
            tensors = drawn_together(together, device)
            sums = checksums(tensors, [drawing.sampled_runs(one) for one in together])
            self._made |= dict(zip(together, zip(tensors, sums, strict=True), strict=True))
        return self._made.pop(drawn, None)

    def _with(self, drawn: Drawn) -> list[Drawn]:
        """This one and those of the others that fit into a pass, which wait no more."""
        together, room = [], TOGETHER
        for one in (drawn, *(one for one in self._waiting if one != drawn)):
            if num_blocks(one) <= room:
                together.append(one)
                room -= num_blocks(one)
        for one in together:
            del self._waiting[one]
        return together


def num_blocks(drawn: Drawn) -> int:
    """Blocks of the stream that a tensor takes."""
    return -(-drawn.count // in_block(drawn))


def in_block(drawn: Drawn) -> int:
    """Elements that a block stands for."""
    return BLOCK * drawn.in_word


# ------------------------------------------------------------------ values


def drawn_together(drawns: Sequence[Drawn], device: torch.device) -> list[torch.Tensor]:
    """Tensors in one pass, each in memory of its own; they have elements."""
    by_map = sorted(range(len(drawns)), key=lambda place: _kind(drawns[place]))
    stretches = [Stretch(drawns[place].key, 0, num_blocks(drawns[place])) for place in by_map]
    words = device_words.words_of(stretches, device).view(-1)
    made = dict(zip(by_map, _parts([drawns[place] for place in by_map], words), strict=True))
    return _laid_apart(drawns, [made[place] for place in range(len(drawns))])


def _kind(drawn: Drawn) -> tuple[int, str, str]:
    """What tensors have in common that are looked up together; those of 16 bits come first."""
    return drawn.width, str(drawn.values), drawn.dtype


def _parts(drawns: Sequence[Drawn], words: torch.Tensor) -> list[torch.Tensor]:
    """Flat elements of tensors that stand one after the other in the words, by their kinds."""
    tabled = sum(num_blocks(one) for one in drawns if one.width == 16)  # noqa: PLR2004 - bits
    places = _places(words[: tabled * BLOCK]) if tabled else words
    parts, first = [], 0
    for (width, *_), several in groupby(drawns, _kind):
        group = list(several)
        ends = list(accumulate(num_blocks(one) for one in group))
        own = slice(first * BLOCK, (first + ends[-1]) * BLOCK)
        if width == 16:  # noqa: PLR2004 - bits
            made = _looked_up(group[0], places[4 * own.start : 4 * own.stop])
        else:
            made = values(group[0], words[own])
        begins = (
            (end - num_blocks(one)) * in_block(one) for one, end in zip(group, ends, strict=True)
        )
        parts += [made[at : at + one.count] for one, at in zip(group, begins, strict=True)]
        first += ends[-1]
    return parts


def _laid_apart(drawns: Sequence[Drawn], parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Each part in memory of its own, in the tensor's shape."""
    return [part.clone().view(one.shape) for one, part in zip(drawns, parts, strict=True)]


def values(drawn: Drawn, words: torch.Tensor) -> torch.Tensor:
    """Values of words, flat, in the tensor's format."""
    match drawn.width:
        case 16:
            return _looked_up(drawn, _places(words))
        case 32:
            return _scaled(drawn.values, words.view(torch.int32), getattr(torch, drawn.dtype))
        case _:
            return words.view(getattr(torch, drawn.dtype))


def _places(words: torch.Tensor) -> torch.Tensor:
    """The 16 bits each of words."""
    return words.view(torch.int16).to(torch.int32).bitwise_and_(maps.PLACES - 1)


def _looked_up(drawn: Drawn, places: torch.Tensor) -> torch.Tensor:
    looked_up = _table(drawn.values, drawn.dtype, places.device)[places]
    return looked_up.view(-1).view(getattr(torch, drawn.dtype))


def _scaled(scale: Map, random: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if scale.kind == "uniform":
        signed = (random >> (32 - maps.UNIFORM_BITS)).to(dtype)
        return signed.mul_(2.0**-maps.UNIFORM_BITS)
    unsigned = random.to(torch.int64).bitwise_and_(device_words.LOW)
    return (unsigned.mul_(scale.span) >> 32).add_(scale.low).to(dtype)


@lru_cache(maxsize=32)
def _table(scale: Map, dtype: str, device: torch.device) -> torch.Tensor:
    """The table on the device, its groups in the largest integers that divide them."""
    table = maps.table(scale, dtype)
    size = table.shape[1] * table.itemsize
    width = next(width for width in (8, 4, 2, 1) if size % width == 0)
    numbers = torch.from_numpy(table.copy()).view(INTEGERS[width]).view(maps.PLACES, -1)
    return numbers.squeeze(1).to(device)


# ------------------------------------------------------------------ what sums them up


def checksums(tensors: Sequence[torch.Tensor], runs: Sequence[Runs]) -> list[int]:
    """Of each tensor the number from 0 to 2**63 - 1 that sums up its runs, made where it lies."""
    flats = [one.detach().reshape(-1).view(INTEGERS[one.element_size()]) for one in tensors]
    sums = [0] * len(flats)
    for own in _summed_together(flats, runs):
        given = _sums([flats[place] for place in own], [runs[place] for place in own])
        for place, one in zip(own, given, strict=True):
            sums[place] = one
    return sums


def _summed_together(flats: Sequence[torch.Tensor], runs: Sequence[Runs]) -> Iterator[list[int]]:
    """Places of tensors of one width, with `SUMMED` elements to sum up at most, or a single one."""
    for size in sorted({flat.element_size() for flat in flats}):
        group, elements = list[int](), 0
        for place in (n for n, flat in enumerate(flats) if flat.element_size() == size):
            more = sum(count for _, count in runs[place])
            if group and elements + more > SUMMED:
                yield group
                group, elements = [], 0
            group.append(place)
            elements += more
        yield group


def _sums(flats: Sequence[torch.Tensor], runs: Sequence[Runs]) -> list[int]:
    """Those of tensors of one width."""
    pieces = [flat[at : at + n] for flat, own in zip(flats, runs, strict=True) for at, n in own]
    of_all = [run for own in runs for run in own]
    counts = [sum(count for _, count in own) for own in runs]
    if sum(counts) <= WEIGHED_BY_HOST:
        return _sums_by_host(pieces, of_all, counts)
    words = torch.cat(pieces).to(torch.int64)
    if flats[0].element_size() < 8:  # noqa: PLR2004 - bytes of 64 bits
        words.bitwise_and_((1 << (8 * flats[0].element_size())) - 1)
    words.mul_(_weights(of_all, words.device))
    each = words.split_with_sizes(counts)
    return [one % 2**63 for one in torch.stack([own.sum() for own in each]).tolist()]


def _sums_by_host(pieces: Sequence[torch.Tensor], runs: Runs, counts: Sequence[int]) -> list[int]:
    """Sums over so many elements each of the pieces, which are read from where they lie."""
    read = torch.empty(sum(counts), dtype=pieces[0].dtype, device=pieces[0].device)
    for place, piece in zip(
        read.split_with_sizes([len(one) for one in pieces]), pieces, strict=True
    ):
        place.copy_(piece)
    bits = read.cpu().numpy().view(f"u{read.element_size()}")
    begins = [0, *accumulate(counts[:-1])]
    sums = np.add.reduceat(drawing.weighed_runs(bits, runs), begins)
    return [int(one) % 2**63 for one in sums]


def _weights(runs: Runs, device: torch.device) -> torch.Tensor:
    """Weights of the runs' elements, one run after the other."""
    most = max((count for first, count in runs if not first), default=0)
    from_zero = torch.arange(most, device=device)
    index = torch.cat(
        [
            torch.arange(first, first + count, device=device) if first else from_zero[:count]
            for first, count in runs
        ]
    ).mul_(drawing.STEP)
    return (index ^ (index >> drawing.SHIFT)).mul_(drawing.MIX).bitwise_or_(1)
