"""Page 1 says in how many sessions a run was made, and what one of them cannot show."""

import pytest
from support.bundles import files_of, healthy

from appliance.signing import keys
from appliance.storage import bundle
from reports.document.view import view


def run_row(sessions: int) -> str:
    """The row on the run of page 1."""
    files = files_of(healthy(sessions=sessions), keys.development_key())
    page = view(bundle.read_files(files, complete=False))
    (row,) = (one for one in page.certificate.run if one.label == "Run")
    return row.value


def test_one_session_says_that_the_level_of_a_run_was_not_sampled() -> None:
    assert run_row(1).endswith("one session: the level of a run was not sampled")


@pytest.mark.parametrize(("sessions", "num_dates", "rest"), [(2, 2, ""), (6, 3, " and later")])
def test_several_say_when_they_began_and_how_long_the_pauses_were(
    sessions: int, num_dates: int, rest: str
) -> None:
    output = run_row(sessions)
    assert f"{sessions} sessions, begun 2026-11-21" in output
    begun, _, pauses = output.partition("begun ")[2].partition(", with pauses of ")
    assert begun.count("UTC") == num_dates
    assert begun.endswith(rest)
    assert pauses.count("0 s") == min(sessions - 1, 3)
    assert output.endswith("times are judged at the launches of all of them")
    assert "not sampled" not in output
