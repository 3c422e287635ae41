"""The generator in each library gives the host's bits, and the account of what a launch drew."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.interpreted import interpreted

from appliance.generator import drawing, philox
from appliance.generator.maps import NORMAL, UNIFORM, WORDS, Map, integers
from workloads.contract.target import Artifacts, Target
from workloads.parts.drawing import device_tensors, device_words, drawn
from workloads.parts.drawing.drawn import Draws, HostDraws

HOST = torch.device("cpu")
KEY = (2**64 - 5, 0xF7FF_FFFF_FFFF_FF01)
BLOCKS = 517
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
KINDS = [
    (NORMAL, torch.float64),
    (NORMAL, torch.float32),
    (NORMAL, torch.bfloat16),
    (NORMAL, torch.float16),
    (NORMAL, torch.float8_e4m3fn),
    (UNIFORM, torch.float32),
    (UNIFORM, torch.float64),
    (UNIFORM, torch.bfloat16),
    (integers(-127, 127), torch.int8),
    (integers(-255, 255), torch.bfloat16),
    (integers(0, 2**24 - 1), torch.float32),
    (WORDS, torch.int64),
]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(INTEGERS[tensor.element_size()])


def expected(first: int) -> np.ndarray:
    return philox.words(KEY, 4 * first, 4 * BLOCKS).reshape(-1, 4)


@pytest.mark.parametrize("first", [0, 2**33 + 1])
def test_torch_makes_the_words_of_numpy(first: int) -> None:
    words = device_words.words(KEY, first, BLOCKS, HOST)
    assert np.array_equal(words.numpy().view(np.uint64), expected(first))


def test_torch_gives_the_known_answers() -> None:
    assert device_words.answers(HOST) == [answer for _, _, answer in philox.ANSWERS]


@pytest.mark.parametrize("first", [0, 2**33 + 1])
def test_jax_makes_the_words_of_numpy(first: int) -> None:
    pytest.importorskip("jax")
    from workloads.parts.drawing import jax_words  # noqa: PLC0415 - imports JAX

    words = np.ascontiguousarray(jax_words.words(KEY, first, BLOCKS))
    assert np.array_equal(words.view(np.uint64)[..., 0], expected(first))


TRITON = """
import hashlib
import torch
from workloads.parts.drawing import triton_words

words = triton_words.words(KEY, FIRST, BLOCKS, torch.device("cpu"))
print(hashlib.sha256(words.numpy().tobytes()).hexdigest())
"""


@pytest.mark.parametrize("first", [0, 2**33 + 1])
def test_triton_makes_the_words_of_numpy(first: int) -> None:
    digests = interpreted(TRITON, KEY=KEY, FIRST=first, BLOCKS=BLOCKS)
    assert digests == [hashlib.sha256(expected(first).tobytes()).hexdigest()]


@pytest.mark.parametrize(("values", "dtype"), KINDS, ids=str)
def test_a_device_draws_the_bits_of_the_host(values: Map, dtype: torch.dtype) -> None:
    one = drawn.described(5, "x", values, dtype, (703, 517))
    host, device = drawn.on_host(one), drawn.drawn_by_device(one, HOST)
    assert device.dtype == dtype
    assert torch.equal(bits(host), bits(device))
    assert torch.equal(bits(drawn.rows_on_host(one, 700, 2)), bits(host[700:702]))
    assert drawn.checksum(one, device) == drawing.checksum(one)
    runs = drawing.sampled_runs(one)
    assert device_tensors.checksums([device], [runs]) == [drawing.checksum(one)]


def test_tensors_that_a_device_draws_together_are_those_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one of each kind, of other shapes, and one that goes alone because it is large."""
    monkeypatch.setattr(drawn, "is_drawn_by_host", lambda _: False)
    monkeypatch.setattr(device_tensors, "TOGETHER", 3000)
    monkeypatch.setattr(device_tensors, "SUMMED", 200)
    shapes = [(703, 517), (3, 5, 7), (1,), (257,)]
    wanted = [
        (f"{place} {shape}", values, dtype, shape)
        for shape in shapes
        for place, (values, dtype) in enumerate(KINDS)
    ]
    one = Draws(target=target(tmp_path), seed=5)
    one.expect([*wanted, ("never asked for", NORMAL, torch.float32, (9,))])
    made = [one.tensor(*each) for each in wanted]
    alone = [HostDraws(seed=5).tensor(*each) for each in wanted]
    assert [bits(each).tolist() for each in made] == [bits(each).tolist() for each in alone]
    assert [each.untyped_storage().nbytes() for each in made] == [each.nbytes for each in made]
    assert [each.drawn.name for each in one.target.drawn] == [each[0] for each in wanted]
    assert all(each.checksum == drawing.checksum(each.drawn) for each in one.target.drawn)


