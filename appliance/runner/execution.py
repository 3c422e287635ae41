"""The parent: makes the launches of a plan, one child process each, and records their messages.

It never imports torch, so no device is touched before the first launch. A launch that crashes,
hangs or exhausts memory is a result and is recorded as one. A run that ends early, however it
ends, goes on from its journal.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Protocol

from appliance.challenge.window import inputs_seed
from appliance.errors import ApplianceError, OutputError, RunInterrupted
from appliance.evidence import run_state
from appliance.evidence.folding import fold_ns
from appliance.evidence.software_fault import UNAVAILABLE
from appliance.generator.words import FILE
from appliance.ipc.channel import Listener
from appliance.planning import sessions
from appliance.planning.launch_constants import SHARED_MEMORY, may_stand_by
from appliance.planning.plan import case_analyses, case_seed, fresh_controls
from appliance.records.journal import (
    AheadEnded,
    AheadIdle,
    AheadReason,
    AheadThrough,
    Event,
    InterimAnalysis,
    LaunchAhead,
    LaunchEnded,
    LaunchStarted,
    Line,
    Outcome,
    ServerProbed,
)
from appliance.records.plan import Case, Launch, Plan
from appliance.records.qualified import IdleNeighbour, ObservedCase
from appliance.records.request import LaunchSpec
from appliance.records.suite import LaunchMode, LibraryMode
from appliance.records.system import Device
from appliance.runner.children import Guard, ServerLost
from appliance.runner.counter_log import CounterLog
from appliance.runner.environment import usable_cores
from appliance.runner.head_start import HeadStart
from appliance.runner.launcher import Launcher, file_name
from appliance.runner.overlap import USED, Room, may_follow, recorded_bytes, takes_several
from appliance.runner.reading_log import ReadingLog
from appliance.runner.supervisor import RunningLaunch, Supervisor, lost_ahead, running_launch
from appliance.runner.users_log import UsersLog
from appliance.scheduling.idle_neighbours import is_harmless
from appliance.scheduling.left_time import Given, LeftTime
from appliance.storage import plain_files
from appliance.storage.journal import Journal
from appliance.storage.plain_files import Folder
from appliance.vendors.base import Vendor

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EFBIG)
LONGEST_LOG = 2**20
MOST_AHEAD = 4
"""Processes that import ahead, and fresh ones that wait with all imported, at most of each.

Fewer import at a time where there are fewer cores beside the launch's."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

OF_ALL: frozenset[AheadReason] = frozenset({"earlier_failed", "interrupted"})
"""Why all processes that were started ahead are ended, not only the next ones."""
_DEVICE: AheadThrough = "device"
SERVER_ENDED = "the server ended while a launch that it had forked waited"

Analyse = Callable[[str], tuple[bool, str]]
"""Whether a case is decided by what the journal holds, and why; see `Judge.interim_analysis`."""


class Observer(Protocol):
    """Whoever watches a run: receives every launch that is settled, made or not.

    `suite_chosen` is of a run for which nobody named a suite. `preflight_warnings` comes before any
    launch: why the run cannot end accepted, if it cannot. `run_begins` comes for each session, and
    `time_given` for each wave of launches that the time left is given to.
    """

    def suite_chosen(self, plan: Plan) -> None: ...
    def preflight_warnings(self, sentences: Sequence[str]) -> None: ...
    def run_begins(self, plan: Plan, num_done: int, session: int) -> None: ...
    def session_ended(self, plan: Plan, session: int) -> None: ...
    def server_probed(self, event: ServerProbed) -> None: ...
    def launch_started(self, launch: Launch, mode: LaunchMode) -> None: ...
    def launch_ended(self, launch: Launch, event: LaunchEnded) -> None: ...
    def analysed(self, event: InterimAnalysis) -> None: ...
    def time_given(self, given: Given) -> None: ...


