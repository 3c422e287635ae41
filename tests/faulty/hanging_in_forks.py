"""A workload whose import hangs every fork of the process, as a library with a lock would."""

from __future__ import annotations

import os
import threading

from faulty.misbehaving import Misbehaving


def _wait_for_a_lock_that_nobody_frees() -> None:
    threading.Event().wait()


os.register_at_fork(after_in_child=_wait_for_a_lock_that_nobody_frees)

WORKLOAD = Misbehaving
