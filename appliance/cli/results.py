"""What a verb prints of its result: tables and sentences of a plan, a node, a verdict, a check."""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from appliance.cli.console import LOG_WIDTH, console
from appliance.cli.output import command, continued, hanging, in_lines, pasteable
from appliance.cli.progress import begin_sentence, minutes
from appliance.evidence.budget import Budget, duration
from appliance.evidence.budget import sentence as budget_sentence
from appliance.foreign_text import one_line
from appliance.planning import coverage
from appliance.planning.sessions import num_in_all, seconds_of_run
from appliance.probe import container_facts
from appliance.records.json import Scalar, from_json
from appliance.records.plan import Case, Plan
from appliance.records.signer import Signer
from appliance.records.system import Fact, System
from appliance.records.verdict import CaseResult, Estimate, Ruling, Verdict
from appliance.storage import bundle
from appliance.verbs.listing import ListedWorkload, in_millions
from reports import words

if TYPE_CHECKING:
    from appliance.verification.verify import Verification

VERDICT_STYLES = {"ACCEPTED": "bold green", "REJECTED": "bold red", "INCONCLUSIVE": "bold yellow"}
NOT_REPORTED = "not reported"
RESULT = ("case", "launches", "checks within", "step", "rate", "arithmetic")
SPARED = ("arithmetic", "checks within")
GAP = 2  # columns of a terminal between those of a table
LEAST_WIDTH = 30  # of a column of parameters
MOST_RULINGS = 20  # that are not a pass and are printed; verdict.json and the report have all


def plan_sentences(plan: Plan) -> tuple[str, ...]:
    """How the cases will be judged, how long it will take, and what the run is not."""
    analyses = plan.protocol.interim_analyses
    counts = [str(num_in_all(analyses, launches, plan.sessions)) for launches in analyses]
    judged = " and ".join(filter(None, (", ".join(counts[:-1]), counts[-1])))
    limits = (
        f"{plan.num_limits} limits on times, which share the risk of a wrong rejection"
        if plan.num_limits
        else "no limit on times: performance is reported and not judged"
    )
    times = (
        f"expected {minutes(plan.expected_seconds)} if every case is decided at its first look, "
        f"longest {minutes(plan.longest_seconds)}; after "
        f"{minutes(plan.time_limit_seconds)}, the limit of the suite, no further launch begins"
    )
    judging = f"judged after {judged} timed launches of a case; {limits}"
    sentences = [begin_sentence(plan, 0), judging, times, session_sentence(plan)]
    sentences += [
        f"launches of {case.id} are fresh processes: {case.fresh_because}"
        for case in plan.cases
        if case.fresh_because
    ]
    sentences += coverage.sentences(plan)
    if plan.injectors:
        sentences.append(
            f"injects faults on purpose ({', '.join(plan.injectors)}): accepts nothing"
        )
    if plan.rerun_of:
        sentences.append(f"repeats {plan.rerun_of}: accepts nothing")
    return tuple(sentences)


def session_sentence(plan: Plan) -> str:
    """In how many sessions the run is made, and what one alone cannot show."""
    if plan.sessions == 1:
        return "one session: the level of a run is not sampled; --sessions 3 samples it"
    pauses = (
        "each begun with --resume"
        if plan.pause_seconds is None
        else f"with pauses of {minutes(plan.pause_seconds)}, {minutes(seconds_of_run(plan))} in all"
    )
    return (
        f"{plan.sessions} sessions, {pauses}; times are judged in the last one, at the launches "
        "of all of them"
    )


def fact_lines(facts: Mapping[str, Fact]) -> Iterator[str]:
    """Facts as a person reads them, a line each; what is missing together, by what would allow it.

    Bytes are in the binary unit that suits them, as orders and pages have them.
    """
    missing: dict[str, list[str]] = {}
    for name, fact in facts.items():
        if fact.value is None:
            missing.setdefault(fact.hint, []).append(name)
        else:
            yield f"{name}: {_fact_words(fact.value, fact.unit)}"
    for hint, names in missing.items():
        yield f"{NOT_REPORTED}: {', '.join(names)}" + (f" ({hint})" if hint else "")


