"""What float64 makes of one layer's call: its output, and the gradients of its input and weights.

A product is followed for the drawn rows and channels, from all that they come of; the gradient of
its weight for the drawn channels on both sides, over all rows. A batch normalisation is followed
for the drawn channels, over all rows. What else normalises has its weights' gradients followed from
its own output, which divided by the weight is the normalised input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from workloads.parts.auditing.calls import Call
from workloads.parts.auditing.channels import Channels, Convolution, is_batch_norm, is_norm
from workloads.parts.auditing.errors import Errors
from workloads.parts.auditing.selection import Rows
from workloads.parts.auditing.weights import Sums
from workloads.parts.distributed.tensors import whole

_CONVOLVE: dict[type, Any] = {
    nn.Conv1d: functional.conv1d,
    nn.Conv2d: functional.conv2d,
    nn.Conv3d: functional.conv3d,
}
_PLANE = 4
"""Dimensions of the weight of a convolution of planes."""
Statistics = dict[str, tuple[torch.Tensor, torch.Tensor]]
"""By the path of a batch normalisation: channels, and their mean and variance (2, channels)."""


def is_followed_alone(call: Call) -> bool:
    """Whether the outputs of this layer are followed here, and not by running all of it again."""
    return call.channels is not None and not is_norm(call.module)


def follow_layer(call: Call, rows: Rows, errors: Errors, sums: Sums, found: Statistics) -> None:
    """Add the errors of a layer whose channels are drawn."""
    module, channels = call.module, call.channels
    assert channels is not None  # noqa: S101 - whoever calls has seen to it
    if isinstance(module, nn.Linear):
        _follow_linear(call, channels, module, rows, errors)
        _add_linear(call, channels, module, sums)
    elif isinstance(module, Convolution):
        _follow_convolution(call, channels, module, rows, errors)
        _add_convolution(call, channels, module, sums)
    elif isinstance(module, nn.Embedding):
        _follow_table(call, channels, module, rows, errors)
        _add_table(call, channels, module, sums)
    elif is_batch_norm(module):
        _follow_batch_norm(call, channels, errors, sums, found)
    else:
        _add_norm(call, channels, sums)


def _rows(call: Call, rows: Rows, tensor: torch.Tensor | None) -> torch.Tensor | None:
    """The drawn rows in float64, of a tensor that may have all."""
    if tensor is None:
        return None
    return (rows.of(tensor) if call.is_whole else tensor).double()


def _values(weight: torch.Tensor, index: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Part of a weight in float64 on the host."""
    all_of_it = whole(weight.detach())
    return all_of_it.index_select(dim, index.to(all_of_it.device)).cpu().double()


def _two(index: torch.Tensor, other: torch.Tensor | None) -> Any:
    """What picks rows, and columns if there are some, of a whole gradient."""
    if other is None:
        return lambda tensor: tensor[index.to(tensor.device)]
    return lambda tensor: tensor[index.to(tensor.device)][:, other.to(tensor.device)]


# ------------------------------------------------------------------ products


def _follow_linear(
    call: Call, channels: Channels, module: nn.Linear, rows: Rows, errors: Errors
) -> None:
    given, made = call.given, call.output()
    entered = _rows(call, rows, given.first())
    assert entered is not None and channels.columns is not None  # noqa: S101, PT018 - of a product
    exact = entered @ _values(module.weight, channels.rows).T
    if module.bias is not None:
        exact += _values(module.bias, channels.rows)
    actual = _rows(call, rows, made.first())
    assert actual is not None  # noqa: S101 - the tensor is there
    errors.compare("outputs", call.path, actual[..., channels.rows], exact)
    gradient, sent = (_rows(call, rows, one.gradient()) for one in (made, given))
    if gradient is not None and sent is not None:
        exact = gradient @ _values(module.weight, channels.columns, 1)
        errors.compare("gradients", call.path, sent[..., channels.columns], exact)


def _add_linear(call: Call, channels: Channels, module: nn.Linear, sums: Sums) -> None:
    entered, gradient = call.given.columns, call.output().column_gradient
    if entered is None or gradient is None:
        return
    x, dy = (one.double().flatten(0, -2) for one in (entered, gradient))
    pick = _two(channels.rows, channels.columns)
    sums.add(module.weight, pick, dy.T @ x, dy.square().T @ x.square())
    if module.bias is not None:
        sums.add(module.bias, _two(channels.rows, None), dy.sum(0), dy.square().sum(0))


