"""The journal: whatever was changed in it is found, and what was written is never lost."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.builders import a_plan, chain, healthy_events, journal_bytes, resumed

from appliance.errors import EvidenceError, OutputError
from appliance.records.journal import Line, Reading, RunEnded, RunStarted
from appliance.records.json import sha256, to_json
from appliance.storage.journal import Clock, Journal, replay

PREV = "f" * 64
LINES = chain(healthy_events(a_plan())[:12], PREV)
DATA = journal_bytes(LINES)
READING = Reading(launch="gemm@cpu:0/1", device="cpu:0", values={"load": 0.5})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def write(path: Path, number: int) -> tuple[Line, ...]:
    journal = Journal.create(path, PREV)
    for _ in range(number):
        journal.append(READING, sync=True)
    journal.close()
    return journal.lines


# ------------------------------------------------------------------ writing


def test_what_is_appended_is_replayed(path: Path) -> None:
    lines = write(path, 3)
    assert replay(path.read_bytes(), PREV) == lines
    assert [line.event for line in lines] == [READING] * 3
    assert [line.seq for line in lines] == [0, 1, 2]
    assert lines[0].prev == PREV
    assert lines[1].prev == sha256(to_json(lines[0]))


def test_times_come_from_the_clock_in_utc(path: Path) -> None:
    clock = Clock(utc=lambda: datetime(2026, 11, 21, 12, 0, 0, 7000, UTC), monotonic_ns=lambda: 42)
    line = Journal.create(path, PREV, clock).append(READING)
    assert (line.utc, line.monotonic_ns) == ("2026-11-21T12:00:00.007Z", 42)


def test_an_existing_journal_is_never_written_over(path: Path) -> None:
    write(path, 1)
    before = path.read_bytes()
    with pytest.raises(OutputError, match="exists already"):
        Journal.create(path, PREV)
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        Journal.create(tmp_path / "none" / "journal.jsonl", PREV)


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes, as on a disk that fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_leaves_whole_lines_and_a_way_on(path: Path) -> None:
    journal = Journal.create(path, PREV)
    journal.append(READING)
    whole = path.read_bytes()
    with room_for(len(whole) + 50), pytest.raises(OutputError, match="bench accept --resume"):
        journal.append(READING)
    assert path.read_bytes() == whole
    journal.append(READING)  # somebody made room
    assert replay(path.read_bytes(), PREV) == journal.lines


def test_a_line_that_the_disk_did_not_confirm_is_still_in_the_chain(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    journal = Journal.create(path, PREV)
    with monkeypatch.context() as patch:
        patch.setattr("appliance.storage.journal.os.fsync", refuse)
        with pytest.raises(OutputError, match="Input/output error"):
            journal.append(READING, sync=True)
    journal.append(READING)
    assert replay(path.read_bytes(), PREV) == journal.lines


# ------------------------------------------------------------------ going on


def test_a_reopened_journal_goes_on_where_it_stopped(path: Path) -> None:
    lines = write(path, 2)
    journal, result, dropped = Journal.reopen(path, PREV)
    assert (result, dropped) == (lines, "")
    journal.append(READING)
    assert replay(path.read_bytes(), PREV) == journal.lines
    assert len(journal.lines) == 3


@pytest.mark.parametrize("kept", [0, 2])
def test_a_half_written_last_line_is_handed_back_and_cut_off(path: Path, kept: int) -> None:
    lines = write(path, kept)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"event":{"kind":"rea\xc3')
    journal, result, dropped = Journal.reopen(path, PREV)
    assert (result, dropped) == (lines, '{"event":{"kind":"rea\ufffd')
    assert path.read_bytes() == whole
    journal.append(resumed(1)[0])
    assert len(replay(path.read_bytes(), PREV)) == kept + 1


def test_an_edited_journal_is_refused_and_left_as_it_is(path: Path) -> None:
    write(path, 3)
    edited = path.read_bytes().replace(b"0.5", b"0.4", 1) + b'{"half'
    path.write_bytes(edited)
    with pytest.raises(EvidenceError, match="line 2 does not follow line 1"):
        Journal.reopen(path, PREV)
    assert path.read_bytes() == edited


def test_a_missing_journal_cannot_be_gone_on_with(path: Path) -> None:
    with pytest.raises(EvidenceError, match="no run to go on with: start a new one"):
        Journal.reopen(path, PREV)


def test_a_journal_has_one_writer(path: Path) -> None:
    journal = Journal.create(path, PREV)
    with pytest.raises(OutputError, match="another process"):
        Journal.reopen(path, PREV)
    journal.close()
    again, _, _ = Journal.reopen(path, PREV)
    with pytest.raises(OutputError, match="another process"):
        Journal.reopen(path, PREV)
    again.close()


# ------------------------------------------------------------------ replaying


def swapped(lines: list[bytes]) -> list[bytes]:
    return [*lines[:4], lines[5], lines[4], *lines[6:]]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda lines: [*lines[:3], lines[3].replace(b"2.13", b"2.14"), *lines[4:]], "line 5 "),
        (swapped, "line 5 does not follow line 4"),
        (lambda lines: lines[:5] + lines[6:], "line 6 does not follow line 5"),
        (lambda lines: lines[1:], "line 1 does not follow plan.json"),
        (lambda lines: [*lines[:6], lines[5], *lines[6:]], "line 7 does not follow line 6"),
        (lambda lines: [*lines[:6], b"", *lines[6:]], "line 7"),
        (lambda lines: [*lines[:6], lines[6].replace(b":", b": ", 1), *lines[7:]], "canonical"),
        (lambda lines: [*lines[:6], b'{"seq":6}', *lines[7:]], "line 7"),
    ],
    ids=["edited", "reordered", "removed", "first", "doubled", "empty", "spaced", "no record"],
)
def test_a_changed_journal_is_refused_and_the_line_named(
    change: Callable[[list[bytes]], list[bytes]], sentence: str
) -> None:
    changed = b"\n".join(change(DATA.split(b"\n")))
    assert changed != DATA
    with pytest.raises(EvidenceError, match=sentence):
        replay(changed, PREV)


def test_a_journal_of_another_plan_is_refused() -> None:
    with pytest.raises(EvidenceError, match=r"line 1 does not follow plan\.json"):
        replay(DATA, "0" * 64)


def test_a_journal_that_is_cut_short_is_refused_wherever_it_is_cut() -> None:
    begin = len(DATA) - len(to_json(LINES[-1])) - 1
    for length in range(begin + 1, len(DATA)):
        with pytest.raises(EvidenceError, match="line 12 is cut short"):
            replay(DATA[:length], PREV)


def rechained(lines: list[Line]) -> bytes:
    """The lines as a forger would write them: each digest right again."""
    result: list[Line] = []
    for line in lines:
        prev = sha256(to_json(result[-1])) if result else PREV
        result.append(replace(line, prev=prev))
    return journal_bytes(result)


def test_wrong_numbers_are_refused_even_in_a_chain_that_holds() -> None:
    lines = [*LINES[:5], replace(LINES[5], seq=7)]
    with pytest.raises(EvidenceError, match="line 6 carries the number 7"):
        replay(rechained(lines), PREV)


def test_a_clock_that_runs_backwards_is_refused_but_for_another_boot() -> None:
    event, again = RunEnded(launches=0), resumed(1)[0]
    backwards = [replace(LINES[0], seq=n, monotonic_ns=9 - n, event=event) for n in range(2)]
    with pytest.raises(EvidenceError, match="line 2: its clock runs backwards"):
        replay(rechained(backwards), PREV)
    resuming = [backwards[0], replace(backwards[1], event=again)]
    assert len(replay(rechained(resuming), PREV)) == 2


def test_an_empty_journal_has_no_lines() -> None:
    assert replay(b"", PREV) == ()
    assert isinstance(LINES[0].event, RunStarted)
