"""Zips of a genuine bundle of which programs unpack other files, or unpack them elsewhere.

Each takes the files by name and gives the zip; none changes a file, so only its form can refuse it.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO

from appliance.storage import bundle

Files = Mapping[str, bytes]
Pack = Callable[[Files], bytes]
ARCHIVES: dict[str, Pack] = {}
FOLDER, JOURNAL = "run/", f"run/{bundle.JOURNAL}"
FLAGS, METHOD, CRC, PACKED_SIZE, SIZE = 6, 8, 14, 18, 22  # places in a file's own head
HEAD = 30
SYMLINK = 0o120777 << 16


def entered(pack: Pack) -> Pack:
    ARCHIVES[pack.__name__] = pack
    return pack


def packed(
    files: Files,
    *,
    folder: str = FOLDER,
    others: Mapping[str, bytes] | None = None,
    extra: bytes = b"",
    mode: int = 0,
) -> bytes:
    """The files in a folder, `others` before them; `extra` and `mode` are of the journal."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (others or {}).items():
            archive.writestr(zipfile.ZipInfo(name), data)
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(folder + name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            if name == bundle.JOURNAL:
                entry.extra, entry.external_attr = extra, mode
            archive.writestr(entry, data)
    return out.getvalue()


def headed(files: Files, place: int, form: str, value: int) -> bytes:
    """Another value in the journal's own head than the list has."""
    data = bytearray(packed(files))
    struct.pack_into(form, data, data.index(JOURNAL.encode()) - HEAD + place, value)
    return bytes(data)


def in_folder(name: str, folder: str) -> None:
    """Enter a zip whose files lie in this folder."""

    def pack(files: Files) -> bytes:
        return packed(files, folder=folder)

    ARCHIVES[name] = pack


def in_head(name: str, place: int, form: str, value: int) -> None:
    """Enter a zip that says this in the journal's own head alone."""

    def pack(files: Files) -> bytes:
        return headed(files, place, form, value)

    ARCHIVES[name] = pack


for _name, _folder in (
    ("names_from_the_root", "/"),
    ("names_beside_the_folder", "../"),
    ("names_of_another_drive", "C:/"),
    ("names_with_backslashes", "..\\..\\run/"),
    ("names_that_clear_the_terminal", "\x1b[2J\u202e/"),
    ("names_in_the_home_folder", "~/"),
    ("names_in_two_folders", "run/run/"),
):
    in_folder(_name, _folder)
for _name, _place, _form, _value in (
    ("fewer_bytes_than_the_list_says", SIZE, "<I", 5),
    ("fewer_packed_bytes_than_the_list_says", PACKED_SIZE, "<I", 5),
    ("another_checksum_than_the_list_says", CRC, "<I", 5),
    ("another_method_than_the_list_says", METHOD, "<H", 0),
    ("encrypted_by_its_own_head", FLAGS, "<H", 1),
    ("a_size_that_is_said_later", FLAGS, "<H", 8),
):
    in_head(_name, _place, _form, _value)


@entered
def a_folder_beside_the_bundle(files: Files) -> bytes:
    return packed(files, others={"../evil/": b""})


@entered
def a_folder_that_holds_bytes(files: Files) -> bytes:
    return packed(files, others={f"{FOLDER}{bundle.LOGS}/": b"hello"})


@entered
def a_folder_that_no_bundle_has(files: Files) -> bytes:
    return packed(files, others={f"{FOLDER}hidden/": b""})


@entered
def another_name_in_unicode(files: Files) -> bytes:
    name = b"run/evil.jsonl"
    return packed(files, extra=struct.pack("<2sHBI", b"up", 5 + len(name), 1, 0) + name)


@entered
def a_name_that_ends_before_its_end(files: Files) -> bytes:
    return packed(
        {name.replace("peaks.json", "peaks.json~"): data for name, data in files.items()}
    ).replace(b"peaks.json~", b"peaks.json\0")


@entered
def a_name_in_other_case(files: Files) -> bytes:
    return packed(files, others={f"{FOLDER}Journal.jsonl": b"{}"})


@entered
def a_name_twice(files: Files) -> bytes:
    return packed(files, others={f"{FOLDER}journal.jsonX": b"{}"}).replace(
        b"journal.jsonX", b"journal.jsonl"
    )


@entered
def a_link(files: Files) -> bytes:
    return packed(files, mode=SYMLINK)


@entered
def a_comment_behind_its_end(files: Files) -> bytes:
    data = packed(files)
    return data[:-2] + b"\x05\0hello"


@entered
def a_file_that_is_longer_than_its_list(files: Files) -> bytes:
    return packed(files) + b"\0"
