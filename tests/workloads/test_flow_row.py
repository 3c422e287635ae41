"""The GFlowNet: its rules, its balance, what its check must reject, and that it learns."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from workloads.contract.failures import ParameterError
from workloads.contract.target import Artifacts, Target
from workloads.parts.graphs import fragments
from workloads.parts.graphs.flow import FORBIDDEN
from workloads.parts.graphs.fragments import Grown, Rules, Trees, Vocabulary, replayed, together
from workloads.parts.numerics.checksums import checksum
from workloads.parts.numerics.size import count_flops
from workloads.recursiongfn import RecursionGfn

WORDS = Vocabulary(kinds=7, largest=4, points=3)
FIRST = 1  # the action that puts the first kind of fragment at no node


def target(folder: Path) -> Target:
    return Target(device=torch.device("cpu"), artifacts=Artifacts(folder))


def small(**changes: Any) -> RecursionGfn:
    return RecursionGfn(**{**RecursionGfn.small, **changes})


def played(words: Vocabulary, count: int) -> tuple[Rules, list[Trees], np.ndarray, Trees]:
    """Trees that chance has built: the rules, states, actions (steps, trees), ends."""
    rules = Rules(words=words, limits=torch.tensor(words.num_points))
    rng = torch.Generator().manual_seed(2)
    trees = Trees.begin(count, words, torch.device("cpu"))
    states, actions = [], []
    for _ in range(words.num_steps):
        action = torch.multinomial(rules.allowed(trees).double(), 1, generator=rng)[:, 0]
        states.append(trees)
        actions.append(action)
        trees = rules.advance(trees, action)
    return rules, states, torch.stack(actions).numpy(), trees


# ------------------------------------------------------------------ the rules


def test_states_are_those_that_plain_python_reaches():
    _, states, actions, ends = played(WORDS, 40)
    again = replayed(actions, WORDS)
    assert again.faults == 0
    for one, other in ((together(states), again.trees), (ends, again.ends)):
        for name, exact in vars(other).items():
            assert torch.equal(getattr(one, name), exact), name
    assert set(ends.counts.tolist()) > {1, WORDS.largest}


def test_allowed_actions_are_those_that_plain_python_can_do():
    rules, states, actions, _ = played(WORDS, 12)
    grown = [Grown() for _ in range(12)]
    for trees, row in zip(states, actions, strict=True):
        allowed = rules.allowed(trees).tolist()
        for number, tree in enumerate(grown):
            can = [
                fragments._play(copy.deepcopy(tree), action, WORDS)
                for action in range(WORDS.num_actions)
            ]
            assert allowed[number] == can
            fragments._play(tree, int(row[number]), WORDS)


def test_ways_back_are_those_that_plain_python_counts():
    rules, states, actions, ends = played(WORDS, 40)
    ways = torch.stack([rules.log_ways_back(trees) for trees in [*states[1:], ends]])
    log_back = -np.where(actions == fragments.STOP, 0.0, ways.numpy()).sum(axis=0)
    assert log_back == pytest.approx(replayed(actions, WORDS).log_back)
    assert log_back.min() < -math.log(4)


def test_chances_forwards_are_those_of_all_ways_into_a_tree():
    """Two fragments, one bond: every order in which its two ends can be set ends in one state."""
    words = Vocabulary(kinds=2, largest=3, points=2)
    add, sets = 1 + words.kinds, 1 + (words.largest + 1) * words.kinds
    own, upper = sets + 1 * words.points + 0, sets + 0 * words.points + 1
    rest = [fragments.STOP] * (words.num_steps - 4)
    actions = np.array([[FIRST, add, own, upper, *rest], [FIRST, add, upper, own, *rest]]).T
    again = replayed(actions, words)
    assert again.faults == 0
    assert torch.equal(again.ends.own[0], again.ends.own[1])
    assert torch.equal(again.ends.upper[0], again.ends.upper[1])
    assert again.log_back.tolist() == pytest.approx([-2 * math.log(2)] * 2)


@pytest.mark.parametrize(
    "actions",
    [
        [fragments.STOP],  # nothing to end
        [FIRST + WORDS.kinds],  # at a node that is not there
        [FIRST, FIRST],  # a second beginning
        [FIRST, FIRST + WORDS.kinds, fragments.STOP],  # a bond without points
        [FIRST, fragments.STOP, FIRST],  # after the end
        [WORDS.num_actions],
        [-1],
    ],
)
def test_action_that_is_not_allowed_is_counted(actions: list[int]):
    whole = np.array([actions + [fragments.STOP] * (WORDS.num_steps - len(actions))]).T
    assert replayed(whole, WORDS).faults > 0


def test_reward_depends_on_points_and_on_every_fragment():
    proxy = fragments.Proxy(WORDS)
    _, _, _, ends = played(WORDS, 40)
    worth = proxy(ends)
    assert worth.std() > 0.3
    full = ends.counts == WORDS.largest
    for name in ("kinds", "own", "upper"):
        values = getattr(ends, name).clone()
        values[:, -1] = (values[:, -1] + 1) % 2
        changed = Trees(**{**vars(ends), name: values})
        assert (proxy(changed)[full] - worth[full]).abs().max() > 1e-3


# ------------------------------------------------------------------ steps


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecursionGfn, Any, Any, Any]:
    """The second step at small size: workload, snapshot, state, output."""
    workload = small()
    state = workload.build(target(tmp_path_factory.mktemp("flow")), 5)
    workload.step(state)
    before = workload.snapshot(state)
    return workload, before, state, workload.step(state)


def rejected(workload: RecursionGfn, before: Any, state: Any, output: Any) -> list[str]:
    return [c.name for c in workload.check(before, state, output) if not c.is_within]


def replaced(thing: Any, **changes: Any) -> Any:
    return type(thing)(**{**vars(thing), **changes})


def test_true_step_is_accepted(taken: tuple[Any, Any, Any, Any]):
    assert rejected(*taken) == []


def test_action_that_was_not_drawn_is_rejected(taken: tuple[Any, Any, Any, Any]):
    """Another first fragment is allowed, and is not what the policy and its noise gave."""
    workload, before, state, output = taken
    actions = output.played.actions.clone()
    actions[0, 0] = FIRST + actions[0, 0] % workload.kinds
    wrong = replaced(output, played=replaced(output.played, actions=actions))
    assert rejected(workload, before, state, wrong)


def test_reward_of_another_tree_is_rejected(taken: tuple[Any, Any, Any, Any]):
    workload, before, state, output = taken
    swapped = replaced(output.played, log_rewards=output.played.log_rewards.flip(0))
    result = rejected(workload, before, state, replaced(output, played=swapped))
    assert "logarithms of rewards against float64" in result


def test_half_of_the_trajectories_is_rejected(taken: tuple[Any, Any, Any, Any]):
    workload, before, state, output = taken
    half = replaced(output.played, actions=output.played.actions[:, : workload.batch // 2])
    result = rejected(workload, before, state, replaced(output, played=half))
    assert result == ["trajectories missing or too many"]


def test_proxy_that_was_changed_is_rejected(tmp_path: Path):
    """The host has the proxy's weights of its own, so a spoiled one is not followed."""
    workload = small()
    state = workload.build(target(tmp_path), 5)
    with torch.no_grad():
        state.policy.proxy.get_parameter("last").mul_(-1)
    before = workload.snapshot(state)
    result = rejected(workload, before, state, workload.step(state))
    assert "logarithms of rewards against float64" in result


