"""The child's parts: how steps are timed, outputs compared, parameters read; and `describe`."""

from __future__ import annotations

import dataclasses
import errno
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from faulty.misbehaving import Misbehaving
from support.builders import bare_lines, ended
from support.launching import case, plan
from support.program import program

from appliance.errors import ApplianceError, UsageError
from appliance.records.journal import LaunchStarted
from appliance.records.json import Record
from appliance.records.plan import Repeat
from appliance.records.request import CaseRequest, LaunchSpec, Refused
from appliance.records.workload import Resolved
from appliance.runner import describing
from appliance.runner.environment import child_environment, usable_cores
from appliance.verbs import rerun_diff
from appliance.worker import child, outputs, parameters, prepare, timing, torch_device
from appliance.worker.measure import Channel, LaunchCourse, Machine, Progress
from workloads.contract.target import Artifacts, Target
from workloads.parts.numerics.staging import staged

# ------------------------------------------------------------------ timing


class FakeWatch:
    """Clocks that only steps and snapshots move, and a log of what happened.

    The second clock runs twice as fast, so that it is told from the first. `gaps` are the times
    that pass at its readings, one after another.
    """

    def __init__(self, *, has_events: bool = False, gaps: Sequence[int] = ()) -> None:
        self.time = 0
        self.log: list[str] = []
        self.has_events = has_events
        self.gaps = list(gaps)

    def now(self) -> int:
        return self.time

    def raw(self) -> int:
        self.time += self.gaps.pop(0) if self.gaps else 0
        return 2 * self.time

    def synchronise(self) -> None:
        self.log.append("synchronise")

    def mark(self) -> int | None:
        return self.time if self.has_events else None

    def between(self, begin: int, end: int) -> int:
        return end - begin

    def action(self, name: str, *durations: int) -> Callable[[], int]:
        """Something that takes the next of `durations`, the last of them for ever."""
        left = list(durations)

        def act() -> int:
            self.log.append(name)
            self.time += left.pop(0) if len(left) > 1 else left[0]
            return self.log.count(name)

        return act


def step_of(watch: FakeWatch, *durations: int) -> timing.Step:
    return timing.Step(make=watch.action("step", *durations))


def test_block_has_at_least_its_steps_and_its_time() -> None:
    watch = FakeWatch()
    by_time = timing.block(step_of(watch, 10), watch, timing.Length(steps=2, nanoseconds=35))
    by_steps = timing.block(step_of(watch, 10), watch, timing.Length(steps=6, nanoseconds=35))
    assert (by_time.wall_ns, by_time.block_wall_ns, by_time.block_raw_ns) == ([10] * 4, 40, 80)
    assert by_steps.wall_ns == [10] * 6
    assert by_time.event_ns is None


def test_every_sample_is_closed_by_a_synchronise() -> None:
    watch = FakeWatch()
    timing.block(step_of(watch, 10), watch, timing.Length(steps=2))
    assert watch.log == ["synchronise", "step", "synchronise", "step", "synchronise"]


def test_last_step_of_a_checked_block_has_its_snapshot_just_before_it() -> None:
    watch = FakeWatch()
    samples = timing.block(
        step_of(watch, 10),
        watch,
        timing.Length(steps=3, nanoseconds=1),
        timing.BlockHooks(snapshot=watch.action("snapshot", 1000), has_last=True),
    )
    order = [name for name in watch.log if name != "synchronise"]
    assert order == ["step", "step", "snapshot", "step"]
    assert (samples.before, samples.output) == (1, 3)
    assert samples.block_wall_ns == sum(samples.wall_ns) == 30  # the snapshot is not in it
    assert samples.block_raw_ns == 60


def test_block_that_ends_against_expectation_makes_one_more_step_for_its_check() -> None:
    watch = FakeWatch()
    samples = timing.block(
        step_of(watch, 10, 90, 10),
        watch,
        timing.Length(steps=1, nanoseconds=80),
        timing.BlockHooks(snapshot=watch.action("snapshot", 0), has_last=True),
    )
    order = [name for name in watch.log if name != "synchronise"]
    assert order == ["step", "step", "snapshot", "step"]
    assert samples.wall_ns == [10, 90, 10]


