"""Every random number of a run derives from one secret of 32 bytes, by what it is for.

So the same seed makes the same plan and the same inputs, and nobody chooses one of them after
seeing a result.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


def derive_seed(seed: str, label: str) -> int:
    """63-bit number for `label` from the run's seed (HKDF-SHA256, RFC 5869)."""
    kdf = HKDF(algorithm=SHA256(), length=8, salt=None, info=f"bench:{label}".encode())
    return int.from_bytes(kdf.derive(bytes.fromhex(seed)), "big") >> 1
