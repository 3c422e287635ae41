"""Records to JSON and back: nothing changes on the way, and nothing else is read."""

import dataclasses
import functools
import importlib
import json
import math
import pkgutil
import typing
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance import records
from appliance.errors import ApplianceError, EvidenceError
from appliance.records import json as records_json
from appliance.records.journal import Check, LaunchEnded
from appliance.records.json import Record, from_json, to_json
from appliance.records.system import Fact
from appliance.records.workload import Work

KINDS = sorted(
    {
        item
        for name in pkgutil.iter_modules(records.__path__)
        for item in vars(importlib.import_module(f"appliance.records.{name.name}")).values()
        if isinstance(item, type) and issubclass(item, Record) and item is not Record
    },
    key=lambda kind: kind.__name__,
)
ENDED = LaunchEnded(
    launch="gemm@cpu:0/1",
    outcome="completed",
    reason="",
    detail="",
    exit_code=0,
    wall_ns=2**60,
    peak_memory_bytes=None,
)
TEXT = to_json(ENDED)

# ------------------------------------------------------------------ any record

SAFE = 2**53 - 1
NUMBERS = st.floats()
TEXTS = st.sampled_from(["", "a", "nan", "\u20ac\U0001f9ea", '"\\\n\x00', "\u2028", "x" * 40])
BIG_INTS = st.integers(-(10**19) + 1, 10**19 - 1)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-SAFE, SAFE),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["nan", "inf", "-inf", "1", "true", 2.0**53, 2.0**60, 1e300]),
)
PLAIN: dict[object, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: st.integers(-SAFE, SAFE),
    bool: st.booleans(),
    type(None): st.none(),
    records_json.Number: NUMBERS,
    records_json.BigInt: BIG_INTS,
    records_json.Scalar: SCALARS,
}


@functools.cache
def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values that the annotation allows."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in PLAIN:
        result = PLAIN[hint]
    elif isinstance(hint, type) and issubclass(hint, Record):
        hints = typing.get_type_hints(hint, include_extras=True)
        result = st.fixed_dictionaries(
            {item.name: values(hints[item.name]) for item in dataclasses.fields(hint)}
        ).map(lambda fields: hint(**fields))
    elif origin is typing.Literal:
        result = st.sampled_from(arguments)
    elif origin is typing.Annotated:
        result = values(arguments[0])
    elif origin is tuple and Ellipsis not in arguments:
        result = st.tuples(*map(values, arguments))
    elif origin is tuple:
        result = st.lists(values(arguments[0]), max_size=2).map(tuple)
    elif origin is Mapping:
        keys = TEXTS if arguments[0] is str else values(arguments[0])
        result = st.dictionaries(keys, values(arguments[1]), max_size=2)
    elif set(typing.get_args(records_json.Scalar)) < set(arguments):  # Scalar | None, or a list
        others = [item for item in arguments if item not in typing.get_args(records_json.Scalar)]
        result = st.one_of(SCALARS, *map(values, others))
    else:
        result = st.one_of([values(argument) for argument in arguments])
    return result


