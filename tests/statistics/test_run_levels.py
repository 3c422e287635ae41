"""Runs as observations: uncertainty of a mean over sessions, and variances moderated over cases."""

import numpy as np
import pytest
from scipy import stats

from appliance.statistics.run_levels import (
    RunSpread,
    Sessions,
    moderated,
    sessions_of,
    uncertainty,
    uncertainty_of_sessions,
    within_variance,
)


def a_spread(**fields: object) -> RunSpread:
    values = {
        "run": np.array(4e-5),
        "within": np.array(1e-4),
        "error": np.array(4e-5 / 12),
        "launches": 5,
        "within_freedom": 48,
        "correlation": 0.0,
        "freedom": 11,
        "error_freedom": 11,
    }
    return RunSpread(**{**values, **fields})  # type: ignore[arg-type]


def test_one_session_is_a_run_beside_those_of_the_baseline() -> None:
    sessions = Sessions(means=np.array([0.0]), within=np.array(1e-4), counts=(5,))
    got = uncertainty(a_spread(), sessions, 0.0)
    assert got.variance == pytest.approx(4e-5 * (1 + 1 / 12))
    assert got.freedom == pytest.approx(11)
    assert got.critical(2.887) == pytest.approx(stats.t.isf(stats.norm.sf(2.887), 11))


def test_a_longer_session_earns_nothing_and_a_noisier_one_pays() -> None:
    longer = Sessions(means=np.array([0.0]), within=np.array(1e-4), counts=(40,))
    assert uncertainty(a_spread(), longer, 0.0).variance == pytest.approx(4e-5 * 13 / 12)
    noisier = Sessions(means=np.array([0.0]), within=np.array(9e-4), counts=(5,))
    levels, launches = 4e-5 * 13 / 12, (9e-4 - 1e-4) / 5
    expected = levels + launches
    got = uncertainty(a_spread(), noisier, 0.0)
    assert got.variance == pytest.approx(expected)
    tails = [stats.t.isf(stats.norm.sf(2.6), freedom) for freedom in (11, 4)]
    weighted = (levels * tails[0] + launches * tails[1]) / expected
    assert got.critical(2.6) == pytest.approx(weighted)
    alike = Sessions(means=np.array([0.0]), within=np.array(2e-4), counts=(5,))
    added = (4 * 2e-4 + 48 * 1e-4) / 52 - 1e-4
    assert uncertainty(a_spread(), alike, 0.0).launches == pytest.approx(added / 5)
    floored = Sessions(means=np.array([0.0]), within=np.array(0.0), counts=(5,))
    assert uncertainty(a_spread(), floored, 0.03).variance == pytest.approx(expected)


def test_sessions_join_the_runs_of_the_baseline() -> None:
    means = np.array([0.0, 0.01, -0.01])
    sessions = Sessions(means=means, within=np.array(1e-4), counts=(5, 5, 5))
    got = uncertainty(a_spread(), sessions, 0.0)
    pooled = (11 * 4e-5 + 2 * means.var(ddof=1)) / 13
    assert got.variance == pytest.approx(pooled / 3 + 4e-5 / 12)
    assert 2 < float(got.freedom) <= 13


def test_a_baseline_of_one_run_gives_no_freedom_and_no_ruling() -> None:
    sessions = Sessions(means=np.array([0.0]), within=np.array(1e-4), counts=(5,))
    alone = a_spread(freedom=0, error_freedom=0, run=np.array(0.0), error=np.array(0.0))
    got = uncertainty(alone, sessions, 0.0)
    assert got.critical(2.0) == np.inf
    three = Sessions(means=np.array([0.0, 0.01, -0.01]), within=np.array(1e-4), counts=(5, 5, 5))
    assert uncertainty(alone, three, 0.0).critical(2.0) == np.inf


def test_sessions_alone_have_one_degree_of_freedom_less_than_they_are() -> None:
    means = np.array([0.0, 0.01, -0.01])
    sessions = Sessions(means=means, within=np.array(1e-4), counts=(5, 5, 10))
    got = uncertainty_of_sessions(sessions, 0.0)
    assert (got.variance, got.freedom) == (pytest.approx(1e-4 / 3), 2)
    assert got.critical(2.3) == pytest.approx(stats.t.isf(stats.norm.sf(2.3), 2))
    quiet = Sessions(means=np.zeros(3), within=np.array(1e-4), counts=(5, 5, 10))
    assert uncertainty_of_sessions(quiet, 0.03).variance == pytest.approx(9e-4 * 0.5 / 9)


