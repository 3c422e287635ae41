"""Steps timed beside a process that waits: by real processes, on processors or on the device."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from faulty.forkless import Forkless
from faulty.simulated import Simulated
from support.idle_records import idle_trial
from support.program import WITH_FAULTS
from support.simulated_device import STATE

from appliance.cli.progress import Silent
from appliance.errors import EvidenceError, UsageError
from appliance.probe import node
from appliance.qualifying import idle_stage
from appliance.qualifying.idle_program import TrialFailed
from appliance.qualifying.idle_stage import IdleStage, Pace, Place
from appliance.qualifying.idle_trial import CLOCK, IdleTrial, record
from appliance.records.json import from_json, sha256
from appliance.scheduling.idle_neighbours import KINDS, ratios, rulings
from appliance.storage.qualified_file import parse_qualified
from appliance.vendors.cpu import Cpu
from appliance.vendors.registry import VENDORS
from appliance.verbs import qualify
from appliance.verbs.qualify import QualifyOptions

SHORT = Pace(pairs=2, block=0.02, warm_up=0.0, settle=0.0)


@pytest.fixture(autouse=True)
def own_vendors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    monkeypatch.setenv("PYTHONPATH", WITH_FAULTS["PYTHONPATH"])
    monkeypatch.setenv(STATE, str(tmp_path / "state"))


def place_on_processors(manner: str, pace: Pace) -> Place:
    """The neighbour does what `faulty.neighbours` does in this manner."""
    words = [sys.executable, "-P", "-m", "faulty.neighbours", manner, str(os.getpid())]
    system = node.probe((Cpu(),))
    return Place(vendor=Cpu(), system=system, interrupted=str, pace=pace, words=words)


def test_neighbour_that_computes_is_seen() -> None:
    pace = Pace(pairs=5, block=0.05, warm_up=0.0, settle=0.0)
    place = place_on_processors("computes", pace)
    one = record(idle_stage.measure(place.devices[0], place), "ab" * 32)
    assert {kind: len(pairs) for kind, pairs in one.pairs.items()} == dict.fromkeys(KINDS, 5)
    assert "equivalent" not in rulings(one).values()
    slowest = max(ratio.ratio for ratio in ratios(one).values() if ratio is not None)
    assert slowest > 1.2


@pytest.mark.parametrize(
    ("manner", "clause"),
    [
        ("dies", "the process that waits ended with SIGKILL"),
        ("lacks", "OutOfMemoryError: out of memory: tried to allocate 64 MiB"),
    ],
)
def test_neighbour_that_fails_is_one_clause(manner: str, clause: str) -> None:
    place = place_on_processors(manner, SHORT)
    with pytest.raises(TrialFailed) as failed:
        idle_stage.measure(place.devices[0], place)
    assert str(failed.value) == clause


def test_where_launches_are_no_forks_both_processes_are_programs() -> None:
    pace = replace(SHORT, pairs=1)
    place = Place(vendor=Forkless(), system=node.probe((Forkless(),)), interrupted=str, pace=pace)
    trial = idle_stage.measure(place.devices[0], place)
    assert [(half.is_beside, half.users, half.values.get(CLOCK)) for half in trial.halves] == [
        (False, None, None),
        (True, None, None),
    ]
    assert all(half.step_seconds.keys() == set(KINDS) for half in trial.halves)


class Failing(Simulated):
    """Accelerators of which one is lost as soon as somebody uses it."""

    def counters(self, device: object) -> dict[str, int | None]:  # noqa: ARG002 - the protocol's
        return {"lost": 1}


def test_what_fails_is_a_note_and_no_record(tmp_path: Path) -> None:
    words: Sequence[str] = [sys.executable, "-c", "raise SystemExit('no such driver')"]
    place = Place(
        vendor=Failing(),
        system=node.probe((Simulated(),)),
        interrupted=str,
        pace=SHORT,
        words=words,
    )
    stage = IdleStage(out=tmp_path, place=place)
    stage.make(lambda: 600.0, lambda _: None)
    assert (stage.records, stage.is_whole) == ({}, False)
    (note,) = stage.notes
    assert note == (
        "steps beside a process that waits on simulated:0 were not timed, and nothing is recorded "
        "of it: simulated:0 does not answer any more (the program that times steps ended with 1: "
        "no such driver)"
    )
    stage.make(lambda: 15.0, lambda _: None)
    assert stage.notes[-1].endswith("it takes about 14 s, and twice that was not left (15 s)")


def test_stopped_trial_ends_in_a_clause() -> None:
    place = replace(place_on_processors("dies", SHORT), interrupted=lambda: "SIGTERM")
    with pytest.raises(TrialFailed, match="stopped by SIGTERM"):
        idle_stage.measure(place.devices[0], place)


def test_qualify_times_steps_on_an_accelerator_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simulated_accelerator: None
) -> None:
    del simulated_accelerator
    monkeypatch.setitem(VENDORS, Simulated.name, Simulated)  # type: ignore[misc]
    monkeypatch.setattr(idle_stage, "Place", partial(Place, pace=SHORT))
    monkeypatch.setattr(idle_stage, "num_processors", lambda _: None)  # other tests use them
    options = QualifyOptions(
        out=tmp_path / "q", minutes=5, vendor=Simulated.name, workloads=(idle_stage.NAME,)
    )
    result = qualify.qualify(options, Silent())
    data, text, trial_file = (
        (tmp_path / "q" / name).read_bytes()
        for name in (
            "qualified.json",
            "simulated-accelerator.md",
            "idle/simulated-accelerator.json",
        )
    )
    assert parse_qualified(data, "it") == result.qualified
    assert b"## Beside a process that waits" in text
    trial = from_json(IdleTrial, trial_file, name="it")
    assert result.qualified.idle == (record(trial, sha256(trial_file)),)
    assert [(half.pair, half.is_beside) for half in trial.halves] == [
        *((0, False), (0, True)),
        *((1, True), (1, False)),
    ]
    assert [half.users for half in trial.halves] == [1, 2, 2, 1]  # as the driver lists them
    alone, beside = (half.values["memory_used_bytes"] or 0.0 for half in trial.halves[:2])
    assert beside >= alone + 2**26  # a sixteenth of the device
    assert trial.halves[0].values[CLOCK] == 1e9
    assert (result.exit_code, result.num_left) == (0, 0)
    assert result.notes[0] == "steps beside a process that waits, Simulated accelerator:"

    # The same command goes on with what is there; what is edited or of another device is refused.
    monkeypatch.setattr(idle_stage, "measure", lambda *_: pytest.fail("timed again"))
    assert qualify.qualify(options, Silent()).qualified == result.qualified
    for edited, error, message in (
        (trial_file.replace(b'"memory":[', b'"memery":['), EvidenceError, "no steps of some kind"),
        (trial_file.replace(b'"model":', b'"modal":'), EvidenceError, "model: Field required"),
        (
            trial_file.replace(trial.device.encode(), b"00" * 32),
            UsageError,
            "made on another machine or with other libraries",
        ),
    ):
        (tmp_path / "q" / "idle" / "simulated-accelerator.json").write_bytes(edited)
        with pytest.raises(error, match=rf"{message}.*name another folder with --out"):
            qualify.qualify(options, Silent())


def test_trial_that_was_disturbed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = replace(idle_trial(), model="Simulated accelerator")
    trials = [replace(clean, users_before=1), clean]
    monkeypatch.setattr(idle_stage, "measure", lambda *_: trials.pop(0))
    place = Place(vendor=Simulated(), system=node.probe((Simulated(),)), interrupted=str)
    stage = IdleStage(out=tmp_path, place=place)
    for _ in range(3):
        stage.make(lambda: 600.0, lambda _: None)
    assert trials == []
    assert [one.disturbed for one in stage.records.values()] == [""]
