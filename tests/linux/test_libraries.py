"""Which files a process runs: read from the kernel, hashed as they were listed or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from appliance.linux import libraries

TABLE = b"""\
55d0c0a00000-55d0c0a01000 r--p 00000000 08:01 11 /usr/bin/python3.11
55d0c0a01000-55d0c0c00000 r-xp 00001000 08:01 11 /usr/bin/python3.11
7f1000000000-7f1000021000 rwxp 00000000 00:00 0
7f2000000000-7f2000100000 r-xp 00000000 08:01 12 /opt/a b/libtorch.so
7f2000100000-7f2000200000 r-xp 00100000 08:01 12 /opt/a b/libtorch.so
7f3000000000-7f3000001000 r-xp 00000000 08:01 13 /tmp/made (deleted)
7f4000000000-7f4000001000 rw-p 00000000 08:01 14 /usr/lib/locale.so
7f5000000000-7f5000001000 r-xp 00000000 08:01 15 /odd\\012name
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0                          [vdso]
"""


def a_table(folder: Path, *paths: bytes | Path) -> Path:
    table = folder / "maps"
    lines = (b"0-1 r-xp 0 08:01 1 " + os.fsencode(path) for path in paths)
    table.write_bytes(b"\n".join(lines) + b"\n")
    return table


def a_file(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def settled(path: Path) -> Path:
    """The file, once its change is so long ago that another has another time."""
    while time.time_ns() - path.stat().st_ctime_ns <= libraries.SETTLED_NS:
        time.sleep(0.01)
    return path


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_files_mapped_to_run_are_listed_once_and_nothing_else() -> None:
    assert libraries.mapped(TABLE) == [
        b"/usr/bin/python3.11",
        b"/opt/a b/libtorch.so",
        b"/tmp/made (deleted)",
        b"/odd\nname",
    ]


def test_each_file_has_the_digest_of_its_bytes(tmp_path: Path) -> None:
    one, two = settled(a_file(tmp_path, "one.so", b"one")), a_file(tmp_path, "two.so", b"two")
    result = libraries.loaded(a_table(tmp_path, two, one))
    digests = {path: libraries.sha256_of(Path(path), str(known)) for path, known in result.items()}
    assert digests == {str(one): sha256(b"one"), str(two): sha256(b"two")}


def test_what_cannot_be_read_has_no_identity(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # to open it would wait for ever
    gone = tmp_path / "gone.so"
    deleted = a_file(tmp_path, "deleted.so", b"what lies there now is not what was mapped")
    table = a_table(tmp_path, pipe, gone, os.fsencode(deleted) + libraries.DELETED)
    result = libraries.loaded(table)
    assert result == {str(pipe): None, str(gone): None, str(deleted): None}
    assert libraries.sha256_of(pipe, "1:2:3:4:5") is None


@pytest.mark.parametrize("is_deleted_first", [True, False])
def test_a_file_mapped_beside_the_one_it_replaced_is_not_certain(
    tmp_path: Path,
    is_deleted_first: bool,  # noqa: FBT001 - the parameter of the test
) -> None:
    path = settled(a_file(tmp_path, "a.so", b"new"))
    paths = [os.fsencode(path) + libraries.DELETED, os.fsencode(path)]
    table = a_table(tmp_path, *(paths if is_deleted_first else reversed(paths)))
    assert libraries.loaded(table) == {str(path): None}


def test_a_name_that_is_no_text_can_be_told(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.so"
    settled(a_file(tmp_path, os.fsdecode(b"\xff.so"), b"x"))
    (name, known), *others = libraries.loaded(a_table(tmp_path, path)).items()
    assert (name.endswith("\\xff.so"), known is None, others) == (True, False, [])
    json.dumps(name).encode()


def test_a_file_that_was_changed_since_it_was_listed_has_no_digest(tmp_path: Path) -> None:
    path = settled(a_file(tmp_path, "a.so", b"first"))
    known = libraries.identity(path)
    assert known is not None
    assert libraries.sha256_of(path, known) == sha256(b"first")
    status = path.stat()
    path.write_bytes(b"other")  # of the same size, and with its old time put back
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert libraries.sha256_of(path, known) is None
    path.unlink()
    assert libraries.sha256_of(path, known) is None


def test_a_file_that_changes_as_it_is_hashed_has_no_digest(tmp_path: Path) -> None:
    path = settled(a_file(tmp_path, "a.so", b"first"))

    def change() -> bool:
        path.write_bytes(b"other")
        return True

    assert libraries.sha256_of(path, str(libraries.identity(path)), change) is None


def test_identity_of_a_file_that_was_changed_just_now_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next change may get the same time, as kernels count it in ticks."""
    path = a_file(tmp_path, "a.so", b"first")
    known = libraries.identity(path)
    assert known is not None
    assert time.time_ns() - path.stat().st_ctime_ns > libraries.SETTLED_NS
    monkeypatch.setattr(libraries, "SETTLED_NS", 10**15)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert libraries.identity(path) is None


def test_this_process_runs_libraries_that_can_be_read() -> None:
    result = libraries.loaded()
    (libc,) = [path for path in result if Path(path).name.startswith(("libc.so", "ld-musl"))]
    assert libraries.sha256_of(Path(libc), str(result[libc])) == sha256(Path(libc).read_bytes())
