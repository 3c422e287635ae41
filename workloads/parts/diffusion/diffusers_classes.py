"""What the image rows take from diffusers, imported in one place.

For these the library loads its hooks, loaders and every kind of network, which takes as long as
torch itself does: 0.7 s of one core each (medians of five). So no module imports this one at its
top; `parts/diffusion/diffusers_objects.py` does when it makes something.
"""

from __future__ import annotations

from diffusers import AutoencoderKL, DDPMScheduler, FluxTransformer2DModel, UNet2DConditionModel

__all__ = ["AutoencoderKL", "DDPMScheduler", "FluxTransformer2DModel", "UNet2DConditionModel"]
