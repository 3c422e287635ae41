"""One training over several ranks: shared out by batch, by weights or by tensors, and checked.

How a workload gets it: two fields, `ranks: int = 1` and `parallel: str = "none"`, and

    require_parallel(self.ranks, self.parallel)       in __post_init__, and in build:
    return training.begin(target, ranks=self.ranks, parallel=self.parallel, seed=seed, ...)

`parallel` is "ddp" (each rank all weights and its own batch), "fsdp" (each rank a share of the
weights and its own batch) or "tensor" (the matrices of attention and feed-forward layers cut by
columns and rows, one batch for all). `generate(rank)` gives all input sets of a rank, from
`seed_of(seed, rank)`; units and operations of a step count `num_batches` times. The statistics of
batch normalisation stay each rank's own. Dropout must be 0: the masks of others are not known.

What is checked, on every rank: its loss, logits and update, and the gradient averaged over the
batches of all ranks, which the host generates anew, against float64. From what the ranks tell each
other: inputs and weights of every rank (bits, by name), and the share that each rank's gradient
has in the average (a lost, scaled or replaced one is named). Nothing of it is timed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from appliance.records import Check
from workloads.contract import ParameterError, Target
from workloads.parts import ranks
from workloads.parts.parameters import require_choice
from workloads.parts.ranks import Ranks
from workloads.parts.seals import seal, seal_all

Tensors = Mapping[str, torch.Tensor]
PARALLEL = ("none", "ddp", "fsdp", "tensor")
_COLUMNS = ("query", "key", "value", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_COLUMN_PATHS = ("intermediate.dense",)
_ROWS = ("o_proj", "down_proj")
_ROW_PATHS = ("output.dense",)
_SPREAD = 0x9E3779B97F4A7C15  # odd and large, so that no two ranks have neighbouring seeds
_SAMPLE = 2**15  # elements of one tensor that tell a rank's share


def require_parallel(number: int, parallel: str) -> None:
    """Raise ParameterError unless so many ranks can train in this way."""
    require_choice("parallel", parallel, PARALLEL)
    if number < 1:
        raise ParameterError(f"ranks is {number}: give a number of 1 or more")
    if number > 1 and parallel == "none":
        raise ParameterError(f"ranks is {number} and parallel none: give ddp, fsdp or tensor")
    if number == 1 and parallel != "none":
        raise ParameterError(f"parallel is {parallel} and ranks is 1: give ranks of 2 or more")


def num_batches(number: int, parallel: str) -> int:
    """Batches that a step trains on: one for each rank, or one for all."""
    return 1 if parallel == "tensor" else number


def seed_of(seed: int, rank: int) -> int:
    """Seed of a rank's own inputs; rank 0 has the seed of a training that is alone."""
    return (seed + rank * _SPREAD) % 2**63 if rank else seed


@dataclass(kw_only=True)
class Peers:
    """The ranks of one training, and what the host needs to follow all of them.

    `make`: a plain copy of the model on the host, as first built. `generate(rank)`: input sets.
    `runner` is what the forward pass goes through, `device` where words between ranks lie.
    """

    ranks: Ranks
    parallel: str
    make: Callable[[], torch.nn.Module]
    generate: Callable[[int], Iterable[Tensors]]
    runner: Any
    device: torch.device
    logits: Sequence[int] = field(init=False, default=())
    """Seals of every rank's logits of the step that is judged."""

    @property
    def sharers(self) -> range:
        """Ranks that have a batch of their own."""
        return range(num_batches(self.ranks.size, self.parallel))

    @property
    def own(self) -> int:
        """Whose batch this rank works on."""
        return self.ranks.rank if self.parallel != "tensor" else 0

    def batch(self, rank: int, index: int) -> Tensors:
        """Inputs of a rank as the host generates them."""
        return next(itertools.islice(iter(self.generate(rank)), index, None))


def joined(
    target: Target,
    parallel: str,
    model: torch.nn.Module,
    make: Callable[[], torch.nn.Module],
    generate: Callable[[int], Iterable[Tensors]],
) -> Peers:
    """Join the other ranks and share out the model, whose optimiser is to be made afterwards."""
    together = ranks.join(target)
    with ranks.operation(f"sharing out the model ({parallel})"):
        runner = _SHARE_OUT[parallel](model, together, target.device)
    return Peers(
        ranks=together,
        parallel=parallel,
        make=make,
        generate=generate,
        runner=runner,
        device=target.device,
    )


# ------------------------------------------------------------------ the three ways


def _replicate(model: torch.nn.Module, together: Ranks, device: torch.device) -> torch.nn.Module:
    del together, device
    return torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)


