"""Writes docs/explanation/operating-characteristics.md and its figures, in a minute or two.

The document holds nothing that scripts/simulated_nodes.py did not draw, and says where an aim is
missed. A test makes its cheap table again and compares.
"""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import scipy

sys.path.insert(0, str(Path(__file__).parents[1]))

from line_plots import Axis, Line, drawn
from simulated_nodes import (
    ALPHA_FAIL,
    ALPHA_PASS,
    ANALYSES,
    BLOCKS,
    DEVICE_SD,
    HEALTHY_SPREADS,
    MARGIN,
    MODE_SPREAD,
    NODES,
    NUM_LIMITS,
    SEED,
    SLOW_LIMITS,
    SLOWDOWNS,
    SPREADS,
    STALL_LIMIT,
    STEPS,
    WIDE_MARGIN,
    WORKLOAD_SD,
    AtLimit,
    Rates,
    SlowLaunches,
    Stepped,
    TwoModes,
    at_the_limit,
    clean_rates,
    first_analysis_rates,
    healthy_by_spread,
    neighbours,
    node_level,
    power,
    shapes,
    slow_launches,
    stalls,
    stepped,
    two_modes,
)

from appliance.statistics.group_sequential import group_bounds
from appliance.statistics.tails import rate_bounds
from appliance.version import VERSION

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "explanation" / "operating-characteristics.md"
FIGURES = ROOT / "docs" / "explanation" / "figures"
FINE = tuple(number / 200 for number in range(21))  # slowdowns of the figures
SWEEP = (0.003, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.0175, 0.02, 0.025, 0.03, 0.04, 0.05)

LEAST_SHOWN = 1e-4
PROMISED = 0.01

AIM_AT_LIMIT = 0.012
AIM_HEALTHY = 0.99
AIM_LAUNCHES = {0.05: 17.0, 0.08: 10.0}
AIM_SPREAD = 0.01

HEALTHY, ALL_AT_LIMIT = "healthy, CV 0.3 to 2 %", "all exactly at the limit"
HEALTHY_KINDS = {
    HEALTHY: "CV 0.3 to 2 %, spaced geometrically",
    "healthy, CV 0.3 to 2 % in equal steps": "CV 0.3 to 2 %, in equal steps",
    "healthy, CV 2 % everywhere": "CV 2 % in every workload",
}
ONE_AT_LIMIT = [f"one exactly at the limit, CV {spread} %" for spread in ("0.3", "1.1", "2")]
FIVE, EIGHT = (f"one {percent} % slower, CV 1 %" for percent in (5, 8))

# ------------------------------------------------------------------ words


def share(count: int, total: int) -> str:
    """In percent; 0 and 100 only where they are exact."""
    if count in {0, total}:
        return "100 %" if count else "0"
    percent = 100 * count / total
    places = 1 if 0.05 <= percent <= 99.95 and percent >= 10 else 2  # noqa: PLR2004 - what is read
    return f"{percent:.{places}f} %"


def percent(value: float) -> str:
    return f"{100 * value:g} %"


def between(count: int, total: int) -> str:
    """Exact 95 % interval of a rate."""
    low, high = rate_bounds(count, total, 0.025)
    return f"{100 * low:.2f} to {100 * high:.2f} %"


def wrapped(text: str) -> str:
    """Paragraphs filled to the width of a line; tables, headings, figures and code as they are."""
    parts = [
        part if part.lstrip().startswith(("|", "#", "!", "```")) else _filled(part)
        for part in text.strip().split("\n\n")
    ]
    return "\n\n".join(parts) + "\n"


def _filled(paragraph: str) -> str:
    glued = paragraph.replace(" %", "\0%")  # a number keeps its unit
    filled = textwrap.fill(glued, 100, break_long_words=False, break_on_hyphens=False)
    return filled.replace("\0", " ")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def passed(rates: Rates) -> str:
    return share(rates.num_pass, rates.total)


def failed(rates: Rates) -> str:
    return share(rates.num_fail, rates.total)


def both(rates: Rates) -> str:
    return f"{passed(rates)} / {failed(rates)}"


# ------------------------------------------------------------------ tables


