"""Recorded trajectories: right runs stay inside, single faults leave, accuracy would not tell.

The numbers are of methods: Training trajectory, on the bands that were recorded for the small
size. Faults are injected here, around the training; nothing that is shipped has one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import t as student

from appliance.errors import ApplianceError
from appliance.records.journal import Check
from workloads.contract.failures import ParameterError
from workloads.contract.target import Artifacts, Target
from workloads.parts.curves import bands, trajectories
from workloads.parts.curves.bands import RecordedCurve
from workloads.parts.curves.trajectories import Relabelling, follow
from workloads.parts.curves.variations import Variation
from workloads.parts.training.state import Training
from workloads.steps_to_target import StepsToTarget
from workloads.trajectory import MODEL, Followed, State, Trajectory

WIDTH, NUM_STEPS, ACCURACY_STEPS = 256, 50, 400
DTYPES = ("float32", "bfloat16")
Hook = Callable[[int, Training], None]

# Seeds from 1000: none of them is in a recorded reference set.
HELD_OUT_RUNS = (
    Variation(threads=2, relabelled=1001),
    Variation(perturbed=1002),
    Variation(perturbed=1003),
    Variation(perturbed=1004, relabelled=1004),
    Variation(relabelled=1005, has_onednn=False),
    Variation(perturbed=1006, sums="blocks of 16"),
    Variation(perturbed=1007, relabelled=1007),
)
pytestmark = pytest.mark.usefixtures("one_thread")


def curve_of(dtype: str, index: int = 0) -> RecordedCurve:
    return bands.load_band(MODEL, WIDTH, dtype).curves[index]


def trained(
    curve: RecordedCurve,
    dtype: str = "float32",
    variation: Variation | None = None,
    hook: Hook = lambda *_: None,
    num_steps: int = NUM_STEPS,
) -> tuple[bands.Comparison, Training]:
    """A run of a recorded trajectory, its first fifty losses beside the band."""
    trajectory = trajectories.Trajectory(width=WIDTH, number=curve.number)
    losses, state = follow(trajectory, num_steps, dtype, variation or Variation(), before_step=hook)
    return bands.compare(losses[:NUM_STEPS], curve), state


def accuracy(state: Training) -> float:
    images, labels = trajectories.held_out_images()
    return trajectories.num_right(state.model, images, labels).item() / len(labels)


# ------------------------------------------------------------------ right runs


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variation", HELD_OUT_RUNS, ids=str)
def test_right_run_that_was_not_recorded_is_inside(dtype: str, variation: Variation) -> None:
    compared, _ = trained(curve_of(dtype), dtype, variation)
    assert compared.outside == (), compared.sentence


@pytest.mark.parametrize("dtype", DTYPES)
def test_reference_set_is_inside_its_own_band(dtype: str) -> None:
    for curve in bands.load_band(MODEL, WIDTH, dtype).curves:
        assert max(run.largest for run in curve.runs) <= max(curve.spread) * 1.01
        assert len(curve.runs) >= 20


@pytest.mark.parametrize("index", [1, 2])
def test_other_trajectories_are_followed_too(index: int) -> None:
    compared, _ = trained(curve_of("float32", index), variation=Variation(relabelled=1010))
    assert compared.outside == (), compared.sentence
    mixed_up, _ = trained(replace(curve_of("float32"), number=index))
    assert mixed_up.outside[0] == 0


# ------------------------------------------------------------------ faults


def scaled(number: int, state: Training) -> None:
    """The first layer's output is 1e-5 too large."""
    if number == 0:
        layer = state.model.layers[0]
        layer.register_forward_hook(lambda *parts: parts[-1] * (1 + 1e-5))


def stuck(number: int, state: Training) -> None:
    """One of 256 units is zero."""
    if number == 0:
        kept = torch.ones(WIDTH)
        kept[7] = 0
        state.model.layers[0].register_forward_hook(lambda *parts: parts[-1] * kept)


@dataclass(frozen=True)
class Hit:
    """One weight's gradient is off by `size` in the step of number 25."""

    size: float
    unit: int
    pixel: int

    def __call__(self, number: int, state: Training) -> None:
        if number != 25:
            return

        def spoil(*_: object) -> None:
            state.model.layers[0].weight.grad[self.unit, self.pixel] += self.size
            handle.remove()

        handle = state.optimizer.register_step_pre_hook(spoil)


HITS = [
    Hit(size, unit, pixel)
    for size in (1e-2, 1.0, 1e3)
    for unit, pixel in ((100, 28), (7, 13), (200, 50))
]


@pytest.fixture(scope="module")
def healthy() -> float:
    _, state = trained(curve_of("float32"), num_steps=ACCURACY_STEPS)
    return accuracy(state)


