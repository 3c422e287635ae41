"""Orders: every line is met, not met or not known; never met by default, and refused if unclear."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import replayed_nvml, replayed_rocm, replayed_xpu, trees
from support.builders import FUNCTIONAL, NO_BASELINES, NO_PEAKS, a_plan, bare_lines, healthy_events
from support.program import ROOT, bench, called, sentences
from support.purchase_order import DISK, GIB, HEAD, LINE, NODE, accelerator

from appliance.errors import EvidenceError, UsageError
from appliance.judging import order_match
from appliance.judging.verdict import judge
from appliance.probe import node as probe
from appliance.records.json import Scalar
from appliance.records.order import Order, OrderLine
from appliance.records.system import Device, Fact, System
from appliance.records.verdict import RulingWord, Verdict
from appliance.records.vocabulary import FACTS
from appliance.storage import bundle, criteria_file, order_file, order_values, units
from appliance.vendors.cpu import Cpu
from appliance.verbs import order_draft

TINY = str(ROOT / "tests" / "suites" / "tiny.toml")


def line(field: str, op: str, value: object, **others: object) -> OrderLine:
    written = {"title": "A line", "field": field, "op": op, "value": value, **others}
    text = "\n".join(f"{key} = {json.dumps(item)}" for key, item in written.items())
    head = 'name = "an order"\nsummary = "for tests"\n[[line]]\n'
    return order_file.read(f"{head}{text}\n".encode(), "order.toml").line[0]


def order_of(*lines: OrderLine) -> Order:
    return Order(name="an order", summary="for tests", line=lines)


def ruled(one: OrderLine, system: System = NODE) -> order_match.Matched:
    (result,) = order_match.match(order_of(one), system)
    return result


# ------------------------------------------------------------------ one line


@pytest.mark.parametrize(
    ("field", "op", "value", "others", "expected"),
    [
        ("devices.count", "==", 4, {}, "pass"),
        ("devices.count", ">=", 8, {}, "fail"),
        ("devices.model", "==", "Accelerator X1", {}, "pass"),
        ("devices.model", "==", "accelerator x1", {}, "fail"),
        ("devices.model", "in", ["Accelerator X1", "Accelerator X2"], {}, "pass"),
        ("devices.model", "in", ["Accelerator X2"], {}, "fail"),
        ("devices.model", "matches", "Accelerator X[0-9]", {}, "pass"),
        ("devices.model", "matches", "Accelerator", {}, "fail"),
        ("devices.memory_bytes", ">=", 80, {"unit": "GiB"}, "pass"),
        ("devices.memory_bytes", ">=", 81920, {"unit": "MiB"}, "pass"),
        ("devices.memory_bytes", ">=", 85.9, {"unit": "GB"}, "fail"),
        ("devices.memory_bytes", "<=", 85.9, {"unit": "GB"}, "pass"),
        ("devices.memory_bytes", ">=", 85.89934592, {"unit": "GB"}, "pass"),
        ("devices.memory_bytes", ">=", 85.89934593, {"unit": "GB"}, "fail"),
        ("devices.memory_bytes", "in", [40, 80], {"unit": "GiB"}, "pass"),
        ("devices.driver", ">=", "580.65.6", {}, "pass"),
        ("devices.driver", ">=", "580.65.06.1", {}, "fail"),
        ("devices.driver", ">=", "575", {}, "pass"),
        ("devices.link_bytes_per_second", ">=", 25, {"unit": "GB/s"}, "pass"),
        ("devices.serial", "in", ["S0", "S1", "S2", "S3"], {}, "pass"),
        ("devices.serial", "==", "S0", {"count": 1}, "pass"),
        ("devices.serial", "==", "S9", {"count": 1}, "fail"),
        ("devices.memory_type", "==", "HBM3", {}, "inconclusive"),
        ("host.memory", ">=", 128, {"unit": "GiB"}, "pass"),
        ("host.memory", ">=", 129, {"unit": "GiB"}, "fail"),
        ("host.kernel", ">=", "6.9", {}, "pass"),
        ("host.virtual_machine", "==", False, {}, "pass"),
        ("host.virtual_machine", "==", True, {}, "fail"),
        ("host.system_product", "==", "P", {}, "inconclusive"),
        ("memory_modules.count", "==", 2, {}, "pass"),
        ("memory_modules.size", "==", 64, {"unit": "GiB"}, "pass"),
        ("memory_modules.size", "==", 64, {"unit": "GB"}, "fail"),
        ("disks.model", "==", "A disk", {}, "fail"),
        ("disks.model", "==", "A disk", {"count": 1}, "pass"),
        ("disks.model", "==", "A disk", {"count": 2}, "fail"),
        ("disks.size", ">=", 3.84, {"unit": "TB"}, "pass"),
        ("disks.serial", "==", "X", {}, "inconclusive"),
        ("interfaces.count", "==", 2, {}, "inconclusive"),
        ("interfaces.driver", "==", "x", {}, "inconclusive"),
        ("interfaces.driver", "==", "x", {"count": 1}, "inconclusive"),
        ("interfaces.link_state", "==", "up", {}, "fail"),
        ("interfaces.link_state", "==", "up", {"count": 1}, "pass"),
        ("interfaces.link_speed", ">=", 400, {"unit": "Gbit/s"}, "inconclusive"),
        ("interfaces.link_speed", ">=", 400, {"unit": "Gbit/s", "count": 1}, "pass"),
        ("interfaces.link_speed", ">=", 400, {"unit": "Gbit/s", "count": 2}, "inconclusive"),
        ("interfaces.link_speed", ">=", 400, {"unit": "Gbit/s", "count": 3}, "fail"),
        ("software.torch", ">=", "2.9", {}, "pass"),
        ("conditions.link_b", "==", "down", {}, "pass"),
    ],
)
def test_a_line_is_met_or_not_or_not_known(
    field: str, op: str, value: object, others: dict[str, object], expected: RulingWord
) -> None:
    one = line(field, op, value, **others)
    order_file.check_here(order_of(one), NODE, "order.toml")
    answer = ruled(one).draft
    assert answer.ruling == expected
    assert (answer.reason == "") is (expected == "pass")
    assert bool(answer.action) is (expected != "pass")


def with_devices(*devices: Device) -> System:
    return replace(NODE, identity=replace(NODE.identity, devices=devices))


def test_one_device_that_is_another_fails_the_line_and_is_named() -> None:
    other = replace(accelerator(2), memory_bytes=64 * GIB)
    node = with_devices(accelerator(0), accelerator(1), other)
    result = ruled(line("devices.memory_bytes", ">=", 80, unit="GiB"), node)
    assert result.draft.ruling == "fail"
    assert result.draft.explanation == (
        "A line: vendor:2 is 64 GiB (1 of 3), where at least 80 GiB was ordered"
    )
    assert (result.ordered, result.actual) == ("at least 80 GiB", "2 x 80 GiB, 1 x 64 GiB")


def test_one_device_that_does_not_tell_leaves_the_line_open() -> None:
    node = with_devices(accelerator(0), accelerator(1, driver=None))
    answer = ruled(line("devices.driver", ">=", "1"), node).draft
    assert answer.ruling == "inconclusive"
    assert answer.explanation == "A line: devices.driver of vendor:1 is not known: no"
    assert ruled(line("devices.driver", ">=", "1", count=1), node).draft.ruling == "pass"
    assert ruled(line("devices.driver", ">=", "1", count=2), node).draft.ruling == "inconclusive"


def test_parts_that_are_not_there_are_never_met() -> None:
    none = replace(NODE.identity, disks=(), host={**NODE.identity.host, "disks": Fact(value=0)})
    node = replace(NODE, identity=none)
    result = ruled(line("disks.model", "matches", ".*"), node)
    assert (result.draft.ruling, result.actual) == ("fail", "none")
    assert ruled(line("devices.model", "matches", ".*"), with_devices()).draft.ruling != "pass"
    listed_short = replace(NODE.identity, disks=(DISK,))
    short = replace(NODE, identity=listed_short)
    assert ruled(line("disks.model", "==", "A disk"), short).draft.ruling == "inconclusive"


def test_a_model_that_could_not_be_read_is_not_known() -> None:
    unread = replace(
        accelerator(0), model="unknown processor", facts={"model": Fact(value=None, hint="no")}
    )
    one = line("devices.model", "==", "unknown processor")
    assert ruled(one, with_devices(unread)).draft.ruling == "inconclusive"


def test_what_cannot_be_compared_is_never_met() -> None:
    """On another node than the order was checked for, as a judge may meet it."""
    for one in (
        line("devices.vbios", ">=", "1"),
        line("devices.num_links", "==", "18"),
        line("devices.driver", ">=", 5),
        line("devices.driver", "==", 5, unit="W"),
        line("host.memory", ">=", 1),
        line("host.nothing", "==", 1),
        line("devices.nothing", "==", 1),
    ):
        assert ruled(one).draft.ruling == "inconclusive", one


def test_a_wrong_count_says_that_devices_are_dies_of_modules() -> None:
    devices = replayed_rocm.vendor("mi250x").probe()
    node = replace(NODE, identity=replace(NODE.identity, devices=devices))
    assert ruled(line("devices.count", "==", 2), node).draft.ruling == "pass"
    wrong = ruled(line("devices.count", "==", 1), node).draft
    assert wrong.ruling == "fail"
    assert "devices.count is 2 (each device is one of 2 dies of a module)" in wrong.explanation
    other = ruled(line("devices.count", "==", 1)).draft
    assert "each device is" not in other.explanation


# ------------------------------------------------------------------ comparing


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=5), st.integers(0, 3))
def test_a_version_is_the_same_with_zeros_behind_it(parts: list[int], zeros: int) -> None:
    text = ".".join(map(str, parts))
    longer = text + ".0" * zeros
    assert order_values.holds(">=", text, "", longer, "")
    assert order_values.holds("<=", text, "", longer, "")


@given(
    st.lists(st.integers(0, 99), min_size=3, max_size=3),
    st.lists(st.integers(0, 99), min_size=3, max_size=3),
)
def test_versions_are_ordered_part_by_part_as_numbers(one: list[int], other: list[int]) -> None:
    left, right = (".".join(map(str, parts)) for parts in (one, other))
    assert order_values.holds(">=", left, "", right, "") is (one >= other)


@given(st.integers(0, 2**50), st.sampled_from(sorted({"B", "kB", "GB", "KiB", "MiB", "GiB"})))
def test_bytes_are_compared_exactly_in_every_unit(amount: int, unit: str) -> None:
    factor = int(units.UNITS[unit][1])
    for result in (amount * factor - 1, amount * factor, amount * factor + 1):
        assert order_values.holds(">=", result, "bytes", amount, unit) is (
            result >= amount * factor
        )
        assert order_values.holds("==", result, "bytes", amount, unit) is (
            result == amount * factor
        )


def test_a_decimal_is_the_one_that_was_written() -> None:
    assert order_values.exact(0.1) == Fraction(1, 10)
    assert order_values.holds("==", 300_000_000, "bytes", 0.3, "GB")


@pytest.mark.parametrize("text", ["", "v1", "1.", ".1", "1..2", "1-2", "1.2a", "-1", "1.2 "])
def test_what_is_no_version_has_no_order(text: str) -> None:
    assert order_values.version(text) is None
    assert order_values.holds(">=", text, "", "1", "") is None


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+",
        "(a|a)*b",
        "(a){9}",
        r"(a)\1",
        "(?=a)a",
        "(?P<name>a)",
        "(?i)a",
        "a*a*a*a*b",
        "a?" * 4,
        "(a|a)" * 9,
        "[",
        "(",
        "a)",
        "*a",
        "a**",
        "[[:alpha:]]",
        "[a||b]",
        "",
        "a" * 201,
        "\\",
    ],
)
def test_patterns_that_could_take_for_ever_or_are_none_are_refused(pattern: str) -> None:
    assert order_values.pattern_fault(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "Accelerator X[0-9]+.*",
        "(?:HGX|DGX) (H100|H200)( 80GB)",
        r"Intel\(R\) .*8[45]80\+?",
        r"\d{1,3}\.\d{2}",
        "[^]]-[a-z\\d]",
    ],
)
def test_patterns_that_people_write_are_taken(pattern: str) -> None:
    assert order_values.pattern_fault(pattern) == ""


@pytest.mark.parametrize(
    "pattern",
    ["(a|a)" * 8 + "(a*)(a*)(a*)[^a]", "(a*)(a*)(a*)" + "(a|a)" * 8 + "[^a]", "a*?a*?a*?[^a]"],
)
def test_the_worst_pattern_that_is_taken_ends_soon(pattern: str) -> None:
    assert order_values.pattern_fault(pattern) == ""
    begin = time.process_time()
    assert order_values.holds("matches", "a" * order_values.LONGEST_TEXT, "", pattern, "") is False
    assert time.process_time() - begin < 10.0
    assert (
        order_values.holds("matches", "a" * (order_values.LONGEST_TEXT + 1), "", pattern, "")
        is None
    )


# ------------------------------------------------------------------ what is refused


BAD = {
    "no lines": (HEAD, "orders nothing"),
    "empty list": (HEAD + "line = []\n", "orders nothing"),
    "no TOML": ("[[line", "is not TOML"),
    "unknown key": (HEAD + LINE + "requird = false\n", 'unknown key "requird" of line 1'),
    "unknown key, near": (HEAD + LINE + "requird = false\n", 'did you mean "required"?'),
    "unknown table": (HEAD + LINE + "[accelerators]\ncount = 8\n", 'unknown key "accelerators"'),
    "no name": ('summary = "s"\n' + LINE, 'key "name" is missing'),
    "no field": (HEAD + '[[line]]\ntitle = "t"\nop = "=="\nvalue = 1\n', '"field" of line 1'),
    "no title": (HEAD + LINE.replace('"Memory"', '" "'), "line 1 needs a title"),
    "long title": (HEAD + LINE.replace("Memory", "M" * 121), "line 1 needs a title of 1 to 120"),
    "long name": (HEAD.replace("an order", "n" * 121) + LINE, 'key "name" must have 1 to 120'),
    "no summary": (HEAD.replace("for tests", " ") + LINE, 'key "summary" must have'),
    "many lines": (HEAD + LINE * 501, "at most 500"),
    "many values": (
        HEAD + LINE.replace(">=", "in").replace("64", str(list(range(101)))),
        "more than 100 values",
    ),
    "unknown part": (HEAD + LINE.replace("host.", "hots."), 'did you mean "host"?'),
    "no part": (HEAD + LINE.replace("host.memory", "memory"), "begins with no part"),
    "no fact": (HEAD + LINE.replace("host.memory", "host"), "needs a name behind a dot"),
    "unknown field of a part": (HEAD + LINE.replace("host.memory", "disks.sise"), '"size"?'),
    "unknown op": (HEAD + LINE.replace('">="', '"=>"'), '"op" of line 1 cannot be "=>"'),
    "unknown unit": (HEAD + LINE.replace('"GiB"', '"Gib"'), 'did you mean "GiB"?'),
    "unit of another kind": (
        HEAD + LINE.replace("host.memory", "devices.memory_bytes").replace("GiB", "GHz"),
        'is in B, and the order writes it in "GHz"',
    ),
    "no unit": (
        HEAD + LINE.replace("host.memory", "disks.size").replace('unit = "GiB"\n', ""),
        "is in B, and the order names no unit",
    ),
    "unit of a text": (HEAD + LINE.replace("64", '"64"'), "leave the unit out"),
    "unit of a count": (HEAD + LINE.replace("host.memory", "devices.count"), "has no unit"),
    "count that is a text": (
        HEAD + '[[line]]\ntitle = "t"\nfield = "devices.count"\nop = "=="\nvalue = "8"\n',
        "is a number",
    ),
    "date": (HEAD + LINE.replace("64", "2026-01-01"), '"value" of line 1'),
    "table": (HEAD + LINE.replace("64", "{ a = 1 }"), '"value" of line 1'),
    "nan": (HEAD + LINE.replace("64", "nan"), '"value" of line 1'),
    "list without in": (HEAD + LINE.replace("64", "[64]"), 'a list goes with op "in"'),
    "in without list": (HEAD + LINE.replace(">=", "in"), "takes a list"),
    "in of nothing": (HEAD + LINE.replace(">=", "in").replace("64", "[]"), "empty list"),
    "in of a mixture": (HEAD + LINE.replace(">=", "in").replace("64", '[1, "2"]'), "mixes"),
    "order of a text": (
        HEAD + LINE.replace("64", '"96.00.5E"').replace('unit = "GiB"\n', ""),
        "only numbers and versions",
    ),
    "order of a boolean": (
        HEAD + LINE.replace("64", "true").replace('unit = "GiB"\n', ""),
        'use "=="',
    ),
    "hostile pattern": (
        HEAD + '[[line]]\ntitle = "t"\nfield = "host.kernel"\nop = "matches"\nvalue = "(a+)+"\n',
        "repeats a group",
    ),
    "count of one value": (HEAD + LINE + "count = 2\n", "is one value"),
    "count below one": (
        HEAD + LINE.replace("host.memory", "disks.size") + "count = 0\n",
        "below 1",
    ),
    "not an order": ('schema = "bench/suite/2"\n' + HEAD + LINE, '"schema"'),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_order_is_refused_in_one_sentence(name: str) -> None:
    text, expected = BAD[name]
    with pytest.raises(UsageError) as refused:
        order_file.read(text.encode(), "order.toml")
    assert str(refused.value).startswith("order.toml")
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (line("devices.memry_type", "==", "HBM"), 'did you mean "memory_type"?'),
        (line("host.memori", "==", "x"), 'did you mean "memory"?'),
        (line("software.zzz", "==", "x"), 'software has no "zzz"'),
        (line("devices.driver", ">=", 580.65), "write it in quotation marks"),
        (line("devices.num_links", "==", "18"), "is a number (18), and the order has a text"),
        (line("devices.vbios", ">=", "96"), 'is "96.00.5E" here'),
        (line("host.memory", ">=", 64), "the order names no unit"),
        (line("host.memory", ">=", 64, unit="W"), 'is in B, and the order writes it in "W"'),
        (line("devices.num_links", ">=", 64, unit="W"), "has no unit"),
        (line("interfaces.link_speed", ">=", 1, unit="bit/s"), ""),
    ],
)
def test_a_line_without_any_answer_here_is_refused(one: OrderLine, expected: str) -> None:
    if not expected:
        order_file.check_here(order_of(one), NODE, "order.toml")
        return
    with pytest.raises(UsageError) as refused:
        order_file.check_here(order_of(one), NODE, "order.toml")
    assert str(refused.value).startswith('order.toml: line 1 ("A line") has the field')
    assert expected in str(refused.value)
    assert len(str(refused.value)) < 500


def test_no_criterion_may_be_named_like_a_line_of_an_order() -> None:
    text = (
        'name = "n"\nversion = 1\nsummary = "s"\n[[criterion]]\nid = "order:1"\n'
        'kind = "completion"\ntitle = "t"\n'
    )
    with pytest.raises(UsageError, match="order:1"):
        criteria_file.parse_criteria(text.encode(), "criteria.toml")


def test_the_table_of_parts_is_what_the_probe_tells(tmp_path: Path) -> None:
    """Else a field that exists would be refused, or one that does not be taken."""
    root = trees.unpack("xeon_two_sockets", tmp_path / "xeon")
    system = probe.probe((Cpu(root),), root=root, environment={}, window_seconds=0.0)
    identity = system.identity
    listed = {
        "memory_modules": identity.memory_modules,
        "disks": identity.disks,
        "interfaces": identity.interfaces,
    }
    for place, members in listed.items():
        reported = {name: fact.unit for member in members for name, fact in member.items()}
        links = {"link_state": "", "link_speed": "bit/s"} if place == "interfaces" else {}
        assert {**reported, **links} == order_file.PARTS[place][2]
        assert identity.host[order_file.PARTS[place][1]].value == len(members)


def test_every_unit_of_a_fact_has_its_name_in_the_one_table() -> None:
    assert {units.UNITS[name][0] for name in units.FACT_UNITS.values()} == set(
        units.FACT_UNITS.values()
    )
    assert FACTS["link_bytes_per_second"].endswith("bytes per second")


# ------------------------------------------------------------------ the verdict


def judged(order: Order | None, system: System) -> Verdict:
    plan = a_plan()
    return judge(
        plan=plan,
        criteria=FUNCTIONAL,
        lines=bare_lines(healthy_events(plan)),
        baselines=NO_BASELINES,
        peaks=NO_PEAKS,
        system=system,
        order=order,
    )


GOOD = line("host.memory", ">=", 64, unit="GiB")
WRONG = line("devices.memory_bytes", ">=", 141, unit="GiB")
UNKNOWN = line("host.system_product", "==", "P")


@pytest.mark.parametrize(
    ("lines", "word", "decided_by"),
    [
        ((GOOD,), "ACCEPTED", ""),
        ((GOOD, WRONG), "REJECTED", "order:2"),
        ((GOOD, UNKNOWN), "INCONCLUSIVE", "order:2"),
        ((UNKNOWN, WRONG), "REJECTED", "order:2"),
        ((GOOD, replace(WRONG, required=False)), "ACCEPTED", ""),
        ((replace(UNKNOWN, required=False),), "ACCEPTED", ""),
    ],
)
def test_lines_of_the_order_decide_the_verdict(
    lines: tuple[OrderLine, ...], word: str, decided_by: str
) -> None:
    verdict = judged(order_of(*lines), NODE)
    assert (verdict.verdict, verdict.decided_by) == (word, decided_by)
    rulings = [ruling for ruling in verdict.rulings if ruling.criterion.startswith("order:")]
    assert [ruling.criterion for ruling in rulings] == [
        f"order:{number}" for number in range(1, len(lines) + 1)
    ]
    assert [ruling.required for ruling in rulings] == [one.required for one in lines]
    assert "an order" in verdict.scope


def test_without_an_order_nothing_is_said_of_one() -> None:
    verdict = judged(None, NODE)
    assert not [ruling for ruling in verdict.rulings if ruling.criterion.startswith("order:")]
    assert "order" not in verdict.scope


def test_a_wrong_size_is_told_on_its_line() -> None:
    (ruling,) = (one for one in judged(order_of(WRONG), NODE).rulings if one.criterion == "order:1")
    assert (ruling.ruling, ruling.reason) == ("fail", "inventory")
    assert ruling.explanation == (
        "A line: vendor:0 is 80 GiB (4 of 4), where at least 141 GiB was ordered"
    )


# ------------------------------------------------------------------ a reference node


MACHINES = sorted(path.stem for path in trees.MACHINES.glob("*.tree"))


def met(system: System) -> str:
    """The draft of a system's order, which the same system must meet in every line."""
    text = order_draft.draft(system)
    order = order_file.read(text.encode(), "order.toml")
    order_file.check_here(order, system, "order.toml")
    result = order_match.match(order, system)
    assert {one.draft.ruling for one in result} == {"pass"}
    assert len(result) > 5
    return text


