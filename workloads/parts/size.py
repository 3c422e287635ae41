"""How large a model is and what a pass through it costs, counted without its memory.

Both are counted on torch's meta device, where tensors have shapes and no values, from the same
model that runs: so a figure cannot drift from the code that it describes.
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
