"""First weights of a training, drawn where the model is to lie, as its initialisers ask for them.

Libraries draw first weights on the host, by torch's generator, whose numbers differ with the
processor's instructions. Here a model is built with its initialisers noted instead of run: for
whole tensors the last one counts, for parts of one, which may be set to a constant alone, those
that came after it. Normal and uniform numbers are then drawn by the input generator in the
parameter's format, as they were asked for (of normal ones none is further than 4.17 standard
deviations from the mean, so a truncation further out changes nothing), and constants are filled in.
What no initialiser was asked for must be a constant as it stands; a table that does not learn stays
as it was computed. Anything else is refused by the parameter's name, never drawn in another way
than the library says.

Nothing is written into the host's memory for it: what torch.empty returned there stays untouched.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from unittest import mock

import torch
from torch import nn
from torch.nn import init
from torch.utils._python_dispatch import TorchDispatchMode

from appliance.generator import maps
from appliance.generator.maps import Map
from workloads.parts.drawing.drawn import Drawer

Model = TypeVar("Model", bound=nn.Module)
Rule = Map | float
"""What a tensor begins with: drawn numbers, or one value everywhere."""
_Note = tuple[torch.Tensor, Rule | str]
"""A tensor, or a part of one, and what it was asked to begin with; in words what is not drawn."""
LARGEST = 4.2
"""Standard deviations from the mean beyond which no number is drawn (`generator/maps.py`)."""
UNKNOWN = ("eye_", "dirac_", "orthogonal_", "sparse_")
"""Initialisers whose numbers are not drawn: they may come before another that is."""


def initialized(make: Callable[[], Model], drawer: Drawer, device: torch.device) -> Model:
    """The model that `make` builds, its parameters on the device as its initialisers say.

    Buffers are as without this, on the host. Raises RuntimeError for a parameter whose beginning is
    not known.
    """
    with _noted() as notes:
        model = make()
    rules = {
        name: notes.rule_of(name, parameter)
        for name, parameter in model.named_parameters()
        if not notes.is_computed(parameter)
    }
    expect(drawer, model, {name: rule for name, (rule, _) in rules.items()})
    for name, parameter in model.named_parameters():
        if name not in rules:
            parameter.data = parameter.data.to(device)
            continue
        rule, parts = rules[name]
        parameter.data = begun(drawer, name, parameter, rule, device)
        for part in parts:
            part.seen_in(parameter).fill_(part.value)
    for name, buffer in model.named_buffers():
        notes.set_constant(name, buffer)
    return model


def expect(drawer: Drawer, model: nn.Module, rules: Mapping[str, Rule]) -> None:
    """Name the parameters that a drawer will be asked for by these rules."""
    drawn = {name: rule for name, rule in rules.items() if isinstance(rule, Map)}
    drawer.expect(
        (name, drawn[name], parameter.dtype, tuple(parameter.shape))
        for name, parameter in model.named_parameters()
        if name in drawn
    )


@torch.no_grad()
def begun(
    drawer: Drawer, name: str, parameter: torch.Tensor, rule: Rule, device: torch.device
) -> torch.Tensor:
    """A parameter's first values, on the device, in its shape and format."""
    shape = tuple(parameter.shape)
    if isinstance(rule, Map):
        return drawer.tensor(name, rule, parameter.dtype, shape)
    return torch.full(shape, rule, dtype=parameter.dtype, device=device)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A part of a tensor that is set to one value."""

    like: torch.Tensor
    value: float

    def seen_in(self, tensor: torch.Tensor) -> torch.Tensor:
        like = self.like
        return tensor.detach().as_strided(like.shape, like.stride(), like.storage_offset())


class _Notes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # as torch has it
    """What tensors were asked to begin with, in order, by initialisers or by writing in place."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._asked: dict[int, list[_Note]] = {}  # by place, which a note keeps from other use

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        if func._schema.is_mutable and args and isinstance(args[0], torch.Tensor):  # noqa: SLF001 - torch's only word on it
            self.ask(args[0], _written(func, *args[1:]))
        return func(*args, **(kwargs or {}))

    def ask(self, tensor: torch.Tensor, rule: Rule | str) -> torch.Tensor:
        """Note what a tensor, or a part of one, is to begin with."""
        self._asked.setdefault(_place(tensor), []).append((tensor.detach(), rule))
        return tensor

    def _of(self, tensor: torch.Tensor) -> Sequence[_Note]:
        return self._asked.get(_place(tensor), ())

    def is_computed(self, parameter: torch.Tensor) -> bool:
        """Whether it does not learn, and something was written there that was computed."""
        rules = [rule for _, rule in self._of(parameter)]
        return not parameter.requires_grad and rules[-1:] == [_COMPUTED]

    def set_constant(self, name: str, buffer: torch.Tensor) -> None:
        """What an initialiser would have left in a buffer, which are constants or computed."""
        parts: list[_Part] = []
        for tensor, rule in self._of(buffer):
            has_run = isinstance(rule, str) and rule.endswith(_IN_PLACE)
            parts = [] if has_run else [*parts, _part(name, tensor, rule)]
        for part in parts:
            part.seen_in(buffer).fill_(part.value)

    def rule_of(self, name: str, parameter: torch.Tensor) -> tuple[Rule, list[_Part]]:
        """How a parameter begins, and which parts of it are set afterwards."""
        notes = self._of(parameter)
        wholes = [at for at, (one, _) in enumerate(notes) if one.numel() == parameter.numel()]
        last = wholes[-1] if wholes else -1
        rule = notes[last][1] if wholes else _as_it_stands(name, parameter)
        if isinstance(rule, str):
            raise _unknown(name, f"{rule} is asked for")
        return rule, [_part(name, *note) for note in notes[last + 1 :]]