def test_mask_that_lets_an_empty_tree_end_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    workload = small()
    state = workload.build(target(tmp_path), 5)
    before = workload.snapshot(state)
    right = Rules.allowed

    def wrong(rules: Rules, trees: Trees) -> torch.Tensor:
        result = right(rules, trees)
        result[:, fragments.STOP] = True
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Rules, "allowed", wrong)
        output = workload.step(state)
    assert "actions that a state does not allow" in rejected(workload, before, state, output)


def test_choices_that_ignore_the_noise_are_rejected(tmp_path: Path):
    """The best action each time is allowed, and is no draw from the policy."""
    workload = small()
    state = workload.build(target(tmp_path), 5)
    before = workload.snapshot(state)
    noise = state.training.batches.drawn[0]["noise"].clone()
    state.training.batches.drawn[0]["noise"].zero_()
    output = workload.step(state)
    state.training.batches.drawn[0]["noise"].copy_(noise)
    assert rejected(workload, before, state, output)


def test_noise_comes_again_after_all_places_in_time_and_choice(tmp_path: Path):
    workload = small(num_inputs=2)
    batches = workload.build(target(tmp_path), 5).training.batches
    times, choices = workload.words.num_steps, workload.words.num_actions
    assert len(batches) == 2 * times * choices
    first = {index: checksum(batches[index]["noise"]) for index in range(0, len(batches), 37)}
    assert len(set(first.values())) == len(first)
    assert torch.equal(batches[2]["noise"][..., 1:], batches[0]["noise"][..., :-1])
    assert torch.equal(batches[2 * choices]["noise"][1:], batches[0]["noise"][:-1])


@pytest.mark.parametrize("number", [0, 5, 4 * 73 + 1, 4 * 73 * 11 + 3])
def test_noise_that_was_spoiled_is_rejected(tmp_path: Path, number: int):
    workload = small()
    noise = workload.build(target(tmp_path), 5).training.batches
    used = noise[number % len(noise)]
    assert noise.check(number, used).is_within
    assert not noise.check(number + 1, used).is_within
    used["noise"][3, 2, 1] += 1e-3
    assert not noise.check(number, used).is_within


