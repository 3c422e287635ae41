"""The program on an accelerator that does not exist, and that lies: each lie gets its ruling."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.program import ROOT
from support.simulated_runs import LIES, rulings, table, verdict_of_lie

needs_device = pytest.mark.usefixtures("simulated_accelerator")


@needs_device
@pytest.mark.parametrize("name", LIES)
@pytest.mark.timeout(1800)
def test_lie_gets_its_ruling(name: str, tmp_path: Path) -> None:
    lie = LIES[name]
    judged = verdict_of_lie(lie, tmp_path)
    ruled = rulings(judged)
    assert {criterion: ruled[criterion] for criterion in lie.rulings} == lie.rulings
    assert judged["verdict"] == lie.verdict
    assert all(words in _explanation(judged, criterion) for criterion, words in lie.words.items())


def _explanation(judged: Mapping[str, Any], criterion: str) -> str:
    (text,) = (one["explanation"] for one in judged["rulings"] if one["criterion"] == criterion)
    return str(text)


def test_documentation_has_the_lies() -> None:
    text = (ROOT / "docs" / "explanation" / "selftest.md").read_text()
    assert "\n".join(table()) in text
