"""Runs on a virtual clock: what production accepts of them, and that the times are as asked for."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from appliance.records.journal import (
    Block,
    Injected,
    InterimAnalysis,
    LaunchEnded,
    LaunchStarted,
    RunEnded,
    RunResumed,
)
from appliance.records.json import to_json
from appliance.selftest import simulation, virtual_node
from appliance.selftest.simulation import Hand, VirtualClock, concealed, simulate
from appliance.selftest.time_model import (
    LAUNCH_SD,
    Shape,
    Timing,
    creep,
    sawtooth,
    steady,
    throttle,
)
from appliance.selftest.virtual_faults import SPEED, behaving, healthy_node, journal_of, refused
from appliance.selftest.virtual_node import Node
from appliance.storage.journal import Journal, replay

SELDOM = 1e-6
ROUNDING = 1e-9
SHAPE = Shape(blocks=4, steps=50)
MANY = 2000


def drawn(timing: Timing, launches: int = MANY, warm: int = 0) -> np.ndarray:
    """ln(seconds) over the workload's own time, (launches, steps)."""
    times = timing.draw(np.random.default_rng(7), launches=launches, warm=warm, shape=SHAPE)
    return np.log(times / timing.step_seconds)


# ------------------------------------------------------------------ the model


def test_the_spread_between_launches_is_that_of_the_model() -> None:
    timing = Timing(launch_sd=0.02, block_sd=0.0, step_sd=0.0)
    values = drawn(timing).mean(axis=1)
    scaled = (MANY - 1) * values.var(ddof=1) / 0.02**2
    assert SELDOM < stats.chi2.cdf(scaled, MANY - 1) < 1 - SELDOM


def test_an_effect_is_what_the_device_is_slower_by() -> None:
    timing = Timing(effect=math.log(1.05), launch_sd=0.01, block_sd=0.0, step_sd=0.0)
    error = drawn(timing).mean() - math.log(1.05)
    assert abs(error) < stats.norm.isf(SELDOM) * 0.01 / math.sqrt(MANY)


def test_steps_are_correlated_as_asked_and_keep_their_spread() -> None:
    logs = drawn(Timing(launch_sd=0.0, block_sd=0.0, step_sd=0.01, rho=0.9))
    lag1 = np.mean(logs[:, 1:] * logs[:, :-1]) / np.mean(logs**2)
    assert lag1 == pytest.approx(0.9, abs=0.01)
    assert logs.std() == pytest.approx(0.01, rel=0.03)
    assert np.mean(logs[:, 0] ** 2) == pytest.approx(np.mean(logs[:, -1] ** 2), rel=0.3)


def test_stalls_are_as_many_and_as_long_as_asked() -> None:
    logs = drawn(Timing(launch_sd=0.0, block_sd=0.0, step_sd=0.0, stall_rate=0.02))
    stalled = np.exp(logs[logs > ROUNDING]) - 1
    assert stats.binomtest(stalled.size, logs.size, 0.02).pvalue > SELDOM
    assert stats.kstest(stalled, "expon").pvalue > SELDOM


def test_some_launches_are_of_the_slow_mode() -> None:
    logs = drawn(Timing(launch_sd=0.0, block_sd=0.0, step_sd=0.0, slow_rate=0.1))
    is_slow = logs > math.log(1.04)
    assert (is_slow.all(axis=1) | ~is_slow.any(axis=1)).all()
    assert stats.binomtest(int(is_slow[:, 0].sum()), MANY, 0.1).pvalue > SELDOM


def test_warm_up_dies_away_and_a_change_stays() -> None:
    quiet = Timing(launch_sd=0.0, block_sd=0.0, step_sd=0.0)
    warming = drawn(replace(quiet, warm_up=0.3), launches=1, warm=10)[0]
    assert warming[0] == pytest.approx(math.log(1.3))
    assert (np.diff(warming) < ROUNDING).all()
    assert warming[-1] < 1e-6
    changed = drawn(replace(quiet, change_at=0.6, change_factor=1.05), launches=1, warm=10)[0]
    assert changed[: 10 + 120] == pytest.approx(0.0, abs=ROUNDING)
    assert changed[10 + 120 :] == pytest.approx(math.log(1.05))


