"""How long a device was held back while a case ran, by its own counters of nanoseconds.

Readings of the reasons miss what is shorter than their distance of half a second, and say nothing
of steps that are over sooner than the device's utilisation shows them. A device that counts the
time misses nothing. What its counters grew by around a launch, over the time in which the launch's
steps ran in it (first step, warm-up, blocks), is an upper bound of the share in which these were
held back: what grew in the build, in a check or after the last step is in it, too. On an H100
(driver 580) a burst of products of 0.2 s is counted as 0.5 s at the power limit, because the driver
takes a reason back some tenths of a second after the work.

So one event, however short, grows by about as much as one reading stands for. Where so little grew
in so little time that one event is more than the limit, it is open what it was (`is_open`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from appliance.records.journal import Counted
from appliance.records.vocabulary import THROTTLE_COUNTERS

READING_NS = 5 * 10**8
"""What a reading stands for (`runner.supervisor.TELEMETRY_SECONDS`), and one event grows by."""
LEAST_STEPS_NS = 50 * READING_NS
"""Time of steps for which a case is judged on its own; one event is then 2 % of it."""
MOST_CAUSES, LATE_NS = 2, 10**9
"""A counter adds up so many causes at most, and may show so late what had happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledTime:
    """Nanoseconds that counters grew by in launches, and those in which the launches' steps ran.

    `fault` says why no device can have counted so; what shows it is left out of `grown_ns`.
    """

    grown_ns: int = 0
    steps_ns: int = 0
    num_launches: int = 0
    fault: str = ""

    @property
    def share(self) -> float:
        """The upper bound of the share; needs steps."""
        return 0.0 if self.is_open else min(1.0, self.grown_ns / self.steps_ns)

    @property
    def is_open(self) -> bool:
        """Whether what grew may be one event, and the steps were too short to tell."""
        return 0 < self.grown_ns <= READING_NS and self.steps_ns < LEAST_STEPS_NS

    @property
    def gap(self) -> str:
        """Why the share is not the whole, or nothing."""
        if self.fault or not self.is_open:
            return self.fault
        return (
            f"its counters grew by {self.grown_ns * 1e-9:.2g} s while steps ran for "
            f"{self.steps_ns * 1e-9:.3g} s, as by one event: use a suite whose steps run for "
            f"{LEAST_STEPS_NS * 1e-9:.0f} s at least"
        )


def counters_of(reasons: Iterable[str], absent: frozenset[str], reported: set[str]) -> list[str]:
    """The counters that hold what reasons did; none unless each that the device can have has one.

    `absent` are readings that it cannot have, `reported` counters that it ever had a value of.
    """
    possible = [one for one in reasons if f"throttled_{one}" not in absent]
    if any(one not in THROTTLE_COUNTERS for one in possible):
        return []
    names = dict.fromkeys(name for one in possible for name in THROTTLE_COUNTERS[one])
    return list(names) if reported.issuperset(names) else []


def of_launch(
    where: str,
    spans: Sequence[tuple[Counted, Counted]],
    names: Sequence[str],
    *,
    passed_ns: int,
    steps_ns: int,
) -> ThrottledTime:
    """Of one launch ("in NAME"), by what was counted before and after it and the time between."""
    grown = {name: _grown(spans, name) for name in names}
    most = MOST_CAUSES * passed_ns + LATE_NS
    above = next((name for name, ns in grown.items() if ns > most), "")
    return ThrottledTime(
        grown_ns=sum(ns for ns in grown.values() if ns <= most),
        steps_ns=steps_ns,
        num_launches=1,
        fault=f"{above} grew by {grown[above] * 1e-9:.6g} s {where}, in "
        f"{passed_ns * 1e-9:.3g} s, which no device can have counted"
        if above
        else "",
    )


def joined(times: Sequence[ThrottledTime]) -> ThrottledTime:
    """Of several cases or launches together."""
    return ThrottledTime(
        grown_ns=sum(one.grown_ns for one in times),
        steps_ns=sum(one.steps_ns for one in times),
        num_launches=sum(one.num_launches for one in times),
        fault=next((one.fault for one in times if one.fault), ""),
    )


def _grown(spans: Sequence[tuple[Counted, Counted]], name: str) -> int:
    """What was seen to grow; that a counter went back or was not read is said of the counter."""
    ends = ((one.counters.get(name), other.counters.get(name)) for one, other in spans)
    return sum(max(0, end - begin) for begin, end in ends if begin is not None and end is not None)
