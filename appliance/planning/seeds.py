"""Every random number of a run derives from one secret of 32 bytes, by what it is for.

So the same seed makes the same plan and the same inputs, and nobody chooses one of them after
seeing a result.
"""

from __future__ import annotations

import re

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_SECRET = re.compile("[0-9a-f]{64}")


def is_secret(text: str) -> bool:
    """Whether this is a secret of 32 bytes in hexadecimal, as it is written."""
    return _SECRET.fullmatch(text) is not None


def derive(secret: str, label: str, length: int) -> bytes:
    """So many bytes for `label` from a secret in hexadecimal (HKDF-SHA256, RFC 5869)."""
    kdf = HKDF(algorithm=SHA256(), length=length, salt=None, info=f"bench:{label}".encode())
    return kdf.derive(bytes.fromhex(secret))


def derive_seed(seed: str, label: str) -> int:
    """63-bit number for `label` from the run's seed."""
    return int.from_bytes(derive(seed, label, 8), "big") >> 1