def limit_table(rows: Sequence[AtLimit]) -> str:
    return table(
        [
            "CV of launches",
            "PASS of one limit",
            "95 % interval",
            "the same without the floor",
            f"FAIL of a node of {NUM_LIMITS}",
            "95 % interval",
            "PASS of that node",
        ],
        [
            [
                percent(row.spread),
                passed(row.alone),
                between(row.alone.num_pass, row.alone.total),
                passed(row.without_floor),
                failed(row.node),
                between(row.node.num_fail, row.node.total),
                passed(row.node),
            ]
            for row in rows
        ],
    )


def power_table(results: Mapping[tuple[float, float], Rates]) -> str:
    return table(
        ["slower by", *(f"CV {percent(spread)}" for spread in SPREADS)],
        [
            [
                percent(slowdown) + (" (limit)" if slowdown == MARGIN else ""),
                *(
                    f"{both(results[slowdown, spread])}, {results[slowdown, spread].launches:.1f}"
                    for spread in SPREADS
                ),
            ]
            for slowdown in SLOWDOWNS
        ],
    )


def node_table(results: Mapping[str, Rates]) -> str:
    return table(
        ["node", "PASS", "FAIL", "open", "launches of a limit"],
        [
            [
                name,
                passed(rates),
                failed(rates),
                share(rates.num_open, rates.total),
                f"{rates.launches:.1f}",
            ]
            for name, rates in results.items()
        ],
    )


def modes_table(rows: Sequence[TwoModes]) -> str:
    return table(
        [
            "launches",
            "PASS without the floor",
            "PASS with it",
            "node: this workload alone",
            "pooled limit there",
            "node: every workload",
            "pooled limit there",
        ],
        [
            [
                f"{percent(row.mode.part)} take {percent(row.mode.shift)} longer",
                passed(row.without_floor),
                passed(row.with_floor),
                both(row.one),
                both(row.pooled_one),
                both(row.every),
                both(row.pooled_every),
            ]
            for row in rows
        ],
    )


def slow_table(rows: Sequence[SlowLaunches]) -> str:
    return table(
        [
            "launches",
            "counted as slow",
            "launches of a node",
            *(f"pooled limit {percent(limit)}" for limit in SLOW_LIMITS),
            *(f"node, limit {percent(limit)}" for limit in SLOW_LIMITS),
        ],
        [
            [
                f"{percent(row.mode.part)} take {percent(row.mode.shift)} longer"
                if row.mode.part
                else "one mode",
                f"{100 * row.counted:.2f} %" if row.counted > LEAST_SHOWN else "below 0.01 %",
                f"{row.launches:.0f}",
                *(both(rates) for rates in (*row.pooled, *row.node)),
            ]
            for row in rows
        ],
    )


def stall_table(results: Mapping[tuple[float, int], Rates]) -> str:
    rates = dict.fromkeys(rate for rate, _ in results)
    steps = dict.fromkeys(count for _, count in results)
    return table(
        ["stalled steps", *(f"{count} steps in a launch" for count in steps)],
        [
            [
                percent(rate),
                *(
                    f"{both(results[rate, count])}, {results[rate, count].launches:.1f}"
                    for count in steps
                ),
            ]
            for rate in rates
        ],
    )


def least_table(what: str, results: Mapping[int, float]) -> str:
    return table(
        [what, *(f"{count:,}" for count in results)],
        [["smallest limit", *(f"{100 * rate:.2g} %" for rate in results.values())]],
    )


def steps_table(rows: Sequence[Stepped]) -> str:
    return table(
        [
            "steps",
            "PASS by medians",
            "PASS by means",
            "PASS by means, no floor",
            "FAIL by medians",
            "stall limit, first interim analysis",
        ],
        [
            [
                row.name,
                passed(row.by_median),
                passed(row.by_mean),
                passed(row.by_mean_without_floor),
                failed(row.by_median),
                both(row.stalls),
            ]
            for row in rows
        ],
    )


