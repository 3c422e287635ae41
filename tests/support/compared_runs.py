"""Pairs of runs that are compared."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

from support import bundles as whole
from support.builders import PROTOCOL, a_case, a_plan, healthy_events
from support.bundles import Draft, analysed, as_drawn, files_of

from appliance.comparison.case_pairs import Side
from appliance.comparison.compare_runs import Comparison, compare
from appliance.records.journal import Block, Event
from appliance.records.json import sha256, to_json
from appliance.records.plan import Case
from appliance.records.system import System
from appliance.signing import keys
from appliance.storage import bundle

KEY = keys.development_key()


def scaled(factor_of: Callable[[str], float]) -> Callable[[list[Event]], list[Event]]:
    """The same events with each launch's steps so many times as long."""

    def change(events: list[Event]) -> list[Event]:
        return [
            _scaled(event, factor_of(event.launch)) if isinstance(event, Block) else event
            for event in events
        ]

    return change


def _scaled(block: Block, factor: float) -> Block:
    wall_ns = tuple(round(step * factor) for step in block.wall_ns)
    span = sum(wall_ns) + 1000
    return replace(block, wall_ns=wall_ns, block_wall_ns=span, block_raw_ns=span)


def slower(by: float, *, case: str = "gemm") -> Callable[[list[Event]], list[Event]]:
    return scaled(lambda launch: 1 + by if launch.startswith(f"{case}@") else 1.0)


def draft(
    name: str,
    change: Callable[[list[Event]], list[Event]] = list,
    *,
    cases: Sequence[Case] | None = None,
    system: System = whole.SYSTEM,
    created: str = "2026-11-21T12:00:00Z",
    mode: str = "fresh",
) -> Draft:
    """A healthy run of its own name, on this system, with its events changed."""
    protocol = replace(PROTOCOL, interim_analyses=(2, 5), block_seconds=0.01, mode=mode, repeats=3)  # type: ignore[arg-type]
    known = cases or (a_case(), a_case("bert"), a_case("exact", is_timed=False))
    plan = as_drawn(a_plan(*known, protocol=protocol))
    identity = sha256(to_json(system.identity))
    plan = replace(
        plan,
        run_id=f"20261121T120000Z-{name}",
        created_utc=created,
        digests={**whole.healthy().plan.digests, "identity": identity},
    )
    made = Draft(plan=plan, events=(), others={bundle.SYSTEM: to_json(system)})
    return replace(made, events=tuple(analysed(plan, change(healthy_events(plan)))))


def side(label: str, made: Draft) -> Side:
    files = {**files_of(made, KEY), bundle.STATEMENT: b"not looked at here"}
    return Side(label=label, path=f"out/{label}", bundle=bundle.read_files(files, complete=False))


def compared(*drafts: Draft, margin: float = 0.03) -> Comparison:
    sides = [side("ABCDE"[number], made) for number, made in enumerate(drafts)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return compare(sides, margin=margin, bench_version="0.1.0")
