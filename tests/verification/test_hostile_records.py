"""A dishonest signer's records: what contradicts itself or the shipped code is found.

Each test takes a run that is sound, changes what a vendor would like to be otherwise, and chains it
anew, as he can. What he makes up without a contradiction nobody can find in the records alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.baselines import a_level
from support.builders import (
    FUNCTIONAL,
    PROTOCOL,
    a_case,
    a_plan,
    block,
    chain,
    checked,
    examined,
    healthy_events,
    limited,
    observed_case,
    records,
    repeated,
    resumed,
    verdict_of,
    without,
)
from support.bundles import NOTHING_KNOWN, SYSTEM, Draft, files_of, healthy, sealed

from appliance.errors import EvidenceError
from appliance.planning import challenge_window
from appliance.planning.launch_constants import REPEATED_INPUT_BOUND
from appliance.planning.plan import checked_launch, launch_groups
from appliance.records.baseline import Baseline, BaselineKey, Baselines, Peak, Peaks
from appliance.records.journal import (
    Block,
    Calibrated,
    Check,
    Checked,
    Digested,
    Event,
    KernelLogRead,
    LaunchEnded,
    LaunchStarted,
    Libraries,
    Line,
    Repeated,
    RunEnded,
    StageTimes,
    Started,
    Warmed,
)
from appliance.records.json import sha256, to_json
from appliance.records.order import Challenge
from appliance.records.plan import Case, Plan
from appliance.records.qualified import Qualified
from appliance.signing.keys import development_key
from appliance.storage import bundle
from appliance.storage.journal import replay
from appliance.storage.qualified_file import reference_rates
from appliance.verification import launch_checks, run_checks
from appliance.verification.facts import shipped
from appliance.verification.launch_checks import check_launches
from appliance.verification.terms import Terms
from appliance.verification.verify import Verification, verify
from appliance.version import VERSION
from appliance.worker import timing
from appliance.worker.measure import _target

TIMED = "gemm@cpu:0/3"
UNTIMED = "gemm@cpu:0/0"
Forge = Callable[[list[Event]], Sequence[Event]]
PLAN = healthy().plan


def fault(events: Sequence[Event], plan: Plan = PLAN) -> str:
    """What is wrong with the launches of these events, or nothing."""
    try:
        check_launches(plan, chain(events))
    except EvidenceError as error:
        return str(error)
    return ""


def changed(
    kind: type[Event], launch: str, change: Callable[[Event], Event | Sequence[Event]]
) -> Forge:
    """Puts what `change` makes of them in place of all events of a kind of a launch."""

    def forge(events: list[Event]) -> list[Event]:
        made: list[Event] = []
        for event in events:
            is_it = isinstance(event, kind) and getattr(event, "launch", "") == launch
            result = change(event) if is_it else event
            made += list(result) if isinstance(result, Sequence) else [result]
        assert made != events
        return made

    return forge


def fields(kind: type[Event], launch: str, **values: object) -> Forge:
    """Gives all events of a kind of a launch these values."""
    return changed(kind, launch, lambda event: replace(event, **values))  # type: ignore[arg-type]


def dropped(kind: type[Event], launch: str) -> Forge:
    return changed(kind, launch, lambda _: ())


def twice(kind: type[Event], launch: str) -> Forge:
    return changed(kind, launch, lambda event: (event, event))


def first_block(change: Callable[[Block], Sequence[Event]], then: int = 0) -> Forge:
    """Changes the first block of a launch, and the numbers of those that follow by `then`."""

    def forge(event: Event) -> Event | Sequence[Event]:
        assert isinstance(event, Block)
        return change(event) if event.index == 0 else replace(event, index=event.index + then)

    return changed(Block, TIMED, forge)


def check_of(launch: str, **values: object) -> Forge:
    """Gives the checks of a launch's first output these values."""

    def forge(event: Event) -> Event:
        assert isinstance(event, Checked)
        is_it = event.phase == "first"
        return replace(event, check=replace(event.check, **values)) if is_it else event  # type: ignore[arg-type]

    return changed(Checked, launch, forge)


def of_phase(launch: str, which: str, **values: object) -> Forge:
    """Gives a launch's checks of a phase these values."""

    def forge(event: Event) -> Event:
        assert isinstance(event, Checked)
        return replace(event, **values) if event.phase == which else event  # type: ignore[arg-type]

    return changed(Checked, launch, forge)


