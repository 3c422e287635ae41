"""The version of the appliance, and when it was released, in one place."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

VERSION = "0.15.0"
RELEASED = "2026-11-26"
"""The day of the release, as CHANGELOG.md has it: no run of this version can be older."""
WRONG_CLOCK = timedelta(days=1)
"""How far a node's clock may be wrong: one that is set to the wrong zone is so by less."""


def in_order(versions: Iterable[str]) -> list[str]:
    """Each version once, the oldest first: 0.9.0 before 0.11.0."""
    return sorted(set(versions), key=lambda one: ([int(n) for n in re.findall(r"\d+", one)], one))


def is_before_release(moment: datetime, released: str = RELEASED) -> bool:
    """Whether a moment by a node's clock is one at which a release did not exist."""
    return moment < datetime.fromisoformat(released).replace(tzinfo=UTC) - WRONG_CLOCK
