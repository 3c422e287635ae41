"""Inference through ONNX Runtime of a network exported from torch, and its check.

One step takes a batch from the host through a session and brings the answers back, as a request
would; with a batch of 1 it is one query, and its time a latency. Inputs and weights are drawn by
the counter-based generator where they lie, on the host. The network is exported once per run. Its
answers are compared with those of torch in float64, made from the seed and not from the file, and
their error with that of torch on a processor in the same format: a wrong export or graph
optimisation, a product in a lower precision and an answer to another request would each be seen.
What ran on another provider than the one asked for is counted (`parts/inference/onnx_sessions.py`).

A workload gives the network, as it is served, and its inputs; the bounds that it sets are
multiples of what it measured.
"""

from __future__ import annotations

import copy
import functools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers.initialization import no_init_weights

from appliance.records.journal import Check
from appliance.records.suite import Scenario
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.parts.drawing.drawn import Drawer, Draws, HostDraws
from workloads.parts.drawing.weights import NO_GAINS, Gains, fill
from workloads.parts.inference.exporter import export
from workloads.parts.inference.inference import Inference
from workloads.parts.inference.onnx_sessions import (
    MOST_BYTES,
    Array,
    Nodes,
    check_providers,
    open_session,
    profile,
    run,
)
from workloads.parts.inference.served import compare_whole, count_other_choices
from workloads.parts.numerics.parameters import (
    require_choice,
    require_distinguishable,
    require_positive,
)
from workloads.parts.numerics.precision import compare_logits, dtype_named
from workloads.parts.numerics.size import count_flops, count_parameters

Tensors = dict[str, torch.Tensor]


@dataclass(kw_only=True)
class State:
    """`reference` and `eager` are answers (input set, ...) of float64 and of a processor.

    `opened_with` are the options of the provider; `profile` is made when a check first asks.
    """

    session: Any
    asked_for: str
    opened_with: Mapping[str, str]
    inputs: list[dict[str, Array]]
    reference: torch.Tensor
    eager: torch.Tensor
    profile: Callable[[], Nodes]
    cycle: InputCycle


