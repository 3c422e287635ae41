"""DimeNet on molecules in space: small gathers and sums along pairs and triplets of atoms.

One step is forward, mean square error of a predicted energy, backward and AdamW, on generated
molecules (`parts/graphs/molecules.py`) whose energy depends on elements, neighbours and distances.
Pairs within the cutoff and the triplets that they make are found on the host when inputs are drawn,
so the search for them is no part of the step. `parts/graphs/directional.py` says what else differs
from the library: bases made quicker, blocks that are called together where they can be, and weights
that begin small enough for six blocks.

The checks of `parts/training` recompute the step: a lost pair or triplet, a wrong angle or
target, a product in a lower precision, a stale gradient and a weight that AdamW missed would each
be seen.

The library adds up messages by atomic operations, in any order: `spread` is ten times what outputs
differed by with pairs and triplets shuffled. Bounds allow five times what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch

from appliance.records.json import Parameters
from appliance.records.workload import Bound, Work
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.graphs import molecules
from workloads.parts.graphs.directional import Directional
from workloads.parts.numerics.parameters import require_choice, require_positive, require_range
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.inputs import DrawnInputs, Inputs, of_rank
from workloads.parts.training.supervised import Supervised

ACTIVATIONS = ("swish", "gelu", "softplus")


@dataclass(frozen=True, kw_only=True)
class Dimenet(Supervised):
    """`cutoff` in angstrom; `bilinear`, `spherical`, `radial`: sizes of the two bases."""

    summary: ClassVar[str] = "DimeNet training: messages along pairs and angles of atoms"
    version: ClassVar[int] = 3
    bound_by: ClassVar[Bound] = "latency"
    data_pattern: ClassVar[str] = "generated molecules in space, their energy to be predicted"
    domain: ClassVar[str] = "graphs"
    is_repeatable: ClassVar[bool] = False
    spread: ClassVar[float] = 0.05
    small: ClassVar[Parameters] = {"batch": 8, "hidden": 16, "blocks": 2, "bilinear": 4}
    variants: ClassVar[Mapping[str, Parameters]] = {
        "one molecule less": {"batch_change": -1},
        "one block more": {"extra_layers": 1},
        "gelu": {"activation": "gelu"},
        "nearer cutoff": {"cutoff": 4.0},
    }
    checks_later: ClassVar[bool] = True
    reuses_output: ClassVar[bool] = True

    batch: int = 16
    dtype: str = "float32"
    learning_rate: float = 1e-3
    hidden: int = 64
    blocks: int = 6
    bilinear: int = 8
    spherical: int = 7
    radial: int = 6
    cutoff: float = 5.0
    activation: str = "swish"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "hidden", "blocks", "bilinear", "radial")
        require_choice("activation", self.activation, ACTIVATIONS)
        require_choice("dtype", self.dtype, ("float32",))
        require_range("spherical", self.spherical, 2)  # the recurrences begin with two
        require_range("blocks, with extra_layers,", self.blocks + self.extra_layers, 1)
        require_range("cutoff", self.cutoff, 2, 10, unit="angstrom")

    def work(self) -> Work:
        """Graphs, and the expected operations: of pairs, and of two that meet, as atoms lie."""
        flops = self.flops(molecules.expected_neighbours(self.count, self.cutoff))
        return Work(units=self.count, unit="graphs", flops=round(flops), precision=self.dtype)

    def flops(self, near: molecules.Near) -> float:
        """Operations of one step on so many atoms, pairs and triplets."""
        blocks, width = self.blocks + self.extra_layers, self.hidden
        bases = 2 * blocks + 2  # layers that read the basis of distances, which is learned
        pair = 6 * (bases * self.radial * width + (3 + 9 * blocks) * width**2)
        angle = 4 * self.spherical * self.radial * self.bilinear  # the basis of angles is not
        triplet = blocks * (angle + 6 * self.bilinear * width**2)
        atom = 6 * (blocks + 1) * (3 * width**2 + width)
        return pair * near.pairs + triplet * near.triplets + atom * near.atoms

    def model(self) -> Directional:
        return Directional(
            hidden=self.hidden,
            blocks=self.blocks + self.extra_layers,
            bilinear=self.bilinear,
            spherical=self.spherical,
            radial=self.radial,
            cutoff=self.cutoff,
            activation=self.activation,
            typical=molecules.TYPICAL,
        )

    def source(self) -> Inputs:
        return DrawnInputs(draw=lambda drawer, rank: partial(self.inputs, drawer, rank))

    def inputs(self, drawer: Drawer, rank: int, index: int) -> dict[str, torch.Tensor]:
        """The input set of a number, where the drawer draws."""
        drawn = molecules.drawn(drawer, of_rank(str(index), rank), self.count)
        near = molecules.neighbours(drawn, self.cutoff)
        return {
            "numbers": drawn.numbers,
            "places": drawn.places.float().mul_(molecules.PLACE),
            "pairs": near.pairs,
            "before": near.before,
            "after": near.after,
            "owners": drawn.owners,
            "targets": molecules.energies(drawn),
        }

    def error_bounds(self) -> ErrorBounds:
        return ErrorBounds(loss=4, logits=32, gradients=32, scale=8)


WORKLOAD = Dimenet
