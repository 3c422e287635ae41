"""The launches of one group from start to end: received, measured, limited, and ended.

While launches run the parent does four things, cheaply, because it shares the machine with what
is being timed: it records their messages as they arrive, it reads telemetry of a device at most
twice a second (and once more when a launch has ended, however short it was) and memory four
times, it enforces each launch's limits, and it lets a group begin its timed steps when all of
it is ready. A launch's time stands still while it waits for the others, so a device that hangs
in its build does not time out its neighbours.

However a launch ends, all of its processes are ended with it, and one `LaunchEnded` states the
cause: see `exit_cause`. A launch of several ranks is ready when all of them are.

Once nothing of a group is timed any more, the processes of the next launches may be started. They
wait, and what they report waits here: a process that reports more than one that makes no step can
is ended, which is the result of its launch. `begin` lets them make their launches. Processes of the
launches behind those may stand by: they set their devices up, say so, and wait beside these ones.
"""

from __future__ import annotations

import math
import secrets
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from appliance.evidence.software_fault import is_lack_of_software
from appliance.ipc import processes
from appliance.ipc.channel import Connection, Listener, ProtocolFault
from appliance.ipc.messages import End, Hello, Message, Ready, SetUp, TimingOver
from appliance.linux.sysfs import Tree
from appliance.planning.launch_constants import SHARED_MEMORY
from appliance.planning.placement import GIB
from appliance.records.journal import (
    AheadReason,
    AheadThrough,
    Artifact,
    Environment,
    Event,
    Float32Products,
    LaunchEnded,
    Started,
    WorkerEvent,
)
from appliance.records.plan import Case, Launch
from appliance.runner.children import Child, ServerLost
from appliance.runner.exit_cause import (
    PEER_LOST,
    Departure,
    ExitCause,
    Observation,
    exit_cause,
)
from appliance.runner.overlap import free_host_bytes

TICK_SECONDS, EXIT_TICK_SECONDS = 0.1, 0.002
"""How long nothing is supervised unless a message comes: while ranks work, and once all have left.

No message comes of the process's end, so the longer one would be added to every launch.
"""
MEMORY_SECONDS = 0.25
TELEMETRY_SECONDS = 0.5
FAMILY_SECONDS = 1.0
SAME_SIGNAL_SECONDS = 1.0
"""How much later than a launch its runner may get the signal that is for the whole run."""
REQUESTS = frozenset({"SIGINT", "SIGTERM", "SIGHUP", "KeyboardInterrupt"})
"""Reasons of launches that somebody ended: no fault of a device or a library raises these."""
LOST_RANKS = frozenset({"exit", PEER_LOST})
"""What is left to say of ranks that were all ended at once, as torchrun reports no SIGTERM."""
EXIT_SECONDS = 5.0
"""How long a launch whose ranks have all sent their `End` may take to exit."""
BEFORE_A_STEP = (Environment, Float32Products, Artifact)
"""What a process may report before its launch begins."""
PEER_EXIT_SECONDS, STALLED_EXIT_SECONDS = 60.0, 3.0
"""How long torchrun has to end the other ranks when one failed, or waited in vain for one."""


