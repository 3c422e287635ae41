"""Whether the pages of a run say what bench writes of its records, and nothing else.

Whoever holds the key can sign pages of his own: another word on page 1, another device, another
QR code, a white rectangle over a ruling. So once the records hold together, the pages are written
again for who asks for it, and compared. report.html is the same on every machine: what differs in
one of this version is a fault, but for the last digit of a figure, which processors may round
otherwise. The layout of report.pdf hangs on fonts and libraries, so one that differs is not
compared, and that is said.

Each is written in a confined child, which reads the evidence once more: by its digest it is what
was verified.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from appliance import extras
from appliance.errors import EvidenceError, GivenUpError, UsageError
from appliance.evidence.journal_index import index_of
from appliance.ipc import confined_child
from appliance.records.json import sha256
from appliance.signing import html_attachments, keys, pades
from appliance.storage import bundle as bundles
from appliance.storage import limits
from appliance.storage.bundle import Bundle
from appliance.storage.journal import followed
from appliance.verification import evidence_path, verify
from appliance.verification.terms import ANYBODY, Terms
from appliance.verification.verify import NOT_DERIVED, NOT_VERIFIED, Verification
from appliance.version import VERSION

if TYPE_CHECKING:
    from reports.model import View

SECONDS = {bundles.HTML: 6, bundles.PDF: 20}
"""Of a processor; those of a small run take one and two."""
MEMORY_BYTES = 400 * 10**6
FIGURE = re.compile(rb"[-+]?\d+(?:\.\d+)?")
SHOWN = 60
"""Bytes of a page around what differs that are shown."""
CHECK = "pages"
ASK = "what they say is not compared: --pages does"
"""Beside a check of pages whose words nobody has asked for."""


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """What came of one page: what is the same, what is wrong, or why nothing is known."""

    same: str = ""
    fault: str = ""
    unknown: str = ""


def verified(path: Path, terms: Terms = ANYBODY, *, is_asked: bool = False) -> Verification:
    """As `verify_confined`, with the words of the pages that were given compared, where asked.

    Those of a report.html alone are always, as nobody has signed them. Else a line says that they
    were not: laying a report.pdf out takes longer than all that is verified otherwise.
    """
    are_next = is_asked or evidence_path.is_of_kind(path, "html")
    found, seen = verify.verify_seen(path, replace(terms, are_words_next=are_next))
    is_html = found.kind == "html"
    wanted: tuple[str, ...] = ()
    if found.kind in evidence_path.WHOLE:
        wanted = (bundles.HTML, bundles.PDF)
    elif found.kind in {"html", "pdf"}:
        wanted = (bundles.HTML,) if is_html else (bundles.PDF,)
    if wanted and not is_html and not is_asked:
        return _left(found)
    if found.faults or not wanted:
        return _without_words(found) if is_html else found
    if not any(one.name == "verdict" and one.status == "pass" for one in found.checks):
        words = tuple(f"the words of {name}: of a verdict that is not derived" for name in wanted)
        return _with(found, [_Compared(unknown=one) for one in words])
    return _with(found, [_compared(path, terms, seen, name) for name in wanted])


def _left(found: Verification) -> Verification:
    """With the line of the pages saying that nobody compared their words."""
    checks = (
        replace(one, sentence=f"{one.sentence}; {ASK}") if one.name == CHECK else one
        for one in found.checks
    )
    return found if found.faults else replace(found, checks=tuple(checks))


def _without_words(found: Verification) -> Verification:
    """Of a page whose words are signed nowhere, and were not compared."""
    is_sound = not found.faults
    return replace(
        found,
        verdict=None,
        not_compared=(verify.WORDS, *found.not_compared),
        exit_code=NOT_DERIVED if is_sound else found.exit_code,
    )


def _with(found: Verification, compared: Sequence[_Compared]) -> Verification:
    """The verification with what came of the pages, in the check of that name."""
    faults = [one.fault for one in compared if one.fault]
    unknown = tuple(one.unknown for one in compared if one.unknown)
    same = [one.same for one in compared if one.same]
    checks = []
    for check in found.checks:
        line = check
        if check.name == CHECK and faults:
            line = replace(check, status="fail", sentence=faults[0])
        elif check.name == CHECK and same:
            before = f"{check.sentence}; " if check.status == "pass" else ""
            line = replace(check, status="pass", sentence=before + "; ".join(same))
        checks.append(line)
    found = replace(found, checks=tuple(checks))
    if faults:
        return replace(found, verdict=None, exit_code=NOT_VERIFIED)
    if unknown and found.kind == "html":
        found = _without_words(found)
        return replace(found, not_compared=(*found.not_compared[1:], *unknown))
    return replace(found, not_compared=(*found.not_compared, *unknown))


def _compared(path: Path, terms: Terms, seen: str, name: str) -> _Compared:
    """One page against what is written of the records that it is of."""
    what = f"the words of {name}"
    try:
        if name == bundles.PDF or not extras.importable_version("jinja2"):
            extras.require_rendering("a page to compare")
    except UsageError as error:
        return _Compared(unknown=f"{what}: {error}")
    call = confined_child.Limits(
        seconds=SECONDS[name],
        memory_bytes=MEMORY_BYTES,
        most_memory_bytes=MEMORY_BYTES + limits.ATTACHED,
        mapped_bytes=terms.total,
    )

    def work() -> bytes:
        return _answer(path, terms, seen, name).encode()

    try:
        answer = confined_child.call(str(path), work, call).decode()
    except GivenUpError:
        return _Compared(unknown=f"{what}: to write them again takes too much time or memory")
    kind, _, rest = answer.partition(" ")
    return _Compared(**{kind: rest})


def _answer(path: Path, terms: Terms, seen: str, name: str) -> str:
    """What came of a page, as the name of a field of `_Compared` and a sentence."""
    given = evidence_path.given(path, terms.total)
    files = given.files()
    if verify.digest_of_read(given, files) != seen:
        raise EvidenceError(f"{path} was changed while it was read: verify it once more")
    names = bundles.data_names(files)
    data = {one: files[one] for one in names}
    if sum(map(len, data.values())) > limits.ATTACHED:
        most = limits.size_words(limits.ATTACHED)
        return f"unknown the words of {name}: of more than {most} of data no page is written again"
    page = files[name] if given.is_whole else given.content or b""
    run = bundles.records_of(data)
    carried = {
        **bundles.carried_of(data, limits.ATTACHED),
        bundles.STATEMENT: files[bundles.STATEMENT],
    }
    check = _html if name == bundles.HTML else _pdf
    return check(run, page, carried)


def _html(run: Bundle, page: bytes, carried: Mapping[str, bytes]) -> str:
    from reports import render  # noqa: PLC0415 - a library that who verifies need not have

    again = render.html(_view(run), carried)
    links = [html_attachments.carried_files(one) for one in (page, again)]
    where = difference(page, again) if links[0] == links[1] else "the files that it carries"
    if not where:
        return f"same report.html says what bench {VERSION} writes of these records"
    if run.plan.bench_version != VERSION:
        made_by = run.plan.bench_version
        return (
            f"unknown the words of report.html: the run is by bench {made_by} and this is "
            f"{VERSION}, which writes them otherwise; judge by what stands here"
        )
    return (
        f"fault report.html says another thing than bench {VERSION} writes of these records: "
        f"{where}; judge by what stands here, and ask who signed it"
    )


def _pdf(run: Bundle, page: bytes, carried: Mapping[str, bytes]) -> str:
    from reports import render  # noqa: PLC0415 - a library that who verifies need not have

    again = render.pdf(_view(run), carried)
    if run.signer and pades.is_of_pages(
        page, again, keys.certificate_of(run.signer), reason=keys.REASON
    ):
        return f"same report.pdf says, page by page, what bench {VERSION} writes of these records"
    return (
        "unknown the words of report.pdf: another bench, other fonts or other libraries laid it "
        "out, or somebody else wrote it; judge by what stands here, and read report.html"
    )


def _view(run: Bundle) -> View:
    from reports.document.view import view  # noqa: PLC0415 - a library that others do without

    lines = followed(run.files[bundles.JOURNAL], sha256(run.files[bundles.PLAN]))
    return view(run, index_of(run.plan, lines))


def difference(page: bytes, again: bytes) -> str:
    """What one page says where the other says something else; "" for the same words.

    The files that they carry are not looked at. Figures may differ by one in their last digit, if
    that is behind the point: processors may round a mean otherwise.
    """
    page, again = _without_files(page), _without_files(again)
    if page == again:
        return ""
    words, figures = FIGURE.split(page), FIGURE.findall(page)
    words_again, figures_again = FIGURE.split(again), FIGURE.findall(again)
    begin = 0
    for number in range(max(len(words), len(words_again))):
        pair = [part[number : number + 1] for part in (words, words_again)]
        if pair[0] != pair[1]:
            return _shown(page, again, begin)
        begin += len(words[number])
        one, other = figures[number : number + 1], figures_again[number : number + 1]
        if one != other and not (one and other and _is_near(one[0], other[0])):
            return _shown(page, again, begin)
        begin += len(one[0]) if one else 0
    return ""


def _without_files(page: bytes) -> bytes:
    """The page with the names of the files that it carries: elsewhere they are packed otherwise."""
    return html_attachments.DATA_LINK.sub(rb"\1 \2", html_attachments.STATEMENT_LINK.sub(b"", page))


def _is_near(one: bytes, other: bytes) -> bool:
    places = [len(figure.partition(b".")[2]) for figure in (one, other)]
    if places[0] != places[1] or not places[0]:
        return False
    units = [int(figure.replace(b".", b"")) for figure in (one, other)]  # of the last digit
    return abs(units[0] - units[1]) <= 1


def _shown(page: bytes, again: bytes, begin: int) -> str:
    """What stands there in both, from a few bytes before on."""
    end = begin
    while end < min(len(page), len(again)) and page[end] == again[end]:
        end += 1
    first = max(0, end - SHOWN // 3)
    one, other = (text[first : first + SHOWN].decode(errors="replace") for text in (page, again))
    return f"it has {one!r}, where {other!r} is written"
