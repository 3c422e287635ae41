"""One launch, in the child: build, first step, digest, check, clocks, warm-up, blocks, last check.

The clocks are compared after the first step, whose time holds all that the first use of a
device costs. All launches of a case have the same seed, so where a workload gives the same bits
for the same inputs, each tells the digest of its first output, which costs nothing while steps are
timed. The untimed launch of a case says too what libraries it runs, builds and steps a second time
and compares the two outputs. A timed one warms up, waits until its group is ready, and is timed in
blocks. A workload with `steps` makes exactly so many: the first, which is checked as every first
step is, then the rest without warm-up. All of them are one block, and its last output is checked.

Everything is told to `send` as it happens, never between two samples. What only torch can do
(synchronise, seed, copy a tensor) comes from outside, as `Machine`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance import outputs, timing
from appliance.records import (
    Block,
    Calibrated,
    Check,
    Checked,
    Digested,
    LaunchSpec,
    Libraries,
    Phase,
    Record,
    Started,
    Warmed,
)
from workloads.contract import Target, Workload


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the launch runs on: its clocks, its generators, and copies of tensors on the host.

    `agree` gives all ranks of the launch the largest of their numbers. `make_work` gives a short
    piece of work that keeps the device busy and changes nothing;
    `libraries` the files that this process runs, with their digests.
    """

    stopwatch: timing.Stopwatch
    make_work: Callable[[], Callable[[], object]]
    seed: Callable[[int], None]
    bits: outputs.Copy
    values: outputs.Copy
    agree: Callable[[int], int] = int
    libraries: Callable[[], Mapping[str, str | None]]


@dataclass(frozen=True, kw_only=True)
class Wires:
    """Where records go, and the wait for the other launches of the group."""

    send: Callable[[Record], None]
    wait: Callable[[], None]


@dataclass(kw_only=True)
class _Start:
    """A built state and its first step; cleared when no longer wanted, as it may fill a device."""

    state: Any
    before: object
    output: Any
    span: timing.Span


