"""Followed losses of any training: right runs stay inside the band, faults leave it.

Faults are injected here, around a training that `loss_curve` follows; nothing that is shipped has
one. What each does is printed; those that no single checked step shows must be found by step 50.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from appliance.errors import ApplianceError
from appliance.records.journal import Check
from workloads.contract.failures import ParameterError
from workloads.contract.target import Artifacts, Target
from workloads.loss_curve import LossCurve
from workloads.loss_curve_varying import LossCurveVarying
from workloads.parts.curves import bands, curves
from workloads.parts.curves.any_order import AnyOrder
from workloads.parts.curves.following import Following, State
from workloads.parts.curves.variations import Variation, engine
from workloads.parts.training.state import Training
from workloads.recording import losses as recorder
from workloads.recording.__main__ import Request, _record
from workloads.recording.engines import Answer, OneRun, Plan

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("BENCH_DATA", ROOT.parent / "shared" / "datasets"))
BANDS = [
    band
    for path in sorted(bands.FOLDER.glob("*.json"))
    if (band := json.loads(path.read_text()))["schema"] == "bench/loss-band/2"
]
QUICK = ("digits_mlp", "markov_lm")
SECONDS = ("digits_mlp", "markov_lm", "dqn", "ppo", "rlhf", "pna", "dimenet", "resnet50")
"""Followed in every run of the tests; the others where slow ones are asked for."""
FLOAT32 = [band["workload"] for band in BANDS if band["dtype"] == "float32"]
LEARNS = {
    "convnext_large": 0.1,
    "focalnet": 0.1,
    "diffusion": 0.8,
    "recursiongfn": 0.75,
    "dimenet": 0.2,
    "pna": 0.6,
    "vjepa": 0.9,
    "dinov2_giant": 0.97,
    "bert": 0.95,
    "t5": 0.6,
    "reformer": 0.5,
    "whisper": 0.1,
    "llm_full": 0.5,
    "llm_lora": 0.7,
    "llava": 0.1,
}
"""Part of its first losses that is left of the last; a right run is held to the curve itself."""
Fault = Callable[[int, Training], None]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(number)


def target(folder: Path) -> Target:
    return Target(device=torch.device("cpu"), artifacts=Artifacts(folder), data=DATA)


def training_of(state: State) -> Training:
    followed = state.followed
    training: Training = followed if isinstance(followed, Training) else followed.training
    return training


def followed(
    workload: Following,
    folder: Path,
    *,
    seed: int = 1,
    fault: Fault | None = None,
    variation: Variation | None = None,
) -> dict[str, Check]:
    """Checks of the whole curve of a launch, by name."""
    state = workload.build(target(folder), seed)
    with engine(curves.models(state.followed), variation or Variation()):
        for number in range(workload.steps):
            if fault is not None:
                fault(number, training_of(state))
            output = workload.step(state)
    return {check.name: check for check in workload._check_curve(state, output)}


def following(name: str) -> Following:
    """Whichever follows a workload, in float32."""
    if curves.find(name).is_repeatable:
        return LossCurve(workload=name)
    return LossCurveVarying(workload=name)


@pytest.fixture
def prepare(request: pytest.FixtureRequest) -> Callable[[Following], None]:
    """Skips without what a workload needs; programs of JAX are then compiled quickly."""

    def prepared(workload: Following) -> None:
        followed_one = workload._followed()
        if missing := [name for name in followed_one.data if not (DATA / name).is_dir()]:
            pytest.skip(f"needs the data set {missing[0]}")
        if "jax" in followed_one.needs:
            pytest.importorskip("jax")
            request.getfixturevalue("quick_programs")

    return prepared


def is_inside(checks: Mapping[str, Check]) -> bool:
    return all(check.is_within for check in checks.values())


# ------------------------------------------------------------------ right runs


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize(
    "variation",
    [
        Variation(),
        Variation(threads=2),
        Variation(has_onednn=False),
        Variation(sums="blocks of 16"),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [1001, 1002])
def test_right_run_that_was_not_recorded_is_inside(
    name: str, variation: Variation, seed: int, tmp_path: Path
) -> None:
    checks = followed(LossCurve(workload=name), tmp_path, seed=seed, variation=variation)
    assert is_inside(checks), checks


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in SECONDS else pytest.mark.slow)
        for name in sorted(FLOAT32)
    ],
)
def test_every_recorded_training_is_followed_by_a_right_run(
    name: str, tmp_path: Path, prepare: Callable[[Following], None]
) -> None:
    workload = following(name)
    prepare(workload)
    checks = followed(workload, tmp_path, seed=1007)
    assert is_inside(checks), checks


@pytest.mark.parametrize("name", ["pna", "dimenet"])
def test_right_run_that_adds_in_another_order_is_inside(name: str, tmp_path: Path) -> None:
    workload = following(name)
    checks = followed(workload, tmp_path, seed=1008, variation=Variation(order=1009))
    assert is_inside(checks), checks


@pytest.mark.parametrize("name", ["pna", "dimenet"])
def test_another_order_changes_roundings_and_no_more(name: str, tmp_path: Path) -> None:
    workload = curves.training_workload(name, "float32", is_small=True)
    gradients = []
    for seed in (1, 2):
        state = workload.build(target(tmp_path), 1)
        with AnyOrder(seed) as order:
            gradients.append(workload.step(state).gradients)
        assert order.num_changed > 0
    one, two = (torch.cat([part.flatten() for part in made.values()]) for made in gradients)
    assert 0 < (one - two).norm() / one.norm() < 1e-4


@pytest.mark.parametrize("seed", [1003, 1004, 1005])
def test_right_run_of_a_transformer_is_inside(seed: int, tmp_path: Path) -> None:
    checks = followed(LossCurve(workload="bert"), tmp_path, seed=seed)
    assert is_inside(checks), checks


def test_first_and_last_step_are_held_to_float64_too(tmp_path: Path) -> None:
    workload = LossCurve(**LossCurve.small)
    state = workload.build(target(tmp_path), 3)
    for number in range(workload.steps):
        before = workload.snapshot(state)
        output = workload.step(state)
        if number in (0, workload.steps - 1):
            checks = list(workload.check(before, state, output))
            assert [check for check in checks if not check.is_within] == []
            assert {"gradients against float64", "loss against float64"} <= {c.name for c in checks}
    assert checks[-1].name == "share of the recorded fall of the loss that is missing"
    altered = replace(output.followed_output, loss=output.followed_output.loss * (1 + 1e-6))
    assert any(
        not check.is_within
        for check in workload.check(before, state, replace(output, followed_output=altered))
        if check.name == "losses that are not those of the steps"
    )


# ------------------------------------------------------------------ faults


def scaled(number: int, training: Training) -> None:
    """The first layer's output is 1e-5 too large."""
    if number == 0:
        first_layer(training).register_forward_hook(lambda *parts: parts[-1] * (1 + 1e-5))


