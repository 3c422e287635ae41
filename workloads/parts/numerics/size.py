"""How large a model is and what a pass through it costs, counted without its memory.

Both are counted on torch's meta device, where tensors have shapes and no values, from the same
model that runs: so a figure cannot drift from the code that it describes.

The rule for operations, the same for every workload: a product of an m x k with a k x n matrix is
2mnk, a convolution 2 for each weight and each value that it makes; nothing else counts. A
backward pass has the products of both gradients where both are wanted (not that of the images, or
of frozen weights). Attention is two products over the whole square of its lengths, whatever a
mask hides; and a batch whose shape a workload fixes counts whole, whatever of it has ended. Where
the number of products follows from what is drawn, its expectation is counted. What a device
computes on top, as activations made anew to save memory or the padding of a batch to a kernel's
liking, is not counted: more time for the same work is a lower rate.

The formulas are torch's, but for the backward pass of a convolution: torch counts the gradient of
the weights as if it were not grouped, which is as many times too much as there are groups (`torch.
utils.flop_counter.conv_backward_flop`, torch 2.8 to 2.13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import conv_flop_count, flop_registry, shape_wrapper

Shapes = Mapping[str, tuple[int, ...]]


def convolution_backward_flops(
    output: Sequence[int],
    inputs: Sequence[int],
    weight: Sequence[int],
    _bias: object,
    _stride: object,
    _padding: object,
    _dilation: object,
    transposed: bool,  # noqa: FBT001 - the same
    _output_padding: object,
    _groups: object,
    wanted: Sequence[bool],
    **_shapes: object,
) -> int:
    """Each gradient that is wanted, of the input and of the weights, has the forward's products.

    Shapes of the output's gradient, of the input and of the weight; the weight's has its groups.
    """
    forward = conv_flop_count(list(inputs), list(weight), list(output), transposed=transposed)
    return int(forward) * sum(wanted[:2])  # the third is the bias, which has none


_FORMULAS: Mapping[Any, Callable[..., int]] = {
    **flop_registry,
    torch.ops.aten.convolution_backward: shape_wrapper(convolution_backward_flops),  # type: ignore[no-untyped-call]
}


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the operations of the matrix products that are dispatched within it.

    torch's own FlopCounterMode counts by module as well, which doubles the time that it takes.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops: int = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        named = kwargs or {}
        output = func(*args, **named)
        formula = _FORMULAS.get(func.overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **named, out_val=output)
        return output


def count_parameters(make: Callable[[], torch.nn.Module]) -> int:
    """Number of parameters of the model that `make` builds; shared ones count once."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in make().parameters())


def count_flops(make: Callable[[], torch.Tensor], *, with_backward: bool = True) -> int:
    """Floating-point operations of matrix products in making a loss, and in its backward pass.

    Activations that a backward pass makes anew would be counted; for a model that does so,
    count the forward pass alone.
    """
    counter = OperationCounter()
    with torch.device("meta"), counter:
        with torch.set_grad_enabled(with_backward):
            loss = make()
        if with_backward:
            torch.autograd.backward(loss)
    return counter.flops


def count_training_flops(make: Callable[[], torch.nn.Module], inputs: Shapes) -> int:
    """Floating-point operations of matrix products in one forward and backward pass."""
    counter = OperationCounter()
    with torch.device("meta"), counter:
        make()(**_tensors(inputs)).loss.backward()
    return counter.flops


def count_inference_flops(make: Callable[[], torch.nn.Module], inputs: Shapes) -> int:
    """Floating-point operations of matrix products in one forward pass."""
    counter = OperationCounter()
    with torch.device("meta"), torch.no_grad(), counter:
        make().eval()(**_tensors(inputs))
    return counter.flops


def _tensors(inputs: Shapes) -> dict[str, torch.Tensor]:
    """Images are floating-point numbers; everything else is token or class numbers."""
    return {
        name: torch.empty(shape, dtype=torch.float32 if len(shape) == 4 else torch.long)  # noqa: PLR2004 - images have four dimensions
        for name, shape in inputs.items()
    }