def test_block_that_goes_on_against_expectation_takes_a_new_snapshot() -> None:
    watch = FakeWatch()
    samples = timing.block(
        step_of(watch, 40, 10, 10, 10, 30),
        watch,
        timing.Length(steps=1, nanoseconds=75),
        timing.BlockHooks(snapshot=watch.action("snapshot", 0), has_last=True),
    )
    order = [name for name in watch.log if name != "synchronise"]
    assert order == ["step", *["snapshot", "step"] * 4]
    assert samples.before == 4
    assert samples.output == 5


def test_device_events_are_read_after_the_block() -> None:
    watch = FakeWatch(has_events=True)
    samples = timing.block(step_of(watch, 7), watch, timing.Length(steps=3))
    assert samples.event_ns == [7, 7, 7]


def test_clocks_are_read_again_when_something_came_between() -> None:
    watch = FakeWatch(gaps=[0, 9_000_000, 0])  # at the begin, at the end, at the end again
    span = timing.one(step_of(watch, 10_000_000), watch)[1]
    assert (span.wall_ns, span.raw_ns) == (19_000_000, 38_000_000)


def test_of_clocks_that_are_never_read_close_together_the_closest_reading_counts() -> None:
    watch = FakeWatch(gaps=[0, 40_000, 80_000, 30_000, 90_000, 50_000])
    span = timing.one(step_of(watch, 10_000_000), watch)[1]
    assert span.wall_ns == 10_000_000 + 40_000 + 80_000 + 30_000 // 2


def test_time_of_one_step_is_that_of_every_clock() -> None:
    watch = FakeWatch(has_events=True)
    output, span = timing.one(step_of(watch, 7), watch)
    assert (output, span) == (1, timing.Span(wall_ns=7, raw_ns=14, event_ns=7))


def test_clocks_are_compared_over_three_spans_of_work() -> None:
    watch = FakeWatch(has_events=True)
    spans = timing.compare_clocks(watch.action("work", 4), watch, 30)
    assert spans == (timing.Span(wall_ns=12, raw_ns=24, event_ns=12, inner_ns=12),) * 3
    assert watch.log.count("synchronise") > watch.log.count("work") == 1 + 9
    assert watch.log[:2] == ["work", "synchronise"]


class ColdWatch(FakeWatch):
    """A device whose first mark takes a millisecond, and each of them 20 microseconds."""

    def mark(self) -> int:
        self.time += 20_000 if "mark" in self.log else MILLISECOND
        self.log.append("mark")
        return self.time


def test_what_is_made_for_the_first_time_lengthens_no_span() -> None:
    watch, made = ColdWatch(has_events=True), 0

    def work() -> None:
        nonlocal made
        watch.time += 50_000 if made else 40 * MILLISECOND
        made += 1

    spans = timing.compare_clocks(work, watch, 3 * MILLISECOND)
    assert all(9 * MILLISECOND < span.wall_ns < 11 * MILLISECOND for span in spans)
    assert all(span.wall_ns - (span.inner_ns or 0) <= 0.005 * span.wall_ns for span in spans)


class CostlyWatch(FakeWatch):
    """Clocks on which a synchronise takes five microseconds and a mark two."""

    def synchronise(self) -> None:
        super().synchronise()
        self.time += 5_000

    def mark(self) -> int | None:
        self.time += 2_000
        return super().mark()


def test_empty_steps_cost_what_timing_costs_whatever_the_step_takes() -> None:
    watch = CostlyWatch(has_events=True)
    load = watch.action("load", 300)
    step = timing.Step(make=watch.action("step", 10_000_000), load=load)
    assert timing.empty_steps(step, watch) == (2 * 2_000 + 5_000,) * 5
    assert not {"step", "load"} & set(watch.log)


def test_empty_steps_make_no_marks_where_steps_make_none() -> None:
    watch = CostlyWatch(has_events=True)
    step = timing.Step(make=watch.action("step", 7), wait=watch.action("wait", 7))
    assert timing.empty_steps(step, watch) == (5_000,) * 5


