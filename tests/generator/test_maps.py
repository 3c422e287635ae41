"""Tables and scaled integers: exact values, how they are distributed, and formats rounded."""

import hashlib
import re

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.special import ndtri

from appliance.generator import maps
from appliance.generator.drawing import Drawn, whole
from appliance.generator.formats import SHORT, bits_of
from appliance.generator.maps import NORMAL, UNIFORM, WORDS, Map, integers, normal, uniform

TABLES = {
    ("normal", "float64"): "69ebac403a8cce4cdddff18e48f7574b1da3ebfa88488090707d62da6c6decec",
    ("normal", "bfloat16"): "37a60edf3ef89e6f35006d4f514ec95160b592ae9b65fb1dbc7e803cf1b52469",
    (
        "integers -127 to 127",
        "int8",
    ): "4f81c93e630862bd9959969dfec75e582fd7a6d9b64aa78f60e0624e9eafdb73",
}


def groups() -> np.ndarray:
    return maps.table(NORMAL, "float64").view(np.float64)


def test_magnitudes_are_the_quantiles_of_another_library() -> None:
    shares = np.arange(2 * maps.NUM_MAGNITUDES + 1, 4 * maps.NUM_MAGNITUDES, 2)
    exact = ndtri(shares / (4 * maps.NUM_MAGNITUDES)) / maps.STEP
    assert np.array_equal(np.rint(exact), maps.magnitudes())
    assert np.abs(exact % 1 - 0.5).min() > 3e-6  # nowhere could a last bit turn it


@pytest.mark.parametrize(("name", "dtype"), TABLES)
def test_tables_are_the_same_on_every_machine(name: str, dtype: str) -> None:
    table = maps.table(maps.parse(name), dtype)
    digest = hashlib.sha256(table.astype(f"<u{table.itemsize}").tobytes()).hexdigest()
    assert digest == TABLES[name, dtype]


def test_each_value_of_a_group_is_drawn_equally_often() -> None:
    values = groups()
    whole_table, counts = np.unique(values, return_counts=True)
    assert len(whole_table) == 2 * maps.NUM_MAGNITUDES
    assert set(counts) == {8}
    for column in values.T:
        assert set(np.unique(column, return_counts=True)[1]) == {8}


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
def test_any_two_numbers_of_a_group_are_as_if_independent(pair: tuple[int, int]) -> None:
    """Every pair of 128 strata, signs included, is drawn equally often; moments follow."""
    one, other = groups()[:, pair].T
    edges = np.concatenate([[-np.inf], ndtri(np.arange(1, 128) / 128), [np.inf]])
    counts = np.histogram2d(one, other, bins=(edges, edges))[0]
    assert (counts == 4).all()
    assert abs(np.mean(one * other)) < 1e-15
    assert abs(np.corrcoef(one**2, other**2)[0, 1]) < 1e-3


def test_drawn_normal_numbers_have_the_moments_and_shares_of_their_distribution() -> None:
    drawn = whole(Drawn(11, "x", NORMAL, "float64", (2**20,))).view(np.float64)
    assert abs(drawn.mean()) < 5 / 2**10
    assert abs(drawn.var() - 1) < 5 * 2**0.5 / 2**10
    assert abs(np.mean(drawn**4) - 3) < 0.06
    counts = np.histogram(drawn, bins=ndtri(np.linspace(0, 1, 257)))[0]
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 16, 64, 4096])
def test_drawn_numbers_are_uncorrelated_over_counters(lag: int) -> None:
    drawn = whole(Drawn(12, "x", NORMAL, "float64", (2**18,))).view(np.float64)
    for values in (drawn, drawn**2 - 1):
        product = np.mean(values[lag:] * values[:-lag]) / np.mean(values**2)
        assert abs(product) < 5 / 2**9


