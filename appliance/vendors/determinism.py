"""What makes a library that runs on devices of several vendors give the same bits each time."""

from __future__ import annotations

from collections.abc import Mapping

XLA: Mapping[str, str] = {"XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}
"""JAX compiles by XLA, for which this excludes operators that sum in any order, and the choice of
kernels by their times (openxla/xla, xla/xla.proto and pull request 12520)."""