@dataclass(kw_only=True)
class RunningLaunch:
    """One launch under way; `has_stepped`: a launch of its case has made its first step.

    One that was ordered ahead `is_waiting` until it begins, and what it reported is `held`; whether
    it `builds_ahead` says how far it may go. One that `stands_by` waits, once it `is_set_up`,
    beside the launches that are timed before it, which `idle_beside` names. `over` are the ranks
    that time nothing any more; a repeat times nothing at all.
    """

    launch: Launch
    case: Case
    token: str
    child: Child
    begin_ns: int
    deadline: float
    family: processes.Family
    kernel_kills: int
    has_stepped: bool = False
    connections: list[Connection] = field(default_factory=list)
    ready: set[int] = field(default_factory=set)
    departures: dict[int, Departure] = field(default_factory=dict)
    stop: ExitCause | None = None
    ready_since: float | None = None
    is_released: bool = False
    peak_bytes: int | None = None
    pids: tuple[int, ...] = ()
    next_family: float = 0.0
    next_memory: float = 0.0
    last_telemetry: float | None = None
    ended: LaunchEnded | None = None
    is_ahead: bool = False
    is_waiting: bool = False
    builds_ahead: bool = False
    idle_beside: tuple[str, ...] = ()
    stands_by: bool = False
    is_set_up: bool = False
    held: list[tuple[int, Message]] = field(default_factory=list)
    over: set[int] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is timed any more, and it has not failed so far."""
        has_failed = self.stop is not None or (
            self.ended is not None and self.ended.outcome != "completed"
        )
        has_timed = self.launch.is_repeat or len(self.over) == self.case.ranks
        return has_timed and not has_failed


def running_launch(
    *,
    launch: Launch,
    case: Case,
    token: str,
    child: Child,
    begin_ns: int,
    has_stepped: bool = False,
    is_ahead: bool = False,
    builds_ahead: bool = False,
    idle_beside: tuple[str, ...] = (),
) -> RunningLaunch:
    """A launch whose first process has just been started; its time begins now, or later."""
    return RunningLaunch(
        launch=launch,
        case=case,
        token=token,
        child=child,
        begin_ns=begin_ns,
        deadline=time.monotonic() + case.time_limit_seconds,
        family=processes.Family(child.pid, token),
        kernel_kills=processes.out_of_memory_kills(),
        has_stepped=has_stepped,
        is_ahead=is_ahead,
        is_waiting=is_ahead,
        builds_ahead=builds_ahead,
        idle_beside=idle_beside,
        stands_by=bool(idle_beside),
    )


class Supervisor:
    """Supervises groups of launches, one group after the other.

    `record` stores an event; `read` reads telemetry of a launch's device and stores it; `finish`
    receives the end of each launch; `interrupted` names the signal that a person sent, if any.
    """

    def __init__(
        self,
        *,
        listener: Listener,
        record: Callable[[Event], None],
        read: Callable[[RunningLaunch], None],
        finish: Callable[[RunningLaunch, LaunchEnded], None],
        interrupted: Callable[[], str],
    ) -> None:
        self._listener = listener
        self._record = record
        self._read = read
        self._finish = finish
        self._interrupted = interrupted
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener.socket, selectors.EVENT_READ)
        self._unidentified_connections: list[Connection] = []
        self._last_telemetry: dict[str, float] = {}
        self.waiting: list[RunningLaunch] = []
        self.standing_by: list[RunningLaunch] = []

    def close(self) -> None:
        """End what waits, and close all connections."""
        self.end_waiting()
        self._selector.close()
        for connection in self._unidentified_connections:
            connection.close()

    def until_ended(
        self,
        group: Sequence[RunningLaunch],
        order_ahead: Callable[[], Sequence[RunningLaunch]] = tuple,
    ) -> None:
        """Return when every launch of the group has ended; no process of any is left.

        `order_ahead` is called once nothing of the group is timed any more, of repeats at once, if
        it has not ended then; what it has started waits until it begins or is ended, or stands by.
        """
        has_ordered = False
        try:
            while any(item.ended is None for item in group):
                if not has_ordered and all(item.is_over for item in group):
                    has_ordered = True
                    ordered = order_ahead()
                    self.waiting = [item for item in ordered if not item.stands_by]
                    self.standing_by = [item for item in ordered if item.stands_by]
                self._poll(group)
        except BaseException:
            for item in group:
                if item.ended is None:
                    processes.end(item.family.members)
                    self._disconnect_all(item)
            raise

    def begin_waiting(self, begun_ns: Mapping[str, int]) -> list[RunningLaunch]:
        """Let the launches that wait begin, as of the moments that the journal says of each.

        What they have reported is taken now.
        """
        begun, self.waiting = self.waiting, []
        for item in begun:
            item.is_waiting = False
            item.begin_ns = begun_ns[item.launch.id]
            item.deadline = time.monotonic() + item.case.time_limit_seconds
            held, item.held = item.held, []
            for rank, message in held:
                self._handle(item, rank, message)
            for connection in item.connections:
                connection.turn(item.begin_ns)
        return begun

    def until_set_up(self) -> None:
        """Return once all that stand by do nothing any more, or the run is interrupted.

        One that does not come to that within the limit of its launch is ended, which is its result.
        """
        while not (all(map(_is_idle, self.standing_by)) or self._interrupted()):
            self._poll(())

    def go_on(self, through: Mapping[str, AheadThrough]) -> list[RunningLaunch]:
        """Let those that stand by go on as far as that; they wait for their begin from here on."""
        items, self.standing_by = self.standing_by, []
        for item in items:
            place, item.stands_by = through[item.launch.id], False
            item.builds_ahead = place != "device"
            for connection in item.connections if item.builds_ahead else ():
                connection.go_on(place)
        return items

    def end_waiting(self) -> None:
        """End what waits and what stands by; their launches have not begun."""
        ended, self.waiting, self.standing_by = [*self.waiting, *self.standing_by], [], []
        for item in ended:
            processes.end(item.family.members)
            self._disconnect_all(item)

    def _poll(self, group: Sequence[RunningLaunch]) -> None:
        for key, _ in self._selector.select(_tick(group)):
            if key.fileobj is self._listener.socket:
                self._accept()
            else:
                self._receive(key.data, group)
        signal_name = self._interrupted()
        for item in group:
            if item.ended is None:
                if signal_name:
                    _stop(item, ExitCause(outcome="interrupted", reason=signal_name, detail=""))
                self._supervise(item, group)
        for item in (*self.waiting, *self.standing_by):
            self._limit_waiting(item)
        self._release_ready(group)

    # -------------------------------------------------------------- messages of the children

    def _accept(self) -> None:
        for connection in self._listener.accept():
            self._unidentified_connections.append(connection)
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def _receive(self, connection: Connection, group: Sequence[RunningLaunch]) -> None:
        """Handle what has arrived; a connection that is no launch of these is closed."""
        group = [*group, *self.waiting, *self.standing_by]
        item = next((item for item in group if connection in item.connections), None)
        try:
            for message in connection.read():
                if connection.hello is None:
                    item = self._identified(connection, message, group)
                    if item is None:
                        break
                elif item is not None:
                    self._handle(item, connection.hello.rank, message)
        except ProtocolFault as fault:
            if item is not None and item.ended is None:
                _stop(item, ExitCause(outcome="crashed", reason="protocol", detail=str(fault)))
            self._disconnect(connection)
            return
        if not connection.is_open or (item is None and connection.hello is not None):
            if item is not None and connection.hello is not None and item.stop is None:
                _note_departure(item, connection.hello.rank, None)
            self._disconnect(connection)

    def _identified(
        self, connection: Connection, message: Message, group: Sequence[RunningLaunch]
    ) -> RunningLaunch | None:
        """The launch that a connection belongs to; None, and it is closed, if to none."""
        if isinstance(message, Hello):
            for item in group:
                ranks = [other.hello.rank for other in item.connections if other.hello]
                has_token = secrets.compare_digest(item.token, message.token)
                is_new = message.rank in range(item.case.ranks) and message.rank not in ranks
                if item.launch.id == message.launch and has_token and is_new:
                    connection.hello = message
                    self._unidentified_connections.remove(connection)
                    item.connections.append(connection)
                    _measure_memory(item)
                    if item.is_ahead and not item.is_waiting:
                        connection.turn(item.begin_ns)
                    return item
        self._disconnect(connection)
        return None

    def _disconnect(self, connection: Connection) -> None:
        if connection.socket.fileno() >= 0:
            self._selector.unregister(connection.socket)
            connection.close()
        if connection in self._unidentified_connections:
            self._unidentified_connections.remove(connection)

    def _handle(self, item: RunningLaunch, rank: int, message: Message) -> None:
        if isinstance(message, SetUp):
            _note_set_up(item, message)
        elif item.is_waiting:
            if not isinstance(message, BEFORE_A_STEP):
                raise ProtocolFault(f"a message before its launch began: {message.kind}")
            _require_own(item, rank, message)
            item.held.append((rank, message))
        elif isinstance(message, TimingOver):
            item.over.add(rank)
        elif isinstance(message, Ready):
            _measure_memory(item)
            item.ready.add(rank)
            if len(item.ready) == item.case.ranks:
                item.ready_since = time.monotonic()
        elif isinstance(message, End):
            _measure_memory(item)
            _note_departure(item, rank, message)
            item.deadline = min(item.deadline, time.monotonic() + _grace_period(item, message))
        elif isinstance(message, Hello):
            raise ProtocolFault("a second hello")
        else:
            _require_own(item, rank, message)
            item.has_stepped |= isinstance(message, Started)
            self._record(message)

    def _release_ready(self, group: Sequence[RunningLaunch]) -> None:
        """Send "go" to the launches that are ready, once no other is still preparing."""
        now = time.monotonic()
        timed = [item for item in group if item.launch.is_timed and item.ended is None]
        if any(item.ready_since is None for item in timed):
            return
        for item in timed:
            if not item.is_released:
                item.is_released = True
                item.deadline += now - (item.ready_since or now)
                for connection in item.connections:
                    connection.go()

    # -------------------------------------------------------------- limits and ends

    def _supervise(self, item: RunningLaunch, group: Sequence[RunningLaunch]) -> None:
        now = time.monotonic()
        try:
            status = item.child.status()
        except ServerLost as lost:
            _stop(item, ExitCause(outcome="interrupted", reason="server_lost", detail=str(lost)))
            self._conclude(item, None, group)
            return
        if status is not None or item.stop is not None:
            self._conclude(item, status, group)
            return
        is_waiting = item.ready_since is not None and not item.is_released
        if now > item.deadline and not is_waiting:
            limit = f"{item.case.time_limit_seconds:g} s"
            detail = f"did not end within its limit of {limit}"
            _stop(item, ExitCause(outcome="timed_out", reason="time_limit", detail=detail))
            return
        if now >= self._last_telemetry.get(item.case.device, -math.inf) + TELEMETRY_SECONDS:
            self._read_telemetry(item, now)
        self._limit_memory(item)

    def _limit_memory(self, item: RunningLaunch) -> None:
        now = time.monotonic()
        if now >= item.next_memory and item.stop is None:
            item.next_memory = now + MEMORY_SECONDS
            _enforce_memory_limit(item)

    def _limit_waiting(self, item: RunningLaunch) -> None:
        """End a process that waits once it holds more of the host than is left to the others.

        Else the kernel may choose the launch before it. Where nobody knows what is left, the
        process was ordered to build nothing.
        """
        now = time.monotonic()
        if now < item.next_memory:
            return
        self._limit_memory(item)
        if item.idle_beside:
            item.next_memory = now + FAMILY_SECONDS  # it holds what it holds, beside timed steps
        if item.stands_by and now > item.deadline and not _is_idle(item):
            limit = f"{item.case.time_limit_seconds:g} s"
            detail = f"did not set its device up within its limit of {limit}"
            _stop(item, ExitCause(outcome="timed_out", reason="time_limit", detail=detail))
        held, free = item.peak_bytes or 0, free_host_bytes(Tree())
        if free is not None and free < held:
            detail = f"held {held} bytes of the host while another launch ended, and left it less"
            _stop(item, ExitCause(outcome="crashed", reason="out_of_memory", detail=detail))

    def _read_telemetry(self, item: RunningLaunch, now: float) -> None:
        """Read a launch's devices, unless processes of the next ones may be on them already."""
        if self.waiting:
            return
        self._last_telemetry[item.case.device] = item.last_telemetry = now
        self._read(item)

    def _conclude(
        self, item: RunningLaunch, status: int | None, group: Sequence[RunningLaunch]
    ) -> None:
        """Read the last telemetry and messages, end all processes, and state the cause."""
        now = time.monotonic()
        if item.last_telemetry is None or now >= item.last_telemetry + TELEMETRY_SECONDS / 2:
            self._read_telemetry(item, now)
        self._accept()
        for connection in [*self._unidentified_connections, *item.connections]:
            if connection.is_open:
                self._receive(connection, group)
        processes.end(item.family.members)
        status = self._disconnect_all(item, status)
        ended = self._unless_interrupted(item, _launch_ended(item, status))
        item.ended = self._unless_shared(item, ended)
        self._finish(item, item.ended)

    def _unless_interrupted(self, item: RunningLaunch, ended: LaunchEnded) -> LaunchEnded:
        """The end of a launch, which is an interruption where the signal was for the whole run.

        A scheduler ends a job by a signal to each of its processes, in any order: the launch may be
        gone before this process knows of its own. It is no crash of the device.
        """
        if not _is_by_request(item, ended) or not (name := self._signal_soon()):
            return ended
        detail = f"{ended.detail}, as the whole run was by {name}"
        return replace(ended, outcome="interrupted", reason=name, detail=detail)

    def _unless_shared(self, item: RunningLaunch, ended: LaunchEnded) -> LaunchEnded:
        """The end of a launch, which is an interruption where it lacked memory beside a build.

        So it is where a process had stood by beside its steps. Which of the two asked for the last
        of it shows nothing of the device. Over its own limit a launch is by itself.
        """
        lacked = (ended.outcome, ended.reason) == ("crashed", "out_of_memory")
        others = [
            ("was built" if one.builds_ahead else "waited", one.launch.id)
            for one in (*self.waiting, *self.standing_by)
            if one.builds_ahead or item.launch.id in one.idle_beside
        ]
        if not (lacked and item.stop is None and others):
            return ended
        did, name = others[0]
        detail = f"lacked memory while {name} {did} beside it: {ended.detail}"
        return replace(ended, outcome="interrupted", reason=SHARED_MEMORY, detail=detail)

    def _signal_soon(self) -> str:
        """Name of the signal that this process has got or gets within a moment; else empty."""
        deadline = time.monotonic() + SAME_SIGNAL_SECONDS
        while not (name := self._interrupted()) and time.monotonic() < deadline:
            time.sleep(EXIT_TICK_SECONDS)
        return name

    def _disconnect_all(self, item: RunningLaunch, status: int | None = None) -> int | None:
        """Close the connections; the status, None if the kernel does not release the process."""
        for connection in item.connections:
            self._disconnect(connection)
        return _status_of_stopped(item.child) if status is None else status