def shapes_table(results: Mapping[tuple[str, float], Rates]) -> str:
    names = dict.fromkeys(name for name, _ in results)
    spreads = dict.fromkeys(spread for _, spread in results)
    return table(
        ["shape of launch times", *(f"CV {percent(spread)}" for spread in spreads)],
        [[name, *(both(results[name, spread]) for spread in spreads)] for name in names],
    )


def neighbours_table(results: Mapping[tuple[float, float], Rates]) -> str:
    correlations = dict.fromkeys(rho for rho, _ in results)
    spreads = dict.fromkeys(spread for _, spread in results)
    return table(
        ["correlation of neighbours", *(f"CV {percent(spread)}" for spread in spreads)],
        [[f"{rho:g}", *(both(results[rho, spread]) for spread in spreads)] for rho in correlations],
    )


# ------------------------------------------------------------------ aims and promises


def aims_table(
    limit: Sequence[AtLimit],
    results: Mapping[str, Rates],
    strength: Mapping[tuple[float, float], Rates],
) -> str:
    rows = [
        _aim(
            "one limit, exactly met, is passed: at most 1.2 % (worst CV)",
            max((row.alone for row in limit), key=lambda rates: rates.num_pass),
            "pass",
            AIM_AT_LIMIT,
        ),
        _aim(
            "a node with one limit exactly met is passed: at most 1.2 % (worst CV)",
            max((results[name] for name in ONE_AT_LIMIT), key=lambda rates: rates.num_pass),
            "pass",
            AIM_AT_LIMIT,
        ),
        _aim(
            "a node with all limits exactly met is failed: at most 1.2 % (worst CV)",
            max(
                (results[ALL_AT_LIMIT], *(row.node for row in limit)),
                key=lambda rates: rates.num_fail,
            ),
            "fail",
            AIM_AT_LIMIT,
        ),
    ]
    for name, what in HEALTHY_KINDS.items():
        is_met = _is_healthy(results[name])
        aim = f"a healthy node is passed: at least 99 % ({what})"
        rows.append([aim, passed(results[name]), _met(is_met)])
    for slowdown, name in ((0.05, FIVE), (0.08, EIGHT)):
        node, alone = results[name], strength[slowdown, AIM_SPREAD]
        most = AIM_LAUNCHES[slowdown]
        rows += [
            [
                f"{name}: the node never passes",
                f"{node.num_pass} of {node.total:,}",
                _met(node.num_pass == 0),
            ],
            [
                f"{name}: decided in at most {most:g} launches on average",
                f"{alone.launches:.1f}, {alone.num_open} of {alone.total:,} left open",
                _met(alone.launches <= most),
            ],
        ]
    return table(["aim", "simulated", "met"], rows)


def _is_healthy(rates: Rates) -> bool:
    return rates.num_pass >= AIM_HEALTHY * rates.total


def _aim(what: str, rates: Rates, word: str, most: float) -> list[str]:
    count = rates.num_pass if word == "pass" else rates.num_fail
    return [
        what,
        f"{share(count, rates.total)} ({between(count, rates.total)})",
        _met(count <= most * rates.total),
    ]


def _met(is_met: bool) -> str:  # noqa: FBT001 - the word for it
    return "yes" if is_met else "**no**"


def _against(count: int, total: int) -> str:
    """A rate that was promised to be at most 1 %."""
    words = f"{share(count, total)} ({between(count, total)})"
    return words if count <= PROMISED * total else f"{words}, which is **above it**,"


