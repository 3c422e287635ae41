"""One launch, in the child: build, first step, digest, check, clocks, warm-up, blocks, last check.

The clocks are compared after the first step, whose time holds all that the first use of a device
costs. An untimed launch digests and checks after that, and so does a timed one of a workload whose
outputs may be checked after later steps, once its last block is over; where steps write each output
over the last, it is copied first, and only where others may begin beside the end. From there on
nothing is timed, which the runner is told: the process of the next launch may begin beside the
rest. One that was itself started so waits with its device set up, its state built or its first step
made, until its launch begins; one that stands by may be told meanwhile to go on.

All launches of a case have the same seed, so where a workload gives the same bits for the
same inputs, each reports the digest of its first output, which costs nothing while steps are
timed. The untimed launch of a case reports too what libraries it runs; of a workload that is not
reproducible bit by bit it builds and steps a second time and holds the two outputs to its spread.
A timed one warms up, waits until its group is ready, and is
timed in blocks; one that repeats a disputed launch makes the numbers of steps that the disputed
one made, whatever time they take, so that its last output is of the same input. No other ends on
the input that it began with, where the first answer handed out again would be right. A workload
with `steps` makes exactly so many: the first, which is checked as every first step is, then the
rest without warm-up. All of them are one block, and its last output is checked. One with a target
ends at the first hit, and a launch that has made all of its steps without one has failed a check.

Of inference, one in a hundred of the timed outputs is checked too, drawn by the seed, and the
untimed launch compares the times of repeated inputs with those of changing ones: cached answers
are detected.

Everything is sent as it happens, never between two samples. What only torch can do
(synchronise, seed, copy a tensor) comes from outside, as `Machine`.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from appliance.evidence.folding import fold_steps, in_full
from appliance.generator.drawing import Summed
from appliance.ipc.stage_clock import StageClock
from appliance.planning import launch_constants
from appliance.planning.check_sampling import sampled_steps
from appliance.planning.launch_constants import SEGMENTED
from appliance.records.journal import (
    END,
    AheadThrough,
    Block,
    Calibrated,
    Check,
    Checked,
    Digested,
    DrawnInput,
    InputsDrawn,
    LibrariesMapped,
    Phase,
    PhaseBegan,
    Stage,
    Started,
    TimedStage,
    Warmed,
    Witnessed,
)
from appliance.records.json import Record
from appliance.records.request import LaunchSpec
from appliance.worker import cache_check, outputs, timing
from appliance.worker.witness import Witness
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload

Made = TypeVar("Made")

ROOM = 0.9
"""Part of a launch's time limit that a longer block may fill."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the launch runs on: its clocks, its generators, and copies of tensors on the host.

    `bits` reads bytes to the host, and `pieces` does so in pieces where they lie in order.
    `agree` gives all ranks of the launch the largest of their numbers. `make_work` gives a short
    piece of work that keeps the device busy and changes nothing;
    `make_witness` gives a witness of the device's other users, None where it can have none;
    `libraries` the files that this process runs, by identity; `give_back` hands memory that is no
    longer used back to the device, and `is_lack_of_memory` tells of an exception whether it
    came of that; `more_checks` is what is to be checked of the device beside each output,
    `input_checks` of the inputs that a build drew. `kept` copies an output, and gives None where
    there is no room for the copy.
    """

    stopwatch: timing.Stopwatch
    make_work: Callable[[], Callable[[], object]]
    seed: Callable[[int], None]
    bits: outputs.Read
    values: outputs.Read
    pieces: outputs.InPieces | None = None
    agree: Callable[[int], int] = int
    libraries: Callable[[], Mapping[str, str | None]]
    make_witness: Callable[[], Witness | None] = lambda: None
    give_back: Callable[[], object] = lambda: None
    is_lack_of_memory: Callable[[BaseException], bool] = lambda error: False  # noqa: ARG005
    more_checks: Callable[[], Iterable[Check]] = tuple
    input_checks: Callable[[], Iterable[Check]] = tuple
    kept: Callable[[Any], Any | None] = lambda output: None  # noqa: ARG005


@dataclass(frozen=True, kw_only=True)
class Channel:
    """Where records go, and the wait for the other launches of the group.

    `turn` returns once a launch whose process was started ahead has begun, or with how far it goes
    on before that; `over` tells the runner that nothing is timed any more.
    """

    send: Callable[[Record], None]
    wait: Callable[[], None]
    turn: Callable[[], AheadThrough | None] = lambda: None
    over: Callable[[], None] = lambda: None


@dataclass(kw_only=True)
class Progress:
    """How far a launch has come; what fails before its first step is done may be software.

    `stages` is the clock of what its time goes to.
    """

    stage: Stage = "load"
    stages: StageClock = field(default_factory=StageClock)


@dataclass(kw_only=True)
class _Start:
    """A built state and its first step; cleared when no longer wanted, as it may fill a device.

    `number` is that of its step as the state's cycle of inputs counts, None where it has none.
    """

    state: Any
    before: object
    output: Any
    span: timing.Span
    number: int | None

    def clear_output(self) -> None:
        self.before = self.output = None


@dataclass(kw_only=True)
class _Draws:
    """Numbers of the timed steps whose outputs were drawn to be checked, in their order."""

    coming: Iterator[int]
    next: int | None = None

    def take(self, number: int) -> bool:
        """Whether this step was drawn; asked of each step once, in their order."""
        if self.next is None or self.next < number:
            self.next = next(self.coming, None)
        return self.next == number


@dataclass(frozen=True, kw_only=True)
class LaunchCourse:
    """A launch that is ready to run."""

    spec: LaunchSpec
    rank: int
    workload: Workload[Any, Any]
    target: Target
    machine: Machine
    channel: Channel
    progress: Progress = field(default_factory=Progress)
    begin_ns: int = field(init=False)
    witnesses: list[Witness | None] = field(default_factory=list, init=False)
    waits_after: list[AheadThrough] = field(default_factory=list, init=False)
    """The place at which it waits for the begin of its launch, until it has waited there."""
    ordered: list[AheadThrough] = field(default_factory=list, init=False)
    """All places up to which it was told to go before its launch began."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "begin_ns", self.machine.stopwatch.now())
        if self.spec.ahead:
            self._go_on(self.spec.ahead)

    def run(self) -> None:
        """Make the launch; every exception of the workload passes through."""
        if self.spec.is_timed:
            self._timed()
        else:
            self._untimed()

    # -------------------------------------------------------------- the two kinds

    def _untimed(self) -> None:
        start = self._start()
        self._clocks(start)
        has_more = self.workload.steps is not None and not self.workload.is_timed
        if not (has_more or self.workload.scenario):
            self.channel.over()
        self._judge_first(start)
        with self._in("digest"):
            self._send(LibrariesMapped, files=self.machine.libraries())
        is_exact = self.workload.is_repeatable
        first: outputs.Frozen = {}
        if not is_exact:
            with self._in("second_build"):
                first = outputs.freeze(start.output, self.machine.values)
        if has_more:
            self._finish(start)
        elif self.workload.scenario:
            self._compare_repeated(start)
        if has_more or self.workload.scenario:
            self.channel.over()
        start.state = None
        start.clear_output()
        if is_exact:
            return
        with self._in("second_build"):
            gc.collect()
            second = outputs.freeze(self._step_once(self._build()), self.machine.values)
            self._send(Checked, phase="repeatability", step=0, check=self._spread(first, second))

    def _timed(self) -> None:
        start = self._start()
        later = self._kept(start)
        if later is None:
            self._judge_first(start)
        self._clocks(start)
        if self.workload.steps is not None:
            self._wait()
            self._finish(start)
        else:
            start.clear_output()
            with self._in("warm_up"):
                warmed = self._warm_up(start.state)
                length = self._block_length(warmed)
            self._wait()
            self._blocks(start.state, 1 + len(warmed), length)
        if later is not None:
            self._judge_first(later)

    def _kept(self, start: _Start) -> _Start | None:
        """The first step as its output is checked after the last block; None: it is checked now."""
        if self.workload.scenario:
            return replace(start)
        if not self.workload.checks_later:
            return None
        if not self.workload.reuses_output:
            return replace(start)
        if not self.spec.overlaps:
            return None
        with self._in("check"):
            output = self.machine.kept(start.output)
            self.machine.stopwatch.synchronise()
        return None if output is None else replace(start, output=output)

    # -------------------------------------------------------------- their parts

    @property
    def _threads(self) -> int:
        """Of the host, for what is done beside no timed step."""
        return self.spec.num_threads or 1

    def _in(self, stage: TimedStage) -> AbstractContextManager[None]:
        """What the time of a block of code goes to."""
        return self.progress.stages.of(stage)

    def _wait(self) -> None:
        with self._in("wait"):
            self.channel.wait()

    def _start(self) -> _Start:
        """Build and step once, and say what both took once the launch has begun."""
        start, build_ns = self._made_ahead(self._build_and_step)
        self.progress.stage = "later"
        self._send(
            Started,
            build_ns=build_ns,
            first_step_ns=start.span.wall_ns,
            is_beside="first_step" in self.ordered,
        )
        return start

    def _build_and_step(self) -> tuple[_Start, int]:
        """A state with its first step, and the nanoseconds of its build."""
        state, built = self._built(partial(self._one, self._build))
        before = self.workload.snapshot(state)
        output, first = timing.one(self._step(state), self.machine.stopwatch)
        self.progress.stages.enter("other")
        cycle = _cycle(state)
        number = None if cycle is None else cycle.number
        start = _Start(state=state, before=before, output=output, span=first, number=number)
        return start, built.wall_ns

    def _clocks(self, start: _Start) -> None:
        """Compare the clocks, and look for other users of the device."""
        with self._in("calibrate"):
            self._compare_clocks(self._step(start.state))
        self._look(0)

    def _judge_first(self, start: _Start) -> None:
        """Digest and check the first output, of a state that further steps may have been made of.

        The cycle of its inputs is set back to the first step meanwhile.
        """
        self._check_inputs()
        self._digest(start.output)
        cycle = _cycle(start.state)
        if cycle is None or start.number is None:
            self._check("first", 0, start.before, start.state, start.output)
            return
        last, cycle.number = cycle.number, start.number
        try:
            self._check("first", 0, start.before, start.state, start.output)
        finally:
            cycle.number = last

    def _made_ahead(self, make: Callable[[], Made]) -> Made:
        """What builds and steps, before the launch begins as far as it was ordered to.

        It returns once the launch has begun. What lacked memory before that, which two processes
        had to share, is made once more in the launch.
        """
        self._reach("device")
        try:
            return make()
        except BaseException as error:
            if not (self.waits_after and self.machine.is_lack_of_memory(error)):
                raise
        finally:
            self._reach(*self.waits_after)
        gc.collect()
        self.machine.give_back()
        return make()

    def _built(self, build: Callable[[], Made]) -> Made:
        """What a build makes; the first step comes next, in the launch unless it was ordered."""
        self.progress.stage = "build"
        self.progress.stages.enter("build")
        built = build()
        self._reach("build")
        self.progress.stage = "first_step"
        self.progress.stages.enter("first_step")
        return built

    def _reach(self, *places: AheadThrough) -> None:
        """Wait for the begin of the launch, where its process waits after one of these places."""
        if not set(places).intersection(self.waits_after):
            return
        if self.spec.stands_by:
            self.machine.stopwatch.synchronise()  # nothing of it is under way where it waits
        with self._in("wait"):
            further = self.channel.turn()
        self.waits_after.clear()
        if further is not None:
            self._go_on(further)
        else:
            object.__setattr__(self, "begin_ns", self.machine.stopwatch.now())

    def _go_on(self, through: AheadThrough) -> None:
        self.waits_after.append(through)
        self.ordered.append(through)

    def _build(self) -> Any:
        self.machine.seed(self.spec.seed)
        self.target.drawn.clear()
        return self.workload.build(self.target, self.spec.seed)

    def _compare_clocks(self, step: timing.Step) -> None:
        """Report spans of work by each clock, and what timing a step of this kind costs."""
        spans = timing.compare_clocks(
            self.machine.make_work(),
            self.machine.stopwatch,
            round(self.spec.protocol.calibration_seconds * 1e9),
        )
        events = tuple(span.event_ns for span in spans if span.event_ns is not None)
        inner = tuple(span.inner_ns for span in spans if span.inner_ns is not None)
        self._send(
            Calibrated,
            wall_ns=tuple(span.wall_ns for span in spans),
            raw_ns=tuple(span.raw_ns for span in spans),
            event_ns=events or None,
            inner_ns=inner or None,
            empty_ns=timing.empty_steps(step, self.machine.stopwatch),
        )

    def _look(self, index: int) -> None:
        """Look for other users of the device; with several ranks not between blocks.

        The others would wait for this one in their next step.
        """
        with self._in("calibrate"):
            if index == 0:
                self.witnesses.append(self.machine.make_witness())
            (witness,) = self.witnesses
            if witness is None or (index and self.spec.ranks > 1):
                return
            train = witness.look(self.machine.stopwatch)
            if train is not None:
                self._send(Witnessed, index=index, piece_ns=train.piece_ns, issue_ns=train.issue_ns)

    def _warm_up(self, state: Any) -> tuple[int, ...]:
        """Times of the steps that were made."""
        protocol = self.spec.protocol
        step, stopwatch = self._step(state), self.machine.stopwatch
        if self.spec.repeat is not None:
            times = timing.warm_up(step, stopwatch, _so_many(self.spec.repeat.warmup))
        elif self.spec.ranks == 1:
            times = timing.warm_up(step, stopwatch, partial(launch_constants.is_warm, protocol))
        else:
            times = timing.warm_up(step, stopwatch, _so_many(max(1, protocol.warmup_steps)))
            nanoseconds = round(protocol.warmup_seconds * 1e9)
            more = timing.steps_within(nanoseconds - sum(times), times)
            times += timing.warm_up(step, stopwatch, _so_many(self.machine.agree(more)))
        self._send(Warmed, wall_ns=times)
        return times

    def _block_length(self, warmed: Sequence[int]) -> timing.Length:
        """At least so many steps and so long; for several ranks a number, as each waits for all."""
        protocol = self.spec.protocol
        nanoseconds = round(protocol.block_seconds * 1e9)
        least = protocol.block_steps
        if not self.workload.scenario:
            least = launch_constants.block_steps(protocol, launch_constants.median_ns(warmed))
        if self.spec.ranks == 1:
            return timing.Length(steps=least, nanoseconds=nanoseconds)
        steps = max(least, timing.steps_within(nanoseconds, warmed))
        return timing.Length(steps=self.machine.agree(steps))

    def _blocks(self, state: Any, first_step: int, length: timing.Length) -> None:
        protocol = self.spec.protocol
        draws, num_steps = self._draws(), 0
        for index in range(protocol.blocks):
            repeated = self._repeated(index)
            has_last = self.spec.check_last and index == protocol.blocks - 1
            hooks = timing.BlockHooks(
                snapshot=self._snapshot(state),
                has_last=has_last,
                is_drawn=None if draws is None else _shifted(draws.take, num_steps),
                extra_steps=None if repeated else self._extra_steps(state, has_last=has_last),
                between=self._phases(state, index),
            )
            samples = self._block(state, repeated or length, hooks)
            begin = first_step + num_steps
            num_steps += len(samples.wall_ns)
            self._send_block(index, begin, samples)
            self._look(index + 1)
            if index + 1 == protocol.blocks:
                self.channel.over()
            for drawn in samples.drawn:
                self._check("sampled", begin + drawn.number, drawn.before, state, drawn.output)
            if hooks.has_last:
                self._check(
                    "last", first_step + num_steps - 1, samples.before, state, samples.output
                )

    def _draws(self) -> _Draws | None:
        """The timed steps of inference whose outputs are checked; None of everything else."""
        if not self.workload.scenario:
            return None
        spec = self.spec
        return _Draws(coming=sampled_steps(spec.seed, spec.launch, spec.protocol.block_steps))

    def _phases(self, state: Any, index: int) -> Callable[[int, int, bool], None] | None:
        """Reports of each phase in which a block's steps load the device, as it begins."""
        if not self._has_own("phase"):
            return None
        last = ""

        def report(num_steps: int, passed_ns: int, has_next: bool) -> None:  # noqa: FBT001
            nonlocal last
            now = self.workload.phase(state)
            name = now.name if has_next else END
            if name != last:
                self._send(
                    PhaseBegan,
                    index=index,
                    phase=name,
                    step=num_steps,
                    passed_ns=passed_ns,
                    units=now.units,
                    processor_ns=time.process_time_ns(),
                    threads=now.threads,
                )
                last = name

        return report

    def _extra_steps(self, state: Any, *, has_last: bool) -> Callable[[int], int] | None:
        """How many more steps a block shall have; None where that is never any.

        The workload may ask for some. One more keeps a launch from ending on the input that it
        began with.
        """
        asks = self._has_own("extra_steps")
        if not (asks or has_last):
            return None

        def extra_steps(num_steps: int) -> int:
            more = self._granted_steps(state, num_steps) if asks else 0
            return more + (has_last and self.workload.returns_to_first(state, more))

        return extra_steps

    def _granted_steps(self, state: Any, num_steps: int) -> int:
        """Extra steps of the workload, as far as the time limit has room on every rank."""
        wanted = self.machine.agree(self.workload.extra_steps(state, num_steps))
        return min(wanted, -self.machine.agree(-self._room(num_steps)))  # the least of all ranks

    def _room(self, num_steps: int) -> int:
        """Steps for which the launch's time limit leaves room, if all take as long as these."""
        passed = self.machine.stopwatch.now() - self.begin_ns
        left = ROOM * self.spec.case.time_limit_seconds * 1e9 - passed
        return max(0, int(left * num_steps / max(1, passed)))

    def _repeated(self, index: int) -> timing.Length | None:
        """As many steps as the block had in the launch that this one repeats."""
        repeat = self.spec.repeat
        if repeat is None or index >= len(repeat.blocks):
            return None  # a launch that crashed had not finished all of them
        return timing.Length(steps=repeat.blocks[index])

    def _finish(self, start: _Start) -> None:
        """Steps after the first, to `steps` or the target; one block with it; the last check."""
        rest = (self.workload.steps or 1) - 1
        samples = timing.Samples(before=start.before, output=start.output)
        every = self.workload.evaluate_every
        reaches = self._reaches(start.state) if every else None
        if reaches is not None and (every == 1 or not rest):
            samples.has_reached = reaches()
        if rest and not samples.has_reached:
            samples.before = samples.output = start.before = start.output = None
            hooks = timing.BlockHooks(
                snapshot=self._snapshot(start.state),
                has_last=True,
                has_reached=reaches,
                every=every,
                before=1,
            )
            samples = self._block(start.state, timing.Length(steps=rest), hooks)
        samples.begin_with(start.span)
        if self.spec.is_timed:
            self._send_block(0, 0, samples)
            self.channel.over()
        num_steps = len(samples.wall_ns)
        self._check("last", num_steps - 1, samples.before, start.state, samples.output)
        if every:
            check = _target(has_reached=samples.has_reached, budget=rest + 1)
            self._send(Checked, phase="last", step=num_steps - 1, check=check)

    def _reaches(self, state: Any) -> Callable[[], bool]:
        """Whether the target is reached, of which all ranks must agree."""

        def reaches() -> bool:
            with self._in("evaluate"):
                return not self.machine.agree(int(not self.workload.has_reached(state)))

        return reaches

    def _block(self, state: Any, length: timing.Length, hooks: timing.BlockHooks) -> timing.Samples:
        with self._in("timed" if self.spec.is_timed else "untimed"):
            return timing.block(self._step(state), self.machine.stopwatch, length, hooks)

    def _snapshot(self, state: Any) -> Callable[[], object]:
        snapshot = self.workload.snapshot
        return lambda: snapshot(state)

    def _step(self, state: Any) -> timing.Step:
        """The step of a state, with those hooks that the workload has of its own."""
        workload = self.workload
        load, step, wait = workload.load, workload.step, workload.wait
        return timing.Step(
            make=lambda: step(state),
            load=(lambda: load(state)) if self._has_own("load") else None,
            wait=(lambda: wait(state)) if self._has_own("wait") else None,
        )

    def _has_own(self, hook: str) -> bool:
        return getattr(type(self.workload), hook) is not getattr(Workload, hook)

    def _one(self, action: Callable[[], Any]) -> tuple[Any, timing.Span]:
        return timing.one(timing.Step(make=action), self.machine.stopwatch)

    def _step_once(self, state: Any) -> Any:
        return timing.one(self._step(state), self.machine.stopwatch)[0]

    def _compare_repeated(self, start: _Start) -> None:
        """Compare the times of steps on one input with those on changing ones."""
        if not self._has_own("repeat_input") or self.spec.ranks > 1:
            return
        state = start.state
        with self._in("check"):
            workload, words = self._brief(start)

            def seconds(*, is_repeated: bool) -> float:
                if is_repeated:
                    workload.repeat_input(state)
                return self._seconds(workload, state)

            gc.collect()
            with timing.without_collection():
                check = cache_check.compare(seconds, words)
            self._send(Checked, phase="repeated", step=0, check=check)

    def _brief(self, start: _Start) -> tuple[Workload[Any, Any], str]:
        """The workload with steps that are not long, and what they are if they are not its own.

        A first step that was long may have loaded what later ones find.
        """
        if start.span.wall_ns * 1e-9 <= cache_check.LONG:
            return self.workload, ""
        seconds = self._seconds(self.workload, start.state)
        if seconds <= cache_check.LONG:
            return self.workload, ""
        return self.workload.briefly(cache_check.BRIEF / seconds)

    def _seconds(self, workload: Workload[Any, Any], state: Any) -> float:
        """What one step takes."""
        step = replace(self._step(state), make=lambda: workload.step(state))
        return timing.one(step, self.machine.stopwatch)[1].wall_ns * 1e-9

    # -------------------------------------------------------------- records sent

    def _spread(self, first: outputs.Frozen, second: outputs.Frozen) -> Check:
        return Check(
            name="same output twice, within its measured spread",
            error=outputs.relative_difference(first, second),
            bound=self.workload.spread,
            detects=self.workload.spread,
            detects_what="relative difference of two outputs made from the same inputs",
        )

    def _digest(self, output: Any) -> None:
        if self.workload.is_repeatable:
            with self._in("digest"):
                digest = outputs.digest(
                    output, self.machine.bits, self._threads, self.machine.pieces
                )
                self._send(Digested, phase="first", step=0, what="output", digest=digest)

    def _check_inputs(self) -> None:
        """Report what the build drew, and what the host's own generator says of it."""
        if not self.target.drawn:
            return
        with self._in("check"):
            self._send(InputsDrawn, inputs=tuple(map(_recorded, self.target.drawn)))
            for check in self.machine.input_checks():
                self._send(Checked, phase="first", step=0, check=check)

    def _check(self, phase: Phase, step: int, before: object, state: Any, output: Any) -> None:
        with self._in("check"):
            checks = self.workload.check(before, state, output)
            for check in chain(checks, self.machine.more_checks()):
                self._send(Checked, phase=phase, step=step, check=check)

    def _send_block(self, index: int, first_step: int, samples: timing.Samples) -> None:
        """Send the times of a block; those of a segment, which nobody judges, by the minute."""
        is_folded = self.spec.case.workload in SEGMENTED and samples.load_ns is None
        steps = (
            fold_steps(samples.wall_ns, samples.event_ns, self.spec.fold_ns)
            if is_folded
            else in_full(samples.wall_ns, samples.event_ns)
        )
        self._send(
            Block,
            index=index,
            first_step=first_step,
            wall_ns=steps.wall_ns,
            event_ns=steps.event_ns,
            folded=steps.folded,
            block_wall_ns=samples.block_wall_ns,
            block_raw_ns=samples.block_raw_ns,
            load_ns=None if samples.load_ns is None else tuple(samples.load_ns),
            reached_at=len(samples.wall_ns) if samples.has_reached else None,
        )

    def _send(self, kind: Callable[..., Record], **fields: Any) -> None:
        self.channel.send(kind(launch=self.spec.launch, rank=self.rank, **fields))


def _cycle(state: Any) -> InputCycle | None:
    """What counts the inputs that the steps of a state take, where it has several sets of them."""
    cycle = getattr(state, "cycle", None)
    return cycle if isinstance(cycle, InputCycle) else None


def _recorded(summed: Summed) -> DrawnInput:
    drawn = summed.drawn
    return DrawnInput(
        name=drawn.name,
        values=str(drawn.values),
        dtype=drawn.dtype,
        shape=drawn.shape,
        checksum=summed.checksum,
    )


def _so_many(steps: int) -> Callable[[int, int], bool]:
    """A warm-up of so many steps, whatever time they take."""
    return lambda num_steps, _: num_steps >= steps


def _shifted(is_drawn: Callable[[int], bool], by: int) -> Callable[[int], bool]:
    """The same question of steps that are counted from a later one."""
    return lambda number: is_drawn(by + number)


def _target(*, has_reached: bool, budget: int) -> Check:
    """A target that is missed is missed by infinitely many steps."""
    return Check(
        name="steps beyond those in which the target is to be reached",
        error=0.0 if has_reached else math.inf,
        bound=0.0,
        kind="trajectory",
        detects=1.0,
        detects_what=f"step more than {budget:,}",
    )
