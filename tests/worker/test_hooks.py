"""What a launch does beside its steps: target, pipeline, other libraries, drawn outputs, length."""

# ruff: noqa: ARG002 - the contract names the arguments

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from scipy import stats
from support.builders import a_case, a_plan

from appliance.planning.check_sampling import MOST, sampled_steps
from appliance.planning.launch_constants import REPEATED_INPUT_BOUND
from appliance.planning.plan import case_seed
from appliance.records.journal import Block, Check
from appliance.records.json import Parameters
from appliance.records.plan import Repeat
from appliance.records.request import LaunchSpec
from appliance.records.suite import Scenario
from appliance.records.workload import Work
from appliance.worker import cache_check, timing
from appliance.worker.measure import Channel, LaunchCourse, Machine
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Artifacts, Target
from workloads.contract.workload import Workload

pytestmark = pytest.mark.usefixtures("light_collections")
MS = 1_000_000


class Clock:
    """A virtual clock: what is done on it says how long it takes; the second runs alike."""

    def __init__(self) -> None:
        self.time = 0

    def now(self) -> int:
        return self.time

    def raw(self) -> int:
        return self.time

    def synchronise(self) -> None:
        return

    def mark(self) -> None:
        return None

    def between(self, begin: Any, end: Any) -> int:
        raise AssertionError("this device has no clock")

    def take(self, milliseconds: float) -> None:
        self.time += round(milliseconds * MS)


@dataclass
class State:
    """`log` is what was asked of the workload, in order; `number` the last step's."""

    number: int = -1
    log: list[str] = field(default_factory=list)
    held: int = 0


@dataclass(frozen=True, kw_only=True)
class Plain(Workload[State, Any]):
    """Each step takes 10 ms of the clock; its output is its number."""

    summary: ClassVar[str] = "Takes the time that it says"
    version: ClassVar[int] = 1
    small: ClassVar[Parameters] = {}

    clock: Clock = field(default_factory=Clock)
    num_steps: int = 0
    states: list[State] = field(default_factory=list)

    @property
    def steps(self) -> int | None:
        return self.num_steps or None

    def work(self) -> Work:
        return Work()

    def build(self, target: Target, seed: int) -> State:
        self.states.append(State())
        return self.states[-1]

    def step(self, state: State) -> Any:
        state.number += 1
        state.log.append("step")
        self.clock.take(10)
        return np.array([state.number])

    def snapshot(self, state: State) -> object:
        state.log.append("snapshot")
        self.clock.take(500)
        return state.number

    def check(self, before: object, state: State, output: Any) -> Iterator[Check]:
        assert isinstance(before, int)
        error = abs(int(output[0]) - before - 1)
        yield Check(name="output of the step after the snapshot", error=error, bound=0.0)


@dataclass(frozen=True, kw_only=True)
class Aimed(Plain):
    """Reaches its target after `hit` steps; each question takes a second."""

    every: int = 4
    hit: int = 10

    @property
    def evaluate_every(self) -> int:
        return self.every

    def has_reached(self, state: State) -> bool:
        state.log.append("ask")
        self.clock.take(1000)
        return state.number + 1 >= self.hit


@dataclass(frozen=True, kw_only=True)
class Fed(Plain):
    """Loading takes 3 ms, and another library's wait 2."""

    def load(self, state: State) -> None:
        state.log.append("load")
        self.clock.take(3)

    def wait(self, state: State) -> None:
        state.log.append("wait")
        self.clock.take(2)


@dataclass(frozen=True, kw_only=True)
class Longer(Plain):
    """Wants three times as many steps again."""

    def extra_steps(self, state: State, made: int) -> int:
        state.log.append(f"extra_steps {made}")
        self.clock.take(700)
        return 3 * made


@dataclass(kw_only=True)
class InCycle(State):
    """A state whose steps take one of several input sets."""

    cycle: InputCycle


@dataclass(frozen=True, kw_only=True)
class Kept(Plain):
    """Each step is right if it answers for its own of the input sets; all answer for the first."""

    sets: int = 3

    def build(self, target: Target, seed: int) -> State:
        state = InCycle(**vars(super().build(target, seed)), cycle=InputCycle(of=self.sets))
        self.states[-1] = state
        return state

    def step(self, state: State) -> Any:
        assert isinstance(state, InCycle)
        state.cycle.advance()
        super().step(state)
        return np.zeros(1, dtype=np.int64)

    def check(self, before: object, state: State, output: Any) -> Iterator[Check]:
        assert isinstance(state, InCycle)
        yield Check(
            name="input set", error=float(abs(state.cycle.index - int(output[0]))), bound=0.0
        )


