"""The verb `selftest`: faults are injected into the judge, and none may slip through.

A buyer need not believe that a slow device, a wrong result or a forged record would be noticed: it
is shown on his own machine, in less than two minutes. Two families of runs are made, on a virtual
clock where the truth is known, and with real processes whose output goes wrong. Both go through
planning, journal, interim analyses and judge as every run does. Beside the faults stand healthy
runs, which must be accepted: a judge that refuses everything would find every fault.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text
from scipy.special import bdtrc

from appliance.records.json import Record, to_data
from appliance.records.verdict import RulingWord
from appliance.selftest import process_faults, simulation, virtual_faults, virtual_node
from appliance.selftest.expected_outcomes import Row
from appliance.selftest.time_model import Timing

SLOWDOWNS = (0.0, 0.02, 0.03, 0.04, 0.05, 0.08)
NUM_NODES = 100
CONTROL = "nothing"
"""How the names of healthy controls begin."""
NOT_OK = "bold red"
BY_CHANCE = 1e-6
"""So seldom may a sound judge be called unsound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour(Record):
    """What became of so many nodes that are truly slower by `slowdown` than their baseline.

    `num_wrong` were passed at or beyond the limit, or failed at or within it; `is_ok` where that
    may be chance at the risks that the criteria state.
    """

    slowdown: float
    num_nodes: int
    num_pass: int
    num_fail: int
    num_inconclusive: int
    mean_launches: float
    num_wrong: int
    is_ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Record):
    """Everything that the self-test showed."""

    rows: tuple[Row, ...]
    behaviour: tuple[Behaviour, ...]

    @property
    def is_ok(self) -> bool:
        """Nothing slipped through, and no healthy run was rejected."""
        return all(row.is_ok for row in self.rows) and all(row.is_ok for row in self.behaviour)


def run(observe: Callable[[str], None]) -> Result:
    """Make both families and the table of slowdowns; `observe` receives what is done next.

    Raises UsageError where there is no torch, ApplianceError where the appliance itself failed.
    """
    rows = virtual_rows(observe)
    observe("how slow is slow: nodes on a virtual clock")
    behaviours = behaviour()
    observe("real processes: their software is read")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        rows += tuple(
            process_faults.rows(Path(folder), lambda what: observe(f"real processes: {what}"))
        )
    return Result(rows=rows, behaviour=behaviours)


def virtual_rows(observe: Callable[[str], None]) -> tuple[Row, ...]:
    """The family on a virtual clock; needs no torch and touches no device."""
    rows = []
    for scenario in virtual_faults.scenarios():
        observe(f"on a virtual clock: {scenario.name}")
        rows.append(scenario.row())
    rows.append(virtual_faults.invisible_row())
    observe("on a virtual clock: journals edited after the fact")
    return (*rows, *virtual_faults.chain_rows())


# ------------------------------------------------------------------ how slow is slow


def behaviour(
    slowdowns: Sequence[float] = SLOWDOWNS, num_nodes: int = NUM_NODES
) -> tuple[Behaviour, ...]:
    """Words and launches of many nodes at each slowdown, launches of 1 % spread, a margin of 3 %.

    Each node has one case, judged by one limit, through the same plan, interim analyses and judge
    as all.
    """
    protocol = replace(virtual_node.PROTOCOL, blocks=2, block_steps=15, warmup_steps=1)
    node = virtual_faults.healthy_node(virtual_faults.SPEED, num_cases=1, protocol=protocol)
    rows = []
    for slowdown in slowdowns:
        slowed = virtual_faults.behaving(node, Timing(effect=float(np.log1p(slowdown))))
        words: list[RulingWord] = []
        launches: list[int] = []
        for number in range(num_nodes):
            simulated = simulation.simulate(slowed, seed=1000 + number)
            words += [
                ruling.ruling
                for ruling in simulated.verdict.rulings
                if ruling.criterion == virtual_faults.SPEED.id
            ]
            launches.append(simulated.num_made)
        rows.append(_behaviour(slowdown, words, float(np.mean(launches)), node))
    return tuple(rows)


