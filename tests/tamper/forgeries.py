"""Forgeries: one defect each, built by code of a genuine run, with what verify must say of it.

`FORGERIES` are refused, or leave the verdict open; `OPEN` pass today, because their owner holds the
key and nothing that is read contradicts them.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal

from support.forger import Data, Forgery
from support.program import STEPS, TINY

from appliance.generator import maps
from appliance.generator.drawing import Drawn, checksum
from appliance.planning.plan import case_seed, checked_launch, launch_groups
from appliance.records.json import from_json, sha256, to_json
from appliance.records.plan import Plan
from appliance.storage import bundle, suite_file
from appliance.verification.terms import Expectations
from appliance.version import RELEASED

Reason = Literal[
    "integrity",
    "untrusted",
    "stale",
    "rendering",
    "contradiction",
    "not re-derived",
    "not compared",
]
Build = Callable[[Forgery], None]
ANYTHING = Expectations()
SUITE = Expectations(suite=TINY)
OF_STEPS = Expectations(suite=STEPS)


@dataclass(frozen=True, kw_only=True)
class Defect:
    """What is wrong, which check finds it, why, and a part of the sentence that says so.

    `attack` is the number that attacks.py has for it.

    `check` is empty for what is found by no check, but listed as not compared. `of_steps`: it is
    made of the run of many short steps.
    """

    build: Build
    check: str
    reason: Reason
    says: str
    attack: int
    expectations: Expectations = ANYTHING
    of_steps: bool = False


@dataclass(frozen=True, kw_only=True)
class Open:
    """What passes today, of which attack, and whether it is made of the run of many short steps."""

    build: Build
    attack: int
    of_steps: bool = False


FORGERIES: dict[str, Defect] = {}
OPEN: dict[str, Open] = {}


def refused(
    check: str,
    reason: Reason,
    says: str,
    expectations: Expectations = ANYTHING,
    *,
    attack: int,
    of_steps: bool = False,
) -> Callable[[Build], Build]:
    """Enter a forgery that verify refuses, or of which it states no verdict."""

    def enter(build: Build) -> Build:
        FORGERIES[build.__name__] = Defect(
            build=build,
            check=check,
            reason=reason,
            says=says,
            attack=attack,
            expectations=expectations,
            of_steps=of_steps,
        )
        return build

    return enter


def passes(*, attack: int, of_steps: bool = False) -> Callable[[Build], Build]:
    """Enter a forgery that is known and open."""

    def enter(build: Build) -> Build:
        OPEN[build.__name__] = Open(build=build, attack=attack, of_steps=of_steps)
        return build

    return enter


# ------------------------------------------------------------------ figures that it is judged by


def peaks_times(forgery: Forgery, factor: int) -> None:
    with forgery.record(bundle.PEAKS) as peaks:
        assert peaks["peak"], "this node's processor has no peak figures"
        for one in peaks["peak"]:
            one["value"] *= factor


def work_times(forgery: Forgery, factor: int) -> None:
    with forgery.plan() as plan:
        for case in plan["cases"]:
            case["work"]["flops"] *= factor
            case["work"]["units"] *= factor


@refused(
    "facts",
    "contradiction",
    "its units is 3.0, and of its workload at these parameters 1.0",
    attack=8,
)
def operations_and_units_times_three(forgery: Forgery) -> None:
    work_times(forgery, 3)


@refused(
    "", "not compared", "operations and units of gemm@cpu:0, gemm_exact@cpu:0", SUITE, attack=8
)
def another_release_with_twice_the_operations(forgery: Forgery) -> None:
    work_times(forgery, 2)  # more might be beyond what the processor can do
    with forgery.plan() as plan:
        plan["bench_version"] = "0.3.9"


@refused("facts", "contradiction", "peaks.json has other figures than the device files", attack=8)
def a_peak_of_ones_own(forgery: Forgery) -> None:
    with_a_peak(forgery)


@refused("", "not compared", "peak figures (made by bench 0.3.9, compared with", SUITE, attack=8)
def another_release_with_a_peak_of_ones_own(forgery: Forgery) -> None:
    with_a_peak(forgery)
    with forgery.plan() as plan:
        plan["bench_version"] = "0.3.9"


def with_a_peak(forgery: Forgery) -> None:
    (device, *_) = json.loads(forgery.files[bundle.SYSTEM])["identity"]["devices"]
    with forgery.record(bundle.PEAKS) as peaks:
        peaks["peak"] = [
            {
                "model": device["model"],
                "quantity": "float32_flops_per_second",
                "value": 1e15,
                "unit": "FLOP/s",
                "per": "device",
                "is_confirmed": True,
                "source": "the vendor's own",
            }
        ]


# ------------------------------------------------------------------ checks


def numeric(event: Data) -> bool:
    return event["kind"] == "checked" and event["check"]["kind"] == "numeric"


@refused(
    "facts",
    "contradiction",
    "to 1e+09, and at these parameters that is 2e-05 in every run",
    attack=10,
)
def wrong_outputs_within_bounds_without_end(forgery: Forgery) -> None:
    for event in filter(numeric, forgery.events("checked")):
        event["check"] |= {"error": 3.7, "bound": 1e9}


def bounds_times(forgery: Forgery, factor: float) -> None:
    for event in filter(numeric, forgery.events("checked")):
        event["check"]["bound"] *= factor


@refused(
    "facts",
    "contradiction",
    "to 4e-05, and at these parameters that is 2e-05 in every run",
    attack=10,
)
def a_bound_twice_as_wide(forgery: Forgery) -> None:
    bounds_times(forgery, 2)


@refused("facts", "contradiction", "and at these parameters that is 2e-05 in every run", attack=10)
def a_bound_wider_by_a_part_in_a_million(forgery: Forgery) -> None:
    bounds_times(forgery, 1.000001)


@refused("", "not compared", "names and bounds of checks of gemm_exact@cpu:0", SUITE, attack=10)
def wrong_bits_that_are_allowed(forgery: Forgery) -> None:
    for event in forgery.events("checked"):
        if event["check"]["name"] == "elements that differ from the exact product":
            event["check"] |= {"error": 1, "bound": 1}


@refused(
    "facts", "contradiction", 'lacks the check "all rows, random projection" of its ', attack=10
)
def a_check_that_no_launch_makes(forgery: Forgery) -> None:
    forgery.drop(lambda event: numeric(event) and event["check"]["name"].startswith("all rows"))


@refused("conduct", "contradiction", "drew inputs and did not check them", attack=10)
def no_first_output_checked(forgery: Forgery) -> None:
    forgery.drop(lambda event: event["kind"] == "checked" and event["phase"] == "first")


@refused(
    "facts", "contradiction", 'lacks the check "inputs as drawn" of its first output', attack=10
)
def no_input_recorded(forgery: Forgery) -> None:
    forgery.drop(
        lambda event: (
            event["kind"] == "inputs_drawn"
            or (event["kind"] == "checked" and event["check"]["name"] == "inputs as drawn")
        )
    )


@refused("verdict", "contradiction", "verdict.json does not follow from the journal", attack=10)
def no_last_output_checked(forgery: Forgery) -> None:
    forgery.drop(lambda event: event["kind"] == "checked" and event["phase"] == "last")
    forgery.is_judged = False


@refused("conduct", "contradiction", "checked step", attack=10)
def the_last_output_of_another_step(forgery: Forgery) -> None:
    for event in forgery.events("checked"):
        if event["phase"] == "last":
            event["step"] -= 1


# ------------------------------------------------------------------ words


@refused("facts", "contradiction", "its summary is 'Certified on 8 x NVIDIA H100'", attack=13)
def a_summary_of_ones_own(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["cases"][0]["summary"] = "Certified on 8 x NVIDIA H100"


@refused("conduct", "contradiction", "is no version of bench", attack=13)
def words_in_the_place_of_a_version(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["bench_version"] = "0.9.0, certified"


@refused("conduct", "contradiction", "system.json lists a device twice", attack=15)
def a_device_that_is_listed_twice(forgery: Forgery) -> None:
    with forgery.record(bundle.SYSTEM) as system:
        system["identity"]["devices"] *= 2


@refused("records", "integrity", "has more than 1,500,000 values, as no run has", attack=14)
def so_many_values_that_they_take_all_memory(forgery: Forgery) -> None:
    values = b"[" + b"[]," * 1_000_000 + b"[]]"
    forgery.after = lambda files: {**files, bundle.SYSTEM: values}


@refused(
    "expectations",
    "contradiction",
    "calls suite tiny otherwise than it calls itself",
    SUITE,
    attack=13,
)
def a_summary_of_the_suite_of_ones_own(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["suite_summary"] = "The acceptance suite, passed in full"


@refused(
    "expectations",
    "contradiction",
    "calls suite tiny otherwise than it calls itself",
    SUITE,
    attack=11,
)
def a_suite_that_calls_itself_another(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["suite"] = "acceptance"


@refused(
    "",
    "not compared",
    "cases of the suite: name its file to have them compared",
    Expectations(suite=sha256(suite_file.load_suite(TINY)[1])),
    attack=11,
)
def a_suite_by_its_digest_alone(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["cases"][0]["time_limit_seconds"] = 61


@refused(
    "expectations",
    "contradiction",
    "case gemm@cpu:0 is not planned as suite tiny says",
    SUITE,
    attack=11,
)
def another_limit_than_the_suite_has(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["cases"][0]["time_limit_seconds"] = 61


# ------------------------------------------------------------------ records


@refused("conduct", "contradiction", "its bounds are not those that its criteria need", attack=14)
def a_limit_less(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["num_limits"] += 1


@refused("conduct", "contradiction", "plan.json names other files than it was made with", attack=11)
def a_plan_of_no_suite(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        del plan["digests"]["suite"]


@refused("verdict", "contradiction", "verdict.json does not follow from the journal", attack=14)
def a_flipped_verdict(forgery: Forgery) -> None:
    forgery.is_judged = False
    for event in filter(numeric, forgery.events("checked")):
        event["check"]["error"] = 1.0


@refused("conduct", "contradiction", "has block", attack=12)
def a_block_that_was_left_out(forgery: Forgery) -> None:
    for event in forgery.events("block")[:1]:
        event["index"] = 1


@refused("conduct", "contradiction", "while it does not run", attack=14)
def a_launch_that_never_started(forgery: Forgery) -> None:
    name = forgery.events("launch_started")[-1]["launch"]
    forgery.drop(lambda event: event["kind"] == "launch_started" and event["launch"] == name)


@refused(
    "conduct",
    "contradiction",
    "journal.jsonl does not begin with this plan on this machine",
    attack=14,
)
def a_run_of_another_name(forgery: Forgery) -> None:
    forgery.lines[0]["event"]["run_id"] = "20300101T000000Z-000000"


@refused("records", "integrity", "is not in canonical form", attack=14)
def a_number_in_another_form(forgery: Forgery) -> None:
    forgery.after = replaced(bundle.SYSTEM, b'"conditions":', b'"conditions" :')


@refused("records", "integrity", "is not in canonical form", attack=14)
def a_key_twice(forgery: Forgery) -> None:
    forgery.after = replaced(bundle.BASELINES, b'{"baseline":[],', b'{"baseline":[],"baseline":[],')


@refused("records", "integrity", "baselines.json", attack=14)
def a_number_that_is_none(forgery: Forgery) -> None:
    forgery.after = replaced(bundle.BASELINES, b'"baseline":[]', b'"baseline":[NaN]')


def replaced(
    name: str, old: bytes, new: bytes
) -> Callable[[Mapping[str, bytes]], dict[str, bytes]]:
    def change(files: Mapping[str, bytes]) -> dict[str, bytes]:
        assert old in files[name]
        return {**files, name: files[name].replace(old, new, 1)}

    return change


# ------------------------------------------------------------------ what passes


@refused("conduct", "stale", "is not what the seed of launch", attack=9)
def replayed_under_a_seed_drawn_afterwards(forgery: Forgery) -> None:
    """As under a later challenge: launches in its order, last checks where it draws them."""
    replay(forgery)


@passes(attack=9)
def replayed_with_the_inputs_of_its_seed(forgery: Forgery) -> None:
    """The same by somebody who draws the inputs, too, as everybody can."""
    seed = replay(forgery)
    cases = {one.id: one for one in plan_of(forgery).cases}
    for event in forgery.events("inputs_drawn"):
        case = cases[event["launch"].rpartition("/")[0]]
        for one in event["inputs"]:
            drawn = Drawn(
                case_seed(seed, case),
                one["name"],
                maps.parse(one["values"]),
                one["dtype"],
                tuple(one["shape"]),
            )
            one["checksum"] = str(checksum(drawn))


def plan_of(forgery: Forgery) -> Plan:
    return from_json(Plan, forgery.files[bundle.PLAN], name=bundle.PLAN)


def replay(forgery: Forgery) -> str:
    """Have the run say that it was made under another seed, which is returned."""
    plan = plan_of(forgery)
    seed = sha256(b"a seed that was drawn after the run")
    cases = []
    for case in plan.cases:
        name = case.id.partition("@")[0]
        number = checked_launch(plan.protocol, name, case.launches, seed, plan.sessions)
        rename(forgery, f"{case.id}/{case.checked_launch}", f"{case.id}/{number}")
        cases.append({**json.loads(to_json(case)), "checked_launch": number})
    groups = launch_groups(plan.cases, plan.launches, seed)
    with forgery.plan() as values:
        values |= {"seed": seed, "cases": cases, "groups": [list(group) for group in groups]}
    reorder(forgery, [launch for group in groups for launch in group])
    return seed


def rename(forgery: Forgery, one: str, other: str) -> None:
    """Give two launches each other's name."""
    names = {one: other, other: one}
    for line in forgery.lines:
        launch = line["event"].get("launch", "")
        line["event"] |= {"launch": names.get(launch, launch)} if launch else {}


