"""Images that training draws: the bits of the host, others for each rank, and held to them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from support.device_draws import DeviceDraws, bytes_of

from appliance.generator import drawing
from appliance.generator.maps import NORMAL, Map, integers
from workloads.contract.target import Artifacts, Target
from workloads.loss_curve import LossCurve
from workloads.parts.datasets.images import drawn_images, drawn_patterns
from workloads.parts.drawing.drawn import Draws, HostDraws, described
from workloads.parts.training.checks import check_step
from workloads.parts.training.inputs import DrawnInputs, DrawnSets
from workloads.resnet50 import Resnet50

SEED, SIDE, COUNT, CLASSES = 5, 36, 7, 700
WORKLOAD = Resnet50(**{**Resnet50.small, "most_blocks": 1})


def target(folder: Path) -> Target:
    return Target(device=torch.device("cpu"), artifacts=Artifacts(folder))


def by_numpy() -> tuple[np.ndarray, np.ndarray]:
    """The same images by NumPy alone, as the docstring of the map has them."""

    def whole(name: str, values: Map, dtype: torch.dtype, *shape: int) -> np.ndarray:
        bits = drawing.whole(described(SEED, name, values, dtype, shape))
        return bits.view(np.int64 if dtype is torch.int64 else np.float32)

    patterns = whole("patterns", NORMAL, torch.float32, CLASSES, 3, 8, 8)
    labels = whole("labels 3", integers(0, CLASSES - 1), torch.int64, COUNT)
    noise = whole("noise 3", NORMAL, torch.float32, COUNT, 3, SIDE, SIDE)
    place = np.arange(SIDE) * 8 // SIDE
    return (noise + patterns[labels][:, :, place][..., place]) * np.float32(181 / 256), labels


def test_a_device_and_the_host_and_numpy_draw_the_same_images() -> None:
    expected, labels = by_numpy()
    for drawer in (DeviceDraws(SEED), HostDraws(seed=SEED)):
        patterns = drawn_patterns(drawer, CLASSES)
        images, classes = drawn_images(drawer, "3", patterns, count=COUNT, side=SIDE)
        assert bytes_of(images) == expected.tobytes()
        assert classes.tolist() == labels.tolist()


def test_images_have_unit_variance_and_the_pattern_of_their_class() -> None:
    drawer = HostDraws(seed=SEED)
    images, labels = drawn_images(drawer, "0", drawn_patterns(drawer, 2), count=60, side=32)
    zero, one = images[labels == 0].flatten(1), images[labels == 1].flatten(1)
    assert torch.nn.functional.cosine_similarity(zero[0], zero[1], dim=0) > 0.35
    assert abs(torch.nn.functional.cosine_similarity(zero[0], one[0], dim=0)) < 0.25
    assert images.std().item() == pytest.approx(1.0, abs=0.1)


def test_ranks_and_sets_have_images_of_their_own_and_patterns_in_common() -> None:
    drawer = DeviceDraws(SEED)
    sets = [
        WORKLOAD.inputs(HostDraws(seed=SEED), rank)(index) for rank in (0, 1) for index in (0, 1)
    ]
    assert len({bytes_of(one["pixel_values"]) for one in sets}) == len(sets)
    for rank in (0, 1):
        WORKLOAD.inputs(drawer, rank)(0)
    assert drawer.names == [
        "patterns", "labels 0", "noise 0", "patterns", "labels 0 of rank 1", "noise 0 of rank 1",
    ]  # fmt: skip


def test_a_batch_is_drawn_again_in_the_layout_that_the_device_has(tmp_path: Path) -> None:
    inputs = DrawnInputs(draw=WORKLOAD.inputs, layout=torch.channels_last)
    made = inputs.sets(target(tmp_path), SEED, 1, 2)
    for name, tensor in made[1].items():
        again = made.again(1)[name]
        assert bytes_of(again) == bytes_of(tensor)
        assert again.stride() == tensor.stride()
    assert made[0]["pixel_values"].is_contiguous(memory_format=torch.channels_last)


def test_a_spoilt_image_gives_other_results_and_other_bits(tmp_path: Path) -> None:
    """The reference is of what was drawn, so wrong inputs alone make the step wrong."""
    state = WORKLOAD.build(target(tmp_path), SEED)
    before = WORKLOAD.snapshot(state)
    assert isinstance(state.batches, DrawnSets)
    state.batches.sets[0]["pixel_values"][2, 1] += 1
    outside = {
        check.name
        for check in check_step(before, state, WORKLOAD.step(state))
        if not check.is_within
    }
    assert {"inputs as generated", "logits against float64"} <= outside


def test_what_a_training_draws_is_on_the_launchs_account_once(tmp_path: Path) -> None:
    where = target(tmp_path)
    state = WORKLOAD.build(where, SEED)
    WORKLOAD.snapshot(state)
    names = [summed.drawn.name for summed in where.drawn]
    weights = [name for name in names if name.startswith(("resnet.", "classifier."))]
    assert len(set(weights)) == len(weights) > 0
    assert names == [
        *weights,
        "patterns", *(f"{kind} {index}" for index in range(4) for kind in ("labels", "noise")),
    ]  # fmt: skip
    assert {summed.drawn.seed for summed in where.drawn} == {SEED}


def test_a_followed_training_draws_by_its_curve_and_not_by_the_launch(tmp_path: Path) -> None:
    """Its start is held by a digest; a seed that is not the launch's is none of its account."""
    where = target(tmp_path)
    LossCurve(workload="resnet50").build(where, SEED)
    assert where.drawn == []


def test_draws_on_a_processor_are_not_shared_with_the_host(tmp_path: Path) -> None:
    """A batch that a step spoils in place must not spoil what it is held to."""
    made = DrawnInputs(draw=WORKLOAD.inputs).sets(target(tmp_path), SEED, 0, 1)
    made[0]["pixel_values"].zero_()
    assert made.again(0)["pixel_values"].any()
    drawer = Draws(target=target(tmp_path), seed=SEED)
    assert WORKLOAD.inputs(drawer, 0)(0)["pixel_values"].any()
