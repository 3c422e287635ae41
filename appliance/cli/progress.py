"""What a person sees on the terminal: progress while a run goes on, and its results.

On a terminal a line that moves; elsewhere one plain line for each launch. No median is shown
before a look, because whoever watches a number is tempted to stop when it pleases him.
Colours follow NO_COLOR; everything goes to stderr.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from appliance.cli.sanitize import harmless
from appliance.planning import coverage
from appliance.records.journal import LaunchEnded, Looked
from appliance.records.plan import Case, Launch, Plan
from appliance.records.suite import LaunchMode
from appliance.records.system import Fact, System
from appliance.records.verdict import CaseResult, Estimate, Ruling, Verdict
from appliance.verbs.listing import ListedWorkload, in_millions

if TYPE_CHECKING:
    from appliance.runner.execution import Observer
    from appliance.verification.verify import Verification

VERDICT_STYLES = {"ACCEPTED": "bold green", "REJECTED": "bold red", "INCONCLUSIVE": "bold yellow"}
LOG_WIDTH = 140
MINUTE = 60
NOT_REPORTED = "not reported"
MOST_RULINGS = 20  # that are not a pass and are printed; verdict.json and the report have all


class Plain(Console):
    """A console that shows texts as they are: no markup, no emoji, no control character."""

    def __init__(self, *, is_error: bool) -> None:
        super().__init__(stderr=is_error, highlight=False, soft_wrap=True, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """What every text comes through: lines and cells of tables alike."""
        options = {**options, "markup": bool(options.get("markup"))}
        return super().render_str(harmless(text), **options)


def console(*, is_error: bool = True) -> Console:
    """Where text for people goes; in a log, tables keep their columns."""
    out = Plain(is_error=is_error)
    if not out.is_terminal:
        out.width = LOG_WIDTH
    return out


class Silent:
    """An observer that says nothing."""

    def foretold(self, sentences: Sequence[str]) -> None: ...
    def run_begins(self, plan: Plan, num_done: int) -> None: ...
    def launch_started(self, launch: Launch, mode: LaunchMode) -> None: ...
    def launch_ended(self, launch: Launch, event: LaunchEnded) -> None: ...
    def looked(self, event: Looked) -> None: ...


class Lines(Silent):
    """One line for each launch that ended and each look: for logs and pipes."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._begin = 0.0
        self._num_done = 0
        self._num = 0
        self._expected = 0.0

    def foretold(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            self._out.print(sentence, markup=False)

    def run_begins(self, plan: Plan, num_done: int) -> None:
        self._num, self._num_done = len(plan.launches), num_done
        self._expected = plan.expected_seconds
        self._begin = time.monotonic()
        self._out.print(begin_sentence(plan, num_done))

    def launch_ended(self, launch: Launch, event: LaunchEnded) -> None:
        self._num_done += 1
        if (event.outcome, event.reason) == ("not_run", "decided"):
            return  # the look has said it
        self._out.print(
            f"[{self._num_done}/{self._num}] {launch_words(launch)}: {outcome_words(event)}, "
            f"{event.wall_ns * 1e-9:.1f} s; elapsed {time.monotonic() - self._begin:.0f} s "
            f"of about {self._expected:.0f} s",
            markup=False,
        )

    def looked(self, event: Looked) -> None:
        self._out.print(look_sentence(event), markup=False)


class Moving(Silent):
    """A moving line with case, launch, elapsed and expected time; looks and faults stay."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def foretold(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            self._progress.console.print(sentence, markup=False)

    def run_begins(self, plan: Plan, num_done: int) -> None:
        self._progress.console.print(begin_sentence(plan, num_done))
        self._task = self._progress.add_task(
            "starting",
            total=len(plan.launches),
            completed=num_done,
            expected=f"about {minutes(plan.expected_seconds)}",
        )

    def launch_started(self, launch: Launch, mode: LaunchMode) -> None:
        if self._task is not None:
            words = f"{launch_words(launch)} ({mode})"
            self._progress.update(self._task, description=f"{words:44}")

    def launch_ended(self, launch: Launch, event: LaunchEnded) -> None:
        if self._task is not None:
            self._progress.advance(self._task)
        if event.outcome != "completed" and event.reason != "decided":
            self._progress.console.print(
                f"{launch_words(launch)}: {outcome_words(event)}", markup=False
            )

    def looked(self, event: Looked) -> None:
        self._progress.console.print(look_sentence(event), markup=False)


@contextmanager
def observer(*, quiet: bool) -> Iterator[Observer]:
    """The observer that fits: silent, plain lines, or a moving line on a terminal."""
    out = console()
    if quiet:
        yield Silent()
    elif not out.is_terminal:
        yield Lines(out)
    else:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("of {task.fields[expected]}"),
        )
        with Progress(*columns, console=out, transient=True) as progress:
            yield Moving(progress)


# ------------------------------------------------------------------ sentences


def begin_sentence(plan: Plan, num_done: int) -> str:
    done = f", {num_done} of them made before" if num_done else ""
    longest = plan.longest_seconds > plan.expected_seconds
    return (
        f"run {plan.run_id}: suite {plan.suite}, {len(plan.cases)} cases, "
        f"{len(plan.launches)} launches{done}; about {plan.expected_seconds:.0f} s"
        + (f", at most {plan.longest_seconds:.0f} s" if longest else "")
    )


def minutes(seconds: float) -> str:
    """A length of time on a progress line."""
    return f"{seconds / MINUTE:.0f} min" if seconds >= MINUTE else f"{seconds:.0f} s"


def plan_sentences(plan: Plan) -> tuple[str, ...]:
    """How the cases will be judged, how long it will take, and what the run is not."""
    looks = [str(look) for look in plan.protocol.looks]
    judged = " and ".join(filter(None, (", ".join(looks[:-1]), looks[-1])))
    limits = (
        f"{plan.num_limits} limits on times, which share the risk of a wrong rejection"
        if plan.num_limits
        else "no limit on times: performance is reported and not judged"
    )
    times = (
        f"expected {plan.expected_seconds:.0f} s if every case is decided at its first look, "
        f"longest {plan.longest_seconds:.0f} s; the suite is limited to "
        f"{plan.time_limit_seconds:.0f} s"
    )
    judging = f"judged after {judged} timed launches of a case; {limits}"
    said = [begin_sentence(plan, 0), judging, times]
    said += coverage.sentences(plan)
    if plan.injectors:
        said.append(f"injects faults on purpose ({', '.join(plan.injectors)}): accepts nothing")
    if plan.rerun_of:
        said.append(f"repeats {plan.rerun_of}: accepts nothing")
    return tuple(said)


def launch_words(launch: Launch) -> str:
    kind = f"launch {launch.number}" if launch.is_timed else "reference"
    return f"{launch.case} {kind}"


def outcome_words(event: LaunchEnded) -> str:
    detail = f" ({event.reason}: {event.detail})" if event.detail else f" ({event.reason})"
    return event.outcome + (detail if event.reason else "")


def look_sentence(event: Looked) -> str:
    """What a look came to, with its word first: decided, open, or reported only."""
    word, colon, reason = event.reason.partition(": ")
    if not colon or word not in ("decided", "open"):
        word, reason = ("decided" if event.is_decided else "reported"), event.reason
    return f"{event.case}: {word} after {event.launches} launches: {reason}"


def fact_words(fact: Fact) -> str:
    """A fact as a person reads it; what is missing with the permission that would allow it."""
    if fact.value is None:
        return NOT_REPORTED + (f" ({fact.hint})" if fact.hint else "")
    return f"{fact.value} {fact.unit}".strip()


# ------------------------------------------------------------------ results


def print_result(folder: Path, verdict: Verdict, *, is_signed: bool) -> None:
    """The final table, the verdict with its reasons, and where everything is."""
    out = console()
    table = Table(box=None, pad_edge=False)
    for name in ("case", "launches", "checks within", "step", "rate", "arithmetic"):
        table.add_column(name, justify="left" if name == "case" else "right")
    for case in verdict.cases:
        table.add_row(*_result_row(case))
    out.print(table)
    for sentence in ruling_sentences(verdict):
        out.print(sentence, markup=False)
    out.print(f"\n{verdict.verdict}", style=VERDICT_STYLES[verdict.verdict], end="  ")
    out.print(verdict.scope)
    for sentence in verdict_sentences(verdict):
        out.print(sentence, markup=False)
    if is_signed:
        out.print(f"report: {folder / 'report.pdf'}", markup=False)
        out.print(f"verify: bench verify {folder}", markup=False)
    else:
        out.print(f"unsigned: bench sign {folder}", markup=False)


def ruling_sentences(verdict: Verdict) -> tuple[str, ...]:
    """Every ruling that is not a pass with its next action: the deciding one first, then fails.

    What is said of several cases is said once; beyond MOST_RULINGS the rest is counted.
    """
    groups: dict[tuple[str, str, str, str], list[Ruling]] = {}
    for ruling in sorted(verdict.rulings, key=lambda one: _urgency(one, verdict)):
        if ruling.ruling != "pass":
            alike = (ruling.criterion, ruling.ruling, ruling.explanation, ruling.action)
            groups.setdefault(alike, []).append(ruling)
    said = [_said(group) for group in groups.values()]
    if len(said) > MOST_RULINGS:
        rest = len(said) - MOST_RULINGS
        said = [*said[:MOST_RULINGS], f"and {rest} more rulings: verdict.json and the report say"]
    return tuple(said)


def _urgency(ruling: Ruling, verdict: Verdict) -> tuple[bool, bool, bool]:
    name = f"{ruling.criterion} of {ruling.case}" if ruling.case else ruling.criterion
    return (not ruling.required, name != verdict.decided_by, ruling.ruling != "fail")


def _said(group: Sequence[Ruling]) -> str:
    one = group[0]
    cases = ", ".join(ruling.case for ruling in group if ruling.case)
    word = one.ruling.replace("_", " ") + ("" if one.required else " (advisory)")
    return f"{word}: {one.criterion}{f' of {cases}' if cases else ''}: {one.explanation}" + (
        f"\n    next: {one.action}" if one.action else ""
    )


def verdict_sentences(verdict: Verdict) -> tuple[str, ...]:
    """What decided, the failure rate, the suite score and the devices that lag behind."""
    said = [f"decided by: {verdict.decided_by}"] if verdict.decided_by else []
    said.append(f"failure rate: {verdict.num_failed} of {verdict.num_made} launches")
    score = verdict.score
    if score is not None:
        has_ends = score.low is not None and score.high is not None
        ends = f" ({score.low:.4f} to {score.high:.4f})" if has_ends else ""
        said.append(
            f"suite score: {score.value:.4f}{ends} of the baseline's speed over "
            f"{len(score.ratios)} cases; it never offsets a criterion"
        )
    said += [
        f"straggler: {one.device} is {one.effect * 100:.1f} % slower than its neighbours"
        for one in verdict.stragglers
        if one.is_flagged
    ]
    return tuple(said)


def _result_row(case: CaseResult) -> tuple[str, ...]:
    num_checks = sum(check.count for check in case.checks)
    num_outside = sum(check.num_outside for check in case.checks)
    by_name = {estimate.name: estimate for estimate in case.estimates}
    return (
        case.case,
        f"{case.num_completed}/{case.num_planned}",
        f"{num_checks - num_outside}/{num_checks}",
        _seconds_words(by_name.get("step_seconds")),
        _rate_words(by_name.get("units_per_second")),
        _rate_words(by_name.get("flops_per_second")),
    )


SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def _seconds_words(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{estimate.value * 1e3:.3f} ms"


def _rate_words(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    unit = estimate.unit.replace("bytes/s", "B/s")
    if unit in {"B/s", "FLOP/s"}:
        for scale, prefix in SCALES:
            if estimate.value >= scale:
                return f"{estimate.value / scale:.2f} {prefix}{unit}"
    return f"{estimate.value:,.1f} {unit}"


def print_plan(plan: Plan) -> None:
    """The cases with their sizes, and how long they will take."""
    out = console()
    table = Table(box=None, pad_edge=False)
    for name in ("case", "workload", "model", "launches", "parameters"):
        table.add_column(name)
    for case in plan.cases:
        table.add_row(*_plan_row(case))
    out.print(table)
    for sentence in plan_sentences(plan):
        out.print(sentence, markup=False)


def print_workloads(found: Sequence[ListedWorkload]) -> None:
    """The workloads by domain, with their sizes and the suites that use them."""
    table = Table(box=None, pad_edge=False)
    for name in ("workload", "domain", "unit", "model", "small", "suites", "what it is"):
        table.add_column(name)
    for item in sorted(found, key=lambda item: (item.domain, item.name)):
        sizes = (in_millions(item.num_parameters_full), in_millions(item.num_parameters_small))
        suites = ", ".join(item.suites) or "-"
        table.add_row(item.name, item.domain or "-", item.unit or "-", *sizes, suites, item.summary)
    console(is_error=False).print(table)


def _plan_row(case: Case) -> tuple[str, ...]:
    size = "" if case.num_parameters is None else f"{case.num_parameters:,} parameters"
    values = ", ".join(f"{name}={value}" for name, value in case.parameters.items())
    memory = f"{case.memory_class_gib} GiB class" if case.memory_class_gib else ""
    ranks = f"{case.ranks} ranks" if case.ranks > 1 else ""
    told = ("reduced" if case.small else "", size, memory, ranks)
    words = ", ".join(filter(None, told)) or "-"
    return (case.id, f"{case.workload} {case.version}", words, str(case.launches + 1), values)


def print_system(system: System) -> None:
    """Devices, host and conditions, with what could not be read and why."""
    out = console()
    identity = system.identity
    for device in identity.devices:
        serial = device.serial or NOT_REPORTED
        out.print(f"{device.id}: {device.model}, serial {serial}", markup=False)
        for name, fact in device.facts.items():
            out.print(f"  {name}: {fact_words(fact)}", markup=False)
    groups = {"host": identity.host, "software": identity.software}
    lists = (("disk", identity.disks), ("interface", identity.interfaces))
    for kind, items in (("memory module", identity.memory_modules), *lists):
        groups |= {f"{kind} {number}": facts for number, facts in enumerate(items, 1)}
    for title, facts in {**groups, "conditions": system.conditions.facts}.items():
        out.print(title, markup=False)
        for name, fact in facts.items():
            out.print(f"  {name}: {fact_words(fact)}", markup=False)


def print_verification(path: Path, verification: Verification) -> None:
    """Every numbered check and what it comes to."""
    out = console()
    for number, check in enumerate(verification.checks, 1):
        out.print(f"{number:2} {check.status:8} {check.name}: {check.sentence}", markup=False)
    word = verification.verdict or "NOT VERIFIED"
    style = VERDICT_STYLES.get(word, "bold red")
    out.print(f"\n{word}", style=style, end="  ")
    out.print(str(path), markup=False)
