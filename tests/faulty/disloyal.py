"""Training over ranks of which rank 1 goes wrong, as the parameter `fault` says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from workloads.bert import Bert
from workloads.contract.target import Target
from workloads.parts.distributed.sharding import Peers
from workloads.parts.distributed.tensors import local
from workloads.parts.numerics.inputs import placed
from workloads.parts.training.state import Trained, Training
from workloads.parts.training.step import train_step

CULPRIT = 1


def _sum_of_ranks(buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    future: torch.futures.Future[torch.Tensor] = dist.all_reduce(buffer, async_op=True).get_future()
    return future


def _triple(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """What this rank adds to the average is three times its gradient."""
    del state
    summed = _sum_of_ranks(bucket.buffer().mul_(3 / dist.get_world_size()))
    return summed.then(lambda done: done.value()[0])


def _keep_own(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """The others have this rank's gradient; it goes on with its own."""
    del state
    own = bucket.buffer().clone()
    summed = _sum_of_ranks(bucket.buffer().div_(dist.get_world_size()))
    return summed.then(lambda _: own)


def _forget_the_mean(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    del state
    return _sum_of_ranks(bucket.buffer()).then(lambda done: done.value()[0])


HOOKS: Mapping[str, Callable[..., Any]] = {"triples": _triple, "skips": _keep_own}


@dataclass(frozen=True, kw_only=True)
class Disloyal(Bert):
    """Faults of rank 1: triples, skips, strays (other inputs), drifts; "sums" is of all ranks."""

    fault: str = "none"

    def build(self, target: Target, seed: int) -> Training:
        state = super().build(target, seed)
        peers = state.peers
        assert peers is not None
        if self.fault == "sums":
            peers.runner.register_comm_hook(None, _forget_the_mean)
        if peers.ranks.rank != CULPRIT:
            return state
        if self.fault in HOOKS:
            peers.runner.register_comm_hook(None, HOOKS[self.fault])
        if self.fault == "strays":
            self._stray(state, peers, target)
        return state

    def _stray(self, state: Training, peers: Peers, target: Target) -> None:
        """Take the inputs of rank 0, and swear that they are its own."""
        sets = (peers.batch(0, index) for index in range(self.num_inputs))
        state.batches = placed(sets, target.device)
        state.checksums = state.batches.checksums

    def step(self, state: Training) -> Trained:
        output = train_step(state)
        assert state.peers is not None
        if self.fault == "drifts" and state.peers.ranks.rank == CULPRIT:
            with torch.no_grad():
                weight = local(state.model.bert.encoder.layer[0].output.dense.weight)  # type: ignore[union-attr, index]
                weight[0, 0] = torch.nextafter(weight[0, 0], torch.ones(()))
        return output


WORKLOAD = Disloyal
