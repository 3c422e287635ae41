"""A PDF that may do anything is no report, whoever signed it."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import pytest
from pyhanko.pdf_utils.generic import (
    ArrayObject,
    DictionaryObject,
    NameObject,
    TextStringObject,
    pdf_name,
)
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.pdf_utils.reader import PdfFileReader
from support.bundles import pdf

from appliance.errors import EvidenceError
from appliance.signing.passive_pdf import check_passive

SCRIPT = DictionaryObject(
    {pdf_name("/S"): NameObject("/JavaScript"), pdf_name("/JS"): TextStringObject("app.alert(1)")}
)
PAGE = {"plan.json": b"{}"}


def on_opening(catalog: DictionaryObject) -> None:
    catalog[pdf_name("/OpenAction")] = SCRIPT


def by_name(catalog: DictionaryObject) -> None:
    catalog["/Names"][pdf_name("/JavaScript")] = DictionaryObject()


def of_a_page(catalog: DictionaryObject) -> None:
    first_page(catalog)[pdf_name("/AA")] = DictionaryObject({pdf_name("/O"): SCRIPT})


def on_a_click(catalog: DictionaryObject) -> None:
    annotated(catalog, "/Link")[pdf_name("/A")] = SCRIPT


def drawn_over(catalog: DictionaryObject) -> None:
    annotated(catalog, "/FreeText")


def a_form(catalog: DictionaryObject) -> None:
    catalog[pdf_name("/AcroForm")] = DictionaryObject({pdf_name("/XFA"): ArrayObject()})


def in_a_circle(catalog: DictionaryObject) -> None:
    catalog["/Pages"]["/Kids"].append(catalog.raw_get("/Pages"))


def first_page(catalog: DictionaryObject) -> DictionaryObject:
    page: DictionaryObject = catalog["/Pages"]["/Kids"][0].get_object()
    return page


def annotated(catalog: DictionaryObject, kind: str) -> DictionaryObject:
    one = DictionaryObject({pdf_name("/Subtype"): NameObject(kind)})
    first_page(catalog)[pdf_name("/Annots")] = ArrayObject([one])
    return one


@pytest.fixture(scope="module")
def page() -> bytes:
    return pdf(PAGE)


def test_a_report_does_nothing(page: bytes) -> None:
    check_passive(PdfFileReader(BytesIO(page)).root, "report.pdf")


@pytest.mark.parametrize(
    "change", [on_opening, by_name, of_a_page, on_a_click, drawn_over, a_form, in_a_circle]
)
def test_a_pdf_that_may_do_anything_is_refused(
    change: Callable[[DictionaryObject], None], page: bytes
) -> None:
    catalog = IncrementalPdfFileWriter(BytesIO(page)).root
    change(catalog)
    with pytest.raises(EvidenceError, match=r"no report of ours has|no end of them"):
        check_passive(catalog, "report.pdf")
