"""What a person is told of a difference is no name of the arithmetic."""

import pytest

from appliance.comparison.compare_runs import Word, said


@pytest.mark.parametrize(
    ("word", "ratio", "expected"),
    [
        ("within", 1.01, "no change"),
        ("beyond", 1.5, "slower"),
        ("beyond", 0.5, "faster"),
        ("open", 1.5, "undecided"),
    ],
)
def test_words_of_a_difference(word: Word, ratio: float, expected: str) -> None:
    assert said(word, ratio) == expected