@pytest.mark.parametrize("machine", MACHINES)
def test_a_recorded_machine_meets_the_order_drafted_from_it(machine: str, tmp_path: Path) -> None:
    root = trees.unpack(machine, tmp_path / machine)
    system = probe.probe((Cpu(root),), root=root, environment={}, window_seconds=0.0)
    text = met(system)
    private: list[Scalar | None] = [
        fact.value
        for part in (system.identity.host, *system.identity.interfaces, *system.identity.disks)
        for name, fact in part.items()
        if ("serial" in name or name in ("system_uuid", "mac", "node_guid", "address"))
        and fact.value
    ]
    private += [one["serial"].value for one in system.identity.memory_modules]
    private += [system.conditions.facts["hostname"].value]
    assert not [value for value in private if value and f'"{value}"' in text]


VENDORS: dict[str, tuple[Sequence[str], Callable[[str, Path], Sequence[Device]]]] = {
    "nvml": (
        [name for name in replayed_nvml.names() if name != "driver_broken"],
        lambda name, folder: replayed_nvml.vendor(name, folder).probe(),
    ),
    "rocm": (replayed_rocm.NAMES, lambda name, _: replayed_rocm.vendor(name).probe()),
    "xpu": (replayed_xpu.NAMES, lambda name, _: replayed_xpu.vendor(name).probe()),
}
RECORDED = [(vendor, name) for vendor, (names, _) in VENDORS.items() for name in names]