def reorder(forgery: Forgery, order: list[str]) -> None:
    """The events of the launches in this order, at the times that stood in their places."""
    places: dict[str, list[Data]] = {name: [] for name in order}
    for line in forgery.lines:
        places.get(line["event"].get("launch", ""), []).append(line)
    chunks = [line for name in order for line in places[name]]
    first = next(number for number, line in enumerate(forgery.lines) if line in chunks)
    begin, rest = forgery.lines[:first], [one for one in forgery.lines[first:] if one not in chunks]
    hashed = [one for one in rest if one["event"]["kind"] == "libraries_hashed"]
    rest = [one for one in rest if one not in hashed]
    timed = next(
        number
        for number, line in enumerate(chunks)
        if line["event"]["launch"].rpartition("/")[2] not in {"0", "r1", "r2", "r3"}
    )
    chunks[timed:timed] = hashed  # due before anything is timed
    forgery.lines = begin + retimed(chunks + rest, int(begin[-1]["monotonic_ns"]))


def retimed(lines: list[Data], begin: int) -> list[Data]:
    """Lines whose clock goes on from `begin`, each launch as long as it was."""
    shift, last, launch = 0, begin, "none yet"
    for line in lines:
        moment, name = int(line["monotonic_ns"]), line["event"].get("launch", "")
        if name != launch or moment + shift < last:
            launch, shift = name, last + 1 - moment
        last = moment + shift
        line["monotonic_ns"] = str(last)
    return lines


