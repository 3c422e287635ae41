"""The bundle: the folder with all of the evidence, read whole and strictly, written safely.

Names are fixed. A file too many or too few is a fault, as is anything that is not a plain file:
what is not expected is not evidence, and a link would let the folder change after it was read.
Files are read once, and judged from the bytes that were read. How much of each is read is in
limits.py.
"""

from __future__ import annotations

import errno
import hashlib
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.ipc import confined_reader
from appliance.records.baseline import Baselines, Peaks
from appliance.records.criteria import Criteria
from appliance.records.journal import Line
from appliance.records.json import from_json, sha256
from appliance.records.order import Order
from appliance.records.plan import Plan
from appliance.records.qualified import Qualified
from appliance.records.signer import Signer
from appliance.records.system import System
from appliance.records.verdict import Verdict
from appliance.storage import limits, order_file, plain_files
from appliance.storage.criteria_file import parse_criteria
from appliance.storage.device_file import check_baselines
from appliance.storage.journal import (
    CHECKED_PASSES,
    FORGOTTEN_BYTES,
    followed,
    replay,
    without_place,
)
from appliance.storage.plain_files import Folder
from appliance.storage.qualified_file import check_qualified

R = TypeVar("R")

PLAN = "plan.json"
SYSTEM = "system.json"
CRITERIA = "criteria.toml"
BASELINES = "baselines.json"
PEAKS = "peaks.json"
QUALIFIED = "qualified.json"
SIGNER = "signer.json"
ORDER = "order.toml"
CHALLENGE = "challenge.json"
RECEIPT = "receipt.dsse.json"
JOURNAL = "journal.jsonl"
VERDICT = "verdict.json"
STATEMENT = "statement.dsse.json"
HTML = "report.html"
PDF = "report.pdf"
REPORT = "report.dsse.json"
LOGS = "logs"

PREPARED_FILES = (PLAN, SYSTEM, CRITERIA, BASELINES, PEAKS, QUALIFIED)
"""What is fixed before the first launch."""
RUN_FILES = (*PREPARED_FILES, JOURNAL)
"""What a run leaves, from which all else can be made."""
LARGER = "if you expect that much, read it with `bench verify --largest MIB`"
RENDERINGS = (HTML, PDF)
FINISHED_FILES = (*RUN_FILES, SIGNER, VERDICT, STATEMENT, *RENDERINGS, REPORT)
"""What a signed bundle holds."""
CARRIED_FILES = (*PREPARED_FILES, SIGNER, VERDICT, STATEMENT)
"""What the renderings carry; the journal and the logs too, unless they are too large."""
OPTIONAL_FILES = (ORDER, CHALLENGE, RECEIPT)
MAPPED_BYTES = 2**24
"""A journal from so many bytes on may be mapped: smaller ones lie in memory in many places."""
LOG_NAME = re.compile(r"logs/[A-Za-z0-9_][A-Za-z0-9._~-]*\.(stdout|stderr)")


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A run's files and what they say; `verdict` and `signer` are None until they are made.

    `order` is None where the buyer gave none.
    """

    folder: Path | None
    files: Mapping[str, bytes] = field(repr=False)
    plan: Plan
    system: System
    criteria: Criteria
    baselines: Baselines
    peaks: Peaks
    qualified: Qualified
    lines: tuple[Line, ...] = field(repr=False)
    verdict: Verdict | None
    signer: Signer | None
    order: Order | None = None

    @property
    def data(self) -> Mapping[str, bytes]:
        """The files that the signed statement lists, by name."""
        return {name: self.files[name] for name in data_names(self.files)}

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """The sha256 of each file, by name."""
        return {name: digest_of(data) for name, data in self.files.items()}

    @cached_property
    def num_lines(self) -> int:
        """How many lines the journal has."""
        return sum(piece.count(b"\n") for piece in _pieces(self.files[JOURNAL]))


def read(folder: Path, *, complete: bool = True) -> Bundle:
    """The bundle in a folder, every file parsed and the journal's chain followed.

    `complete` asks for a finished bundle; without it, for what a run leaves, and whatever of the
    rest is there (work in progress, in names that begin with a dot, is passed over). Raises
    EvidenceError for a file that is missing, too many, or not what its name says; UsageError if
    there is no such folder.
    """
    files = files_of(folder, complete=complete)
    return read_files(files, complete=complete, folder=folder)


def of_unfinished(
    folder: Folder,
    use: Callable[[Bundle, Iterator[Line]], R],
    check: Callable[[Bundle, list[Line]], None],
) -> R:
    """What `use` makes of what a run left in a folder that is open; anybody may have written it.

    It is handed the bundle without its lines, and these one after another: all of a large run's at
    once are most of the memory, and its bytes much of the rest, so a large journal is laid by in a
    file without a name. A confined child has read the same bytes before, and made the `check` of
    what they say: of such a bundle, and of all lines, which no longer say their place. Raises
    as `read`, and EvidenceError, too, where that child did not survive.
    """
    files = _journal_laid_by(read_folder(folder, complete=False))
    digest = digest_of(files.get(JOURNAL, b""))

    def work() -> None:
        check_names(files, needed=RUN_FILES, optional=(*FINISHED_FILES, *OPTIONAL_FILES))
        run = records_of(files, folder=folder.path)
        check(run, list(unchained_lines_of(files)[0]))

    rehearse(folder.path, files, work, passes=CHECKED_PASSES)
    taken = hashlib.sha256()
    lines = followed(files[JOURNAL], sha256(files[PLAN]), taken)
    made = use(records_of(files, folder=folder.path), lines)
    if taken.hexdigest() != digest:  # the child shares what is laid by
        raise EvidenceError(f"{JOURNAL} was changed while it was read: ask for all of it again")
    return made


def _journal_laid_by(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The files with a large journal outside of memory; in it where no folder has the room."""
    journal = files.get(JOURNAL, b"")
    if len(journal) < MAPPED_BYTES:
        return files
    with suppress(OSError):
        return {**files, JOURNAL: cast("bytes", plain_files.laid_by(journal))}
    return files


