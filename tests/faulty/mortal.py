"""A workload whose import ends the process that imports it for many, a fork server, by a signal."""

from __future__ import annotations

import os
import signal
import sys

from faulty.misbehaving import Misbehaving

if "serve" in sys.argv:
    os.write(2, b"the library aborts\n")
    os.kill(os.getpid(), signal.SIGABRT)

WORKLOAD = Misbehaving
