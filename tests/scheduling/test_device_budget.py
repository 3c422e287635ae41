"""The budget of suites on the recorded device follows from its journals."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import measured_stages  # noqa: E402 - the same
import overlapped  # noqa: E402 - after the path
import repeated_inputs  # noqa: E402 - the same
import write_device_budget as budget  # noqa: E402 - the same

from appliance.scheduling.step_rates import assumed_step_seconds  # noqa: E402 - the same
from appliance.worker import timing  # noqa: E402 - the same
from appliance.worker.workload_loader import load_workload  # noqa: E402 - the same


def test_page_is_up_to_date() -> None:
    assert budget.PAGE.read_text() == budget.page(), "run make generate"


def test_parts_of_a_recorded_launch_are_within_its_time_and_nearly_fill_it() -> None:
    launches = budget.journal("smoke").launches
    assert len(launches) == 33
    for one in launches.values():
        assert one.is_forked
        parts = one.environment + one.build + one.first_step + one.digest + one.warm_up
        parts += sum(one.checks.values()) + one.calibrate + one.second_build + one.block + one.end
        assert 0.0 < parts <= one.wall + 0.1
        assert one.wall - parts < 0.35  # comparing clocks, and what is between two records


def test_launches_of_a_case_are_its_parts_added_up() -> None:
    case = budget.Parts(
        name="case",
        build=1.0,
        first_step=2.0,
        digest=4.0,
        check=8.0,
        last_check=16.0,
        calibrate=32.0,
        useful=64.0,
        extra=128.0,
        how="",
    )
    around = budget.forked_setup() + budget.ending()
    assert case.repeat == pytest.approx(around + 7.0)
    assert case.untimed == pytest.approx(around + 7.0 + 40.0 + 128.0)
    assert case.timed == pytest.approx(around + 7.0 + 40.0 + 64.0)
    assert case.whole(5) == pytest.approx(case.untimed + 5 * case.timed + 16.0)


def test_every_case_of_node_is_in_the_sum_and_drawn_ones_have_today_s_parts() -> None:
    parts = {one.name: one for one in budget.node_parts()}
    assert len(parts) == len(budget.planned("node"))
    measured = json.loads(budget.PARTS.read_text())["node"]["cases"]
    today = {
        "inputs counted, check measured",
        "build and check measured",
        "written as recorded, opened as measured",
    }
    assert {one.how for one in parts.values() if one.name in measured} == today
    assert {name for name, one in parts.items() if one.how not in today} == {"launch-latency"}
    assert "gemm-bf16-alone" not in parts  # which one device always is
    # Three sets of two operands of 16 bits are written at least once.
    written = 6 * 8192**2 * 2
    assert parts["gemm-bf16"].build * budget.memory_rate() > 2 * written


def test_the_file_of_a_disk_s_case_is_written_by_its_untimed_launch_alone() -> None:
    (disk,) = [one for one in budget.node_parts() if one.name == "disk-sequential"]
    (launch,) = budget.journal("node-2").of("disk-sequential", is_timed=False)
    assert disk.extra == launch.build
    assert disk.extra > 100 * disk.build


def test_a_shared_reference_is_made_twice_and_another_in_each_launch() -> None:
    rows = {row.name: row for row in budget.acceptance_rows()}
    assert rows["pna"].num_references(5) == 2
    assert rows["reformer"].num_references(5) == 7
    assert rows["convnext_large-tf32-fp16"].num_references(5) == 2
    assert rows["bert-tf32-fp16"].num_references(5) == 7


def test_a_step_that_nobody_timed_is_as_a_plan_assumes_it() -> None:
    row = next(one for one in budget.acceptance_rows() if one.name == "llm-lora-single")
    case = next(one for one in budget.planned("acceptance") if one.workload == "llm_lora")
    assert not row.is_measured
    assert row.step == assumed_step_seconds(case, budget.MODEL)


def test_a_build_is_beside_another_launch_where_the_device_holds_twice_that_and_it() -> None:
    def launches(earlier: float | None, later: float | None) -> list[overlapped.Timed]:
        return [
            overlapped.Timed(case=case, head=4.0, middle=1.0, tail=9.0, held=held)
            for case, held in (("b", later), ("a", earlier), ("b", later))
        ]

    each = 1 - overlapped.alone(14.0)
    for earlier, later, beside in ((0.3, 0.3, 4.0), (0.4, 0.3, 0.5), (None, 0.1, 0.5)):
        seconds = overlapped.saved(launches(earlier, later), setup=0.5)
        assert seconds == pytest.approx(each * (0.5 + beside))


def test_the_longest_step_is_made_as_often_as_the_rule_says() -> None:
    (row,) = [row for row in budget.acceptance_rows() if row.step > 10.0]
    assert row.useful == pytest.approx((3 + 20) * row.step)


def test_of_two_launches_the_longer_of_an_end_and_a_start_counts() -> None:
    def timed(case: str, head: float, tail: float, *, is_reference: bool = False) -> object:
        return overlapped.Timed(
            case=case, head=head, middle=7.0, tail=tail, is_reference=is_reference
        )

    reference, first, second = (
        timed("a", 4.0, 5.0, is_reference=True),
        timed("a", 4.0, 3.0),
        timed("b", 2.0, 1.0),
    )
    each = 1 - overlapped.alone(10.0)
    # A case's first launch sets its device up alone, as nobody knows what it holds.
    assert overlapped.saved([first, second, first], setup=0.5) == pytest.approx(each * (0.5 + 1.0))
    # Who reads what the untimed launch reports waits for its end.
    assert overlapped.saved([reference, first], setup=0.5) == 0.0
    assert overlapped.saved([reference, second], setup=0.5) == pytest.approx(each * 0.5)


def test_a_launch_is_parted_without_loss() -> None:
    for one in budget.node_parts():
        made = (one.of_untimed(), one.of_timed(), one.of_timed(checks_last=True), one.of_repeat())
        assert all(min(each.head, each.middle, each.tail) >= 0.0 for each in made)
        assert sum(each.whole for each in made) == pytest.approx(
            one.untimed + 2 * one.timed + one.last_check + one.repeat
        )


@pytest.mark.parametrize("name", sorted(budget.LATER))
def test_outputs_that_the_budget_checks_later_may_be(name: str) -> None:
    assert load_workload(name).checks_later


def test_parts_of_smoke_are_recorded_stages_but_for_operations_that_builds_lose() -> None:
    first, second = (
        measured_stages.run("smoke", host)
        for host in (measured_stages.FIRST, measured_stages.SECOND)
    )
    parts = {one.name: one for one in budget.smoke_parts()}
    cases = {case.id.partition("@")[0] for case in budget.planned("smoke")}
    assert set(parts) == cases == first.cases() | {one for one in cases if one.startswith("onnx_")}
    for name in first.cases():
        builds = statistics.median(one.of("build") for one in first.launches if one.case == name)
        lost = budget.operation_seconds() * budget.fewer_operations(name)
        assert 0.0 <= lost < builds
        assert 0.0 < parts[name].build <= builds - lost
        share = budget.between_hosts(name)
        checks = second.each(name, "timed", "check")
        assert parts[name].check == pytest.approx(share * statistics.median(checks))
        assert parts[name].last_check == pytest.approx(share * max(checks))
        assert parts[name].digest >= first.typical(name, "timed", "digest")
    assert {one.how for name, one in parts.items() if name in first.cases()} == {"measured"}


def test_of_a_recorded_comparison_of_repeated_inputs_today_s_rule_makes_less_than_half() -> None:
    """Of `llama` on both hosts, whose steps are drawn; no other case of the record has one."""
    for host in (measured_stages.FIRST, measured_stages.SECOND):
        run = measured_stages.run("smoke", host)
        assert set(run.repeated) == {"llama"}
        then, today = repeated_inputs.steps_then_and_today("llama", host)
        assert then == 48
        assert 14 < today < then / 2
        assert repeated_inputs.steps_then_and_today("bert", host) == (0, 0.0)


def test_an_operation_of_a_build_is_taken_for_the_least_that_one_of_a_step_takes() -> None:
    each = {name: budget.of_step(name) for name in budget.HOST_BOUND}
    assert budget.addition_seconds() < budget.operation_seconds() == min(each.values())
    # Of a build that the second host made with few operations it is what that took, at most.
    second = measured_stages.run("smoke", measured_stages.SECOND)
    (digits,) = [one for one in budget.smoke_parts() if one.name == "digits_mlp"]
    assert digits.build < second.typical_of_all("digits_mlp", "build") * 1.001


def test_a_kind_of_operation_is_taken_for_the_least_that_one_took_in_a_first_step() -> None:
    run = measured_stages.run("smoke")
    product = run.typical("gemm-fp32", "timed", "first_step")
    kinds = json.loads(budget.OPERATIONS.read_text())["kinds"]
    for name in budget.HOST_BOUND:
        loaded = (
            run.typical(name, "timed", "first_step")
            - product
            - budget._step_seconds(name, measured_stages.FIRST)
        )
        assert len(kinds["timed"][name]) * budget.kind_seconds() <= loaded * 1.001
    assert (
        budget.fewer_kinds("gemm-fp32", "timed") == budget.fewer_kinds("gemm-fp32", "before") == 4
    )
    assert budget.fewer_kinds("resnet50", "timed") == 0
    # Nothing that a step uses is taken off a build: the kinds of both are counted together.
    assert all(set(kinds["today"][name]) <= set(kinds["timed"][name]) for name in kinds["timed"])


def test_checks_of_the_first_host_take_no_less_of_the_second_s_than_steps_do() -> None:
    steps = [
        budget._step_seconds(name, measured_stages.FIRST)
        / budget._step_seconds(name, measured_stages.SECOND)
        for name in budget.HOST_BOUND
    ]
    assert max(steps) < budget.between_hosts("bert") < 1.0 == budget.between_hosts("gemm-fp32")


def test_launches_of_a_second_begin_alone_less_often_than_longer_ones() -> None:
    assert overlapped.alone(0.9) == 1 / 23
    assert overlapped.alone(2.5) == overlapped.alone(35.0) == 1 / 9


def test_clocks_are_compared_over_spans_as_long_as_the_worker_makes_them() -> None:
    """Each span of a recorded launch, whose end comes as late as it did, by `timing`'s own rule."""
    for one in measured_stages.run("smoke").launches:
        for open_seconds in one.opens[1:]:
            stopwatch = Opened(open_seconds)
            (span, *_) = timing.compare_clocks(stopwatch.work, stopwatch, 15_000_000)
            expected = measured_stages.span(0.005, open_seconds)
            assert span.wall_ns == pytest.approx(1e9 * expected, rel=0.02)


class Opened:
    """Clocks of a host that is held up for half as long at each mark, and work of 10 us."""

    def __init__(self, open_seconds: float) -> None:
        self.at, self.held = 0, round(0.5e9 * open_seconds)

    def now(self) -> int:
        return self.at

    raw = now

    def synchronise(self) -> None:
        pass

    def mark(self) -> int:
        self.at += self.held
        return self.at

    def between(self, begin: int, end: int) -> int:
        return end - begin

    def work(self) -> None:
        self.at += 10_000
