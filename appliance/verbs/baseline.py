"""The verb `baseline create`: measured figures from signed runs.

A baseline is only worth what it came from, so each run is verified first, and refused where its
outputs were wrong, where a fault was injected, where others used its devices, or where it was
measured under other conditions than the others. Its spread is that of launches within a run and
between runs, because five launches in a row agree better than two days do; from it follows the
smallest margin at which a healthy machine will pass.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.special import nctdtrinc, stdtrit

from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.evidence.baseline_key import (
    device_name,
    is_named,
    key_of,
    least_seconds,
    mismatch,
)
from appliance.evidence.disturbance import disturbance
from appliance.evidence.journal_index import index_of
from appliance.judging.criteria_check import PEAK_SLACK, rounded_up
from appliance.judging.verdict import IMPLIED, requirements
from appliance.planning.criterion_scope import CHANCE_KINDS
from appliance.planning.sustained import launch_seconds
from appliance.records.baseline import Baseline, BaselineKey, Baselines, Level, Tolerance
from appliance.records.json import sha256, to_data, to_json
from appliance.records.plan import Case
from appliance.records.verdict import CaseResult, Verdict
from appliance.statistics.tails import test_rate
from appliance.statistics.tolerance import tolerance_factor
from appliance.storage import bundle, criteria_file, device_file
from appliance.storage.bundle import Bundle
from appliance.storage.device_file import LEAST_DEVICES, LEAST_LAUNCHES
from appliance.verification import verify

Kind = Literal["same-device", "population"]
KINDS: Mapping[str, Kind] = {"same-device": "same-device", "population": "population"}

PART, CONFIDENCE = 0.95, 0.95  # of the devices, that the tolerance limit covers
FEW_DEVICES = 16  # below it the spread between devices is known too roughly for a contract
QUIET = 1.5  # margin over spread at which about twelve launches decide a healthy run
POWER, PASS_RISK = 0.99, 0.01  # of a healthy run to pass; of one at its limit
SLOW_RISK, LARGEST_SLOW_RATE = 0.01, 0.20
UNSTEADY = ("slowdown", "no_steady_state")
STAGE_SECONDS = 300
LEAST_DRIFT = 0.02  # that is limited; a healthy device has some of it


@dataclass(frozen=True, kw_only=True)
class Created:
    """Baselines and what a person should know of them.

    `margins` are by case those that its criteria get: the smallest ones, or wider where so few
    launches are planned that a healthy run would stay undecided. `notes` are sentences of warning;
    `left_out` the cases without a baseline, each with the reason. `load_seconds` is for how long
    these runs' suites hold each device under load at least, where all launches are made.
    """

    baselines: Baselines
    margins: Mapping[str, float]
    notes: tuple[str, ...]
    left_out: tuple[str, ...]
    load_seconds: float = 0.0

    @property
    def largest_margin(self) -> float:
        """The largest of the smallest margins."""
        return max(item.smallest_margin for item in self.baselines.baseline)


@dataclass(frozen=True, kw_only=True)
class _Run:
    """One verified bundle."""

    folder: Path
    bundle: Bundle
    statement: str


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """What one run says of one case on one device: ln(step seconds) of each launch, by clock."""

    run: _Run
    case: Case
    key: BaselineKey
    device: str
    values: tuple[float, ...]
    walls: tuple[float, ...]
    num_unsteady: int


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Variances of ln(step seconds): of launches within a run, and of the levels of runs."""

    within: float
    between: float

    @property
    def launch_sd(self) -> float:
        """The spread of a launch of any run around the device's mean."""
        return math.sqrt(self.within + self.between)


# ------------------------------------------------------------------ making


