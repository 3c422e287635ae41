"""Graph networks on molecules: what they are made of, what they must reject, that they learn."""

from __future__ import annotations

import copy
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from workloads.contract.failures import ParameterError
from workloads.contract.target import Artifacts, Target
from workloads.dimenet import Dimenet
from workloads.parts.drawing.drawn import HostDraws
from workloads.parts.graphs import molecules
from workloads.parts.graphs.directional import Directional, SphericalBasis, roots
from workloads.parts.graphs.geometric import InteractionBlock, SphericalBasisLayer, scatter
from workloads.parts.graphs.graphs import Deviation
from workloads.parts.numerics.size import OperationCounter
from workloads.parts.training import branch_points
from workloads.parts.training.supervised import Supervised
from workloads.pna import Pna

KINDS = (Pna, Dimenet)


def target(folder: Path) -> Target:
    return Target(device=torch.device("cpu"), artifacts=Artifacts(folder))


def small(kind: type[Supervised], **changes: Any) -> Supervised:
    return kind(**{**kind.small, **changes})


def drawn(count: int, seed: int = 3) -> molecules.Molecules:
    return molecules.drawn(HostDraws(seed=seed), "0", count)


# ------------------------------------------------------------------ molecules


def test_batches_of_one_length_have_the_same_work():
    shapes = {(int(drawn(50, seed).sizes.sum()), drawn(50, seed).bonds.shape) for seed in range(4)}
    sizes = molecules.sizes_of(50)
    assert shapes == {(sizes.sum(), (2, 2 * molecules.num_bonds(sizes).sum()))}


def test_bonds_are_mutual_and_stay_in_their_molecule():
    result = drawn(300)
    source, goal = result.bonds
    pairs = set(zip(source.tolist(), goal.tolist(), strict=True))
    assert pairs == {(b, a) for a, b in pairs}
    assert len(pairs) == len(source)
    assert (source != goal).all()
    assert (result.owners[source] == result.owners[goal]).all()
    assert (goal.diff() >= 0).all()
    assert result.degrees.min() >= 1


def test_atoms_keep_their_distance_and_bonds_their_length():
    result = drawn(300)
    near = molecules.neighbours(result, 5.0)
    places = result.places.double() * molecules.PLACE
    apart = (places[near.pairs[0]] - places[near.pairs[1]]).norm(dim=1)
    assert apart.min() > 0.9
    lengths = (places[result.bonds[0]] - places[result.bonds[1]]).norm(dim=1)
    assert 1.3 < lengths.median() < 1.6
    assert lengths.quantile(0.9) < 1.8
    assert ((lengths * 128 - result.lengths - 0.5).abs() < 0.5 + 1e-9).all()


def test_triplets_are_all_that_meet():
    near = molecules.neighbours(drawn(3), 3.0)
    source, goal = near.pairs.tolist()
    expected = {
        (one, two)
        for one in range(len(source))
        for two in range(len(source))
        if goal[one] == source[two] and source[one] != goal[two]
    }
    assert set(zip(near.before.tolist(), near.after.tolist(), strict=True)) == expected
    assert len(near.before) == len(expected)


# ------------------------------------------------------------------ parts of the networks


def test_zeros_are_zeros_of_the_bessel_functions():
    assert roots(3, 4)[1, :2] == pytest.approx([4.493409457909064, 7.725251836937707])
    assert roots(3, 4)[2, 0] == pytest.approx(5.763459196894550)


def test_basis_is_that_of_the_library():
    theirs = SphericalBasisLayer(3, 2, 5.0).double()
    ours = SphericalBasis(3, 2, 5.0).double()
    ours.roots.copy_(torch.from_numpy(roots(3, 2)))  # without the rounding to float32
    rng = torch.Generator().manual_seed(1)
    distances = 1 + 4.5 * torch.rand(20, generator=rng, dtype=torch.float64)
    angles = math.pi * torch.rand(30, generator=rng, dtype=torch.float64)
    pair = torch.randint(20, (30,), generator=rng)
    torch.testing.assert_close(
        ours(distances, angles, pair), theirs(distances, angles, pair), rtol=1e-4, atol=1e-5
    )


