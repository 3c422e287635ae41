"""The page of a qualified device: Markdown made of its records alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from appliance.evidence import budget
from appliance.qualifying.idle_trial import TIMED_ALONE, TIMED_BESIDE
from appliance.qualifying.rows import CONTROL
from appliance.records.qualified import IdleNeighbour, ObservedCase, Qualified, QualifiedRecord
from appliance.scheduling import launch_kinds
from appliance.scheduling.idle_neighbours import is_harmless, ratios, rulings
from appliance.version import in_order

GIB = 2**30
NEAR = 0.5
"""Share of its bound from which an error is called near it."""
NONE = "-"
COLUMNS = (
    "row",
    "launches",
    "seeds",
    "largest error over bound",
    "same bits by default",
    "same bits, deterministic",
    "step",
    "rate",
    "TFLOP/s",
    "host memory",
    "device memory",
    "power",
)


def page(qualified: Qualified, model: str) -> str:
    """What is known of a model, in the order: what failed, rows by size, repeats, what lacks."""
    rows = (one for one in qualified.observed if one.model == model)
    observed = sorted(rows, key=lambda one: one.case)
    records = [one for one in qualified.record if one.model == model]
    idle = [one for one in qualified.idle if one.model == model]
    parts = [
        _head(model, observed, records, idle),
        _failures(observed),
        _rows("Small rows", [one for one in observed if one.size == "small"]),
        _rows("Full sizes", [one for one in observed if one.size == "full"]),
        _near(observed),
        _repeats(records),
        _fresh(observed),
        _idle(model, idle),
        _budget(observed),
        _not_made(observed),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def sentence(qualified: Qualified) -> str:
    """What a qualification came to, for who made it."""
    made = [one for one in qualified.observed if is_made(one)]
    bad = [one for one in made if is_faulty(one)]
    small = sum(one.size == "small" for one in made)
    both = sum(one.size == "small" and one.num_seeds > 1 for one in made)
    words = f"{small} small rows, {both} of them with two seeds; {len(made) - small} at full size"
    return f"{words}; {len(bad)} with a fault" if bad else f"{words}; every check within its bound"


def is_made(one: ObservedCase) -> bool:
    """Whether a launch of it did begin."""
    return bool(one.outcomes.keys() - {"unsupported", "software", "not_run"})


def is_faulty(one: ObservedCase) -> bool:
    """Whether a check was not within its bound, or a launch crashed or did not end in time."""
    ended = {"crashed", "timed_out"} & one.outcomes.keys()
    return bool(ended) or any(check.num_outside for check in one.checks)


# ------------------------------------------------------------------ parts


def _head(
    model: str,
    observed: Sequence[ObservedCase],
    records: Sequence[QualifiedRecord],
    idle: Sequence[IdleNeighbour],
) -> str:
    both: list[ObservedCase | QualifiedRecord | IdleNeighbour] = [*records, *idle]
    both += [one for one in observed if is_made(one)]
    if not both:
        return f"# {model}\n\nNothing is recorded of this model."
    stack: dict[str, dict[str, None]] = {}
    for one in both:
        for name, value in one.stack.items():
            stack.setdefault(name, {})[value] = None
    devices = {name for one in both for name in _devices(one)}
    dates = sorted(one.recorded_utc for one in both)
    versions = in_order(one.bench_version for one in both)
    span = (
        dates[0][:10] if dates[0][:10] == dates[-1][:10] else f"{dates[0][:10]} to {dates[-1][:10]}"
    )
    named = ", ".join(f"{name} {' or '.join(values)}" for name, values in sorted(stack.items()))
    return (
        f"# {model}\n\nWhat `bench qualify` and recorded runs of bench {', '.join(versions)} saw "
        f"on {_counted(len(devices), 'device')} ({span}). It holds for this stack and no other: "
        f"{named}.\n\nTimes are reported, and are no limit of anything. Written of the record by "
        "`bench qualify`; not by hand."
    )


def _devices(one: ObservedCase | QualifiedRecord | IdleNeighbour) -> tuple[str, ...]:
    return (one.device,) if isinstance(one, IdleNeighbour) else one.devices


def _failures(observed: Sequence[ObservedCase]) -> str:
    bad = [one for one in observed if is_faulty(one)]
    lines = [f"- {one.case} ({one.size}): {_what_failed(one)}" for one in bad]
    return _section("What failed", lines)


def _what_failed(one: ObservedCase) -> str:
    outside = [
        f'check "{each.name}" not within its bound in {each.num_outside} of {each.num_made} '
        f"(error {each.error:.3g}, bound {each.bound:.3g})"
        for each in one.checks
        if each.num_outside
    ]
    is_ended = {"crashed", "timed_out"} & one.outcomes.keys()
    return "; ".join([*outside, *([one.fault] if is_ended else [])])


def _rows(title: str, observed: Sequence[ObservedCase]) -> str:
    made = [one for one in observed if is_made(one)]
    if not made:
        return ""
    head = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    marks = sorted({one.disturbed for one in made if one.disturbed})
    notes = ["", f"\\* not that of a quiet machine: {marks[0]}."] if marks else []
    return f"## {title}\n\n" + "\n".join([*head, *map(_row, made), *notes])


def _row(one: ObservedCase) -> str:
    share = one.worst_share
    rate = one.units_per_second
    cells = [
        one.case,
        ", ".join(f"{count} {name}" for name, count in one.outcomes.items()),
        str(one.num_seeds),
        NONE if share is None else f"{share:.2f}",
        _yes(one.same_by_default, one.num_default),
        _yes(one.same_when_deterministic, one.num_deterministic),
        NONE if one.step_seconds is None else _seconds(one.step_seconds) + _mark(one),
        NONE if rate is None else f"{rate:.4g} {one.unit}/s",
        NONE if one.flops_per_second is None else f"{one.flops_per_second * 1e-12:.4g}",
        _memory(one.host_memory_bytes),
        _memory(one.device_memory_bytes),
        NONE if one.power_watts is None else f"{one.power_watts:.0f} W",
    ]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _mark(one: ObservedCase) -> str:
    return "\\*" if one.disturbed else ""


def _near(observed: Sequence[ObservedCase]) -> str:
    shares = [
        (check.error / check.bound, one, check)
        for one in observed
        for check in one.checks
        if check.bound > 0.0 and NEAR <= check.error / check.bound <= 1.0
    ]
    shares.sort(key=lambda item: -item[0])
    lines = [
        f"- {one.case} ({one.size}), {check.name}: {share:.2f} of its bound"
        for share, one, check in shares
    ]
    return _section("Errors near their bound", lines)


def _repeats(records: Sequence[QualifiedRecord]) -> str:
    lines = [
        f"| {one.workload} | {one.version} | {_form(one)} | {len(one.devices)} | {_stack(one)} |"
        for one in sorted(records, key=lambda each: (each.workload, _stack(each)))
    ]
    head = ["| workload | version | repeats | devices | stack |", "|---|---|---|---|---|"]
    return "## Repeats in the deterministic phase\n\n" + "\n".join([*head, *lines]) if lines else ""


def _stack(one: QualifiedRecord) -> str:
    """Torch's version, with the instructions that it found on processors."""
    names = ("torch", "torch_cpu_capability")
    return ", ".join(filter(None, (one.stack.get(name) for name in names))) or NONE


