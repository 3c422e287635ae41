"""The verb `compare`: verify two or more bundles, compare them, and leave a page and a document.

Nothing is compared that does not verify by itself: a ratio to figures that somebody could have
changed would lend them a weight that they have not. The page and the JSON document are made of
the same record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from appliance import extras
from appliance.comparison.case_pairs import Side
from appliance.comparison.compare_runs import (
    Comparison,
    Word,
    check_margin,
    compare,
    headline,
    label_of,
    said,
)
from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.records.json import to_json
from appliance.records.verdict import RulingWord
from appliance.storage import bundle
from appliance.verification import verify
from appliance.verification.terms import Terms
from appliance.version import VERSION

DOCUMENT, PAGE = "comparison.json", "comparison.html"
MOST_DIFFERENCES = 8  # in plan, machine or software that the terminal names
EXIT_CODES: Mapping[Word, int] = {"within": 0, "beyond": 1, "open": 3}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The comparison, and the folder that holds its page and its document."""

    folder: Path
    comparison: Comparison

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.comparison.word]


def run(
    paths: Sequence[Path],
    *,
    out: Path,
    margin: float,
    trusted: Sequence[bytes] = (),
    allow_development: bool = False,
) -> Compared:
    """Compare bundles (folders, or PDFs that carry their journal) with the first of them.

    `trusted` are certificates in PEM form. Raises EvidenceError for a bundle that does not
    verify, UsageError for what cannot be compared or where the part `compare` is not installed,
    OutputError if `out` cannot take the result.
    """
    check_margin(margin)
    extras.require(extras.COMPARE, "a comparison")
    if (out / bundle.PLAN).exists():
        raise OutputError(f"{out} is the folder of a run: name another with --out")
    sides = [
        Side(
            label=label_of(number),
            path=str(path),
            bundle=_verified(path, trusted, allow_development=allow_development),
        )
        for number, path in enumerate(paths)
    ]
    comparison = compare(sides, margin=margin, bench_version=VERSION)
    bundle.write(out / DOCUMENT, to_json(comparison))
    bundle.write(out / PAGE, _rendered(comparison))
    return Compared(folder=out, comparison=comparison)


def _rendered(comparison: Comparison) -> bytes:
    """The page; here alone the renderer is imported."""
    from reports.comparing import rendering  # noqa: PLC0415 - its libraries are optional
    from reports.comparing.page import page  # noqa: PLC0415 - the same

    return rendering.html(page(comparison))


def sentences(compared: Compared) -> tuple[str, ...]:
    """For a person: the summary, all that is not within the margin, and where the page is."""
    comparison = compared.comparison
    lines = [comparison.summary]
    lines += _of_cases(
        (
            item.label,
            item.case,
            f"{said(item.timing.word, item.timing.ratio)}: {item.timing.explanation}",
        )
        for item in comparison.cases
        if item.timing is not None and item.timing.word != "within"
    )
    lines += _of_cases(
        (item.label, item.case, f"not compared: {item.reason}") for item in comparison.refused
    )
    lines += _changes(comparison)
    for one in comparison.bundles[1:]:
        own = [item.sentence for item in comparison.differences if item.label == one.label]
        lines += [f"{one.label}: differs: {sentence}" for sentence in own[:MOST_DIFFERENCES]]
        if len(own) > MOST_DIFFERENCES:
            lines.append(f"{one.label}: {len(own) - MOST_DIFFERENCES} more differ: see the page")
    return (*lines, f"{headline(comparison)}  {compared.folder / PAGE}")


def _of_cases(several: Iterable[tuple[str, str, str]]) -> list[str]:
    """One sentence for the cases of which the same is said, of run, case and what is said."""
    alike: dict[tuple[str, str], list[str]] = {}
    for label, case, what in several:
        alike.setdefault((label, what), []).append(case)
    return [f"{label}: {', '.join(cases)}: {what}" for (label, what), cases in alike.items()]


def _changes(comparison: Comparison) -> list[str]:
    """Rulings that changed: of a case all criteria that changed alike, and cases alike in those."""
    by_case: dict[tuple[str, str, str, str], list[str]] = {}
    for one in comparison.rulings:
        ruled = (_in_words(one.reference), _in_words(one.other))
        by_case.setdefault((one.label, one.case or "the node", *ruled), []).append(one.criterion)
    return _of_cases(
        (
            label,
            case,
            f"{criteria[0]} was {then} and is {now}"
            if len(criteria) == 1
            else f"{', '.join(criteria)} were {then} and are {now}",
        )
        for (label, case, then, now), criteria in by_case.items()
    )


def _in_words(ruling: RulingWord | None) -> str:
    return "not ruled" if ruling is None else ruling.replace("_", " ")


def _verified(path: Path, trusted: Sequence[bytes], *, allow_development: bool) -> bundle.Bundle:
    """A bundle that was verified; its verdict is the one that was derived again."""
    verification, files = verify.read_confined(
        path, Terms(trusted=trusted, allow_development=allow_development)
    )
    if verification.faults:
        raise EvidenceError(f"{path} does not verify: {verification.faults[0]}")
    if verification.verdict is None:
        raise UsageError(
            f"{path} carries no journal, so its rulings cannot be derived again: name the folder "
            "of its run"
        )
    lines = bundle.lines_of(files) if bundle.JOURNAL in files else ()
    folder = path if verification.kind == "folder" else None
    return replace(bundle.records_of(files, folder=folder), lines=lines)