def test_deviation_is_smooth_where_neighbours_are_alike():
    values = torch.tensor([[2.0], [2.0], [1.0], [3.0]], dtype=torch.float64, requires_grad=True)
    index, ends = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 2, 4])
    result = Deviation()(values, index, ends, 2, dim=0)
    assert result.flatten().tolist() == pytest.approx([math.sqrt(1e-5), math.sqrt(1 + 1e-5)])
    torch.autograd.backward(result.sum())
    assert values.grad is not None
    assert values.grad.flatten().tolist() == pytest.approx([0, 0, -0.5, 0.5], abs=1e-4)
    assert torch.autograd.gradcheck(
        lambda x: Deviation()(x, index, ends, 2, dim=0), (values.detach().requires_grad_(),)
    )


def extreme(values: torch.Tensor) -> torch.Tensor:
    return torch.segment_reduce(values, "amax", offsets=torch.tensor([0, 2, 3]))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("extreme", ["max", "min"])
def test_equal_neighbours_are_followed_with_the_gradient_that_torch_gives(
    sign: float, extreme: str
) -> None:
    """Torch divides a gradient among equal values only where it is positive."""
    values = torch.tensor([[2.0], [2.0], [5.0], [5.0], [7.0]])
    offsets = torch.tensor([0, 2, 5])
    device, exact = values.clone().requires_grad_(), values.double().requires_grad_()
    with branch_points.Recorded() as recorded:
        out = torch.segment_reduce(device, extreme, offsets=offsets)
    (sign * out).sum().backward()
    with branch_points.Imposed(recorded.choices) as imposed:
        out = torch.segment_reduce(exact, extreme, offsets=offsets)
    (sign * out).sum().backward()
    assert (imposed.close(), device.grad.tolist()) == (0, exact.grad.tolist())


def test_largest_of_a_segment_is_taken_from_the_device():
    with branch_points.Recorded() as recorded:
        extreme(torch.tensor([[1.0], [1.0 + 1e-6], [5.0]]))
    near = torch.tensor([[1.0 + 1e-9], [1.0], [5.0]], dtype=torch.float64, requires_grad=True)
    with branch_points.Imposed(recorded.choices) as imposed:
        torch.autograd.backward(extreme(near).sum())
    assert near.grad is not None
    assert near.grad.flatten().tolist() == [0, 1, 1]
    assert 0 < imposed.close() < 1e-8


def test_choice_that_is_not_the_largest_of_its_segment_is_far_off():
    with branch_points.Recorded() as recorded:
        extreme(torch.tensor([[1.0], [2.0], [5.0]]))
    with branch_points.Imposed(recorded.choices) as imposed:
        extreme(torch.tensor([[2.0], [1.0], [5.0]], dtype=torch.float64))
    assert imposed.close() > 0.1


def test_operations_are_those_that_are_counted(tmp_path: Path):
    workload = small(Pna)
    state = workload.build(target(tmp_path), 1)
    with FlopCounterMode(display=False) as counter:
        workload.step(state)
    assert counter.get_total_flops() == workload.work().flops


DIMENETS = (
    Dimenet(),
    Dimenet(batch=11, blocks=2, hidden=16, bilinear=4, cutoff=3.0, activation="gelu"),
)


def drawn_inputs(workload: Dimenet, seed: int) -> dict[str, torch.Tensor]:
    return workload.inputs(HostDraws(seed=seed), 0, 0)


def near(inputs: dict[str, torch.Tensor]) -> molecules.Near:
    atoms, pairs, triplets = (inputs[name].shape[-1] for name in ("numbers", "pairs", "before"))
    return molecules.Near(atoms=atoms, pairs=pairs, triplets=triplets)


@pytest.mark.parametrize("workload", DIMENETS, ids=["full size", "small"])
def test_operations_on_drawn_molecules_are_those_that_are_counted(workload: Dimenet):
    inputs = drawn_inputs(workload, 1)
    with torch.device("meta"), OperationCounter() as counter:
        on_meta = {name: values.to("meta") for name, values in inputs.items()}
        workload.model().to("meta")(**on_meta).loss.backward()
    assert workload.flops(near(inputs)) == pytest.approx(counter.flops, rel=1e-3)


