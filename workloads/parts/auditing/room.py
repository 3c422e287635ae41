"""Room on a device for a step that a check runs once more, beside what the first one left there.

A step that filled a device as it was made finds less room when it is run again: the optimiser's
moments are there now, and the gradients and logits that are to be judged. Where memory lacks, these
go to the host meanwhile and come back bit by bit. Where that is not enough, what the forward pass
keeps for the backward pass goes there too, up to a share of the device's memory: the same numbers
in the same order, at the time of a copy each way. A step that even so is not run again has not been
judged, and says so: that the device made it once shows that nothing is wrong with its memory.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import torch

from appliance.records.journal import UNJUDGED_FOR_MEMORY, Check
from workloads.parts.distributed.tensors import local

Result = TypeVar("Result")
Tensors = Sequence[torch.Tensor]
SHARE = 0.25
"""Of a device's memory, what the forward pass may keep on the host."""
GAPS = 1.1
SMALLEST = 2**20
"""Bytes of a tensor that is worth a copy."""


def with_room(model: torch.nn.Module, beside: Tensors, run: Callable[[], Result]) -> Result | None:
    """What `run` gives, again with more of the device's memory where that lacked; None: it lacks.

    `run` restores what it begins with. `beside` is on the device and is not read by it: what of it
    is moved is back when this returns, whoever else holds it.
    """
    weights = (*model.parameters(), *model.buffers())
    for way in (nullcontext, lambda: moved(weights, beside), lambda: kept(weights, beside)):
        made = _attempted(way, run)
        if made is not None:
            return made
        gc.collect()  # what the attempt held in cycles
        _hand_back(weights[0].device)
    return None


def holds(weights: Tensors, extra: int) -> bool:
    """Whether a device surely holds so many bytes more beside a step that is run again.

    That takes no more than the most that was ever in use took beside these weights, and a tenth for
    the gaps between blocks.
    """
    device = weights[0].device
    if device.type == "cpu":
        return False
    try:
        free, _ = torch.accelerator.get_memory_info(device)
        unused = torch.accelerator.memory_reserved(device)
        unused -= torch.accelerator.memory_allocated(device)
        most = torch.accelerator.max_memory_allocated(device)
    except RuntimeError:  # a device that does not say
        return False
    held = sum(local(one.detach()).nbytes for one in weights)
    return int(free) + unused - extra > GAPS * (most - held)


def _attempted(
    way: Callable[[], AbstractContextManager[None]], run: Callable[[], Result]
) -> Result | None:
    with way():
        try:
            return run()
        except torch.OutOfMemoryError:
            pass  # what the attempt held goes with the exception, before anything comes back
    return None


def unjudged() -> Check:
    """What is said of a step that was not run again for want of memory."""
    return Check(
        name=UNJUDGED_FOR_MEMORY,
        error=1.0,
        bound=0.0,
        kind="exact",
        if_outside="inconclusive",
        detects=1.0,
        detects_what="step that fitted into the device's memory and not beside what it left there, "
        "so that nothing of its inside was judged",
    )


def _hand_back(device: torch.device) -> None:
    if device.type != "cpu":
        torch.get_device_module(device.type).empty_cache()


# ------------------------------------------------------------------ what lies beside the model


@contextmanager
def moved(weights: Tensors, beside: Tensors) -> Iterator[None]:
    """What lies beside the weights is on the host meanwhile."""
    device, needed = weights[0].device, {_place(one) for one in weights}
    storages = {_place(one): _storage(one) for one in beside if _place(one) not in needed}
    movable = [one for one in storages.values() if _is_movable(one, device)]
    copies = [(storage, _bytes_of(storage).to("cpu", copy=True)) for storage in movable]
    try:
        for storage in movable:
            storage.resize_(0)
        _hand_back(device)
        yield
    finally:
        gc.collect()
        _hand_back(device)
        for storage, values in copies:
            storage.resize_(len(values))
            _bytes_of(storage).copy_(values)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return local(tensor.detach()).untyped_storage()


def _place(tensor: torch.Tensor) -> int:
    """What tells a tensor's memory from any other that is in use."""
    return _storage(tensor).data_ptr()


def _is_movable(storage: torch.UntypedStorage, device: torch.device) -> bool:
    is_worth = storage.nbytes() >= SMALLEST and storage.device == device
    return is_worth and bool(storage.resizable())


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


# ------------------------------------------------------------------ what a forward pass keeps


@contextmanager
def kept(weights: Tensors, beside: Tensors) -> Iterator[None]:
    """As `moved`, and the first of what a forward pass keeps is on the host too."""
    needed = {_place(one) for one in weights}
    with moved(weights, beside), _kept_on_host(needed, _room_of(weights[0].device)):
        yield


def _room_of(device: torch.device) -> float:
    """Bytes that go to the host, as a share of the device's."""
    try:
        _, total = torch.accelerator.get_memory_info(device)
    except RuntimeError:  # a device that does not say
        return float("inf")
    return SHARE * int(total)


def _kept_on_host(needed: set[int], room: float) -> torch.autograd.graph.saved_tensors_hooks:
    """Hooks that bring the tensors there which a forward pass keeps, but those in `needed`."""
    taken = 0.0

    def pack(tensor: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.device]:
        nonlocal taken
        is_own = type(tensor) is torch.Tensor and tensor.is_contiguous()
        if not is_own or tensor.nbytes < SMALLEST or taken > room or _place(tensor) in needed:
            return tensor
        taken += tensor.nbytes
        return tensor.to("cpu", copy=True), tensor.device

    def unpack(packed: torch.Tensor | tuple[torch.Tensor, torch.device]) -> torch.Tensor:
        return packed if isinstance(packed, torch.Tensor) else packed[0].to(packed[1], copy=True)

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)
