"""Steps too long for a whole reference: healthy ones pass, planted faults are found as stated."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from support.planted_faults import Sent, on_device, outside, wrong
from transformers.models.t5.modeling_t5 import T5LayerNorm

from appliance.records.journal import UNJUDGED_FOR_MEMORY, Check
from appliance.scheduling import references
from appliance.worker import outputs
from workloads.contract.target import Artifacts, Target
from workloads.parts.auditing import replay, room, sampling
from workloads.parts.auditing.selection import draw_rows
from workloads.parts.training.comparisons import GRADIENTS as WHOLE
from workloads.parts.training.sampled_checks import AGAIN, GRADIENTS, KEPT, OUTPUTS, WEIGHTS
from workloads.parts.training.state import named_of

pytestmark = pytest.mark.usefixtures("one_thread")

SEED = 5
ROWS = (
    "bert",
    "convnext_large",
    "regnet_y_128gf",
    "resnet50_jpeg",
    "lightning_resnet152",
    "dinov2_giant",
    "vjepa",
    "diffusion",
    "whisper",
    "t5",
)
SEVERAL = {"bert": "float16", "vjepa": "bfloat16", "t5": "bfloat16"}


@pytest.fixture(autouse=True)
def _no_step_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sizes have few operations; here each is more than may be followed whole."""
    for kind in sampling.MOST_OPERATIONS:
        monkeypatch.setitem(sampling.MOST_OPERATIONS, kind, 0.0)


def built(name: str, folder: Path, **parameters: Any) -> tuple[Any, Any]:
    kind = importlib.import_module(f"workloads.{name}").WORKLOAD
    row = kind(**{**kind.small, **parameters})
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(folder))
    return row, row.build(target, SEED)


def judged(
    row: Any,
    state: Any,
    faulty: AbstractContextManager[None] | None = None,
    *,
    is_lasting: bool = True,
    spoil: Callable[[Any], object] = lambda _: None,
) -> dict[str, Check]:
    """Checks of a step on a faulty device, which is so again when the step is run again."""
    before = row.snapshot(state)
    with faulty or nullcontext():
        output = row.step(state)
        spoil(output)
        if is_lasting:
            return {check.name: check for check in row.check(before, state, output)}
    return {check.name: check for check in row.check(before, state, output)}


@contextmanager
def following() -> Iterator[list[int]]:
    """Counts the steps that float64 follows."""
    made: list[int] = []
    real = replay.follow_model

    def counted(*given: Any) -> Any:
        made.append(1)
        return real(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "follow_model", counted)
        yield made


def launched(name: str, folder: Path, known: dict[str, str] | None) -> tuple[Any, Any, Any]:
    """A launch that has the digests of an untimed one, and what it says of its files."""
    said: dict[str, str] = {}

    def report(file: str, path: Path, digest: str, is_made: bool) -> None:  # noqa: FBT001 - contract
        assert path.exists()
        assert is_made == (known is None)
        said[file] = digest

    row = importlib.import_module(f"workloads.{name}").WORKLOAD
    row = row(**row.small)
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(folder, known, report))
    return row, row.build(target, SEED), said


@pytest.mark.parametrize("name", ["bert", "resnet50_jpeg", "reformer"])
def test_launch_that_sees_the_same_bits_reads_what_the_untimed_one_made(
    name: str, tmp_path: Path
) -> None:
    with following() as made:
        row, state, known = launched(name, tmp_path, None)
        first = judged(row, state)
        assert KEPT in known
        row, state, said = launched(name, tmp_path, dict(known))
        assert judged(row, state) == first
        assert said[KEPT] == known[KEPT]
        assert len(made) == 1


