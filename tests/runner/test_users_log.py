"""When the runner counts who else has a device, and where it waits to see what they do on it."""

from collections.abc import Mapping

import pytest
from faulty.vendor import Vendor
from support.launching import case, plan

from appliance.evidence.disturbance import SETTLED_NS
from appliance.records.journal import Environment, Event, Started, UsersCounted
from appliance.records.system import Device
from appliance.runner.users_log import LOOK_NS, MOST_IN_A_ROW, UsersLog
from appliance.vendors.base import DeviceUsers

PLAN = plan(case("one"), case("two", device="cpu:1"))
LAUNCHES = [
    (launch, next(c for c in PLAN.cases if c.id == launch.case)) for launch in PLAN.launches
]
FIRST = LAUNCHES[0]
NAME, ON = FIRST[0].id, FIRST[1].all_devices
SECOND = 10**9


class Shared(Vendor):
    """A vendor whose first device has as many processes as a test says."""

    def __init__(self) -> None:
        self.count: int | None = 0
        self.readings: dict[str, float | None] = {"memory_used_bytes": 0.0}
        self.requested = 0

    def users(self, device: Device) -> DeviceUsers | None:
        self.requested += 1
        if device.index == 1:
            return None
        hint = "not allowed" if self.count is None else ""
        return DeviceUsers(count=self.count, memory_bytes=None, hint=hint)

    def read(self, device: Device) -> Mapping[str, float | None]:  # noqa: ARG002 - as the protocol
        return {**self.readings, "temperature_celsius": 40.0}


class Watched:
    """A log of two devices whose time moves on only as it sleeps."""

    def __init__(self) -> None:
        self.vendor, self.events = Shared(), list[Event]()
        self.at, self.slept = 0, 0.0
        self.log = UsersLog(
            vendors={self.vendor.name: self.vendor},
            devices={device.id: device for device in self.vendor.probe()},
            record=self.events.append,
            now=lambda: self.at,
            sleep=self.sleep,
        )

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.at += round(seconds * SECOND)

    @property
    def counted(self) -> list[tuple[int | None, str, str]]:
        events = (event for event in self.events if isinstance(event, UsersCounted))
        return [(event.count, event.launch, event.moment) for event in events]


def test_the_run_begins_and_ends_with_a_count_of_each_device_that_has_one() -> None:
    watched = Watched()
    watched.vendor.count = None
    watched.log.begin()
    watched.log.end()
    (begin, end) = watched.events
    assert begin == end
    assert begin == UsersCounted(
        device="cpu:0",
        count=None,
        memory_bytes=None,
        hint="not allowed",
        values={
            "memory_used_bytes": 0.0,
            "utilisation_fraction": None,
            "power_watts": None,
        },
    )


def test_a_device_that_nobody_has_is_never_waited_for() -> None:
    watched = Watched()
    watched.log.before([FIRST])
    watched.log.after([FIRST])
    watched.log.before([FIRST])
    assert watched.slept == 0
    assert watched.counted == [(0, NAME, "before")] * 2


def test_where_somebody_is_there_a_launch_waits_until_its_own_work_is_over_for_long() -> None:
    watched = Watched()
    watched.vendor.count = 1
    watched.log.before([FIRST])
    assert watched.slept == 0  # nothing of ours was on it yet
    watched.log.after([FIRST])
    watched.at += SECOND
    watched.log.before([FIRST])
    assert watched.slept * SECOND == SETTLED_NS - SECOND
    watched.log.after([FIRST])
    watched.at += 10 * SECOND
    before = watched.slept
    watched.log.before([FIRST])
    assert watched.slept == before


def test_memory_that_is_not_ours_is_somebody_where_processes_cannot_be_seen() -> None:
    watched = Watched()
    watched.vendor.count = None
    watched.log.after([FIRST])
    watched.log.before([FIRST])
    assert watched.slept == 0
    watched.vendor.readings["memory_used_bytes"] = 9e8
    watched.log.before([FIRST])
    assert watched.slept * SECOND == SETTLED_NS


def test_the_work_of_a_fork_server_counts_as_our_own() -> None:
    watched = Watched()
    watched.vendor.count = 1
    watched.log.used(ON)
    watched.log.before([FIRST])
    assert watched.slept * SECOND == SETTLED_NS


