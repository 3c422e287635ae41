"""Digests, checksums and chain: what they are, that no fault escapes, that no healthy block fails.

Faults are injected into 10,000 matrices of each kind, which are digested together: the row
checksums of a stack of matrices are those of each of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from support.interpreted import interpreted
from support.operators import Operators

from workloads.burn_in import BurnIn
from workloads.contract.target import Artifacts, Target
from workloads.parts.memory import abft, chain
from workloads.parts.memory.digests import (
    Scratch,
    Weights,
    combine,
    digest,
    digest_into,
    make_weights,
    on_host,
    row_checksums,
)
from workloads.parts.memory.planted_faults import SHARES, Planter

CPU = torch.device("cpu")
NUM_FAULTS = 10_000
AT_ONCE = 1_000
SHAPE = (24, 32)
WORDS = {2: torch.int16, 4: torch.int32}
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int32]
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
by_way = pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "bytes"])

pytestmark = pytest.mark.usefixtures("one_thread")


def weights_for(
    shape: tuple[int, int], dtype: torch.dtype, *, is_plain: bool = False, seed: int = 5
) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    weights = make_weights(shape, dtype, generator, CPU, is_plain=is_plain)
    assert (weights.digits is None) == is_plain
    return weights


def random_words(shape: tuple[int, ...], dtype: torch.dtype, rng: torch.Generator) -> torch.Tensor:
    """Any bits, NaN and infinities among them."""
    drawn = torch.randint(-(2**31), 2**31, shape, generator=rng)
    return drawn.to(WORDS[dtype.itemsize])


def digests_of(words: torch.Tensor, dtype: torch.dtype, weights: Weights) -> torch.Tensor:
    """Digests of a stack of matrices (count, m, n): (count, 2)."""
    count, m, n = words.shape
    sums = row_checksums(words.reshape(count * m, n).view(dtype), weights)
    return (sums.view(count, m, 2) * weights.rows.T).sum(1)


# ------------------------------------------------------------------ what a digest is


@by_dtype
@by_way
def test_digest_is_the_weighted_sum_of_the_words_signed_bytes(
    dtype: torch.dtype,
    is_plain: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    weights = weights_for(SHAPE, dtype, is_plain=is_plain)
    words = random_words(SHAPE, dtype, torch.Generator().manual_seed(1))
    size = dtype.itemsize

    def number(word: int) -> int:
        octets = (word % 2 ** (8 * size)).to_bytes(size, "little")
        return sum((one - 256 * (one > 127)) << (8 * place) for place, one in enumerate(octets))

    exact = [
        sum(
            number(int(words[i, j])) * int(weights.rows[q, i]) * int(weights.columns[q, j])
            for i in range(SHAPE[0])
            for j in range(SHAPE[1])
        )
        % 2**64
        for q in range(2)
    ]
    result = digest(words.view(dtype), weights)
    assert [int(one) % 2**64 for one in result] == exact


def test_weights_are_odd_and_the_two_digests_independent() -> None:
    weights = weights_for((64, 64), torch.float32)
    assert bool((weights.rows % 2 != 0).all())
    assert bool((weights.columns % 2 != 0).all())
    assert not bool((weights.rows[0] == weights.rows[1]).any())


@pytest.mark.parametrize("shape", [(257, 300), (512, 1001), (64, 4096)])
@by_dtype
def test_both_ways_and_the_host_give_one_digest(shape: tuple[int, int], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(7)
    weights = make_weights(shape, dtype, generator, CPU)
    matrix = random_words(shape, dtype, generator).view(dtype)
    assert torch.equal(digest(matrix, weights), digest(matrix, on_host(weights)))


def test_device_whose_product_of_bytes_is_wrong_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    true = torch._int_mm
    monkeypatch.setattr(torch, "_int_mm", lambda one, two: true(one, two) + 1)
    weights = make_weights(SHAPE, torch.float32, torch.Generator().manual_seed(5), CPU)
    assert weights.digits is None


# ------------------------------------------------------------------ no fault escapes

Fault = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def flipped(words: torch.Tensor, rng: torch.Generator, counts: range) -> torch.Tensor:
    """So many bits of each matrix flipped, anywhere; the first bit in turn is every position."""
    count, size, bits = len(words), words[0].numel(), 8 * words.element_size()
    wrong = words.reshape(count, size).clone().long()
    number = torch.randint(counts.start, counts.stop, (count,), generator=rng)
    places = torch.stack([torch.randperm(size, generator=rng)[: counts.stop] for _ in range(count)])
    chosen = torch.randint(0, bits, places.shape, generator=rng)
    chosen[:, 0] = torch.arange(count) % bits
    for nth in range(counts.stop - 1):
        is_hit = nth < number
        mask = torch.where(is_hit, 1 << chosen[:, nth], 0)
        wrong[torch.arange(count), places[:, nth]] ^= mask
    return wrong.to(torch.int64).to(words.dtype).view_as(words)


def lanes(words: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Which elements a lane that recurs in every row, or in every few, touches."""
    count, m, n = words.shape
    period = 2 ** torch.randint(1, 6, (count, 1, 1), generator=rng)
    row_period = torch.randint(1, 5, (count, 1, 1), generator=rng)
    offset = torch.randint(0, 32, (count, 1, 1), generator=rng) % period
    columns = torch.arange(n) % period == offset
    return columns & (torch.arange(m).view(1, m, 1) % row_period == 0)


