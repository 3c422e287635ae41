"""Float64 on a host whose memory would not hold all activations of a large model.

The libraries' models can make the activations of a layer anew in the backward pass instead of
keeping them. In float64 on the host that gives the same bits, for about a third more time; small
models are left as they are. Which layers can do so each library says of its own models.
"""

from __future__ import annotations

from typing import Any

import torch

LARGE = 300_000_000
"""Parameters from which on memory is worth more than time: 2.4 GB in float64, no activations."""
_SETTINGS = {"use_reentrant": False, "preserve_rng_state": False}
"""Nothing is drawn in a pass, so no generator's state has to be kept for the second time."""


def spare(model: torch.nn.Module, *, least: int = LARGE) -> int:
    """Keep fewer activations of a model with `least` parameters or more; how many parts agreed."""
    if sum(weight.numel() for weight in model.parameters()) < least:
        return 0
    return sum(_is_spared(module) for module in model.modules())


def _is_spared(module: Any) -> bool:
    if getattr(module, "supports_gradient_checkpointing", False) is True:
        module.activation_checkpointing_enable(_SETTINGS)
        return True
    if getattr(module, "_supports_gradient_checkpointing", False) is True:
        module.enable_gradient_checkpointing()
        return True
    return False
