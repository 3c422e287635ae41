"""The virtual family of the self-test: slow and unsteady devices, altered and missing records.

Each scenario is a node with its plan, the true times of its devices, and what someone does to the
records. The healthy ones stand first and must be accepted; most of the others are the same node
with one thing wrong.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from appliance.errors import EvidenceError
from appliance.judging.limits import NO_RECORDS
from appliance.judging.verdict import Judge
from appliance.records.baseline import Baselines, Peak, Peaks
from appliance.records.criteria import Criteria, Criterion
from appliance.records.journal import Block, Calibrated, Checked, Event
from appliance.records.json import sha256, to_json
from appliance.records.plan import Launch
from appliance.records.suite import Protocol
from appliance.records.verdict import Verdict
from appliance.selftest import simulation, time_model, virtual_node
from appliance.selftest.expected_outcomes import (
    ACCEPTED,
    FAIL,
    HARMLESS,
    NEVER_PASS,
    OPEN,
    Expected,
    Row,
    against,
    caught_row,
    control_row,
    fault_of,
    ruling_sentence,
    unseen_row,
)
from appliance.selftest.simulation import Hand, Simulated
from appliance.selftest.time_model import Timing
from appliance.selftest.virtual_node import Node
from appliance.storage.journal import Journal, replay
from appliance.verification import run_checks

MARGIN = 0.03
SPEED = Criterion(
    id="speed",
    kind="perf",
    title="Step time",
    metric="step_seconds",
    within_of_baseline=MARGIN,
)
STALLS = Criterion(
    id="stalls", kind="tail", title="Stalled steps", metric="stall_rate", at_most=0.005
)
SLOW_LAUNCHES = Criterion(
    id="slow launches",
    kind="tail",
    title="Slow launches",
    metric="slow_launch_rate",
    at_most=0.05,
)
DRIFT = Criterion(
    id="drift", kind="drift", title="Drift", metric="drift_per_30_minutes", at_most=0.01
)
THROTTLING = Criterion(
    id="throttling",
    kind="health",
    title="Not slowed down",
    metric="throttle_share",
    at_most=0.02,
)
FUNCTIONAL = (
    Criterion(id="completion", kind="completion", title="Every launch completed"),
    Criterion(id="integrity", kind="integrity", title="Clocks agree, nothing was injected"),
    Criterion(id="correctness", kind="numeric", title="Every check within its bound"),
    Criterion(id="repeatability", kind="determinism", title="Same inputs, same output"),
)
ALL_LIMITS = (SPEED, STALLS, SLOW_LAUNCHES)
NUM_CASES = 20
ONE = "case-00@virtual:0"


def criteria(*limits: Criterion) -> Criteria:
    """The functional criteria and these limits."""
    return Criteria(
        name="selftest",
        version=1,
        summary="What the self-test judges by",
        criterion=(*FUNCTIONAL, *limits),
    )


# ------------------------------------------------------------------ scenarios


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A virtual run with something wrong with it; with `expected` None, with nothing wrong.

    `affected` are the cases that the fault is in (all if empty): every ruling on another case must
    be a pass. `also` finds what else is not as it must be, in words, or nothing.
    """

    name: str
    node: Node
    expected: Expected | None
    hand: Hand = simulation.HONEST
    gap_seconds: float = 0.0
    affected: tuple[str, ...] = ()
    seed: int = 1
    also: Callable[[Verdict], str] = field(default=lambda _: "")

    def row(self) -> Row:
        """Make the run and judge it, with the fault named and with its name taken out."""
        if self.expected is None:
            verdict = self._simulate(self.node).verdict
            is_accepted = verdict.verdict == "ACCEPTED"
            fault = self.also(verdict) if is_accepted else f"not accepted: {against(verdict)}"
            return control_row("virtual", self.name, ACCEPTED, verdict, fault)
        simulated = self._simulate(virtual_node.with_injector(self.node, self.name, self.affected))
        node, lines = simulation.concealed(simulated)
        verdict, named = node.judge(lines).verdict(), simulated.verdict.verdict
        fault = (
            fault_of(self.expected, named, verdict)
            or self._in_others(verdict)
            or self.also(verdict)
        )
        return caught_row(
            "virtual", self.name, self.expected, named=named, concealed=verdict, fault=fault
        )

    def _simulate(self, node: Node) -> Simulated:
        return simulation.simulate(
            node, seed=self.seed, gap_seconds=self.gap_seconds, hand=self.hand
        )

    def _in_others(self, verdict: Verdict) -> str:
        """A case without the fault that was not passed, or nothing."""
        for ruling in verdict.rulings if self.affected else ():
            is_other = ruling.case and ruling.case not in self.affected
            if is_other and ruling.ruling not in HARMLESS:
                return f"{ruling.case}, which is healthy, was not passed: {ruling_sentence(ruling)}"
        return ""