class SharedWatch(FakeWatch):
    """A device that others have for `wait` whenever it is given something after a rest."""

    def __init__(self, wait: int) -> None:
        super().__init__(has_events=True)
        self.wait = wait

    def mark(self) -> int:
        self.time += self.wait
        return self.time


MILLISECOND = 10**6


def test_a_mark_that_waits_lengthens_the_span_until_the_bracket_is_narrow() -> None:
    watch = SharedWatch(2 * MILLISECOND)
    spans = timing.compare_clocks(watch.action("work", MILLISECOND), watch, 30 * MILLISECOND)
    for span in spans:
        assert span.inner_ns is not None
        assert span.event_ns is not None
        assert span.inner_ns <= span.event_ns <= span.wall_ns
        width = (span.wall_ns - span.inner_ns) / span.wall_ns
        assert 0.002 < width <= 0.005
        assert span.wall_ns < 10 * 10**9 / 3


def test_a_mark_that_waits_for_too_long_leaves_the_bracket_open_after_ten_seconds() -> None:
    watch = SharedWatch(100 * MILLISECOND)
    spans = timing.compare_clocks(watch.action("work", MILLISECOND), watch, 30 * MILLISECOND)
    assert 9 * 10**9 < sum(span.wall_ns for span in spans) < 11 * 10**9
    assert all(span.wall_ns - (span.inner_ns or 0) > 0.005 * span.wall_ns for span in spans)


def test_clocks_are_compared_over_some_work_even_if_no_time_is_given() -> None:
    watch = FakeWatch()
    spans = timing.compare_clocks(watch.action("work", 4), watch, 0)
    assert spans == (timing.Span(wall_ns=4, raw_ns=8),) * 3


@pytest.mark.parametrize(("steps", "made"), [(3, (30, 10, 10)), (1, (30,)), (0, ())])
def test_warm_up_goes_on_until_it_is_enough(steps: int, made: tuple[int, ...]) -> None:
    watch = FakeWatch()
    asked: list[tuple[int, int]] = []

    def is_warm(num_steps: int, passed: int) -> bool:
        asked.append((num_steps, passed))
        return num_steps >= steps

    assert timing.warm_up(step_of(watch, 30, 10), watch, is_warm) == made
    assert asked == [(number, sum(made[:number])) for number in range(steps + 1)]


# ------------------------------------------------------------------ one launch


class RecordedLaunch:
    """The records of a launch that is made in this process, with clocks that stand still."""

    def __init__(
        self,
        folder: Path,
        *,
        num_steps: int = 0,
        is_timed: bool = True,
        repeat: Repeat | None = None,
        watch: FakeWatch | None = None,
        seconds: float = 0.0,
    ) -> None:
        self.records: list[Any] = []
        watch = watch or FakeWatch(has_events=True)
        planned = plan(case("quick", steps=num_steps or None), warmup_seconds=seconds)
        protocol = dataclasses.replace(planned.protocol, block_seconds=seconds)
        spec = LaunchSpec(
            launch="quick@cpu:0/1",
            case=planned.cases[0],
            vendor="faulty.vendor",
            protocol=protocol,
            is_timed=is_timed,
            check_last=True,
            seed=7,
            data=None,
            artifacts_folder=str(folder),
            artifacts={},
            socket="",
            token="",
            num_threads=1,
            repeat=repeat,
        )
        LaunchCourse(
            spec=spec,
            rank=0,
            workload=Misbehaving(size=8, num_steps=num_steps),
            target=Target(device=torch.device("cpu"), artifacts=Artifacts(folder)),
            machine=Machine(
                stopwatch=watch,
                agree=lambda number: number,
                make_work=lambda: watch.action("work", 10**7),
                seed=torch_device.seed_generators,
                bits=torch_device.device_bits,
                values=torch_device.device_values,
                libraries=lambda: {"/lib/libm.so.6": "1:2:3:4:5"},
            ),
            channel=Channel(send=self.records.append, wait=lambda: self.records.append("go")),
        ).run()

    @property
    def kinds(self) -> list[str]:
        return [getattr(record, "kind", record) for record in self.records]

    def of(self, kind: str) -> list[Any]:
        return [record for record in self.records if getattr(record, "kind", "") == kind]