def create(
    folders: Sequence[Path],
    *,
    kind: Kind = "same-device",
    trusted: Sequence[bytes] = (),
    allow_development: bool = False,
    moment: datetime | None = None,
) -> Created:
    """Baselines of the timed cases of signed runs, whose folders these are.

    A same-device baseline is of each device for itself, a population of all of them together.
    Raises EvidenceError for a bundle that does not verify, UsageError for one that no baseline
    may be made of, and for bundles that are not comparable with one another.
    """
    if not folders:
        raise UsageError("a baseline is made of at least one run: name its folder, out/<run id>")
    runs = [_verified(folder, trusted, moment, allow=allow_development) for folder in folders]
    _check_distinct(runs)
    for run in runs:
        _check_usable(run)
    measured = [item for run in runs for item in _measured(run)]
    _check_comparable(measured)
    baselines, left_out = _baselines(measured, kind)
    if not baselines:
        reasons = "; ".join(left_out) or "these runs have no timed case"
        raise UsageError(f"nothing can be made a baseline of: {reasons}")
    return Created(
        baselines=Baselines(baseline=baselines),
        margins=_margins_for(baselines, measured),
        notes=tuple(_notes(baselines, measured, kind)),
        left_out=left_out,
        load_seconds=_load_seconds(measured),
    )


def _baselines(
    measured: Sequence[_Measured], kind: Kind
) -> tuple[tuple[Baseline, ...], tuple[str, ...]]:
    """A baseline of each case (same-device: of each device, too), and why some have none."""
    groups: dict[tuple[str, str], list[_Measured]] = {}
    for item in measured:
        device = item.device if kind == "same-device" else ""
        groups.setdefault((item.key.case, device), []).append(item)
    baselines: list[Baseline] = []
    left_out: list[str] = []
    for (case, device), members in groups.items():
        result = _baseline(members, kind)
        if isinstance(result, str):
            left_out.append(f"{case}{f' on {device}' if device else ''}: {result}")
        else:
            baselines.append(result)
    return tuple(baselines), tuple(left_out)


def _verified(
    folder: Path, trusted: Sequence[bytes], moment: datetime | None, *, allow: bool
) -> _Run:
    if folder.is_file():
        raise UsageError(f"{folder} is a file: a baseline is made of the folder of a run")
    verification = verify.verify(folder, trusted=trusted, allow_development=allow, moment=moment)
    if verification.faults:
        raise EvidenceError(f"{folder} does not verify: {verification.faults[0]}")
    if verification.verdict is None:
        raise EvidenceError(f"{folder}: its verdict cannot be derived again, so nothing is certain")
    content = bundle.read(folder)
    return _Run(folder=folder, bundle=content, statement=sha256(content.files[bundle.STATEMENT]))


def _check_distinct(runs: Sequence[_Run]) -> None:
    """The same run twice would look like two runs that agree."""
    seen: dict[str, Path] = {}
    for run in runs:
        name = run.bundle.plan.run_id
        if name in seen:
            raise UsageError(f"{run.folder} and {seen[name]} are the same run: name it once")
        seen[name] = run.folder


def _check_usable(run: _Run) -> None:
    """UsageError for a run with a fault, a repeated launch, or a result that was not right."""
    plan, verdict = run.bundle.plan, run.bundle.verdict
    injectors = {*plan.injectors, *(case.injector for case in plan.cases if case.injector)}
    if injectors:
        raise UsageError(
            f"{run.folder} injected a fault ({min(injectors)}): a baseline is made of healthy runs"
        )
    if plan.rerun_of:
        raise UsageError(f"{run.folder} repeats {plan.rerun_of}: a baseline is made of whole runs")
    if verdict is None:
        raise EvidenceError(f"{run.folder} has no verdict")
    _check_right(run, verdict)
    _check_undisturbed(run)


def _check_undisturbed(run: _Run) -> None:
    """What a device did beside others is nothing to hold another one to."""
    plan, system = run.bundle.plan, run.bundle.system
    for evidence in index_of(plan, run.bundle.lines).cases.values():
        clause = disturbance(evidence, system) if evidence.case.is_timed else ""
        if clause:
            raise UsageError(
                f"{run.folder}: {evidence.case.id} was disturbed ({clause}): a baseline is made "
                "of runs that had their devices alone; run it again"
            )


