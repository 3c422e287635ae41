"""Seconds of builds on the recorded H100 that are their host's for the most part, by their parts.

What the host does was measured on another one (measure_builds.py) and is scaled as other parts of
the host are (host_seconds.py); an operation that a build hands to its device takes what one takes
in a step. What a device does where torch or JAX first use it follows from two builds that the H100
has timed: it is what these took longer than their host's part is predicted to take.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import host_seconds

Library = Literal["torch", "jax"]
ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "tests" / "recorded" / "host_builds.json"
JOURNAL = ROOT / "tests" / "recorded" / "h100_0_12" / "rows_b.jsonl.xz"
TIMED: Mapping[Library, str] = {"torch": "recursiongfn", "jax": "brax"}
"""By library the row whose build an H100 has timed; of `brax` until JAX refused to compile."""
OF_JAX = frozenset({"brax", "ppo"})
CORES = 8
"""Of the H100's host, of two threads each."""
EMULATED = frozenset({"torchatari"})
"""Rows whose shared part is emulators', which read little memory: as many count as have a core."""


@cache
def figures() -> Mapping[str, Any]:
    """What was measured."""
    read: Mapping[str, Any] = json.loads(RECORDED.read_text())
    return read


@cache
def timed() -> Mapping[str, float]:
    """Seconds of builds in the journal, by row."""
    made = {}
    for line in lzma.decompress(JOURNAL.read_bytes()).splitlines():
        event = json.loads(line)["event"]
        if event["kind"] == "stage_times":
            made[event["launch"].partition("@")[0]] = 1e-9 * int(event["wall_ns"]["build"])
    return made


def host_part(
    measured: Mapping[str, float], factor: float, threads: int = host_seconds.FED
) -> float:
    """Seconds of the H100's host for what was measured on another one."""
    return factor * host_seconds.scaling(measured).at(threads)


def first_use(library: Library, factor: float) -> float:
    """What a library and its device took longer, where they are first used."""
    row = TIMED[library]
    return max(0.0, timed()[row] - host_part(figures()["timed"][row], factor))


def seconds(row: str, factor: float, operation: float) -> float:
    """Seconds of a row's build."""
    library: Library = "jax" if row in OF_JAX else "torch"
    handed = operation * int(figures()["operations"].get(row, 0))
    threads = CORES if row in EMULATED else host_seconds.FED
    host = host_part(figures()["builds"][row], factor, threads)
    return host + handed + first_use(library, factor)
