"""Tests of memory on memory that errs: each kind of fault planted in real tensors, and none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from appliance.generator import philox
from workloads.parts.memory.memory_tests import (
    PAUSE,
    PIECES,
    REFRESH_SECONDS,
    TESTS,
    WHOLE,
    Memory,
    Patterns,
    Wrong,
    passes_of,
    read_pattern,
    run,
)
from workloads.parts.memory.planted_memory_faults import (
    Alias,
    Coupling,
    Fault,
    FaultyMemory,
    Flip,
    Leak,
    StuckBit,
    Transition,
)

CPU = torch.device("cpu")
SEED = 7
SIZE = 256
"""Words of a piece here, so that a small memory has several."""
FIRST = 3 * SIZE + 17
WORDS = 4 * SIZE + 30


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PIECES, "processors", SIZE)


def seen(test: str, *faults: Fault) -> tuple[int, list[int], FaultyMemory]:
    """Whether a test saw a fault, the first wrong word, and the memory."""
    words = torch.full((WORDS,), 0x0123456789ABCDEF)
    memory = FaultyMemory(words=words, first=FIRST, faults=faults)
    wrong = Wrong.make(CPU)
    run(test, memory, Patterns.make(CPU, SEED), wrong)
    return int(wrong.count), wrong.first.tolist(), memory


def who_sees(make: Callable[[], Fault]) -> set[str]:
    return {test for test in TESTS if seen(test, make())[0]}


@pytest.mark.parametrize("test", TESTS)
def test_healthy_memory_is_right_and_every_word_was_written(test: str) -> None:
    count, first, memory = seen(test)
    assert (count, first) == (0, [-1, 0, 0])
    assert not bool((memory.words == 0x0123456789ABCDEF).any())


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("address", [FIRST, 4 * SIZE, 4 * SIZE + 1, FIRST + WORDS - 1])
def test_every_test_sees_one_flipped_bit_of_any_word_and_says_where(
    test: str, address: int
) -> None:
    count, (place, word, code), _ = seen(test, Flip(address=address, mask=1 << 40, at_store=1))
    assert (count, place) == (1, address)
    name, pattern = read_pattern(code)
    assert name == test
    expected = Patterns.make(CPU, SEED).word(pattern, address)
    assert word ^ expected == 1 << 40


@pytest.mark.parametrize("bit", [0, 31, 63])
@pytest.mark.parametrize("is_one", [True, False])
def test_stuck_bit_is_seen_by_every_test_that_sets_and_clears_it(bit: int, is_one: bool) -> None:  # noqa: FBT001 - a parameter
    assert who_sees(lambda: StuckBit(address=5 * SIZE + 3, bit=bit, is_one=is_one)) == set(TESTS)


def test_bit_that_never_rises_again_is_seen_by_the_march() -> None:
    assert {"march C-", "walking ones"} <= who_sees(
        lambda: Transition(address=5 * SIZE + 4, bit=12)
    )


@pytest.mark.parametrize(("aggressor", "victim"), [(4 * SIZE, 6 * SIZE), (6 * SIZE, 4 * SIZE)])
def test_march_sees_words_that_disturb_one_another_in_both_directions(
    aggressor: int, victim: int
) -> None:
    assert "march C-" in who_sees(lambda: Coupling(aggressor=aggressor, victim=victim, bit=5))


@pytest.mark.parametrize("step", [1, -1])
def test_neighbour_that_is_written_later_is_seen_by_alternating_words(step: int) -> None:
    middle = 5 * SIZE + 8
    assert "alternating words" in who_sees(
        lambda: Coupling(aggressor=middle + step, victim=middle, bit=60)
    )


@pytest.mark.parametrize("distance", [1, SIZE, 2 * SIZE + 64])
def test_two_addresses_of_one_word_are_seen_by_addresses(distance: int) -> None:
    sees = who_sees(lambda: Alias(one=4 * SIZE, other=4 * SIZE + distance))
    assert "address" in sees
    assert "walking ones" not in sees  # every word is the same there


def test_cell_that_forgets_is_seen_by_the_test_that_rests_alone() -> None:
    assert who_sees(lambda: Leak(address=5 * SIZE, bit=2)) == {"retention"}
    assert PAUSE >= 4 * REFRESH_SECONDS == 0.256


def test_random_words_are_philox_and_differ_from_piece_to_piece() -> None:
    memory = Memory(words=torch.zeros(3 * SIZE, dtype=torch.int64))
    patterns = Patterns.make(CPU, SEED)
    run("random", memory, patterns, Wrong.make(CPU))
    pieces = (~memory.words).view(3, SIZE)  # it ends with the inverse
    drawn = philox.words(philox.key_of(SEED, "memory"), 0, SIZE)
    assert pieces[0].tolist() == drawn.view("int64").tolist()
    assert len(set(memory.words.tolist())) == 3 * SIZE
    other = Patterns.make(CPU, SEED + 1)
    assert [patterns.word("random", 5)] != [other.word("random", 5)]


def test_addresses_are_the_same_whichever_part_is_tested() -> None:
    memory = Memory(words=torch.zeros(WORDS, dtype=torch.int64), first=FIRST)
    run("address", memory, Patterns.make(CPU, SEED), Wrong.make(CPU))
    assert (~memory.words).tolist() == list(range(FIRST, FIRST + WORDS))
    assert memory.part(FIRST + 5, FIRST + 9).words.tolist() == memory.words[5:9].tolist()


def test_passes_are_counted_by_what_they_write_and_read() -> None:
    assert passes_of("march C-") == (5, 5)
    assert passes_of("walking ones") == (8, 8)
    assert passes_of("alternating words") == (2, 2)
    assert set(WHOLE) <= set(TESTS)


def test_first_wrong_word_stays_when_more_follow() -> None:
    memory = FaultyMemory(
        words=torch.zeros(WORDS, dtype=torch.int64),
        first=FIRST,
        faults=[StuckBit(address=FIRST + 9, bit=1), StuckBit(address=FIRST + 600, bit=1)],
    )
    patterns, wrong = Patterns.make(CPU, SEED), Wrong.make(CPU)
    for test in ("march C-", "checkerboard"):
        run(test, memory, patterns, wrong)
    assert int(wrong.count) == 2
    assert wrong.first.tolist()[0] == FIRST + 9
    assert read_pattern(int(wrong.first[2])) == ("march C-", "zeros")
