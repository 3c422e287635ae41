"""One call of a module again in float64, in which the modules that it calls answer as they did.

So what is followed is the module's own part alone: attention, sums beside a branch, activations and
losses. What it gives to each module that it calls is held to what that was given on the device,
and so are the gradients that it sends there; it goes on from the device's answers.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from workloads.parts.auditing.calls import Call, Passing, is_floating
from workloads.parts.auditing.choices import Choice, Choosing
from workloads.parts.auditing.errors import Errors, Named
from workloads.parts.auditing.rounded import Rounded
from workloads.parts.distributed.tensors import whole

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_hooks",
    "_backward_pre_hooks",
)
Twins = dict[str, torch.Tensor]
FLOOR = 0.03
"""Share of the largest gradient in one call below which another one's norm is no yardstick.

Those of queries and keys are what is left of terms that all but cancel."""
Results = Callable[[Any], Iterable[Any]]


def follow_call(call: Call, errors: Errors, rounded: torch.dtype | None = None) -> Twins:
    """Add the errors of one call; the gradients of its own weights, by their names in the module.

    Those are of the rows that were copied. `rounded`: the format in which roundings are tried, and
    what they cost is allowed.
    """
    if rounded is not None:
        results: Named = {}
        errors.recording = results
        with Rounded(rounded):
            _followed(call, errors)
        errors.recording, errors.rounded = None, results
    own = _followed(call, errors)
    errors.rounded = {}
    return own


def _followed(call: Call, errors: Errors) -> Twins:
    twin, own, queues = _twin_of(call, errors)
    _choose(call, twin, errors)
    arguments, keywords = tree_unflatten(_doubled(call.given), call.given.spec)
    entered, _ = tree_flatten((arguments, keywords))
    made, _ = tree_flatten(twin.forward(*arguments, **keywords))
    output = call.output()
    for place, exact in _paired(made, output.values, call.path, errors):
        errors.compare("outputs", call.path, output.values[place], exact)
    errors.floor = FLOOR * _largest_gradient(call)
    _go_back(made, output, call.path, errors)
    for place, gradient in call.given.gradients.items():
        if place in call.given.shared and not call.is_whole:
            continue
        errors.compare("gradients", call.path, gradient, _gradient_of(entered[place]), errors.floor)
    _require_all_called(queues, errors)
    return _gradients(own)


def _choose(call: Call, twin: nn.Module, errors: Errors) -> None:
    """Have the twin choose as the module did on the device."""
    if not isinstance(call.module, Choosing):
        return
    output = call.output()
    index = call.module.chosen(tree_unflatten(output.values, output.spec))
    twin.__dict__["choice"] = None if index is None else Choice(index=index, errors=errors)


def follow_model(
    root: Call, batch: dict[str, torch.Tensor], results: Results, errors: Errors, scale: float
) -> tuple[tuple[torch.Tensor, torch.Tensor], Twins]:
    """Loss and logits of a model from what it called, and the gradients of its own weights.

    `root` is a call of the model by `batch`, on all rows; `scale` multiplies the loss on the way
    back.
    """
    twin, own, queues = _twin_of(root, errors)
    doubled = {n: t.double() if t.is_floating_point() else t for n, t in batch.items()}
    loss, logits = results(twin.forward(**doubled))
    errors.floor = 0.0
    torch.autograd.backward(loss * scale)
    _require_all_called(queues, errors)
    return (loss.detach(), logits.detach()), _gradients(own)


def _gradients(own: Twins) -> Twins:
    """Of those that the module itself used."""
    return {name: one.grad for name, one in own.items() if one.grad is not None}


def _largest_gradient(call: Call) -> float:
    """The largest norm of what came back to the modules that it called."""
    gradients = [one for child in call.children for one in child.output().gradients.values()]
    return max((one.double().norm().item() for one in gradients), default=0.0)


def _gradient_of(tensor: torch.Tensor) -> torch.Tensor:
    """Zero where nothing came back, as a device may say that it sent zeros."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def _doubled(passing: Passing) -> list[Any]:
    """The values with floats in float64; those that had a gradient ask for one."""
    values = []
    for place, value in enumerate(passing.values):
        one = value.double() if is_floating(value) else value
        if place in passing.gradients:
            one = one.detach().clone().requires_grad_()
        values.append(one)
    return values


def _paired(
    made: list[Any], actual: list[Any], path: str, errors: Errors
) -> Iterable[tuple[int, torch.Tensor]]:
    """Places and values of tensors of floats; a failure where there are not as many.

    Or where a tensor of integers is another one: numbers of tokens and buckets are not rounded.
    """
    if len(made) != len(actual):
        errors.fail("outputs", path)
        return
    for place, (exact, other) in enumerate(zip(made, actual, strict=True)):
        if is_floating(other):
            yield place, exact
        elif isinstance(other, torch.Tensor) and not _is_same(exact, other):
            errors.fail("outputs", path)


def _is_same(exact: Any, other: torch.Tensor) -> bool:
    return isinstance(exact, torch.Tensor) and torch.equal(exact, other)


