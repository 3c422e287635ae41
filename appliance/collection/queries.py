"""The questions that the site asks of the tables: one SQL file each, which anyone can run.

A query reads the tables by their names. `duckdb` on the Parquet files gives the same answer as the
site shows. Each file begins with a comment that says what it answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance import extras
from appliance.collection import statement
from appliance.collection.tables import FOLDER, MEMORY_LIMIT, TABLES
from appliance.errors import EvidenceError, UsageError
from appliance.signing.dsse import Statement

QUERIES = Path(__file__).parent / "queries"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Columns by name, and rows in the query's order."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Each row by the names of its columns."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def names() -> tuple[str, ...]:
    """All queries that are shipped."""
    return tuple(sorted(path.stem for path in QUERIES.glob("*.sql")))


def text(name: str) -> str:
    """The SQL of a query; UsageError if there is none of this name."""
    if name not in names():
        raise UsageError(f'there is no query "{name}": use {", ".join(names())}')
    return (QUERIES / f"{name}.sql").read_text()


def summary(name: str) -> str:
    """What a query answers, from the comment at its head."""
    lines = text(name).splitlines()
    return " ".join(line[2:].strip() for line in lines if line.startswith("--"))


class Tables:
    """The tables of one collection, to be asked by the name of a query."""

    def __init__(self, base: Any, stated: Statement, folder: Path) -> None:
        self._base = base
        self._folder = folder
        self.stated = stated

    def ask(self, name: str) -> Answer:
        """The answer of a shipped query; EvidenceError for tables of another form."""
        import duckdb  # noqa: PLC0415 - loaded by who opened them

        try:
            done = self._base.execute(text(name))
            columns = tuple(column[0] for column in done.description)
            return Answer(columns=columns, rows=tuple(done.fetchall()))
        except duckdb.Error:
            raise _unreadable(self._folder) from None

    def all(self) -> Mapping[str, Answer]:
        """The answers of all queries."""
        return {name: self.ask(name) for name in names()}


@contextmanager
def opened(folder: Path) -> Iterator[Tables]:
    """The tables of a collection's folder, which are those that its statement signs.

    Nothing of them is parsed before their digests are compared. UsageError where they are missing,
    EvidenceError where they are others, or of another form.
    """
    extras.require("fleet", "the tables of a fleet")
    import duckdb  # noqa: PLC0415 - 70 MB, and of a part that others do without

    missing = [name for name in TABLES if not (folder / FOLDER / f"{name}.parquet").is_file()]
    if missing:
        raise UsageError(
            f"{folder} has no table {missing[0]}: make them by "
            f"`bench fleet collect CAMPAIGN FROM --out {folder}`"
        )
    stated = statement.check(folder)
    settings: dict[str, Any] = {
        "memory_limit": MEMORY_LIMIT,
        "autoinstall_known_extensions": "false",
    }
    with duckdb.connect(config=settings) as base:
        try:
            for name in TABLES:
                path = _literal(str(folder / FOLDER / f"{name}.parquet"))
                base.execute(f"CREATE VIEW {name} AS SELECT * FROM '{path}'")  # noqa: S608 - ours
        except duckdb.Error:
            raise _unreadable(folder) from None
        yield Tables(base, stated, folder)


def _literal(path: str) -> str:
    """A path in SQL, of which no character stands for others."""
    return re.sub(r"[*?\[]", lambda one: f"[{one[0]}]", path).replace("'", "''")


def _unreadable(folder: Path) -> EvidenceError:
    return EvidenceError(f"the tables of {folder} are no tables of a collection: collect again")