def test_paces_are_factors_of_the_time_since_the_run_began() -> None:
    moments = np.array([0.0, 300.0, 600.0, 1800.0])
    assert steady(moments).tolist() == [1, 1, 1, 1]
    assert throttle(600.0, 1.05)(moments).tolist() == [1, 1, 1.05, 1.05]
    assert sawtooth(0.05, 1200.0)(moments) == pytest.approx([0.95, 0.975, 1.0, 1.0])
    assert creep(0.04)(moments) == pytest.approx([1, 1 + 0.01 / 3, 1 + 0.02 / 3, 1.02])


# ------------------------------------------------------------------ the run


def events_of(node: Node, kind: type, **how: object) -> list:
    simulated = simulate(node, seed=1, **how)  # type: ignore[arg-type]
    return [line.event for line in simulated.lines if isinstance(line.event, kind)]


def test_a_healthy_run_in_a_journal_is_taken_by_all_that_verifies_one() -> None:
    node = healthy_node(SPEED, num_cases=3, num_devices=2, timing=Timing(has_events=True))
    assert refused(node, journal_of(node)) == ""


def test_what_is_verified_may_also_be_refused() -> None:
    node = healthy_node(SPEED, num_cases=1)
    data = journal_of(node)
    assert "does not follow" in refused(node, data.replace(b'"rank":0', b'"rank":1', 1))
    other = virtual_node.with_plan(node, replace(node.plan, run_id="another"))
    assert "does not follow" in refused(other, data)


def test_an_interrupted_run_in_a_journal_is_conducted_as_planned(tmp_path: Path) -> None:
    node = behaving(healthy_node(SPEED, num_cases=2), Timing(slow_rate=0.5))
    clock = VirtualClock()
    journal = Journal.create(
        tmp_path / "journal.jsonl", node.digests["plan.json"], clock.of_journal
    )
    simulated = simulate(node, seed=1, keeper=journal, clock=clock, hand=Hand(kills=2))
    journal.close()
    assert simulated.verdict.num_interruptions == 2
    assert refused(node, (tmp_path / "journal.jsonl").read_bytes()) == ""


def test_a_tape_holds_what_a_journal_holds_but_for_the_chain() -> None:
    node = healthy_node(SPEED, num_cases=1)
    kept = replay(journal_of(node, seed=1), node.digests["plan.json"])
    on_tape = simulate(node, seed=1).lines
    assert [replace(line, prev="") for line in kept] == list(on_tape)


def test_a_seed_gives_one_run() -> None:
    node = healthy_node(SPEED, num_cases=2)
    first, again, other = (simulate(node, seed=seed) for seed in (1, 1, 2))
    assert first.lines == again.lines
    assert first.verdict == again.verdict
    assert first.lines != other.lines


def test_times_of_a_case_do_not_depend_on_the_others() -> None:
    node = healthy_node(SPEED, num_cases=2)
    slowed = behaving(node, Timing(effect=0.5), ["case-01@virtual:0"])
    blocks = [
        [block.wall_ns for block in events_of(one, Block) if block.launch == "case-00@virtual:0/1"]
        for one in (node, slowed)
    ]
    assert blocks[0] == blocks[1]


def test_a_run_stops_where_the_judge_decides() -> None:
    quiet = healthy_node(SPEED, num_cases=1, timing=Timing(launch_sd=0.001))
    assert simulate(quiet, seed=1).num_made == 5
    (analysed,) = events_of(quiet, InterimAnalysis)
    assert (analysed.launches, analysed.is_decided) == (5, True)
    decided = [e for e in events_of(quiet, LaunchEnded) if e.reason == "decided"]
    assert len(decided) == 35
    at_the_limit = behaving(quiet, Timing(effect=math.log(1.03)))
    assert simulate(at_the_limit, seed=1).num_made == 40
    assert [
        interim_analysis.launches for interim_analysis in events_of(at_the_limit, InterimAnalysis)
    ] == [5, 10, 20, 40]


