"""DimeNet: messages between atoms within a cutoff, each weighted by distances and angles.

The blocks are those of PyTorch Geometric. Three things are not. The library looks for neighbours
and triplets with extensions of its own, here they are inputs. It has its spherical basis written
by a computer algebra system, which takes seconds at each start: `SphericalBasis` makes the same
functions by their recurrences, from a sine and a cosine, as the library's formulas do. And it calls
block after block for what none of them needs from another, where a small batch leaves a device
waiting for its next operator: `Directional` projects the bases for all blocks in one product, and
lets all output blocks read their messages at once. Weights, their names and the sums are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import spherical_jn
from torch import nn

from workloads.parts.graphs.geometric import (
    BesselBasisLayer,
    EmbeddingBlock,
    Envelope,
    InteractionBlock,
    OutputBlock,
    activation_resolver,
    scatter,
)
from workloads.parts.numerics.classifier import Result

_NEIGHBOURS = 10.0
_HALVINGS = 60  # of an interval of length pi, down to the last bit


def roots(orders: int, count: int) -> NDArray[np.float64]:
    """The first zeros of the spherical Bessel functions, (orders, count).

    Those of one order lie between those of the order before; of the first they are n pi.
    """
    zeros = [np.arange(1, count + orders) * math.pi]
    for order in range(1, orders):
        low, high = zeros[-1][:-1].copy(), zeros[-1][1:].copy()
        sign = np.sign(spherical_jn(order, low))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            is_before = np.sign(spherical_jn(order, middle)) == sign
            low, high = np.where(is_before, middle, low), np.where(is_before, high, middle)
        zeros.append((low + high) / 2)
    return np.stack([row[:count] for row in zeros])


class SphericalBasis(nn.Module):
    """Bessel functions of the distance times Legendre polynomials of the angle's cosine."""

    roots: torch.Tensor
    norms: torch.Tensor
    weights: torch.Tensor

    def __init__(self, orders: int, radial: int, cutoff: float, exponent: int = 5) -> None:
        super().__init__()
        self.orders, self.cutoff = orders, cutoff
        self.envelope = Envelope(exponent)
        zeros = roots(orders, radial)
        order = np.arange(orders)
        norms = np.sqrt(2) / np.abs(spherical_jn(order[:, None] + 1, zeros))
        weights = np.sqrt((2 * order + 1) / (4 * math.pi))
        for name, values in (("roots", zeros), ("norms", norms), ("weights", weights)):
            tensor = torch.tensor(values, dtype=torch.float32)
            self.register_buffer(name, tensor, persistent=False)

    def forward(
        self, distances: torch.Tensor, angles: torch.Tensor, pair: torch.Tensor
    ) -> torch.Tensor:
        """Basis (triplets, orders times radial) of `distances` (pairs,) and `angles` (triplets,).

        `pair` (triplets,): the pair whose distance counts.
        """
        share = distances / self.cutoff
        radial = self._bessel(share[:, None, None] * self.roots) * self.norms
        radial = self.envelope(share)[:, None, None] * radial
        polynomials = self._legendre(angles.cos()) * self.weights
        output: torch.Tensor = (radial[pair] * polynomials[:, :, None]).flatten(1)
        return output

    def _bessel(self, values: torch.Tensor) -> torch.Tensor:
        """Of (pairs, orders, radial), each order's own function."""
        inverse = 1 / values
        sine, cosine = values.sin(), values.cos()
        output = [sine * inverse, (sine * inverse - cosine) * inverse]
        for order in range(2, self.orders):
            output.append((2 * order - 1) * inverse * output[-1] - output[-2])
        own = [function[:, order] for order, function in enumerate(output[: self.orders])]
        return torch.stack(own, dim=1)

    def _legendre(self, cosines: torch.Tensor) -> torch.Tensor:
        """Polynomials (triplets, orders)."""
        output = [torch.ones_like(cosines), cosines]
        for order in range(2, self.orders):
            first = (2 * order - 1) * cosines * output[-1] - (order - 1) * output[-2]
            output.append(first / order)
        return torch.stack(output[: self.orders], dim=1)


class Interaction(InteractionBlock):  # type: ignore[misc]  # the library has no types
    """The library's block, given both bases as its own weights project them."""

    def forward(
        self,
        messages: torch.Tensor,
        radial: torch.Tensor,
        spherical: torch.Tensor,
        before: torch.Tensor,
        after: torch.Tensor,
    ) -> torch.Tensor:
        """Messages (pairs, hidden), of `radial` (the same) and `spherical` (triplets, bilinear)."""
        kept = self.act(self.lin_ji(messages))
        sent = self.act(self.lin_kj(messages)) * radial
        weighted = torch.einsum("wj,wl,ijl->wi", spherical, sent[before], self.W)
        heard = kept + scatter(weighted, after, dim=0, dim_size=len(messages))
        for layer in self.layers_before_skip:
            heard = layer(heard)
        output: torch.Tensor = self.act(self.lin(heard)) + messages
        for layer in self.layers_after_skip:
            output = layer(output)
        return output


