"""What a step is assumed to take follows from shares that the recorded devices reached."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest
from support.builders import a_case

from appliance.planning import workload_manifest
from appliance.records.qualified import ObservedCase
from appliance.records.workload import Work
from appliance.scheduling import step_rates
from appliance.storage import qualified_file
from appliance.storage.device_file import load_peaks

H100 = "NVIDIA H100 80GB HBM3"
MODEL = replace(
    a_case("bert"),
    small=False,
    num_parameters=7,
    bound_by="compute",
    work=Work(flops=1e15, precision="bfloat16"),
)


def figure(quantity: str) -> float:
    return next(one.value for one in load_peaks([H100]).peak if one.quantity == quantity)


def recorded(of: str, bounds: tuple[str, ...], metric: str) -> list[float]:
    """The shares of the vendor's figures that rows at full size reached, largest last.

    Left out is gemm_int8, whose operands lay in another layout when it was timed.
    """
    shares = []
    for one in qualified_file.load_observed([H100]):
        if one.size != "full" or not one.step_seconds or one.workload == "gemm_int8":
            continue
        bound = workload_manifest.load()[one.workload].bound_by
        is_model = "batch" in one.parameters
        if bound in bounds and is_model == (of == "models"):
            shares.append(_rate(one, metric) / figure(_quantity(one, metric)))
    return sorted(shares)


def _rate(one: ObservedCase, metric: str) -> float:
    if metric == "flops_per_second":
        return one.flops_per_second or 0.0
    return one.units_per_second or 0.0  # of memory_bandwidth, bytes


def _quantity(one: ObservedCase, metric: str) -> str:
    if metric == "bytes_per_second":
        return "memory_bytes_per_second"
    named = {"gemm_float8": "float8"}.get(one.workload, "float32")
    return f"{one.parameters.get('dtype', named)}_flops_per_second"


LLAMA_BYTES = 3_417_049_137_152
"""What a step of `llama` moves at full size."""


@pytest.mark.parametrize("rate", step_rates.load().rate, ids=lambda one: f"{one.of}-{one.bound_by}")
def test_shares_are_those_of_the_records_and_what_is_in_none_says_so(rate: step_rates.Rate) -> None:
    if (rate.of, rate.quantity) == ("models", "bytes_per_second"):
        seconds = 81.1 / 14  # of an untimed launch, which no qualified record has
        assert "14 steps of its untimed launch in 81.1 s" in rate.source
        assert rate.share == pytest.approx(LLAMA_BYTES / seconds / 3.35e12, rel=0.005)
        return
    shares = recorded(rate.of, rate.bound_by, rate.quantity)
    assert rate.share == pytest.approx(median(shares), rel=0.015)
    assert H100 in rate.source


def test_a_step_takes_its_operations_over_the_share_of_the_figure_of_its_format() -> None:
    wanted = 1e15 / (0.134 * figure("bfloat16_flops_per_second"))
    assert step_rates.assumed_step_seconds(MODEL, H100) == pytest.approx(wanted)
    of_float32 = replace(MODEL, work=Work(flops=1e15, precision="float32"))
    slower = figure("bfloat16_flops_per_second") / figure("float32_flops_per_second")
    assert step_rates.assumed_step_seconds(of_float32, H100) == pytest.approx(slower * wanted)


def test_a_step_that_moves_much_takes_its_bytes_and_a_small_model_a_second() -> None:
    work = Work(flops=1e12, bytes=4e12, precision="bfloat16")
    decoder = replace(MODEL, bound_by="memory", work=work)
    wanted = 4e12 / (0.176 * figure("memory_bytes_per_second"))
    assert step_rates.assumed_step_seconds(decoder, H100) == pytest.approx(wanted)
    small = replace(MODEL, work=Work(flops=1e6, precision="float16"))
    assert step_rates.assumed_step_seconds(small, H100) == 1.0
    product = replace(small, num_parameters=None)
    assert (step_rates.assumed_step_seconds(product, H100) or 1.0) < 1e-6


def test_nothing_is_assumed_without_figures_counts_or_of_several_ranks() -> None:
    assert step_rates.assumed_step_seconds(MODEL, "Another") is None
    assert step_rates.assumed_step_seconds(MODEL, None) is None
    assert step_rates.assumed_step_seconds(replace(MODEL, work=Work()), H100) is None
    assert step_rates.assumed_step_seconds(replace(MODEL, ranks=8), H100) is None
