"""Prints what becomes of every recorded machine: what the probe finds, and how its health is ruled.

    python tests/recorded/rulings.py

A run begins on the healthy machine of the record, and from the third launch on its devices answer
as the record says; a record without one is a machine that is as it is from the first launch on.
The rulings are those of the criteria `accelerator`, by the code that judges a real run.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from support.watched_runs import RECORDED, replayed, run_of  # noqa: E402 - where the tests are

from appliance.errors import UsageError  # noqa: E402

VENDORS = ("nvml", "rocm", "xpu")


def main() -> None:
    begun = {(one.vendor, one.name): one.healthy for one in RECORDED}
    for vendor in VENDORS:
        tool = replayed(vendor)
        for name in tool.names() if hasattr(tool, "names") else tool.NAMES:
            print(f"{vendor} {name}: {_line(vendor, name, begun.get((vendor, name), name))}")  # noqa: T201


def _line(vendor: str, name: str, healthy: str) -> str:
    try:
        result, devices = run_of(vendor, healthy, name)
    except UsageError as refusal:
        return f"refused by the probe: {refusal}"
    models = [device.model for device in devices]
    counted = ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models))
    open_ones = [
        one for one in result.rulings if one.required and one.ruling in ("fail", "inconclusive")
    ]
    reported = "; ".join(f"{one.criterion}: {one.explanation}" for one in open_ones[:2])
    more = f"; and {len(open_ones) - 2} more" if len(open_ones) > 2 else ""
    return f"{counted or 'no device'}: {result.verdict}{f' ({reported}{more})' if reported else ''}"


if __name__ == "__main__":
    main()
