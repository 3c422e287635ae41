"""Measures checks and digests of the version that the H100's journals were made with.

    PYTHONPATH=FOLDER python scripts/recorded_checks.py

FOLDER has `appliance/` and `workloads/` as they were then (scripts/measure_host_parts.py puts them
there). Printed are their seconds by case and part, as JSON: what the model of thread_scaling.py
makes of them for 16 threads is then held against what 16 cores were recorded to take.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import thread_scaling
import torch

from appliance import outputs
from appliance.worker import _bits
from workloads.contract import Turn
from workloads.gemm import Gemm
from workloads.parts import copies, dense, stream

SIZE, NUM_BYTES, NUM_FLOATS = 8192, 2**29, 2**28
Parts = dict[str, Callable[[], object]]


def product(dtype: str) -> Parts:
    """Of the shape of `node`; what is checked holds no right numbers, which takes as long."""
    format_ = getattr(torch, dtype)
    left, right = (torch.randn(SIZE, SIZE).to(format_) for _ in range(2))
    turn = Turn(of=1)
    turn.advance()
    signs = torch.randint(0, 2, (SIZE,)).double() * 2 - 1
    state = dense.Operands(
        left=[left], right=[right], signs=signs, rows=torch.randperm(SIZE)[:16], turn=turn
    )
    output = torch.ones(SIZE, SIZE, dtype=format_)
    return {
        "check": lambda: list(Gemm(dtype=dtype).check(None, state, output)),
        "digest": lambda: outputs.digest(output, _bits),
    }


def copy() -> Parts:
    """Of a copy to the host, as it arrived."""
    words = copies.words(1, 0, NUM_BYTES)
    return {
        "check": lambda: copies.arrival("copy", words, copies.words(1, 0, NUM_BYTES)),
        "digest": lambda: outputs.digest({"from_device": words}, _bits),
    }


def triad() -> Parts:
    """Of the host's memory."""
    first, second, result = (torch.ones(NUM_FLOATS) for _ in range(3))
    stream.run("triad", first, second, result)
    return {
        "check": lambda: stream.compare("triad", first, second, result),
        "digest": lambda: outputs.digest(result, _bits),
    }


CASES: dict[str, Callable[[], Parts]] = {
    "gemm-bf16": lambda: product("bfloat16"),
    "gemm-fp16": lambda: product("float16"),
    "device-to-host-pageable": copy,
    "host-memory": triad,
}


def measured() -> Iterator[tuple[str, Any]]:
    for name, make in CASES.items():
        parts = make()
        yield (
            name,
            {
                part: thread_scaling.measure(
                    lambda _, work=work: work(), torch.set_num_threads
                ).as_json()
                for part, work in parts.items()
            },
        )


if __name__ == "__main__":
    print(json.dumps(dict(measured())))
