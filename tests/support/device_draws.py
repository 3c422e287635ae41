"""Draws on the processor by the operations of a device."""

from collections.abc import Iterable

import torch

from appliance.generator.maps import Map
from workloads.parts.drawing import drawn
from workloads.parts.drawing.device_tensors import Expected
from workloads.parts.drawing.drawn import Wanted

HOST = torch.device("cpu")


class DeviceDraws:
    """Makes tensors as a device does, and notes their names."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.names: list[str] = []
        self.expected = Expected()

    def expect(self, wanted: Iterable[Wanted]) -> None:
        self.expected.add(drawn.described(self.seed, *one) for one in wanted)

    def tensor(
        self, name: str, values: Map, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> torch.Tensor:
        self.names.append(name)
        one = drawn.described(self.seed, name, values, dtype, shape)
        made = self.expected.take(one, HOST)
        return drawn.drawn_by_device(one, HOST) if made is None else made[0]


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
