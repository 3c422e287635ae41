"""The verb `fleet collect`: read what is new, then make tables and the statement from all of it.

Bundles are read by as many processes as the machine has, in the order of their names, and each is
entered in the ledger as soon as it and those before it are done. Whatever ends the program, the
next call goes on with the first bundle that is not in the ledger.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from appliance.collection import campaigns, ledger, sources, standing, statement, tables
from appliance.collection.campaigns import Wanted
from appliance.collection.reading import Reader
from appliance.collection.rows import Entry, Finding
from appliance.collection.sources import Candidate
from appliance.collection.standing import Fleet
from appliance.errors import ApplianceError, EvidenceError, UsageError
from appliance.fleet import states
from appliance.fleet.folder import JOBS
from appliance.fleet.warming import warm
from appliance.ipc.forked_pool import forked_pool
from appliance.records.json import Record, sha256
from appliance.signing.keys import Key

SCRATCH = ".incoming"
IN_FLIGHT = 4  # bundles a process that are fetched and not yet entered
Progress = Callable[[int], None]

_readers: list[Reader] = []
"""In a worker the one reader; empty elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected(Record):
    """What a collection came to; `num_new` are bundles that were read by this call."""

    schema: str = "bench/fleet-collection/1"
    campaign: str
    num_new: int
    num_bundles: int
    num_refused: int
    num_nodes: int
    accepted: int
    rejected: int
    open: int
    statement: str


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is collected: a campaign, where its bundles lie, and whose signatures count."""

    campaign: Path
    places: tuple[str, ...]
    out: Path
    trusted: tuple[bytes, ...]
    allow_development: bool
    key: Key
    num_processes: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    @property
    def trust(self) -> str:
        """Digest of whose signatures count, which each line of the ledger has."""
        words = [str(self.allow_development), *sorted({sha256(pem) for pem in self.trusted})]
        return sha256(" ".join(words).encode())


def collect(request: Request, progress: Progress = lambda _: None) -> Collected:
    """Collect, and say what it came to.

    Raises UsageError for a place or a file that is not there, OutputError where the disk does not
    take what is written, EvidenceError for a campaign that is not by a trusted signer.
    """
    wanted = campaigns.load(
        request.campaign, request.trusted, allow_development=request.allow_development
    )
    reader = Reader(
        wanted=wanted, trusted=request.trusted, allow_development=request.allow_development
    )
    with ledger.opened(request.out, wanted.digest) as book:
        unfinished = _read_new(request, reader, book, progress)
        _check_trust(request, book)
        fleet = standing.fleet(
            wanted.campaign,
            book.entries,
            begun=begun_attempts(wanted),
            unfinished=unfinished,
        )
        book.sync()
        tables.write(request.out, fleet)
        signed = statement.write(request.out, wanted, fleet, request.key)
        num_new = book.num_appended
    return _collected(fleet, num_new, signed)


def _check_trust(request: Request, book: ledger.Ledger) -> None:
    """UsageError where the ledger has bundles that were held to other signers than this call's."""
    others = [one.source for one in book.entries if one.trust != request.trust]
    if others:
        raise UsageError(
            f"{len(others)} bundles, as {others[0]}, were collected under another --trust and do "
            "not lie where this call looks: name their places too, or another folder with --out"
        )


def _collected(fleet: Fleet, num_new: int, signed: Path) -> Collected:
    words = [one.state for one in fleet.standings]
    return Collected(
        campaign=fleet.campaign.name,
        num_new=num_new,
        num_bundles=sum(len(one.attempts) for one in fleet.standings),
        num_refused=len(fleet.refused),
        num_nodes=len(words),
        accepted=words.count("accepted"),
        rejected=words.count("rejected"),
        open=words.count("open"),
        statement=str(signed),
    )


def begun_attempts(wanted: Wanted) -> Mapping[str, int]:
    """Attempts of each node that began on it, as far as the campaign's folder says."""
    nodes = wanted.folder / campaigns.NODES
    names = [node.name for node in wanted.campaign.nodes]
    return {name: len(states.begun_attempts(nodes / name / JOBS)) for name in names}


# ------------------------------------------------------------------ reading


def _read_new(
    request: Request, reader: Reader, book: ledger.Ledger, progress: Progress
) -> list[Entry]:
    """Enter what is not in the ledger; the runs that have not ended, which are never entered."""
    unfinished: list[Entry] = []
    scratch = request.out / SCRATCH
    with _pool(reader, request.num_processes) as pool:
        trust = request.trust
        new = _new(sources.candidates(request.places), book, trust, unfinished)
        depth = IN_FLIGHT * request.num_processes
        for entry in _entries(pool, new, scratch, depth):
            book.append(replace(entry, trust=trust))
            progress(book.num_appended)
    shutil.rmtree(scratch, ignore_errors=True)
    return unfinished


def _new(
    candidates: Iterable[Candidate],
    book: ledger.Ledger,
    trust: str,
    unfinished: list[Entry],
) -> Iterator[Candidate]:
    for candidate in candidates:
        if not candidate.is_finished:
            finding = Finding(
                node="", reason="unfinished", sentence="the run has not ended", run=None
            )
            unfinished.append(_entry(candidate, finding))
        elif not book.has(candidate.source, candidate.digest, trust):
            yield candidate


def _entry(candidate: Candidate, finding: Finding) -> Entry:
    return Entry(
        source=candidate.source,
        digest=candidate.digest,
        num_bytes=candidate.num_bytes,
        finding=finding,
    )


def _entries(
    pool: ProcessPoolExecutor, candidates: Iterable[Candidate], scratch: Path, depth: int
) -> Iterator[Entry]:
    """An entry for each candidate, in their order; at most `depth` are under way.

    Where a place breaks off, what was fetched before is entered first.
    """
    waiting: deque[tuple[Candidate, Future[Finding] | None, ExitStack, str]] = deque()
    broken: UsageError | None = None
    with ExitStack() as all_fetched:
        try:
            for candidate in candidates:
                fetched = all_fetched.enter_context(ExitStack())
                try:
                    path = fetched.enter_context(sources.fetched(candidate, scratch))
                    waiting.append((candidate, pool.submit(_read, path), fetched, ""))
                except EvidenceError as error:
                    waiting.append((candidate, None, fetched, str(error)))
                if len(waiting) >= depth:
                    yield _ended(*waiting.popleft())
        except UsageError as error:
            broken = error
        while waiting:
            yield _ended(*waiting.popleft())
    if broken is not None:
        raise broken


def _ended(
    candidate: Candidate, future: Future[Finding] | None, fetched: ExitStack, fault: str
) -> Entry:
    with fetched:
        if future is None:
            finding = Finding(node="", reason="unreadable", sentence=fault, run=None)
        else:
            try:
                finding = future.result()
            except BrokenProcessPool:
                raise ApplianceError(
                    "a process that reads bundles was ended from outside: free memory and collect "
                    "again, which goes on where this stopped"
                ) from None
    return _entry(candidate, finding)


# ------------------------------------------------------------------ workers


def _pool(reader: Reader, num_processes: int) -> ProcessPoolExecutor:
    """Warm workers, forked before anything starts a thread."""
    warm(Finding)

    def begin() -> None:
        _readers[:] = [reader]

    return forked_pool(num_processes, begin)


def _read(path: Path) -> Finding:
    (reader,) = _readers
    return reader.read(path)


def names(places: Sequence[str]) -> tuple[str, ...]:
    """The places as they are entered: folders of this machine by their whole path."""
    return tuple(
        place if sources.SCHEME in place else str(Path(place).absolute()) for place in places
    )
