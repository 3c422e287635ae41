"""The stage of a qualification that times steps beside a process that waits on their device.

Once for each model of accelerator, on its first device, before any row: in pairs of halves, one
alone and one beside a process as a launch ahead is (`worker.idle`), in turn the first. The trial
with every step's time is a file in the folder of the qualification, so that it is made once; one
that was disturbed is made again. On processors nothing waits beside a launch, so nothing is timed.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from appliance.errors import EvidenceError, UsageError
from appliance.evidence.qualification import device_digest, stack
from appliance.linux.cpu_contention import Neighbours
from appliance.linux.sysfs import Tree
from appliance.qualifying import idle_program
from appliance.qualifying.idle_program import IdleProgram, TrialFailed
from appliance.qualifying.idle_trial import CLOCK, Half, IdleTrial, record, words
from appliance.readiness.interference import num_processors
from appliance.records.json import from_json, sha256, to_json
from appliance.records.qualified import IdleNeighbour, Qualified
from appliance.records.system import Device, System
from appliance.records.vocabulary import THROTTLES, possible
from appliance.runner.environment import child_environment, usable_cores
from appliance.scheduling.idle_neighbours import KINDS
from appliance.scheduling.launch_kinds import rule
from appliance.storage import bundle, input_file, limits, qualified_file
from appliance.vendors.base import Vendor
from appliance.version import VERSION

NAME = "idle_neighbour"
"""What the stage is called where rows are chosen."""
FOLDER = "idle"
LARGEST = 4 * limits.MIB
SHARE = 0.5
"""Of the minutes that are left it takes no more, or is not begun."""
LIBRARIES = ("torch",)
LONGEST_REST_SECONDS = 10.0
IMPORT_SECONDS = 5.0
"""What importing torch takes, about; a half alone rests as long."""
VALUES = (CLOCK, "power_watts", "memory_used_bytes", *(f"throttled_{name}" for name in THROTTLES))
ON_PROCESSORS = (
    "steps beside a process that waits were not timed: on processors nothing waits beside a launch"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How many pairs, and the seconds of a block, of the warm-up before a half, and of the pause.

    The pause is after a process has begun or ended its use of the device, which may stall it. A
    half alone rests as much longer as a neighbour took to begin, so that the device is as cool.
    """

    pairs: int = max(10, rule().pairs)
    block: float = 0.3
    warm_up: float = 0.1
    settle: float = 1.0

    @property
    def seconds(self) -> float:
        """What the trial takes, with a second for each neighbour to begin and ten for the timer."""
        half = 1.0 + self.settle + self.warm_up + len(KINDS) * self.block
        return 10.0 + 2 * self.pairs * half


@dataclass(frozen=True, kw_only=True)
class Place:
    """The node, and what of the world a trial needs; `words` start the worker's program."""

    vendor: Vendor
    system: System
    interrupted: Callable[[], str]
    pace: Pace = field(default_factory=Pace)
    words: Sequence[str] = field(default_factory=idle_program.command)
    sleep: Callable[[float], object] = time.sleep

    @property
    def is_measured(self) -> bool:
        """Whether a process may come to wait beside a launch at all."""
        return self.vendor.torch_type != "cpu"

    @property
    def seconds(self) -> float:
        """What a trial takes; where processes are no forks, each imports torch for itself."""
        imports = 0.0 if self.vendor.fork_safe else 2 * IMPORT_SECONDS * self.pace.pairs
        return self.pace.seconds + imports

    @property
    def devices(self) -> Sequence[Device]:
        """The first device of each model."""
        first: dict[str, Device] = {}
        for device in self.system.identity.devices:
            first.setdefault(device.model, device)
        return tuple(first.values())


# ------------------------------------------------------------------ the stage


@dataclass(kw_only=True)
class IdleStage:
    """The trials of one qualification: those in its folder `out`, and those that are made now."""

    out: Path
    place: Place
    records: dict[str, IdleNeighbour] = field(init=False)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """EvidenceError for a file that is not as it was written, UsageError of another machine."""
        self.records = {one.model: one for one in _read_all(self.out, self.place)}

    @property
    def is_whole(self) -> bool:
        """Whether each model of the node has a record."""
        return all(device.model in self.records for device in self.place.devices)

    def make(self, left_seconds: Callable[[], float], say: Callable[[str], object]) -> None:
        """Time what was not timed undisturbed; what cannot be timed is a note, and no record."""
        if not self.place.is_measured:
            self.notes.append(ON_PROCESSORS)
            return
        for device in self.place.devices:
            known = self.records.get(device.model)
            if known is None or known.disturbed:
                self._make(device, left_seconds(), say)
        for one in self.records.values():
            self.notes += words(one)

    def _make(self, device: Device, left_seconds: float, say: Callable[[str], object]) -> None:
        takes = self.place.seconds
        if takes > SHARE * left_seconds:
            left = max(0.0, left_seconds)
            why = f"it takes about {takes:.0f} s, and twice that was not left ({left:.0f} s)"
            self.notes.append(_not_timed(device, why))
            return
        say(f"timing steps on {device.id} beside a process that waits there: about {takes:.0f} s")
        try:
            trial = measure(device, self.place)
        except TrialFailed as failed:
            self.notes.append(_not_timed(device, str(failed)))
            return
        data = to_json(trial)
        path = _path(self.out, device.model)
        path.parent.mkdir(exist_ok=True)
        bundle.write(path, data)
        self.records[device.model] = record(trial, sha256(data))


