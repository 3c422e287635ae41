"""Records to JSON and back: strict readers, number forms, canonical bytes and their digest."""

from __future__ import annotations

import hashlib
import json
import math
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar, overload

import rfc8785
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapSerializer,
    WrapValidator,
)

from appliance.errors import ApplianceError, RecordFormError

# ------------------------------------------------------------------ scalars

BIG_INT = re.compile("0|-?[1-9][0-9]{0,18}")  # 10**19 ns are three centuries; a float holds all


def _read_number(value: object) -> object:
    return float(value) if value in ("nan", "inf", "-inf") else value


def _write_number(value: float) -> float | str:
    if math.isnan(value):
        return "nan"
    # an integer beyond 2**53 must not reach JSON as one
    return ("inf" if value > 0 else "-inf") if math.isinf(value) else float(value)


def _read_big_int(value: object) -> object:
    if isinstance(value, str) and BIG_INT.fullmatch(value):
        return int(value)
    message = "an integer of at most 19 digits as a decimal string is wanted"
    raise ValueError(message)


Number = Annotated[
    float,
    BeforeValidator(_read_number),
    PlainSerializer(_write_number, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}),
]
BigInt = Annotated[
    int,
    BeforeValidator(_read_big_int),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": "^-?[0-9]+$"}),
]
SafeInt = Annotated[int, Field(gt=-(2**53), lt=2**53)]  # what JSON shows beyond was a float
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]  # the text "nan" is a text
Scalar = bool | SafeInt | FiniteFloat | str
Parameters = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Base of all records: unknown keys and wrong types are refused."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, ser_json_inf_nan="constants"
    )


FEWEST_TIMES = 4  # below, a tuple is as small


class Times(Sequence[int]):
    """Many nanoseconds in little memory: eight bytes each, where a tuple of integers has 40.

    A journal is mostly samples, and whoever verifies a large one holds all of them. What is read
    from JSON is stored so; what a run makes may stay a tuple, and is equal to it. Numpy reads them
    where they lie.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Sequence[int]) -> None:
        self._values = array("q", values)

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[int, ...]: ...
    def __getitem__(self, place: int | slice) -> int | tuple[int, ...]:
        found = self._values[place]
        return found if isinstance(found, int) else tuple(found)

    def __iter__(self) -> Iterator[int]:
        return iter(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Times):
            return self._values == other._values
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    @property
    def __array_interface__(self) -> dict[str, Any]:
        address, length = self._values.buffer_info()
        kind = f"<i{self._values.itemsize}"
        return {"version": 3, "shape": (length,), "typestr": kind, "data": (address, True)}


def _read_times(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Times all at once; by the `handler`, one after another, where one is not as it should be."""
    try:
        times = Times(list(map(int, value)))
        is_plain = list(map(str, times)) == value
    except (TypeError, ValueError, OverflowError):
        is_plain = False
    if not is_plain:
        return _compact(handler(tuple(value) if isinstance(value, list) else value))
    return times if len(times) >= FEWEST_TIMES else times[:]


def _compact(values: tuple[int, ...]) -> Any:
    if len(values) < FEWEST_TIMES:
        return values
    try:
        return Times(values)
    except OverflowError:  # no time of a step, and for the checks to refuse
        return values


