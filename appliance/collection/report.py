"""The verb `fleet report`: a collection for other tools, as one JSON document or as CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from appliance.collection import queries
from appliance.collection.queries import Answer

SCHEMA = "bench/fleet-report/1"
NODES = "nodes"
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Begins of a text that a spreadsheet would run."""
OF_REPORT = ("states", "nodes", "levels", "distributions", "beyond", "refusals")
"""Queries whose answers the document has, unless one is asked for by name."""


def csv_text(folder: Path, query: str = NODES) -> str:
    """The answer of one query as CSV; UsageError for a query that there is not."""
    queries.text(query)
    with queries.opened(folder) as tables:
        return as_csv(tables.ask(query))


def as_csv(answer: Answer) -> str:
    """An answer as CSV with a head (RFC 4180); text that a spreadsheet would run begins with '."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(answer.columns)
    writer.writerows([_cell(value) for value in row] for row in answer.rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def document(folder: Path, query: str | None = None) -> dict[str, Any]:
    """The collection as plain JSON values: rows by the names of their columns, query by query."""
    wanted = OF_REPORT if query is None else (query,)
    for name in wanted:
        queries.text(name)
    with queries.opened(folder) as tables:
        stated = tables.stated.predicate
        answers = {name: tables.ask(name).records for name in wanted}
    return {"schema": SCHEMA, "statement": dict(stated), **answers}
