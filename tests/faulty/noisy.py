"""A workload whose import prints, in Python and below it."""

from __future__ import annotations

import os

from faulty.misbehaving import Misbehaving

print("noise")  # noqa: T201 - that is the misbehaviour
os.write(1, b"noise\n")

WORKLOAD = Misbehaving
