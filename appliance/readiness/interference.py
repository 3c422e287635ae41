"""Who else uses the node that a run is about to measure, in sentences for the one who starts it.

What the probe read is said before the first launch, and what the readings of the launches show
is said once while the run goes on. Processes are named by name and share alone: the terminal's
text goes into logs that others read. Rulings and pages weigh the same readings by
`evidence.disturbance`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from appliance.evidence.disturbance import DISTURBED_PART, DISTURBED_SHARE
from appliance.linux.sysfs import Tree
from appliance.probe import conditions
from appliance.records.journal import LaunchEnded, LaunchStarted, Line, Reading, UsersCounted
from appliance.records.system import Device, Facts, Process, System

PROCESSORS = "cpu"

MOST_NAMED = 3
STOP = "stop it, or wait with --wait-idle"
BESIDE = "times that are measured beside that are not judged"
HOST_ALONE = "what the host does for the devices may be slower for it"


def sentences(system: System) -> tuple[str, ...]:
    """What others use of the node as it was probed, each with what that means; or nothing."""
    facts, devices = system.conditions.facts, system.identity.devices
    is_judged = any(device.vendor == PROCESSORS for device in devices)
    others = system.conditions.foreign_processes
    host = of_processors(facts, others, num_processors(system))
    return (
        *(f"{clause}: {BESIDE if is_judged else HOST_ALONE}; {STOP}" for clause in host),
        *(f"{clause}: {BESIDE}; {STOP}" for one in devices for clause in _of_device(one, facts)),
    )


def num_processors(system: System) -> float | None:
    """Processors that a launch may use: of which rulings take others' share; else the node's."""
    usable = (one.facts.get("usable_processors") for one in system.identity.devices)
    for fact in (*usable, system.identity.host.get("logical_processors")):
        if fact is not None and isinstance(fact.value, int | float) and fact.value > 0:
            return fact.value
    return None


def of_processors(
    facts: Facts, processes: Sequence[Process], num_processors: float | None
) -> Iterator[str]:
    """A clause where others use a tenth of the processors or more."""
    fact = facts.get("used_by_others")
    used = fact.value if fact is not None else None
    if isinstance(used, int | float) and num_processors:
        share = used / num_processors
        if share >= DISTURBED_SHARE:
            whole = "one processor" if num_processors == 1 else f"{num_processors:g} processors"
            yield f"others use {100 * min(1.0, share):.0f} % of the {whole}{named(processes)}"


def named(processes: Iterable[Process]) -> str:
    """The busiest in parentheses, with their shares in processors; nothing where none is seen."""
    words = [f"{one.name} {one.cpu_share:.2f}" for one in processes]
    if not words:
        return ""
    more = f", and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
    return f" (busiest, in processors: {', '.join(words[:MOST_NAMED])}{more})"


def _of_device(device: Device, facts: Facts) -> Iterator[str]:
    """A clause where somebody computes on an accelerator before this run has used it."""
    fact = facts.get(f"{device.id}_utilisation")
    used = fact.value if fact is not None else None
    if isinstance(used, int | float) and used >= DISTURBED_SHARE:
        yield f"another program uses {device.id} ({100 * used:.0f} %)"


# ------------------------------------------------------------------ while the run goes on


@dataclass(kw_only=True)
class InterferenceWatch:
    """Follows a journal and says once that others disturb the run, with the busiest by name.

    `processors` are those that a launch may use, None where it is not known; lines before the
    one of number `since` are of an earlier part of the run.
    """

    processors: float | None
    say: Callable[[Sequence[str]], object]
    since: int = 0
    tree: Tree = field(default_factory=Tree)
    _shares: dict[str, list[float]] = field(default_factory=dict)
    _begin: conditions.Moment | None = None
    _is_said: bool = False

    def take(self, line: Line) -> None:
        """Note the next line of the journal."""
        event = line.event
        if self._is_said or line.seq < self.since:
            return
        if isinstance(event, LaunchStarted):
            self._begin = self._begin or conditions.observe(self.tree)
        elif isinstance(event, Reading):
            self._note(event)
        elif isinstance(event, UsersCounted):
            self._note_users(event)
        elif isinstance(event, LaunchEnded):
            self._conclude(event.launch)

    def _note(self, reading: Reading) -> None:
        foreign = reading.values.get("foreign_processors")
        if foreign is not None and self.processors:
            share = (foreign + (reading.values.get("stolen_processors") or 0.0)) / self.processors
            self._shares.setdefault(reading.launch, []).append(share)

    def _note_users(self, counted: UsersCounted) -> None:
        used = counted.values.get("utilisation_fraction")
        if counted.moment == "before" and counted.count and (used or 0.0) >= DISTURBED_SHARE:
            others = "another process uses" if counted.count == 1 else f"{counted.count} others use"
            self._tell(f"{others} {counted.device} ({100 * (used or 0.0):.0f} %)")

    def _conclude(self, launch: str) -> None:
        shares = self._shares.pop(launch, [])
        high = [share for share in shares if share >= DISTURBED_SHARE]
        if not high or len(high) < DISTURBED_PART * len(shares):
            return
        mean = 100 * min(1.0, sum(high) / len(high))
        busiest = named(self._processes())
        readings = f"in {len(high)} of {len(shares)} readings of {launch}"
        self._tell(f"others used {mean:.0f} % of the processors{busiest} {readings}")

    def _processes(self) -> tuple[Process, ...]:
        """Who used the processors since the first launch began."""
        if self._begin is None:
            return ()
        return conditions.foreign_processes(self._begin, conditions.observe(self.tree))

    def _tell(self, clause: str) -> None:
        self._is_said = True
        self.say((f"{clause}: {BESIDE}",))
