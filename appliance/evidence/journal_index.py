"""The index of the journal: its lines, fed one by one, sorted by launch, case and run.

The judge feeds it as records arrive; `verify` and the report replay the same lines into one. Lines
are taken one after another, so that an interim analysis costs only what came since the one before
it; what is computed of blocks is computed for all new ones together, by `settle`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from appliance.evidence.budget import Budget, BudgetSums
from appliance.evidence.disturbance import IdleTimes, idle_reading, users_seen
from appliance.evidence.folding import Sampled, sampled_of
from appliance.evidence.launches import CaseEvidence, LaunchEvidence, RunEvidence
from appliance.records.journal import (
    AttemptBegun,
    Block,
    Counted,
    Environment,
    Injected,
    InterimAnalysis,
    KernelLogged,
    KernelLogRead,
    LaunchEnded,
    LaunchStarted,
    Libraries,
    LibrariesHashed,
    LibrariesMapped,
    Line,
    NotObserved,
    Reading,
    ReadingsFolded,
    RunResumed,
    RunStarted,
    ServerProbed,
    SessionBegan,
    SessionEnded,
    UsersCounted,
)
from appliance.records.json import from_json, sha256
from appliance.records.plan import Plan
from appliance.statistics.estimates import block_figures
from appliance.storage.journal import as_written, replay

OF_RUN: frozenset[type] = frozenset(
    {
        Counted,
        KernelLogRead,
        KernelLogged,
        NotObserved,
        Environment,
        Libraries,
        LibrariesMapped,
    }
)
"""What is stored by run, although a line of it may name a launch."""


class JournalIndex:
    """What the journal holds of every planned case, line by line, for the judge and the report.

    `cases` are by id, `run` is what is of no case, `attempt` the number that the buyer's receipt
    gave, 0 without one. The rest is for whoever shows the run: the times (UTC) of its first and
    last line, resumptions with their times, launches that were cut short with the number of
    resumptions before them, ends and begins of sessions with theirs, the last interim analysis of
    each case, what the fork servers' probes said, and in the journal's order readings with their
    times, and what launches ran in and ran, with the `digests` of files by identity. `budget` is
    what its time went to. Who shows nothing needs no readings of the run beside those of its
    launches (`are_shown`).
    """

    def __init__(self, plan: Plan, *, are_shown: bool = True) -> None:
        self.run = RunEvidence()
        self.attempt = 0
        self.begin_utc = ""
        self.end_utc = ""
        self.resumptions: list[tuple[str, RunResumed]] = []
        self.cut: list[tuple[int, str]] = []
        self.session_ends: list[tuple[str, SessionEnded]] = []
        self.session_begins: list[tuple[str, SessionBegan]] = []
        self.interim_analyses: dict[str, InterimAnalysis] = {}
        self.probes: list[ServerProbed] = []
        self._are_shown = are_shown
        self._read: list[tuple[Line, Sampled]] = []
        self._readings: tuple[int, list[tuple[str, Sampled]]] = 0, []
        self.environments: list[Environment] = []
        self.libraries: list[Libraries | LibrariesMapped] = []
        self.digests: dict[str, str | None] = {}
        self.budget = BudgetSums()
        self._run_id = plan.run_id
        self._launches = {
            launch.id: LaunchEvidence(launch.id, launch.number, launch.session)
            for launch in plan.launches
        }
        by_case: dict[str, list[LaunchEvidence]] = {case.id: [] for case in plan.cases}
        for launch in plan.launches:
            by_case[launch.case].append(self._launches[launch.id])
        self.cases = {
            case.id: CaseEvidence(
                case=case,
                protocol=plan.protocol,
                launches=tuple(one for one in by_case[case.id] if one.number >= 0),
                repeats=tuple(one for one in by_case[case.id] if one.number < 0),
                run=self.run,
                sessions=plan.sessions,
            )
            for case in plan.cases
        }
        self._case_of = {launch.id: self.cases[launch.case] for launch in plan.launches}
        self._idle = IdleTimes({launch: one.case for launch, one in self._case_of.items()})
        self._unsettled: list[tuple[LaunchEvidence, Block]] = []
        self._num_started = 0

    def take(self, line: Line) -> None:
        """Add the next line."""
        event = line.event
        self.budget.take(line)
        self.begin_utc, self.end_utc = self.begin_utc or line.utc, line.utc
        name: str = getattr(event, "launch", "")
        launch = self._launches.get(name)
        self.run.interruptions.take(event, was_open=launch is not None and launch.is_open)
        if isinstance(event, Reading | ReadingsFolded):
            self._take_readings(line, event, launch)
        elif type(event) in OF_RUN:
            self._take_beside(event, line.monotonic_ns)
        self._idle.take(line)
        if launch is not None:
            if isinstance(event, Reading | UsersCounted):
                self._take_use(launch, event, line)
            if isinstance(event, LaunchStarted):
                self._num_started += 1
                self.run.is_log_read = False
            if isinstance(event, LaunchEnded) and event.outcome == "interrupted":
                self.cut.append((len(self.resumptions), name))
            launch.take(event, line.utc, self._num_started)
            self._case_of[name].version += 1
            if isinstance(event, Block):
                self._unsettled.append((launch, event))
        elif name:
            self._note(f"the journal reports {name}, which was not planned")
        else:
            self._take_of_run(event, line.utc)

    @property
    def launches(self) -> Mapping[str, LaunchEvidence]:
        """Every planned launch by its id, in the order of the plan."""
        return self._launches

    @property
    def readings(self) -> list[tuple[str, Sampled]]:
        """All readings, each with its time (UTC); made when asked for, as only pages show them."""
        if self._readings[0] != len(self._read):
            made = [(_moment(one, line), one) for line, one in self._read]
            self._readings = len(self._read), made
        return self._readings[1]

    def settle(self) -> None:
        """Compute the figures of all blocks that came since the last time."""
        settled = block_figures([block for _, block in self._unsettled])
        for (launch, _), figures in zip(self._unsettled, settled, strict=True):
            launch.settle(figures)
        self._unsettled.clear()

    def _take_readings(
        self, line: Line, event: Reading | ReadingsFolded, launch: LaunchEvidence | None
    ) -> None:
        """Store readings by launch and, where they are shown, with the line of each."""
        several = sampled_of(event, "" if launch is None else launch.phase)
        if self._are_shown:
            self._read += [(line, one) for one in several]
        if launch is not None:
            launch.sample(event, several, line.utc)

    def _take_use(self, launch: LaunchEvidence, event: Reading | UsersCounted, line: Line) -> None:
        """Store what an event says of others on a device of the launch."""
        if isinstance(event, UsersCounted):
            launch.users += (users_seen(event, launch, self._case_of[launch.id].case),)
        has_values = isinstance(event, Reading) or event.moment == "before"
        is_before = isinstance(event, UsersCounted) or not launch.has_reported
        if has_values and is_before and self._idle.is_settled(event.device, line):
            launch.idle += (idle_reading(event),)

    def _take_beside(self, event: object, now_ns: int) -> None:
        """Store what is asked of the run, whether or not it names a launch."""
        match event:
            case Counted():
                self.run.count(event, now_ns)
            case KernelLogRead() | KernelLogged() | NotObserved():
                self.run.log(event)
            case Environment():
                self.environments.append(event)
            case Libraries() | LibrariesMapped():
                self.libraries.append(event)

    def _take_of_run(self, event: object, utc: str) -> None:
        match event:
            case RunResumed():
                self.resumptions.append((utc, event))
                self._go_on()
            case SessionEnded():
                self.session_ends.append((utc, event))
                self.run.pause(event)
            case SessionBegan():
                self.session_begins.append((utc, event))
                self.run.pause(event)
                self._go_on()
            case RunStarted() if event.run_id != self._run_id:
                self._note(f"the journal is of the run {event.run_id}")
            case AttemptBegun():
                self.attempt = event.attempt
            case Injected():
                self.run.injected.append(event.injector)
            case InterimAnalysis():
                self.interim_analyses[event.case] = event
            case ServerProbed():
                self.probes.append(event)
            case LibrariesHashed():
                self.digests.update(event.digests)
            case _:  # the begin and the end
                pass

    def _go_on(self) -> None:
        """Another process goes on: what was under way is cut, and every ruling may change."""
        for launch in self._launches.values():
            launch.cut()
            launch.go_on()
        for case in self.cases.values():
            case.version += 1

    def _note(self, fault: str) -> None:
        self.run.fault = self.run.fault or fault


def _moment(sampled: Sampled, line: Line) -> str:
    """When it was read (UTC), by the clock of the line that it stands in."""
    if sampled.at_ns is None:
        return line.utc
    before = timedelta(microseconds=(line.monotonic_ns - sampled.at_ns) // 1000)
    return as_written(datetime.fromisoformat(line.utc) - before)


def index_of(plan: Plan, lines: Iterable[Line]) -> JournalIndex:
    """The index of a whole journal, settled."""
    index = JournalIndex(plan)
    for line in lines:
        index.take(line)
    index.settle()
    return index


def budget_of(plan: bytes, journal: bytes) -> Budget:
    """What the time of a run went to, by its two files; EvidenceError where they are none."""
    lines = replay(journal, sha256(plan))
    return index_of(from_json(Plan, plan, name="plan.json"), lines).budget.now()