@pytest.mark.parametrize(("low", "high"), [(-127, 127), (0, 255), (0, 999), (-5000, 8000)])
def test_integers_are_uniform(low: int, high: int) -> None:
    drawn = whole(Drawn(13, "x", integers(low, high), "int32", (2**20,))).view(np.int32)
    counts = np.bincount(drawn - low, minlength=high - low + 1)
    assert len(counts) == high - low + 1
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_numbers_are_uniform(dtype: str) -> None:
    drawn = whole(Drawn(14, "x", UNIFORM, dtype, (2**20,))).view(dtype).astype(np.float64)
    assert scipy.stats.chisquare(np.histogram(drawn, bins=200, range=(-0.5, 0.5))[0]).pvalue > 1e-4


@pytest.mark.parametrize("width", [0.25, 3.0])
def test_uniform_numbers_of_a_width_are_uniform_over_it(width: float) -> None:
    drawn = whole(Drawn(15, "x", uniform(width), "float32", (2**20,))).view(np.float32)
    assert len(np.unique(drawn)) == maps.PLACES
    share = drawn.astype(np.float64) / width
    assert scipy.stats.chisquare(np.histogram(share, bins=200, range=(-0.5, 0.5))[0]).pvalue > 1e-4
    middles = (2 * np.arange(maps.PLACES) + 1 - maps.PLACES) / (2 * maps.PLACES)
    assert np.array_equal(np.unique(drawn), (middles * width).astype(np.float32))


@pytest.mark.parametrize("dtype", [*SHORT, "float32"])
def test_values_are_rounded_once_to_nearest_and_even(dtype: str) -> None:
    """Against torch's conversion of float32, which is exact, and of halves between its numbers."""
    step = np.float32(2.0 ** -(SHORT[dtype].fraction + 1)) if dtype in SHORT else np.float32(2**-9)
    ties = np.float32(1) + step * np.arange(1, 64, 2, dtype=np.float32)
    tiny = np.ldexp(np.arange(-40, 40, dtype=np.float32), -17 if "8" in dtype else -25)
    values = np.concatenate([groups()[:200].ravel().astype(np.float32), ties[ties < 100], tiny])
    form = getattr(torch, dtype)
    converted = (
        torch.from_numpy(values)
        .to(form)
        .view({1: torch.uint8, 2: torch.int16}.get(form.itemsize, torch.int32))
    )
    bits = bits_of(values.astype(np.float64), dtype)
    assert np.array_equal(bits, converted.numpy().view(bits.dtype))


@pytest.mark.parametrize(
    "drawn",
    [NORMAL, UNIFORM, WORDS, integers(-3, 9), normal(0.0, 1 / 3), normal(1.0, 0.1), uniform(0.3)],
    ids=str,
)
def test_maps_are_read_back_from_their_names(drawn: Map) -> None:
    assert maps.parse(str(drawn)) == drawn


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gamma",
        "integers",
        "integers 3",
        "integers 3 to 2",
        "integers 03 to 4",
        "normal ",
        "normal 0.0 by 1.0",
        "normal 0.0 by 0.10",
        "normal 0.0 by 0.0",
        "normal nan by 1.0",
        "normal 0.0 by inf",
        "normal 17.0 by 1.0",
        "uniform by 1.0",
        "uniform by 0.10",
        "uniform by 0.0",
        "uniform by nan",
        "uniform by 17.0",
    ],
)
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.compile("map|drawn|int|float")):
        maps.parse(text)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_another_mean_and_deviation_are_one_product_and_one_sum_rounded_once(dtype: str) -> None:
    exact = torch.from_numpy(maps.table(NORMAL, "float64").view(np.float64).copy()) * 0.1 + 1
    table = torch.from_numpy(maps.table(normal(1.0, 0.1), dtype).copy())
    assert torch.equal(table.view(getattr(torch, dtype)), exact.to(getattr(torch, dtype)))
    assert abs(exact.mean() - 1) < 1e-12
    assert abs(exact.std() - 0.1) < 1e-5


def test_more_integers_than_their_bits_can_part_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be drawn"):
        integers(0, 2**24)
