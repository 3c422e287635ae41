"""What the simulated accelerator must do, each in a process of its own with its own faults.

    python -m support.simulated_checks      names and errors as one JSON document

Registering the device changes torch for good, so no test does it in its own process. This program
imports torch once and forks for each check, before torch has run anything.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from support import simulated_device
from torch import nn

from appliance.generator.maps import NORMAL
from workloads.contract.target import Artifacts, Target
from workloads.digits_mlp import DigitsMlp
from workloads.parts.drawing import drawn
from workloads.parts.drawing.drawn import Draws
from workloads.parts.numerics import host_copies, staging

Check = Callable[[], None]
ATTEMPTS = 20
CHECKS: dict[str, tuple[Check, Mapping[str, str]]] = {}


def check(**variables: str) -> Callable[[Check], Check]:
    """Enter a check; `variables` are of its environment, without "SIMULATED_"."""

    def enter(own: Check) -> Check:
        CHECKS[own.__name__] = (
            own,
            {f"SIMULATED_{name}": text for name, text in variables.items()},
        )
        return own

    return enter


def operands(size: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(size, size), torch.randn(size, size)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.to("simulated") @ b.to("simulated")).cpu()


def raised(action: Callable[[], object], kind: type[Exception] = RuntimeError) -> str:
    try:
        action()
    except kind as error:
        return str(error)
    raise AssertionError("nothing was raised")


# -------------------------------------------------------------------- without a fault


@check()
def is_bit_equal_to_the_processors() -> None:
    a, b = operands()
    assert torch.equal(product(a, b), a @ b)
    expected, trained = _train("cpu"), _train("simulated:1")
    assert expected.keys() == trained.keys()
    assert [name for name in expected if not torch.equal(expected[name], trained[name])] == []


def _train(device: str) -> Mapping[str, torch.Tensor]:
    """Weights, running statistics and losses after three steps of many kinds of layer."""
    torch.manual_seed(1)
    layers = [
        nn.Conv2d(3, 8, 3, groups=1),
        nn.BatchNorm2d(8),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(8 * 36, 32),
        nn.LayerNorm(32),
        nn.Dropout(0.2),
        nn.Linear(32, 5),
    ]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    inputs, labels = torch.randn(4, 3, 8, 8).to(device), torch.arange(4).to(device)
    losses = []
    for _ in range(3):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    return {**state, "losses": torch.stack(losses)}


@check()
def draws_what_the_processors_draw() -> None:
    drawn = []
    for device in ("cpu", "simulated:0", "simulated:1"):
        torch.manual_seed(7)
        drawn.append(torch.randn(100, device=device).cpu())
    assert all(torch.equal(drawn[0], one) for one in drawn)


@check()
def copies_conjugated_numbers() -> None:
    numbers = torch.randn(3, 4, dtype=torch.complex64)
    assert torch.equal(numbers.to("simulated").conj().cpu(), numbers.conj().resolve_conj())


@check()
def moves_what_two_layers_share() -> None:
    layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    layers[1].weight = layers[0].weight
    layers.to("simulated:1")
    assert layers[1].weight is layers[0].weight
    assert layers[1].weight.device == torch.device("simulated:1")
    assert layers.cpu()[0].weight.device == torch.device("cpu")


@check()
def refuses_tensors_of_two_devices() -> None:
    a, b = operands(4)
    first, second = a.to("simulated:0"), b.to("simulated:1")
    assert "simulated:0 and some on simulated:1" in raised(lambda: first @ second)
    assert "some on cpu" in raised(lambda: first + b)
    assert torch.equal(first.to("simulated:1").cpu(), a)


@check()
def copies_to_the_host_when_somebody_waits() -> None:
    source, target = torch.arange(4.0, device="simulated"), torch.zeros(4)
    target.copy_(source, non_blocking=True)
    source.zero_()
    assert torch.equal(target, torch.zeros(4))
    torch.accelerator.synchronize()
    assert torch.equal(target, torch.arange(4.0))


@check()
def copies_small_tensors_together() -> None:
    matrix = torch.arange(24.0).reshape(2, 3, 2, 2)
    kinds = [torch.tensor(7), matrix.bfloat16(), matrix[:, 1], matrix > 3, torch.empty(0)]
    kinds += [matrix.to(memory_format=torch.channels_last), torch.ones(2, dtype=torch.complex64)]
    many = {number: one.to("simulated:0") for number, one in enumerate(kinds * 50)}
    (before, _), long = torch.simulated.calls(0), torch.ones(2**18 + 1, device="simulated:0")
    copies = host_copies.copies_on_host(many)
    assert torch.simulated.calls(0)[0] - before < len(many)
    assert [one.device.type for one in copies.values()] == ["cpu"] * len(many)
    assert all(_are_same(many[number], one) for number, one in copies.items())
    copies[1].add_(1)
    assert copies[8].equal(kinds[1])
    assert copies[8]._version == 0
    few, more = (dict.fromkeys(range(count), long) for count in (2, 65))
    assert {one.device.type for one in host_copies.small_on_host(few).values()} == {"cpu"}
    assert all(one.device == long.device for one in host_copies.small_on_host(more).values())
    rows = [[long, long.cpu()]]
    with mock.patch.object(staging, "ELEMENTS", 2**17):
        (parts,) = staging.by_parts_of(rows, lambda _, parts: parts[0].equal(parts[1]))
    assert parts == [True] * 3
    assert staging.copied([long])[0].equal(long.cpu())


def _are_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.cpu().equal(other)


@check()
def judges_a_step_after_few_copies() -> None:
    workload = DigitsMlp(**DigitsMlp.small)
    with tempfile.TemporaryDirectory() as folder:
        target = Target(device=torch.device("simulated:0"), artifacts=Artifacts(Path(folder)))
        state = workload.build(target, 7)
        before = workload.snapshot(state)
        output = workload.step(state)
        calls, _ = torch.simulated.calls(0)
        torch.set_num_threads(2)
        judged = workload.check(before, state, output)
        checks, threads = zip(*((one, torch.get_num_threads()) for one in judged), strict=True)
        assert torch.simulated.calls(0)[0] - calls < 40  # of 19 tensors each by itself, 280
        assert all(one.is_within for one in checks)
        assert set(threads) == {1}
        assert torch.get_num_threads() == 2
        spoilt = replace(output, weights={n: 1.01 * w for n, w in output.weights.items()})
        wrong = [one.name for one in workload.check(before, state, spoilt) if not one.is_within]
        assert wrong == ["updated weights, given the gradients"]


@check(MEMORY="1048576")
def has_so_much_memory() -> None:
    half = torch.empty(2**19, dtype=torch.uint8, device="simulated:0")
    message = raised(lambda: torch.empty(2**19 + 1, device="simulated:0"), torch.OutOfMemoryError)
    assert "524288 of 1048576 in use" in message
    torch.empty(2**19 + 1, dtype=torch.uint8, device="simulated:1")
    del half
    assert torch.accelerator.memory_allocated("simulated:0") == 0
    assert torch.accelerator.max_memory_allocated("simulated:0") == 2**19


@check()
def computes_mixed_precision() -> None:
    a, b = (one.to("simulated") for one in operands())
    with torch.autocast("simulated", dtype=torch.bfloat16):
        short = a @ b
        assert (short.dtype, short.exp().dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(short, a.bfloat16() @ b.bfloat16())


@check()
def has_events_that_agree_with_the_wall() -> None:
    _check_clock(1)


def _check_clock(rate: float) -> None:
    """What the events say lies between two spans of the host, of which one holds the other."""
    first, last = (torch.Event("simulated", enable_timing=True) for _ in range(2))
    outer = -time.perf_counter_ns()
    first.record()
    inner = -time.perf_counter_ns()
    time.sleep(0.1)
    inner += time.perf_counter_ns()
    last.record()
    outer += time.perf_counter_ns()
    assert rate * inner <= 1e6 * first.elapsed_time(last) <= rate * outer


# ------------------------------------------------------------------------ with a fault


@check(FAULTS="order")
def sums_in_another_order() -> None:
    a, b = operands()
    products = [product(a, b) for _ in range(8)]
    assert any(not torch.equal(products[0], one) for one in products)
    assert all(torch.allclose(a @ b, one, atol=1e-4) for one in products)


@check(FAULTS="short")
def cuts_products_short() -> None:
    a, b = operands()
    error = ((product(a, b) - a @ b).norm() / (a @ b).norm()).item()
    assert 1e-5 < error < 1e-3, error


@check(FAULTS="flip=3")
def flips_one_bit_of_one_product() -> None:
    a, b = operands()
    wrong = [int((product(a, b) != a @ b).sum()) for _ in range(5)]
    assert wrong == [0, 0, 1, 0, 0]
    second = [one.to("simulated:1") for one in (a, b)]
    for _ in range(4):
        assert torch.equal((second[0] @ second[1]).cpu(), a @ b)


@check(FAULTS="integers")
def draws_other_inputs_and_fails_by_name() -> None:
    """Its known answers are wrong, and so are its inputs; the node's other device has neither."""
    a = torch.arange(1, 9)
    assert ((a.to("simulated") * 3).cpu() - a * 3).tolist() == [-1, 0] * 4
    name, inputs = "known answers of the input generator", "inputs as drawn"
    assert _wrong_of_inputs("simulated:0") == {name: 3, inputs: 1}
    assert _wrong_of_inputs("simulated:1") == {name: 0, inputs: 0}


