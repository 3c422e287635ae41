"""The checks of a model too large to be followed whole: the step run again, layers watched.

See `parts/training/audit.py` for what is drawn and how it is followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch

from appliance.records.journal import Check
from workloads.parts.distributed import rank_checks
from workloads.parts.distributed.tensors import local, whole
from workloads.parts.numerics.precision import rounding
from workloads.parts.training import audit
from workloads.parts.training.dropout import generator_of
from workloads.parts.training.optimizers import Tensors
from workloads.parts.training.state import (
    Before,
    Trained,
    Training,
    copied,
    gradient,
    local_of,
    restore,
    statistics_of,
)
from workloads.parts.training.step import forward, passes, split
from workloads.parts.training.watch import Watch


@dataclass(frozen=True, kw_only=True)
class _Again:
    """A step that was run again: what it made, and what went through its layers."""

    loss: torch.Tensor
    logits: torch.Tensor
    gradients: Tensors
    watched: audit.Watched


def check_layers(
    before: Before, state: Training, plan: audit.Audit, output: Trained
) -> Iterator[Check]:
    """Run the step again, and its first part with layers watched; leave the state as it was."""
    drawn = plan.drawn(state.model, before.number)
    again = _run_again(before, state, [*drawn, *plan.ends])
    yield from _check_same(output, again)
    covered = plan.covering(state.model, drawn)
    peers = state.peers
    average = (lambda own: own) if peers is None else partial(rank_checks.average, peers)
    followed = audit.follow(plan, again.watched, average)
    yield from audit.checks(plan, followed, state.dtype, covered)
    if peers is not None and len(peers.sharers) > 1:
        names = {name: again.watched.gradients[name] for name in followed.own}
        own = torch.cat([sample for _, sample in sorted(followed.own.items())])
        exact = rank_checks.of_all(peers, own)[: len(peers.sharers)]
        bound = plan.gradients * rounding(state.dtype)
        yield from rank_checks.check_shares(rank_checks.sampled(names), exact, bound)


def _run_again(before: Before, state: Training, layers: list[str]) -> _Again:
    runner = state.model if state.peers is None else state.peers.runner
    batch = state.batches[before.number % state.cycle.of]
    after = copied(local_of(state.trained))
    with _put_back(state, after):
        restore(before, state.model)
        state.model.zero_grad(set_to_none=True)
        loss, logits = passes(state, runner, batch)
        gradients = copied(local_of(_gradients(state)))
        restore(before, state.model)
        state.model.zero_grad(set_to_none=True)
        watched = _watched(state, runner, layers, batch)
    return _Again(loss=loss, logits=logits, gradients=gradients, watched=watched)


def _check_same(output: Trained, again: _Again) -> Iterator[Check]:
    yield audit.check_same(
        "loss and logits of the step run again",
        [
            (output.loss, again.loss),
            (output.logits, again.logits),
            (output.logits[: len(again.watched.logits)], again.watched.logits),
        ],
    )
    pairs = [(output.gradients[name].cpu(), other) for name, other in again.gradients.items()]
    yield audit.check_same("gradients of the step run again", pairs)


def _gradients(state: Training) -> dict[str, torch.Tensor]:
    return {name: gradient(weight).detach() for name, weight in state.trained.items()}


def _watched(
    state: Training, runner: torch.nn.Module, names: list[str], batch: Tensors
) -> audit.Watched:
    """One pass over the first part of a batch, forward and backward."""
    part = next(iter(split(batch, state.micro_batches)))
    layers = {name: state.model.get_submodule(name) for name in names}
    with Watch(layers=layers) as watch:
        loss, logits = forward(state, runner, part, state.dtype)
        torch.autograd.backward(loss)
    watched = tuple(f"{name}." for name in names)
    weights = {n: p for n, p in state.model.named_parameters() if n.startswith(watched)}
    return audit.Watched(
        batch=part,
        loss=loss.detach(),
        logits=logits.detach(),
        gradients=_gathered({n: gradient(p) for n, p in weights.items() if p.requires_grad}),
        weights=_gathered(weights),
        seen=watch.seen,
    )


def _gathered(parts: Tensors) -> dict[str, torch.Tensor]:
    """All of each tensor on the host, gathered one after the other."""
    return {name: whole(tensor.detach()).cpu().clone() for name, tensor in parts.items()}


@contextmanager
def _put_back(state: Training, after: Tensors) -> Iterator[None]:
    """Restore weights, gradients, statistics and noise to what they were."""
    gradients = {name: gradient(weight) for name, weight in state.trained.items()}
    statistics = copied(statistics_of(state.model))
    generator = generator_of(state.model)
    noise = None if generator is None else generator.get_state()
    try:
        yield
    finally:
        with torch.no_grad():
            for name, weight in state.trained.items():
                local(weight).copy_(after[name])
                weight.grad = gradients[name]
            for name, buffer in statistics_of(state.model).items():
                buffer.copy_(statistics[name])
        if generator is not None and noise is not None:
            generator.set_state(noise)