@pytest.mark.parametrize(
    ("fault", "first"),
    [(scaled, range(10)), (stuck, [0]), *((hit, range(26, 30)) for hit in HITS)],
    ids=["first layer times 1 + 1e-5", "one unit stuck", *map(str, HITS)],
)
def test_fault_leaves_the_band_and_keeps_the_accuracy(
    fault: Hook, first: Any, healthy: float
) -> None:
    """The final accuracy moves by less than three deviations of its spread over seeds, 0.28 %."""
    compared, state = trained(curve_of("float32"), hook=fault, num_steps=ACCURACY_STEPS)
    print(  # noqa: T201 - the figures
        f"worst {compared.worst:.1f} bands, {compared.sentence}; "
        f"accuracy after {ACCURACY_STEPS} steps {accuracy(state):.4f}, healthy {healthy:.4f}"
    )
    assert compared.outside
    assert compared.outside[0] in first
    assert abs(accuracy(state) - healthy) < 3 * 0.0028


def test_stuck_unit_leaves_the_band_of_bfloat16_too() -> None:
    compared, _ = trained(curve_of("bfloat16"), "bfloat16", hook=stuck)
    assert compared.outside[0] == 0


def test_float32_made_of_bfloat16_products_leaves_the_band() -> None:
    compared, _ = trained(curve_of("float32"), "bfloat16")
    assert compared.outside[0] <= 1


# ------------------------------------------------------------------ the workload


@dataclass(frozen=True, kw_only=True)
class HitOnce(Trajectory):
    """One gradient of one weight is hit in the step of number 25; both checked steps are right."""

    def step(self, state: State) -> Followed:
        Hit(1.0, 100, 28)(state.training.cycle.number + 1, state.training)
        return super().step(state)


def launched(workload: Trajectory | StepsToTarget, folder: Path, seed: int = 2) -> list[Check]:
    """Checks of the last step, as a launch makes them."""
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(folder))
    state = workload.build(target, seed)
    for _ in range(workload.steps - 1):
        workload.step(state)
    before = workload.snapshot(state)
    return list(workload.check(before, state, workload.step(state)))


def test_hit_between_two_right_steps_is_found_by_the_curve_alone(tmp_path: Path) -> None:
    parameters = {"width": WIDTH, "dtype": "float32"}
    assert all(check.is_within for check in launched(Trajectory(**parameters), tmp_path))
    wrong = [check for check in launched(HitOnce(**parameters), tmp_path) if not check.is_within]
    assert {check.kind for check in wrong} == {"trajectory"}
    assert all("the first outside" in check.detects_what for check in wrong)


def test_bfloat16_is_judged_by_its_own_band(tmp_path: Path) -> None:
    checks = launched(Trajectory(width=WIDTH, dtype="bfloat16"), tmp_path)
    assert [check for check in checks if not check.is_within] == []


def test_seed_draws_the_trajectory_and_the_relabelling(tmp_path: Path) -> None:
    workload = Trajectory(width=WIDTH, dtype="float32")
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(tmp_path))
    one, two, three = (workload.build(target, seed) for seed in (1, 2, 4))
    assert [state.curve.number for state in (one, two, three)] == [1, 2, 1]
    assert not torch.equal(one.model.layers[0].weight, three.model.layers[0].weight)


def test_relabelled_training_is_the_same_training() -> None:
    trajectory = trajectories.Trajectory(width=WIDTH, number=0)
    plain = trajectory.model(Relabelling.none(WIDTH)).double()
    relabelling = Relabelling.drawn(5, WIDTH)
    other = trajectory.model(relabelling).double()
    images, labels = (tensor[:64] for tensor in trajectories.training_images())
    losses = [
        plain(images.double(), labels).loss.item(),
        other(images.double()[:, relabelling.pixels], labels).loss.item(),
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-14)


def test_other_inputs_than_the_recorded_ones_are_refused() -> None:
    with pytest.raises(ApplianceError, match="record it anew"):
        bands.refuse_other_inputs(curve_of("float32"), "0" * 64)


@pytest.mark.parametrize("kind", [Trajectory, StepsToTarget])
def test_size_without_a_band_is_refused(kind: type[Trajectory]) -> None:
    with pytest.raises(ParameterError, match="no band digits_mlp-300-float32"):
        kind(width=300, dtype="float32")
    with pytest.raises(ParameterError, match="choose one of float32, bfloat16"):
        kind(width=WIDTH, dtype="float16")


# ------------------------------------------------------------------ the band


def made_of(*losses: float) -> RecordedCurve:
    return replace(
        curve_of("float32"),
        losses=losses,
        spread=(0.0,) * len(losses),
        allowed=(0.5,) * len(losses),
    )


def test_curve_is_compared_step_by_step() -> None:
    compared = bands.compare(np.array([1.0, math.e, math.e**-0.4]), made_of(1.0, 1.0, 1.0))
    assert compared.ratios == pytest.approx([0.0, 2.0, 0.8])
    assert compared.outside == (1,)
    assert compared.sentence.startswith("step 1 is the first outside, by 1 where 0.5 is allowed")