# ------------------------------------------------------------------ convolutions


def _convolved(
    module: Convolution, values: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """The module's convolution of these channels by this part of its weight."""
    function = next(one for kind, one in _CONVOLVE.items() if isinstance(module, kind))
    groups = values.shape[1] // weight.shape[1]
    result: torch.Tensor = function(
        values, weight, bias, module.stride, module.padding, module.dilation, groups
    )
    return result


def _follow_convolution(
    call: Call, channels: Channels, module: Convolution, rows: Rows, errors: Errors
) -> None:
    given, made = call.given, call.output()
    entered, actual = _rows(call, rows, given.first()), _rows(call, rows, made.first())
    assert entered is not None and actual is not None  # noqa: S101, PT018 - both are tensors
    assert channels.given is not None  # noqa: S101 - of a convolution
    read, outputs = entered[:, channels.given], channels.rows
    if channels.group is not None:
        inputs, outputs = _group(module, channels.group)
        read = entered[:, inputs]
    weight = _values(module.weight, channels.rows)
    bias = None if module.bias is None else _values(module.bias, channels.rows)
    exact = _convolved(module, read, weight, bias)
    errors.compare("outputs", call.path, actual[:, channels.rows], exact)
    gradient, sent = (_rows(call, rows, one.gradient()) for one in (made, given))
    if gradient is None or sent is None:
        return
    weight = _values(module.weight, outputs)
    if channels.columns is not None:
        weight = weight[:, channels.columns]
    gradient = gradient[:, outputs]
    read = entered[:, channels.given].requires_grad_()
    (exact,) = torch.autograd.grad(_convolved(module, read, weight, None), read, gradient)
    errors.compare("gradients", call.path, sent[:, channels.given], exact)


def _group(module: Convolution, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All channels of a group: what it is given, and what it makes."""
    given, made = (n // module.groups for n in (module.in_channels, module.out_channels))
    return torch.arange(given) + group * given, torch.arange(made) + group * made


def _add_convolution(call: Call, channels: Channels, module: Convolution, sums: Sums) -> None:
    entered, gradient = call.given.columns, call.output().column_gradient
    if entered is None or gradient is None:
        return
    weight = _values(module.weight, channels.rows)
    if channels.columns is not None:
        weight = weight[:, channels.columns]
    x, dy = entered.double(), gradient.double()
    exact, squares = (
        _weight_gradient(module, values, weight, sent)
        for values, sent in ((x, dy), (x.square(), dy.square()))
    )
    sums.add(module.weight, _two(channels.rows, channels.columns), exact, squares)
    if module.bias is not None:
        places = [dim for dim in range(dy.dim()) if dim != 1]
        pick = _two(channels.rows, None)
        sums.add(module.bias, pick, dy.sum(places), dy.square().sum(places))


def _weight_gradient(
    module: Convolution, values: torch.Tensor, weight: torch.Tensor, sent: torch.Tensor
) -> torch.Tensor:
    """Gradient of this part of a weight, as products: torch convolves in float64 on one thread.

    An element of a kernel is the sum over all places of what came back there times what was read a
    fixed step away.
    """
    groups = values.shape[1] // weight.shape[1]
    read = functional.pad(values, _padding(module))
    is_plain = set(module.stride) == {1} and set(module.dilation) == {1}
    if groups == len(weight) == values.shape[1] and weight.dim() == _PLANE and is_plain:
        return _along_rows(read, sent, weight)
    result = torch.empty_like(weight)
    split = sent.movedim(1, 0).reshape(groups, len(weight) // groups, -1)
    for offset in product(*map(range, weight.shape[2:])):
        places: Any = (..., *_places(module, offset, sent.shape[2:]))
        element: Any = (..., *offset)
        part = read[places]
        part = part.movedim(1, 0).reshape(groups, weight.shape[1], -1)
        result[element] = (split @ part.mT).flatten(0, 1)
    return result


def _places(module: Convolution, offset: Sequence[int], made: Sequence[int]) -> Iterator[slice]:
    """Where the element of a kernel reads, along each dimension of what it makes."""
    steps = zip(offset, made, module.stride, module.dilation, strict=True)
    for element, size, stride, dilation in steps:
        first = element * dilation
        yield slice(first, first + stride * (size - 1) + 1, stride)


def _padding(module: Convolution) -> list[int]:
    """Zeros before and after each dimension, the last first, as `functional.pad` takes them."""
    if isinstance(module.padding, str):
        return list(module._reversed_padding_repeated_twice)  # noqa: SLF001 - as the module pads
    return [one for size in reversed(module.padding) for one in (size, size)]


def _along_rows(read: torch.Tensor, sent: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The same of planes that are convolved each by its own kernel, by few products.

    A product of all rows that came back with those read so many rows below has the sums of one row
    of the kernel along its diagonals. It makes others too, and is faster all the same.
    """
    result = torch.empty_like(weight)
    height, width = weight.shape[2:]
    rows = read.movedim(1, 0).reshape(len(weight), -1, read.shape[3])
    padded = functional.pad(sent, (0, 0, 0, read.shape[2] - sent.shape[2]))
    back = padded.movedim(1, 0).reshape(len(weight), -1, sent.shape[3])
    for row in range(height):
        pairs = back[:, : back.shape[1] - row].mT @ rows[:, row:]
        for column in range(width):
            result[:, 0, row, column] = pairs.diagonal(column, 1, 2).sum(-1)
    return result


# ------------------------------------------------------------------ tables


def _follow_table(
    call: Call, channels: Channels, module: nn.Embedding, rows: Rows, errors: Errors
) -> None:
    numbers = call.given.first()
    numbers = rows.of(numbers) if call.is_whole else numbers
    read, places = torch.unique(numbers, return_inverse=True)
    exact = _values(module.weight, read)[:, channels.made][places]
    actual = _rows(call, rows, call.output().first())
    assert actual is not None  # noqa: S101 - the tensor is there
    errors.compare("outputs", call.path, actual[..., channels.made], exact)


def _add_table(call: Call, channels: Channels, module: nn.Embedding, sums: Sums) -> None:
    numbers, gradient = call.given.columns, call.output().column_gradient
    if numbers is None or gradient is None:
        return
    dy = gradient.double().flatten(0, -2)
    of_row = (numbers.flatten()[None] == channels.rows[:, None]).double()
    if module.padding_idx is not None:
        of_row[channels.rows == module.padding_idx] = 0.0
    pick = _two(channels.rows, channels.columns)
    sums.add(module.weight, pick, of_row @ dy, of_row @ dy.square())


# ------------------------------------------------------------------ normalisations


def _follow_batch_norm(
    call: Call, channels: Channels, errors: Errors, sums: Sums, found: Statistics
) -> None:
    """Follow all rows of the drawn channels, which know nothing of others."""
    module: Any = call.module
    given, made = call.given, call.output()
    assert given.columns is not None  # noqa: S101 - the channels of a batch normalisation
    x = given.columns.double().requires_grad_()
    weight, bias = (
        _values(one, channels.rows).requires_grad_() for one in (module.weight, module.bias)
    )
    exact = functional.batch_norm(x, None, None, weight, bias, training=True, eps=module.eps)
    errors.compare("outputs", call.path, made.columns, exact)
    places = [dim for dim in range(x.dim()) if dim != 1]
    variance, mean = torch.var_mean(x.detach(), places)
    found[call.path] = (channels.rows, torch.stack((mean, variance)))
    if made.column_gradient is None:
        return
    dy = made.column_gradient.double()
    torch.autograd.backward(exact, dy)
    if given.column_gradient is not None:
        errors.compare("gradients", call.path, given.column_gradient, x.grad)
    normal = functional.batch_norm(x.detach(), None, None, training=True, eps=module.eps)
    pick = _two(channels.rows, None)
    for one, terms in ((module.weight, dy * normal), (module.bias, dy)):
        sums.add(one, pick, terms.sum(places), terms.square().sum(places))


def _add_norm(call: Call, channels: Channels, sums: Sums) -> None:
    """Add the gradients of weight and bias, from the layer's own output."""
    module: Any = call.module
    made, gradient = call.output().columns, call.output().column_gradient
    if made is None or gradient is None:
        return
    y, dy = (one.double().movedim(channels.dim, -1).flatten(0, -2) for one in (made, gradient))
    weight, bias = _values(module.weight, channels.rows), getattr(module, "bias", None)
    pick = _two(channels.rows, None)
    if bias is not None:
        y = y - _values(bias, channels.rows)
        sums.add(bias, pick, dy.sum(0), dy.square().sum(0))
    terms = dy * y / weight.where(weight != 0, torch.inf)
    sums.add(module.weight, pick, terms.sum(0), terms.square().sum(0))
