"""How a process ended, in words: its exit status or signal, and what it wrote last."""

from __future__ import annotations

import os
import signal
from typing import BinaryIO

LONGEST_LAST_WORDS = 2000
"""Bytes of the end of a process's stderr that are reported: a traceback's end."""


def status_name(status: int) -> str:
    """An exit status, or the name of the signal that a negative one stands for."""
    return str(status) if status >= 0 else signal.Signals(-status).name


def last_words(stderr: BinaryIO) -> str:
    """The end of what was written to an open file."""
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - LONGEST_LAST_WORDS))
    return stderr.read().decode("utf-8", "replace").strip()
