"""Page 1 says which attempt a run is, or that nobody knows how many there were."""

from __future__ import annotations

from support.attempts import BEGUN, OVER, buyer, counted
from support.bundles import Draft, files_of, healthy

from appliance.storage import bundle
from reports import words
from reports.document.view import view


def suite_note(draft: Draft) -> str:
    page = view(bundle.read_files(files_of(draft, buyer()), complete=False))
    (row,) = (row for row in page.certificate.run if row.label == "Suite")
    return row.note


def test_attempt_has_its_number_and_window() -> None:
    window = f"begun {words.utc(BEGUN)}, window until {words.utc(OVER)}"
    assert suite_note(counted(3).draft).endswith(f"; attempt 3 of at most 10, {window}")


def test_run_that_nobody_counts_says_so() -> None:
    chosen = f"chosen by the signer: {healthy().plan.digests['suite'][:16]}"
    unknown = "the number of attempts is unknown"
    assert suite_note(healthy()) == f"{chosen}; seed by the node; {unknown}"