def rehearse(
    folder: Path, files: Mapping[str, bytes], work: Callable[[], object], *, passes: int = 1
) -> None:
    """Do `work` on a run's files in a confined child (see ipc/confined_reader.py)."""
    confined_reader.rehearse(str(folder), work, sum(map(len, files.values())), passes=passes)


def read_files(
    files: Mapping[str, bytes], *, complete: bool = True, folder: Path | None = None
) -> Bundle:
    """The bundle that these files make; as `read`, of what is in memory."""
    if complete:
        check_names(files, needed=FINISHED_FILES, optional=OPTIONAL_FILES)
    else:
        check_names(files, needed=RUN_FILES, optional=(*FINISHED_FILES, *OPTIONAL_FILES))
    bundle = records_of(files, folder=folder)
    return replace(bundle, lines=lines_of(files))


# ------------------------------------------------------------------ names


def check_names(names: Iterable[str], *, needed: Iterable[str], optional: Iterable[str]) -> None:
    """Raise EvidenceError naming what is missing or too many; logs are always optional."""
    present, wanted = set(names), set(needed)
    missing = sorted(wanted - present)
    if missing:
        raise EvidenceError(
            f"the bundle is not whole: {', '.join(missing)} missing; ask for all of it"
        )
    unknown = present - wanted - set(optional)
    extra = sorted(name for name in unknown if not LOG_NAME.fullmatch(name))
    if extra:
        raise EvidenceError(
            f"the bundle has what it should not have: {', '.join(map(repr, extra))}; "
            "verify it as it was made"
        )


