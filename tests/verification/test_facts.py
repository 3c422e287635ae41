"""Facts of another release are taken when that release signed them, and compared with a run."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from support.bundles import healthy, sealed
from support.known_facts import facts_file, facts_of

from appliance.errors import EvidenceError
from appliance.planning import workload_manifest
from appliance.signing import keys
from appliance.storage import input_file
from appliance.verification import facts, known_checks
from appliance.verification.known_checks import CaseChecks, KnownCheck, WorkloadChecks
from appliance.verification.terms import Expectations, Terms
from appliance.verification.verify import Verification, verify

ROOT = Path(__file__).parents[2]
RELEASE = keys.development_key()
PEM = RELEASE.certificate.public_bytes(Encoding.PEM)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sealed(tmp_path_factory.mktemp("sound"), healthy(), keys.development_key())


def compared(folder: Path, known: facts.Facts) -> Verification:
    wanted = Expectations(criteria_digest=None, suite="5" * 64)
    return verify(folder, Terms(allow_development=True, expectations=wanted, facts=known))


def test_facts_of_a_release_come_back_as_they_were_signed() -> None:
    file = facts_of(healthy().plan).file
    assert facts.read(facts.sign(file, RELEASE), [PEM]).file == file


def test_facts_that_nobody_trusted_has_signed_are_refused() -> None:
    signed = facts.sign(facts_file(healthy().plan), RELEASE)
    other = keys.development_key().certificate.public_bytes(Encoding.PEM)
    for data, trusted in ((signed, [other]), (signed, []), (b"{}", [PEM])):
        with pytest.raises(EvidenceError, match="the file of --facts is not"):
            facts.read(data, trusted)
    with pytest.raises(EvidenceError, match="was changed"):
        facts.read(signed.replace(b'":"', b'": "', 1), [PEM])


def test_what_a_release_does_not_know_is_said_and_leaves_the_verdict_open(sound: Path) -> None:
    known = facts_of(healthy().plan)
    unknown = facts.Facts(file=replace(known.file, sizes=(), checks=(), ranges={}))
    result = compared(sound, unknown)
    assert (result.exit_code, result.verdict, result.faults) == (3, None, ())
    assert [one.partition(" of ")[0] for one in result.not_compared] == [
        "ranges",
        "operations and units",
        "names and bounds",
        "cases",
    ]


def test_another_release_is_named_in_each_sentence(sound: Path) -> None:
    file = replace(facts_of(healthy().plan).file, sizes=(), bench_version="0.0.9")
    result = compared(sound, facts.Facts(file=file))
    made_by = f"(made by bench {healthy().plan.bench_version}, compared with 0.0.9)"
    assert result.not_compared[0] == (
        f"operations and units of gemm@cpu:0, bert@cpu:0, exact@cpu:0 {made_by}"
    )


@pytest.mark.parametrize(
    ("check", "fault"),
    [
        (
            KnownCheck(name="first output", bound=1e-6, is_always=True, spread=None),
            'holds "first output" to 1e-05, and by the records of healthy runs 4e-06 is the most',
        ),
        (
            KnownCheck(name="first output", bound=2e-5, is_always=True, spread=1.0),
            'holds "first output" to 1e-05, and at these parameters that is 2e-05 in every run',
        ),
        (
            KnownCheck(name="first output", bound=5e-6, is_always=True, spread=1.2),
            'holds "first output" to 1e-05, and by the records of healthy runs 8.64e-06 is the',
        ),
        (
            KnownCheck(name="rows", bound=1e-5, is_always=True, spread=None),
            'lacks the check "rows" of its first output',
        ),
        (
            KnownCheck(name="inputs as drawn", bound=0.0, is_always=False, spread=None),
            'lacks the check "inputs as drawn" of its first output',
        ),
    ],
)
def test_checks_are_held_to_their_records(check: KnownCheck, fault: str, sound: Path) -> None:
    result = compared(sound, facts_of(healthy().plan, check))
    assert [fault in sentence for sentence in result.faults] == [True]


@pytest.mark.parametrize(
    ("spread", "widest"),
    [(1.0, 2e-5), (1.1, 2e-5 * 1.1**3), (50.0, 2e-2), (None, 8e-5)],
)
def test_how_wide_a_bound_may_be(spread: float | None, widest: float) -> None:
    """The recorded one where that is fixed; where bounds vary, their margin; four times else."""
    check = KnownCheck(name="rows", bound=2e-5, is_always=True, spread=spread)
    assert check.allows(widest * (1 - 1e-12))
    assert not check.allows(widest * (1 + 1e-8))
    assert check.allows(1e-9) == (not check.is_fixed)


def test_most_shipped_bounds_are_fixed_by_their_parameters() -> None:
    checks = [
        check for one in known_checks.load().workload for case in one.cases for check in case.checks
    ]
    fixed = [check for check in checks if check.is_fixed]
    assert len(fixed) > 0.8 * len(checks)
    assert all(check.limit <= max(known_checks.DRAWN * check.bound, 1.0) for check in checks)
    varied = {check.name for check in checks} - {check.name for check in fixed}
    assert "gradients against float64" in varied


def test_at_other_parameters_too_wide_a_bound_is_not_compared(sound: Path) -> None:
    plan = healthy().plan
    narrow = KnownCheck(name="first output", bound=1e-6, is_always=False, spread=None)
    elsewhere = CaseChecks(parameters={"n": 1}, checks=(narrow,))
    checks = tuple(
        WorkloadChecks(name=case.workload, version=case.version, cases=(elsewhere,))
        for case in plan.cases
    )
    result = compared(sound, facts.Facts(file=replace(facts_of(plan).file, checks=checks)))
    assert result.faults == ()
    assert result.not_compared[0].startswith("names and bounds of checks of gemm@cpu:0, bert@")


def test_the_shipped_checks_are_those_of_the_records() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "write_workload_checks.py"))
    assert known_checks.FILE.read_bytes() == script["content"](), "run make generate"


def test_the_shipped_checks_are_of_workloads_that_there_are() -> None:
    shipped = {one.name: one for one in known_checks.load().workload}
    manifest = workload_manifest.load()
    assert shipped.keys() <= manifest.keys()
    assert all(one.version <= manifest[name].version for name, one in shipped.items())
    assert all(case.checks for one in shipped.values() for case in one.cases)
    assert len(facts.sign(facts.shipped().file, RELEASE)) < input_file.LARGEST / 4