def _tick(group: Sequence[RunningLaunch]) -> float:
    """Seconds until the launches are supervised again at the latest."""
    left = any(item.ended is None and len(item.departures) == item.case.ranks for item in group)
    return EXIT_TICK_SECONDS if left else TICK_SECONDS


def _grace_period(item: RunningLaunch, end: End) -> float:
    """Seconds that a launch may go on after the `End` of one rank."""
    if len(item.departures) == item.case.ranks:
        # How a rank without an `End` ended shows only in torchrun's own exit status.
        has_all_ends = all(left.end is not None for left in item.departures.values())
        return EXIT_SECONDS if has_all_ends else PEER_EXIT_SECONDS
    if end.outcome == "completed":
        return math.inf  # the others may check for longer
    return PEER_EXIT_SECONDS if end.outcome == "crashed" else STALLED_EXIT_SECONDS


def _require_own(item: RunningLaunch, rank: int, message: WorkerEvent) -> None:
    """ProtocolFault for a record of another launch, or of another rank."""
    if (message.launch, message.rank) != (item.launch.id, rank):
        raise ProtocolFault(f"a record of {message.launch}")


def _note_set_up(item: RunningLaunch, message: SetUp) -> None:
    """Note that a process stands by; what it lacked memory for is made by another one."""
    if not item.stands_by or item.is_set_up:
        raise ProtocolFault("its device is set up, which nobody had asked for")
    item.is_set_up = True
    if message.lacks_memory:
        detail = "lacked memory as it set its device up beside other launches"
        _stop(item, ExitCause(outcome="crashed", reason="out_of_memory", detail=detail))


