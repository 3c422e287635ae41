"""Levels of baselines as twelve long runs would give them."""

import math

from appliance.records.baseline import Level


def a_level(log_seconds: float, launch_sd: float, **fields: object) -> Level:
    """Runs of 40 launches without a level of their own, of which there are twelve."""
    values = {
        "log_seconds": log_seconds,
        "launch_sd": launch_sd,
        "within_sd": launch_sd,
        "within_freedom": 468,
        "run_sd": launch_sd / math.sqrt(40),
        "run_launches": 40,
        "freedom": 11,
        "correlation": 0.0,
        "error_sd": launch_sd / math.sqrt(480),
        "error_freedom": 11,
        "device_sd": None,
        "tolerance": None,
    }
    return Level(**{**values, **fields})  # type: ignore[arg-type]
