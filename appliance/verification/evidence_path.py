"""What PATH is: a folder, a zip of one, or one file that carries evidence; read once, with limits.

Names and sizes come before content. A FIFO, a socket or a device is refused without opening it,
and nothing is read through a link that lies in a folder. The large journal of a zip is unpacked to
a file without a name, so that it takes no more memory than that of a folder.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO, Literal, cast

from appliance.errors import BenchError, EvidenceError, UsageError
from appliance.ipc import confined_child
from appliance.signing import html_attachments, pades
from appliance.storage import bundle as bundles
from appliance.storage import limits, plain_files

Kind = Literal["folder", "zip", "pdf", "html", "dsse"]
WHOLE: tuple[Kind, ...] = ("folder", "zip")
"""Kinds that hold every file of a run."""
ZIP, ZIP64 = b"PK\x03\x04", b"PK\x06\x07"
SIGNS: tuple[tuple[bytes, Kind], ...] = (
    (b"%PDF-", "pdf"),
    (ZIP, "zip"),
    (b"{", "dsse"),
    (b"<", "html"),
)
LARGEST: Mapping[Kind, int] = {
    "pdf": limits.BY_NAME[bundles.PDF],
    "html": limits.BY_NAME[bundles.HTML],
    "dsse": limits.BY_NAME[bundles.STATEMENT],
}
LONGEST_NAME = 1024  # bytes of an entry in a zip's list of files
END_OF_ZIP = 22  # bytes of the record at its end
HEAD_OF_FILE = 30  # bytes before the name of each file in it
SIZES_BEHIND = {0, 12, 16, 20, 24}
"""Bytes behind a file that was packed before its size was known, and that say how large it is."""
ENCRYPTED, SIZES_LATER, UTF8 = 1, 8, 0x800
"""Bits of what is said of a file: section 4.4.4 of PKWARE's APPNOTE.TXT."""
IN_ANOTHER_FIELD = 2**32 - 1
OTHER_NAME, FIELD_HEAD = b"up", 4
"""Kind of the field with a name in Unicode, which may be another one (0x7075, section 4.6.9)."""
NO_NAME = frozenset("\\:")
PIECE = 2**20
"""Bytes of a large file that are unpacked at a time."""
LISTING_SECONDS = 2
CUT_SHORT = "the zip is cut short or was changed; ask for it again"
PLAIN_FILE_OR_NOTHING = {0, stat.S_IFREG}


@dataclass(frozen=True, kw_only=True)
class Given:
    """What lies at `path`; `content` are a file's bytes, None for a folder.

    `room` is for the journal of a zip, as `journal_room` gives it, None where it fits in memory.
    """

    path: Path
    kind: Kind
    content: bytes | None = field(repr=False)
    total: int
    room: mmap.mmap | None = field(default=None, repr=False)

    @property
    def is_whole(self) -> bool:
        """Whether it holds every file of a run, and not only what a page carries."""
        return self.kind in WHOLE

    @property
    def size(self) -> int:
        """Bytes that it has at most, its journal as it is unpacked."""
        unpacked = 0 if self.room is None else len(self.room)
        return self.total if self.content is None else len(self.content) + unpacked

    def files(self) -> Mapping[str, bytes]:
        """Its files by name; EvidenceError for names, sizes or forms that no bundle has."""
        if self.content is None:
            return bundles.files_of(
                self.path, total=self.total, is_mapped=confined_child.is_confined()
            )
        if self.kind == "zip":
            return _unpacked(self.content, self.total, self.room)
        if self.kind == "dsse":
            return {bundles.STATEMENT: self.content}
        carried = html_attachments.carried_files if self.kind == "html" else pades.attachments
        files = carried(self.content)
        bundles.check_sizes({name: len(data) for name, data in files.items()}, self.total)
        return files


def given(path: Path, total: int = limits.TOTAL, room: mmap.mmap | None = None) -> Given:
    """What lies at `path`, a file read whole where it is not larger than its kind may be.

    A confined child maps a zip, which is then not in memory; `room` is as in `Given`.

    A link there is followed, because a person named it. Raises UsageError if nothing can be read
    there, EvidenceError for what is no evidence.
    """
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            return Given(path=path, kind="folder", content=None, total=total)
        with os.fdopen(plain_files.opened(path, follow=True), "rb") as file:
            return _file(path, file.fileno(), total, room)
    except FileNotFoundError:
        raise UsageError(f"there is nothing at {path}: name out/<run id> or a report.pdf") from None
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise EvidenceError(f"{path} is neither a folder nor a plain file: name one") from None
        raise UsageError(f"{path} cannot be read ({error.strerror})") from None


