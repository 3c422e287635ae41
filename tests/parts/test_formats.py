"""Formats of a burn-in: exact in any order of sums, held to float64, taken where they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from workloads.burn_in import BurnIn
from workloads.contract.failures import ParameterError
from workloads.contract.target import Artifacts, Target
from workloads.parts.burning.exact_pair import SCALES, ExactPair
from workloads.parts.burning.formats import (
    FORMATS,
    NARROW_BITS,
    OF_PROCESSORS,
    Format,
    chosen,
    parsed,
    switched,
)
from workloads.parts.burning.state import KINDS, shapes_of

CPU = torch.device("cpu")
SIZE = 128
LASTING = "mismatches, repeated or lasting"
SAMPLED = "random numbers, sampled rows against float64"
true_multiply = BurnIn.multiply

pytestmark = pytest.mark.usefixtures("one_thread")


def words(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[matrix.element_size()])


def exact(form: Format) -> ExactPair:
    return ExactPair.draw(SIZE, form, torch.Generator().manual_seed(3))


@pytest.mark.parametrize("name", OF_PROCESSORS)
def test_device_makes_the_host_s_exact_product_to_the_bit_in_every_shape(name: str) -> None:
    form, pair = FORMATS[name], exact(FORMATS[name])
    left, right = pair.pair[0], form.laid(pair.pair[1])
    for m, n, k in shapes_of(form, SIZE):
        out = torch.empty((m, n), dtype=form.result)
        form.multiply(left[:m, :k], right[:k, :n], out)
        assert torch.equal(words(out), words(pair.product(m, n, k)))


@pytest.mark.parametrize("name", FORMATS)
def test_exact_operands_are_what_their_format_holds_and_vary_in_scale(name: str) -> None:
    form, pair = FORMATS[name], exact(FORMATS[name])
    assert pair.pair[0].dtype == form.operands
    in_full = pair.left.matrix(), pair.right.matrix().T
    for stored, wanted in zip(pair.pair, in_full, strict=True):
        assert torch.equal(stored.double(), wanted)
    assert len(set(pair.left.scale.tolist())) == SCALES


@pytest.mark.parametrize("name", FORMATS)
def test_partial_sums_of_exact_operands_fit_the_accumulator(name: str) -> None:
    """In units of the last place that any of an element's terms has."""
    pair = exact(FORMATS[name])
    bits = {"float64": 53, "float8": NARROW_BITS, "int8": 31}.get(name, 24)
    left, right = pair.left.base[:64], pair.right.base[:64]
    terms = left.unsqueeze(1) * right.unsqueeze(0)
    for order in (torch.arange(SIZE), torch.randperm(SIZE), torch.arange(SIZE).flip(0)):
        assert float(terms[:, :, order].cumsum(2).abs().max()) < 2**bits


@pytest.mark.parametrize("name", OF_PROCESSORS)
def test_random_product_is_within_what_its_format_allows_and_one_cut_is_not(name: str) -> None:
    form, rng = FORMATS[name], torch.Generator().manual_seed(5)
    left, right = form.draw(SIZE, rng), form.draw(SIZE, rng)
    out = torch.empty((SIZE, SIZE), dtype=form.result)
    form.multiply(left, form.laid(right), out)
    reference = left.double() @ right.double()

    def error(product: torch.Tensor) -> float:
        return float((product.double() - reference).norm() / reference.norm())

    assert error(out) <= form.rounding(SIZE)
    cut = out.double() * 1.03
    assert error(cut.to(form.result)) > form.rounding(SIZE)


def test_formats_are_listed_by_name_each_once() -> None:
    assert [form.name for form in parsed("float64, int8")] == ["float64", "int8"]
    assert [form.name for form in chosen("all", CPU, "cpu")] == list(OF_PROCESSORS)


def test_format_that_the_device_lacks_is_refused_by_name_and_left_out_of_all() -> None:
    with pytest.raises(ParameterError, match="formats has tf32, which the device does not"):
        chosen("bfloat16,tf32", CPU, "cpu")


def test_format_that_the_library_refuses_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError("not on this device")

    monkeypatch.setattr(torch, "_scaled_mm", refuse)
    left = [name for name in OF_PROCESSORS if name != "float8"]
    assert [form.name for form in chosen("all", CPU, "cpu")] == left


def test_switch_of_tf32_is_put_back() -> None:
    before = torch.get_float32_matmul_precision()
    with switched(FORMATS["tf32"], "cpu"):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


# ------------------------------------------------------------------ in a burn-in


def burn_in(folder: Path, spoil: Callable[[str, int, torch.Tensor], None]) -> dict[str, float]:
    """Errors by check over what is allowed, of a burn-in in all formats with spoilt products."""
    counts: dict[str, int] = {}

    class Spoilt(BurnIn):
        def multiply(
            self, form: Format, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor
        ) -> None:
            true_multiply(self, form, left, right, out)
            counts[form.name] = counts.get(form.name, -1) + 1
            spoil(form.name, counts[form.name], out)

    workload = Spoilt(size=SIZE, chain_size=16, memory_bytes=2**23, lanes=1)
    state = workload.build(Target(device=CPU, artifacts=Artifacts(folder)), 7)
    for _ in range(2 * len(OF_PROCESSORS) + 1):
        output = workload.step(state)
    checks = {check.name: check for check in workload.check(None, state, output)}
    assert all(f"{name} " in checks[LASTING].detects_what for name in OF_PROCESSORS)
    return {name: check.error for name, check in checks.items() if not check.is_within}


def test_healthy_burn_in_of_all_formats_is_within_every_bound(tmp_path: Path) -> None:
    assert burn_in(tmp_path, lambda *_: None) == {}


@pytest.mark.parametrize("name", OF_PROCESSORS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_flipped_bit_in_any_format_and_kind_is_counted(
    name: str, kind: str, tmp_path: Path
) -> None:
    wanted = 12 + 2 + KINDS.index(kind)  # of the format's second round

    def spoil(form: str, count: int, out: torch.Tensor) -> None:
        if form == name and count == wanted:
            words(out)[3, 5] ^= 1

    assert burn_in(tmp_path, spoil) == {"a single mismatch that never came again": 1}


@pytest.mark.parametrize("name", OF_PROCESSORS)
def test_format_that_is_wrong_from_its_first_round_is_held_to_float64(
    name: str, tmp_path: Path
) -> None:
    def spoil(form: str, count: int, out: torch.Tensor) -> None:
        del count
        if form == name:
            out.mul_(2)

    outside = burn_in(tmp_path, spoil)
    assert outside[SAMPLED] > 1
    assert outside[LASTING] > 1
