"""The runs of a qualification: its stages as they lie in the folder, and what of them is done.

Each stage that is made, and each that goes on after a stop, is a run of its own. A launch that was
cut off is made again by the next one, but not a third time: it may be what ended the machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import EvidenceError
from appliance.evidence.journal_index import index_of
from appliance.probe import node
from appliance.qualifying.observation import Seen
from appliance.qualifying.rows import row_of
from appliance.records.journal import LaunchEnded, LaunchStarted, Line
from appliance.records.json import from_json, sha256
from appliance.records.plan import Plan
from appliance.records.system import System
from appliance.storage import bundle, input_file, limits
from appliance.storage.journal import replay

RUNS = "runs"
MOST_STARTS = 2
"""So often a launch is begun that was cut off each time."""
FAULTS = ("crashed", "timed_out")


@dataclass(frozen=True, kw_only=True)
class StageRun:
    """One run of one stage, as far as it came."""

    plan: Plan
    system: System
    lines: tuple[Line, ...]
    digest: str

    @property
    def stage(self) -> str:
        return self.plan.suite


def read(folder: Path, *, is_foreign: bool = False) -> list[StageRun]:
    """The runs in the folder of a qualification, the oldest first.

    A folder that anybody may have written (`is_foreign`) has so many runs and so many bytes at
    most, no link among its runs, and a confined child reads each run first.

    A last line that was not written whole is no part of a journal; EvidenceError where another is
    not as it was written, or where plan or system are not. A folder without a journal holds a run
    that was cut off before it began.
    """
    places = sorted(one for one in folder.glob(f"{RUNS}/*") if (one / bundle.JOURNAL).is_file())
    if is_foreign:
        _check_sizes(folder, places)
    found = (_read(place, is_foreign=is_foreign) for place in places)
    return sorted(found, key=lambda one: one.plan.created_utc)


def _check_sizes(folder: Path, places: Sequence[Path]) -> None:
    """EvidenceError for a link in the place of a run, and for more than any qualification has."""
    bundle.check_number([place.name for place in places])
    for place in places:
        if place.is_symlink():
            raise EvidenceError(f"{place} is a link and no run; name another folder with --out")
    size = sum((place / bundle.JOURNAL).stat().st_size for place in places)
    if size > limits.TOTAL:
        raise EvidenceError(
            f"{folder} has journals of more than {limits.size_words(limits.TOTAL)}, which no "
            "qualification has; name another folder with --out"
        )


def _read(place: Path, *, is_foreign: bool) -> StageRun:
    data = {name: _file_of(place, name) for name in (bundle.PLAN, bundle.SYSTEM, bundle.JOURNAL)}
    try:
        if is_foreign:
            bundle.rehearse(place, data, lambda: _parsed(data))
        return _parsed(data)
    except EvidenceError as error:
        raise EvidenceError(f"{place}: {error}; name another folder with --out") from None


def _file_of(place: Path, name: str) -> bytes:
    fix = "name the folder of a qualification, or another --out"
    return input_file.read(place / name, fix=fix, follow=False, most=limits.of_name(name))


def _parsed(data: Mapping[str, bytes]) -> StageRun:
    whole = data[bundle.JOURNAL][: data[bundle.JOURNAL].rfind(b"\n") + 1]
    plan = from_json(Plan, data[bundle.PLAN], name=bundle.PLAN)
    return StageRun(
        plan=plan,
        system=_system(data[bundle.SYSTEM], plan),
        lines=replay(whole, sha256(data[bundle.PLAN])),
        digest=sha256(whole),
    )


def _system(data: bytes, plan: Plan) -> System:
    """The machine of a run; EvidenceError where it is not the one that the plan names."""
    system = from_json(System, data, name=bundle.SYSTEM)
    if node.identity_digest(system.identity) != plan.digests.get("identity"):
        raise EvidenceError(f"{bundle.SYSTEM} is not of the machine that the run was planned on")
    return system


def seen(runs: Iterable[StageRun]) -> Iterator[Seen]:
    """What the runs showed, case by case."""
    for run in runs:
        for evidence in index_of(run.plan, run.lines).cases.values():
            yield Seen(
                evidence=evidence,
                system=run.system,
                stage=run.stage,
                journal=run.digest,
                created_utc=run.plan.created_utc,
                bench_version=run.plan.bench_version,
            )


def done(runs: Sequence[StageRun], stage: str) -> set[str]:
    """Launches of a stage that are not to be made any more."""
    lines = [line.event for run in runs if run.stage == stage for line in run.lines]
    starts = Counter(event.launch for event in lines if isinstance(event, LaunchStarted))
    ended = {
        event.launch
        for event in lines
        if isinstance(event, LaunchEnded) and event.outcome != "interrupted"
    }
    return ended | {launch for launch, count in starts.items() if count >= MOST_STARTS}


def failed(runs: Iterable[StageRun]) -> set[tuple[str, bool]]:
    """Rows whose launch crashed or did not end in time, each with whether it is a small one."""
    rows: set[tuple[str, bool]] = set()
    for run in runs:
        sizes = {case.id: case.small for case in run.plan.cases}
        for line in run.lines:
            row = fault_of(line, sizes)
            rows |= {row} if row else set()
    return rows


def fault_of(line: Line, is_small: dict[str, bool]) -> tuple[str, bool] | None:
    """The row that a line of the journal reports to have failed, None of any other line."""
    event = line.event
    if not isinstance(event, LaunchEnded) or event.outcome not in FAULTS:
        return None
    case = event.launch.rpartition("/")[0]
    return row_of(case)[0], is_small[case]
