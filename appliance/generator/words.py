"""The words of a file of known content, by their places alone, and a digest of drawn pages of it.

A word is SplitMix64 (Steele, Lea and Flood 2014) of its number in the file and of the seed, so each
of them is known without the others. The pages by which a process shows that a file is the one that
another wrote follow from the seed as well: whoever has it derives the digest without the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

PAGE, WORD = 4096, 8
"""Bytes of a page and of a word."""
SAMPLED_PAGES = 64
FILE = "file_read_back"
"""The artifact that such a file is; it goes with the last launch of its case."""
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_OF_PAGES = 0xD1B54A32D192ED03
"""Tells the seed of the pages from that of the words."""

Words = NDArray[np.uint64]


def content(seed: int, numbers: Words) -> Words:
    """The words of a file at these places, counted in words."""
    mixed = (numbers + np.uint64(1)) * np.uint64(_STEP) + np.uint64(seed % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_FIRST)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_SECOND)
    return mixed ^ (mixed >> np.uint64(31))


def page_words(seed: int, page: int) -> Words:
    """The words of a page by its number."""
    begin = page * (PAGE // WORD)
    return content(seed, np.arange(begin, begin + PAGE // WORD, dtype=np.uint64))


def sampled_pages(seed: int, num_bytes: int) -> list[int]:
    """Numbers of the first page, the last and drawn ones between, in their order.

    `num_bytes` is of whole pages, one at least.
    """
    num_pages = num_bytes // PAGE
    drawn = content(seed ^ _OF_PAGES, np.arange(SAMPLED_PAGES - 2, dtype=np.uint64))
    return sorted({0, num_pages - 1, *(int(one) % num_pages for one in drawn)})


def digest_of(pages: Iterable[bytes]) -> str:
    """SHA-256 of these pages, one after another."""
    made = hashlib.sha256()
    for page in pages:
        made.update(page)
    return made.hexdigest()


def sampled_digest(seed: int, num_bytes: int) -> str:
    """What `digest_of` makes of the sampled pages of the file that follows from the seed."""
    return digest_of(page_words(seed, one).tobytes() for one in sampled_pages(seed, num_bytes))