def names(count: int) -> tuple[str, ...]:
    """Names of so many virtual cases."""
    return tuple(f"case-{number:02d}" for number in range(count))


def healthy_node(
    *limits: Criterion,
    timing: Timing | None = None,
    num_cases: int = NUM_CASES,
    num_devices: int = 1,
    protocol: Protocol = virtual_node.PROTOCOL,
    peaks: Peaks = virtual_node.NO_PEAKS,
) -> Node:
    """A healthy node with so many cases, judged by these limits."""
    return virtual_node.make_node(
        dict.fromkeys(names(num_cases), timing or Timing()),
        criteria=criteria(*limits),
        num_devices=num_devices,
        protocol=protocol,
        peaks=peaks,
    )


def behaving(node: Node, timing: Timing, cases: Sequence[str] = ()) -> Node:
    """The node whose devices truly behave like this, at least in these cases."""
    return virtual_node.with_timing(
        node, dict.fromkeys(cases or [case.id for case in node.plan.cases], timing)
    )


def scenarios() -> Iterator[Scenario]:
    """Every virtual run, the healthy ones first."""
    yield from _healthy_runs()
    yield from _slow_devices()
    yield from _unsteady_devices()
    yield from _wrong_clocks()
    yield from _missing_evidence()
    yield from _interrupted_runs()
    yield from _implausible_rates()


def _healthy_runs() -> Iterator[Scenario]:
    for spread in (0.005, 0.01, 0.02):
        yield Scenario(
            name=f"nothing; launches of {100 * spread:g} % spread",
            node=healthy_node(*ALL_LIMITS, timing=Timing(launch_sd=spread)),
            expected=None,
        )
    yield Scenario(
        name="nothing; eight devices, with device clocks",
        node=healthy_node(*ALL_LIMITS, num_cases=5, num_devices=8, timing=Timing(has_events=True)),
        expected=None,
        also=_names_none,
    )
    yield Scenario(
        name="nothing; devices that count the time in which heat holds them back",
        node=replace(healthy_node(THROTTLING, num_cases=2), held_back=0.0),
        expected=None,
    )
    yield Scenario(
        name="nothing; a launch cut short by accident, run resumed once",
        node=healthy_node(*ALL_LIMITS),
        hand=Hand(kills=1, slow_factor=0.0),
        expected=None,
        also=_interrupted_count,
    )


