"""The contract test itself: a sound workload passes it, and each lax one is caught.

Every lax workload is the sound one but for a single fault, so that each assertion of the
contract test is seen to fail for its own reason.
"""

# ruff: noqa: ARG002 - a lax workload is one that uses less than it is given

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
import trial
from trial import Kind, Trial

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload

RATE = 0.125


@dataclass(kw_only=True)
class State:
    weight: torch.nn.Parameter
    inputs: list[torch.Tensor]
    cycle: InputCycle
    first: torch.Tensor | None = None
    optimizer: torch.optim.Optimizer | None = None


@dataclass(kw_only=True)
class Output:
    loss: torch.Tensor
    product: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Sound(Workload[State, Output]):
    """Gradient descent on the mean square of a product, checked in float64."""

    summary: ClassVar[str] = "A workload without fault"
    version: ClassVar[int] = 1
    small: ClassVar[Parameters] = {"size": 8}
    data_pattern: ClassVar[str] = "standard normal numbers"

    size: int = 64

    def work(self) -> Work:
        return Work(flops=2 * self.size**3)

    def build(self, target: Target, seed: int) -> State:
        rng = torch.Generator().manual_seed(seed)
        shape = (self.size, self.size)
        return State(
            weight=torch.nn.Parameter(torch.randn(shape, generator=rng)),
            inputs=[torch.randn(shape, generator=rng) for _ in range(2)],
            cycle=InputCycle(of=2),
        )

    def snapshot(self, state: State) -> torch.Tensor:
        return state.weight.detach().double()

    def step(self, state: State) -> Output:
        product = state.inputs[state.cycle.advance()] @ state.weight
        loss = product.square().mean()
        (gradient,) = torch.autograd.grad(loss, [state.weight])
        with torch.no_grad():
            state.weight -= RATE * gradient
        return Output(loss=loss.detach(), product=product.detach())

    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        assert isinstance(before, torch.Tensor)
        data = state.inputs[state.cycle.index].double()
        exact = data @ before
        update = before - RATE * 2 / exact.numel() * data.T @ exact
        yield close("loss", output.loss, exact.square().mean())
        yield close("product", output.product, exact)
        yield close("weights", state.weight, update)


def close(name: str, value: torch.Tensor, exact: torch.Tensor, bound: float = 1e-5) -> Check:
    error = ((value.detach().double() - exact).norm() / exact.norm()).item()
    return Check(name=name, error=error, bound=bound, detects=bound, detects_what="relative error")


def altered(**changes: object) -> type[Sound]:
    """The sound workload's checks with their attributes changed."""

    class Altered(Sound):
        def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
            return (replace(check, **changes) for check in super().check(before, state, output))

    return Altered


class SeesNoWeights(Sound):
    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        return (c for c in Sound.check(self, before, state, output) if c.name != "weights")


class SeesNoLoss(Sound):
    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        return (c for c in super().check(before, state, output) if c.name != "loss")


class BelievesTheOutput(Sound):
    """Its reference is what it should judge."""

    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        yield close("product", output.product, output.product.double())


class AllowsBfloat16(Sound):
    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        return (replace(c, bound=0.009) for c in super().check(before, state, output))


class OneInput(Sound):
    """Trains at no rate on one input, so that every step gives the same."""

    def build(self, target: Target, seed: int) -> State:
        state = super().build(target, seed)
        state.inputs[1] = state.inputs[0]
        return state

    def step(self, state: State) -> Output:
        product = state.inputs[state.cycle.advance()] @ state.weight.detach()
        return Output(loss=product.square().mean(), product=product)

    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        return (c for c in super().check(before, state, output) if c.name != "weights")


class RemembersFirst(Sound):
    """Believes whatever equals the first output."""

    def step(self, state: State) -> Output:
        output = super().step(state)
        if state.cycle.number == 0:
            state.first = output.product.clone()
        return output

    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        if state.first is not None and torch.equal(state.first, output.product):
            output = replace(output, product=output.product * 0)
            yield Check(name="product", error=0.0, bound=0.0)
            return
        yield from super().check(before, state, output)


class SeesNoTail(Sound):
    """Looks at all rows of the product but the last."""

    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        assert isinstance(before, torch.Tensor)
        exact = state.inputs[state.cycle.index].double() @ before
        for check in super().check(before, state, output):
            seen = close("product", output.product[:-1], exact[:-1])
            yield seen if check.name == "product" else check


class ForgivesOneBit(Sound):
    """Takes a product for right that differs from the true one in a single bit."""

    def step(self, state: State) -> Output:
        output = super().step(state)
        state.first = output.product.clone()
        return output

    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        assert state.first is not None
        words = state.first.view(torch.int32) ^ output.product.view(torch.int32)
        changed = sum((int(word) & 2**32 - 1).bit_count() for word in words.reshape(-1))
        product = state.first if changed == 1 else output.product
        yield from super().check(before, state, replace(output, product=product))


