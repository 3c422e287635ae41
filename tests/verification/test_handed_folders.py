"""A run's folder that somebody hands over, before it is signed: read by a confined child first.

`report`, `sign`, `run --from`, `--resume` and `qualify` need its records here, so the same bytes
are parsed twice: what would exhaust this process has ended the child before.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.bundles import SYSTEM, files_of, healthy, sealed

from appliance.errors import BenchError, EvidenceError
from appliance.ipc import confined_child
from appliance.probe import node
from appliance.qualifying import runs
from appliance.records import json as records_json
from appliance.records.journal import Line
from appliance.records.json import sha256, to_json
from appliance.records.plan import Plan
from appliance.records.system import System
from appliance.signing import keys
from appliance.signing.keys import Key
from appliance.storage import bundle, limits
from appliance.storage.journal import Journal
from appliance.verbs import preparation, publish, rerun
from appliance.verification.terms import Terms
from appliance.verification.verify import verify_confined

LONGEST = 200
SIGNED = (bundle.STATEMENT, bundle.REPORT, *bundle.RENDERINGS)
JSON_FILES = (
    bundle.PLAN,
    bundle.SYSTEM,
    bundle.BASELINES,
    bundle.PEAKS,
    bundle.QUALIFIED,
    bundle.SIGNER,
    bundle.VERDICT,
    bundle.JOURNAL,
)


def nested(name: str) -> bytes:
    """100,000 brackets in each other, or as many as a file of this name may have."""
    depth = min(100_000, limits.of_name(name) // 2)
    return b"[" * depth + b"]" * depth + (b"\n" if name == bundle.JOURNAL else b"")


@pytest.fixture(scope="module")
def key() -> Key:
    return keys.development_key()


@pytest.fixture(scope="module")
def files(key: Key) -> dict[str, bytes]:
    return {name: data for name, data in files_of(healthy(), key).items() if name not in SIGNED}


@pytest.fixture
def folder(files: dict[str, bytes], tmp_path: Path) -> Path:
    for name, data in files.items():
        bundle.write(tmp_path / "run" / name, data)
    return tmp_path / "run"


def qualification(run: Path) -> Path:
    """A folder whose one stage is this run."""
    place = run.parent / "qualification"
    shutil.copytree(run, place / runs.RUNS / "one", symlinks=True)
    return place


READERS: dict[str, Callable[[Path, Key], object]] = {
    "report": lambda run, key: publish.report(run, keys.signer_record(key, "tester")),
    "sign": lambda run, key: publish.sign(run, key, "tester"),
    "run --from": lambda run, _: rerun._sound(run),
    "--resume": lambda run, _: preparation.prepare_again(run, None),
    "journal of --resume": lambda run, _: Journal.reopen(
        run / bundle.JOURNAL, sha256((run / bundle.PLAN).read_bytes())
    ),
    "qualify": lambda run, _: runs.read(qualification(run), is_foreign=True),
}


@pytest.mark.parametrize("name", READERS)
def test_what_takes_all_memory_ends_a_child_before_it_is_read_here(
    name: str, folder: Path, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = set()

    def adapter(kind: Any, _real: Any = records_json.adapter) -> Any:
        if confined_child.is_confined():
            bytearray(2**40)
        parsed.add(kind)
        return _real(kind)

    monkeypatch.setattr(records_json, "adapter", adapter)
    with pytest.raises(EvidenceError, match="was given up: to read it takes more memory"):
        READERS[name](folder, key)
    assert not parsed & {Plan, System, Line}


@pytest.mark.parametrize("name", JSON_FILES)
def test_json_that_is_nested_without_end_is_one_sentence(name: str, folder: Path, key: Key) -> None:
    bundle.write(folder / name, nested(name))
    with pytest.raises(EvidenceError) as error:
        publish.sign(folder, key, "tester")
    assert str(error.value).startswith(name)
    assert len(str(error.value)) < LONGEST


@pytest.mark.parametrize("name", [bundle.STATEMENT, bundle.REPORT])
def test_envelope_that_is_nested_without_end_is_one_sentence(
    name: str, key: Key, tmp_path: Path
) -> None:
    run = sealed(tmp_path / "run", healthy(), key)
    bundle.write(run / name, nested(name))
    verification = verify_confined(run, Terms(allow_development=True))
    assert verification.faults == (f"{name} is not a signed envelope with one signature",)


@pytest.mark.parametrize("name", ["run --from", "--resume", "qualify"])
def test_plan_that_is_larger_than_any_is_refused_unread(name: str, folder: Path, key: Key) -> None:
    with (folder / bundle.PLAN).open("ab") as file:
        file.truncate(limits.of_name(bundle.PLAN) + 1)
    with pytest.raises(BenchError, match="has more than 16 MiB"):
        READERS[name](folder, key)


@pytest.mark.parametrize("name", ["run --from", "--resume", "qualify"])
def test_link_in_the_place_of_a_plan_is_not_followed(
    name: str, folder: Path, key: Key, tmp_path: Path
) -> None:
    (folder / bundle.PLAN).rename(tmp_path / "elsewhere")
    (folder / bundle.PLAN).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BenchError, match="not a plain file"):
        READERS[name](folder, key)


def test_journal_of_more_than_any_run_has_is_not_gone_on_with(folder: Path) -> None:
    with (folder / bundle.JOURNAL).open("ab") as file:
        file.truncate(limits.TOTAL + 1)
    with pytest.raises(EvidenceError, match="more than 256 MiB, so its run could not be signed"):
        READERS["journal of --resume"](folder, keys.development_key())


def test_qualification_has_no_link_among_its_runs_and_no_journal_without_end(
    folder: Path, tmp_path: Path
) -> None:
    place = qualification(folder)
    assert len(runs.read(place, is_foreign=True)) == 1
    (place / runs.RUNS / "two").symlink_to(folder)
    with pytest.raises(EvidenceError, match="two is a link and no run"):
        runs.read(place, is_foreign=True)
    (place / runs.RUNS / "two").unlink()
    with (place / runs.RUNS / "one" / bundle.JOURNAL).open("ab") as file:
        file.truncate(limits.TOTAL + 1)
    with pytest.raises(EvidenceError, match="journals of more than 256 MiB"):
        runs.read(place, is_foreign=True)


def test_system_without_a_device_and_plan_without_digests_do_not_go_on(folder: Path) -> None:
    nothing = replace(SYSTEM, identity=replace(SYSTEM.identity, devices=()))
    plan = bundle.plan_of({bundle.PLAN: (folder / bundle.PLAN).read_bytes()})
    digests = {**plan.digests, "identity": node.identity_digest(nothing.identity)}
    bundle.write(folder / bundle.SYSTEM, to_json(nothing))
    bundle.write(folder / bundle.PLAN, to_json(replace(plan, digests=digests)))
    with pytest.raises(EvidenceError, match=r"for a device that system\.json lacks"):
        preparation.prepare_again(folder, None)
    bundle.write(folder / bundle.PLAN, to_json(replace(plan, digests={})))
    with pytest.raises(EvidenceError, match="is not the file that the run was planned with"):
        preparation.prepare_again(folder, None)
