"""All that the pages are made of: the answers of the shipped queries, by what they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.collection import queries
from appliance.collection.queries import Answer

Record = dict[str, Any]
Records = list[Record]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """A collection's folder, what its statement says of it, and the answers by query."""

    folder: Path
    stated: Mapping[str, str]
    by_query: Mapping[str, Answer] = field(repr=False)
    _records: dict[str, Records] = field(default_factory=dict, repr=False)

    def of(self, query: str) -> Records:
        """The rows of a query, each by the names of its columns."""
        if query not in self._records:
            self._records[query] = self.by_query[query].records
        return self._records[query]

    def grouped(self, query: str, column: str) -> dict[str, Records]:
        """The rows of a query by the value of one column."""
        groups: dict[str, Records] = {}
        for record in self.of(query):
            groups.setdefault(record[column], []).append(record)
        return groups

    def count(self, state: str) -> int:
        """Nodes in a state."""
        return sum(one["num_nodes"] for one in self.of("states") if one["state"] == state)


def read(folder: Path) -> Answers:
    """The answers of a collection whose tables are those that were signed.

    Raises UsageError where there is none, EvidenceError for a table that was changed since.
    """
    with queries.opened(folder) as tables:
        stated = tables.stated.predicate
        return Answers(folder=folder, stated=stated, by_query=tables.all())
