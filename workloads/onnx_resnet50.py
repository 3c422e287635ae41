"""ResNet-50 served by ONNX Runtime: what a device does outside torch.

One step runs a batch from the host through a session and brings the logits back, as a request
would; with a batch of 1 it is one query, and its time a latency. The network is exported from
torch once per run. Its logits are compared with torch's in float64, made from the seed and not
from the file: a wrong export or graph optimisation, a product in a lower precision and an answer
to another request would each be seen. The session must run on the provider that the target asked
for; ONNX Runtime falls back to the processor without an error, so that is a check of its own.

Running statistics are taken from images of the kind that are served, because with the values of
a fresh network no layer would normalise. `LOGITS` allows nine times the 5.3 roundings of float32
that were measured on a processor, because graph optimisations may regroup every sum.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnxruntime
import torch

from appliance.records import Check, Scenario, Work
from workloads.contract import ParameterError, Target, Turn, Workload
from workloads.parts import training
from workloads.parts.images import labelled_images
from workloads.parts.parameters import require_positive
from workloads.parts.precision import compare_logits, rounding
from workloads.parts.resnet import CLASSES, require_values_to_normalise, resnet50
from workloads.parts.size import count_inference_flops, count_parameters

LOGITS = 50.0
ON_HOST = "CPUExecutionProvider"
Images = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(kw_only=True)
class State:
    session: Any
    asked_for: str
    images: list[Images]
    reference: torch.Tensor
    turn: Turn


class Served(torch.nn.Module):
    """The network as it is served: images in, logits out."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.network(pixel_values=images).logits
        return logits


@dataclass(frozen=True, kw_only=True)
class OnnxResnet50(Workload[State, Images]):
    summary: ClassVar[str] = "ResNet-50 inference through ONNX Runtime"
    version: ClassVar[int] = 1
    small: ClassVar[Mapping[str, bool | int | float | str]] = {"batch": 4, "side": 64}
    data_pattern: ClassVar[str] = "generated images with a pattern by class"

    batch: int = 64
    side: int = 224
    num_inputs: int = 4

    def __post_init__(self) -> None:
        require_positive(self, "batch", "side", "num_inputs")
        require_values_to_normalise(self.batch, self.side)
        if self.batch == self.num_inputs == 1:
            message = "num_inputs is 1 where batch is 1: give 2 at least, to tell them apart"
            raise ParameterError(message)

    @property
    def scenario(self) -> Scenario:
        return "single_stream" if self.batch == 1 else "offline"

    def work(self) -> Work:
        shapes = {"pixel_values": (self.batch, 3, self.side, self.side)}
        flops = count_inference_flops(resnet50, shapes)
        return Work(units=self.batch, unit="images", flops=flops, precision="float32")

    def num_parameters(self) -> int:
        return count_parameters(resnet50)

    def build(self, target: Target, seed: int) -> State:
        if not target.onnx_providers:
            message = "onnx_resnet50 needs a provider of ONNX Runtime, and this target names none"
            raise ParameterError(message)
        rng = torch.Generator().manual_seed(seed)
        images = [
            labelled_images(rng, count=self.batch, side=self.side, classes=CLASSES)[0]
            for _ in range(self.num_inputs)
        ]
        network = functools.cache(lambda: _calibrated(images, seed))
        file = target.artifacts.once(
            "resnet50.onnx", lambda path: _export(network(), images[0], path)
        )
        logits = target.artifacts.once(
            "logits_float64.pt", lambda path: torch.save(_logits(network(), images), path)
        )
        return State(
            session=_session(file, target.onnx_providers),
            asked_for=target.onnx_providers[0],
            images=[some.numpy() for some in images],
            reference=torch.load(logits, weights_only=True),
            turn=Turn(of=self.num_inputs),
        )

    def step(self, state: State) -> Images:
        images = state.images[state.turn.advance()]
        logits: Images = state.session.run(["logits"], {"images": images})[0]
        return logits

    def check(self, before: object, state: State, output: Images) -> Iterator[Check]:
        del before
        yield Check(
            name="provider that runs is not the one asked for",
            error=int(state.session.get_providers()[0] != state.asked_for),
            bound=0.0,
            kind="exact",
        )
        logits, reference = torch.from_numpy(output), state.reference[state.turn.index]
        others = state.reference if self.batch == 1 else None
        yield from compare_logits(
            logits, reference, growth=LOGITS, dtype=torch.float32, others=others
        )
        lead = reference.amax(1) - reference.gather(1, logits.argmax(1, keepdim=True)).squeeze(1)
        allowed = 2 * LOGITS * rounding(torch.float32) * reference.square().mean().sqrt()
        yield Check(
            name="classes that float64 would not choose",
            error=int((lead > allowed).sum()),
            bound=0.0,
        )


def _calibrated(images: list[torch.Tensor], seed: int) -> torch.nn.Module:
    """Return the float32 network with the running statistics of these images.

    They are computed in float64, so that every host rounds them to the same float32.
    """
    network = training.seeded(seed, resnet50).double().train()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # the mean over all batches
    with torch.no_grad():
        for some in images:
            network(pixel_values=some.double())
    result: torch.nn.Module = network.float().eval()
    return result


def _logits(network: torch.nn.Module, images: list[torch.Tensor]) -> torch.Tensor:
    """Logits in float64 (input set, image, class); leaves the network in float64."""
    network = network.double()
    with torch.no_grad():
        return torch.stack([network(pixel_values=some.double()).logits for some in images])


def _export(network: torch.nn.Module, images: torch.Tensor, path: Path) -> None:
    with warnings.catch_warnings():
        # torch's exporter uses what torch itself has deprecated
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
        torch.onnx.export(
            Served(network).eval(),
            (images,),
            path,
            dynamo=True,
            external_data=False,
            input_names=["images"],
            output_names=["logits"],
            verbose=False,
        )


def _session(file: Path, providers: tuple[str, ...]) -> Any:
    """Open the file on the first provider, or on those after it where the first is not there.

    Where it is there, no single node may fall back to the processor.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = 3  # errors; what runs where is checked
    first = providers[0]
    if first != ON_HOST and first in onnxruntime.get_available_providers():
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        providers = (first,)
    return onnxruntime.InferenceSession(file, options, providers=list(providers))


WORKLOAD = OnnxResnet50
