"""What a launch has mapped to run is hashed once, before anything is timed and before the end."""

from __future__ import annotations

import pytest
from support.builders import a_case, a_plan, chain, healthy_events

from appliance.errors import EvidenceError
from appliance.records.journal import (
    Event,
    LaunchEnded,
    Libraries,
    LibrariesHashed,
    LibrariesMapped,
    RunStarted,
)
from appliance.verification.launch_checks import check_launches
from appliance.verification.run_checks import check_conduct

PLAN = a_plan(a_case())
UNTIMED, TIMED = "gemm@cpu:0/0", "gemm@cpu:0/1"
ONE, OTHER = "1:2:3:4:5", "1:7:3:-4:5"
MAPPED = LibrariesMapped(launch=UNTIMED, rank=0, files={"/a.so": ONE, "/b.so": OTHER, "/c": None})
HASHED = LibrariesHashed(digests={ONE: "d" * 64, OTHER: None})


def events(*hashed: LibrariesHashed, mapped: LibrariesMapped | None = MAPPED) -> list[Event]:
    """A run whose files are hashed once its untimed launch has ended."""
    made: list[Event] = []
    for event in healthy_events(PLAN):
        if isinstance(event, RunStarted):
            made.append(RunStarted(run_id=event.run_id, plan="p", system="s", pid=event.pid))
        elif isinstance(event, Libraries):
            made.extend(() if mapped is None else (mapped,))
        else:
            made.append(event)
        if isinstance(event, LaunchEnded) and event.launch == UNTIMED:
            made.extend(hashed)
    return made


def fault(made: list[Event]) -> str:
    """What an auditor says of the journal, or nothing."""
    lines = chain(made)
    try:
        check_conduct(PLAN, lines, {"plan.json": "p", "system.json": "s"})
        check_launches(PLAN, lines)
    except EvidenceError as error:
        return str(error)
    return ""


def test_files_that_are_hashed_after_their_launch_are_let_through() -> None:
    parts = [LibrariesHashed(digests={name: digest}) for name, digest in HASHED.digests.items()]
    assert fault(events(HASHED)) == ""
    assert fault(events(*parts)) == ""


FORGED: dict[str, tuple[list[Event], str]] = {
    "not hashed": (
        events(),
        f"launch {TIMED} starts, which is timed, and the libraries of {UNTIMED} are not hashed",
    ),
    "one left out": (
        events(LibrariesHashed(digests={ONE: "d" * 64})),
        f"the libraries of {UNTIMED} are not hashed",
    ),
    "hashed twice": (
        events(HASHED, LibrariesHashed(digests={ONE: "e" * 64})),
        "a file is hashed a second time",
    ),
    "of no launch": (
        events(HASHED, LibrariesHashed(digests={"9:9:9:9:9": "e" * 64})),
        "or one that no launch has mapped",
    ),
    "no digest": (
        events(LibrariesHashed(digests={ONE: "trust me", OTHER: None})),
        "is no sha256",
    ),
    "no file": (
        events(mapped=LibrariesMapped(launch=UNTIMED, rank=0, files={"/a.so": "the usual"})),
        "has mapped a file that no disk has",
    ),
    "not listed": (events(mapped=None), "does not report its libraries"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_file_without_its_digest_is_found(name: str) -> None:
    made, sentence = FORGED[name]
    assert sentence in fault(made)