def promises_table(
    limit: Sequence[AtLimit],
    results: Mapping[str, Rates],
    strength: Mapping[tuple[float, float], Rates],
    slow: Sequence[SlowLaunches],
) -> str:
    worst_pass = max(
        (*(row.alone for row in limit), *(results[name] for name in ONE_AT_LIMIT)),
        key=lambda rates: rates.num_pass,
    )
    worst_fail = max(
        (results[ALL_AT_LIMIT], *(row.node for row in limit)), key=lambda rates: rates.num_fail
    )
    pass_at_limit = _against(worst_pass.num_pass, worst_pass.total)
    fail_at_limit = _against(worst_fail.num_fail, worst_fail.total)
    caught = "; ".join(
        f"{percent(row.mode.shift)} longer: {share(rates.total - rates.num_pass, rates.total)}"
        for row in slow
        if math.isclose(row.mode.part, SLOW_LIMITS[0])
        for rates in row.pooled[:1]
    )
    healthy = "; ".join(
        f"{what}: {passed(results[name])}"
        + ("" if _is_healthy(results[name]) else ", **not kept**")
        for name, what in HEALTHY_KINDS.items()
    )
    missed = strength[0.05, AIM_SPREAD]
    elsewhere = "not about timing, not simulated here"
    return table(
        ["statement", "promise", "simulated"],
        [
            [
                "a node with any limit on time reached or exceeded by its typical launch gets PASS",
                "at most 1 %, for launch times of one mode",
                f"{pass_at_limit} at the worst CV, with normal launches; other shapes below",
            ],
            [
                "a rate of slow launches of 1.5 % or more is caught",
                "95 %",
                f"kept from a PASS at a limit of 1.5 %: {caught}",
            ],
            [
                "a node within all limits gets FAIL",
                "at most 1 %",
                f"{fail_at_limit} with all forty exactly at the limit, the worst there is",
            ],
            [
                "a healthy node (device sd up to 0.5 %, CV up to margin / 1.5) gets PASS",
                "at least 99 %",
                healthy,
            ],
            [
                "a slowdown of the margin and 2 % on one workload, CV up to 1 %, does not get FAIL",
                "at most 0.1 %",
                share(missed.total - missed.num_fail, missed.total),
            ],
            ["a healthy device gets FAIL on correctness", "at most 0.01 %", elsewhere],
            [
                "corruption in a digested block is missed",
                "0 for one changed element, else at most 2^-27",
                elsewhere,
            ],
            [
                "a defect that fires three times or more in the digested time is missed",
                "at most 5 %",
                elsewhere,
            ],
        ],
    )


# ------------------------------------------------------------------ figures


def power_figure(results: Mapping[tuple[float, float], Rates]) -> str:
    lines = [
        Line(
            label=f"{word}, CV {percent(spread)}",
            x=tuple(100 * slowdown for slowdown in FINE),
            y=tuple(
                100 * (rates.num_pass if word == "PASS" else rates.num_fail) / rates.total
                for rates in (results[slowdown, spread] for slowdown in FINE)
            ),
            look=look,
            dash=dash,
        )
        for dash, word in enumerate(("PASS", "FAIL"))
        for look, spread in enumerate(SPREADS[1:])
    ]
    across = Axis(label="slower than the reference, % (limit 3 %)", ticks=tuple(range(11)))
    return drawn(
        "Share of one limit's rulings by slowdown",
        across,
        Axis(label="share, %", ticks=tuple(range(0, 101, 20))),
        lines,
    )


def launches_figure(results: Mapping[tuple[float, float], Rates]) -> str:
    lines = [
        Line(
            label=f"CV {percent(spread)}",
            x=tuple(100 * slowdown for slowdown in FINE),
            y=tuple(results[slowdown, spread].launches for slowdown in FINE),
            look=look,
        )
        for look, spread in enumerate(SPREADS[1:])
    ]
    return drawn(
        "Launches until one limit is decided by slowdown",
        Axis(label="slower than the reference, % (limit 3 %)", ticks=tuple(range(11))),
        Axis(label="launches on average", ticks=tuple(range(0, 41, 10))),
        lines,
    )


def healthy_figure(results: Mapping[tuple[float, float], Rates]) -> str:
    lines = [
        Line(
            label=f"margin {percent(margin)}",
            x=tuple(100 * spread for spread in SWEEP),
            y=tuple(
                100 * results[spread, margin].num_pass / results[spread, margin].total
                for spread in SWEEP
            ),
            look=look,
            dash=look,
        )
        for look, margin in enumerate((MARGIN, WIDE_MARGIN))
    ]
    return drawn(
        "Healthy nodes that pass by the spread of their launches",
        Axis(label="CV of all forty workloads, %", ticks=tuple(range(6))),
        Axis(label="PASS, %", ticks=tuple(range(0, 101, 20))),
        lines,
    )


# ------------------------------------------------------------------ the document


