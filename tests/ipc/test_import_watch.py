"""Imports make nothing that is looked through again and again."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.ipc.import_watch import uncollected


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gc.enable()
    gc.unfreeze()


def test_imports_are_not_interrupted_and_what_they_made_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_for_a_test.py").write_text(
        "import gc\nruns = sum(one['collections'] for one in gc.get_stats())\n"
        "made = [[number] for number in range(100_000)]\n"
        "runs = sum(one['collections'] for one in gc.get_stats()) - runs\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    before = gc.get_freeze_count()
    with uncollected():
        import imported_for_a_test as module  # type: ignore[import-not-found]  # noqa: PLC0415
    assert module.runs == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() - before >= len(module.made)
    del sys.modules["imported_for_a_test"]


def test_without_an_import_nothing_is_set_aside_and_what_was_off_stays_off() -> None:
    before = gc.get_freeze_count()
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()
    assert gc.get_freeze_count() == before


def test_what_cannot_be_imported_leaves_collections_on() -> None:
    with pytest.raises(ModuleNotFoundError), uncollected():
        import there_is_no_such_module  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    assert gc.isenabled()
