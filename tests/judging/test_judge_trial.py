"""The simulated judge is the judge: the same estimates of baselines, and the same rulings."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.builders import PROTOCOL, SYSTEM, a_case, a_plan
from support.timed_evidence import criteria, perf, ruling_on, rulings, timed

from appliance.evidence.baseline_key import device_name, key_of
from appliance.records.baseline import Baseline, Baselines, Level
from appliance.records.plan import Launch, Plan
from appliance.verbs.baselines.levels import levels_of

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import judge_trial

NOISE = Path(judge_trial.__file__).parent / "noise"
SECONDS = 0.01
NAME = "gemm@cpu:0"


def levels(baseline: np.ndarray) -> list[Level]:
    """As `bench baseline create` has them, of cases, runs and launches."""
    made = levels_of(
        {
            (f"case-{number}", "serial-0"): {
                (f"run-{run}", 1): tuple(values) for run, values in enumerate(case.tolist())
            }
            for number, case in enumerate(baseline)
        }
    )
    assert not any(isinstance(level, str) for level in made.values())
    return [level for level in made.values() if isinstance(level, Level)]


@pytest.mark.parametrize("model", ["all_together", "launches"])
def test_baselines_are_estimated_as_the_verb_does(model: str) -> None:
    noise = judge_trial.load(NOISE / f"{model}.py")
    baseline = noise(np.random.default_rng(3), (2, 40, 12, 5))
    spread = judge_trial.spread_of(baseline)
    for node in range(2):
        made = levels(baseline[node])
        assert [level.run_sd**2 for level in made] == pytest.approx(spread.run[node])
        assert [level.within_sd**2 for level in made] == pytest.approx(spread.within[node])
        assert [level.error_sd**2 for level in made] == pytest.approx(spread.error[node])
        assert made[0].correlation == pytest.approx(float(np.ravel(spread.correlation)[node]))
        figures = {(one.freedom, one.run_launches, one.within_freedom) for one in made}
        assert figures == {(spread.freedom, spread.launches, spread.within_freedom)}


def a_baseline(plan: Plan, level: Level) -> Baseline:
    case = plan.cases[0]
    return Baseline(
        key=key_of(case, plan.protocol, SYSTEM),
        kind="same_device",
        devices=(device_name(SYSTEM, case.device),),
        num_launches=60,
        num_runs=12,
        run_seconds=3600.0,
        steps=level,
        wall=level,
        smallest_margin=0.03,
        smallest_margin_of_three=0.03,
        bundles=("b" * 64,),
    )


@pytest.mark.parametrize("sessions", [1, 3])
@pytest.mark.parametrize("offset", [0.0, 0.03, 0.09])
def test_a_journal_is_ruled_as_the_simulation_says(sessions: int, offset: float) -> None:
    """One case at its last interim analysis: word, t of both tests, and the uncertainties."""
    noise = judge_trial.load(NOISE / "all_together.py")
    trial = judge_trial.Trial(noise=noise, margin=0.03, sessions=sessions, limits=1)
    node = judge_trial.draw(np.random.default_rng(9), trial, 1, offset)
    protocol = replace(PROTOCOL, interim_analyses=judge_trial.ANALYSES, blocks=1)
    most = 40 + 5 * (sessions - 1)
    plan = a_plan(a_case(launches=most), protocol=protocol, sessions=sessions)
    values = np.concatenate([one[0, 0] for one in node.sessions])

    def draw(launch: Launch) -> list[float]:
        return [SECONDS * math.exp(values[launch.number - 1])] * 40

    (level,) = levels(node.baseline[0] + math.log(SECONDS))
    got = ruling_on(
        rulings(
            plan,
            timed(plan, draw),
            criteria(perf(within_of_baseline=0.03)),
            baselines=Baselines(baseline=(a_baseline(plan, level),)),
        )
    )
    decision = judge_trial.decisions(trial, node)[-1].tested
    statistic = got.statistic
    assert statistic is not None
    assert statistic.num_sessions == sessions
    assert statistic.t_pass == pytest.approx(float(decision.t_pass[0, 0]), rel=1e-4)
    assert statistic.t_fail == pytest.approx(float(decision.t_fail[0, 0]), rel=1e-4)
    assert statistic.critical_pass == pytest.approx(float(decision.critical_pass[0, 0]), rel=1e-4)
    assert statistic.critical_fail == pytest.approx(float(decision.critical_fail[0, 0]), rel=1e-4)
    words = {(True, False): "pass", (False, True): "fail", (False, False): "inconclusive"}
    expected = words[bool(decision.is_pass[0, 0]), bool(decision.is_fail[0, 0])]
    assert got.ruling == expected


@pytest.mark.parametrize("model", sorted(path.stem for path in NOISE.glob("*.py")))
def test_at_the_limit_few_pass_and_few_nodes_fail(model: str) -> None:
    """120 nodes: more than five of them would contradict 1 % at a risk of 0.2 %."""
    margin = 0.036 if model in {"slow_process", "all_together"} else 0.03
    trial = judge_trial.Trial(noise=judge_trial.load(NOISE / f"{model}.py"), margin=margin)
    got = judge_trial.rates(trial, 120)
    assert got.one_at_limit_passes.number <= 5
    assert got.all_at_limit_fail.number <= 5
    assert got.healthy_fails.number == 0


def test_a_frozen_baseline_is_what_made_wrong_rulings() -> None:
    """As bench 0.4 ruled: levels of runs alone let one limit in ten pass that is met exactly."""
    noise = judge_trial.load(NOISE / "run_level.py")
    trial = judge_trial.Trial(noise=noise, margin=0.03, sessions=1, is_frozen=True)
    assert judge_trial.rates(trial, 120).one_at_limit_passes.number > 10
