"""Stress of the links between devices: words from each device to every other, by four ways.

The launches that run at once, one on each device, have a process each for this, which sees that
launch's device alone. They are the ranks of one job, joined by the backend of the device's vendor.
A turn copies a block from each device to each other, two at a time; then has all of them exchange
blocks that differ by their destination, gather a block of each, and add one up. All of it is 64-bit
integers, of which the sum cannot overflow, so there is one right answer in any order: each process
draws the words of all and compares every word that arrived, where it lies.

What is wrong is named by the two devices between which it came, or of a sum by where it was read.
All ranks agree on that over the host and not over the links, and do the same again together. So do
they on the end: with the first launch that asks for it. A process whose partner is gone says so and
is no proof; one that nobody answers, though all partners live, has found a fault.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import TextIO

import torch
import torch.distributed as dist

from workloads.parts.burning.mismatches import Event
from workloads.parts.memory.copies import WORD, words
from workloads.parts.stress.turns import (
    FEW,
    CannotJoin,
    Ended,
    Turn,
    WithoutPartners,
    again,
    difference,
)

NUM_SETS = 2
ON_DEVICE = 2**31
"""Bytes of a device's memory: four times what a set takes, and the buffers of the backend."""
MEET_SECONDS = 90.0
"""Within which all partners have begun, as their launches do at one barrier."""
STALL_SECONDS = 60.0
"""Within which a turn ends, and everybody comes to agree on the next."""
PART_SECONDS = 5.0
"""For which a process stays at the end, so that no other still waits for its words."""
SOON = 2.0
"""Seconds within which a process ends whose partner has ended."""
LONGEST_WORDS = 300
OPERATIONS = ("copy", "exchange", "gather", "sum")
_ODD = 0x9E3779B97F4A7C15
_SIGN = 2**63


