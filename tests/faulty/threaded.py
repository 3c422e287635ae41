"""A workload whose import starts a thread, which no fork has."""

from __future__ import annotations

import threading

from faulty.misbehaving import Misbehaving

threading.Thread(target=threading.Event().wait, name="keeper", daemon=True).start()

WORKLOAD = Misbehaving
