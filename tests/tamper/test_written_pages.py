"""Pages of their own that the owner of a key signs are found by writing the pages again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tamper import pages

from appliance.errors import EvidenceError
from appliance.signing import keys, pades
from appliance.signing.keys import Key
from appliance.storage import bundle
from appliance.verification.terms import Terms
from reports.document import written_again


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A run in a forger's name, and the pages that bench would write of it."""

    key: Key
    run: bundle.Bundle
    carried: Mapping[str, bytes]
    html: bytes
    pdf: bytes

    def folder(self, to: Path, html: bytes, pdf: bytes) -> Path:
        written = {bundle.HTML: html, bundle.PDF: pdf}
        return pages.written(to, self.run, self.carried, written, self.key)

    def signed(self) -> bytes:
        return keys.sign_pdf(self.pdf, self.key)


@pytest.fixture(scope="module")
def rendered(genuine: Path) -> Rendered:
    key = keys.development_key()
    run, carried, html, pdf = pages.rendered(genuine, key)
    return Rendered(key=key, run=run, carried=carried, html=html, pdf=pdf)


@pytest.mark.parametrize("name", pages.HTML)
def test_a_page_that_says_another_thing_differs(name: str, rendered: Rendered) -> None:
    forged = pages.HTML[name](rendered.html)
    assert forged != rendered.html
    assert written_again.difference(forged, rendered.html).startswith("it has ")


def is_refused(data: bytes, rendered: Rendered) -> bool:
    try:
        pades.check_pdf(data, rendered.key.certificate)
        pades.attachments(data)
    except EvidenceError:
        return True
    return False


@pytest.mark.parametrize("name", pages.PDF)
def test_paper_that_shows_another_thing_is_none_of_ours(name: str, rendered: Rendered) -> None:
    forged = pages.signed(rendered.pdf, rendered.key, pages.PDF[name])
    assert forged.startswith(rendered.pdf)
    certificate = rendered.key.certificate
    assert is_refused(forged, rendered) == (name in pages.REFUSED)
    assert not pades.is_of_pages(forged, rendered.pdf, certificate, reason=keys.REASON)
    ours = pages.signed(rendered.pdf, rendered.key, pages.no_change)
    assert pades.is_of_pages(ours, rendered.pdf, certificate, reason=keys.REASON)


def test_a_figure_may_differ_in_its_last_digit_behind_the_point() -> None:
    for one, other, is_same in (
        (b"<td>1.250</td>", b"<td>1.251</td>", True),
        (b"<td>-0.0</td>", b"<td>0.0</td>", True),
        (b"<td>1.250</td>", b"<td>1.252</td>", False),
        (b"<td>1.250</td>", b"<td>1.25</td>", False),
        (b"<td>12</td>", b"<td>13</td>", False),
        (b"<td>12</td>", b"<td>12</td><td>", False),
        (b"<td>1.5</td>", b"<td>1.5 9</td>", False),
    ):
        assert (written_again.difference(one, other) == "") == is_same, (one, other)


def test_the_pages_of_a_genuine_run_are_compared(genuine: Path) -> None:
    terms = Terms(allow_development=True)
    whole = written_again.verified(genuine, terms, is_asked=True)
    assert (whole.exit_code, whole.faults, whole.not_compared) == (0, (), ())
    (line,) = [one for one in whole.checks if one.name == "pages"]
    assert "report.html says what bench" in line.sentence
    assert "report.pdf says, page by page, what bench" in line.sentence
    alone = written_again.verified(genuine / bundle.HTML, terms)  # its words are compared, too
    assert (alone.exit_code, alone.verdict, alone.not_compared) == (0, "ACCEPTED", ())
    for path in (genuine, genuine / bundle.PDF):  # where nobody asks, that is said
        unasked = written_again.verified(path, terms)
        (line,) = [one for one in unasked.checks if one.name == "pages"]
        assert line.sentence.endswith(written_again.ASK)
        assert unasked.exit_code == 0


def test_another_page_1_is_a_fault(rendered: Rendered, tmp_path: Path) -> None:
    forged = rendered.html.replace(b"ACCEPTED", b"REJECTED", 1)
    folder = rendered.folder(tmp_path / "run", forged, rendered.signed())
    result = written_again.verified(folder, Terms(allow_development=True), is_asked=True)
    assert (result.exit_code, result.verdict) == (4, None)
    assert result.faults[0].startswith("report.html says another thing than bench")
    assert "where" in result.faults[0]
    alone = written_again.verified(folder / bundle.HTML, Terms(allow_development=True))
    assert alone.exit_code == 4


def test_other_paper_is_said_not_to_be_compared(rendered: Rendered, tmp_path: Path) -> None:
    forged = pages.signed(rendered.pdf, rendered.key, pages.a_white_overlay)
    folder = rendered.folder(tmp_path / "run", rendered.html, forged)
    for path in (folder, folder / bundle.PDF):
        result = written_again.verified(path, Terms(allow_development=True), is_asked=True)
        assert (result.exit_code, result.verdict) == (0, "ACCEPTED")
        assert result.not_compared[0].startswith("the words of report.pdf")
        assert "page by page" not in next(
            one.sentence for one in result.checks if one.name == "pages"
        )