def data_names(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names that the signed statement lists: all but itself and the report."""
    return tuple(sorted(set(names) - {STATEMENT, *RENDERINGS, REPORT}))


def check_digests(
    files: Mapping[str, bytes], subjects: Mapping[str, str], absent: Sequence[str], where: str
) -> None:
    """EvidenceError unless each file has the sha256 that the statement `where` signs of it.

    `absent` are files that it signs and that are not there, though they should be.
    """
    for name, data in sorted(files.items()):
        if name not in subjects:
            raise EvidenceError(f"{name} is not among the files that {where} signs; remove it")
        if digest_of(data) != subjects[name]:
            raise EvidenceError(f"{name} is not the file that was signed: ask for the original")
    if absent:
        raise EvidenceError(f"{where} signs {absent[0]}, which is missing; ask for it")


def check_carried(carried: Mapping[str, bytes], files: Mapping[str, bytes], where: str) -> int:
    """How many files a page (`where`) carries; EvidenceError unless they are the bundle's own."""
    expected = {STATEMENT, *data_names(files)}
    extra = sorted(carried.keys() - expected)
    if extra:
        raise EvidenceError(f"{where} carries {extra[0]}, which the bundle does not have")
    for name in sorted(expected):
        if name not in carried:
            if not may_stay_behind(name):
                raise EvidenceError(f"{where} does not carry {name}")
        elif carried[name] != files[name][:]:  # all of a mapping
            raise EvidenceError(f"{where} carries another {name} than the bundle has")
    return len(carried)


def carried_of(data: Mapping[str, bytes], most: int) -> dict[str, bytes]:
    """The data files that go into the pages: all, unless journal and logs are too large."""
    is_large = sum(map(len, data.values())) > most
    return {name: text for name, text in data.items() if not is_large or not may_stay_behind(name)}


def may_stay_behind(name: str) -> bool:
    """Whether a page need not carry this file, because it can be too large."""
    return name == JOURNAL or LOG_NAME.fullmatch(name) is not None


def log_name(launch: str, stream: str) -> str:
    """Name in the bundle of a launch's "stdout" or "stderr"."""
    return f"{LOGS}/{launch.replace('/', '.').replace(':', '-').replace('@', '-')}.{stream}"


# ------------------------------------------------------------------ reading


def files_of(
    folder: Path, *, complete: bool = True, total: int = limits.TOTAL, is_mapped: bool = False
) -> Mapping[str, bytes]:
    """Bytes of every file of a folder and of its logs/, by name; plain files only.

    A large journal is a mapping of its file where that is asked for (`is_mapped`): it is hashed,
    searched and sliced as its bytes are, and takes no memory.

    Names and sizes are looked at before anything is read, and no link is followed. Raises
    EvidenceError for what is no plain file, or larger than its cap or than `total` bytes in all;
    UsageError if there is no such folder.
    """
    with opened(folder) as one:
        return read_folder(one, complete=complete, total=total, is_mapped=is_mapped)


@contextmanager
def opened(folder: Path, *, follow: bool = True) -> Iterator[Folder]:
    """A run's folder, held open; `follow` a link there only where a person named it.

    Raises UsageError if there is no such folder, or it cannot be read.
    """
    try:
        one = Folder.at(folder, follow=follow)
    except (FileNotFoundError, NotADirectoryError):
        is_file = folder.is_file()
        what = f"{folder} is a file, and no folder" if is_file else f"there is no folder {folder}"
        raise UsageError(f"{what}: name a run's, out/<run id>") from None
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror}") from None
    with one:
        yield one


def read_folder(
    folder: Folder, *, complete: bool = True, total: int = limits.TOTAL, is_mapped: bool = False
) -> Mapping[str, bytes]:
    """As `files_of`, of a folder that is open already."""
    try:
        names = [name for name in folder.names() if complete or not name.startswith(".")]
        check_number(names)
        files = _contents(folder, names, total, is_mapped=is_mapped)
    except OSError as error:
        where = folder.path / (error.filename if isinstance(error.filename, str) else "")
        raise EvidenceError(f"{where} cannot be read: {error.strerror}") from None
    if complete and LOGS in names and not any(name.startswith(LOGS) for name in files):
        raise EvidenceError(f"{LOGS}/ in the bundle is empty, and no run leaves it so; remove it")
    return files


