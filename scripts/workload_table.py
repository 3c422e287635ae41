"""Writes the tables of workloads and of their operations, from what they say of themselves.

Part of `make generate`; run that after adding or changing a workload; a test compares what it would
write with what is there. The table of docs/reference/workloads.md, and that of
docs/reference/operations.md (scripts/operations_table.py), stand between two markers each; nothing
else of the files is touched.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import operations_table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.errors import ApplianceError  # noqa: E402 - the script runs uninstalled
from appliance.verbs.listing import ListedWorkload, in_millions, listed  # noqa: E402 - the same

PAGE = ROOT / "docs" / "reference" / "workloads.md"
BEGIN = "<!-- workloads: written by scripts/workload_table.py -->\n"
END = "<!-- workloads: end -->\n"
HEAD = (
    "| workload | domain | what it is | unit | model, full size | small | suites |\n"
    "|---|---|---|---|---|---|---|\n"
)


def table(workloads: Sequence[ListedWorkload]) -> str:
    """The rows, by domain and name; a pipe in a text would end its cell."""
    rows = sorted(workloads, key=lambda item: (item.domain, item.name))
    return HEAD + "".join(_row(item) for item in rows)


def _row(item: ListedWorkload) -> str:
    cells = (
        f"`{item.name}`",
        item.domain or "-",
        item.summary,
        item.unit or "-",
        in_millions(item.num_parameters_full),
        in_millions(item.num_parameters_small),
        ", ".join(item.suites) or "-",
    )
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n"


def written(text: str, rows: str) -> str:
    """The page's text with these rows between its markers; ApplianceError if it has none."""
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise ApplianceError(f"{PAGE} has not the two markers {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}{rows}{END}{after}"


def main() -> None:
    """Write both tables anew."""
    workloads = listed()
    PAGE.write_text(written(PAGE.read_text(), table(workloads)))
    page = operations_table.PAGE
    page.write_text(operations_table.written(page.read_text(), operations_table.table(workloads)))


if __name__ == "__main__":
    main()
