"""The files that report.html carries: one link for each, which a reader can save by a click.

A page that travels alone must bring the evidence that it was made of, and must not need a
script to give it back. The links have one strict form, so that a second, hidden or dressed-up
proof is refused rather than chosen from. Every page begins with a policy by which a browser runs
nothing that stands in it and fetches nothing, so a page that begins otherwise is refused: what a
signer hides below can then neither change what is shown nor tell anybody that it was opened. Large
files are carried as gzip, under their name with
".gz" after it, without a header of their own in which anything could be hidden.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from collections.abc import Mapping

from appliance.errors import EvidenceError

STATEMENT_LINK = re.compile(
    rb'<a id="bench-proof" download="statement\.dsse\.json" '
    rb'href="data:application/vnd\.dsse\.envelope\.v1\+json;base64,([A-Za-z0-9+/=]+)">'
)
DATA_LINK = re.compile(
    rb'<a class="bench-data" download="([A-Za-z0-9._/-]+)" '
    rb'href="data:([a-z0-9.+/-]+);base64,([A-Za-z0-9+/=]*)">'
)
GZIP, SUFFIX = "application/gzip", ".gz"
LEAST_BYTES = 2**14
"""Of a file that is carried as gzip; a smaller one can be read as it is saved."""
MOST_BYTES = 2**26
"""Of all files that are carried, once they are unpacked: as much as a PDF may carry, and four times
what a page does."""
MARK = re.compile(rb"bench-(?:proof|data)\"")
HEAD = b"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
base-uri 'none'; form-action 'none'">
"""
"""How every page begins, in each version of bench."""
ACTIVE = re.compile(rb"<(?:script|iframe|frame|object|embed|base|link)\b", re.IGNORECASE)
"""A link may have a browser look up a name or connect (dns-prefetch, preconnect), by which somebody
learns that the page was opened; a policy speaks of what is fetched alone."""
EQUIVALENT = re.compile(rb"http-equiv", re.IGNORECASE)
"""A second one could lead a browser to another page."""


def carried_files(data: bytes) -> Mapping[str, bytes]:
    """Files that report.html carries, by name; EvidenceError for anything but the strict form."""
    if not data.startswith(HEAD) or len(EQUIVALENT.findall(data)) != 1:
        raise EvidenceError(
            "report.html does not begin with the policy that no script runs and nothing is "
            "fetched, or has another beside it; every report of ours begins with it"
        )
    if ACTIVE.search(data):
        raise EvidenceError(
            "report.html has a script, a frame or a link element, and no report of ours has one"
        )
    statements = STATEMENT_LINK.findall(data)
    links = DATA_LINK.findall(data)
    if len(statements) != 1 or len(MARK.findall(data)) != 1 + len(links):
        raise EvidenceError("report.html does not carry the signed statement once, in its one form")
    files = {"statement.dsse.json": _decoded("statement.dsse.json", statements[0])}
    left = MOST_BYTES
    for written, kind, text in links:
        name, data = written.decode(), _decoded(written.decode(), text)
        if kind.decode() == GZIP:
            name, data = _unpacked(name, data, left)
        files[name] = data
        left -= len(data)
    if len(files) != 1 + len(links):
        raise EvidenceError("report.html carries two files of the same name")
    return files


def packed(data: bytes) -> bytes:
    """The data as gzip that names neither a file nor a time: the same bytes every time."""
    return gzip.compress(data, mtime=0)


def _unpacked(name: str, data: bytes, most: int) -> tuple[str, bytes]:
    """Name and data of a file that is carried as gzip; EvidenceError if it is not one of ours."""
    unpacking = zlib.decompressobj(wbits=31)
    try:
        whole = unpacking.decompress(data, max(1, most))
    except zlib.error:
        whole = b""
    is_plain = data[3:8] == b"\0" * 5  # no name, no comment, no time
    if not (name.endswith(SUFFIX) and is_plain and unpacking.eof) or unpacking.unused_data:
        raise EvidenceError(f"report.html: the file {name} that it carries is no gzip of ours")
    return name.removesuffix(SUFFIX), whole


def _decoded(name: str, text: bytes) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        data = b""
    if base64.b64encode(data) != text:
        raise EvidenceError(f"report.html: the file {name} that it carries is cut short")
    return data
