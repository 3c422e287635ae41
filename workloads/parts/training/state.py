"""What a training step starts from and what it makes: state, snapshot, output.

Parameters without `requires_grad` (a frozen encoder, what an adapter sits on) have no gradient and
no update, and must keep every bit. A teacher that follows the student by averages belongs outside
of `model`. Input sets are held to what the host makes of the seed (`inputs.py`), so that a step is
not followed from a damaged batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch

from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Artifacts, Target
from workloads.parts.auditing.sampling import Plan, never
from workloads.parts.distributed import sharding
from workloads.parts.distributed.tensors import local, whole
from workloads.parts.drawing.drawn import Drawer, Draws, HostDraws
from workloads.parts.numerics.checksums import checksum, checksums_of_sets
from workloads.parts.numerics.host_copies import copies_on_host
from workloads.parts.numerics.inputs import InputSets
from workloads.parts.training import audit, rules
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.dropout import generator_of
from workloads.parts.training.inputs import DrawnSets, Inputs
from workloads.parts.training.optimizers import Optimizer, Tensors

Model = TypeVar("Model", bound=torch.nn.Module)
Make = Callable[[Drawer, torch.device], torch.nn.Module]
"""Builds a model; weights that it draws by the drawer lie on that device, all else on the host."""
HOST = torch.device("cpu")
LEAST_LOSS_SCALE = 1024.0
"""For float16 alone, whose smallest normal number is 6e-5; a power of two rounds nothing."""
LARGEST_OF_A_LABEL = 16.0
"""What the loss scale leaves of one label's gradient in a mean, at most."""


class Batches(Protocol):
    """Inputs of steps, by index: keyword arguments of the model, on the device."""

    def __getitem__(self, index: int, /) -> Tensors: ...


def loss_and_logits(result: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What is judged of a forward pass that names it so."""
    return result.loss, result.logits


def loss_scale_for(num_labels: int) -> float:
    """The loss scale of a mean over so many labels.

    The mean divides what comes from one label by their number, so that of thousands of labels the
    smaller gradients, those inside attention first, would lose bits as subnormal numbers.
    """
    exponent = math.floor(math.log2(LARGEST_OF_A_LABEL * num_labels))
    return max(LEAST_LOSS_SCALE, 2.0**exponent)


@dataclass(kw_only=True)
class Training:
    """A model in training; `result` gives loss and logits of what its forward pass returns.

    `clip` is the largest norm of the whole gradient, or None. `checksums` are those of the input
    sets as generated: as given, or those that `batches` brings (`inputs.placed`), else of a list as
    it is; None where the host draws a batch again, and where batches are made as they are asked
    for, which their workload holds to the host's.
    `limits` are of the rules that a healthy training keeps; `peers` the ranks that train with this
    one. `audit`: the layers that float64 follows instead of the whole, for a model too large;
    `sampling`: the rows of every module, for a step too long.
    `flops`: operations of a step, None where nobody counted them.
    `micro_batches`: passes of a step, each over an equal part of its batch
    (`parts/training/accumulation.py`). `loss_scale`: factor of the loss in float16, which is taken
    out of the gradients again.
    """

    model: torch.nn.Module
    rule: Optimizer
    optimizer: torch.optim.Optimizer
    batches: Batches
    cycle: InputCycle
    dtype: torch.dtype
    error_bounds: ErrorBounds
    artifacts: Artifacts
    clip: float | None = None
    limits: rules.Limits = field(default_factory=rules.Limits)
    micro_batches: int = 1
    loss_scale: float = LEAST_LOSS_SCALE
    result: Callable[[Any], tuple[torch.Tensor, torch.Tensor]] = loss_and_logits
    peers: sharding.Peers | None = None
    audit: audit.Audit | None = None
    sampling: Plan = never
    flops: float | None = None
    checksums: list[int] | None = None

    def __post_init__(self) -> None:
        if self.checksums is not None:
            return
        if isinstance(self.batches, InputSets):
            self.checksums = self.batches.checksums
        elif isinstance(self.batches, list | tuple):
            self.checksums = checksums_of_sets(self.batches)

    @property
    def trained(self) -> dict[str, torch.Tensor]:
        """Parameters that learn, by name; one that is tied to another counts once."""
        return dict(learning(self.model))

    @property
    def frozen(self) -> dict[str, torch.Tensor]:
        """Parameters that stay as they are, by name."""
        return {name: p for name, p in self.model.named_parameters() if not p.requires_grad}


@dataclass(kw_only=True)
class Trained:
    """Everything that a step made. Weights, moments and statistics are those of the model."""

    loss: torch.Tensor
    logits: torch.Tensor
    gradients: Tensors
    weights: Tensors
    moments: Mapping[str, Tensors]
    statistics: Tensors


Place = tuple[str, ...]
"""Of a tensor in an output: the kind of what it is, and the names that it has there."""


def named_of(output: Trained) -> dict[Place, torch.Tensor]:
    """Every tensor of an output by its place."""
    named: dict[Place, torch.Tensor] = {("loss",): output.loss, ("logits",): output.logits}
    for kind in ("gradients", "weights", "statistics"):
        named |= {(kind, name): one for name, one in getattr(output, kind).items()}
    for name, own in output.moments.items():
        named |= {("moments", name, key): one for key, one in own.items()}
    return named


def with_named(output: Trained, named: Mapping[Place, torch.Tensor]) -> Trained:
    """The output with those tensors in their places."""
    kinds = {
        kind: {name: named[kind, name] for name in getattr(output, kind)}
        for kind in ("gradients", "weights", "statistics")
    }
    moments = {
        name: {key: named["moments", name, key] for key in own}
        for name, own in output.moments.items()
    }
    return Trained(loss=named["loss",], logits=named["logits",], moments=moments, **kinds)


@dataclass(frozen=True, kw_only=True)
class Before:
    """Copies on the host of what the next step starts from; of what is frozen, the checksums.

    Tensors that are shared out are whole, or this rank's part of them if the training has an audit.
    """

    number: int
    batch: Tensors
    weights: Tensors
    moments: Mapping[str, Tensors]
    statistics: Tensors
    noise: torch.Tensor | None
    frozen: Mapping[str, int]


def seeded(seed: int, make: Callable[[], Model]) -> Model:
    """Build with torch's own generator seeded on the host, and put that back afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def begin_training(
    target: Target,
    *,
    seed: int,
    make: Make,
    rule: Optimizer,
    inputs: Inputs,
    num_inputs: int,
    ranks: int = 1,
    parallel: str = "none",
    layout: torch.memory_format = torch.preserve_format,
    **fields: Any,
) -> Training:
    """A training alone or among ranks (`parts/distributed`), with `num_inputs` input sets.

    `make` builds the model, `inputs` its input sets; `fields` are other fields of Training. Where
    the model is shared out layer by layer (fsdp), no device could hold what the host draws.
    """
    draws = Draws(target=target, seed=seed)

    def made(drawer: Drawer, device: torch.device) -> torch.nn.Module:
        return seeded(seed, lambda: make(drawer, device)).train()

    def plain() -> torch.nn.Module:
        return made(HostDraws(seed=seed), HOST)

    def batch(rank: int, index: int) -> Tensors:
        return inputs.batch(seed, rank, index)

    is_sharded = parallel == "fsdp"
    first = made(draws.on_host(), HOST) if is_sharded else made(draws, target.device)
    model = _on_device(first, target.device, parallel, layout)
    peers = None
    if ranks > 1:
        peers = sharding.joined(target, parallel, model, plain, batch)
    return Training(
        model=model,
        rule=rule,
        optimizer=rule.make(model),
        batches=inputs.sets(target, seed, 0 if peers is None else peers.own, num_inputs),
        cycle=InputCycle(of=num_inputs),
        artifacts=target.artifacts,
        flops=target.flops,
        peers=peers,
        **fields,
    )


