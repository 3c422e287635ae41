"""Principal neighbourhood aggregation on molecules: gathers, four reductions, thin products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from appliance.records import Bound, Work
from workloads.contract import ParameterError
from workloads.parts import molecules
from workloads.parts.graphs import PrincipalNeighbours
from workloads.parts.parameters import require_choice, require_positive
from workloads.parts.supervised import Supervised
from workloads.parts.training import Growth

ACTIVATIONS = ("relu", "elu")
_INPUTS = 13
"""Parts of what a layer takes in: the atom itself, and four reductions scaled in three ways."""


@dataclass(frozen=True, kw_only=True)
class Pna(Supervised):
    """`features` of atoms and bonds; `hidden` is the width of all layers but the last."""

    summary: ClassVar[str] = "PNA training: a deep graph network on molecules"
    version: ClassVar[int] = 1
    bound_by: ClassVar[Bound] = "memory"
    data_pattern: ClassVar[str] = "generated molecules, their energy to be predicted"
    domain: ClassVar[str] = "graphs"
    is_repeatable: ClassVar[bool] = False
    spread: ClassVar[float] = 1e-3
    small: ClassVar[Mapping[str, bool | int | float | str]] = {
        "batch": 32,
        "features": 32,
        "hidden": 32,
        "layers": 8,
        "rate": 3e-4,
    }
    variants: ClassVar[Mapping[str, Mapping[str, bool | int | float | str]]] = {
        "one molecule less": {"batch_change": -1},
        "one layer more": {"extra_layers": 1},
        "two layers less": {"extra_layers": -2},
        "elu": {"activation": "elu"},
    }

    batch: int = 4096
    dtype: str = "float32"
    rate: float = 1e-5
    features: int = 64
    hidden: int = 64
    layers: int = 64
    activation: str = "relu"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "features", "hidden", "layers")
        require_choice("activation", self.activation, ACTIVATIONS)
        require_choice("dtype", self.dtype, ("float32",))
        if self.depth < 2:  # noqa: PLR2004 - the first layer and the last
            raise ParameterError(f"layers is {self.layers}: give 2 at least, the first and last")

    @property
    def depth(self) -> int:
        """Layers of the network."""
        return self.layers + self.extra_layers

    def work(self) -> Work:
        """Products of a layer, forward and for both gradients; bonds' features have none."""
        sizes = molecules.sizes_of(self.count)
        atoms, bonds = int(sizes.sum()), 2 * int(molecules.num_bonds(sizes).sum())
        widths = [self.features, *[self.hidden] * (self.depth - 1), 1]
        flops = 0
        for width, height in zip(widths, widths[1:], strict=False):
            flops += 2 * 2 * bonds * self.features * width
            flops += 3 * 2 * bonds * 3 * width * width
            flops += 3 * 2 * atoms * (_INPUTS * width * height + height * height)
        return Work(units=self.count, unit="graphs", flops=flops, precision=self.dtype)

    def model(self) -> PrincipalNeighbours:
        degrees = np.bincount(molecules.sample().degrees)
        return PrincipalNeighbours(
            features=self.features,
            hidden=self.hidden,
            layers=self.depth,
            activation=self.activation,
            degrees=torch.tensor(degrees, device="cpu"),
            typical=molecules.TYPICAL,
        )

    def inputs(self, rng: torch.Generator) -> dict[str, torch.Tensor]:
        drawn = molecules.drawn(rng, self.count)
        return {
            "atoms": molecules.atom_features(drawn, self.features),
            "bonds": molecules.bond_features(drawn, self.features),
            "links": torch.from_numpy(drawn.bonds),
            "offsets": torch.from_numpy(drawn.offsets),
            "targets": molecules.energies(drawn),
        }

    def growth(self) -> Growth:
        return Growth(
            loss=4, logits=64, gradients=32, statistics=1, has_kinks=True, kinks=100, scale=8
        )


WORKLOAD = Pna