def _slow_devices() -> Iterator[Scenario]:
    for factor in (1.05, 1.08):
        node = healthy_node(SPEED, num_cases=1)
        yield Scenario(
            name=f"device slower by x{factor}, {100 * MARGIN:g} % margin",
            node=behaving(node, Timing(effect=math.log(factor))),
            expected=Expected(words=FAIL, criteria=("speed",), reasons=("over_limit",)),
        )
    node = healthy_node(SPEED, num_cases=5, num_devices=8)
    slow = tuple(case.id for case in node.plan.cases if case.device == "virtual:3")
    yield Scenario(
        name="one device of eight slower by x1.05",
        node=behaving(node, Timing(effect=math.log(1.05)), slow),
        expected=Expected(words=FAIL, criteria=("speed",), reasons=("over_limit",)),
        affected=slow,
        also=_names_the_slow_one,
    )
    yield Scenario(
        name="throttle: x1.05 from minute 10",
        node=behaving(
            healthy_node(SPEED, DRIFT, num_cases=5),
            Timing(pace=time_model.throttle(600.0, 1.05)),
        ),
        expected=Expected(words=FAIL, criteria=("speed", "drift")),
        gap_seconds=110.0,
    )
    yield Scenario(
        name="heat in 5 % of the time, which counters alone show",
        node=replace(healthy_node(THROTTLING, num_cases=2), held_back=0.05),
        expected=Expected(words=FAIL, criteria=("throttling",), reasons=("health",)),
    )
    yield Scenario(
        name="slower and slower, by 4 % in an hour",
        node=behaving(healthy_node(DRIFT, num_cases=2), Timing(pace=time_model.creep(0.04))),
        expected=Expected(words=FAIL, criteria=("drift",)),
        gap_seconds=300.0,
    )


def _names_none(verdict: Verdict) -> str:
    return _stragglers_other_than((), verdict)


def _names_the_slow_one(verdict: Verdict) -> str:
    return _stragglers_other_than(("virtual:3",), verdict)


def _stragglers_other_than(devices: Sequence[str], verdict: Verdict) -> str:
    """What devices are named as stragglers, if it is not these; else nothing."""
    flagged = tuple(item.device for item in verdict.stragglers if item.is_flagged)
    return "" if flagged == tuple(devices) else f"stragglers named: {', '.join(flagged) or 'none'}"


def _unsteady_devices() -> Iterator[Scenario]:
    yield Scenario(
        name="sawtooth of +-5 % within each launch",
        node=behaving(
            healthy_node(SPEED, num_cases=2), Timing(pace=time_model.sawtooth(0.05, 12.0))
        ),
        expected=Expected(words=NEVER_PASS, criteria=("speed",)),
    )
    yield Scenario(
        name="10 % of launches slower by x1.08",
        node=behaving(healthy_node(SPEED, SLOW_LAUNCHES), Timing(slow_rate=0.1)),
        expected=Expected(words=NEVER_PASS, criteria=("slow launches",)),
    )
    yield Scenario(
        name="2 % of steps stalled, x(1 + Exp(1))",
        node=behaving(
            healthy_node(SPEED, STALLS, num_cases=2), Timing(stall_rate=0.02, launch_sd=0.003)
        ),
        expected=Expected(words=FAIL, criteria=("stalls",), passing=("speed",)),
    )
    yield Scenario(
        name="steps of correlation 0.9, launches of 3 % spread, x1.03",
        node=behaving(
            healthy_node(SPEED, num_cases=4),
            Timing(effect=math.log(1.03), launch_sd=0.03, step_sd=0.02, rho=0.9),
        ),
        expected=Expected(words=NEVER_PASS, criteria=("speed",)),
        also=_no_pass_of_speed,
    )
    yield Scenario(
        name="x1.05 from 60 % of each launch",
        node=behaving(healthy_node(SPEED, num_cases=2), Timing(change_at=0.6, change_factor=1.05)),
        expected=Expected(words=OPEN, criteria=("speed",), reasons=("unstable",)),
        also=_no_pass_of_speed,
    )


def _no_pass_of_speed(verdict: Verdict) -> str:
    passed = [
        item for item in verdict.rulings if item.criterion == "speed" and item.ruling == "pass"
    ]
    return f"{passed[0].case} was passed" if passed else ""


# ------------------------------------------------------------------ records that are altered


Change = Callable[[Event], Event | None]


def _in_launches(change: Change, *launches: str) -> Hand:
    """Someone alters every event of these launches (of all if none is named)."""

    def alter(launch: Launch, event: Event) -> Event | None:
        return change(event) if not launches or launch.id in launches else event

    return Hand(alter=alter)


