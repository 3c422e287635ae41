"""Gradients of kernels as products are those of torch's convolutions in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from workloads.parts.auditing import layers

CASES: list[tuple[Any, tuple[int, ...]]] = [
    (nn.Conv2d(16, 16, 7, padding=3, groups=16), (14, 15)),
    (nn.Conv2d(4, 4, (3, 5), padding=(0, 2), groups=4), (9, 12)),
    (nn.Conv2d(16, 16, 3, padding=1, stride=2), (15, 14)),
    (nn.Conv2d(16, 16, 3, padding="same", groups=2), (9, 9)),
    (nn.Conv2d(16, 32, 3, padding=1, groups=16), (9, 9)),
    (nn.Conv1d(16, 16, 5, padding=4, dilation=2), (20,)),
    (nn.Conv3d(3, 8, (2, 4, 4), stride=(2, 4, 4)), (4, 8, 8)),
]


@pytest.mark.parametrize(("module", "size"), CASES, ids=str)
def test_gradient_of_a_kernel_is_that_of_the_convolution(
    module: Any, size: tuple[int, ...]
) -> None:
    rng = torch.Generator().manual_seed(1)
    read = torch.randn(3, module.in_channels, *size, dtype=torch.float64, generator=rng)
    weight = module.weight.detach().double().requires_grad_()
    made = layers._convolved(module, read, weight, None)
    sent = torch.randn(made.shape, dtype=torch.float64, generator=rng)
    (exact,) = torch.autograd.grad(made, weight, sent)
    result = layers._weight_gradient(module, read, weight.detach(), sent)
    assert (result - exact).norm() <= 1e-14 * exact.norm()
