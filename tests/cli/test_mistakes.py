"""Each mistake of docs/reference/mistakes.md gets the answer that stands there."""

from pathlib import Path

from support import mistakes


def test_each_mistake_is_answered_as_the_reference_says(tmp_path: Path) -> None:
    """Written anew by `PYTHONPATH=tests python tests/support/mistakes.py`."""
    mistakes.make(tmp_path)
    made = list(mistakes.answers(tmp_path))
    assert [one.code for one in made if one.code not in (1, 2, 4)] == []
    assert all(one.sentence and "Traceback" not in one.sentence for one in made)
    assert mistakes.page(made) == mistakes.PAGE.read_text()
