"""What the graph networks take from PyTorch Geometric, imported in one place.

The library compiles functions with `torch.jit.script` while it is imported, which this torch says
is deprecated; that is the library's to change and no news to a user, so it is not passed on.

It also reads torch's description of its own build, for whether that has MKL. A build for
accelerators may start a driver to describe itself (seen with torch 2.11: a thread of the driver
came with the call), after which no fork of the process can use the device, and each launch of the
run would import anew. So while it is imported torch describes no more than that.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def _described_without_a_device() -> Iterator[None]:
    """Have torch say of its build whether it has MKL, and nothing that it asks a device for."""
    describe = torch.__config__.show
    has_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    said = f"USE_MKL={'ON' if has_mkl else 'OFF'}"
    torch.__config__.show = lambda: said
    try:
        yield
    finally:
        torch.__config__.show = describe


with warnings.catch_warnings(), _described_without_a_device():
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
