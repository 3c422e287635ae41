"""Files of strangers are read in a child: records come back, refusals and deaths are sentences."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import pytest

from appliance.errors import BenchError, EvidenceError, UsageError
from appliance.ipc import confined_child, confined_reader
from appliance.records.json import sha256, to_json
from appliance.records.order import Order, OrderLine
from appliance.records.qualified import Qualified

ORDER = Order(
    schema="bench/order/1",
    name="an order",
    summary="for tests",
    line=(OrderLine(title="memory", field="memory_bytes", op=">=", value=1),),
)


def test_a_record_comes_back_from_another_process() -> None:
    def work() -> Order:
        assert confined_child.is_confined()
        assert os.getpid() != here
        return ORDER

    here = os.getpid()
    assert confined_reader.record(Order, "order.toml", work) == ORDER
    assert not confined_child.is_confined()


def test_within_a_child_nothing_is_forked_again() -> None:
    def work() -> bytes:
        one = confined_reader.record(Order, "order.toml", lambda: ORDER)
        return sha256(to_json(one)).encode()

    assert confined_reader.content("all", work) == sha256(to_json(ORDER)).encode()


def test_what_refuses_a_file_is_said_as_it_was() -> None:
    def work() -> Order:
        raise EvidenceError("order.toml is none")

    with pytest.raises(EvidenceError, match=r"^order\.toml is none$"):
        confined_reader.record(Order, "order.toml", work)


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (lambda: bytes(confined_reader.MEMORY_BYTES), "takes more memory than"),
        (lambda: ctypes.string_at(0), "what reads it ended"),
        (lambda: os._exit(3), "what reads it ended"),
    ],
    ids=["memory", "fault", "end"],
)
@pytest.mark.parametrize("death", [UsageError, EvidenceError])
def test_a_child_that_dies_is_one_sentence(
    work: Callable[[], bytes], reason: str, death: type[BenchError]
) -> None:
    with pytest.raises(death, match=rf"^order\.toml was given up: .*{reason}"):
        confined_reader.content("order.toml", work, death=death)


def test_a_number_that_canonical_json_lacks_is_refused() -> None:
    def work() -> dict[str, int]:
        return {"one": 2**60}

    with pytest.raises(UsageError, match=r"b\.json has a number that no such file has"):
        confined_reader.record(dict[str, int], "b.json", work)
    assert confined_reader.record(Qualified, "q.json", lambda: Qualified(record=())).record == ()