def _wrong_of_inputs(device: str) -> dict[str, float]:
    """What the checks that a launch makes of its inputs find, by their names."""
    target = Target(device=torch.device(device), artifacts=Artifacts(Path("unused")))
    Draws(target=target, seed=3).tensor("x", NORMAL, torch.bfloat16, (64, 64))
    return {one.name: one.error for one in drawn.checks(target)}


@check(FAULTS="unwritten=2")
def leaves_outputs_unwritten() -> None:
    a, b = operands()
    assert [torch.equal(product(a, b), a @ b) for _ in range(2)] == [True, False]


@check(FAULTS="forgets=2")
def forgets() -> None:
    numbers = torch.ones(2**16, device="simulated")
    wrong = []
    for _ in range(4):
        torch.accelerator.synchronize()
        wrong.append(int((numbers.cpu() != 1).sum()))
    assert wrong == [0, 1, 1, 2]


@check(FAULTS="fades=2")
def fades() -> None:
    numbers, other = (torch.ones(size, device="simulated") for size in (2**16, 4))
    before = int((numbers.cpu() != 1).sum())
    for _ in range(8):
        other.add_(1)
    assert int((numbers.cpu() != 1).sum()) >= before + 4
    assert other.cpu().tolist() == [9.0] * 4


@check(FAULTS="clock=0.966")
def has_a_slow_clock() -> None:
    _check_clock(0.966)


