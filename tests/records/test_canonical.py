"""The quick writer of canonical JSON: the bytes of the slow one, or no answer."""

from __future__ import annotations

import json
import math

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as any_of

from appliance.errors import RecordFormError
from appliance.records.journal import Reading
from appliance.records.json import (
    USUAL_LEAST,
    USUAL_MOST,
    UnusualError,
    _is_written_alike,
    from_json,
    quick,
    to_json,
)

SCALARS = (
    any_of.none()
    | any_of.booleans()
    | any_of.integers(-(2**53) + 1, 2**53 - 1)
    | any_of.floats(allow_nan=False, allow_infinity=False)
    | any_of.floats(1e-7, 1e22)
    | any_of.integers(-(10**6), 10**6).map(float)
    | any_of.text(max_size=9)
)
DATA = any_of.recursive(
    SCALARS,
    lambda one: (
        any_of.lists(one, max_size=4)
        | any_of.dictionaries(any_of.text(max_size=6), one, max_size=4)
    ),
    max_leaves=12,
)


@given(DATA)
def test_it_writes_what_the_slow_one_writes_or_leaves_it(data: object) -> None:
    try:
        written = quick(data)
    except UnusualError:
        return
    assert written == rfc8785.dumps(data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        2**53,
        ["\x000.5", 1e-7],
        {"\x001": 1e-7},
        "caf\u00e9",
        {"\ufb33": 1},
    ],
)
def test_what_others_write_otherwise_is_left(value: object) -> None:
    with pytest.raises(UnusualError):
        quick([value])


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (-0.0, b"0"),
        (1.755e9, b"1755000000"),
        (USUAL_LEAST, b"0.0001"),
        (0.1, b"0.1"),
        (USUAL_LEAST / 2, b"0.00005"),
        (1e-6, b"0.000001"),
        (-1.5e-7, b"-1.5e-7"),
        (USUAL_MOST, b"1000000000000000"),
        (-1e20, b"-100000000000000000000"),
        (1e21, b"1e+21"),
        ("\x001", b'"\\u00001"'),
        (["\\u00001", 0.5], b'["\\\\u00001",0.5]'),
        ("\x7f\x1f\n/", b'"\x7f\\u001f\\n/"'),
    ],
)
def test_usual_values_are_written(value: object, written: bytes) -> None:
    assert quick(value) == written == rfc8785.dumps(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        (b'"a":1', b'"a":1.0'),
        (b'"a":1', b'"a":1e0'),
        (b'"a":1', b'"a": 1'),
        (b'"a":1', b'"\\u0061":1'),
        (b'"a":1', b'"a":1,"a":1'),
        (b'"a":1,"b":2.5', b'"b":2.5,"a":1'),
        (b'"b":2.5', b'"b":2.50'),
    ],
)
def test_a_record_in_any_other_form_is_refused(usual: bytes, other: bytes) -> None:
    text = to_json(Reading(launch="x@cpu:0/1", device="cpu:0", values={"a": 1.0, "b": 2.5}))
    assert from_json(Reading, text, name="it").values == {"a": 1.0, "b": 2.5}
    assert text.count(usual) == 1
    with pytest.raises(RecordFormError, match="canonical form"):
        from_json(Reading, text.replace(usual, other), name="it")


@given(DATA)
def test_what_is_taken_as_written_is_what_the_slow_one_writes(data: object) -> None:
    written = json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    text = written.encode("utf-8", "replace")
    if _is_written_alike(data, text):
        assert text == rfc8785.dumps(data)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", ["1.0", "-0.0", "1e-05", "1e+16", "9007199254740993", "1e15"])
def test_a_number_in_another_form_is_never_taken_as_written(number: str) -> None:
    for text in (f'{{"a":{number}}}', f"[{number},1]", f"[1,{number}]", number + " "):
        assert not _is_written_alike(json.loads(text), text.encode())
    assert _is_written_alike({"a": 1.5, "b": ["1.05x", 7]}, b'{"a":1.5,"b":["1.05x",7]}')
