"""A simulated step in which a rounding sends a contact's search another way, and one that is wrong.

The step is one that processors made in float32: one of its velocities is 8 % off what the step is
in float64, and two in five starts that are a rounding away lead there in float64, too.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from appliance.records.journal import Check
from workloads.parts.reinforcement import physics
from workloads.parts.reinforcement.physics import Steps
from workloads.parts.reinforcement.reinforcement import Arrays

pytestmark = pytest.mark.usefixtures("quick_programs")
RECORD = json.loads((Path(__file__).parents[1] / "recorded" / "branched_step.json").read_text())
SPEED = "velocities against the simulation in float64"


def row(values: list[float]) -> np.ndarray:
    return np.asarray([values], dtype=np.float64)


def steps(after: Arrays, *, goes_on: bool = True) -> Steps:
    from workloads.parts.reinforcement import brax_program  # noqa: PLC0415 - imports JAX

    return Steps(
        advance=partial(brax_program.advance, "ant"),
        start={name: row(RECORD[name]) for name in ("positions", "velocities")},
        actions=row(RECORD["actions"]),
        after=after,
        goes_on=np.array([goes_on]),
    )


def recorded() -> dict[str, np.ndarray]:
    return {name: row(values) for name, values in RECORD["after"].items()}


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


def test_step_between_the_branches_is_outside():
    after = recorded()
    exact = steps(after).exact["velocities"].reshape(1, -1)
    after["velocities"] = (after["velocities"] + exact) / 2
    assert outside(steps(after)) == [SPEED]


@pytest.mark.parametrize("part", [0, 5])
def test_wrong_velocity_on_the_other_branch_is_outside(part: int):
    after = recorded()
    after["velocities"][0, part] += 0.1
    assert outside(steps(after)) == [SPEED]


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
