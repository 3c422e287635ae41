"""Units and quantities that files may name, with their factors to SI."""

from __future__ import annotations

from collections.abc import Mapping

RATES = ("units_per_second", "flops_per_second", "bytes_per_second")
UNITS: Mapping[str, tuple[str, float]] = {
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "us": ("s", 1e-6),
    "FLOP/s": ("FLOP/s", 1.0),
    "GFLOP/s": ("FLOP/s", 1e9),
    "TFLOP/s": ("FLOP/s", 1e12),
    "PFLOP/s": ("FLOP/s", 1e15),
    "B/s": ("B/s", 1.0),
    "MB/s": ("B/s", 1e6),
    "GB/s": ("B/s", 1e9),
    "TB/s": ("B/s", 1e12),
    "steps": ("steps", 1.0),
    "B": ("B", 1.0),
    "kB": ("B", 1e3),
    "MB": ("B", 1e6),
    "GB": ("B", 1e9),
    "TB": ("B", 1e12),
    "KiB": ("B", 2.0**10),
    "MiB": ("B", 2.0**20),
    "GiB": ("B", 2.0**30),
    "TiB": ("B", 2.0**40),
    "bit/s": ("bit/s", 1.0),
    "Mbit/s": ("bit/s", 1e6),
    "Gbit/s": ("bit/s", 1e9),
    "T/s": ("T/s", 1.0),
    "MT/s": ("T/s", 1e6),
    "Hz": ("Hz", 1.0),
    "kHz": ("Hz", 1e3),
    "MHz": ("Hz", 1e6),
    "GHz": ("Hz", 1e9),
    "W": ("W", 1.0),
    "kW": ("W", 1e3),
    "°C": ("°C", 1.0),
    "bits": ("bits", 1.0),
    "processors": ("processors", 1.0),
}
"""Units in which people may write: the SI unit and how many of it one is."""
FACT_UNITS: Mapping[str, str] = {
    "bytes": "B",
    "bytes per second": "B/s",
    "bytes/s": "B/s",
    "bytes_per_second": "B/s",
    "transfers/s": "T/s",
    "hertz": "Hz",
    "watts": "W",
    "celsius": "°C",
    "seconds": "s",
}
"""The units of facts that are written out: what they are called in `UNITS`."""
METRIC_UNITS: Mapping[str, str] = {
    "step_seconds": "s",
    "first_step_seconds": "s",
    "latency_seconds": "s",
    "seconds_to_target": "s",
    "steps_to_target": "steps",
    "flops_per_second": "FLOP/s",
    "bytes_per_second": "B/s",
    "units_per_second": "",  # the workload's own, which a limit need not name
    "stall_rate": "",
    "stall_share": "",
    "slow_launch_rate": "",
    "drift_over_run": "",
    "drift_per_30_minutes": "",
    "throughput_ratio": "",
}
"""The SI unit of each metric that is judged by times."""
LARGEST_INT = 2**53 - 1  # beyond it JSON numbers are not exact
FORMATS = ("float64", "float32", "tf32", "bfloat16", "float16", "float8", "float4")
QUANTITIES: Mapping[str, str] = {
    **{f"{name}_flops_per_second": "FLOP/s" for name in FORMATS},
    **{f"{name}_matrix_flops_per_second": "FLOP/s" for name in ("float64", "float32")},
    "int8_operations_per_second": "OP/s",
    "memory_bytes_per_second": "B/s",
    "memory_bytes": "B",
}
"""What a device file may state, with its unit; matrix units of 64 and 32 bits are kept apart."""
