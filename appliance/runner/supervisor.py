"""The launches of one group from start to end: heard, measured, limited, and ended.

While launches run the parent does four things, cheaply, because it shares the machine with what
is being timed: it takes their records as they arrive, it reads telemetry of a device at most
twice a second (and once more when a launch has ended, however short it was) and memory four
times, it holds each launch to its limits, and it lets a group begin its timed steps when all of
it is ready. A launch's time stands still while it waits for the others, so a device that hangs
in its build does not time out its neighbours.

However a launch ends, all of its processes are ended with it, and one `LaunchEnded` says what
happened, by the first of these that holds: the child broke the protocol; the child said how it
ended; the parent stopped it at a limit or because a person said so; a signal or an exit status.

A launch of several ranks is ready when all of them are, and has completed when all of them say so.
One that goes wrong takes the others along, so the cause is looked for: a rank that ended without
a word, or the first that says what went wrong other than that it lost another. Its number is told.
"""

from __future__ import annotations

import math
import secrets
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from appliance.ipc import processes
from appliance.ipc.channel import Call, Listener, ProtocolFault
from appliance.ipc.messages import End, Hello, Message, Ready
from appliance.records.journal import Event, LaunchEnded, Outcome
from appliance.records.plan import Case, Launch
from appliance.runner.children import Child, ServerLost

