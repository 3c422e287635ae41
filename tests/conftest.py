"""Settings that all tests share: property tests draw the same examples every time."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "bench",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],  # how fast a machine draws says nothing of us
)
settings.load_profile("bench")
for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)  # what a program writes into a pipe is what the tests read


@pytest.fixture(scope="session", autouse=True)
def servers_of_tests() -> Iterator[None]:
    """They are on this host, so no proxy of the site is asked for them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("no_proxy", "NO_PROXY"):
            patch.setenv(name, "127.0.0.1,localhost", prepend=",")
        yield


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Small products wait for each other's threads on a busy host."""
    import torch  # noqa: PLC0415 - most tests do without

    number = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(number)