def _scaled(factor: float) -> Change:
    """The clock of the samples runs at `factor`; the raw one does not."""

    def times(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(round(factor * value) for value in values)

    def change(event: Event) -> Event:
        match event:
            case Block():
                wall, whole = times(event.wall_ns), round(factor * event.block_wall_ns)
                return replace(event, wall_ns=wall, block_wall_ns=whole)
            case Calibrated():
                return replace(event, wall_ns=times(event.wall_ns))
            case _:
                return event

    return change


def _device_scaled(factor: float) -> Change:
    """The device's own clock runs at `factor`."""

    def change(event: Event) -> Event:
        if isinstance(event, Block | Calibrated) and event.event_ns is not None:
            return replace(event, event_ns=tuple(round(factor * ns) for ns in event.event_ns))
        return event

    return change


def _events_scaled(factor: float) -> Change:
    """The device's clock is right while clocks are compared, and leaves out part of each step."""

    def change(event: Event) -> Event:
        if isinstance(event, Block) and event.event_ns is not None:
            return replace(event, event_ns=tuple(round(factor * ns) for ns in event.event_ns))
        return event

    return change


def _first_time(nanoseconds: Callable[[Block], int]) -> Change:
    """The first step of each block takes another time."""

    def change(event: Event) -> Event:
        if isinstance(event, Block):
            return replace(event, wall_ns=(nanoseconds(event), *event.wall_ns[1:]))
        return event

    return change


def _without_blocks(event: Event) -> Event | None:
    return None if isinstance(event, Block) else event


def _with_empty_blocks(event: Event) -> Event:
    return replace(event, wall_ns=(), block_wall_ns=0) if isinstance(event, Block) else event


def _with_error(error: float) -> Change:
    def change(event: Event) -> Event:
        if isinstance(event, Checked) and event.phase == "first":
            return replace(event, check=replace(event.check, error=error))
        return event

    return change


def _wrong_clocks() -> Iterator[Scenario]:
    integrity = Expected(words=FAIL, criteria=("integrity",))
    node = healthy_node(SPEED, num_cases=2)
    yield Scenario(
        name="timer scaled by x0.9",
        node=node,
        hand=_in_launches(_scaled(0.9)),
        expected=integrity,
    )
    yield Scenario(
        name="device events scaled by x0.9",
        node=healthy_node(SPEED, num_cases=2, timing=Timing(has_events=True)),
        hand=_in_launches(_device_scaled(0.9)),
        expected=integrity,
    )
    yield Scenario(
        name="steps slower by x1.06, device events of them shorter by x0.952",
        node=behaving(
            healthy_node(SPEED, num_cases=2, timing=Timing(has_events=True)),
            Timing(effect=math.log(1.06), launch_sd=0.003, has_events=True),
        ),
        hand=_in_launches(_events_scaled(0.952)),
        expected=Expected(words=FAIL, criteria=("speed",), reasons=("over_limit",)),
    )
    for name, nanoseconds in (
        ("negative step times", lambda block: -block.wall_ns[0]),
        ("steps of no time at all", lambda _: 0),
        ("a step longer than its block", lambda block: 2 * block.block_wall_ns),
    ):
        yield Scenario(
            name=name,
            node=node,
            hand=_in_launches(_first_time(nanoseconds), f"{ONE}/2"),
            expected=integrity,
            affected=(ONE,),
        )


def _missing_evidence() -> Iterator[Scenario]:
    node = healthy_node(SPEED, num_cases=2)
    yield Scenario(
        name="zero work: a launch without a step",
        node=node,
        hand=_in_launches(_without_blocks, f"{ONE}/3"),
        expected=Expected(words=NEVER_PASS, criteria=("completion", "speed")),
        affected=(ONE,),
    )
    yield Scenario(
        name="zero work: blocks without a step",
        node=node,
        hand=_in_launches(_with_empty_blocks, f"{ONE}/3"),
        expected=Expected(words=NEVER_PASS, criteria=("completion", "integrity", "speed")),
        affected=(ONE,),
    )
    yield Scenario(
        name="a check whose error is not a number",
        node=node,
        hand=_in_launches(_with_error(math.nan), f"{ONE}/4"),
        expected=Expected(words=FAIL, criteria=("correctness",), reasons=("check",)),
        affected=(ONE,),
    )
    yield Scenario(
        name="launches that are missing",
        node=node,
        hand=_in_launches(lambda _: None, *(f"{ONE}/{number}" for number in range(4, 41))),
        expected=Expected(words=OPEN, criteria=("completion",)),
        affected=(ONE,),
    )
    yield Scenario(
        name="baseline of other software",
        node=_with_other_baselines(node),
        expected=Expected(words=OPEN, criteria=("speed",), reasons=("baseline_mismatch",)),
    )


def _with_other_baselines(node: Node) -> Node:
    """The node whose baselines were measured with another release of a library."""
    others = tuple(
        replace(item, key=replace(item.key, software={**item.key.software, "torch": "another"}))
        for item in node.baselines.baseline
    )
    return virtual_node.with_plan(replace(node, baselines=Baselines(baseline=others)), node.plan)


def _interrupted_runs() -> Iterator[Scenario]:
    node = behaving(healthy_node(SPEED, num_cases=6), Timing(slow_rate=0.3, slow_factor=1.1))
    yield Scenario(
        name="two slow launches cut short, run resumed twice",
        node=node,
        hand=Hand(kills=2),
        expected=Expected(words=OPEN, criteria=("speed",), reasons=("interrupted",)),
        also=_interrupted_count,
    )
    yield Scenario(
        name="one slow launch cut short, run resumed once",
        node=behaving(healthy_node(SPEED, SLOW_LAUNCHES), Timing(slow_rate=0.1, slow_factor=1.1)),
        hand=Hand(kills=1),
        expected=Expected(words=NEVER_PASS, criteria=("slow launches",)),
        also=_interrupted_count,
    )


def _interrupted_count(verdict: Verdict) -> str:
    """A launch that was cut short and does not count, or nothing."""
    cut = [
        launch
        for case in verdict.cases
        for launch in case.launches
        if launch.outcome == "interrupted"
    ]
    if not cut or len(cut) != verdict.num_interruptions:
        return f"{len(cut)} launches were cut short in {verdict.num_interruptions} interruptions"
    for launch in cut:
        if launch.log_seconds is None:
            return f"launch {launch.launch} was cut short, and its times do not count"
    return ""


def _implausible_rates() -> Iterator[Scenario]:
    peak = Peak(
        model=virtual_node.MODEL,
        quantity="bfloat16_flops_per_second",
        value=6e13,
        unit="FLOP/s",
        per="device",
        is_confirmed=True,
        source="the self-test",
    )
    limit = replace(SPEED, within_of_baseline=None, at_most=0.103, margin=MARGIN)
    yield Scenario(
        name="rate above the device's peak",
        node=behaving(
            healthy_node(limit, num_cases=2, peaks=Peaks(peak=(peak,))),
            Timing(effect=math.log(0.5)),
        ),
        expected=Expected(words=FAIL, criteria=("integrity",), reasons=("above_peak",)),
    )
    yield Scenario(
        name="faster than the baseline's devices can be, x0.8",
        node=behaving(healthy_node(SPEED, num_cases=2), Timing(effect=math.log(0.8))),
        expected=Expected(words=OPEN, criteria=("speed",), reasons=("too_good",)),
    )


# ------------------------------------------------------------------ a fault that nothing shows


def invisible_row() -> Row:
    """A healthy run that names an injector: nothing betrays it but its name, which is enough."""
    name = "a fault that nothing shows"
    simulated = simulation.simulate(
        virtual_node.with_injector(healthy_node(SPEED, num_cases=2), name), seed=1
    )
    node, lines = simulation.concealed(simulated)
    concealed = node.judge(lines).verdict()
    return unseen_row("virtual", name, named=simulated.verdict, concealed=concealed)


# ------------------------------------------------------------------ a journal on disk


def chain_rows() -> Iterator[Row]:
    """A healthy run's evidence is verified; what was altered in it afterwards is refused."""
    node = healthy_node(SPEED, num_cases=2)
    data = journal_of(node)
    refusal = refused(node, data)
    yield _verified("nothing; its journal is verified", "verified", refusal, refusal)
    lenient = _with_lower_bounds(node)
    for name, altered, edited in (
        ("sample edited after the fact", node, _with_edited_sample(data)),
        ("line removed after the fact", node, _without_a_line(data)),
        ("limit widened after the fact", _with_wider_limit(node), data),
        ("run planned with lower bounds", lenient, journal_of(lenient)),
    ):
        refusal = refused(altered, edited)
        yield _verified(name, "refused", "" if refusal else "it was taken as it is", refusal)


def journal_of(node: Node, *, seed: int = 1) -> bytes:
    """What a journal on disk has stored of a simulated run."""
    clock = simulation.VirtualClock()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder) / "journal.jsonl"
        journal = Journal.create(path, node.digests["plan.json"], clock.of_journal)
        try:
            simulation.simulate(node, seed=seed, keeper=journal, clock=clock)
        finally:
            journal.close()
        return path.read_bytes()


