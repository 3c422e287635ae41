"""Pages by who holds the key: they say another thing than the records that they carry.

Each of HTML takes the page before it is signed and gives it back changed. Each of PDF changes the
revision in which the signature is written, so that the file has no more revisions than ours have.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from pyhanko.pdf_utils import generic
from pyhanko.pdf_utils.generic import pdf_name
from pyhanko.sign.fields import MDPPerm, SigFieldSpec, SigSeedSubFilter
from pyhanko.sign.signers.pdf_signer import PdfSignatureMetadata

from appliance.records.json import sha256, to_json
from appliance.signing import keys, pades
from appliance.signing.keys import Key
from appliance.storage import bundle, limits
from reports import render
from reports.document.view import view

Html = Callable[[bytes], bytes]
Pdf = Callable[[pades._Writer], None]


def put(before: bytes, what: bytes) -> Html:
    def change(page: bytes) -> bytes:
        assert page.count(before) >= 1, before
        return page.replace(before, what + before, 1)

    return change


def swapped(old: bytes, new: bytes) -> Html:
    def change(page: bytes) -> bytes:
        assert old in page, old
        return page.replace(old, new, 1)

    return change


BODY_END, HEAD_END = b"</body>", b"</head>"
HTML: dict[str, Html] = {
    "another_word": swapped(b"ACCEPTED", b"REJECTED"),
    "letters_of_another_script": swapped(b"ACCEPTED", "\u0410CCEPTED".encode()),
    "a_word_that_runs_backwards": swapped(b"ACCEPTED", "\u202eDETPECCA\u202c".encode()),
    "letters_that_are_not_seen": swapped(b"ACCEPTED", "ACCEP\u200bTED".encode()),
    "an_entity": swapped(b"ACCEPTED", b"ACCEPT&#69;D"),
    "a_nul": swapped(b"ACCEPTED", b"ACC\0EPTED"),
    "a_rule_that_hides": put(HEAD_END, b"<style>table{display:none}</style>"),
    "a_word_by_a_rule": put(HEAD_END, b"<style>.word::after{content:'8 x H100'}</style>"),
    "a_rule_in_the_sheet": swapped(b"body {", b"body { opacity: 0;"),
    "white_letters": put(BODY_END, b"<style>td{color:#fff}</style>"),
    "something_over_the_page": put(
        BODY_END, b"<div style='position:fixed;inset:0;background:#fff'>ACCEPTED</div>"
    ),
    "a_drawing_over_the_page": put(
        BODY_END, b"<svg style='position:fixed;top:0'><text y='20'>ACCEPTED</text></svg>"
    ),
    "a_font_of_ones_own": put(
        HEAD_END, b"<style>@font-face{font-family:x;src:url(data:font/woff2;base64,AA)}</style>"
    ),
    "a_picture": put(BODY_END, b"<img src='data:image/png;base64,AAAA'>"),
    "an_attribute_twice": swapped(b"<body", b"<body hidden hidden"),
    "a_comment_that_never_ends": put(b"<table", b"<!--"),
    "a_part_that_is_folded": put(b"<table", b"<details><summary>ACCEPTED</summary>"),
    "another_encoding": put(HEAD_END, b"<meta charset=utf-7>"),
    "another_title": swapped(b"<title>", b"<title>8 x H100 "),
    "something_after_the_end": lambda page: page + b"<p>ACCEPTED",
    "a_link_elsewhere": put(BODY_END, b"<a href='https://example.org'>verify here</a>"),
    "a_whole_number_more": lambda page: re.sub(
        rb">(\d+)</td>", lambda one: b">%d</td>" % (int(one[1]) + 1), page, count=1
    ),
}


def stream(data: bytes) -> generic.StreamObject:
    return generic.StreamObject(stream_data=data)


def first_page(writer: pades._Writer) -> generic.DictionaryObject:
    reference = writer.find_page_for_modification(0)[0]
    page = reference.get_object()
    writer.mark_update(reference)
    return page  # type: ignore[no-any-return]


def numbers(*values: float) -> generic.ArrayObject:
    return generic.ArrayObject(map(generic.FloatObject, values))


def no_change(writer: pades._Writer) -> None:
    del writer


def a_white_overlay(writer: pades._Writer) -> None:
    white = writer.add_object(stream(b"q 1 g 0 0 9999 9999 re f Q"))
    writer.add_stream_to_page(0, white)


def another_content(writer: pades._Writer) -> None:
    first_page(writer)[pdf_name("/Contents")] = writer.add_object(
        stream(b"BT /F1 40 Tf 40 400 Td (8 x H100 ACCEPTED) Tj ET")
    )


def a_crop(writer: pades._Writer) -> None:
    first_page(writer)[pdf_name("/CropBox")] = numbers(0, 0, 10, 10)


def a_rotation(writer: pades._Writer) -> None:
    first_page(writer)[pdf_name("/Rotate")] = generic.NumberObject(180)


def a_user_unit(writer: pades._Writer) -> None:
    first_page(writer)[pdf_name("/UserUnit")] = generic.FloatObject(0.001)


def another_box(writer: pades._Writer) -> None:
    first_page(writer)[pdf_name("/MediaBox")] = numbers(0, 0, 100, 100)


def other_fonts(writer: pades._Writer) -> None:
    resources = first_page(writer)["/Resources"]
    fonts = resources["/Font"]
    names = list(fonts)
    for one in names:  # the same codes, drawn by the glyphs of another font
        fonts[pdf_name(one)] = fonts.raw_get(names[0])
    writer.update_container(resources)


def a_group_that_is_off(writer: pades._Writer) -> None:
    group = writer.add_object(
        generic.DictionaryObject(
            {pdf_name("/Type"): pdf_name("/OCG"), pdf_name("/Name"): generic.pdf_string("x")}
        )
    )
    off = generic.DictionaryObject({pdf_name("/OFF"): generic.ArrayObject([group])})
    writer.root[pdf_name("/OCProperties")] = generic.DictionaryObject(
        {pdf_name("/OCGs"): generic.ArrayObject([group]), pdf_name("/D"): off}
    )
    writer.update_root()


def a_page_less(writer: pades._Writer) -> None:
    pages = writer.root["/Pages"]
    pages["/Kids"].pop()
    pages[pdf_name("/Count")] = generic.NumberObject(len(pages["/Kids"]))
    writer.update_container(pages)


def labels_of_pages(writer: pades._Writer) -> None:
    writer.root[pdf_name("/PageLabels")] = generic.DictionaryObject(
        {pdf_name("/Nums"): generic.ArrayObject([generic.NumberObject(0), numbers()])}
    )
    writer.update_root()


def another_subject(writer: pades._Writer) -> None:
    writer.set_info(
        generic.DictionaryObject({pdf_name("/Subject"): generic.pdf_string("8 x H100")})
    )


def files_beside_those_of_the_names(writer: pades._Writer) -> None:
    writer.root["/AF"].append(
        writer.add_object(generic.DictionaryObject({pdf_name("/Type"): pdf_name("/Filespec")}))
    )
    writer.update_root()


def attachment(writer: pades._Writer) -> generic.DictionaryObject:
    return writer.root["/Names"]["/EmbeddedFiles"]["/Names"][1]  # type: ignore[no-any-return]


def an_attachment_of_two_files(writer: pades._Writer) -> None:
    files = attachment(writer)["/EF"]
    files[pdf_name("/UF")] = writer.add_object(stream(b"what readers save"))
    writer.update_container(files)


def an_attachment_that_lies_elsewhere(writer: pades._Writer) -> None:
    content = attachment(writer)["/EF"]["/F"]
    content[pdf_name("/F")] = generic.pdf_string("elsewhere")
    writer.update_container(content)


def a_link_that_covers_the_page(writer: pades._Writer) -> None:
    drawn = writer.add_object(stream(b"1 g 0 0 99 99 re f"))
    link = generic.DictionaryObject(
        {
            pdf_name("/Type"): pdf_name("/Annot"),
            pdf_name("/Subtype"): pdf_name("/Link"),
            pdf_name("/Rect"): numbers(0, 0, 999, 999),
            pdf_name("/AP"): generic.DictionaryObject({pdf_name("/N"): drawn}),
        }
    )
    writer.register_annotation(writer.find_page_for_modification(0)[0], writer.add_object(link))


PDF: dict[str, Pdf] = {
    one.__name__: one
    for one in (
        a_white_overlay,
        another_content,
        a_crop,
        a_rotation,
        a_user_unit,
        another_box,
        other_fonts,
        a_group_that_is_off,
        a_page_less,
        labels_of_pages,
        another_subject,
        files_beside_those_of_the_names,
        an_attachment_of_two_files,
        an_attachment_that_lies_elsewhere,
        a_link_that_covers_the_page,
    )
}
REFUSED = frozenset(
    {
        "a_crop",
        "a_rotation",
        "a_user_unit",
        "a_group_that_is_off",
        "files_beside_those_of_the_names",
        "an_attachment_of_two_files",
        "an_attachment_that_lies_elsewhere",
        "a_link_that_covers_the_page",
    }
)
"""Those of PDF that are refused wherever they were laid out."""


def signed(pages: bytes, key: Key, change: Pdf) -> bytes:
    """The PDF signed as bench does, with a change in the revision of the signature."""
    moment = datetime.now(UTC).replace(microsecond=0)
    about = PdfSignatureMetadata(
        field_name=pades.FIELD,
        md_algorithm="sha256",
        reason=keys.REASON,
        certify=True,
        subfilter=SigSeedSubFilter.PADES,
        docmdp_permissions=MDPPerm.NO_CHANGES,
    )
    field = SigFieldSpec(sig_field_name=pades.FIELD)
    signer = pades._PdfSigner(about, signer=pades._Cms(key), new_field_spec=field)
    signer.moment = moment
    writer = pades._Writer(pages, moment)
    change(writer)
    return asyncio.run(signer.async_sign_pdf(writer)).getvalue()  # type: ignore[no-any-return]


def rendered(run: Path, key: Key) -> tuple[bundle.Bundle, Mapping[str, bytes], bytes, bytes]:
    """The run in another's name, what its pages carry, and both pages, not yet signed."""
    before = bundle.files_of(run)
    files = {name: before[name] for name in bundle.data_names(before)}
    files[bundle.SIGNER] = to_json(keys.signer_record(key, "tester"))
    source = bundle.read_files(files, complete=False)
    statement = keys.sign_data(source, key)
    carried = {**bundle.carried_of(source.data, limits.ATTACHED), bundle.STATEMENT: statement}
    page = view(source)
    return source, carried, render.html(page, carried), render.pdf(page, carried)


def written(
    to: Path,
    source: bundle.Bundle,
    carried: Mapping[str, bytes],
    pages: Mapping[str, bytes],
    key: Key,
) -> Path:
    """The folder of a run with these pages, all of it signed."""
    files = {**source.data, bundle.STATEMENT: carried[bundle.STATEMENT], **pages}
    signs = {name: sha256(files[name]) for name in (*pages, bundle.STATEMENT)}
    files[bundle.REPORT] = keys.sign_report(source, signs, key)
    for name, data in files.items():
        bundle.write(to / name, data)
    return to
