"""Which format float32 products are made in, with every version of torch that the images have."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import torch_switches
from support.torch_switches import ACTIONS, RECORDED, course, requested, switches
from torch import nn

from appliance.vendors.amd.rocm import Rocm
from appliance.vendors.base import Vendor
from appliance.vendors.cpu import Cpu
from appliance.vendors.intel.xpu import Xpu
from appliance.vendors.nvidia.cuda import Cuda
from appliance.vendors.torch_settings import (
    be_deterministic,
    choose_float32_products,
    float32_products,
)

VERSIONS: dict[str, Any] = json.loads(RECORDED.read_text())
FULL = {"matmul": "ieee", "convolution": "ieee"}
IN_TF32 = {"matmul": "tf32", "convolution": "tf32"}


def of_version(version: str, torch_type: str = "cuda") -> Any:
    has_newer = tuple(map(int, version.split(".")[:2])) >= (2, 9)
    return switches(has_newer=has_newer, has_onednn=torch_type == "xpu")


@pytest.fixture
def put_back() -> Iterator[None]:
    """Torch's own switches as they were, both the older ones and the newer."""
    yield
    torch.backends.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = True


@pytest.mark.parametrize("version", VERSIONS)
def test_the_stand_in_answers_as_that_torch_did(version: str) -> None:
    assert course(of_version(version)) == VERSIONS[version]


def test_the_record_is_what_this_torch_does() -> None:
    """In a process of its own, as other tests have set some switches by now."""
    done = subprocess.run(
        [sys.executable, torch_switches.__file__], check=True, capture_output=True, text=True
    )
    ((version, measured),) = json.loads(done.stdout).items()
    newest = max(VERSIONS, key=lambda name: int(name.split(".")[1]))
    assert measured == VERSIONS.get(version, VERSIONS[newest])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("vendor", [Cuda(), Rocm(), Xpu(), Cpu()], ids=lambda vendor: vendor.name)
@pytest.mark.parametrize("before", ACTIONS)
def test_what_is_asked_for_is_what_is_set_whatever_was_set_before(
    version: str, vendor: Vendor, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for by the vendor's `prepare` first, as the worker does, then by the case."""
    stand_in = of_version(version, vendor.torch_type)
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    if not before.startswith("new"):  # who sets those contradicts, and is found out below
        ACTIONS[before](stand_in)
    vendor.prepare()
    assert dict(float32_products(vendor.torch_type)) == FULL
    for in_tf32 in (True, False, True):
        choose_float32_products(vendor.torch_type, in_tf32=in_tf32)
        has_convolution = vendor.torch_type != "cpu" or not in_tf32
        expected = IN_TF32 if in_tf32 else FULL
        assert float32_products(vendor.torch_type)["matmul"] == expected["matmul"]
        if has_convolution:
            assert dict(float32_products(vendor.torch_type)) == expected
        assert "RuntimeError" not in requested(stand_in).values()  # which breaks torch's exporter


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != "2.8.0"])
@pytest.mark.parametrize("wanted", ["new global tf32", "new matmul ieee"])
def test_a_library_that_sets_the_newer_switch_is_found_out(
    version: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: off by the older switches, then on by the newer one, and no product in TF32."""
    stand_in = of_version(version)
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    choose_float32_products("cuda", in_tf32=wanted == "new matmul ieee")
    ACTIONS[wanted](stand_in)
    assert "mixed" in float32_products("cuda").values()


@pytest.mark.usefixtures("put_back")
@pytest.mark.parametrize("torch_type", ["cuda", "xpu", "cpu"])
def test_this_torch_has_one_answer_for_both_kinds_of_switch(torch_type: str) -> None:
    for in_tf32 in (True, False):
        choose_float32_products(torch_type, in_tf32=in_tf32)
        assert "RuntimeError" not in requested(torch).values()
        if torch_type == "cuda":
            assert dict(float32_products("cuda")) == (IN_TF32 if in_tf32 else FULL)


@pytest.mark.usefixtures("put_back")
def test_what_the_environment_forbids_is_not_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AMD's torch says False of its older switch without the variable that allows TF32."""
    older = SimpleNamespace(allow_tf32=False, fp32_precision="tf32")
    choose_float32_products("cuda", in_tf32=True)
    monkeypatch.setattr(torch.backends.cuda, "matmul", older)
    assert float32_products("cuda")["matmul"] == "mixed"


@pytest.mark.usefixtures("put_back")
@pytest.mark.parametrize("in_tf32", [True, False])
def test_torch_exports_to_onnx_either_way(in_tf32: bool, tmp_path: Path) -> None:  # noqa: FBT001
    from workloads.parts.inference.exporter import export  # noqa: PLC0415 - takes seconds

    choose_float32_products("cuda", in_tf32=in_tf32)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 6 * 6, 5))
    export(network, {"images": torch.zeros(1, 3, 8, 8)}, "logits", tmp_path / "network.onnx")
    assert (tmp_path / "network.onnx").stat().st_size > 0


class Compiler:
    """The settings of torch's compiler in 2.8, which refuses names that it does not have."""

    __slots__ = ("debug",)


def test_compiler_of_torch_2_8_has_no_setting_to_be_deterministic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch._inductor.config", Compiler())  # type: ignore[arg-type]
    monkeypatch.setattr(torch, "set_deterministic_debug_mode", lambda _: None)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", torch.backends.cudnn.deterministic)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    monkeypatch.setenv("TORCHINDUCTOR_DETERMINISTIC", "0")
    settings = be_deterministic()
    assert settings["torch.backends.cudnn.deterministic"] == "True"
