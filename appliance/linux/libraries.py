"""Which files this process runs: all that are mapped as executable, each with its SHA-256.

A library that was exchanged computes something else under the same name and version. So the
kernel's list of mapped files is reported, not what a package claims. A file that was deleted or
replaced since it was mapped cannot be read any more; it has no digest, rather than that of another
file.

Hashing the libraries of a GPU takes seconds, so a run hashes each file once: digests are stored in
its working folder by device, inode, size and times of the file, under a lock, so that launches
that start together wait for one another instead of doing the same work. That of a file that was
changed a moment ago is not stored: another change may yet get the same time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE_NAME = "libraries.json"
"""Of the file with a run's digests, beside the artifacts of its cases."""
MAPS = Path("/proc/self/maps")
DELETED = b" (deleted)"
SETTLED_NS = 10**8
"""Age of a change from which no other can have the same time: kernels count it in ticks."""
_FIELDS = 6  # addresses, permissions, offset, device, inode, path


def loaded(cache: Path, maps: Path = MAPS) -> dict[str, str | None]:
    """Files mapped as executable by path, with their SHA-256; None for one that cannot be read.

    `cache` is the file that keeps digests between launches of a run; without it all are hashed.
    """
    with _stored(cache) as known:
        files: dict[str, str | None] = {}
        for path in mapped(maps.read_bytes()):
            name = path.removesuffix(DELETED).decode("utf-8", "backslashreplace")
            digest = None if path.endswith(DELETED) else _digest(Path(os.fsdecode(path)), known)
            # Both the file and the one that it replaced may be mapped: then neither is certain.
            files[name] = digest if files.get(name, digest) == digest else None
        return dict(sorted(files.items()))


def hashed_ahead(cache: Path, process: int) -> None:
    """Store the digests of what another process has mapped, if it is there still."""
    with contextlib.suppress(OSError):
        loaded(cache, Path(f"/proc/{process}/maps"))


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


def _digest(path: Path, known: dict[str, str]) -> str | None:
    try:
        if not path.is_file():  # to open a device or a pipe may have effects
            return None
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            key = ":".join(
                str(part)
                for part in (
                    status.st_dev,
                    status.st_ino,
                    status.st_size,
                    status.st_mtime_ns,
                    status.st_ctime_ns,
                )
            )
            if key in known:
                return known[key]
            is_settled = time.time_ns() - status.st_ctime_ns > SETTLED_NS
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if is_settled:
                known[key] = digest
            return digest
    except OSError:
        return None


@contextmanager
def _stored(cache: Path) -> Iterator[dict[str, str]]:
    """Digests by file, held by one process at a time; what is added to them is stored."""
    with contextlib.ExitStack() as stack:
        try:
            cache.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(cache.open("a+", encoding="ascii"))
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed, however the process ends
            file.seek(0)
            known = _read(file.read())
        except OSError:  # a disk that takes no more: hashed again in every launch
            yield {}
            return
        number = len(known)
        yield known
        if len(known) > number:
            with contextlib.suppress(OSError):
                file.seek(0)
                file.truncate()
                file.write(json.dumps(known))
                file.flush()


def _read(text: str) -> dict[str, str]:
    """What an earlier launch stored; nothing if it was cut off while it wrote."""
    try:
        digests = json.loads(text)
    except ValueError:
        return {}
    return digests if isinstance(digests, dict) else {}
