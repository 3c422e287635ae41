"""Whether a process may be forked: one fork of it computes, under a time limit.

It may if nothing that it has started outlives a fork's handlers (OpenBLAS ends its threads there)
and the fork's results are right.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from appliance.ipc.endings import last_words, status_name
from appliance.ipc.import_watch import ImportWatch

PROBE_SECONDS = 60.0
"""How long it may take: contexts of two libraries on a device, and a compilation."""
_ABORT_SECONDS = 2.0
"""How long a probe fork that hangs may take to write where it hangs."""
_PAUSE_SECONDS = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """Why a process may not be forked, empty if it may; the end of what its fork wrote to stderr.

    There are no last words of a process that may be forked. `importers` are the imports without
    which it might be, as far as they are known.
    """

    reason: str = ""
    last_words: str = ""
    importers: tuple[str, ...] = ()


def probed(imports: ImportWatch, compute: Callable[[], None], seconds: float) -> Probed:
    """Fork this process once; the fork has so many seconds to `compute`, which raises what is off.

    What it holds until now is set aside, so that a collection in a fork does not copy its pages.
    """
    gc.collect()
    gc.freeze()
    words = os.memfd_create("last words")
    with _stderr_into(words):  # before the fork, whose handlers may be what fails
        pid = os.fork()
        if pid == 0:
            _run(compute)
    started, importers = imports.outlived_fork(pid), imports.importers(pid)
    reasons = "; ".join(filter(None, (started, _ending(pid, seconds))))
    with os.fdopen(words, "rb") as file:
        if not reasons:
            return Probed()
        return Probed(reason=reasons, last_words=last_words(file), importers=importers)


def _run(compute: Callable[[], None]) -> NoReturn:
    """The probe fork: exit status 0 if it computed rightly, else 1 and why on its stderr."""
    status = 1
    try:
        compute()
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the parent reports it
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _ending(pid: int, seconds: float) -> str:
    """Empty once the probe fork has ended with success; else how it ended, or that it hung."""
    limit = f"the probe fork did not end within {seconds:g} s"
    status = _status_within(pid, seconds)
    if status is not None:
        return "" if status == 0 else f"the probe fork ended with {status_name(status)}"
    os.kill(pid, signal.SIGABRT)  # it writes where it hangs, if it can
    if _status_within(pid, _ABORT_SECONDS) is None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return limit


@contextlib.contextmanager
def _stderr_into(file: int) -> Iterator[None]:
    """While it is entered, stderr is this file, and a fatal signal writes a traceback to it."""
    own = os.dup(2)
    os.dup2(file, 2)
    faulthandler.enable()
    try:
        yield
    finally:
        faulthandler.disable()
        os.dup2(own, 2)
        os.close(own)


def _status_within(pid: int, seconds: float) -> int | None:
    """Exit status of a child, negative for a signal; None if it lives after so long."""
    deadline = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(_PAUSE_SECONDS)
