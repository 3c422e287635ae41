"""A few sets of noise, used many times over and never twice in the same place.

What draws with noise that comes again learns it by heart: from four sets of 16 trajectories the
GFlowNet at small size had nothing left to learn after 600 steps, and a loss of 1e-13. Noise for
thousands of steps has no room on the device. So every time that the sets are used up, the noise
moves on by one place along the choices; once all the way round, by one place in time. The noise of
any one step stays independent, and every device has the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from appliance.records.journal import Check
from workloads.parts.numerics.checksums import checksum_all
from workloads.parts.numerics.inputs import InputSets

_TIME, _CHOICES = 0, -1  # dimensions of the noise


@dataclass(kw_only=True)
class ShiftedNoise:
    """Inputs of steps by index; `drawn` have "noise" (steps in time, ..., choices)."""

    drawn: InputSets

    @property
    def _shape(self) -> tuple[int, int]:
        noise = self.drawn[0]["noise"]
        return noise.shape[_TIME], noise.shape[_CHOICES]

    def __len__(self) -> int:
        times, choices = self._shape
        return len(self.drawn) * times * choices

    def __getitem__(self, index: int, /) -> dict[str, torch.Tensor]:
        number, shifts = self._of(index)
        return {"noise": _rolled(self.drawn[number]["noise"], shifts)}

    def _of(self, index: int) -> tuple[int, tuple[int, int]]:
        """Number of the set, and places by which it moves in time and along the choices."""
        turns, number = divmod(index, len(self.drawn))
        return number, divmod(turns, self._shape[1])

    def check(self, number: int, used: Mapping[str, torch.Tensor]) -> Check:
        """Hold what step `number` used, and what lies on the device, to what the host drew."""
        index, (time, choice) = self._of(number % len(self))
        back = {name: _rolled(noise, (-time, -choice)) for name, noise in used.items()}
        checksum = self.drawn.checksums[index]
        changed = sum(checksum_all(one) != checksum for one in (back, self.drawn[index]))
        return Check(name="inputs as generated", error=changed, bound=0.0, kind="exact")


def _rolled(noise: torch.Tensor, shifts: tuple[int, int]) -> torch.Tensor:
    return noise.roll(shifts, dims=(_TIME, _CHOICES))