@dataclass(frozen=True, kw_only=True)
class LaunchCourse:
    """A launch that is ready to run."""

    spec: LaunchSpec
    rank: int
    workload: Workload[Any, Any]
    target: Target
    machine: Machine
    wires: Wires

    def run(self) -> None:
        """Make the launch; every exception of the workload passes through."""
        if self.spec.is_timed:
            self._timed()
        else:
            self._untimed()

    # -------------------------------------------------------------- the two kinds

    def _untimed(self) -> None:
        start = self._start()
        self._send(Libraries, files=self.machine.libraries())
        first = self._freeze(start.output)
        if self.workload.steps is not None and not self.workload.is_timed:
            self._finish(start)
        start.state = start.before = start.output = None
        gc.collect()
        second = self._freeze(self._step_once(self._build()))
        self._send(Checked, phase="repeatability", step=0, check=self._repeatability(first, second))

    def _timed(self) -> None:
        start = self._start()
        if self.workload.steps is not None:
            self.wires.wait()
            self._finish(start)
            return
        start.before = start.output = None
        warmed = self._warm_up(start.state)
        length = self._block_length(warmed)
        self.wires.wait()
        self._blocks(start.state, 1 + len(warmed), length)

    # -------------------------------------------------------------- their parts

    def _start(self) -> _Start:
        """Build, step once, digest and check the output, compare the clocks."""
        state, built = self._one(self._build)
        before = self.workload.snapshot(state)
        output, first = self._one(self._stepper(state))
        self._send(Started, build_ns=built.wall_ns, first_step_ns=first.wall_ns)
        self._digest(output)
        self._check("first", 0, before, state, output)
        self._compare_clocks()
        return _Start(state=state, before=before, output=output, span=first)

    def _build(self) -> Any:
        self.machine.seed(self.spec.seed)
        return self.workload.build(self.target, self.spec.seed)

    def _compare_clocks(self) -> None:
        spans = timing.compare_clocks(
            self.machine.make_work(),
            self.machine.stopwatch,
            round(self.spec.protocol.calibration_seconds * 1e9),
        )
        events = tuple(span.event_ns for span in spans if span.event_ns is not None)
        self._send(
            Calibrated,
            wall_ns=tuple(span.wall_ns for span in spans),
            raw_ns=tuple(span.raw_ns for span in spans),
            event_ns=events or None,
        )

    def _warm_up(self, state: Any) -> tuple[int, ...]:
        """Times of the steps that were made."""
        protocol = self.spec.protocol
        length = timing.Length(
            steps=protocol.warmup_steps, nanoseconds=round(protocol.warmup_seconds * 1e9)
        )
        step, stopwatch = self._stepper(state), self.machine.stopwatch
        if self.spec.ranks == 1:
            times = timing.warm_up(step, stopwatch, length)
        else:
            some = timing.Length(steps=max(1, length.steps))
            times = timing.warm_up(step, stopwatch, some)
            more = timing.steps_within(length.nanoseconds - sum(times), times)
            some = timing.Length(steps=self.machine.agree(more))
            times += timing.warm_up(step, stopwatch, some)
        self._send(Warmed, wall_ns=times)
        return times

    def _block_length(self, warmed: Sequence[int]) -> timing.Length:
        """At least so many steps and so long; for several ranks a number, as each waits for all."""
        protocol = self.spec.protocol
        nanoseconds = round(protocol.block_seconds * 1e9)
        if self.spec.ranks == 1:
            return timing.Length(steps=protocol.block_steps, nanoseconds=nanoseconds)
        steps = max(protocol.block_steps, timing.steps_within(nanoseconds, warmed))
        return timing.Length(steps=self.machine.agree(steps))

    def _blocks(self, state: Any, first_step: int, length: timing.Length) -> None:
        protocol = self.spec.protocol
        for index in range(protocol.blocks):
            is_checked = self.spec.check_last and index == protocol.blocks - 1
            samples = self._block(state, length, is_checked=is_checked)
            self._send_block(index, first_step, samples)
            first_step += len(samples.wall_ns)
            if is_checked:
                self._check("last", first_step - 1, samples.before, state, samples.output)

    def _finish(self, start: _Start) -> None:
        """Steps after the first, to exactly `steps`; one block with the first; the last check."""
        rest = (self.workload.steps or 1) - 1
        samples = timing.Samples(before=start.before, output=start.output)
        if rest:
            samples.before = samples.output = start.before = start.output = None
            samples = self._block(start.state, timing.Length(steps=rest), is_checked=True)
        samples.begin_with(start.span)
        if self.spec.is_timed:
            self._send_block(0, 0, samples)
        self._check("last", rest, samples.before, start.state, samples.output)

    def _block(self, state: Any, length: timing.Length, *, is_checked: bool) -> timing.Samples:
        snapshot = self.workload.snapshot
        return timing.block(
            self._stepper(state),
            self.machine.stopwatch,
            length,
            (lambda: snapshot(state)) if is_checked else None,
        )

    def _stepper(self, state: Any) -> Callable[[], Any]:
        step = self.workload.step
        return lambda: step(state)

    def _one(self, action: Callable[[], Any]) -> tuple[Any, timing.Span]:
        return timing.one(action, self.machine.stopwatch)

    def _step_once(self, state: Any) -> Any:
        return self._one(self._stepper(state))[0]

    # -------------------------------------------------------------- what is said

    def _freeze(self, output: Any) -> outputs.Frozen:
        is_exact = self.workload.is_repeatable
        return outputs.freeze(output, self.machine.bits if is_exact else self.machine.values)

    def _repeatability(self, first: outputs.Frozen, second: outputs.Frozen) -> Check:
        if self.workload.is_repeatable:
            error = outputs.differing_bytes(first, second)
            return Check(name="same bits twice", error=error, bound=0.0, kind="exact")
        return Check(
            name="same output twice, within its measured spread",
            error=outputs.relative_difference(first, second),
            bound=self.workload.spread,
            detects=self.workload.spread,
            detects_what="relative difference of two outputs made from the same inputs",
        )

    def _digest(self, output: Any) -> None:
        if self.workload.is_repeatable:
            digest = outputs.digest(output, self.machine.bits)
            self._send(Digested, phase="first", step=0, what="output", digest=digest)

    def _check(self, phase: Phase, step: int, before: object, state: Any, output: Any) -> None:
        for check in self.workload.check(before, state, output):
            self._send(Checked, phase=phase, step=step, check=check)

    def _send_block(self, index: int, first_step: int, samples: timing.Samples) -> None:
        self._send(
            Block,
            index=index,
            first_step=first_step,
            wall_ns=tuple(samples.wall_ns),
            event_ns=None if samples.event_ns is None else tuple(samples.event_ns),
            block_wall_ns=samples.block_wall_ns,
            block_raw_ns=samples.block_raw_ns,
        )

    def _send(self, kind: Callable[..., Record], **fields: Any) -> None:
        self.wires.send(kind(launch=self.spec.launch, rank=self.rank, **fields))
