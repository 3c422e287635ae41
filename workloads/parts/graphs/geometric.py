"""What the graph networks take from PyTorch Geometric, imported in one place.

The library compiles functions with `torch.jit.script` while it is imported, which this torch says
is deprecated; that is the library's to change and no news to a user, so it is not passed on.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric import EdgeIndex
    from torch_geometric.nn import PNA
    from torch_geometric.nn.aggr import Aggregation
    from torch_geometric.nn.dense import Linear
    from torch_geometric.nn.models.dimenet import (
        BesselBasisLayer,
        EmbeddingBlock,
        Envelope,
        InteractionBlock,
        OutputBlock,
        SphericalBasisLayer,
    )
    from torch_geometric.nn.resolver import activation_resolver
    from torch_geometric.utils import scatter

__all__ = [
    "PNA",
    "Aggregation",
    "BesselBasisLayer",
    "EdgeIndex",
    "EmbeddingBlock",
    "Envelope",
    "InteractionBlock",
    "Linear",
    "OutputBlock",
    "SphericalBasisLayer",
    "activation_resolver",
    "scatter",
]