def _as_tuple(value: Any, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
    if not isinstance(value, Times):
        return handler(value)
    return list(map(str, value)) if info.mode == "json" else tuple(value)


Nanoseconds = Annotated[tuple[BigInt, ...], WrapValidator(_read_times), WrapSerializer(_as_tuple)]
"""Times as a record has them: to be read as a tuple, whatever holds them."""


class Readings(Mapping[str, float | None]):
    """Values by name in little memory: names are kept once for all of the same names.

    A journal of a long load has hundreds of thousands of them, most with the same names and many
    with the same values; a dictionary of a dozen numbers takes a kilobyte.
    """

    __slots__ = ("_places", "_values")

    def __init__(self, values: Mapping[str, float | None]) -> None:
        self._places = _places_of(tuple(values))
        self._values = tuple(map(_shared, values.values()))

    @classmethod
    def of_known(cls, values: Mapping[str, float | None]) -> Readings:
        """The same of values that are kept elsewhere, so that none needs to be looked up."""
        made = cls({})
        made._places = _places_of(tuple(values))
        made._values = tuple(values.values())
        return made

    def __getitem__(self, name: str) -> float | None:
        return self._values[self._places[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(dict(self))


MOST_SHARED = 4096  # sets of names, or values; whoever sends more of them has no more room for it
_PLACES: dict[tuple[str, ...], dict[str, int]] = {}
_FLOATS: dict[float, float] = {}
_MAPPINGS: dict[tuple[tuple[str, Any], ...], Mapping[str, Any]] = {}


def _places_of(names: tuple[str, ...]) -> dict[str, int]:
    places = _PLACES.get(names)
    if places is None:
        places = {name: place for place, name in enumerate(names)}
        if len(_PLACES) < MOST_SHARED:
            _PLACES[names] = places
    return places


def _shared(value: float | None) -> float | None:
    if value is None or value in _FLOATS or len(_FLOATS) < MOST_SHARED:
        return None if value is None else _FLOATS.setdefault(value, value)
    return value


def _kept_once(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same values, of which all that are equal are one; its types tell equal values apart."""
    key = tuple(values.items())
    known = _MAPPINGS.get(key)
    if known is None:
        known = values
        if len(_MAPPINGS) < MOST_SHARED:
            _MAPPINGS[key] = values
    return known


KEPT_ONCE = AfterValidator(_kept_once)
"""Of a mapping that many records have alike, of texts or of whole numbers, and never both."""


def _as_dictionary(value: Any, handler: SerializerFunctionWrapHandler) -> Any:
    return handler(dict(value))


Values = Annotated[
    Mapping[str, Number | None], AfterValidator(Readings), WrapSerializer(_as_dictionary)
]
"""Numbers by name, None for what is not reported."""


# ------------------------------------------------------------------ reading and writing

R = TypeVar("R")


_ADAPTERS: dict[object, TypeAdapter[Any]] = {}


def adapter(kind: Any) -> TypeAdapter[Any]:
    """Reader and writer of one record type; made once, because making one is slow."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def to_data(record: object, kind: Any = None) -> Any:
    """Plain JSON values of a record."""
    return adapter(kind or type(record)).dump_python(record, mode="json")


def to_json(record: object, kind: Any = None) -> bytes:
    """Canonical JSON (RFC 8785) of a record: the bytes that are digested and signed.

    Raises ApplianceError where JSON has no such value: a Scalar that is not finite or an integer
    beyond 2**53, or text that is not Unicode.
    """
    try:
        return rfc8785.dumps(to_data(record, kind))
    except rfc8785.CanonicalizationError as error:
        what = type(record).__name__
        message = f"a record {what} cannot be written, and must be fixed where it is made: {error}"
        raise ApplianceError(message) from None


def from_json(kind: type[R], text: bytes, *, name: str) -> R:
    """Read canonical JSON strictly; `name` is the file named in the error.

    Raises RecordFormError if a key is unknown or missing, a type is wrong, or the bytes are not
    the canonical form (which also refuses duplicate keys).
    """
    try:
        record: R = adapter(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        message = f"{name}: {where}: {first['msg'].replace('Input should be', 'must be')}"
        raise RecordFormError(message) from None
    if not _is_canonical(record, kind, text):
        message = f"{name} is not in canonical form (RFC 8785), so it is not what was written"
        raise RecordFormError(message)
    return record


USUAL_LEAST, USUAL_MOST = 1e-4, 1e15
"""Sizes of numbers between which no writer takes an exponent, and whole ones are exact."""


class UnusualError(ValueError):
    """A value that the two might write otherwise."""


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False
)
_MARK, _MARKED = "\0", re.compile(r'"\\u0000([-+.0-9e]+)"')
"""What stands before a number that is passed on as a text, and such a text as it is written."""


def quick(data: Any) -> bytes:
    """Canonical JSON of plain data in a fifth of the time; UnusualError for unusual values.

    Whoever verifies a journal writes each of its lines once more, to see that the bytes are the
    form. The standard library writes JSON in C, and as RFC 8785 wants it where texts are of ASCII
    and numbers of a size at which Python and ECMAScript write them alike: without an exponent,
    whole ones without a fraction. Other numbers are written one by one and put in their place.
    """
    odd: list[float] = []
    text = _ENCODER.encode(_usual(data, odd))
    if not text.isascii():  # keys are sorted by other units then
        raise UnusualError
    if odd:
        if text.count("\\u0000") != len(odd):  # a text of the data looks like such a number
            raise UnusualError
        text = _MARKED.sub(r"\1", text)
    return text.encode("ascii")


def _usual(value: Any, odd: list[float]) -> Any:
    """The same data, whole numbers as integers, and texts in place of numbers that are `odd`."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return value
    if kind is dict:
        return {name: one if type(one) is str else _usual(one, odd) for name, one in value.items()}
    if kind is list:
        return [one if type(one) is str else _usual(one, odd) for one in value]
    if kind is float:
        return _usual_float(value, odd)
    if kind is int and -USUAL_MOST < value < USUAL_MOST:
        return value
    raise UnusualError


def _usual_float(value: float, odd: list[float]) -> float | str:
    if -USUAL_MOST < value < USUAL_MOST:
        if value == int(value):
            return int(value)
        if not -USUAL_LEAST < value < USUAL_LEAST:
            return value
    if not math.isfinite(value):
        raise UnusualError
    odd.append(value)
    return _MARK + rfc8785.dumps(value).decode("ascii")


_TO_LOOK_AT = re.compile(r'\.0(?![0-9])|[0-9]e[-+]|(?<!["0-9])[0-9]{16}|[^\x00-\x7f]')
"""In JSON of Python's: a whole number as it writes it, an exponent, one of so many digits, or what
is not ASCII. Texts of a record may look so as well."""


def _is_canonical(record: object, kind: Any, text: bytes) -> bool:
    """Whether these bytes are what is written of the record."""
    data = to_data(record, kind)
    if _is_written_alike(data, text):
        return True
    try:
        return quick(data) == text
    except UnusualError:
        pass
    try:
        return to_json(record, kind) == text
    except ApplianceError:  # an integer beyond 2**53: JSON that this program cannot have made
        return False


def _is_written_alike(data: Any, text: bytes) -> bool:
    """Whether Python writes these bytes, and they have no number that others write otherwise.

    So it is of most lines of a journal, whose numbers need not be looked at one by one then.
    """
    try:
        written: str = _ENCODER.encode(data)
    except ValueError:
        return False
    return not _TO_LOOK_AT.search(written) and written.encode("ascii") == text


def sha256(data: bytes) -> str:
    """Digest in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
