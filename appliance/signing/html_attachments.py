"""The files that report.html carries: one link for each, which a reader can save by a click.

A page that travels alone must bring the evidence that it was made of, and must not need a
script to give it back. The links have one strict form, so that a second, hidden or dressed-up
proof is refused rather than chosen from.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

from appliance.errors import EvidenceError

STATEMENT_LINK = re.compile(
    rb'<a id="bench-proof" download="statement\.dsse\.json" '
    rb'href="data:application/vnd\.dsse\.envelope\.v1\+json;base64,([A-Za-z0-9+/=]+)">'
)
DATA_LINK = re.compile(
    rb'<a class="bench-data" download="([A-Za-z0-9._/-]+)" '
    rb'href="data:[a-z0-9.+/-]+;base64,([A-Za-z0-9+/=]*)">'
)
MARK = re.compile(rb"bench-(?:proof|data)\"")


def carried_files(data: bytes) -> Mapping[str, bytes]:
    """Files that report.html carries, by name; EvidenceError for anything but the strict form."""
    if re.search(rb"<script", data, re.IGNORECASE):
        raise EvidenceError("report.html has a script, and no report of ours has one")
    statements = STATEMENT_LINK.findall(data)
    links = DATA_LINK.findall(data)
    if len(statements) != 1 or len(MARK.findall(data)) != 1 + len(links):
        raise EvidenceError("report.html does not carry the signed statement once, in its one form")
    encoded = [("statement.dsse.json", statements[0]), *((name.decode(), at) for name, at in links)]
    files = {name: _decoded(name, text) for name, text in encoded}
    if len(files) != len(encoded):
        raise EvidenceError("report.html carries two files of the same name")
    return files


def _decoded(name: str, text: bytes) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        data = b""
    if base64.b64encode(data) != text:
        raise EvidenceError(f"report.html: the file {name} that it carries is cut short")
    return data
