"""What the owner of a key forges is refused, or not compared and said so, or known and open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.forger import forged
from tamper.forgeries import ANYTHING, FORGERIES, OF_STEPS, OPEN, SUITE

from appliance.verification.terms import Expectations, Terms
from appliance.verification.verify import NOT_SHOWN, Verification, verify

CODES = {"not compared": 3, "not re-derived": 3}


def verified(folder: Path, **options: object) -> Verification:
    return verify(folder, Terms(allow_development=True, **options))  # type: ignore[arg-type]


@pytest.fixture
def runs(request: pytest.FixtureRequest) -> Callable[[bool], Path]:
    """The genuine run of two products, or that of many short steps."""
    return lambda of_steps: request.getfixturevalue("genuine_of_steps" if of_steps else "genuine")


@pytest.mark.parametrize("suite", [SUITE, OF_STEPS])
def test_what_is_sealed_anew_without_a_change_verifies(
    suite: Expectations, runs: Callable[[bool], Path], tmp_path: Path
) -> None:
    folder = runs(suite is OF_STEPS)
    result = verified(forged(folder).sealed(tmp_path / "run"), expectations=suite)
    assert (result.exit_code, result.faults) == (0, ())


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused_or_said_not_to_be_compared(
    name: str, runs: Callable[[bool], Path], tmp_path: Path
) -> None:
    defect = FORGERIES[name]
    forgery = forged(runs(defect.of_steps))
    defect.build(forgery)
    result = verified(forgery.sealed(tmp_path / "run"), expectations=defect.expectations)
    assert (result.exit_code, result.verdict) == (CODES.get(defect.reason, 4), None)
    if defect.check:
        faults = {one.name: one.sentence for one in result.checks if one.status == "fail"}
        assert defect.says in faults.get(defect.check, f"passed, and these failed: {faults}")
    else:
        assert any(defect.says in sentence for sentence in result.not_compared)


class Accepted(Exception):
    """A forgery that is known and open was accepted: the one failure that is expected of it."""


@pytest.mark.parametrize("name", OPEN)
@pytest.mark.xfail(strict=True, raises=Accepted, reason="known and open: by the owner of the key")
def test_a_forgery_that_nobody_can_read_off_is_refused(
    name: str, runs: Callable[[bool], Path], tmp_path: Path
) -> None:
    known = OPEN[name]
    forgery = forged(runs(known.of_steps))
    known.build(forgery)
    expectations = ANYTHING if known.of_steps else SUITE
    result = verified(forgery.sealed(tmp_path / "run"), expectations=expectations)
    assert result.not_shown == NOT_SHOWN
    if result.exit_code == 0:
        raise Accepted(NOT_SHOWN)
    assert result.exit_code == 4, "it is neither accepted nor refused"


def test_a_genuine_run_that_cannot_be_made_is_no_expected_failure() -> None:
    (mark,) = [one for one in _marks() if one.name == "xfail"]
    assert mark.kwargs["strict"]
    assert not issubclass(AssertionError, mark.kwargs["raises"])


def _marks() -> list[pytest.Mark]:
    return list(test_a_forgery_that_nobody_can_read_off_is_refused.pytestmark)