@dataclass(kw_only=True)
class Links:
    """`names` of the devices, of which `rank` is this process's; they meet in `meeting`.

    `num_bytes` are those of a set: a block of each device.
    """

    names: tuple[str, ...]
    rank: int
    meeting: Path
    backend: str
    device: torch.device
    seed: int
    num_bytes: int
    share: float
    rate: float | None = None
    number: int = 0
    asked: str = field(init=False)
    presence: TextIO | None = None
    sets: list[torch.Tensor] = field(default_factory=list)
    received: torch.Tensor = field(init=False)
    total: torch.Tensor = field(init=False)
    control: dist.ProcessGroup | None = None
    waits_since: float | None = None
    give_up: Callable[[Ended], None] | None = None

    def __post_init__(self) -> None:
        self.asked = (
            f"1 thread {100 * self.share:.0f} % of the time, copies, exchanges, gatherings and "
            f"sums of blocks of {self.block * WORD:,} bytes among {self.size} devices by "
            f"{self.backend}"
        )

    @property
    def size(self) -> int:
        return len(self.names)

    @property
    def block(self) -> int:
        """Words of a block."""
        return max(1, self.num_bytes // self.size // WORD)

    # -------------------------------------------------------------- meeting

    def watched_by(self, give_up: Callable[[Ended], None]) -> None:
        """Have this called, from a thread, where a turn does not end."""
        self.give_up = give_up

    def begin(self) -> None:
        """Join the others. Raises WithoutPartners, and CannotJoin for what the backend refuses."""
        if self.size == 1:
            raise WithoutPartners("no other device's segment ran beside it")
        self.presence = _locked(self._presence_of(self.rank))
        deadline = time.monotonic() + MEET_SECONDS
        while absent := [name for name, is_there in self._partners() if not is_there]:
            if time.monotonic() > deadline:
                raise WithoutPartners(f"{', '.join(absent)} did not come")
            time.sleep(0.05)
        if self.device.type != "cpu":
            torch.get_device_module(self.device.type).set_device(self.device)
        try:
            self._join()
        except RuntimeError as error:
            self._refuse_alone()
            raise CannotJoin(f"{', '.join(self.names)} cannot be joined ({_line(error)})") from None
        self.sets = [self._drawn(number) for number in range(NUM_SETS)]
        self.received = torch.zeros_like(self.sets[0])
        self.total = torch.zeros_like(self.sets[0][0])

    def _join(self) -> None:
        Thread(target=self._watch, daemon=True).start()
        self.waits_since = time.monotonic()
        path = str(self.meeting / "store")
        store = dist.FileStore(path, self.size)  # type: ignore[attr-defined]
        limit = timedelta(seconds=2 * STALL_SECONDS)
        dist.init_process_group(
            self.backend, store=store, rank=self.rank, world_size=self.size, timeout=limit
        )
        self.control = dist.new_group(backend="gloo", timeout=limit)
        first = torch.ones(1, dtype=torch.int64, device=self.device)
        dist.all_reduce(first)
        num_joined = int(first)
        self.waits_since = None
        if num_joined != self.size:
            raise RuntimeError(f"{num_joined} of {self.size} have joined")

    def _drawn(self, number: int) -> torch.Tensor:
        """The blocks of all devices in one set: int64, (devices, words)."""
        first, size = number * self.size, self.block * WORD
        rows = [words(self.seed, first + rank, size) for rank in range(self.size)]
        return torch.stack(rows).to(self.device)

    def _presence_of(self, rank: int) -> Path:
        return self.meeting / f"rank-{rank}"

    def _partners(self) -> Iterator[tuple[str, bool]]:
        """Each partner's device, and whether its process lives: it holds a lock as long."""
        for rank, name in enumerate(self.names):
            if rank != self.rank:
                yield name, _is_locked(self._presence_of(rank))

    def _refuse_alone(self) -> None:
        """WithoutPartners where one has ended, or ends within SOON, as all do whose partner has."""
        deadline = time.monotonic() + SOON
        while time.monotonic() < deadline:
            gone = [name for name, is_there in self._partners() if not is_there]
            if gone:
                raise WithoutPartners(f"{', '.join(gone)} ended")
            time.sleep(0.05)

    def _watch(self) -> None:
        """Give up for a main thread that waits for what does not come."""
        while self.give_up is not None:
            time.sleep(SOON / 2)
            since = self.waits_since
            if since is None or time.monotonic() - since < SOON:
                continue
            try:
                self._refuse_alone()
            except WithoutPartners as error:
                self.give_up(error)
            if time.monotonic() - since > STALL_SECONDS:
                self.give_up(Ended(f"no link answered within {STALL_SECONDS:.0f} s"))

    # -------------------------------------------------------------- a turn

    def turn(self) -> Turn:
        """Each way once. Raises Ended."""
        with _Waiting(self):
            own = self.sets[self.number % NUM_SETS]
            self.number += 1
            wrong = {name: dict(self._wrong_in(name, own)) for name in OPERATIONS}
            again_in = self._agreed([bool(wrong[name]) for name in OPERATIONS])
            events = [
                event
                for name, is_wrong in zip(OPERATIONS, again_in, strict=True)
                if is_wrong
                for event in self._repeated(name, own, wrong[name])
            ]
        arrived = (3 * (self.size - 1) + 1) * self.block * WORD
        return Turn(proven=arrived, moved=arrived, wrong=events)

    def ends(self, *, is_asked: bool) -> bool:
        """Whether any launch has asked for the end; all ranks say the same. Raises Ended."""
        with _Waiting(self):
            is_over = self._agreed([is_asked])[0]
        if is_over:
            self._part()
        return is_over

    def _part(self) -> None:
        """Wait until all know that it is over."""
        marks = [self.meeting / f"over-{rank}" for rank in range(self.size)]
        marks[self.rank].touch()
        deadline = time.monotonic() + PART_SECONDS
        while time.monotonic() < deadline and not all(mark.exists() for mark in marks):
            time.sleep(0.01)

    def _agreed(self, flags: Sequence[bool]) -> list[bool]:
        """Which of the flags any rank has set."""
        every = torch.tensor([int(flag) for flag in flags])
        dist.all_reduce(every, op=dist.ReduceOp.MAX, group=self.control)
        return [bool(flag) for flag in every.tolist()]

    def _repeated(self, name: str, own: torch.Tensor, wrong: Mapping[int, str]) -> Iterator[Event]:
        """Do it again, with all others; what was wrong here."""
        repeats = [dict(self._wrong_in(name, own)) for _ in range(FEW)]
        for row, place in wrong.items():
            yield again(place, sum(row in one for one in repeats))

    def _wrong_in(self, name: str, own: torch.Tensor) -> Iterator[tuple[int, str]]:
        """Move the words of a set one way; the rows that are not what they must be, each named."""
        self.move(name, own)
        read = self.total[None] if name == "sum" else self.received
        expected = self._expected(name, own)
        apart = read != expected
        for row, count in enumerate(apart.sum(dim=1).tolist()):
            if count:
                first = int(apart[row].nonzero()[0])
                pair = difference(int(read[row, first]), int(expected[row, first]))
                yield row, f"{self._way(name, row)}, {count:,} words: {pair} at word {first:,}"

    def _way(self, name: str, row: int) -> str:
        here = self.names[self.rank]
        if name == "sum":
            return f"sum of {', '.join(self.names)}, read at {here}"
        return f"{name} from {self.names[row]} to {here}"

    def move(self, name: str, own: torch.Tensor) -> None:
        """Have the words of a set moved one way, into `received` or `total`."""
        block = own[self.rank]
        if name == "copy":
            self.received[self.rank] = block
            self._copy(block)
        elif name == "exchange":
            dist.all_to_all_single(self.received, block ^ self._keys()[:, None])
        elif name == "gather":
            dist.all_gather(list(self.received), block)
        else:
            self.total.copy_(self._summand(block))
            dist.all_reduce(self.total)

    def _copy(self, block: torch.Tensor) -> None:
        """From each device to each other, two partners at a time."""
        for shift in range(1, self.size):
            source = (self.rank - shift) % self.size
            moves = [
                dist.P2POp(dist.isend, block, (self.rank + shift) % self.size),
                dist.P2POp(dist.irecv, self.received[source], source),
            ]
            for work in dist.batch_isend_irecv(moves):
                work.wait()

    def _expected(self, name: str, own: torch.Tensor) -> torch.Tensor:
        """What must have arrived of a set: (rows, words)."""
        if name == "sum":
            return self._summand(own).sum(dim=0)[None]
        return own ^ self._keys()[self.rank] if name == "exchange" else own

    def _summand(self, block: torch.Tensor) -> torch.Tensor:
        """Words so small that those of all devices add up to one."""
        return block >> (self.size - 1).bit_length()

    def _keys(self) -> torch.Tensor:
        """By destination, what a block is changed by in an exchange."""
        keys = [(_ODD * (rank + 1) + _SIGN) % 2**64 - _SIGN for rank in range(self.size)]
        return torch.tensor(keys, device=self.device)


@dataclass
class _Waiting:
    """While this is open a partner may be waited for; what the backend raises becomes Ended."""

    links: Links

    def __enter__(self) -> None:
        self.links.waits_since = time.monotonic()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.links.waits_since = None
        if isinstance(error, RuntimeError):
            self.links._refuse_alone()  # noqa: SLF001 - of the same module
            raise Ended(_line(error)) from None


def _line(error: RuntimeError) -> str:
    """What a backend says, in one line."""
    return " ".join(str(error).split())[:LONGEST_WORDS]


def _locked(path: Path) -> TextIO:
    """The file, made and locked for as long as this process lives."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _is_locked(path: Path) -> bool:
    """Whether another process holds the lock of this file."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
