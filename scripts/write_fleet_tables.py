"""Writes docs/reference/fleet-tables.md: the tables of a collection, and the queries of its site.

`make generate` runs it; a test compares what it would write with what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.collection import queries, tables  # noqa: E402 - the script runs uninstalled

PAGE = ROOT / "docs" / "reference" / "fleet-tables.md"
HEAD = """\
# Tables of a fleet

Written by `make generate` from the program itself. `bench fleet collect` leaves these tables as
Parquet in COLLECTION/tables; they are derived from the ledger and are made anew each time. The
queries below them are what the site shows: `bench fleet report COLLECTION --query NAME --csv` runs
one, and its SQL is among the downloads of the site. DuckDB and others read the files without bench:

    duckdb -c "SELECT state, count(*) FROM 'collection/tables/nodes.parquet' GROUP BY state"
"""


def lines() -> Iterator[str]:
    """The page, line by line."""
    yield HEAD
    for name, (summary, columns) in tables.TABLES.items():
        yield f"## `{name}`\n\n{summary}\n\n| column | type | meaning |\n|--|--|--|"
        for column, (kind, meaning) in columns.items():
            yield f"| `{column}` | {kind} | {meaning} |"
        yield ""
    yield "## Queries\n\n| query | answers |\n|--|--|"
    for name in queries.names():
        yield f"| `{name}` | {queries.summary(name)} |"


def page() -> str:
    """The whole page."""
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
