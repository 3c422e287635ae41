"""What a run's time went to, by its journal: the stages of its launches, and what lay between them.

Between two lines of the journal in which no launch was open, the time goes to what the later one
reports: a fork server, an interim analysis, counters. While launches were open it goes to their
stages; several at once share it in equal parts. What came after a rank's last record is its `end`,
and a launch that reported nothing (it was killed, or is of an older version) is "not_measured":
nothing is estimated. The parts add up to the run's time, pauses and interruptions left out.

What a process did before its launch began, beside the end of another launch, is in that one's time
already. So it is no part, and is named beside them; its waiting is neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from appliance.records.journal import (
    Counted,
    InterimAnalysis,
    KernelLogged,
    KernelLogRead,
    LaunchEnded,
    LaunchStarted,
    Line,
    NotObserved,
    RunPlanned,
    RunResumed,
    RunStarted,
    ServerProbed,
    SessionBegan,
    StageTimes,
    TimedStage,
    UsersCounted,
)

PLAN, SERVERS, JUDGE, COUNTERS, BETWEEN = "plan", "servers", "judge", "counters", "between"
NOT_MEASURED = "not_measured"
PARTS: tuple[str, ...] = (
    PLAN,
    SERVERS,
    *get_args(TimedStage),
    JUDGE,
    COUNTERS,
    BETWEEN,
    NOT_MEASURED,
)
"""All parts of a run, in the order in which they are shown."""
USEFUL: frozenset[str] = frozenset({"warm_up", "timed"})
"""What a run is made for: steps under load, a burn-in's among them."""
LABELS: Mapping[str, str] = {
    PLAN: "planning",
    SERVERS: "fork servers",
    "start": "process start",
    "import": "imports",
    "device": "device set-up",
    "build": "inputs and models",
    "first_step": "first step",
    "digest": "digests",
    "check": "checks",
    "calibrate": "clocks",
    "warm_up": "warm-up",
    "wait": "wait for others",
    "timed": "timed steps",
    "untimed": "untimed steps",
    "evaluate": "evaluations",
    "second_build": "second build",
    "end": "process end",
    "other": "other",
    JUDGE: "judge",
    COUNTERS: "counters",
    BETWEEN: "between launches",
    NOT_MEASURED: "not measured",
}
"""What each part is called."""
MINUTE = 60
LEAST_SHARE = 0.01
"""A smaller part is not named in the sentence."""
_BETWEEN: Mapping[type, str] = {
    ServerProbed: SERVERS,
    InterimAnalysis: JUDGE,
    Counted: COUNTERS,
    UsersCounted: COUNTERS,
    KernelLogRead: COUNTERS,
    KernelLogged: COUNTERS,
    NotObserved: COUNTERS,
}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Seconds of each part of a run that took any, in the order of PARTS.

    `beside` are seconds that processes began before their launches, in parts of others.
    """

    seconds: Mapping[str, float]
    beside: float = 0.0

    @property
    def whole(self) -> float:
        """Seconds of all parts."""
        return sum(self.seconds.values())

    @property
    def useful(self) -> float:
        """Seconds of warm-up and timed steps."""
        return sum(self.seconds.get(part, 0.0) for part in USEFUL)

    @property
    def is_measured(self) -> bool:
        """Whether any launch reported its stages."""
        return any(part in self.seconds for part in get_args(TimedStage))


def sentence(budget: Budget) -> str:
    """Where the time went, the largest first: "of 2 min 3 s: 21 % useful, 30 % imports, ..."."""
    whole = budget.whole
    if whole <= 0.0 or not budget.is_measured:
        return "what the time went to was not measured"
    named = [f"{_percent(budget.useful / whole)} useful"]
    rest = 0.0
    for part, seconds in sorted(budget.seconds.items(), key=lambda item: -item[1]):
        if part in USEFUL:
            continue
        if seconds < LEAST_SHARE * whole and part != NOT_MEASURED:
            rest += seconds
        else:
            named.append(f"{_percent(seconds / whole)} {LABELS[part]}")
    if rest:
        named.append(f"{_percent(rest / whole)} all else")
    if budget.beside:
        named.append(f"and {duration(budget.beside)} of coming launches beside the end of others")
    return f"of {duration(whole)}: {', '.join(named)}"


def duration(seconds: float) -> str:
    """A length of time as people say it: "31 min 5 s", or "4.2 s" below a minute."""
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), MINUTE)
    return f"{minutes} min {rest} s"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def together(budgets: Iterable[Mapping[str, float]]) -> Budget:
    """The sum of seconds by part, in the order of PARTS."""
    several = list(budgets)
    sums = {part: sum(one.get(part, 0.0) for one in several) for part in PARTS}
    return Budget(seconds={part: seconds for part, seconds in sums.items() if seconds > 0.0})


def launch_stages(ranks: Sequence[StageTimes], wall_ns: int) -> dict[str, float]:
    """Nanoseconds of each stage of one launch, as the mean of its ranks; they fill its time."""
    if not ranks:
        return {NOT_MEASURED: float(wall_ns)}
    stages: dict[str, float] = {}
    for times in ranks:
        for stage, passed in times.wall_ns.items():
            stages[stage] = stages.get(stage, 0.0) + passed / len(ranks)
    stages["end"] = stages.get("end", 0.0) + max(0.0, wall_ns - sum(stages.values()))
    return stages


@dataclass
class _Open:
    """A launch under way: when it began, and what its ranks have reported."""

    begin_ns: int
    ranks: list[StageTimes] = field(default_factory=list)

    def stages(self, end_ns: int, *, has_ended: bool) -> dict[str, float]:
        """Nanoseconds of each of its stages, as the mean of its ranks; they fill its time."""
        return launch_stages(self.ranks if has_ended else (), end_ns - self.begin_ns)


@dataclass
class BudgetSums:
    """The sums over a journal's lines, taken one after another."""

    _passed: dict[str, float] = field(default_factory=dict)
    _open: dict[str, _Open] = field(default_factory=dict)
    _together: dict[str, float] = field(default_factory=dict)
    _ahead: float = 0.0
    _since_ns: int | None = None
    _busy_since_ns: int = 0

    def take(self, line: Line) -> None:
        """Add the next line."""
        event, now = line.event, line.monotonic_ns
        match event:
            case RunStarted() | RunResumed() | SessionBegan():
                self._cut()
            case RunPlanned():
                self._add(PLAN, event.wall_ns)
            case LaunchStarted():
                self._start(event.launch, now)
            case StageTimes() if event.launch in self._open:
                self._open[event.launch].ranks.append(event)
                self._ahead += sum(event.ahead_ns.values())
            case LaunchEnded() if event.launch in self._open:
                self._end(event.launch, now, has_ended=True)
            case _:
                self._between(_BETWEEN.get(type(event), BETWEEN), now)
        self._since_ns = now

    def now(self) -> Budget:
        """What was summed up so far, launches under way left out."""
        known = {
            part: self._passed[part] * 1e-9 for part in PARTS if self._passed.get(part, 0.0) > 0.0
        }
        return Budget(seconds=known, beside=self._ahead * 1e-9)

    def _add(self, part: str, nanoseconds: float) -> None:
        self._passed[part] = self._passed.get(part, 0.0) + nanoseconds

    def _between(self, part: str, now: int) -> None:
        if not self._open and self._since_ns is not None:
            self._add(part, now - self._since_ns)

    def _start(self, launch: str, now: int) -> None:
        self._between(BETWEEN, now)
        if not self._open:
            self._busy_since_ns = now
        self._open[launch] = _Open(begin_ns=now)

    def _end(self, launch: str, now: int, *, has_ended: bool) -> None:
        ended = self._open.pop(launch)
        for stage, passed in ended.stages(now, has_ended=has_ended).items():
            self._together[stage] = self._together.get(stage, 0.0) + passed
        if self._open:
            return
        of_all = sum(self._together.values())
        share = (now - self._busy_since_ns) / of_all if of_all > 0.0 else 0.0
        for stage, passed in self._together.items():
            self._add(stage, passed * share)
        self._together.clear()

    def _cut(self) -> None:
        """End what was under way with its process, whose clock the next line may not share."""
        for launch in list(self._open):
            self._end(launch, self._since_ns or 0, has_ended=False)
        self._since_ns = None
