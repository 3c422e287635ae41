"""RLHF with a step too long for a whole reference: healthy ones pass, planted faults are found."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from support.planted_faults import outside, wrong

from appliance.records.journal import Check
from workloads.contract.target import Artifacts, Target
from workloads.parts.auditing import sampling
from workloads.parts.auditing.selection import draw_rows
from workloads.parts.training.sampled_checks import GRADIENTS, OUTPUTS, WEIGHTS
from workloads.rlhf import FOLLOWED, Rlhf, State

pytestmark = pytest.mark.usefixtures("one_thread")

SEED = 5
WHOLE = "gradients of the first update against float64"
AGAIN = "gradients of the first update run again"
KINDS = (OUTPUTS, GRADIENTS, WEIGHTS)


@pytest.fixture(autouse=True)
def _no_step_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small size has few operations; here it is more than may be followed whole."""
    monkeypatch.setitem(sampling.MOST_OPERATIONS, "products", 0.0)


def built(folder: Path, **changes: Any) -> tuple[Rlhf, State]:
    workload = Rlhf(**{**Rlhf.small, "learning_rate": 1e-3, **changes})
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(folder))
    return workload, workload.build(target, SEED)


def judged(
    workload: Rlhf,
    state: State,
    faulty: AbstractContextManager[None] | None = None,
    *,
    is_lasting: bool = True,
) -> dict[str, Check]:
    """Checks of a step on a faulty device, which is so again when an update is run again."""
    before = workload.snapshot(state)
    with faulty or nullcontext():
        output = workload.step(state)
        if is_lasting:
            return {check.name: check for check in workload.check(before, state, output)}
    return {check.name: check for check in workload.check(before, state, output)}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_healthy_steps_pass_and_leave_the_state_as_it_was(dtype: str, tmp_path: Path) -> None:
    workload, state = built(tmp_path, dtype=dtype)
    for _ in range(3):
        before = workload.snapshot(state)
        output = workload.step(state)
        kept = {name: weight.detach().clone() for name, weight in state.training.trained.items()}
        checks = {check.name: check for check in workload.check(before, state, output)}
        assert not outside(checks)
        assert WHOLE not in checks
        for kind in KINDS:
            for update in ("first", "last"):
                check = checks[f"{kind}, {update} update"]
                assert 0 < check.error <= 0.6 * check.bound
        trained = state.training.trained
        assert all(torch.equal(kept[name], weight) for name, weight in trained.items())


def test_wrong_layer_is_found_in_both_models(tmp_path: Path) -> None:
    workload, state = built(tmp_path)
    paths = (
        "policy.gpt_neox.layers.1.mlp.dense_h_to_4h",
        "policy.gpt_neox.final_layer_norm",
        "value.gpt_neox.layers.0.attention.query_key_value",
        "value.score",
    )
    for path in paths:
        result = judged(
            workload, state, wrong(state.model.get_submodule(path), lambda made: made * 1.001)
        )
        assert f"{OUTPUTS}, first update" in outside(result), path
        assert f"{OUTPUTS}, last update" in outside(result), path
        assert AGAIN not in outside(result)  # the device is wrong alike when it runs it again


def test_wrong_layer_of_a_frozen_model_is_found(tmp_path: Path) -> None:
    workload, state = built(tmp_path)
    for model, name in (
        (state.reference, "reference's log-probabilities against float64"),
        (state.reward, "scores against float64"),
    ):
        module = model.gpt_neox.layers[1].mlp.dense_4h_to_h
        assert name in outside(judged(workload, state, wrong(module, lambda made: made * 1.01)))


def test_wrong_gradient_of_a_weight_is_found(tmp_path: Path) -> None:
    workload, state = built(tmp_path)
    weight = state.model.get_parameter("value.gpt_neox.layers.1.attention.dense.weight")
    register: Any = weight.register_hook  # untyped in torch
    handle = register(lambda gradient: gradient * 1.001)
    result = judged(workload, state)
    handle.remove()
    assert f"{WEIGHTS}, first update" in outside(result)
    assert AGAIN not in outside(result)


def test_fault_that_comes_once_shows_in_the_update_run_again(tmp_path: Path) -> None:
    workload, state = built(tmp_path)
    module = state.model.get_submodule("policy.gpt_neox.layers.0.mlp.dense_4h_to_h")
    result = judged(workload, state, wrong(module, lambda made: made * 1.01), is_lasting=False)
    assert AGAIN in outside(result)
    assert f"{OUTPUTS}, first update" not in outside(result)


def test_fault_of_one_response_is_found_when_it_is_drawn_and_not_else(tmp_path: Path) -> None:
    """The score of one response, which the frozen reward model makes in the rollout alone."""
    workload, state = built(tmp_path)
    found = []

    def spoil(made: torch.Tensor) -> torch.Tensor:
        other = made.clone()
        other[3] *= 1.01
        return other

    for number in range(6):
        drawn = draw_rows(SEED + number, workload.batch, FOLLOWED).drawn
        result = judged(workload, state, wrong(state.reward.score, spoil))
        check = result["scores against float64"]
        assert (not check.is_within) == (3 in drawn)
        assert f"probability {FOLLOWED / workload.batch:.3g}" in check.detects_what
        found.append(3 in drawn)
    assert 0 < sum(found) < len(found)


def test_full_size_is_sampled_and_the_small_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sampling.MOST_OPERATIONS, "products", 6.4e12)
    assert Rlhf()._plan(1)(None) is not None
    assert Rlhf(**Rlhf.small)._plan(1)(None) is None
    assert Rlhf(ranks=2, parallel="ddp")._plan(1)(None) is None