def comparable(value: object) -> object:
    """The same value, in which NaN equals NaN and a number differs from a text."""
    if dataclasses.is_dataclass(value):
        return [comparable(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [comparable(item) for item in value]
    return ("not a number",) if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_record_comes_back_as_it_was(kind: type[Record]) -> None:
    validator = jsonschema.Draft202012Validator(records_json.adapter(kind).json_schema())

    @settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
    @given(record=values(kind))
    def comes_back(record: object) -> None:
        text = to_json(record)
        assert comparable(from_json(kind, text, name="x")) == comparable(record)
        validator.validate(json.loads(text))

    comes_back()


# ------------------------------------------------------------------ numbers and texts


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", "NaN", "1", "true", "null"])
def test_a_text_that_looks_like_a_number_stays_a_text(word: str) -> None:
    value = from_json(Fact, to_json(Fact(value=word)), name="x").value
    assert (value, type(value)) == (word, str)


@pytest.mark.parametrize(
    ("value", "written"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")]
)
def test_a_number_that_is_not_finite_is_written_as_a_word(value: float, written: str) -> None:
    text = to_json(Check(name="x", error=value, bound=1.0))
    assert json.loads(text)["error"] == written
    assert not from_json(Check, text, name="x").is_within


def test_whole_numbers_that_json_cannot_hold_are_texts_or_floats() -> None:
    assert json.loads(TEXT)["wall_ns"] == str(2**60)
    assert to_json(Work(flops=2**70)) == to_json(Work(flops=float(2**70)))


@pytest.mark.parametrize("value", [math.nan, math.inf, 2**53 + 1, "\udcff"])
def test_what_json_cannot_say_is_one_sentence_and_not_a_traceback(value: float | str) -> None:
    with pytest.raises(ApplianceError, match="a record Fact cannot be written"):
        to_json(Fact(value=value))


# ------------------------------------------------------------------ refusals


def changed(**changes: object) -> bytes:
    data = {**json.loads(TEXT), **changes}
    kept = {key: value for key, value in data.items() if value is not ...}
    return json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()


def test_the_refusals_below_begin_with_what_is_read() -> None:
    assert from_json(LaunchEnded, changed(), name="x") == ENDED


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (changed(wall=1), "wall"),
        (changed(outcome=...), "outcome"),
        (changed(outcome="passed"), "outcome"),
        (changed(kind="launch_started"), "kind"),
        (changed(wall_ns=5), "wall_ns"),
        (changed(wall_ns="05"), "wall_ns"),
        (changed(wall_ns="+5"), "wall_ns"),
        (changed(wall_ns="-0"), "wall_ns"),
        (changed(wall_ns="1" * 20), "wall_ns"),
        (changed(wall_ns="1" * 5000), "wall_ns"),
        (changed(wall_ns="\u0661"), "wall_ns"),
        (changed(exit_code="0"), "exit_code"),
        (changed(exit_code=0.5), "exit_code"),
        (changed(exit_code=True), "exit_code"),
        (changed(exit_code=2**60), "canonical"),
        (changed(peak_memory_bytes=[]), "peak_memory_bytes"),
        (TEXT.replace(b'"exit_code":0,', b'"exit_code":0,"exit_code":0,'), "canonical"),
        (TEXT.replace(b'"exit_code":0', b'"exit_code":0.0'), "exit_code"),
        (TEXT + b"\n", "canonical"),
        (b" " + TEXT, "canonical"),
        (TEXT[:-1], "the file"),
        (TEXT.replace(b"gemm", b"g\xffmm"), "the file"),
        (b"", "the file"),
        (b"[]", "the file"),
        (b"[" * 100_000, "the file"),
    ],
)
def test_what_is_not_exactly_a_record_is_refused_in_one_sentence(text: bytes, named: str) -> None:
    with pytest.raises(EvidenceError, match=named) as refusal:
        from_json(LaunchEnded, text, name="journal.jsonl line 3")
    sentence = str(refusal.value)
    assert sentence.startswith("journal.jsonl line 3")
    assert "\n" not in sentence
    assert "pydantic" not in sentence


@pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"1e400"])
def test_numbers_that_are_not_json_are_refused(literal: bytes) -> None:
    text = to_json(Check(name="x", error=1.0, bound=1.0)).replace(
        b'"error":1', b'"error":' + literal
    )
    with pytest.raises(EvidenceError):
        from_json(Check, text, name="x")


# ------------------------------------------------------------------ within


@given(error=st.floats(), bound=st.floats())
def test_only_a_finite_error_up_to_a_finite_bound_is_within(error: float, bound: float) -> None:
    is_within = math.isfinite(error) and math.isfinite(bound) and 0.0 <= error <= bound
    assert Check(name="x", error=error, bound=bound).is_within == is_within