TICK_SECONDS = 0.1
MEMORY_SECONDS = 0.25
TELEMETRY_SECONDS = 0.5
FAMILY_SECONDS = 1.0
EXIT_SECONDS = 5.0
"""How long a launch that has said its end may take to leave."""
PARTNERS_SECONDS, STALLED_SECONDS = 60.0, 3.0
"""How long torchrun has to end the other ranks when one went wrong, or waited in vain for one."""
LOST = "PeerLost"
"""What a rank says went wrong when another one has ended."""
BEFORE_SECONDS = 1.0
"""Two ranks that end within this time may be heard in either order."""
SHELL = 128
"""What a program adds to the number of the signal that ended what it ran."""
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Why the parent ended a launch."""

    outcome: Outcome
    reason: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Left:
    """A rank that is no longer heard: its end in its own words, None if it had none, and when."""

    rank: int
    end: End | None
    when: float


@dataclass(kw_only=True)
class Watched:
    """One launch under way."""

    launch: Launch
    case: Case
    token: str
    child: Child
    begin_ns: int
    deadline: float
    family: processes.Family
    kernel_kills: int
    calls: list[Call] = field(default_factory=list)
    ready: set[int] = field(default_factory=set)
    left: dict[int, Left] = field(default_factory=dict)
    stop: Stop | None = None
    ready_since: float | None = None
    has_gone: bool = False
    peak_bytes: int | None = None
    pids: tuple[int, ...] = ()
    next_family: float = 0.0
    next_memory: float = 0.0
    last_telemetry: float | None = None
    ended: LaunchEnded | None = None


def watched(*, launch: Launch, case: Case, token: str, child: Child, begin_ns: int) -> Watched:
    """A launch whose first process has just been started; its time begins now."""
    return Watched(
        launch=launch,
        case=case,
        token=token,
        child=child,
        begin_ns=begin_ns,
        deadline=time.monotonic() + case.time_limit_seconds,
        family=processes.Family(child.pid, token),
        kernel_kills=processes.out_of_memory_kills(),
    )


class Watch:
    """Watches groups of launches, one group after the other.

    `record` keeps an event; `read` takes telemetry of a launch's device and keeps it; `finish`
    is told the end of each launch; `interrupted` names the signal that a person sent, if any.
    """

    def __init__(
        self,
        *,
        listener: Listener,
        record: Callable[[Event], None],
        read: Callable[[Watched], None],
        finish: Callable[[Watched, LaunchEnded], None],
        interrupted: Callable[[], str],
    ) -> None:
        self._listener = listener
        self._record = record
        self._read = read
        self._finish = finish
        self._interrupted = interrupted
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener.socket, selectors.EVENT_READ)
        self._strangers: list[Call] = []
        self._last_telemetry: dict[str, float] = {}

    def close(self) -> None:
        self._selector.close()
        for call in self._strangers:
            call.close()

    def until_ended(self, group: Sequence[Watched]) -> None:
        """Return when every launch of the group has ended; no process of any is left."""
        try:
            while any(item.ended is None for item in group):
                self._turn(group)
        except BaseException:
            for item in group:
                if item.ended is None:
                    processes.end(item.family.members)
                    self._part(item)
            raise

    def _turn(self, group: Sequence[Watched]) -> None:
        for key, _ in self._selector.select(TICK_SECONDS):
            if key.fileobj is self._listener.socket:
                self._welcome()
            else:
                self._hear(key.data, group)
        name = self._interrupted()
        for item in group:
            if item.ended is None:
                if name:
                    _stop(item, Stop(outcome="interrupted", reason=name, detail=""))
                self._attend(item, group)
        self._release(group)

    # -------------------------------------------------------------- what the children say

    def _welcome(self) -> None:
        for call in self._listener.accept():
            self._strangers.append(call)
            self._selector.register(call.socket, selectors.EVENT_READ, call)

    def _hear(self, call: Call, group: Sequence[Watched]) -> None:
        """Take what a caller says; one that is no launch of this group is turned away."""
        item = next((item for item in group if call in item.calls), None)
        try:
            for message in call.read():
                if call.hello is None:
                    item = self._introduced(call, message, group)
                    if item is None:
                        break
                elif item is not None:
                    self._take(item, call.hello.rank, message)
        except ProtocolFault as fault:
            if item is not None and item.ended is None:
                _stop(item, Stop(outcome="crashed", reason="protocol", detail=str(fault)))
            self._forget(call)
            return
        if not call.is_open or (item is None and call.hello is not None):
            if item is not None and call.hello is not None and item.stop is None:
                _leave(item, call.hello.rank, None)
            self._forget(call)

    def _introduced(self, call: Call, message: Message, group: Sequence[Watched]) -> Watched | None:
        """The launch that a caller belongs to; None, and the line is cut, if it is a stranger."""
        if isinstance(message, Hello):
            for item in group:
                ranks = [other.hello.rank for other in item.calls if other.hello]
                knows = secrets.compare_digest(item.token, message.token)
                is_new = message.rank in range(item.case.ranks) and message.rank not in ranks
                if item.launch.id == message.launch and knows and is_new:
                    call.hello = message
                    self._strangers.remove(call)
                    item.calls.append(call)
                    _measure(item)
                    return item
        self._forget(call)
        return None

    def _forget(self, call: Call) -> None:
        if call.socket.fileno() >= 0:
            self._selector.unregister(call.socket)
            call.close()
        if call in self._strangers:
            self._strangers.remove(call)

    def _take(self, item: Watched, rank: int, message: Message) -> None:
        if isinstance(message, Ready):
            _measure(item)
            item.ready.add(rank)
            if len(item.ready) == item.case.ranks:
                item.ready_since = time.monotonic()
        elif isinstance(message, End):
            _measure(item)
            _leave(item, rank, message)
            item.deadline = min(item.deadline, time.monotonic() + _patience(item, message))
        elif isinstance(message, Hello):
            raise ProtocolFault("a second hello")
        elif (message.launch, message.rank) != (item.launch.id, rank):
            raise ProtocolFault(f"a record of {message.launch}")
        else:
            self._record(message)

    def _release(self, group: Sequence[Watched]) -> None:
        """Say "go" to the launches that are ready, once no other is still on its way."""
        now = time.monotonic()
        waited = [item for item in group if item.launch.is_timed and item.ended is None]
        if any(item.ready_since is None for item in waited):
            return
        for item in waited:
            if not item.has_gone:
                item.has_gone = True
                item.deadline += now - (item.ready_since or now)
                for call in item.calls:
                    call.go()

    # -------------------------------------------------------------- limits and ends

    def _attend(self, item: Watched, group: Sequence[Watched]) -> None:
        now = time.monotonic()
        try:
            status = item.child.status()
        except ServerLost as lost:
            _stop(item, Stop(outcome="interrupted", reason="server_lost", detail=str(lost)))
            self._close(item, None, group)
            return
        if status is not None or item.stop is not None:
            self._close(item, status, group)
            return
        is_waiting = item.ready_since is not None and not item.has_gone
        if now > item.deadline and not is_waiting:
            limit = f"{item.case.time_limit_seconds:g} s"
            detail = f"did not end within its limit of {limit}"
            _stop(item, Stop(outcome="timed_out", reason="time_limit", detail=detail))
            return
        if now >= self._last_telemetry.get(item.case.device, -math.inf) + TELEMETRY_SECONDS:
            self._take_reading(item, now)
        if now >= item.next_memory:
            item.next_memory = now + MEMORY_SECONDS
            _hold_to_memory(item)

    def _take_reading(self, item: Watched, now: float) -> None:
        self._last_telemetry[item.case.device] = item.last_telemetry = now
        self._read(item)

    def _close(self, item: Watched, status: int | None, group: Sequence[Watched]) -> None:
        """Read and hear the rest, end what is left, and say what happened."""
        now = time.monotonic()
        if item.last_telemetry is None or now >= item.last_telemetry + TELEMETRY_SECONDS / 2:
            self._take_reading(item, now)
        self._welcome()
        for call in [*self._strangers, *item.calls]:
            if call.is_open:
                self._hear(call, group)
        processes.end(item.family.members)
        status = self._part(item, status)
        item.ended = _ended(item, status)
        self._finish(item, item.ended)

    def _part(self, item: Watched, status: int | None = None) -> int | None:
        """Close what belongs to an ended launch; its status, None if the kernel keeps it."""
        for call in item.calls:
            self._forget(call)
        return _status_of_stopped(item.child) if status is None else status


def _patience(item: Watched, end: End) -> float:
    """Seconds that a launch may go on after the end of one rank."""
    if len(item.left) == item.case.ranks:
        # Of one that ended without a word only the status that torchrun will leave with tells.
        is_told = all(left.end is not None for left in item.left.values())
        return EXIT_SECONDS if is_told else PARTNERS_SECONDS
    if end.outcome == "completed":
        return math.inf  # the others may check for longer
    return PARTNERS_SECONDS if end.outcome == "crashed" else STALLED_SECONDS


def _leave(item: Watched, rank: int, end: End | None) -> None:
    """Note that a rank has left; its own words stand, whatever comes after them."""
    if rank not in item.left:
        item.left[rank] = Left(rank=rank, end=end, when=time.monotonic())


def _stop(item: Watched, stop: Stop) -> None:
    """End the launch's processes; the first reason stands."""
    if item.stop is None:
        item.stop = stop
        processes.end(item.family.members)


