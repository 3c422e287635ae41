"""What is checked across ranks: inputs, weights, and each rank's share of the average."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from appliance.records.journal import Check
from workloads.parts.distributed.sharding import Peers
from workloads.parts.distributed.tensors import Tensors
from workloads.parts.numerics.checksums import checksum, checksum_all

_SAMPLE = 2**15  # elements of one tensor that show a rank's share


# ------------------------------------------------------------------ what the ranks exchange


def share_logits(peers: Peers, logits: torch.Tensor) -> None:
    """Exchange checksums of the logits, so that each rank can follow the others' branches."""
    gathered = peers.ranks.all_gathered([checksum(logits)], peers.device)
    peers.logits = [one for (one,) in gathered]


def check_inputs(peers: Peers, batch: Tensors, index: int) -> Iterator[Check]:
    """The bits of the batch that each rank worked on, against what the host generates."""
    gathered = peers.ranks.all_gathered([checksum_all(batch)], peers.device)
    for rank, (one,) in enumerate(gathered):
        expected = checksum_all(peers.batch(rank if len(peers.sharers) > 1 else 0, index))
        wrong = int(one != expected)
        yield Check(name=f"inputs of rank {rank} differ", error=wrong, bound=0.0, kind="exact")


def check_weights(peers: Peers, weights: Tensors, gradient_error: float) -> Iterator[Check]:
    """Tensors of each rank whose bits are not those of the rank that is nearest to float64."""
    error = torch.tensor(gradient_error, dtype=torch.float64).nan_to_num(nan=torch.inf)
    numbers = [int(error.view(torch.int64)), *(checksum(weights[name]) for name in sorted(weights))]
    gathered = peers.ranks.all_gathered(numbers, peers.device)
    # Doubles from 0 on have the order of their bits.
    _, *truth = min(gathered, key=lambda one: one[0])
    for rank, (_, *checksums) in enumerate(gathered):
        wrong = sum(one != other for one, other in zip(checksums, truth, strict=True))
        yield Check(
            name=f"weights of rank {rank} differ",
            error=wrong,
            bound=0.0,
            kind="exact",
            detects=1.0,
            detects_what=f"tensor with a bit that other ranks have not, of {len(truth)}",
        )


# ------------------------------------------------------------------ whose gradient is missing


def sample(tensor: torch.Tensor) -> torch.Tensor:
    """Elements of a tensor at even distances, in float64 on the host."""
    flat = tensor.detach().reshape(-1)
    return flat[:: len(flat) // _SAMPLE + 1].cpu().double()


def sampled(gradients: Tensors) -> torch.Tensor:
    """Elements of all tensors at even distances, in the order of their names."""
    return torch.cat([sample(tensor) for _, tensor in sorted(gradients.items())])


def of_all(peers: Peers, own: torch.Tensor) -> torch.Tensor:
    """What every rank has of the same float64 vector: (ranks, elements)."""
    gathered = peers.ranks.all_gathered(own.view(torch.int64).tolist(), peers.device)
    return torch.tensor(gathered).view(torch.float64)


def average(peers: Peers, exact: torch.Tensor) -> torch.Tensor:
    """Mean over the ranks that have a batch of their own of a tensor on the host."""
    if len(peers.sharers) == 1:
        return exact
    return peers.ranks.summed(exact.to(peers.device, copy=True)).cpu() / len(peers.sharers)


def check_shares(averaged: torch.Tensor, exact: torch.Tensor, bound: float) -> Iterator[Check]:
    """Share of each rank's own gradient in the average: 1, if nothing was lost or scaled.

    `averaged` (elements) is sampled of the average, `exact` (ranks, elements) of the ranks'
    gradients in float64; `bound` is that of an average, relative to its norm. The more alike the
    ranks' gradients are, the less can they be told apart.
    """
    count = len(exact)
    averaged = averaged * count
    if not bool(torch.isfinite(averaged).all()):
        averaged = torch.full_like(averaged, torch.inf)
    shares = torch.linalg.lstsq(exact.T, averaged[:, None]).solution[:, 0]
    disagreement = torch.linalg.svdvals(exact)[-1]
    least = (2 * bound * exact.sum(0).norm() / disagreement).item()
    for rank, share in enumerate(shares.tolist()):
        yield Check(
            name=f"share of rank {rank} in the average gradient",
            error=abs(share - 1),
            bound=least,
            detects=least,
            detects_what="of the rank's own gradient, lost, added or replaced",
        )
