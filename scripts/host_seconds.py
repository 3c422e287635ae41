"""What a part of a launch takes on the recorded host, of what it takes on another one.

By Amdahl's law (thread_scaling.py) on as many threads as the product uses there and the host's
memory feeds, times what a core of that host is slower at such work. How much slower follows from
what both hosts took for the same work of version 0.4.0: the recorded one in its journals, the other
one measured (recorded_checks.py). None counts as faster. docs/reference/device-budget.md states it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from thread_scaling import Scaling

Kind = Literal["products", "copies", "sums", "digests"]
THREADS = 16
"""Of the recorded host, all of which a launch on its one device has."""
FED = 4
"""Threads on which a part counts that reads or writes memory, of what the recorded host's feeds."""
OF_KIND: Mapping[Kind, tuple[tuple[str, str], ...]] = {
    "products": (
        ("gemm-bf16", "check"),
        ("gemm-fp16", "check"),
        ("device-to-host-pageable", "check"),
    ),
    "copies": (("device-to-host-pageable", "check"),),
    "sums": (("host-memory", "check"),),
    "digests": (("device-to-host-pageable", "digest"), ("host-memory", "digest")),
}
"""Cases and parts of 0.4.0 that say how much slower work of a kind is; the largest counts. Checks
of products draw numbers too, as those of copies do. Digests are of what lay on the host: those of
products have a copy from the device in them."""


def scaling(figures: Mapping[str, float]) -> Scaling:
    """What scripts/measure_host_parts.py wrote of a part."""
    return Scaling(**figures)


def kind_of(case: str, part: str) -> Kind:
    """What the host does in a part of a case of `node`: a build draws numbers, like a copy's check.

    So does any other check, but what it computes of them may be slower.
    """
    if part in ("digest", "build"):
        return "digests" if part == "digest" else "copies"
    if case.startswith("gemm"):
        return "products"
    return "sums" if case in ("memory", "host-memory") else "copies"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Seconds of one part of 0.4.0: `predicted` for the recorded host, and `recorded` there."""

    case: str
    part: str
    predicted: float
    recorded: float

    @property
    def ratio(self) -> float:
        return self.recorded / self.predicted


def predicted_before(part: str, case: str, figures: Mapping[str, float]) -> float:
    """What the model says of a part of 0.4.0, which checked products alone on several threads."""
    if part == "check" and case.startswith("gemm"):
        return scaling(figures).at(FED)
    return figures["one"]


def slower(compared: Mapping[tuple[str, str], Compared]) -> Mapping[Kind, float]:
    """By the kind of work what the recorded host takes longer than predicted: 1 at least."""
    return {
        kind: max(1.0, *(compared[one].ratio for one in parts)) for kind, parts in OF_KIND.items()
    }


def hashing_threads(pieces: int) -> float:
    """Threads that hash an array of so many pieces: in the last round some have none left."""
    return pieces / math.ceil(pieces / THREADS)


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Of a part `scaled` to the recorded host, and `serial`: on one core of that host.

    `measured` is its processor time on one thread of the measured host.
    """

    scaled: float = 0.0
    serial: float = 0.0
    measured: float = 0.0


def seconds(part: Scaling, kind: Kind, factors: Mapping[Kind, float], threads: float) -> Seconds:
    """Seconds of a part on so many threads of the recorded host."""
    factor = factors[kind]
    return Seconds(scaled=factor * part.at(threads), serial=factor * part.one, measured=part.one)
