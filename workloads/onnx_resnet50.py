"""ResNet-50 served by ONNX Runtime: what a device does outside torch.

One step runs a batch from the host through a session and brings the logits back, as a request
would; with a batch of 1 it is one query, and its time a latency. The network is exported from
torch once per run, its normalisations merged into the convolutions before them. Its logits are
compared with torch's in float64, made from the seed and not from the file, of the network as it
was before that, and their error with that of torch on a processor in the same format: a wrong
export, merging or graph optimisation, a product in a lower precision and an answer to another
request would each be seen. At the first step `num_agreement` images more are classified, and must
have float64's class. ONNX Runtime falls back to the processor without an error, a session or a
single node of it; so the session's providers are asked, and the profile of one run, whose nodes are
counted by provider and printed with the graph optimisation that made them.

A fresh network would give most images the same few classes by narrow leads, and agreement of
classes would mean little. So its running statistics are taken from images of the kind that is
served, and `TAUGHT` rows of its last layer are fitted to classify `TAUGHT` patterns (ridge
regression on its own features of `NUM_LESSONS` images); the other rows keep their random weights.

What healthy sessions were off by stands in `calibration/onnx_resnet50.toml`. `LOGITS` allows three
times that and more: graph optimisations regroup every sum, and in float16 they also round merged
weights once more. In float32 the cosine may lose 1e-9, about half the square of that bound.

Threads of the session do not spin while they wait: those that wait in a loop take the cores from
those that work, and a launch would time its neighbours.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.suite import Scenario
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.parts.datasets.images import drawn_images, drawn_patterns
from workloads.parts.drawing.drawn import Draws
from workloads.parts.inference.exporter import InNewTensors, export, without_normalisations
from workloads.parts.inference.inference import Inference
from workloads.parts.inference.onnx_sessions import (
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
from workloads.parts.numerics.size import count_inference_flops, count_parameters
from workloads.parts.training.state import seeded
from workloads.parts.vision.resnet import (
    DEPTHS_50,
    WIDTH,
    at_most,
    require_values_to_normalise,
    resnet,
)

LOGITS = 110.0
TAUGHT, NUM_LESSONS = 16, 160
AT_ONCE = 32
"""Images of one pass on the host."""
RIDGE, TAUGHT_SIZE = 0.01, 4.0
"""Of the regression, relative to its matrix; and the logit of the right class."""
TURNED = {"float32": 1e-9, "float16": 1e-4}
"""Largest 1 - cosine between an image's logits and float64's: half the square of their angle."""
OTHER_CLASSES = 0.01
DECISIVE = 4.0
"""Times the largest error of the processor's logits: a lead that no rounding overturns."""
Images = np.ndarray[Any, np.dtype[np.floating[Any]]]


@dataclass(kw_only=True)
class State:
    """`reference` and `eager` are logits (input set, image, class) of float64 and of a processor.

    `more` are the images of the agreement, and `more_reference` their logits in float64.
    `classify` and `profile` are made when a check first asks for them.
    """

    session: Any
    asked_for: str
    opened_with: Mapping[str, str]
    images: list[Images]
    reference: torch.Tensor
    eager: torch.Tensor
    more_reference: torch.Tensor
    classify: Callable[[], torch.Tensor]
    profile: Callable[[], Nodes]
    cycle: InputCycle


