"""A burn-in of six hours, recorded as production records it, verifies; with a forged minute not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import chain
from support.bundles import seal
from support.large_runs import without_journal
from support.long_burn_in import long_burn_in

from appliance.errors import EvidenceError
from appliance.evidence.journal_index import index_of
from appliance.records.journal import Block, Event, Line, ReadingsFolded
from appliance.records.json import sha256, to_json
from appliance.signing.keys import development_key, signer_record
from appliance.storage.bundle import SIGNER, Bundle
from appliance.verification.facts import shipped
from appliance.verification.fold_checks import check_folds
from appliance.verification.launch_checks import check_launches
from appliance.verification.terms import Terms
from appliance.verification.verify import verify

HOURS, DEVICES = 6, 2
BYTES_PER_HOUR = 50e6 / 168
Forge = Callable[[ReadingsFolded], ReadingsFolded | None]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return long_burn_in(HOURS, DEVICES, tmp_path_factory.mktemp("long"))


def test_the_whole_run_verifies(recorded: Bundle, tmp_path: Path) -> None:
    key = development_key()
    files = {**recorded.files, SIGNER: to_json(signer_record(key, "tester"))}
    folder = seal(tmp_path / "run", files, key, carried=without_journal)
    facts = replace(shipped(), file=replace(shipped().file, released=""))  # its days are before it
    result = verify(folder, Terms(allow_development=True, facts=facts))
    assert result.faults == ()
    assert {line.name for line in result.checks if line.status == "not_done"} == set()
    assert result.verdict == result.claimed == "INCONCLUSIVE"  # its devices answer in part


def check(bundle: Bundle, lines: Sequence[Line]) -> None:
    check_launches(bundle.plan, lines)
    check_folds(bundle.plan, lines)


def test_the_journal_of_an_hour_is_small_enough_for_a_week(recorded: Bundle) -> None:
    size = len(recorded.files["journal.jsonl"])
    assert size < HOURS * DEVICES * BYTES_PER_HOUR


def test_every_reading_and_every_step_is_counted(recorded: Bundle) -> None:
    check(recorded, recorded.lines)
    index = index_of(recorded.plan, recorded.lines)
    seconds = HOURS * 3600
    for case in index.cases.values():
        steps = sum(launch.num_steps for launch in case.timed)
        readings = sum(one.count for launch in case.timed for one in launch.readings)
        assert seconds <= steps < 1.02 * seconds
        assert readings == pytest.approx(2 * seconds, rel=0.02)


def altered(bundle: Bundle, forge: Callable[[int, Event], Event | None]) -> list[Line]:
    lines = []
    for number, line in enumerate(bundle.lines):
        event = forge(number, line.event)
        if event is not None:
            lines.append(replace(line, event=event))
    return lines


def third(bundle: Bundle) -> int:
    places = [n for n, line in enumerate(bundle.lines) if isinstance(line.event, ReadingsFolded)]
    return places[6]


def drop(minute: ReadingsFolded) -> None:
    del minute


def shortened(minute: ReadingsFolded) -> ReadingsFolded:
    return replace(minute, begin_ns=minute.begin_ns + 10**9)


def lengthened(minute: ReadingsFolded) -> ReadingsFolded:
    return replace(minute, begin_ns=minute.begin_ns - 10**6)


def crowded(minute: ReadingsFolded) -> ReadingsFolded:
    group = minute.groups[0]
    times = {name: (a, b, 3 * c) for name, (a, b, c) in group.ranged.items()}
    return replace(minute, groups=(replace(group, count=3 * group.count, ranged=times),))


def cooled(minute: ReadingsFolded) -> ReadingsFolded:
    group = minute.groups[0]
    low, high, total = group.ranged["power_watts"]
    ranged = {**group.ranged, "power_watts": (low, high, total * 0.9)}
    return replace(minute, groups=(replace(group, ranged=ranged), *minute.groups[1:]))


def of_another(minute: ReadingsFolded) -> ReadingsFolded:
    return replace(minute, device="cuda:7")


@pytest.mark.parametrize(
    ("forge", "fault"),
    [
        (drop, "where minute"),
        (shortened, "leaves a gap"),
        (lengthened, "overlaps"),
        (crowded, "readings in a time that has"),
        (cooled, "sum of power_watts"),
        (of_another, "none of its segments"),
    ],
)
def test_a_forged_minute_does_not_verify(recorded: Bundle, forge: Forge, fault: str) -> None:
    place = third(recorded)

    def change(number: int, event: Event) -> Event | None:
        return forge(event) if number == place and isinstance(event, ReadingsFolded) else event

    with pytest.raises(EvidenceError, match=fault):
        check(recorded, altered(recorded, change))


def test_minutes_that_were_folded_together_do_not_verify(recorded: Bundle) -> None:
    place = third(recorded)
    last = recorded.lines[place].event
    assert isinstance(last, ReadingsFolded)
    before = next(
        (n, line.event)
        for n, line in reversed(list(enumerate(recorded.lines[:place])))
        if isinstance(line.event, ReadingsFolded) and line.event.device == last.device
    )
    one = before[1]
    wide = replace(last, index=one.index, begin_ns=one.begin_ns, groups=one.groups + last.groups)

    def change(number: int, event: Event) -> Event | None:
        return {place: wide, before[0]: None}.get(number, event)

    with pytest.raises(EvidenceError, match="folded by more than 1 min"):
        check(recorded, altered(recorded, change))


def test_steps_that_were_folded_together_do_not_verify(recorded: Bundle) -> None:
    def change(number: int, event: Event) -> Event:
        del number
        if not isinstance(event, Block):
            return event
        one, other, *rest = event.folded
        times = zip(one.wall_ns, other.wall_ns, strict=True)
        (low, _), (_, high), (sum_, more) = times
        wide = replace(
            one,
            count=one.count + other.count,
            wall_ns=(low, high, sum_ + more),
            event_ns=(low, high, sum_ + more),
        )
        return replace(event, folded=(wide, *rest))

    with pytest.raises(EvidenceError, match="steps folded by more than 1 min"):
        check(recorded, altered(recorded, change))


def test_steps_that_were_not_made_do_not_verify(recorded: Bundle) -> None:
    def change(number: int, event: Event) -> Event:
        del number
        if not isinstance(event, Block):
            return event
        first = event.folded[0]
        low, high, total = first.wall_ns
        mean = total // first.count
        more = replace(first, count=first.count + 1, wall_ns=(low, high, total + mean))
        rest = [replace(one, first=one.first + 1) for one in event.folded[1:]]
        pieces = (replace(more, event_ns=more.wall_ns), *rest)
        return replace(event, folded=pieces)

    with pytest.raises(EvidenceError, match="checked step"):
        check(recorded, altered(recorded, change))


def test_only_segments_may_fold(recorded: Bundle) -> None:
    cases = tuple(replace(case, workload="gemm") for case in recorded.plan.cases)
    with pytest.raises(EvidenceError, match="none of its segments works on"):
        check_folds(replace(recorded.plan, cases=cases), recorded.lines)


def test_the_last_minutes_of_a_segment_cannot_be_left_out(recorded: Bundle) -> None:
    block = next(n for n, line in enumerate(recorded.lines) if isinstance(line.event, Block))
    lines = [
        line
        for number, line in enumerate(recorded.lines)
        if not (block - 6 < number < block and isinstance(line.event, ReadingsFolded))
    ]
    with pytest.raises(EvidenceError, match="to the end of its block"):
        check_folds(recorded.plan, lines)


def test_no_segment_is_without_readings(recorded: Bundle) -> None:
    lines = [line for line in recorded.lines if not isinstance(line.event, ReadingsFolded)]
    with pytest.raises(EvidenceError, match="to the end of its block"):
        check_folds(recorded.plan, lines)


def test_lines_are_those_that_the_journal_has_on_disk(recorded: Bundle) -> None:
    again = chain([line.event for line in recorded.lines[:3]], sha256(to_json(recorded.plan)))
    assert recorded.lines[0].prev == again[0].prev
