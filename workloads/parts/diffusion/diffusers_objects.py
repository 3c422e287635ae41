"""Objects of diffusers by the names of their classes; the library is imported when one is made.

Whoever lists or imports the workloads does not wait for it. A workload that makes one says so by
`builds_with = BUILDS_WITH`, so that the worker imports the library off its clock.
"""

from __future__ import annotations

from typing import Any, Literal

BUILDS_WITH = ("workloads.parts.diffusion.diffusers_classes",)

Class = Literal["AutoencoderKL", "DDPMScheduler", "FluxTransformer2DModel", "UNet2DConditionModel"]


def diffusers_object(name: Class, **settings: Any) -> Any:
    """The library's object, whose constructor has no types."""
    from workloads.parts.diffusion import diffusers_classes  # noqa: PLC0415 - slow to import, see there

    return getattr(diffusers_classes, name)(**settings)
