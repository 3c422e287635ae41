"""A U-Net that learns to see through noise, and what would betray a fault on its way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from workloads.contract.failures import ParameterError
from workloads.contract.target import Artifacts, Target
from workloads.diffusion import Diffusion
from workloads.parts.datasets.captions import captioned_images
from workloads.parts.datasets.shapes import COLOURS, SHAPES, UNITS, covered
from workloads.parts.drawing.drawn import HostDraws


def on_processor(folder: Path) -> Target:
    return Target(device=torch.device("cpu"), artifacts=Artifacts(folder))


def refused(folder: Path, spoil: Callable[[Any], None] = lambda _: None) -> set[str]:
    """Names of the checks that refuse a step whose state was spoiled after its snapshot."""
    workload = Diffusion(**Diffusion.small)
    state = workload.build(on_processor(folder), seed=5)
    before = workload.snapshot(state)
    spoil(state)
    output = workload.step(state)
    return {check.name for check in workload.check(before, state, output) if not check.is_within}


def test_healthy_step_is_accepted(tmp_path: Path):
    assert refused(tmp_path) == set()


@pytest.mark.parametrize("network", ["autoencoder", "text"])
def test_frozen_network_that_changed_is_found(network: str, tmp_path: Path):
    def spoil(state: Any) -> None:
        with torch.no_grad():
            next(state.model.get_submodule(network).parameters()).view(-1)[0] += 1e-3

    assert "frozen tensors that changed" in refused(tmp_path, spoil)


@pytest.mark.parametrize("name", ["images", "captions", "draws", "noise", "times"])
def test_input_of_another_step_is_found(name: str, tmp_path: Path):
    def spoil(state: Any) -> None:
        state.batches[0][name].copy_(state.batches[1][name])

    assert {"inputs as generated", "logits against float64"} <= refused(tmp_path, spoil)


def test_latents_are_of_unit_size_and_tell_images_apart(tmp_path: Path):
    workload = Diffusion(**{**Diffusion.small, "batch": 16, "num_inputs": 1})
    state = workload.build(on_processor(tmp_path), seed=5)
    images, draws = state.batches[0]["images"], state.batches[0]["draws"]
    with torch.no_grad():
        latents = state.model._latents(images, torch.zeros_like(draws))
        noise = state.model._latents(images, draws) - latents
    assert latents.std().item() == pytest.approx(1.0, abs=0.4)
    assert noise.std() < 0.05
    assert latents.std(dim=0).square().mean().sqrt() > 0.2


def test_caption_tells_what_the_image_shows():
    """Images of one caption are the same but for their noise, those of two are not."""
    images, captions = captioned_images(
        HostDraws(seed=1), "0", count=4000, side=8, vocabulary=64, length=16
    )
    _, number = captions.unique(dim=0, return_inverse=True)
    alike = (number[:, None] == number[None]).triu(diagonal=1).nonzero()
    assert len(alike) > 100
    distance = (images[alike[:, 0]] - images[alike[:, 1]]).square().mean()
    other = (images - images.roll(1, 0)).square().mean()
    assert distance < 0.02
    assert other > 0.2


def test_shapes_differ_and_lie_where_they_are_put():
    number = len(SHAPES)
    centre, radius = torch.full((number, 2), UNITS // 4), torch.full((number,), UNITS // 5)
    masks = covered(torch.arange(number), centre, radius, 64)
    assert len(masks.flatten(1).unique(dim=0)) == number
    assert not masks[:, 32:].any()
    assert not masks[:, :, 32:].any()
    assert len(COLOURS.unique(dim=0)) == len(COLOURS)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"side": 500}, "side is 500.*multiple of 64"),
        ({"side": 64}, "attention over one latent"),
        ({"width": 48}, "width is 48"),
        ({"head_width": 48}, "head_width is 48"),
        ({"vocabulary": 20}, "vocabulary is 20"),
        ({"length": 5}, "length is 5"),
        ({"prediction": "image"}, "prediction"),
        ({"ranks": 2, "parallel": "tensor"}, "parallel is tensor"),
    ],
    ids=str,
)
def test_what_cannot_run_is_refused(wrong: dict[str, Any], message: str):
    with pytest.raises(ParameterError, match=message):
        Diffusion(**wrong)