@dataclass(frozen=True, kw_only=True)
class KeptLonger(Kept):
    """Wants so many more steps."""

    more: int = 1

    def extra_steps(self, state: State, made: int) -> int:
        return self.more


@dataclass(frozen=True, kw_only=True)
class Served(Plain):
    """Inference; an input that was just seen takes `held_ms`. Its memory is written over."""

    held_ms: float = 10.0
    times: float = 1.0
    memory: Any = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    rng: Any = field(default_factory=lambda: np.random.default_rng(5))
    noise: float = 0.0

    @property
    def scenario(self) -> Scenario:
        return "single_stream"

    def repeat_input(self, state: State) -> bool:
        state.held = 1
        return True

    def briefly(self, share: float) -> tuple[Self, str]:
        return replace(self, times=share * self.times), "is brief"

    def step(self, state: State) -> Any:
        state.number += 1
        time = self.held_ms if state.held else 10.0
        state.held = 0
        self.clock.take(self.times * time * math.exp(self.noise * self.rng.standard_normal()))
        self.memory[0] = state.number
        return self.memory


def made(
    workload: Plain,
    folder: Path,
    *,
    is_timed: bool = True,
    launch: int = 1,
    repeat: Repeat | None = None,
    **protocol: Any,
) -> list[Any]:
    """The records of one launch of the workload, on its own clock."""
    steps = workload.num_steps or None
    planned = a_plan(replace(a_case(steps=steps), scenario=workload.scenario))
    given = {"blocks": 2, "block_steps": 6, "block_seconds": 0.0, "warmup_steps": 2, **protocol}
    records: list[Any] = []
    spec = LaunchSpec(
        launch=f"{planned.cases[0].id}/{launch}",
        case=planned.cases[0],
        vendor="cpu",
        protocol=replace(planned.protocol, warmup_seconds=0.0, **given),
        is_timed=is_timed,
        check_last=True,
        seed=case_seed(planned.seed, planned.cases[0]),
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
        workload=workload,
        target=Target(device=None, artifacts=Artifacts(folder)),  # type: ignore[arg-type]
        machine=Machine(
            stopwatch=workload.clock,
            make_work=lambda: lambda: workload.clock.take(20),
            seed=lambda _: None,
            bits=np.asarray,
            values=np.asarray,
            libraries=dict,
        ),
        channel=Channel(send=records.append, wait=lambda: None),
    ).run()
    return records


def blocks(records: list[Any]) -> list[Block]:
    return [record for record in records if isinstance(record, Block)]


def checks(records: list[Any], phase: str) -> dict[int, Check]:
    return {
        r.step: r.check for r in records if getattr(r, "phase", "") == phase and r.kind == "checked"
    }


# ------------------------------------------------------------------ time to target


@pytest.mark.parametrize(
    ("hit", "every", "steps"), [(10, 4, 12), (12, 4, 12), (1, 1, 1), (2, 1, 2), (19, 8, 20)]
)
def test_a_launch_with_a_target_ends_at_the_first_hit_and_asks_off_the_clock(
    hit: int, every: int, steps: int, tmp_path: Path
) -> None:
    workload = Aimed(hit=hit, every=every, num_steps=20)
    records = made(workload, tmp_path)
    (block,) = blocks(records)
    assert (block.reached_at, len(block.wall_ns)) == (steps, steps)
    assert set(block.wall_ns) == {10 * MS}
    assert block.block_wall_ns == block.block_raw_ns == steps * 10 * MS
    assert workload.states[0].log.count("ask") == math.ceil(steps / every)
    assert all(check.is_within for check in checks(records, "last").values())
    assert list(checks(records, "last")) == [steps - 1]


def test_a_target_that_is_missed_fails_a_check_of_the_trajectory(tmp_path: Path) -> None:
    records = made(Aimed(hit=21, num_steps=20), tmp_path)
    (block,) = blocks(records)
    assert (block.reached_at, len(block.wall_ns)) == (None, 20)
    missed = [r.check for r in records if r.kind == "checked" and not r.check.is_within]
    assert [(check.kind, check.error) for check in missed] == [("trajectory", math.inf)]


def test_the_step_before_each_question_has_its_snapshot(tmp_path: Path) -> None:
    workload = Aimed(hit=8, every=4, num_steps=20)
    made(workload, tmp_path)
    first = ["snapshot", "step"]
    assert workload.states[0].log == [
        *first,
        *["step", "step", "snapshot", "step", "ask"],
        *["step"] * 3,
        *["snapshot", "step", "ask"],
    ]