def test_launch_that_sees_another_bit_follows_its_own_step(tmp_path: Path) -> None:
    row, state, known = launched("bert", tmp_path, None)
    first = judged(row, state)
    row, state, _ = launched("bert", tmp_path, dict(known))
    layer = next(one for one in state.model.modules() if isinstance(one, torch.nn.LayerNorm))

    def flipped(made: torch.Tensor) -> torch.Tensor:
        bits = made.clone()
        bits.view(-1)[:1].view(torch.int32).bitwise_xor_(1)  # the last bit of one number
        return bits

    with following() as made:
        again = judged(row, state, wrong(layer, flipped))
    assert made == [1]
    assert not outside(again)
    assert again != first


def test_step_after_the_first_is_followed_in_each_launch(tmp_path: Path) -> None:
    row, state, known = launched("bert", tmp_path, None)
    judged(row, state)
    row, state, _ = launched("bert", tmp_path, dict(known))
    row.step(state)
    with following() as made:
        assert not outside(judged(row, state))
    assert made == [1]


CASES = [(name, "float32") for name in ROWS] + list(SEVERAL.items())


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_healthy_step_passes_and_keeps_its_state(name: str, dtype: str, tmp_path: Path) -> None:
    row, state = built(name, tmp_path, dtype=dtype)
    before = row.snapshot(state)
    output = row.step(state)
    kept = {name: weight.detach().clone() for name, weight in state.trained.items()}
    checks = {check.name: check for check in row.check(before, state, output)}
    assert not outside(checks)
    assert WHOLE not in checks
    for kind in (OUTPUTS, GRADIENTS, WEIGHTS):
        assert 0 < checks[kind].error <= 0.6 * checks[kind].bound
    assert all(torch.equal(kept[name], weight) for name, weight in state.trained.items())
    assert all(output.gradients[name] is w.grad for name, w in state.trained.items())


@pytest.mark.parametrize(("name", "every"), [("bert", 2), ("t5", 5)])
def test_wrong_layer_is_found_in_every_step_whichever_it_is(
    name: str, every: int, tmp_path: Path
) -> None:
    row, state = built(name, tmp_path)
    kinds = (torch.nn.Linear, torch.nn.LayerNorm, torch.nn.Embedding, T5LayerNorm)
    layers = [
        (path, module)
        for path, module in state.model.named_modules()
        if isinstance(module, kinds) and path != "shared"  # which is called by other names
    ]
    assert len(layers) > 20
    for path, module in layers[::every]:
        result = judged(row, state, wrong(module, lambda made: made * 1.001))
        assert OUTPUTS in outside(result), path
        assert AGAIN not in outside(result)  # the device is wrong alike when it runs the step again


def test_wrong_convolution_and_batch_normalisation_are_found(tmp_path: Path) -> None:
    row, state = built("regnet_y_128gf", tmp_path)
    for kind in (torch.nn.Conv2d, torch.nn.BatchNorm2d):
        module = [one for one in state.model.modules() if isinstance(one, kind)][-2]
        result = judged(row, state, wrong(module, lambda made: made * 1.001))
        assert OUTPUTS in outside(result)


def test_wrong_attention_between_layers_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, state = built("bert", tmp_path)
    plain = torch.nn.functional.scaled_dot_product_attention

    def attend(query: torch.Tensor, *values: Any, **options: Any) -> torch.Tensor:
        made = plain(query, *values, **options)
        return made * 1.001 if on_device(query) else made

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
    assert OUTPUTS in outside(judged(row, state))


def test_wrong_gradient_of_an_activation_is_found(tmp_path: Path) -> None:
    row, state = built("bert", tmp_path)
    module = state.model.get_submodule("bert.encoder.layer.1.intermediate.intermediate_act_fn")
    apply: Any = Sent.apply
    result = judged(row, state, wrong(module, apply))
    assert GRADIENTS in outside(result)
    assert OUTPUTS not in outside(result)


