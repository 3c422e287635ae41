"""The verb `qualify`: rows that misbehave take no other down, and what was seen is kept."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.program import WITH_FAULTS, called

from appliance.cli.progress import Silent
from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.qualifying import idle_stage
from appliance.qualifying.rows import Shipped
from appliance.records.json import Scalar, to_json
from appliance.records.qualified import ObservedCase, Qualified
from appliance.records.suite import MemoryClass, SuiteCase
from appliance.storage import suite_file
from appliance.storage.qualified_file import parse_qualified
from appliance.verbs import qualify
from appliance.verbs.qualify import QualifyOptions, Result

TINY, _ = suite_file.load_suite("smoke")
MIB = 2**20


@pytest.fixture(autouse=True)
def own_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", WITH_FAULTS["PYTHONPATH"])


def row(name: str, *, limit: float = 60.0, small: bool = True, **parameters: Scalar) -> SuiteCase:
    return SuiteCase(
        id=name,
        workload="faulty.misbehaving",
        small=small,
        parameters=parameters,
        expected_seconds=0.2,
        reference_seconds=0.2,
        time_limit_seconds=limit,
        memory_limit_gib=4.0,
    )


def shipped(*small: SuiteCase, full: Sequence[SuiteCase] = ()) -> Shipped:
    return Shipped(
        manifest={},
        reduced=replace(TINY, case=small),
        large=[replace(TINY, case=tuple(full))],
    )


def qualified(out: Path, known: Shipped, minutes: float = 5.0) -> Result:
    options = QualifyOptions(out=out, minutes=minutes, vendor="cpu")
    return qualify.qualify(options, Silent(), known)


def by_name(result: Qualified) -> Mapping[str, ObservedCase]:
    return {one.case: one for one in result.observed}


@pytest.fixture(scope="module")
def misbehaved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Result]]:
    out = tmp_path_factory.mktemp("qualified")
    full = row("large", small=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", WITH_FAULTS["PYTHONPATH"])
        known = shipped(
            row("before"),
            row("hangs", limit=3.0, fault="hang"),
            row("crashes", fault="abort"),
            row("after"),
            full=[replace(full, memory=(MemoryClass(gib=10**6),))],
        )
        yield out, qualified(out, known)


def test_rows_that_hang_and_crash_take_no_other_down(misbehaved: tuple[Path, Result]) -> None:
    _, result = misbehaved
    rows = by_name(result.qualified)
    assert result.exit_code == 1
    assert rows["hangs"].outcomes == {"timed_out": 1}
    assert rows["crashes"].outcomes == {"crashed": 1}
    assert "SIGABRT" in rows["crashes"].fault
    for name in ("before", "after"):
        assert rows[name].outcomes == {"completed": 5}
        assert (rows[name].num_seeds, rows[name].num_deterministic) == (2, 2)
        assert rows[name].same_by_default
        assert rows[name].same_when_deterministic
        assert rows[name].step_seconds
        assert {one.num_outside for one in rows[name].checks} == {0}
    assert [one.num_clean for one in result.qualified.record] == [2]  # of two rows, one each
    assert result.notes == (idle_stage.ON_PROCESSORS,)


def test_page_and_records_say_what_was_seen(misbehaved: tuple[Path, Result]) -> None:
    out, result = misbehaved
    assert parse_qualified((out / "qualified.json").read_bytes(), "it") == result.qualified
    page = result.files[1].read_text()
    assert "- hangs (small): hangs-seed1@cpu:0/1 timed_out" in page
    assert "| before | 5 completed | 2 |" in page


def test_row_without_memory_for_it_is_named(misbehaved: tuple[Path, Result]) -> None:
    _, result = misbehaved
    large = by_name(result.qualified)["large"]
    assert (large.size, large.outcomes) == ("full", {})
    assert "it needs 1000000 GiB of memory" in large.fault


def test_records_of_other_versions_are_not_added_to(
    misbehaved: tuple[Path, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = "software torch was 2.12.0, and is 2.13.0"
    monkeypatch.setattr(qualify, "identity_differences", lambda *_: [changed])
    with pytest.raises(UsageError, match=r"with other libraries \(software torch was 2\.12\.0"):
        qualified(misbehaved[0], shipped(row("before")))


def test_folder_of_another_vendor_is_refused(tmp_path: Path) -> None:
    state = qualify.State(seed="5a" * 32, vendor="cuda")
    (tmp_path / qualify.STATE).write_bytes(to_json(state))
    with pytest.raises(UsageError, match="is of cuda: name another folder with --out"):
        qualified(tmp_path, shipped(row("one")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"schema":', r"Invalid JSON"),
        (b'{"schema":"bench/qualification/1","seed":5,"vendor":"cpu"}', r"seed: must be"),
        (b'{"schema":"bench/qualification/1","seed":"zz","vendor":"cpu"}', r"64 hexadecimal"),
        (b'{"schema":"bench/qualification/9","seed":"00","vendor":"cpu"}', r"schema: must be"),
        (
            b'{"schema":"bench/qualification/1","seed":"%s","vendor":"tpu"}' % (b"5a" * 32),
            r'no vendor called "tpu"',
        ),
    ],
)
def test_edited_state_of_a_qualification_is_one_sentence(
    text: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / qualify.STATE).write_bytes(text)
    with pytest.raises(EvidenceError, match=rf"{qualify.STATE}: .*{message}.*another folder with"):
        qualified(tmp_path, shipped(row("one")))
    assert [one.name for one in tmp_path.iterdir()] == [qualify.STATE]


def test_run_under_another_model_is_not_taken(
    misbehaved: tuple[Path, Result], tmp_path: Path
) -> None:
    out = tmp_path / "edited"
    shutil.copytree(misbehaved[0], out)
    first = min(out.glob("runs/*/system.json"))
    model = json.loads(first.read_bytes())["identity"]["devices"][0]["model"]
    first.write_text(first.read_text().replace(f'"model":"{model}"', '"model":"H100"'))
    with pytest.raises(EvidenceError, match=r"system\.json is not of the machine that the run was"):
        qualified(out, shipped(row("before")))


def test_same_folder_goes_on_with_what_is_left(misbehaved: tuple[Path, Result]) -> None:
    out, before = misbehaved
    runs = len(list(out.glob("runs/*")))
    both = by_name(qualified(out, shipped(row("before"), row("new"))).qualified)
    assert both["before"] == by_name(before.qualified)["before"]
    assert both["new"].outcomes == {"completed": 5}
    assert len(list(out.glob("runs/*"))) == runs + 2  # small rows, and their repeats


def test_rows_that_the_minutes_have_no_room_for_are_named(tmp_path: Path) -> None:
    options = QualifyOptions(out=tmp_path, minutes=0.1, vendor="cpu")
    known = shipped(*[row(f"row{number}", seconds=0.5) for number in range(9)])
    result = qualify.qualify(options, Silent(), known)
    assert result.exit_code == 3
    assert result.num_left > 0
    assert any("the minutes were over" in one.fault for one in result.qualified.observed)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    size = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    if subprocess.run(size, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_disk_is_one_sentence_and_what_was_seen_is_kept(small_disk: Path) -> None:
    known = shipped(*[row(f"row{number}") for number in range(8)])
    with pytest.raises(OutputError, match=r"make room, then go on with `bench qualify --out"):
        qualified(small_disk, known)
    (journal,) = small_disk.glob("runs/*/journal.jsonl")
    assert b'"kind":"run_started"' in journal.read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--minutes", "0"), "--minutes is 0: give a number from 0.1 to 10080"),
        (("--workload", "gemn"), 'there is no workload "gemn" (did you mean "gemm"?)'),
        (("--vendor", "none"), 'there is no vendor called "none"'),
        (
            ("--vendor", "cpu", "--workload", idle_stage.NAME),
            "on processors nothing waits beside a launch: leave --workload idle_neighbour out",
        ),
    ],
)
def test_wrong_option_is_one_sentence(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = called("qualify", "--out", str(tmp_path / "new"), "--quiet", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
