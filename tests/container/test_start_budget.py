"""What `bench start` says of the time of the run that it has verified."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bundles import healthy, sealed

from appliance.cli.results import print_result
from appliance.evidence.budget import Budget, sentence
from appliance.evidence.journal_index import budget_of
from appliance.records.json import from_json
from appliance.records.verdict import Verdict
from appliance.signing.keys import development_key
from appliance.storage import bundle
from appliance.verbs.start import _budget


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sealed(tmp_path_factory.mktemp("sound"), healthy(), development_key())


def test_budget_is_that_of_the_journal_that_the_container_wrote(folder: Path) -> None:
    files = bundle.files_of(folder)
    spent = _budget(files)
    assert spent == budget_of(files[bundle.PLAN], files[bundle.JOURNAL])
    assert spent is not None
    assert spent.whole > 0.0


def test_budget_of_a_journal_that_is_none_is_not_said(folder: Path) -> None:
    assert _budget({**bundle.files_of(folder), bundle.JOURNAL: b"{}\n"}) is None


def test_what_followed_the_journal_stands_behind_its_budget(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = from_json(Verdict, (folder / bundle.VERDICT).read_bytes(), name=bundle.VERDICT)
    spent = Budget(seconds={"timed": 3.0, "build": 1.0})
    print_result(folder, verdict, spent, is_signed=True, after_seconds=2.25)
    printed = " ".join(capsys.readouterr().err.split())
    assert f"{sentence(spent)}; then 2.2 s for verdict, pages and signature" in printed
    print_result(folder, verdict, spent, is_signed=True)
    assert "; then" not in capsys.readouterr().err