@passes(attack=12)
def times_scaled_by_a_thousandth(forgery: Forgery) -> None:
    for event in forgery.events("block"):
        for name in ("wall_ns", "event_ns", "block_wall_ns", "block_raw_ns"):
            event[name] = scaled(event[name])


def scaled(value: object) -> object:
    if isinstance(value, list):
        return [scaled(one) for one in value]
    return value if value is None else str(int(int(str(value)) * 0.999) + 1)


@passes(attack=15)
def another_serial_number(forgery: Forgery) -> None:
    with forgery.record(bundle.SYSTEM) as system:
        system["identity"]["devices"][0]["serial"] = "SN-0815"


@refused("conduct", "contradiction", "were not read after launch", attack=12)
def readings_left_out(forgery: Forgery) -> None:
    forgery.drop(lambda event: event["kind"] == "counted" and event["moment"] == "after")


@refused(
    "facts",
    "contradiction",
    "the counters of cpu:0 were never read, and every run reads",
    attack=12,
)
def all_counters_left_out(forgery: Forgery) -> None:
    forgery.drop(lambda event: event["kind"] == "counted")


@refused("facts", "contradiction", "the kernel's log was never read, and every run", attack=12)
def the_log_of_the_kernel_left_out(forgery: Forgery) -> None:
    forgery.drop(lambda event: event["kind"] in {"kernel_log_read", "kernel_logged"})
    forgery.drop(lambda event: event["kind"] == "not_observed")