def test_wrong_bias_of_relative_positions_is_found_although_it_has_no_inputs(
    tmp_path: Path,
) -> None:
    """One place of `length` by `length` is wrong, for all inputs."""
    row, state = built("t5", tmp_path)
    assert row.length % row.count == 0  # so it might be taken for rows of the batch
    path = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias"
    module = state.model.get_submodule(path)

    def spoil(made: torch.Tensor) -> torch.Tensor:
        other = made.clone()
        other[-1, 0] += 0.1
        return other

    result = judged(row, state, wrong(module, spoil))
    assert OUTPUTS in outside(result)
    register: Any = module.weight.register_hook  # untyped in torch
    handle = register(lambda gradient: gradient * 1.001)
    assert WEIGHTS in outside(judged(row, state))
    handle.remove()
    assert not outside(judged(row, state))


def test_inputs_that_are_as_many_as_places_are_followed_whole(tmp_path: Path) -> None:
    row, state = built("t5", tmp_path, length=8)
    assert row.length == row.count
    checks = judged(row, state)
    assert WHOLE in checks
    assert OUTPUTS not in checks


@pytest.mark.parametrize(("name", "every"), [("bert", 4), ("convnext_large", 60)])
def test_wrong_gradient_of_a_weight_is_found(name: str, every: int, tmp_path: Path) -> None:
    row, state = built(name, tmp_path)
    number = 0
    for path, module in state.model.named_modules():
        if not isinstance(module, torch.nn.Linear | torch.nn.Conv2d | torch.nn.LayerNorm):
            continue
        number += 1
        if number % every:
            continue
        register: Any = module.weight.register_hook  # untyped in torch
        handle = register(lambda gradient: gradient * 1.001)
        result = judged(row, state)
        handle.remove()
        assert WEIGHTS in outside(result), path
        assert AGAIN not in outside(result)


def test_fault_of_one_input_is_found_when_it_is_drawn_and_not_else(tmp_path: Path) -> None:
    row, state = built("bert", tmp_path)
    module = state.model.get_submodule("bert.encoder.layer.0.intermediate.dense")
    found = 0
    for number in range(6):
        drawn = draw_rows(SEED + number, row.batch, 1).drawn

        def spoil(made: torch.Tensor) -> torch.Tensor:
            other = made.clone()
            other[3] *= 1.01
            return other

        result = judged(row, state, wrong(module, spoil))
        assert (OUTPUTS in outside(result)) == (3 in drawn)
        found += 3 in drawn
        assert f"probability {1 / row.batch:.3g}" in result[OUTPUTS].detects_what
    assert found < 6


def test_share_of_inputs_drawn_is_the_probability_that_is_stated() -> None:
    drawn = [draw_rows(number, 8, 1).drawn for number in range(1600)]
    for one in range(8):
        share = sum(one in rows for rows in drawn) / len(drawn)
        assert math.isclose(share, 1 / 8, abs_tol=4 * math.sqrt(1 / 8 * 7 / 8 / 1600))


def test_fault_that_comes_once_shows_in_the_step_run_again(tmp_path: Path) -> None:
    row, state = built("bert", tmp_path)
    module = state.model.get_submodule("bert.encoder.layer.0.intermediate.dense")
    result = judged(row, state, wrong(module, lambda made: made * 1.01), is_lasting=False)
    assert AGAIN in outside(result)
    assert OUTPUTS not in outside(result)


def test_wrong_loss_and_wrong_logits_are_found(tmp_path: Path) -> None:
    row, state = built("bert", tmp_path)
    assert "loss against float64" in outside(
        judged(row, state, spoil=lambda output: output.loss.mul_(1.001))
    )
    assert "logits against float64" in outside(
        judged(row, state, spoil=lambda output: output.logits.mul_(1.001))
    )


def test_running_statistics_that_drift_are_found(tmp_path: Path) -> None:
    row, state = built("resnet50_jpeg", tmp_path)

    def spoil(output: Any) -> object:
        name = next(name for name in output.statistics if name.endswith("running_var"))
        return output.statistics[name].mul_(1.01)

    assert "running statistics against float64" in outside(judged(row, state, spoil=spoil))