_IN_PLACE = " in place"
_COMPUTED = f"copy_{_IN_PLACE}"
_FILLS = (torch.ops.aten.fill_, torch.ops.aten.zero_)


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _written(func: Any, value: object = 0.0, *others: object) -> Rule | str:
    """What an operation in place leaves: one value everywhere, or the operation's name."""
    del others
    if func.overloadpacket in _FILLS and isinstance(value, int | float):
        return float(value)
    return f"{func.overloadpacket.__name__}{_IN_PLACE}"


def _part(name: str, tensor: torch.Tensor, rule: Rule | str) -> _Part:
    if isinstance(rule, float):
        return _Part(like=tensor, value=rule)
    raise _unknown(name, f"of a part of it {rule} is asked for")


def _as_it_stands(name: str, parameter: torch.Tensor) -> float:
    """The one value of a parameter that no initialiser was asked for."""
    first = parameter.detach().reshape(-1)[0]
    if not bool((parameter.detach() == first).all()):
        raise _unknown(name, "no initialiser was asked for it, and it is no constant")
    return float(first)


def _unknown(name: str, why: str) -> RuntimeError:
    return RuntimeError(f'how "{name}" begins cannot be drawn: {why}')


# ------------------------------------------------------------------ torch's initialisers


@contextmanager
def _noted() -> Iterator[_Notes]:
    """Have torch's initialisers, under every name that libraries call them by, noted not run."""
    notes = _Notes()
    noted = {name: _noting(notes, name, rule) for name, rule in _RULES.items()}
    originals = {name: getattr(init, name) for name in noted}
    with mock.patch.dict(_library_names(), noted):
        places = [
            mock.patch.object(module, name, noted[name])
            for module in _modules()
            for name, original in originals.items()
            if vars(module).get(name) is original
        ]
        for place in places:
            place.start()
        try:
            with notes:
                yield notes
        finally:
            for place in reversed(places):
                place.stop()


def _noting(
    notes: _Notes, name: str, rule: Callable[..., Rule | str]
) -> Callable[..., torch.Tensor]:
    def note(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        kwargs.pop("generator", None)
        return notes.ask(tensor, rule(tensor, *args, **kwargs))

    note.__name__ = name
    return note


def _modules() -> list[Any]:
    """Torch's modules that call initialisers by a name of their own."""
    inside = [one for name, one in sys.modules.items() if name.startswith("torch.nn.modules.")]
    return [init, *inside]


def _library_names() -> dict[str, Any]:
    """The table by which transformers calls torch's initialisers; empty where it is not loaded."""
    library = sys.modules.get("transformers.initialization")
    names: dict[str, Any] = {} if library is None else library.TORCH_INIT_FUNCTIONS
    return names


def _normal(tensor: torch.Tensor, mean: float = 0.0, std: float = 1.0) -> Rule:
    del tensor
    return maps.normal(float(mean), float(std)) if std else float(mean)


def _truncated(
    tensor: torch.Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Rule | str:
    if std and min(mean - a, b - mean) < LARGEST * std:
        return "trunc_normal_ within what is drawn"
    return _normal(tensor, mean, std)


def _uniform(tensor: torch.Tensor, a: float = 0.0, b: float = 1.0) -> Rule | str:
    del tensor
    return maps.uniform(float(b - a)) if a == -b else "uniform_ that is not around zero"


def _he_deviation(
    tensor: torch.Tensor, a: float = 0, mode: Any = "fan_in", nonlinearity: Any = "leaky_relu"
) -> float:
    fan = init._calculate_correct_fan(tensor, mode)  # noqa: SLF001 - as torch counts it
    return init.calculate_gain(nonlinearity, a) / math.sqrt(fan)


def _glorot_deviation(tensor: torch.Tensor, gain: float = 1.0) -> float:
    fans = init._calculate_fan_in_and_fan_out(tensor)  # noqa: SLF001 - as torch counts them
    return gain * math.sqrt(2.0 / sum(fans))


def _normal_by(deviation: Callable[..., float]) -> Callable[..., Rule]:
    return lambda *args, **kwargs: maps.normal(0.0, deviation(*args, **kwargs))


def _uniform_by(deviation: Callable[..., float]) -> Callable[..., Rule]:
    """Uniform numbers of a standard deviation, which are the root of 12 times as wide."""
    return lambda *args, **kwargs: maps.uniform(math.sqrt(12.0) * deviation(*args, **kwargs))


def _constant(tensor: torch.Tensor, val: float) -> Rule:
    del tensor
    return float(val)


def _not_drawn(name: str) -> Callable[..., str]:
    def rule(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> str:
        del tensor, args, kwargs
        return name

    return rule


_RULES: dict[str, Callable[..., Rule | str]] = {
    "normal_": _normal,
    "trunc_normal_": _truncated,
    "uniform_": _uniform,
    "kaiming_normal_": _normal_by(_he_deviation),
    "kaiming_uniform_": _uniform_by(_he_deviation),
    "xavier_normal_": _normal_by(_glorot_deviation),
    "xavier_uniform_": _uniform_by(_glorot_deviation),
    "constant_": _constant,
    "ones_": lambda tensor: _constant(tensor, 1.0),
    "zeros_": lambda tensor: _constant(tensor, 0.0),
    **{name: _not_drawn(name) for name in UNKNOWN},
}