def test_clocks_are_compared_after_the_first_step_and_before_the_warm_up(tmp_path: Path) -> None:
    reported = RecordedLaunch(tmp_path)
    begin = ["started", "digested", "checked", "checked", "calibrated", "warmed", "go"]
    assert reported.kinds == [*begin, "block", "block", "checked", "checked"]
    (calibrated,) = reported.of("calibrated")
    assert calibrated.wall_ns == calibrated.event_ns == (10**7,) * 3
    assert calibrated.raw_ns == (2 * 10**7,) * 3
    assert len(calibrated.empty_ns) == 5


def test_untimed_launch_compares_its_clocks_too(tmp_path: Path) -> None:
    reported = RecordedLaunch(tmp_path, is_timed=False)
    begin = ["started", "calibrated", "digested", "checked", "checked"]
    assert reported.kinds == [*begin, "libraries_mapped"]


def test_fixed_number_of_steps_is_one_block_with_the_first(tmp_path: Path) -> None:
    reported = RecordedLaunch(tmp_path, num_steps=3)
    assert reported.kinds[4:7] == ["calibrated", "go", "block"]
    (block,) = reported.of("block")
    assert (block.first_step, len(block.wall_ns), len(block.event_ns)) == (0, 3, 3)


class PacedWatch(FakeWatch):
    """Clocks of a machine on which whatever is waited for takes so long."""

    def __init__(self, step_ns: int) -> None:
        super().__init__()
        self.step_ns = step_ns

    def synchronise(self) -> None:
        self.time += self.step_ns


def steps_made(launch: RecordedLaunch) -> tuple[int, list[int], set[int]]:
    """Steps of the warm-up and of the blocks, and those whose output was the last to be checked."""
    (warmed,) = launch.of("warmed")
    lasts = {record.step for record in launch.of("checked") if record.phase == "last"}
    return len(warmed.wall_ns), [len(block.wall_ns) for block in launch.of("block")], lasts


def test_a_repeated_launch_makes_the_steps_of_then_at_another_speed(tmp_path: Path) -> None:
    then = RecordedLaunch(tmp_path, watch=PacedWatch(10**7), seconds=0.1)
    events: list[Any] = [record for record in then.records if isinstance(record, Record)]
    name = "quick@cpu:0/1"
    whole: list[Any] = [LaunchStarted(launch=name, mode="fresh"), *events, ended(name)]
    result = rerun_diff.launch_evidence(bare_lines(whole), name)
    assert result is not None
    assert result.repeat == Repeat(warmup=10, blocks=(10, 10))
    for step_ns in (4 * 10**6, 10**7, 5 * 10**8):
        again = RecordedLaunch(
            tmp_path, watch=PacedWatch(step_ns), seconds=0.1, repeat=result.repeat
        )
        assert steps_made(again) == steps_made(then)
    assert steps_made(
        RecordedLaunch(tmp_path, watch=PacedWatch(4 * 10**6), seconds=0.1)
    ) != steps_made(then)


def test_blocks_that_a_repeated_launch_had_not_finished_end_by_the_protocol(tmp_path: Path) -> None:
    again = RecordedLaunch(
        tmp_path, watch=PacedWatch(10**7), seconds=0.1, repeat=Repeat(warmup=0, blocks=(4,))
    )
    warmed, blocks, _ = steps_made(again)
    assert (warmed, blocks[0]) == (0, 4)
    assert blocks[1] >= 10


def test_every_launch_tells_the_digest_of_its_first_output_before_its_check(
    tmp_path: Path,
) -> None:
    launches = [
        RecordedLaunch(tmp_path),
        RecordedLaunch(tmp_path, num_steps=3),
        RecordedLaunch(tmp_path, is_timed=False),
    ]
    for reported in launches:
        assert reported.kinds.index("digested") < reported.kinds.index("checked")
        (digested,) = reported.of("digested")
        assert (digested.phase, digested.step, digested.rank) == ("first", 0, 0)
    assert len({reported.of("digested")[0].digest for reported in launches}) == 1


def test_no_digest_is_told_where_bits_need_not_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Misbehaving, "is_repeatable", False)
    assert "digested" not in RecordedLaunch(tmp_path).kinds


