"""Parts and whole tensors of drawn values, and the numbers that sum them up."""

import hashlib

import numpy as np
import pytest

from appliance.generator import drawing
from appliance.generator.drawing import Drawn, checksum, part, rows, sampled_runs, whole
from appliance.generator.formats import num_bytes
from appliance.generator.maps import NORMAL, UNIFORM, WORDS, Map, integers

KINDS = [
    (NORMAL, "float32"),
    (NORMAL, "bfloat16"),
    (NORMAL, "float8_e4m3fn"),
    (UNIFORM, "float64"),
    (integers(-127, 127), "int8"),
    (integers(0, 99_999), "int64"),
    (WORDS, "int64"),
]
DIGESTS = [
    (NORMAL, "float32", "1ef8ade2ce4a60c7"),
    (NORMAL, "bfloat16", "f0743bd18e17dd69"),
    (NORMAL, "float8_e4m3fn", "991435ebf42acd63"),
    (UNIFORM, "float64", "6999c0a5bef67277"),
    (UNIFORM, "bfloat16", "8095388ab2e748ee"),
    (integers(-127, 127), "int8", "24b9b69234eead9c"),
    (integers(0, 99_999), "int64", "a21e126e25e8d8c2"),
    (WORDS, "int64", "8449ee3172a717a1"),
]
"""First eight bytes of SHA-256, of tensors of SHAPE."""
SHAPE = (1013, 1051)  # more than one piece, and no row begins with a word


@pytest.mark.parametrize(("values", "dtype"), KINDS, ids=str)
def test_any_row_is_drawn_alone_as_in_the_whole(values: Map, dtype: str) -> None:
    drawn = Drawn(3, "x", values, dtype, SHAPE)
    tensor = whole(drawn, threads=2)
    assert tensor.shape == SHAPE
    assert tensor.itemsize == num_bytes(dtype)
    assert np.array_equal(rows(drawn, 500, 3), tensor[500:503])
    assert np.array_equal(part(drawn, drawn.count - 5, 5), tensor.ravel()[-5:])


def test_threads_change_nothing() -> None:
    drawn = Drawn(3, "x", NORMAL, "float16", SHAPE)
    assert np.array_equal(whole(drawn, threads=3), whole(drawn))


@pytest.mark.parametrize(("values", "dtype"), KINDS, ids=str)
def test_spans_of_many_pieces_hold_what_single_rows_do(
    values: Map, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "PIECE", 2**10)
    monkeypatch.setattr(drawing, "AT_ONCE", 2**7)
    monkeypatch.setattr(drawing, "COMPUTED", 2**7)
    monkeypatch.setattr(drawing, "WORTH_A_THREAD", 1)
    drawn = Drawn(3, "x", values, dtype, (41, 257))  # the last group is not whole
    tensor = whole(drawn, threads=2)
    assert all(np.array_equal(tensor[row], rows(drawn, row, 1)[0]) for row in range(41))
    assert np.array_equal(tensor[7:40], rows(drawn, 7, 33, threads=3))
    assert np.array_equal(whole(drawn), tensor)


def test_threads_share_a_tensor_out_and_end_together() -> None:
    spans = drawing._spans(2**26 + 5, threads=3)
    assert [span.start for span in spans] == [0, *(span.stop for span in spans[:-1])]
    assert spans[-1].stop == 2**26 + 5
    sizes = [span.stop - span.start for span in spans]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] <= 2**26 / 6 + drawing.PIECE
    assert sizes[-3:-1] == [drawing.PIECE] * 2


@pytest.mark.parametrize(("values", "dtype", "digest"), DIGESTS, ids=str)
def test_bits_of_whole_tensors_are_fixed_for_ever(values: Map, dtype: str, digest: str) -> None:
    """Records of older runs are verified by them."""
    bits = whole(Drawn(3, "x", values, dtype, SHAPE), threads=2)
    assert hashlib.sha256(np.ascontiguousarray(bits).tobytes()).hexdigest()[:16] == digest


def test_large_tensors_are_sampled_once_in_each_sixteenth() -> None:
    drawn = Drawn(3, "x", NORMAL, "float16", (2**15, 2**15))
    starts = [first for first, _ in sampled_runs(drawn)]
    assert [first * 16 // drawn.count for first in starts] == list(range(16))
    assert {count for _, count in sampled_runs(drawn)} == {drawing.RUN}
    assert starts != [
        first for first, _ in sampled_runs(Drawn(4, *list(vars(drawn).values())[1:5]))
    ]


def test_checksum_tells_seed_name_values_format_and_shape_apart() -> None:
    given = [
        Drawn(3, "x", NORMAL, "float16", (100, 7)),
        Drawn(4, "x", NORMAL, "float16", (100, 7)),
        Drawn(3, "y", NORMAL, "float16", (100, 7)),
        Drawn(3, "x", NORMAL, "float32", (100, 7)),
        Drawn(3, "x", UNIFORM, "float16", (100, 7)),
        Drawn(3, "x", NORMAL, "float16", (101, 7)),
    ]
    assert len({checksum(one) for one in given}) == len(given)


def test_checksum_is_fixed_for_ever() -> None:
    assert checksum(Drawn(3, "x", NORMAL, "bfloat16", (1024, 1024))) == 2771298069108303855
