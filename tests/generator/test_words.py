"""The words of a file, and the digest of drawn pages by which it is known again."""

from __future__ import annotations

import hashlib

import numpy as np

from appliance.generator.words import (
    PAGE,
    SAMPLED_PAGES,
    WORD,
    content,
    page_words,
    sampled_digest,
    sampled_pages,
)

FILE_BYTES = 1000 * PAGE


def test_words_are_those_of_the_published_algorithm() -> None:
    """SplitMix64 with seed 1234567: the first outputs of Vigna's reference implementation."""
    wanted = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert content(1234567, np.arange(3, dtype=np.uint64)).tolist() == wanted


def test_digest_is_of_the_pages_that_the_seed_draws_of_the_whole_file() -> None:
    words = content(5, np.arange(FILE_BYTES // WORD, dtype=np.uint64)).tobytes()
    pages = sampled_pages(5, FILE_BYTES)
    assert (pages[0], pages[-1]) == (0, FILE_BYTES // PAGE - 1)
    assert SAMPLED_PAGES - 8 <= len(pages) <= SAMPLED_PAGES
    sampled = b"".join(words[PAGE * page : PAGE * (page + 1)] for page in pages)
    assert sampled_digest(5, FILE_BYTES) == hashlib.sha256(sampled).hexdigest()
    assert page_words(5, 3).tobytes() == words[3 * PAGE : 4 * PAGE]


def test_another_seed_or_size_has_another_digest_and_draws_other_pages() -> None:
    assert sampled_digest(6, FILE_BYTES) != sampled_digest(5, FILE_BYTES)
    assert sampled_digest(5, FILE_BYTES - PAGE) != sampled_digest(5, FILE_BYTES)
    assert sampled_pages(6, FILE_BYTES) != sampled_pages(5, FILE_BYTES)
    assert sampled_pages(5, PAGE) == [0]