def test_a_wrong_element_of_tensors_that_are_summed_up_together_shows_in_its_own_sum() -> None:
    described = [drawn.described(5, name, NORMAL, torch.float32, (300, 301)) for name in "abc"]
    tensors = [drawn.on_host(one) for one in described]
    first = drawing.sampled_runs(described[1])[3][0]
    tensors[1].view(-1).view(torch.int32)[first] ^= 1
    sums = device_tensors.checksums(tensors, [drawing.sampled_runs(one) for one in described])
    is_right = [sums[n] == drawing.checksum(one) for n, one in enumerate(described)]
    assert is_right == [True, False, True]


def test_pieces_of_a_large_tensor_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "AT_ONCE", 16)
    one = drawn.described(5, "x", NORMAL, torch.bfloat16, (61, 67))
    assert torch.equal(bits(drawn.drawn_by_device(one, HOST)), bits(drawn.on_host(one)))


def test_permutations_hold_every_number_once() -> None:
    order = drawn.permutation(5, "rows", 1000)
    assert sorted(order.tolist()) == list(range(1000))
    assert order.tolist() != drawn.permutation(6, "rows", 1000).tolist()


# ------------------------------------------------------------------ the account


def target(folder: Path) -> Target:
    return Target(device=HOST, artifacts=Artifacts(folder))


def test_inputs_as_drawn_are_within(tmp_path: Path) -> None:
    where = target(tmp_path)
    Draws(target=where, seed=3).tensor("x", NORMAL, torch.bfloat16, (300, 300))
    assert [(check.name, check.error) for check in drawn.checks(where)] == [
        ("known answers of the input generator", 0),
        ("inputs as drawn", 0),
    ]


def test_what_draws_nothing_has_no_checks_of_inputs(tmp_path: Path) -> None:
    assert list(drawn.checks(target(tmp_path))) == []


@pytest.mark.parametrize("bit", [0, 7, 15])
def test_one_flipped_bit_of_an_input_is_found_and_named(bit: int, tmp_path: Path) -> None:
    where = target(tmp_path)
    tensor = Draws(target=where, seed=3).tensor("left 0", NORMAL, torch.bfloat16, (200, 300))
    tensor.view(torch.int16)[77, 5] ^= -(2**15) if bit == 15 else 2**bit
    (summed,) = where.drawn
    where.drawn[0] = replace(summed, checksum=drawn.checksum(summed.drawn, tensor))
    *_, check = drawn.checks(where)
    assert (check.name, check.error, check.is_within) == (
        "inputs as drawn",
        1,
        False,
    )
    assert check.detects_what.endswith('"left 0" differs')


def test_a_device_with_other_answers_fails_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device whose upper halves of products are off by one, as it would read its memory."""
    wrong = [(0, 0, 0, 0)] + [answer for _, _, answer in philox.ANSWERS[1:]]
    monkeypatch.setattr(device_words, "answers", lambda _: wrong)
    other = torch.device("meta")
    drawn.num_wrong_answers.cache_clear()
    try:
        where = replace(target(tmp_path), device=other)
        where.drawn.append(
            drawing.Summed(drawn.described(3, "x", NORMAL, torch.float32, (4, 4)), 0)
        )
        check, *_ = drawn.checks(where)
    finally:
        drawn.num_wrong_answers.cache_clear()
    assert (check.name, check.error, check.is_within) == (
        "known answers of the input generator",
        1,
        False,
    )