def first_layer(training: Training) -> torch.nn.Module:
    model: Any = training.model
    return model.layers[0] if hasattr(model, "layers") else model.bert.embeddings


def weight_of(training: Training) -> torch.nn.Parameter:
    """Of the first linear layer, in BERT of the one that turns hidden states to words."""
    model: Any = training.model
    if hasattr(model, "cls"):
        last: torch.nn.Parameter = model.cls.predictions.transform.dense.weight
        return last
    return next(
        layer.weight
        for layer in model.modules()
        if "Linear" in type(layer).__name__ and layer.weight.requires_grad
    )


def hit(number: int, training: Training) -> None:
    """One gradient, of the weight with the largest one, is off by 1 in the step of number 25."""
    if number == 25:
        spoil(training, lambda gradient: int(gradient.abs().argmax()))


def hit_elsewhere(number: int, training: Training) -> None:
    """One gradient of a weight like any other is off by 1 in the step of number 25."""
    if number == 25:
        spoil(training, lambda _: 7 * weight_of(training).shape[1] + 13)


def spoil(training: Training, place: Callable[[torch.Tensor], int]) -> None:
    """Add 1 to one element of a gradient in the step that comes next."""

    def add(*_: object) -> None:
        gradient = weight_of(training).grad
        assert gradient is not None
        gradient.view(-1)[place(gradient)] += 1.0
        handle.remove()

    handle = training.optimizer.register_step_pre_hook(add)