def lane_flipped(words: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    bits = 8 * words.element_size()
    mask = 1 << torch.randint(0, bits, (len(words), 1, 1), generator=rng)
    return torch.where(lanes(words, rng), words.long() ^ mask, words.long()).to(words.dtype)


def lane_zeroed(words: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    return words.masked_fill(lanes(words, rng), 0)


def tile_stale(words: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """A tile of 8 x 8 that still holds what the matrix before had there."""
    count, m, n = words.shape
    top = torch.randint(0, m // 8, (count, 1, 1), generator=rng) * 8
    left = torch.randint(0, n // 8, (count, 1, 1), generator=rng) * 8
    rows, columns = torch.arange(m).view(1, m, 1), torch.arange(n).view(1, 1, n)
    is_in = (rows >= top) & (rows < top + 8) & (columns >= left) & (columns < left + 8)
    return torch.where(is_in, words.roll(1, 0), words)


FAULTS: dict[str, Fault] = {
    "one bit": functools.partial(flipped, counts=range(1, 2)),
    "two to eight bits": functools.partial(flipped, counts=range(2, 9)),
    "a lane's bit, periodic": lane_flipped,
    "a lane zeroed": lane_zeroed,
    "a tile stale": tile_stale,
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(("one bit", dtype) for dtype in DTYPES),
        # the others differ by the width of the words alone
        *((name, dtype) for name in list(FAULTS)[1:] for dtype in DTYPES[:2]),
    ],
    ids=str,
)
def test_no_fault_of_ten_thousand_escapes(name: str, dtype: torch.dtype) -> None:
    weights = weights_for(SHAPE, dtype)
    rng = torch.Generator().manual_seed(11)
    result = injected = 0
    for _ in range(NUM_FAULTS // AT_ONCE):
        words = random_words((AT_ONCE, *SHAPE), dtype, rng)
        wrong = FAULTS[name](words, rng)
        injected += int((wrong != words).any(2).any(1).sum())
        right, seen = (digests_of(one, dtype, weights) for one in (words, wrong))
        result += int((right != seen).any(1).sum())
    assert injected > 0.99 * NUM_FAULTS  # a lane may have been zero already
    assert result == injected


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_one_bit_alters_each_of_the_two_digests(dtype: torch.dtype) -> None:
    """An odd weight has an inverse, so either alone would do, at every position of every word."""
    weights = weights_for(SHAPE, dtype)
    words = random_words((1, *SHAPE), dtype, torch.Generator().manual_seed(3))
    right = digests_of(words, dtype, weights)
    for bit in range(8 * dtype.itemsize):
        wrong = words.expand(words[0].numel() // 4, -1, -1).clone().long()
        flat = wrong.view(len(wrong), -1)
        flat[:, bit % 4 :: 4].diagonal().bitwise_xor_(1 << bit)
        assert bool((digests_of(wrong.to(words.dtype), dtype, weights) != right).all())


def test_ten_thousand_healthy_blocks_raise_no_alarm(tmp_path: object) -> None:
    workload = BurnIn(
        size=16, chain_size=16, formats="bfloat16", memory_bytes=2**20, lanes=1, rounds=834
    )
    state = workload.build(Target(device=CPU, artifacts=Artifacts(tmp_path)), 3)  # type: ignore[arg-type]
    workload.step(state)  # one round
    checks = list(workload.check(None, state, workload.step(state)))
    (burnt,) = state.formats
    assert state.lanes[0].tallies[0].num_rounds * len(burnt.slots) > NUM_FAULTS
    assert [check.name for check in checks if not check.is_within] == []


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize("kind", SHARES)
def test_no_planted_fault_of_any_kind_escapes_the_shipped_digest(
    kind: str, dtype: torch.dtype
) -> None:
    """A sample of what scripts/silent_corruption.py plants by the million."""
    rng = torch.Generator().manual_seed(5)
    product, stale = (torch.randn(63, 64, generator=rng).to(dtype) for _ in range(2))
    weights = weights_for((63, 64), dtype)
    right, kept = digest(product, on_host(weights)), product.clone()
    planter = Planter(stale=stale, seed=1)
    for _ in range(200):
        planter.plant(kind, product)
        assert not torch.equal(digest(product, weights), right)
        product.copy_(kept)


def test_planted_faults_have_the_shares_that_were_published() -> None:
    """Under 40 % single bits and 1 % NaN or infinity (arXiv 2605.04213)."""
    assert sum(SHARES.values()) == pytest.approx(1.0)
    assert SHARES["one bit"] < 0.4
    assert SHARES["NaN or infinity"] == 0.01


# ------------------------------------------------------------------ where it is


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_one_wrong_element_is_located(dtype: torch.dtype) -> None:
    weights = weights_for((100, 64), dtype)
    right = torch.randn(100, 64, generator=torch.Generator().manual_seed(2)).to(dtype)
    wrong = right.clone()
    wrong.view(WORDS[dtype.itemsize])[37, 11] ^= 1
    tile = abft.locate(wrong, right, weights)
    assert str(tile) == "row 37, column 11"
    assert abft.locate(right, right, weights) is None


def test_wrong_tile_is_located_with_its_gaps() -> None:
    weights = weights_for((100, 64), torch.float32)
    right = torch.randn(100, 64, generator=torch.Generator().manual_seed(2))
    wrong = right.clone()
    wrong[16:32, 8:24:2] += 1
    assert str(abft.locate(wrong, right, weights)) == "rows 16 to 31, columns 8 to 22 (8 of them)"


def test_column_checksums_are_the_row_checksums_of_the_transpose() -> None:
    weights = weights_for((40, 24), torch.float32, is_plain=True)
    turned = Weights(rows=weights.columns, columns=weights.rows)
    matrix = torch.randn(40, 24, generator=torch.Generator().manual_seed(2))
    result = abft.column_checksums(matrix, weights)
    assert torch.equal(result, row_checksums(matrix.T.contiguous(), turned))
    assert torch.equal(combine(result, turned), digest(matrix, weights))


# ------------------------------------------------------------------ the chain


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_verifier_recomputes_the_chain_of_a_device(dtype: str) -> None:
    links = chain.Chain.make(48, dtype, 9, CPU)
    keys = [torch.tensor([chain.first_key(9)])]
    for _ in range(5):
        keys.append(links.link(keys[-1])[1])
    assert [int(key) for key in keys] == chain.recompute(48, dtype, 9, 5)
    assert chain.recompute(48, dtype, 10, 5)[1] != int(keys[1])


def test_inputs_of_a_link_depend_on_every_bit_of_the_key_before() -> None:
    links = chain.Chain.make(32, "bfloat16", 9, CPU)
    left, _ = links.operands(torch.tensor([0]))
    for bit in range(64):
        key = torch.tensor([1 << bit if bit < 63 else -(2**63)])
        other, _ = links.operands(key)
        assert float((left != other).double().mean()) > 0.9


@pytest.mark.parametrize(
    ("dtype", "inner", "magnitude"),
    [
        (torch.bfloat16, 4096, 255),
        (torch.bfloat16, 16384, 184),
        (torch.float16, 4096, 15),
        (torch.float32, 256, 255),
    ],
)
def test_whole_numbers_leave_every_sum_exact(
    dtype: torch.dtype, inner: int, magnitude: int
) -> None:
    """Eight standard deviations stay inside 70 % of what the accumulator or the dtype holds."""
    assert chain.largest_magnitude(dtype, inner) == magnitude
    largest = min(2.0**24, torch.finfo(dtype).max)
    assert 8 * magnitude * (magnitude + 1) / 3 * inner**0.5 <= 0.7 * largest


# ------------------------------------------------------------------ read once


@by_dtype
def test_product_is_digested_by_three_kernels_of_which_one_reads_it(dtype: torch.dtype) -> None:
    weights = weights_for((64, 48), dtype)
    matrix = random_words((64, 48), dtype, torch.Generator().manual_seed(1)).view(dtype)
    out, scratch = torch.zeros(2, dtype=torch.int64), Scratch.make(64, CPU)
    with Operators() as seen:
        digest_into(matrix, weights, out, scratch)
    assert seen.names == ["aten::_int_mm.out", "aten::mul.out", "aten::sum.IntList_out"]
    assert torch.equal(out, digest(matrix, on_host(weights)))


def test_words_of_any_two_places_have_weights_that_differ_by_more_than_a_word() -> None:
    """So two words that changed places alter the first digest, whatever they are."""
    weights = weights_for((512, 1024), torch.float32, is_plain=True)
    products = weights.rows[0].view(-1, 1) * weights.columns[0]
    assert len(set((products & (2**32 - 1)).flatten().tolist())) == products.numel()


def test_two_words_that_changed_places_alter_the_first_digest() -> None:
    weights = weights_for(SHAPE, torch.float32)
    words = random_words((2_000, *SHAPE), torch.float32, torch.Generator().manual_seed(3))
    wrong = words.view(2_000, -1).clone()
    rng = torch.Generator().manual_seed(4)
    places = torch.stack([torch.randperm(wrong.shape[1], generator=rng)[:2] for _ in wrong])
    # the worst case: they differ in their top bit alone
    wrong.scatter_(1, places, wrong.gather(1, places[:, :1]) ^ torch.tensor([[0, -(2**31)]]).int())
    swapped = wrong.clone().scatter_(1, places, wrong.gather(1, places.flip(1)))
    right, seen = (
        digests_of(one.view_as(words), torch.float32, weights) for one in (wrong, swapped)
    )
    assert bool((right[:, 0] != seen[:, 0]).all())


TRITON = """
import torch
from workloads.parts.memory.digests import digest, make_weights, on_host

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(7)
for name in NAMES:
    dtype = getattr(torch, name)
    weights = make_weights((33, 270), dtype, generator, torch.device("cpu"))
    matrix = torch.randint(-(2**62), 2**62, (33, 270), generator=generator).double().to(dtype)
    assert weights.way == "kernel"
    assert torch.equal(digest(matrix, weights), digest(matrix, on_host(weights))), name
    print(name)
"""
"""On a shape that ends inside a block."""


def test_triton_kernel_gives_the_same_bits() -> None:
    names = [str(dtype).removeprefix("torch.") for dtype in (*DTYPES, torch.float64)]
    assert interpreted(TRITON, NAMES=names) == names
