"""Settings of torch that more than one vendor's devices heed.

In the worker only: nothing else imports torch.
"""

from __future__ import annotations


def switch_tf32_off() -> None:
    """Have float32 computed as float32 by every library behind torch's "cuda" device.

    By these two flags: torch.backends.fp32_precision, which is to follow them, breaks the ONNX
    exporter.
    """
    import torch  # noqa: PLC0415 - in the worker only

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
