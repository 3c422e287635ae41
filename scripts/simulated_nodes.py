"""What the decision rules do to devices whose truth is known, by drawing ten thousand of them.

Launch times are drawn from the model of the statistics, and the very functions that the judge
calls (group_sequential.py and tails.py of appliance/statistics) rule on them: nothing of the rules
is written a second time here but the loop over the interim analyses. All limits are of the kind
"step time at most 3 % above a known reference". Every table has a random stream of its own, so that
one can be made again without the others.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

sys.path.insert(0, str(Path(__file__).parents[1]))

from appliance.statistics.group_sequential import group_bounds, test_limit
from appliance.statistics.tails import analysis_risks, is_slow, num_stalls, rate_bounds, test_rate

SEED, NODES = 20261121, 10_000
ANALYSES = (5, 10, 20, 40)
MARGIN, WIDE_MARGIN = 0.03, 0.05
ALPHA_PASS, ALPHA_FAIL = 0.01, 0.008
NUM_LIMITS = 40
DEVICE_SD, WORKLOAD_SD = 0.005, 0.004
HEALTHY_SPREADS = tuple(float(cv) for cv in np.geomspace(0.003, 0.02, NUM_LIMITS))
WILD_SPREADS = tuple(float(cv) for cv in np.geomspace(0.003, 0.05, NUM_LIMITS))
SPREADS = (0.003, 0.005, 0.01, 0.02, 0.05)
SLOWDOWNS = tuple(number / 100 for number in range(11))
SLOW_LIMITS = (0.015, 0.025)  # of the rate of slow launches
STALL_LIMIT = 0.005
BLOCKS, STEPS = 4, 30  # of a launch, of a block
JITTER, LAUNCH_SD = 0.01, 0.003  # of steps, of launches
CHUNK = 500  # nodes at a time, to stay below some hundred MB

Values = npt.NDArray[np.float64]
Answers = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int_]
TABLES = (
    "at the limit",
    "power",
    "nodes",
    "healthy nodes",
    "two modes",
    "slow launches",
    "stalls",
    "steps",
    "shapes",
    "neighbours",
)


def stream(table: str) -> np.random.Generator:
    """The random numbers of one table."""
    return np.random.default_rng([SEED, TABLES.index(table)])


# ------------------------------------------------------------------ the rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What each limit came to, and after how many launches."""

    is_pass: Answers
    is_fail: Answers
    launches: Counts