@check(FAULTS="clock=0")
def has_a_clock_that_stands_still() -> None:
    _check_clock(0)


@check(FAULTS="shared")
def waits_for_another_user() -> None:
    stream = torch.accelerator.current_stream()
    assert any(_is_pending(stream.query, lambda: None) for _ in range(ATTEMPTS))
    stream.synchronize()
    assert stream.query()


@check(FAULTS="early")
def returns_early() -> None:
    query = torch.accelerator.current_stream().query
    assert any(_is_pending(query, torch.accelerator.synchronize) for _ in range(ATTEMPTS))
    event = torch.Event("simulated")
    torch.randn(400, 400, device="simulated") @ torch.randn(400, 400, device="simulated")
    event.record()
    assert event.query()


def _is_pending(query: Callable[[], bool], wait: Callable[[], None]) -> bool:
    """Whether a matmul is pending after it was waited for; a busy host may look too late."""
    numbers = torch.randn(400, 400, device="simulated")
    numbers @ numbers
    wait()
    return not query()


@check(FAULTS="hang=3")
def hangs() -> None:
    numbers = torch.ones(4, device="simulated")  # two operators: made, filled
    torch.accelerator.synchronize()
    for _ in range(3):
        numbers.add_(1)
    assert not torch.accelerator.current_stream().query()


@check(FAULTS="vanishes=5")
def vanishes_for_every_process() -> None:
    with tempfile.TemporaryDirectory() as state:
        os.environ[simulated_device.STATE] = state
        simulated_device.register()
        numbers = torch.ones(4, device="simulated")
        assert "is lost" in raised(lambda: [numbers.add_(1) for _ in range(5)])
        assert "is lost" in raised(torch.accelerator.synchronize)
        names = {path.name for path in Path(state).iterdir()}
        assert names == {"lost.0", f"used.0.{os.getpid()}"}


# ---------------------------------------------------------------------------- the program


def _error_of(own: Check, variables: Mapping[str, str]) -> str:
    """What went wrong in a process of its own; empty if nothing."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        os.environ.update(variables)
        text = ""
        try:
            if simulated_device.STATE not in os.environ and own is not vanishes_for_every_process:
                simulated_device.register()
            own()
        except BaseException:  # noqa: BLE001 - whatever it is, it is the result
            text = traceback.format_exc()
        os.write(writing, text.encode()[-4000:])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(process, 0)
    return text or (f"ended with status {status}" if status else "")


def results() -> Iterator[tuple[str, Any]]:
    for name, (own, variables) in CHECKS.items():
        yield name, _error_of(own, variables)


if __name__ == "__main__":
    json.dump(dict(results()), sys.stdout)