def dead(number: int, training: Training) -> None:
    """One unit of the first linear layer gives zero."""
    if number == 0:
        layer = next(m for m in training.model.modules() if isinstance(m, torch.nn.Linear))
        kept = torch.ones(len(layer.weight))
        kept[7] = 0
        layer.register_forward_hook(lambda *parts: parts[-1] * kept)


@dataclass
class Changed:
    """Input sets of which each is changed as it is taken."""

    batches: Any
    change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return self.change(dict(self.batches[index]))


def swapped(number: int, training: Training) -> None:
    """The targets of one batch, of step 25, belong to other inputs."""
    if number == 25:
        real = training.batches
        key = "labels" if "labels" in real[0] else "targets"
        change = lambda batch: {**batch, key: batch[key].roll(1, 0)}  # noqa: E731 - short
        training.batches = Changed(real, change)
    elif number == 26:
        training.batches = training.batches.batches  # type: ignore[attr-defined]


def halved(number: int, training: Training) -> None:
    """One step, of number 25, sees the first half of its batch."""
    if number == 25:
        training.batches = Changed(
            training.batches,
            lambda batch: {key: value[: len(value) // 2] for key, value in batch.items()},
        )
    elif number == 26:
        training.batches = training.batches.batches  # type: ignore[attr-defined]


def frozen(number: int, training: Training) -> None:
    """The first linear layer's weight does not move from step 25 on."""
    if number == 25:
        weight = weight_of(training)
        kept = weight.detach().clone()

        def restore(*_: object) -> None:
            with torch.no_grad():
                weight.copy_(kept)

        training.optimizer.register_step_post_hook(restore)


SEEN = (
    *(("digits_mlp", f) for f in (scaled, hit, hit_elsewhere, dead, swapped, halved, frozen)),
    *(("bert", fault) for fault in (swapped, halved, frozen)),
    ("rlhf", frozen),
    *(("pna", fault) for fault in (swapped, frozen)),
    ("dimenet", swapped),
)
UNSEEN = (
    *(("bert", fault) for fault in (scaled, hit, hit_elsewhere, dead)),
    ("rlhf", hit),
)
"""In 50 steps of small BERT the encoder has hardly begun to matter to the loss: what one unit,
1e-5 of its input or one weight changes stays near the last places of a float32 loss. One update of
`rlhf` moves a weight by 3e-6 at most."""


def worst_of(name: str, fault: Fault, folder: Path) -> Check:
    checks = followed(following(name), folder, seed=1006, fault=fault)
    worst = checks["loss curve, worst of all steps over its recorded band"]
    print(  # noqa: T201 - the figures
        f"{name}, {fault.__doc__} {worst.error:.2g} bands; {worst.detects_what}"
    )
    return worst


@pytest.mark.parametrize(("name", "fault"), SEEN)
def test_fault_leaves_the_band(name: str, fault: Fault, tmp_path: Path) -> None:
    assert not worst_of(name, fault, tmp_path).is_within


@pytest.mark.parametrize(("name", "fault"), UNSEEN)
def test_what_no_float32_loss_shows_is_measured_and_not_claimed(
    name: str, fault: Fault, tmp_path: Path
) -> None:
    assert worst_of(name, fault, tmp_path).error < 3


@pytest.mark.parametrize("name", SECONDS)
def test_one_lost_update_leaves_the_band(
    name: str, tmp_path: Path, prepare: Callable[[Following], None]
) -> None:
    """Of a step halfway: the weights are put back, the optimiser's moments are not."""
    workload = following(name)
    prepare(workload)
    state = workload.build(target(tmp_path), 1006)
    for number in range(workload.steps):
        start = curves.kept_weights(state.followed)
        output = workload.step(state)
        if number == workload.steps // 2:
            curves.put_weights(state.followed, start)
    checks = {check.name: check for check in workload._check_curve(state, output)}
    worst = checks["loss curve, worst of all steps over its recorded band"]
    print(f"{name}, one lost update: {worst.error:.2g}; {worst.detects_what}")  # noqa: T201
    assert not worst.is_within


@dataclass(frozen=True, kw_only=True)
class Still(LossCurve):
    """The optimiser does nothing."""

    def step(self, state: State) -> Any:
        training_of(state).optimizer.step = lambda *_: None  # type: ignore[method-assign]
        return super().step(state)


def test_loss_that_does_not_fall_is_refused(tmp_path: Path) -> None:
    checks = followed(Still(workload="digits_mlp"), tmp_path)
    missing = checks["share of the recorded fall of the loss that is missing"]
    assert not missing.is_within
    assert missing.error == pytest.approx(1, abs=0.05)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"workload": "no_such"}, "workload is no_such: `bench list workloads`"),
        ({"workload": "../x"}, "workload is ../x: `bench list workloads`"),
        ({"workload": "injected.plain"}, "`bench list workloads`"),
        ({"workload": "contract"}, "`bench list workloads`"),
        ({"workload": "gemm"}, "trains nothing"),
        ({"workload": "loss_curve"}, "trains nothing"),
        ({"workload": "pna"}, "follow it with loss_curve_varying"),
        ({"workload": "digits_mlp", "dtype": "bfloat16"}, "leave float32"),
        ({"workload": "digits_mlp", "dtype": "float16"}, "choose one of float32, bfloat16"),
        ({"workload": "digits_mlp", "is_small": False}, "no band digits_mlp-full-float32"),
    ],
)
def test_parameters_that_cannot_run_are_refused(parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence.replace(".", r"\.")):
        LossCurve(**parameters)


