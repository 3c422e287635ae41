"""Llama 2 decoding: greedy generation with a key-value cache, bound by memory at batch 1.

What a step is, what its checks see and what was measured of them, `parts/language/decoding.py`
says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from appliance.records.json import Parameters
from workloads.contract.failures import ParameterError
from workloads.parts.language.decoding import Decoding

END = 2
"""Llama 2's token that ends a sequence."""


@dataclass(frozen=True, kw_only=True)
class Llama(Decoding):
    summary: ClassVar[str] = "Llama-2-7B shape, greedy decoding with a key-value cache"
    version: ClassVar[int] = 4
    small: ClassVar[Parameters] = {
        "vocabulary": 1000,
        "hidden": 256,
        "intermediate": 688,
        "layers": 3,
        "heads": 4,
        "prompt": 32,
        "new_tokens": 24,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "uniformly random tokens"
    domain: ClassVar[str] = "decoding"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocabulary <= END + 1:
            message = f"vocabulary is {self.vocabulary}: give {END + 2} or more"
            raise ParameterError(message)

    @property
    def ends(self) -> tuple[int, ...]:
        return (END,)

    @property
    def theta(self) -> float:
        return 10_000.0


WORKLOAD = Llama
