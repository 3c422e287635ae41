"""Every workload found in workloads/, at small size on the CPU, against the contract.

Adding a workload adds its tests: nothing is listed here. Each healthy margin (error over
bound) is written to the test's properties, so that a bound too near to the truth shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trial
from trial import MODULES, Kind, Trial

from workloads.contract.failures import ParameterError
from workloads.contract.workload import Workload


@pytest.fixture(params=MODULES, scope="module")
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    kind = trial.load(request.param)
    workload = kind(**{**kind.small, **trial.QUICKER.get(request.param, {})})
    if missing := trial.missing_data(workload):
        pytest.skip(f"needs the data set {', '.join(missing)}: set BENCH_DATA to its folder")
    if lacking := trial.lacking(workload):
        pytest.skip(f"needs {', '.join(lacking)}, which a processor does not have")
    if "jax" in kind.needs:
        request.getfixturevalue("quick_programs")
    return Trial(workload, tmp_path_factory.mktemp(request.param))


@pytest.fixture(params=MODULES)
def kind(request: pytest.FixtureRequest) -> Kind:
    return trial.load(request.param)


def test_output_is_judged_rightly_at_the_first_and_the_last_step(
    subject: Trial, record_property: Callable[[str, object], None]
) -> None:
    assert trial.misjudged(subject, record_property) == []


def test_one_seed_gives_the_same_bits_and_two_seeds_do_not(subject: Trial) -> None:
    assert trial.irreproducible(subject) == []


def test_lower_precision_is_rejected(subject: Trial) -> None:
    assert trial.blind_to_downgrade(subject) == []


def test_lost_update_is_rejected(subject: Trial) -> None:
    assert trial.blind_to_lost_update(subject) == []


def test_skipped_optimiser_step_is_rejected(subject: Trial) -> None:
    assert trial.blind_to_skipped_step(subject) == []


def test_step_on_another_input_set_is_rejected(subject: Trial) -> None:
    assert trial.blind_to_wrong_inputs(subject) == []


def test_launch_is_told_when_its_first_input_comes_again(subject: Trial) -> None:
    assert trial.forgetful_of_its_first_input(subject) == []


def test_output_that_may_be_checked_after_later_steps_is_right_then(subject: Trial) -> None:
    assert trial.changed_by_later_steps(subject) == []


def test_work_is_counted_and_grows_with_size(kind: Kind) -> None:
    assert trial.uncounted(kind) == []


def test_who_answers_requests_and_nobody_else_can_be_asked_the_same_again(kind: Kind) -> None:
    """The launch compares times of repeated inputs where `repeat_input` is the workload's own."""
    has_own = kind.repeat_input is not Workload.repeat_input
    assert has_own == bool(kind(**kind.small).scenario)


def test_module_says_what_it_is(kind: Kind) -> None:
    assert trial.misdescribed(kind) == []


def test_parameters_that_cannot_run_are_refused(kind: Kind) -> None:
    """A count below one can never run; every workload with a whole-number field says so."""
    sizes = [name for name, value in kind.small.items() if type(value) is int]
    for name in sizes:
        with pytest.raises(ParameterError, match=name):
            kind(**{**kind.small, name: 0})


HAVE_CLOCKS = {
    "memory_tests": {"imports time", "calls sleep", "calls synchronize"},
    "burn_in": {"imports datetime"},
    "mismatches": {"imports datetime"},
    "process": {"imports time"},
    "staging": {"calls synchronize"},
    "links": {"imports time", "imports datetime", "calls monotonic", "calls sleep"},
}
"""A test of retention pauses, a mismatch says when it was seen, a process of stress beside the
steps says how long it was at work, those of several devices wait for each other, and who reads
pieces waits for their copies: none of them times a step."""


@pytest.mark.parametrize(
    "path",
    sorted(
        [*(trial.ROOT / "workloads").glob("*.py"), *(trial.ROOT / "workloads/parts").rglob("*.py")]
    ),
    ids=lambda path: path.stem,
)
def test_module_has_no_clock(path: Path) -> None:
    assert set(trial.clocked(path.read_text())) == HAVE_CLOCKS.get(path.stem, set())
