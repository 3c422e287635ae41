"""Dense matrix multiply: the compute ceiling that every other workload is read against.

One step is one product C = A @ B of normally distributed data. Sampled rows and a random projection
of all rows (`parts/matmul/dense.py`) are held to the rounding that the dtype earns on average
(`parts/matmul/floating.py`). Small sizes keep the full inner dimension, because the bound grows
with it. The shape is fixed, so that devices can be compared; `gemm_search` looks for a better one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from appliance.records.json import Parameters
from workloads.parts.matmul.floating import FloatingProduct


@dataclass(frozen=True, kw_only=True)
class Gemm(FloatingProduct):
    summary: ClassVar[str] = "Dense matrix multiply, C = A @ B, normally distributed data"
    version: ClassVar[int] = 2
    small: ClassVar[Parameters] = {"m": 256, "n": 256}


WORKLOAD = Gemm