@pytest.mark.parametrize(("vendor", "name"), RECORDED)
def test_recorded_devices_of_every_vendor_meet_the_order_drafted_from_them(
    vendor: str, name: str, tmp_path: Path
) -> None:
    devices = tuple(VENDORS[vendor][1](name, tmp_path / name))
    if not devices:
        pytest.skip("this record has no device")
    text = met(with_devices(*devices))
    private = [device.serial for device in devices if device.serial]
    private += [
        str(fact.value)
        for device in devices
        for key, fact in device.facts.items()
        if key in ("uuid", "pci_address") and fact.value
    ]
    assert not [value for value in private if value in text]


def test_a_node_of_accelerators_meets_its_draft_and_worse_ones_do_not() -> None:
    order = order_file.read(met(NODE).encode(), "order.toml")
    worse: list[Callable[[Device], Device]] = [
        lambda one: replace(one, memory_bytes=79 * GIB),
        lambda one: replace(one, model="Accelerator X0"),
        lambda one: replace(one, facts={**one.facts, "num_links": Fact(value=17)}),
        lambda one: replace(one, facts={**one.facts, "driver": Fact(value="570.1")}),
        lambda one: replace(one, facts={**one.facts, "driver": Fact(value=None)}),
    ]
    for spoil in worse:
        devices = (*NODE.identity.devices[:3], spoil(NODE.identity.devices[3]))
        result = order_match.match(order, with_devices(*devices))
        assert [one.draft.ruling for one in result if one.draft.ruling != "pass"], devices[3]
    few = order_match.match(order, with_devices(*NODE.identity.devices[:3]))
    assert few[0].draft.ruling == "fail"


