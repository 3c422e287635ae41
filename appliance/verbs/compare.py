"""The verb `compare`: verify two or more bundles, compare them, and leave a page and a document.

Nothing is compared that does not verify by itself: a ratio to figures that somebody could have
changed would lend them a weight that they have not. The page and the JSON document are made of
the same record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance import extras
from appliance.comparison.case_pairs import Side
from appliance.comparison.compare_runs import Comparison, Word, compare, label_of
from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.records.json import to_json
from appliance.signing import pades
from appliance.storage import bundle as bundles
from appliance.verification import verify
from appliance.version import VERSION

DOCUMENT, PAGE = "comparison.json", "comparison.html"
EXIT_CODES: Mapping[Word, int] = {"within": 0, "beyond": 1, "open": 3}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What was found, and the folder that holds its page and its document."""

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
    extras.require(extras.COMPARE, "a comparison")
    if (out / bundles.PLAN).exists():
        raise OutputError(f"{out} is the folder of a run: name another with --out")
    sides = [
        Side(
            label=label_of(number),
            path=str(path),
            bundle=_verified(path, trusted, allow_development=allow_development),
        )
        for number, path in enumerate(paths)
    ]
    found = compare(sides, margin=margin, bench_version=VERSION)
    bundles.write(out / DOCUMENT, to_json(found))
    from reports import comparison as pages  # noqa: PLC0415 - of the part that was asked for
    from reports import render  # noqa: PLC0415 - the same

    bundles.write(out / PAGE, render.comparison_html(pages.page(found)))
    return Compared(folder=out, comparison=found)


def sentences(compared: Compared) -> tuple[str, ...]:
    """What a person is told: the summary, all that is not within, and where the page is."""
    found = compared.comparison
    told = [found.summary]
    told += [
        f"{item.label}: {item.case}: {item.timing.word}: {item.timing.explanation}"
        for item in found.cases
        if item.timing is not None and item.timing.word != "within"
    ]
    told += [f"{item.label}: {item.case}: not compared: {item.reason}" for item in found.refused]
    told += [
        f"{change.label}: {change.case or 'the node'}: {change.criterion} was "
        f"{change.reference or 'not ruled'} and is {change.other or 'not ruled'}"
        for change in found.rulings
    ]
    for bundle in found.bundles[1:]:
        number = sum(item.label == bundle.label for item in found.differences)
        if number:
            what = "thing differs" if number == 1 else "things differ"
            told.append(
                f"{bundle.label}: {number} {what} in plan, machine or software: see the page"
            )
    return (*told, f"{found.word.upper()}  {compared.folder / PAGE}")


def _verified(path: Path, trusted: Sequence[bytes], *, allow_development: bool) -> bundles.Bundle:
    """A bundle that was verified; its verdict is the one that was derived again."""
    found = verify.verify(path, trusted=trusted, allow_development=allow_development)
    if found.faults:
        raise EvidenceError(f"{path} does not verify: {found.faults[0]}")
    if found.verdict is None:
        raise UsageError(
            f"{path} carries no journal, so its rulings cannot be derived again: name the folder "
            "of its run"
        )
    if found.kind == "folder":
        return bundles.read(path)
    files = pades.attachments(path.read_bytes())
    return bundles.records_of(files)
