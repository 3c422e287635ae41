"""Training that goes wrong as a whole in the programs of JAX that simulate what they learn from.

The counterpart of test_training_faults.py, which reaches into torch's training. Here the program of
a step is compiled anew with a fault in it, or what it left is put back. All numbers that it reports
fit each other; what is found wrong stands beside each fault.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from workloads.brax_ppo import BraxPpo
from workloads.contract.target import Artifacts, Target
from workloads.parts.reinforcement.simulated_ppo import SimulatedPpo
from workloads.ppo import Ppo

if importlib.util.find_spec("brax") is None:  # which takes seconds to import
    pytest.skip("needs brax", allow_module_level=True)


@dataclass(frozen=True)
class Played:
    """A workload before its second step, as often as it is asked for."""

    workload: SimulatedPpo
    state: Any
    learner: Any
    simulation: Any

    def again(self, run: Callable[..., Any] | None = None) -> tuple[Any, Any]:
        """Snapshot and output of the second step, by another program if one is given."""
        state = self.state
        state.learner, state.simulation = self.learner, self.simulation
        state.cycle.number = 0
        before, own = self.workload.snapshot(state), state.run
        state.run = run or own
        output = self.workload.step(state)
        self.workload.wait(state)
        state.run = own
        return before, output

    def rejected(self, before: Any, output: Any) -> set[str]:
        checks = self.workload.check(before, self.state, output)
        return {check.name for check in checks if not check.is_within}


@pytest.fixture(params=[pytest.param(BraxPpo, marks=pytest.mark.slow), Ppo], scope="module")
def played(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    quick_programs: None,
) -> Played:
    workload = request.param(**request.param.small)
    artifacts = Artifacts(tmp_path_factory.mktemp("jax"))
    state = workload.build(Target(device=torch.device("cpu"), artifacts=artifacts), 5)
    workload.step(state)
    workload.wait(state)
    return Played(workload, state, state.learner, state.simulation)


@pytest.fixture
def compiled(played: Played) -> Callable[[], Callable[..., Any]]:
    """Makes the program of a step anew, with whatever was changed in its module meanwhile."""
    from support.quick_programs import compiled_anew  # noqa: PLC0415 - imports JAX

    from workloads.parts.reinforcement import brax_program  # noqa: PLC0415 - imports JAX

    settings = played.workload._settings
    return lambda: compiled_anew(brax_program, settings)


@pytest.fixture
def program() -> Iterator[Any]:
    from workloads.parts.reinforcement import brax_program  # noqa: PLC0415 - imports JAX

    with pytest.MonkeyPatch.context() as patch:
        yield lambda name, other: patch.setattr(brax_program, name, other)


def test_the_same_step_again_is_accepted(played: Played) -> None:
    assert played.rejected(*played.again()) == set()


def test_half_of_every_minibatch_taken_twice_is_rejected(
    played: Played, compiled: Callable[[], Any], program: Any
) -> None:
    """The order that is reported is the right one; gradients and losses are of half of it."""
    from jax import numpy as jnp  # noqa: PLC0415 - as the program does

    from workloads.parts.reinforcement import brax_program  # noqa: PLC0415 - imports JAX

    learn = brax_program._learn

    def halved(learner: Any, samples: Any, order: Any, settings: Any) -> Any:
        batches = order.reshape(settings.epochs * settings.minibatches, -1)
        half = batches[:, : batches.shape[1] // 2]
        twice = jnp.concatenate([half, half], axis=1).reshape(order.shape)
        return learn(learner, samples, twice, settings)

    program("_learn", halved)
    result = played.rejected(*played.again(compiled()))
    assert "gradients against float64" in result


def test_a_backward_pass_in_lower_precision_is_rejected(
    played: Played, compiled: Callable[[], Any], program: Any
) -> None:
    """Products of the backward pass alone are of bfloat16; losses and actions are right."""
    import jax  # noqa: PLC0415 - as the program does
    from jax import numpy as jnp  # noqa: PLC0415

    from workloads.parts.reinforcement import brax_program  # noqa: PLC0415 - imports JAX

    @jax.custom_vjp
    def product(left: Any, right: Any) -> Any:
        return left @ right

    def short(left: Any, right: Any) -> Any:
        made = left.astype(jnp.bfloat16) @ right.astype(jnp.bfloat16)
        return made.astype(jnp.float32)

    product.defvjp(
        lambda left, right: (left @ right, (left, right)),
        lambda kept, slope: (short(slope, kept[1].T), short(kept[0].T, slope)),
    )

    def apply(weights: Any, tower: str, inputs: Any, activation: str) -> Any:
        last = max(int(name.split(".")[1]) for name in weights if name.startswith(f"{tower}."))
        for number in range(last + 1):
            matrix, bias = (weights[f"{tower}.{number}.{part}"] for part in ("matrix", "bias"))
            inputs = product(inputs, matrix) + bias
            if number < last:
                inputs = brax_program.ACTIVATIONS[activation](inputs)
        return inputs

    program("apply", apply)
    result = played.rejected(*played.again(compiled()))
    assert result == {"gradients against float64"}


def test_a_lost_update_is_rejected(played: Played) -> None:
    """The weights are those of before the step; moments and gradients are right."""
    before, output = played.again()
    output.weights = played.learner["weights"]
    assert any("weights" in name for name in played.rejected(before, output))


@pytest.mark.parametrize("name", ["policy.0.matrix", "value.1.bias"])
def test_a_weight_that_stands_still_is_rejected(played: Played, name: str) -> None:
    before, output = played.again()
    output.weights = {**output.weights, name: played.learner["weights"][name]}
    assert any("weights" in result for result in played.rejected(before, output))