def run(
    *,
    plan: Plan,
    vendors: Mapping[str, Vendor],
    devices: Mapping[str, Device],
    journal: Journal,
    folder: Path,
    work: Path,
    data: Path | None,
    interim_analysis: Analyse,
    observer: Observer,
    num_threads: int | None = None,
    redact: Callable[[bytes], bytes] | None = None,
    interrupted: Callable[[], str] | None = None,
    wanted: Callable[[Launch], bool] | None = None,
    ahead: HeadStart | None = None,
    scratch: Path | None = None,
    overlaps: bool | None = None,
    observed: Sequence[ObservedCase] = (),
    idle: Sequence[IdleNeighbour] = (),
    judged_first_steps: frozenset[str] = frozenset(),
) -> None:
    """Make every launch of the session that the journal does not have yet, and its analyses.

    The session is the one that the journal is in; with the last of them the plan is made.

    `folder` is the bundle, which gets logs/; `work` holds caches and artifacts and must stay
    the same when a run goes on. `num_threads` None means the physical cores, shared among the
    launches of the largest group. `redact` goes over what a launch printed, before it is stored.
    `interrupted` names what ends the run early, in place of a signal that is caught here. A launch
    that is not `wanted` when its turn comes is neither made nor recorded. `ahead` may have begun
    to import for the first launches. `scratch` is where launches put large files, None for `work`.
    `overlaps`: processes of coming launches begin beside the end of those before; None asks the
    vendor of each device. `observed` are records of cases, by which the first launch of one may be
    built beside another's end. By `idle`, those that the bundle has, launches of a device's model
    may be timed beside a process that stands by; without them none does. Of `judged_first_steps`
    no timed launch makes its first step beside another's end.
    Error counters and the kernel's log are read when no launch runs.
    Returns when all is settled; no process of the run is left.
    Raises RunInterrupted after SIGINT, SIGTERM or SIGHUP, OutputError if the disk takes no more.
    """
    with ExitStack() as stack:
        if interrupted is None:
            interrupted = stack.enter_context(interruption())
        stack.enter_context(_full_disk(folder))
        launcher = Launcher(
            plan=plan,
            vendors=vendors,
            devices=devices,
            work=work.absolute(),
            num_threads=num_threads or max(1, usable_cores() // max(map(len, plan.groups))),
            token=ahead.token if ahead else secrets.token_hex(16),
            interrupted=interrupted,
            ahead=ahead,
        )
        stack.callback(Guard(launcher.token, launcher.environment(plan.cases[0])).close)
        stack.callback(launcher.close)
        listener = Listener()
        stack.callback(listener.close)
        counters = _counter_log(plan, vendors, devices, journal)
        stack.callback(counters.close)
        counters.begin(journal.lines)
        launcher.hashes.begin(journal.lines)
        users = UsersLog(vendors=vendors, devices=counters.devices, record=journal.append)
        users.begin()
        _Run(
            plan=plan,
            journal=journal,
            folder=folder,
            data=None if data is None else data.absolute(),
            scratch=None if scratch is None else scratch.absolute(),
            interim_analysis=interim_analysis,
            observer=observer,
            launcher=launcher,
            listener=listener,
            interrupted=interrupted,
            history=run_state.History(plan, journal.lines),
            seed=inputs_seed(plan, journal.lines),
            counters=counters,
            users=users,
            redact=redact,
            session=sessions.current(journal.lines),
            clock=_clock(plan, journal),
            left_time=_left_time(plan, journal),
            wanted=wanted or _every_launch,
            overlaps=overlaps,
            judged_first_steps=judged_first_steps,
            room=Room(recorded=recorded_bytes(plan.cases, devices, observed)),
            quiet=frozenset(
                name for name, device in devices.items() if is_harmless(device.model, idle)
            ),
        ).settle_all()
        users.end()
        counters.end()


def _clock(plan: Plan, journal: Journal) -> sessions.SessionClock:
    """How long the session has run, which every line of the journal moves on."""
    clock = sessions.SessionClock(plan)
    journal.follow(clock.take)
    return clock


def _left_time(plan: Plan, journal: Journal) -> LeftTime:
    """What there is time for beyond what is assured, which every line of the journal changes."""
    left = LeftTime(plan)
    journal.follow(left.take)
    return left


def _every_launch(_: Launch) -> bool:
    return True


def _counter_log(
    plan: Plan, vendors: Mapping[str, Vendor], devices: Mapping[str, Device], journal: Journal
) -> CounterLog:
    """Error counters of the devices that the plan uses, and the kernel's log."""
    used = dict.fromkeys(name for case in plan.cases for name in case.all_devices)
    return CounterLog(
        vendors=vendors,
        devices={name: devices[name] for name in used},
        record=journal.append,
    )


@contextmanager
def interruption() -> Iterator[Callable[[], str]]:
    """Name of the signal that a person sent meanwhile, or empty; no signal ends us before that."""
    caught: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: ""  # only the main thread may catch signals; its owner ends the program
        return
    before = {
        number: signal.signal(
            number, lambda caught_number, _: caught.append(signal.Signals(caught_number).name)
        )
        for number in SIGNALS
    }
    try:
        yield lambda: caught[0] if caught else ""
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _full_disk(folder: Path) -> Iterator[None]:
    """A disk that takes no more is the user's to fix, and nothing recorded is lost."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise ApplianceError(f"the run cannot go on: {error}") from error
        raise OutputError(
            f"{error.filename or folder} cannot be written ({error.strerror}): make room or give "
            f"write permission, then go on with `bench accept --resume {folder}`"
        ) from None


# ------------------------------------------------------------------ the run


@dataclass(frozen=True, kw_only=True)
class _Ahead:
    """The launches whose processes wait, each with what it was told."""

    specs: Mapping[str, LaunchSpec]
    meeting: Path

    def is_for(self, launches: Sequence[Launch]) -> bool:
        return [*self.specs] == [launch.id for launch in launches]


@dataclass(frozen=True, kw_only=True)
class _Following:
    """What may be ordered beside the end of a group: the next launches, each as far as it may go.

    What stands by is not let go on because of a `refusal`; then there are none.
    """

    through: Mapping[str, AheadThrough] = field(default_factory=dict)
    launches: Sequence[Launch] = ()
    refusal: AheadReason = "begins_alone"


@dataclass(kw_only=True)
class _Run:
    """One run under way.

    Processes of the next group wait `ahead`, and those of the one behind it may be on `standby`,
    where records of all of their devices show that this slows nothing (`quiet`).
    """

    plan: Plan
    journal: Journal
    folder: Path
    data: Path | None
    scratch: Path | None
    interim_analysis: Analyse
    observer: Observer
    launcher: Launcher
    listener: Listener
    interrupted: Callable[[], str]
    history: run_state.History
    seed: str
    counters: CounterLog
    users: UsersLog
    redact: Callable[[bytes], bytes] | None
    wanted: Callable[[Launch], bool]
    clock: sessions.SessionClock
    left_time: LeftTime
    overlaps: bool | None = None
    judged_first_steps: frozenset[str] = frozenset()
    session: int = 1
    wave: int = 0
    cases: Mapping[str, Case] = field(init=False)
    launches: Mapping[str, Launch] = field(init=False)
    controls: frozenset[str] = field(init=False)
    readings: ReadingLog = field(init=False)
    logs: Path = field(init=False)
    rounds: Mapping[str, tuple[int, int, int]] = field(init=False)
    full: bool = False
    is_over: bool = False
    is_begun: bool = False
    ahead: _Ahead | None = None
    standby: _Ahead | None = None
    quiet: frozenset[str] = frozenset()
    last_ns: int = 0
    room: Room = field(default_factory=Room)
    num_ahead: int = field(default_factory=lambda: min(MOST_AHEAD, usable_cores() - 1))

    def __post_init__(self) -> None:
        self.cases = {case.id: case for case in self.plan.cases}
        self.launches = {launch.id: launch for launch in self.plan.launches}
        self.rounds = sessions.rounds(self.plan.launches)
        self.controls = fresh_controls(self.plan.launches, self.plan.protocol.fresh_every)
        cases = {launch.id: self.cases[launch.case] for launch in self.plan.launches}
        self.readings = ReadingLog(
            record=self._append,
            now_ns=self.journal.now_ns,
            case_of=cases.get,
            fold_ns=fold_ns(self.plan),
        )
        self.room.cramped.update(_cramped(self.plan, self.journal.lines))
        self.logs = self.launcher.work / "launches"
        self.logs.mkdir(parents=True, exist_ok=True)

    def settle_all(self) -> None:
        """Settle every group up to the end of the session, in their order."""
        for name in self.history.incomplete():  # whose parent may not have stored them
            self._store_logs(name)
        for case in self.cases.values():
            if self._has_lost_artifacts(case):
                self.history.make_again(case)
        self.observer.run_begins(self.plan, self.history.num_settled, self.session)
        launches = self.launches
        supervisor = Supervisor(
            listener=self.listener,
            record=self._record,
            read=self._read,
            finish=self._finish,
            interrupted=self.interrupted,
        )
        try:
            ahead = [one for one in self.plan.groups if launches[one[0]].session <= self.session]
            for index, group in enumerate(ahead):
                later = ahead[index + 1 :]
                coming = takewhile(_is_untimed, (launches[name] for one in later for name in one))
                self._group([launches[name] for name in group], supervisor, coming, later)
                place = self.rounds[group[0]]
                if not later or self.rounds[later[0][0]] != place:
                    self._round_ends(place)
            self._finish_hashing()
        except RunInterrupted:
            self._end_ahead(supervisor, "interrupted")
            self._record_hashed()
            raise
        finally:
            supervisor.close()
            for case in self.cases.values():
                self._drop_file(case)

    def _group(
        self,
        group: Sequence[Launch],
        supervisor: Supervisor,
        coming: Iterable[Launch],
        later: Sequence[Sequence[str]],
    ) -> None:
        """Settle the launches of a group together; `coming` are the untimed ones right after it.

        `later` are all groups that come after this one: processes of the next that needs any may
        begin beside its end. Whether the session's time is over is asked once, so that a group is
        begun whole or not.
        """
        self.is_over = self.clock.is_over
        self._take_wave(group[0].wave)
        if self.ahead and not self._may_wait_on(group, self.ahead):
            self._end_ahead(supervisor, "not_wanted")
        # Again only where an untimed launch lost its server, of which the third time there is none.
        while to_make := [launch for launch in group if self._is_to_make(launch)]:
            self._stop_if_interrupted()
            self._prepare([launch for launch in to_make if launch.id not in self.controls])
            counted = [(launch, self.cases[launch.case]) for launch in to_make]
            self._keep_ahead(to_make, supervisor)
            self._wait_for_standby(supervisor)
            self.counters.before(counted)
            self.users.before(counted, is_ahead=self.ahead is not None)
            is_untimed = not any(launch.is_timed for launch in group)
            if not is_untimed:
                self.launcher.end_waiting()  # of launches that were not wanted after all
                self._finish_hashing()  # nothing is hashed beside what is timed
            meeting = self.ahead.meeting if self.ahead else self._meeting()
            started = self._begin(to_make, meeting, supervisor)
            if is_untimed:
                self._import_ahead(coming)
            order = partial(self._order_ahead, started, later, supervisor)
            supervisor.until_ended(started, order)
            shutil.rmtree(meeting, ignore_errors=True)  # as its launches may not have met there
            if not all(item.ended and item.ended.outcome == "completed" for item in started):
                self._end_ahead(supervisor, "earlier_failed")
            elif self.ahead is None:
                self._end_ahead(supervisor, "begins_alone")  # what was not told to go on
            self.users.after(counted)
            self.counters.after(counted)
            self._stop_if_full()
            self._stop_if_interrupted()
        for case in {launch.case: self.cases[launch.case] for launch in group}.values():
            if self._file(case).exists() and not self._is_open(case):
                self._drop_file(case)

    def _finish_hashing(self) -> None:
        """Record the digests of all files that launches have mapped."""
        self.launcher.hashes.wait(self.interrupted)
        self._record_hashed()
        self._stop_if_interrupted()

    def _record_hashed(self) -> None:
        hashed = self.launcher.hashes.finished()
        if hashed is not None:
            self._record(hashed)

    # -------------------------------------------------------------- processes started ahead

    def _may_wait_on(self, group: Sequence[Launch], ahead: _Ahead) -> bool:
        """Whether what waits is of this group as it is made, or of one behind and this needs none.

        Time is asked of every launch in its turn, as `verify` does.
        """
        needed = self._needing_processes(group, self.left_time.allows)
        is_own = any(launch.id in ahead.specs for launch in group)
        return ahead.is_for(needed) or not (needed or is_own)

    def _next_group(
        self, group: Sequence[Launch], later: Sequence[Sequence[str]]
    ) -> Sequence[Launch]:
        """The next group that needs a process, by what is known now; empty if none may follow.

        Passed over are groups that need none: their launches are settled, lack something, are
        decided or have no time. What may be of another wave is not looked at, as its time is given
        when it begins, nor what is behind a launch that nobody wants or records.
        """
        part = (group[0].wave, group[0].session)
        for names in later:
            following = [self.launches[name] for name in names]
            is_other = (following[0].wave, following[0].session) != part
            if is_other or not all(map(self.wanted, following)):
                return []
            if self._needing_processes(following, self.left_time.would_allow):
                return following
        return []

    def _order_ahead(
        self,
        running: Sequence[RunningLaunch],
        later: Sequence[Sequence[str]],
        supervisor: Supervisor,
    ) -> list[RunningLaunch]:
        """Start processes of coming launches beside the end of this group, where that may be.

        Those of the next group, which go on where they stand by; and those of the group behind it,
        which then do.
        """
        group = [item.launch for item in running]
        following = self._following(group, later)
        for item in running if following.launches else ():
            if item.ended is None:
                self._read(item)  # for the last time with no other process at work on its device
        if self.standby is not None:
            items = self._go_on(self.standby, running, following, supervisor)
        else:
            self.ahead, items = self._start_ahead(running, following.launches, following.through)
        if self.ahead is None or not self.ahead.is_for(following.launches):
            return items
        behind = self._to_stand_by(group, following.launches, later)
        through = dict.fromkeys((launch.id for launch in behind), _DEVICE)
        self.standby, more = self._start_ahead(running, behind, through, following.launches)
        return items + more

    def _following(self, group: Sequence[Launch], later: Sequence[Sequence[str]]) -> _Following:
        """What may be ordered beside the end of a group, which times nothing any more."""
        if not all(map(self._overlaps, group)):
            return _Following()
        following = self._next_group(group, later)
        if not all(map(self._overlaps, following)):
            return _Following()
        is_alone = [self._note_over(launch) for launch in group]
        launches = self._to_follow(group, following)
        if self.standby is not None and not self.standby.is_for(launches):
            return _Following(refusal="not_wanted")
        through = {one.id: place for one in launches if (place := self._through(one, group))}
        if not all(is_alone) or len(through) < len(launches):
            return _Following()
        return _Following(launches=launches, through=through)

    def _start_ahead(
        self,
        running: Sequence[RunningLaunch],
        launches: Sequence[Launch],
        through: Mapping[str, AheadThrough],
        before: Sequence[Launch] = (),
    ) -> tuple[_Ahead | None, list[RunningLaunch]]:
        """Start processes beside the end of those that run; `before` are launches between."""
        group = [*(item.launch for item in running), *before]
        meeting = self._meeting()
        specs: dict[str, LaunchSpec] = {}
        items: list[RunningLaunch] = []
        for launch in launches:
            spec = self._spec(launch, launches, meeting, group)
            place = through[launch.id]
            self._order(launch, running, place, before)
            try:
                self._new_logs(launch)
                told = replace(spec, ahead=place, stands_by=bool(before))
                items.append(self._process(launch, told, before))
            except ServerLost:
                self._record(AheadEnded(launch=launch.id, reason="server_lost"), sync=True)
                break
            specs[launch.id] = spec
        return (_Ahead(specs=specs, meeting=meeting) if specs else None), items

    def _order(
        self,
        launch: Launch,
        running: Sequence[RunningLaunch],
        through: AheadThrough,
        before: Sequence[Launch] = (),
    ) -> None:
        """Record that a process is told to go so far beside the end of those that run."""
        ordered = LaunchAhead(
            launch=launch.id,
            beside=tuple(item.launch.id for item in running if item.ended is None),
            through=through,
            recorded_bytes=self._relied_on(launch, through),
            idle_beside=tuple(one.id for one in before),
        )
        self._record(ordered, sync=True)

    # -------------------------------------------------------------- processes that stand by

    def _go_on(
        self,
        standby: _Ahead,
        running: Sequence[RunningLaunch],
        following: _Following,
        supervisor: Supervisor,
    ) -> list[RunningLaunch]:
        """Let what stands by go on, as it is next; where that may not be, end it."""
        reason = self._refused(standby, running, following, supervisor)
        if reason is not None:
            self._end_ahead(supervisor, reason)
            return []
        for launch in following.launches:
            self._order(launch, running, following.through[launch.id])
        self.ahead, self.standby = standby, None
        return supervisor.go_on(following.through)

    def _refused(
        self,
        standby: _Ahead,
        running: Sequence[RunningLaunch],
        following: _Following,
        supervisor: Supervisor,
    ) -> AheadReason | None:
        """Why what stands by is not told to go on, None where it is."""
        if not following.launches:
            return following.refusal
        lost = self._lost(supervisor.standing_by)
        if lost is not None:
            return lost
        group = [item.launch for item in running]
        is_other = self._is_told_otherwise(following.launches, standby, group)
        return "other_orders" if is_other else None

    def _to_stand_by(
        self, group: Sequence[Launch], nexts: Sequence[Launch], later: Sequence[Sequence[str]]
    ) -> Sequence[Launch]:
        """The launches behind the next ones whose processes may wait while those are timed."""
        if not self.quiet:
            return []
        place = next(at for at, names in enumerate(later) if nexts[0].id in names)
        following = self._next_group(nexts, later[place + 1 :])
        if not all(map(self._overlaps, following)):
            return []
        launches = self._to_follow([*group, *nexts], following)
        return launches if self._may_stand_by(launches, nexts) else []

    def _may_stand_by(self, launches: Sequence[Launch], nexts: Sequence[Launch]) -> bool:
        """Whether processes may wait beside the next launches, and begin ahead behind them.

        Not where either would begin alone: nothing of the run is on its device then.
        """
        used = {name for one in (*nexts, *launches) for name in self._devices(one)}
        if not (used <= self.quiet and self.users.may_follow_twice(used)):
            return False
        cases = [self.cases[one.case] for one in nexts]
        return all(
            may_stand_by(launch, before, self.cases[before.case])
            for launch in launches
            for before in nexts
        ) and all(self._has_room(launch, cases) for launch in launches)

    def _has_room(self, launch: Launch, before: Sequence[Case]) -> bool:
        """Whether its process may set its device up now and wait beside launches of these cases."""
        case = self.cases[launch.case]
        device = self.launcher.devices[case.device]
        return self.room.may_stand_by(device, self._memory(case), before)

    def _devices(self, launch: Launch) -> Sequence[str]:
        return self.cases[launch.case].all_devices

    def _wait_for_standby(self, supervisor: Supervisor) -> None:
        """Return once what stands by has its devices set up: that is beside nothing timed."""
        if self.standby is None:
            return
        supervisor.until_set_up()
        self._stop_if_interrupted()
        for name in self.standby.specs:
            self._record(AheadIdle(launch=name))

    def _num_waiting(self) -> Mapping[str, int]:
        """How many processes stand by on each device."""
        names = () if self.standby is None else self.standby.specs
        return Counter(name for one in names for name in self._devices(self.launches[one]))

    # -------------------------------------------------------------- what may be ordered ahead

    def _overlaps(self, launch: Launch) -> bool:
        """Whether anything may begin beside the end of this launch, or it beside another's."""
        case = self.cases[launch.case]
        overlaps = self.launcher.vendor(case).overlaps if self.overlaps is None else self.overlaps
        devices = [self.launcher.devices[name] for name in case.all_devices]
        return overlaps and case.is_of_one_process and all(map(takes_several, devices))

    def _note_over(self, launch: Launch) -> bool:
        """Take what the devices of a launch say that is over; whether it is alone there.

        A repeat holds nothing yet.
        """
        case = self.cases[launch.case]
        if not launch.is_repeat:
            self.room.held(case.id, self._memory(case))
        return self.users.is_alone(launch.id, case.all_devices, self._num_waiting())

    def _to_follow(self, group: Sequence[Launch], following: Sequence[Launch]) -> list[Launch]:
        """The launches of the next group that will be made; none unless all may be ordered now."""
        may_be = not (self.clock.is_over or self.interrupted()) and all(
            may_follow(launch, earlier, has_first_bits=self._has_first_bits(launch))
            for launch in following
            for earlier in group
        )
        if not may_be:
            return []
        # Time is asked again once the earlier launch has ended, as `verify` does: its answer then
        # stands, and one given now would stand instead.
        launches = self._needing_processes(following, self.left_time.would_allow)
        return launches if all(map(self._can_fork, launches)) else []

    def _has_first_bits(self, launch: Launch) -> bool:
        return bool(self.history.first_bits(self.cases[launch.case]))

    def _can_fork(self, launch: Launch) -> bool:
        """Whether the server that a launch is forked by is there and has imported its workload."""
        if launch.id in self.controls:
            return False
        return self.launcher.can_fork(self.cases[launch.case], _library_mode(launch))

    def _through(self, launch: Launch, running: Sequence[Launch]) -> AheadThrough | None:
        """How far a launch may go beside those that run; None where it may not begin at all."""
        case = self.cases[launch.case]
        device = self.launcher.devices[case.device]
        beside = [(one, self.cases[one.case]) for one in running]
        values = self._memory(case)
        if not self.room.may_begin(case, device, values, beside):
            return None
        through = self.room.through(launch, case, device, values, beside)
        is_judged = case.id in self.judged_first_steps and launch.is_timed
        return "build" if through == "first_step" and is_judged else through

    def _relied_on(self, launch: Launch, through: AheadThrough) -> int | None:
        """What is recorded of a case, where a build goes by that."""
        return None if through == "device" else self.room.relied_on(launch.case)

    def _memory(self, case: Case) -> Mapping[str, float | None]:
        """Readings of the device of a case; of processors none, whose memory is the host's."""
        device = self.launcher.devices[case.device]
        return {} if device.vendor == "cpu" else self.launcher.vendor(case).read(device)

    def _keep_ahead(self, to_make: Sequence[Launch], supervisor: Supervisor) -> None:
        """End the processes that wait where they cannot make their launches as they are now."""
        if self.ahead is None:
            return
        lost = self._lost(supervisor.waiting)
        if lost is not None:
            self._end_ahead(supervisor, lost)
        elif not self.ahead.is_for(to_make):
            self._end_ahead(supervisor, "not_wanted")
        elif self._is_told_otherwise(to_make, self.ahead):
            self._end_ahead(supervisor, "other_orders")

    def _lost(self, waiting: Sequence[RunningLaunch]) -> AheadReason | None:
        """Why processes that wait cannot make their launches; a lost server is not used again."""
        lost: AheadReason | None = next(filter(None, map(lost_ahead, waiting)), None)
        for item in waiting if lost == "server_lost" else ():
            self.launcher.lose_server(item.case, _library_mode(item.launch), SERVER_ENDED)
        return lost

    def _is_told_otherwise(
        self, launches: Sequence[Launch], ahead: _Ahead, running: Sequence[Launch] = ()
    ) -> bool:
        """Whether processes that wait were told of their launches what is not so now."""
        return any(
            _as_ordered(self._spec(launch, launches, ahead.meeting, running))
            != _as_ordered(ahead.specs[launch.id])
            for launch in launches
        )

    def _end_ahead(self, supervisor: Supervisor, reason: AheadReason) -> None:
        """End the processes that wait, if any do, and record why.

        What stands by goes with those that wait before it: it has nothing to wait beside.
        """
        behind: AheadReason = reason if self.ahead is None or reason in OF_ALL else "begins_alone"
        ended = [(self.ahead, reason), (self.standby, behind)]
        if self.ahead is None and self.standby is None:
            return
        self.ahead = self.standby = None
        supervisor.end_waiting()
        for one, why in ended:
            for name in () if one is None else one.specs:
                self._record(AheadEnded(launch=name, reason=why), sync=True)

    def _meeting(self) -> Path:
        """A folder of its own for launches that are started at once."""
        return self.launcher.work / "meetings" / secrets.token_hex(8)

    def _begin(
        self, to_make: Sequence[Launch], meeting: Path, supervisor: Supervisor
    ) -> list[RunningLaunch]:
        """Begin the launches of a group: those whose processes wait, or by new ones."""
        if self.ahead is None:
            specs = [self._spec(launch, to_make, meeting) for launch in to_make]
            started = [self._start(*pair) for pair in zip(to_make, specs, strict=True)]
            return [item for item in started if item is not None]
        begun_ns: dict[str, int] = {}
        for launch in to_make:
            self._say_started(launch, self.ahead.specs[launch.id], is_ahead=True)
            begun_ns[launch.id] = self.last_ns
        self.ahead = None
        return supervisor.begin_waiting(begun_ns)

    def _take_wave(self, wave: int) -> None:
        """Report what the time left is given to, where a wave of launches begins."""
        if wave > self.wave and not self.is_over:
            self.observer.time_given(self.left_time.given(wave))
        self.wave = max(self.wave, wave)

    def _import_ahead(self, coming: Iterable[Launch]) -> None:
        """Have servers and fresh processes of the next untimed launches import beside this one."""
        made = [launch for launch in coming if self._may_be_made(launch)]
        forked = (one for one in made if one.id not in self.controls)
        wanted = ((self.cases[one.case], _library_mode(one)) for one in forked)
        self.launcher.begin_servers(wanted, self.num_ahead)
        for launch in made:
            case = self.cases[launch.case]
            is_full = len(self.launcher.waiting) >= MOST_AHEAD
            if is_full or self.launcher.num_ahead >= self.num_ahead:
                return
            is_fresh = launch.id in self.controls and case.ranks == 1
            if is_fresh and launch.id not in self.launcher.waiting:
                self.launcher.import_ahead(launch, case, *self._new_logs(launch))

    def _may_be_made(self, launch: Launch) -> bool:
        """Whether nothing that is known so far keeps an untimed launch from being made."""
        case = self.cases[launch.case]
        is_left = self.wanted(launch) and not self.history.is_settled(launch)
        has_failed = launch.number != 0 and self.history.failed_reference(case) is not None
        return is_left and not (case.unsupported or case.software or has_failed)

    def _is_open(self, case: Case) -> bool:
        """Whether a launch of the case may still be made."""
        own = [launch for launch in self.plan.launches if launch.case == case.id]
        is_decided = self.history.is_decided(case)
        return any(
            not self.history.is_settled(launch) and not (launch.is_timed and is_decided)
            for launch in own
        )

    def _drop_file(self, case: Case) -> None:
        """Remove the large file that the case's launches read; whoever goes on makes it again."""
        self._file(case).unlink(missing_ok=True)

    def _file(self, case: Case) -> Path:
        return self._artifacts(case) / FILE

    def _has_lost_artifacts(self, case: Case) -> bool:
        """Whether files are gone that the case's untimed launch made for others yet to be made."""
        folder = self._artifacts(case)
        is_made = self.history.failed_reference(case) is None
        names = self.history.artifacts(case) if is_made else {}
        return any(not (folder / name).exists() for name in names) and self._is_open(case)

    def _round_ends(self, place: tuple[int, int, int]) -> None:
        """Make the interim analyses that are due, once every case has its launch of this round.

        Not sooner, because the speed of one case may be held against that of another.
        """
        reached = dict.fromkeys(self.cases, 0)
        for launch in self.plan.launches:
            if self.rounds[launch.id] <= place:
                reached[launch.case] = max(reached[launch.case], launch.number)
        for case in self.cases.values():
            self._interim_analyses(case, reached[case.id])

    def _is_to_make(self, launch: Launch) -> bool:
        """Whether a launch needs a process; one that needs none is settled here."""
        if not self._is_left(launch):
            return False
        refusal = self._refusal(launch, self.left_time.allows)
        if refusal is not None:
            self._write_off(launch, *refusal)
        return refusal is None

    def _needing_processes(
        self, launches: Sequence[Launch], has_time: Callable[[Launch], bool]
    ) -> list[Launch]:
        """Those that would be made now; none of them is settled by asking."""
        left = [launch for launch in launches if self._is_left(launch)]
        return [launch for launch in left if self._refusal(launch, has_time) is None]

    def _is_left(self, launch: Launch) -> bool:
        return self.wanted(launch) and not self.history.is_settled(launch)

    def _refusal(
        self, launch: Launch, has_time: Callable[[Launch], bool]
    ) -> tuple[Outcome, str, str] | None:
        """Outcome, reason and detail of a launch that needs no process; None if it needs one.

        `has_time` says whether the minutes of the run, if there are any, hold it.
        """
        case = self.cases[launch.case]
        reference = self.history.failed_reference(case)
        if case.unsupported or case.software:
            return _lack(case)
        if launch.is_timed and self.history.is_decided(case):
            return "not_run", "decided", ""
        if self.is_over and not self.history.was_begun(launch):
            limit = f"{self.plan.time_limit_seconds:g} s"
            detail = f"the session had run {self.clock.seconds:.0f} s of at most {limit}"
            return "not_run", sessions.TIME_LIMIT, detail
        if not has_time(launch):
            return "not_run", sessions.NO_TIME, ""
        if launch.number != 0 and reference is not None:
            detail = f"the untimed launch: {reference.outcome}, {reference.reason}"
            return "not_run", "reference_failed", detail
        return None

    def _write_off(self, launch: Launch, outcome: Outcome, reason: str, detail: str = "") -> None:
        """Settle a launch for which no process is started."""
        event = LaunchEnded(
            launch=launch.id,
            outcome=outcome,
            reason=reason,
            detail=detail,
            exit_code=None,
            wall_ns=0,
            peak_memory_bytes=None,
        )
        self._record(event)
        self.observer.launch_ended(launch, event)

    def _stop_if_full(self) -> None:
        """A launch that the disk cut short is no result of the device."""
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.launcher.work))

    def _stop_if_interrupted(self) -> None:
        name = self.interrupted()
        if name:
            raise RunInterrupted(
                f"stopped by {name}; everything so far is stored, and "
                f"`bench accept --resume {self.folder}` goes on with it"
            )

    def _prepare(self, launches: Sequence[Launch]) -> None:
        """Have the fork servers that these launches need, and record what became of new ones."""
        wanted = [(self.cases[launch.case], _library_mode(launch)) for launch in launches]
        # Launches that count are all forked by servers that have imported everything.
        is_timed = any(launch.is_timed for launch in launches)
        is_first = not (self.is_begun or is_timed)
        self.is_begun |= bool(wanted)
        probes = self.launcher.prepare(wanted, is_first=is_first, is_timed=is_timed)
        self._stop_if_interrupted()
        for probed in probes:
            self._record(replace(probed, last_words=self._redacted(probed.last_words)))
            self.observer.server_probed(probed)
        if probes:
            self.users.used(name for case, _ in wanted for name in case.all_devices)

    def _redacted(self, text: str) -> str:
        return text if self.redact is None else self.redact(text.encode()).decode()

    def _start(self, launch: Launch, spec: LaunchSpec) -> RunningLaunch | None:
        """Start a launch; None, and it has ended, if the server was lost meanwhile."""
        if launch.id not in self.launcher.waiting:
            self._new_logs(launch)
        self._say_started(launch, spec)
        try:
            return self._process(launch, spec)
        except ServerLost as lost:
            self._write_off(launch, "interrupted", "server_lost", str(lost))
            return None

    def _say_started(self, launch: Launch, spec: LaunchSpec, *, is_ahead: bool = False) -> None:
        framework = self.launcher.forked_by(spec)
        mode: LaunchMode = "fresh" if framework is None else "forked"
        started = LaunchStarted(
            launch=launch.id,
            mode=mode,
            library_mode=spec.library_mode,
            framework=framework,
            is_ahead=is_ahead,
        )
        self._record(started, sync=True)
        self.observer.launch_started(launch, mode)

    def _process(
        self, launch: Launch, spec: LaunchSpec, before: Sequence[Launch] = ()
    ) -> RunningLaunch:
        """Start a launch's first process, which may stand by beside those `before` it.

        Raises ServerLost.
        """
        case, begin_ns = self.cases[launch.case], time.monotonic_ns()
        child = self.launcher.start(replace(spec, ordered_ns=begin_ns), *self._logs_of(launch))
        return running_launch(
            launch=launch,
            case=case,
            token=spec.token,
            child=child,
            begin_ns=begin_ns,
            has_stepped=self.history.has_stepped(case),
            is_ahead=bool(spec.ahead),
            builds_ahead=spec.ahead not in ("", "device"),
            idle_beside=tuple(one.id for one in before),
        )

    def _spec(
        self,
        launch: Launch,
        together: Sequence[Launch],
        meeting: Path,
        running: Sequence[Launch] = (),
    ) -> LaunchSpec:
        """What a launch is told; `together` are all that are started at once, and may meet.

        `running` are those beside whose end it is ordered, and those between.
        """
        case = self.cases[launch.case]
        numbers = [one.number for one in running if one.case == launch.case]
        beside = tuple(self.cases[one.case].device for one in together)
        return LaunchSpec(
            launch=launch.id,
            case=case,
            vendor=self.launcher.vendor(case).name,
            protocol=self.plan.protocol,
            is_timed=launch.is_timed,
            check_last=self.history.checks_last(case, launch.number, numbers),
            seed=case_seed(self.seed, case),
            data=None if self.data is None else str(self.data),
            artifacts_folder=str(self._artifacts(case)),
            artifacts=self.history.artifacts(case) if launch.number != 0 else {},
            socket=self.listener.name,
            token=secrets.token_hex(16),
            num_threads=self.launcher.threads(case),
            repeat=self.plan.repeat if launch.is_timed else None,
            library_mode=_library_mode(launch),
            is_fresh=launch.id in self.controls,
            expected=self.history.first_bits(case) if launch.is_repeat else {},
            fold_ns=self.readings.fold_ns,
            scratch=None if self.scratch is None else str(self.scratch),
            beside=beside if len(beside) > 1 else (),
            meeting=str(meeting) if len(beside) > 1 else "",
            overlaps=self._overlaps(launch),
        )

    def _artifacts(self, case: Case) -> Path:
        """Where the case's untimed launch puts files that the others read."""
        return self.launcher.work / "artifacts" / file_name(case.id)

    def _interim_analyses(self, case: Case, reached: int) -> None:
        """Those that are due after so many launches."""
        if not case.is_timed:
            return
        interim_analyses = case_analyses(self.plan, case)
        while (count := self.history.due_analysis(case, interim_analyses, reached)) is not None:
            is_decided, reason = self.interim_analysis(case.id)
            event = InterimAnalysis(
                case=case.id, launches=count, is_decided=is_decided, reason=reason
            )
            self._record(event, sync=True)
            self.observer.analysed(event)

    # -------------------------------------------------------------- what the supervisor reports

    def _record(self, event: Event, *, sync: bool = False) -> None:
        self.readings.before(event)
        self._append(event, sync=sync)
        self.readings.after(event)

    def _append(self, event: Event, *, sync: bool = False) -> None:
        self.last_ns = self.journal.append(event, sync=sync).monotonic_ns
        self.history.take(event)
        self.launcher.hashes.take(event)
        self.users.take(event)

    def _read(self, item: RunningLaunch) -> None:
        waiting = self._num_waiting()
        for name in item.case.all_devices:
            values = self.launcher.vendor(item.case).read(self.launcher.devices[name])
            if waiting.get(name) and USED in values:
                values = {**values, USED: None}  # some of it is what stands by there
            self.readings.read(item.launch.id, name, values)
        self.users.inside(
            item.launch.id, item.case.all_devices, is_ready=bool(item.ready), waiting=waiting
        )

    def _finish(self, item: RunningLaunch, ended: LaunchEnded) -> None:
        self._record(ended, sync=True)
        self.room.ended(item.case.id, ended)
        self.observer.launch_ended(item.launch, ended)
        if ended.reason == "server_lost":
            self.launcher.lose_server(item.case, _library_mode(item.launch), ended.detail)
        self.full |= ended.reason == "disk_full"
        if ended.outcome != "completed":
            self._store_logs(item.launch.id)

    # -------------------------------------------------------------- logs

    def _logs_of(self, launch: Launch) -> tuple[Path, Path]:
        return self._log(launch.id, "stdout"), self._log(launch.id, "stderr")

    def _new_logs(self, launch: Launch) -> tuple[Path, Path]:
        """Where a launch prints, with nothing there."""
        for path in self._logs_of(launch):
            path.unlink(missing_ok=True)
        return self._logs_of(launch)

    def _log(self, launch: str, stream: str) -> Path:
        return self.logs / f"{file_name(launch)}.{stream}"

    def _store_logs(self, launch: str) -> None:
        """Copy what a launch printed into the bundle, to show why it did not complete."""
        for stream in ("stdout", "stderr"):
            source = self._log(launch, stream)
            if source.exists():
                content = _bounded(source)
                content = content if self.redact is None else self.redact(content)
                with Folder.at(self.folder) as folder, folder.inner("logs", make=True) as logs:
                    if not logs.has(source.name):
                        logs.write(source.name, content)  # a full disk leaves no half of it


