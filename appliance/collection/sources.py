"""Where bundles lie: folders of this machine, or object storage by its address.

A bundle is a folder with a report.dsse.json, the file that a signer writes last, or a zip. A folder
with a plan and without that file is a run that has not ended. Whatever else lies there is passed
over. Object storage is read through fsspec, one bundle at a time into a folder of its own that is
removed once the bundle was read: names and sizes are looked at before anything is fetched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance import extras
from appliance.collection.reading import LARGEST
from appliance.errors import EvidenceError, UsageError
from appliance.records.json import sha256
from appliance.storage import bundle as bundles
from appliance.storage import limits, plain_files

ZIP = ".zip"
DEEPEST = 64
"""Folders inside each other that are looked through; a campaign's bundles lie four deep."""
SCHEME = "://"
KNOWN = {*bundles.FINISHED_FILES, *bundles.OPTIONAL_FILES}


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Something that may be a bundle: `source` as the ledger names it, its digest and its size.

    `is_finished` is false for a run without its last file, which has no digest. `remote` is the
    file system of object storage with the objects of the bundle, None for a folder or a zip here.
    `fault` is why it cannot be read at all, empty if nothing is known of that kind.
    """

    source: str
    digest: str
    num_bytes: int
    is_finished: bool = True
    remote: Remote | None = None
    fault: str = ""


@dataclass(frozen=True, kw_only=True)
class Remote:
    """Objects of one bundle by the name that they have in it, with their sizes."""

    files: Any = field(repr=False)
    objects: dict[str, str]
    sizes: dict[str, int]


def candidates(places: Sequence[str]) -> Iterator[Candidate]:
    """What lies in the places, in the order of names; UsageError for one that is not there."""
    for place in places:
        yield from _remote(place) if SCHEME in place else _local(Path(place))


# ------------------------------------------------------------------ folders


def _local(place: Path) -> Iterator[Candidate]:
    if place.is_file():
        yield _zip(place)
        return
    if not place.is_dir():
        raise UsageError(f"there is no folder {place}: name one that holds bundles")
    for folder, inner, names in os.walk(place, onerror=_unreadable):
        inner.sort()
        path = Path(folder)
        if len(path.parts) - len(place.parts) > DEEPEST:
            raise UsageError(
                f"{Path(*path.parts[: len(place.parts) + 1])} has more than {DEEPEST} folders "
                "inside each other: name those that hold bundles"
            )
        if bundles.REPORT in names:
            inner.clear()
            yield _folder(path, names)
        elif bundles.PLAN in names:
            inner.clear()
            yield _here(path, digest="", num_bytes=0, is_finished=False)
        else:
            yield from (_zip(path / name) for name in sorted(names) if name.endswith(ZIP))


def _unreadable(error: OSError) -> None:
    raise UsageError(f"{error.filename} cannot be read ({error.strerror}): give read permission")


def _folder(path: Path, names: Iterable[str]) -> Candidate:
    size = 0
    for name in names:
        with suppress(OSError):
            size += (path / name).lstat().st_size
    return _here(path, digest=_digest(path / bundles.REPORT), num_bytes=size)


def _zip(path: Path) -> Candidate:
    return _here(path, digest=_digest(path), num_bytes=path.lstat().st_size)


def _here(path: Path, *, digest: str, num_bytes: int, is_finished: bool = True) -> Candidate:
    """A folder or zip of this machine; one whose name no record can hold is refused by it."""
    source = os.fsencode(path).decode(errors="backslashreplace")
    fault = "" if source == str(path) else "its path is not UTF-8: rename it, and collect again"
    return Candidate(
        source=source, digest=digest, num_bytes=num_bytes, is_finished=is_finished, fault=fault
    )


def _digest(path: Path) -> str:
    """sha256 of a plain file; empty where it is none, or too large to be evidence."""
    try:
        return sha256(plain_files.read(path, LARGEST))
    except OSError:
        return ""


# ------------------------------------------------------------------ object storage


def _remote(place: str) -> Iterator[Candidate]:
    files, root = _file_system(place)
    scheme = place.partition(SCHEME)[0]
    try:
        listed = files.find(root, detail=True)
    except FileNotFoundError:
        raise UsageError(f"there is nothing at {place}: name what holds bundles") from None
    except Exception as error:  # noqa: BLE001 - each storage has its own errors
        raise _no_answer(place, error) from None
    if not listed:
        raise UsageError(f"there is nothing at {place}: name what holds bundles")
    for folder, objects in sorted(_by_bundle(listed).items()):
        remote = Remote(
            files=files,
            objects={name: path for name, (path, _) in objects.items()},
            sizes={name: size for name, (_, size) in objects.items()},
        )
        yield _remote_candidate(f"{scheme}{SCHEME}{folder}", remote, place)


def _file_system(place: str) -> tuple[Any, str]:
    extras.require("fleet", "object storage")
    import fsspec  # noqa: PLC0415 - only where an address is named

    try:
        files, root = fsspec.core.url_to_fs(place)
    except ImportError:
        raise UsageError(
            f"{place} needs a library of its own: {extras.line(['s3'])} for S3, or the one that "
            "fsspec names for this kind of address"
        ) from None
    except ValueError as error:
        raise UsageError(f"{place} is no address that fsspec knows: {error}") from None
    return files, str(root)


def _by_bundle(listed: dict[str, Any]) -> dict[str, dict[str, tuple[str, int]]]:
    """Objects by the folder that holds a report.dsse.json or a plan, then by name in the bundle."""
    folders = {
        path.rpartition("/")[0]
        for path in listed
        if path.rpartition("/")[2] in {bundles.REPORT, bundles.PLAN}
    }
    found: dict[str, dict[str, tuple[str, int]]] = {}
    for path, entry in listed.items():
        folder, _, name = path.rpartition("/")
        size = int(entry.get("size") or 0)
        above, _, last = folder.rpartition("/")
        if folder in folders:
            found.setdefault(folder, {})[name] = (path, size)
        elif last == bundles.LOGS and above in folders:
            found.setdefault(above, {})[f"{bundles.LOGS}/{name}"] = (path, size)
        elif name.endswith(ZIP):
            found[path] = {name: (path, size)}
    return found


def _remote_candidate(source: str, remote: Remote, place: str) -> Candidate:
    num_bytes = sum(remote.sizes.values())
    last = bundles.REPORT if bundles.REPORT in remote.objects else next(iter(remote.objects))
    if last != bundles.REPORT and not last.endswith(ZIP):
        return Candidate(source=source, digest="", num_bytes=num_bytes, is_finished=False)
    digest = ""
    if remote.sizes[last] <= LARGEST:
        try:
            digest = sha256(remote.files.cat_file(remote.objects[last]))
        except Exception as error:  # noqa: BLE001 - each storage has its own errors
            raise _no_answer(place, error) from None
    return Candidate(source=source, digest=digest, num_bytes=num_bytes, remote=remote)


def _no_answer(place: str, error: Exception) -> UsageError:
    return UsageError(
        f"{place} cannot be read ({type(error).__name__}: {error}): check the address and the "
        "credentials in the environment, and collect again"
    )


@contextmanager
def fetched(candidate: Candidate, scratch: Path) -> Iterator[Path]:
    """The bundle on this machine, for as long as it is read.

    EvidenceError for names or sizes that no bundle has, UsageError where the storage fails.
    """
    if candidate.fault:
        raise EvidenceError(candidate.fault)
    if candidate.remote is None:
        yield Path(candidate.source)
        return
    folder = scratch / sha256(candidate.source.encode())[:16]
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield _fetch(candidate, candidate.remote, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fetch(candidate: Candidate, remote: Remote, folder: Path) -> Path:
    is_zip = next(iter(remote.objects)).endswith(ZIP)
    if candidate.num_bytes > LARGEST:
        raise EvidenceError(f"it has more than {limits.size_words(LARGEST)}")
    strange = [name for name in remote.objects if not _is_known(name) and not is_zip]
    if strange:
        raise EvidenceError(f"it has what a bundle should not have: {strange[0]!r}")
    for name, path in remote.objects.items():
        try:
            data = remote.files.cat_file(path)
        except Exception as error:  # noqa: BLE001 - each storage has its own errors
            raise _no_answer(candidate.source, error) from None
        bundles.write(folder / ("bundle.zip" if is_zip else name), data)
    return folder / "bundle.zip" if is_zip else folder


def _is_known(name: str) -> bool:
    return name in KNOWN or bundles.LOG_NAME.fullmatch(name) is not None
