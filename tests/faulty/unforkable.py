"""A workload whose import spoils every fork of the process, as a library with a lock would."""

from __future__ import annotations

import os

from faulty.misbehaving import Misbehaving

os.register_at_fork(after_in_child=lambda: os._exit(5))

WORKLOAD = Misbehaving