def test_module_that_is_no_workload_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helper.py").touch()
    monkeypatch.setattr(curves, "FOLDER", tmp_path)
    monkeypatch.setitem(sys.modules, "workloads.helper", types.ModuleType("workloads.helper"))
    with pytest.raises(ParameterError, match="a module and no workload"):
        LossCurve(workload="helper")


def test_what_gives_the_same_bits_is_followed_by_the_one_that_says_so() -> None:
    with pytest.raises(ParameterError, match=r"the same bits: follow it with loss_curve$"):
        LossCurveVarying(workload="digits_mlp")


def test_the_spread_is_the_largest_of_those_that_are_followed() -> None:
    spreads = [curves.find(n).spread for n in FLOAT32 if not curves.find(n).is_repeatable]
    assert LossCurveVarying.spread == max(spreads)


def test_other_inputs_are_refused_and_never_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = LossCurve(workload="digits_mlp")
    monkeypatch.setattr(curves, "start_digest", lambda _: "0" * 64)
    with pytest.raises(ApplianceError, match="other first weights or inputs"):
        workload.build(target(tmp_path), 1)


def test_other_parameters_than_recorded_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    band = bands.load_loss_band("digits_mlp", "float32", is_small=True)
    other = replace(band, parameters={**band.parameters, "batch": 128})
    monkeypatch.setattr(bands, "load_loss_band", lambda *_, **__: other)
    with pytest.raises(ParameterError, match="recorded with other batch"):
        LossCurve(workload="digits_mlp")
    monkeypatch.setattr(bands, "load_loss_band", lambda *_, **__: replace(band, version=99))
    with pytest.raises(ParameterError, match="another version"):
        LossCurve(workload="digits_mlp")


def test_digest_sees_every_weight_and_input(tmp_path: Path) -> None:
    workload = curves.training_workload("bert", "float32", is_small=True)
    first = curves.start_digest(workload.build(target(tmp_path), 1))
    assert first == curves.start_digest(workload.build(target(tmp_path), 1))
    assert first != curves.start_digest(workload.build(target(tmp_path), 2))
    state = workload.build(target(tmp_path), 1)
    with torch.no_grad():
        curves.weights(state)[-1][-1] += 1e-6
    assert first != curves.start_digest(state)
    state = workload.build(target(tmp_path), 1)
    state.batches[-1]["labels"][-1, -1] += 1
    assert first != curves.start_digest(state)


# ------------------------------------------------------------------ the bands that are shipped


