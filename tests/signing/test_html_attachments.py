"""Files that a page carries: one strict form, packed or not, and nothing hidden in it."""

from __future__ import annotations

import base64
import gzip
import zlib

import pytest

from appliance.errors import EvidenceError
from appliance.signing import html_attachments
from appliance.signing.html_attachments import carried_files, packed

DATA = b'{"kind":"block"}\n' * 2_000


def page(name: str, data: bytes, kind: str = html_attachments.GZIP) -> bytes:
    """A page that carries a statement and one file."""
    statement = base64.b64encode(b"{}").decode()
    text = base64.b64encode(data).decode()
    links = (
        '<a id="bench-proof" download="statement.dsse.json" '
        f'href="data:application/vnd.dsse.envelope.v1+json;base64,{statement}">s</a>\n'
        f'<a class="bench-data" download="{name}" href="data:{kind};base64,{text}">f</a>'
    )
    return html_attachments.HEAD + links.encode()


def test_a_packed_file_comes_back_under_its_own_name() -> None:
    assert carried_files(page("journal.jsonl.gz", packed(DATA))) == {
        "statement.dsse.json": b"{}",
        "journal.jsonl": DATA,
    }
    assert packed(DATA) == packed(DATA)


def test_a_file_that_is_not_marked_as_packed_stays_as_it_is() -> None:
    data = packed(DATA)
    files = carried_files(page("a.gz", data, "application/octet-stream"))
    assert files["a.gz"] == data


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("journal.jsonl", packed(DATA)),
        ("journal.jsonl.gz", DATA),
        ("journal.jsonl.gz", packed(DATA)[:-4]),
        ("journal.jsonl.gz", packed(DATA) + b"more"),
        ("journal.jsonl.gz", packed(DATA) + packed(DATA)),
        ("journal.jsonl.gz", gzip.compress(DATA, mtime=1)),
        ("journal.jsonl.gz", zlib.compress(DATA)),
        ("journal.jsonl.gz", packed(DATA)[:3] + b"\x08" + packed(DATA)[4:10] + b"name\0"),
    ],
)
def test_what_is_not_packed_as_we_pack_is_refused(name: str, data: bytes) -> None:
    with pytest.raises(EvidenceError, match="no gzip of ours"):
        carried_files(page(name, data))


def test_more_than_any_page_carries_is_refused_before_it_is_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(html_attachments, "MOST_BYTES", len(DATA) - 1)
    with pytest.raises(EvidenceError, match="no gzip of ours"):
        carried_files(page("journal.jsonl.gz", packed(DATA)))


def test_two_files_of_one_name_are_refused_packed_or_not() -> None:
    link = page("a.json", DATA, "application/octet-stream").rpartition(b"\n")[2]
    with pytest.raises(EvidenceError, match="two files of the same name"):
        carried_files(page("a.json.gz", packed(DATA)) + b"\n" + link)


SOUND = page("a.json", DATA, "application/octet-stream")


@pytest.mark.parametrize(
    "data",
    [
        SOUND.replace(b"default-src 'none'", b"default-src *"),
        SOUND.replace(b"<head>", b"<head><svg onload=alert(1)>"),
        b"\xef\xbb\xbf" + SOUND,
        SOUND + b'<META HTTP-EQUIV="refresh" content="0;url=https://example.com">',
        SOUND + b"<ScRiPt>alert(1)</sCrIpT>",
        SOUND + b"<iframe srcdoc='x'>",
        SOUND + b"<base href='https://example.com'>",
        SOUND + b"<link rel=dns-prefetch href='//example.com'>",
        SOUND + b"<LINK rel=preconnect href='https://example.com'>",
    ],
    ids=["policy", "before it", "mark", "refresh", "script", "frame", "base", "name", "connection"],
)
def test_a_page_that_may_run_or_fetch_anything_is_refused(data: bytes) -> None:
    assert carried_files(SOUND)
    with pytest.raises(EvidenceError, match=r"no report of ours has one|begins with it"):
        carried_files(data)
