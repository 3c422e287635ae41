"""Simulated steps in which a rounding sends a contact's search another way, and wrong ones.

The steps are some that processors made in float32, up to 363 % off what they are in float64: by a
start that is a rounding away, by a foot that just touches, and by decisions within the search that
no other start brings about.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from appliance.records.journal import Check
from workloads.parts.reinforcement import physics
from workloads.parts.reinforcement.physics import Steps
from workloads.parts.reinforcement.reinforcement import Arrays

pytestmark = pytest.mark.usefixtures("quick_programs")
RECORDS = json.loads((Path(__file__).parents[1] / "recorded" / "branched_steps.json").read_text())
FIRST = "two_in_five"
SPEED = "velocities against the simulation in float64"


def row(values: list[float]) -> np.ndarray:
    return np.asarray([values], dtype=np.float64)


def steps(after: Arrays, *, goes_on: bool = True, of: str = FIRST) -> Steps:
    from workloads.parts.reinforcement import brax_program  # noqa: PLC0415 - imports JAX

    return Steps(
        advance=partial(brax_program.advance, "ant"),
        start={name: row(RECORDS[of][name]) for name in ("positions", "velocities")},
        actions=row(RECORDS[of]["actions"]),
        after=after,
        goes_on=np.array([goes_on]),
    )


def recorded(of: str = FIRST) -> dict[str, np.ndarray]:
    return {name: row(values) for name, values in RECORDS[of]["after"].items()}


def outside(made: Steps) -> list[str]:
    return [check.name for check in made.checks() if not check.is_within and check.name == SPEED]


def largest(made: Steps) -> Check:
    (check,) = (one for one in made.checks() if one.name == SPEED)
    return check


def test_step_on_the_other_branch_is_within():
    made = steps(recorded())
    apart = np.abs(made.exact["velocities"] - recorded()["velocities"]).max()
    assert apart > 5 * physics.WORST  # so it is on another branch
    assert largest(made).error < physics.WORST / 4


@pytest.mark.parametrize("of", ["halved", "touching", "chained"])
def test_step_that_float32_decided_within_is_within(of: str):
    made = steps(recorded(of), of=of)
    apart = np.abs(made.exact["velocities"] - recorded(of)["velocities"]).max()
    assert apart > 50 * physics.WORST
    assert largest(made).error < physics.WORST / 4
    assert all(check.is_within for check in made.checks() if "against" in check.name)


def test_step_of_the_search_is_on_no_branch_of_other_starts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(physics, "_SEARCH", 0.0)
    assert outside(steps(recorded("halved"), of="halved")) == [SPEED]


def test_search_without_roundings_is_the_library_s_own(monkeypatch: pytest.MonkeyPatch):
    from workloads.parts.reinforcement import brax_program, jax_devices  # noqa: PLC0415 - imports JAX

    made = steps(recorded())
    inexact = made.exact["velocities"]
    monkeypatch.setattr(brax_program, "inexact_search", lambda _: nullcontext())
    with jax_devices.on_host_in_float64():
        start = (made.start["positions"], made.start["velocities"], made.actions)
        run = brax_program._exact.__wrapped__("ant")
        as_it_is = jax_devices.quietly(lambda: run(*start, np.zeros(1)))
    np.testing.assert_allclose(inexact, as_it_is[2]["velocities"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("of", [FIRST, "halved", "touching"])
def test_step_between_the_branches_is_outside(of: str):
    after = recorded(of)
    exact = steps(after, of=of).exact["velocities"].reshape(1, -1)
    after["velocities"] = (after["velocities"] + exact) / 2
    assert SPEED in outside(steps(after, of=of))


@pytest.mark.parametrize("part", [0, 5])
@pytest.mark.parametrize("of", [FIRST, "halved", "touching"])
def test_wrong_velocity_on_the_other_branch_is_outside(of: str, part: int):
    after = recorded(of)
    after["velocities"][0, part] += 0.1 * max(1, abs(after["velocities"][0, part]))
    assert outside(steps(after, of=of)) == [SPEED]


def test_speed_of_the_other_branch_with_the_place_of_none_is_outside():
    after = recorded()
    after["positions"][0, 0] += 0.1
    names = [check.name for check in steps(after).checks() if not check.is_within]
    assert "positions against the simulation in float64" in names


def test_number_that_is_none_is_outside():
    after = recorded()
    after["velocities"][0, 3] = np.nan
    assert outside(steps(after)) == [SPEED]


def test_coordinates_after_an_end_are_those_of_the_next_episode():
    after = recorded()
    after["velocities"] += 3.0
    made = steps(after, goes_on=False)
    assert largest(made).error == 0.0


def test_many_steps_too_far_off_are_not_explained_by_branches():
    one = steps(recorded())
    count = 64  # of which two in five have the other branch beside them anyway
    made = Steps(
        advance=one.advance,
        start={name: np.repeat(part, count, axis=0) for name, part in one.start.items()},
        actions=np.repeat(one.actions, count, axis=0),
        after={name: np.repeat(part, count, axis=0) for name, part in one.after.items()},
        goes_on=np.ones(count, dtype=bool),
    )
    assert outside(made) == [SPEED]
