"""Outputs of one step held against each other: the same bits, or the same within a spread.

Within a process they are compared as copies in the host's memory, because the state that made the
first output is gone by the time the second one is there; between processes and devices by digests,
which the journal keeps. An output is a tensor or array, or a dataclass, tuple, list or
dict of them; how a tensor becomes an array is the worker's business, which alone knows torch.

Every array is known by its path, number format and shape, so that the same bytes in another form
are not the same output.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.records.journal import Difference

NAMED = 8
"""Tensors and places that are named of a difference."""
FLOATING = (" float", " bfloat", " complex")
"""Number formats, as a name has them, whose numbers have units in the last place."""

PIECE = 2**24
"""Bytes that are hashed at once: of a longer array the pieces' digests are, each by a thread."""

FEW = 2**25
"""Bytes that one thread reads as they come, and hashes, before others have begun.

To start a thread took 0.7 ms of an H100's host, and each takes the interpreter from the others for
every tensor: the digest of 16 MiB in 356 tensors took half as long on one thread as on two, and on
one thread of that host 33 ms.
"""

Frozen = dict[str, NDArray[Any]]
Read = Callable[[Any], NDArray[Any]]
"""The bytes or numbers of a tensor on the host, in whose memory they may still lie."""


@dataclass(frozen=True, kw_only=True)
class InPieces:
    """How a tensor's bytes are read in pieces, each by a thread.

    `flat` gives the bytes where they lie, flat, as something that is cut; None of what does not lie
    there in order. `lend` gives a piece's bytes on the host, where they are until the block ends.
    """

    flat: Callable[[Any], Any | None]
    lend: Callable[[Any], AbstractContextManager[NDArray[Any]]]


def freeze(output: Any, read: Read) -> Frozen:
    """Every array of an output by its name, copied so that no later step changes it.

    Raises TypeError for an output that holds something else than arrays and plain values.
    """
    return {_name(path, leaf): np.array(read(leaf)) for path, leaf in _leaves(output, "output")}


def digest(output: Any, read: Read, threads: int = 1, pieces: InPieces | None = None) -> str:
    """SHA-256 over all arrays of an output, in the order of their names: name, size, bytes.

    `read` gives an array's bytes. They are read and hashed on so many threads, each of which holds
    one array at a time; with `pieces` one piece of it, and a long array never lies on the host as a
    whole. A digest tells any two outputs apart that differ in a bit, a number format, a shape or
    the place of an array, and depends neither on threads nor on pieces.
    """
    hasher = hashlib.sha256()
    arrays = {_name(path, leaf): leaf for path, leaf in _leaves(output, "output")}
    names = sorted(arrays)
    hashed = _hashed([arrays[name] for name in names], read, threads, pieces)
    for name, one in zip(names, hashed, strict=True):
        hasher.update(f"{name}\0{int(arrays[name].nbytes)}\0".encode())
        hasher.update(one)
    return hasher.hexdigest()


def num_bytes(output: Any) -> int:
    """Bytes of all arrays of an output."""
    return sum(int(leaf.nbytes) for _, leaf in _leaves(output, "output"))


def digests(
    output: Any, read: Read, threads: int = 1, pieces: InPieces | None = None
) -> dict[str, str]:
    """SHA-256 of each array of an output by its name, in the output's order; read as `digest`."""
    leaves = list(_leaves(output, "output"))
    hashed = _hashed([leaf for _, leaf in leaves], read, threads, pieces)
    return {_name(*leaf): one.hex() for leaf, one in zip(leaves, hashed, strict=True)}


def _hashed(
    leaves: Sequence[Any], read: Read, threads: int, pieces: InPieces | None
) -> list[bytes]:
    """SHA-256 of each array's bytes; of a longer one that of its pieces' digests."""
    is_little = sum(int(leaf.nbytes) for leaf in leaves) <= FEW
    works = [_works(leaf, read, None if is_little else pieces) for leaf in leaves]
    every = [work for some in works for work in some]
    if threads == 1 or len(every) == 1 or is_little:
        answers = iter([work() for work in every])
    else:
        with ThreadPoolExecutor(threads) as pool:
            answers = iter(list(pool.map(lambda work: work(), every)))
    return [_joined(list(chain(*islice(answers, len(some))))) for some in works]


def _works(leaf: Any, read: Read, pieces: InPieces | None) -> list[Callable[[], list[bytes]]]:
    """What gives the digests of an array's pieces, in order: of one each if they can be cut."""
    content = None if pieces is None else pieces.flat(leaf)
    if content is None or pieces is None:
        return [lambda: _of_whole(read(leaf))]
    places = range(0, max(1, int(leaf.nbytes)), PIECE)
    return [partial(_of_piece, content[first : first + PIECE], pieces.lend) for first in places]


def _of_piece(
    piece: Any, lend: Callable[[Any], AbstractContextManager[NDArray[Any]]]
) -> list[bytes]:
    with lend(piece) as content:
        return [hashlib.sha256(content.data).digest()]


def _of_whole(content: NDArray[Any]) -> list[bytes]:
    """Digests of the pieces of an array that was read as a whole."""
    places = range(0, max(1, content.nbytes), PIECE)
    return [hashlib.sha256(content[first : first + PIECE].data).digest() for first in places]


def _joined(digests: Sequence[bytes]) -> bytes:
    """The digest of an array from those of its pieces: of a single one its own."""
    return digests[0] if len(digests) == 1 else hashlib.sha256(b"".join(digests)).digest()


