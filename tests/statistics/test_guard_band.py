"""A ruling in the terms of JCGM 106."""

from dataclasses import replace

import pytest
from scipy import stats

from appliance.statistics.guard_band import GuardBand

BAND = GuardBand(
    value=0.010,
    limit=0.030,
    uncertainty=0.005,
    freedom=11.0,
    factor=3.1,
    rejection_uncertainty=0.004,
    rejection_freedom=11.0,
    rejection_factor=5.0,
)


def test_the_guard_band_parts_the_limit_from_what_is_accepted() -> None:
    assert BAND.width == pytest.approx(0.0155)
    assert BAND.acceptance_limit == pytest.approx(0.0145)
    assert BAND.rejection_limit == pytest.approx(0.050)


def test_specific_risks_are_tails_of_student() -> None:
    assert BAND.consumer_risk == pytest.approx(stats.t.sf(4.0, 11))
    assert BAND.producer_risk == pytest.approx(stats.t.cdf(5.0, 11))
    at_limit = replace(BAND, value=0.03)
    assert at_limit.consumer_risk == at_limit.producer_risk == pytest.approx(0.5)
