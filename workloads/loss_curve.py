"""Follow the first losses of any training workload: each must lie in the band of healthy ones.

A step is a step of another workload of the suite, at its small parameters, begun from one of the
recorded starts: the run's seed draws which, and moves the first weights by one unit in the last
place, as was done in the reference set. So the curve hardly depends on the seed, and no bit of what
it is made of can be known beforehand. The losses stay on the device until they are judged.

Judged are the first and the last step by the workload's own checks, in float64; and the whole curve
by its band (`parts/curves/bands.py`), which is three times the largest deviation in a reference set
of right runs, at least 1e-6 in float32 and 1e-5 in bfloat16. After the last step the loss must also
have fallen by half of what the recorded one fell, where the band says so: a curve that stands still
is no training, whatever a wide band says. Where losses need not fall, the band itself is left by a
training that stands still. Other first weights or inputs than those recorded are refused.

The curve sees what builds up, or happened once, between the two checked steps: in float32 a layer
scaled by 1 + 1e-5, one gradient of one weight hit once (docs/explanation/trajectories.md has the
figures).

Workloads that are not bitwise reproducible are followed by `loss_curve_varying`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from appliance.records.json import Parameters
from workloads.parts.curves.following import Following


@dataclass(frozen=True, kw_only=True)
class LossCurve(Following):
    """The base's parameters, of workloads that are bitwise reproducible."""

    summary: ClassVar[str] = "Follow the recorded first losses of another training workload"
    version: ClassVar[int] = 1
    small: ClassVar[Parameters] = {"workload": "digits_mlp"}
    sibling: ClassVar[str] = "loss_curve_varying"

    workload: str = "markov_lm"


WORKLOAD = LossCurve
