"""How much of a file that somebody else hands over is read: caps as data, in bytes.

They hold for signed files too, since anybody can sign with a key of his own. Each cap is far above
what bench writes under that name, and small enough that a file of this size is parsed in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

KIB = 2**10
MIB = 2**20

TOTAL = 256 * MIB
"""Of all files of a bundle together, unless a person asks for more (`bench verify --largest`)."""
UNKNOWN_JOURNAL = 16 * MIB
"""Of a journal that a signer whom nobody trusts has signed: so much is derived from in seconds."""
LARGEST_TOTAL = 64 * 1024 * MIB
MOST_FILES = 4096
"""Names in a bundle, those of logs/ included."""
TOML = 64 * KIB
TOML_KEY_PARTS = 16
"""Parts of a dotted key: Python's parser takes memory with their square."""
TOML_NESTING = 32
"""Arrays and inline tables inside each other."""
JOURNAL_LINE = 4 * MIB
MOST_VALUES = 1_500_000
"""Values of a JSON file of a run: the largest that bench writes, of 16 MiB, have a million."""
LOG = 2 * MIB
ATTACHED = 16 * MIB
"""Of all data that the pages carry; readers choke on larger PDFs, so a larger journal stays in the
folder."""
CERTIFICATE = 64 * KIB
TRUSTED = MIB
"""A file with the certificates of several authorities."""

BY_NAME: Mapping[str, int] = MappingProxyType(
    {
        "plan.json": 16 * MIB,
        "system.json": 4 * MIB,
        "criteria.toml": TOML,
        "baselines.json": 4 * MIB,
        "peaks.json": MIB,
        "qualified.json": 4 * MIB,
        "signer.json": CERTIFICATE,
        "order.toml": TOML,
        "challenge.json": 64 * KIB,
        "receipt.dsse.json": 64 * KIB,
        "verdict.json": 16 * MIB,
        "statement.dsse.json": 2 * MIB,
        "report.dsse.json": 64 * KIB,
        "report.html": 64 * MIB,
        "report.pdf": 32 * MIB,
    }
)
"""The journal has no cap of its own: the total is its cap."""


def of_name(name: str, total: int = TOTAL) -> int:
    """Most bytes of the file of this name in a bundle of `total` bytes at most."""
    if name.startswith("logs/"):
        return min(LOG, total)
    return min(BY_NAME.get(name, total), total)


def size_words(size: int) -> str:
    """A cap as a person reads it, as 64 KiB or 256 MiB."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"
