"""Settings that all tests share: property tests draw the same examples every time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("bench", deadline=None, derandomize=True, database=None, max_examples=40)
settings.load_profile("bench")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Small products wait for each other's threads on a busy host."""
    import torch  # noqa: PLC0415 - most tests do without

    number = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(number)
