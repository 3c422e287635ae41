"""Lanes of a burn-in, which work at once: each has its own thread, streams, memory and counts.

A library of products promises equal bits for one stream alone, and one workspace must not serve
two products at once. So each lane makes its products on a stream of its own, from a thread of its
own, which gives it a workspace of its own, and digests them on a second stream, behind the
product and beside the next one. On processors a lane is a thread with its share of the cores: the
number of threads that make a product may choose the order of its sums, so it never changes.

Digests of a step are kept in a ring and compared together, when the step ends: a comparison after
each product would cost more launches than the digest.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from workloads.parts.memory.digests import NUM_DIGESTS, Scratch
from workloads.parts.memory.memory_tests import Wrong

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Streams:
    """The two streams of a lane, of products and of digests; None where the device has none."""

    main: Any = None
    side: Any = None
    module: Any = None

    @classmethod
    def make(cls, device: torch.device) -> Streams:
        """Make two streams on an accelerator; processors compute in the thread that asks."""
        if device.type == "cpu":
            return cls()
        module = torch.get_device_module(device.type)
        return cls(
            main=module.Stream(device=device), side=module.Stream(device=device), module=module
        )

    def products(self) -> AbstractContextManager[object]:
        """What is launched inside goes to the stream of products."""
        return nullcontext() if self.main is None else self.module.stream(self.main)

    @contextmanager
    def digests(self) -> Iterator[None]:
        """What is launched inside runs behind all products so far, beside those that follow."""
        if self.side is None:
            yield
            return
        self.side.wait_stream(self.main)
        with self.module.stream(self.side):
            yield

    def let_products_wait(self) -> None:
        """Products that follow run behind all digests so far."""
        if self.side is not None:
            self.main.wait_stream(self.side)

    def begin(self) -> None:
        """Run behind what the asking thread has launched so far."""
        if self.main is not None:
            self.main.wait_stream(self.module.current_stream())

    def end(self) -> None:
        """Let the asking thread's stream run behind the lane's, so that one wait has all."""
        if self.main is not None:
            self.let_products_wait()
            self.module.current_stream().wait_stream(self.main)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How a step loads the device: `rounds`, and how it pauses.

    `pause` is in seconds, after every `burst` products; 0 for none.
    """

    rounds: int
    burst: int = 0
    pause: float = 0.0


@dataclass(kw_only=True)
class Tally:
    """Digests of one format's products in one lane.

    `expected` are the right digests (products, 2), `ring` those that the step's rounds made
    (rounds, products, 2); `wrong` counts, on the device, the rounds in which each product was
    wrong. `ring_on_host` and `wrong_on_host` are their copies, there when the device is done;
    `seen` what of the counts has been looked at, and `first_round` the round that the ring begins
    with.
    """

    expected: torch.Tensor
    ring: torch.Tensor
    ring_on_host: torch.Tensor
    wrong: torch.Tensor
    wrong_on_host: torch.Tensor
    seen: list[int]
    first_round: int = 0
    num_rounds: int = 0

    @classmethod
    def make(cls, expected: torch.Tensor, device: torch.device) -> Tally:
        """Make room for the digests of a round of these products."""
        count, is_pinned = len(expected), device.type != "cpu"
        return cls(
            expected=expected.to(device, copy=True),
            ring=torch.zeros(1, count, NUM_DIGESTS, dtype=torch.int64, device=device),
            ring_on_host=torch.zeros(1, count, NUM_DIGESTS, dtype=torch.int64),
            wrong=torch.zeros(count, dtype=torch.int64, device=device),
            wrong_on_host=torch.zeros(count, dtype=torch.int64, pin_memory=is_pinned),
            seen=[0] * count,
        )

    def give_rounds(self, rounds: int) -> None:
        """Make room for the digests of a step of at most so many rounds."""
        shape = (rounds, *self.ring.shape[1:])
        self.ring = self.ring.new_zeros(shape)
        is_pinned = self.ring.device.type != "cpu"
        self.ring_on_host = torch.zeros(shape, dtype=torch.int64, pin_memory=is_pinned)

    def begin_step(self) -> None:
        """Empty the ring, into which digests are added."""
        self.first_round = self.num_rounds
        self.ring.zero_()

    def end_step(self, from_first: Sequence[int]) -> None:
        """Compare all digests of the step and send the counts to the host; waits for nothing.

        Products whose numbers `from_first` has are held to the first round's.
        """
        count = self.num_rounds - self.first_round
        if self.first_round == 0:
            for index in from_first:
                self.expected[index].copy_(self.ring[0, index])
        differs = (self.ring[:count] != self.expected).any(2)
        self.wrong.add_(differs.sum(0))
        self.ring_on_host[:count].copy_(self.ring[:count], non_blocking=True)
        self.wrong_on_host.copy_(self.wrong, non_blocking=True)

    def rounds_apart(self, index: int) -> list[int]:
        """Numbers of the step's rounds in which a product was wrong, once the device is done."""
        count = self.num_rounds - self.first_round
        differs = (self.ring_on_host[:count, index] != self.expected[index].cpu()).any(1)
        return [self.first_round + place for place in differs.nonzero().flatten().tolist()]


