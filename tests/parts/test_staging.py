"""Tensors read through buffers that are used again: every element, in order, and nothing stale."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from appliance.worker import outputs, torch_device
from workloads.parts.numerics import staging
from workloads.parts.numerics.threads import on_each, on_threads

FAR: set[torch.device] = {torch.device("cpu")}
CHANNELS_LAST = torch.randn(6, 5, 4, 3).to(memory_format=torch.channels_last)
TENSORS = {
    "float32": torch.randn(40, 50),
    "from the middle of its memory": torch.randn(3000)[7:2007],
    "bfloat16": torch.randn(999).bfloat16(),
    "float8": torch.randn(999).to(torch.float8_e4m3fn),
    "turned": torch.randn(40, 50).t(),
    "every other": torch.randn(2000)[::2],
    "channels last": CHANNELS_LAST,
    "one number": torch.tensor(3.0),
    "nothing": torch.empty(0, 3),
}


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[set[torch.device]]]:
    """As if the host could not read its own memory; the waits for copies, of three threads."""
    waits: list[set[torch.device]] = []
    monkeypatch.setattr(staging, "is_far", lambda _: True)
    monkeypatch.setattr(staging, "_wait_for", waits.append)
    monkeypatch.setattr(staging, "BUFFER", 1024)
    monkeypatch.setattr(staging, "ELEMENTS", 32)
    monkeypatch.setattr(staging, "SMALL", 0)
    monkeypatch.setattr(staging, "_buffers", staging.Buffers(2, 5000))
    monkeypatch.setattr(outputs, "PIECE", 1024)
    monkeypatch.setattr(outputs, "FEW", 0)
    with on_threads(3):
        yield waits


@pytest.mark.parametrize("name", TENSORS)
def test_digests_and_copies_are_those_of_what_is_read_at_once(
    name: str, waits: list[set[torch.device]]
) -> None:
    tensor = TENSORS[name]
    output = {"one": tensor, "other": tensor + 1 if tensor.dtype.itemsize > 1 else tensor}
    at_once = outputs.digest(output, torch_device.device_bits)
    pieces = torch_device.in_pieces(staging.staged)
    assert outputs.digest(output, torch_device.device_bits, 3, pieces) == at_once
    (copy,) = staging.copied([tensor])
    assert outputs.digest(copy, torch_device.device_bits) == outputs.digest(
        tensor, torch_device.device_bits
    )
    assert copy.data_ptr() != tensor.data_ptr() or not tensor.numel()
    assert set().union(*waits) == (FAR if waits else set())


def test_parts_hold_every_element_beside_its_own(waits: list[set[torch.device]]) -> None:
    whole = torch.arange(6 * 5 * 4 * 3, dtype=torch.float32).view(6, 5, 4, 3)
    layouts = [whole, whole.to(memory_format=torch.channels_last), whole.flip(0).flip(0)]
    rows = [[one, (2 * other).double()] for one in layouts for other in layouts]

    def look(_: int, parts: list[torch.Tensor]) -> tuple[torch.Tensor, bool]:
        assert torch.get_num_threads() == 1
        return parts[0].clone(), torch.equal(2 * parts[0].double(), parts[1])

    for parts in staging.by_parts_of(rows, look):
        assert all(is_beside for _, is_beside in parts)
        elements = torch.cat([part for part, _ in parts])
        assert torch.equal(elements.sort().values, whole.reshape(-1))
        assert max(len(part) for part, _ in parts) <= 32
    assert waits


def test_tensors_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="shapes"):
        staging.by_parts_of([[torch.ones(2, 3), torch.ones(3, 2)]], lambda *_: None)


def test_a_buffer_is_lent_to_one_at_a_time_and_returned_by_who_fails(
    waits: list[set[torch.device]],
) -> None:
    inside, most, lock = 0, 0, threading.Lock()

    def use(number: int) -> None:
        nonlocal inside, most
        with staging.staged([torch.full((64,), float(number))]) as (near,):
            with lock:
                inside += 1
                most = max(most, inside)
            threading.Event().wait(0.002)
            with lock:
                inside -= 1
            assert near.eq(number).all()
            if number == 29:
                raise ArithmeticError

    with pytest.raises(ArithmeticError):
        on_each(range(30), use)
    assert most == 2
    assert len(staging._buffers._free) == 2
    assert len(waits) >= 30


@pytest.mark.device
@pytest.mark.skipif(not torch.accelerator.is_available(), reason="reads from an accelerator")
def test_an_accelerator_s_bits_come_through_page_locked_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(staging, "_buffers", staging.Buffers(2, 0))
    device = torch.accelerator.current_accelerator()
    tensor = torch.randn(3 * 2**22 + 5, device=device)
    pieces = torch_device.in_pieces(staging.staged)
    for _ in range(3):
        tensor.mul_(1.5)  # still going on as its copies are asked for
        (copy,) = staging.copied([tensor])
        read = outputs.digest(tensor, torch_device.device_bits, 8, pieces)
        assert read == outputs.digest(tensor.cpu(), torch_device.device_bits)
        assert torch.equal(copy, tensor.cpu())
    assert staging._buffers._free[0].is_pinned()
