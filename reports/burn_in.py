"""Burn-in on paper: what was covered, what was found, and what a clean run of that length shows.

A run without an event of a kind bounds how often such events come, and no more: of a Poisson
process that fires at the rate r, T hours are clean with probability exp(-rT), which is 5 % where
r is 3.0/T. So a clean run shows a mean time between mismatches of T/3.0 at least, with 95 %
confidence, of the work and under the conditions that were run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from appliance.evidence.journal_index import JournalIndex
from appliance.evidence.launches import CaseEvidence
from appliance.records.journal import Check, Checked
from reports import words
from reports.model import BurnInSection, Row

WORKLOAD = "burn_in"
COVERED = "mismatches, repeated or lasting"
"""The check whose `detects_what` says what was covered, in clauses "heading: value"."""
PRODUCTS = re.compile(r"digested blocks: ([\d,]+) products")
_FACTOR = 3.0  # -ln(1 - 0.95) is 2.996
_HOUR = 3600.0


def sections(index: JournalIndex) -> tuple[BurnInSection, ...]:
    """One for each case of burn-in, in the plan's order."""
    every = index.cases.values()
    return tuple(_section(evidence) for evidence in every if evidence.case.workload == WORKLOAD)


def _section(evidence: CaseEvidence) -> BurnInSection:
    case = evidence.case
    blocks = [block for launch in evidence.timed for block in launch.blocks]
    checks = [checked for launch in evidence.timed for checked in launch.checks]
    last = [checked for checked in checks if checked.phase == "last"]
    seconds = sum(event.block_wall_ns for event in blocks) * 1e-9
    rows = [
        Row(label="Device", value=case.device),
        Row(label="Time under test", value=words.span(seconds)),
        Row(label="Steps", value=f"{sum(launch.num_steps for launch in evidence.timed):,}"),
        _segments(evidence),
    ]
    covered = [event for event in last if event.check.name == COVERED]
    if len(covered) > 1:
        rows.append(_proven(covered))
    for event in _shown_segments(covered):
        note = f"segment {event.launch.rpartition('/')[2]}" if len(covered) > 1 else ""
        rows += [Row(label=label, value=value, note=note) for label, value in clauses(event.check)]
    launches = {event.launch for event in blocks}
    is_checked = launches == {event.launch for event in covered} and bool(launches)
    is_clean = is_checked and all(event.check.is_within for event in last)
    return BurnInSection(
        id=case.id,
        rows=tuple(rows),
        shown=_shown(seconds, is_checked=is_checked, is_clean=is_clean),
    )


def _shown_segments(covered: Sequence[Checked]) -> list[Checked]:
    """Segments that saw a mismatch, and the last one, for what each covered."""
    return [*(event for event in covered[:-1] if event.check.error), *covered[-1:]]


def _proven(covered: Sequence[Checked]) -> Row:
    """Products of all segments, each of which says its number first."""
    matches = (PRODUCTS.search(event.check.detects_what) for event in covered)
    total = sum(int(match[1].replace(",", "")) for match in matches if match)
    return Row(label="Products proven", value=f"{total:,} in {len(covered):,} segments")


def _segments(evidence: CaseEvidence) -> Row:
    """How many segments were completed, and that what the others had covered is not counted."""
    every = evidence.timed
    completed = sum(launch.is_completed for launch in every)
    interrupted = sum(launch.was_interrupted for launch in every)
    note = "what interrupted ones had covered is not counted" if interrupted else ""
    value = f"{completed:,} of {len(every):,} completed"
    return Row(
        label="Segments",
        value=value + (f", {interrupted:,} interrupted" if interrupted else ""),
        note=note,
    )


def clauses(check: Check) -> list[tuple[str, str]]:
    """Heading and value of each clause of what a check of burn-in covered."""
    pairs = (clause.partition(": ") for clause in check.detects_what.split("; "))
    return [(words.label(head), value) for head, colon, value in pairs if colon]


def _shown(seconds: float, *, is_checked: bool, is_clean: bool) -> str:
    if not is_checked:
        return "The last output was not checked, so no bound is claimed."
    if not is_clean:
        return "Not clean: a check of the last output is outside its bound; no bound is claimed."
    return (
        f"No mismatch in {_hours(seconds)} under test: a mismatch comes no more often than once "
        f"in {_hours(seconds / _FACTOR)} on average (MTBF at least T/3.0) with 95 % confidence; "
        "nothing is said of work and conditions that were not run."
    )


def _hours(seconds: float) -> str:
    return f"{seconds / _HOUR:.3g} h"
