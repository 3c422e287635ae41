"""How many bits of their operands torch's float32 products keep: all, or the 10 of TF32.

In the worker only: nothing else imports torch. The choice is made by the switches that every torch
from 2.8 on has (`allow_tf32` of a library, `set_float32_matmul_precision`), and by nothing else.
From 2.9 on each of them sets the newer `fp32_precision` of its own library too, so old and new
agree. The newer switches alone would not do: the global one is outranked by what a library was set
to before, 2.8 has none of them, and where old and new differ torch's getters raise, those that its
ONNX exporter reads among them. Measured on torch 2.8.0, 2.9.1, 2.10.0,
2.11.0 and 2.13.0: tests/recorded/torch/switches.json.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

BEFORE_IMPORTS = ("CUBLAS_WORKSPACE_CONFIG", "XLA_FLAGS")
"""Variables of the deterministic phase, which libraries read when they start."""

FULL, TF32, MIXED = "ieee", "tf32", "mixed"
OF_TF32: Mapping[bool, str] = {True: TF32, False: FULL}
OF_MATMUL: Mapping[str, str] = {"highest": FULL, "high": TF32, "medium": "bf16"}
"""What `get_float32_matmul_precision` gives, in the words of the newer switches."""


def choose_float32_products(torch_type: str, *, in_tf32: bool) -> None:
    """Have the float32 products of every library behind a device type made in TF32, or in full."""
    import torch  # noqa: PLC0415 - in the worker only

    torch.set_float32_matmul_precision("highest")  # the host's own products too
    if torch_type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = in_tf32
        torch.backends.cudnn.allow_tf32 = in_tf32
    elif torch_type == "xpu":
        onednn: Any = torch.backends.mkldnn  # its flag is what kernels for this type read
        if onednn.allow_tf32 is not None:  # as it is where torch was not built for them
            onednn.allow_tf32 = in_tf32
    elif in_tf32:
        torch.set_float32_matmul_precision("high")


def float32_products(torch_type: str) -> Mapping[str, str]:
    """The format that float32 products are made in now, by kind: "ieee", "tf32" or "bf16".

    "mixed" where torch's switches contradict one another, so that nobody knows: a library was set
    by the old one and by the new one differently, or the environment forbids what was set.
    """
    import torch  # noqa: PLC0415 - in the worker only

    engines: Any = torch.backends  # its types do not tell of the newer switches
    if torch_type == "cuda":
        return {
            "matmul": _effective(
                lambda: OF_TF32[engines.cuda.matmul.allow_tf32],
                lambda: engines.cuda.matmul.fp32_precision,
            ),
            "convolution": _effective(
                lambda: OF_TF32[engines.cudnn.allow_tf32],
                lambda: engines.cudnn.conv.fp32_precision,
            ),
        }
    if torch_type == "xpu":
        both = OF_TF32[bool(engines.mkldnn.allow_tf32)]
        return {"matmul": both, "convolution": both}
    return {
        "matmul": _effective(
            lambda: OF_MATMUL[torch.get_float32_matmul_precision()],
            lambda: engines.mkldnn.matmul.fp32_precision,
        ),
        "convolution": _effective(lambda: FULL, lambda: engines.mkldnn.conv.fp32_precision),
    }


def _effective(older: Callable[[], str], newer: Callable[[], str]) -> str:
    """What both switches of a library say; the older one alone where torch has no newer."""
    try:
        old = older()
    except RuntimeError:  # torch's own finding that they differ
        return MIXED
    try:
        new = newer()
    except AttributeError:
        return old
    return old if old == (FULL if new == "none" else new) else MIXED


def be_deterministic() -> Mapping[str, str]:
    """Have torch take operators that give the same bits each time; what it then says it does.

    Where an operator has no such form it warns. Never in a process that times: guards of compiled
    graphs and plans of convolutions stay.
    """
    import torch  # noqa: PLC0415 - in the worker only

    # torch.use_deterministic_algorithms would import torch's compiler to set its `deterministic`,
    # which takes a second or two; this sets the same where the compiler is used at all.
    torch.set_deterministic_debug_mode("warn")
    os.environ["TORCHINDUCTOR_DETERMINISTIC"] = "1"
    compiler: Any = sys.modules.get("torch._inductor.config")
    if hasattr(compiler, "deterministic"):  # torch 2.8 refuses what it does not have
        compiler.deterministic = True
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    return {
        "torch.are_deterministic_algorithms_enabled": str(
            torch.are_deterministic_algorithms_enabled()
        ),
        "torch.is_deterministic_algorithms_warn_only_enabled": str(
            torch.is_deterministic_algorithms_warn_only_enabled()
        ),
        "torch.backends.cudnn.deterministic": str(torch.backends.cudnn.deterministic),
        "torch.backends.cudnn.benchmark": str(torch.backends.cudnn.benchmark),
        **{name: os.environ.get(name, "not set") for name in BEFORE_IMPORTS},
    }