def test_the_untimed_launch_alone_tells_its_libraries(tmp_path: Path) -> None:
    (reported,) = RecordedLaunch(tmp_path, is_timed=False).of("libraries_mapped")
    assert reported.files == {"/lib/libm.so.6": "1:2:3:4:5"}
    assert not RecordedLaunch(tmp_path).of("libraries_mapped")


def test_step_before_a_block_counts_in_every_clock() -> None:
    samples = timing.Samples(wall_ns=[3, 4], event_ns=[2, 3], block_wall_ns=9, block_raw_ns=18)
    samples.begin_with(timing.Span(wall_ns=5, raw_ns=10, event_ns=4))
    assert (samples.wall_ns, samples.event_ns) == ([5, 3, 4], [4, 2, 3])
    assert (samples.block_wall_ns, samples.block_raw_ns) == (14, 28)


def test_clocks_of_this_host_agree() -> None:
    """That the second clock is another one; how well they agree is for the judge."""
    device = torch.device("cpu")
    stopwatch = torch_device.DeviceStopwatch(device)
    spans = timing.compare_clocks(torch_device.busy_work(device), stopwatch, 30_000_000)
    assert all(span.wall_ns >= 10_000_000 and span.raw_ns > 0 for span in spans)
    assert stopwatch.mark() is None


# ------------------------------------------------------------------ outputs


def digest(output: Any) -> str:
    return outputs.digest(output, torch_device.device_bits)


NUMBERS = torch.arange(6, dtype=torch.float32)
SAME_BYTES_OR_NEARLY: dict[str, Any] = {
    "the output": {"a": NUMBERS, "b": np.arange(3)},
    "another number": {"a": NUMBERS.index_fill(0, torch.tensor([2]), 2.0000002), "b": np.arange(3)},
    "a signed zero": {"a": NUMBERS.index_fill(0, torch.tensor([0]), -0.0), "b": np.arange(3)},
    "another shape": {"a": NUMBERS.reshape(2, 3), "b": np.arange(3)},
    "another format": {"a": NUMBERS.view(torch.int32), "b": np.arange(3)},
    "another place": {"b": NUMBERS, "a": np.arange(3)},
    "one array less": {"a": NUMBERS},
    "nothing": {},
}


def test_digest_tells_outputs_apart_that_differ_in_bits_form_or_place() -> None:
    digests = {digest(output) for output in SAME_BYTES_OR_NEARLY.values()}
    assert len(digests) == len(SAME_BYTES_OR_NEARLY)
    assert all(len(one) == 64 for one in digests)


def test_a_long_array_is_digested_by_its_pieces_whatever_the_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = torch.arange(1000, dtype=torch.int32)
    whole = digest(content)
    monkeypatch.setattr(outputs, "PIECE", 64)
    changed = content.clone()
    changed[777] ^= 1
    swapped = torch.cat([content[16:32], content[:16], content[32:]])  # two whole pieces
    read = torch_device.device_bits
    by_threads = {outputs.digest(content, read, threads) for threads in (1, 2, 5)}
    assert len({whole, digest(changed), digest(swapped), *by_threads}) == 4
    (tensor,) = {tuple(outputs.digests(content, read, threads).values()) for threads in (1, 3)}
    assert tensor != tuple(outputs.digests(changed, read).values())
    for one in (content, content.view(10, 100).t(), content.numpy()):  # one is not in order
        in_pieces = outputs.digest(one, read, 3, torch_device.in_pieces(staged))
        assert in_pieces == outputs.digest(one, read)


def test_what_is_frozen_is_no_later_step_s() -> None:
    output = torch.zeros(3)
    frozen = outputs.freeze(output, torch_device.device_bits)
    output += 1
    assert not next(iter(frozen.values())).any()


def test_digest_is_of_the_values_and_not_of_how_they_lie_in_memory() -> None:
    plain = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1, 2])}
    strided = {"b": torch.tensor([1, 0, 2])[::2], "a": torch.arange(6.0).reshape(3, 2)}
    strided["a"] = torch.tensor([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]).T
    assert digest(plain) == digest(strided)
    assert digest(torch.zeros(0, 3)) != digest(torch.zeros(0, 2))