class Optimized(Sound):
    """Its update is a library's, as that of most training."""

    def build(self, target: Target, seed: int) -> State:
        state = super().build(target, seed)
        state.optimizer = torch.optim.SGD([state.weight], lr=RATE)
        return state

    def step(self, state: State) -> Output:
        state.optimizer.zero_grad()
        product = state.inputs[state.cycle.advance()] @ state.weight
        loss = product.square().mean()
        loss.backward()
        state.optimizer.step()
        return Output(loss=loss.detach(), product=product.detach())


class OptimizedBlindly(Optimized):
    check = SeesNoWeights.check


class DowngradesUnseen(Optimized):
    """Holds its update to two digits."""

    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        for check in super().check(before, state, output):
            yield replace(check, bound=0.01) if check.name == "weights" else check


class AnySeed(Sound):
    def build(self, target: Target, seed: int) -> State:
        return super().build(target, 0)


class NoSeed(Sound):
    def build(self, target: Target, seed: int) -> State:
        return super().build(target, torch.seed())


class ChangesOutput(Sound):
    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        yield from super().check(before, state, output)
        output.product *= 2


class ChangesState(Sound):
    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        yield from super().check(before, state, output)
        state.inputs[0].zero_()


class ChecksNothing(Sound):
    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        return iter(())


class ConstantWork(Sound):
    def work(self) -> Work:
        return Work(flops=1.0)


class NoWork(Sound):
    def work(self) -> Work:
        return Work(flops=0 if self.size == 8 else 1)


class UnknownPrecision(Sound):
    def work(self) -> Work:
        return Work(flops=2 * self.size**3, precision="float31")


class NoVersion(Sound):
    version = 0


class NoPattern(Sound):
    data_pattern = Workload.data_pattern


class UnknownBound(Sound):
    bound_by = "luck"


class Injecting(Sound):
    injector = "bit_flip"


class HiddenCycle(Sound):
    """Its state takes its inputs in turn, under another name."""

    def build(self, target: Target, seed: int) -> SimpleNamespace:
        state = super().build(target, seed)
        return SimpleNamespace(weight=state.weight, inputs=state.inputs, order=state.cycle)


@dataclass(frozen=True, kw_only=True)
class ThreeInputs(Sound):
    """Says three and keeps two."""

    num_inputs: int = 3


class CountsTwice(Sound):
    """Makes a step and throws it away."""

    def step(self, state: State) -> Output:
        super().step(state)
        return super().step(state)


class NeverReturns(HiddenCycle):
    """Its own answer stands, whatever its state keeps."""

    def returns_to_first(self, state: State, steps: int) -> bool:
        return False


class UnknownSmall(Sound):
    small: ClassVar = {"sise": 8}


def test_sound_workload_has_no_fault(tmp_path: Path) -> None:
    subject = Trial(Sound(**Sound.small), tmp_path)
    assert trial.faults_of(subject) == []
    assert trial.misdescribed(Sound) == []


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (altered(bound=1e9), "zeros was accepted"),
        (altered(bound=1e9), "the previous step's output was accepted"),
        (altered(bound=1e9), "another seed's output was accepted"),
        (altered(bound=float("inf")), "is no limit"),
        (altered(bound=1e-12), "over bound"),
        (altered(error=float("nan")), "over bound"),
        (altered(error=0.0), "NaN was accepted"),
        (altered(name="product"), "two checks of one name"),
        (altered(name=" "), "a check without a name"),
        (altered(kind="exact"), "exact, and allows 1e-05"),
        (altered(detects=None), "does not say what it detects"),
        (altered(detects_what=""), "of what?"),
        (ChecksNothing, "no check at all"),
        (BelievesTheOutput, "another seed's output was accepted"),
        (SeesNoLoss, "output['loss']: scaled by 1.01 was accepted"),
        (OneInput, "the previous step's output was accepted"),
        (RemembersFirst, "the first step's output was accepted"),
        (SeesNoTail, "output['product']: tail never written was accepted"),
        (SeesNoTail, "output['product']: tail left from the step before was accepted"),
        (ForgivesOneBit, "bit 30: highest bit flipped was accepted"),
        (ForgivesOneBit, "middle bit flipped was accepted"),
        (ForgivesOneBit, "lowest bit flipped was accepted"),
        (altered(detects=1e-8), "lowest bit flipped was accepted"),
        (altered(detects=1e-6), "scaled by twice what is detected was accepted"),
        (ChangesOutput, "check changed the output"),
        (ChangesState, "check changed the state"),
    ],
)
def test_lax_check_is_caught(kind: Kind, fault: str, tmp_path: Path) -> None:
    faults = trial.misjudged(Trial(kind(size=8), tmp_path))
    assert any(fault in result for result in faults), faults


def test_unseeded_and_constant_inputs_are_caught(tmp_path: Path) -> None:
    assert trial.irreproducible(Trial(NoSeed(size=8), tmp_path)) == ["one seed gave two outputs"]
    assert trial.irreproducible(Trial(AnySeed(size=8), tmp_path)) == ["two seeds gave one output"]