@pytest.mark.parametrize("data", BANDS, ids=lambda data: f"{data['workload']}-{data['dtype']}")
def test_band_is_whole_and_of_what_is_shipped(
    data: dict[str, Any], tmp_path: Path, prepare: Callable[[Following], None]
) -> None:
    kind = LossCurve if curves.find(data["workload"]).is_repeatable else LossCurveVarying
    workload = kind(workload=data["workload"], dtype=data["dtype"])
    band = bands.load_loss_band(data["workload"], data["dtype"], is_small=True)
    spread, allowed = np.array(band.spread), np.array(band.allowed)
    assert allowed == pytest.approx(np.maximum(3 * spread, band.floor), rel=0.01)
    assert len(band.allowed) == band.num_steps == workload.steps >= recorder.LEAST_STEPS
    assert band.horizon >= band.num_steps
    assert band.num_steps == curves.NUM_STEPS or band.note
    assert band.still >= recorder.STILL or band.still == 0
    assert band.still or band.num_steps >= recorder.FEW_STEPS
    of_torch = "jax" not in workload._followed().needs
    for curve in band.curves:
        assert len(curve.losses) == band.num_steps
        assert max(run.largest for run in curve.runs) <= max(band.spread) * 1.01
        assert len({run.engine for run in curve.runs}) >= (4 if of_torch else 2)
    prepare(workload)
    workload.build(target(tmp_path), 1)


@pytest.mark.parametrize(("name", "share"), LEARNS.items())
def test_recorded_loss_falls_as_that_of_a_training_that_learns(name: str, share: float) -> None:
    for curve in bands.load_loss_band(name, "float32", is_small=True).curves:
        assert np.mean(curve.losses[-4:]) < share * np.mean(curve.losses[:4])


def test_suite_has_every_recorded_training() -> None:
    import tomllib  # noqa: PLC0415 - of this test alone

    suite = tomllib.loads((ROOT / "workloads" / "suites" / "curves.toml").read_text())
    planned = {
        (case["parameters"]["workload"], case["parameters"].get("dtype", "float32"))
        for case in suite["case"]
    }
    assert planned == {(band["workload"], band["dtype"]) for band in BANDS}
    for case in suite["case"]:
        kind = curves.find(case["parameters"]["workload"])
        is_varying = case["workload"] == "loss_curve_varying"
        assert is_varying is not kind.is_repeatable, case["id"]
        assert set(case.get("needs", [])) == kind.needs, case["id"]


def test_every_training_has_a_curve_or_a_reason_why_not() -> None:
    """The reason stands in a row of docs/explanation/trajectories.md's table of those without."""
    names = {path.stem for path in (ROOT / "workloads").glob("*.py")} - {"__init__", "contract"}
    trained = {name for name in names if curves.is_training(curves.find(name))}
    assert len(trained) > 20
    page = (ROOT / "docs" / "explanation" / "trajectories.md").read_text()
    _, _, table = page.partition("## Trainings without a curve")
    explained = {name for name in trained if f"| `{name}` |" in table}
    assert trained == set(FLOAT32) | explained
    assert not set(FLOAT32) & explained


# ------------------------------------------------------------------ recording


def runs_of(*curves_: list[list[float]]) -> Answer:
    """An engine's answer with these losses of each start."""
    return Answer(
        plan=Plan(curves=len(curves_), steps=len(curves_[0][0]), nudged=1, is_whole=True),
        version=1,
        digests=tuple(str(number) * 64 for number in range(len(curves_))),
        runs=tuple(
            OneRun(number=number, engine="library", perturbation="none", losses=tuple(run))
            for number, runs in enumerate(curves_)
            for run in runs
        ),
    )


def falling(by: float = 0.0, steps: int = 20) -> list[float]:
    return [float(np.exp(2 - 0.1 * step + by * (step > 0))) for step in range(steps)]


def test_band_allows_three_times_the_largest_spread_of_all_starts() -> None:
    band = recorder.pooled(
        "x",
        "float32",
        [runs_of([falling(), falling(1e-4)], [falling(), falling(1e-3)])],
    )
    assert band.allowed[0] == 1e-6
    assert band.allowed[5] == pytest.approx(3 * 5e-4, rel=0.01)
    assert band.num_steps == 20


@pytest.mark.parametrize(
    ("curve", "sentence"),
    [
        ([[3.0] * 20, [3.0] * 20], "loss fell by 0 "),
        ([falling(), falling(0.9)], "part by a tenth of the loss after 1 steps"),
        ([[*falling()[:2], -1.0, *falling()[3:]], falling()], "after 2 steps: too few"),
        ([[3.0] * 5, [3.0] * 5], "loss fell by 0 "),
    ],
)
def test_training_that_cannot_be_held_to_a_band_is_left_out(
    curve: list[list[float]], sentence: str
) -> None:
    with pytest.raises(ParameterError, match=sentence):
        recorder.pooled("x", "float32", [runs_of(curve)])