def _behaviour(
    slowdown: float, words: Sequence[RulingWord], mean_launches: float, node: virtual_node.Node
) -> Behaviour:
    """Count the words, and which of them are wrong."""
    limits = node.criteria
    num_pass, num_fail = words.count("pass"), words.count("fail")
    wrong_passes = num_pass if slowdown >= virtual_faults.MARGIN else 0
    wrong_fails = num_fail if slowdown <= virtual_faults.MARGIN else 0
    return Behaviour(
        slowdown=slowdown,
        num_nodes=len(words),
        num_pass=num_pass,
        num_fail=num_fail,
        num_inconclusive=words.count("inconclusive"),
        mean_launches=mean_launches,
        num_wrong=wrong_passes + wrong_fails,
        is_ok=_is_chance(wrong_passes, len(words), limits.alpha_pass)
        and _is_chance(wrong_fails, len(words), limits.alpha_fail),
    )


def _is_chance(count: int, total: int, risk: float) -> bool:
    """Whether so many of `total` may be seen, if each has this risk."""
    return count == 0 or float(bdtrc(count - 1, total, risk)) >= BY_CHANCE


# ------------------------------------------------------------------ what is shown


def print_result(result: Result, out: Console) -> None:
    """Both tables, what is not as it must be, and one sentence of all."""
    out.print(_injections(result.rows))
    out.print(_slowdowns(result.behaviour))
    wrong = [row for row in result.rows if not row.is_ok]
    for row in wrong:
        out.print("not ok", style=NOT_OK, end=" ")
        out.print(f"{row.family}, {row.injected}: {row.explanation}")
    for nodes in result.behaviour:
        if not nodes.is_ok:
            out.print("not ok", style=NOT_OK, end=" ")
            out.print(
                f"slower by {nodes.slowdown:.0%}: {nodes.num_wrong} of "
                f"{nodes.num_nodes} nodes were ruled wrongly, more than chance allows"
            )
    controls = sum(row.injected.startswith(CONTROL) for row in result.rows)
    num_faults = len(result.rows) - controls
    if result.is_ok:
        out.print("nothing slipped through", style="bold green", end=": ")
        out.print(
            f"{num_faults} injected faults were not "
            f"accepted, {controls} healthy controls were not rejected"
        )


def _injections(rows: Sequence[Row]) -> Table:
    table = Table(title="What was injected, and how it was ruled with its name taken out")
    for name in ("", "injected", "expected", "ruled", "verdict", "with its name"):
        table.add_column(name, overflow="fold")
    table.add_column("ok")
    for row in rows:
        by = f" by {row.criterion}" if row.criterion else ""
        why = f": {row.reason}" if row.reason else ""
        table.add_row(
            row.family,
            row.injected,
            row.expected,
            f"{row.ruling}{by}{why}",
            row.concealed,
            row.verdict,
            "ok" if row.is_ok else Text("NOT OK", style=NOT_OK),
        )
    return table


def _slowdowns(behaviours: Sequence[Behaviour]) -> Table:
    table = Table(
        title=f"One limit at {virtual_faults.MARGIN:.0%}, launches of 1 % spread, "
        "interim analyses at 5, 10, 20, 40"
    )
    for name in ("slower by", "nodes", "pass", "fail", "inconclusive", "mean launches", "ok"):
        table.add_column(name, justify="right")
    for row in behaviours:
        table.add_row(
            f"{row.slowdown:.0%}",
            str(row.num_nodes),
            str(row.num_pass),
            str(row.num_fail),
            str(row.num_inconclusive),
            f"{row.mean_launches:.1f}",
            "ok" if row.is_ok else Text("NOT OK", style=NOT_OK),
        )
    return table


def to_document(result: Result) -> Mapping[str, object]:
    """Both tables as plain JSON values."""
    return {
        "is_ok": result.is_ok,
        "rows": [to_data(row) for row in result.rows],
        "behaviour": [to_data(row) for row in result.behaviour],
    }
