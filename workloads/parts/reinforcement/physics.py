"""Steps of a simulation of bodies, held to the same steps simulated in float64.

Where a foot touches the ground the forces come of a search, which a rounding may send another way:
a foot touches or it does not by 1e-6, and a step of the search is halved or not by comparing two
values of its objective that are equal but for float32's rounding of them. In one step of 1,000 to
10,000 the next velocities are then of one branch or of another, 2 % to 300 % apart. So every step
is simulated twice, from the recorded coordinates and from some that are a rounding away, and what
these two differ in is allowed several times over. A step that is further off all the same is
simulated many times, from starts some roundings away and with a search that takes its objective
some roundings wrong, and must end where one of these ends: on another branch, but on one that
there is.
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
_NUDGES = (2.0, 4.0, 16.0, 32.0)
"""Roundings by which the starts of a step that is too far off lie beside it, in turn: what was
lost within a step on the way to its last contact was 60, of what was 1 at its start."""
_SEARCH = 32.0
"""Roundings at most by which its search takes the objective wrongly: float32 was 0.5 off where two
values were 0.3 and 6 apart."""
_SIMULATED = ((64, 16), (512, 8), (4096, 2))
"""How often a step that is too far off is simulated, and how many such steps at most: first each,
then those that no simulation came near. More of them are no matter of roundings. Most branches
were taken by 1 simulation in 20 or more; where several decisions follow on each other, 1 in 300."""

Advance = Callable[[Array, Array, Array, Array], tuple[Any, Array, Arrays]]
"""Positions, velocities and actions, (steps, numbers) each, and the roundings by which the search
takes its objective wrongly, (steps,), to start, observation and result."""


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
        return self._from(0.0)

    @cached_property
    def _other(self) -> Arrays:
        return self._from(_NUDGE)

    def ended_wrongly(self, ended: Array) -> NDArray[np.bool_]:
        """Steps that ended the episode, (steps,) of 0 or 1, unlike all that a rounding away are."""
        exact = self.exact["dones"]
        wrong: NDArray[np.bool_] = (ended != exact) & (self._other["dones"] == exact)
        for starts, most in _SIMULATED:
            rows = np.flatnonzero(wrong)
            if not 0 < len(rows) <= most:
                break
            ends = self._from_many(rows, starts)["dones"][..., 0]
            wrong[rows] = (ends == exact[rows]).all(axis=0)
        return wrong

    def errors(self) -> Arrays:
        """Error of each number, (steps, numbers), relative to itself or to 1; 0 where it is new."""
        errors = {name: self._errors(name) for name in self.after}
        for starts, most in _SIMULATED:
            far = np.zeros(len(self.goes_on), dtype=bool)
            for error in errors.values():
                far |= ~(error.max(axis=1, initial=0.0) <= WORST)
            rows = np.flatnonzero(far)
            if not 0 < len(rows) <= most:
                break
            for name, nearest in self._on_nearest_branch(rows, starts).items():
                errors[name][rows] = np.minimum(errors[name][rows], nearest)
        return errors

    def _errors(self, name: str) -> Array:
        exact, other = (self._flat(part[name]) for part in (self.exact, self._other))
        sizes = np.maximum(1.0, np.abs(exact)) + _ALLOWED / WORST * np.abs(other - exact)
        return self._of_those_that_last(name, np.abs(self.after[name] - exact) / sizes)

    def _of_those_that_last(self, name: str, errors: Array) -> Array:
        """Coordinates of an episode that is over are of the next; its last reward is its own."""
        return errors if name == "rewards" else np.where(self.goes_on[:, None], errors, 0.0)

    def _on_nearest_branch(self, rows: NDArray[np.int64], starts: int) -> Arrays:
        """The errors of these steps against the simulation nearest in everything at once."""
        errors, simulated = {}, self._from_many(rows, starts)
        for name in self.after:
            exact = simulated[name]
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

    def _from(self, nudge: float) -> Arrays:
        """The steps in float64, from the recorded coordinates or some so far beside them."""
        rng = np.random.default_rng(1)

        def moved(coordinates: Array) -> Array:
            signs = rng.choice((-1.0, 1.0), coordinates.shape)
            start: Array = coordinates + nudge * signs * np.maximum(1, np.abs(coordinates))
            return start

        positions, velocities = moved(self.start["positions"]), moved(self.start["velocities"])
        return self.advance(positions, velocities, self.actions, np.zeros(len(positions)))[2]

    def _from_many(self, rows: NDArray[np.int64], starts: int) -> Arrays:
        """These steps from so many starts, inexactly searched; (starts, steps, numbers) each."""
        rng = np.random.default_rng(starts)
        nudges = ROUNDING * np.resize(_NUDGES, starts)[:, None, None]

        def moved(part: Array) -> Array:
            moves = nudges * rng.uniform(-1, 1, (starts, *part[rows].shape))
            begins: Array = part[rows] + moves * np.maximum(1, np.abs(part[rows]))
            return begins.reshape(-1, part.shape[1])

        positions, velocities = moved(self.start["positions"]), moved(self.start["velocities"])
        actions, search = moved(self.actions), rng.uniform(0, _SEARCH, starts * len(rows))
        result = self.advance(positions, velocities, actions, search)[2]
        return {name: leaf.reshape(starts, len(rows), -1) for name, leaf in result.items()}

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
