"""What the two processes do: the timer times blocks when asked, its neighbour waits to be ended.

Both set their device up as a launch does (`worker.prepare`). Each is asked in lines on its standard
input, answers in lines on the descriptor that it is given, and ends when its standard input does.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

from appliance.ipc.messages import IdleAnswer, IdleRequest
from appliance.records.json import adapter
from appliance.vendors import torch_settings
from appliance.vendors.registry import make_vendor
from appliance.worker.idle import steps

LONGEST_FAULT = 200


def timer(answer: int) -> None:
    """Hold what the steps need, and time a block of them each time it is asked."""
    asked = requests()
    with faults_sent(answer):
        begun = next(asked)
        device = _device(begun)
        kinds = steps.steps(device, begun.memory_bytes)
        send(answer, IdleAnswer())
        for request in asked:
            times = steps.block(kinds[request.kind], device, request.seconds)
            send(answer, IdleAnswer(step_seconds=tuple(times)))


def neighbour(answer: int) -> None:
    """Hold a context, memory and what a product leaves, as after a build, and do nothing more."""
    asked = requests()
    with faults_sent(answer):
        begun = next(asked)
        device = _device(begun)
        held = steps.held(device, begun.memory_bytes)
        send(answer, IdleAnswer())
        for _ in asked:  # of a process that waits nothing is asked but its end
            pass
        del held


ROLES: Mapping[str, Callable[[int], None]] = {"timer": timer, "neighbour": neighbour}


def requests() -> Iterator[IdleRequest]:
    """What is asked on standard input, until it ends."""
    text = b""
    while part := os.read(0, 2**16):
        *lines, text = (text + part).split(b"\n")
        for line in lines:
            yield adapter(IdleRequest).validate_json(line)


def send(answer: int, message: IdleAnswer) -> None:
    """One line on the descriptor."""
    data = adapter(IdleAnswer).dump_json(message) + b"\n"
    while data:
        data = data[os.write(answer, data) :]


def _device(begun: IdleRequest) -> torch.device:
    """The one device that the environment shows, set up."""
    vendor = make_vendor(begun.vendor)
    vendor.prepare()
    torch_settings.choose_float32_products(vendor.torch_type, in_tf32=False)
    if vendor.torch_type == "cpu":
        return torch.device("cpu")
    device = torch.device(vendor.torch_type, 0)
    torch.get_device_module(device.type).set_device(device)
    return device


@contextmanager
def faults_sent(answer: int) -> Iterator[None]:
    """Have what is raised meanwhile sent as the answer that is due; then the process ends by it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        what = " ".join(str(error).split())[:LONGEST_FAULT]
        traceback.print_exc()
        send(answer, IdleAnswer(fault=f"{type(error).__name__}: {what}"))
        raise SystemExit(1) from None