def test_the_spread_of_launches_that_resemble_each_other_is_not_too_small() -> None:
    random = np.random.default_rng(3)
    values = np.empty((8_000, 5))
    values[:, 0] = random.standard_normal(8_000)
    for launch in range(1, 5):
        values[:, launch] = 0.6 * values[:, launch - 1] + 0.8 * random.standard_normal(8_000)
    assert sessions_of([values], 0.6).within.mean() == pytest.approx(1.0, abs=0.04)
    assert sessions_of([values], 0.0).within.mean() < 0.65
    assert within_variance(values.tolist(), 0.6) == pytest.approx(1.0, abs=0.04)


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_a_mean_of_three_sessions_is_as_uncertain_as_is_said(
    *, is_shared: bool, rho: float
) -> None:
    """No wider than Student's t in 1000 nodes of 40 cases, also where all cases share levels."""
    random, cases = np.random.default_rng(11), 40

    def run(*shape: int) -> np.ndarray:
        level = random.standard_normal((shape[0], 1 if is_shared else cases, *shape[1:-1], 1))
        launches = np.empty((shape[0], cases, *shape[1:]))
        launches[..., 0] = random.standard_normal(launches.shape[:-1])
        for number in range(1, shape[-1]):
            noise = random.standard_normal(launches.shape[:-1])
            launches[..., number] = rho * launches[..., number - 1] + (1 - rho**2) ** 0.5 * noise
        return level + launches

    tails = []
    for _ in range(4):
        baseline = run(250, 12, 5)
        means = baseline.mean(axis=-1)
        spread = RunSpread(
            run=moderated(means.var(axis=-1, ddof=1), 11),
            within=np.array(1.0),
            error=moderated(means.var(axis=-1, ddof=1), 11) / 12,
            launches=5,
            within_freedom=48,
            correlation=rho,
            freedom=11,
            error_freedom=11,
        )
        sessions = sessions_of([run(250, 5) for _ in range(3)], rho)
        got = uncertainty(spread, sessions, 0.0)
        t = (sessions.mean - means.mean(axis=-1)) / np.sqrt(got.variance)
        tails.append(np.mean(t > got.critical(2.326)))
    assert np.mean(tails) < 0.014


# ------------------------------------------------------------------ over cases


def variances(random: np.random.Generator, truth: np.ndarray, freedom: int) -> np.ndarray:
    return truth * random.chisquare(freedom, truth.shape) / freedom


def test_variances_of_cases_that_agree_become_one() -> None:
    random = np.random.default_rng(1)
    raw = variances(random, np.full((200, 40), 1e-4), 11)
    got = moderated(raw, 11)
    assert got.shape == raw.shape
    assert np.log(got).std() < 0.4 * np.log(raw).std()
    assert got.mean() == pytest.approx(1e-4, rel=0.05)


def test_cases_that_differ_keep_most_of_their_own() -> None:
    random = np.random.default_rng(2)
    truth = np.exp(random.normal(np.log(1e-4), 1.5, (200, 40)))
    raw = variances(random, truth, 11)
    assert np.abs(np.log(moderated(raw, 11) / raw)).mean() < 0.2


def test_a_case_that_varies_more_than_the_others_keeps_nearly_all_of_its_own() -> None:
    random = np.random.default_rng(4)
    truth = np.full((500, 40), 1e-4)
    truth[:, 0] = 16e-4
    raw = variances(random, truth, 11)
    got = moderated(raw, 11)
    assert np.mean(got[:, 0] >= 0.9 * raw[:, 0]) > 0.95
    assert np.median(got[:, 0]) > 10e-4


def test_moderation_agrees_with_the_prior_it_was_drawn_from() -> None:
    """Smyth's estimate of the prior's 8 degrees of freedom, by what it makes of 2000 cases."""
    random = np.random.default_rng(8)
    truth = 8 * 1e-4 / random.chisquare(8, 2000)
    raw = variances(random, truth, 11)
    expected = (8 * 1e-4 + 11 * raw) / 19
    assert np.median(moderated(raw, 11) / expected) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("raw", [[1e-4, 4e-4], [1e-4, 0.0, 2e-4]])
def test_too_few_cases_and_cases_without_spread_are_left_alone(raw: list[float]) -> None:
    assert moderated(np.array(raw), 11).tolist() == raw
    assert moderated(np.array([1e-4, 2e-4, 3e-4]), 0).tolist() == [1e-4, 2e-4, 3e-4]
