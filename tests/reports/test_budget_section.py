"""The page's bar of what the run's time went to."""

from __future__ import annotations

import re

from appliance.evidence.budget import Budget
from reports.machine import LACKING, USEFUL_NOTE, budget_section

MEASURED = {"plan": 2.0, "import": 30.0, "timed": 50.0, "warm_up": 10.0, "check": 8.0}


def test_the_bar_is_whole_and_begins_with_what_is_useful() -> None:
    made = budget_section(Budget(seconds=MEASURED))
    widths = [float(width) for width in re.findall(r'rect [^>]*?width="([\d.]+)"', made.plot)]
    places = [float(place) for place in re.findall(r'rect x="([\d.]+)"', made.plot)]
    assert widths == [64.4, 322.0, 12.9, 193.2, 51.5]
    assert places == [8.0, 72.4, 394.4, 407.3, 600.5]
    fills = re.findall(r'fill="(#\w+)" stroke', made.plot)
    assert len(set(fills[:2])) == 1
    assert fills[0] not in fills[2:]
    assert ">imports<" in made.plot
    assert ">planning<" not in made.plot


def test_the_table_has_every_part_with_its_time_and_share() -> None:
    made = budget_section(Budget(seconds=MEASURED))
    assert made.grid is not None
    assert made.grid.rows == (
        ("warm-up (useful)", "10.0 s", "10.0 %"),
        ("timed steps (useful)", "50.0 s", "50.0 %"),
        ("planning", "2.0 s", "2.0 %"),
        ("imports", "30.0 s", "30.0 %"),
        ("checks", "8.0 s", "8.0 %"),
    )
    assert made.sentence == ("Of 1 min 40 s: 60 % useful, 30 % imports, 8 % checks, 2 % planning.")
    assert made.grid.notes == (USEFUL_NOTE,)


def test_a_run_whose_launches_reported_nothing_makes_no_figure_up() -> None:
    made = budget_section(Budget(seconds={"between": 1.0, "not_measured": 9.0}))
    assert made.sentence == "What the time went to was not measured."
    assert (made.plot, made.grid) == ("", None)
    assert budget_section(Budget(seconds={})).grid is None


def test_what_some_launches_did_not_report_stands_in_the_table_and_is_explained() -> None:
    made = budget_section(Budget(seconds={"timed": 1.0, "not_measured": 9.0}))
    assert made.grid is not None
    assert ("not measured", "9.0 s", "90.0 %") in made.grid.rows
    assert made.grid.notes == (USEFUL_NOTE, LACKING)


def test_a_narrow_part_of_the_bar_has_its_share_and_a_long_name_two_lines() -> None:
    """Without a word in it nobody sees what a seventh of the time went to."""
    seconds = {"timed": 70.0, "build": 15.0, "end": 10.0, "check": 4.0, "judge": 1.0}
    made = budget_section(Budget(seconds=seconds))
    words = ["timed steps", "70 %", "inputs and", "models", "15 %", "4 %", "process", "end", "10 %"]
    assert re.findall(r">([^<>]+)</text>", made.plot) == words
