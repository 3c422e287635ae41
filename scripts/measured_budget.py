"""What two runs on one H100 really took, by the stages that their launches recorded.

The journals lie in tests/recorded/h100_0_12: `bench run --suite smoke` and `--suite node
--minutes 3` of bench 0.12.0, without the digests of libraries and the kernel's log, so that their
chains do not close. The stack was torch 2.11.0 with CUDA 13, outside the ranges that bench allows:
its requirements were taken off for these runs. ONNX Runtime had no CUDA provider there, so the two
ONNX cases of `smoke` were not run.

`again` says what the same launches would have taken by the rule of today (overlapped.py), by the
times that their stages took: what was ahead and what was not are added up, as one process slows
another down by what nobody has measured.
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from statistics import mean, median
from typing import Any

from overlapped import Timed, ends

from appliance.runner.users_log import LOOK_NS, MOST_IN_A_ROW

RECORDED = Path(__file__).parents[1] / "tests" / "recorded"
FOLDER = RECORDED / "h100_0_12"
LATER = RECORDED / "h100_0_13"
"""A run of `smoke` by the code after 0.12.0 on another host, stopped after two minutes."""
USEFUL = ("warm_up", "timed")
KEYS = ("wall_ns", "ahead_ns")
SETUP = ("start", "import", "device")
STEPPED = frozenset({"digits_mlp"})
"""Cases whose first step counts, so that nothing is beside it."""
LAST_TIMED = ("block", "witnessed", "calibrated")
LEAST_SECONDS = 0.02
"""A stage that took less of a launch, in the mean, is not named."""


@dataclass
class Made:
    """The launches of one kind that completed: seconds of each, and of their stages."""

    seconds: list[float] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    ahead: float = 0.0
    num_ahead: int = 0


@dataclass
class Measured:
    """A run by kinds of launch ("untimed", "timed", "repeat"), timed ones also by case."""

    kinds: dict[str, Made] = field(default_factory=lambda: defaultdict(Made))
    cases: dict[str, Made] = field(default_factory=lambda: defaultdict(Made))
    steps: dict[str, dict[bool, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: {True: [], False: []})
    )
    """Median steps in ms of timed launches, by whether they began ahead."""


def measured(name: str, folder: Path = FOLDER) -> Measured:
    """A recorded run, `smoke` or `node`."""
    read = Measured()
    begun: dict[str, tuple[float, bool]] = {}
    stages: dict[str, tuple[float, Mapping[str, Any]]] = {}
    for line in lzma.decompress((folder / f"{name}.jsonl.xz").read_bytes()).splitlines():
        record = json.loads(line)
        event, now = record["event"], 1e-9 * int(record["monotonic_ns"])
        if event["kind"] == "launch_started":
            begun[event["launch"]] = now, bool(event.get("is_ahead"))
        elif event["kind"] == "block":
            step = 1e-6 * median(map(int, event["wall_ns"]))
            read.steps[event["launch"].partition("@")[0]][begun[event["launch"]][1]].append(step)
        elif event["kind"] == "stage_times":
            stages[event["launch"]] = now, event
        elif event["kind"] == "launch_ended" and event["launch"] in stages:
            launch = event["launch"]
            begin, is_ahead = begun[launch]
            told, times = stages[launch]
            kinds = [read.kinds[_kind(launch)]]
            if _kind(launch) == "timed":
                kinds.append(read.cases[launch.partition("@")[0]])
            for made in kinds:
                _add(made, now - begin, times, now - told, is_ahead=is_ahead)
    return read


@dataclass(kw_only=True)
class Course:
    """One recorded launch: what it did, what passed before it, and how it was begun.

    `setup` and `build` are seconds of its head; `is_fresh`: by rule or for want of a server;
    `was_ahead` is how far its process was ordered to go, None where it began alone.
    """

    timed: Timed
    kind: str
    seconds: float
    setup: float
    build: float
    gap: float
    is_fresh: bool
    was_ahead: str | None

    @property
    def recorded_part(self) -> float | None:
        """Seconds of its head that were ordered ahead."""
        parts = {"device": self.setup, "build": self.setup + self.build}
        return None if self.was_ahead is None else parts[self.was_ahead]


@dataclass(kw_only=True)
class _Noted:
    """What a journal has said so far of a launch; `over_s` is when it timed nothing any more."""

    begin_s: float
    is_fresh: bool
    gap: float
    was_ahead: str | None
    over_s: float | None = None
    stages: Mapping[str, Any] = field(default_factory=dict)


def courses(name: str) -> list[Course]:
    """The launches of a recorded run, in their order."""
    made: list[Course] = []
    noted: dict[str, _Noted] = {}
    ahead: dict[str, str] = {}
    ended, is_served = 0.0, False
    for line in lzma.decompress((FOLDER / f"{name}.jsonl.xz").read_bytes()).splitlines():
        record = json.loads(line)
        event, now = record["event"], 1e-9 * int(record["monotonic_ns"])
        kind, launch = event["kind"], event.get("launch", "")
        is_served |= kind == "server_probed"
        if kind == "launch_ahead":
            ahead[launch] = event["through"]
        elif kind == "launch_started":
            noted[launch] = _Noted(
                begin_s=now,
                is_fresh=event["mode"] == "fresh" or is_served,
                gap=now - ended if ended else 0.0,
                was_ahead=ahead.get(launch),
            )
            is_served = False
        elif kind in LAST_TIMED:
            noted[launch].over_s = now
        elif kind == "stage_times":
            noted[launch].stages = event
        elif kind == "launch_ended" and launch in noted:
            made.append(_course(launch, noted[launch], now))
            ended = now
    return made


def _course(launch: str, noted: _Noted, end_s: float) -> Course:
    """A launch that ended at this moment."""
    case, kind = launch.partition("@")[0], _kind(launch)
    inside, both = (_by_stage(noted.stages, keys) for keys in (("wall_ns",), KEYS))
    head = [*SETUP, "build", *([] if case in STEPPED and kind != "repeat" else ["first_step"])]
    head += ["digest"] if kind == "repeat" else []
    after = end_s - noted.begin_s - sum(inside[stage] for stage in head)
    is_timed = kind != "repeat" and noted.over_s is not None
    tail = end_s - (noted.over_s or end_s) if is_timed else after
    return Course(
        timed=Timed(
            case=case,
            head=sum(both[stage] for stage in head),
            middle=after - tail,
            tail=tail,
            is_reference=kind == "untimed",
            is_repeat=kind == "repeat",
        ),
        kind=kind,
        seconds=end_s - noted.begin_s,
        setup=sum(both[stage] for stage in SETUP),
        build=both["build"],
        gap=noted.gap,
        is_fresh=noted.is_fresh,
        was_ahead=noted.was_ahead,
    )


def _by_stage(stages: Mapping[str, Any], keys: tuple[str, ...]) -> Mapping[str, float]:
    """Seconds of each stage, in the launch or also before it."""
    sums: dict[str, float] = defaultdict(float)
    for key in keys:
        for stage, nanoseconds in stages.get(key, {}).items():
            sums[stage] += 1e-9 * int(nanoseconds)
    return sums


def again(name: str) -> dict[str, tuple[float, float, float]]:
    """Seconds of a recorded run by kinds: as recorded, by the rule of then, and of today.

    What passed before a launch is its own.
    """
    made = courses(name)
    gaps = [one.gap for one in made]
    then = [replace(one.timed, is_repeat=False) for one in made]
    moments = (
        list(accumulate(one.gap + one.seconds for one in made)),
        list(ends(then, [one.recorded_part for one in made], gaps)),
        list(ends([one.timed for one in made], _parts(made), gaps)),
    )
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(moments))
    for place, each in enumerate(moments):
        for one, before, after in zip(made, [0.0, *each], each, strict=False):
            sums[one.kind][place] += after - before
    return {kind: (one[0], one[1], one[2]) for kind, one in sums.items()}


def _parts(made: list[Course]) -> list[float | None]:
    """Seconds of each launch's head that its process is ordered to do ahead, by today's rule.

    When the device is looked at with no process on it goes by the seconds that were recorded.
    """
    parts: list[float | None] = []
    seen: set[str] = set()
    row, passed = 0, 0.0
    earlier: Course | None = None
    for one in made:
        is_read = earlier is not None and earlier.timed.is_reference
        is_read = is_read and earlier is not None and earlier.timed.case == one.timed.case
        is_due = row > MOST_IN_A_ROW and passed >= 1e-9 * LOOK_NS
        if earlier is None or one.is_fresh or is_read or is_due:
            parts.append(None)
            row, passed = 0, 0.0
        else:
            knows = one.timed.case in seen or one.was_ahead == "build"
            parts.append(one.timed.head if knows else one.setup)
        row += 1
        passed += one.gap + one.seconds
        seen.add(one.timed.case)
        earlier = one
    return parts


def _kind(launch: str) -> str:
    number = launch.rpartition("/")[2]
    if number.startswith("r"):
        return "repeat"
    return "untimed" if number == "0" else "timed"


def _add(
    made: Made, seconds: float, times: Mapping[str, Any], end: float, *, is_ahead: bool
) -> None:
    made.seconds.append(seconds)
    made.num_ahead += is_ahead
    for stage, nanoseconds in times["wall_ns"].items():
        made.stages[stage] += 1e-9 * int(nanoseconds)
    made.stages["process end"] += end
    made.ahead += 1e-9 * sum(map(int, times.get("ahead_ns", {}).values()))


def means(name: str) -> dict[str, float]:
    """Mean seconds of the parts of a recorded run's timed launches."""
    timed = [one.timed for one in courses(name) if one.kind == "timed"]
    return {
        "head": mean(one.head for one in timed),
        "middle": mean(one.middle for one in timed),
        "tail": mean(one.tail for one in timed),
    }


