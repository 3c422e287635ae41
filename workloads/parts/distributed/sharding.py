"""How ranks share a training: replicated, sharded, or cut by rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from workloads.contract.failures import ParameterError
from workloads.contract.target import Target
from workloads.parts.distributed import ranks
from workloads.parts.distributed.ranks import Ranks
from workloads.parts.distributed.tensors import Tensors
from workloads.parts.numerics.parameters import require_choice

PARALLEL = ("none", "ddp", "fsdp", "tensor")
_COLUMNS = ("query", "key", "value", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_COLUMN_PATHS = ("intermediate.dense",)
_ROWS = ("o_proj", "down_proj")
_ROW_PATHS = ("output.dense",)
_SPREAD = 0x9E3779B97F4A7C15  # odd and large, so that no two ranks have neighbouring seeds


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

    `make`: a plain copy of the model on the host, as first built. `batch(rank, index)`: an input
    set of a rank, as the host makes it.
    `runner` is what the forward pass goes through, `device` where words between ranks lie.
    """

    ranks: Ranks
    parallel: str
    make: Callable[[], torch.nn.Module]
    batch: Callable[[int, int], Tensors]
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


def joined(
    target: Target,
    parallel: str,
    model: torch.nn.Module,
    make: Callable[[], torch.nn.Module],
    batch: Callable[[int, int], Tensors],
) -> Peers:
    """Join the other ranks and share out the model, whose optimiser is to be made afterwards."""
    together = ranks.join(target)
    with ranks.operation(f"sharing out the model ({parallel})"):
        runner = _SHARE_OUT[parallel](model, together, target.device)
    return Peers(
        ranks=together,
        parallel=parallel,
        make=make,
        batch=batch,
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
    for module in (*_layers(model), model):
        # Gloo of torch 2.8 adds gradients up where an average was asked for, and says nothing.
        fully_shard(module, mesh=mesh).set_force_sum_reduction_for_comms(device.type == "cpu")
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