@pytest.mark.parametrize("name", ["bert", "regnet_y_128gf"])
def test_step_that_later_ones_followed_is_judged_as_at_once(name: str, tmp_path: Path) -> None:
    """Of a copy of its output: the step is run again from its snapshot."""
    row, state = built(name, tmp_path)
    before = row.snapshot(state)
    output = row.step(state)
    copied = outputs.mapped(output, torch.clone)
    at_once = list(row.check(before, state, output))
    for _ in range(2):
        row.step(state)
    state.cycle.number = before.number
    assert list(row.check(before, state, copied)) == at_once
    assert OUTPUTS in {check.name for check in at_once}


def test_limits_are_those_of_the_estimate_of_references() -> None:
    known = references.load()
    limits = sampling.MOST_OPERATIONS
    assert limits.keys() == known.rate.keys()
    kept = {"convolutions": 2.08e12, "products": 6.4e12, "hashed attention": 1.92e12}
    for kind, rate in known.rate.items():
        most = rate.flops_per_core_second * known.cores * known.limit_seconds
        assert math.isclose(kept[kind], most, rel_tol=1e-9)


def test_operations_that_the_plan_counted_are_not_counted_again() -> None:
    def count() -> float:
        raise AssertionError

    for kind, most in sampling.MOST_OPERATIONS.items():
        sampled = sampling.Sampling(seed=SEED, batch=1)
        plan = sampling.beyond(kind, count, sampled)
        assert [plan(most), plan(1.01 * most + 1)] == [None, sampled]
        assert sampling.beyond(kind, lambda: 1e15, sampled)(None) is sampled


def test_small_sizes_are_followed_whole_unless_they_are_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in sampling.MOST_OPERATIONS:
        monkeypatch.setitem(sampling.MOST_OPERATIONS, kind, 1e12)
    row, state = built("bert", tmp_path)
    checks = judged(row, state)
    assert WHOLE in checks
    assert OUTPUTS not in checks


@contextmanager
def lacking(model: torch.nn.Module, times: int) -> Iterator[list[int]]:
    """A device that lacks memory at the end of so many passes, and counts those that it begins."""
    begun: list[int] = []

    def fail(module: Any, given: Any, made: Any) -> None:
        del module, given
        begun.append(1)
        if len(begun) <= times and made.loss.dtype != torch.float64:
            raise torch.OutOfMemoryError("no room")

    handle = model.register_forward_hook(fail)
    try:
        yield begun
    finally:
        handle.remove()


@pytest.mark.parametrize("followed", ["modules", "layers"])
def test_step_that_lacks_memory_when_run_again_is_judged_alike_or_not_at_all(
    followed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies beside it goes to the host and comes back; the last resort is to say nothing."""
    monkeypatch.setattr(room, "SMALLEST", 0)
    row, state = (
        built("bert", tmp_path)
        if followed == "modules"
        else built("llava", tmp_path, followed="layers")
    )
    before = row.snapshot(state)
    output = row.step(state)
    left = {name: one.clone() for name, one in named_of(output).items()}
    judged = list(row.check(before, state, output))
    assert all(check.is_within for check in judged)
    for times in (1, 2, 3):
        with lacking(state.model, times) as begun:
            made = list(row.check(before, state, output))
        assert len(begun) >= times
        assert all(torch.equal(one, left[name]) for name, one in named_of(output).items())
        assert all(
            torch.equal(weight.grad, output.gradients[name])
            for name, weight in state.trained.items()
        )
        if times < 3:
            assert made == judged
    assert [check.name for check in made if not check.is_within] == [UNJUDGED_FOR_MEMORY]
    assert made[:-1] == judged[: len(made) - 1]


def test_what_is_moved_takes_no_memory_of_the_device_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "SMALLEST", 0)
    row, state = built("bert", tmp_path)
    beside = list(row.step(state).gradients.values())
    weights = [*state.model.parameters(), *state.model.buffers()]
    with room.moved(weights, [*beside, *weights]):
        assert not any(one.untyped_storage().nbytes() for one in beside)
        assert all(one.untyped_storage().nbytes() >= one.nbytes for one in weights)
    assert all(one.untyped_storage().nbytes() >= one.nbytes for one in beside)
