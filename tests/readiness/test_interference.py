"""Others who use the node are named before a run and once while it goes on, and are waited for."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import SYSTEM, bare_lines, ended

from appliance.errors import NodeBusy, RunInterrupted, UsageError
from appliance.linux.sysfs import Tree
from appliance.probe import conditions
from appliance.readiness import interference
from appliance.readiness.idle_wait import IDLE_SECONDS, Wait
from appliance.records.journal import Event, Reading, UsersCounted
from appliance.records.system import Fact, Process, System
from appliance.verbs.run_options import RunOptions, StartOptions

HOG = Process(name="hog", cpu_share=0.97, memory_bytes=1)


def node(used: float | None, *others: Process, device: float | None = None) -> System:
    """A node of two processors, of which others use so many, and so much of its device."""
    one = SYSTEM.identity.devices[0]
    facts = {"used_by_others": Fact(value=used), f"{one.id}_utilisation": Fact(value=device)}
    usable = replace(one, facts={**one.facts, "usable_processors": Fact(value=2)})
    return replace(
        SYSTEM,
        identity=replace(SYSTEM.identity, devices=(usable,)),
        conditions=replace(SYSTEM.conditions, facts=facts, foreign_processes=others),
    )


def test_culprit_is_named_with_its_share() -> None:
    (sentence,) = interference.sentences(node(0.98, HOG))
    assert sentence.startswith(
        "others use 49 % of the 2 processors (busiest, in processors: hog 0.97): times"
    )
    assert "--wait-idle" in sentence


@pytest.mark.parametrize("used", [None, 0.0, 0.19])
def test_quiet_node_and_one_that_cannot_be_read_need_no_warning(used: float | None) -> None:
    assert interference.sentences(node(used, HOG)) == ()


def test_device_that_somebody_uses_is_named() -> None:
    (sentence,) = interference.sentences(node(0.0, device=0.97))
    assert sentence.startswith("another program uses cpu:0 (97 %): ")


def test_only_the_busiest_are_named() -> None:
    others = tuple(replace(HOG, name=name) for name in "abcde")
    assert (
        interference.named(others)
        == " (busiest, in processors: a 0.97, b 0.97, c 0.97, and 2 more)"
    )


# ------------------------------------------------------------------ while a run goes on


def readings(launch: str, *foreign: float) -> list[Event]:
    values = ({"foreign_processors": one, "stolen_processors": 0.0} for one in foreign)
    return [Reading(launch=launch, device="cpu:0", values=one) for one in values]


def said(events: list[Event], since: int = 0) -> list[str]:
    sentences: list[str] = []
    watch = interference.InterferenceWatch(processors=2, say=sentences.extend, since=since)
    for line in bare_lines(events):
        watch.take(line)
    return sentences


def launch(name: str, *foreign: float) -> list[Event]:
    return [*readings(name, *foreign), ended(name)]


def test_disturbed_launch_is_said_once() -> None:
    events = [*launch("a-1", 0.0, 0.1), *launch("a-2", 1.0, 1.0, 0.0), *launch("a-3", 2.0)]
    (sentence,) = said(events)
    assert sentence.startswith("others used 50 % of the processors")
    assert "in 2 of 3 readings of a-2: times" in sentence


def test_short_use_and_lines_of_an_earlier_part_are_not_said() -> None:
    assert said(launch("a-1", 1.0, 0.0, 0.0, 0.0)) == []
    events = launch("a-1", 2.0)
    assert said(events, since=len(events)) == []
    assert len(said(events)) == 1


def test_others_on_a_device_are_counted() -> None:
    counted = UsersCounted(
        device="cuda:0",
        count=2,
        memory_bytes=2**30,
        hint="",
        launch="a-1",
        moment="before",
        values={"utilisation_fraction": 0.97},
    )
    (sentence,) = said([counted])
    assert sentence.startswith("2 others use cuda:0 (97 %): ")
    assert said([replace(counted, count=0)]) == []


# ------------------------------------------------------------------ waiting


def waited(uses: Callable[[float], list[str]], limit: float = 60.0) -> tuple[float, list[str], str]:
    """Seconds that a wait took by its own clock, what it said, and how it ended."""
    clock, sentences = [100.0], list[str]()

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    wait = Wait(
        limit_seconds=limit,
        uses=lambda: uses(clock[0] - 100.0),
        say=sentences.append,
        now=lambda: clock[0],
        sleep=sleep,
    )
    try:
        wait.until_idle()
        return clock[0] - 100.0, sentences, ""
    except NodeBusy as error:
        return clock[0] - 100.0, sentences, str(error)


def test_idle_node_is_waited_for_so_long_as_the_rule_says() -> None:
    seconds, sentences, end = waited(lambda _: [])
    assert (seconds, end) == (IDLE_SECONDS, "")
    assert "10 s in a row" in sentences[0]
    assert sentences[1:] == ["the node is idle; waited 10 s"]


def test_wait_goes_on_until_the_load_is_gone_and_says_what_for() -> None:
    seconds, sentences, end = waited(lambda at: ["hog 0.97"] * (at <= 20))
    assert (seconds, end) == (20 + IDLE_SECONDS, "")
    assert sentences[1:] == ["not idle: hog 0.97", "the node is idle; waited 30 s"]


def test_wait_ends_with_the_name_of_what_did_not() -> None:
    seconds, _, end = waited(lambda _: ["hog 0.97"], limit=120.0)
    assert seconds == 120.0
    assert "not idle within 2 min (hog 0.97)" in end
    assert NodeBusy.exit_code == 3


def test_load_that_comes_back_every_nine_seconds_is_not_idle() -> None:
    _, _, end = waited(lambda at: ["hog 0.97"] * (at % 9 == 0))
    assert end


def test_wait_that_a_person_stops_is_interrupted() -> None:
    def stopped(_at: float) -> list[str]:
        raise KeyboardInterrupt

    with pytest.raises(RunInterrupted, match="nothing was begun"):
        waited(stopped)


@pytest.mark.parametrize("minutes", [0, -1, 1441])
@pytest.mark.parametrize("options", [RunOptions, StartOptions])
def test_wait_of_no_length_is_refused(options: type[RunOptions], minutes: int) -> None:
    with pytest.raises(UsageError, match="--wait-idle"):
        options(wait_idle=minutes)


@pytest.fixture
def hog(tmp_path: Path) -> Iterator[str]:
    """A program that computes and is none of ours, as its parent has ended; its name."""
    program = tmp_path / "bench-test-hog"
    program.symlink_to("/bin/sh")
    start = f"{program} -c 'while :; do :; done' > /dev/null 2>&1 & echo $!"
    number = subprocess.run(["sh", "-c", start], check=True, capture_output=True, text=True).stdout
    yield program.name
    os.kill(int(number), signal.SIGKILL)


def test_program_that_computes_beside_us_is_seen_by_name(hog: str) -> None:
    """How much of a machine that others load it gets is not asserted."""
    before = conditions.observe(Tree())
    for _ in range(600):
        time.sleep(0.1)
        others = conditions.foreign_processes(before, conditions.observe(Tree()))
        if hog in [one.name for one in others]:
            return
    pytest.fail(f"{hog} was not seen among {others}")
