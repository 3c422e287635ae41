"""What the site hands out: answers as CSV, the queries, the tables, the statement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from appliance.collection import queries, report, statement, tables
from appliance.collection.campaigns import CERTIFICATE
from appliance.storage import input_file
from reports.fleet.answers import Answers
from reports.fleet.pages import Page

FOLDER = "downloads"


def page(answers: Answers) -> Page:
    """The page that lists them."""
    return Page(
        path="downloads.html",
        template="downloads.html",
        values={
            "title": "Downloads",
            "up": "",
            "queries": [
                {
                    "name": name,
                    "summary": queries.summary(name),
                    "rows": len(answers.by_query[name].rows),
                }
                for name in queries.names()
            ],
            "tables": [
                {"name": name, "summary": summary} for name, (summary, _) in tables.TABLES.items()
            ],
        },
    )


def files(answers: Answers) -> Iterator[tuple[str, bytes]]:
    """Every file by its path in the site."""
    for name in queries.names():
        yield f"{FOLDER}/{name}.sql", queries.text(name).encode()
        yield f"{FOLDER}/{name}.csv", report.as_csv(answers.by_query[name]).encode()
    for name in tables.TABLES:
        path = answers.folder / tables.FOLDER / f"{name}.parquet"
        yield f"{FOLDER}/{path.name}", input_file.read(path)
    for path in (answers.folder / statement.FILE, answers.folder / CERTIFICATE):
        yield f"{FOLDER}/{path.name}", _whole(path)


def _whole(path: Path) -> bytes:
    return input_file.read(path, fix="collect again")
