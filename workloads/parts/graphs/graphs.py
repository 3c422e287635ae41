"""Graph networks of PyTorch Geometric, made so that a step can be followed in float64.

Two things of the library's PNA cannot be. It adds up neighbours by atomic operations, in another
order each time: here edges are sorted by target and the library reduces them segment by segment,
as it does itself where determinism is asked for. And its standard deviation is the root of
E[x^2] - E[x]^2, set to nought below 1e-5: of neighbours that are alike, rounding alone decides
whether that is nought or not. `Deviation` is the formula of PNA's authors, the root of the
variance and 1e-5, with the variance as the mean square of differences.
"""

from __future__ import annotations

import torch
from torch import nn

from workloads.parts.graphs.geometric import PNA, Aggregation, EdgeIndex, Linear
from workloads.parts.numerics.classifier import Result

_EPSILON = 1e-5  # as the authors of PNA have it (Corso et al. 2020)
SCALERS = ("identity", "amplification", "attenuation")


class Deviation(Aggregation):  # type: ignore[misc]  # the library is untyped
    """Standard deviation of neighbours, smooth also where they are alike."""

    def forward(
        self,
        x: torch.Tensor,
        index: torch.Tensor | None = None,
        ptr: torch.Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
    ) -> torch.Tensor:
        """Reduce `x` along `dim`; the arguments are those of the library's aggregations."""
        assert index is not None  # noqa: S101 - the library always gives it with sorted edges
        # The differences add up to nought, so no gradient comes of the mean.
        mean = self.reduce(x.detach(), index, ptr, dim_size, dim, reduce="mean")
        centred = x - mean.index_select(dim, index)
        variance = self.reduce(centred.square(), index, ptr, dim_size, dim, reduce="mean")
        output: torch.Tensor = (variance + _EPSILON).sqrt()
        return output


class PrincipalNeighbours(nn.Module):
    """The library's PNA, the sum over each molecule's atoms, and the mean square error."""

    def __init__(
        self,
        *,
        features: int,
        hidden: int,
        layers: int,
        activation: str,
        degrees: torch.Tensor,
        typical: int,
    ) -> None:
        super().__init__()
        self.typical = typical
        self.network = PNA(
            in_channels=features,
            hidden_channels=hidden,
            num_layers=layers,
            out_channels=1,
            act=activation,
            aggregators=["mean", "min", "max", Deviation()],
            scalers=list(SCALERS),
            deg=degrees,
            edge_dim=features,
        )
        for module in self.network.modules():
            if isinstance(module, Aggregation):
                module._deterministic = True  # noqa: SLF001 - what the library sets itself
        draw(self.network)

    def forward(
        self,
        atoms: torch.Tensor,
        bonds: torch.Tensor,
        links: torch.Tensor,
        offsets: torch.Tensor,
        targets: torch.Tensor,
    ) -> Result:
        """Loss, and predictions (molecules, 1) as logits.

        `atoms` (atoms, features), `bonds` (bonds, features), `links` (2, bonds) sorted by target,
        `offsets` (molecules + 1,) of their atoms, `targets` (molecules, 1).
        """
        edges = EdgeIndex(links, sparse_size=(len(atoms), len(atoms)), sort_order="col")
        output = self.network(atoms, edges, edge_attr=bonds)
        logits = torch.segment_reduce(output, "sum", offsets=offsets, initial=0) / self.typical
        return Result(loss=nn.functional.mse_loss(logits, targets), logits=logits)


def draw(network: PNA) -> None:
    """First weights with which each layer hands on what comes in, and adds a little to it.

    Without normalisation, 64 layers of the usual weights forget their input: so an atom's own
    features pass with factor 1, what its neighbours send is drawn with a variance of one over the
    inputs and the layers, and biases begin at nought. The last layer is drawn as usual.
    """
    layers = list(network.convs)
    for number, layer in enumerate(layers):
        is_last = number == len(layers) - 1
        for matrix in (layer.edge_encoder, layer.pre_nns[0][0]):
            _normal(matrix, 1.0)
        after = layer.post_nns[0][0]
        _normal(after, 1.0 if is_last else 1 / len(layers))
        if not is_last and after.out_channels == layer.F_in:
            with torch.no_grad():
                after.weight[:, : layer.F_in].copy_(torch.eye(layer.F_in))
        nn.init.eye_(layer.lin.weight)
        nn.init.zeros_(layer.lin.bias)


def _normal(layer: Linear, variance: float) -> None:
    nn.init.normal_(layer.weight, std=(variance / layer.in_channels) ** 0.5)
    nn.init.zeros_(layer.bias)