def _shard(model: torch.nn.Module, together: Ranks, device: torch.device) -> torch.nn.Module:
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - a second to import

    mesh = _mesh(together, device)
    for layer in _layers(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _layers(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Members of the outermost lists of modules: a transformer's layers."""
    for child in model.children():
        yield from child.children() if isinstance(child, torch.nn.ModuleList) else _layers(child)


def _cut(model: torch.nn.Module, together: Ranks, device: torch.device) -> torch.nn.Module:
    from torch.distributed.tensor.parallel import (  # noqa: PLC0415 - a second to import
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    plan: dict[str, Any] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear):
            last = name.rpartition(".")[2]
            if last in _COLUMNS or name.endswith(_COLUMN_PATHS):
                plan[name] = ColwiseParallel()
            elif last in _ROWS or name.endswith(_ROW_PATHS):
                plan[name] = RowwiseParallel()
    if not plan:
        message = f"parallel is tensor, and how to cut {type(model).__name__} is not known"
        raise ParameterError(message)
    parallelize_module(model, _mesh(together, device), plan)
    return model


def _mesh(together: Ranks, device: torch.device) -> Any:
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - see above

    return init_device_mesh(device.type, (together.size,))


_SHARE_OUT: Mapping[str, Callable[[torch.nn.Module, Ranks, torch.device], torch.nn.Module]] = {
    "ddp": _replicate,
    "fsdp": _shard,
    "tensor": _cut,
}


# ------------------------------------------------------------------ shares of tensors


def is_shared_out(tensor: torch.Tensor) -> bool:
    """Whether each rank holds a part of the tensor."""
    return hasattr(tensor, "full_tensor")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a tensor, shared out or not."""
    if not is_shared_out(tensor):
        return tensor
    part: torch.Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return part


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor; the ranks must ask for it together."""
    if not is_shared_out(tensor):
        return tensor
    with ranks.operation("gathering a tensor"):
        gathered: torch.Tensor = tensor.full_tensor()  # type: ignore[attr-defined]
    return gathered


def rejoined(part: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """All of a tensor of which this rank holds `part`, shared out as `like` is."""
    if not is_shared_out(like):
        return part
    from torch.distributed.tensor import DTensor  # noqa: PLC0415 - a second to import

    given: Any = like
    return whole(
        DTensor.from_local(
            part,
            given.device_mesh,
            given.placements,
            run_check=False,
            shape=given.shape,
            stride=given.stride(),
        )
    )


# ------------------------------------------------------------------ what the ranks tell each other


def tell(peers: Peers, logits: torch.Tensor) -> None:
    """Let every rank know the others' logits, so that it can follow their sides of the kinks."""
    told = peers.ranks.all_told([seal(logits)], peers.device)
    peers.logits = [one for (one,) in told]


def check_inputs(peers: Peers, batch: Tensors, index: int) -> Iterator[Check]:
    """The bits of the batch that each rank worked on, against what the host generates."""
    told = peers.ranks.all_told([seal_all(batch)], peers.device)
    for rank, (one,) in enumerate(told):
        expected = seal_all(peers.batch(rank if len(peers.sharers) > 1 else 0, index))
        wrong = int(one != expected)
        yield Check(name=f"inputs of rank {rank} differ", error=wrong, bound=0.0, kind="exact")


def check_weights(peers: Peers, weights: Tensors, gradient_error: float) -> Iterator[Check]:
    """Tensors of each rank whose bits are not those of the rank that is nearest to float64."""
    error = torch.tensor(gradient_error, dtype=torch.float64).nan_to_num(nan=torch.inf)
    numbers = [int(error.view(torch.int64)), *(seal(weights[name]) for name in sorted(weights))]
    told = peers.ranks.all_told(numbers, peers.device)
    # Doubles from 0 on have the order of their bits.
    _, *truth = min(told, key=lambda one: one[0])
    for rank, (_, *seals) in enumerate(told):
        wrong = sum(one != other for one, other in zip(seals, truth, strict=True))
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
    told = peers.ranks.all_told(own.view(torch.int64).tolist(), peers.device)
    return torch.tensor(told).view(torch.float64)


def average(peers: Peers, exact: torch.Tensor) -> torch.Tensor:
    """Mean over the ranks that have a batch of their own of a tensor on the host."""
    if len(peers.sharers) == 1:
        return exact
    return peers.ranks.summed(exact.to(peers.device, copy=True)).cpu() / len(peers.sharers)


def check_shares(given: torch.Tensor, exact: torch.Tensor, bound: float) -> Iterator[Check]:
    """Share of each rank's own gradient in the average: 1, if nothing was lost or scaled.

    `given` (elements) is sampled of the average, `exact` (ranks, elements) of the ranks' gradients
    in float64; `bound` is that of an average, relative to its norm. The more alike the ranks'
    gradients are, the less can they be told apart.
    """
    count = len(exact)
    given = given * count
    if not bool(torch.isfinite(given).all()):
        given = torch.full_like(given, torch.inf)
    shares = torch.linalg.lstsq(exact.T, given[:, None]).solution[:, 0]
    apart = torch.linalg.svdvals(exact)[-1]
    least = (2 * bound * exact.sum(0).norm() / apart).item()
    for rank, share in enumerate(shares.tolist()):
        yield Check(
            name=f"share of rank {rank} in the average gradient",
            error=abs(share - 1),
            bound=least,
            detects=least,
            detects_what="of the rank's own gradient, lost, added or replaced",
        )