def document(nodes: int) -> tuple[str, dict[str, str]]:
    """The text, and the figures by their file names."""
    limit, results = at_the_limit(nodes), node_level(nodes)
    bare = [row.without_floor for row in limit]
    bare_pass, bare_total = sum(row.num_pass for row in bare), sum(row.total for row in bare)
    strength = power(nodes, FINE)
    slow = slow_launches(nodes)
    z_pass, z_fail = (
        ", ".join(f"{z:.3f}" for z in group_bounds(alpha, ANALYSES))
        for alpha in (ALPHA_PASS, ALPHA_FAIL / NUM_LIMITS)
    )
    figures = {
        "power.svg": power_figure(strength),
        "launches.svg": launches_figure(strength),
        "healthy.svg": healthy_figure(healthy_by_spread(nodes, SWEEP, (MARGIN, WIDE_MARGIN))),
    }
    text = f"""# Operating characteristics

How often the judge is right about devices whose truth is known. Every figure is of {nodes:,}
simulated nodes or limits, seed {SEED}, made by bench {VERSION} (numpy {np.__version__}, scipy
{scipy.__version__}) with this command:

```sh
make oc{"" if nodes == NODES else f" ARGS='--nodes {nodes}'"}
```

The simulation draws launch times and asks the functions that the judge itself uses; no rule is
written twice. A share of 1 % of {nodes:,} has a 95 % interval of
{between(round(nodes / 100), nodes)}. "0" and "100 %" mean none and all.

## The rules

A limit is a step time {percent(MARGIN)} above a reference that is known exactly. A launch gives one
value, the mean of its block medians of ln(step time). After
{", ".join(map(str, ANALYSES[:-1]))} and {ANALYSES[-1]} launches two one-sided t-tests are made at
that limit: PASS if "at or beyond the limit" is rejected at {percent(ALPHA_PASS)}, FAIL
if "within the limit" is rejected at {percent(ALPHA_FAIL)} over the number of
limits, else the next interim analysis, and INCONCLUSIVE
("open") after the last. The risks are spent over the interim analyses (Lan and DeMets, Pocock
type): the normal bounds are {z_pass} for a PASS and {z_fail} for a FAIL of one of {NUM_LIMITS}
limits. The test for a PASS takes a spread of at least a third of the margin (the floor). A node
passes with every limit and fails with any.

Healthy devices differ by {percent(DEVICE_SD)} (sd) and each workload on each device by another
{percent(WORKLOAD_SD)}. CV is the sd of ln(step time) between launches of one case; the healthy
workloads have {NUM_LIMITS} of them from {percent(HEALTHY_SPREADS[0])} to
{percent(HEALTHY_SPREADS[-1])}, spaced geometrically.

## Aims

{aims_table(limit, results, strength)}

## Promises

{promises_table(limit, results, strength, slow)}

Nothing is promised of rare defects outside the time that was tested, of shapes that were not run,
or where the host lies below the attested layer.

## Exactly at the limit

{limit_table(limit)}

One limit alone is passed at a nominal risk of {percent(ALPHA_PASS)}; the floor makes that smaller
where launches are quieter than a third of the margin. Without it the CV does not matter, and all
rows together give {share(bare_pass, bare_total)} ({between(bare_pass, bare_total)}): bounds of a
normal statistic turned into Student's t are a little generous. {NUM_LIMITS} limits share a risk of
{percent(ALPHA_FAIL)} for a FAIL.

## Power

PASS / FAIL of one limit of {NUM_LIMITS}, and launches until it is decided:

{power_table(strength)}

![Share of rulings by slowdown](figures/power.svg)

![Launches by slowdown](figures/launches.svg)

A limit that is {percent(MARGIN)} away is decided as long as the CV stays below two thirds of it;
beyond that more nodes end open than anybody wants, and a wider margin is the honest answer.

## Nodes of {NUM_LIMITS} limits

{node_table(results)}

"One exactly at the limit" and "one 5 % slower" are exact for that workload on every node; "on any
healthy device" adds the spread between devices, by which some are not 5 % but less slow.

![Healthy nodes that pass](figures/healthy.svg)

A healthy node is lost where it or one of its workloads lies a few device spreads towards the limit
and the launches there are noisy: devices that are all alike lose nothing at a CV of 2 %. It ends
open; none failed. Where every workload is that noisy, 3 % is too narrow a margin for 99 %.

## Launches of two modes

Some launches land in a slow mode. Few launches may show none of it and then look quiet, which no
test of a mean can see. Here the mean of one workload is exactly at the limit, with launches of
{percent(MODE_SPREAD)} within a mode. Beside the {NUM_LIMITS} limits stands the pooled one: launches
more than 3 % and three spreads above their case's median, counted over the node, at most
{percent(SLOW_LIMITS[-1])}. Shares are PASS / FAIL.

{modes_table(two_modes(nodes))}

The floor takes most of the false PASS away and not all of it. The pooled limit stops a node whose
workloads all have the slow mode. It adds little where one of {NUM_LIMITS} has: such a case is
passed by mistake just when hardly a slow launch was drawn, and then there is none to be counted.
Its typical launch is within the limit, and that is what a PASS says of it.

The pooled limit by itself, with all {NUM_LIMITS} workloads alike and otherwise healthy:

{slow_table(slow)}

A mode that is 8 % slower is seen only in part where launches are noisy, because a launch counts as
slow from 3 % and three spreads on. The pooled limit must not be narrower than what the launches of
a healthy node can show; so many launches, none of them slow, show at a risk of
{percent(ALPHA_PASS)}:

{least_table("launches of the node", clean_rates((25, 50, 100, 200, 320, 1000)))}

With {NUM_LIMITS} workloads and at least five launches of each, {percent(SLOW_LIMITS[-1])} is met by
nearly every healthy node and {percent(SLOW_LIMITS[0])} by fewer than half of them.

## Stalls

A step stalls when it takes more than 1.25 times the median of its block. The limit is
{percent(STALL_LIMIT)} of the steps of one case; the risks of the interim analyses are spent as
above, each taken exactly. PASS / FAIL, and launches until decided:

{stall_table(stalls(nodes))}

A case without any stall shows this limit to be met at its first interim analysis:

{least_table("steps in a launch", first_analysis_rates((BLOCKS * STEPS, 500, 1000, 5000)))}

## Steps inside a launch

Simulated step by step: {BLOCKS} blocks of {STEPS} steps with a jitter of 1 % in launches that
differ by 0.3 %; a stalled step takes 1 + Exp(1) times as long. Both statistics are moved so that
their mean is exactly the limit; the risk of a FAIL is {percent(ALPHA_FAIL)}. "By means" is what
the judge does not do: the logarithm of mean step times.

{steps_table(stepped(nodes))}

Autocorrelation of steps does no harm, because launches are the units and not steps. Stalls spoil
the mean and leave the median alone, and the stall limit counts them.

## Where the assumptions end

These two are simulated at the level of launches, with one limit exactly met; PASS / FAIL, nominal
{percent(ALPHA_PASS)} / {percent(ALPHA_FAIL)}.

{shapes_table(shapes(nodes))}

Launch times with a long upper tail are passed more often than at 1 % where their spread exceeds the
floor. The promise of 1 % is of launch times that are roughly symmetric.

{neighbours_table(neighbours(nodes))}

Launches that resemble their neighbours hold less than they seem to. No rule of the judge guards
against it; the order of launches does, which is drawn at random over all cases and devices, so that
two launches of one case are rarely neighbours in time.
"""
    return wrapped(text), figures


def main() -> None:
    parser = argparse.ArgumentParser(description=f"write {DOCUMENT.relative_to(ROOT)}")
    parser.add_argument("--nodes", type=int, default=NODES, help=f"default {NODES}")
    nodes = parser.parse_args().nodes
    begin = time.perf_counter()
    text, figures = document(nodes)
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        (FIGURES / name).write_text(figure)
    DOCUMENT.write_text(text)
    seconds = time.perf_counter() - begin
    print(f"{DOCUMENT.relative_to(ROOT)}: {nodes:,} nodes of each kind in {seconds:.0f} s")


if __name__ == "__main__":
    main()
