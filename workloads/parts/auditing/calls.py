"""What goes through every module of a model in one step, forward and backward, as a tree of calls.

Of each call its inputs and outputs are copied to the host, and the gradients that this call alone
sends and receives: each tensor goes in and comes out by a node of its own, so that what others do
with it is not counted. Of a layer with weights some channels are copied for all rows as well, as
the gradient of a weight is a sum over all rows.

A reversible network keeps nothing: it calls its layers without gradients, and parts of them again
in the backward pass, with what it was given made anew. Both are noted (`Watch.go_back`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from workloads.parts.auditing.channels import Channels, Draws
from workloads.parts.auditing.selection import Rows

Select = Callable[[torch.Tensor], torch.Tensor]
Read = Callable[[torch.Tensor], torch.Tensor | None]


@dataclass(kw_only=True)
class Passing:
    """Values on one side of a call, in the order of their structure, and their gradients.

    `shared` are places of tensors that all inputs of the batch have in common, whose gradients are
    sums over all of them.
    """

    values: list[Any]
    spec: TreeSpec
    gradients: dict[int, torch.Tensor] = field(default_factory=dict)
    shared: set[int] = field(default_factory=set)
    columns: torch.Tensor | None = None
    column_gradient: torch.Tensor | None = None

    def narrow(self, rows: Rows) -> Passing:
        """The drawn rows of what has all."""
        values = [rows.of(one) if isinstance(one, torch.Tensor) else one for one in self.values]
        gradients = {place: rows.of(gradient) for place, gradient in self.gradients.items()}
        return replace(self, values=values, gradients=gradients)

    def first(self) -> torch.Tensor:
        """The first tensor."""
        return next(value for value in self.values if isinstance(value, torch.Tensor))

    def gradient(self) -> torch.Tensor | None:
        """Gradient of the first tensor; None if it has none."""
        places = (place for place, one in enumerate(self.values) if isinstance(one, torch.Tensor))
        return self.gradients.get(next(places))


@dataclass(kw_only=True)
class Call:
    """One call of a module, with those that it made; `is_whole`: all rows were copied.

    `first`: of a call that the backward pass made again, the one in the forward pass.
    """

    path: str
    module: torch.nn.Module
    given: Passing
    made: Passing | None = None
    is_whole: bool = False
    channels: Channels | None = None
    children: list[Call] = field(default_factory=list)
    first: Call | None = None

    def narrow(self, rows: Rows) -> Call:
        """The same call with the drawn rows alone, of itself and of what it called."""
        return replace(self.narrowed(rows), children=[one.narrowed(rows) for one in self.children])

    def narrowed(self, rows: Rows) -> Call:
        """The same call with the drawn rows alone, of itself and not of what it called."""
        if not self.is_whole:
            return self
        made = None if self.made is None else self.made.narrow(rows)
        return replace(self, given=self.given.narrow(rows), made=made, is_whole=False)

    def output(self) -> Passing:
        """What it returned."""
        if self.made is None:
            raise RuntimeError(f"{self.path} did not return")
        return self.made

    def all_calls(self) -> Iterator[Call]:
        """This call and those inside of it, the innermost first."""
        for child in self.children:
            yield from child.all_calls()
        yield self


@dataclass(kw_only=True)
class Watch(ExitStack):
    """While it is entered, notes the calls of all modules inside `model`, but not of itself.

    `whole` are paths whose own rows, and those of the modules that they call, are copied whole;
    "" stands for the model. `only`: paths of those that are noted, with all that lies in them; None
    for all. Say by `go_back` that the backward pass begins, in which modules may be called again to
    make what was not kept.
    """

    model: torch.nn.Module
    rows: Rows
    draws: Draws
    whole: frozenset[str] = frozenset({""})
    only: tuple[str, ...] | None = None
    is_open: bool = True
    calls: list[Call] = field(default_factory=list)
    _again: list[Call] | None = None
    _running: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __enter__(self) -> Self:
        super().__enter__()
        for path, module in self.model.named_modules():
            if module is self.model or not self._is_noted(path):
                continue
            begin = module.register_forward_pre_hook(partial(self._begin, path), with_kwargs=True)
            end = module.register_forward_hook(self._end, with_kwargs=True)
            self.callback(begin.remove)
            self.callback(end.remove)
        return self

    def go_back(self, *, recomputes: bool = False) -> None:
        """The backward pass begins; calls in it are noted where it recomputes what is followed."""
        self.is_open, self._again = recomputes, []

    def join(self) -> None:
        """Put the calls that the backward pass made among those of whoever made them.

        That is the innermost module around it that was called with gradients: the layers inside of
        it were called without.
        """
        every = [one for call in self.calls for one in call.all_calls()]
        for call in self._again or ():
            around = [one for one in every if call.path.startswith(f"{one.path}.")]
            through = [one for one in around if one.given.gradients]
            if not through:
                raise RuntimeError(f"{call.path} is called again, and no gradient went to it")
            call.first = next((one for one in every if one.path == call.path), None)
            max(through, key=lambda one: len(one.path)).children.append(call)
        self._again = None

    def _is_noted(self, path: str) -> bool:
        return self.only is None or any(f"{path}.".startswith(f"{one}.") for one in self.only)

    def _begin(self, path: str, module: torch.nn.Module, arguments: Any, keywords: Any) -> Any:
        if not self.is_open:
            return None
        parent = self._running[-1] if self._running else None
        is_outermost = self._again is None  # of the model's own calls, and not made again
        above = parent.path if parent is not None else "" if is_outermost else None
        is_whole = path in self.whole or above in self.whole
        leaves, _ = tree_flatten((arguments, keywords))
        channels = self.draws.of(module, path, next((x for x in leaves if _is_tensor(x)), None))
        read = None if channels is None else channels.of_given
        passing, seen = _passing((arguments, keywords), self.rows, read, is_whole=is_whole)
        call = Call(path=path, module=module, given=passing, is_whole=is_whole, channels=channels)
        outermost = self.calls if self._again is None else self._again
        (outermost if parent is None else parent.children).append(call)
        self._running.append(call)
        return seen

    def _end(self, module: torch.nn.Module, arguments: Any, keywords: Any, output: Any) -> Any:
        del module, arguments, keywords
        if not self.is_open:
            return None
        call = self._running.pop()
        read = None if call.channels is None else call.channels.of_made
        call.made, seen = _passing(output, self.rows, read, is_whole=call.is_whole, is_made=True)
        return seen


def _passing(
    values: Any, rows: Rows, read: Read | None, *, is_whole: bool, is_made: bool = False
) -> tuple[Passing, Any]:
    """Copies of the values, and the values with tensors that tell their gradients.

    The only tensor that a module made tells the whole of its gradient: a library may have taken it
    aside before the module returned.
    """
    select: Select = (lambda tensor: tensor) if is_whole else rows.of
    leaves, spec = tree_flatten(values)
    passing = Passing(values=[_copied(leaf, select) for leaf in leaves], spec=spec)
    seen = list(leaves)
    learning = sum(is_floating(leaf) and leaf.requires_grad for leaf in leaves)
    is_alone = is_made and learning == 1
    for place, leaf in enumerate(leaves):
        if not _is_tensor(leaf):
            continue
        columns, read = read, None  # of the first tensor alone
        if not rows.has(leaf):
            passing.shared.add(place)
        if columns is not None:
            passing.columns = _host(columns(leaf.detach()))
        if is_floating(leaf) and leaf.requires_grad:
            apply: Any = _Passed.apply  # untyped in torch
            note = partial(_note, passing, place, select, columns)
            if is_alone:
                leaf.register_hook(note)
            seen[place] = apply(leaf, None if is_alone else note)
    return passing, tree_unflatten(seen, spec)


class _Passed(torch.autograd.Function):
    """A tensor as it is, whose gradient is told to `note`, if any, on its way back.

    A view of it would not do: a network that adds to it in place would change what it is a view of.
    """

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, note: Callable[[torch.Tensor], None] | None
    ) -> torch.Tensor:
        ctx.note = note
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        (gradient,) = gradients
        if ctx.note is not None:
            ctx.note(gradient)
        return gradient, None


def _note(
    passing: Passing, place: int, select: Select, columns: Read | None, gradient: torch.Tensor
) -> None:
    passing.gradients[place] = _copied(gradient, select)
    if columns is not None:
        passing.column_gradient = _host(columns(gradient))


def is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _copied(value: Any, select: Select) -> Any:
    return _host(select(value.detach())) if isinstance(value, torch.Tensor) else value


def _host(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().to("cpu", copy=True)
