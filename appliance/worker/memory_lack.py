"""Whether an exception says that memory was lacking, of the host or of a device."""

from __future__ import annotations

import torch


def is_lack_of_memory(error: BaseException) -> bool:
    """By its class, or by the words of torch's allocator of the host, which raises no other."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )
