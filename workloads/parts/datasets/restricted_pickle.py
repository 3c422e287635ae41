"""Pickles of old data sets, read without running anything that they say.

A pickle is a program: it names what it wants called. The data sets of Planetoid and CIFAR come
as pickles that name seven things, and each of the seven is a stand-in here that keeps what it
is given: an array becomes bytes with a shape, a sparse matrix its three arrays. No code of numpy
or scipy sees what a file says before it was checked, for they trust it: a sparse matrix whose
indices point outside reads and writes memory that is not its own. Any other name is refused.
"""

from __future__ import annotations

import io
import math
import pickle
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workloads.contract.failures import ParameterError

_NUMBERS = {b"u1", b"i4", b"i8", b"f4", b"f8"}
_ORDERS = {b"<", b"|"}


class _Format:
    """A number format: made from its code, then told its byte order."""

    __slots__ = ("code",)

    def __init__(self, code: bytes) -> None:
        self.code = code.decode()

    def __setstate__(self, state: object) -> None:
        if not (isinstance(state, tuple) and len(state) > 1 and state[1] in _ORDERS):
            raise pickle.UnpicklingError("a number format in a byte order that is not known")


class Array:
    """An array of numbers as a pickle has it; `value` is the array, which cannot be written."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: NDArray[np.generic] = np.empty(0, np.uint8)

    def __setstate__(self, state: object) -> None:
        match state:
            case (1, tuple(shape), _Format(code=code), False, bytes(data)):
                pass
            case _:
                raise pickle.UnpicklingError("an array that is not plain numbers in C order")
        if not all(isinstance(side, int) and side >= 0 for side in shape):
            raise pickle.UnpicklingError("an array whose shape is no shape")
        if math.prod(shape) * np.dtype(f"<{code}").itemsize != len(data):
            raise pickle.UnpicklingError("an array whose bytes do not fill its shape")
        self.value = np.frombuffer(data, f"<{code}").reshape(shape)


class Matrix:
    """A sparse matrix by rows: row i has `data[offsets[i]:offsets[i + 1]]` in those `columns`."""

    __slots__ = ("columns", "data", "offsets", "shape")

    def __setstate__(self, state: object) -> None:
        match state:
            case {
                b"_shape": (int(height), int(width)),
                b"indptr": Array(value=offsets),
                b"indices": Array(value=columns),
                b"data": Array(value=data),
            }:
                pass
            case _:
                raise pickle.UnpicklingError("a sparse matrix without its three arrays")
        if not offsets.dtype.kind == columns.dtype.kind == "i":
            raise pickle.UnpicklingError("a sparse matrix whose indices are not integers")
        cuts, places = offsets.astype(np.int64), columns.astype(np.int64)
        is_whole = (
            cuts.shape == (height + 1,)
            and places.shape == data.shape == (cuts[-1],)
            and cuts[0] == 0
            and bool((np.diff(cuts) >= 0).all())
            and bool(((places >= 0) & (places < width)).all())
        )
        if not is_whole:
            raise pickle.UnpicklingError("a sparse matrix whose indices point outside of it")
        self.shape = (height, width)
        self.offsets, self.columns, self.data = cuts, places, data


@dataclass(frozen=True, slots=True)
class _Name:
    """What a pickle may only hand on, or have called in the one way that its files do."""

    name: str

    def __call__(self, *arguments: object) -> object:
        match self.name, arguments:
            case "_reconstruct", (_Name(name="ndarray"), tuple(), bytes()):
                return Array()
            case "dtype", (bytes(code), 0, 1) if code in _NUMBERS:
                return _Format(code)
            case "defaultdict", (_Name(name="list"),):
                return {}
        raise pickle.UnpicklingError(f"{self.name} with other arguments than those of its files")

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError(f"a change of {self.name}")


_KNOWN: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _Name("_reconstruct"),
    ("numpy", "ndarray"): _Name("ndarray"),
    ("numpy", "dtype"): _Name("dtype"),
    ("scipy.sparse.csr", "csr_matrix"): Matrix,
    ("collections", "defaultdict"): _Name("defaultdict"),
    ("__builtin__", "list"): _Name("list"),
}


class _Reader(pickle.Unpickler):
    """Calls stand-ins alone: `find_class` is the one way to anything callable."""

    def find_class(self, module: str, name: str) -> object:
        replacement = _KNOWN.get((module, name))
        if replacement is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no data set needs")
        return replacement


def load(data: bytes, source: str) -> object:
    """What the pickle holds: plain values, `bytes` for its strings, `Array` and `Matrix`.

    Raises ParameterError, naming `source`, for a name that is not one of the data sets' own, and
    for a pickle that is not whole.
    """
    try:
        return _Reader(io.BytesIO(data), encoding="bytes").load()
    except pickle.UnpicklingError as error:
        reason = str(error)
    except (
        AttributeError,
        EOFError,
        LookupError,
        MemoryError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:  # what a pickle that is not whole may end in, says the library's documentation
        reason = f"not whole: {type(error).__name__}"
    raise ParameterError(f"{source} is refused ({reason}): fetch it with `bench data fetch`")