@refused("facts", "contradiction", "completed and does not say what it ran in", attack=12)
def what_launches_ran_in_left_out(forgery: Forgery) -> None:
    """Where variables stand that change a library's arithmetic."""
    forgery.drop(lambda event: event["kind"] == "environment")


@refused("facts", "contradiction", "and does not say the times of its stages", attack=12)
def the_times_of_stages_left_out(forgery: Forgery) -> None:
    forgery.drop(lambda event: event["kind"] == "stage_times")


@refused("facts", "contradiction", "was forked of a torch server, and none was probed", attack=12)
def the_probes_of_servers_left_out(forgery: Forgery) -> None:
    forgery.drop(lambda event: event["kind"] == "server_probed")


@passes(attack=12)
def all_counters_said_to_be_unreadable(forgery: Forgery) -> None:
    """As in a virtual machine, where they are, and in its words."""
    unreadable(forgery, hint="neither driver nor hypervisor gives it: run on the host")


@refused("facts", "contradiction", "no counter of cpu:0 could be read, and every run", attack=12)
def all_counters_said_to_be_unreadable_without_a_reason(forgery: Forgery) -> None:
    unreadable(forgery, hint="")


def unreadable(forgery: Forgery, hint: str) -> None:
    """Every counter as None; `hint` says why when the run begins, and stands nowhere if empty."""
    for event in forgery.events("counted"):
        counters = event["counters"]
        event["counters"] = dict.fromkeys(counters)
        if event["hints"]:
            event["hints"] = dict.fromkeys(counters, hint) if hint else {}