def _name(path: str, leaf: Any) -> str:
    """Path, number format and shape: "output.logits float32 (8, 10)"."""
    return f"{path} {str(leaf.dtype).rpartition('.')[2]} {tuple(leaf.shape)}"


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        children = [
            (f".{item.name}", getattr(node, item.name)) for item in dataclasses.fields(node)
        ]
    elif isinstance(node, Mapping):
        children = [(f"[{key!r}]", child) for key, child in node.items()]
    elif isinstance(node, tuple | list):
        children = [(f"[{number}]", child) for number, child in enumerate(node)]
    elif isinstance(node, bool | int | float | str | bytes | np.generic) or node is None:
        yield path, _plain(node)
        return
    elif isinstance(node, np.ndarray) or hasattr(node, "__dlpack__"):  # of torch or JAX
        yield path, node
        return
    else:
        raise TypeError(f"{path} is a {type(node).__name__}, not a tensor or array")
    for name, child in children:
        yield from _leaves(child, path + name)


def _plain(value: Any) -> NDArray[Any]:
    if isinstance(value, bool | int | float | np.generic):
        return np.asarray(value)
    return np.frombuffer(repr(value).encode(), np.uint8)


def bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Bytes of an array, in its own memory where they lie there in order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def values(array: NDArray[Any]) -> NDArray[np.float64]:
    """Numbers of an array in float64, flat; a complex one as its two parts."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if np.iscomplexobj(flat):
        flat = flat.view(flat.real.dtype)
    return flat.astype(np.float64)


def difference(first: Frozen, second: Frozen) -> Difference | None:
    """How the bits of two outputs differ; their arrays are bytes, as `bits` gives.

    None where they are the same, or of other shapes, so that no number stands beside another.
    """
    if not _are_alike(first, second):
        return None
    differing = [name for name in first if not np.array_equal(first[name], second[name])]
    if not differing:
        return None
    one, two = (_numbers(differing[0], frozen[differing[0]]) for frozen in (first, second))
    places = np.flatnonzero(one != two)
    changed = one[places] ^ two[places]
    width = 8 * one.itemsize
    is_float = any(word in differing[0].rpartition(" (")[0] for word in FLOATING)
    return Difference(
        tensors=tuple(differing[:NAMED]),
        num_tensors=len(differing),
        num_bytes=int(sum(np.count_nonzero(first[name] != second[name]) for name in differing)),
        total_bytes=sum(array.nbytes for array in first.values()),
        num_elements=len(places),
        total_elements=len(one),
        first_indices=tuple(map(int, places[:NAMED])),
        xor_bits=tuple(
            int(np.count_nonzero(changed >> one.dtype.type(bit) & one.dtype.type(1)))
            for bit in range(width)
        ),
        largest_ulp=_largest_distance(one[places], two[places]) if is_float else None,
    )


def _numbers(name: str, content: NDArray[np.uint8]) -> NDArray[Any]:
    """The bytes of an array as unsigned integers of the width of its numbers."""
    shape = re.search(r"\(([\d, ]*)\)$", name)
    count = math.prod(int(size) for size in re.findall(r"\d+", shape[1])) if shape else 0
    width = content.nbytes // max(1, count)
    width = width // 2 if "complex" in name else width
    return content.view(f"u{width}" if width in (1, 2, 4, 8) else "u1")


def _largest_distance(one: NDArray[Any], two: NDArray[Any]) -> int:
    """Largest distance in units in the last place; -0 and +0 are one apart.

    Floating-point numbers are in the order of their bits, if those of negative ones are turned
    round.
    """
    top = one.dtype.type(1 << (8 * one.itemsize - 1))
    first, second = (np.where(bits & top, ~bits, bits | top) for bits in (one, two))
    return int((np.maximum(first, second) - np.minimum(first, second)).max())


def relative_difference(first: Frozen, second: Frozen) -> float:
    """Largest difference of two numbers over the largest number of their array; NaN stays NaN."""
    if not _are_alike(first, second):
        return math.inf
    return max(
        (_relative(first[path], second[path]) for path in first),
        key=lambda error: math.inf if math.isnan(error) else error,
        default=0.0,
    )


def _relative(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    if np.array_equal(first, second):
        return 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.abs(first - second).max() / np.abs(first).max())


def _are_alike(first: Frozen, second: Frozen) -> bool:
    return {path: array.shape for path, array in first.items()} == {
        path: array.shape for path, array in second.items()
    }


def arrays(output: Any) -> Iterator[Any]:
    """Every array of an output, in its order; TypeError for something else than plain values."""
    return (leaf for _, leaf in _leaves(output, "output"))


def mapped(output: Any, change: Callable[[Any], Any]) -> Any:
    """The same output with `change` of each array in its place; plain values stay."""
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        parts = {one.name: getattr(output, one.name) for one in dataclasses.fields(output)}
        changed = {name: mapped(part, change) for name, part in parts.items()}
        return dataclasses.replace(output, **changed)
    if isinstance(output, Mapping):
        return {key: mapped(part, change) for key, part in output.items()}
    if isinstance(output, tuple | list):
        return type(output)(mapped(part, change) for part in output)
    is_array = isinstance(output, np.ndarray) or hasattr(output, "__dlpack__")
    return change(output) if is_array else output