@pytest.mark.parametrize("loss", [math.nan, math.inf, 0.0, -1.0])
def test_loss_that_is_no_number_is_outside(loss: float) -> None:
    compared = bands.compare(np.array([1.0, loss]), made_of(1.0, 1.0))
    assert compared.outside == (1,)
    assert not compared.worst <= 1.0


def test_pool_allows_three_times_what_was_seen_up_to_a_step() -> None:
    pool = bands.pooled(np.exp([[0.0, 0.3, 1.0], [0.0, -0.3, 1.0]]), floor=0.1)
    assert pool.allowed == pytest.approx([0.1, 0.9, 0.9])
    assert pool.largest == pytest.approx([0.3, 0.3])


def test_horizon_is_where_a_tenth_would_be_allowed() -> None:
    strayed = np.exp([[0.0, 0.01, 0.04, 0.0], [0.0, -0.01, -0.04, 0.0]])
    assert bands.horizon(strayed) == 2
    assert bands.horizon(strayed[:, :2]) == 2


@pytest.mark.parametrize(
    "path", sorted(bands.FOLDER.glob("digits_mlp-[0-9]*.json")), ids=lambda path: path.stem
)
def test_band_is_whole_and_of_what_is_shipped(path: Path) -> None:
    data = json.loads(path.read_text())
    where = (data["model"], data["width"], data["dtype"])
    if data["schema"] == "bench/steps-band/2":
        steps = bands.load_steps_band(*where)
        assert len(steps.steps) == len(set(steps.numbers)) == 300
        assert max(steps.steps) < steps.limit
        return
    band = bands.load_band(*where)
    for curve in band.curves:
        trajectory = trajectories.Trajectory(width=band.width, number=curve.number)
        bands.refuse_other_inputs(curve, trajectory.digest(band.num_steps))
        spread, allowed = np.array(curve.spread), np.array(curve.allowed)
        assert allowed == pytest.approx(np.maximum(3 * spread, band.floor), rel=0.01)
        assert len(curve.losses) == len(allowed) == band.num_steps == NUM_STEPS
        assert curve.horizon > band.num_steps


# ------------------------------------------------------------------ steps to the target


def steps_band(*steps: int) -> bands.StepsBand:
    band = bands.load_steps_band(MODEL, WIDTH, "float32")
    return replace(band, steps=steps, numbers=tuple(range(len(steps))))


def test_interval_is_that_of_student() -> None:
    logs = np.tile([3.9, 4.1], 13)[:25]
    logs = 4 + (logs - logs.mean()) / logs.std(ddof=1) * 0.1
    result = bands.interval(steps_band(*np.exp(logs).tolist()), 4)
    of_mean, of_one = (student.ppf(1 - bands.ALPHA / 4 / parts, 24) for parts in (1, 4))
    assert result.mean == pytest.approx(4)
    assert result.half_of_mean == pytest.approx(of_mean * 0.1 * math.sqrt(1 / 4 + 1 / 25))
    assert result.half_of_one == pytest.approx(of_one * 0.1 * math.sqrt(1 + 1 / 25))


def test_steps_to_a_target_count_from_one() -> None:
    assert trajectories.steps_to([1, 5, 9, 5], 9) == 3
    assert trajectories.steps_to([1, 5], 9) == math.inf
    assert trajectories.num_wanted(0.95, 360) == 342


@dataclass(frozen=True, kw_only=True)
class AtRate(StepsToTarget):
    """Trains at a multiple of the rate that it should."""

    factor: float = 1.0

    def build(self, target: Target, seed: int) -> Any:
        state = super().build(target, seed)
        for one in state.trainings:
            one.rule = replace(one.rule, learning_rate=one.rule.learning_rate * self.factor)
        return state


@dataclass(frozen=True, kw_only=True)
class Trained(StepsToTarget):
    """Begins with weights that were trained before."""

    def build(self, target: Target, seed: int) -> Any:
        state, other = super().build(target, seed), super().build(target, seed)
        for _ in range(self.steps):
            super().step(other)
        for one, done in zip(state.trainings, other.trainings, strict=True):
            one.model.load_state_dict(done.model.state_dict())
        return state


SMALL = {"width": WIDTH, "num_runs": 3, "dtype": "float32"}


@pytest.mark.parametrize("seed", [3, 4])
def test_healthy_runs_take_the_recorded_number_of_steps(tmp_path: Path, seed: int) -> None:
    checks = launched(StepsToTarget(**SMALL), tmp_path, seed)
    assert [check for check in checks if not check.is_within] == []


@pytest.mark.parametrize(
    "workload",
    [AtRate(**SMALL, factor=0.3), Trained(**SMALL)],
    ids=["too slow", "too fast"],
)
def test_steps_are_held_on_both_sides(workload: StepsToTarget, tmp_path: Path) -> None:
    wrong = [check.name for check in launched(workload, tmp_path) if not check.is_within]
    assert len(wrong) == 2
    assert all(name.startswith("ln(steps to the target)") for name in wrong)