def with_stages(share: float, **more: int) -> Forge:
    """Has the launch say what its time went to: this share of its length, and more stages."""

    def forge(event: Event) -> Sequence[Event]:
        assert isinstance(event, LaunchEnded)
        wall_ns = {"digest": round(event.wall_ns * share), **more}
        return (StageTimes(launch=TIMED, rank=0, wall_ns=wall_ns), event)  # type: ignore[arg-type]

    return changed(LaunchEnded, TIMED, forge)


# ------------------------------------------------------------------ one launch

FORGED: dict[str, tuple[Forge, str]] = {
    "a fast block of a rank that does not exist": (
        first_block(lambda one: [one, replace(one, rank=1, wall_ns=(1,) * 3)]),
        "has no rank 1",
    ),
    "a rank below the first": (
        first_block(lambda one: [one, replace(one, rank=-1)]),
        "has no rank -1",
    ),
    "its slow block left out": (first_block(lambda _: []), "block 1 where block 0 comes"),
    "its slow block left out and the others numbered anew": (
        first_block(lambda _: [], then=-1),
        "begins block 0 with step 5, where step 2 comes",
    ),
    "a block twice": (first_block(lambda one: [one, one]), "block 0 where block 1 comes"),
    "slow steps left out": (
        first_block(lambda one: [replace(one, wall_ns=one.wall_ns[:2])]),
        "begins block 1 with step 5, where step 4 comes",
    ),
    "a block cut short": (
        first_block(lambda one: [replace(one, block_wall_ns=29_000_000)]),
        "block 0 that is shorter than the protocol says",
    ),
    "stages that take longer than the launch": (
        with_stages(1.01),
        "has stages that together take longer than it did",
    ),
    "a stage of less than no time, which hides another": (
        with_stages(1.5, check=-(10**12)),
        "reports stages of no time, or of less",
    ),
    "stages said twice": (
        lambda events: with_stages(0.1)(list(with_stages(0.1)(events))),
        "reports its times of its stages twice",
    ),
    "stages said before the work is done": (
        changed(
            Started,
            TIMED,
            lambda one: (StageTimes(launch=TIMED, rank=0, wall_ns={"build": 1}), one),
        ),
        "reports something after the times of its stages",
    ),
    "no warm-up": (dropped(Warmed, TIMED), "does not report its warm-up"),
    "an empty warm-up": (
        lambda events: [
            replace(one, first_step=one.first_step - 1)
            if isinstance(one, Block) and one.launch == TIMED
            else one
            for one in fields(Warmed, TIMED, wall_ns=())(events)
        ],
        "warmed up for less than the protocol says",
    ),
    "no first step, which was slow": (dropped(Started, TIMED), "does not report its first step"),
    "a second first step": (twice(Started, TIMED), "reports its first step twice"),
    "clocks that were not compared": (
        dropped(Calibrated, TIMED),
        "does not report its comparison of clocks",
    ),
    "clocks compared over nothing": (
        fields(Calibrated, TIMED, wall_ns=(), raw_ns=()),
        "did not compare its clocks over 3 spans",
    ),
    "clocks compared for a moment": (
        fields(Calibrated, TIMED, wall_ns=(1,) * 3, raw_ns=(1,) * 3),
        "compared its clocks for less time",
    ),
    "a device's clock without the bracket of its host's": (
        fields(Calibrated, TIMED, event_ns=(10**7,) * 3),
        "compared the device's clock without the host's time inside of its spans",
    ),
    "a bracket that is longer inside than outside": (
        fields(Calibrated, TIMED, event_ns=(10**7,) * 3, inner_ns=(10**9,) * 3),
        "over spans that are longer inside than outside",
    ),
    "no steps that do nothing": (
        fields(Calibrated, TIMED, empty_ns=None),
        "did not time 5 blocks of steps that do nothing",
    ),
    "one block of steps that do nothing, the slowest": (
        fields(Calibrated, TIMED, empty_ns=(9_000_000,)),
        "did not time 5 blocks of steps that do nothing",
    ),
    "steps that do nothing for longer than the launch": (
        fields(Calibrated, TIMED, empty_ns=(10**12,) * 5),
        "has steps that take longer than the journal's clock says",
    ),
    "a clock of the device that is compared with none": (
        first_block(lambda one: [replace(one, event_ns=one.wall_ns)]),
        "a clock of the device that it did not compare",
    ),
    "libraries that were not reported": (
        dropped(Libraries, UNTIMED),
        "does not report its libraries",
    ),
    "timed steps of the untimed launch": (
        changed(Started, UNTIMED, lambda one: (one, block(UNTIMED, 0, (10**7,) * 3))),
        "is not timed and has timed steps",
    ),
    "more time than the journal's clock saw": (
        fields(LaunchEnded, TIMED, wall_ns=10**12),
        "took longer by its own record than the journal's clock says",
    ),
    "steps made slower for a baseline": (
        first_block(
            lambda one: [
                replace(
                    one,
                    wall_ns=(10**11,) * 3,
                    block_wall_ns=3 * 10**11,
                    block_raw_ns=3 * 10**11,
                )
            ]
        ),
        "has steps that take longer than the journal's clock says",
    ),
    "a build made slower": (
        fields(Started, TIMED, build_ns=10**12),
        "has steps that take longer than the journal's clock says",
    ),
    "another first output": (
        of_phase(TIMED, "first", step=4),
        "checked step 4 as its first one, and that is step 0",
    ),
    "an early output checked as the last": (
        of_phase("gemm@cpu:0/1", "last", step=3),
        "checked step 3 as its last one, and that is step 7",
    ),
    "the check that failed is gone": (
        lambda events: changed(
            Checked,
            TIMED,
            lambda one: () if one.check.name == "another" else one,  # type: ignore[union-attr]
        )(with_another(events)),
        'do not both check "another" of the first output',
    ),
    "a check of its own": (check_of(TIMED, name="easy"), 'do not both check "easy"'),
    "bits that may differ": (
        of_phase(UNTIMED, "first", phase="repeatability"),
        "holds outputs to a spread that are reproducible bit by bit",
    ),
    "a repeated input that may save all": (
        of_phase(UNTIMED, "first", phase="repeated", check=Check(name="saved", error=0, bound=0)),
        f"lets a repeated input save 0 of a step's time, not {REPEATED_INPUT_BOUND}",
    ),
    "a digest that is compared with none": (
        fields(Digested, TIMED, what="result"),
        "reports other digests than that of its first output",
    ),
    "a digest of another step": (
        fields(Digested, TIMED, step=1),
        "reports other digests than that of its first output",
    ),
    "two digests": (twice(Digested, TIMED), "reports other digests than that of its first output"),
}