class Served(torch.nn.Module):
    """The network as it is served: images in, logits out; in place it adds to new tensors alone."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        with InNewTensors():
            logits: torch.Tensor = self.network(pixel_values=images).logits
        return logits


@dataclass(frozen=True, kw_only=True)
class OnnxResnet50(Inference[State, Images]):
    """`num_agreement` images are classified beside those of the steps, once a launch.

    `most_blocks`: no stage of the network has more. `width`: channels of its first convolution.
    """

    summary: ClassVar[str] = "ResNet-50 inference through ONNX Runtime"
    version: ClassVar[int] = 5
    domain: ClassVar[str] = "inference"
    small: ClassVar[Parameters] = {
        "batch": 4,
        "side": 64,
        "most_blocks": 2,
        "width": 16,
        "num_agreement": 32,
    }
    data_pattern: ClassVar[str] = "generated images with a pattern by class"

    batch: int = 64
    side: int = 224
    most_blocks: int = 6
    width: int = WIDTH
    num_inputs: int = 4
    num_agreement: int = 1024
    dtype: str = "float32"

    def __post_init__(self) -> None:
        require_positive(self, "batch", "side", "most_blocks", "width", "num_inputs")
        require_positive(self, "num_agreement")
        require_choice("dtype", self.dtype, TURNED)
        require_values_to_normalise(self.batch, self.side)
        require_distinguishable(self.batch, self.num_inputs)

    @property
    def scenario(self) -> Scenario:
        return "single_stream" if self.batch == 1 else "offline"

    def work(self) -> Work:
        shapes = {"pixel_values": (self.batch, 3, self.side, self.side)}
        flops = count_inference_flops(self._network, shapes)
        return Work(units=self.batch, unit="images", flops=flops, precision=self.dtype)

    def num_parameters(self) -> int:
        return count_parameters(self._network)

    def _network(self) -> torch.nn.Module:
        return resnet(at_most(self.most_blocks, DEPTHS_50), width=self.width)

    def build(self, target: Target, seed: int) -> State:
        if not target.onnx_providers:
            message = "onnx_resnet50 needs a provider of ONNX Runtime, and this target names none"
            raise ParameterError(message)
        dtype = dtype_named(self.dtype)
        drawer = Draws(target=target, seed=seed).on_host()
        patterns = drawn_patterns(drawer, TAUGHT)

        def draw(name: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
            return drawn_images(drawer, name, patterns, count=count, side=self.side)

        images = [draw(str(index), self.batch)[0].to(dtype) for index in range(self.num_inputs)]
        lessons, labels = draw("lessons", NUM_LESSONS)
        more = draw("more", -(-self.num_agreement // self.batch) * self.batch)[0].to(dtype)
        network = functools.cache(lambda: _taught(self._network, lessons, labels, seed).to(dtype))
        file = target.artifacts.once(
            "resnet50.onnx",
            lambda path: export(
                Served(without_normalisations(network(), dtype)),
                {"images": images[0]},
                "logits",
                path,
            ),
        )
        logits = target.artifacts.once(
            "logits.pt", lambda path: torch.save(_logits(network(), images, more), path)
        )
        references = torch.load(logits, weights_only=True)
        opened_with = target.onnx_options(self.dtype)
        session = open_session(file, target.onnx_providers, opened_with=opened_with)
        served = [some.numpy() for some in images]
        return State(
            session=session,
            asked_for=target.onnx_providers[0],
            opened_with=opened_with,
            images=served,
            reference=references["exact"],
            eager=references["eager"],
            more_reference=references["more"],
            classify=functools.cache(lambda: _classify(session, torch.split(more, self.batch))),
            profile=functools.cache(
                lambda: profile(file, target.onnx_providers, {"images": served[0]}, opened_with)
            ),
            cycle=InputCycle(of=self.num_inputs),
        )

    def step(self, state: State) -> Images:
        return run(state.session, {"images": state.images[state.cycle.advance()]})

    def snapshot(self, state: State) -> int:
        """Number of the step that comes."""
        return state.cycle.number + 1

    def check(self, before: object, state: State, output: Images) -> Iterator[Check]:
        assert isinstance(before, int)  # noqa: S101 - what snapshot returned
        index = before % state.cycle.of
        reference = state.reference[index]
        logits = torch.from_numpy(output)
        missing = int(logits.shape != reference.shape)
        yield Check(name="logits of the wrong shape", error=missing, bound=0.0, kind="exact")
        if missing:
            return
        dtype = dtype_named(self.dtype)
        others = state.reference if self.batch == 1 else None
        yield from compare_logits(
            logits, reference, unit_roundoffs=LOGITS, dtype=dtype, others=others
        )
        turned = TURNED[self.dtype]
        yield from compare_whole(logits, reference, state.eager[index], turned=turned, dtype=dtype)
        yield count_other_choices(
            logits, reference, unit_roundoffs=LOGITS, dtype=dtype, what="classes"
        )
        yield from check_providers(
            state.session, state.asked_for, state.profile(), state.opened_with
        )
        if before == 0:
            yield from _compare_classes(state)


def _compare_classes(state: State) -> Iterator[Check]:
    """Top-1 agreement with float64 over many images."""
    reference, classes = state.more_reference, state.classify()
    is_other = classes != reference.argmax(1)
    yield Check(
        name="share of images with another class than float64's",
        error=is_other.double().mean().item(),
        bound=OTHER_CLASSES,
        detects=OTHER_CLASSES,
        detects_what=f"share of {len(classes)} images",
    )
    first, second = reference.topk(2, dim=1).values.unbind(1)
    lead = DECISIVE * (state.eager.double() - state.reference).abs().max().item()
    is_decisive = first - second > lead
    yield Check(
        name="other classes where float64's lead is decisive",
        error=int((is_other & is_decisive).sum()),
        bound=0.0,
        kind="exact",
        detects=1.0,
        detects_what=f"images, of {int(is_decisive.sum())} with a lead over {lead:.2g}",
    )


# ------------------------------------------------------------------ the network


def _taught(
    make: Callable[[], torch.nn.Module], lessons: torch.Tensor, labels: torch.Tensor, seed: int
) -> torch.nn.Module:
    """Return the float32 network with statistics of these images, that distinguishes them.

    The statistics are computed in float64, so that every host rounds them to the same float32.
    """
    network: Any = seeded(seed, make).double().train()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # the mean over all batches
    with torch.no_grad():
        network(pixel_values=lessons[:AT_ONCE].double())
        network.float().eval()
        features = torch.cat(
            [
                network.resnet(pixel_values=some).pooler_output.flatten(1).double()
                for some in torch.split(lessons, AT_ONCE)
            ]
        )
        mean = features.mean(0)
        features = features - mean
        wanted = torch.nn.functional.one_hot(labels, TAUGHT).double() - 1 / TAUGHT
        products = features @ features.T
        ridge = RIDGE * products.diagonal().mean() * torch.eye(NUM_LESSONS).double()
        last = network.classifier[1]
        rows = torch.linalg.solve(products + ridge, wanted).T @ features
        last.weight[:TAUGHT] = TAUGHT_SIZE * rows
        last.bias.copy_(-(last.weight.double() @ mean))  # logits lie around zero
    result: torch.nn.Module = network
    return result


def _logits(
    network: torch.nn.Module, images: list[torch.Tensor], more: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Logits of the images in float64 and in the network's own format, and of more in float64."""
    exact = copy.deepcopy(network).double()
    with torch.no_grad():
        return {
            "eager": torch.stack([network(pixel_values=some).logits for some in images]),
            "exact": torch.stack([exact(pixel_values=some.double()).logits for some in images]),
            "more": torch.cat(
                [exact(pixel_values=some.double()).logits for some in torch.split(more, AT_ONCE)]
            ),
        }


def _classify(session: Any, batches: Sequence[torch.Tensor]) -> torch.Tensor:
    """Class of each image, as the session that is timed gives it; NaN is no class."""
    logits = torch.cat(
        [torch.from_numpy(run(session, {"images": some.numpy()})) for some in batches]
    )
    return logits.argmax(1).where(logits.isfinite().all(1), -1)


WORKLOAD = OnnxResnet50
