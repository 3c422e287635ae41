"""The verb `fleet site`: write every page, the downloads and the summary, in a folder of their own.

The site is written beside its place and takes it when it is whole, so that a reader never meets
half of one. A folder that is no site is never replaced.
"""

from __future__ import annotations

import glob
import json
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance import extras
from appliance.errors import OutputError, UsageError
from appliance.records.json import Record
from appliance.signing.keys import Key
from appliance.storage import bundle as bundles
from appliance.storage.plain_files import UNFINISHED
from reports import render
from reports.fleet import answers as all_answers
from reports.fleet import downloads, pages, summary
from reports.fleet.answers import Answers

MARK = "nodes.js"
"""A file that only a site has; a folder without it is not replaced."""
SUMMARY = "summary.pdf"
STATIC = ("style.css", "search.js", "sort.js")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(Record):
    """What was written: pages, all files, and the bytes of the largest page."""

    schema: str = "bench/fleet-site/1"
    site: str
    num_pages: int
    num_files: int
    largest_page_bytes: int


def write(collection: Path, site: Path, key: Key) -> Site:
    """Write the site of a collection.

    Raises UsageError where there is no collection or pages cannot be made here, OutputError for a
    place that is something else or a disk that is full, EvidenceError for tables that were changed.
    """
    extras.require("fleet", "a fleet's site")
    extras.require_rendering("a fleet's site")
    _refuse_other(site)
    answers = all_answers.read(collection)
    new = _beside(site)
    try:
        _remove_unfinished(site)
        sizes = {path: _write(new, path, data) for path, data in _files(answers, site, key)}
        _take_place(new, site)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        raise bundles.not_written(site, error) from None
    of_pages = [size for path, size in sizes.items() if path.endswith(".html")]
    return Site(
        site=str(site),
        num_pages=len(of_pages),
        num_files=len(sizes),
        largest_page_bytes=max(of_pages),
    )


def _refuse_other(site: Path) -> None:
    if site.is_dir() and any(site.iterdir()) and not (site / MARK).is_file():
        raise OutputError(f"{site} holds something that is no site: name another with --out")
    if site.exists() and not site.is_dir():
        raise OutputError(f"{site} is no folder: name another with --out")
    if site.is_symlink():
        raise UsageError(f"{site} is a link: name the folder itself with --out")


def _files(answers: Answers, site: Path, key: Key) -> Iterator[tuple[str, bytes]]:
    environment = render.environment()
    shared = {
        "campaign": answers.stated["campaign"],
        "version": answers.stated["bench_version"],
    }
    templates: dict[str, Any] = {}
    for page in (*pages.pages(answers, site.absolute()), downloads.page(answers)):
        if page.template not in templates:
            templates[page.template] = environment.get_template(f"fleet/{page.template}")
        yield page.path, templates[page.template].render(**shared, **page.values).encode()
    yield from downloads.files(answers)
    loader = environment.loader
    for name in STATIC:
        assert loader is not None  # noqa: S101 - the environment is made with one
        yield name, loader.get_source(environment, f"fleet/{name}")[0].encode()
    yield MARK, _search_list(answers)
    yield SUMMARY, summary.signed(answers, key)


def _search_list(answers: Answers) -> bytes:
    nodes = [[one["node"], one["rack"], one["state"]] for one in answers.of("nodes")]
    text = json.dumps(nodes, separators=(",", ":"))
    return f"window.benchNodes={text};\n".encode()


def _write(root: Path, path: str, data: bytes) -> int:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return len(data)


def _beside(site: Path) -> Path:
    """A place beside the site's for what is not whole yet, which nobody else's folder has."""
    return site.absolute().with_name(f"{UNFINISHED}{secrets.token_hex(8)}-{site.absolute().name}")


def _remove_unfinished(site: Path) -> None:
    """What a call for this site left when it was killed."""
    for path in site.absolute().parent.glob(f"{UNFINISHED}*-{glob.escape(site.absolute().name)}"):
        shutil.rmtree(path, ignore_errors=True)


def _take_place(new: Path, site: Path) -> None:
    old = _beside(site)
    if site.exists():
        site.rename(old)
    new.rename(site)
    shutil.rmtree(old, ignore_errors=True)