def refused(node: Node, data: bytes) -> str:
    """Why these bytes are no journal of this node's plan and files, or nothing."""
    files = {
        "criteria.toml": sha256(to_json(node.criteria)),
        "baselines.json": sha256(to_json(node.baselines)),
        "peaks.json": sha256(to_json(node.peaks)),
        "qualified.json": sha256(to_json(NO_RECORDS)),
    }
    try:
        run_checks.check_plan(node.plan, node.system, files)
        run_checks.check_bounds(node.plan, node.criteria)
        lines = replay(data, node.digests["plan.json"])
        run_checks.check_conduct(node.plan, lines, node.digests)
        judge = Judge(
            plan=node.plan,
            criteria=node.criteria,
            baselines=node.baselines,
            peaks=node.peaks,
            system=node.system,
        )
        run_checks.check_interim_analyses(judge, lines)
    except EvidenceError as error:
        return str(error)
    return ""


def _with_edited_sample(data: bytes) -> bytes:
    """One step of one block made shorter, in the same form."""
    begin = data.index(b'"wall_ns":["', data.index(b'"kind":"block"')) + len(b'"wall_ns":["')
    digit = data[begin : begin + 1]
    other = b"1" if digit != b"1" else b"2"
    return data[:begin] + other + data[begin + 1 :]


def _without_a_line(data: bytes) -> bytes:
    lines = data.split(b"\n")
    block = next(number for number, line in enumerate(lines) if b'"kind":"block"' in line)
    return b"\n".join([*lines[:block], *lines[block + 1 :]])


def _with_wider_limit(node: Node) -> Node:
    """The node judged by another margin than the one that it was planned with."""
    return replace(node, criteria=criteria(replace(SPEED, within_of_baseline=0.2)))


def _with_lower_bounds(node: Node) -> Node:
    """The node whose plan lets more pass; its bounds do not follow from its criteria."""
    lower = tuple(replace(item, z=tuple(z / 2 for z in item.z)) for item in node.plan.bounds)
    return virtual_node.with_plan(node, replace(node.plan, bounds=lower))


def _verified(name: str, expected: str, fault: str, refusal: str) -> Row:
    word = "refused" if refusal else "verified"
    return Row(
        family="virtual",
        injected=name,
        expected=expected,
        ruling=word,
        criterion="journal",
        reason="",
        explanation=fault or refusal,
        verdict=word,
        concealed=word,
        is_ok=not fault,
    )