def _contents(
    folder: Folder, names: Sequence[str], total: int, *, is_mapped: bool
) -> Mapping[str, bytes]:
    with ExitStack() as stack:
        places = {name: (folder, name) for name in names if not _is_folder(folder, name)}
        if len(places) != len(names):
            logs = stack.enter_context(folder.inner(LOGS))
            places |= {f"{LOGS}/{name}": (logs, name) for name in logs.names()}
            check_number(places)
        sizes = {name: _size(name, place, own) for name, (place, own) in places.items()}
        check_sizes(sizes, total)
        mapped = {JOURNAL} if is_mapped and sizes.get(JOURNAL, 0) >= MAPPED_BYTES else set()
        return {
            name: _bytes(name, place, own, total, is_mapped=name in mapped)
            for name, (place, own) in places.items()
        }


def check_sizes(sizes: Mapping[str, int], total: int = limits.TOTAL) -> None:
    """EvidenceError for too many files, one above its cap, or more than `total` bytes in all."""
    check_number(sizes)
    for name, size in sizes.items():
        if size > limits.of_name(name, total):
            raise _too_large(name, total)
    if sum(sizes.values()) > total:
        raise EvidenceError(
            f"the bundle has {sum(sizes.values()):,} bytes, more than {limits.size_words(total)}: "
            f"{LARGER}"
        )


def check_number(names: Collection[str]) -> None:
    """EvidenceError for more files than any bundle has."""
    if len(names) > limits.MOST_FILES:
        raise EvidenceError(f"the bundle has {len(names):,} files, more than {limits.MOST_FILES}")


def _too_large(name: str, total: int) -> EvidenceError:
    most = limits.of_name(name, total)
    hint = f": {LARGER}" if most == total else ""
    return EvidenceError(f"{name!r} in the bundle has more than {limits.size_words(most)}{hint}")


def _is_folder(folder: Folder, name: str) -> bool:
    return name == LOGS and stat.S_ISDIR(folder.status(name).st_mode)


def _size(name: str, folder: Folder, own: str) -> int:
    """Size of a plain file; a link, a folder, a FIFO or a device is refused, and not opened."""
    status = folder.status(own)
    if not stat.S_ISREG(status.st_mode):
        raise EvidenceError(f"{name!r} in the bundle is not a plain file; remove it")
    return status.st_size


def _bytes(name: str, folder: Folder, own: str, total: int, *, is_mapped: bool) -> bytes:
    most = limits.of_name(name, total)
    try:
        if is_mapped:
            return cast("bytes", folder.map(own, most))
        return folder.read(own, most)
    except OSError as error:
        if error.errno == errno.EFBIG:  # it has grown since
            raise _too_large(name, total) from None
        if error.errno == errno.EINVAL:  # it is another thing since
            raise EvidenceError(f"{name!r} in the bundle is not a plain file; remove it") from None
        raise


def records_of(files: Mapping[str, bytes], *, folder: Path | None = None) -> Bundle:
    """The bundle without its journal: all other records, strictly parsed.

    EvidenceError too for records that were converted: tests judge them, nobody else reads them.
    """
    for name, data in files.items():
        if name.endswith(".json"):
            _check_values(name, data)
    return Bundle(
        folder=folder,
        files=files,
        plan=plan_of(files),
        system=from_json(System, files[SYSTEM], name=SYSTEM),
        criteria=_criteria(files[CRITERIA]),
        baselines=_baselines(files[BASELINES]),
        peaks=from_json(Peaks, files[PEAKS], name=PEAKS),
        qualified=_qualified(files[QUALIFIED]),
        lines=(),
        verdict=from_json(Verdict, files[VERDICT], name=VERDICT) if VERDICT in files else None,
        signer=from_json(Signer, files[SIGNER], name=SIGNER) if SIGNER in files else None,
        order=_order(files[ORDER]) if ORDER in files else None,
    )


