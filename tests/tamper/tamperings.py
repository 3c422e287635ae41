"""Changes of a signed bundle by who has no key to sign it anew: one of a file's bytes each.

Each takes the bytes of the file that it is entered for, and gives them back changed.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from io import BytesIO

import rfc8785
from pyhanko.pdf_utils import generic
from pyhanko.pdf_utils.generic import pdf_name
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter

from appliance.signing import keys
from appliance.storage import bundle

Change = Callable[[bytes], bytes]
TAMPERINGS: dict[str, tuple[str, Change]] = {}


def of(name: str) -> Callable[[Change], Change]:
    """Enter a change of this file."""

    def enter(change: Change) -> Change:
        TAMPERINGS[change.__name__] = (name, change)
        return change

    return enter


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def once(data: bytes, old: bytes, new: bytes) -> bytes:
    assert old in data, old
    return data.replace(old, new, 1)


# ------------------------------------------------------------------ PDF


@of(bundle.PDF)
def a_byte_of_a_stream(data: bytes) -> bytes:
    return flipped(data, data.index(b"stream\n") + 40)


@of(bundle.PDF)
def a_byte_of_the_cross_references(data: bytes) -> bytes:
    return flipped(data, int(re.findall(rb"startxref\s+(\d+)", data)[-1][:]) + 30)


@of(bundle.PDF)
def junk_in_the_padding_of_the_signature(data: bytes) -> bytes:
    return re.sub(rb"(/Contents\s*<[0-9a-fA-F]*?)00>", rb"\g<1>0f>", data, count=1)


@of(bundle.PDF)
def a_comment_after_the_end(data: bytes) -> bytes:
    return data + b"% more\n"


def incremented(data: bytes, change: Callable[[IncrementalPdfFileWriter], None]) -> bytes:
    """The PDF with a revision more, which leaves the signed bytes as they are."""
    writer, out = IncrementalPdfFileWriter(BytesIO(data)), BytesIO()
    change(writer)
    writer.write(out)
    return out.getvalue()


@of(bundle.PDF)
def another_title(data: bytes) -> bytes:
    def change(writer: IncrementalPdfFileWriter) -> None:
        writer.set_info(
            generic.DictionaryObject({pdf_name("/Title"): generic.TextStringObject("ACCEPTED")})
        )

    return incremented(data, change)


@of(bundle.PDF)
def a_white_overlay(data: bytes) -> bytes:
    def change(writer: IncrementalPdfFileWriter) -> None:
        white = generic.StreamObject(stream_data=b"1 g 0 0 9999 9999 re f")
        writer.add_stream_to_page(0, writer.add_object(white))

    return incremented(data, change)


@of(bundle.PDF)
def an_annotation_that_says_accepted(data: bytes) -> bytes:
    def change(writer: IncrementalPdfFileWriter) -> None:
        note = generic.DictionaryObject(
            {
                pdf_name("/Type"): pdf_name("/Annot"),
                pdf_name("/Subtype"): pdf_name("/FreeText"),
                pdf_name("/Contents"): generic.TextStringObject("ACCEPTED"),
                pdf_name("/Rect"): generic.ArrayObject(map(generic.NumberObject, (0, 0, 99, 99))),
            }
        )
        writer.register_annotation(writer.find_page_for_modification(0)[0], writer.add_object(note))

    return incremented(data, change)


@of(bundle.PDF)
def a_script_that_opens_with_it(data: bytes) -> bytes:
    def change(writer: IncrementalPdfFileWriter) -> None:
        writer.root[pdf_name("/OpenAction")] = generic.DictionaryObject(
            {
                pdf_name("/S"): pdf_name("/JavaScript"),
                pdf_name("/JS"): generic.TextStringObject("1"),
            }
        )
        writer.update_root()

    return incremented(data, change)


@of(bundle.PDF)
def an_attachment_replaced_by_a_revision(data: bytes) -> bytes:
    def change(writer: IncrementalPdfFileWriter) -> None:
        names = writer.root["/Names"]["/EmbeddedFiles"]["/Names"]
        stream = names[1].get_object()["/EF"].raw_get("/F").get_object()
        stream._data, stream._encoded_data = b"{}", None
        writer.mark_update(names[1].get_object()["/EF"].raw_get("/F").reference)

    return incremented(data, change)


@of(bundle.PDF)
def saved_again_without_a_change(data: bytes) -> bytes:
    return incremented(data, lambda writer: writer.update_root())


@of(bundle.PDF)
def without_its_signature(data: bytes) -> bytes:
    return re.sub(rb"/AcroForm \d+ 0 R", lambda one: b" " * len(one[0]), data)


@of(bundle.PDF)
def signed_a_second_time(data: bytes) -> bytes:
    try:
        return keys.sign_pdf(data, keys.development_key())
    except Exception:  # noqa: BLE001 - it certifies, so that no second signature is possible
        return data + b"\n"


@of(bundle.PDF)
def a_signed_range_that_ends_early(data: bytes) -> bytes:
    found = re.search(rb"/ByteRange\s*\[\s*0 +\d+ +\d+ +(\d+)", data)
    assert found
    begin, end = found.span(1)
    return data[:begin] + str(int(found[1]) - 1).rjust(end - begin, "0").encode() + data[end:]


# ------------------------------------------------------------------ HTML


@of(bundle.HTML)
def another_word_on_the_page(data: bytes) -> bytes:
    return once(data, b"ACCEPTED", b"REJECTED")


@of(bundle.HTML)
def a_row_that_is_hidden(data: bytes) -> bytes:
    return once(data, b"</style>", b"tr{display:none}</style>")


@of(bundle.HTML)
def a_script(data: bytes) -> bytes:
    return once(data, b"</body>", b"<script>1</script></body>")


@of(bundle.HTML)
def a_frame(data: bytes) -> bytes:
    return once(data, b"</body>", b'<iframe src="https://example.org"></iframe></body>')


@of(bundle.HTML)
def a_second_proof(data: bytes) -> bytes:
    found = re.search(rb'<a id="bench-proof".*?</a>', data, re.DOTALL)
    assert found
    return once(data, b"</body>", found[0] + b"</body>")


@of(bundle.HTML)
def without_its_proof(data: bytes) -> bytes:
    return re.sub(rb'<a id="bench-proof".*?</a>', b"", data, count=1, flags=re.DOTALL)


@of(bundle.HTML)
def lines_that_end_as_on_another_system(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


@of(bundle.HTML)
def a_mark_of_byte_order(data: bytes) -> bytes:
    return b"\xef\xbb\xbf" + data


# ------------------------------------------------------------------ envelopes


def payload(data: bytes, change: Callable[[dict[str, object]], None]) -> bytes:
    """The envelope with a changed statement, under the signature of the old one."""
    fields = json.loads(data)
    statement = json.loads(base64.b64decode(fields["payload"]))
    change(statement)
    fields["payload"] = base64.b64encode(rfc8785.dumps(statement)).decode()
    return rfc8785.dumps(fields)


@of(bundle.STATEMENT)
def another_verdict_in_the_statement(data: bytes) -> bytes:
    return payload(data, lambda one: one["predicate"].update(verdict="REJECTED"))  # type: ignore[attr-defined]


@of(bundle.STATEMENT)
def a_subject_less(data: bytes) -> bytes:
    return payload(data, lambda one: one["subject"].pop())  # type: ignore[attr-defined]


@of(bundle.STATEMENT)
def a_subject_outside_of_the_folder(data: bytes) -> bytes:
    return payload(data, lambda one: one["subject"][0].update(name="../x"))  # type: ignore[index]


@of(bundle.STATEMENT)
def another_type_of_payload(data: bytes) -> bytes:
    return rfc8785.dumps({**json.loads(data), "payloadType": "text/plain"})


@of(bundle.STATEMENT)
def no_signature(data: bytes) -> bytes:
    return rfc8785.dumps({**json.loads(data), "signatures": []})


@of(bundle.STATEMENT)
def the_same_signature_twice(data: bytes) -> bytes:
    fields = json.loads(data)
    return rfc8785.dumps({**fields, "signatures": fields["signatures"] * 2})


@of(bundle.STATEMENT)
def the_name_of_another_key(data: bytes) -> bytes:
    fields = json.loads(data)
    fields["signatures"][0]["keyid"] = "0" * 64
    return rfc8785.dumps(fields)


@of(bundle.STATEMENT)
def spaces_between(data: bytes) -> bytes:
    return json.dumps(json.loads(data), indent=1).encode()


@of(bundle.STATEMENT)
def a_key_twice(data: bytes) -> bytes:
    return b'{"payloadType":"text/plain",' + data[1:]


# ------------------------------------------------------------------ data


@of(bundle.JOURNAL)
def a_line_less(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:-2])


@of(bundle.JOURNAL)
def two_lines_exchanged(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join([*lines[:5], lines[6], lines[5], *lines[7:]])


@of(bundle.PLAN)
def another_seed(data: bytes) -> bytes:
    return rfc8785.dumps({**json.loads(data), "seed": "0" * 64})


@of(bundle.VERDICT)
def another_word_of_the_verdict(data: bytes) -> bytes:
    return once(data, b'"ACCEPTED"', b'"REJECTED"')


@of(bundle.CRITERIA)
def a_title_of_a_criterion(data: bytes) -> bytes:
    return flipped(data, data.index(b"title") + 12)


@of(bundle.SIGNER)
def another_role(data: bytes) -> bytes:
    return once(data, b'"tester"', b'"buyer"')
