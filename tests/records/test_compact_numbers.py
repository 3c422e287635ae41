"""Many numbers in little memory: what is read of a journal is equal to what was written."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from appliance.errors import RecordFormError
from appliance.records import json as records_json
from appliance.records.journal import Block, Reading
from appliance.records.json import MOST_SHARED, Readings, Times, from_json, to_json

WALLS = tuple(range(10**9, 10**9 + 5000, 7))
BLOCK = Block(
    launch="gemm@cpu:0/1",
    rank=0,
    index=0,
    first_step=2,
    wall_ns=WALLS,
    event_ns=None,
    block_wall_ns=sum(WALLS),
    block_raw_ns=sum(WALLS),
)
READING = Reading(
    launch="gemm@cpu:0/1", device="cpu:0", values={"kelvin": 300.5, "load": 0.0, "other": None}
)


@pytest.mark.parametrize("record", [BLOCK, READING])
def test_what_is_read_is_what_was_written(record: Block | Reading) -> None:
    text = to_json(record)
    read = from_json(type(record), text, name="it")
    assert read == record
    assert record == read
    assert to_json(read) == text


def test_times_are_read_as_a_tuple_is() -> None:
    read = from_json(Block, to_json(BLOCK), name="it").wall_ns
    assert isinstance(read, Times)
    assert (len(read), read[0], read[-1], read[1:3]) == (
        len(WALLS),
        WALLS[0],
        WALLS[-1],
        WALLS[1:3],
    )
    assert sum(read) == sum(WALLS)
    assert hash(read) == hash(WALLS)
    assert read != WALLS[:-1]
    assert np.array([read, read], dtype=np.float64).tolist() == [list(map(float, WALLS))] * 2


def test_times_take_a_fifth_of_the_memory() -> None:
    held = sys.getsizeof(Times(WALLS)._values)
    assert held < 0.25 * (sys.getsizeof(WALLS) + sum(map(sys.getsizeof, WALLS)))


def test_times_beyond_64_bits_are_left_as_they_are_read() -> None:
    text = to_json(BLOCK).replace(b'"1000000000"', b'"9999999999999999999"')
    assert from_json(Block, text, name="it").wall_ns[0] == 10**19 - 1
    with pytest.raises(RecordFormError):
        from_json(Block, text.replace(b'"9999999999999999999"', b'"x"'), name="it")


def test_names_and_repeated_values_are_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_json, "_PLACES", {})
    monkeypatch.setattr(records_json, "_FLOATS", {})
    one, other = (from_json(Reading, to_json(READING), name="it").values for _ in range(2))
    assert isinstance(one, Readings)
    assert isinstance(other, Readings)
    assert one._places is other._places
    assert one["kelvin"] is other["kelvin"]
    assert dict(one) == dict(READING.values)


def test_a_stranger_fills_no_memory_with_names() -> None:
    made = [Readings({f"name {number}": float(number)}) for number in range(2 * MOST_SHARED)]
    assert made[-1] == {f"name {2 * MOST_SHARED - 1}": 2.0 * MOST_SHARED - 1}