def _is_idle(item: RunningLaunch) -> bool:
    """Whether a process that stands by does nothing any more: it waits, or the kernel let it go.

    One that the kernel does not let go is waited for no longer than its launch might take.
    """
    if item.is_set_up and not item.departures and item.stop is None:
        return True
    try:
        is_gone = item.child.status() is not None
    except ServerLost:
        return True
    return is_gone or time.monotonic() > item.deadline + EXIT_SECONDS


def lost_ahead(item: RunningLaunch) -> AheadReason | None:
    """Why a process that waits cannot make its launch, where that says nothing of the launch.

    Two launches shared the memory, so which of them a limit or the kernel ended shows nothing.
    """
    try:
        status = item.child.status()
    except ServerLost:
        return "server_lost"
    is_over_limit = item.stop is not None and item.stop.reason == "out_of_memory"
    return "out_of_memory" if is_over_limit or status == -signal.SIGKILL else None


def _note_departure(item: RunningLaunch, rank: int, end: End | None) -> None:
    """Note that a rank has left; its own `End` stands, whatever comes after it."""
    if rank not in item.departures:
        item.departures[rank] = Departure(rank=rank, end=end, when=time.monotonic())


def _stop(item: RunningLaunch, cause: ExitCause) -> None:
    """End the launch's processes; the first reason stands."""
    if item.stop is None:
        item.stop = cause
        processes.end(item.family.members)


