"""One genuine run of two small products, made once a session, of which all forgeries are made."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.program import TINY, bench, only_run


@pytest.fixture(scope="session")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was accepted and signed with a development key."""
    out = tmp_path_factory.mktemp("genuine")
    done = bench("accept", "--suite", TINY, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return only_run(out)
