"""Records of processes that waited: in files of their model, in bundles, and sound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import SYSTEM
from support.idle_records import MODEL, idle_neighbour

from appliance.errors import UsageError
from appliance.records.json import from_json, to_json
from appliance.records.qualified import IdleNeighbour, IdlePair, Qualified
from appliance.storage import qualified_file
from appliance.verification import facts

DEVICE = replace(SYSTEM.identity.devices[0], model=MODEL)
OWN, OTHER = idle_neighbour(), idle_neighbour("another")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, one in qualified_file.by_file(Qualified(record=(), idle=(OWN, OTHER))).items():
        (tmp_path / name).write_bytes(to_json(one))
    return tmp_path


def test_each_model_has_its_file_and_what_is_read_is_what_was_written(folder: Path) -> None:
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["an-accelerator--torch-2.13.0.json", "another--torch-2.13.0.json"]
    data = (folder / names[0]).read_bytes()
    own = from_json(Qualified, data, name=names[0])
    assert own == Qualified(record=(), idle=(OWN,))
    assert (own.schema, to_json(own)) == ("bench/qualified/4", data)


def test_bundle_has_the_records_of_its_models_as_verify_expects(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = qualified_file.load_records(folder)
    assert known.idle == (OWN, OTHER)
    monkeypatch.setattr(qualified_file, "_shipped", lambda: qualified_file._parsed(folder))
    taken = qualified_file.load_for_run((), [DEVICE])
    assert taken.idle == (OWN,)
    file = replace(facts.shipped().file, qualified=known)
    assert facts.Facts(file=file).qualified((), [DEVICE]) == taken
    assert facts.Facts(file=file).qualified((), [DEVICE]) != replace(taken, idle=())


def test_facts_of_an_older_release_are_in_its_own_version(folder: Path) -> None:
    old = Qualified(schema="bench/qualified/3", record=())
    file = replace(facts.shipped().file, qualified=old)
    assert facts.Facts(file=file).qualified((), [DEVICE]) == old


def with_pair(pair: IdlePair) -> IdleNeighbour:
    return replace(OWN, pairs={**OWN.pairs, "memory": (pair,)})


@pytest.mark.parametrize(
    ("idle", "message"),
    [
        ((with_pair(IdlePair(alone=0.0, beside=1.0)),), "or a time that is none"),
        ((with_pair(IdlePair(alone=1.0, beside=float("nan"))),), "or a time that is none"),
        ((replace(OWN, pairs={}),), "has no pairs"),
        ((replace(OWN, stack={}),), "names no library stack, device or source"),
        ((OWN, OWN), "stands there twice of one source"),
    ],
)
def test_record_by_which_nothing_can_be_ruled_is_refused(
    idle: tuple[IdleNeighbour, ...], message: str
) -> None:
    where = rf"q\.json: the record of a process that waited on {MODEL}"
    with pytest.raises(UsageError, match=f"{where} .*{message}"):
        qualified_file.check_qualified(Qualified(record=(), idle=idle), "q.json")
