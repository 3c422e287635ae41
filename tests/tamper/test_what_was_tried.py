"""The page on what verify proves names attacks with the tests that hold them: these are there."""

from __future__ import annotations

import re
from pathlib import Path

from tamper.attacks import ATTACKS, PAGE, page
from tamper.forgeries import FORGERIES, OPEN

ROOT = Path(__file__).parents[2]
TESTS = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
OPENLY_SAID = 12
"""Forgeries that pass; whoever closes one, or finds another, changes the page too."""


def test_the_table_is_that_of_the_fixtures() -> None:
    text = PAGE.read_text()
    assert text == page(text), "run `make generate`"


def test_every_attack_names_tests_that_there_are_or_is_open() -> None:
    text = PAGE.read_text().partition("## What was tried")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")][2:]
    assert len(rows) == len(ATTACKS)
    for row in rows:
        named = set(re.findall(r"test_\w+\.py", row[-1]))
        assert named <= TESTS, row
        assert named or (row[-1].strip() == "open" and row[-2].strip().startswith("open:")), row


def test_every_fixture_is_of_an_attack_whose_results_are_counted() -> None:
    counted = {one.number for one in ATTACKS if not one.today}
    assert {one.attack for one in (*FORGERIES.values(), *OPEN.values())} <= counted


def test_the_page_says_what_passes() -> None:
    assert len(OPEN) == OPENLY_SAID, sorted(OPEN)
