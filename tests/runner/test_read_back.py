"""The file that a case's launches read: written once, and gone with the last of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.launching import TESTS, Bench, Seen, case, plan

from appliance.generator.words import FILE
from appliance.records.journal import Artifact, LaunchEnded
from appliance.records.plan import Launch, Plan

NAME = "read@cpu:0"
SMALL = {"file_bytes": 2**20, "block_bytes": 4096, "blocks": 32}


@pytest.fixture(scope="module", autouse=True)
def vendor_of_tests() -> Iterator[None]:
    """Children find the vendor of tests/faulty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        yield


def reading() -> Plan:
    return plan(
        case(
            "read",
            workload="disk_read",
            parameters=SMALL,
            launches=2,
            alone=True,
            checked_launch=1,
        ),
        interim_analyses=(2,),
        repeats=1,
    )


def files(folder: Path) -> list[Path]:
    return list((folder / "work").rglob(FILE))


def uses(bench: Bench) -> list[tuple[str, bool]]:
    return [(one.launch, one.is_made) for one in bench.events if isinstance(one, Artifact)]


def ends(bench: Bench) -> list[LaunchEnded]:
    return [event for event in bench.events if isinstance(event, LaunchEnded)]


def test_one_launch_writes_the_file_and_it_is_gone_with_the_case(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run", reading())
    there: list[int] = []
    bench.run(Seen(lambda _: there.append(len(files(tmp_path)))))
    assert uses(bench) == [
        (f"{NAME}/0", True),
        (f"{NAME}/r1", False),
        (f"{NAME}/1", False),
        (f"{NAME}/2", False),
    ]
    assert there == [0, 1, 1, 1]
    assert files(tmp_path) == []
    assert {one.outcome for one in ends(bench)} == {"completed"}


def test_a_run_that_is_cut_short_leaves_no_file_and_writes_it_again(tmp_path: Path) -> None:
    class Cut(Exception): ...

    def cut(launch: Launch) -> None:
        if launch.number == 2:
            raise Cut(launch.id)

    bench = Bench(tmp_path / "run", reading())
    with pytest.raises(Cut):
        bench.run(Seen(cut))
    assert files(tmp_path) == []
    bench.journal.close()
    again = Bench(tmp_path / "run", reading())
    again.run()
    assert uses(again)[3:] == []  # the launch that was cut counts, and none is left that reads
    assert files(tmp_path) == []


def test_a_run_that_goes_on_makes_the_file_again_for_what_is_left(tmp_path: Path) -> None:
    class Cut(Exception): ...

    def cut(launch: Launch) -> None:
        if launch.number == 1:
            raise Cut(launch.id)

    bench = Bench(tmp_path / "run", reading())
    with pytest.raises(Cut):
        bench.run(Seen(cut))
    bench.journal.close()
    again = Bench(tmp_path / "run", reading())
    again.run()
    assert uses(again)[2:] == [(f"{NAME}/0", True), (f"{NAME}/2", False)]
    assert [one.launch for one in ends(again) if one.outcome == "completed"][-1] == f"{NAME}/2"
    assert files(tmp_path) == []
    assert not list((tmp_path / "run" / "logs").glob("*"))  # its first making had completed