def _form(one: QualifiedRecord) -> str:
    if one.form == "no_deterministic_form":
        return f"no deterministic form ({', '.join(one.operators)})"
    return f"{one.num_clean:,} clean, none that differed"


def _fresh(observed: Sequence[ObservedCase]) -> str:
    lines = [
        f"- {one.case}: {launch_kinds.interval_words(one) or f'{one.fresh_ratio:.3f}'}"
        f"{_mark(one)}{_what_of_it(one)}"
        for one in observed
        if one.fresh_ratio is not None
    ]
    intro = (
        f"Step time of fresh processes over that of forked ones, in pairs ({', '.join(CONTROL)}). "
        f"The margin is {launch_kinds.rule().margin:.0%}; processors are not ruled by it:"
    )
    return _section("Fresh processes against forked ones", [intro, "", *lines] if lines else [])


_RULED = {
    "equivalent": "; equivalent within the margin",
    "different": "; different beyond it, so launches of its workload are fresh on this model",
    "undecided": "; neither is shown",
    None: "",
}


def _what_of_it(one: ObservedCase) -> str:
    return _RULED[launch_kinds.ruling(one)]


def _idle(model: str, records: Sequence[IdleNeighbour]) -> str:
    """What steps took beside a process that waits, and what follows for launches of the model."""
    if not records:
        return ""
    lines = ["| kind of step | alone | beside over alone | ruling |", "|---|---|---|---|"]
    lines += [row for one in records for row in _idle_rows(one)]
    follows = TIMED_BESIDE if is_harmless(model, records) else TIMED_ALONE
    lines += ["", f"{follows[0].upper()}{follows[1:]}."]
    reasons = sorted({one.disturbed for one in records if one.disturbed})
    if reasons:
        lines += ["", f"\\* these are not the steps of a quiet machine: {'; '.join(reasons)}."]
    return _section("Beside a process that waits", [_IDLE_INTRO, "", *lines])


_IDLE_INTRO = (
    "Steps while another process of the same run holds a context of the device and memory and "
    "waits, in pairs of blocks, one beside it and one without. "
    f"The margin is {launch_kinds.rule().margin:.0%}:"
)


def _idle_rows(record: IdleNeighbour) -> Iterator[str]:
    found = ratios(record)
    for kind, ruled in rulings(record).items():
        ratio = found[kind]
        alone = _seconds(median(pair.alone for pair in record.pairs[kind]))
        words = NONE if ratio is None else launch_kinds.ratio_words(ratio)
        ruling = "not ruled\\*" if record.disturbed else ruled or "too few pairs"
        yield f"| {kind} | {alone} | {words} | {ruling} |"


def _budget(observed: Sequence[ObservedCase]) -> str:
    """What the launches of all rows spent their time on; nothing where no record says it."""
    spent = budget.together(one.stage_seconds for one in observed)
    if not spent.is_measured:
        return ""
    lines = ["| part of the launches | time | share |", "|---|---|---|"]
    lines += [
        f"| {budget.LABELS[part]} | {budget.duration(seconds)} | "
        f"{100 * seconds / spent.whole:.1f} % |"
        for part, seconds in spent.seconds.items()
    ]
    sentence = budget.sentence(spent)
    return _section("Where the time went", [f"{sentence[0].upper()}{sentence[1:]}.", "", *lines])


def _not_made(observed: Sequence[ObservedCase]) -> str:
    lines = [f"- {one.case} ({one.size}): {one.fault}" for one in observed if not is_made(one)]
    return _section("Not made", lines)


def _section(title: str, lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    return f"## {title}\n\n{text}" if text else ""


# ------------------------------------------------------------------ figures


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _yes(value: bool | None, number: int) -> str:  # noqa: FBT001 - the value of a cell
    if value is None:
        return NONE
    return f"{'yes' if value else 'no'}, {number}"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _memory(value: int | None) -> str:
    return NONE if value is None else f"{value / GIB:.2f} GiB"


def models(qualified: Qualified) -> Iterator[str]:
    """The models that records are of, each once."""
    named = [one.model for one in qualified.observed]
    named += [one.model for one in qualified.record]
    yield from dict.fromkeys([*named, *(one.model for one in qualified.idle)])
