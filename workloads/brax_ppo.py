"""Train a policy to walk: proximal policy optimisation on the ant of brax, all on the device.

A step makes 163,840 steps of 8,192 ants, in four unrolls of five each, and from them 128 updates:
four times over all samples, in 32 minibatches of 1,024 unrolls. Simulation, networks and updates
are one program of JAX. The setting is that of brax's own example: a policy of four layers of 32, a
value of five layers of 256, Adam at 3e-4, discount 0.97, rewards times 0.1, observations divided by
their running deviation.

What is checked, and what of it is exact, `parts/reinforcement/simulated_ppo.py` says: counters and
resets, observations, actions, values, advantages, the order of the samples, all updates, the
gradients of drawn minibatches, and the physics of drawn steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from appliance.records.json import Parameters
from workloads.parts.reinforcement.simulated_ppo import BUILDS_WITH, SimulatedPpo


@dataclass(frozen=True, kw_only=True)
class BraxPpo(SimulatedPpo):
    """The defaults of the base are this row's."""

    summary: ClassVar[str] = "Proximal policy optimisation on brax's ant, simulated on the device"
    version: ClassVar[int] = 1
    small: ClassVar[Parameters] = {
        "num_envs": 16,
        "num_minibatches": 4,
        "minibatch": 8,
        "epochs": 2,
        "value_width": 64,
    }
    builds_with: ClassVar[tuple[str, ...]] = BUILDS_WITH
    variants: ClassVar[Mapping[str, Parameters]] = {
        "tanh": {"activation": "tanh"},
        "a layer less": {"value_layers": 4},
        "shorter trace": {"trace": 0.9},
        "norm clipped": {"norm": 0.5},
        "values clipped": {"value_clip": 0.2},
    }


WORKLOAD = BraxPpo