def _go_back(made: list[Any], output: Passing, path: str, errors: Errors) -> None:
    pairs = [
        (made[place], gradient.double())
        for place, gradient in output.gradients.items()
        if is_floating(made[place]) and made[place].requires_grad
    ]
    if len(pairs) < len(output.gradients):
        errors.fail("gradients", path)
    if pairs and all(one.shape == gradient.shape for one, gradient in pairs):
        torch.autograd.backward([one for one, _ in pairs], [gradient for _, gradient in pairs])


# ------------------------------------------------------------------ a module whose parts answer


def _twin_of(call: Call, errors: Errors) -> tuple[nn.Module, Twins, dict[str, deque[Call]]]:
    queues: dict[str, deque[Call]] = {}
    for child in call.children:
        queues.setdefault(child.path, deque()).append(child)
    ids = {id(child.module): child.path for child in call.children}
    twins = _Twinning(ids=ids, queues=queues, errors=errors, own={})
    return twins.of(call.module, "", is_hollow=False), twins.own, queues


@dataclass(frozen=True, kw_only=True)
class _Twinning:
    """Copies of a module and of those inside of it, in float64 on the host.

    A module that was called answers from its queue and has no values, nor has what lies in it; of
    all others the weights are there, and entered in `own`.
    """

    ids: dict[int, str]
    queues: dict[str, deque[Call]]
    errors: Errors
    own: Twins

    def of(self, module: nn.Module, path: str, *, is_hollow: bool) -> nn.Module:
        twin: nn.Module = object.__new__(type(module))  # a module in shares would build itself
        twin.__dict__.update(module.__dict__)
        _without_hooks(twin)
        called = self.ids.get(id(module)) if path else None
        is_hollow = is_hollow or called is not None
        make = _hollow if is_hollow else _double
        for kind in ("_parameters", "_buffers"):
            values = {name: make(one) for name, one in module.__dict__[kind].items()}
            twin.__dict__[kind] = values
            if not is_hollow:
                self.own.update({f"{path}{n}": v for n, v in values.items() if v is not None})
        twin.__dict__["_modules"] = {
            name: None if child is None else self.of(child, f"{path}{name}.", is_hollow=is_hollow)
            for name, child in module.__dict__["_modules"].items()
        }
        if called is not None:
            twin.__dict__["forward"] = partial(_answer, called, self.queues[called], self.errors)
        return twin


def _without_hooks(twin: nn.Module) -> None:
    for name in _HOOKS:
        if name in twin.__dict__:
            twin.__dict__[name] = OrderedDict()
    if getattr(twin, "gradient_checkpointing", False):
        twin.__dict__["gradient_checkpointing"] = False


def _double(tensor: torch.Tensor | None) -> torch.Tensor | None:
    if tensor is None:
        return None
    value = whole(tensor.detach()).cpu()
    if not value.is_floating_point():
        return value.clone()
    return value.double().clone().requires_grad_(tensor.requires_grad)


def _hollow(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """A tensor of this shape in float64 that takes no memory, for who asks what kind it is."""
    if tensor is None or not tensor.is_floating_point():
        return tensor
    return torch.zeros((), dtype=torch.float64).expand(tensor.shape)


def _answer(path: str, queue: deque[Call], errors: Errors, *arguments: Any, **keywords: Any) -> Any:
    """What a module made on the device, whatever it is given; that is held to what it was given."""
    if not queue:
        raise RuntimeError(f"{path} is called more often in float64 than it was on the device")
    call = queue.popleft()
    leaves, _ = tree_flatten((arguments, keywords))
    for place, exact in _paired(leaves, call.given.values, f"{path} is given", errors):
        errors.compare("outputs", f"what {path} is given", call.given.values[place], exact)
    output = call.output()
    values = [one.double() if is_floating(one) else one for one in output.values]
    places = sorted(output.gradients)
    if places:
        entered = [leaf for leaf in leaves if is_floating(leaf)]
        taken = [place for place, leaf in enumerate(leaves) if is_floating(leaf)]
        apply: Any = _Answered.apply  # untyped in torch
        begun = torch.zeros((), dtype=torch.float64, requires_grad=True)
        answers = apply(call, errors, (places, taken), begun, *entered)
        for place, value in zip(places, answers, strict=True):
            values[place] = value
    return tree_unflatten(values, output.spec)


class _Answered(torch.autograd.Function):
    """A module's answers, and on the way back the gradients that it sent on the device."""

    @staticmethod
    def forward(
        ctx: Any,
        call: Call,
        errors: Errors,
        places: tuple[list[int], list[int]],
        begun: torch.Tensor,
        *entered: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        del begun, entered
        ctx.call, ctx.errors, ctx.places = call, errors, places
        return tuple(call.output().values[place].double() for place in places[0])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        call, (made, taken) = ctx.call, ctx.places
        for place, exact in zip(made, gradients, strict=True):
            if place in call.output().shared and not call.is_whole:
                continue
            actual = call.output().gradients[place]
            floor = ctx.errors.floor
            ctx.errors.compare("gradients", f"what {call.path} is sent", actual, exact, floor)
        sent = [call.given.gradients.get(place) for place in taken]
        return (None, None, None, None, *(None if one is None else one.double() for one in sent))


def _require_all_called(queues: dict[str, deque[Call]], errors: Errors) -> None:
    for path, queue in queues.items():
        if queue:
            errors.fail("outputs", f"{path} is called less often in float64")