def _status_of_stopped(child: Child) -> int | None:
    """Status of a process that has been killed; None if the kernel does not let it go."""
    deadline = time.monotonic() + EXIT_SECONDS
    try:
        while (status := child.status()) is None and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS / 10)
    except ServerLost:
        return None
    return status


# ------------------------------------------------------------------ memory


def _measure(item: Watched) -> int:
    """Bytes that the launch holds now; the largest is kept."""
    now = time.monotonic()
    if now >= item.next_family:
        item.next_family = now + FAMILY_SECONDS
        item.pids = item.family.members()
    held = sum(processes.resident_bytes(pid) for pid in item.pids) - item.child.shared_bytes
    item.peak_bytes = max(item.peak_bytes or 0, held)
    return held


def _hold_to_memory(item: Watched) -> None:
    """Stop a launch over its limit; the costly count is made only if the cheap one is over."""
    limit = item.case.memory_limit_bytes
    if _measure(item) <= limit:
        return
    held = sum(processes.proportional_bytes(pid) for pid in item.family.members())
    if held > limit:
        detail = f"held {held / GIB:.2f} GiB, its limit is {limit / GIB:.2f} GiB"
        _stop(item, Stop(outcome="crashed", reason="out_of_memory", detail=detail))


# ------------------------------------------------------------------ what happened


