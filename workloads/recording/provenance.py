"""Where and with what a band was recorded."""

from __future__ import annotations

import datetime as dt
import platform
from pathlib import Path

import numpy as np
import torch

from workloads.parts.curves import bands

COMMAND = "scripts/record_bands.py"


def provenance() -> bands.Provenance:
    """This moment, this processor, these versions."""
    return bands.Provenance(
        utc=dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        processor=_processor(),
        torch=torch.__version__,
        numpy=np.__version__,
        script=COMMAND,
    )


def _processor() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{names[0] if names else platform.machine()} ({capability}), {len(names)} cores"
