"""What verifying a long burn-in costs: processor time of `bench verify`, and its memory.

The run is simulated, and recorded and signed by the code of production
(`tests/support/long_burn_in.py`). Its pages are the least that carry its files; pages cost a run of
any length the same. The times are of the child in which files are parsed and rulings derived again.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

HOURS, DEVICES = 168, 8
AIM_BYTES, AIM_SECONDS, AIM_MEGABYTES = 50e6, 10, 500


def _children() -> tuple[float, float]:
    """Processor seconds of all children so far, and megabytes of the largest."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024e-6


def measure_long_journal(hours: float = HOURS, devices: int = DEVICES) -> None:
    """Make a run in a child, and verify it in another."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.long_burn_in import sealed_long  # noqa: PLC0415

    from appliance.stress.kinds import KINDS  # noqa: PLC0415
    from appliance.verification.facts import shipped  # noqa: PLC0415
    from appliance.verification.terms import Terms  # noqa: PLC0415
    from appliance.verification.verify import verify_confined  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = sealed_long(hours, devices, Path(name) / "run", stress=",".join(KINDS))
        size = (folder / "journal.jsonl").stat().st_size
        facts = replace(shipped(), file=replace(shipped().file, released=""))  # of no day
        before, _ = _children()
        result = verify_confined(folder, Terms(allow_development=True, facts=facts))
        after, megabytes = _children()
    if result.faults:
        raise SystemExit(f"long_journal: {result.faults[0]}")
    print(
        f"long_journal: {hours:g} h of {devices} devices with all stress, {size / 1e6:.1f} MB "
        f"(aim: {AIM_BYTES / 1e6:.0f} MB), {result.verdict}; verified in {after - before:.1f} s of "
        f"processor time (aim: {AIM_SECONDS} s) and {megabytes:.0f} MB (aim: {AIM_MEGABYTES} MB)"
    )
