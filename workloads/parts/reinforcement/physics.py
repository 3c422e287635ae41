"""Steps of a simulation of bodies, held to the same steps simulated in float64.

Where a foot touches the ground the forces come of a search. A rounding grows there, and in rare
steps it sends the search another way: the next velocities are then of one branch or of the other,
8 % apart in one step of some thousands. So every step is simulated twice, from the recorded
coordinates and from some that are a rounding away, and what these two differ in is allowed several
times over. A step that is further off all the same is simulated from more such starts, and must
end where one of them ends: on another branch, but on one that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.records.journal import Check
from workloads.parts.reinforcement.reinforcement import ROUNDING, Array, Arrays

WORST, USUAL, SHARE = 0.02, 2e-4, 0.25
"""Relative error of a coordinate after one step; what most steps keep to; share that need not.

Of 3,072 steps of ants in float32 1 in 100 was further off than 4e-4 and the worst on its own
branch 5.7e-3 (hoppers: 2e-4). In the first steps of a small ant, when it lands, 11 in 100 are
further off than 2e-4."""
_NUDGE = 4 * ROUNDING
"""How far another start lies from the recorded one, relative to its coordinates or to 1."""
_ALLOWED = 32.0
"""Times what a start that is a rounding away makes of the same step, that is allowed beside."""
_STARTS = 64
"""From which a step is simulated that is too far off: of the one that was recorded two starts in
five took the other branch (tests/recorded/branched_step.json), and of others it may be fewer."""
_MOST_BRANCHED = 16
"""Steps that are simulated again at most; where more are too far off it is no matter of roundings.
"""

Advance = Callable[[Array, Array, Array], tuple[Any, Array, Arrays]]
"""Positions, velocities and actions, (steps, numbers) each, to start, observation and result."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Steps of a device: where they began, and what they led to.

    `start` has positions and velocities, `after` these and rewards, (steps, numbers) each;
    `goes_on` (steps,) is whether the episode does, for else the next coordinates are new ones.
    """

    advance: Advance
    start: Arrays
    actions: Array
    after: Arrays
    goes_on: NDArray[np.bool_]

    def checks(self) -> Iterator[Check]:
        """The largest error of each quantity, and how many steps are further off than most."""
        for name, errors in self.errors().items():
            counted = errors if name == "rewards" else errors[self.goes_on]
            yield _largest(f"{name} against the simulation in float64", counted)
            yield _frequent(f"steps whose {name} are further from float64 than most", counted)

    @cached_property
    def exact(self) -> Arrays:
        """The same steps in float64; `dones` (steps,) among the results."""
        return self._from(0)

    @cached_property
    def _other(self) -> Arrays:
        return self._from(1)

    @property
    def is_end_sure(self) -> NDArray[np.bool_]:
        """Whether a start that is a rounding away ends the episode or not likewise."""
        result: NDArray[np.bool_] = self._other["dones"] == self.exact["dones"]
        return result

    def errors(self) -> Arrays:
        """Error of each number, (steps, numbers), relative to itself or to 1; 0 where it is new."""
        errors = {name: self._errors(name) for name in self.after}
        far = np.zeros(len(self.goes_on), dtype=bool)
        for error in errors.values():
            far |= ~(error.max(axis=1, initial=0.0) <= WORST)
        rows = np.flatnonzero(far)
        if 0 < len(rows) <= _MOST_BRANCHED:
            for name, nearest in self._on_nearest_branch(rows).items():
                errors[name][rows] = np.minimum(errors[name][rows], nearest)
        return errors

    def _errors(self, name: str) -> Array:
        exact, other = (self._flat(part[name]) for part in (self.exact, self._other))
        sizes = np.maximum(1.0, np.abs(exact)) + _ALLOWED / WORST * np.abs(other - exact)
        return self._of_those_that_last(name, np.abs(self.after[name] - exact) / sizes)

    def _of_those_that_last(self, name: str, errors: Array) -> Array:
        """Coordinates of an episode that is over are of the next; its last reward is its own."""
        return errors if name == "rewards" else np.where(self.goes_on[:, None], errors, 0.0)

    def _on_nearest_branch(self, rows: NDArray[np.int64]) -> Arrays:
        """The errors of these steps against the start that led nearest in everything at once."""
        errors = {}
        for name, exact in self._from_many(rows).items():
            error = np.abs(self.after[name][rows] - exact) / np.maximum(1.0, np.abs(exact))
            last = self.goes_on[rows, None] | (name == "rewards")
            errors[name] = np.where(last, error, 0.0)
        whole = np.max([error.max(axis=2) for error in errors.values()], axis=0)
        whole = np.where(np.isnan(whole), np.inf, whole)
        nearest, places = whole.argmin(axis=0), np.arange(len(rows))
        is_near = np.isfinite(whole[nearest, places])[:, None]
        return {
            name: np.where(is_near, error[nearest, places], np.inf)
            for name, error in errors.items()
        }

    def _from(self, lane: int) -> Arrays:
        """The steps in float64, from the recorded coordinates or, after 0, some beside them."""
        return self.advance(*self._starts(lane), self.actions)[2]

    def _from_many(self, rows: NDArray[np.int64]) -> Arrays:
        """These steps from all other starts at once, (starts, steps, numbers) each."""
        lanes = [[part[rows] for part in self._starts(lane)] for lane in range(1, _STARTS + 1)]
        positions, velocities = (np.concatenate(parts) for parts in zip(*lanes, strict=True))
        result = self.advance(positions, velocities, np.tile(self.actions[rows], (_STARTS, 1)))[2]
        return {name: result[name].reshape(_STARTS, len(rows), -1) for name in self.after}

    def _starts(self, lane: int) -> tuple[Array, Array]:
        """Positions and velocities from which the steps begin."""
        rng = np.random.default_rng(lane)

        def moved(coordinates: Array) -> Array:
            signs = rng.choice((-1.0, 1.0), coordinates.shape) * (lane > 0)
            start: Array = coordinates + _NUDGE * signs * np.maximum(1, np.abs(coordinates))
            return start

        return moved(self.start["positions"]), moved(self.start["velocities"])

    def _flat(self, leaf: Array) -> Array:
        return leaf.reshape(len(self.goes_on), -1)


def _largest(name: str, errors: Array) -> Check:
    return Check(
        name=name,
        error=float(np.max(errors, initial=0.0)),
        bound=WORST,
        detects=WORST,
        detects_what="error of one number after a step, relative to itself or to 1; more where "
        "a rounding of its start makes more",
    )


def _frequent(name: str, errors: Array) -> Check:
    is_far = ~(errors.max(axis=-1, initial=0.0) <= USUAL)
    return Check(
        name=name,
        error=float(is_far.mean()) if is_far.size else 0.0,
        bound=SHARE,
        detects=SHARE,
        detects_what=f"share of the steps with a relative error above {USUAL:g}",
    )
