"""A file elsewhere that links lead to, and that nobody may touch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def untouched(folder: Path, content: bytes) -> Iterator[Path]:
    """Make it in a folder of its own; afterwards both must be as they were."""
    path = folder / "elsewhere" / "victim"
    path.parent.mkdir()
    path.write_bytes(content)
    before = path.stat()
    yield path
    after = path.stat()
    assert path.read_bytes() == content
    assert [one.name for one in path.parent.iterdir()] == ["victim"]
    assert (after.st_uid, after.st_mode, after.st_nlink) == (before.st_uid, before.st_mode, 1)