def decided(
    values: Values, *, num_limits: int, margin: float = MARGIN, has_floor: bool = True
) -> Decided:
    """Both tests at every interim analysis until one answers; the last axis are launches.

    `values` are ln(seconds) over the reference. `num_limits` share the risk of a wrong fail.
    """
    limit = math.log1p(margin)
    shape = values.shape[:-1]
    is_pass, is_fail = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    launches = np.full(shape, ANALYSES[-1])
    for count, z_pass, z_fail in zip(
        ANALYSES,
        group_bounds(ALPHA_PASS, ANALYSES),
        group_bounds(ALPHA_FAIL / num_limits, ANALYSES),
        strict=True,
    ):
        is_open = ~(is_pass | is_fail)
        known = values[is_open][:, :count]
        tested = test_limit(
            known.mean(axis=-1),
            known.std(axis=-1, ddof=1),
            count,
            log_limit=limit,
            floor=limit / 3 if has_floor else 0.0,
            z_pass=z_pass,
            z_fail=z_fail,
        )
        is_pass[is_open], is_fail[is_open] = tested.is_pass, tested.is_fail
        launches[is_open & (is_pass | is_fail)] = count
    return Decided(is_pass=is_pass, is_fail=is_fail, launches=launches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Of `total` nodes or limits, how many passed and failed; launches of a limit on average."""

    total: int
    num_pass: int
    num_fail: int
    launches: float = math.nan

    @property
    def num_open(self) -> int:
        return self.total - self.num_pass - self.num_fail


def rates_of_limits(decisions: Decided) -> Rates:
    return Rates(
        total=decisions.is_pass.size,
        num_pass=int(decisions.is_pass.sum()),
        num_fail=int(decisions.is_fail.sum()),
        launches=float(decisions.launches.mean()),
    )


def chunks(nodes: int) -> Iterator[int]:
    for begin in range(0, nodes, CHUNK):
        yield min(CHUNK, nodes - begin)


def normal(rng: np.random.Generator, centre: Values, spread: Values) -> Values:
    """Launches of limits with these centres, on a new last axis."""
    noise = rng.standard_normal((*np.broadcast_shapes(centre.shape, spread.shape), ANALYSES[-1]))
    return centre[..., None] + spread[..., None] * noise


# ------------------------------------------------------------------ tables: one limit


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLimit:
    """Everything exactly at its limit: one limit alone, and a node of forty."""

    spread: float
    alone: Rates
    without_floor: Rates
    node: Rates


def at_the_limit(nodes: int, spreads: Sequence[float] = SPREADS) -> list[AtLimit]:
    rng = stream("at the limit")
    rows = []
    for spread in spreads:
        centre = np.full(nodes, math.log1p(MARGIN))
        values = normal(rng, centre, np.full(nodes, spread))
        rows.append(
            AtLimit(
                spread=spread,
                alone=rates_of_limits(decided(values, num_limits=1)),
                without_floor=rates_of_limits(decided(values, num_limits=1, has_floor=False)),
                node=node_rates(
                    rng, nodes, Fleet(spreads=(spread,) * NUM_LIMITS, is_at_limit=True)
                ),
            )
        )
    return rows


def power(
    nodes: int, slowdowns: Sequence[float] = SLOWDOWNS, spreads: Sequence[float] = SPREADS
) -> dict[tuple[float, float], Rates]:
    """One limit of forty, by slowdown and spread."""
    rng = stream("power")
    return {
        (slowdown, spread): rates_of_limits(
            decided(
                normal(rng, np.full(nodes, math.log1p(slowdown)), np.full(nodes, spread)),
                num_limits=NUM_LIMITS,
            )
        )
        for slowdown in slowdowns
        for spread in spreads
    }


# ------------------------------------------------------------------ tables: nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Nodes of one device with forty limits, healthy but for what is named.

    The spreads of healthy workloads are spaced geometrically, for most are quiet. The first
    `num_slow` workloads take `slowdown` longer, exactly so where `slow_is_exact`; of a fleet
    `is_at_limit` every workload is exactly there, and devices that `are_alike` have no spread
    between them. `slow_part` of the launches of every workload take `slow_mode` longer.
    """

    spreads: tuple[float, ...] = HEALTHY_SPREADS
    margin: float = MARGIN
    slowdown: float = 0.0
    num_slow: int = 0
    slow_is_exact: bool = False
    is_at_limit: bool = False
    are_alike: bool = False
    slow_part: float = 0.0
    slow_mode: float = 0.0


def launches_of(rng: np.random.Generator, nodes: int, fleet: Fleet) -> Values:
    """ln(seconds) over the reference: nodes, limits, launches."""
    shape = nodes, len(fleet.spreads)
    centre = DEVICE_SD * rng.standard_normal((nodes, 1))
    centre = centre + WORKLOAD_SD * rng.standard_normal(shape)
    if fleet.are_alike:
        centre = np.zeros(shape)
    if fleet.is_at_limit:
        centre = np.full(shape, math.log1p(fleet.margin))
    if fleet.slow_is_exact:
        centre[:, : fleet.num_slow] = 0.0
    centre[:, : fleet.num_slow] += math.log1p(fleet.slowdown)
    values = normal(rng, centre, np.array(fleet.spreads))
    if fleet.slow_part:
        values += math.log1p(fleet.slow_mode) * (rng.random(values.shape) < fleet.slow_part)
    return values


def node_rates(rng: np.random.Generator, nodes: int, fleet: Fleet) -> Rates:
    """A node passes with every limit, and fails with any."""
    passed = failed = launches = 0
    for size in chunks(nodes):
        decisions = decided(
            launches_of(rng, size, fleet), num_limits=len(fleet.spreads), margin=fleet.margin
        )
        is_fail = decisions.is_fail.any(axis=1)
        passed += int(np.count_nonzero(decisions.is_pass.all(axis=1)))
        failed += int(np.count_nonzero(is_fail))
        launches += int(decisions.launches.sum())
    mean = launches / nodes / len(fleet.spreads)
    return Rates(total=nodes, num_pass=passed, num_fail=failed, launches=mean)


def with_spread(spread: float, slowdown: float, *, is_exact: bool = True) -> Fleet:
    """Healthy but for the first workload, which has this spread and slowdown."""
    return Fleet(
        spreads=(spread, *HEALTHY_SPREADS[1:]),
        slowdown=slowdown,
        num_slow=1,
        slow_is_exact=is_exact,
    )


NODES_OF: dict[str, Fleet] = {
    "healthy, CV 0.3 to 2 %": Fleet(),
    "healthy, CV 0.3 to 2 % in equal steps": Fleet(
        spreads=tuple(np.linspace(0.003, 0.02, NUM_LIMITS))
    ),
    "healthy, CV 2 % everywhere": Fleet(spreads=(0.02,) * NUM_LIMITS),
    "healthy, CV 0.3 to 5 %": Fleet(spreads=WILD_SPREADS),
    "healthy, CV 0.3 to 5 %, margin 5 %": Fleet(spreads=WILD_SPREADS, margin=WIDE_MARGIN),
    "all exactly at the limit": Fleet(is_at_limit=True),
    "one exactly at the limit, CV 0.3 %": with_spread(0.003, MARGIN),
    "one exactly at the limit, CV 1.1 %": with_spread(0.011, MARGIN),
    "one exactly at the limit, CV 2 %": with_spread(0.02, MARGIN),
    "one 5 % slower, CV 1 %": with_spread(0.01, 0.05),
    "one 5 % slower, CV 1 %, on any healthy device": with_spread(0.01, 0.05, is_exact=False),
    "one 8 % slower, CV 1 %": with_spread(0.01, 0.08),
    "all 5 % slower": Fleet(slowdown=0.05, num_slow=NUM_LIMITS),
    "healthy, CV 2 % everywhere, devices all alike": Fleet(
        spreads=(0.02,) * NUM_LIMITS, are_alike=True
    ),
}


def node_level(nodes: int, names: Sequence[str] = tuple(NODES_OF)) -> dict[str, Rates]:
    rng = stream("nodes")
    return {name: node_rates(rng, nodes, NODES_OF[name]) for name in names}


def healthy_by_spread(
    nodes: int, spreads: Sequence[float], margins: Sequence[float]
) -> dict[tuple[float, float], Rates]:
    """Healthy nodes whose forty workloads all have one spread, by spread and margin."""
    rng = stream("healthy nodes")
    return {
        (spread, margin): node_rates(
            rng, nodes, Fleet(spreads=(spread,) * NUM_LIMITS, margin=margin)
        )
        for margin in margins
        for spread in spreads
    }


# ------------------------------------------------------------------ tables: two modes


def _num_slow(values: Values, launches: Counts, spreads: Values) -> tuple[Counts, Counts]:
    """Slow launches and all launches of each node, of those that were made."""
    slow = np.zeros(launches.shape, dtype=np.int_)
    for count in ANALYSES:
        ended = launches == count
        slow[ended] = is_slow(values[ended][:, :count], spreads[ended]).sum(axis=-1)
    return slow.sum(axis=-1), launches.sum(axis=-1)


@functools.cache
def _ruled(bad: int, total: int, limit: float, risk_pass: float, risk_fail: float) -> str:
    return test_rate(bad, total, limit=limit, risk_pass=risk_pass, risk_fail=risk_fail)


def _pooled(slow: Counts, total: Counts, limit: float) -> tuple[Answers, Answers]:
    """The pooled test of each node, one more among the limits that share the risk of a fail."""
    risk_fail = ALPHA_FAIL / (NUM_LIMITS + 1)
    words = np.array(
        [
            _ruled(bad, made, limit, ALPHA_PASS, risk_fail)
            for bad, made in zip(slow.tolist(), total.tolist(), strict=True)
        ]
    )
    return words == "pass", words == "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A part of the launches takes so much longer."""

    part: float
    shift: float


MODES = (Mode(part=0.20, shift=0.04), Mode(part=0.10, shift=0.08), Mode(part=0.05, shift=0.20))
MODE_SPREAD = 0.003


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoModes:
    """Launches of two modes whose mean is exactly the limit.

    `one` and `every`: nodes where this workload alone, or every workload, has the two modes, with
    the pooled limit on slow launches beside the forty; `pooled_one` and `pooled_every` that limit
    by itself.
    """

    mode: Mode
    without_floor: Rates
    with_floor: Rates
    one: Rates
    every: Rates
    pooled_one: Rates
    pooled_every: Rates


def two_modes(nodes: int, modes: Sequence[Mode] = MODES) -> list[TwoModes]:
    rng = stream("two modes")
    rows = []
    for mode in modes:
        values = _two_moded(rng, (nodes, 1), mode, math.log1p(MARGIN))[:, 0]
        one, pooled_one = _two_moded_nodes(rng, nodes, mode, num_two_moded=1)
        every, pooled_every = _two_moded_nodes(rng, nodes, mode, num_two_moded=NUM_LIMITS)
        rows.append(
            TwoModes(
                mode=mode,
                without_floor=rates_of_limits(decided(values, num_limits=1, has_floor=False)),
                with_floor=rates_of_limits(decided(values, num_limits=1)),
                one=one,
                every=every,
                pooled_one=pooled_one,
                pooled_every=pooled_every,
            )
        )
    return rows


def _two_moded(rng: np.random.Generator, shape: tuple[int, int], mode: Mode, mean: float) -> Values:
    shift = math.log1p(mode.shift)
    values = normal(rng, np.full(shape, mean - mode.part * shift), np.full(shape, MODE_SPREAD))
    return values + shift * (rng.random(values.shape) < mode.part)


def _two_moded_nodes(
    rng: np.random.Generator, nodes: int, mode: Mode, *, num_two_moded: int
) -> tuple[Rates, Rates]:
    """The first workload's mean is the limit; the others' typical launch is healthy."""
    both: list[Answers] = []
    pooled: list[Answers] = []
    spreads = (MODE_SPREAD,) * NUM_LIMITS
    for size in chunks(nodes):
        values = launches_of(rng, size, Fleet(spreads=spreads))
        values[:, :1] = _two_moded(rng, (size, 1), mode, math.log1p(MARGIN))
        others = values[:, 1:num_two_moded]
        others += math.log1p(mode.shift) * (rng.random(others.shape) < mode.part)
        decisions = decided(values, num_limits=NUM_LIMITS + 1)
        slow, total = _num_slow(
            values, decisions.launches, np.full(decisions.launches.shape, MODE_SPREAD)
        )
        is_pass, is_fail = _pooled(slow, total, SLOW_LIMITS[-1])
        pooled.append(np.array([is_pass, is_fail]))
        both.append(_together(decisions, is_pass, is_fail))
    return _counted(both), _counted(pooled)


def _counted(parts: Sequence[Answers]) -> Rates:
    """Of rows of passes and fails."""
    whole = np.concatenate(parts, axis=1)
    num_pass, num_fail = (int(row.sum()) for row in whole)
    return Rates(total=whole.shape[1], num_pass=num_pass, num_fail=num_fail)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLaunches:
    """Healthy workloads of which a part of the launches takes longer; all forty alike.

    `counted` is the part that the judge counts as slow, of the `launches` of a node; `pooled` what
    the limit on slow launches by itself comes to, and `node` all limits, by SLOW_LIMITS.
    """

    mode: Mode
    launches: float
    counted: float
    pooled: tuple[Rates, ...]
    node: tuple[Rates, ...]


SLOW_MODES = (
    Mode(part=0.0, shift=0.0),
    *(
        Mode(part=part, shift=shift)
        for shift in (0.20, 0.08)
        for part in (0.005, 0.01, 0.015, 0.025, 0.05, 0.10)
    ),
)


def slow_launches(nodes: int, modes: Sequence[Mode] = SLOW_MODES) -> list[SlowLaunches]:
    rng = stream("slow launches")
    return [_slow_launches(rng, nodes, mode) for mode in modes]


def _slow_launches(rng: np.random.Generator, nodes: int, mode: Mode) -> SlowLaunches:
    fleet = Fleet(slow_part=mode.part, slow_mode=mode.shift)
    pooled: dict[float, list[Answers]] = {limit: [] for limit in SLOW_LIMITS}
    node: dict[float, list[Answers]] = {limit: [] for limit in SLOW_LIMITS}
    num_slow = num_made = 0
    for size in chunks(nodes):
        values = launches_of(rng, size, fleet)
        decisions = decided(values, num_limits=NUM_LIMITS + 1)
        spreads = np.broadcast_to(np.array(fleet.spreads), decisions.launches.shape)
        slow, made = _num_slow(values, decisions.launches, spreads)
        num_slow, num_made = num_slow + int(slow.sum()), num_made + int(made.sum())
        for limit in SLOW_LIMITS:
            answers = _pooled(slow, made, limit)
            pooled[limit].append(np.array(answers))
            node[limit].append(_together(decisions, *answers))
    return SlowLaunches(
        mode=mode,
        launches=num_made / nodes,
        counted=num_slow / num_made,
        pooled=tuple(_counted(pooled[limit]) for limit in SLOW_LIMITS),
        node=tuple(_counted(node[limit]) for limit in SLOW_LIMITS),
    )


def _together(decisions: Decided, is_pass: Answers, is_fail: Answers) -> Answers:
    """Passes and fails of nodes, by their forty limits and the pooled one."""
    return np.array(
        [decisions.is_pass.all(axis=1) & is_pass, decisions.is_fail.any(axis=1) | is_fail]
    )


# ------------------------------------------------------------------ tables: steps


STALL_RATES = (0.0, 0.001, 0.0025, 0.005, 0.01, 0.02)
STEPS_OF_LAUNCH = (BLOCKS * STEPS, 1000)


def stalls(
    nodes: int, rates: Sequence[float] = STALL_RATES, steps: Sequence[int] = STEPS_OF_LAUNCH
) -> dict[tuple[float, int], Rates]:
    """The limit on the stall rate of one case, by true rate and steps of a launch."""
    rng = stream("stalls")
    return {(rate, count): _stalled(rng, nodes, rate, count) for count in steps for rate in rates}


def _stalled(rng: np.random.Generator, nodes: int, rate: float, steps: int) -> Rates:
    bad = rng.binomial(steps, rate, size=(nodes, ANALYSES[-1])).cumsum(axis=1)
    words = np.full(nodes, "open")
    launches = np.full(nodes, ANALYSES[-1])
    passing, failing = (
        analysis_risks(alpha, ANALYSES) for alpha in (ALPHA_PASS, ALPHA_FAIL / NUM_LIMITS)
    )
    for count, risk_pass, risk_fail in zip(ANALYSES, passing, failing, strict=True):
        for node in np.flatnonzero(words == "open"):
            word = _ruled(
                int(bad[node, count - 1]), steps * count, STALL_LIMIT, risk_pass, risk_fail
            )
            if word != "open":
                words[node], launches[node] = word, count
    return Rates(
        total=nodes,
        num_pass=int(np.count_nonzero(words == "pass")),
        num_fail=int(np.count_nonzero(words == "fail")),
        launches=float(launches.mean()),
    )


def clean_rates(counts: Sequence[int]) -> dict[int, float]:
    """The rate of slow launches that so many launches, none of them slow, show to be met."""
    return {count: rate_bounds(0, count, ALPHA_PASS)[1] for count in counts}


def first_analysis_rates(steps: Sequence[int]) -> dict[int, float]:
    """The stall rate that a case without a stall shows to be met at its first analysis."""
    risk = analysis_risks(ALPHA_PASS, ANALYSES)[0]
    return {count: rate_bounds(0, count * ANALYSES[0], risk)[1] for count in steps}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """Launches drawn step by step: what the median of blocks makes of them, and what means would.

    Both are exactly at the limit. `stalls` is the limit on the stall rate at the first interim
    analysis.
    """

    name: str
    by_median: Rates
    by_mean: Rates
    by_mean_without_floor: Rates
    stalls: Rates


STEPPED = {
    "independent steps": (0.0, 0.0),
    "autocorrelation 0.5": (0.5, 0.0),
    "autocorrelation 0.9": (0.9, 0.0),
    "autocorrelation 0.5, 2 % of steps stalled": (0.5, 0.02),
}


def stepped(nodes: int, names: Sequence[str] = tuple(STEPPED)) -> list[Stepped]:
    """Steps of 1 % jitter in launches that differ by 0.3 %; a stall takes 1 + Exp(1) times long."""
    rng = stream("steps")
    rows = []
    for name in names:
        medians, means, num_bad = [], [], []
        for size in chunks(nodes):
            logs = _steps(rng, size, *STEPPED[name])
            times = np.exp(logs)
            medians.append(np.median(logs, axis=-1).mean(axis=-1))
            means.append(np.log(times.mean(axis=-1)).mean(axis=-1))
            num_bad += [num_stalls(node) for node in times[:, : ANALYSES[0]]]
        median, mean = (_centred(np.concatenate(parts)) for parts in (medians, means))
        rows.append(
            Stepped(
                name=name,
                by_median=rates_of_limits(decided(median, num_limits=1)),
                by_mean=rates_of_limits(decided(mean, num_limits=1)),
                by_mean_without_floor=rates_of_limits(decided(mean, num_limits=1, has_floor=False)),
                stalls=_first_analysis(num_bad),
            )
        )
    return rows


def _steps(rng: np.random.Generator, nodes: int, rho: float, stall_rate: float) -> Values:
    """ln(seconds): nodes, launches, blocks, steps; autocorrelated over a whole launch."""
    noise = rng.standard_normal((nodes, ANALYSES[-1], BLOCKS * STEPS))
    noise[..., 1:] *= math.sqrt(1.0 - rho**2)
    values = JITTER * lfilter([1.0], [1.0, -rho], noise, axis=-1)
    values += LAUNCH_SD * rng.standard_normal((nodes, ANALYSES[-1], 1))
    if stall_rate:
        is_stalled = rng.random(values.shape) < stall_rate
        values[is_stalled] += np.log1p(rng.exponential(size=int(is_stalled.sum())))
    return values.reshape(nodes, ANALYSES[-1], BLOCKS, STEPS)


def _centred(values: Values) -> Values:
    """Moved so that the mean of all of them is the limit."""
    moved: Values = values - values.mean() + math.log1p(MARGIN)
    return moved


def _first_analysis(num_bad: Sequence[int]) -> Rates:
    risk_pass, risk_fail = (
        analysis_risks(alpha, ANALYSES)[0] for alpha in (ALPHA_PASS, ALPHA_FAIL / NUM_LIMITS)
    )
    total = ANALYSES[0] * BLOCKS * STEPS
    words = [_ruled(bad, total, STALL_LIMIT, risk_pass, risk_fail) for bad in num_bad]
    return Rates(total=len(words), num_pass=words.count("pass"), num_fail=words.count("fail"))


# ------------------------------------------------------------------ tables: what is not assumed


def _lognormal(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    sigma = 0.8
    values = np.exp(sigma * rng.standard_normal(shape))
    mean = math.exp(sigma**2 / 2)
    spread = mean * math.sqrt(math.expm1(sigma**2))
    scaled: Values = (values - mean) / spread
    return scaled


Noise = Callable[[np.random.Generator, tuple[int, ...]], Values]
SHAPES: dict[str, Noise] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: math.sqrt(12.0) * (rng.random(shape) - 0.5),
    "heavy tails (t, 5 degrees)": lambda rng, shape: rng.standard_t(5, shape) / math.sqrt(5 / 3),
    "skewed (exponential)": lambda rng, shape: rng.exponential(size=shape) - 1.0,
    "very skewed (lognormal, sigma 0.8)": _lognormal,
}
SHAPE_SPREADS = (0.003, 0.01, 0.02)


def shapes(
    nodes: int, names: Sequence[str] = tuple(SHAPES), spreads: Sequence[float] = SHAPE_SPREADS
) -> dict[tuple[str, float], Rates]:
    """One limit, exactly met, whose launches have other shapes than the normal one."""
    rng = stream("shapes")
    return {
        (name, spread): rates_of_limits(
            decided(
                math.log1p(MARGIN) + spread * SHAPES[name](rng, (nodes, ANALYSES[-1])), num_limits=1
            )
        )
        for name in names
        for spread in spreads
    }


NEIGHBOURS = (0.0, 0.2, 0.4, 0.6)


def neighbours(
    nodes: int, correlations: Sequence[float] = NEIGHBOURS, spreads: Sequence[float] = (0.01, 0.02)
) -> dict[tuple[float, float], Rates]:
    """One limit, exactly met, whose launches resemble the launch before them."""
    rng = stream("neighbours")
    rates = {}
    for rho in correlations:
        for spread in spreads:
            noise = rng.standard_normal((nodes, ANALYSES[-1]))
            noise[:, 1:] *= math.sqrt(1.0 - rho**2)
            values = math.log1p(MARGIN) + spread * lfilter([1.0], [1.0, -rho], noise, axis=-1)
            rates[rho, spread] = rates_of_limits(decided(values, num_limits=1))
    return rates