def test_inside_a_launch_it_is_counted_until_that_reports_and_once_after_its_first_step() -> None:
    watched = Watched()
    log = watched.log
    log.before([FIRST])
    watched.events.clear()
    log.inside(NAME, ON, is_ready=False)
    log.inside(NAME, ON, is_ready=False)
    log.take(Environment(launch=NAME, rank=0, facts={}))
    log.inside(NAME, ON, is_ready=False)
    log.take(Started(launch=NAME, rank=0, build_ns=1, first_step_ns=1))
    log.inside(NAME, ON, is_ready=False)
    log.inside(NAME, ON, is_ready=False)
    assert watched.counted == [(0, NAME, "inside")] * 3


def test_nothing_is_counted_once_steps_may_be_timed() -> None:
    watched = Watched()
    watched.log.before([FIRST])
    watched.log.take(Started(launch=NAME, rank=0, build_ns=1, first_step_ns=1))
    watched.vendor.requested = 0
    watched.log.inside(NAME, ON, is_ready=True)
    assert watched.vendor.requested == 0


def begun(watched: Watched, *, is_ahead: bool = False) -> None:
    """The first launch has begun, and made its first step."""
    watched.log.before([FIRST], is_ahead=is_ahead)
    watched.log.take(Environment(launch=NAME, rank=0, facts={}))
    watched.log.take(Started(launch=NAME, rank=0, build_ns=1, first_step_ns=1))


def test_a_launch_whose_process_waits_is_not_counted_before_it_begins() -> None:
    watched = Watched()
    watched.vendor.count = 1  # its own
    begun(watched, is_ahead=True)
    assert not watched.counted
    assert watched.slept == 0.0


def test_a_launch_that_is_over_is_counted_with_its_own_process_and_then_no_more() -> None:
    watched = Watched()
    begun(watched)
    watched.vendor.count = 1
    assert watched.log.is_alone(NAME, ON)
    watched.vendor.count = 2  # the next launch's process is there
    watched.log.inside(NAME, ON, is_ready=False)
    assert watched.counted == [(0, NAME, "before"), (1, NAME, "inside")]


def test_who_sees_another_on_a_device_is_not_alone_until_it_has_left() -> None:
    watched = Watched()
    begun(watched)
    watched.vendor.count = 2
    assert not watched.log.is_alone(NAME, ON)
    begun(watched, is_ahead=True)
    watched.vendor.count = 1
    assert not watched.log.is_alone(NAME, ON)  # nobody looked at the device without ours
    watched.vendor.count = 0
    begun(watched)
    watched.vendor.count = 1
    assert watched.log.is_alone(NAME, ON)


@pytest.mark.parametrize(
    ("seconds", "in_a_row"), [(0.9, 22), (LOOK_NS / SECOND / MOST_IN_A_ROW, 8), (35.0, 8)]
)
def test_a_device_is_looked_at_without_our_own_now_and_then(seconds: float, in_a_row: int) -> None:
    watched = Watched()
    watched.log.begin()
    alone, twice = [True], []
    while alone[-1]:
        begun(watched, is_ahead=True)
        watched.at += round(seconds * SECOND)
        alone.append(watched.log.is_alone(NAME, ON))
        twice.append(watched.log.may_follow_twice(ON))
    assert len(alone) - 2 == in_a_row
    assert twice == [True] * (in_a_row - 1) + [False, False]
    begun(watched)
    assert watched.log.is_alone(NAME, ON)


def test_a_launch_that_takes_longer_than_those_before_it_is_no_reason_to_look_later() -> None:
    watched = Watched()
    watched.log.begin()
    for _ in range(MOST_IN_A_ROW + 1):
        begun(watched, is_ahead=True)
        watched.at += SECOND
        assert watched.log.is_alone(NAME, ON)
    assert watched.log.may_follow_twice(ON)
    begun(watched, is_ahead=True)
    watched.at += LOOK_NS
    assert not watched.log.is_alone(NAME, ON)


def test_what_stands_by_is_nobody_else_and_is_not_there_where_the_device_is_looked_at() -> None:
    watched = Watched()
    watched.log.begin()
    twice = []
    for _ in range(MOST_IN_A_ROW):
        begun(watched, is_ahead=True)
        watched.at += LOOK_NS // MOST_IN_A_ROW
        watched.vendor.count = 2  # one of them waits
        assert watched.log.is_alone(NAME, ON, dict.fromkeys(ON, 1))
        twice.append(watched.log.may_follow_twice(ON))
    # The launch after the next one would begin alone: nothing waits for it, nor beside the next.
    assert twice == [True] * (MOST_IN_A_ROW - 1) + [False]
    assert {one.num_waiting for one in watched.events[-1:] if isinstance(one, UsersCounted)} == {1}
    begun(watched, is_ahead=True)
    watched.vendor.count = 3
    assert not watched.log.is_alone(NAME, ON, dict.fromkeys(ON, 1))