@pytest.mark.parametrize("workload", DIMENETS, ids=["full size", "small"])
def test_operations_are_those_of_drawn_molecules_on_average(workload: Dimenet):
    """Batches differ in their pairs; the mean of many is what the workload says of itself."""
    drawn = [workload.flops(near(drawn_inputs(workload, seed))) for seed in range(100)]
    assert len(set(drawn)) > 1
    assert workload.work().flops == pytest.approx(statistics.mean(drawn), rel=0.02)


# ------------------------------------------------------------------ steps


def rejected(workload: Supervised, before: Any, state: Any, output: Any) -> set[str]:
    return {c.name for c in workload.check(before, state, output) if not c.is_within}


@pytest.mark.parametrize("kind", KINDS)
def test_step_on_swapped_targets_is_rejected(tmp_path: Path, kind: type[Supervised]):
    workload = small(kind)
    state = workload.build(target(tmp_path), 5)
    before = workload.snapshot(state)
    true = state.batches[0]["targets"].clone()
    state.batches[0]["targets"].copy_(true.flip(0))
    output = workload.step(state)
    state.batches[0]["targets"].copy_(true)
    assert "loss against float64" in rejected(workload, before, state, output)


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_spoiled_on_the_device_are_rejected(tmp_path: Path, kind: type[Supervised]):
    workload = small(kind)
    state = workload.build(target(tmp_path), 5)
    state.batches[0]["targets"].copy_(state.batches[0]["targets"].flip(0))
    before = workload.snapshot(state)
    output = workload.step(state)
    assert "inputs as generated" in rejected(workload, before, state, output)


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_the_batch_is_rejected(tmp_path: Path, kind: type[Supervised]):
    workload = small(kind)
    state = workload.build(target(tmp_path), 5)
    before = workload.snapshot(state)
    half = state.batches[0]["targets"][: workload.count // 2]
    whole = state.model.forward

    def halved(**batch: torch.Tensor) -> Any:
        made = whole(**batch)
        logits = made.logits[: len(half)]
        loss = torch.nn.functional.mse_loss(logits, half)
        return type(made)(loss=loss, logits=made.logits)

    state.model.forward = halved
    output = workload.step(state)
    del state.model.forward
    assert "loss against float64" in rejected(workload, before, state, output)


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_weights_are_rejected(tmp_path: Path, kind: type[Supervised]):
    workload = small(kind)
    state = workload.build(target(tmp_path), 5)
    before = workload.snapshot(state)
    output = workload.step(state)
    kept = {name: weight.clone() for name, weight in before.weights.items()}
    output = type(output)(**{**vars(output), "weights": kept})
    assert "tensors without a gradient or a change" in rejected(workload, before, state, output)


@pytest.mark.parametrize("kind", KINDS)
def test_constant_predictions_are_rejected(tmp_path: Path, kind: type[Supervised]):
    """A network that does not look at its input agrees with float64, and is still refused."""
    workload = small(kind)
    state = workload.build(target(tmp_path), 5)
    whole = type(state.model).forward

    class Blind(type(state.model)):  # type: ignore[misc]
        def forward(self, **batch: torch.Tensor) -> Any:
            made = whole(self, **batch)
            logits = made.logits.mean().expand_as(made.logits)
            loss = torch.nn.functional.mse_loss(logits, batch["targets"])
            return type(made)(loss=loss, logits=logits)

    state.model.__class__ = Blind
    before = workload.snapshot(state)
    output = workload.step(state)
    assert "logits depend on the input" in rejected(workload, before, state, output)


@pytest.mark.parametrize("kind", KINDS)
def test_sum_in_another_order_stays_within_the_spread(tmp_path: Path, kind: type[Supervised]):
    """Bonds or triplets shuffled: what an accelerator does to sums that it makes by atomics."""
    workload = small(kind)
    state, other = (workload.build(target(tmp_path), 4) for _ in range(2))
    _shuffle(other.batches.sets[0])
    one, two = workload.step(state), workload.step(other)
    pairs = [(one.loss, two.loss), (one.logits, two.logits)]
    pairs += [(one.gradients[name], two.gradients[name]) for name in one.gradients]
    pairs += [(one.weights[name], two.weights[name]) for name in one.weights]
    errors = [((a - b).abs().max() / a.abs().max()).item() for a, b in pairs]
    assert 0 < max(errors) < workload.spread


def _shuffle(batch: dict[str, torch.Tensor]) -> None:
    rng = torch.Generator().manual_seed(1)
    if "links" in batch:
        order = torch.randperm(batch["links"].shape[1], generator=rng)
        order = order[torch.argsort(batch["links"][1][order], stable=True)]
        batch["links"], batch["bonds"] = batch["links"][:, order], batch["bonds"][order]
    else:
        order = torch.randperm(len(batch["before"]), generator=rng)
        batch["before"], batch["after"] = batch["before"][order], batch["after"][order]


# ------------------------------------------------------------------ parameters


@pytest.mark.parametrize(
    ("kind", "changes", "word"),
    [
        (Pna, {"dtype": "bfloat16"}, "dtype"),
        (Pna, {"layers": 1}, "layers"),
        (Pna, {"activation": "tanh"}, "activation"),
        (Dimenet, {"cutoff": 0.5}, "cutoff"),
        (Dimenet, {"spherical": 1}, "spherical"),
        (Dimenet, {"extra_layers": -6}, "extra_layers"),
    ],
)
def test_parameters_that_cannot_run_are_refused(kind: Any, changes: dict[str, Any], word: str):
    with pytest.raises(ParameterError, match=word):
        kind(**changes)


@pytest.mark.parametrize("kind", KINDS)
def test_model_can_be_copied(kind: type[Supervised]):
    """The check follows a copy in float64."""
    model = small(kind).model()
    assert [p.shape for p in copy.deepcopy(model).double().parameters()] == [
        p.shape for p in model.parameters()
    ]


# ------------------------------------------------------------------ DimeNet's blocks, together


class Operators(TorchDispatchMode):
    """Counts operators as they reach the device."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.number += 1
        return function(*args, **(kwargs or {}))


def one_by_one(model: Directional, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The loss as the library's own blocks make it of the same weights."""
    numbers, places, before, after = (
        batch[name] for name in ("numbers", "places", "before", "after")
    )
    source, target = batch["pairs"]
    ways = places[source] - places[target]
    radial = model.rbf(ways.square().sum(dim=-1).sqrt())
    angles = model._angles(places, batch["pairs"], before, after)
    spherical = model.sbf(ways.square().sum(dim=-1).sqrt(), angles, before)
    messages = model.emb(numbers, radial, target, source)
    blocks, readers = model._blocks()
    total = readers[0](messages, radial, target, len(places))
    for block, reader in zip(blocks, readers[1:], strict=True):
        messages = InteractionBlock.forward(block, messages, radial, spherical, before, after)
        total = total + reader(messages, radial, target, len(places))
    logits = scatter(total, batch["owners"], dim_size=len(batch["targets"]))
    return torch.nn.functional.mse_loss(logits / model.typical, batch["targets"])


@pytest.fixture(scope="module")
def directional() -> tuple[Directional, dict[str, torch.Tensor]]:
    """A model of six blocks and a batch, in float64."""
    workload = small(Dimenet, blocks=6)
    batch = {
        name: value.double() if value.is_floating_point() else value
        for name, value in drawn_inputs(workload, 3).items()
    }
    torch.manual_seed(4)
    return workload.model().double(), batch


def test_blocks_that_are_called_together_make_what_the_librarys_make(
    directional: tuple[Directional, dict[str, torch.Tensor]],
):
    model, batch = directional
    ways = (lambda: model(**batch).loss, lambda: one_by_one(model, batch))
    losses, gradients = [], []
    for way in ways:
        model.zero_grad()
        loss = way()
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], rtol=1e-9, atol=1e-12), name


def test_blocks_that_are_called_together_ask_for_fewer_operators(
    directional: tuple[Directional, dict[str, torch.Tensor]],
):
    model, batch = directional
    counts = []
    for way in (lambda: model(**batch).loss, lambda: one_by_one(model, batch)):
        model.zero_grad()
        with Operators() as counted:
            way().backward()
        counts.append(counted.number)
    assert counts[0] < 0.85 * counts[1]
