"""The ledger keeps what was read: whole lines, of one campaign, by one program at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.fleet_tables import entry, run

from appliance.collection import ledger
from appliance.collection.rows import Finding
from appliance.errors import EvidenceError, UsageError

CAMPAIGN = "d" * 64


def filled(folder: Path) -> Path:
    with ledger.opened(folder, CAMPAIGN) as book:
        for node in ("a", "b"):
            book.append(entry(node, run(node)))
    return folder / ledger.FILE


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    filled(tmp_path)
    digest, entries = ledger.read(tmp_path)
    assert digest == CAMPAIGN
    assert entries == [entry(node, run(node)) for node in ("a", "b")]


def test_every_cut_of_the_last_line_loses_that_line_alone(tmp_path: Path) -> None:
    path = filled(tmp_path)
    data = path.read_bytes()
    begin = data.rstrip(b"\n").rindex(b"\n") + 1
    for end in (begin + 1, (begin + len(data)) // 2, len(data) - 1):
        path.write_bytes(data[:end])
        with ledger.opened(tmp_path, CAMPAIGN) as book:
            assert [one.finding.node for one in book.entries] == ["a"]
            assert not book.has(entry("b", run("b")).source, entry("b", run("b")).digest, "")
            book.append(entry("b", run("b")))
        assert path.read_bytes() == data


def test_what_may_change_is_read_again_and_its_last_line_stands(tmp_path: Path) -> None:
    filled(tmp_path)
    late = Finding(node="b", reason="not_verified", sentence="by another signer", run=None)
    refused = replace(entry("b", run("b")), finding=late)
    with ledger.opened(tmp_path, CAMPAIGN) as book:
        first = entry("a", run("a"))
        assert book.has(first.source, first.digest, "")
        assert not book.has(first.source, first.digest, "other signers")
        book.append(first)
        assert book.num_appended == 0, "it says what its last line says"
        book.append(refused)
        assert not book.has(refused.source, refused.digest, "")
    assert ledger.read(tmp_path)[1] == [first, refused]
    with ledger.opened(tmp_path, CAMPAIGN) as book:
        book.append(entry("b", run("b")))
    assert ledger.read(tmp_path)[1] == [entry(node, run(node)) for node in ("a", "b")]


def test_cut_first_line_is_made_again(tmp_path: Path) -> None:
    filled(tmp_path).write_bytes(b'{"campaign":"dd')
    with ledger.opened(tmp_path, CAMPAIGN) as book:
        assert book.entries == []


def test_ledger_of_another_campaign_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    with (
        pytest.raises(UsageError, match="is of another campaign: name another folder with --out"),
        ledger.opened(tmp_path, "e" * 64),
    ):
        pass


def test_second_program_is_refused(tmp_path: Path) -> None:
    with (
        ledger.opened(tmp_path, CAMPAIGN),
        pytest.raises(UsageError, match="is being collected by another program"),
        ledger.opened(tmp_path, CAMPAIGN),
    ):
        pass


def test_changed_line_is_named(tmp_path: Path) -> None:
    path = filled(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"node":"a"', b'"node":"a" ', 1))
    with pytest.raises(EvidenceError, match=r"line 2 is not in canonical form.*collect again"):
        ledger.read(tmp_path)
