"""ResNet-50 training with its input pipeline in the loop: JPEG files read, decoded and cropped.

A tree of generated images with a pattern by class is written by a real encoder once a run. `load`
brings the next batch from it: other processes read the files, decode and crop them, and what they
made is moved to the device and normalised there (`parts/vision/jpeg_pipeline.py`). How long a step
waits for it is measured apart. `step` is that of ResNet-50: forward, loss, backward and SGD with
momentum.

The checks read the files of the batch again, in this process and one after the other. A file that
changed since it was written, one that decodes to other pixels than it did then, a batch in another
order, of another step or cropped elsewhere, and a single wrong value or class would each be seen:
all of these are compared bit for bit. `parts/training` then follows the step in float64 from the
batch that was on the device, as for ResNet-50 with its images on the device; `ERROR_BOUNDS` is of
that network, whose steps on these images erred by less on a processor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Bound
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.parts.datasets.jpeg_tree import tree
from workloads.parts.numerics.parameters import require_positive
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.state import Before, Trained, Training, seeded
from workloads.parts.vision.image_training import CLASSES
from workloads.parts.vision.jpeg_pipeline import Course, Pipeline, again
from workloads.parts.vision.resnet import DEPTHS_50
from workloads.parts.vision.resnet_training import ResnetTraining

ERROR_BOUNDS = ErrorBounds(
    loss=4, logits=50, gradients=20, statistics=16, has_branch_points=True, branch_points=100
)
ENDLESS = 2**40


@dataclass(frozen=True, kw_only=True)
class Resnet50Jpeg(ResnetTraining):
    """`num_inputs`: batches that the files on the disk make, all of them different.

    `longest`: pixels of a file's longer side. `workers`: processes that read and decode.
    """

    summary: ClassVar[str] = "ResNet-50 training from JPEG files, decoded in the loop"
    version: ClassVar[int] = 3
    depths: ClassVar[tuple[int, int, int, int]] = DEPTHS_50
    small: ClassVar[Parameters] = {
        "batch": 4,
        "side": 64,
        "most_blocks": 2,
        "width": 16,
        "dtype": "float32",
        "channels_last": False,
        "learning_rate": 0.01,
        "num_inputs": 4,
        "longest": 96,
        "workers": 2,
    }
    data_pattern: ClassVar[str] = "JPEG files with a pattern by class, randomly cropped"
    bound_by: ClassVar[Bound] = "input"

    num_inputs: int = 16
    longest: int = 500
    workers: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "longest", "workers")
        if self.ranks > 1:
            raise ParameterError(f"ranks is {self.ranks}: one process alone is fed from files")

    def error_bounds(self) -> ErrorBounds:
        return ERROR_BOUNDS

    def build(self, target: Target, seed: int) -> Training:
        files = tree(
            target.artifacts,
            seed=seed,
            count=self.num_inputs * self.count,
            classes=CLASSES,
            longest=self.longest,
        )
        course = Course(tree=files, seed=seed, batch=self.count, side=self.side)
        pipeline = Pipeline(course, workers=self.workers, device=target.device, layout=self.layout)
        model = seeded(seed, self.network).train().to(target.device)
        model = model.to(memory_format=self.layout)  # type: ignore[call-overload]
        rule = self.rule()
        return Training(
            model=model,
            rule=rule,
            optimizer=rule.make(model),
            batches=pipeline,
            cycle=InputCycle(of=ENDLESS),
            artifacts=target.artifacts,
            sampling=self.sampling(seed),
            flops=target.flops,
            **self.facts(target),
        )

    def load(self, state: Training) -> None:
        """Wait for the batch of the next step."""
        state.batches[state.cycle.number + 1]

    def check(self, before: object, state: Training, output: Trained) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        assert isinstance(state.batches, Pipeline)  # noqa: S101 - what build put there
        yield from _check_batch(before, state.batches.course)
        yield from super().check(before, state, output)


def _check_batch(before: Before, course: Course) -> Iterator[Check]:
    expected = again(course, before.number)
    images, labels = before.batch["pixel_values"], before.batch["labels"]
    counts = {
        "files that changed since they were written": expected.changed,
        "files that decode to other pixels than they did": expected.misread,
        "values of the batch that differ from its files": _num_other(images, expected.images),
        "classes of the batch that differ from its files": _num_other(labels, expected.labels),
    }
    for name, count in counts.items():
        yield Check(name=name, error=count, bound=0.0, kind="exact")


def _num_other(actual: torch.Tensor, exact: torch.Tensor) -> int:
    """Elements that differ; all of them where shape or type does, and NaN differs from itself."""
    if actual.shape != exact.shape or actual.dtype != exact.dtype:
        return exact.numel()
    return int((actual != exact).sum())


WORKLOAD = Resnet50Jpeg