def test_devices_of_a_case_start_together_and_lines_are_in_the_order_of_time() -> None:
    node = healthy_node(SPEED, num_cases=1, num_devices=4)
    lines = simulate(node, seed=1).lines
    moments = [line.monotonic_ns for line in lines]
    assert moments == sorted(moments)
    started = [line for line in lines if isinstance(line.event, LaunchStarted)]
    assert len({line.monotonic_ns for line in started[:4]}) == 1
    assert [line.event.launch[-2:] for line in started[:4]] == ["/0"] * 4


def test_a_gap_spreads_the_launches() -> None:
    node = healthy_node(SPEED, num_cases=1)
    near, far = (simulate(node, seed=1, gap_seconds=gap).lines[-1] for gap in (0.0, 600.0))
    assert far.monotonic_ns - near.monotonic_ns >= 6 * 600 * 10**9


def test_a_slow_launch_is_cut_short_and_keeps_half_of_its_blocks() -> None:
    node = behaving(healthy_node(SPEED, num_cases=1), Timing(slow_rate=0.3, launch_sd=0.001))
    hand = Hand(kills=1)
    (resumed,) = events_of(node, RunResumed, hand=hand)
    (name,) = resumed.interrupted
    (ended,) = [e for e in events_of(node, LaunchEnded, hand=hand) if e.launch == name]
    blocks = [block for block in events_of(node, Block, hand=hand) if block.launch == name]
    assert ended.outcome == "interrupted"
    assert len(blocks) == virtual_node.PROTOCOL.blocks // 2
    assert min(np.median(block.wall_ns) for block in blocks) > 1.04e8


def test_what_is_altered_is_what_is_written() -> None:
    node = healthy_node(SPEED, num_cases=1)
    hand = Hand(alter=lambda launch, event: None if launch.number == 2 else event)
    launches = {event.launch for event in events_of(node, LaunchEnded, hand=hand)}
    assert "case-00@virtual:0/2" not in launches
    assert "case-00@virtual:0/3" in launches
    assert len(events_of(node, RunEnded, hand=hand)) == 1


def test_a_concealed_run_has_no_word_of_its_injector() -> None:
    node = virtual_node.with_injector(healthy_node(SPEED, num_cases=1), "unheard-of")
    simulated = simulate(node, seed=1)
    (injected,) = [e.event for e in simulated.lines if isinstance(e.event, Injected)]
    assert injected == Injected(injector="unheard-of", cases=("case-00@virtual:0",))
    assert b"unheard-of" in to_json(simulated.node.plan)
    hidden, lines = concealed(simulated)
    assert b"unheard-of" not in to_json(hidden.plan) + b"".join(map(to_json, lines))
    assert hidden.plan.injectors == ()


def test_the_plan_has_the_bounds_that_planning_makes() -> None:
    node = healthy_node(SPEED, num_cases=3)
    assert node.plan.num_limits == 3
    (passing, failing) = node.plan.bounds
    assert (passing.alpha, failing.alpha) == (0.01, 0.008 / 3)
    assert passing.interim_analyses == (5, 10, 20, 40)


def test_a_baseline_is_of_the_workload_without_effects() -> None:
    timing = Timing(step_seconds=0.25, effect=1.0)
    node = healthy_node(SPEED, num_cases=1, timing=timing)
    (baseline,) = node.baselines.baseline
    assert baseline.steps.log_seconds == pytest.approx(math.log(0.25))
    assert baseline.steps.launch_sd == LAUNCH_SD


def test_a_clock_does_not_run_backwards() -> None:
    clock = simulation.VirtualClock()
    clock.advance_to(5)
    clock.advance_to(3)
    assert clock.of_journal.monotonic_ns() == 5