@pytest.mark.parametrize("bit", [0, 7, 15])
def test_one_flipped_bit_changes_the_digest(bit: int) -> None:
    output = torch.linspace(-1, 1, 1000).to(torch.bfloat16)
    flipped = output.view(torch.int16).clone()
    flipped[417] ^= -(2**15) if bit == 15 else 1 << bit
    assert digest(flipped.view(torch.bfloat16)) != digest(output)


def test_output_that_holds_an_object_is_refused() -> None:
    with pytest.raises(TypeError, match=r"output\[0\] is a object"):
        outputs.freeze((object(),), torch_device.device_bits)


def test_relative_difference_is_of_the_largest_number_and_keeps_nan() -> None:
    def values(*numbers: float) -> outputs.Frozen:
        return outputs.freeze(
            torch.tensor(numbers, dtype=torch.float64), torch_device.device_values
        )

    assert outputs.relative_difference(values(1.0, 8.0), values(2.0, 8.0)) == 0.125
    assert math.isnan(outputs.relative_difference(values(1.0), values(math.nan)))
    assert outputs.relative_difference(values(0.0), values(1.0)) == math.inf


# ------------------------------------------------------------------ parameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chooser(Misbehaving):
    small: ClassVar[dict[str, int]] = {"size": 8}
    dtype: Literal["float32", "bfloat16"] = "float32"


def resolve(**given: Any) -> Resolved | Refused:
    request = CaseRequest(workload="chooser", small=True, parameters=given)
    return parameters.resolve(Chooser, request)


def test_resolved_parameters_are_complete_and_typed() -> None:
    result = resolve(seconds=1, num_steps=4)
    assert isinstance(result, Resolved)
    assert result.parameters == {
        "fault": "none",
        "at": 0,
        "size": 8,
        "seconds": 1.0,
        "num_steps": 4,
        "is_quick": True,
        "dtype": "float32",
    }
    assert type(result.parameters["seconds"]) is float
    assert (result.steps, result.work.units) == (4, 8)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"siez": 3}, 'has no parameter "siez" (did you mean "size"?)'),
        ({"size": 2.0}, 'parameter "size" must be an integer, not 2.0'),
        ({"size": True}, 'parameter "size" must be an integer, not True'),
        ({"is_quick": 1}, 'parameter "is_quick" must be true or false, not 1'),
        ({"fault": 1}, 'parameter "fault" must be a text, not 1'),
        ({"seconds": math.nan}, 'parameter "seconds" must be a finite number, not nan'),
        ({"size": 2**60}, 'parameter "size" must be at most 2**53'),
        ({"dtype": "bfloat61"}, '(did you mean "bfloat16"?)'),
        ({"fault": "strike"}, 'there is no fault "strike"'),
        ({"size": -1}, "refuses its parameters"),
    ],
)
def test_value_that_does_not_fit_is_refused_in_a_sentence(
    given: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Chooser, "num_parameters", lambda self: torch.empty(self.size).numel())
    result = resolve(**given)
    assert isinstance(result, Refused)
    assert sentence in result.error


# ------------------------------------------------------------------ what an exception means


UNWRITTEN = "[enforce fail at inline_container.cc:672] . unexpected pos 5824 vs 5720"
"""torch.save onto a disk that takes no more, as torch 2.13 said it."""
UNREAD = "PytorchStreamReader failed reading zip archive: not a ZIP archive (inline_container.cc)"


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (ValueError("a\nb"), "crashed", "ValueError"),
        (MemoryError(), "crashed", "out_of_memory"),
        (torch.OutOfMemoryError("device"), "crashed", "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "crashed", "out_of_memory"),
        (OSError(errno.ENOSPC, "No space left"), "interrupted", "disk_full"),
        (RuntimeError(UNWRITTEN), "interrupted", "disk_full"),
        (RuntimeError(UNREAD), "crashed", "RuntimeError"),
        (OSError(errno.EIO, "broken"), "crashed", "OSError"),
        (ApplianceError("a file changed"), "not_run", "artifact"),
        (SystemExit(0), "crashed", "SystemExit"),
    ],
)
def test_exception_is_a_result_with_its_reason(
    tmp_path: Path, error: BaseException, outcome: str, reason: str
) -> None:
    end = child._failed(error, tmp_path)
    assert (end.outcome, end.reason) == (outcome, reason)
    assert "\n" not in end.detail


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_AUDIT"])
def test_preloaded_library_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "")
    with pytest.raises(prepare.LaunchRefused) as refusal:
        prepare.prepared(None, None, 0, Progress())  # type: ignore[arg-type]
    assert refusal.value.reason == name.lower()