@dataclass(frozen=True, kw_only=True)
class OnnxInference(Inference[State, Array]):
    """An exported model that answers requests.

    `unit_roundoffs`: what the worst answer may be off; `turned`: the most of 1 - cosine.
    `gains` and `excluded` are of the weights (`parts/drawing/weights.py`).
    `choices`: what the largest of an answer's last dimension chooses, in plural; empty where it
    chooses nothing.
    """

    unit_roundoffs: ClassVar[float]
    turned: ClassVar[Mapping[str, float]]
    unit: ClassVar[str]
    answer: ClassVar[str]
    choices: ClassVar[str] = ""
    gains: ClassVar[Gains] = NO_GAINS
    excluded: ClassVar[tuple[str, ...]] = ()
    domain: ClassVar[str] = "inference"

    batch: int = 8
    num_inputs: int = 4
    dtype: str = "float16"

    def __post_init__(self) -> None:
        require_positive(self, "batch", "num_inputs")
        require_choice("dtype", self.dtype, self.turned)
        require_distinguishable(self.batch, self.num_inputs)

    @property
    def scenario(self) -> Scenario:
        return "single_stream" if self.batch == 1 else "offline"

    @abstractmethod
    def network(self) -> torch.nn.Module:
        """Make the network as it is served: tensors in, in the order of `inputs`, one out.

        What is neither drawn nor computed here need not be initialised.
        """

    @abstractmethod
    def inputs(self, drawer: Drawer, index: int) -> Tensors:
        """Batch of a number, in float32 where it is floating-point."""

    @abstractmethod
    def blank(self) -> Tensors:
        """Tensors as those of `inputs`, without values, on torch's own device."""

    def work(self) -> Work:
        def answer() -> torch.Tensor:
            output: torch.Tensor = self.network().eval()(**self.blank())
            return output

        flops = count_flops(answer, with_backward=False)
        return Work(units=self.batch, unit=self.unit, flops=flops, precision=self.dtype)

    def num_parameters(self) -> int:
        return count_parameters(self.network)

    def build(self, target: Target, seed: int) -> State:
        if not target.onnx_providers:
            message = "onnx_providers is empty: give the target a provider of ONNX Runtime"
            raise ParameterError(message)
        dtype = dtype_named(self.dtype)
        if self.num_parameters() * dtype.itemsize >= MOST_BYTES:
            message = f"dtype is {self.dtype}: the file would pass 2 GiB, give a narrower one"
            raise ParameterError(message)
        drawer = Draws(target=target, seed=seed).on_host()
        inputs = [_cast(self.inputs(drawer, index), dtype) for index in range(self.num_inputs)]
        network = functools.cache(lambda: self.filled(seed).to(dtype))
        file = target.artifacts.once(
            "network.onnx", lambda path: export(network(), inputs[0], "answer", path)
        )
        answers = target.artifacts.once(
            "answers.pt", lambda path: torch.save(_answers(network(), inputs), path)
        )
        tensors = torch.load(answers, weights_only=True)
        arrays = [{name: one.numpy() for name, one in some.items()} for some in inputs]
        providers, opened_with = target.onnx_providers, target.onnx_options(self.dtype)
        return State(
            session=open_session(file, providers, opened_with=opened_with),
            opened_with=opened_with,
            asked_for=providers[0],
            inputs=arrays,
            reference=tensors["exact"],
            eager=tensors["eager"],
            profile=functools.cache(lambda: profile(file, providers, arrays[0], opened_with)),
            cycle=InputCycle(of=self.num_inputs),
        )

    def filled(self, seed: int) -> torch.nn.Module:
        """The network of a seed in float32 on the host."""
        with no_init_weights():
            network = self.network().eval()
        fill(network, HostDraws(seed=seed), gains=self.gains, excluded=self.excluded)
        return network

    def step(self, state: State) -> Array:
        return run(state.session, state.inputs[state.cycle.advance()])

    def snapshot(self, state: State) -> int:
        """Index of the input set of the step that comes."""
        return (state.cycle.number + 1) % state.cycle.of

    def check(self, before: object, state: State, output: Array) -> Iterator[Check]:
        assert isinstance(before, int)  # noqa: S101 - what snapshot returned
        reference, answer = state.reference[before], torch.from_numpy(output)
        missing = int(answer.shape != reference.shape)
        yield Check(name="answers of the wrong shape", error=missing, bound=0.0, kind="exact")
        if missing:
            return
        dtype = dtype_named(self.dtype)
        others = state.reference if self.batch == 1 else None
        yield from compare_logits(
            answer, reference, unit_roundoffs=self.unit_roundoffs, dtype=dtype, others=others
        )
        turned = self.turned[self.dtype]
        eager = state.eager[before]
        yield from compare_whole(
            answer, reference, eager, turned=turned, dtype=dtype, what=self.answer
        )
        if self.choices:
            yield count_other_choices(
                answer,
                reference,
                unit_roundoffs=self.unit_roundoffs,
                dtype=dtype,
                what=self.choices,
            )
        yield from check_providers(
            state.session, state.asked_for, state.profile(), state.opened_with
        )


def _cast(tensors: Tensors, dtype: torch.dtype) -> Tensors:
    """Round what is floating-point; numbers of tokens are as they are."""
    return {
        name: one.to(dtype) if one.is_floating_point() else one for name, one in tensors.items()
    }


@torch.no_grad()
def _answers(network: torch.nn.Module, inputs: list[Tensors]) -> Tensors:
    """Answers (input set, ...) in float64 and in the network's own format."""
    exact = copy.deepcopy(network).double()
    wide = [_cast(some, torch.float64) for some in inputs]
    return {
        "eager": torch.stack([network(**some) for some in inputs]),
        "exact": torch.stack([exact(**some) for some in wide]),
    }
