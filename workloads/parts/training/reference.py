"""The same step in float64 on the host, from copies of what it started from.

That of the first step is made once per run and read by its launches. Where a network has branch
points, the device's forward pass is repeated, untimed, and float64 follows its branches
(`parts/training/branch_points.py`).
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from workloads.parts.distributed import rank_checks
from workloads.parts.numerics import low_memory
from workloads.parts.numerics.host_copies import copies_on_host
from workloads.parts.training import branch_points
from workloads.parts.training.optimizers import Tensors
from workloads.parts.training.state import (
    Before,
    Training,
    gradient,
    learning,
    restore,
    statistics_of,
)
from workloads.parts.training.step import forward


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What float64 makes of a step before its optimiser; rounded to float32 but for the loss.

    `choices` is the digest of the sides of the branch points that it took from the device,
    `switched` how far the furthest that float64 would not have taken lies from its branch point.
    `shares` (ranks, elements) samples the gradients of every rank's own batch, where there are
    several ranks.
    """

    loss: torch.Tensor
    logits: torch.Tensor
    gradients: Tensors
    statistics: Tensors
    choices: str
    switched: float
    shares: torch.Tensor | None


def reference_of(before: Before, state: Training, choices: branch_points.Choices) -> Reference:
    """Float64 result of the step; that of the first is made once per run.

    A device that took other sides at the first step than the one that made the file has the
    result computed for its own.
    """
    if before.number > 0:
        return computed(before, state, choices)

    def make(path: Path) -> None:
        torch.save(vars(computed(before, state, choices)), path)

    rank = "" if state.peers is None else f"_rank_{state.peers.ranks.rank}"
    path = state.artifacts.once(f"first_step_float64{rank}.pt", make)
    reference = Reference(**torch.load(path, weights_only=True))
    if reference.choices != branch_points.digest(choices):
        return computed(before, state, choices)
    return reference


def computed(before: Before, state: Training, choices: branch_points.Choices) -> Reference:
    """Follow the step on the inputs of this rank, and of all ranks that have some."""
    if state.peers is None:
        return _clipped(_follow(before, state, before.batch, choices), state)
    followed = []
    for rank in state.peers.sharers:
        batch = state.peers.batch(rank, before.number % state.cycle.of)
        taken = choices
        if state.error_bounds.has_branch_points and rank != state.peers.own:
            taken, _ = repeated_on(before, state, batch)
        followed.append(_follow(before, state, batch, taken))
    own = followed[state.peers.own]
    average = {
        name: torch.stack([one.gradients[name] for one in followed]).mean(0)
        for name in own.gradients
    }
    shares = torch.stack([rank_checks.sampled(one.gradients) for one in followed])
    switched = max(one.switched for one in followed)
    return _clipped(replace(own, gradients=average, shares=shares, switched=switched), state)


def _follow(
    before: Before, state: Training, inputs: Tensors, choices: branch_points.Choices
) -> Reference:
    """Forward and backward pass in float64 on the host; the gradients are float64 and whole."""
    model = restore(before, _plain_on_host(state).double())
    # Branches are noted in the order of a single pass.
    if not state.error_bounds.has_branch_points:
        low_memory.spare(model)
    imposed = branch_points.Imposed(choices)
    loss, logits = _passed(state, model, inputs, imposed)
    return Reference(
        loss=loss.detach(),
        logits=logits.detach().float(),
        gradients={name: gradient(p) for name, p in learning(model)},
        statistics=(
            {} if state.error_bounds.statistics is None else copies_on_host(statistics_of(model))
        ),
        choices=branch_points.digest(choices),
        switched=imposed.close(),
        shares=None,
    )


def _passed(
    state: Training, model: torch.nn.Module, inputs: Tensors, imposed: branch_points.Imposed
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and logits in float64; leaves the gradients in the model."""
    bounds = state.error_bounds
    batch = {
        name: tensor.double() if tensor.is_floating_point() else tensor
        for name, tensor in inputs.items()
    }
    with imposed if bounds.has_branch_points else nullcontext():
        loss, logits = forward(state, model, batch, torch.float64)
        if bounds.has_branch_points and bounds.recomputes:
            branch_points.go_back(loss)
    if not bounds.recomputes:
        torch.autograd.backward(loss)
    return loss, logits


def _clipped(reference: Reference, state: Training) -> Reference:
    """With the gradients cut to the largest norm and rounded to float32."""
    factor = 1.0
    if state.clip is not None:
        norms = [torch.linalg.vector_norm(one) for one in reference.gradients.values()]
        factor = min(1.0, state.clip / (torch.stack(norms).norm().item() + 1e-6))
    return replace(
        reference,
        gradients={name: (one * factor).float() for name, one in reference.gradients.items()},
        shares=None if reference.shares is None else reference.shares * factor,
    )


def repeated(before: Before, state: Training) -> tuple[branch_points.Choices, torch.Tensor]:
    """The device's forward pass once more: the branches that it takes, and its logits.

    Ready for a backward pass, as in the step: without one, another kernel may be chosen.
    """
    return repeated_on(before, state, before.batch)


def repeated_on(
    before: Before, state: Training, inputs: Tensors
) -> tuple[branch_points.Choices, torch.Tensor]:
    """On the inputs of this rank or of another one."""
    device = next(state.model.parameters()).device
    model = restore(before, _plain(state).to(device))
    batch = {name: tensor.to(device, copy=True) for name, tensor in inputs.items()}
    with branch_points.Recorded() as recorded:
        loss, logits = forward(state, model, batch, state.dtype)
        if state.error_bounds.recomputes:
            branch_points.go_back(loss)
    return recorded.choices, logits.detach()


def _plain(state: Training) -> torch.nn.Module:
    """A copy of the model, whole on every rank; what it learns is to be put into it."""
    return _copied(state.model, {}) if state.peers is None else state.peers.make()


def _copied(model: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
    """A deep copy; of the empty containers, a dozen of each module's, it is made beforehand.

    `copy` takes ten calls for each, half of the time of copying a network of many small modules.
    """
    for module in model.modules():
        for value in vars(module).values():
            if type(value) in {dict, OrderedDict, set, list} and not value:
                memo[id(value)] = type(value)()
    return copy.deepcopy(model, memo)


def _plain_on_host(state: Training) -> torch.nn.Module:
    """The same on the host, with the values of few tensors copied one by one."""
    if state.peers is not None:
        return state.peers.make()
    tensors = {id(one): one for one in (*state.model.parameters(), *state.model.buffers())}
    memo = {key: _as(tensors[key], one) for key, one in copies_on_host(tensors).items()}
    return _copied(state.model, memo)


def _as(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The values as a parameter where the tensor is one."""
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(values, tensor.requires_grad)
    return values
