"""Today's judge on what a healthy H100 recorded under bench 0.4.0.

The device was healthy by everything that its counters and every comparison in float64 showed; 0.4.0
rejected it. Every ruling that still stands against it is named here with its cause: a list that a
change of the judge makes shorter or that shows what it broke.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.recorded_runs import (
    RUNS,
    RecordedRun,
    against,
    analysed,
    files_of,
    judged,
    notes,
    recorded_run,
    stored_lines,
)

from appliance.errors import EvidenceError
from appliance.evidence.baseline_key import peak_for
from appliance.evidence.journal_index import index_of
from appliance.judging.limits import amount_of
from appliance.records.journal import LaunchEnded, Libraries, Line
from appliance.records.json import sha256
from appliance.storage import bundle
from appliance.verification import launch_checks, run_checks

COMPLETE = ("shared-device", "smoke")
"""Runs that came to their end; the others were stopped."""
NO_PROVIDER = "ONNX Runtime was installed without the vendor's provider"
NOT_TF32 = "0.4.0 asked for TF32 and its own setting had switched it off"
PROCESSOR_S_BOUND = "0.4.0 held it to a bound that was measured on a processor"
FAILS = {
    "burn-in": {},
    "node": {("correctness", "gemm-tf32@cuda:0"): NOT_TF32},
    "node-2": {},
    "shared-device": {},
    "small-jax-first": {
        ("correctness", "text_to_image@cuda:0"): PROCESSOR_S_BOUND,
    },
    "smoke": {
        ("correctness", "onnx_resnet50-single@cuda:0"): NO_PROVIDER,
        ("correctness", "onnx_resnet50@cuda:0"): NO_PROVIDER,
    },
}
"""Every required ruling that fails today, by run, with its cause."""
NOT_RECORDED = {
    "did not report which libraries it ran": "taken out of the record",
    "did not read back the format of its float32 products": "0.4.0 did not read it back",
    "was not read when the run ended": "the run was stopped",
    "was not made or has no end": "the run was stopped",
    "was interrupted and is not made again": "the run was stopped",
    "no launch completed": "the run was stopped, or a launch crashed",
    "no telemetry was read while its steps ran": "no launch of the stopped run was timed",
    "links down of cuda:0 was not observed": "the driver shows no links of a passed-through part",
    "the device's clock runs at 0.9950": "clocks were compared over 0.03 s only",
    "has no attribute 'activation_checkpointing_enable'": "a library that was too old, no device",
}
"""What the record lacks, by the words of the judge's sentence, and why."""
SHARED = (
    "the device's clock runs at 0.9659 of the one that it is compared with, but another process "
    "used cuda:0: 0.8 GiB, 100 %, 698 W in 18 of 18 readings before the work of a launch began"
)


@pytest.mark.parametrize("name", RUNS)
def test_each_fail_of_the_healthy_device_has_a_known_cause(name: str) -> None:
    fails = {(one.criterion, one.case) for one in against(name) if one.ruling == "fail"}
    assert fails == FAILS[name].keys()


@pytest.mark.parametrize("name", RUNS)
def test_what_was_not_recorded_is_not_measured(name: str) -> None:
    """What else stands against the device is open, and its sentence says what is lacking."""
    opened = [one.explanation for one in against(name) if one.ruling == "inconclusive"]
    unknown = [one for one in opened if not any(words in one for words in NOT_RECORDED)]
    assert unknown == ([SHARED] if name == "shared-device" else [])
    assert len(opened) > len(unknown)


def test_a_shared_device_is_inconclusive_and_not_rejected() -> None:
    """Version 0.4.0 rejected it: it took the other program's share for a slow clock."""
    verdict = judged("shared-device")
    (integrity,) = (one for one in verdict.rulings if one.explanation == SHARED)
    assert verdict.verdict == "INCONCLUSIVE"
    assert verdict.decided_by == "integrity of gemm-bf16@cuda:0"
    assert (integrity.criterion, integrity.ruling) == ("integrity", "inconclusive")


@pytest.mark.parametrize("name", RUNS)
def test_a_converted_run_accepts_nothing(name: str) -> None:
    reasons = [one.reason for one in judged(name).rulings if one.ruling == "inconclusive"]
    assert "converted" in reasons
    assert judged(name).verdict != "ACCEPTED"


JUDGED = {
    "node": {"gemm-bf16": "wall", "launch-latency": "wall", "memory": "wall"},
    "smoke": {"bert": "wall", "gemm-bf16": "wall", "llama": "steps"},
}