@dataclass(kw_only=True)
class Lane:
    """Memory and counts of one lane: a tally for each format, and what memory did.

    `tested_words` has the words that each test of memory covered, again and again.
    """

    streams: Streams
    pool: torch.Tensor
    scratch: Scratch
    tallies: list[Tally]
    memory_wrong: Wrong
    memory_wrong_on_host: torch.Tensor
    memory_seen: int = 0
    tested_words: Counter[str] = field(default_factory=Counter)
    since_pause: int = 0

    @classmethod
    def make(
        cls, words: int, rows: int, expected: Sequence[torch.Tensor], device: torch.device
    ) -> Lane:
        """Make a lane with so many words of memory for products of at most so many rows.

        `expected` has the right digests of each format's products.
        """
        is_pinned = device.type != "cpu"
        return cls(
            streams=Streams.make(device),
            pool=torch.zeros(words, dtype=torch.int64, device=device),
            scratch=Scratch.make(rows, device),
            tallies=[Tally.make(one, device) for one in expected],
            memory_wrong=Wrong.make(device),
            memory_wrong_on_host=torch.zeros(1, dtype=torch.int64, pin_memory=is_pinned),
        )

    def begin_step(self, number: int) -> Tally:
        """Begin a step of the format of this number; its tally."""
        with self.streams.digests():
            self.tallies[number].begin_step()
        return self.tallies[number]

    def end_step(self, number: int, from_first: Sequence[int]) -> None:
        """Compare what the step made; see Tally.end_step."""
        with self.streams.digests():
            self.tallies[number].end_step(from_first)
            self.memory_wrong_on_host.copy_(self.memory_wrong.count, non_blocking=True)

    def paced(self, pace: Pace, meet: Callable[[], object]) -> None:
        """Pause where one is due before the next product; `meet` lets all lanes pause together."""
        if pace.burst and self.since_pause >= pace.burst:
            meet()
            threading.Event().wait(pace.pause)  # for its time: nobody sets it
            self.since_pause = 0
        self.since_pause += 1


def in_lanes(
    lanes: Sequence[Lane], work: Callable[[int, Callable[[], object]], Result]
) -> list[Result]:
    """Results of `work(number, meet)` for every lane, each in a thread of its own.

    `meet()` returns when all lanes have called it. What one raises is raised when all have ended.
    """
    barrier = threading.Barrier(len(lanes))
    share = max(1, torch.get_num_threads() // len(lanes))
    for lane in lanes:
        lane.streams.begin()

    def run(number: int) -> Result:
        try:
            with lanes[number].streams.products():
                return work(number, barrier.wait)
        except BaseException:
            barrier.abort()  # the others would wait for ever
            raise

    with ThreadPoolExecutor(
        len(lanes), initializer=torch.set_num_threads, initargs=(share,)
    ) as threads:
        results = list(threads.map(run, range(len(lanes))))
    for lane in lanes:
        lane.streams.end()
    return results
