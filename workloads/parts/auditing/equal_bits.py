"""What a pass over many bits says, made once a run and read by each launch that has the same bits.

What says nothing but what follows from some tensors says it of the same bits in any launch. The
untimed launch of a case keeps it as JSON with the fingerprint of all that was read
(`fingerprint`); a launch whose fingerprint is another makes its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from workloads.contract.target import Artifacts

Made = TypeVar("Made")
FEWEST = 2**26
"""Elements from which on a pass takes longer than their fingerprint: a second on two cores."""


def once(
    artifacts: Artifacts, name: str, seen: Callable[[], str], make: Callable[[], Made]
) -> Made:
    """What `make` makes of bits with the fingerprint `seen`: lists, mappings and numbers.

    In the untimed launch it is made and kept in the file `name`, in others read from it.
    """
    made: list[Made] = []

    def keep(path: Path) -> None:
        made.append(make())
        path.write_text(json.dumps({"seen": seen(), "made": made[0]}))

    path = artifacts.once(name, keep)
    if made:
        return made[0]
    kept = json.loads(path.read_bytes())
    if kept["seen"] != seen():
        return make()
    same: Made = kept["made"]
    return same
