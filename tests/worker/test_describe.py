"""What only a child can tell of the software: providers, plug-ins, and versions that are lies."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from appliance import extras
from appliance.probe import libraries
from appliance.records.request import CaseRequest, Lacking, Question, Refused, Resolved
from appliance.records.system import DeviceLibraries
from appliance.vendors import registry
from appliance.worker import describe as describing
from appliance.worker.describe import describe

NVIDIA, AMD, INTEL, HOST = map(registry.libraries_of, ("cuda", "rocm", "xpu", "cpu"))
ON_HOST = ["AzureExecutionProvider", "CPUExecutionProvider"]
"""What ONNX Runtime's package for processors has."""


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (HOST, ""),
        (
            NVIDIA,
            (
                "ONNX Runtime has no CUDAExecutionProvider, only AzureExecutionProvider, "
                "CPUExecutionProvider: pip install onnxruntime-gpu, in place of onnxruntime"
            ),
        ),
        (
            AMD,
            (
                "ONNX Runtime has no MIGraphXExecutionProvider, only AzureExecutionProvider, "
                "CPUExecutionProvider: pip install onnxruntime-ep-migraphx"
            ),
        ),
        (
            INTEL,
            (
                "ONNX Runtime has no OpenVINOExecutionProvider, only AzureExecutionProvider, "
                "CPUExecutionProvider: pip install onnxruntime-openvino, in place of onnxruntime"
            ),
        ),
    ],
)
def test_provider_that_is_not_there_is_named_with_its_package(
    wanted: DeviceLibraries, sentence: str
) -> None:
    assert libraries.provider_lack(wanted, ON_HOST) == sentence
    assert libraries.provider_lack(wanted, [wanted.onnx_provider, *ON_HOST]) == ""


def test_provider_of_a_plugin_need_not_be_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "find_spec", lambda name: name == AMD.onnx_plugin)
    assert libraries.provider_lack(AMD, ON_HOST) == ""
    assert libraries.provider_lack(INTEL, ON_HOST)


def request(name: str, **parameters: str) -> CaseRequest:
    return CaseRequest(workload=name, small=True, parameters=parameters)


def test_only_what_needs_it_lacks_a_provider_or_a_plugin() -> None:
    """This ONNX Runtime and this JAX know processors alone."""
    names = ("gemm", "onnx_bert", "dqn")
    requested = Question(requests=tuple(map(request, names)), libraries=NVIDIA)
    gemm, onnx, dqn = describe(requested).resolved
    assert isinstance(gemm, Resolved)
    assert isinstance(onnx, Lacking)
    assert onnx.lack.startswith("ONNX Runtime has no CUDAExecutionProvider")
    assert onnx.resolved is not None
    assert isinstance(dqn, Lacking)
    assert dqn.lack == 'JAX has no plug-in for this device: pip install "jax[cuda13]"'
    here = describe(Question(requests=tuple(map(request, names)), libraries=HOST)).resolved
    assert all(isinstance(one, Resolved) for one in here)


# ------------------------------------------------------------------ libraries that lie or break


@pytest.mark.parametrize(
    ("stated", "packaged", "is_lie"),
    [
        ("5.23.0", "5.23.0", False),
        ("2.13.0+cpu", "2.13.0", False),
        ("5.23", "5.23.0", False),
        (None, "1.0", False),
        ("5.17.0", "5.23.0", True),
        ("mine", "5.23.0", True),
    ],
)
def test_library_that_states_another_version_than_its_package(
    monkeypatch: pytest.MonkeyPatch, stated: str | None, packaged: str, *, is_lie: bool
) -> None:
    module = ModuleType("some_library")
    if stated is not None:
        module.__version__ = stated  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_library", module)
    monkeypatch.setattr(extras, "installed_version", lambda _: packaged)
    sentence = (
        f"some-library states version {stated} and its package {packaged}: "
        f"pip install --force-reinstall some-library=={packaged}"
    )
    assert extras.contradiction("some-library") == (sentence if is_lie else "")


def test_liar_is_the_lack_of_those_that_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers  # noqa: PLC0415 - takes long, and the others need none

    monkeypatch.setattr(transformers, "__version__", "5.17.0")
    requested = Question(requests=(request("gemm"), request("bert")), libraries=HOST)
    gemm, bert = describe(requested).resolved
    assert isinstance(gemm, Resolved)
    assert isinstance(bert, Lacking)
    assert bert.lack.startswith("transformers states version 5.17.0 and its package 5.")


@pytest.mark.parametrize(
    ("error", "output"),
    [
        (
            ImportError("cannot import name 'BertConfig' from 'transformers'", name="transformers"),
            (
                'workload "bert" cannot be imported (ImportError: cannot import name '
                "'BertConfig' from 'transformers'): "
                'pip install "bench-appliance[torch]" --upgrade'
            ),
        ),
        (
            RuntimeError("operator torchvision::nms does not exist"),
            (
                'workload "bert" cannot be imported (RuntimeError: operator torchvision::nms does '
                'not exist): pip install "bench-appliance[run]" --upgrade'
            ),
        ),
    ],
)
def test_missing_class_of_a_model_is_the_lack_of_its_row_alone(
    monkeypatch: pytest.MonkeyPatch, error: Exception, output: str
) -> None:
    real = describing.load_workload

    def load(name: str, *, to_build: bool = True) -> object:
        if name == "bert":
            raise error
        return real(name, to_build=to_build)

    monkeypatch.setattr(describing, "load_workload", load)
    gemm, bert = describe(Question(requests=(request("gemm"), request("bert")))).resolved
    assert isinstance(gemm, Resolved)
    assert bert == Lacking(lack=output)


def test_call_that_a_library_lacks_as_a_model_is_sized_is_software(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from workloads.gemm import WORKLOAD  # noqa: PLC0415 - the workload under test

    def lacking(_: object) -> None:
        SimpleNamespace().activation_checkpointing_enable()

    monkeypatch.setattr(WORKLOAD, "work", lacking)
    (answer,) = describe(Question(requests=(request("gemm"),))).resolved
    assert isinstance(answer, Lacking)
    assert 'workload "gemm" cannot be sized (AttributeError: ' in answer.lack
    monkeypatch.setattr(WORKLOAD, "work", lambda _: {}["no such key"])
    (answer,) = describe(Question(requests=(request("gemm"),))).resolved
    assert isinstance(answer, Refused)
