"""The view as one HTML file and as a PDF, from the same template; the same bytes every time.

The HTML stands alone: no script, nothing fetched, and a policy that forbids both. Before its
end it carries the signed statement and the data files as plain links, so that a reader saves
them with a click. The PDF is PDF/A-3a: it carries the same files as attachments and is laid
out by WeasyPrint, which may read nothing but what it is handed here. Both depend on the fonts
and on the versions of WeasyPrint and pango, so bytes are compared inside one image only.
"""

from __future__ import annotations

import base64
import ctypes.util
import gc
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from appliance.signing import html_attachments
from reports.model import View
from reports.words import clean, count, size

if TYPE_CHECKING:
    from weasyprint import Attachment

STATEMENT = "statement.dsse.json"
STATEMENT_TYPE = "application/vnd.dsse.envelope.v1+json"
VARIANT = "pdf/a-3a"
MEDIA_TYPES = {".json": "application/json"}  # all else is text
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def html(view: View, carried: Mapping[str, bytes]) -> bytes:
    """The report as one file, with the files of `carried` inside; without them, not yet signed."""
    page = _page(view, is_pdf=False, num_carried=len(carried), proof=_proof(carried))
    return page.encode()


def pdf(view: View, attachments: Mapping[str, bytes]) -> bytes:
    """The report as PDF/A-3a with the attachments, to be signed; without any, a preview."""
    page = _page(view, is_pdf=True, num_carried=len(attachments), proof=Markup())
    return laid_out(page, lambda: [_attachment(view, name, attachments[name])
                                   for name in sorted(attachments)])  # fmt: skip


def laid_out(page: str, attached: Callable[[], Sequence[Attachment]] = tuple) -> bytes:
    """A page on paper, as PDF/A-3a; the layout reads nothing but what it is handed here."""
    with _libraries_by_file_name():
        from weasyprint import HTML  # noqa: PLC0415 - a second, and no page of HTML needs it
        from weasyprint.urls import URLFetcher  # noqa: PLC0415 - the same

    fetcher = URLFetcher(allowed_protocols=("data",), fail_on_errors=True)
    was_enabled = gc.isenabled()
    gc.disable()  # the layout's many objects live to the end; looking for cycles costs a fifth
    try:
        with warnings.catch_warnings():
            # WeasyPrint leaves the closing of its colour profile to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            made = HTML(string=page, url_fetcher=fetcher).write_pdf(
                pdf_variant=VARIANT, attachments=list(attached()), finisher=_finish
            )
            gc.collect()
    finally:
        if was_enabled:
            gc.enable()
    return bytes(made)


@contextmanager
def _libraries_by_file_name() -> Iterator[None]:
    """Leave out the search that cffi starts for each name that WeasyPrint tries in vain.

    WeasyPrint tries the names of several systems in turn, of which `libpango-1.0.so.0` and the like
    open at once. For each of the others Python's `find_library` runs ldconfig and, where there is
    one, a compiler and a linker: 16 times, a third of a second.
    """
    search = ctypes.util.find_library
    ctypes.util.find_library = _no_library
    try:
        yield
    finally:
        ctypes.util.find_library = search


def _no_library(name: str) -> str | None:  # noqa: ARG001 - the form of find_library
    return None


@cache
def environment() -> Environment:
    """What fills templates: every text escaped, and no name that is not there."""
    return Environment(
        loader=PackageLoader("reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _page(view: View, *, is_pdf: bool, num_carried: int, proof: Markup) -> str:
    return (
        environment()
        .get_template("report.html")
        .render(
            view=view,
            is_pdf=is_pdf,
            is_signed=num_carried > 0,
            num_carried=count(num_carried, "file"),
            created=view.created.strftime(_TIME),
            modified=view.modified.strftime(_TIME),
            proof=proof,
        )
    )


def _proof(carried: Mapping[str, bytes]) -> Markup:
    """The links that carry the evidence: the statement, then the data files by name."""
    names = sorted(carried, key=lambda name: (name != STATEMENT, name))
    return Markup("\n").join(_link(name, carried[name]) for name in names)


def _link(name: str, data: bytes) -> Markup:
    is_statement = name == STATEMENT
    whole = size(len(data))
    if not is_statement and len(data) >= html_attachments.LEAST_BYTES:
        name, data = f"{name}{html_attachments.SUFFIX}", html_attachments.packed(data)
    mark = 'id="bench-proof"' if is_statement else 'class="bench-data"'
    is_packed = name.endswith(html_attachments.SUFFIX)
    kind = html_attachments.GZIP if is_packed else "application/octet-stream"
    kind = STATEMENT_TYPE if is_statement else kind
    return Markup(  # noqa: S704 - the name is escaped, base64 has no markup in it
        f'<a {mark} download="{escape(clean(name))}" '
        f'href="data:{kind};base64,{base64.b64encode(data).decode()}">'
        f"{escape(clean(name))} ({whole})</a>"
    )


def _attachment(view: View, name: str, data: bytes) -> Attachment:
    """An attached file that says when it was made by the run's times, not by the clock."""
    from weasyprint import Attachment  # noqa: PLC0415 - the caller has it

    moments: dict[str, datetime] = {"created": view.created, "modified": view.modified}
    what = "signed statement over the data" if name == STATEMENT else "evidence of the run"
    return Attachment(
        file_obj=io.BytesIO(data), name=name, description=what, relationship="Data", **moments
    )


def _finish(document: Any, pdf: Any) -> None:
    """Name each associated file once, and give it a type that hangs on no table of the host."""
    del document
    if "AF" in pdf.catalog:
        pdf.catalog["AF"][:] = dict.fromkeys(pdf.catalog["AF"])
    for item in pdf.objects:
        if isinstance(item, dict) and item.get("Type") == "/Filespec":
            name = item["UF"].string
            suffix = f".{name.rpartition('.')[2]}"
            stream = pdf.objects[int(item["EF"]["F"].split()[0])]
            kind = MEDIA_TYPES.get(suffix, "text/plain")
            stream.extra["Subtype"] = "/" + kind.replace("/", "#2f")
