"""Number formats by their bits, so that values can be made and compared without torch.

Values are rounded once, to nearest and ties to even, as IEEE 754 says; formats that NumPy lacks are
rounded here, in float64 that is scaled by powers of two and so loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.unsignedinteger]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Short:
    """A floating-point format of 16 bits or fewer: bits of its exponent and of its fraction."""

    exponent: int
    fraction: int

    @property
    def lowest(self) -> int:
        """Exponent of the smallest normal number."""
        return 2 - (1 << (self.exponent - 1))

    @property
    def words(self) -> type[np.unsignedinteger]:
        return np.uint8 if self.exponent + self.fraction < 8 else np.uint16  # noqa: PLR2004 - bits


SHORT: Mapping[str, Short] = {
    "bfloat16": Short(8, 7),
    "float16": Short(5, 10),
    "float8_e4m3fn": Short(4, 3),
    "float8_e5m2": Short(5, 2),
}
WHOLE: Mapping[str, type[np.signedinteger]] = {
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
}
WIDE: Mapping[str, type[np.floating]] = {"float32": np.float32, "float64": np.float64}


def num_bytes(dtype: str) -> int:
    """Size of one number of the format that torch calls `dtype`."""
    size: int = bits_of(np.zeros(1), dtype).itemsize
    return size


def bits_of(values: Floats | NDArray[np.int64], dtype: str) -> Bits:
    """Bits of the values, of any shape, rounded to a format; they are finite and fit into it.

    Raises KeyError for a format that is not known.
    """
    if dtype in SHORT:
        return _short(np.asarray(values, np.float64), SHORT[dtype])
    kind = {**WHOLE, **WIDE}[dtype]
    rounded = np.asarray(values).astype(kind)
    bits: Bits = rounded.view(f"u{rounded.itemsize}")
    return bits


def _short(values: Floats, form: Short) -> Bits:
    own = np.where(values == 0, form.lowest, np.frexp(values)[1] - 1)
    exponents = np.maximum(own, form.lowest)
    steps = np.rint(np.ldexp(np.abs(values), form.fraction - exponents)).astype(np.int64)
    magnitudes = ((exponents - form.lowest).astype(np.int64) << form.fraction) + steps
    signs = np.signbit(values).astype(np.int64) << (form.exponent + form.fraction)
    rounded: Bits = (signs | magnitudes).astype(form.words)
    return rounded