# ------------------------------------------------------------------ the environment


def test_child_gets_neither_preloads_nor_the_signers_secrets(tmp_path: Path) -> None:
    inherited = {"LD_PRELOAD": "x", "BENCH_SIGN_PASSWORD": "x", "PATH": "/bin", "HOME": "/root"}
    result = child_environment(
        inherited=inherited,
        work=tmp_path,
        num_threads=3,
        vendor={"VISIBLE": "1"},
        tokens={"TOKEN": "t"},
    )
    assert not {"LD_PRELOAD", "BENCH_SIGN_PASSWORD"} & result.keys()
    assert (result["PATH"], result["OMP_NUM_THREADS"], result["VISIBLE"]) == ("/bin", "3", "1")
    assert (result["HF_HUB_OFFLINE"], result["PYTHONHASHSEED"]) == ("1", "0")
    folders = [value for name, value in result.items() if name.endswith(("HOME", "DIR"))]
    assert len(folders) >= 8
    assert all(Path(folder).is_relative_to(tmp_path) for folder in folders)
    assert Path(result["TMPDIR"]).is_dir()


COMPILES = """
import hashlib, jax, numpy
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name.endswith("/cache_hits")))
compute = jax.jit(lambda numbers: jax.numpy.sin(numbers @ numbers).cumsum())
bits = numpy.asarray(compute(jax.numpy.linspace(0, 1, 64).reshape(8, 8))).tobytes()
print(sum(hits), hashlib.sha256(bits).hexdigest())
"""


def test_what_jax_compiled_is_loaded_in_the_run_s_other_launches_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    answers = []
    for work in ("run", "run", "another"):
        environment = child_environment(
            inherited={**os.environ, "JAX_COMPILATION_CACHE_DIR": str(elsewhere)},
            work=tmp_path / work,
            num_threads=1,
            vendor={"JAX_PLATFORMS": "cpu"},
            tokens={},
        )
        answers.append(program("-c", COMPILES, env=environment).stdout.split())
    hits, bits = zip(*answers, strict=True)
    assert int(hits[0]) == int(hits[2]) == 0 < int(hits[1])
    assert len(set(bits)) == 1
    assert not elsewhere.exists()


def test_usable_cores_are_at_least_one() -> None:
    assert usable_cores() >= 1


# ------------------------------------------------------------------ describe


def test_describe_answers_for_good_and_bad_requests(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    names = ["faulty.misbehaving", "gem", "faulty.vendor", "faulty.noisy"]
    answer = describing.describe(
        [CaseRequest(workload=name, small=False, parameters={}) for name in names]
    )
    good, unknown, no_workload, noisy = answer.resolved
    assert isinstance(good, Resolved)
    assert good.work.units == 64
    assert isinstance(unknown, Refused)
    assert unknown.error.startswith('there is no workload "gem"')
    assert isinstance(no_workload, Refused)
    assert "has no WORKLOAD" in no_workload.error
    assert isinstance(noisy, Resolved)
    result = {description.name: description for description in answer.descriptions}
    assert {"faulty.misbehaving", "faulty.noisy"} <= result.keys()
    assert not {"contract", "parts", "faulty.vendor"} & result.keys()
    assert result["faulty.misbehaving"].parameters[0].type == "str"
    assert answer.software["torch"].value == torch.__version__
    assert capfd.readouterr().out == ""


def test_missing_torch_is_said_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    monkeypatch.setattr(
        describing,
        "child_environment",
        lambda **given: {
            **child_environment(**given),
            "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}",
        },
    )
    with pytest.raises(UsageError, match=r"pip install .bench-appliance\[torch\]"):
        describing.describe(())
