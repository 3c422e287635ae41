"""What signed runs say of cases and devices: launches by session, each session a run of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from appliance.errors import EvidenceError, UsageError
from appliance.evidence.baseline_key import device_name, key_of, mismatch
from appliance.records.baseline import BaselineKey
from appliance.records.journal import Line, SessionEnded
from appliance.records.json import sha256
from appliance.records.plan import Case
from appliance.records.verdict import CaseResult, Clock
from appliance.storage import bundle
from appliance.storage.bundle import Bundle
from appliance.verification import verify
from appliance.verification.terms import Terms

UNSTEADY = ("slowdown", "no_steady_state")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One verified bundle."""

    folder: Path
    bundle: Bundle
    statement: str

    @property
    def spans(self) -> tuple[tuple[datetime, datetime], ...]:
        """Begin and end (UTC) of each session, by the journal."""
        return tuple(_spans(self.bundle.lines))


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one session of a run says of one case on one device: ln(step seconds) of launches."""

    run: Run
    session: int
    case: Case
    key: BaselineKey
    device: str
    steps: tuple[float, ...]
    walls: tuple[float, ...]
    num_unsteady: int

    @property
    def run_key(self) -> tuple[str, int]:
        """What launches share that are of one run."""
        return self.run.bundle.plan.run_id, self.session

    def values(self, clock: Clock) -> tuple[float, ...]:
        return self.walls if clock == "wall" else self.steps


def verified(
    folder: Path, trusted: Sequence[bytes], moment: datetime | None, *, allow: bool
) -> Run:
    """The run in a folder; EvidenceError where it does not verify, UsageError for a file."""
    if folder.is_file():
        raise UsageError(f"{folder} is a file: a baseline is made of the folder of a run")
    verification, files = verify.read_confined(
        folder, Terms(trusted=trusted, allow_development=allow, moment=moment)
    )
    if verification.faults:
        raise EvidenceError(f"{folder} does not verify: {verification.faults[0]}")
    if verification.verdict is None:
        raise EvidenceError(f"{folder}: its verdict cannot be derived again, so nothing is certain")
    content = bundle.read_files(files, folder=folder)
    return Run(folder=folder, bundle=content, statement=sha256(files[bundle.STATEMENT]))


def measured_in(run: Run) -> list[Measured]:
    """Of each session, case and device with timed launches."""
    verdict, plan = run.bundle.verdict, run.bundle.plan
    results = {} if verdict is None else {result.case: result for result in verdict.cases}
    return [
        one
        for case in plan.cases
        if case.is_timed and not (case.unsupported or case.software) and case.id in results
        for session in range(1, plan.sessions + 1)
        if (one := _measurement(run, session, case, results[case.id])) is not None
    ]


def check_comparable(measured: Sequence[Measured]) -> None:
    """UsageError for runs that were made with other software, or under other settings."""
    first: dict[str, Measured] = {}
    for item in measured:
        other = first.setdefault(item.key.case, item)
        differing = mismatch(other.key, item.key)
        if differing:
            raise UsageError(
                f"{item.run.folder} is not comparable with {other.run.folder}: {item.key.case} "
                f"there is for {differing}; make two baselines"
            )


def _measurement(run: Run, session: int, case: Case, result: CaseResult) -> Measured | None:
    system, plan = run.bundle.system, run.bundle.plan
    sessions: Mapping[str, int] = {launch.id: launch.session for launch in plan.launches}
    launches = [
        launch
        for launch in result.launches
        if launch.outcome == "completed"
        and launch.log_seconds is not None
        and sessions[launch.launch] == session
    ]
    if not launches:
        return None
    return Measured(
        run=run,
        session=session,
        case=case,
        key=key_of(case, plan.protocol, system),
        device=device_name(system, case.device),
        steps=tuple(one.log_seconds for one in launches if one.log_seconds is not None),
        walls=tuple(one.wall_log_seconds for one in launches if one.wall_log_seconds is not None),
        num_unsteady=sum(one.series in UNSTEADY for one in launches),
    )


def _spans(lines: Sequence[Line]) -> Iterator[tuple[datetime, datetime]]:
    begin: datetime | None = None
    moment: datetime | None = None
    for line in lines:
        moment = datetime.fromisoformat(line.utc)
        begin = begin or moment
        if isinstance(line.event, SessionEnded):
            yield begin, moment
            begin = None
    if begin is not None and moment is not None:
        yield begin, moment
