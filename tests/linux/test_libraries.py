"""Which files a process runs: read from the kernel, hashed once per run, never guessed."""

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
    one, two = a_file(tmp_path, "one.so", b"one"), a_file(tmp_path, "two.so", b"two")
    result = libraries.loaded(tmp_path / "cache", a_table(tmp_path, two, one))
    assert result == {str(one): sha256(b"one"), str(two): sha256(b"two")}


def test_what_cannot_be_read_has_no_digest(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # to open it would wait for ever
    gone = tmp_path / "gone.so"
    deleted = a_file(tmp_path, "deleted.so", b"what lies there now is not what was mapped")
    table = a_table(tmp_path, pipe, gone, os.fsencode(deleted) + libraries.DELETED)
    result = libraries.loaded(tmp_path / "cache", table)
    assert result == {str(pipe): None, str(gone): None, str(deleted): None}


@pytest.mark.parametrize("is_deleted_first", [True, False])
def test_a_file_mapped_beside_the_one_it_replaced_is_not_certain(
    tmp_path: Path,
    is_deleted_first: bool,  # noqa: FBT001 - the parameter of the test
) -> None:
    path = a_file(tmp_path, "a.so", b"new")
    paths = [os.fsencode(path) + libraries.DELETED, os.fsencode(path)]
    table = a_table(tmp_path, *(paths if is_deleted_first else reversed(paths)))
    assert libraries.loaded(tmp_path / "cache", table) == {str(path): None}


def test_a_name_that_is_no_text_can_be_told(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.so"
    Path(os.fsdecode(path)).write_bytes(b"x")
    (name, digest), *others = libraries.loaded(tmp_path / "c", a_table(tmp_path, path)).items()
    assert (name.endswith("\\xff.so"), digest, others) == (True, sha256(b"x"), [])
    json.dumps(name).encode()


def test_a_file_is_hashed_once_and_again_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cache = settled(a_file(tmp_path, "a.so", b"first")), tmp_path / "work" / "cache"
    table = a_table(tmp_path, path)
    hashed: list[str] = []
    file_digest = hashlib.file_digest

    def counted(file: object, name: str) -> object:
        hashed.append(name)
        return file_digest(file, name)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "file_digest", counted)
    first = [libraries.loaded(cache, table) for _ in range(3)]
    assert first == [{str(path): sha256(b"first")}] * 3
    assert len(hashed) == 1
    status = path.stat()
    path.write_bytes(b"other")  # of the same size, and with its old time put back
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert libraries.loaded(cache, table) == {str(path): sha256(b"other")}
    assert len(hashed) == 2


def test_digest_of_a_file_that_was_changed_just_now_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next change may get the same time, as kernels count it in ticks."""
    monkeypatch.setattr(libraries, "SETTLED_NS", 10**15)
    path, cache = a_file(tmp_path, "a.so", b"first"), tmp_path / "cache"
    assert libraries.loaded(cache, a_table(tmp_path, path)) == {str(path): sha256(b"first")}
    assert cache.read_text() == ""


@pytest.mark.parametrize("text", ["", '{"1:2:', "[]", "null"])
def test_a_cache_that_was_cut_off_is_made_anew(tmp_path: Path, text: str) -> None:
    path, cache = settled(a_file(tmp_path, "a.so", b"x")), tmp_path / "cache"
    cache.write_text(text)
    for _ in range(2):
        assert libraries.loaded(cache, a_table(tmp_path, path)) == {str(path): sha256(b"x")}
    assert list(json.loads(cache.read_text()).values()) == [sha256(b"x")]


def test_without_a_place_for_a_cache_files_are_hashed_all_the_same(tmp_path: Path) -> None:
    path = a_file(tmp_path, "a.so", b"x")
    nowhere = path / "cache"  # a file is no folder
    assert libraries.loaded(nowhere, a_table(tmp_path, path)) == {str(path): sha256(b"x")}


def test_this_process_runs_libraries_that_can_be_read(tmp_path: Path) -> None:
    result = libraries.loaded(tmp_path / "cache")
    (libc,) = [path for path in result if Path(path).name.startswith(("libc.so", "ld-musl"))]
    assert result[libc] == sha256(Path(libc).read_bytes())
