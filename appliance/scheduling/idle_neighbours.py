"""Whether launches of a device model may be timed while the next one's process waits on the device.

Only where records show, in pairs of blocks, that steps of every kind take as long beside a process
that waits as alone. Without a record nothing waits there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from appliance.records.qualified import IdleNeighbour
from appliance.scheduling.launch_kinds import ruled
from appliance.statistics.tolerance import Equivalence, PairedRatio, paired_ratio

KINDS = ("bfloat16 product", "float32 product", "memory", "small operations")
"""Kinds of steps that each record has: held by operations, by memory, and by the host."""


def is_harmless(model: str, records: Iterable[IdleNeighbour]) -> bool:
    """Whether some record of the model shows it of every kind, and none shows a difference."""
    own = [one for one in records if one.model == model and not one.disturbed]
    found = [rulings(one) for one in own]
    differs = any("different" in each.values() for each in found)
    return not differs and any(_is_shown(each) for each in found)


def rulings(record: IdleNeighbour) -> Mapping[str, Equivalence | None]:
    """What the rule of launch kinds makes of a record's pairs; None where it rules nothing."""
    return {kind: ruled(ratio) for kind, ratio in ratios(record).items()}


def ratios(record: IdleNeighbour) -> Mapping[str, PairedRatio | None]:
    """By kind how many times as long steps take beside a process that waits."""
    return {
        kind: paired_ratio([(one.alone, one.beside) for one in pairs])
        for kind, pairs in record.pairs.items()
    }


def _is_shown(found: Mapping[str, Equivalence | None]) -> bool:
    return all(found.get(kind) == "equivalent" for kind in KINDS)
