"""Draws on the processor by the operations of a device."""

import torch

from appliance.generator.maps import Map
from workloads.parts.drawing import drawn


class DeviceDraws:
    """Makes tensors as a device does, and notes their names."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.names: list[str] = []

    def tensor(
        self, name: str, values: Map, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> torch.Tensor:
        self.names.append(name)
        one = drawn.described(self.seed, name, values, dtype, shape)
        return drawn.drawn_by_device(one, torch.device("cpu"))


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