@pytest.mark.parametrize("name", JUDGED)
def test_a_healthy_device_s_short_steps_are_judged_by_the_wall_and_nothing_is_held_against_it(
    name: str,
) -> None:
    """What timing cost was not recorded, so all that the events lack counts as missing."""
    clocks = {
        one.case.partition("@")[0]: one.clocks
        for one in judged(name).cases
        if one.clocks is not None
    }
    shown = {case: clocks[case] for case in JUDGED[name]}
    assert {case: one.judged for case, one in shown.items()} == JUDGED[name]
    assert all(one.has_events and one.overhead_seconds is None for one in clocks.values())
    assert not [one for one in against(name) if one.ruling == "fail" and one.reason == "clock"]


@pytest.mark.parametrize("name", RUNS)
def test_no_rate_is_above_the_vendor_s_peak(name: str) -> None:
    """With the operations of a step as today's code counts them."""
    run = recorded_run(name)
    for evidence in index_of(run.plan, run.lines).cases.values():
        fastest = [min(launch.step_seconds("steps")) for launch in evidence.counted]
        for metric in ("flops_per_second", "bytes_per_second"):
            amount = amount_of(evidence.case, metric)
            peak = peak_for(run.peaks, run.system, evidence.case, metric)
            if fastest and amount is not None and peak is not None:
                assert amount / min(fastest) <= peak, (evidence.case.id, metric)


# ------------------------------------------------------------------ the run as it was conducted


@pytest.mark.parametrize("name", RUNS)
def test_stored_lines_are_chained_from_the_plan(name: str) -> None:
    """By their bytes, whatever today's schemas are."""
    run, texts = recorded_run(name), stored_lines(name)
    digests = [line.prev for line in run.lines]
    assert digests[1:] == [sha256(text) for text in texts[:-1]]
    assert [line.seq for line in run.lines] == list(range(len(texts)))
    assert run.plan.converted_from == notes(name)["converted_from"] == "0.4.0"


def with_libraries(run: RecordedRun, lines: list[Line]) -> list[Line]:
    """The lines with a stand-in for the libraries of each untimed launch, which were taken out."""
    inserted: list[Line] = []
    for line in lines:
        event = line.event
        if isinstance(event, LaunchEnded) and event.launch.endswith("/0"):
            libraries = Libraries(launch=event.launch, rank=0, files={"/stand-in": None})
            inserted.append(replace(line, event=libraries))
        inserted.append(line)
    return inserted


@pytest.mark.parametrize("name", COMPLETE)
def test_launches_of_a_whole_run_hold_together(name: str) -> None:
    """Clocks, counts and lengths of every launch, as `verify` asks; libraries were taken out."""
    run = recorded_run(name)
    with pytest.raises(EvidenceError, match="completed and does not report its libraries"):
        launch_checks.check_launches(run.plan, run.lines)
    launch_checks.check_launches(run.plan, with_libraries(run, list(run.lines)))


def test_run_on_the_shared_device_is_conducted_as_its_plan_says() -> None:
    read, digests = as_bundle("shared-device")
    run_checks.check_plan(read.plan, read.system, digests)
    run_checks.check_bounds(read.plan, read.criteria)
    run_checks.check_conduct(read.plan, read.lines, digests)


def test_smoke_is_conducted_as_its_plan_says_but_for_what_the_seed_draws() -> None:
    """The order and the outputs that are checked beside the last; nobody recorded the seed."""
    read, digests = as_bundle("smoke")
    run_checks.check_bounds(read.plan, read.criteria)
    with pytest.raises(EvidenceError, match="not in the order that its seed draws"):
        run_checks.check_plan(read.plan, read.system, digests)
    with pytest.raises(EvidenceError, match="other timed outputs than the seed had drawn"):
        run_checks.check_conduct(read.plan, read.lines, digests)


def as_bundle(name: str) -> tuple[bundle.Bundle, dict[str, str]]:
    """The run read as a bundle of today without its mark, so that the chain closes; digests."""
    files = files_of(name, converted_from="")
    digests = {one: sha256(data) for one, data in files.items()}
    return bundle.read_files(files, complete=False), digests


@pytest.mark.parametrize("name", COMPLETE)
def test_interim_analyses_and_verdict_are_derived_again(name: str) -> None:
    run = recorded_run(name)
    lines, judge = list(analysed(run)), run.judge()
    assert run_checks.check_interim_analyses(judge, lines) == (11 if name == "smoke" else 1)
    assert judge.verdict() == judged(name)


def test_recorded_files_are_no_bundle() -> None:
    files = files_of("smoke", converted_from="0.4.0")
    with pytest.raises(EvidenceError, match=r"converted from a run of bench 0\.4\.0 for tests"):
        bundle.read_files(files, complete=False)