@refused("conduct", "contradiction", "journal.jsonl begins 2031-", attack=12)
def a_run_of_another_year(forgery: Forgery) -> None:
    for line in forgery.lines:
        line["utc"] = "2031" + line["utc"][4:]


def moved(forgery: Forgery, change: Callable[[datetime], datetime]) -> None:
    """The run at another time in each of its records."""

    def at(text: str) -> str:
        moment = change(datetime.fromisoformat(text))
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    for line in forgery.lines:
        line["utc"] = at(line["utc"])
    with forgery.record(bundle.SYSTEM) as system:
        system["conditions"]["utc"] = at(system["conditions"]["utc"])
    with forgery.plan() as plan:
        plan["created_utc"] = at(plan["created_utc"])
        begin = change(datetime.strptime(plan["run_id"][:16], "%Y%m%dT%H%M%S%z"))
        plan["run_id"] = f"{begin:%Y%m%dT%H%M%SZ}{plan['run_id'][16:]}"
        forgery.lines[0]["event"]["run_id"] = plan["run_id"]


@refused("conduct", "contradiction", "journal.jsonl begins 2031-", attack=12)
def a_run_of_a_later_year_in_all_of_its_records(forgery: Forgery) -> None:
    moved(forgery, lambda moment: moment.replace(year=2031, day=1))


@refused("facts", "contradiction", "no run of it is older", attack=12)
def a_run_before_its_release_in_all_of_its_records(forgery: Forgery) -> None:
    moved(forgery, lambda moment: moment.replace(year=2025, day=1))


@passes(attack=12)
def a_run_of_another_hour_in_all_of_its_records(forgery: Forgery) -> None:
    moved(forgery, lambda moment: moment - timedelta(hours=1))


@refused("conduct", "contradiction", "is more than a day before the line before it", attack=12)
def clocks_that_alternate_between_two_years(forgery: Forgery) -> None:
    for number, line in enumerate(forgery.lines):
        line["utc"] = (line["utc"][:4], "2031")[number % 2] + line["utc"][4:]


@refused("conduct", "contradiction", "do not pass as its other clock does", attack=12)
def a_time_of_day_that_stands_still(forgery: Forgery) -> None:
    for line in forgery.lines:
        line["utc"] = forgery.lines[0]["utc"]


@refused("conduct", "contradiction", "do not pass as its other clock does", attack=12)
def a_time_of_day_that_runs_backwards(forgery: Forgery) -> None:
    times = [line["utc"] for line in forgery.lines]
    for line, utc in zip(forgery.lines, reversed(times), strict=True):
        line["utc"] = utc


@refused("conduct", "contradiction", "system.json is of 9999-", attack=12)
def a_machine_of_the_year_9999(forgery: Forgery) -> None:
    with forgery.record(bundle.SYSTEM) as system:
        system["conditions"]["utc"] = "9999" + system["conditions"]["utc"][4:]


@refused("conduct", "contradiction", "to the nanosecond", attack=12)
def copies_whose_two_clocks_are_one(forgery: Forgery) -> None:
    copies, blocks = copied(forgery), forgery.events("block")
    for block in blocks:
        block["block_raw_ns"] = block["block_wall_ns"]
    # Another one tells the clocks apart: if it were one of two copies, these would differ.
    others = [one for one in blocks if all(one is not copy for copy in copies)]
    apart = (others or blocks)[0]
    apart["block_raw_ns"] = str(int(apart["block_wall_ns"]) + 17)


@refused("conduct", "contradiction", "in another order", attack=12, of_steps=True)
def copies_in_a_run_whose_two_clocks_are_one(forgery: Forgery) -> None:
    slow_launches_as_copies_of_fast_ones(forgery)
    for block in forgery.events("block"):
        block["block_raw_ns"] = block["block_wall_ns"]