def _check_right(run: _Run, verdict: Verdict) -> None:
    kinds = {item.id: item.kind for item in requirements(run.bundle.criteria)}
    for ruling in verdict.rulings:
        is_chance = kinds.get(ruling.criterion, "completion") in CHANCE_KINDS
        if ruling.required and ruling.ruling == "fail" and not is_chance:
            raise UsageError(
                f"{run.folder} was rejected ({ruling.explanation}): a baseline is made of runs "
                "whose results were right"
            )
    for result in verdict.cases:
        if result.withheld:
            raise UsageError(
                f"{run.folder}: the timing of {result.case} is withheld ({result.withheld}): "
                "a baseline is made of runs whose results were right"
            )


def _measured(run: _Run) -> list[_Measured]:
    results = {} if run.bundle.verdict is None else _by_case(run.bundle.verdict.cases)
    return [
        _measurement(run, case, results[case.id])
        for case in run.bundle.plan.cases
        if case.is_timed and not (case.unsupported or case.software) and case.id in results
    ]


def _measurement(run: _Run, case: Case, result: CaseResult) -> _Measured:
    system = run.bundle.system
    launches = [
        launch
        for launch in result.launches
        if launch.outcome == "completed" and launch.log_seconds is not None
    ]
    return _Measured(
        run=run,
        case=case,
        key=key_of(case, run.bundle.plan.protocol, system),
        device=device_name(system, case.device),
        values=tuple(launch.log_seconds for launch in launches if launch.log_seconds is not None),
        walls=tuple(
            launch.wall_log_seconds for launch in launches if launch.wall_log_seconds is not None
        ),
        num_unsteady=sum(launch.series in UNSTEADY for launch in launches),
    )


def _by_case(results: Sequence[CaseResult]) -> Mapping[str, CaseResult]:
    return {result.case: result for result in results}


def _check_comparable(measured: Sequence[_Measured]) -> None:
    first: dict[str, _Measured] = {}
    for item in measured:
        other = first.setdefault(item.key.case, item)
        differing = mismatch(other.key, item.key)
        if differing:
            raise UsageError(
                f"{item.run.folder} is not comparable with {other.run.folder}: {item.key.case} "
                f"there is for {differing}; make two baselines"
            )


def _baseline(members: Sequence[_Measured], kind: Kind) -> Baseline | str:
    """The baseline of one group of measurements, or why there is none."""
    made = [item for item in members if item.values]
    steps = _level(_by_device((item.device, item.values) for item in made), kind)
    walls = _level(_by_device((item.device, item.walls) for item in made), kind)
    if isinstance(steps, str) or isinstance(walls, str):
        return steps if isinstance(steps, str) else str(walls)
    _check_possible(members[0], steps.log_seconds)
    return Baseline(
        key=members[0].key,
        kind="same_device" if kind == "same-device" else "population",
        devices=tuple(dict.fromkeys(item.device for item in made)),
        log_seconds=steps.log_seconds,
        launch_sd=steps.launch_sd,
        device_sd=steps.device_sd,
        num_launches=sum(len(item.values) for item in made),
        num_runs=len(made),
        tolerance=steps.tolerance,
        wall=walls,
        smallest_margin=max(map(_smallest_margin, (steps, walls))),
        bundles=tuple(dict.fromkeys(item.run.statement for item in made)),
    )


def _by_device(
    measured: Iterable[tuple[str, tuple[float, ...]]],
) -> Mapping[str, list[tuple[float, ...]]]:
    """The launches of each run, by device."""
    devices: dict[str, list[tuple[float, ...]]] = {}
    for device, values in measured:
        devices.setdefault(device, []).append(values)
    return devices


def _level(devices: Mapping[str, Sequence[Sequence[float]]], kind: Kind) -> Level | str:
    """Level and spread of launches by one clock, or why there is none."""
    values = [value for runs in devices.values() for run in runs for value in run]
    if len(values) < LEAST_LAUNCHES:
        return f"{len(values)} launches completed, and a spread needs {LEAST_LAUNCHES}"
    if not all(map(math.isfinite, values)):
        return "a launch has a time that is no number"
    spread = spread_of(tuple(devices.values()))
    if spread.launch_sd == 0.0:
        return "all launches took the same time to the last digit, as no clock shows it"
    level = Level(
        log_seconds=float(np.mean(values)),
        launch_sd=spread.launch_sd,
        device_sd=None,
        tolerance=None,
    )
    return level if kind == "same-device" else _population(level, devices)


