"""Waits until a node is idle, so that a run is not begun beside somebody else's work.

Idle: for ten seconds in a row others use less than a tenth of the processors and of each
accelerator. That is the share from which rulings call a case disturbed, so a run that begins after
the wait begins undisturbed; what comes later is seen while the run goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from appliance.errors import NodeBusy, RunInterrupted, UsageError
from appliance.evidence.disturbance import DISTURBED_SHARE
from appliance.linux.processors import Processors
from appliance.linux.sysfs import Tree, or_none
from appliance.probe import conditions, node
from appliance.readiness import interference
from appliance.vendors.base import Vendor

IDLE_SECONDS = 10.0
TICK_SECONDS = 1.0
SAID_AGAIN_SECONDS = 30.0
MINUTE = 60.0
RULE = (
    f"others use less than {100 * DISTURBED_SHARE:.0f} % of the processors and of each device for "
    f"{IDLE_SECONDS:.0f} s in a row"
)


def wait(minutes: int, vendor: str | None, say: Callable[[str], object]) -> None:
    """Return once the node is idle.

    Raises NodeBusy when so many minutes are over, RunInterrupted where a person stops the wait.
    """
    Wait(limit_seconds=minutes * MINUTE, uses=NodeUse(vendor).clauses, say=say).until_idle()


@dataclass(kw_only=True)
class Wait:
    """One wait; `uses` says at each call who used what since the call before, nothing if idle."""

    limit_seconds: float
    uses: Callable[[], list[str]]
    say: Callable[[str], object]
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep

    def until_idle(self) -> None:
        """Return once nobody used anything for IDLE_SECONDS. Raises as `wait`."""
        self.say(f"waiting {_length(self.limit_seconds)} at most until the node is idle: {RULE}")
        try:
            self._until_idle()
        except KeyboardInterrupt:
            raise RunInterrupted(
                "stopped while waiting for an idle node; nothing was begun"
            ) from None

    def _until_idle(self) -> None:
        begin = idle_since = self.now()
        said_at, last = -SAID_AGAIN_SECONDS, ""
        while (now := self.now()) - idle_since < IDLE_SECONDS:
            if now - begin >= self.limit_seconds:
                raise NodeBusy(
                    f"the node was not idle within {_length(self.limit_seconds)}"
                    f"{f' ({last})' if last else ''}: stop other load, or give --wait-idle longer; "
                    "nothing was begun"
                )
            self.sleep(TICK_SECONDS)
            clauses = self.uses()
            if clauses:
                idle_since, last = self.now(), "; ".join(clauses)
                if self.now() - said_at >= SAID_AGAIN_SECONDS:
                    said_at = self.now()
                    self.say(f"not idle: {last}")
        self.say(f"the node is idle; waited {_length(self.now() - begin)}")


@dataclass
class NodeUse:
    """What others use of this node: its processors, and the devices of a vendor that is here."""

    name: str | None
    tree: Tree = field(default_factory=Tree)
    _vendor: Vendor | None = None
    _before: conditions.Moment | None = None

    def __post_init__(self) -> None:
        """Look for the vendor, and take the first of two moments."""
        try:
            self._vendor = node.present(self.name)
        except UsageError:
            self._vendor = None  # a host whose container sees the devices: the run will say it
        self._before = conditions.observe(self.tree)

    def clauses(self) -> list[str]:
        """Who used what since the last call."""
        before, now = self._before, conditions.observe(self.tree)
        self._before = now
        if before is None:
            return []
        return [
            *interference.of_processors(
                conditions.neighbour_facts(self.tree, before, now),
                conditions.foreign_processes(before, now),
                or_none(lambda: len(Processors(self.tree).online)),
            ),
            *self._of_devices(),
        ]

    def _of_devices(self) -> Iterator[str]:
        vendor = self._vendor
        for device in vendor.probe() if vendor is not None else ():
            used = vendor.read(device).get("utilisation_fraction") if vendor is not None else None
            if used is not None and used >= DISTURBED_SHARE:
                yield f"another program uses {device.id} ({100 * used:.0f} %)"


def _length(seconds: float) -> str:
    """A length of time in words."""
    if seconds < MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.0f} min"
