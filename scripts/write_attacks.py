"""Writes the table of attacks of docs/explanation/what-verify-proves.md from the tamper fixtures.

Part of `make generate`; a test compares what it would write with what is there.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tamper.attacks import PAGE, page  # noqa: E402 - after the path

if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