def _population(level: Level, devices: Mapping[str, Sequence[Sequence[float]]]) -> Level | str:
    if len(devices) < LEAST_DEVICES:
        return f"a population needs {LEAST_DEVICES} devices, and there is {len(devices)}"
    means = [float(np.mean([value for run in runs for value in run])) for runs in devices.values()]
    mean, device_sd = float(np.mean(means)), float(np.std(means, ddof=1))
    if device_sd == 0.0:
        return "all devices took the same time to the last digit, as no clock shows it"
    factor = tolerance_factor(len(devices), PART, CONFIDENCE)
    return replace(
        level,
        log_seconds=mean,
        device_sd=device_sd,
        tolerance=Tolerance(
            p=PART, gamma=CONFIDENCE, k=factor, log_limit=mean + factor * device_sd
        ),
    )


def _smallest_margin(level: Level) -> float:
    """The smallest at which a healthy machine passes: of its launches, and of its devices."""
    margin = math.expm1(QUIET * level.launch_sd)
    if level.tolerance is None:
        return margin
    return max(margin, math.expm1(level.tolerance.log_limit - level.log_seconds))


def spread_of(devices: Sequence[Sequence[Sequence[float]]]) -> Spread:
    """One-way random effects: devices, their runs, and in each run ln(step seconds) of launches.

    `within` is the pooled variance inside runs; `between` that of the runs' levels around their
    device, by the method of moments for runs of unequal length (Searle, Variance Components,
    1992), never below zero. A device with one run says nothing of `between`.
    """
    inside = levels = weight = 0.0
    free_inside = free_levels = 0
    for device in devices:
        runs = [np.asarray(run, dtype=np.float64) for run in device]
        counts = np.array([len(run) for run in runs], dtype=np.float64)
        means = np.array([run.mean() for run in runs])
        middle = float(counts @ means / counts.sum())
        inside += float(sum(((run - run.mean()) ** 2).sum() for run in runs))
        free_inside += int(counts.sum()) - len(runs)
        levels += float(counts @ (means - middle) ** 2)
        weight += float(counts.sum() - (counts**2).sum() / counts.sum())
        free_levels += len(runs) - 1
    within = inside / free_inside if free_inside else 0.0
    if not free_levels:
        return Spread(within=within, between=0.0)
    excess = (levels - free_levels * within) / weight
    return Spread(within=within, between=max(0.0, excess))


def _check_possible(measured: _Measured, log_seconds: float) -> None:
    system = measured.run.bundle.system
    peaks = device_file.load_peaks([measured.key.model])
    least = least_seconds(peaks, system, measured.case)
    if least is not None and math.exp(log_seconds) * PEAK_SLACK < least:
        raise UsageError(
            f"{measured.run.folder}: {measured.case.id} took {math.exp(log_seconds):.3g} s a step, "
            f"and by its vendor's figures it cannot take less than {least:.3g} s: find out what it "
            "left out"
        )


def _margins_for(
    baselines: Sequence[Baseline], measured: Sequence[_Measured]
) -> Mapping[str, float]:
    """By case, the margin at which the launches that will be planned decide a healthy run.

    A run without a limit on a case plans the first interim analysis's launches only; a judged one
    goes on to the last interim analysis.
    """
    planned: dict[str, int] = {}
    for item in measured:
        interim_analyses = item.run.bundle.plan.protocol.interim_analyses
        launches = (
            interim_analyses[-1]
            if item.case.launches == interim_analyses[0]
            else item.case.launches
        )
        planned[item.key.case] = min(planned.get(item.key.case, launches), launches)
    margins: dict[str, float] = {}
    for baseline in baselines:
        case = baseline.key.case
        launches = max(LEAST_LAUNCHES, planned[case])  # with fewer nothing is ever passed
        spread = max(baseline.launch_sd, baseline.wall.launch_sd)
        decided = math.expm1(decisive_factor(launches) * spread)
        margin = rounded_up(max(baseline.smallest_margin, decided))
        margins[case] = max(margins.get(case, 0.0), margin)
    return margins


