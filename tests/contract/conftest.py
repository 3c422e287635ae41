"""One thread for the whole folder: small steps wait for each other's threads on a busy host.

And one float64 result for one input: a check computes it anew each time it is asked, and here it
is asked a hundred times of a step of which one tensor at a time has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
import torch

from workloads.parts.diffusion import flux
from workloads.parts.training import checks, comparisons, reference
from workloads.parts.training.optimizers import Optimizer
from workloads.parts.training.state import Before, Training

Forget = Callable[[], None]
MOST = 8000  # results kept; of a step of 700 tensors two for each, and as many for each other step


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(number)


def remembering(real: Callable[..., Any], most: int = MOST) -> tuple[Callable[..., Any], Forget]:
    """The function, called once for the same objects with the same content, and how to clear it."""
    kept: dict[tuple[object, ...], tuple[object, Any]] = {}

    def remembered(*arguments: Any) -> Any:
        key = tuple(part for argument in arguments for part in identity(argument))
        if key not in kept:
            while len(kept) >= most:
                del kept[next(iter(kept))]
            kept[key] = arguments, real(*arguments)  # kept, so that no other takes its number
        return kept[key][1]

    return remembered, kept.clear


def remembering_rows(
    real: Callable[..., list[comparisons.Examined]],
) -> tuple[Callable[..., Any], Forget]:
    """The same of what examines the tensors of a step: each of them is remembered for itself."""
    kept: dict[tuple[object, ...], tuple[comparisons.Row, comparisons.Examined]] = {}

    def remembered(
        rule: Optimizer, number: int, rows: Sequence[comparisons.Row]
    ) -> list[comparisons.Examined]:
        keys = [(rule, number, *identity((row.start, row.gradient, row.end))) for row in rows]
        if len(kept) > MOST:
            kept.clear()
        new = {key: row for key, row in zip(keys, rows, strict=True) if key not in kept}
        results = real(rule, number, list(new.values()))
        for (key, row), result in zip(new.items(), results, strict=True):
            kept[key] = row, result
        return [kept[key][1] for key in keys]

    return remembered, kept.clear


def identity(argument: object) -> Iterator[object]:
    """A tensor is itself until someone writes into it, a snapshot is what it is for ever."""
    if isinstance(argument, torch.Tensor):
        form = argument.shape, argument.stride(), argument.dtype
        yield argument.data_ptr(), argument._version, form
    elif isinstance(argument, dict):
        for name, value in argument.items():
            yield name
            yield from identity(value)
    elif isinstance(argument, Before):
        yield id(argument)
    elif isinstance(argument, Training):
        pass  # a snapshot belongs to one
    elif isinstance(argument, tuple | list):
        for value in argument:
            yield from identity(value)
    else:
        yield argument


@contextmanager
def remembered_results() -> Iterator[list[Forget]]:
    """What of a training step's judgement depends on its arguments alone is computed once."""
    forget = []
    with ExitStack() as stack:
        for module, name, most in (
            (reference, "reference_of", 2),
            (reference, "repeated", 2),
            (comparisons, "distance_of", MOST),
            (checks, "checksums_of", 2),
            (flux, "in_float64", 1),
        ):
            function, clear = remembering(getattr(module, name), most)
            forget.append(clear)
            stack.enter_context(mock.patch.object(module, name, function))
        examined, clear = remembering_rows(comparisons.examined)
        forget.append(clear)
        stack.enter_context(mock.patch.object(comparisons, "examined", examined))
        yield forget


@dataclass(kw_only=True)
class Remembered:
    """How to clear what is remembered, and whose it is."""

    forget: list[Forget]
    subject: object = None


@pytest.fixture(scope="module", autouse=True)
def one_reference() -> Iterator[Remembered]:
    with remembered_results() as forget:
        yield Remembered(forget=forget)


@pytest.fixture(autouse=True)
def one_subject(request: pytest.FixtureRequest, one_reference: Remembered) -> None:
    """What is remembered of one workload holds gigabytes, and is of no use to the next."""
    callspec = getattr(request.node, "callspec", None)
    subject = callspec.params.get("subject") if callspec else None
    if subject is None or subject != one_reference.subject:
        for clear in one_reference.forget:
            clear()
    one_reference.subject = subject