def _not_timed(device: Device, why: str) -> str:
    return (
        f"steps beside a process that waits on {device.id} were not timed, and nothing is "
        f"recorded of it: {why}"
    )


def _path(out: Path, model: str) -> Path:
    return out / FOLDER / f"{qualified_file.slug(model)}.json"


def _read_all(out: Path, place: Place) -> Iterator[IdleNeighbour]:
    """The records of the trials in the folder, of the models of this node."""
    for device in place.devices if place.is_measured else ():
        path = _path(out, device.model)
        if path.exists():
            yield _read(path, place)


def _read(path: Path, place: Place) -> IdleNeighbour:
    fix = "name another folder with --out"
    data = input_file.read(path, fix=fix, follow=False, most=LARGEST)
    try:
        trial = from_json(IdleTrial, data, name=str(path))
        one = _sound(trial, sha256(data), str(path))
    except (EvidenceError, UsageError) as error:
        raise EvidenceError(f"{error}; {fix}") from None
    here = [
        (device.model, device_digest(place.system, device), _stack(place.system, device))
        for device in place.system.identity.devices
    ]
    if (one.model, one.device, dict(one.stack)) not in here:
        raise UsageError(f"{path} was made on another machine or with other libraries: {fix}")
    return one


def _sound(trial: IdleTrial, digest: str, name: str) -> IdleNeighbour:
    """The record of a trial whose halves are whole; UsageError of another."""
    if not all(half.step_seconds.get(kind) for half in trial.halves for kind in KINDS):
        raise UsageError(f"{name}: a half has no steps of some kind")
    one = record(trial, digest)
    qualified_file.check_qualified(Qualified(record=(), idle=(one,)), name)
    return one


def _stack(system: System, device: Device) -> Mapping[str, str]:
    """What chooses kernels, in the order in which it is written."""
    return dict(sorted(stack(system, device, LIBRARIES).items()))


# ------------------------------------------------------------------ one trial


def measure(device: Device, place: Place) -> IdleTrial:
    """Time the pairs on one device; TrialFailed with a clause where that cannot be done."""
    vendor, system = place.vendor, place.system
    users = vendor.users(device)
    use = vendor.read(device).get("utilisation_fraction")
    now = datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="bench-") as work:
        halves = tuple(_halves(device, place, Path(work)))
    return IdleTrial(
        model=device.model,
        stack=_stack(system, device),
        device=device_digest(system, device),
        users_before=None if users is None else users.count,
        use_before=use,
        processors=num_processors(system),
        halves=halves,
        recorded_utc=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        bench_version=VERSION,
    )


def _halves(device: Device, place: Place, work: Path) -> Iterator[Half]:
    program = IdleProgram(
        place.words,
        environment=child_environment(
            inherited=os.environ,
            work=work,
            num_threads=usable_cores(),
            vendor=place.vendor.environment(device),
            tokens={},
        ),
        errors=work / "idle.stderr",
        vendor=place.vendor.name,
        memory_bytes=device.memory_bytes or 0,
        interrupted=place.interrupted,
    )
    try:
        yield from _Pairs(device=device, place=place, program=program).halves()
    except TrialFailed as failed:
        if place.vendor.counters(device).get("lost"):
            raise TrialFailed(f"{device.id} does not answer any more ({failed})") from None
        raise
    finally:
        program.close()


@dataclass(kw_only=True)
class _Pairs:
    """The pairs on one device, by a program that was started."""

    device: Device
    place: Place
    program: IdleProgram
    host: Neighbours = field(default_factory=lambda: Neighbours(Tree()))
    begin_seconds: float = 0.0

    def halves(self) -> Iterator[Half]:
        """One half after the other, in turn the one alone and the one beside first."""
        self.program.begin("timer")
        for kind in KINDS:  # loads kernels, and takes memory
            self.program.time(kind, self.place.pace.block)
        for pair in range(self.place.pace.pairs):
            for is_beside in (False, True) if pair % 2 == 0 else (True, False):
                yield self._half(pair, is_beside=is_beside)

    def _half(self, pair: int, *, is_beside: bool) -> Half:
        if is_beside:
            self._begin_neighbour()
        else:
            self.place.sleep(min(self.begin_seconds, LONGEST_REST_SECONDS))
        self.host.read()
        self.place.sleep(self.place.pace.settle)
        users = self.place.vendor.users(self.device)
        self.program.time(KINDS[0], self.place.pace.warm_up)
        values: dict[str, float | None] = {}
        step_seconds = {
            kind: self.program.time(kind, self.place.pace.block, self._reading(kind, values))
            for kind in KINDS
        }
        used = self.host.read()
        if is_beside:
            self.program.end("neighbour")
        return Half(
            pair=pair,
            is_beside=is_beside,
            step_seconds=step_seconds,
            users=None if users is None else users.count,
            values=values,
            foreign_processors=(
                None if used.foreign is None else used.foreign + (used.stolen or 0.0)
            ),
        )

    def _begin_neighbour(self) -> None:
        begin = time.monotonic()
        self.program.begin("neighbour")
        self.begin_seconds = time.monotonic() - begin

    def _reading(self, kind: str, values: dict[str, float | None]) -> Callable[[], object]:
        """Reads the device in the middle of a block of the first kind, and of no other."""

        def read() -> None:
            if kind == KINDS[0]:
                self.place.sleep(self.place.pace.block / 2)
                known = possible(self.place.vendor.read(self.device))
                values.update({name: known.get(name) for name in VALUES})

        return read
