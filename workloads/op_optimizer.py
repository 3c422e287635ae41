"""Optimisers' steps one by one: Adam, AdamW and gradient descent with momentum.

One step updates a matrix once per optimiser, from moments that exist already, so that bias
corrections and decay count; then again from special gradients. Weights and moments are held to the
error that the same update makes on the host in the same format, every element to four times that
over its terms. A lost update, a lower precision, a wrong element or a NaN that spreads breaks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import torch._dynamo  # the first optimiser of a process imports it: a second of each forked launch

from appliance.records.workload import Bound
from workloads.parts.operators.catalog import Arrays, Exact, Input, Operator, Tensors
from workloads.parts.operators.family import OperatorFamily
from workloads.parts.operators.inputs import Fill, normal, positive, special

RATE, MOMENTUM, DECAY, BETAS, EPSILON = 0.125, 0.875, 0.0625, (0.875, 0.96875), 1e-3
DONE = 7  # steps made before this one


@dataclass(frozen=True, kw_only=True)
class OpOptimizer(OperatorFamily):
    summary: ClassVar[str] = "Steps of Adam, AdamW and momentum, each against float64"
    version: ClassVar[int] = 2
    bound_by: ClassVar[Bound] = "memory"

    def operators(self) -> tuple[Operator, ...]:
        width = 4 * self.size + 1
        plain, low = Input(shape=(self.size, width)), Input(shape=(11, width))
        turned = replace(plain, view=lambda x: x.swapaxes(0, 1))
        return (
            adam("Adam", plain),
            adam("AdamW", plain, is_decoupled=True),
            momentum("momentum", plain),
            momentum("momentum of a transposed view", turned),
            adam("Adam of special gradients", low, fill=special),
            momentum("momentum of special gradients", low, fill=special),
        )


def updated(
    make: Callable[..., torch.optim.Optimizer], inputs: Tensors, moments: Mapping[str, str]
) -> Tensors:
    """One step of an optimiser on a copy, whose `moments` (its names, ours) are set before."""
    weight = torch.nn.Parameter(inputs["weight"].clone())
    weight.grad = inputs["gradient"].clone()
    optimizer = make([weight])
    state: dict[str, Any] = {theirs: inputs[ours].clone() for theirs, ours in moments.items()}
    optimizer.state[weight] = {"step": torch.tensor(float(DONE)), **state}
    optimizer.step()
    return {"": weight.detach(), **{ours: state[theirs] for theirs, ours in moments.items()}}


def adam(name: str, weights: Input, *, is_decoupled: bool = False, fill: Fill = normal) -> Operator:
    """Adam (Kingma and Ba 2015); decoupled, the decay is of the weight, not of the gradient."""
    kind = torch.optim.AdamW if is_decoupled else torch.optim.Adam
    make = partial(kind, lr=RATE, betas=BETAS, eps=EPSILON, weight_decay=DECAY)

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        weight, gradient = inputs["weight"], inputs["gradient"]
        if is_decoupled:
            weight = weight * (1 - RATE * DECAY)
        else:
            gradient = gradient + DECAY * weight
        first = BETAS[0] * inputs["mean"] + (1 - BETAS[0]) * gradient
        second = BETAS[1] * inputs["square"] + (1 - BETAS[1]) * np.square(gradient)
        divisor = np.sqrt(second / (1 - BETAS[1] ** (DONE + 1))) + EPSILON
        pace = RATE / (1 - BETAS[0] ** (DONE + 1)) / divisor
        terms = np.abs(inputs["mean"]) + np.abs(gradient)
        return {
            "": Exact(value=weight - pace * first, size=np.abs(weight) + pace * terms),
            "mean": Exact(value=first, size=terms),
            "square": Exact(value=second, size=second),
        }

    return Operator(
        name=name,
        inputs={
            "weight": weights,
            "gradient": replace(weights, fill=fill),
            "mean": weights,
            "square": replace(weights, fill=positive),
        },
        apply=lambda inputs: updated(make, inputs, {"exp_avg": "mean", "exp_avg_sq": "square"}),
        exact=exact,
        is_special=fill is special,
    )


def momentum(name: str, weights: Input, *, fill: Fill = normal) -> Operator:
    """Stochastic gradient descent with momentum and decay."""
    make = partial(torch.optim.SGD, lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)

    def exact(inputs: Arrays) -> Mapping[str, Exact]:
        weight, old = inputs["weight"], inputs["velocity"]
        velocity = MOMENTUM * old + inputs["gradient"] + DECAY * weight
        terms = MOMENTUM * np.abs(old) + np.abs(inputs["gradient"]) + DECAY * np.abs(weight)
        return {
            "": Exact(value=weight - RATE * velocity, size=np.abs(weight) + RATE * terms),
            "velocity": Exact(value=velocity, size=terms),
        }

    return Operator(
        name=name,
        inputs={"weight": weights, "gradient": replace(weights, fill=fill), "velocity": weights},
        apply=lambda inputs: updated(make, inputs, {"momentum_buffer": "velocity"}),
        exact=exact,
        is_special=fill is special,
    )


WORKLOAD = OpOptimizer