def test_last_of_many_steps_is_judged_as_the_first_is(tmp_path: Path):
    """Noise that came again would leave nothing to learn: a loss of 3e-5 where it is 0.5."""
    workload = small(num_inputs=1, batch=8, learning_rate=3e-3)
    state = workload.build(target(tmp_path), 12345)
    for _ in range(100):
        workload.step(state)
    before = workload.snapshot(state)
    output = workload.step(state)
    assert rejected(workload, before, state, output) == []
    assert output.trained.loss.item() > 0.05
    other = replaced(output.trained, loss=output.trained.loss * 1.001)
    result = rejected(workload, before, state, replaced(output, trained=other))
    assert result == ["loss against the balance of what was played", "loss against float64"]
    scaled = {name: slope * 1.001 for name, slope in output.trained.gradients.items()}
    other = replaced(output.trained, gradients=scaled)
    result = rejected(workload, before, state, replaced(output, trained=other))
    assert "gradients against float64" in result
    kept = replaced(output.trained, weights=before.weights)
    assert rejected(workload, before, state, replaced(output, trained=kept))


@pytest.mark.parametrize("factor", [1 - 1e-4, 1 + 1e-4])
def test_balance_that_is_off_is_rejected(taken: tuple[Any, Any, Any, Any], factor: float):
    workload, before, state, output = taken
    other = replaced(output.trained, loss=output.trained.loss * factor)
    result = rejected(workload, before, state, replaced(output, trained=other))
    assert "loss against the balance of what was played" in result


def test_frozen_weights_are_rejected(taken: tuple[Any, Any, Any, Any]):
    workload, before, state, output = taken
    kept = replaced(output.trained, weights=before.weights)
    result = rejected(workload, before, state, replaced(output, trained=kept))
    assert "tensors without a gradient or a change" in result


def test_forbidden_actions_have_no_chance(taken: tuple[Any, Any, Any, Any]):
    _, _, state, _ = taken
    trees = Trees.begin(2, state.policy.words, torch.device("cpu"))
    logits = state.policy.logits(trees)
    is_allowed = state.policy.rules.allowed(trees)
    assert (logits[~is_allowed] == FORBIDDEN).all()
    assert logits.softmax(dim=-1)[~is_allowed].sum() == 0


def test_order_of_the_nodes_is_not_seen():
    """A tree is what hangs on what: the policy gives the same chance to end to both orders."""
    workload = small()
    torch.manual_seed(3)
    policy = workload._model().double()
    words = workload.words
    empty = Trees.begin(2, words, torch.device("cpu"))
    rows = {
        "kinds": [[3, 5, 6, -1], [3, 6, 5, -1]],
        "parents": [[-1, 0, 0, -1], [-1, 0, 0, -1]],
        "own": [[-1, 0, 1, -1], [-1, 1, 0, -1]],
        "upper": [[-1, 1, 0, -1], [-1, 0, 1, -1]],
    }
    given = {name: torch.tensor(values) for name, values in rows.items()}
    trees = replaced(empty, **given, counts=torch.tensor([3, 3]))
    stop = policy.logits(trees)[:, 0]
    assert stop[0].item() == pytest.approx(stop[1].item(), abs=1e-12)


def test_counts_and_units_are_those_of_the_row():
    workload = RecursionGfn()
    assert workload.work().units == 128
    assert (workload.layers, workload.hidden) == (4, 128)
    assert workload.num_parameters() == 813_486


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"largest": 5, "points": 2, "heads": 4, "batch_change": -1},
        {"kinds": 5, "hidden": 24, "extra_layers": 1, "activation": "silu"},
    ],
    ids=["small", "larger trees", "deeper"],
)
def test_operations_are_the_same_whatever_is_drawn(tmp_path: Path, changes: dict[str, Any]):
    workload = small(**changes)
    drawn = set()
    for seed in (1, 2):
        state = workload.build(target(tmp_path), seed)
        for _ in range(2):
            with FlopCounterMode(display=False) as counter:
                output = workload.step(state)
            assert counter.get_total_flops() == workload.work().flops
            drawn.add(int((output.played.actions != fragments.STOP).sum()))
    assert len(drawn) > 1  # of trajectories that were not equally long


def test_operations_at_full_size_are_those_of_the_network():
    workload = RecursionGfn()
    shape = (workload.words.num_steps, workload.batch, workload.words.num_actions)
    counted = count_flops(lambda: workload._model()(torch.empty(shape)).loss)
    assert counted == workload.work().flops


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"largest": 2}, "largest"),
        ({"points": 1}, "points"),
        ({"heads": 3}, "heads"),
        ({"activation": "relu"}, "activation"),
        ({"sharpness": 0.0}, "sharpness"),
        ({"batch_change": -128}, "batch_change"),
        ({"num_inputs": 10_000}, "num_inputs"),
    ],
)
def test_parameters_that_cannot_run_are_refused(changes: dict[str, Any], word: str):
    with pytest.raises(ParameterError, match=word):
        RecursionGfn(**changes)
