"""Hostile texts and evidence: what a driver, an order or a bundle says can do no harm.

Nothing that cannot be seen reaches a terminal, no text pushes the rest off the page, and counters
or lines of the kernel's log that were taken out, put in or moved are found or count for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Literal

import pytest
from rich.table import Table
from support.builders import FUNCTIONAL, a_case, a_plan, bare_lines, verdict_of, watched_events
from support.bundles import healthy, sealed
from support.purchase_order import HEAD, LINE, NODE
from support.report_samples import sample
from support.watched_runs import ACCELERATOR, DEVICE, PLAN, asking, ruling, system, watching
from support.watched_runs import HEALTHY as NO_ERRORS

from appliance.cli.console import Plain
from appliance.container.container_options import Bind
from appliance.errors import UsageError
from appliance.evidence.device_health import MADE
from appliance.evidence.journal_index import index_of
from appliance.foreign_text import LONGEST, one_line
from appliance.judging.criteria_check import check_health
from appliance.planning import coverage
from appliance.records.criteria import Criteria, Criterion
from appliance.records.journal import (
    Block,
    Counted,
    Event,
    KernelLogged,
    KernelLogRead,
    LaunchStarted,
)
from appliance.records.system import Fact
from appliance.signing.keys import development_key
from appliance.storage import order_file
from appliance.storage.criteria_file import parse_criteria
from appliance.verbs import order_draft, start
from appliance.verbs.run_options import StartOptions
from appliance.verification.terms import Terms
from appliance.verification.verify import verify
from reports import health
from reports.document.view import view

WIPES = "\x1b[2J\x1b[HACCEPTED\r\x08\u202edetpecca\u202c\u200b\x00\udcff"


# ------------------------------------------------------------------ the terminal


def test_nothing_hidden_reaches_the_terminal() -> None:
    shown = one_line(f"a model\n{WIPES}\u2028 of 中文\u00a0°C")
    assert all(sign.isprintable() or sign == "\u00a0" for sign in shown)
    assert shown.startswith("a model[U+000A][U+001B][2J[U+001B][HACCEPTED[U+000D]")
    assert "[U+202E]detpecca[U+202C][U+200B][U+0000][U+DCFF][U+2028] of " in shown
    assert shown.endswith(" of 中文\u00a0°C")
    assert one_line("x" * (LONGEST + 1500)).endswith("... (1,500 more characters)")


def printed(*parts: object) -> str:
    out = Plain(is_error=False)
    out.file = StringIO()
    out.width = 200
    for part in parts:
        out.print(part)
    return str(out.file.getvalue())


def test_lines_and_tables_show_texts_as_they_are() -> None:
    table = Table(box=None)
    table.add_column("case")
    table.add_row(f"[red]x[/red] order:100: {WIPES}")
    output = printed(f"[bold]order:100: {WIPES}", table)
    assert "\x1b" not in output
    assert output.count("order:100: [U+001B][2J") == 2
    assert "[red]x[/red]" in output
    assert "[bold]order" in output


# ------------------------------------------------------------------ orders and criteria


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEAD.replace("an order", "a\\u202eb") + LINE, 'key "name" has a character that cannot'),
        (HEAD.replace("for tests", "a\\u0007") + LINE, 'key "summary" has a character that'),
        (HEAD + LINE.replace('title = "', 'title = "\\n'), "line 1 has a title with a character"),
        (
            HEAD + f'[[line]]\ntitle="t"\nfield="devices.{"x" * 200}"\nop="=="\nvalue=1',
            "no node has",
        ),
        (HEAD + LINE + f"count = {'9' * 5000}\n", "a number of thousands of digits"),
    ],
)
def test_an_order_that_hides_or_floods_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        order_file.read(text.encode(), "order.toml")
    assert len(str(refused.value)) < 400


def test_a_mark_before_the_text_is_no_fault() -> None:
    text = (HEAD + LINE).encode()
    assert order_file.read(b"\xef\xbb\xbf" + text, "o.toml") == order_file.read(text, "o.toml")


def test_only_numbered_devices_have_a_connection() -> None:
    output = (
        HEAD + '[[line]]\ntitle = "t"\nfield = "devices.connection_to_{}"\nop = "=="\nvalue = "x"\n'
    )
    order_file.check_here(order_file.read(output.replace("{}", "7").encode(), "o"), NODE, "o")
    for other in ("<b>", "", "1x"):
        order = order_file.read(output.replace("{}", other).encode(), "o")
        with pytest.raises(UsageError, match="has no"):
            order_file.check_here(order, NODE, "o")


def test_a_draft_of_a_hostile_node_can_be_read() -> None:
    device = replace(NODE.identity.devices[0], model=f"X1 {WIPES[:-1]}")
    node = replace(NODE, identity=replace(NODE.identity, devices=(device,)))
    order = order_file.read(order_draft.draft(node).encode(), "o")
    assert order.summary.isprintable()


@pytest.mark.parametrize("metric", ["ecc_uncorected", "throttle_share_heat", "load", ""])
def test_a_metric_of_health_that_nothing_has_is_refused_before_the_run(metric: str) -> None:
    with pytest.raises(UsageError, match=f'does not judge "{metric}"'):
        check_health(asking(metric), system())


def test_every_metric_of_the_ledger_may_be_asked_for() -> None:
    node = system()
    reported = {
        "card:0_stolen_processors": Fact(value=0),
        "card:0_power": Fact(value=1, unit="watts"),
    }
    node = replace(node, conditions=replace(node.conditions, facts=reported))
    for metric in (*MADE, *NO_ERRORS, "stolen_processors", "power_watts", "temperature_celsius"):
        check_health(asking(metric), node)
    events = watched_events(PLAN, {DEVICE: watching()})
    unknown = {metric for metric in MADE if output(events, metric) == "inconclusive"}
    assert unknown == {"core_use"}  # of a burn-in alone, which says when it was hot


def test_a_limit_of_health_takes_no_unit() -> None:
    text = (
        'schema = "bench/criteria/1"\nname = "n"\nversion = 1\nsummary = "s"\n[[criterion]]\n'
        'id = "hot"\nkind = "health"\ntitle = "t"\nmetric = "power_watts"\nat_most = 0.7\n'
    )
    parse_criteria(text.encode(), "c.toml")
    with pytest.raises(UsageError, match="leave the unit out"):
        parse_criteria(f'{text}unit = "kW"\n'.encode(), "c.toml")


def test_a_plan_says_which_criteria_nothing_can_meet() -> None:
    def of(cases: str, *, required: bool = True) -> Criteria:
        one = Criterion(
            id="fast",
            kind="perf",
            title="Fast",
            cases=cases,
            metric="step_seconds",
            at_most=1.0,
            required=required,
        )
        return replace(FUNCTIONAL, criterion=(*FUNCTIONAL.criterion, one))

    plan = a_plan(a_case())
    (output,) = coverage.unmatched(plan, of("gmm*"))
    assert 'criterion "fast" matches no planned case ("gmm*")' in output
    assert not [*coverage.unmatched(plan, of("gemm*"))]
    assert not [*coverage.unmatched(plan, of("gmm*", required=False))]


# ------------------------------------------------------------------ starting


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e300])
def test_a_time_limit_is_some_seconds(seconds: float) -> None:
    with pytest.raises(UsageError, match="--timeout"):
        StartOptions(timeout=seconds)


@pytest.mark.parametrize("name", ["--privileged", "a b", "a;b", "a\nb", "ä", "x" * 300])
def test_an_image_is_no_option_and_no_command(name: str) -> None:
    with pytest.raises(UsageError, match="--image"):
        StartOptions(image=name)
    StartOptions(image="registry.example:5000/group/bench-cuda:1@sha256:" + "0" * 64)


def test_a_folder_is_no_file_and_a_file_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    wrong = [
        Bind(source=str(tmp_path), target="/in/order/x"),
        Bind(source=str(file), target="/in/data/file"),
    ]
    right = [
        Bind(source=str(tmp_path), target="/in/data/x"),
        replace(wrong[1], target="/in/order/x"),
    ]
    assert [*start._misplaced(wrong)] == [
        f"{tmp_path} is a folder: name a file with --order",
        f"{file} is a file: name a folder with --data",
    ]
    assert not [*start._misplaced(right)]


# ------------------------------------------------------------------ forged evidence


def counted(device: str = "cpu:0", launch: str = "", *, after: bool = False) -> Counted:
    moment: Literal["before", "after"] = "after" if after else "before"
    return Counted(device=device, counters={"ecc_uncorrected": 0}, launch=launch, moment=moment)


def fault(launch: str = "") -> KernelLogged:
    return KernelLogged(
        launch=launch,
        device="cpu:0",
        code="79",
        is_fatal=True,
        meaning="it fell off",
        text="a line",
        sequence=7,
    )


def behind(kind: type[Event], *added: Event) -> Callable[[list[Event]], list[Event]]:
    """Puts these events behind the first of a kind."""

    def forge(events: list[Event]) -> list[Event]:
        place = next(i for i, event in enumerate(events) if isinstance(event, kind)) + 1
        return [*events[:place], *added, *events[place:]]

    return forge


@pytest.mark.parametrize(
    "forge",
    [
        behind(LaunchStarted, counted()),
        behind(Block, counted()),
        behind(LaunchStarted, fault()),
        behind(LaunchStarted, KernelLogRead(boot="b", sequence=1)),
        lambda events: [events[0], counted("gpu:7"), *events[1:]],
        lambda events: [events[0], counted(launch="gemm@cpu:0/1", after=True), *events[1:]],
        lambda events: [events[0], counted(launch="other@cpu:0/1"), *events[1:]],
        lambda events: [events[0], fault("other@cpu:0/1"), *events[1:]],
    ],
    ids=["running", "timing", "log", "mark", "device", "early", "launch", "log of none"],
)
def test_counters_and_logs_out_of_their_place_are_found(
    forge: Callable[[list[Event]], Sequence[Event]], tmp_path: Path
) -> None:
    folder = sealed(tmp_path, healthy().with_events(forge), development_key())
    result = verify(folder, Terms(allow_development=True))
    assert result.exit_code == 4
    assert [check.name for check in result.checks if check.status == "fail"] == ["conduct"]


def sick() -> list[Event]:
    return watched_events(PLAN, {DEVICE: watching({"ecc_uncorrected": 2})})


def output(events: list[Event], metric: str = "ecc_uncorrected", cases: str = "*") -> str:
    verdict = verdict_of(PLAN, events, asking(metric, cases=cases), system=system())
    return ruling(verdict, "asked").ruling


def test_no_count_that_is_taken_out_makes_a_sick_card_pass() -> None:
    events = sick()
    assert output(events) == "fail"
    places = [i for i, event in enumerate(events) if isinstance(event, Counted)]
    for place in places:  # one of them
        assert output([*events[:place], *events[place + 1 :]]) != "pass"
    for place in places:  # all from one on, and all of one launch
        rest = [e for i, e in enumerate(events) if i < place or not isinstance(e, Counted)]
        assert output(rest) != "pass"
        launch = getattr(events[place], "launch", "")
        others = [e for e in events if not isinstance(e, Counted) or e.launch != launch]
        assert output(others) != "pass"
        assert output(others, cases="gemm") != "pass"


def test_a_kernel_log_that_was_not_read_to_the_end_says_nothing() -> None:
    events = watched_events(PLAN, {DEVICE: watching()})
    assert output(events, "kernel_faults") == "pass"
    marks = [i for i, event in enumerate(events) if isinstance(event, KernelLogRead)]
    early = [*events[: marks[-1]], *events[marks[-1] + 1 :]]
    early.insert(marks[0], events[marks[0]])  # two marks, and none of them behind a launch
    assert output(early, "kernel_faults") == "inconclusive"


def test_counts_of_another_card_do_not_count_for_this_one() -> None:
    swapped = [
        replace(event, device="card:1") if isinstance(event, Counted) else event for event in sick()
    ]
    assert output(swapped) == "inconclusive"


# ------------------------------------------------------------------ the pages


def test_the_page_shows_what_was_not_read_to_the_end() -> None:
    def shown(events: list[Event]) -> tuple[str, str]:
        lines = bare_lines(events)
        result = health.chapter(ACCELERATOR, system().identity.devices, index_of(PLAN, lines))
        (device,) = result.devices
        assert device.counters is not None
        (row,) = [row for row in device.counters.rows if row[0] == "ECC uncorrected"]
        return row[3], result.kernel.notes[0]

    assert shown(sick()) == ("+2", "none was logged")
    cut = [e for e in sick() if not isinstance(e, Counted) or e.launch]
    marks = [i for i, event in enumerate(cut) if isinstance(event, KernelLogRead)]
    del cut[marks[-1]]
    assert shown(cut) == ("at least +2", "not observed: the log was not read")
    calm = watched_events(PLAN, {DEVICE: watching()})
    assert shown([e for e in calm if not isinstance(e, Counted) or e.launch])[0] == "not reported"


def test_a_long_name_leaves_room_for_the_rest() -> None:
    bundle = sample(num_devices=8)
    long = tuple(
        replace(device, model="</td><script>" + "X" * 10_000, serial="Y" * 10_000)
        for device in bundle.system.identity.devices
    )
    system_ = replace(bundle.system, identity=replace(bundle.system.identity, devices=long))
    order = order_file.read(
        (
            HEAD + '[[line]]\ntitle = "t"\nfield = "devices.model"\nop = "=="\nvalue = "X1"\n'
        ).encode(),
        "order.toml",
    )
    page = view(replace(bundle, system=system_, order=order))
    assert len(page.subject) < 200
    assert page.order is not None
    (row,) = page.order.rows
    assert row.ruling == "fail"
    assert len(row.actual) < 400
    assert row.actual.endswith("characters)")
    texts = [cell for row_ in page.certificate.devices.rows for cell in row_]
    assert max(map(len, texts)) < 200
    assert len(page.certificate.devices.notes[0]) < 200