def projected(values: torch.Tensor, layers: Sequence[nn.Module]) -> tuple[torch.Tensor, ...]:
    """What linear layers without bias make of one input (count, width), in one product."""
    weights = [cast(torch.Tensor, layer.weight) for layer in layers]
    joined = nn.functional.linear(values, torch.cat(weights))
    return tuple(torch.split(joined, [len(weight) for weight in weights], dim=1))


def read_out(
    blocks: Sequence[Any],
    messages: Sequence[torch.Tensor],
    radials: Sequence[torch.Tensor],
    target: torch.Tensor,
    num_atoms: int,
) -> torch.Tensor:
    """Sum over the library's output blocks of what each makes of its messages (atoms, outputs).

    `messages` and `radials` (pairs, hidden), one for each block.
    """
    products = torch.stack(list(messages)) * torch.stack(list(radials))
    heard = scatter(products, target, dim=1, dim_size=num_atoms)
    for number in range(len(blocks[0].lins)):
        layers = [block.lins[number] for block in blocks]
        weight = torch.stack([layer.weight for layer in layers])
        bias = torch.stack([layer.bias for layer in layers])[:, None]
        heard = blocks[0].act(torch.baddbmm(bias, heard, weight.mT))
    last = torch.stack([block.lin.weight for block in blocks])
    output: torch.Tensor = (heard @ last.mT).sum(dim=0)
    return output


class Directional(nn.Module):
    """The library's DimeNet without its search for neighbours; the loss is the mean square error.

    Output layers begin as large as the others; at nought, as the library has them by default,
    nothing before them would get a gradient in the first step.
    """

    def __init__(
        self,
        *,
        hidden: int,
        blocks: int,
        bilinear: int,
        spherical: int,
        radial: int,
        cutoff: float,
        activation: str,
        typical: int,
    ) -> None:
        super().__init__()
        self.typical = typical
        # The library's own swish is a sigmoid and a product: twice the operators, and more back.
        act = nn.SiLU() if activation == "swish" else activation_resolver(activation)
        self.rbf = BesselBasisLayer(radial, cutoff)
        self.sbf = SphericalBasis(spherical, radial, cutoff)
        self.emb = EmbeddingBlock(radial, hidden, act)
        self.output_blocks = nn.ModuleList(
            OutputBlock(radial, hidden, 1, 3, act, "glorot_orthogonal") for _ in range(blocks + 1)
        )
        self.interaction_blocks = nn.ModuleList(
            Interaction(hidden, bilinear, spherical, radial, 1, 2, act) for _ in range(blocks)
        )
        calm(self)

    def forward(  # noqa: PLR0917 - what a molecule is
        self,
        numbers: torch.Tensor,
        places: torch.Tensor,
        pairs: torch.Tensor,
        before: torch.Tensor,
        after: torch.Tensor,
        owners: torch.Tensor,
        targets: torch.Tensor,
    ) -> Result:
        """Loss, and predictions (molecules, 1) as logits.

        `numbers` (atoms,) of the elements, `places` (atoms, 3) in angstrom, `owners` (atoms,) the
        molecule of each; `pairs`, `before`, `after`: see `parts/graphs/molecules.py`.
        """
        source, target = pairs
        ways = places[source] - places[target]
        distances = ways.square().sum(dim=-1).sqrt()
        radial = self.rbf(distances)
        spherical = self.sbf(distances, self._angles(places, pairs, before, after), before)
        blocks, readers = self._blocks()
        radials = projected(radial, [block.lin_rbf for block in (*blocks, *readers)])
        sphericals = projected(spherical, [block.lin_sbf for block in blocks])
        messages = [self.emb(numbers, radial, target, source)]
        for block, near, around in zip(blocks, radials, sphericals, strict=False):
            messages.append(block(messages[-1], near, around, before, after))
        outputs = read_out(readers, messages, radials[len(blocks) :], target, len(places))
        logits = scatter(outputs, owners, dim_size=len(targets)) / self.typical
        return Result(loss=nn.functional.mse_loss(logits, targets), logits=logits)

    def _blocks(self) -> tuple[list[Any], list[Any]]:
        """Blocks of interaction and of output."""
        return [*self.interaction_blocks], [*self.output_blocks]

    @staticmethod
    def _angles(
        places: torch.Tensor, pairs: torch.Tensor, before: torch.Tensor, after: torch.Tensor
    ) -> torch.Tensor:
        """Angle at the target between the source of its pair and the source of the one before."""
        source, target = pairs
        here = places[target[after]]
        one, other = places[source[after]] - here, places[source[before]] - here
        across = torch.linalg.cross(one, other).norm(dim=-1)
        return torch.atan2(across, (one * other).sum(dim=-1))


def calm(model: Directional) -> None:
    """Scale down what the library draws, so that no block multiplies its messages.

    As drawn there, messages among 10 neighbours grow sixfold with each block, and the first loss
    of six blocks is near 1e7. What a block adds by triplets and by its residual layers is divided
    by `_NEIGHBOURS` and by the root of their number.
    """
    blocks: Any = model.interaction_blocks
    outputs: Any = model.output_blocks
    with torch.no_grad():
        for block in blocks:
            block.W.div_(_NEIGHBOURS)
            for layer in (*block.layers_before_skip, *block.layers_after_skip):
                layer.lin2.weight.div_((3 * len(blocks)) ** 0.5)
        for output in outputs:
            output.lin.weight.div_(len(blocks) + 1)
