"""A zip is refused of which programs unpack other files than those that are verified."""

from __future__ import annotations

from pathlib import Path

import pytest
from tamper.archives import ARCHIVES, packed

from appliance.errors import EvidenceError
from appliance.storage import bundle
from appliance.verification.terms import Terms
from appliance.verification.verify import verify


def faults(path: Path, data: bytes) -> tuple[str, ...]:
    path.write_bytes(data)
    try:
        return verify(path, Terms(allow_development=True)).faults
    except EvidenceError as error:
        return (str(error),)


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_zip_in_another_form_is_refused(name: str, genuine: Path, tmp_path: Path) -> None:
    (sentence, *_) = faults(tmp_path / "run.zip", ARCHIVES[name](bundle.files_of(genuine)))
    assert "zip" in sentence or "what it should not have" in sentence or "not whole" in sentence
    assert sentence.isprintable()


@pytest.mark.parametrize("folder", ["", "run/", "./", "a run of mine/", "\u00e9/"])
def test_a_zip_as_programs_pack_it_verifies(folder: str, genuine: Path, tmp_path: Path) -> None:
    files = bundle.files_of(genuine)
    listed = {folder: b""} if folder else {}
    assert faults(tmp_path / "run.zip", packed(files, folder=folder, others=listed)) == ()
