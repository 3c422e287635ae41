"""No case that asks for TF32 runs without it: the worker sets it, reads it back and tries it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.launching import case, plan

from appliance.records.journal import Environment, Float32Products
from appliance.records.request import LaunchSpec
from appliance.records.workload import Work
from appliance.vendors.cpu import Cpu
from appliance.worker import prepare
from appliance.worker.measure import Progress
from workloads.contract.failures import Unsupported
from workloads.parts.matmul import tf32

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
MATMUL = torch.Tensor.__matmul__


def cut(tensor: torch.Tensor, *, half: int = 2**12) -> torch.Tensor:
    """Rounded to the 10 bits after the leading one that TF32 keeps; truncated with a half of 0."""
    return ((tensor.view(torch.int32) + half) & ~(2**13 - 1)).view(torch.float32)


PRODUCTS: dict[str, Product] = {
    "float32": MATMUL,
    "tf32": lambda left, right: MATMUL(cut(left), cut(right)),
    "truncated": lambda left, right: MATMUL(cut(left, half=0), cut(right, half=0)),
    "bfloat16": lambda left, right: MATMUL(left.bfloat16(), right.bfloat16()).float(),
}


@pytest.fixture
def device_makes(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have float32 products made as a device would, and leave those of float64 alone."""

    def make(name: str) -> None:
        def matmul(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            is_short = left.dtype == torch.float32
            return PRODUCTS[name](left, right) if is_short else MATMUL(left, right)

        monkeypatch.setattr(torch.Tensor, "__matmul__", matmul)

    return make


class Claiming(Cpu):
    """A vendor that says its device has TF32."""

    def features(self, device: Any) -> frozenset[str]:
        return super().features(device) | {"tf32"}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What a launch sends before its first build; torch's settings are put back."""
    for name in ("LD_PRELOAD", "LD_AUDIT"):
        monkeypatch.delenv(name, raising=False)
    assert "RANK" not in os.environ
    monkeypatch.setattr(prepare, "make_vendor", lambda _name: Claiming())
    before, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    yield []
    torch.set_float32_matmul_precision(before)
    torch.set_num_threads(threads)


def prepared(sent: list[Any], folder: Path) -> Any:
    class Link:
        def send(self, record: Any) -> None:
            sent.append(record)

        def wait(self) -> None:
            raise AssertionError

    planned = plan(
        case(
            "gemm_tf32",
            workload="gemm_tf32",
            parameters={"m": 64, "n": 64, "k": 256},
            work=Work(precision="tf32"),
            needs=("tf32",),
        )
    )
    spec = LaunchSpec(
        launch="gemm_tf32@cpu:0/1",
        case=planned.cases[0],
        vendor="cpu",
        protocol=planned.protocol,
        is_timed=True,
        check_last=True,
        seed=7,
        data=None,
        artifacts_folder=str(folder / "artifacts"),
        artifacts={},
        socket="",
        token="",
        num_threads=None,
    )
    return prepare.prepared(spec, Link(), 0, Progress())  # type: ignore[arg-type]


def test_a_device_without_it_refuses_the_case_in_one_sentence(
    sent: list[Any], device_makes: Callable[[str], None], tmp_path: Path
) -> None:
    device_makes("float32")
    with pytest.raises(Unsupported, match="tf32 is asked for, and float32 products here err by"):
        prepared(sent, tmp_path)
    environment, products = sent
    assert isinstance(environment, Environment)
    assert isinstance(products, Float32Products)
    assert (products.moment, products.formats["matmul"]) == ("before", "tf32")


@pytest.mark.parametrize("name", ["tf32", "truncated"])
def test_a_device_with_it_has_it_checked_beside_each_output(
    name: str, sent: list[Any], device_makes: Callable[[str], None], tmp_path: Path
) -> None:
    device_makes(name)
    (check,) = prepared(sent, tmp_path).machine.more_checks()
    assert check.is_within
    assert check.name == "a product of float32 operands in TF32"


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_products_that_keep_more_or_less_are_outside_of_the_window(
    name: str, device_makes: Callable[[str], None]
) -> None:
    device_makes(name)
    assert not tf32.window_check(torch.device("cpu")).is_within


def test_the_window_is_where_the_formula_puts_it(device_makes: Callable[[str], None]) -> None:
    device_makes("tf32")
    assert tf32.product_error(torch.device("cpu")) == pytest.approx(tf32.EARNED, rel=0.03)
    device_makes("truncated")
    assert tf32.product_error(torch.device("cpu")) == pytest.approx(7.6e-4, rel=0.05)
    device_makes("float32")
    assert tf32.product_error(torch.device("cpu")) < tf32.LEAST / 50
