"""What PATH is: a folder, a zip of one, or one file that carries evidence; read once, with limits.

Names and sizes come before content. A FIFO, a socket or a device is refused without opening it,
and nothing is read through a link that lies in a folder.
"""

from __future__ import annotations

import errno
import os
import stat
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Literal

from appliance.errors import EvidenceError, UsageError
from appliance.ipc import confined_child
from appliance.signing import html_attachments, pades
from appliance.storage import bundle as bundles
from appliance.storage import limits, plain_files

Kind = Literal["folder", "zip", "pdf", "html", "dsse"]
WHOLE: tuple[Kind, ...] = ("folder", "zip")
"""Kinds that hold every file of a run."""
SIGNS: tuple[tuple[bytes, Kind], ...] = (
    (b"%PDF-", "pdf"),
    (b"PK\x03\x04", "zip"),
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
ZIP64 = b"PK\x06\x07"
PLAIN_FILE_OR_NOTHING = {0, stat.S_IFREG}


@dataclass(frozen=True, kw_only=True)
class Given:
    """What lies at `path`; `content` are a file's bytes, None for a folder."""

    path: Path
    kind: Kind
    content: bytes | None = field(repr=False)
    total: int

    @property
    def is_whole(self) -> bool:
        """Whether it holds every file of a run, and not only what a page carries."""
        return self.kind in WHOLE

    @property
    def size(self) -> int:
        """Bytes that it has at most."""
        return self.total if self.content is None else len(self.content)

    def files(self) -> Mapping[str, bytes]:
        """Its files by name; EvidenceError for names, sizes or forms that no bundle has."""
        if self.content is None:
            return bundles.files_of(
                self.path, total=self.total, is_mapped=confined_child.is_confined()
            )
        if self.kind == "zip":
            return _unpacked(self.content, self.total)
        if self.kind == "dsse":
            return {bundles.STATEMENT: self.content}
        carried = html_attachments.carried_files if self.kind == "html" else pades.attachments
        files = carried(self.content)
        bundles.check_sizes({name: len(data) for name, data in files.items()}, self.total)
        return files


def given(path: Path, total: int = limits.TOTAL) -> Given:
    """What lies at `path`, a file read whole where it is not larger than its kind may be.

    A link there is followed, because a person named it. Raises UsageError if nothing can be read
    there, EvidenceError for what is no evidence.
    """
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            return Given(path=path, kind="folder", content=None, total=total)
        with os.fdopen(plain_files.opened(path, follow=True), "rb") as file:
            return _file(path, file.fileno(), total)
    except FileNotFoundError:
        raise UsageError(f"there is nothing at {path}: name out/<run id> or a report.pdf") from None
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise EvidenceError(f"{path} is neither a folder nor a plain file: name one") from None
        raise UsageError(f"{path} cannot be read ({error.strerror})") from None


def _file(path: Path, descriptor: int, total: int) -> Given:
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
    with os.fdopen(os.dup(descriptor), "rb") as file:
        content = file.read(size)
    return Given(path=path, kind=kind, content=content, total=total)


# ------------------------------------------------------------------ zips


def _unpacked(data: bytes, total: int) -> Mapping[str, bytes]:
    """Files of a zip, from the one folder that it may have around them."""
    _check_list(data)
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            entries = [one for one in archive.infolist() if not one.is_dir()]
            names = _inner_names([one.filename for one in entries])
            bundles.check_sizes(
                {name: one.file_size for name, one in zip(names, entries, strict=True)}, total
            )
            _check_entries(entries, names)
            return {name: archive.read(one) for name, one in zip(names, entries, strict=True)}
    except EvidenceError:
        raise
    except Exception:  # noqa: BLE001 - a hostile file may make a parser raise anything
        raise EvidenceError("the zip is cut short or was changed; ask for it again") from None


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


def _inner_names(names: list[str]) -> list[str]:
    tops = {name.partition("/")[0] for name in names if "/" in name}
    top = tops.pop() if len(tops) == 1 and all("/" in name for name in names) else ""
    return [name.removeprefix(f"{top}/") for name in names]


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