def _on_device(
    model: torch.nn.Module, device: torch.device, parallel: str, layout: torch.memory_format
) -> torch.nn.Module:
    """Move the model, but for fsdp, which brings layer after layer and leaves a share of it."""
    if parallel != "fsdp":
        model = model.to(device)
    if layout is not torch.preserve_format:
        model = model.to(device=device, memory_format=layout)  # type: ignore[call-overload]
    return model


# ------------------------------------------------------------------ copies of it


def take_snapshot(state: Training) -> Before:
    """Copy to the host what the next step starts from."""
    number = state.cycle.number + 1
    generator = generator_of(state.model)
    held_of = whole_of if state.audit is None else local_of
    return Before(
        number=number,
        batch=_batch(state, number % state.cycle.of),
        weights=copies_on_host(held_of(state.trained)),
        moments=_moments_before(state, held_of),
        statistics=copies_on_host(statistics_of(state.model)),
        noise=None if generator is None else generator.get_state(),
        frozen=checksums_of(state.frozen),
    )


def _batch(state: Training, index: int) -> Tensors:
    """An input set on the host; one that can be drawn is not read from the device."""
    if isinstance(state.batches, DrawnSets):
        return state.batches.again(index)
    return copies_on_host(state.batches[index])


def _moments_before(
    state: Training, held_of: Callable[[Tensors], dict[str, torch.Tensor]]
) -> dict[str, dict[str, torch.Tensor]]:
    moments = moments_of(state)
    if state.peers is not None:  # all of them, gathered, might fill a device
        return {name: copies_on_host(held_of(own)) for name, own in moments.items()}
    flat = copies_on_host({(n, key): one for n, own in moments.items() for key, one in own.items()})
    return {name: {key: flat[name, key] for key in own} for name, own in moments.items()}


def restore(before: Before, model: torch.nn.Module) -> torch.nn.Module:
    """The given copy of the model, as it was when the step began."""
    model.train()
    with torch.no_grad():
        for name, parameter in learning(model):
            local(parameter).copy_(before.weights[name])
        for name, buffer in statistics_of(model).items():
            buffer.copy_(before.statistics[name])
    generator = generator_of(model)
    if generator is not None and before.noise is not None:
        generator.set_state(before.noise)
    return model


def gradient(parameter: torch.Tensor) -> torch.Tensor:
    """Gradient of a parameter; raises if the backward pass did not reach it."""
    if parameter.grad is None:
        message = f"the backward pass left a parameter of shape {tuple(parameter.shape)} out"
        raise RuntimeError(message)
    return parameter.grad


def moments_of(state: Training) -> dict[str, dict[str, torch.Tensor]]:
    """By parameter, the optimiser's tensors; its step counter is no moment."""
    return {
        name: {
            key: value
            for key, value in state.optimizer.state.get(parameter, {}).items()
            if isinstance(value, torch.Tensor) and key != "step"
        }
        for name, parameter in state.trained.items()
    }


def statistics_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Running statistics: the buffers that belong to the model's state."""
    stored = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in stored}


def learning(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return ((name, p) for name, p in model.named_parameters() if p.requires_grad)


def whole_of(named: Tensors) -> dict[str, torch.Tensor]:
    return {name: whole(tensor.detach()) for name, tensor in named.items()}


def local_of(named: Tensors) -> dict[str, torch.Tensor]:
    return {name: local(tensor.detach()) for name, tensor in named.items()}


def checksums_of(named: Tensors) -> dict[str, int]:
    return {name: checksum(local(tensor)) for name, tensor in named.items()}