def test_losses_below_nought_are_pooled_by_their_size() -> None:
    below = [[-loss for loss in run] for run in (falling(), falling(1e-3))]
    pool = bands.pooled(np.array(below), 1e-6)
    assert pool.losses[0] == pytest.approx(-np.exp(2))
    assert pool.allowed[5] == pytest.approx(3 * 5e-4, rel=0.01)
    compared = bands.beside(np.array(falling()), pool.losses.tolist(), pool.allowed.tolist())
    assert len(compared.outside) == 20


def test_curve_of_few_steps_must_be_left_by_a_training_that_stands_still() -> None:
    few = runs_of([falling(steps=5), falling(1e-4, steps=5)])
    band = recorder.pooled("x", "float32", [replace(few, still=((np.exp(2),) * 5,))])
    assert band.still > recorder.STILL
    assert "stands still leaves it by" in band.note
    with pytest.raises(ParameterError, match="it has 5 steps, and one that stands still leaves"):
        recorder.pooled("x", "float32", [replace(few, still=(tuple(falling(steps=5)),))])


@pytest.mark.parametrize(
    ("slow", "expected"),
    [({2, 4}, nullcontext()), ({2, 3}, pytest.raises(recorder._TooSlow))],
    ids=["one by one", "one behind the other"],
)
def test_engine_is_left_out_whose_steps_are_slow_one_behind_the_other(
    slow: set[int],
    expected: AbstractContextManager[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([reading for step in range(6) for reading in (0.0, 5.0 if step in slow else 0.1)])
    monkeypatch.setattr(recorder, "time", types.SimpleNamespace(process_time=lambda: next(clock)))
    ground = recorder.Ground(data=None, folder=tmp_path)
    workload = curves.training_workload("digits_mlp", "float32", is_small=True)
    with expected:
        recorder.follow(workload, ground, 1, variation=Variation(), steps=6, seconds=0.1)


def test_slow_steps_are_recorded_less() -> None:
    plans = [recorder.plan_for(seconds, None) for seconds in (0.001, 0.1, 0.4, 2.0)]
    assert [plan.curves for plan in plans] == [3, 2, 2, 2]
    assert [plan.steps for plan in plans] == [50, 50, 30, 20]
    assert recorder.plan_for(0.001, 12).steps == 12


def record(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "record_bands.py"), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_script_records_the_shipped_band_again(tmp_path: Path) -> None:
    """The same plan and the same digests; losses to what the processor's library leaves open."""
    done = record(
        "--workload", "digits_mlp", "--dtype", "float32", "--out", str(tmp_path), "--json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert [one["workload"] for one in summary["recorded"]] == ["digits_mlp"]
    band = json.loads((tmp_path / "digits_mlp-small-float32.json").read_text())
    shipped = json.loads((bands.FOLDER / "digits_mlp-small-float32.json").read_text())
    assert band["parameters"] == shipped["parameters"]
    for one, other in zip(band["curves"], shipped["curves"], strict=True):
        assert set(one["inputs_sha256"]) & set(other["inputs_sha256"])
        assert (
            bands.beside(np.array(one["losses"]), other["losses"], shipped["allowed"]).outside == ()
        )


@pytest.mark.parametrize(
    ("name", "dtype", "sentence"),
    [("gemm", "float32", "trains nothing"), ("digits_mlp", "bfloat16", "leave float32")],
)
def test_what_can_have_no_band_is_refused_before_any_is_recorded(
    name: str, dtype: str, sentence: str, tmp_path: Path
) -> None:
    """Of the script's child; how the script reports a refusal, the next test shows."""
    request = Request(names=(name,), dtypes=(dtype,), out=str(tmp_path), data=None, cores=1)
    summary = _record(request)
    assert sentence in summary.refused
    assert (summary.recorded, summary.left_out) == ((), ())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--dtype", "float61"), 'there is no band of dtype "float61"'),
        (("--workload", "no_such"), "workload is no_such"),
        (("--data", "/no/such/folder"), "--data names /no/such/folder, which is no folder"),
        (("--out", "/proc/nowhere"), "cannot be made a folder"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    words: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    done = record(*(words if "--out" in words else ("--out", str(tmp_path), *words)))
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
