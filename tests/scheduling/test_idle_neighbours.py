"""A process may wait beside what is timed where records of the model show it of every kind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.idle_records import MODEL, idle_neighbour

from appliance.records.qualified import IdleNeighbour
from appliance.scheduling.idle_neighbours import KINDS, is_harmless, rulings
from appliance.scheduling.launch_kinds import rule

HARMLESS = idle_neighbour()


def slowed(kind: str, factor: float) -> IdleNeighbour:
    return idle_neighbour(slowed={kind: factor})


def without(kind: str) -> IdleNeighbour:
    pairs = {name: pairs for name, pairs in HARMLESS.pairs.items() if name != kind}
    return replace(HARMLESS, pairs=pairs)


def shortened(count: int) -> IdleNeighbour:
    return replace(HARMLESS, pairs={kind: one[:count] for kind, one in HARMLESS.pairs.items()})


def test_record_of_every_kind_shows_it() -> None:
    assert rulings(HARMLESS) == dict.fromkeys(KINDS, "equivalent")
    assert is_harmless(MODEL, [HARMLESS])
    assert is_harmless(MODEL, [shortened(rule().least_pairs)])
    assert not is_harmless("another", [HARMLESS])
    assert not is_harmless(MODEL, [])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_counts(kind: str) -> None:
    for factor, ruling in ((1.03, "different"), (0.97, "different"), (1.01, "undecided")):
        one = slowed(kind, factor)
        assert rulings(one)[kind] == ruling
        assert not is_harmless(MODEL, [one])
    assert not is_harmless(MODEL, [without(kind)])


def test_too_few_pairs_and_disturbed_ones_show_nothing() -> None:
    few = shortened(rule().least_pairs - 1)
    disturbed = replace(HARMLESS, disturbed="another process had the device before")
    assert set(rulings(few).values()) == {None}
    assert not is_harmless(MODEL, [few, disturbed])


def test_one_record_that_differs_outweighs_all_that_do_not() -> None:
    differs = slowed("memory", 1.03)
    assert not is_harmless(MODEL, [HARMLESS, differs, HARMLESS])
    assert is_harmless(MODEL, [HARMLESS, replace(differs, disturbed="a hot device")])
    assert is_harmless(MODEL, [HARMLESS, replace(differs, model="another")])
    assert is_harmless(MODEL, [slowed("memory", 1.01), HARMLESS])  # one of them shows it