def decisive_factor(launches: int) -> float:
    """Margin over launch spread at which a run of so many launches passes when it is healthy.

    With a probability of 99 %, by the power of the t-test at a risk of 1 % (3.36 for 5 launches,
    1.76 for 10), and never less than 1.5. It counts all spread as if it were within the run.
    """
    if launches < 2:  # noqa: PLR2004 - no test has a power
        return math.inf
    critical = stdtrit(launches - 1, 1 - PASS_RISK)
    return max(QUIET, float(nctdtrinc(launches - 1, 1 - POWER, critical)) / math.sqrt(launches))


def _notes(
    baselines: Sequence[Baseline], measured: Sequence[_Measured], kind: Kind
) -> Iterator[str]:
    single = [item.key.case for item in baselines if item.num_runs == len(item.devices)]
    if single:
        yield (
            f"{some_of(single)}: one run of each device cannot show the spread between runs, so "
            "the smallest margin is likely too small; add bundles of other days"
        )
    fewest = min(len(item.devices) for item in baselines)
    if kind == "population" and fewest < FEW_DEVICES:
        yield (
            f"{fewest} devices show the spread between devices only roughly; "
            f"{FEW_DEVICES} are wanted for limits of a contract"
        )
    nameless = [
        item.case.device
        for item in measured
        if not is_named(item.run.bundle.system, item.case.device)
    ]
    if nameless and kind == "same-device":
        yield (
            f"{nameless[0]} has no serial and is in no named system: a machine that looks alike "
            "counts as the same one"
        )
    unsteady = [item.case.id for item in measured if 3 * item.num_unsteady > len(item.values)]
    if unsteady:
        yield (
            f"{some_of(unsteady)}: a third of the launches did not come to a steady state, so the "
            "level is uncertain"
        )


def some_of(names: Sequence[str]) -> str:
    """Up to three names, and how many more."""
    names = tuple(dict.fromkeys(names))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""  # noqa: PLR2004 - up to three
    return ", ".join(names[:3]) + more


# ------------------------------------------------------------------ writing