def _check_values(name: str, data: bytes) -> None:
    """EvidenceError for so many values that they take all of a reader's memory, before it reads."""
    if sum(map(data.count, (b",", b"[", b"{"))) > limits.MOST_VALUES:
        raise EvidenceError(f"{name} has more than {limits.MOST_VALUES:,} values, as no run has")


def plan_of(files: Mapping[str, bytes]) -> Plan:
    """The plan; EvidenceError for one that is not in its strict form, or of no run of its own."""
    plan = from_json(Plan, files[PLAN], name=PLAN)
    if plan.converted_from:
        raise EvidenceError(
            f"{PLAN}: converted from a run of bench {plan.converted_from} for tests, so it is no "
            "evidence; ask for the bundle of a run"
        )
    return plan


def lines_of(files: Mapping[str, bytes]) -> tuple[Line, ...]:
    """The journal's lines, chained from the digest of plan.json."""
    return replay(files[JOURNAL], sha256(files[PLAN]))


def unchained_lines_of(files: Mapping[str, bytes]) -> tuple[tuple[Line, ...], str]:
    """As `lines_of`, without each line's place, a quarter of their memory; and a digest.

    The sha256 is of the bytes as they were read here: a file that is mapped may change meanwhile.
    """
    digest = hashlib.sha256()
    lines = tuple(
        without_place(line) for line in followed(files[JOURNAL], sha256(files[PLAN]), digest)
    )
    return lines, digest.hexdigest()


def digest_of(data: bytes) -> str:
    """The sha256 of a file; a mapped one takes no memory afterwards."""
    digest = hashlib.sha256()
    for piece in _pieces(data):
        digest.update(piece)
        del piece  # else two are held at once
    return digest.hexdigest()


def _pieces(data: bytes) -> Iterator[bytes]:
    """A file piece by piece; of a mapped one each is forgotten by memory before the next."""
    for begin in range(0, len(data), FORGOTTEN_BYTES):
        yield data[begin : begin + FORGOTTEN_BYTES]
        plain_files.forget(data, begin, begin + FORGOTTEN_BYTES)


def _order(data: bytes) -> Order:
    try:
        return order_file.read(data, ORDER)
    except UsageError as error:
        raise EvidenceError(str(error)) from None


def _baselines(data: bytes) -> Baselines:
    """Strictly parsed, and each of them one that a bundle of its own can have given."""
    baselines = from_json(Baselines, data, name=BASELINES)
    try:
        check_baselines(baselines, BASELINES)
    except UsageError as error:
        raise EvidenceError(str(error)) from None
    return baselines


def _qualified(data: bytes) -> Qualified:
    """Strictly parsed, and each record one by which something can be ruled."""
    qualified = from_json(Qualified, data, name=QUALIFIED)
    try:
        check_qualified(qualified, QUALIFIED)
    except UsageError as error:
        raise EvidenceError(str(error)) from None
    return qualified


def _criteria(data: bytes) -> Criteria:
    try:
        return parse_criteria(data, CRITERIA)
    except UsageError as error:
        raise EvidenceError(str(error)) from None


# ------------------------------------------------------------------ writing


def write(path: Path, data: bytes) -> None:
    """Write a file so that, whatever happens, either the old or the whole new one is there.

    What had its name is replaced, and no link is written through. Raises OutputError if the folder
    is not writable or the disk is full.
    """
    try:
        plain_files.replace(path, data)
    except OSError as error:
        raise not_written(path, error) from None


def write_in(folder: Folder, name: str, data: bytes) -> None:
    """As `write`, in a folder that is open: whoever moves its path moves nothing else."""
    try:
        folder.write(name, data)
    except OSError as error:
        raise not_written(folder.path / name, error) from None


def not_written(path: Path, error: OSError) -> OutputError:
    """The error of a file that the disk did not take."""
    if path.parent.is_dir():
        fix = f"make room or give write permission in {path.parent}"
    else:
        fix = f"{path.parent} is no folder and cannot be made: name another with --out"
    return OutputError(f"{path} cannot be written ({error.strerror}): {fix}")
