"""Memory of this process that the C library gives back to the kernel, and asks it for anew.

By default large pieces go back as soon as they are free, and each page of the next one is mapped
anew: a quarter of a microsecond of an idle host, several of one whose hypervisor or whose other
threads have a say. A check makes and drops as many large arrays as it has operators.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LONGEST = 2**25
"""Bytes of a piece that is kept at most, the most that glibc allows; others are mapped by
themselves, as before."""
KEPT = 2**28
"""Bytes that stay with the process when they are free."""


def keep() -> bool:
    """Keep what becomes free from now on, up to `KEPT`; whether the C library does that."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's own
    return set_option is not None and all(
        (set_option(M_MMAP_THRESHOLD, LONGEST), set_option(M_TRIM_THRESHOLD, KEPT))
    )
