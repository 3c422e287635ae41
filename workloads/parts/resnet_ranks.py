"""Residual networks that train alone or over several ranks, each with its own images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from appliance.records import Work
from workloads.contract import ParameterError, Target
from workloads.parts import training
from workloads.parts.distributed import num_batches, require_parallel
from workloads.parts.precision import dtype_named
from workloads.parts.resnet_training import ResnetTraining
from workloads.parts.training import Training


@dataclass(frozen=True, kw_only=True)
class ResnetRanks(ResnetTraining):
    """`ranks` train together with their gradients averaged; `parallel` is none or ddp.

    The statistics of the normalisations stay each rank's own.
    """

    ranks: int = 1
    parallel: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_parallel(self.ranks, self.parallel)
        if self.parallel not in {"none", "ddp"}:
            raise ParameterError(f"parallel is {self.parallel}: give ddp for convolutions")
        if self.ranks > 1 and self.tf32:
            raise ParameterError("tf32 is true where ranks train together: leave it false")

    def work(self) -> Work:
        alone, batches = super().work(), num_batches(self.ranks, self.parallel)
        flops = None if alone.flops is None else batches * alone.flops
        return replace(alone, units=batches * alone.units, flops=flops)

    def build(self, target: Target, seed: int) -> Training:
        if self.ranks == 1:
            return super().build(target, seed)
        return training.begin(
            target,
            seed=seed,
            make=self.network,
            rule=self.rule(),
            generate=self._generate,
            num_inputs=self.num_inputs,
            ranks=self.ranks,
            parallel=self.parallel,
            layout=self.layout,
            dtype=dtype_named(self.dtype),
            growth=self.growth(),
        )

    def _generate(self, seed: int) -> Iterator[dict[str, torch.Tensor]]:
        rng = torch.Generator().manual_seed(seed)
        while True:
            yield self._batch(rng)