def _file(path: Path, descriptor: int, total: int, room: mmap.mmap | None) -> Given:
    begin, size = os.pread(descriptor, 8, 0), os.fstat(descriptor).st_size
    kind = next((kind for sign, kind in SIGNS if begin.startswith(sign)), None)
    if kind is None:
        raise EvidenceError(
            f"{path} is neither the folder of a bundle nor its report.pdf, report.html, "
            "statement.dsse.json or a zip of the folder"
        )
    largest = LARGEST.get(kind, total)
    if size > largest:
        raise EvidenceError(f"{path} has more than {limits.size_words(largest)}")
    if kind == "zip" and confined_child.is_confined():
        confined_child.allow_mapped(size)
        content = cast("bytes", _Seekable(descriptor, size, prot=mmap.PROT_READ))
    else:
        with os.fdopen(os.dup(descriptor), "rb") as file:
            content = file.read(size)
    return Given(path=path, kind=kind, content=content, total=total, room=room)


# ------------------------------------------------------------------ zips


class _Seekable(mmap.mmap):
    """A mapping that says of itself what zipfile asks of a file."""

    def seekable(self) -> bool:
        return True


def journal_room(path: Path, total: int) -> mmap.mmap | None:
    """Room for the journal of a zip, if that is large; None where it takes no more than memory.

    A confined child reads how large the zip says that it is, and may write nothing, so the room is
    made here. UsageError where the folder for temporary files has none; what is wrong with the zip
    is said by who verifies it.
    """
    if not is_of_kind(path, "zip"):
        return None
    answer = confined_child.call(
        str(path),
        lambda: b"%d" % _journal_bytes(path, total),
        confined_child.Limits(seconds=LISTING_SECONDS, mapped_bytes=total),
    )
    size = int(answer)
    if size < bundles.MAPPED_BYTES:
        return None
    try:
        return plain_files.room(size)
    except OSError as error:
        raise UsageError(
            f"the journal of {path} has {size / 1e6:.0f} MB, and {error.filename or 'no folder'} "
            f"cannot take it ({error.strerror}): name a folder with room by TMPDIR, or unpack the "
            "zip and verify the folder"
        ) from None


def is_of_kind(path: Path, wanted: Kind) -> bool:
    """Whether a plain file lies at `path` that begins as files of this kind do."""
    sign = next(sign for sign, kind in SIGNS if kind == wanted)
    with suppress(OSError), os.fdopen(plain_files.opened(path, follow=True), "rb") as file:
        return file.read(len(sign)) == sign
    return False


def _journal_bytes(path: Path, total: int) -> int:
    """What the list of a zip says of its journal; 0 for a zip that will be refused."""
    with suppress(BenchError):
        one = given(path, total)
        if one.kind == "zip" and one.content is not None:
            with _listed(one.content, total) as (_, entries):
                sizes = {name: entry.file_size for name, entry in entries.items()}
                return sizes.get(bundles.JOURNAL, 0)
    return 0


def _unpacked(data: bytes, total: int, room: mmap.mmap | None) -> Mapping[str, bytes]:
    """Files of a zip; its journal lies in the `room` for it, if there is one."""
    with _listed(data, total) as (archive, entries):
        return {
            name: (
                archive.read(one)
                if room is None or name != bundles.JOURNAL
                else _into(room, archive, one, data)
            )
            for name, one in entries.items()
        }


@contextmanager
def _listed(
    data: bytes, total: int
) -> Iterator[tuple[zipfile.ZipFile, Mapping[str, zipfile.ZipInfo]]]:
    """A zip and what its list has by name, from the one folder that it may have around them.

    Raises EvidenceError for what no bundle has, and for a zip that cannot be read meanwhile.
    """
    _check_list(data)
    try:
        file = data if isinstance(cast("object", data), _Seekable) else BytesIO(data)
        with zipfile.ZipFile(cast("IO[bytes]", file)) as archive:
            _check_layout(data, archive)
            entries = [one for one in archive.infolist() if not one.is_dir()]
            top = _top([one.filename for one in entries])
            names = [one.filename.removeprefix(top) for one in entries]
            _check_folders([one for one in archive.infolist() if one.is_dir()], top)
            by_name = dict(zip(names, entries, strict=True))
            bundles.check_sizes({name: one.file_size for name, one in by_name.items()}, total)
            _check_entries(entries, names)
            yield archive, by_name
    except EvidenceError:
        raise
    except Exception:  # noqa: BLE001 - a hostile file may make a parser raise anything
        raise EvidenceError(CUT_SHORT) from None


def _into(room: mmap.mmap, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, data: bytes) -> bytes:
    """A file of the zip, unpacked to the room for it piece by piece, and forgotten by memory."""
    done = 0
    with archive.open(entry) as file:
        while piece := file.read(PIECE):
            if done + len(piece) > len(room):
                break
            room[done : done + len(piece)] = piece
            done += len(piece)
            plain_files.forget(room, 0, done)
            plain_files.forget(data, 0, len(data))
    if done != len(room) or entry.file_size != done:
        raise EvidenceError(CUT_SHORT)
    return cast("bytes", room)


def _check_list(data: bytes) -> None:
    """EvidenceError for a list of files that is not at the end, or longer than any bundle's."""
    end = data[-END_OF_ZIP:]
    size = int.from_bytes(end[12:16], "little")
    is_plain = end.startswith(b"PK\x05\x06") and data[-END_OF_ZIP - 20 :][:4] != ZIP64
    if not is_plain or size > limits.MOST_FILES * LONGEST_NAME:
        raise EvidenceError(
            "the zip has a comment, more than one part or a list of files that no bundle has; "
            "pack the folder again"
        )


