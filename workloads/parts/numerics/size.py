"""How large a model is and what a pass through it costs, counted without its memory.

Both are counted on torch's meta device, where tensors have shapes and no values, from the same
model that runs: so a figure cannot drift from the code that it describes.

The rule for operations, the same for every workload: a product of an m x k with a k x n matrix is
2mnk, a convolution 2 for each weight and each value that it makes; nothing else counts. A
backward pass has the products of both gradients where both are wanted (not that of the images, or
of frozen weights). Attention is two products over the whole square of its lengths, whatever a
mask hides; and a batch whose shape a workload fixes counts whole, whatever of it has ended. Where
the number of products follows from what is drawn, nothing is counted. What a device computes on
top, as activations made anew to save memory or the padding of a batch to a kernel's liking, is not
counted: more time for the same work is a lower rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch.utils.flop_counter import FlopCounterMode

Shapes = Mapping[str, tuple[int, ...]]


def count_parameters(make: Callable[[], torch.nn.Module]) -> int:
    """Number of parameters of the model that `make` builds; shared ones count once."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in make().parameters())


def count_flops(make: Callable[[], torch.Tensor], *, with_backward: bool = True) -> int:
    """Floating-point operations of matrix products in making a loss, and in its backward pass.

    Activations that a backward pass makes anew would be counted; for a model that does so,
    count the forward pass alone.
    """
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        with torch.set_grad_enabled(with_backward):
            loss = make()
        if with_backward:
            torch.autograd.backward(loss)
    return int(counter.get_total_flops())


def count_training_flops(make: Callable[[], torch.nn.Module], inputs: Shapes) -> int:
    """Floating-point operations of matrix products in one forward and backward pass."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        make()(**_tensors(inputs)).loss.backward()
    return int(counter.get_total_flops())


def count_inference_flops(make: Callable[[], torch.nn.Module], inputs: Shapes) -> int:
    """Floating-point operations of matrix products in one forward pass."""
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        make().eval()(**_tensors(inputs))
    return int(counter.get_total_flops())


def _tensors(inputs: Shapes) -> dict[str, torch.Tensor]:
    """Images are floating-point numbers; everything else is token or class numbers."""
    return {
        name: torch.empty(shape, dtype=torch.float32 if len(shape) == 4 else torch.long)  # noqa: PLR2004 - images have four dimensions
        for name, shape in inputs.items()
    }
