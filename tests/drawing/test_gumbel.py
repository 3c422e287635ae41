"""Noise of Gumbel's distribution: a device has the bits of the host, and choices their chances."""

import math

import pytest
import torch
from support.device_draws import DeviceDraws, bytes_of

from appliance.generator import drawing, maps
from workloads.parts.drawing import drawn, gumbel
from workloads.parts.drawing.drawn import HostDraws


def test_a_device_and_the_host_draw_the_same_noise_also_of_an_odd_number() -> None:
    for shape in ((3, 5, 7), (4, 1000)):
        host, device = (
            gumbel.noise(one, "n", shape) for one in (HostDraws(seed=2), DeviceDraws(2))
        )
        assert host.shape == shape
        assert bytes_of(host) == bytes_of(device)


def test_an_element_is_the_quantile_of_its_bits() -> None:
    count = 4000
    one = drawn.described(2, "n", maps.WORDS, torch.int64, (count // 2,))
    bits = drawing.whole(one).view("<u4") >> 8
    made = gumbel.noise(HostDraws(seed=2), "n", (1, count))[0].tolist()
    for random, value in zip(bits.tolist(), made, strict=True):
        is_rare = random >= 255 << 16
        share = (random + 0.5) / 2**24 if is_rare else ((random >> 8) + 0.5) / 2**16
        assert value == pytest.approx(-math.log(-math.log(share)), abs=2**-17)


def test_noise_has_the_moments_and_the_tail_of_its_distribution() -> None:
    made = gumbel.noise(HostDraws(seed=1), "n", (8, 250_000)).double()
    assert made.mean().item() == pytest.approx(0.57722, abs=0.003)
    assert made.var().item() == pytest.approx(math.pi**2 / 6, abs=0.01)
    for height in (5.0, 8.0, 11.0):
        share = 1 - math.exp(-math.exp(-height))
        seen = int((made > height).sum())
        assert abs(seen - share * made.numel()) < 4 * math.sqrt(share * made.numel()) + 1


def test_the_largest_sum_falls_on_each_choice_as_its_probability_says() -> None:
    chances = torch.tensor([0.5, 0.3, 0.15, 0.04, 0.01])
    noise = gumbel.noise(HostDraws(seed=3), "n", (40, 5000, 5))
    chosen = (chances.log() + noise).argmax(dim=-1).flatten().bincount(minlength=5)
    expected = chances * chosen.sum()
    assert float(((chosen - expected) ** 2 / expected).sum()) < 18.5  # chi-squared of 4, 0.1 %
