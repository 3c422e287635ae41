"""What is read beside the launches of a run: when, how much of it is kept, and what is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from faulty.vendor import Vendor
from support.builders import bare_lines
from support.launching import Bench, case, plan

from appliance.errors import EvidenceError
from appliance.linux.kernel_log import KernelLog, Record
from appliance.linux.sysfs import Unreadable
from appliance.records.journal import (
    Block,
    Counted,
    Event,
    KernelLogged,
    KernelLogRead,
    LaunchEnded,
    LaunchStarted,
    NotObserved,
    RunEnded,
    RunStarted,
)
from appliance.records.json import sha256, to_json
from appliance.records.plan import Plan
from appliance.records.system import Device
from appliance.runner import counter_log
from appliance.runner.counter_log import MOST_FAULTS, CounterLog
from appliance.vendors.base import KernelFault
from appliance.verification.run_checks import check_conduct


@dataclass
class Log:
    """A kernel's log that a test writes; read as a new reader would, from its oldest line."""

    lines: list[tuple[int, str]] = field(default_factory=list)
    taken: int = 0
    is_closed: bool = False
    gap: str = ""

    def write(self, *texts: str) -> None:
        begin = self.lines[-1][0] + 1 if self.lines else 0
        self.lines += [(begin + number, text) for number, text in enumerate(texts)]

    def new(self) -> Iterator[Record]:
        while self.taken < len(self.lines):
            sequence, text = self.lines[self.taken]
            self.taken += 1
            yield Record(sequence=sequence, seconds=0.0, text=text)
        if self.gap:
            raise Unreadable(self.gap)

    def close(self) -> None:
        self.is_closed = True


class Card(Vendor):
    """A vendor whose devices count as a test says."""

    def __init__(self) -> None:
        self.errors = 0

    def counters(self, device: Device) -> Mapping[str, int | None]:  # noqa: ARG002 - as the protocol
        return {"ecc_uncorrected": self.errors, "links_down": None}

    def kernel_fault(self, line: str, devices: Sequence[Device]) -> KernelFault | None:
        if not line.startswith("Xid"):
            return None
        name = next((one.id for one in devices if one.id in line), "")
        return KernelFault(
            code=line.split(":", maxsplit=1)[0], device=name, is_fatal="79" in line, meaning=""
        )


PLAN = plan(case("one"), case("two", device="cpu:1"))
LAUNCHES = [
    (launch, next(c for c in PLAN.cases if c.id == launch.case)) for launch in PLAN.launches
]


class Watched:
    """An observer of two devices, and what it recorded."""

    def __init__(self, log: Log | None = None) -> None:
        self.card, self.log, self.events = Card(), log or Log(), list[Event]()
        self.log_under_test = self.again()

    def again(self) -> CounterLog:
        def opened() -> KernelLog:
            self.log.taken = 0
            return cast("KernelLog", self.log)

        return CounterLog(
            vendors={self.card.name: self.card},
            devices={device.id: device for device in self.card.probe()},
            record=self.events.append,
            open_log=opened,
        )

    def of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def test_the_begin_says_what_is_missing_and_what_cannot_be() -> None:
    watched = Watched()
    watched.log_under_test.begin(())
    one, other = watched.of(Counted)
    assert isinstance(one, Counted)
    assert isinstance(other, Counted)
    assert (one.device, other.device) == ("cpu:0", "cpu:1")
    assert (one.counters, one.launch, one.moment) == (
        {"ecc_uncorrected": 0, "links_down": None},
        "",
        "before",
    )
    assert (one.hints, one.absent) == ({"power_watts": "this vendor has no meter"}, ("links_down",))


def test_counters_are_written_again_only_where_they_changed() -> None:
    watched = Watched()
    watched.log_under_test.begin(())
    watched.log_under_test.before(LAUNCHES[:1])
    watched.card.errors = 1
    watched.log_under_test.after(LAUNCHES[:1])
    watched.log_under_test.before(LAUNCHES[2:3])
    result = [event for event in watched.of(Counted) if isinstance(event, Counted) and event.launch]
    assert [(one.moment, one.is_same, one.counters.get("ecc_uncorrected")) for one in result] == [
        ("before", True, None),
        ("after", False, 1),
        ("before", True, None),
    ]


def test_lines_before_the_run_are_none_of_its_faults() -> None:
    watched = Watched()
    watched.log.write("Xid 79: cpu:0 of yesterday", "usb")
    watched.log_under_test.begin(())
    watched.log.write("Xid 13: cpu:1", "usb", "Xid 79: somebody")
    watched.log_under_test.after(LAUNCHES[:2])
    watched.log_under_test.end()
    faults = [one for one in watched.of(KernelLogged) if isinstance(one, KernelLogged)]
    assert [(one.code, one.device, one.launch, one.is_fatal) for one in faults] == [
        ("Xid 13", "cpu:1", "two@cpu:1/0", False),
        ("Xid 79", "", "", True),
    ]
    marks = [one.sequence for one in watched.of(KernelLogRead) if isinstance(one, KernelLogRead)]
    assert marks == [1, 4]


def test_a_long_or_damaged_line_is_cut_and_kept_as_text() -> None:
    watched = Watched()
    watched.log_under_test.begin(())
    watched.log.write("Xid 13: " + "\udcff" + "x" * 1000)
    watched.log_under_test.after(LAUNCHES[:1])
    (fault,) = watched.of(KernelLogged)
    assert isinstance(fault, KernelLogged)
    assert len(fault.text) == counter_log.LONGEST_TEXT
    to_json(fault)


