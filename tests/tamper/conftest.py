"""One genuine run of two small products, made once a session, of which all forgeries are made."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.program import STEPS, TINY, bench, only_run


@pytest.fixture(scope="session")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was accepted and signed with a development key."""
    return made(tmp_path_factory, TINY)


@pytest.fixture(scope="session")
def genuine_of_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a run of many short steps."""
    return made(tmp_path_factory, STEPS)


def made(factory: pytest.TempPathFactory, suite: str) -> Path:
    out = factory.mktemp("genuine")
    done = bench("accept", "--suite", suite, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return only_run(out)
