"""A collection's folder that somebody else has written: nothing beside it is read or written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pytest
from support.fleet_tables import CAMPAIGN_DIGEST, campaign, collection, entry, run

from appliance.collection import ledger, queries, report, sources, standing, statement, tables
from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.records.json import sha256
from appliance.signing import dsse, keys
from appliance.signing.keys import Key

VICTIM = b"the last line of somebody's file has no end"


@pytest.fixture(scope="module")
def key() -> Key:
    return keys.development_key()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, key: Key) -> Path:
    folder = tmp_path_factory.mktemp("made")
    fleet = standing.fleet(campaign(["a"], ["r"]), [entry("a", run("a"))])
    collection(folder, fleet, key)
    return folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copied"))


def signed(
    folder: Path,
    key: Key,
    *,
    subjects: Mapping[str, str] | None = None,
    predicate: Mapping[str, str] | None = None,
) -> None:
    """Sign what lies there, or something else, as the owner of the key can."""
    names = (ledger.FILE, *(f"tables/{name}.parquet" for name in tables.TABLES))
    own = {name: sha256((folder / name).read_bytes()) for name in names}
    one = dsse.Statement(
        predicate_type=statement.PREDICATE,
        subjects=own if subjects is None else subjects,
        predicate=dict.fromkeys(statement.SAYS, "1") if predicate is None else predicate,
    )
    (folder / statement.FILE).write_bytes(dsse.sign_statement(one, key))


@pytest.mark.parametrize("place", ["fifo", "link", "garbage"])
@pytest.mark.parametrize(
    "name", [ledger.FILE, statement.FILE, statement.CERTIFICATE, "tables/nodes.parquet"]
)
def test_what_is_no_file_of_ours_is_one_sentence(name: str, place: str, copied: Path) -> None:
    path = copied / name
    if place == "garbage":
        path.write_bytes(b"\xff\0" * 40)
    else:
        path.unlink()
        if place == "fifo":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
    with pytest.raises((EvidenceError, UsageError)):
        report.document(copied)


def test_a_statement_signs_each_table_and_says_what_a_collection_says(
    copied: Path, key: Key
) -> None:
    signed(copied, key, predicate={"campaign": "8 x H100"})
    with pytest.raises(EvidenceError, match="says other things than a collection does"):
        report.document(copied)
    signed(copied, key, subjects={"tables/../../victim": "0" * 64})
    with pytest.raises(EvidenceError, match="does not sign ledger"):
        report.document(copied)


def test_tables_of_another_form_are_one_sentence(copied: Path, key: Key) -> None:
    path = copied / "tables" / "nodes.parquet"
    for content in (b"PAR1" + bytes(99) + b"PAR1", None):
        if content is None:
            path.unlink()
            duckdb.execute(f"COPY (SELECT 1 AS x) TO '{path}' (FORMAT PARQUET)")
        else:
            path.write_bytes(content)
        signed(copied, key)
        with pytest.raises(EvidenceError, match="no tables of a collection"):
            report.document(copied)


def test_no_character_of_a_folders_name_stands_for_others(made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "a[b]*'?"))
    with queries.opened(folder) as opened:
        assert opened.ask("nodes").rows


@pytest.mark.parametrize("has_bytes", [True, False])
def test_a_link_in_the_ledgers_place_is_not_written_through(
    tmp_path: Path, *, has_bytes: bool
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(VICTIM if has_bytes else b"")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ledger.FILE).symlink_to(victim)
    with (
        pytest.raises(OutputError, match="not a plain file"),
        ledger.opened(tmp_path / "out", CAMPAIGN_DIGEST),
    ):
        pass
    assert victim.read_bytes() == (VICTIM if has_bytes else b"")


def test_a_file_that_is_no_ledger_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / ledger.FILE
    path.write_bytes(VICTIM)
    with (
        pytest.raises(EvidenceError, match="is no ledger"),
        ledger.opened(tmp_path, CAMPAIGN_DIGEST),
    ):
        pass
    assert path.read_bytes() == VICTIM


def test_a_link_in_the_place_of_the_tables_is_not_followed(tmp_path: Path) -> None:
    fleet = standing.fleet(campaign(["a"], ["r"]), [entry("a", run("a"))])
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "nodes.parquet").write_bytes(VICTIM)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / tables.FOLDER).symlink_to(victim)
    with pytest.raises(OutputError, match="is a link or a file"):
        tables.write(tmp_path / "out", fleet)
    assert (victim / "nodes.parquet").read_bytes() == VICTIM


def deep(place: Path, depth: int) -> Path:
    """Folders inside each other, more than any path may name; made one in the other."""
    place.mkdir()
    above = os.open(place, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=above)
        below = os.open("d", os.O_RDONLY, dir_fd=above)
        os.close(above)
        above = below
    os.close(above)
    return place


def test_folders_without_an_end_are_one_sentence(tmp_path: Path) -> None:
    place = deep(tmp_path / "deep", 200)
    with pytest.raises(UsageError, match="more than 64 folders inside each other"):
        list(sources.candidates([str(place)]))