def rule() -> Iterator[str]:
    """A table of what the runs took, and would have taken by the rules of then and of today."""
    words = "launches, with what passed before each"
    yield f"| {words}, s | recorded | by the rule of 0.12.0 | by that of today |"
    yield "|---|---:|---:|---:|"
    for name, words in (("smoke", "`smoke`"), ("node", "`node --minutes 3`")):
        kinds = again(name)
        whole = {"all": tuple(map(sum, zip(*kinds.values(), strict=True)))}
        for kind, seconds in (kinds | whole).items():
            yield f"| {words}, {kind} | " + " | ".join(f"{one:.1f}" for one in seconds) + " |"


def steps(name: str) -> Iterator[str]:
    """A table of the cases of which some launches began ahead and others alone."""
    yield f"| median steps of `{name}`, ms | begun ahead of their turn | begun alone |"
    yield "|---|---|---|"
    for case, by_begin in sorted(measured(name).steps.items()):
        if all(by_begin.values()):
            ahead, alone = (
                ", ".join(f"{one:.4g}" for one in by_begin[way]) for way in (True, False)
            )
            yield f"| `{case}` | {ahead} | {alone} |"


def section() -> Iterator[str]:
    """The part of the page on what was measured."""
    for name, words in (("smoke", "`smoke`"), ("node", "`node --minutes 3`")):
        run = measured(name)
        yield f"| launches of {words} | made | s in all | s each | of it useful | begun ahead |"
        yield "|---|---:|---:|---:|---:|---:|"
        for kind, made in run.kinds.items():
            whole, count = sum(made.seconds), len(made.seconds)
            useful = sum(made.stages[stage] for stage in USEFUL)
            yield (
                f"| {kind} | {count} | {whole:.1f} | {whole / count:.2f} | {useful:.1f} s | "
                f"{made.num_ahead}, {made.ahead:.1f} s |"
            )
        yield ""
        yield f"| a timed launch of {words}, mean | s | its stages, s |"
        yield "|---|---:|---|"
        for case, made in sorted(run.cases.items()):
            count = len(made.seconds)
            parts = sorted(made.stages.items(), key=lambda one: -one[1])
            named = ", ".join(
                f"{stage.replace('_', ' ')} {seconds / count:.2f}"
                for stage, seconds in parts
                if seconds / count >= LEAST_SECONDS
            )
            yield f"| `{case}` | {sum(made.seconds) / count:.2f} | {named} |"
        yield ""


def later() -> Iterator[str]:
    """Checks and digests of timed launches of `smoke`, then and later, and their steps."""
    runs = measured("smoke"), measured("smoke", LATER)
    yield "| a timed launch of `smoke`, mean | check, digest, s: 0.12.0 | 0.13.0 | step, ms | |"
    yield "|---|---:|---:|---:|---:|"
    for case in sorted(runs[0].cases):
        cells = [f"`{case}`"]
        for run in runs:
            made = run.cases[case]
            parts = [made.stages[name] / len(made.seconds) for name in ("check", "digest")]
            cells.append(", ".join(f"{seconds:.2f}" for seconds in parts))
        for run in runs:
            own = run.steps[case]
            cells.append(f"{median([*own[True], *own[False]]):.3g}")
        yield f"| {' | '.join(cells)} |"
