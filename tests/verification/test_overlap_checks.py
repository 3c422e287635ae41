"""A process that was started beside the end of a launch did no more there than the journal says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from support.builders import PROTOCOL, a_case, a_plan, chain, healthy_events

from appliance.errors import EvidenceError
from appliance.records.journal import (
    AheadEnded,
    AheadIdle,
    Block,
    Event,
    LaunchAhead,
    LaunchEnded,
    LaunchStarted,
    Line,
    RunResumed,
    RunStarted,
    StageTimes,
    Started,
    TimedStage,
    UsersCounted,
)
from appliance.verification.launch_checks import check_launches
from appliance.verification.run_checks import check_conduct

FILES = {"plan.json": "p", "system.json": "s"}
PLAN = a_plan(a_case(), protocol=replace(PROTOCOL, mode="forked"))
FIRST, SECOND, THIRD = (f"gemm@cpu:0/{number}" for number in (1, 2, 3))
Forge = Callable[[list[Event]], list[Event]]
S = 10**9


def overlapped(**stages: float) -> list[Event]:
    """A run whose second timed launch was started beside the end of its first one.

    `stages` are seconds of what its process did before its launch began; a line takes one.
    """
    ahead: dict[TimedStage, int] = {}
    for name, seconds in (stages or {"device": 0.5, "build": 0.4}).items():
        ahead[name] = round(seconds * S)  # type: ignore[index]
    events: list[Event] = []
    for event in healthy_events(PLAN):
        if isinstance(event, RunStarted):
            event = replace(event, plan="p", system="s")  # noqa: PLW2901 - changed on the way
        if isinstance(event, LaunchEnded) and event.launch == FIRST:
            events.append(LaunchAhead(launch=SECOND, beside=(FIRST,), through="build"))
        if isinstance(event, LaunchStarted) and event.launch == SECOND:
            event = replace(event, is_ahead=True)  # noqa: PLW2901
        if isinstance(event, LaunchEnded) and event.launch == SECOND:
            times = StageTimes(launch=SECOND, rank=0, wall_ns={"timed": 1}, ahead_ns=ahead)
            events.append(times)
        events.append(event)
    return events


def fault(events: Sequence[Event]) -> str:
    """What an auditor says of the journal, or nothing."""
    lines: Sequence[Line] = chain(events)
    try:
        check_conduct(PLAN, lines, FILES)
        check_launches(PLAN, lines)
    except EvidenceError as error:
        return str(error)
    return ""


def at(kind: type[Event], launch: str, *put: Event, is_after: bool = False) -> Forge:
    """Puts events before, or after, the last of a kind of a launch."""

    def forge(events: list[Event]) -> list[Event]:
        places = [
            place
            for place, event in enumerate(events)
            if isinstance(event, kind) and getattr(event, "launch", "") == launch
        ]
        place = places[-1] + is_after
        return [*events[:place], *put, *events[place:]]

    return forge


def moved(kind: type[Event], launch: str) -> Forge:
    """Moves the order of the second launch before the last event of a kind."""

    def forge(events: list[Event]) -> list[Event]:
        (order,) = [event for event in events if isinstance(event, LaunchAhead)]
        left = [event for event in events if event is not order]
        return at(kind, launch, order)(left)

    return forge


def ordered(**values: object) -> Forge:
    def forge(events: list[Event]) -> list[Event]:
        return [
            replace(event, **values) if isinstance(event, LaunchAhead) else event  # type: ignore[arg-type]
            for event in events
        ]

    return forge


def dropped(kind: type[Event]) -> Forge:
    return lambda events: [event for event in events if not isinstance(event, kind)]


def started(**values: object) -> Forge:
    def forge(events: list[Event]) -> list[Event]:
        return [
            replace(event, **values)  # type: ignore[arg-type]
            if isinstance(event, LaunchStarted) and event.launch == SECOND
            else event
            for event in events
        ]

    return forge


ENDED = AheadEnded(launch=SECOND, reason="not_wanted")
FORGED: dict[str, tuple[Forge, str]] = {
    "beside a launch that is timed still": (
        moved(Block, FIRST),
        f"{SECOND} is started beside {FIRST}, which is timed still",
    ),
    "beside nothing": (ordered(beside=()), "beside others than those that run"),
    "beside another": (ordered(beside=(SECOND,)), "beside others than those that run"),
    "one that is not next": (
        lambda events: [
            replace(event, launch="gemm@cpu:0/3") if isinstance(event, LaunchAhead) else event
            for event in events
        ],
        "gemm@cpu:0/3 is started ahead, and is not made next",
    ),
    "twice": (
        at(LaunchAhead, SECOND, LaunchAhead(launch=SECOND, beside=(FIRST,), through="build")),
        "is started ahead a second time",
    ),
    "by another process than the one that waits": (
        started(is_ahead=False),
        "is not made by the process that waits for it",
    ),
    "by a process that was never started": (
        dropped(LaunchAhead),
        "is not made by the process that waits for it",
    ),
    "by a fresh process": (started(mode="fresh"), "is not made by the process that waits for it"),
    "by one that had ended": (
        at(LaunchStarted, SECOND, ENDED),
        "is not made by the process that waits for it",
    ),
    "an end of what was not started": (
        at(LaunchStarted, FIRST, ENDED),
        "ends that was not started ahead",
    ),
}


def test_an_honest_journal_is_let_through() -> None:
    assert fault(overlapped()) == ""


def test_a_process_that_is_ended_leaves_its_launch_to_another() -> None:
    events = started(is_ahead=False)(at(LaunchStarted, SECOND, ENDED)(overlapped()))
    told = [
        replace(event, ahead_ns={}) if isinstance(event, StageTimes) else event for event in events
    ]
    assert fault(told) == ""


def test_what_waited_has_ended_with_its_runner() -> None:
    resumed = RunResumed(interruption=1, interrupted=(), dropped="", pid=2)
    events = started(is_ahead=False)(at(LaunchStarted, SECOND, resumed)(overlapped()))
    told = [
        replace(event, ahead_ns={}) if isinstance(event, StageTimes) else event for event in events
    ]
    assert fault(told) == ""


@pytest.mark.parametrize("name", FORGED)
def test_an_order_that_no_runner_gives_is_found(name: str) -> None:
    forge, sentence = FORGED[name]
    assert sentence in fault(forge(overlapped()))


@pytest.mark.parametrize(
    ("stages", "sentence"),
    [
        ({"device": 0.1, "timed": 0.1}, "reports timed from before it began"),
        ({"device": 0.1, "warm_up": 0.1}, "reports warm_up from before it began"),
        ({"device": 0.1, "first_step": 0.1}, "reports first_step from before it began"),
        ({"build": 60.0}, "together take longer than it waited"),
        ({"device": 2.0, "build": -1.5}, "stages of no time, or of less"),
    ],
)
def test_work_before_its_turn_is_found(stages: dict[str, float], sentence: str) -> None:
    assert sentence in fault(overlapped(**stages))


def test_a_build_is_told_only_where_it_was_ordered() -> None:
    assert "reports build from before it began" in fault(ordered(through="device")(overlapped()))


def test_a_first_step_says_of_itself_that_it_was_ordered_ahead() -> None:
    """Else its time would be compared though another launch was beside it, or left out at will."""
    stepped = ordered(through="first_step")(overlapped(build=0.1))
    sentence = "otherwise than its order whether its first step was made beside"
    assert sentence in fault(stepped)
    marked = [
        replace(event, is_beside=True)
        if isinstance(event, Started) and event.launch == SECOND
        else event
        for event in stepped
    ]
    assert fault(marked) == ""
    assert sentence in fault(ordered(through="build")(marked))


def test_stages_ahead_without_an_order_are_found() -> None:
    events = started(is_ahead=False)(dropped(LaunchAhead)(overlapped()))
    assert "was not started ahead" in fault(events)


def test_a_run_does_not_end_while_a_process_waits() -> None:
    last = max(PLAN.launches, key=lambda launch: launch.number).id
    assert last != SECOND
    events = at(LaunchAhead, SECOND)(overlapped())
    left = [
        event
        for event in events
        if getattr(event, "launch", "") != SECOND or isinstance(event, LaunchAhead)
    ]
    assert "process of another waits" in fault(left)


def test_a_launch_that_is_fresh_by_rule_is_not_started_ahead() -> None:
    one = replace(a_case(), fresh_because="it differs")
    plan = a_plan(one, protocol=replace(PROTOCOL, mode="forked"))
    events = [
        replace(event, mode="fresh") if isinstance(event, LaunchStarted) else event
        for event in overlapped()
    ]
    with pytest.raises(EvidenceError, match="where its process begins alone"):
        check_conduct(plan, chain(events), FILES)


# ------------------------------------------------------------------ processes that stand by

NEXT = LaunchAhead(launch=SECOND, beside=(FIRST,), through="build")
STANDS_BY = LaunchAhead(launch=THIRD, beside=(FIRST,), through="device", idle_beside=(SECOND,))
IDLE = AheadIdle(launch=THIRD)
GOES_ON = LaunchAhead(launch=THIRD, beside=(SECOND,), through="build")


def standing_by(**stages: float) -> list[Event]:
    """A run whose third timed launch was set up beside the end of the first one, and waited.

    `stages` are seconds of what its process did before its launch began; a line takes one.
    """
    ahead = {"device": 0.5, "build": 0.4, **stages}
    put: dict[tuple[type[Event], str], tuple[Event, ...]] = {
        (LaunchEnded, FIRST): (NEXT, STANDS_BY),
        (LaunchStarted, SECOND): (IDLE,),
        (LaunchEnded, SECOND): (GOES_ON,),
        (LaunchEnded, THIRD): (
            StageTimes(
                launch=THIRD,
                rank=0,
                wall_ns={"timed": 1},
                ahead_ns={name: round(seconds * S) for name, seconds in ahead.items()},  # type: ignore[misc]
            ),
        ),
    }
    events: list[Event] = []
    for event in healthy_events(PLAN):
        if isinstance(event, RunStarted):
            event = replace(event, plan="p", system="s")  # noqa: PLW2901 - changed on the way
        name = getattr(event, "launch", "")
        events += put.get((type(event), name), ())
        if isinstance(event, LaunchStarted) and name in (SECOND, THIRD):
            event = replace(event, is_ahead=True)  # noqa: PLW2901
        events.append(event)
    return events


def changed(one: Event, *others: Event) -> Forge:
    """Puts others in the place of an event, or nothing."""
    return lambda events: [
        new for event in events for new in (others if event is one else (event,))
    ]


COUNTED = UsersCounted(
    device="cpu:0", count=2, memory_bytes=None, hint="", launch=SECOND, moment="inside"
)
FORGED_STANDBYS: dict[str, tuple[Forge, str]] = {
    "built beside what is timed": (
        changed(STANDS_BY, replace(STANDS_BY, through="build")),
        f"{THIRD} stands by beside {SECOND}, where none waits",
    ),
    "beside others than the next": (
        changed(STANDS_BY, replace(STANDS_BY, idle_beside=(FIRST,))),
        "stands by beside others than those that are next",
    ),
    "before the next one": (
        lambda events: changed(NEXT, STANDS_BY)(changed(STANDS_BY, NEXT)(events)),
        "stands by beside others than those that are next",
    ),
    "twice": (changed(STANDS_BY, STANDS_BY, STANDS_BY), "a second time"),
    "for another behind the first": (
        changed(STANDS_BY, STANDS_BY, replace(STANDS_BY, launch="gemm@cpu:0/4")),
        "gemm@cpu:0/4 stands by, and is not made after",
    ),
    "while the launch before is timed": (
        lambda events: at(Block, FIRST, NEXT, STANDS_BY)(changed(NEXT)(changed(STANDS_BY)(events))),
        "which is timed still",
    ),
    "set up beside what is timed": (
        lambda events: at(LaunchStarted, SECOND, IDLE, is_after=True)(changed(IDLE)(events)),
        f"{SECOND} starts while that of {THIRD} is not set up",
    ),
    "set up after all": (
        lambda events: at(LaunchEnded, SECOND, IDLE)(changed(IDLE)(events)),
        f"{SECOND} starts while that of {THIRD} is not set up",
    ),
    "set up where none stands by": (
        at(LaunchStarted, FIRST, IDLE),
        "where no process stands by for it",
    ),
    "begun without an order": (
        changed(GOES_ON),
        f"{THIRD} is not made by the process that waits for it",
    ),
    "gone on beside what is timed": (
        lambda events: at(Block, SECOND, GOES_ON)(changed(GOES_ON)(events)),
        "which is timed still",
    ),
    "made by another process": (
        lambda events: [
            replace(event, is_ahead=False)
            if isinstance(event, LaunchStarted) and event.launch == THIRD
            else event
            for event in events
        ],
        "is not made by the process that waits for it",
    ),
    "beside a launch that began alone": (
        lambda events: [
            replace(event, is_ahead=False)
            if isinstance(event, LaunchStarted) and event.launch == SECOND
            else event
            for event in at(LaunchStarted, SECOND, replace(ENDED, launch=SECOND))(events)
        ],
        f"{SECOND} starts while that of {THIRD} is not set up",
    ),
    "hidden among those that are counted": (
        at(Block, SECOND, COUNTED),
        "0 processes are said to wait on cpu:0",
    ),
    "counted where none waits": (
        at(Block, THIRD, replace(COUNTED, launch=THIRD, num_waiting=1)),
        "1 processes are said to wait on cpu:0",
    ),
}


def test_a_process_that_stood_by_is_let_through() -> None:
    assert fault(standing_by()) == ""
    counted = at(Block, SECOND, replace(COUNTED, num_waiting=1))
    assert fault(counted(standing_by())) == ""


def test_a_process_that_stood_by_and_was_ended_leaves_its_launch_to_another() -> None:
    ended = changed(GOES_ON, AheadEnded(launch=THIRD, reason="begins_alone"))(standing_by())
    told = [
        replace(event, ahead_ns={})
        if isinstance(event, StageTimes)
        else replace(event, is_ahead=False)
        if isinstance(event, LaunchStarted) and event.launch == THIRD
        else event
        for event in ended
    ]
    assert fault(told) == ""


@pytest.mark.parametrize("name", FORGED_STANDBYS)
def test_a_process_that_does_more_than_stand_by_is_found(name: str) -> None:
    forge, sentence = FORGED_STANDBYS[name]
    assert sentence in fault(forge(standing_by()))


@pytest.mark.parametrize(
    ("stages", "sentence"),
    [
        ({"device": 60.0}, "took longer to set its device up than it had before others were timed"),
        ({"build": 60.0}, "stages before its begin that together take longer than it waited"),
        ({"first_step": 0.1}, "reports first_step from before it began"),
    ],
)
def test_work_of_a_process_that_stood_by_is_held_to_its_time(
    stages: dict[str, float], sentence: str
) -> None:
    assert sentence in fault(standing_by(**stages))
