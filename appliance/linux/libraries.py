"""Which files a process runs: all that are mapped as executable, and the SHA-256 of each.

A library that was exchanged computes something else under the same name and version. So the
kernel's list of mapped files is reported, not what a package claims.

Hashing the libraries of a GPU takes seconds, so it is apart from listing them. A file is named by
its identity: its device, inode, size and the times of its last changes. Who hashes it later hashes
the file of that identity or none, so that a file that was replaced or changed since it was mapped
has no digest, rather than that of another.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

MAPS = Path("/proc/self/maps")
DELETED = b" (deleted)"
SETTLED_NS = 10**8
"""Age of a change from which no other can have the same time: kernels count it in ticks."""
PIECE_BYTES = 2**20
_FIELDS = 6  # addresses, permissions, offset, device, inode, path


def loaded(maps: Path = MAPS) -> dict[str, str | None]:
    """Files mapped as executable by path, with their identity; None for one that is gone.

    So is one that changes as it is listed: another change may yet get the same time.
    """
    files: dict[str, str | None] = {}
    for path in mapped(maps.read_bytes()):
        name = path.removesuffix(DELETED).decode("utf-8", "backslashreplace")
        known = None if path.endswith(DELETED) else identity(Path(os.fsdecode(path)))
        # Both the file and the one that it replaced may be mapped: then neither is certain.
        files[name] = known if files.get(name, known) == known else None
    return dict(sorted(files.items()))


def mapped(text: bytes) -> list[bytes]:
    """Paths of the executable mappings in the kernel's table, as it writes them, each once.

    Memory without a file and what the kernel itself maps ("[vdso]") have no path.
    """
    paths: dict[bytes, None] = {}
    for line in text.splitlines():
        fields = line.split(maxsplit=_FIELDS - 1)
        if len(fields) == _FIELDS and b"x" in fields[1] and fields[-1].startswith(b"/"):
            paths[fields[-1].replace(rb"\012", b"\n")] = None  # all that the kernel escapes
    return list(paths)


def identity(path: Path) -> str | None:
    """What tells this file from every other and from itself after a change; None: no such file.

    Of one that was changed a moment ago it is waited for.
    """
    try:
        status = path.stat()
        if not _is_settled(status):
            time.sleep(SETTLED_NS / 1e9)
            status = path.stat()
    except OSError:
        return None
    return _identity(status) if stat.S_ISREG(status.st_mode) and _is_settled(status) else None


def sha256_of(path: Path, wanted: str, is_wanted: Callable[[], bool] = lambda: True) -> str | None:
    """SHA-256 of the file with this identity; None where another is there, or it cannot be read.

    So is one that changed meanwhile, and what is not wanted any more.
    """
    try:
        if not path.is_file():  # to open a device or a pipe may have effects
            return None
        with path.open("rb", buffering=0) as file:
            if _identity(os.fstat(file.fileno())) != wanted:
                return None
            digest, piece = hashlib.sha256(), memoryview(bytearray(PIECE_BYTES))
            while number := file.readinto(piece):
                digest.update(piece[:number])
                if not is_wanted():
                    return None
            is_same = _identity(os.fstat(file.fileno())) == wanted
            return digest.hexdigest() if is_same else None
    except OSError:
        return None


def _identity(status: os.stat_result) -> str:
    parts = (
        *(status.st_dev, status.st_ino, status.st_size),
        *(status.st_mtime_ns, status.st_ctime_ns),
    )
    return ":".join(map(str, parts))


def _is_settled(status: os.stat_result) -> bool:
    """A change made now would get another time; so it would where the last is of the future."""
    return abs(time.time_ns() - status.st_ctime_ns) > SETTLED_NS
