"""A run is no older than the release that made it, no newer than its reader, and has counters."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from support.builders import SYSTEM, bare_lines, ended, healthy_server
from support.bundles import healthy
from support.known_facts import facts_file

from appliance.errors import EvidenceError
from appliance.records.journal import (
    Counted,
    Digested,
    Environment,
    Event,
    KernelLogRead,
    LaunchEnded,
    LaunchStarted,
    NotObserved,
    RunEnded,
    StageTimes,
)
from appliance.records.system import Fact
from appliance.verification.facts import Facts
from appliance.verification.facts_checks import Comparison, Judged, compare_release
from appliance.verification.observation_checks import check_begun
from appliance.version import RELEASED, VERSION

PLAN = healthy().plan
NODE = replace(
    SYSTEM, conditions=replace(SYSTEM.conditions, facts={"load_1_minute": Fact(value=0.1)})
)
COUNTED = Counted(device="cpu:0", counters={})
LOG = KernelLogRead(boot="", sequence=-1)
LAUNCH = "gemm@cpu:0/1"
STARTED = LaunchStarted(launch=LAUNCH, mode="forked", framework="torch")
VERSIONS = {"python": Fact(value="3.11.7"), "torch": Fact(value="2.13.0")}
RAN_IN = Environment(launch=LAUNCH, rank=0, facts=VERSIONS)
BITS = Digested(launch=LAUNCH, rank=0, phase="first", step=0, what="output", digest="0")
STAGES = StageTimes(launch=LAUNCH, rank=0, wall_ns={"start": 1})
ENDED = RunEnded(launches=0)
BEGIN = datetime(2026, 11, 21, 12, tzinfo=UTC)  # of bare lines


def compared(released: str, *events: Event, version: str = PLAN.bench_version) -> tuple[str, ...]:
    file = replace(facts_file(PLAN), released=released, bench_version=version)
    comparison = Comparison(plan=PLAN, facts=Facts(file=file))
    if LOG in events:
        events = (*events, LOG)  # as it is read at the end, too
    run: Any = type("Run", (), {"plan": PLAN, "system": NODE, "lines": bare_lines(events)})
    compare_release(comparison, cast("Judged", run))
    return comparison.sentences()


@pytest.mark.parametrize("released", ["2026-11-22", "2026-11-21", "2020-01-01"])
def test_a_run_since_its_release_is_taken(released: str) -> None:
    """To a day: the node's clock may be in another zone."""
    assert compared(released, COUNTED, LOG) == ()


def test_a_run_before_its_release_is_refused() -> None:
    with pytest.raises(EvidenceError, match="was released on 2026-11-23: no run of it is older"):
        compared("2026-11-23", COUNTED)


def test_of_another_release_the_day_says_nothing_and_counters_are_not_compared() -> None:
    assert compared("2026-11-23", COUNTED, LOG, version="0.0.9") == ()
    (sentence,) = compared("2026-11-23", LOG, version="0.0.9")
    assert sentence.startswith("counters (made by bench")


def test_a_run_without_counters_is_refused() -> None:
    with pytest.raises(EvidenceError, match="the counters of cpu:0 were never read"):
        compared("2026-11-21", ENDED)


def test_a_run_that_says_nothing_of_the_log_of_the_kernel_is_refused() -> None:
    unread = NotObserved(what="kernel_log", hint="run as root")
    assert compared("2026-11-21", COUNTED, unread) == ()
    with pytest.raises(EvidenceError, match="the kernel's log was never read"):
        compared("2026-11-21", COUNTED)


def test_of_another_release_the_log_is_not_compared() -> None:
    (sentence,) = compared("2026-11-21", COUNTED, version="0.0.9")
    assert sentence.startswith("the kernel's log (made by bench")


def launched(*told: Event, end: LaunchEnded | None = None, probe: bool = True) -> tuple[str, ...]:
    servers = [healthy_server()] if probe else []
    return compared("2026-11-21", COUNTED, LOG, *servers, STARTED, *told, end or ended(LAUNCH))


def test_a_launch_that_completed_has_said_what_it_ran_in_and_its_stages() -> None:
    assert launched(RAN_IN, BITS, STAGES) == ()
    with pytest.raises(EvidenceError, match="completed and does not say what it ran in"):
        launched(BITS, STAGES)
    with pytest.raises(EvidenceError, match="completed and does not say the times of its stages"):
        launched(RAN_IN, BITS)
    with pytest.raises(EvidenceError, match="does not say the bits of its first output"):
        launched(RAN_IN, STAGES)


def test_a_launch_that_did_not_complete_may_have_said_nothing() -> None:
    assert launched(end=ended(LAUNCH, "crashed", "SIGSEGV")) == ()


def test_what_a_launch_said_before_it_was_made_again_does_not_count() -> None:
    cut = ended(LAUNCH, "interrupted")
    with pytest.raises(EvidenceError, match="does not say"):
        launched(RAN_IN, STAGES, cut, STARTED)


def test_a_launch_of_a_server_that_nobody_probed_is_refused() -> None:
    with pytest.raises(EvidenceError, match="forked of a torch server, and none was probed"):
        launched(RAN_IN, STAGES, probe=False)


def test_facts_that_do_not_say_their_day_compare_neither() -> None:
    assert compared("", ENDED) == ()


def test_a_run_that_begins_after_it_is_read_is_refused() -> None:
    (line,) = bare_lines([ENDED])
    check_begun(line, BEGIN - timedelta(hours=23))
    with pytest.raises(EvidenceError, match="set the clock that is wrong"):
        check_begun(line, BEGIN - timedelta(hours=25))


def test_the_day_of_the_release_is_that_of_the_changelog() -> None:
    text = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
    released = re.findall(r"^## (\S+), (\d{4}-\d\d-\d\d)$", text, re.MULTILINE)
    assert released[0] == (VERSION, RELEASED)  # what comes after it is "unreleased"