def table(created: Created) -> list[str]:
    """The baselines as lines of text, and the largest margin."""
    rows = [("case", "step", "launch CV", "runs", "launches", "smallest margin", "in criteria")]
    for item in created.baselines.baseline:
        is_one = item.kind == "same_device" and _has_several_devices(created)
        rows.append(
            (
                f"{item.key.case} on {item.devices[0]}" if is_one else item.key.case,
                f"{1000 * math.exp(item.log_seconds):.4g} ms",
                f"{100 * item.launch_sd:.2f} %",
                str(item.num_runs),
                str(item.num_launches),
                f"{100 * item.smallest_margin:.2f} %",
                f"{100 * created.margins[item.key.case]:.1f} %",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return [*lines, f"largest of the smallest margins: {100 * created.largest_margin:.2f} %"]


def _has_several_devices(created: Created) -> bool:
    return len({item.devices for item in created.baselines.baseline}) > 1


def report(created: Created, out: Path, criteria: Path | None) -> list[str]:
    """What was made, in lines for a person."""
    lines = [*table(created)]
    lines += [f"left out: {reason}" for reason in created.left_out]
    lines += [f"note: {note}" for note in created.notes]
    if criteria is None:
        return [*lines, f"wrote {out}: judge by it with `bench accept --baseline {out}`"]
    command = f"bench accept --criteria {criteria} --baseline {out}"
    return [*lines, f"wrote {out} and {criteria}: judge by them with `{command}`"]


def write(created: Created, out: Path, criteria: Path | None = None) -> None:
    """Write the file for `--baseline`, and criteria that it can carry if they are wanted.

    Raises OutputError if one of the files is there already; UsageError if the criteria's name
    does not end in .toml.
    """
    if criteria is not None and criteria.suffix != ".toml":
        raise UsageError(f"{criteria}: give the criteria file a name that ends in .toml")
    for path in (out, criteria):
        if path is not None and path.exists():
            raise OutputError(f"{path} is there already: name another file, or remove it first")
    bundle.write(out, to_json(created.baselines))
    if criteria is not None:
        bundle.write(criteria, criteria_of(created, criteria.stem))


def criteria_of(created: Created, name: str) -> bytes:
    """Criteria in TOML: what every run must show, and each case within a margin of its baseline.

    The rate of slow launches is limited to what five launches of each case can show when two of
    all are slow; with so few that not even none shows 20 %, it is left out.
    """
    summary = f"Within the baselines of {len(created.margins)} cases"
    lines = [
        'schema = "bench/criteria/1"',
        f"name = {_quoted(name)}",
        "version = 1",
        f"summary = {_quoted(summary)}",
    ]
    for criterion in IMPLIED:
        lines += _entry(id=criterion.id, kind=criterion.kind, title=criterion.title)
    for case, margin in created.margins.items():
        lines += _speed_entry(case, margin)
    lines += _tail_entry(LEAST_LAUNCHES * len(created.baselines.baseline))
    lines += _drift_entry(created)
    text = ("\n".join(lines) + "\n").encode()
    criteria_file.parse_criteria(text, f"{name}.toml")
    return text


def _speed_entry(case: str, margin: float) -> list[str]:
    return _entry(
        id=f"speed-{case}",
        kind="perf",
        title=f"Step time of {case}",
        cases=case,
        metric="step_seconds",
        within_of_baseline=margin,
    )


def _tail_entry(launches: int) -> list[str]:
    """A limit on slow launches, if so many can show one."""
    rate = slow_rate(launches)
    if rate is None:
        return []
    return _entry(
        id="slow-launches",
        kind="tail",
        title="Slow launches, of all cases together",
        metric="slow_launch_rate",
        at_most=rate,
    )


def _drift_entry(created: Created) -> list[str]:
    """A limit on the drift of a device, if the suite can hold it under load for the stage."""
    if created.load_seconds < STAGE_SECONDS:
        held = f"the suite holds a device under load for {created.load_seconds:.0f} s at least"
        return ["", f"# Drift is not judged: {held}, and {STAGE_SECONDS} s show what heats."]
    return _entry(
        id="drift",
        kind="drift",
        title="Drift of a device over the run, of all its cases together",
        metric="drift_over_run",
        at_most=max(LEAST_DRIFT, created.largest_margin),
        sustained_seconds=STAGE_SECONDS,
    )


def _load_seconds(measured: Sequence[_Measured]) -> float:
    """Least time under load of any device, with all launches that a run with limits plans."""
    loads: dict[tuple[str, str], float] = {}
    for item in measured:
        plan, case = item.run.bundle.plan, item.case
        analyses = plan.protocol.interim_analyses
        launches = analyses[-1] if case.launches >= analyses[0] else case.launches
        key = plan.run_id, case.device
        seconds = launches * launch_seconds(plan.protocol) if case.steps is None else 0.0
        loads[key] = loads.get(key, 0.0) + seconds
    return min(loads.values(), default=0.0)


def slow_rate(launches: int) -> float | None:
    """The smallest rate, in whole percent, that so many launches show when few of them are slow.

    At a risk of 1 %. Two slow ones are allowed, or one, or none, whichever still shows a rate of
    at most 20 %; None where not even none does. A healthy machine has a slow launch now and then.
    """
    percents = range(1, round(100 * LARGEST_SLOW_RATE) + 1)
    for slow, percent in itertools.product((2, 1, 0), percents):
        rate = percent / 100
        word = test_rate(slow, launches, limit=rate, risk_pass=SLOW_RISK, risk_fail=SLOW_RISK)
        if word == "pass":
            return rate
    return None


def _entry(**keys: str | float) -> list[str]:
    return [
        "",
        "[[criterion]]",
        *(
            f"{key} = {_quoted(value) if isinstance(value, str) else f'{value:g}'}"
            for key, value in keys.items()
        ),
    ]


def _quoted(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)


def to_document(created: Created) -> dict[str, object]:
    """What was made, as plain JSON values."""
    return {
        "baselines": to_data(created.baselines),
        "notes": list(created.notes),
        "left_out": list(created.left_out),
        "largest_margin": created.largest_margin,
        "margins": dict(created.margins),
    }
