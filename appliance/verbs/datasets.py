"""The verb `data`, and where a run finds its data sets: fetch, verify, list.

A data set is what workloads/datasets.toml pins: each file by size and sha256. It comes from
its address or from a mirror folder of the same layout, <name>/<file>, and takes its place only
when its digest is right, so whatever lies under its final name was whole once. A download that
was cut short goes on where it stopped. Nothing here is called while a suite runs: a run reads
the folder that was named, or BENCH_DATA, or the one inside the image.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import shutil
import stat
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from appliance.errors import OutputError, UsageError
from appliance.records.dataset import DataFile, DataSet, Datasets
from appliance.storage.dataset_file import load_datasets
from appliance.storage.plain_files import Folder
from appliance.storage.toml_file import did_you_mean

IN_IMAGE = Path("/usr/share/bench/data")
VARIABLE = "BENCH_DATA"
CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 30.0
NUM_ATTEMPTS = 3

Say = Callable[[str], None]


def _silent(_text: str) -> None:
    pass


# ------------------------------------------------------------------ where a run finds them


def folder(option: Path | None) -> Path | None:
    """The folder that data sets are read from: `option`, else BENCH_DATA, else the image's.

    None if there is none. Raises UsageError if a place that was named is no folder.
    """
    named = option or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if named is None:
        return IN_IMAGE if IN_IMAGE.is_dir() else None
    if not named.is_dir():
        what = "--data" if option else VARIABLE
        raise UsageError(f"{what} names {named}, which is no folder: `bench data fetch` makes one")
    return named.absolute()


def available_datasets(place: Path | None, manifest: Datasets | None = None) -> frozenset[str]:
    """Names of the data sets that are whole in `place`, every byte checked, or in a package."""
    known = (manifest or load_datasets()).dataset
    return frozenset(item.name for item in known if not _faults(item, place))


# ------------------------------------------------------------------ the verbs


def rows(manifest: Datasets | None = None) -> list[dict[str, str]]:
    """Each data set in words: name, summary, licence, source, size and who uses it."""
    return [_row(item) for item in (manifest or load_datasets()).dataset]


def fetch(
    names: Sequence[str],
    to: Path,
    *,
    mirror: Path | None = None,
    progress: Say = _silent,
    manifest: Datasets | None = None,
) -> None:
    """Put data sets (all if none is named) into `to`, from `mirror` or else from their addresses.

    What is there and right is left alone. Raises UsageError for an unknown name, a source that
    cannot be reached or that gives another file, OutputError if `to` cannot take them.
    """
    for item in _chosen(names, manifest or load_datasets()):
        if item.package:
            progress(f"{item.name}: inside the package {item.package}, nothing to fetch")
        for file in item.file:
            _bring(item, file, to, mirror, progress)


def verify(place: Path, *, progress: Say = _silent, manifest: Datasets | None = None) -> None:
    """Check every data set that has a folder in `place`; UsageError if one is not whole."""
    known = [item for item in (manifest or load_datasets()).dataset if item.file]
    present = [item for item in known if (place / item.name).is_dir()]
    if not present:
        raise UsageError(f"{place} holds no data set: `bench data fetch --to {place}` makes it so")
    broken = [fault for item in present for fault in _faults(item, place)]
    for item in known:
        state = "not there" if item not in present else "not whole"
        progress(f"{item.name}: {state if _faults(item, place) else 'whole, every digest right'}")
    if broken:
        raise UsageError(f"{broken[0]}; `bench data fetch --to {place}` fixes it")


def _row(item: DataSet) -> dict[str, str]:
    size = sum(file.size_bytes for file in item.file)
    amount = f"{size:,} bytes" if item.file else f"inside {item.package}"
    return {
        "name": item.name,
        "summary": f"{item.summary}; {amount}; {item.licence}; for {', '.join(item.used_by)}",
        "licence": item.licence,
        "source": item.source,
        "size_bytes": str(size),
        "used_by": ", ".join(item.used_by),
    }


def _chosen(names: Sequence[str], manifest: Datasets) -> tuple[DataSet, ...]:
    known = {item.name: item for item in manifest.dataset}
    for name in names:
        if name not in known:
            raise UsageError(f'there is no data set called "{name}"{did_you_mean(name, known)}')
    return tuple(known[name] for name in names) or manifest.dataset


# ------------------------------------------------------------------ files against the manifest


def _faults(item: DataSet, place: Path | None) -> list[str]:
    """What keeps a data set from being whole, one clause per file."""
    if item.package:
        return [] if _is_installed(item.package) else [f"{item.package} is not installed"]
    if place is None:
        return [f"{item.name} is not there"]
    paths = [(place / item.name / file.name, file) for file in item.file]
    return [f"{path} {fault}" for path, file in paths if (fault := _fault(path, file))]


def _fault(path: Path, file: DataFile) -> str:
    """Why this is not the file that the manifest pins, or nothing."""
    try:
        with path.open("rb") as stream:
            return _fault_in(stream, file)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _fault_in(stream: BufferedReader, file: DataFile) -> str:
    size = os.fstat(stream.fileno()).st_size
    if size != file.size_bytes:
        return f"has {size:,} bytes instead of {file.size_bytes:,}"
    digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return "" if digest == file.sha256 else "differs from its sha256"


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


# ------------------------------------------------------------------ bringing a file


@dataclass(frozen=True, kw_only=True)
class _Partial:
    """An unfinished file in the open folder of its data set.

    Its name can be known before, so neither a link nor another name of a file is written through,
    and whoever puts a link in the place of the folder changes nothing elsewhere.
    """

    folder: Folder
    name: str

    def begun(self) -> int:
        """Bytes of a download that was cut short; whatever else has its name is removed."""
        with suppress(FileNotFoundError):
            status = self.folder.status(self.name)
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                return status.st_size
            self.folder.unlink(self.name)
        return 0

    def opened(self, *, anew: bool) -> BinaryIO:
        """It, to be written on, or a new one in the place of what has its name."""
        if not anew:
            descriptor = self.folder.open(self.name, os.O_WRONLY | os.O_APPEND)
            if os.fstat(descriptor).st_nlink == 1:
                return os.fdopen(descriptor, "ab")
            os.close(descriptor)
            raise OSError(errno.EMLINK, "it has another name too", self.name)
        with suppress(FileNotFoundError):
            self.folder.unlink(self.name)
        return os.fdopen(self.folder.create(self.name), "wb")

    def fault(self, file: DataFile) -> str:
        """Why it is not the file that the manifest pins, or nothing."""
        with os.fdopen(self.folder.open(self.name), "rb") as stream:
            return _fault_in(stream, file)


def _bring(item: DataSet, file: DataFile, to: Path, mirror: Path | None, say: Say) -> None:
    """Make it the file that the manifest pins; say what was done."""
    title, goal = f"{item.name}/{file.name}", to / item.name / file.name
    if not _fault(goal, file):
        say(f"{title}: already there")
        return
    try:
        to.mkdir(parents=True, exist_ok=True)
        with Folder.at(to) as root, root.inner(item.name, make=True) as place:
            partial = _Partial(folder=place, name=f"{file.name}.partial")
            if mirror is None:
                _download(title, file, partial, say)
            else:
                _copy(mirror / item.name / file.name, file, partial)
            place.rename(partial.name, file.name)
    except OSError as error:
        raise OutputError(f"{goal} cannot be written ({error.strerror or error})") from None
    say(f"{title}: {file.size_bytes:,} bytes, sha256 right")


def _copy(source: Path, file: DataFile, partial: _Partial) -> None:
    fault = _fault(source, file)
    if fault:
        raise UsageError(f"{source} {fault}: put the right file into the mirror")
    with source.open("rb") as reader, partial.opened(anew=True) as writer:
        shutil.copyfileobj(reader, writer)


def _download(title: str, file: DataFile, partial: _Partial, say: Say) -> None:
    """Fetch into `partial` from the first address that gives the pinned file."""
    reasons: list[str] = []
    for url in file.urls:
        for _ in range(NUM_ATTEMPTS):
            begun = partial.begun()
            say(f"{title}: fetching from {url}" + (f", from byte {begun:,}" if begun else ""))
            try:
                _receive(url, file, partial, begun)
            except urllib.error.URLError as error:
                reasons.append(str(error.reason))
                break
            except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
                reasons.append(str(error) or type(error).__name__)
                continue
            fault = partial.fault(file)
            if not fault:
                return
            reasons.append(f"what came {fault}")
            if partial.begun() >= file.size_bytes:  # not cut short but wrong
                partial.folder.unlink(partial.name)
                if not begun:
                    break
    raise UsageError(
        f"{title} could not be fetched ({reasons[-1]}): take it from a folder with --mirror, "
        "or start again where there is a network"
    )


def _receive(url: str, file: DataFile, partial: _Partial, begun: int) -> None:
    """Append what is missing after `begun` bytes, or begin again if the server wants so."""
    if begun >= file.size_bytes:
        return
    request = urllib.request.Request(url)  # noqa: S310 - the catalog takes https only
    if begun:
        request.add_header("Range", f"bytes={begun}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 - same
        is_rest = response.status == http.HTTPStatus.PARTIAL_CONTENT
        left = file.size_bytes + 1 - (begun if is_rest else 0)  # one more shows a longer file
        with partial.opened(anew=not is_rest) as stream:
            while left > 0 and (part := response.read(min(CHUNK_BYTES, left))):
                stream.write(part)
                left -= len(part)
