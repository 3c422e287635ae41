"""Exact ways from random bits to values: tables and scaled integers, nothing that a device rounds.

Normal numbers are quantiles, drawn in fours: 16 random bits choose one of 65,536 groups of four
numbers. Four of the bits are their signs; the other twelve choose a row of an orthogonal array of
strength two over GF(64) (Rao 1947), which gives each of the four magnitudes one of 64 strata and a
place of 64 in it, so that any two numbers of a group lie in every pair of strata equally often.
Each position takes 8,192 values and the four together 32,768, all equally frequent: none is beyond
4.17, and the variance is 0.99995. So any two numbers of a tensor are uncorrelated, as are their
squares to 1e-3; three or four of one group depend on each other, and groups do not. One number then
costs a quarter of a look-up and 4 random bits, where a table for each number of its own would take
16 bits and be four times slower to make on a processor (measured on two cores of an EPYC), and
four times as many integer operations on every device.

Another mean and deviation make another table, computed in float64 and then rounded to the format,
so that a weight of a network is looked up like any other number. So does another width of uniform
numbers, which are then 65,536. NumPy multiplies and adds one
after the other, each rounded as IEEE 754 says.

Uniform numbers and integers are scaled: of n integers the random number of w bits gives
(random * n) >> w, so one is more frequent than another by n / 2**w of its share at most: 0.8 % of
512 integers, which have 16 bits, and 0.4 % of 2**24, which have 32. No logarithm, cosine or
division is made where values are drawn: their last bit is the library's own.

Whatever takes 16 bits is a table, made once by the host for a map and a format; the device only
looks up. Quantiles are computed to 1e-15 and rounded to multiples of 2**-26; the nearest to a half
lies 3e-6 of a step from it, 30 times the difference between two libraries, and a digest holds them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from appliance.errors import ApplianceError
from appliance.generator.formats import WIDE, Bits, Floats, bits_of, num_bytes

Kind = Literal["normal", "uniform", "integers", "words"]
Integers = NDArray[np.int64]

PLACES = 2**16
"""Groups of a table."""
GROUP = 4
"""Normal numbers of one group."""
FIELD_BITS = 6
PLACE_FACTORS = ((60, 55), (23, 45), (36, 42), (11, 34))
"""Of a and b for the place in each stratum: of 500 drawn ones those whose squares correlate least.
"""
NUM_MAGNITUDES = 2**14
STEP = 2.0**-26
"""Of the quantiles, whose multiples float64 holds exactly."""
QUANTILES = "b99de6283e94fab006d1a8e975608b20b05a6a79eb649dd103b77271c877ee86"
"""SHA-256 of the magnitudes as little-endian integers of 64 bits."""
MOST_TABLED = 512
MOST_INTEGERS = 2**24
MOST_NORMAL = 16.0
"""Size of a mean and of a standard deviation, so that every format but the shortest holds all."""
UNIFORM_BITS = 24
"""Of uniform numbers that are wide enough for them, each exact in float32."""


@dataclass(frozen=True, slots=True)
class Map:
    """From bits to values: `kind`, and of integers the `low`est and the `high`est.

    "normal" is the normal distribution of that `mean` and standard `deviation`, "uniform" that from
    -0.5 to 0.5 times the `deviation`, "words" are 64 random bits each, as they come.
    """

    kind: Kind
    low: int = 0
    high: int = 0
    mean: float = 0.0
    deviation: float = 1.0

    @property
    def span(self) -> int:
        """How many integers there are."""
        return self.high - self.low + 1

    @property
    def group(self) -> int:
        """Values that one random number stands for."""
        return GROUP if self.kind == "normal" else 1

    def width(self, dtype: str) -> int:
        """Bits of one random number: 16 by a table, else 32 or 64."""
        if self.kind == "words":
            return 64
        is_wide = self == UNIFORM and num_bytes(dtype) > 2  # noqa: PLR2004 - bytes
        return 32 if is_wide or self.span > MOST_TABLED else 16

    def __str__(self) -> str:
        if self.kind == "integers":
            return f"integers {self.low} to {self.high}"
        if (self.mean, self.deviation) == (0.0, 1.0):
            return self.kind
        around = f" {self.mean!r}" if self.kind == "normal" else ""
        return f"{self.kind}{around} by {self.deviation!r}"


NORMAL = Map("normal")
UNIFORM = Map("uniform")
WORDS = Map("words")


def integers(low: int, high: int) -> Map:
    """Integers from `low` to `high`, both included; ValueError if they are none or too many."""
    drawn = Map("integers", low, high)
    if not 1 <= drawn.span <= MOST_INTEGERS:
        raise ValueError(f"integers from {low} to {high} cannot be drawn: give 1 to 2**24 of them")
    return drawn


def normal(mean: float, deviation: float) -> Map:
    """Normal numbers of that mean and standard deviation; ValueError if they are out of bounds."""
    if not (abs(mean) <= MOST_NORMAL and 0 < deviation <= MOST_NORMAL):
        raise ValueError(
            f"normal numbers around {mean} by {deviation} cannot be drawn: give at most "
            f"{MOST_NORMAL:g}, and a deviation above 0"
        )
    return Map("normal", mean=mean, deviation=deviation)


def uniform(width: float) -> Map:
    """Uniform numbers from -width / 2 to width / 2; ValueError if they are out of bounds.

    Of another width than 1 they are 65,536 equally frequent ones, each rounded once to its format.
    """
    if not 0 < width <= MOST_NORMAL:
        raise ValueError(
            f"uniform numbers {width} wide cannot be drawn: give a width above 0 and at most "
            f"{MOST_NORMAL:g}"
        )
    return Map("uniform", deviation=width)


def parse(text: str) -> Map:
    """The map that `str` names; ValueError for any other text."""
    plain: dict[str, Map] = {str(one): one for one in (NORMAL, UNIFORM, WORDS)}
    if text in plain:
        return plain[text]
    kind, _, rest = text.partition(" ")
    drawn = None
    if kind == "integers":
        low, _, high = rest.partition(" to ")
        drawn = integers(int(low), int(high))
    if kind == "normal":
        mean, _, deviation = rest.partition(" by ")
        drawn = normal(float(mean), float(deviation))
    if kind == "uniform":
        drawn = uniform(float(rest.removeprefix("by ")))
    if drawn is None or str(drawn) != text:
        raise ValueError(f"there is no map {text[:40]!r}")
    return drawn


def values(drawn: Map, dtype: str, random: NDArray[np.unsignedinteger]) -> Bits:
    """Bits of the values that random numbers of the map's width stand for, flat and in order."""
    match drawn.width(dtype):
        case 16:
            looked_up: Bits = table(drawn, dtype)[random].reshape(-1)
            return looked_up
        case 32:
            return _scaled(drawn, dtype, random.astype(np.uint32, copy=False))
        case _:
            return random