def _ended(item: Watched, status: int | None) -> LaunchEnded:
    what = _what_happened(item, status)
    return LaunchEnded(
        launch=item.launch.id,
        outcome=what.outcome,
        reason=what.reason,
        detail=what.detail,
        exit_code=status if status is not None and status >= 0 else None,
        wall_ns=time.monotonic_ns() - item.begin_ns,
        peak_memory_bytes=item.peak_bytes,
    )


def _what_happened(item: Watched, status: int | None) -> Stop:
    if item.stop is not None and item.stop.reason == "protocol":
        return item.stop
    told = _told(item, status) or item.stop
    if told is not None:
        return told
    if status is not None and status < 0:
        return _signalled(item, -status)
    detail = f"ended with exit status {status} and did not say why"
    return Stop(outcome="crashed", reason="exit", detail=detail)


def _told(item: Watched, status: int | None) -> Stop | None:
    """What the ranks have said of it, or one's silence among them; None if that says nothing."""
    cause = _cause(item, status)
    if cause is not None and cause.end is not None:
        detail = _named(item, cause.rank, cause.end.detail)
        return Stop(outcome=cause.end.outcome, reason=cause.end.reason, detail=detail)
    if cause is not None and item.case.ranks > 1:
        return _silent(item, cause.rank, status)
    if len(item.left) == item.case.ranks and all(left.end for left in item.left.values()):
        return Stop(outcome="completed", reason="", detail="")
    return None


def _cause(item: Watched, status: int | None) -> Left | None:
    """The rank that went wrong first, as far as can be told; None if none is known to have.

    A rank that was killed has no words, and those that it leaves behind say at once that they
    lost it, or much later that they waited in vain. A rank that says what went wrong has its
    partners ended by torchrun, in silence and soon after.
    """
    silent = [left for left in item.left.values() if left.end is None]
    failed = [left for left in item.left.values() if left.end and left.end.outcome != "completed"]
    told = [left for left in failed if left.end and left.end.reason != LOST]
    is_killed = status is not None and status > SHELL
    if silent and (not told or is_killed or silent[0].when < told[0].when - BEFORE_SECONDS):
        return silent[0]
    return next(iter([*told, *failed]), None)


def _silent(item: Watched, rank: int, status: int | None) -> Stop:
    """The end of a rank that said nothing; torchrun's own status tells of a signal."""
    if status is not None and status > SHELL:
        found = _signalled(item, status - SHELL)
        return Stop(outcome="crashed", reason=found.reason, detail=f"rank {rank}: {found.detail}")
    return Stop(outcome="crashed", reason="exit", detail=f"rank {rank} ended and did not say why")


def _named(item: Watched, rank: int, detail: str) -> str:
    """What a rank said, with its number, and with the numbers of those that said nothing."""
    if item.case.ranks == 1:
        return detail
    others = [
        str(other)
        for other in range(item.case.ranks)
        if other not in item.left or item.left[other].end is None
    ]
    missing = f" (no word from rank {', '.join(others)})" if others else ""
    return f"rank {rank}: {detail}{missing}"


def _signalled(item: Watched, number: int) -> Stop:
    if number == signal.SIGKILL and processes.out_of_memory_kills() > item.kernel_kills:
        detail = "the kernel killed it for want of memory"
        return Stop(outcome="crashed", reason="out_of_memory", detail=detail)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return Stop(outcome="crashed", reason=name, detail=f"ended by signal {number}")