def _status_of_stopped(child: Child) -> int | None:
    """Status of a process that has been killed; None if the kernel does not let it go."""
    deadline = time.monotonic() + EXIT_SECONDS
    try:
        while (status := child.status()) is None and time.monotonic() < deadline:
            time.sleep(EXIT_TICK_SECONDS)
    except ServerLost:
        return None
    return status


# ------------------------------------------------------------------ memory


def _measure_memory(item: RunningLaunch) -> int:
    """Bytes that the launch holds now; notes the largest."""
    now = time.monotonic()
    if now >= item.next_family:
        item.next_family = now + FAMILY_SECONDS
        item.pids = item.family.members()
    used_bytes = sum(processes.resident_bytes(pid) for pid in item.pids) - item.child.shared_bytes
    if item.case.ranks > 1:
        used_bytes -= processes.shared_bytes(item.child.pid, item.pids)
    item.peak_bytes = max(item.peak_bytes or 0, used_bytes)
    return used_bytes


def _enforce_memory_limit(item: RunningLaunch) -> None:
    """Stop a launch over its limit; the costly count is made only if the cheap one is over."""
    limit = item.case.memory_limit_bytes
    if _measure_memory(item) <= limit:
        return
    used_bytes = sum(processes.proportional_bytes(pid) for pid in item.family.members())
    if used_bytes > limit:
        detail = f"held {used_bytes / GIB:.2f} GiB, its limit is {limit / GIB:.2f} GiB"
        _stop(item, ExitCause(outcome="crashed", reason="out_of_memory", detail=detail))