def test_without_a_target_nothing_is_asked(tmp_path: Path) -> None:
    (block,) = blocks(made(Plain(num_steps=5), tmp_path))
    assert (block.reached_at, len(block.wall_ns)) == (None, 5)


# ------------------------------------------------------------------ pipelines, other libraries


@pytest.mark.parametrize("num_steps", [0, 4])
def test_loading_is_a_part_of_the_step_with_a_time_of_its_own(
    num_steps: int, tmp_path: Path
) -> None:
    workload = Fed(num_steps=num_steps)
    for block in blocks(made(workload, tmp_path)):
        assert set(block.wall_ns) == {15 * MS}
        assert block.load_ns is not None
        assert len(block.load_ns) == len(block.wall_ns)
        assert set(block.load_ns) == {3 * MS}
    log = [word for word in workload.states[0].log if word != "snapshot"]
    assert log == ["load", "step", "wait"] * (len(log) // 3)


def test_a_workload_without_a_pipeline_has_no_time_of_loading(tmp_path: Path) -> None:
    assert all(block.load_ns is None for block in blocks(made(Plain(), tmp_path)))


# ------------------------------------------------------------------ longer blocks


def test_a_block_is_as_much_longer_as_the_workload_wants(tmp_path: Path) -> None:
    workload = Longer()
    result = blocks(made(workload, tmp_path))
    assert [len(block.wall_ns) for block in result] == [24, 24]
    assert all(block.block_wall_ns == 240 * MS for block in result)
    assert workload.states[0].log.count("extra_steps 6") == 2


def test_a_longer_block_stays_inside_the_time_limit_of_its_launch(tmp_path: Path) -> None:
    result = blocks(made(Longer(), tmp_path, block_steps=3000, blocks=1))
    assert 3000 < len(result[0].wall_ns) < 0.9 * 60 / 0.01  # of a limit of 60 s


def test_the_last_step_of_a_longer_block_has_its_snapshot(tmp_path: Path) -> None:
    records = made(Longer(), tmp_path)
    assert [check.error for check in checks(records, "last").values()] == [0.0]


# ------------------------------------------------------------------ the input of the first step


@pytest.mark.parametrize("sets", [2, 3, 4, 5])
@pytest.mark.parametrize("steps", range(1, 13))
def test_no_launch_ends_on_the_input_that_it_began_with(
    steps: int, sets: int, tmp_path: Path
) -> None:
    records = made(Kept(sets=sets), tmp_path, blocks=2, block_steps=steps, warmup_steps=1)
    lengths = [len(block.wall_ns) for block in blocks(records)]
    makes_one_more = (1 + 2 * steps) % sets == 0
    assert lengths == [steps, steps + makes_one_more]
    ((last, check),) = checks(records, "last").items()
    assert last == 1 + sum(lengths)
    assert check.error > 0.0


def test_steps_that_the_workload_asked_for_count_too(tmp_path: Path) -> None:
    for more in range(4):
        records = made(KeptLonger(more=more), tmp_path, blocks=1, block_steps=4, warmup_steps=1)
        (block,) = blocks(records)
        assert len(block.wall_ns) == 4 + more + (more == 1)  # the 6th step after the first one
        assert [check.error > 0.0 for check in checks(records, "last").values()] == [True]


def test_one_input_set_alone_asks_for_no_further_step(tmp_path: Path) -> None:
    records = made(Kept(sets=1), tmp_path)
    assert [len(block.wall_ns) for block in blocks(records)] == [6, 6]


def test_a_repeated_launch_ends_where_the_disputed_one_did(tmp_path: Path) -> None:
    repeat = Repeat(warmup=1, blocks=(2, 3))
    records = made(Kept(sets=3), tmp_path, repeat=repeat)
    assert [len(block.wall_ns) for block in blocks(records)] == [2, 3]


# ------------------------------------------------------------------ drawn outputs


def test_drawn_outputs_of_inference_are_checked_as_they_were(tmp_path: Path) -> None:
    records = made(Served(), tmp_path, block_steps=200)
    result = checks(records, "sampled")
    drawn = [step for step in sampled_steps(_seed(), "gemm@cpu:0/1", 200) if step < 400]
    assert list(result) == [3 + step for step in drawn]  # after the first and two of warm-up
    assert 1 <= len(result) <= MOST
    assert {check.error for check in result.values()} == {0.0}
    assert all(block.block_wall_ns == 2000 * MS for block in blocks(records))


def test_every_launch_of_inference_checks_a_drawn_output(tmp_path: Path) -> None:
    steps = [set(checks(made(Served(), tmp_path, launch=n), "sampled")) for n in range(1, 9)]
    assert all(steps)
    assert len(set.union(*steps)) > 2  # each launch others


def test_nothing_is_drawn_of_a_workload_that_is_no_inference(tmp_path: Path) -> None:
    assert not checks(made(Plain(), tmp_path), "sampled")


def test_about_one_in_a_hundred_is_drawn_and_the_device_does_not_matter() -> None:
    gaps = []
    for number in range(200):
        drawn = list(sampled_steps(7, f"a@cpu:0/{number}", 50))
        assert 0 <= drawn[0] < 50
        assert drawn == sorted(set(drawn))
        assert len(drawn) == MOST
        gaps += list(np.diff(drawn))
    assert np.mean(gaps) == pytest.approx(100, rel=0.05)
    assert list(sampled_steps(7, "a@cpu:0/1", 50)) == list(sampled_steps(7, "a@cpu:3/1", 50))
    assert list(sampled_steps(7, "a@cpu:0/1", 50)) != list(sampled_steps(7, "a@cpu:0/2", 50))


def _seed() -> int:
    planned = a_plan()
    return case_seed(planned.seed, planned.cases[0])


# ------------------------------------------------------------------ repeated inputs


def repeated_check(tmp_path: Path, **fields: Any) -> Check:
    (check,) = checks(made(Served(**fields), tmp_path, is_timed=False), "repeated").values()
    return check


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_answers_that_were_kept_are_found_out(noise: float, tmp_path: Path) -> None:
    kept = repeated_check(tmp_path, held_ms=5.0, noise=noise)
    assert not kept.is_within
    assert kept.error == pytest.approx(0.5, abs=0.1)
    assert repeated_check(tmp_path, held_ms=9.8, noise=noise).is_within


def test_noise_accuses_nobody_and_says_what_it_hides(tmp_path: Path) -> None:
    loud = [
        repeated_check(tmp_path, noise=0.5, rng=np.random.default_rng(seed)) for seed in range(30)
    ]
    assert all(check.is_within for check in loud)
    quiet = repeated_check(tmp_path, noise=0.01)
    assert quiet.detects is not None
    assert 0.1 < quiet.detects < 0.15 < min(check.detects or 0.0 for check in loud)


@pytest.mark.parametrize("count", [cache_check.FEWEST, cache_check.MOST])
def test_what_chance_does_once_in_ten_thousand_checks_accuses_nobody(count: int) -> None:
    """Pairs without a saving, as they fall once in so many: their mean is far above their error."""
    ends = np.resize([1.0, -1.0], count) * math.sqrt((count - 1) / count)  # of standard deviation 1
    rare = stats.t.isf(1e-4, count - 1) / math.sqrt(count)
    for noise in (0.1, 0.3, 1.0, 3.0):
        assert cache_check.judge(list(noise * (ends + rare))).error < REPEATED_INPUT_BOUND


RECORDED_NOISE = 0.053
"""Standard deviation of ln(changing / repeated) of `llama` at small size on the recorded H100."""


def sequence(saving: float, noise: float, seed: int, held_up: float = 0.0) -> tuple[Check, int]:
    """The check of steps of 1 ms with so much noise, and the number of steps that it asked for.

    Such a share of the steps takes 1 ms more.
    """
    rng, steps = np.random.default_rng(seed), 0

    def seconds(*, is_repeated: bool) -> float:
        nonlocal steps
        steps += 1
        share = 1 - saving if is_repeated else 1.0
        late = 1e-3 * (held_up > 0.0 and rng.random() < held_up)
        return 1e-3 * share * math.exp(rng.normal(0, noise / math.sqrt(2))) + late

    return cache_check.compare(seconds), steps


def test_a_sound_device_is_asked_for_half_of_the_steps() -> None:
    """One held up in forty, at twice the noise: more of both than either recorded H100 had."""
    for noise, held_up, limit in ((RECORDED_NOISE, 0.0, 21.0), (2 * RECORDED_NOISE, 1 / 40, 23.0)):
        results = [sequence(0.0, noise, seed, held_up) for seed in range(200)]
        assert all(check.is_within for check, _ in results)
        assert np.mean([steps for _, steps in results]) < limit  # of 48
    quiet, steps = sequence(0.0, 0.001, 1)
    assert steps == cache_check.WARM_UP + 2 * cache_check.FEWEST
    assert quiet.detects_what.endswith("saved in 20 pairs of steps, of which 6 were enough")


@pytest.mark.parametrize("saving", [0.15, 0.23, 0.35])
@pytest.mark.parametrize("held_up", [0.0, 1 / 40])
def test_who_saves_what_all_pairs_detect_is_not_let_go(
    saving: float, held_up: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same sequences are accused with and without an early end."""
    noise = RECORDED_NOISE * (1 if held_up else 2)
    early = [sequence(saving, noise, seed, held_up)[0].is_within for seed in range(200)]
    monkeypatch.setattr(cache_check, "ENOUGH", 1.0)
    assert early == [sequence(saving, noise, seed, held_up)[0].is_within for seed in range(200)]


def test_an_early_end_accuses_nobody() -> None:
    """Where all pairs accuse of less than some do, the least saving that some accuse of goes on."""
    for most in {cache_check.most_pairs(seconds) for seconds in np.arange(0.1, 2.0, 0.01)}:
        for count in range(cache_check.FEWEST, most):
            evenly = np.linspace(-1.0, 1.0, count)
            size = next(
                size
                for size in np.arange(0.0, 30.0, 0.1)
                if not cache_check.judge(list(size + evenly)).is_within
            )
            assert not cache_check._is_enough(list(size + evenly), most)


def test_a_step_that_is_held_up_hides_nothing() -> None:
    """One of forty steps takes 1 ms more: by plain means 86 of 200 such savings were missed."""
    sound = [sequence(0.0, RECORDED_NOISE, seed, held_up=1 / 40) for seed in range(200)]
    assert all(check.is_within for check, _ in sound)
    assert np.median([check.detects or 1.0 for check, _ in sound]) < 0.32
    assert np.mean([steps for _, steps in sound]) < 28  # of 48
    caught = [sequence(0.35, RECORDED_NOISE, seed, held_up=1 / 40)[0] for seed in range(200)]
    assert sum(check.is_within for check in caught) <= 6


def test_long_steps_warm_up_for_seconds_and_not_for_eight() -> None:
    asked: list[bool] = []

    def seconds(*, is_repeated: bool) -> float:
        asked.append(is_repeated)
        return 4.0

    assert cache_check.compare(seconds).is_within
    assert len(asked) == cache_check.LEAST_WARM_UP + 2 * cache_check.FEWEST


def test_brief_steps_are_compared_where_those_of_the_case_take_seconds(tmp_path: Path) -> None:
    """Of an H100's decoding: 5.8 s a step, pairs that differ by 15 %."""
    sound = repeated_check(tmp_path, times=580.0, noise=0.1)
    assert sound.is_within
    assert sound.detects is not None
    assert sound.detects < 0.55  # six pairs of its own steps detect 0.89
    assert sound.detects_what.endswith("; each step is brief")
    assert not repeated_check(tmp_path, times=580.0, noise=0.1, held_ms=5.0).is_within
    short = repeated_check(tmp_path, times=90.0)
    assert not short.detects_what.endswith("is brief")


def test_a_workload_that_cannot_repeat_an_input_is_not_asked(tmp_path: Path) -> None:
    assert not checks(made(Plain(), tmp_path, is_timed=False), "repeated")


def test_the_saving_is_told_of_its_lower_end() -> None:
    check = cache_check.judge([math.log(2.0)] * 6)
    assert check.error == pytest.approx(0.5)
    assert not check.is_within
    assert cache_check.judge([math.log(2.0) * sign for sign in (1, -1, 1, -1, 1, -1)]).error == 0.0


# ------------------------------------------------------------------ blocks


def test_what_is_done_with_the_clock_stopped_is_in_no_time() -> None:
    clock = Clock()

    def work() -> None:
        clock.take(10)

    def pause() -> bool:
        clock.take(777)
        return False

    samples = timing.block(
        timing.Step(make=work),
        clock,
        timing.Length(steps=9),
        timing.BlockHooks(
            snapshot=pause,
            has_last=True,
            is_drawn=lambda number: number % 2 == 0,
            has_reached=pause,
            every=2,
        ),
    )
    assert samples.wall_ns == [10 * MS] * 9
    assert samples.block_wall_ns == samples.block_raw_ns == 90 * MS
    assert [drawn.number for drawn in samples.drawn] == [0, 2, 4, 6, 8]