def test_different_parts_are_drafted_with_how_many_there_are() -> None:
    connected = tuple(
        replace(one, facts={**one.facts, **{f"connection_to_{n}": Fact(value="Fabric x18")
                                            for n in range(4) if n != one.index}})
        for one in NODE.identity.devices
    )  # fmt: skip
    text = met(with_devices(*connected))
    assert text.count('field = "devices.connection_to_') == 4
    assert text.count("count = 3") == 4
    assert text.count('field = "disks.model"') == 2
    assert "devices.vbios" in text.partition("# Of these nothing is required:")[2]


def test_texts_of_a_draft_are_toml_whatever_a_device_calls_itself() -> None:
    for model in (
        'a "quoted" \\ name',
        "tab\tnew\nline",
        "\x7f\x00",
        "é 😀",
        "]]\n[[line]]",
        "n" * 201,
    ):
        devices = tuple(replace(one, model=model) for one in NODE.identity.devices)
        met(with_devices(*devices))


# ------------------------------------------------------------------ files and the command line


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An order of this machine, written by the program itself."""
    path = tmp_path_factory.mktemp("order") / "order.toml"
    done = bench("probe", "--as-order", str(path), "--vendor", "cpu")
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    return path


@pytest.fixture(scope="module")
def wrong(here: Path) -> Path:
    """The same order with twice the memory."""
    text = here.read_text()
    at = text.index('field = "host.memory"')
    begin = text.index("value = ", at) + len("value = ")
    end = text.index("\n", begin)
    path = here.with_name("wrong.toml")
    path.write_text(f"{text[:begin]}{float(text[begin:end]) * 2}{text[end:]}")
    return path


def test_a_draft_is_printed_or_written_once(here: Path) -> None:
    printed = called("probe", "--as-order", "--vendor", "cpu")
    assert printed.stdout == here.read_text()
    again = called("probe", "--as-order", str(here), "--vendor", "cpu")
    assert again.returncode == 2
    assert "is there already" in again.stderr


def test_plan_says_how_the_node_compares(here: Path, wrong: Path) -> None:
    good = bench("plan", "--suite", TINY, "--vendor", "cpu", "--order", str(here))
    assert good.returncode == 0
    assert "lines are met\n" in good.stderr
    bad = called("plan", "--suite", TINY, "--vendor", "cpu", "--order", str(wrong))
    assert ", 1 is not" in bad.stderr
    assert "Memory of the node" in bad.stderr
    assert bad.returncode == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BAD["unknown key"][0], 'did you mean "required"?'),
        (BAD["unknown op"][0], '"=>"'),
        (BAD["unit of another kind"][0], '"GHz"'),
        (BAD["no lines"][0], "orders nothing"),
        (HEAD + LINE.replace("memory", "memmory"), 'did you mean "memory"?'),
        (HEAD + LINE.replace("64", '"64"').replace('unit = "GiB"\n', ""), "is a number"),
    ],
)
def test_a_bad_order_ends_before_anything_is_written(
    text: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "order.toml").write_text(text)
    words = ("--suite", TINY, "--vendor", "cpu", "--order", str(tmp_path / "order.toml"))
    done = called("accept", *words, "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(sentences(done.stderr)) == 1
    assert not list((tmp_path / "out").glob("*"))


def test_an_order_that_is_not_there_is_one_sentence() -> None:
    done = bench("plan", "--order", "nowhere.toml")
    assert done.returncode == 2
    assert "nowhere.toml cannot be read" in done.stderr


def run_with(order: Path, out: Path) -> tuple[subprocess.CompletedProcess[str], Path]:
    words = ("--suite", TINY, "--vendor", "cpu", "--order", str(order), "--out", str(out))
    done = bench("accept", *words, "--json")
    (folder,) = (path for path in out.iterdir() if path.is_dir() and path.name[0] != ".")
    return done, folder


@pytest.mark.slow
def test_a_node_as_ordered_is_accepted_and_verified_with_the_order(
    here: Path, wrong: Path, tmp_path: Path
) -> None:
    done, folder = run_with(here, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (folder / "order.toml").read_bytes() == here.read_bytes()
    sound = bench("verify", str(folder), "--allow-dev", "--order", str(here))
    assert sound.returncode == 0, sound.stderr
    assert "made for your order.toml" in sound.stderr
    pdf = called("verify", str(folder / "report.pdf"), "--allow-dev", "--order", str(here))
    assert pdf.returncode == 0, pdf.stderr
    other = called("verify", str(folder), "--allow-dev", "--order", str(wrong))
    assert other.returncode == 4
    (folder / "order.toml").write_bytes(wrong.read_bytes())
    assert called("verify", str(folder), "--allow-dev").returncode == 4
    (folder / "order.toml").unlink()
    assert called("verify", str(folder), "--allow-dev").returncode == 4


@pytest.mark.slow
def test_a_wrong_memory_size_is_refused_on_its_line(wrong: Path, tmp_path: Path) -> None:
    done, folder = run_with(wrong, tmp_path)
    assert done.returncode == 1, done.stderr
    verdict = json.loads(done.stdout)["verdict"]
    failed = [one for one in verdict["rulings"] if one["ruling"] == "fail"]
    assert [(one["criterion"], one["reason"]) for one in failed] == [
        (verdict["decided_by"], "inventory")
    ]
    assert "Memory of the node: host.memory is" in failed[0]["explanation"]
    again = called("verify", str(folder), "--allow-dev", "--order", str(wrong), "--json")
    assert again.returncode == 1
    assert json.loads(again.stdout)["verdict"] == "REJECTED"
    page = (folder / "report.html").read_text()
    assert "Ordered and found" in page
    assert "lines are met, 1 is not" in page
    bad = (folder / "order.toml").read_text().replace("==", "=>")
    (folder / "order.toml").write_text(bad)
    with pytest.raises(EvidenceError, match="op"):
        bundle.read(folder)


def test_the_example_of_the_documentation_is_an_order() -> None:
    page = (ROOT / "docs" / "how-to" / "orders.md").read_text()
    (example,) = re.findall("```toml\n(.*?)```", page, re.DOTALL)
    order = order_file.read(example.encode(), "orders.md")
    assert len(order.line) == 12
    assert {one.op for one in order.line} == {"==", ">=", "in", "matches"}
    assert [one.draft.ruling for one in order_match.match(order, NODE)].count("pass") == 1