# ------------------------------------------------------------------ the end


def _is_by_request(item: RunningLaunch, ended: LaunchEnded) -> bool:
    """Whether the launch crashed by a signal that people and schedulers send, no fault raises."""
    lost = LOST_RANKS if item.case.ranks > 1 else frozenset()
    return ended.outcome == "crashed" and ended.reason in REQUESTS | lost


def _launch_ended(item: RunningLaunch, status: int | None) -> LaunchEnded:
    cause = exit_cause(
        Observation(
            num_ranks=item.case.ranks,
            status=status,
            stop=item.stop,
            departures=item.departures,
            is_out_of_memory=processes.out_of_memory_kills() > item.kernel_kills,
        )
    )
    ended = LaunchEnded(
        launch=item.launch.id,
        outcome=cause.outcome,
        reason=cause.reason,
        detail=cause.detail,
        exit_code=status if status is not None and status >= 0 else None,
        wall_ns=time.monotonic_ns() - item.begin_ns,
        peak_memory_bytes=item.peak_bytes,
        exceptions=cause.exceptions,
        stage=cause.stage,
    )
    is_lack = cause.outcome == "crashed" and is_lack_of_software(
        ended, has_stepped=item.has_stepped
    )
    return replace(ended, outcome="software") if is_lack else ended