@refused("conduct", "contradiction", "time limit of the suite", attack=12)
def a_gap_of_ten_hours_in_one_clock(forgery: Forgery) -> None:
    middle = len(forgery.lines) // 2
    for line in forgery.lines[middle:]:
        line["monotonic_ns"] = str(int(line["monotonic_ns"]) + 36_000 * 10**9)


@refused("conduct", "contradiction", "plan.json: its run is called 2030", attack=12)
def a_run_id_of_another_year(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["run_id"] = "2030" + plan["run_id"][4:]
        forgery.lines[0]["event"]["run_id"] = plan["run_id"]


@refused("conduct", "contradiction", "to the nanosecond", attack=12)
def slow_launches_as_copies_of_fast_ones(forgery: Forgery) -> None:
    copied(forgery)


def copied(forgery: Forgery) -> list[Data]:
    """Blocks of the commonest length, which have the times of the fastest of them now."""
    blocks = forgery.events("block")
    ((length, _),) = Counter(len(one["wall_ns"]) for one in blocks).most_common(1)
    alike = [one for one in blocks if len(one["wall_ns"]) == length]
    fastest = min(alike, key=lambda one: int(one["block_wall_ns"]))
    for block in alike:
        block |= {name: value for name, value in fastest.items() if name.endswith("_ns")}
    return alike


@passes(attack=12)
def copies_of_a_few_steps_with_other_last_digits(forgery: Forgery) -> None:
    """More than these are found (tests/plausibility/test_near_copies.py)."""
    jittered(forgery, 50, most_steps=8)


@passes(attack=12)
def slow_launches_as_fast_ones_with_noise(forgery: Forgery) -> None:
    """Times that were made up: each differs from that of the fast launch as those of devices do."""
    jittered(forgery, 20_000)


def jittered(forgery: Forgery, most_ns: int, most_steps: int | None = None) -> None:
    """Every block as the fastest, each time later by up to so many nanoseconds.

    With `most_steps`, so many of its steps, and the others as they were.
    """
    own = [list(block["wall_ns"]) for block in forgery.events("block")]
    slow_launches_as_copies_of_fast_ones(forgery)
    rng = random.Random(1)  # noqa: S311 - no secret
    for block, kept in zip(forgery.events("block"), own, strict=True):
        block["wall_ns"] = [str(int(one) + rng.randint(0, most_ns)) for one in block["wall_ns"]]
        if most_steps is not None:
            block["wall_ns"][most_steps:] = kept[most_steps:]
        longer = sum(map(int, block["wall_ns"])) + most_ns
        for name in ("block_wall_ns", "block_raw_ns"):
            block[name] = str(max(longer, int(block[name])) + rng.randint(0, most_ns))


@refused("facts", "contradiction", "is 1e+300 of cpu:0, as of no device", attack=12)
def readings_that_no_device_has(forgery: Forgery) -> None:
    for event in forgery.events("reading"):
        values = event["values"]
        event["values"] = {name: None if one is None else 1e300 for name, one in values.items()}


@refused("facts", "contradiction", "of gemm@cpu:0 is 0 of its bound, and in every", attack=10)
def errors_that_are_all_zero(forgery: Forgery) -> None:
    for event in filter(numeric, forgery.events("checked")):
        event["check"]["error"] = 0.0


@refused("conduct", "contradiction", "as long as the step before them", attack=12, of_steps=True)
def steps_that_all_take_the_same(forgery: Forgery) -> None:
    for block in forgery.events("block"):
        times = [int(one) for one in block["wall_ns"]]
        block["wall_ns"] = [str(sum(times) // len(times))] * len(times)


@refused("conduct", "contradiction", "times a factor", attack=12, of_steps=True)
def blocks_that_are_another_times_a_factor(forgery: Forgery) -> None:
    slow_launches_as_copies_of_fast_ones(forgery)
    for number, block in enumerate(forgery.events("block")):
        factor = 1.0 + 0.003 * number
        block["wall_ns"] = [str(int(int(one) * factor)) for one in block["wall_ns"]]
        for name in ("block_wall_ns", "block_raw_ns"):
            block[name] = str(int(int(block[name]) * factor) + 1)


@refused(
    "conduct", "contradiction", "less than a hundredth of its fastest", attack=12, of_steps=True
)
def warm_up_steps_of_a_nanosecond(forgery: Forgery) -> None:
    """All but one half of them, so that the warm-up is as long as it was, and its median too."""
    for event in forgery.events("warmed"):
        times = sorted(int(one) for one in event["wall_ns"])
        number = (len(times) - 1) // 2
        times[-1] += sum(times[:number]) - number
        event["wall_ns"] = [str(one) for one in [*[1] * number, *times[number:]]]


# ------------------------------------------------------------------ what a run says of itself


def each(forgery: Forgery, kind: str, **values: object) -> None:
    for event in forgery.events(kind):
        event.update(values)


def again(forgery: Forgery, kind: str, **values: object) -> None:
    """A second event of this kind after the first, with other values."""
    place = next(n for n, line in enumerate(forgery.lines) if line["event"]["kind"] == kind)
    line = json.loads(json.dumps(forgery.lines[place]))
    line["event"] |= values
    forgery.lines.insert(place + 1, line)


@refused("conduct", "contradiction", "are no more than a part of them", attack=12)
def steps_of_half_their_time(forgery: Forgery) -> None:
    """In blocks that are as long as they were."""
    for block in forgery.events("block"):
        block["wall_ns"] = [str(int(one) // 2) for one in block["wall_ns"]]


@refused(
    "conduct", "contradiction", "times its steps in whole microseconds", of_steps=True, attack=12
)
def times_rounded_as_by_a_coarse_clock(forgery: Forgery) -> None:
    slow_launches_as_copies_of_fast_ones(forgery)
    for block in forgery.events("block"):
        block["wall_ns"] = [str(round(int(one), -3)) for one in block["wall_ns"]]


@refused("conduct", "contradiction", "does nothing as no time", attack=12)
def timing_that_costs_nothing(forgery: Forgery) -> None:
    each(forgery, "calibrated", empty_ns=["0"] * 5)


@refused("conduct", "contradiction", "completed, and says why it did not", attack=14)
def a_launch_that_completed_by_a_signal(forgery: Forgery) -> None:
    each(forgery, "launch_ended", reason="SIGSEGV", exit_code=139)


@refused("conduct", "contradiction", "completed, and says why it did not", attack=13)
def praise_in_the_place_of_a_cause(forgery: Forgery) -> None:
    each(forgery, "launch_ended", detail="passed with distinction")


@refused("conduct", "contradiction", "bytes of memory, as no process does", attack=14)
def a_launch_of_no_memory(forgery: Forgery) -> None:
    each(forgery, "launch_ended", peak_memory_bytes=-5)


@refused("conduct", "contradiction", "is healthy and says what is wrong with it", attack=13)
def a_healthy_server_with_a_reason(forgery: Forgery) -> None:
    each(forgery, "server_probed", reason="certified by the vendor")


@refused("conduct", "contradiction", "of another boot, and nobody went on with it", attack=12)
def the_log_of_another_boot(forgery: Forgery) -> None:
    forgery.events("kernel_log_read")[-1]["boot"] = "another"


@refused("facts", "contradiction", "was not read to the end of the run", attack=12)
def the_end_of_the_log_left_out(forgery: Forgery) -> None:
    last = forgery.events("kernel_log_read")[-1]
    forgery.drop(lambda event: event is last)


@refused("conduct", "contradiction", "is read, and it says why there is none", attack=12)
def counters_that_nobody_could_read_said_to_be_zero(forgery: Forgery) -> None:
    for event in forgery.events("counted"):
        event["counters"] = dict.fromkeys(event["counters"], 0)
        event["hints"] = dict.fromkeys(event["counters"], "no driver") if event["hints"] else {}


@refused("facts", "contradiction", "is said not to have ecc_corrected", attack=12)
def counters_that_the_device_is_said_not_to_have(forgery: Forgery) -> None:
    """So that a criterion does not apply."""
    first = forgery.events("counted")[0]
    first["counters"] = dict.fromkeys(first["counters"])
    first |= {"absent": sorted({*first["absent"], *first["counters"]}), "hints": {}}


@refused("facts", "contradiction", "a 'certified' is counted of cpu:0, as of no device", attack=13)
def a_counter_of_ones_own(forgery: Forgery) -> None:
    for event in forgery.events("counted"):
        event["counters"] |= {"certified": 1} if event["counters"] else {}


@refused("facts", "contradiction", "a 'teraflops' is read of cpu:0, as of no device", attack=13)
def a_reading_of_ones_own(forgery: Forgery) -> None:
    for event in forgery.events("reading"):
        event["values"]["teraflops"] = 989.0


@refused("conduct", "contradiction", "which does not run on it", attack=15)
def readings_of_a_device_that_is_not_there(forgery: Forgery) -> None:
    again(forgery, "reading", device="cuda:0", values={"power_watts": 700.0})


@refused("conduct", "contradiction", "by a clock of the device that it did not compare", attack=14)
def a_device_that_was_watched_by_no_clock(forgery: Forgery) -> None:
    launch = forgery.events("block")[0]["launch"]
    again(forgery, "block")
    copy = forgery.events("block")[1]
    copy.clear()
    copy |= {"kind": "witnessed", "launch": launch, "rank": 0, "index": 0}
    copy |= {"piece_ns": ["1"] * 20, "issue_ns": "1"}


@refused("facts", "contradiction", "does not say its version of", attack=12)
def what_launches_ran_in_left_empty(forgery: Forgery) -> None:
    each(forgery, "environment", facts={})


@refused("facts", "contradiction", "ran with 9.9.9 as its torch", attack=14)
def another_library_in_the_launches(forgery: Forgery) -> None:
    for event in forgery.events("environment"):
        event["facts"]["torch"]["value"] = "9.9.9"


@refused("facts", "contradiction", "does not say the bits of its first output", attack=10)
def bits_of_first_outputs_left_out(forgery: Forgery) -> None:
    forgery.drop(lambda event: event["kind"] == "digested")


@refused("facts", "contradiction", "system.json says nothing of the host", attack=13)
def a_host_of_which_nothing_is_said(forgery: Forgery) -> None:
    with forgery.record(bundle.SYSTEM) as system:
        system["identity"]["host"] = {}


@refused("facts", "contradiction", "cpu:0 is called otherwise than it was read", attack=15)
def a_memory_that_was_read_otherwise(forgery: Forgery) -> None:
    with forgery.record(bundle.SYSTEM) as system:
        system["identity"]["devices"][0]["memory_bytes"] = 2**50


BEFORE_RELEASE = f"{date.fromisoformat(RELEASED) - timedelta(days=2)}"
"""Of the release itself, as a plan is no older than a year when it is run."""


@refused("facts", "contradiction", f"plan.json is of {BEFORE_RELEASE}", attack=12)
def a_plan_from_before_its_release(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["created_utc"] = f"{BEFORE_RELEASE}T00:00:00Z"


@refused("conduct", "contradiction", "of hours of load or of stress", attack=13)
def hours_of_a_load_that_is_not_there(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["hours"] = 48.0


@refused("conduct", "contradiction", "and this is none of its sums", attack=13)
def words_in_the_place_of_a_redaction(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["redacted"] = "certified"


@refused("facts", "contradiction", "its bound_by is 'memory'", attack=8)
def a_product_that_memory_binds(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["cases"][0]["bound_by"] = "memory"


@refused("expectations", "contradiction", "with other times than its suite has", SUITE, attack=11)
def other_times_than_the_suite_has(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["cases"][0]["reference_seconds"] = 100.0


@refused("expectations", "contradiction", "has a time limit of 1e+06 s", SUITE, attack=11)
def another_limit_of_the_whole_than_the_suite_has(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["time_limit_seconds"] = 1e6


@passes(attack=10)
def what_checks_say_of_themselves(forgery: Forgery) -> None:
    """What they detect, and what it means not to be within: no record has it."""
    for event in forgery.events("checked"):
        event["check"] |= {"detects": 1e-30, "detects_what": "any error", "if_outside": "fail"}


@passes(attack=12)
def a_log_of_the_kernel_said_to_be_unreadable(forgery: Forgery) -> None:
    """As where nobody may read it, and in words like those."""
    first, *others = forgery.events("kernel_log_read")
    forgery.drop(lambda event: any(event is one for one in others))
    first.clear()
    first |= {"kind": "not_observed", "what": "kernel_log", "hint": "it may not be read here"}


@passes(attack=12)
def a_resumption_that_nobody_made(forgery: Forgery) -> None:
    again(forgery, "launch_ended")
    made = forgery.events("launch_ended")[1]
    made.clear()
    made |= {"kind": "run_resumed", "interruption": 1, "interrupted": [], "dropped": "", "pid": 1}


@passes(attack=13)
def facts_of_ones_own(forgery: Forgery) -> None:
    """Of a host anything may be read, and what it is called is not known elsewhere."""
    with forgery.record(bundle.SYSTEM) as system:
        fact = {"value": "passed", "unit": "", "source": "kernel", "hint": ""}
        system["identity"]["host"]["certificate"] = fact


@passes(attack=13)
def another_length_of_the_plan(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["longest_seconds"] = 1.0