def _fact_words(value: Scalar, unit: str) -> str:
    """A value with its unit, as a person reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return f"{value} {unit}".rstrip()
    if unit == "bytes":
        return f"{value:,} bytes" if value < 2**10 else words.size(value)
    if unit == "seconds":
        return minutes(value)
    if unit == "hertz":
        return words.scaled(value, "Hz")
    return f"{f'{value:.4g}' if isinstance(value, float) else value} {unit}".rstrip()


def print_result(
    folder: Path,
    verdict: Verdict,
    budget: Budget | None = None,
    *,
    is_signed: bool,
    after_seconds: float | None = None,
) -> None:
    """The final table, the verdict with its reasons, where the time went and all is stored.

    `budget` None: nothing is said of it, where it is not known. `after_seconds` are what came after
    the last line of the journal, whose parts the budget has.
    """
    out = console()
    print_table(out, RESULT, [_result_row(case) for case in verdict.cases])
    for sentence in ruling_sentences(verdict):
        for line in sentence.splitlines():
            out.print(line, markup=False)
    out.print()
    _print_verdict(out, verdict.verdict, verdict.scope)
    for sentence in verdict_sentences(verdict):
        out.print(sentence, markup=False)
    if budget is not None:
        out.print(
            budget_sentence(budget) + _after(after_seconds, is_signed=is_signed), markup=False
        )
    for line in last_lines(folder, is_signed=is_signed):
        whole = continued(line, out.width) if out.is_terminal else line
        out.print(Text(whole), soft_wrap=True)


def _print_verdict(out: Console, word: str, what: str) -> None:
    """The verdict's word, in its colour, and what it is of."""
    text = one_line(f"{word}  {what}")
    said = Text(f"{word} {in_lines(text, out.width - 1)[len(word) :]}" if out.is_terminal else text)
    said.stylize(VERDICT_STYLES.get(word, "bold red"), 0, len(word))
    out.print(said)


def _after(seconds: float | None, *, is_signed: bool) -> str:
    """How long verdict, pages and signature took, which are not in the journal."""
    if seconds is None:
        return ""
    what = "verdict, pages and signature" if is_signed else "verdict"
    return f"; then {duration(seconds)} for {what}"


def last_lines(folder: Path, *, is_signed: bool) -> tuple[str, ...]:
    """Where the pages are, and the next command, which works as it is pasted."""
    if not is_signed:
        return (f"unsigned: {command('sign', str(folder))}",)
    record = from_json(Signer, (folder / bundle.SIGNER).read_bytes(), name=bundle.SIGNER)
    trust = ("--allow-dev",) if record.is_development else ()
    report = folder / bundle.PDF
    is_here = container_facts.VARIABLE not in os.environ
    return (
        f"report: {report.absolute().as_uri() if is_here else report}",
        f"verify: {command('verify', str(folder), *trust)}",
    )


