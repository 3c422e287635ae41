"""From one session of a run to the next: its end, the pause, and the begin on the same machine.

The next session begins by the program itself after the pause that the plan has, else when a person
goes on with the run. The machine is probed anew, and no clock may have been set back meanwhile:
times of another device, or at another time than is said, would be judged as this one's.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from appliance.errors import RunInterrupted, SessionsLeft, UsageError
from appliance.linux.boot_clock import boot_time
from appliance.planning import sessions
from appliance.records.journal import Line, SessionBegan, SessionEnded
from appliance.records.plan import Plan
from appliance.runner import execution
from appliance.storage.journal import Journal, as_written

TICK_SECONDS = 0.5


def end_session(folder: Path, plan: Plan, journal: Journal, session: int) -> None:
    """Record the end of a session; SessionsLeft if the plan has no pause to wait for."""
    now = boot_time()
    event = SessionEnded(session=session, boot=now.boot, since_boot_ns=now.since_boot_ns)
    journal.append(event, sync=True)
    if plan.pause_seconds is None:
        raise SessionsLeft(
            f"session {session} of {plan.sessions} has ended, and nothing is decided before the "
            f"last: begin the next one with `bench accept --resume {folder}`"
        )


@dataclass(frozen=True, kw_only=True)
class Pause:
    """The pause that a run is in; `last` is the journal's line on the end of the session."""

    folder: Path
    plan: Plan
    last: Line

    @property
    def ended(self) -> SessionEnded:
        if not isinstance(self.last.event, SessionEnded):
            raise TypeError("the run is in no pause")
        return self.last.event

    def end(self, identity: str, dropped: str) -> SessionBegan:
        """The next session, which begins now on the machine of this identity.

        UsageError where that is not the run's, or where the clock was set back.
        """
        if identity != self.plan.digests["identity"]:
            raise UsageError(
                f"{self.folder} cannot go on here: this is not the machine that it began on"
            )
        self._refuse()
        return self._began(identity, dropped)

    def _began(self, identity: str = "", dropped: str = "") -> SessionBegan:
        now = boot_time()
        return SessionBegan(
            session=self.ended.session + 1,
            boot=now.boot,
            since_boot_ns=now.since_boot_ns,
            identity=identity,
            dropped=dropped,
            pid=os.getpid(),
        )

    def wait(self) -> None:
        """Let the rest of the pause pass, by the clock that nobody can set.

        Raises RunInterrupted after a signal, UsageError where the clock was set back.
        """
        with execution.interruption() as interrupted:
            while (left := self._seconds_left()) > 0:
                self._refuse()
                name = interrupted()
                if name:
                    raise RunInterrupted(
                        f"stopped by {name} in the pause before session {self.ended.session + 1}; "
                        f"`bench accept --resume {self.folder}` goes on with it"
                    )
                time.sleep(min(TICK_SECONDS, left))

    def _refuse(self) -> None:
        """UsageError where the clocks say that no session can begin now."""
        now = as_written(datetime.now(UTC))
        reason = sessions.refusal(self.ended, self.last.utc, self._began(), now, None)
        if reason:
            raise UsageError(
                f"{self.folder} cannot go on: {reason}; set the clock right and go on, or start a "
                "new run"
            )

    def _seconds_left(self) -> float:
        now = as_written(datetime.now(UTC))
        passed = sessions.seconds_between(self.ended, self.last.utc, self._began(), now)
        return (self.plan.pause_seconds or 0.0) - passed
