"""The verb `baseline create`: measured figures from signed runs.

A baseline is an estimate, and only worth what it came from: each run is verified first and refused
where anything was not right (refusals.py), each of its sessions counts as one run (levels.py), and
from how far runs vary follows the smallest margin that it carries (judging/pass_chance.py).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from appliance.errors import OutputError, UsageError
from appliance.evidence.baseline_key import is_named, least_seconds
from appliance.judging.criteria_check import PEAK_SLACK, SAMPLED_SESSIONS, rounded_up
from appliance.judging.pass_chance import Schedule, carried_margin, schedule_of
from appliance.planning.sessions import num_in_all
from appliance.planning.sustained import launch_seconds
from appliance.records.baseline import Baseline, Baselines, Level
from appliance.records.json import to_data, to_json
from appliance.records.qualified import ObservedCase
from appliance.storage import bundle, device_file, qualified_file
from appliance.verbs.baselines import launch_pairs
from appliance.verbs.baselines.criteria_draft import criteria_of
from appliance.verbs.baselines.levels import Group, population_levels, same_device_levels
from appliance.verbs.baselines.measurements import (
    Measured,
    check_comparable,
    measured_in,
    verified,
)
from appliance.verbs.baselines.refusals import check_apart, check_distinct, check_usable

Kind = Literal["same-device", "population"]
KINDS: Mapping[str, Kind] = {"same-device": "same-device", "population": "population"}

FEW_DEVICES = 16  # below it the spread between devices is known too roughly for a contract
PASS_RISK = 0.01  # of a device at its limit; what criteria say by default


@dataclass(frozen=True, kw_only=True)
class Created:
    """Baselines and what a person should know of them.

    `margins` are by case those that its criteria get: the smallest ones that it carries in a run of
    one session, infinite where it carries none. `notes` are sentences of warning;
    `left_out` the cases without a baseline, each with the reason. `load_seconds` is for how long
    these runs' suites hold each device under load at least, where all launches are made. `pairs`
    are sentences of what forked launches differ from fresh ones by.
    """

    baselines: Baselines
    margins: Mapping[str, float]
    notes: tuple[str, ...]
    left_out: tuple[str, ...]
    load_seconds: float = 0.0
    pairs: tuple[str, ...] = ()

    @property
    def largest_margin(self) -> float:
        """The largest of the smallest margins."""
        return max(item.smallest_margin for item in self.baselines.baseline)


# ------------------------------------------------------------------ making


def create(
    folders: Sequence[Path],
    *,
    kind: Kind = "same-device",
    trusted: Sequence[bytes] = (),
    allow_development: bool = False,
    moment: datetime | None = None,
    observed: Sequence[ObservedCase] | None = None,
) -> Created:
    """Baselines of the timed cases of signed runs, whose folders these are.

    A same-device baseline is of each device for itself, a population of all of them together.
    `observed` are the qualified records whose pairs of launches are told, None those shipped.
    Raises EvidenceError for a bundle that does not verify, UsageError for one that no baseline
    may be made of, and for bundles that are not comparable with one another.
    """
    if not folders:
        raise UsageError("a baseline is made of at least one run: name its folder, out/<run id>")
    runs = [verified(folder, trusted, moment, allow=allow_development) for folder in folders]
    check_distinct(runs)
    check_apart(runs)
    for run in runs:
        check_usable(run)
    measured = [item for run in runs for item in measured_in(run)]
    check_comparable(measured)
    baselines, left_out = _baselines(measured, kind)
    if not baselines:
        reasons = "; ".join(left_out) or "these runs have no timed case"
        raise UsageError(f"nothing can be made a baseline of: {reasons}")
    return Created(
        baselines=Baselines(baseline=baselines),
        margins=_margins_for(baselines),
        notes=tuple(_notes(baselines, measured, kind)),
        left_out=left_out,
        load_seconds=_load_seconds(measured),
        pairs=tuple(
            launch_pairs.sentences(
                measured, qualified_file.load_observed() if observed is None else observed
            )
        ),
    )


def _baselines(
    measured: Sequence[Measured], kind: Kind
) -> tuple[tuple[Baseline, ...], tuple[str, ...]]:
    """A baseline of each case (same-device: of each device, too), and why some have none."""
    levels = same_device_levels if kind == "same-device" else population_levels
    by_steps, by_wall = levels(measured, "steps"), levels(measured, "wall")
    baselines: list[Baseline] = []
    left_out: list[str] = []
    for group, steps in by_steps.items():
        wall = by_wall[group]
        if isinstance(steps, str) or isinstance(wall, str):
            reason = steps if isinstance(steps, str) else wall
            left_out.append(f"{' on '.join(filter(None, group))}: {reason}")
        else:
            members = [item for item in measured if _is_of(item, group)]
            baselines.append(_baseline(members, kind, steps, wall))
    return tuple(baselines), tuple(left_out)


def _is_of(item: Measured, group: Group) -> bool:
    case, device = group
    return item.key.case == case and device in ("", item.device)


def _baseline(members: Sequence[Measured], kind: Kind, steps: Level, wall: Level) -> Baseline:
    _check_possible(members[0], steps.log_seconds)
    levels, seconds = (steps, wall), {item.run_key: _seconds(item) for item in members}
    smallest, of_three = (
        max(carried_margin(level, _schedule(members, sessions)) for level in levels)
        for sessions in (1, SAMPLED_SESSIONS)
    )
    return Baseline(
        key=members[0].key,
        kind="same_device" if kind == "same-device" else "population",
        devices=tuple(dict.fromkeys(item.device for item in members)),
        num_launches=sum(len(item.steps) for item in members),
        num_runs=len({item.run_key for item in members}),
        run_seconds=statistics.median(seconds.values()),
        steps=steps,
        wall=wall,
        smallest_margin=smallest,
        smallest_margin_of_three=of_three,
        bundles=tuple(dict.fromkeys(item.run.statement for item in members)),
    )


def _schedule(members: Sequence[Measured], sessions: int) -> Schedule:
    """When a run of so many sessions judges the case, with as many launches as these runs' suites.

    A run without a limit on a case plans the first interim analysis's launches only; a judged one
    goes on to the last interim analysis.
    """
    analyses = members[0].run.bundle.plan.protocol.interim_analyses
    planned = min(item.case.launches // item.run.bundle.plan.sessions for item in members)
    most = analyses[-1] if planned == analyses[0] else max(analyses[0], planned)
    return schedule_of(analyses, num_in_all(analyses, most, sessions), sessions, PASS_RISK)


def _seconds(item: Measured) -> float:
    """How long the session took, by its journal."""
    begin, end = item.run.spans[item.session - 1]
    return (end - begin).total_seconds()


def _check_possible(measured: Measured, log_seconds: float) -> None:
    system = measured.run.bundle.system
    peaks = device_file.load_peaks([measured.key.model])
    least = least_seconds(peaks, system, measured.case)
    if least is not None and math.exp(log_seconds) * PEAK_SLACK < least:
        raise UsageError(
            f"{measured.run.folder}: {measured.case.id} took {math.exp(log_seconds):.3g} s a step, "
            f"and by its vendor's figures it cannot take less than {least:.3g} s: find out what it "
            "left out"
        )


def _margins_for(baselines: Sequence[Baseline]) -> Mapping[str, float]:
    """By case, the margin that its criteria get."""
    margins: dict[str, float] = {}
    for baseline in baselines:
        case, margin = baseline.key.case, rounded_up(baseline.smallest_margin)
        margins[case] = max(margins.get(case, 0.0), margin)
    return margins


def _notes(
    baselines: Sequence[Baseline], measured: Sequence[Measured], kind: Kind
) -> Iterator[str]:
    single = [item.key.case for item in baselines if not math.isfinite(item.smallest_margin)]
    if single:
        yield (
            f"{some_of(single)}: these runs cannot show how far the level of a run varies, so the "
            "baseline carries no margin; add runs of other days (`bench baseline plan`)"
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
    unsteady = [item.case.id for item in measured if 3 * item.num_unsteady > len(item.steps)]
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
    rows = [("case", "step", "launch sd", "run sd", "runs", "launches", "carries", "in 3 sessions")]
    for item in created.baselines.baseline:
        is_one = item.kind == "same_device" and _has_several_devices(created)
        rows.append(
            (
                f"{item.key.case} on {item.devices[0]}" if is_one else item.key.case,
                f"{1000 * math.exp(item.steps.log_seconds):.4g} ms",
                f"{100 * item.steps.launch_sd:.2f} %",
                f"{100 * item.steps.run_sd:.2f} %" if item.steps.freedom else "not known",
                str(item.num_runs),
                str(item.num_launches),
                margin_words(item.smallest_margin),
                margin_words(item.smallest_margin_of_three),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return [*lines, f"largest of the smallest margins: {margin_words(created.largest_margin)}"]


def margin_words(margin: float) -> str:
    return f"{100 * margin:.2f} %" if math.isfinite(margin) else "none"


def _has_several_devices(created: Created) -> bool:
    return len({item.devices for item in created.baselines.baseline}) > 1


def report(created: Created, out: Path, criteria: Path | None) -> list[str]:
    """What was made, in lines for a person."""
    lines = [*table(created)]
    lines += [f"left out: {reason}" for reason in created.left_out]
    lines += [f"note: {note}" for note in created.notes]
    lines += [f"launches: {sentence}" for sentence in created.pairs]
    if criteria is None:
        return [*lines, f"wrote {out}: judge by it with `bench accept --baseline {out}`"]
    command = f"bench accept --criteria {criteria} --baseline {out}"
    return [*lines, f"wrote {out} and {criteria}: judge by them with `{command}`"]


def write(created: Created, out: Path, criteria: Path | None = None) -> None:
    """Write the file for `--baseline`, and criteria that it can carry if they are wanted.

    Raises OutputError if one of the files is there already; UsageError if the criteria's name
    does not end in .toml, or where a baseline carries no margin.
    """
    if criteria is not None and criteria.suffix != ".toml":
        raise UsageError(f"{criteria}: give the criteria file a name that ends in .toml")
    for path in (out, criteria):
        if path is not None and path.exists():
            raise OutputError(f"{path} is there already: name another file, or remove it first")
    draft = b"" if criteria is None else criteria_for(created, criteria.stem)
    bundle.write(out, to_json(created.baselines))
    if criteria is not None:
        bundle.write(criteria, draft)


def criteria_for(created: Created, name: str) -> bytes:
    """Criteria that these baselines carry."""
    return criteria_of(
        created.margins,
        name,
        num_baselines=len(created.baselines.baseline),
        load_seconds=created.load_seconds,
    )


def _load_seconds(measured: Sequence[Measured]) -> float:
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


def to_document(created: Created) -> dict[str, object]:
    """What was made, as plain JSON values."""
    return {
        "baselines": to_data(created.baselines),
        "notes": list(created.notes),
        "left_out": list(created.left_out),
        "pairs": list(created.pairs),
        "largest_margin": created.largest_margin,
        "margins": dict(created.margins),
    }