def print_table(out: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows under their columns, without those of SPARED that the width has no room for."""
    widths = {
        name: max(map(len, cells)) for name, *cells in zip(columns, columns, *rows, strict=True)
    }
    for name in SPARED:
        if sum(widths.values()) + GAP * (len(widths) - 1) > out.width:
            widths.pop(name)
    table = Table(box=None, pad_edge=False)
    for name in widths:
        table.add_column(name, justify="left" if name == columns[0] else "right", overflow="fold")
    for row in rows:
        cells_by_name = dict(zip(columns, row, strict=True))
        table.add_row(*(cells_by_name[name] for name in widths))
    out.print(table)


def ruling_sentences(verdict: Verdict) -> tuple[str, ...]:
    """Every ruling that is not a pass with its next action: the deciding one first, then fails.

    What holds for several cases, or of the same cases by several criteria, is printed once; beyond
    MOST_RULINGS the rest is counted.
    """
    groups: dict[tuple[str, str, str, str], list[Ruling]] = {}
    for ruling in sorted(verdict.rulings, key=lambda one: _urgency(one, verdict)):
        if ruling.ruling != "pass":
            why = _shown_by_repeats(ruling) or _of_its_case(ruling)
            alike = (ruling.criterion, ruling.ruling, why, ruling.action)
            groups.setdefault(alike, []).append(ruling)
    several: dict[tuple[object, ...], list[Sequence[Ruling]]] = {}
    for (_, *same), group in groups.items():
        cases = tuple(ruling.case for ruling in group)
        several.setdefault((*same, cases, group[0].required), []).append(group)
    sentences = [_ruling_sentence(*alike) for alike in several.values()]
    if len(sentences) > MOST_RULINGS:
        rest = len(sentences) - MOST_RULINGS
        sentences = [
            *sentences[:MOST_RULINGS],
            f"and {rest} more rulings: see verdict.json and the report",
        ]
    return tuple(sentences)


def _urgency(ruling: Ruling, verdict: Verdict) -> tuple[bool, bool, bool]:
    name = f"{ruling.criterion} of {ruling.case}" if ruling.case else ruling.criterion
    return (not ruling.required, name != verdict.decided_by, ruling.ruling != "fail")


def _shown_by_repeats(ruling: Ruling) -> str:
    """What the repeats of a case showed that no qualified record applies to; else nothing.

    Why none applies names the workload, so it would be told anew of each.
    """
    return ruling.explanation.partition("; ")[2] if ruling.reason == "unqualified" else ""


def _of_its_case(ruling: Ruling) -> str:
    """The explanation with its launches by their numbers, which several cases may share."""
    return ruling.explanation.replace(f"{ruling.case}/", "") if ruling.case else ruling.explanation


def _ruling_sentence(group: Sequence[Ruling], *others: Sequence[Ruling]) -> str:
    """One sentence of all cases of a group, and of the other criteria that say the same of them."""
    one = group[0]
    criteria = ", ".join(ruling.criterion for ruling in (one, *(other[0] for other in others)))
    cases = words.cases([ruling.case for ruling in group if ruling.case])
    why = one.explanation if len(group) == 1 else _of_its_case(one)
    if len(group) > 1 and _shown_by_repeats(one):
        cases, why = f"{len(group)} cases", f"no qualified record applies; {_shown_by_repeats(one)}"
    word = one.ruling.replace("_", " ") + ("" if one.required else " (advisory)")
    ruled = one_line(f"{word}: {criteria}{f' of {cases}' if cases else ''}: {why}")
    return ruled + (f"\n    next: {one_line(one.action)}" if one.action else "")


def verdict_sentences(verdict: Verdict) -> tuple[str, ...]:
    """What decided, the failure rate, the suite score and the devices that lag behind."""
    sentences = [f"decided by: {verdict.decided_by}"] if verdict.decided_by else []
    sentences.append(f"failure rate: {verdict.num_failed} of {verdict.num_made} launches")
    score = verdict.score
    if score is not None:
        has_ends = score.low is not None and score.high is not None
        ends = f" ({score.low:.4f} to {score.high:.4f})" if has_ends else ""
        sentences.append(
            f"suite score: {score.value:.4f}{ends} of the baseline's speed over "
            f"{len(score.ratios)} cases; it never offsets a criterion"
        )
    sentences += [
        f"straggler: {one.device} is {one.effect * 100:.1f} % slower than its neighbours"
        for one in verdict.stragglers
        if one.is_flagged
    ]
    return tuple(sentences)


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
    made = Counter(launch.case for launch in plan.launches)
    rows = [_plan_row(case, made[case.id]) for case in plan.cases]
    short = max(sum(map(len, row[:-1])) for row in rows) + GAP * len(rows[0])
    if short + LEAST_WIDTH <= out.width:
        table = Table(box=None, pad_edge=False)
        for name in ("case", "workload", "model", "launches", "parameters"):
            table.add_column(name)
        for row in rows:
            table.add_row(*row)
        out.print(table)
    else:
        for row in rows:
            for line in _plan_lines(row, out.width):
                out.print(line, markup=False, soft_wrap=True)
    for sentence in plan_sentences(plan):
        out.print(sentence, markup=False)


def _plan_lines(row: Sequence[str], width: int) -> Iterator[str]:
    """A case in lines of a narrow terminal, which part no name and no word."""
    case, workload, model, launches, parameters = row
    first = case if case.partition("@")[0] == workload.partition(" ")[0] else f"{case}  {workload}"
    yield f"{first}  {launches} launches"
    facts = "; ".join(part for part in (model, parameters) if part and part != "-")
    yield from _indented(facts, width)


def _indented(text: str, width: int) -> Iterator[str]:
    lines = textwrap.wrap(text, width - 4, break_long_words=False, break_on_hyphens=False)
    return (f"    {line}" for line in lines)


def print_workloads(workloads: Sequence[ListedWorkload]) -> None:
    """The workloads by domain, with their sizes and the suites that use them."""
    out = console(is_error=False)
    items = sorted(workloads, key=lambda item: (item.domain, item.name))
    if out.is_terminal and out.width < LOG_WIDTH:
        for item in items:
            for line in _workload_lines(item, out.width):
                out.print(line, markup=False, soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False)
    for name in ("workload", "domain", "unit", "model", "small", "suites", "what it is"):
        table.add_column(name)
    for item in items:
        table.add_row(item.name, item.domain or "-", item.unit or "-", *_listed(item), item.summary)
    out.print(table)


def _listed(item: ListedWorkload) -> tuple[str, str, str]:
    """The sizes of a workload's models, and the suites that use it."""
    sizes = (in_millions(item.num_parameters_full), in_millions(item.num_parameters_small))
    return *sizes, ", ".join(item.suites) or "-"


def _workload_lines(item: ListedWorkload, width: int) -> Iterator[str]:
    """A workload in lines of a narrow terminal."""
    full, small, suites = _listed(item)
    yield "  ".join(filter(None, (item.name, item.domain, item.unit)))
    size = f"parameters {full}, small {small}; " if full != "-" else ""
    for text in (item.summary, f"{size}suites: {suites}"):
        yield from _indented(text, width)


def _plan_row(case: Case, num_launches: int) -> tuple[str, ...]:
    size = "" if case.num_parameters is None else f"{case.num_parameters:,} parameters"
    values = ", ".join(f"{name}={value}" for name, value in case.parameters.items())
    memory = f"{case.memory_class_gib} GiB class" if case.memory_class_gib else ""
    ranks = f"{case.ranks} ranks" if case.ranks > 1 else ""
    facts = ("reduced" if case.small else "", size, memory, ranks)
    about = ", ".join(filter(None, facts)) or "-"
    return (case.id, f"{case.workload} {case.version}", about, str(num_launches), values)


def print_system(system: System) -> None:
    """Devices, host and conditions, with what could not be read and why."""
    out = console()
    identity = system.identity
    for device in identity.devices:
        serial = device.serial or NOT_REPORTED
        out.print(f"{device.id}: {device.model}, serial {serial}", markup=False)
        _print_facts(out, device.facts)
    groups = {"host": identity.host, "software": identity.software}
    lists = (("disk", identity.disks), ("interface", identity.interfaces))
    for kind, items in (("memory module", identity.memory_modules), *lists):
        groups |= {f"{kind} {number}": facts for number, facts in enumerate(items, 1)}
    for title, facts in {**groups, "conditions": system.conditions.facts}.items():
        out.print(title, markup=False)
        _print_facts(out, facts)


def _print_facts(out: Console, facts: Mapping[str, Fact]) -> None:
    for line in fact_lines(facts):
        if out.is_terminal:
            for part in _indented(line, out.width):
                out.print(part, markup=False, soft_wrap=True)
        else:
            out.print(f"    {line}", markup=False)


def print_verification(path: Path, verification: Verification) -> None:
    """Every numbered check and what it comes to."""
    out = console()
    for number, check in enumerate(verification.checks, 1):
        status = check.status.replace("_", " ")
        head = f"{number:2} {status:8} "
        text = one_line(pasteable(f"{check.name}: {check.sentence}"))
        lines = hanging(text, out.width, len(head)) if out.is_terminal else text
        out.print(Text(head + lines), soft_wrap=True)
    for sentence in verification.not_compared:
        out.print(f"not compared: {sentence}", markup=False)
    failed = [check.name for check in verification.checks if check.status == "fail"]
    why = f" (fails: {', '.join(failed)})" if failed else ""
    out.print()
    _print_verdict(out, verification.verdict or "NOT VERIFIED", f"{path}{why}")
    out.print(f"not shown: {verification.not_shown}", markup=False)
