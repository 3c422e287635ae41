"""Which failures of a launch are those of its software, and never held against the device.

A library that is not there, that lacks a name or a kernel, or that wants other arguments raises an
exception of a few known kinds, and it does so before the case has made its first step. Once any
launch of the case has made that step, the library has shown that it can, so the same exception is
a crash like any other: whoever wants failing launches to look like a lack of software must fail
from the first one on, and a case that never ran is never accepted.

Pure, and of what the journal holds alone, so that whoever verifies decides as the run did.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from appliance.records.journal import LaunchEnded, Stage

NOT_INSTALLED = "not_installed"
"""Reason of a launch whose workload could not be imported."""
UNAVAILABLE = "unavailable"
"""Reason of a launch that was not started, because the plan says what software it lacks."""
ANY_MESSAGE = frozenset({"AttributeError", "ImportError", "TypeError"})
"""A name that a library lacks, a library that is lacking, and arguments that it does not take."""
EARLY: frozenset[Stage] = frozenset({"load", "build", "first_step"})


@dataclass(frozen=True, kw_only=True)
class LackingKernel:
    """How a library says that it has no kernel for what it was asked."""

    exception: str
    message: re.Pattern[str]
    source: str


LACKING_KERNELS = (
    LackingKernel(
        exception="NotImplementedError",
        message=re.compile(r"Could not run 'aten::"),
        source="PyTorch, aten/src/ATen/core/dispatch/OperatorEntry.cpp",
    ),
    LackingKernel(
        exception="NotImplementedError",
        message=re.compile(r'is not currently (implemented|supported) (for|on) the|" not impl'),
        source="fallback of the oneAPI operators (their issue 2469); ATen/Dispatch.h",
    ),
    LackingKernel(
        exception="RuntimeError",
        message=re.compile(r"\b[A-Z]+_STATUS_NOT_SUPPORTED\b"),
        source="cuBLAS, cublasStatus_t; hipBLAS, hipblasStatus_t; cuDNN, cudnnStatus_t",
    ),
    LackingKernel(
        exception="RuntimeError",
        message=re.compile(r"no kernel image is available for execution|invalid device function"),
        source="texts of the errors 209 and 98 of both runtimes; pytorch/pytorch issue 164346",
    ),
    LackingKernel(
        exception="RuntimeError",
        message=re.compile(r"Required aspect \w+ is not supported on the device"),
        source="SYCL runtime, as issue 1742 of the oneAPI operators shows it",
    ),
    LackingKernel(
        exception="RuntimeError",
        message=re.compile(r"could not create a primitive descriptor"),
        source="oneDNN, dnnl_unimplemented: no implementation for these formats here",
    ),
    LackingKernel(
        exception="RuntimeError",
        message=re.compile(r"^(rank \d+: )?UNIMPLEMENTED: "),
        source="XLA: Abseil's status code 12, at the head of its message",
    ),
    LackingKernel(
        exception="NotImplemented",
        message=re.compile(r": NOT_IMPLEMENTED : "),
        source="ONNX Runtime, include/onnxruntime/core/common/status.h, code 9",
    ),
)


def class_names(error: BaseException) -> tuple[str, ...]:
    """Names of an exception's classes for the journal: its own first, Exception left out."""
    kinds = type(error).__mro__
    return tuple(kind.__name__ for kind in kinds if kind not in (Exception, BaseException, object))


def is_lack_of_software(ended: LaunchEnded, *, has_stepped: bool) -> bool:
    """Whether a launch that was started ended so for want of software.

    `has_stepped`: a launch of the same case, this one among them, had made its first step before.
    """
    if ended.reason == NOT_INSTALLED:
        return ended.stage == "load"
    is_early = ended.stage in EARLY and not has_stepped
    if not is_early or ended.exceptions[:1] != (ended.reason,):
        return False
    return not ANY_MESSAGE.isdisjoint(ended.exceptions) or any(
        kernel.exception in ended.exceptions and kernel.message.search(ended.detail)
        for kernel in LACKING_KERNELS
    )
