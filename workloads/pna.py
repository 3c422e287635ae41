"""Principal neighbourhood aggregation on molecules: gathers, four reductions, thin products.

One step is forward, mean square error of a predicted energy, backward and AdamW, on generated
molecules (`parts/graphs/molecules.py`) whose energy is a sum over their atoms and bonds. The
network is PyTorch Geometric's PNA of 64 layers without normalisation: mean, smallest, largest and
standard deviation of the neighbours, each scaled in three ways. `parts/graphs/graphs.py` says how
its reductions are made bitwise reproducible in the forward pass, and how its weights begin.

The checks of `parts/training` recompute the step; which neighbours were the smallest and the
largest is taken from the device and held to float64 (`parts/training`). A lost or doubled bond, a
wrong target, a product in a lower precision, a stale gradient and a weight that AdamW missed would
each be seen.

A gradient of a gather is a sum that a device may add up in any order: `spread` is ten times what
outputs differed by with the bonds of each atom shuffled. Bounds grow with the layers and allow
three times what was measured; the learning rate goes with layers and widths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch

from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.graphs import molecules
from workloads.parts.graphs.graphs import PrincipalNeighbours
from workloads.parts.numerics.parameters import require_choice, require_positive, require_range
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.inputs import DrawnInputs, Inputs, of_rank
from workloads.parts.training.supervised import Supervised

ACTIVATIONS = ("relu", "elu")
_INPUTS = 13
"""Parts of what a layer takes in: the atom itself, and four reductions scaled in three ways."""


@dataclass(frozen=True, kw_only=True)
class Pna(Supervised):
    """`features` of atoms and bonds; `hidden` is the width of all layers but the last."""

    summary: ClassVar[str] = "PNA training: a deep graph network on molecules"
    version: ClassVar[int] = 2
    bound_by: ClassVar[Bound] = "memory"
    data_pattern: ClassVar[str] = "generated molecules, their energy to be predicted"
    domain: ClassVar[str] = "graphs"
    is_repeatable: ClassVar[bool] = False
    spread: ClassVar[float] = 0.02
    small: ClassVar[Parameters] = {
        "batch": 32,
        "features": 32,
        "hidden": 32,
        "layers": 8,
        "learning_rate": 3e-4,
    }
    checks_later: ClassVar[bool] = True
    reuses_output: ClassVar[bool] = True
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one molecule less": {"batch_change": -1},
        "one layer more": {"extra_layers": 1},
        "two layers less": {"extra_layers": -2},
        "elu": {"activation": "elu"},
    }

    batch: int = 4096
    dtype: str = "float32"
    learning_rate: float = 1e-5
    features: int = 64
    hidden: int = 64
    layers: int = 64
    activation: str = "relu"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "features", "hidden", "layers")
        require_choice("activation", self.activation, ACTIVATIONS)
        require_choice("dtype", self.dtype, ("float32",))
        require_range("layers, with extra_layers,", self.depth, 2)  # the first and the last

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
        for width, height in pairwise(widths):
            flops += 2 * 2 * bonds * self.features * width
            flops += 3 * 2 * bonds * 3 * width * width
            flops += 3 * 2 * atoms * (_INPUTS * width * height + height * height)
        return Work(units=self.count, unit="graphs", flops=flops, precision=self.dtype)

    def model(self) -> PrincipalNeighbours:
        degrees = np.bincount(molecules.sample().degrees.numpy())
        return PrincipalNeighbours(
            features=self.features,
            hidden=self.hidden,
            layers=self.depth,
            activation=self.activation,
            degrees=torch.tensor(degrees, device="cpu"),
            typical=molecules.TYPICAL,
        )

    def source(self) -> Inputs:
        return DrawnInputs(draw=lambda drawer, rank: partial(self.inputs, drawer, rank))

    def inputs(self, drawer: Drawer, rank: int, index: int) -> dict[str, torch.Tensor]:
        """The input set of a number, where the drawer draws."""
        drawn = molecules.drawn(drawer, of_rank(str(index), rank), self.count)
        return {
            "atoms": molecules.atom_features(drawn, self.features),
            "bonds": molecules.bond_features(drawn, self.features),
            "links": drawn.bonds,
            "offsets": drawn.offsets,
            "targets": molecules.energies(drawn),
        }

    def error_bounds(self) -> ErrorBounds:
        depth = self.depth
        return ErrorBounds(
            loss=0.5 * depth,
            logits=4 * depth,
            gradients=16 * depth,
            statistics=1,
            has_branch_points=True,
            branch_points=100,
            scale=2 * depth,
        )


WORKLOAD = Pna
