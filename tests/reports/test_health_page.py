"""The report's chapter on health: what it shows of a sick card, of a healthy one, and of gaps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.builders import SYSTEM, Watching, a_case, a_plan
from support.health_chapters import chapter
from support.watched_runs import ACCELERATOR, CALM, DEVICE, HEALTHY, fault, watching

from appliance.evidence.journal_index import index_of
from reports import health, plots
from reports.model import Grid, HealthChapter


def row(result: HealthChapter, name: str) -> tuple[str, ...]:
    (device,) = result.devices
    rows = [*(device.counters.rows if device.counters else ())]
    rows += [*(device.load.rows if device.load else ())]
    (one,) = [one for one in rows if one[0] == name]
    return one


def test_what_grew_stands_with_the_launch_in_which_it_did() -> None:
    result = chapter(watching({"ecc_uncorrected": 2, "thermal_violation_ns": 1_500_000_000}))
    assert row(result, "ECC uncorrected") == ("ECC uncorrected", "0", "2", "+2", "gemm@card:0/2")
    assert row(result, "Thermal violation")[1:4] == ("0 s", "1.500 s", "+1.500 s")
    assert row(result, "Links down")[3:] == ("—", "a state: at worst 0")


def test_throttling_is_told_by_reason() -> None:
    hot = {"throttled_thermal": 1.0, "throttled_power_cap": 1.0, "graphics_clock_hertz": 1e9}
    result = chapter(watching(values=hot))
    assert row(result, "Slowed down: thermal")[1] == "60 %"
    assert row(result, "Slowed down: power cap")[1] == "60 %"
    assert row(result, "Slowed down for other reasons")[1] == "0 %"
    assert row(result, "Clock below the highest")[1] == "34 %"
    assert row(chapter(watching()), "Slowed down")[1] == "0 %"
    assert row(chapter(watching()), "PCIe lanes")[1:] == ("16", "the part has 16")


def test_what_a_capped_device_draws_stands_with_its_limit() -> None:
    capped = {"throttled_power_cap": 1.0, "power_watts": 630.0}
    shown = chapter(Watching(counters=lambda _: HEALTHY, values=lambda _: {**CALM, **capped}))
    name = "Power drawn while its limit held it back"
    assert row(shown, name)[1:] == ("90 %", "of its limit of 700 W, the mean of 5 readings")
    with pytest.raises(ValueError, match="not enough values"):
        row(chapter(watching()), name)


def test_gaps_stand_in_one_list_by_what_would_allow_them() -> None:
    one = Watching(
        counters=lambda _: {**HEALTHY, "ecc_uncorrected": None, "resets": None, "links_down": None},
        values=lambda _: CALM,
        hints={"ecc_uncorrected": "run as root", "resets": "run as root"},
        absent=("links_down",),
    )
    result = chapter(one, None)
    assert result.gaps is not None
    assert result.gaps.rows == (
        ("ECC uncorrected, Resets", DEVICE, "run as root"),
        ("Kernel log", DEVICE, "add --device /dev/kmsg"),
    )
    assert "Links down" in result.devices[0].notes[0]
    unread = replace(one, absent=(), hints={})
    assert "Links down" in (chapter(unread).gaps or Grid(columns=(), rows=())).rows[0][0]
    with pytest.raises(ValueError, match="not enough values"):
        row(chapter(unread), "Links down")  # of the only device it stands there alone
    assert result.kernel.notes == ("not observed: add --device /dev/kmsg",)
    assert chapter(watching()).gaps is None


def test_faults_of_the_kernels_log_stand_once_for_each_kind() -> None:
    reported = tuple(fault("Xid 79", is_fatal=True) for _ in range(1))
    result = chapter(watching(), reported)
    assert result.kernel.grid is not None
    assert result.kernel.grid.rows == (
        (DEVICE, "Xid 79 (fatal)", "1", "between launches", "it fell off: a line"),
    )
    assert chapter(watching()).kernel.notes == ("none was logged",)


def test_a_run_that_nobody_watched_is_not_said_to_be_healthy() -> None:
    plan = a_plan(a_case())
    result = health.chapter(ACCELERATOR, SYSTEM.identity.devices, index_of(plan, ()))
    assert result.kernel.notes == ("not observed: the log was not read",)
    assert result.gaps is not None
    assert result.devices[0].counters is None


@pytest.mark.parametrize("points", [(), ((1.0, 5.0),), ((1.0, 5.0), (1.0, 6.0))])
def test_a_trace_without_a_course_is_not_drawn(points: tuple[tuple[float, float], ...]) -> None:
    assert plots.traces("t", (plots.Trace(label="x", points=points),)) == ""


def test_a_trace_has_its_ends_as_numbers_and_stays_on_the_page() -> None:
    many = tuple((0.01 * i, 50.0 + i % 7) for i in range(5000))
    drawn = plots.traces("t", (plots.Trace(label="Power, W", points=many),))
    assert ">50.00<" in drawn
    assert ">56.00<" in drawn
    assert len(drawn) < 12_000
    flat = plots.traces("t", (plots.Trace(label="x", points=((0.0, 3.0), (1.0, 3.0))),))
    assert "nan" not in flat
