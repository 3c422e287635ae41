"""Page 1 says which attempt a run is, or that nobody knows how many there were."""

from __future__ import annotations

from support.attempts import BEGUN, OVER, buyer, counted
from support.bundles import Draft, files_of, healthy

from appliance.storage import bundle
from reports import words
from reports.document.view import view
from reports.model import Row


def inputs_row(draft: Draft) -> Row:
    page = view(bundle.read_files(files_of(draft, buyer()), complete=False))
    (row,) = (row for row in page.certificate.run if row.label == "Inputs")
    return row


def test_attempt_has_its_number_and_window() -> None:
    window = f"begun {words.utc(BEGUN)}, window until {words.utc(OVER)}"
    row = inputs_row(counted(3).draft)
    assert row.value.startswith("drawn from the seed of challenge ")
    assert row.note == f"attempt 3 of at most 10, {window}"


def test_run_that_nobody_counts_says_so() -> None:
    row = inputs_row(healthy())
    assert row.value == "drawn from a seed of the node"
    assert row.note == "the number of attempts is unknown"