def test_what_was_logged_while_the_run_was_cut_short_is_read_when_it_goes_on() -> None:
    watched = Watched()
    watched.log.write("usb")
    watched.log_under_test.begin(())
    watched.log.write("Xid 31: cpu:0")
    watched.log_under_test.after(LAUNCHES[:1])
    watched.log.write("Xid 79: cpu:0, which ended the appliance")
    again = watched.again()
    again.begin(bare_lines(watched.events))
    again.end()
    codes = [one.code for one in watched.of(KernelLogged) if isinstance(one, KernelLogged)]
    assert codes == ["Xid 31", "Xid 79"]
    assert not watched.of(NotObserved)


def test_a_node_that_was_started_again_has_lost_the_end_of_its_log() -> None:
    watched = Watched()
    watched.log_under_test.begin(())
    watched.events = [
        KernelLogRead(boot="another", sequence=900) if isinstance(one, KernelLogRead) else one
        for one in watched.events
    ]
    watched.again().begin(bare_lines(watched.events))
    (gap,) = watched.of(NotObserved)
    assert isinstance(gap, NotObserved)
    assert gap.hint == counter_log.STARTED_AGAIN


@pytest.mark.parametrize("when", ["begin", "later"])
def test_a_log_that_is_forbidden_is_said_once(when: str) -> None:
    watched = Watched()
    if when == "begin":
        watched.log.gap = "add --cap-add SYSLOG"
    watched.log_under_test.begin(())
    watched.log.gap = "add --cap-add SYSLOG"
    for _ in range(3):
        watched.log_under_test.after(LAUNCHES[:1])
    watched.log_under_test.end()
    (gap,) = watched.of(NotObserved)
    assert isinstance(gap, NotObserved)
    assert (gap.hint, watched.log.is_closed) == ("add --cap-add SYSLOG", True)


def test_lines_that_were_overwritten_are_missed() -> None:
    watched = Watched()
    watched.log.write("usb")
    watched.log_under_test.begin(())
    watched.log.lines.append((50, "Xid 13: cpu:0"))
    watched.log_under_test.after(LAUNCHES[:1])
    assert [type(one) for one in watched.events[-1:]] == [NotObserved]


def test_a_flood_of_faults_is_cut_and_said_to_be() -> None:
    watched = Watched()
    watched.log_under_test.begin(())
    watched.log.write(*["Xid 13: cpu:0"] * (MOST_FAULTS + 10))
    watched.log_under_test.after(LAUNCHES[:1])
    assert len(watched.of(KernelLogged)) == MOST_FAULTS
    (gap,) = watched.of(NotObserved)
    assert isinstance(gap, NotObserved)
    assert gap.hint == counter_log.TOO_MANY


# ------------------------------------------------------------------ in a run


def test_a_run_reads_counters_when_no_launch_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    pair = plan(
        case("one"),
        case("two", device="cpu:1"),
        groups=[
            ("one@cpu:0/0", "two@cpu:1/0"),
            ("one@cpu:0/1", "two@cpu:1/1"),
        ],
    )
    bench = Bench(tmp_path / "run", pair)
    bench.run()
    running: set[str] = set()
    around: dict[str, list[str]] = {}
    for event in bench.events:
        if isinstance(event, LaunchStarted):
            running.add(event.launch)
        elif isinstance(event, LaunchEnded):
            running.discard(event.launch)
        elif isinstance(event, Counted | KernelLogRead | NotObserved):
            assert not running
        elif isinstance(event, Block):
            assert event.launch in running
        if isinstance(event, Counted):
            around.setdefault(event.launch, []).append(f"{event.device} {event.moment}")
    assert around == {
        "": ["cpu:0 before", "cpu:1 before", "cpu:0 after", "cpu:1 after"],
        **{
            name: [f"{name.partition('@')[2].partition('/')[0]} {moment}" for moment in MOMENTS]
            for group in pair.groups
            for name in group
        },
    }
    _conducted(pair, bench.events)


MOMENTS = ("before", "after")


def _conducted(result: Plan, events: Sequence[Event]) -> None:
    files = {"plan.json": sha256(to_json(result)), "system.json": "s"}
    begin = RunStarted(run_id=result.run_id, plan=files["plan.json"], system="s", pid=1)
    all_of_it = [begin, *events, RunEnded(launches=len(result.launches))]
    check_conduct(result, bare_lines(all_of_it), files)


def _counted(device: str, launch: str = "", moment: str = "before") -> Counted:
    return Counted(
        device=device,
        counters={},
        launch=launch,
        moment="before" if moment == "before" else "after",
    )


@pytest.mark.parametrize(
    ("made", "output"),
    [
        (_counted("cpu:9"), "does not use"),
        (_counted("cpu:0", "nothing/0"), "not in the plan"),
        (_counted("cpu:1", "one@cpu:0/0"), "where it does not run"),
        (_counted("cpu:0", "one@cpu:0/0", "after"), "before it has one"),
    ],
)
def test_counters_of_the_wrong_place_are_a_fault(made: Counted, output: str) -> None:
    with pytest.raises(EvidenceError, match=output):
        _conducted(PLAN, [made])


@pytest.mark.parametrize(
    "made",
    [
        _counted("cpu:0"),
        KernelLogRead(boot="b", sequence=1),
        NotObserved(what="kernel_log", hint=""),
    ],
    ids=lambda one: one.kind,
)
def test_nothing_is_read_while_a_launch_runs(made: Event) -> None:
    started = LaunchStarted(launch="one@cpu:0/0", mode="forked")
    with pytest.raises(EvidenceError, match="while a launch runs"):
        _conducted(PLAN, [started, made])