@pytest.mark.parametrize("kind", [AllowsBfloat16, altered(bound=1e9)])
def test_check_that_allows_a_lower_precision_is_caught(kind: Kind, tmp_path: Path) -> None:
    assert trial.blind_to_downgrade(Trial(kind(size=64), tmp_path)) == [
        "torch.bfloat16: a step in a lower precision was accepted",
        "torch.bfloat16: a backward pass in a lower precision was accepted",
    ]


def test_check_that_allows_a_lower_precision_backwards_alone_is_caught(tmp_path: Path) -> None:
    faults = trial.blind_to_downgrade(Trial(DowngradesUnseen(size=64), tmp_path))
    assert faults == ["torch.bfloat16: a backward pass in a lower precision was accepted"]


def test_check_that_sees_no_weights_is_caught(tmp_path: Path) -> None:
    subject = Trial(SeesNoWeights(size=8), tmp_path)
    assert trial.blind_to_lost_update(subject) == ["a lost update was accepted"]


def test_optimiser_that_is_left_out_is_seen(tmp_path: Path) -> None:
    assert trial.blind_to_skipped_step(Trial(Optimized(size=8), tmp_path)) == []
    assert trial.blind_to_skipped_step(Trial(OptimizedBlindly(size=8), tmp_path)) == [
        "first step: a skipped optimiser step was accepted",
        "second step: a skipped optimiser step was accepted",
    ]


def test_one_input_set_under_two_numbers_is_caught(tmp_path: Path) -> None:
    subject = Trial(OneInput(size=8), tmp_path)
    assert trial.blind_to_wrong_inputs(subject) == ["a step on another input set was accepted"]


@pytest.mark.parametrize(
    ("kind", "faults"),
    [
        (HiddenCycle, ["its state keeps several input sets and has no `cycle`"]),
        (ThreeInputs, ["cycle.of is 2, of 3 input sets"]),
        (
            CountsTwice,
            ["cycle does not count the steps", "does not tell when the first input comes again"],
        ),
        (NeverReturns, []),
    ],
)
def test_input_that_comes_again_unseen_is_caught(
    kind: Kind, faults: list[str], tmp_path: Path
) -> None:
    assert trial.forgetful_of_its_first_input(Trial(kind(size=8), tmp_path)) == faults


class TrainsAndIsCheckedLater(Sound):
    """Its weights are checked when later steps have moved them."""

    checks_later: ClassVar = True


class ReusesItsOutput(Sound):
    """Trains at no rate, and writes each product where the one before lies."""

    checks_later: ClassVar = True

    def build(self, target: Target, seed: int) -> State:
        state = super().build(target, seed)
        state.first = torch.zeros(self.size, self.size)
        return state

    def step(self, state: State) -> Output:
        assert state.first is not None
        data = state.inputs[state.cycle.advance()]
        product = torch.matmul(data, state.weight.detach(), out=state.first)
        return Output(loss=product.square().mean(), product=product)

    def check(self, before: object, state: State, output: Output) -> Iterator[Check]:
        return (c for c in super().check(before, state, output) if c.name != "weights")


@pytest.mark.parametrize(
    ("kind", "faults"),
    [
        (Sound, []),
        (
            TrainsAndIsCheckedLater,
            ["checked after later steps, weights is over bound"],
        ),
        (
            ReusesItsOutput,
            [
                "later steps change an output that is checked after them",
                "checked after later steps, product is over bound",
            ],
        ),
    ],
)
def test_output_that_later_steps_change_is_caught(
    kind: Kind, faults: list[str], tmp_path: Path
) -> None:
    assert trial.changed_by_later_steps(Trial(kind(size=8), tmp_path)) == faults


class Exempt(SeesNoWeights):
    exempt_faults: ClassVar = {"a lost update": "its weights are judged by another workload"}


def test_exemption_is_printed_with_its_reason(tmp_path: Path) -> None:
    output: list[str] = []
    subject = Trial(Exempt(size=8), tmp_path, output.append)
    assert trial.blind_to_lost_update(subject) == []
    assert output == ["exempt: a lost update: its weights are judged by another workload"]
    assert trial.misdescribed(Exempt) == []


@pytest.mark.parametrize("exempt", [{"a lost update": "no"}, {"a lots update": "four words of it"}])
def test_exemption_without_reason_or_from_nothing_is_caught(exempt: dict[str, str]) -> None:
    kind = type("Exempted", (Sound,), {"exempt_faults": exempt, "__module__": __name__})
    assert trial.misdescribed(kind)


@pytest.mark.parametrize("kind", [ConstantWork, NoWork, UnknownPrecision])
def test_work_that_does_not_count_is_caught(kind: Kind) -> None:
    assert trial.uncounted(kind)


@pytest.mark.parametrize("kind", [NoVersion, UnknownSmall, NoPattern, UnknownBound, Injecting])
def test_misdescribed_workload_is_caught(kind: Kind) -> None:
    assert trial.misdescribed(kind)


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import perf_counter",
        "torch.cuda.synchronize()",
        "def step(self, state: State) -> Output:\n    print(state)",
        "def step(self, state: State) -> Output:\n    return state.loss.item()",
    ],
)
def test_clock_print_and_synchronise_are_caught(source: str) -> None:
    assert trial.clocked(source)
