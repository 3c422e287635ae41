"""The guide's workload, written into an empty folder and put to the proof that it promises."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trial
from trial import Kind, Trial

from appliance.records.request import CaseRequest
from appliance.records.workload import Resolved
from appliance.storage import suite_file
from appliance.worker.parameters import description, resolve

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "adding-a-workload.md"


def block(language: str) -> str:
    """The guide's first block of code in a language."""
    result = re.search(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert result
    return result[1]


@pytest.fixture(scope="module")
def kind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kind]:
    folder = tmp_path_factory.mktemp("guide")
    package = folder / "guided"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "sort_rows.py").write_text(block("python"))
    sys.path.insert(0, str(folder))
    yield importlib.import_module("guided.sort_rows").WORKLOAD
    sys.path.remove(str(folder))


def test_the_guides_workload_passes_the_trial_of_the_contract(kind: Kind, tmp_path: Path) -> None:
    subject = Trial(kind(**kind.small), tmp_path)
    assert trial.faults_of(subject) == []
    assert trial.clocked(block("python")) == []


def test_the_guides_workload_describes_itself_as_any_does(kind: Kind) -> None:
    reported = description("sort_rows", kind)
    assert (reported.domain, reported.bound_by, reported.version) == ("operators", "memory", 1)
    request = CaseRequest(workload="sort_rows", small=True, parameters={"rows": 2})
    result = resolve(kind, request)
    assert isinstance(result, Resolved)
    assert result.work.bytes == 2 * 4 * 2 * 1024


def test_the_guides_suite_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(block("toml"))
    suite, _ = suite_file.load_suite(str(path))
    assert [case.workload for case in suite.case] == ["sort_rows"]
