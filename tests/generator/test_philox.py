"""The published generator by NumPy: known answers, any part by itself, keys without relation."""

import numpy as np
import pytest

from appliance.generator import philox

KEY = philox.key_of(7, "left 0")


@pytest.mark.parametrize(("counter", "key", "answer"), philox.ANSWERS)
def test_known_answers_of_random123(
    counter: philox.Counter, key: philox.Key, answer: philox.Counter
) -> None:
    assert philox.block(counter, key) == answer


def test_this_machine_gives_all_known_answers() -> None:
    assert philox.num_wrong_answers() == 0


@pytest.mark.parametrize("first", [0, 1, 4, 7, 4 * 2**40 + 3])
def test_any_words_are_those_of_their_counters(first: int) -> None:
    blocks = [philox.block((first // 4 + number, 0, 0, 0), KEY) for number in range(4)]
    whole = np.array(blocks, np.uint64).ravel()
    skipped = first % 4
    assert np.array_equal(philox.words(KEY, first, 11), whole[skipped : skipped + 11])


def test_a_stream_goes_on_and_jumps_to_any_counter() -> None:
    next_words = philox.stream(KEY)
    for first, count in ((0, 8), (8, 5), (16, 4), (12, 4), (4 * 2**40, 3), (4 * 2**40 + 4, 4)):
        assert np.array_equal(next_words(first, count), philox.words(KEY, first, count))


def test_seed_and_name_make_the_key() -> None:
    """Fixed for ever: records of older runs are verified by it."""
    assert philox.key_of(7, "left 0") == KEY
    assert KEY == (0x1D08EF17A22BB1E, 0x1C03E9F0A4D3123)
    assert len({KEY, philox.key_of(8, "left 0"), philox.key_of(7, "left 1")}) == 3
    assert philox.key_of(1, "0\x002") != philox.key_of(10, "\x002")


def test_words_of_neighbouring_counters_and_keys_differ_in_half_of_their_bits() -> None:
    words = philox.words(KEY, 0, 40_000)
    others = philox.words((KEY[0] ^ 1, KEY[1]), 0, 40_000)
    for one, other in ((words[4:], words[:-4]), (words, others)):
        share = np.unpackbits((one ^ other).view(np.uint8)).mean()
        assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(64 * len(one))
