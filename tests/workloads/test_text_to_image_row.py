"""Text to image: what devices round differently is judged by itself, and nothing else is hidden."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from appliance.records.journal import Check
from workloads.contract.target import Artifacts, Target
from workloads.parts.diffusion import flux
from workloads.text_to_image import TextToImage

Frequencies = Callable[[torch.Tensor], torch.Tensor]
SINES, VELOCITIES = "embedded times against float64", "velocities against float64"
pytestmark = pytest.mark.usefixtures("one_thread")


def one_ulp(frequencies: torch.Tensor) -> torch.Tensor:
    """Each a unit in the last place higher or lower, or as it was."""
    rng = torch.Generator().manual_seed(5)
    ulps = torch.randint(-1, 2, frequencies.shape, generator=rng, dtype=torch.int32)
    return (frequencies.view(torch.int32) + ulps).view(torch.float32)


def embedding(change: Frequencies) -> Callable[[torch.Tensor], torch.Tensor]:
    """As a device whose exponentials are others would embed times."""

    def embed(products: torch.Tensor) -> torch.Tensor:
        exponents = torch.arange(128, dtype=torch.float32) * (-9.210340371976184 / 128)
        angles = products[:, None].float() * change(exponents.exp())[None]
        return torch.cat((angles.cos(), angles.sin()), 1)

    return embed


def checks(folder: Path, change: Frequencies | None, *, in_step_alone: bool = False) -> list[Check]:
    workload = TextToImage(**TextToImage.small)
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(folder))
    state: Any = workload.build(target, 1)
    sines = state.networks.transformer.time_text_embed.time_proj
    own = sines.forward
    if change is not None:
        sines.forward = embedding(change)
    before = workload.snapshot(state)
    output = workload.step(state)
    if in_step_alone:
        sines.forward = own
    return list(workload.check(before, state, output))


def outside(result: list[Check]) -> set[str]:
    return {check.name for check in result if not check.is_within}


def test_exponentials_rounded_otherwise_are_no_fault(tmp_path: Path) -> None:
    """Against a reference with sines of its own, these velocities are off by 3.7 bounds."""
    result = {check.name: check for check in checks(tmp_path, one_ulp)}
    assert outside(list(result.values())) == set()
    assert result[VELOCITIES].error < 0.15 * result[VELOCITIES].bound


def test_the_bound_of_the_sines_is_not_needed_by_half(tmp_path: Path) -> None:
    (sines,) = [check for check in checks(tmp_path, None) if check.name == SINES]
    assert 0 < sines.error < 0.5


@pytest.mark.parametrize(
    "change",
    [
        lambda frequencies: frequencies * (1 + 1e-4),
        lambda frequencies: frequencies.bfloat16().float(),
        lambda frequencies: frequencies.roll(1),
    ],
    ids=["off by 1e-4", "bfloat16", "another order"],
)
def test_sines_of_other_frequencies_are_rejected(change: Frequencies, tmp_path: Path) -> None:
    assert SINES in outside(checks(tmp_path, change))


def test_sines_that_the_step_alone_got_wrong_are_rejected(tmp_path: Path) -> None:
    """What the reference is handed is made again, so it does not follow a wrong step."""
    wrong = checks(tmp_path, lambda frequencies: frequencies * (1 + 1e-4), in_step_alone=True)
    assert VELOCITIES in outside(wrong)
    assert SINES not in outside(wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_reach_the_devices_embedding_as_the_network_makes_them(dtype: torch.dtype) -> None:
    times = torch.rand(500, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 4
    handed = flux.rounded_times(times, dtype) * 1000  # by the reference, in float64
    assert torch.equal(handed.to(dtype), flux.products(times, dtype))