def _is_untimed(launch: Launch) -> bool:
    return not launch.is_timed


def _lack(case: Case) -> tuple[Outcome, str, str]:
    """Why no launch of a case can be made here, as outcome, reason and detail."""
    if case.unsupported:
        return "unsupported", case.unsupported, ""
    return "software", UNAVAILABLE, case.software


def _as_ordered(spec: LaunchSpec) -> LaunchSpec:
    """What a process was told of its launch, without what is drawn for each order."""
    return replace(spec, token="")


def _library_mode(launch: Launch) -> LibraryMode:
    return "deterministic" if launch.is_repeat else "default"


def _cramped(plan: Plan, lines: Iterable[Line]) -> Iterator[str]:
    """Cases of which a launch lacked memory that it had to share."""
    cases = {launch.id: launch.case for launch in plan.launches}
    for line in lines:
        if isinstance(line.event, LaunchEnded) and line.event.reason == SHARED_MEMORY:
            yield cases[line.event.launch]


def _bounded(path: Path) -> bytes:
    """A file's bytes; of a long one its begin and its end, with a line between that says so."""
    with os.fdopen(plain_files.opened(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= LONGEST_LOG:
            return file.read()
        begin = file.read(LONGEST_LOG // 2)
        file.seek(-LONGEST_LOG // 2, os.SEEK_END)
        cut = f"\n[... {size - LONGEST_LOG} bytes were cut here ...]\n".encode()
        return begin + cut + file.read(LONGEST_LOG // 2)
