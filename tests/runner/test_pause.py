"""The pause between two sessions: how it ends, and what forbids the next one."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.builders import a_plan

from appliance.errors import RunInterrupted, UsageError
from appliance.linux.boot_clock import boot_time
from appliance.records.journal import Line, SessionEnded
from appliance.runner.session_change import Pause
from appliance.storage.journal import as_written

IDENTITY = "a" * 64


def paused(seconds: float | None, *, ago: float = 0.0, ahead: float = 0.0) -> Pause:
    """A run with such a pause, whose session ended so long `ago`, by a clock so far `ahead`."""
    plan = replace(a_plan(sessions=2), pause_seconds=seconds, digests={"identity": IDENTITY})
    now = boot_time()
    ended = SessionEnded(
        session=1, boot=now.boot, since_boot_ns=now.since_boot_ns - round(ago * 1e9)
    )
    utc = as_written(datetime.now(UTC) - timedelta(seconds=ago - ahead))
    last = Line(seq=7, utc=utc, monotonic_ns=1, prev="", event=ended)
    return Pause(folder=Path("out/run"), plan=plan, last=last)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT as a terminal leaves it; a shell starts a job in the background with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def strike(number: signal.Signals, before: object) -> None:
    """Send a signal once somebody else than `before` takes it."""
    while signal.getsignal(number) == before:
        time.sleep(0.01)
    os.kill(os.getpid(), number)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_pause_ends_it_with_how_to_go_on(number: signal.Signals) -> None:
    striker = threading.Thread(target=strike, args=(number, signal.getsignal(number)))
    striker.start()
    with pytest.raises(RunInterrupted) as caught:
        paused(3600.0).wait()
    striker.join()
    assert str(caught.value) == (
        f"stopped by {number.name} in the pause before session 2; "
        "`bench accept --resume out/run` goes on with it"
    )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_only_the_rest_of_a_pause_is_waited_for() -> None:
    begin = time.monotonic()
    paused(3600.0, ago=3599.5).wait()
    assert time.monotonic() - begin >= 0.4
    paused(None).wait()
    paused(0.0).wait()


def test_the_next_session_begins_on_the_same_machine_only() -> None:
    began = paused(None).end(IDENTITY, "half a line")
    assert (began.session, began.identity, began.dropped) == (2, IDENTITY, "half a line")
    with pytest.raises(UsageError, match="this is not the machine that it began on"):
        paused(None).end("b" * 64, "")


def test_a_clock_that_was_set_back_begins_none() -> None:
    with pytest.raises(UsageError, match=r"the clock was set back by .* between sessions 1 and 2"):
        paused(None, ago=60.0, ahead=7200.0).end(IDENTITY, "")
    with pytest.raises(UsageError, match="the clock was set back"):
        paused(7200.0, ago=60.0, ahead=600.0).wait()
