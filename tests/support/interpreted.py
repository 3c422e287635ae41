"""Triton on a processor, in a process of its own: it decides as it is imported to interpret."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest


def interpreted(code: str, **names: object) -> list[str]:
    """What the code prints, in words, with these names bound; skips where there is no Triton."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is part of the accelerators' images")
    lines = [f"{name} = {value!r}" for name, value in names.items()]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*lines, code])],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
