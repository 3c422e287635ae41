"""The checks of a model too large to be followed whole: the step run again, layers watched.

See `parts/training/audit.py` for what is drawn and how it is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from appliance.records.journal import Check
from workloads.parts.auditing import room
from workloads.parts.auditing.calls import Watch
from workloads.parts.auditing.channels import Draws, first_names
from workloads.parts.auditing.errors import Errors
from workloads.parts.auditing.selection import Rows, draw_rows
from workloads.parts.auditing.whole_layers import LayerWatch, follow_whole
from workloads.parts.distributed import rank_checks
from workloads.parts.distributed.tensors import whole
from workloads.parts.numerics.host_copies import copies_on_host
from workloads.parts.numerics.precision import rounding
from workloads.parts.training import audit
from workloads.parts.training.dropout import generator_of
from workloads.parts.training.optimizers import Tensors
from workloads.parts.training.state import (
    Before,
    Place,
    Trained,
    Training,
    gradient,
    local_of,
    moments_of,
    restore,
    statistics_of,
)
from workloads.parts.training.step import forward, passes, split

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class _Again:
    """A step that was run again: what it made, and what went through its layers."""

    loss: torch.Tensor
    logits: torch.Tensor
    gradients: Tensors
    watched: audit.Watched
    followed: audit.Followed


def check_layers(
    before: Before, state: Training, plan: audit.Audit, output: Trained
) -> Iterator[Check]:
    """Run the step again, and its first part with layers watched; leave the state as it was."""
    drawn = plan.drawn(state.model, before.number)
    peers = state.peers
    average = (lambda own: own) if peers is None else partial(rank_checks.average, peers)
    with put_back(state) as copies:
        again = with_room(
            state, output, copies, lambda: _run_again(before, state, plan, drawn, average)
        )
    if again is None:
        yield room.unjudged()
        return
    yield from _check_same(output, again)
    covered = plan.covering(state.model, drawn, again.watched.rows.share)
    followed = again.followed
    yield from audit.checks(plan, followed, state.dtype, covered)
    if peers is not None and len(peers.sharers) > 1:
        own = torch.cat([sample for _, sample in sorted(followed.own.items())])
        averaged = torch.cat([sample for _, sample in sorted(followed.averaged.items())])
        exact = rank_checks.of_all(peers, own)[: len(peers.sharers)]
        bound = plan.gradients * rounding(state.dtype)
        yield from rank_checks.check_shares(averaged, exact, bound)


def _run_again(
    before: Before, state: Training, plan: audit.Audit, drawn: list[str], average: audit.Average
) -> _Again:
    runner = state.model if state.peers is None else state.peers.runner
    batch = state.batches[before.number % state.cycle.of]
    restore(before, state.model)
    state.model.zero_grad(set_to_none=True)
    loss, logits = passes(state, runner, batch)
    gradients = copies_on_host(local_of(_gradients(state)))
    restore(before, state.model)
    state.model.zero_grad(set_to_none=True)
    names = {id(weight): name for name, weight in state.trained.items()}
    if state.peers is not None and state.peers.parallel == "tensor":
        watched, followed = _watched_whole(before, state, plan, drawn, average)
    else:
        watched = _watched(before, state, plan, drawn)
        followed = audit.follow(plan, watched, names, average)  # with the weights of the step
    return _Again(loss=loss, logits=logits, gradients=gradients, watched=watched, followed=followed)


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
    before: Before,
    state: Training,
    plan: audit.Audit,
    drawn: list[str],
) -> audit.Watched:
    """One pass over the first part of a batch, forward and backward."""
    runner = state.model if state.peers is None else state.peers.runner
    batch = state.batches[before.number % state.cycle.of]
    part = next(iter(split(batch, state.micro_batches)))
    seed = plan.seed + before.number
    rows = draw_rows(seed, len(next(iter(part.values()))), plan.inputs)
    only = (*drawn, *plan.ends)
    draws = Draws(seed=seed, names=first_names(state.model), is_alone=state.peers is None)
    whole = frozenset(plan.ends)
    with Watch(model=state.model, rows=rows, draws=draws, whole=whole, only=only) as watch:
        loss, logits = forward(state, runner, part, state.dtype)
        watch.go_back()
        torch.autograd.backward(loss)
    inside = tuple(f"{name}." for name in only)
    return audit.Watched(
        batch=part,
        loss=loss.detach(),
        logits=logits.detach(),
        gradients={n: g for n, g in _gradients(state).items() if n.startswith(inside)},
        calls=watch.calls,
        rows=rows,
    )


def _watched_whole(
    before: Before,
    state: Training,
    plan: audit.Audit,
    drawn: list[str],
    average: audit.Average,
) -> tuple[audit.Watched, audit.Followed]:
    """The same pass of a model whose layers are cut, with whole layers watched and followed."""
    batch = state.batches[before.number % state.cycle.of]
    part = next(iter(split(batch, state.micro_batches)))
    layers = {name: state.model.get_submodule(name) for name in (*drawn, *plan.ends)}
    runner = state.model if state.peers is None else state.peers.runner
    with LayerWatch(layers=layers) as watch:
        loss, logits = forward(state, runner, part, state.dtype)
        torch.autograd.backward(loss)
    inside = tuple(f"{name}." for name in layers)
    weights = {n: p for n, p in state.model.named_parameters() if n.startswith(inside)}
    gradients = _gathered({n: gradient(p) for n, p in weights.items() if p.requires_grad})
    number = len(next(iter(part.values())))
    watched = audit.Watched(
        batch=part,
        loss=loss.detach(),
        logits=logits.detach(),
        gradients=gradients,
        calls=(),
        rows=Rows(batch=number, drawn=tuple(range(number))),
    )
    followed = audit.Followed(errors=Errors(average=average))
    last = watch.seen[plan.ends[-1]]
    if last.output is None:
        raise RuntimeError("the layer that makes the logits was not called in the step")
    audit.follow_loss(plan, watched, (last.output, last.gradient), followed.errors)
    follow_whole(plan.make, watch.seen, _gathered(weights), gradients, followed.errors)
    return watched, followed


def _gathered(parts: Tensors) -> dict[str, torch.Tensor]:
    """All of each tensor on the host, gathered one after the other."""
    return {name: whole(tensor.detach()).cpu().clone() for name, tensor in parts.items()}


def with_room(
    state: Training,
    output: Trained | None,
    copies: list[torch.Tensor],
    run: Callable[[], Result],
) -> Result | None:
    """What `run` makes of a step once more; None where the device lacks memory for it.

    `copies` are those that `put_back` gave.
    Ranks that train together are left alone: one that began anew would leave the others waiting.
    """
    if state.peers is not None:
        return run()
    return room.with_room(state.model, [*copies, *_unneeded(state, output)], run)


def _unneeded(state: Training, output: Trained | None) -> list[torch.Tensor]:
    """What lies on the device and is not read when a step is run again: it is judged later."""
    moments = moments_of(state)
    lying = [weight.grad for weight in state.trained.values() if weight.grad is not None]
    lying += [one for own in moments.values() for one in own.values()]
    if output is not None:
        lying += [output.logits, *output.gradients.values()]
        lying += [one for own in output.moments.values() for one in own.values()]
    return lying


@contextmanager
def put_back(state: Training) -> Iterator[list[torch.Tensor]]:
    """Restore weights, gradients, statistics and noise to what they were, at the end.

    Gives the copies of weights and statistics. They are on the device if that surely holds them: to
    new memory of the host a gigabyte takes 0.8 s on an H100, and there it takes a millisecond.
    """
    trained, statistics = local_of(state.trained), statistics_of(state.model)
    there: dict[Place, torch.Tensor] = {("weight", name): one for name, one in trained.items()}
    there |= {("statistic", name): one for name, one in statistics.items()}
    after = _copies(state, there)
    gradients = {name: weight.grad for name, weight in state.trained.items()}
    generator = generator_of(state.model)
    noise = None if generator is None else generator.get_state()
    try:
        yield list(after.values())
    finally:
        with torch.no_grad():
            for place, tensor in there.items():
                tensor.copy_(after[place])
            for name, weight in state.trained.items():
                weight.grad = gradients[name]
        if generator is not None and noise is not None:
            generator.set_state(noise)


def _copies(state: Training, tensors: dict[Place, torch.Tensor]) -> dict[Place, torch.Tensor]:
    weights = (*state.model.parameters(), *state.model.buffers())
    if room.holds(weights, sum(one.nbytes for one in tensors.values())):
        return {place: one.detach().clone() for place, one in tensors.items()}
    return copies_on_host(tensors)