def with_another(events: Sequence[Event]) -> list[Event]:
    """A second check of every first output of the case."""
    made: list[Event] = []
    for event in events:
        made.append(event)
        if isinstance(event, Checked) and event.phase == "first":
            made.append(replace(event, check=replace(event.check, name="another")))
    return made


def test_stages_that_fit_into_the_launch_are_let_through() -> None:
    events = list(healthy().events)
    assert fault(with_stages(0.5)(events)) == ""


def test_a_stage_that_is_much_longer_than_what_was_timed_in_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever makes a first step shorter has its stage left, which is measured beside it."""
    monkeypatch.setattr(launch_checks, "STAGE_SLACK_NS", 50_000_000)  # of launches of a second
    longer = with_stages(0.0, first_step=200_000_000)
    assert "spent 0.2 s on its first step, and timed it as less" in fault(
        longer(list(healthy().events))
    )


def test_sound_launches_are_let_through() -> None:
    assert fault(healthy().events) == ""
    assert fault(with_another(healthy().events)) == ""


@pytest.mark.parametrize("name", FORGED)
def test_a_launch_that_contradicts_itself_is_found(name: str) -> None:
    forge, sentence = FORGED[name]
    result = fault(forge(list(healthy().events)))
    assert sentence in result
    assert len(result.splitlines()) == 1


def test_a_launch_with_a_check_outside_may_lack_those_that_follow() -> None:
    events = with_another(healthy().events)
    wrong = changed(
        Checked,
        TIMED,
        lambda one: () if one.check.name == "another" else replace(one, check=wide(one)),  # type: ignore[union-attr,arg-type]
    )
    assert fault(wrong(events)) == ""


def wide(event: Event) -> Check:
    assert isinstance(event, Checked)
    return replace(event.check, error=2 * event.check.bound + 1)


def checks(folder: Path) -> Verification:
    return verify(folder, Terms(allow_development=True))


def failed(result: Verification) -> list[str]:
    return [check.name for check in result.checks if check.status == "fail"]


def test_verify_refuses_a_bundle_with_such_a_launch(tmp_path: Path) -> None:
    forge, sentence = FORGED["a fast block of a rank that does not exist"]
    result = checks(sealed(tmp_path, healthy().with_events(forge), development_key()))
    assert (result.exit_code, failed(result), result.verdict) == (4, ["conduct"], None)
    assert sentence in result.faults[0]


def test_an_interrupted_launch_counts_only_the_blocks_that_it_made() -> None:
    """It is never made again, so its times count as they are, and must be of its own steps."""
    (first, *_), *_ = [[e for e in healthy().events if isinstance(e, Block) and e.launch == TIMED]]

    def cut(*blocks: Block) -> list[Event]:
        events: list[Event] = []
        for event in healthy().events:
            if getattr(event, "launch", "") != TIMED:
                events.append(event)
            elif isinstance(event, LaunchEnded):
                events += [*blocks, *resumed(1, TIMED)]
            elif not isinstance(event, Block):
                events.append(event)
        return events

    assert fault(cut(first)) == ""
    assert "block 1 where block 0 comes" in fault(cut(replace(first, index=1)))
    assert "shorter than the protocol" in fault(cut(replace(first, wall_ns=first.wall_ns[:1])))


def test_a_block_of_steps_that_fill_a_minute_may_have_fewer_of_them() -> None:
    plan = replace(PLAN, protocol=replace(PLAN.protocol, blocks=1, block_steps=30))
    assert "shorter than the protocol" in fault(of_long_steps(20, 2 * 10**9), plan)
    assert "shorter than the protocol" not in fault(of_long_steps(20, 4 * 10**9), plan)
    assert "shorter than the protocol" in fault(of_long_steps(19, 4 * 10**9), plan)


def of_long_steps(num_steps: int, nanoseconds: int) -> list[Event]:
    """A healthy run whose timed launches have one block of steps of this length."""
    events: list[Event] = []
    for event in healthy().events:
        if isinstance(event, Warmed):
            events.append(replace(event, wall_ns=(nanoseconds,)))
        elif not isinstance(event, Block):
            events.append(event)
        elif event.index == 0:
            whole = num_steps * nanoseconds
            times = (nanoseconds,) * num_steps
            events.append(replace(event, wall_ns=times, block_wall_ns=whole, block_raw_ns=whole))
    return events


# ------------------------------------------------------------------ several ranks, targets, digests


def with_case(case: Case) -> tuple[Plan, list[Event]]:
    plan = a_plan(case, protocol=replace(PROTOCOL, interim_analyses=(5,)))
    return plan, healthy_events(plan)


def of_ranks(events: Sequence[Event], ranks: int) -> list[Event]:
    """The same of each of so many ranks."""
    return [
        replace(event, rank=rank)  # type: ignore[arg-type]
        if hasattr(event, "rank")
        else event
        for event in events
        for rank in range(ranks if hasattr(event, "rank") else 1)
    ]


def test_each_rank_tells_its_own() -> None:
    plan, events = with_case(replace(a_case(), ranks=2))
    both = of_ranks(events, 2)
    assert fault(both, plan) == ""
    for kind, what in ((Calibrated, "comparison of clocks"), (Started, "first step")):
        silent = without(both, lambda one, k=kind: isinstance(one, k) and one.rank == 1)  # type: ignore[misc]
        assert f"does not report its {what}" in fault(silent, plan)


def aimed(*, is_reached: bool, says: bool) -> str:
    """A training with a target; whether it came to it, and whether a check says that it did not."""
    case = replace(a_case(steps=4), evaluate_every=2, checked_launch=None)
    plan, events = with_case(case)
    reported: list[Event] = []
    for event in events:
        is_block = isinstance(event, Block)
        reported.append(replace(event, reached_at=4) if is_block and is_reached else event)  # type: ignore[arg-type]
        if says and isinstance(event, Checked) and event.phase == "last":
            reported.append(replace(event, check=_target(has_reached=is_reached, budget=4)))
    return fault(reported, plan)


def test_a_target_that_was_missed_is_said_to_be_missed() -> None:
    assert aimed(is_reached=True, says=True) == ""
    assert aimed(is_reached=False, says=True) == ""
    assert "did not come to its target" in aimed(is_reached=False, says=False)


def test_an_untimed_launch_with_steps_checks_the_last_of_them() -> None:
    case = replace(a_case(steps=4, is_timed=False), checked_launch=None)
    plan, events = with_case(case)
    assert fault(events, plan) == ""
    early = of_phase(f"{case.id}/0", "last", step=1)(events)
    assert "checked step 1 as its last one, and that is step 3" in fault(early, plan)


def test_an_untimed_launch_that_was_made_again_counts_once() -> None:
    events = list(healthy().events)
    begin = next(i for i, one in enumerate(events) if getattr(one, "launch", "") == UNTIMED)
    cut = next(i for i, one in enumerate(events) if isinstance(one, Started)) + 1
    twice_made = [*events[:cut], *resumed(1, UNTIMED), *events[begin:]]
    assert fault(twice_made) == ""


# ------------------------------------------------------------------ the plan


def refused(plan: Plan, criteria: object = FUNCTIONAL) -> str:
    files = {
        "criteria.toml": plan.digests["criteria"],
        "baselines.json": plan.digests["baselines"],
        "peaks.json": plan.digests["peaks"],
        "qualified.json": plan.digests["qualified"],
    }
    try:
        run_checks.check_plan(plan, SYSTEM, files)
        run_checks.check_bounds(plan, criteria)  # type: ignore[arg-type]
    except EvidenceError as error:
        return str(error)
    return ""


def with_first(plan: Plan, **values: object) -> Plan:
    """The plan with other values in its first case."""
    first = replace(plan.cases[0], **values)  # type: ignore[arg-type]
    return replace(plan, cases=(first, *plan.cases[1:]))


def protocol(**values: object) -> Plan:
    return replace(PLAN, protocol=replace(PLAN.protocol, **values))  # type: ignore[arg-type]


PLANS: dict[str, tuple[Plan, str]] = {
    "another order": (
        replace(PLAN, groups=tuple(reversed(PLAN.groups))),
        "not in the order that its seed draws",
    ),
    "launches listed in another order": (
        replace(PLAN, launches=tuple(reversed(PLAN.launches))),
        "not in the order that its seed draws",
    ),
    "another launch checked": (
        with_first(PLAN, checked_launch=3),
        "checks its last output in another launch than its seed draws",
    ),
    "one launch checked where each must": (
        protocol(last_checks="all"),
        "checks its last output in another launch than its seed draws",
    ),
    "no block": (protocol(blocks=0), "at least one block of one step"),
    "no step": (protocol(block_steps=0), "at least one block of one step"),
    "no time": (protocol(block_seconds=math.nan), "must be a positive number"),
    "no comparison of clocks": (protocol(calibration_seconds=0.0), "must be a positive number"),
    "no rank": (with_first(PLAN, ranks=0), "cannot have 0 for its ranks"),
    "ranks without end": (with_first(PLAN, ranks=2**40), "for its ranks"),
    "no launch": (with_first(PLAN, launches=0), "cannot have 0 for its launches"),
    "launches without end": (with_first(PLAN, launches=2**40), "for its launches"),
    "no step to make": (with_first(PLAN, steps=0), "cannot have 0 for its steps"),
    "a seed that is none": (replace(PLAN, seed="zz"), "its seed must be 32 bytes"),
    "other criteria by name": (
        replace(PLAN, criteria="strict"),
        "names other criteria than criteria.toml does",
    ),
}


def test_a_sound_plan_is_let_through() -> None:
    assert refused(PLAN) == ""


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_no_suite_and_seed_make_is_found(name: str) -> None:
    plan, sentence = PLANS[name]
    result = refused(plan)
    assert sentence in result
    assert len(result.splitlines()) == 1


def test_order_and_checked_launches_follow_from_plan_and_seed() -> None:
    assert PLAN.groups == launch_groups(PLAN.cases, PLAN.launches, PLAN.seed)
    assert checked_launch(PLAN.protocol, "gemm", 5, PLAN.seed) == 1
    assert checked_launch(replace(PLAN.protocol, last_checks="all"), "gemm", 5, PLAN.seed) is None


# ------------------------------------------------------------------ times of the journal


def with_utc(lines: Sequence[Line], number: int, utc: str) -> bytes:
    """The journal with another time in one line, chained anew."""
    made: list[bytes] = []
    prev = lines[0].prev
    for line in lines:
        reported = replace(line, prev=prev, utc=utc if line.seq == number else line.utc)
        made.append(to_json(reported))
        prev = sha256(made[-1])
    return b"".join(text + b"\n" for text in made)


@pytest.mark.parametrize(
    "utc",
    [
        *("", "yesterday", "2026-11-21T12:00:00", "2026-13-01T00:00:00Z"),
        *("2026-11-21T12:00:03.000+14:00", "2026-W47-6T12:00:03.000Z", "2026-11-21T12:00:03Z"),
        *("2026-11-21T12:00:60.000Z", "0001-01-01T00:00:00.000+14:00", "2026-11-21 12:00:03.000Z"),
    ],
)
def test_a_line_at_no_time_is_found(utc: str) -> None:
    lines = chain(healthy().events[:5])
    assert len(replay(with_utc(lines, 3, lines[3].utc), lines[0].prev)) == 5
    with pytest.raises(EvidenceError, match=r"line 4: .* is no time in UTC"):
        replay(with_utc(lines, 3, utc), lines[0].prev)


def test_every_line_lies_in_the_window_of_a_challenge() -> None:
    challenge = Challenge(
        nonce="ab" * 32,
        issued_utc="2026-11-21T11:00:00Z",
        not_after_utc="2026-11-21T13:00:00Z",
        criteria="",
        suite="",
        note="",
        buyer="",
    )
    plan = replace(PLAN, seed=challenge_window.run_seed(challenge))
    lines = list(chain(healthy().events))
    challenge_window.check(plan, lines, challenge)
    for place, utc in ((0, "2026-11-21T10:59:59Z"), (7, "2026-11-21T13:00:01Z")):
        others = [*lines]
        others[place] = replace(others[place], utc=utc)
        with pytest.raises(EvidenceError, match=f"the run at {utc} is not under its challenge"):
            challenge_window.check(plan, others, challenge)


def test_the_kernels_log_is_not_read_backwards(tmp_path: Path) -> None:
    def marks(*places: tuple[str, int]) -> Forge:
        read = [KernelLogRead(boot=boot, sequence=number) for boot, number in places]
        return lambda events: [events[0], *read, *events[1:]]

    def named(forge: Forge, name: str) -> list[str]:
        folder = sealed(tmp_path / name, healthy().with_events(forge), development_key())
        return list(checks(folder).faults)

    assert named(marks(("a", 3), ("a", 7)), "sound") == []
    (output,) = named(marks(("a", 3), ("b", 7)), "another boot")
    assert "the kernel's log is read of another boot, and nobody went on with it" in output
    (output,) = named(marks(("a", 7), ("a", 3)), "backwards")
    assert "up to an earlier place than before" in output


# ------------------------------------------------------------------ clocks, as the judge sees them


def with_blocks(change: Callable[[Block], Block]) -> Sequence[Event]:
    return [
        change(event) if isinstance(event, Block) else event
        for event in healthy_events(a_plan(a_case()))
    ]


def clocks(change: Callable[[Block], Block]) -> tuple[str, str]:
    """What the judge says of the clocks and of the speed."""
    plan, criteria = a_plan(a_case()), limited(1.0)
    result = verdict_of(plan, with_blocks(change), criteria)
    rulings = {one.criterion: one.ruling for one in result.rulings}
    return rulings["integrity"], rulings["speed"]


def test_time_that_is_in_no_step_is_asked_about() -> None:
    def longer(seconds: float) -> Callable[[Block], Block]:
        more = round(seconds * 1e9)
        return lambda one: replace(
            one,
            block_wall_ns=one.block_wall_ns + more,
            block_raw_ns=one.block_raw_ns + more,
        )

    assert clocks(longer(0.0)) == ("pass", "pass")
    assert clocks(longer(0.1)) == ("pass", "pass")
    assert clocks(longer(0.3)) == ("inconclusive", "inconclusive")


def test_a_device_whose_clock_sees_less_of_a_step_is_asked_about() -> None:
    def reported(share: float) -> Callable[[Block], Block]:
        return lambda one: replace(one, event_ns=tuple(round(share * t) for t in one.wall_ns))

    assert clocks(reported(0.95)) == ("pass", "pass")
    assert clocks(reported(0.80)) == ("inconclusive", "pass")  # its speed is judged by the wall


class Watched:
    """A stopwatch of a device with a clock of its own; each reading is a millisecond later."""

    def __init__(self) -> None:
        self.time = 0

    def now(self) -> int:
        self.time += 10**6
        return self.time

    def raw(self) -> int:
        return self.time

    def synchronise(self) -> None:
        return

    def mark(self) -> int:
        return self.now()

    def between(self, begin: int, end: int) -> int:
        return end - begin


def test_marks_say_nothing_of_work_that_another_library_gave_the_device() -> None:
    for wait in (None, lambda: None):
        step = timing.Step(make=lambda: None, wait=wait)
        watch = Watched()
        samples = timing.block(step, watch, timing.Length(steps=3))
        _, span = timing.one(step, watch)
        has_events = wait is None
        assert (samples.event_ns is not None, span.event_ns is not None) == (has_events,) * 2


# ------------------------------------------------------------------ baselines


def a_baseline(**values: object) -> Baseline:
    key = BaselineKey(
        model="A processor",
        case="gemm",
        workload="gemm",
        version=1,
        parameters={},
        data_pattern="random",
        mode="fresh",
        software={},
        image=None,
        power_limit_watts=None,
    )
    sound = Baseline(
        key=key,
        kind="same_device",
        devices=("cpu:0",),
        num_launches=480,
        num_runs=12,
        run_seconds=3600.0,
        steps=a_level(-4.0, 0.01),
        wall=a_level(-4.0, 0.01),
        smallest_margin=0.02,
        smallest_margin_of_three=0.02,
        bundles=("a" * 64,),
    )
    return replace(sound, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, ""),
        ({"steps": a_level(-4.0, math.inf)}, "launch_sd inf, which must be a positive number"),
        ({"wall": a_level(-4.0, math.nan)}, "launch_sd nan, which must be a positive number"),
        ({"steps": a_level(math.inf, 0.1)}, "log_seconds inf, which is no time of a step"),
        ({"wall": a_level(-4.0, 0.1, run_sd=math.nan)}, "a spread of launches or runs that is no"),
        ({"steps": a_level(-4.0, 0.1, freedom=12)}, "has 12 degrees of freedom of 12 runs"),
        ({"bundles": ()}, "names no device or no bundle"),
        ({"num_launches": 1}, "of 1 launches in 12 runs, which is too few"),
    ],
)
def test_a_baseline_that_no_run_can_give_is_refused(
    values: dict[str, object], sentence: str
) -> None:
    """With a spread without end no launch is slow; with a mean without end none is too slow."""
    baselines = to_json(Baselines(baseline=(a_baseline(**values),)))
    draft = replace(healthy(), others={bundle.BASELINES: baselines})
    files = files_of(draft, development_key())
    if sentence:
        with pytest.raises(EvidenceError, match=sentence):
            bundle.records_of(files)
    else:
        assert len(bundle.records_of(files).baselines.baseline) == 1


# ------------------------------------------------------------------ what the signer chose


def with_files(
    files: dict[str, bytes], version: str, folder: Path, draft: Draft | None = None
) -> Verification:
    """A sound run that was planned with these files by this version of bench.

    It is of a day before this version, so it is held to facts that do not say their day.
    """
    draft = draft or healthy()
    digests = {name.partition(".")[0]: sha256(data) for name, data in files.items()}
    plan = replace(draft.plan, bench_version=version, digests={**draft.plan.digests, **digests})
    made = replace(draft, plan=plan, others=files)
    facts = replace(shipped(), file=replace(shipped().file, released=""))
    signed = sealed(folder, made, development_key())
    return verify(signed, Terms(allow_development=True, facts=facts))


def test_figures_of_vendors_are_those_of_the_same_bench(tmp_path: Path) -> None:
    """A lower peak makes a limit that is a part of it easy, a higher one hides work not done."""
    peak = Peak(
        model="A processor",
        quantity="memory_bytes_per_second",
        value=1.0,
        unit="B/s",
        per="device",
        is_confirmed=True,
        source="the vendor's own",
    )
    files = {bundle.PEAKS: to_json(Peaks(peak=(peak,)))}
    result = with_files(files, VERSION, tmp_path / "same")
    assert (result.exit_code, failed(result)) == (4, ["facts"])
    assert "peaks.json has other figures than the device files" in result.faults[0]
    assert with_files(files, "0.0.1", tmp_path / "other").faults == ()


def test_verify_says_that_the_signer_chose_the_baselines(tmp_path: Path) -> None:
    files = {bundle.BASELINES: to_json(Baselines(baseline=(a_baseline(),)))}
    result = with_files(files, VERSION, tmp_path)
    digest = sha256(files[bundle.BASELINES])
    assert f"baselines chosen by the signer: {digest}" in result.checks[-1].sentence


# ------------------------------------------------------------------ the deterministic phase

REPEAT = "gemm@cpu:0/r2"
MISMATCH = repeated(REPEAT, answer="flipped")


def of_repeat(*events: Event) -> Forge:
    """What this repeat reports instead of its bits."""
    return lambda all_events: [
        new
        for event in all_events
        for new in (events if isinstance(event, Repeated) and event.launch == REPEAT else (event,))
    ]


@pytest.mark.parametrize(
    ("forge", "sentence"),
    [
        (of_repeat(), "completed and does not report its bits in the deterministic phase"),
        (of_repeat(repeated(REPEAT), repeated(REPEAT)), "reports its bits in the deterministic"),
        (of_repeat(MISMATCH), "gave other bits than gemm@cpu:0/r1 and did not repeat them"),
        (
            of_repeat(MISMATCH, examined(REPEAT, *[""] * 101)),
            "did not follow its mismatch by 100 repeats",
        ),
        (
            of_repeat(repeated(REPEAT), checked(REPEAT, "first")),
            "is of the deterministic phase, which neither times nor checks, and does",
        ),
        (
            changed(Started, TIMED, lambda event: (event, repeated(TIMED))),
            "reports repeats, and is not of the deterministic phase",
        ),
        (
            of_repeat(MISMATCH, replace(examined(REPEAT, ""), num_wanted=1)),
            "did not follow its mismatch by 100 repeats",
        ),
        (
            changed(LaunchStarted, REPEAT, lambda event: replace(event, library_mode="default")),
            f"launch {REPEAT} is made in the library mode default",
        ),
    ],
    ids=["no bits", "bits twice", "not examined", "too many", "a check", "timed", "one", "mode"],
)
def test_a_repeat_that_contradicts_itself_is_found(
    forge: Forge, sentence: str, tmp_path: Path
) -> None:
    draft = healthy(repeats=3).with_events(forge)
    result = checks(sealed(tmp_path / "bundle", draft, development_key()))
    assert (result.exit_code, failed(result)) == (4, ["conduct"])
    assert sentence in result.faults[0]


def test_repeats_cannot_be_left_out_of_the_plan(tmp_path: Path) -> None:
    whole = healthy(repeats=3)
    assert checks(sealed(tmp_path / "whole", whole, development_key())).faults == ()
    left = [one for one in whole.plan.launches if one.id != REPEAT]
    groups = [group for group in whole.plan.groups if REPEAT not in group]
    plan = replace(whole.plan, launches=tuple(left), groups=tuple(groups))
    events = [event for event in whole.events if getattr(event, "launch", "") != REPEAT]
    events[-1] = RunEnded(launches=len(left))
    draft = replace(whole, plan=plan, events=tuple(events))
    result = checks(sealed(tmp_path / "left", draft, development_key()))
    assert "case gemm@cpu:0 has not the launches that it says" in result.faults[0]


def test_reference_rates_are_those_of_the_same_bench(tmp_path: Path) -> None:
    """They rule nothing, but a reader compares with them."""
    draft = healthy()
    seen = [observed_case(draft.plan.cases[0], SYSTEM)]
    rates = reference_rates(seen, draft.plan.cases, SYSTEM.identity.devices)
    files = {bundle.QUALIFIED: to_json(Qualified(record=(), rate=rates))}
    result = with_files(files, VERSION, tmp_path / "same", draft)
    assert (result.exit_code, failed(result)) == (4, ["facts"])
    assert "qualified.json has other records than the package" in result.faults[0]
    other = with_files(files, "0.0.1", tmp_path / "other", draft)
    assert other.faults == ()
    assert any(one.startswith("qualified records (made by") for one in other.not_compared)


@pytest.mark.parametrize("change", [{"num_clean": 10**6}, {"stack": {"torch": "2.12.0"}}])
def test_records_of_repeats_are_those_of_the_same_bench(
    change: dict[str, object], tmp_path: Path
) -> None:
    """More clean repeats make a fault of what is transient, and another stack makes it nothing."""
    draft = healthy(repeats=3)
    (record, *_) = records(draft.plan, NOTHING_KNOWN["system"]).record
    known = Qualified(record=(replace(record, **change),))  # type: ignore[arg-type]
    files = {bundle.QUALIFIED: to_json(known)}
    result = with_files(files, VERSION, tmp_path / "same", draft)
    assert (result.exit_code, failed(result)) == (4, ["facts"])
    assert "qualified.json has other records than the package" in result.faults[0]
    other = with_files(files, "0.0.1", tmp_path / "other", draft)
    assert other.faults == ()
    assert any(one.startswith("qualified records (made by") for one in other.not_compared)
