"""What is software's fault: by exception, message and stage, and by nothing that comes later."""

import dataclasses

import pytest
import torch
from support.builders import ended

from appliance.evidence.software_fault import (
    LACKING_KERNELS,
    NOT_INSTALLED,
    class_names,
    is_lack_of_software,
)
from appliance.records.journal import LaunchEnded, Stage

SAID = {
    "NotImplementedError: Could not run 'aten::_int_mm' with arguments from the 'X' backend.": True,
    "NotImplementedError: The operator 'aten::mm.dtype' is not currently implemented for the X "
    "device.": True,
    "NotImplementedError: \"geqrf_cpu\" not implemented for 'Half'": True,
    "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul`": True,
    "RuntimeError: HIP error: HIPBLAS_STATUS_NOT_SUPPORTED when calling `hipblasLtMatmul`": True,
    "AcceleratorError: CUDA error: no kernel image is available for execution on the device": True,
    "AcceleratorError: HIP error: invalid device function": True,
    "RuntimeError: Required aspect fp64 is not supported on the device": True,
    "RuntimeError: could not create a primitive descriptor for a matmul primitive": True,
    "JaxRuntimeError: UNIMPLEMENTED: no custom call target for x": True,
    "NotImplemented: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an "
    "implementation": True,
    "AttributeError: 'X' object has no attribute 'activation_checkpointing_enable'": True,
    "ModuleNotFoundError: No module named 'peft'": True,
    "ImportError: cannot import name 'X' from 'transformers'": True,
    "TypeError: forward() got an unexpected keyword argument 'y'": True,
    "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`": False,
    "AcceleratorError: CUDA error: an illegal memory access was encountered": False,
    "AcceleratorError: CUDA error: uncorrectable ECC error encountered": False,
    "RuntimeError: where expected condition to be a boolean tensor, but got Long": False,
    "NotImplementedError: this device was never meant to do that": False,
    "ValueError: UNIMPLEMENTED: no": False,
    "KeyError: 'x'": False,
    "AssertionError: AttributeError": False,
}
PARENTS = {
    "NotImplementedError": ("RuntimeError",),
    "AcceleratorError": ("RuntimeError",),
    "JaxRuntimeError": ("RuntimeError",),
    "ModuleNotFoundError": ("ImportError",),
    "KeyError": ("LookupError",),
}


def launch(output: str, stage: Stage = "first_step", prefix: str = "") -> LaunchEnded:
    name, _, detail = output.partition(": ")
    return dataclasses.replace(
        ended("gemm@cpu:0/0", "crashed", name),
        detail=prefix + detail,
        exceptions=(name, *PARENTS.get(name, ())),
        stage=stage,
    )


@pytest.mark.parametrize("output", SAID)
@pytest.mark.parametrize("stage", ["load", "build", "first_step"])
@pytest.mark.parametrize("prefix", ["", "rank 3: "])
def test_known_lacks_of_software_are_told_from_crashes(
    output: str, stage: Stage, prefix: str
) -> None:
    assert is_lack_of_software(launch(output, stage, prefix), has_stepped=False) is SAID[output]


@pytest.mark.parametrize("output", SAID)
def test_nothing_is_software_once_the_case_has_stepped(output: str) -> None:
    for stage in ("load", "build", "first_step", "later"):
        assert not is_lack_of_software(launch(output, stage), has_stepped=True)
    for stage in ("", "later"):
        assert not is_lack_of_software(launch(output, stage), has_stepped=False)


def test_every_sign_of_a_lacking_kernel_is_shown_above() -> None:
    output = [text.partition(": ") for text in SAID]
    for sign in LACKING_KERNELS:
        of_kind = [
            text for name, _, text in output if sign.exception in (name, *PARENTS.get(name, ()))
        ]
        assert any(sign.message.search(text) for text in of_kind), sign.source


def test_reason_must_be_the_exception_itself() -> None:
    exhausted = dataclasses.replace(launch("TypeError: x"), reason="out_of_memory")
    assert not is_lack_of_software(exhausted, has_stepped=False)
    killed = dataclasses.replace(launch("SIGSEGV: x"), exceptions=())
    assert not is_lack_of_software(killed, has_stepped=False)


def test_workload_that_cannot_be_imported_is_software_at_its_load_alone() -> None:
    for stage, expected in (("load", True), ("build", False), ("", False)):
        absent = dataclasses.replace(launch("x", stage), reason=NOT_INSTALLED, exceptions=())
        assert is_lack_of_software(absent, has_stepped=True) is expected


@pytest.mark.parametrize(
    "lacking",
    [
        lambda: torch.linalg.qr(torch.zeros(2, 2, dtype=torch.half)),
        lambda: torch.linalg.qr(torch.zeros(2, 2).to_sparse()),
        lambda: torch.zeros(2).no_such_method(),
        lambda: torch.zeros(2).sum(no_such_argument=1),
    ],
)
def test_what_torch_raises_here_is_known(lacking: object) -> None:
    """The installed torch says what it lacks in the words by which it is known."""
    with pytest.raises((AttributeError, TypeError, RuntimeError)) as raised:
        lacking()  # type: ignore[operator]
    error = raised.value
    end = dataclasses.replace(
        ended("gemm@cpu:0/0", "crashed", type(error).__name__),
        detail=str(error)[:300],
        exceptions=class_names(error),
        stage="first_step",
    )
    assert is_lack_of_software(end, has_stepped=False)
