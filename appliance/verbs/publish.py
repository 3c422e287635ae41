"""The verbs `report` and `sign`: who will sign is fixed, then the pages are made, then signed.

The signer stands on page 1, so signer.json is written before anything is rendered, and a key
of another certificate is refused. `sign` first signs the data (statement.dsse.json), renders
the pages that carry the data and that statement, signs the PDF, and last signs the digests of
the pages (report.dsse.json). A folder with that last file is closed: nothing is written over.
The folder is opened once, so that whoever moves it, or puts links into it, meanwhile changes
nothing elsewhere. What lies in it is read by a confined child before it is read here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from appliance import extras
from appliance.errors import EvidenceError, UsageError
from appliance.evidence.journal_index import JournalIndex, index_of
from appliance.ipc import confined_child
from appliance.records.journal import Line
from appliance.records.json import from_json, sha256, to_json
from appliance.records.signer import Signer
from appliance.roles import Role
from appliance.signing import keys
from appliance.storage import bundle, limits
from appliance.storage.plain_files import Folder
from appliance.vendors.registry import unknown_vendor

if TYPE_CHECKING:
    from reports.model import View

ATTACHED_BYTES = limits.ATTACHED


def require_renderer() -> None:
    """UsageError with the command to give where pages cannot be rendered; loads no renderer."""
    extras.require_rendering("a report")


def report(folder: Path, signer: Signer) -> str:
    """Fix the signer and render the pages, unsigned; what they will not carry, in a sentence.

    Raises UsageError if the folder is signed, or pages cannot be rendered here.
    """
    with bundle.opened(folder) as opened:
        _refuse_signed(opened)
        require_renderer()
        run, index = _read(opened, "rendered")
        text = to_json(signer)
        source = replace(run, files={**run.files, bundle.SIGNER: text}, signer=signer)
        page = _view(source, index)
        bundle.write_in(opened, bundle.SIGNER, text)
        left = _left_behind(source)
        del run, source, index  # as below
        for name, rendered in _rendered(page, {}).items():
            bundle.write_in(opened, name, rendered)
        return left


def sign(folder: Path, key: keys.Key, role: Role, *, follow: bool = True) -> str:
    """Sign the data, render the pages that carry it, and sign these.

    What the pages do not carry is said in a sentence, which is empty where they carry all. `follow`
    a link at `folder` only where a person named it. Raises UsageError if the folder is signed, or
    was rendered for another signer, or is of devices of no vendor that bench has, or pages cannot
    be rendered here, EvidenceError for a run that does not hold together.
    """
    with bundle.opened(folder, follow=follow) as opened:
        return _sign(opened, key, role)


def _sign(folder: Folder, key: keys.Key, role: Role) -> str:
    _refuse_signed(folder)
    require_renderer()
    run, index = _read(folder, "signed")
    if unknown := unknown_vendor(run.system.identity.devices):
        raise UsageError(f"{folder.path} cannot be signed: {unknown}")
    text = _fix_signer(folder, keys.signer_record(key, role))
    fixed = from_json(Signer, text, name=bundle.SIGNER)
    source = replace(run, files={**run.files, bundle.SIGNER: text}, signer=fixed)
    statement = keys.sign_data(source, key)
    bundle.write_in(folder, bundle.STATEMENT, statement)
    carried = {**_carried(source), bundle.STATEMENT: statement}
    page, left = _view(source, index), _left_behind(source)
    source = replace(source, files=carried)
    del run, index  # hundreds of megabytes of a large node, which the layout takes then
    renderings = _rendered(page, carried)
    renderings["report.pdf"] = keys.sign_pdf(renderings["report.pdf"], key)
    for name, text in renderings.items():
        bundle.write_in(folder, name, text)
    subjects = {name: sha256(text) for name, text in renderings.items()}
    subjects["statement.dsse.json"] = sha256(statement)
    bundle.write_in(folder, "report.dsse.json", keys.sign_report(source, subjects, key))
    return left


def _read(folder: Folder, verb: str) -> tuple[bundle.Bundle, JournalIndex]:
    """A run without its lines, and what the journal holds of it.

    EvidenceError where that does not hold together, as `verify` would ask: its pages would be of a
    run that nobody made, and its signature of one that nobody accepts.
    """
    from appliance.verification import verify  # noqa: PLC0415 - half a second, which a run saves

    def check(run: bundle.Bundle, lines: list[Line]) -> None:
        confined_child.give_back()
        try:
            verify.check_finished(run, lines)
        except EvidenceError as error:
            raise EvidenceError(
                f"{folder.path} cannot be {verb}: {error}; put the run's own files back, or make "
                "a new run"
            ) from None

    def indexed(run: bundle.Bundle, lines: Iterator[Line]) -> tuple[bundle.Bundle, JournalIndex]:
        confined_child.give_back()
        index = index_of(run.plan, lines)
        confined_child.give_back()
        return run, index

    return bundle.of_unfinished(folder, indexed, check)


def _view(source: bundle.Bundle, index: JournalIndex) -> View:
    """What the pages say; here and in `_rendered` alone `reports` is imported."""
    from reports.document.view import view  # noqa: PLC0415 - a part that others do without

    return view(source, index)


def _rendered(page: View, carried: Mapping[str, bytes]) -> dict[str, bytes]:
    """Both pages with the files that they carry."""
    from reports import render  # noqa: PLC0415 - a second, and of the same part

    return {"report.html": render.html(page, carried), "report.pdf": render.pdf(page, carried)}


def _carried(source: bundle.Bundle) -> dict[str, bytes]:
    """The data files that go into the pages."""
    return bundle.carried_of(source.data, ATTACHED_BYTES)


def _left_behind(source: bundle.Bundle) -> str:
    """What the pages of a run do not carry, and what to hand over then; empty where they do."""
    carried = _carried(source)
    left = {name: len(data) for name, data in source.data.items() if name not in carried}
    if not left:
        return ""
    logs = " and the logs" if len(left) > 1 else ""
    return (
        f"report.pdf and report.html carry {limits.size_words(ATTACHED_BYTES)} of data at most, so "
        f"they leave out {bundle.JOURNAL}{logs} ({sum(left.values()) / 1e6:,.1f} MB) and show no "
        f"ruling to be right alone: hand over all of {source.folder}, or a zip of it"
    )


def _refuse_signed(folder: Folder) -> None:
    path = folder.path
    if folder.has("report.dsse.json"):
        raise UsageError(
            f"{path} is signed already, and a signed file is never written over: "
            f"`bench verify {shlex.quote(str(path))}` checks it"
        )
    if not folder.has("verdict.json"):
        raise UsageError(
            f"{path} holds no judged run: name out/<run id>, or go on with an unfinished one by "
            f"`bench accept --resume {path}`"
        )


def _fix_signer(folder: Folder, signer: Signer) -> bytes:
    """Write signer.json, unless the pages were made for someone else; what it holds now."""
    if folder.has("signer.json"):
        text = folder.read("signer.json", limits.CERTIFICATE)
        fixed = from_json(Signer, text, name="signer.json")
        if fixed.sha256 != signer.sha256 and not (fixed.is_development and signer.is_development):
            raise UsageError(
                f"{folder.path} was rendered for the signer {fixed.subject}: sign with that key, "
                "or render it for this one by `bench report --signer CERT`"
            )
        if fixed.sha256 == signer.sha256:
            return text
    text = to_json(signer)
    bundle.write_in(folder, "signer.json", text)
    return text
