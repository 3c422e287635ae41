"""Stress of links: what came wrong is named by its two devices, and a lost partner is no fault."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from support.builders import a_case, a_plan, healthy_events, verdict_of

from appliance.records.journal import Check, Checked, Event
from appliance.records.plan import Plan
from appliance.records.verdict import Ruling
from appliance.stress.aggregates import LEFT, Aggregate, Span
from workloads.contract.failures import Unsupported
from workloads.contract.target import Artifacts, Beside, Target
from workloads.parts.stress import links, process, requests
from workloads.parts.stress.links import OPERATIONS, Links
from workloads.parts.stress.stressors import Stressor, checks_of
from workloads.parts.stress.turns import Turn, WithoutPartners

CPU = torch.device("cpu")
NAMES = ("cpu:0", "cpu:1", "cpu:2")
BLOCK = 2**14
pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass(kw_only=True)
class Moved(Links):
    """Words that are moved within this process; one bit of some is another when they arrive.

    `wrong` are the way, the row and the times at which it was wrong, counted from 1.
    """

    wrong: tuple[str, int, tuple[int, ...]] = ("", 0, ())
    made: int = 0

    def move(self, name: str, own: torch.Tensor) -> None:
        key = (0x9E3779B97F4A7C15 * (self.rank + 1) + 2**63) % 2**64 - 2**63
        if name == "sum":
            self.total.copy_(sum(row // 4 for row in own))
        else:
            self.received.copy_(own ^ key if name == "exchange" else own)
        way, row, times = self.wrong
        if name == way:
            self.made += 1
            read = self.total if name == "sum" else self.received[row]
            read[7] ^= int(self.made in times)

    def _agreed(self, flags: Sequence[bool]) -> list[bool]:
        return list(flags)


def a_link(folder: Path, wrong: tuple[str, int, tuple[int, ...]] = ("", 0, ())) -> Moved:
    load = Moved(
        names=NAMES,
        rank=1,
        meeting=folder / "meeting",
        backend="gloo",
        device=CPU,
        seed=3,
        num_bytes=3 * BLOCK,
        share=0.25,
        wrong=wrong,
    )
    load.sets = [load._drawn(number) for number in range(links.NUM_SETS)]
    load.received = torch.zeros_like(load.sets[0])
    load.total = torch.zeros_like(load.sets[0][0])
    return load


def test_healthy_links_are_clean_and_count_what_came_from_others(tmp_path: Path) -> None:
    load = a_link(tmp_path)
    arrived = (3 * 2 + 1) * BLOCK
    assert [load.turn() for _ in range(3)] == [Turn(proven=arrived, moved=arrived)] * 3
    assert len(torch.unique(torch.cat(load.sets))) == torch.cat(load.sets).numel()


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("times", "num_again"), [((1,), 0), ((1, 3, 4), 2)])
def test_wrong_word_is_named_by_its_two_devices(
    name: str, times: tuple[int, ...], num_again: int, tmp_path: Path
) -> None:
    (event,) = a_link(tmp_path, (name, 2, times)).turn().wrong
    is_sum = name == "sum"
    way = f"sum of {', '.join(NAMES)}, read at cpu:1" if is_sum else f"{name} from cpu:2 to cpu:1"
    assert event.where.startswith(f"{way}, 1 words: ")
    assert f"at word 7, wrong again in {num_again} of 10 repeats" in event.where
    assert event.num_again == num_again


@pytest.mark.parametrize("stale", ["copy", "exchange", "gather", "sum"])
def test_words_that_were_not_moved_are_not_right(
    stale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, move = a_link(tmp_path), Moved.move
    load.turn()

    def skip(self: Moved, name: str, own: torch.Tensor) -> None:
        if name != stale:
            move(self, name, own)

    monkeypatch.setattr(Moved, "move", skip)
    assert len(load.turn().wrong) == (1 if stale == "sum" else len(NAMES))


def test_sum_of_the_largest_words_does_not_overflow(tmp_path: Path) -> None:
    load = a_link(tmp_path)
    largest = torch.full((len(NAMES), 2), 2**63 - 1)
    (summed,) = load._expected("sum", largest)
    assert summed.tolist() == [3 * ((2**63 - 1) >> 2)] * 2


def test_partner_that_does_not_come_or_ends_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MEET_SECONDS", 0.0)
    load = a_link(tmp_path)
    with pytest.raises(WithoutPartners, match="cpu:0, cpu:2 did not come"):
        load.begin()
    assert load.presence is not None
    load.presence.close()
    with pytest.raises(WithoutPartners, match="cpu:0, cpu:2 ended"):
        load._refuse_alone()
    with links._locked(load._presence_of(0)), links._locked(load._presence_of(2)):
        assert all(is_there for _, is_there in load._partners())
        monkeypatch.setattr(links, "SOON", 0.0)
        load._refuse_alone()


def test_segment_that_ran_alone_says_so() -> None:
    beside = Beside(devices=("cpu:0", "cpu:1"), number=1, meeting=Path("/nowhere"))
    target = Target(device=CPU, artifacts=Artifacts(Path()), vendor="cpu", beside=beside)
    (request,) = requests.of(("links",), target, 3, 2, 1)
    assert (request.names, request.rank, request.folder) == ("cpu:0,cpu:1", 1, "/nowhere")
    (alone,) = requests.of(("links",), replace(target, beside=None), 3, 2, 1)
    load = process.make_links(vars(alone))
    with pytest.raises(WithoutPartners, match="no other device's segment ran beside it"):
        load.begin()


@pytest.mark.parametrize(
    ("ending", "word"), [(f"{LEFT}cpu:1 ended", "inconclusive"), ("no link answered", "fail")]
)
def test_segments_without_partners_are_open_and_a_link_that_hangs_fails(
    ending: str, word: str
) -> None:
    plan = a_plan(a_case("burn_in", launches=2))
    lost = Aggregate(kind="links", asked="some", spans=(), ending=ending)
    (lasting, _) = checks_of(lost, is_again=False)
    result = correctness(plan, lasting)
    assert result.ruling == word
    assert result.explanation.startswith("launch ")


def test_ruling_names_the_two_devices_of_a_wrong_word() -> None:
    place = "copy from cpu:0 to cpu:1, 1 words: f0 for d0 at word 77"
    spans = (Span(900, 450, 4096, 4096, 0, 2),)
    found = Aggregate(kind="links", asked="some", spans=spans, places=(place, "another"))
    (lasting, _) = checks_of(found, is_again=False)
    result = correctness(a_plan(a_case("burn_in", launches=2)), lasting)
    assert result.ruling == "fail"
    assert result.explanation.endswith(f"error 2, bound 0, {place}")


def correctness(plan: Plan, check: Check) -> Ruling:
    """The ruling on the checks of a run, of which each timed launch has this one."""
    timed = {one.id for one in plan.launches if one.is_timed}
    made: list[Event] = []
    for event in healthy_events(plan):
        if isinstance(event, Checked) and event.phase == "last" and event.launch in timed:
            made.append(replace(event, check=check))
        made.append(event)
    verdict = verdict_of(plan, made)
    return next(one for one in verdict.rulings if one.criterion == "correctness")


@pytest.mark.parametrize(
    ("mismatches", "errors", "if_outside"),
    [(0, (math.nan, 0), "inconclusive"), (1, (math.nan, 1), "inconclusive"), (2, (2, 0), "fail")],
)
def test_lost_partner_is_not_held_against_a_device_and_its_mismatches_are(
    mismatches: int, errors: tuple[float, float], if_outside: str
) -> None:
    spans = (Span(900, 450, 4096, 4096, 0, mismatches),)
    ending = f"{LEFT}cpu:1 ended"
    aggregate = Aggregate(kind="links", asked="some", spans=spans, ending=ending)
    lasting, single = checks_of(aggregate, is_again=False)
    assert (lasting.error, single.error) == pytest.approx(errors, nan_ok=True)
    assert lasting.if_outside == if_outside
    assert not lasting.is_within


def test_devices_that_cannot_be_joined_are_no_fault_of_one() -> None:
    report = {"unsupported": "cpu:0, cpu:1 cannot be joined (the backend's words)"}
    process = subprocess.Popen(["echo", json.dumps(report)], stdout=subprocess.PIPE)
    with pytest.raises(Unsupported, match=r"^stress links: cpu:0, cpu:1 cannot be joined"):
        Stressor(kind="links", process=process).aggregate()
