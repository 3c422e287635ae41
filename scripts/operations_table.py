"""Writes docs/reference/operations.md: what a step costs by count, and by a published figure.

The figures are in workloads/operations.toml, as arithmetic in a workload's default parameters. Part
of `make generate`, by way of scripts/workload_table.py, which lists the workloads once for both; a
test compares what it would write with what is there, and holds the counts to the figures.
"""

from __future__ import annotations

import ast
import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.errors import ApplianceError  # noqa: E402 - the script runs uninstalled
from appliance.records.json import Record, Scalar  # noqa: E402 - the same
from appliance.storage import toml_file  # noqa: E402 - the same
from appliance.verbs.listing import ListedWorkload  # noqa: E402 - the same

FILE = ROOT / "workloads" / "operations.toml"
PAGE = ROOT / "docs" / "reference" / "operations.md"
BEGIN = "<!-- operations: written by scripts/workload_table.py -->\n"
END = "<!-- operations: end -->\n"
HEAD = (
    "| workload | counted, a step | reference | counted/reference | where the reference is from |\n"
    "|---|---:|---:|---:|---|\n"
)
NONE = "none: "
_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations(Record):
    """One workload's figure: an expression, or NONE and why there is none.

    `terms` are named parts of it, each of parameters, `units` and the terms before it.
    """

    name: str
    flops: str
    source: str
    terms: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsFile(Record):
    """workloads/operations.toml."""

    workload: tuple[Operations, ...]


def rows() -> tuple[Operations, ...]:
    """All rows of the file, in its order."""
    return toml_file.parse_own(OperationsFile, FILE.read_bytes(), FILE.name).workload


def is_none(row: Operations) -> bool:
    """Whether the row says that there is no figure."""
    return row.flops.startswith(NONE)


def reference(row: Operations, item: ListedWorkload) -> float | None:
    """Operations of one step at full size by the row's expression; None where there is none."""
    if is_none(row) or item.work_full is None:
        return None
    names: dict[str, Scalar] = {**item.parameters_full, "units": item.work_full.units}
    for term, text in row.terms.items():
        names[term] = evaluated(text, names)
    return evaluated(row.flops, names)


def evaluated(text: str, names: Mapping[str, Scalar]) -> float:
    """Value of an expression of numbers, these names and + - * / ** alone; ApplianceError else."""

    def value(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name) if isinstance(known := names.get(name), int | float):
                return known
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _BINARY:
                return _BINARY[type(kind)](value(left), value(right))
        raise ApplianceError(f"{text!r} is no arithmetic of {', '.join(sorted(names))}")

    return value(ast.parse(text, mode="eval").body)


def table(workloads: Sequence[ListedWorkload]) -> str:
    """The rows by name; a pipe in a text would end its cell."""
    own = {item.name: item for item in workloads}
    return HEAD + "".join(
        _row(row, own[row.name]) for row in sorted(rows(), key=lambda row: row.name)
    )


def _row(row: Operations, item: ListedWorkload) -> str:
    counted = None if item.work_full is None else item.work_full.flops
    known = reference(row, item)
    cells = (
        f"`{row.name}`",
        _giga(counted),
        _giga(known),
        "-" if counted is None or known is None else f"{counted / known:.3f}",
        row.flops if is_none(row) else row.source,
    )
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n"


def _giga(operations: float | None) -> str:
    """In 10^9, with four digits that count; "-" where it is not known."""
    if operations is None:
        return "-"
    digits = 3 - math.floor(math.log10(operations / 1e9))
    return f"{round(operations / 1e9, digits):,.{max(0, digits)}f}"


def written(text: str, rows_text: str) -> str:
    """The page's text with these rows between its markers; ApplianceError if it has none."""
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise ApplianceError(
            f"{PAGE.name} has not the two markers {BEGIN.strip()} and {END.strip()}"
        )
    return f"{before}{BEGIN}{rows_text}{END}{after}"
