"""Train a policy to hop: proximal policy optimisation on the hopper of brax, all on the device.

A step makes 10 steps of 128 hoppers, and from these 1,280 samples 128 updates: four times over
all, in 32 minibatches of 40. Policy and value have two layers of 256 with tanh; the deviation of
the actions is a weight of its own. Adam at 3e-4 with the gradient's norm clipped to 0.5, values
clipped too, discount 0.99. Everything is small, so this measures how fast a device starts one
short kernel after another.

What is checked, and what of it is exact, `parts/reinforcement/simulated_ppo.py` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from appliance.records.json import Parameters
from workloads.parts.reinforcement.simulated_ppo import BUILDS_WITH, SimulatedPpo


@dataclass(frozen=True, kw_only=True)
class Ppo(SimulatedPpo):
    """The base's parameters with this row's defaults."""

    summary: ClassVar[str] = "Proximal policy optimisation on brax's hopper, a small network"
    version: ClassVar[int] = 1
    small: ClassVar[Parameters] = {
        "num_envs": 8,
        "num_minibatches": 4,
        "minibatch": 20,
        "epochs": 2,
        "policy_width": 32,
        "value_width": 32,
    }
    builds_with: ClassVar[tuple[str, ...]] = BUILDS_WITH
    variants: ClassVar[Mapping[str, Parameters]] = {
        "swish": {"activation": "swish"},
        "a layer more": {"policy_layers": 3},
        "shorter trace": {"trace": 0.9},
        "entropy": {"entropy": 0.01},
        "values not clipped": {"value_clip": 0.0},
    }

    environment: str = "hopper"
    num_envs: int = 128
    unroll: int = 10
    minibatch: int = 40
    grouped: int = 1
    policy_width: int = 256
    policy_layers: int = 2
    value_layers: int = 2
    activation: str = "tanh"
    has_free_deviation: bool = True
    norm: float = 0.5
    discount: float = 0.99
    clip: float = 0.2
    value_clip: float = 0.2
    entropy: float = 0.0


WORKLOAD = Ppo