def _check_layout(data: bytes, archive: zipfile.ZipFile) -> None:
    """EvidenceError unless files lie one behind the other, from the first byte up to the list.

    Programs that unpack differ in whether they go by the list or by what lies before it, so in
    between there may be nothing: what is verified is what each of them unpacks.
    """
    entries = sorted(archive.infolist(), key=lambda one: one.header_offset)
    end, position = data[-END_OF_ZIP:], 0
    numbers = {int.from_bytes(end[at : at + 2], "little") for at in (8, 10)}
    begin, length = (int.from_bytes(end[at : at + 4], "little") for at in (16, 12))
    places = [one.header_offset for one in entries[1:]] + [begin]
    is_tiled = numbers == {len(entries)} and begin + length + END_OF_ZIP == len(data)
    for one, after in zip(entries, places, strict=False):
        head = data[one.header_offset : one.header_offset + HEAD_OF_FILE]
        name, extra = (int.from_bytes(head[at : at + 2], "little") for at in (26, 28))
        position_after = one.header_offset + HEAD_OF_FILE + name + extra + one.compress_size
        behind = SIZES_BEHIND if one.flag_bits & 8 else {0}
        is_tiled &= one.header_offset == position and after - position_after in behind
        _check_head(one, data[one.header_offset : one.header_offset + HEAD_OF_FILE + name + extra])
        position = after
    if not is_tiled:
        raise EvidenceError(
            "the zip has something beside the files in its list, or two that overlap; pack the "
            "folder again"
        )


def _check_head(entry: zipfile.ZipInfo, head: bytes) -> None:
    """EvidenceError unless a file's own head says of it what the list says, and nothing else.

    A program that unpacks goes by the one or by the other, and some take the name from a field
    behind both.
    """
    flags, method = (int.from_bytes(head[at : at + 2], "little") for at in (6, 8))
    sizes = [int.from_bytes(head[at : at + 4], "little") for at in (14, 18, 22)]
    listed = (entry.CRC, entry.compress_size, entry.file_size)
    unsaid = {0} if flags & SIZES_LATER else set()
    name = entry.orig_filename.encode("utf-8" if entry.flag_bits & UTF8 else "cp437")
    extra = head[HEAD_OF_FILE + len(name) :]
    is_same = (
        (flags ^ entry.flag_bits) & (ENCRYPTED | SIZES_LATER) == 0
        and method == entry.compress_type
        and all(
            one in {other, IN_ANOTHER_FIELD, *unsaid}
            for one, other in zip(sizes, listed, strict=True)
        )
        and head[HEAD_OF_FILE : HEAD_OF_FILE + len(name)] == name
        and entry.filename == entry.orig_filename
    )
    if not is_same or OTHER_NAME in {*_fields(extra), *_fields(entry.extra)}:
        raise EvidenceError(
            f"{entry.filename!r} in the zip has another name, size or form by its list than by "
            "itself; pack the folder again"
        )


def _fields(extra: bytes) -> Iterator[bytes]:
    """Kinds of the fields behind a file's name: two bytes each, and two of the length that follows.

    What is left over is of no kind.
    """
    while len(extra) >= FIELD_HEAD:
        yield extra[:2]
        extra = extra[FIELD_HEAD + int.from_bytes(extra[2:FIELD_HEAD], "little") :]


def _top(names: list[str]) -> str:
    """The one folder around all files, with its slash, or nothing; EvidenceError for an odd name.

    What lies in `..` or at the root is unpacked anywhere but in the folder that a person named.
    """
    tops = {name.partition("/")[0] for name in names if "/" in name}
    if len(tops) != 1 or not all("/" in name for name in names):
        return ""
    top = tops.pop()
    if top in {"", "..", "~"} or not top.isprintable() or set(top) & NO_NAME:
        raise EvidenceError(f"{top + '/'!r} in the zip is no name of a folder; pack it again")
    return f"{top}/"


def _check_folders(folders: Iterable[zipfile.ZipInfo], top: str) -> None:
    """EvidenceError for an entry of a folder that no bundle has, or that holds something itself."""
    for one in folders:
        if one.filename not in {top, f"{top}{bundles.LOGS}/"} or one.file_size:
            raise EvidenceError(
                f"{one.filename!r} in the zip is no folder of a bundle; pack the folder again"
            )


def _check_entries(entries: Iterable[zipfile.ZipInfo], names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise EvidenceError("the zip holds two files of the same name; pack the folder again")
    for one in entries:
        is_link = stat.S_IFMT(one.external_attr >> 16) not in PLAIN_FILE_OR_NOTHING
        if is_link or one.flag_bits & 1 or one.compress_type not in {0, zipfile.ZIP_DEFLATED}:
            raise EvidenceError(
                f"{one.filename!r} in the zip is a link, encrypted or packed as no bundle is; "
                "pack the folder again"
            )