def _scaled(drawn: Map, dtype: str, random: NDArray[np.uint32]) -> Bits:
    if drawn.kind == "uniform":
        signed = random.view(np.int32) >> (32 - UNIFORM_BITS)
        exact = signed.astype(WIDE.get(dtype, np.float64))  # which has all bits of them
        exact *= 2.0**-UNIFORM_BITS
        return bits_of(exact, dtype)
    scaled = random.astype(np.int64)
    scaled *= drawn.span
    scaled >>= 32
    scaled += drawn.low
    return bits_of(scaled, dtype)


@lru_cache(maxsize=64)
def table(drawn: Map, dtype: str) -> Bits:
    """Bits (65536, group) of the values of each 16 bits, in the format that torch calls `dtype`."""
    exact: Floats | Integers
    if drawn.kind == "normal":
        # Each is rounded once, as IEEE 754 says.
        exact = standard_groups() * drawn.deviation + drawn.mean
    elif drawn.kind == "uniform":
        middles = (2.0 * np.arange(PLACES)[:, None] + 1 - PLACES) * 2.0**-17  # exact
        exact = np.asarray(middles * drawn.deviation, np.float64)
    else:
        exact = ((np.arange(PLACES)[:, None] * drawn.span) >> 16) + drawn.low
    made = bits_of(exact, dtype)
    made.flags.writeable = False
    return made


# ------------------------------------------------------------------ normal numbers


@lru_cache(maxsize=1)
def standard_groups() -> Floats:
    """All groups (65536, 4) of standard normal numbers; the low four bits are signs.

    What every table of normal numbers is made of: a process that forks others makes it once.
    """
    place = np.arange(PLACES)[:, None]
    is_negative = (place >> np.arange(GROUP)) & 1
    signs = np.where(is_negative == 1, -1, 1)
    groups: Floats = signs * magnitudes()[_chosen()[place[:, 0] >> GROUP]] * STEP
    groups.flags.writeable = False
    return groups


def _chosen() -> Integers:
    """Which of the magnitudes each row of the array takes: (4096, 4), each at most once.

    Row (a, b) has the strata a, b, a + b and a + xb, by arithmetic in GF(64), and in them places
    that are `PLACE_FACTORS` times a and b. The lowest two bits turn with the stratum and the place,
    so that each of the four takes a magnitude of its own.
    """
    row = np.arange(2 ** (2 * FIELD_BITS))
    first, second = row >> FIELD_BITS, row & (2**FIELD_BITS - 1)
    strata = np.stack([first, second, first ^ second, first ^ _doubled(second)], axis=1)
    places = [_times(one, first) ^ _times(other, second) for one, other in PLACE_FACTORS]
    columns = np.stack(places, axis=1)
    turn = (np.arange(GROUP) + strata + columns) % GROUP
    chosen: Integers = ((strata << FIELD_BITS) + columns) * GROUP + turn
    return chosen


def _times(factor: int, numbers: Integers) -> Integers:
    """Elements of GF(64) = GF(2)[x] / (x**6 + x + 1) times a constant."""
    product = np.zeros_like(numbers)
    for position in range(FIELD_BITS):
        if factor >> position & 1:
            product ^= numbers
        numbers = _doubled(numbers)
    return product


def _doubled(numbers: Integers) -> Integers:
    """Elements of GF(64) times x."""
    shifted = numbers << 1
    return np.where(shifted >= 2**FIELD_BITS, shifted ^ 0b1000011, shifted)


@lru_cache(maxsize=1)
def magnitudes() -> Integers:
    """Quantiles (16384,) of the normal distribution's upper half, in units of 2**-26.

    Raises ApplianceError if this machine's logarithms are so far off that they are others.
    """
    inverse, shares = NormalDist().inv_cdf, 4 * NUM_MAGNITUDES
    upper = range(2 * NUM_MAGNITUDES + 1, shares, 2)
    exact = np.array([inverse(number / shares) for number in upper])
    numbers = np.rint(exact / STEP).astype("<i8")
    if hashlib.sha256(numbers.tobytes()).hexdigest() != QUANTILES:
        raise ApplianceError("this Python's normal quantiles are not those that inputs are made of")
    return numbers
