"""A signed bundle of which somebody without a key changes anything is never verified."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tamper.tamperings import TAMPERINGS

from appliance.errors import EvidenceError
from appliance.storage import bundle
from appliance.verification.terms import Terms
from appliance.verification.verify import verify


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_changed_file_is_refused(name: str, genuine: Path, tmp_path: Path) -> None:
    file, change = TAMPERINGS[name]
    before = (genuine / file).read_bytes()
    after = change(before)
    assert after != before
    run = Path(shutil.copytree(genuine, tmp_path / "run"))
    (run / file).write_bytes(after)
    try:  # a PDF by itself: within its folder its digest is found wrong
        result = verify(run / file if file == bundle.PDF else run, Terms(allow_development=True))
    except EvidenceError:  # what is no PDF any more
        return
    assert (result.exit_code, result.verdict) == (4, None)
    assert any(line.status == "fail" for line in result.checks)


def test_who_signed_is_not_trusted_by_his_own_word(genuine: Path) -> None:
    result = verify(genuine)
    failed = [line.name for line in result.checks if line.status == "fail"]
    assert (result.exit_code, failed) == (4, ["signer"])
