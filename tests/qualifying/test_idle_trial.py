"""What the file of a trial says: pairs of medians, what disturbed it, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.idle_records import MODEL, half, idle_neighbour, idle_trial

from appliance.qualifying import idle_trial as trials
from appliance.qualifying.idle_trial import CLOCK, Half, IdleTrial
from appliance.qualifying.observation import merged
from appliance.qualifying.page import models, page
from appliance.records.qualified import IdleNeighbour, IdlePair, Qualified
from appliance.scheduling.idle_neighbours import KINDS

TRIAL = idle_trial()


def changed(**changes: object) -> IdleTrial:
    return replace(TRIAL, **changes)  # type: ignore[arg-type]


def beside(number: int, **changes: object) -> IdleTrial:
    """The trial with something else in the first halves, so many of its six."""
    halves: list[Half] = [replace(one, **changes) for one in TRIAL.halves[:number]]  # type: ignore[arg-type]
    return replace(TRIAL, halves=(*halves, *TRIAL.halves[number:]))


def test_pairs_are_of_medians_and_whole() -> None:
    cut = replace(TRIAL, halves=(*TRIAL.halves, half(7, is_beside=True)))
    one = trials.record(cut, "ab" * 32)
    assert one.pairs == dict.fromkeys(KINDS, (IdlePair(alone=0.002, beside=0.00201),) * 3)
    assert (one.disturbed, one.source) == ("", f"qualify-idle, trial {'ab' * 32}")


@pytest.mark.parametrize(
    ("trial", "clause"),
    [
        (changed(users_before=1), "another process had the device before"),
        (changed(use_before=0.5), "another process used the device before (50 %)"),
        (beside(1, users=3), "2 other processes had the device meanwhile"),
        (
            beside(2, foreign_processors=8.0),
            "others used 50 % of the processors in 2 of 6 readings",
        ),
        (
            beside(1, values={"throttled_thermal": 1.0}),
            "the device was throttled (thermal) in 1 of 6 readings",
        ),
        (
            beside(1, values={CLOCK: 1.5e9}),
            "the device's clock fell to 1500 MHz under a step at which it had 1980 MHz",
        ),
    ],
)
def test_what_disturbed_a_trial_is_named_and_rules_nothing(trial: IdleTrial, clause: str) -> None:
    one = trials.record(trial, "ab" * 32)
    assert one.disturbed == clause
    assert trials.words(one)[-1].endswith(f"({clause}); {trials.TIMED_ALONE}")


def test_what_a_driver_does_not_say_disturbs_nothing() -> None:
    silent = replace(changed(users_before=None, use_before=None, processors=None), halves=())
    hidden = beside(6, users=None, values={}, foreign_processors=None)
    assert [trials.disturbed(one) for one in (TRIAL, silent, hidden)] == ["", "", ""]
    assert trials.disturbed(beside(1, foreign_processors=8.0)) == ""  # one of six


@pytest.mark.parametrize(
    ("record", "cell", "sentence"),
    [
        (
            idle_neighbour(),
            "equivalent",
            "Launches may be timed while the next one's process waits.",
        ),
        (
            idle_neighbour(slowed={"memory": 1.05}),
            "different",
            "No launch is timed while the next one's process waits.",
        ),
        (
            replace(idle_neighbour(), disturbed="a hot device"),
            "not ruled\\*",
            "No launch is timed while the next one's process waits.",
        ),
    ],
)
def test_page_has_the_ratios_and_what_follows(
    record: IdleNeighbour, cell: str, sentence: str
) -> None:
    known = Qualified(record=(), idle=(record,))
    assert list(models(known)) == [MODEL]
    text = page(known, MODEL)
    assert "saw on 1 device (2026-11-26)" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| memory |")]
    assert row.startswith("| memory | 2 ms | 1.0")
    assert row.endswith(f"at 90%, 8 pairs) | {cell} |")
    assert sentence in text.splitlines()


def test_merged_records_have_each_source_once() -> None:
    one, other = idle_neighbour(), replace(idle_neighbour(), source="qualify-idle, trial other")
    known = Qualified(record=(), idle=(one,))
    assert merged(known, known) == known
    assert merged(known, Qualified(record=(), idle=(other,))).idle == (one, other)
