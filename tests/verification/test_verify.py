"""Verify: sound evidence gives its own verdict again, and nothing else passes."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.builders import ended, healthy_server, launch_events, resumed
from support.bundles import (
    CASE,
    CRITERIA,
    Draft,
    analysed,
    files_of,
    healthy,
    html,
    of_vendor,
    pdf,
    rejected,
    seal,
    sealed,
)
from support.known_facts import facts_of

from appliance.errors import EvidenceError, UsageError
from appliance.planning.plan import fresh_controls
from appliance.records.journal import (
    Block,
    Checked,
    Event,
    InterimAnalysis,
    LaunchEnded,
    LaunchStarted,
    RunEnded,
    RunPlanned,
    RunResumed,
    RunStarted,
    ServerProbed,
)
from appliance.records.json import from_json, sha256, to_json
from appliance.records.suite import Framework, LaunchMode
from appliance.records.verdict import Verdict as VerdictRecord
from appliance.signing import dsse, keys, pades
from appliance.signing.keys import Key
from appliance.storage import bundle
from appliance.verification.terms import ANYBODY, Expectations, Terms
from appliance.verification.verify import Verification, difference, verify
from appliance.version import VERSION


@pytest.fixture(scope="module")
def key() -> Key:
    return keys.development_key()


@pytest.fixture(scope="module")
def sound(key: Key, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sealed(tmp_path_factory.mktemp("sound"), healthy(), key)


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def checked(path: Path, expectations: Expectations = ANYBODY.expectations) -> Verification:
    facts = facts_of(healthy().plan)
    return verify(path, Terms(allow_development=True, expectations=expectations, facts=facts))


def status(verification: Verification) -> dict[str, str]:
    return {check.name: check.status for check in verification.checks}


def failed(verification: Verification) -> list[str]:
    """Names of the checks that fail; then no verdict may be stated."""
    names = [check.name for check in verification.checks if check.status == "fail"]
    if names:
        assert (verification.exit_code, verification.verdict) == (4, None)
        assert all(len(fault.splitlines()) == 1 for fault in verification.faults)
    return names


# ------------------------------------------------------------------ sound evidence


def test_folder_gives_its_verdict_again(sound: Path) -> None:
    result = checked(sound)
    assert (result.exit_code, result.verdict, result.claimed) == (0, "ACCEPTED", "ACCEPTED")
    assert set(status(result).values()) == {"pass"}
    assert [check.number for check in result.checks] == list(range(1, 14))
    assert sha256(CRITERIA) in result.checks[-1].sentence


def test_pdf_alone_gives_its_verdict_again(sound: Path, tmp_path: Path) -> None:
    alone = tmp_path / "other name.pdf"
    shutil.copy(sound / "report.pdf", alone)
    result = checked(alone)
    assert (result.exit_code, result.verdict) == (0, "ACCEPTED")
    assert [name for name, word in status(result).items() if word != "pass"] == ["pages"]


def test_run_that_says_how_long_it_was_planned_verifies(key: Key, tmp_path: Path) -> None:
    def said(events: list[Event]) -> list[Event]:
        return [events[0], RunPlanned(wall_ns=3 * 10**9), *events[1:]]

    assert checked(sealed(tmp_path, healthy().with_events(said), key)).exit_code == 0


def test_rejected_run_verifies_with_exit_1(key: Key, tmp_path: Path) -> None:
    folder = sealed(tmp_path, rejected(), key)
    for path in (folder, folder / "report.pdf"):
        result = checked(path)
        assert (failed(result), result.exit_code, result.verdict) == ([], 1, "REJECTED")


def test_run_that_was_resumed_verifies(key: Key, tmp_path: Path) -> None:
    result = checked(sealed(tmp_path, healthy().with_events(interrupted_twice), key))
    assert failed(result) == []
    assert result.verdict == "INCONCLUSIVE"
    assert result.exit_code == 3


def test_untimed_launch_is_made_again_after_an_interruption(key: Key, tmp_path: Path) -> None:
    def made_twice(events: list[Event]) -> list[Event]:
        at = begin(events, 0) + 1
        return [*events[:at], *resumed(1, f"{CASE}/0"), *events[at - 1 :]]

    result = checked(sealed(tmp_path, healthy().with_events(made_twice), key))
    assert (failed(result), result.verdict) == ([], "ACCEPTED")


@pytest.mark.parametrize(
    ("why", "fresh_every", "faults"),
    [("", 0, []), ("forked launches differ", 0, ["conduct"]), ("", 2, ["conduct"])],
)
def test_launch_that_the_plan_wants_fresh_is_not_forked(
    why: str, fresh_every: int, faults: list[str], key: Key, tmp_path: Path
) -> None:
    draft = healthy()
    protocol = replace(draft.plan.protocol, mode="forked", fresh_every=fresh_every)
    cases = tuple(replace(case, fresh_because=why) for case in draft.plan.cases)
    plan = replace(draft.plan, protocol=protocol, cases=cases)
    events = [
        replace(event, mode="forked", framework="torch")
        if isinstance(event, LaunchStarted)
        else event
        for event in draft.events
    ]
    draft = Draft(plan=plan, events=tuple(analysed(plan, events)))
    assert failed(checked(sealed(tmp_path, draft, key))) == faults


@pytest.mark.parametrize(
    ("mode", "framework", "probed_after", "faults"),
    [
        ("fresh", None, "", []),
        ("forked", "torch", "", ["conduct"]),
        ("forked", "jax", "", ["conduct"]),
        ("forked", "torch", "3", []),
        ("forked", "torch", "34", ["conduct"]),
    ],
)
def test_fork_server_that_was_lost_is_used_again_once_it_is_probed_and_no_second_time(
    mode: LaunchMode,
    framework: Framework | None,
    probed_after: str,
    faults: list[str],
    *,
    key: Key,
    tmp_path: Path,
) -> None:
    """Else whoever does not like a launch could end its server, as often as he likes."""
    draft = healthy()
    plan = replace(draft.plan, protocol=replace(draft.plan.protocol, mode="forked"))
    at = begin(draft.events, 3)
    lost = {number for number in (3, 4) if number == 3 or str(number) in probed_after}
    events: list[Event] = []
    for index, event in enumerate(draft.events):
        if isinstance(event, LaunchStarted):
            is_before = index <= at
            events.append(
                replace(
                    event,
                    mode="forked" if is_before else mode,
                    framework="torch" if is_before else framework,
                )
            )
        elif not any(of(event, number) for number in lost):
            events.append(event)
        elif isinstance(event, LaunchEnded):
            number = 3 if of(event, 3) else 4
            events.append(ended(f"{CASE}/{number}", "interrupted", "server_lost"))
            events += [healthy_server()] * (str(number) in probed_after)
    draft = Draft(plan=plan, events=tuple(analysed(plan, events)))
    assert failed(checked(sealed(tmp_path, draft, key))) == faults


@pytest.mark.parametrize(("is_probed", "faults"), [(True, []), (False, ["conduct"])])
def test_server_for_both_library_modes_is_lost_in_both(
    is_probed: bool,  # noqa: FBT001 - a parameter of the test
    faults: list[str],
    key: Key,
    tmp_path: Path,
) -> None:
    """Of a vendor without an environment of its own for repeats one server is probed for both."""
    draft, repeat = healthy(repeats=3), f"{CASE}/r2"
    plan = replace(draft.plan, protocol=replace(draft.plan.protocol, mode="forked"))
    controls = fresh_controls(plan.launches)
    assert repeat not in controls
    events: list[Event] = []
    for event in draft.events:
        if isinstance(event, LaunchStarted) and event.launch not in controls:
            events.append(replace(event, mode="forked", framework="torch"))
        elif getattr(event, "launch", "") != repeat:
            events.append(event)
        elif isinstance(event, LaunchEnded):
            events.append(ended(repeat, "interrupted", "server_lost"))
            events += [healthy_server()] * is_probed
    draft = replace(draft, plan=plan, events=tuple(analysed(plan, events)))
    assert failed(checked(sealed(tmp_path, draft, key))) == faults


@pytest.mark.parametrize(
    ("is_healthy", "ranks", "faults"),
    [(True, 1, []), (False, 1, ["conduct"]), (False, 2, [])],
)
def test_unhealthy_fork_server_makes_no_launch(
    is_healthy: bool,  # noqa: FBT001 - a parameter of the test
    ranks: int,
    faults: list[str],
    key: Key,
    tmp_path: Path,
) -> None:
    draft = healthy()
    plan = replace(draft.plan, protocol=replace(draft.plan.protocol, mode="forked"))
    probed = replace(healthy_server(), is_healthy=is_healthy, ranks=ranks)
    events = [
        replace(event, mode="forked", framework="torch")
        if isinstance(event, LaunchStarted)
        else event
        for event in draft.events
        if not isinstance(event, ServerProbed)
    ]
    draft = Draft(plan=plan, events=tuple(analysed(plan, [events[0], probed, *events[1:]])))
    assert failed(checked(sealed(tmp_path, draft, key))) == faults


@pytest.mark.parametrize(
    ("is_healthy", "mode", "other", "faults"),
    [
        (False, "fresh", "", []),
        (False, "forked", "", ["conduct"]),
        (False, "fresh", "other", ["conduct"]),
        (True, "fresh", "", ["conduct"]),
    ],
)
def test_workload_that_a_server_had_to_leave_out_is_fresh(
    is_healthy: bool,  # noqa: FBT001 - a parameter of the test
    mode: LaunchMode,
    other: str,
    faults: list[str],
    *,
    key: Key,
    tmp_path: Path,
) -> None:
    draft = healthy()
    plan = replace(draft.plan, protocol=replace(draft.plan.protocol, mode="forked"))
    without = (other or plan.cases[0].workload,)
    probed = replace(healthy_server(), is_healthy=is_healthy, without=without)
    framework: Framework | None = "torch" if mode == "forked" else None
    events = [
        replace(event, mode=mode, framework=framework)
        if isinstance(event, LaunchStarted)
        else event
        for event in draft.events
        if not isinstance(event, ServerProbed)
    ]
    events = [events[0], probed, healthy_server(), *events[1:]]
    draft = Draft(plan=plan, events=tuple(analysed(plan, events)))
    assert failed(checked(sealed(tmp_path, draft, key))) == faults


def test_pdf_without_its_journal_is_not_derived_again(key: Key, tmp_path: Path) -> None:
    def without_journal(files: dict[str, bytes]) -> dict[str, bytes]:
        return {name: data for name, data in files.items() if name != bundle.JOURNAL}

    folder = seal(tmp_path, files_of(healthy(), key), key, carried=without_journal)
    assert checked(folder).exit_code == 0
    result = checked(folder / "report.pdf")
    assert (failed(result), result.exit_code, result.verdict) == ([], 3, None)
    assert "rulings not re-derived" in result.checks[5].sentence


# ------------------------------------------------------------------ who signed


def test_untrusted_signer_is_exit_4_though_all_else_is_sound(sound: Path) -> None:
    for path in (sound, sound / "report.pdf"):
        result = verify(path)
        assert failed(result) == ["signer"]
        assert "--allow-dev" in result.faults[0]


def test_signer_is_trusted_by_certificate(tmp_path: Path) -> None:
    key_file, certificate = keys.create_key("Ravel Labs", tmp_path / "keys")
    key = keys.load_key(key_file, certificate)
    folder = sealed(tmp_path / "run", healthy(), key)
    assert failed(verify(folder, Terms(allow_development=True))) == ["signer"]
    assert verify(folder, Terms(trusted=[certificate.read_bytes()])).exit_code == 0
    other = keys.create_key("Ravel Labs", tmp_path / "other")[1].read_bytes()
    assert failed(verify(folder, Terms(trusted=[other]))) == ["signer"]
    with pytest.raises(UsageError, match="--trust"):
        verify(folder, Terms(trusted=[b"no certificate"]))


def test_expired_certificate_is_exit_4(sound: Path) -> None:
    later = datetime.now(UTC) + timedelta(days=30)
    result = verify(sound, Terms(allow_development=True, moment=later))
    assert failed(result) == ["signer"]
    assert "expired" in result.faults[0]


# ------------------------------------------------------------------ changed files


@pytest.mark.parametrize(
    "name", sorted({*bundle.FINISHED_FILES}), ids=lambda name: name.replace(".", "_")
)
def test_one_changed_byte_in_any_file_is_exit_4(name: str, copy: Path) -> None:
    data = (copy / name).read_bytes()
    for position in (0, len(data) // 3, len(data) // 2, len(data) - 1):
        for flip in (1, 32):
            changed = bytearray(data)
            changed[position] ^= flip
            (copy / name).write_bytes(bytes(changed))
            assert failed(checked(copy)), f"{name} at {position}"


def test_one_changed_byte_of_the_pdf_alone_is_exit_4(copy: Path) -> None:
    path = copy / "report.pdf"
    data = path.read_bytes()
    for position in range(len(b"%PDF-"), len(data), 997):
        changed = bytearray(data)
        changed[position] ^= 1
        path.write_bytes(bytes(changed))
        assert failed(checked(path)), position


@pytest.mark.parametrize("name", bundle.FINISHED_FILES)
def test_missing_file_is_exit_4(name: str, copy: Path) -> None:
    (copy / name).unlink()
    assert failed(checked(copy)) == ["files"]


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "order.toml", "logs/gemm-cpu-0.1.stdout"])
def test_file_too_many_is_exit_4(name: str, copy: Path) -> None:
    bundle.write(copy / name, b"")
    result = checked(copy)
    assert failed(result)
    assert name in result.faults[0]


def test_journal_that_was_changed_is_not_parsed(copy: Path) -> None:
    """Which line it is does not matter: what was not signed is not read."""
    path = copy / bundle.JOURNAL
    lines = path.read_bytes().splitlines(keepends=True)
    for changed in (lines[:-1], [*lines[:5], *lines[6:]], [*lines[:-1], lines[-1][:-9]]):
        path.write_bytes(b"".join(changed))
        result = checked(copy)
        assert failed(result) == ["statement"]
        assert status(result)["records"] == status(result)["chain"] == "not_done"


def test_files_of_another_sound_bundle_are_exit_4(copy: Path, key: Key, tmp_path: Path) -> None:
    other = sealed(tmp_path / "other", rejected(), key)
    for name in (bundle.STATEMENT, bundle.REPORT, bundle.PDF, bundle.HTML, bundle.VERDICT):
        mixed = Path(shutil.copytree(copy, tmp_path / f"mixed {name}"))
        shutil.copy(other / name, mixed / name)
        assert failed(checked(mixed)), name


# ------------------------------------------------------------------ forged and signed anew


def test_flipped_verdict_signed_anew_is_found(key: Key, tmp_path: Path) -> None:
    files = files_of(rejected(), key)
    files[bundle.VERDICT] = files[bundle.VERDICT].replace(b"REJECTED", b"ACCEPTED")
    folder = seal(tmp_path, files, key)
    for path in (folder, folder / "report.pdf"):
        result = checked(path)
        assert failed(result) == ["verdict"]
        assert result.claimed == "ACCEPTED"


def test_other_file_than_planned_is_found(key: Key, tmp_path: Path) -> None:
    looser = CRITERIA.replace(b'kind = "numeric"', b'kind = "numeric"\ncases = "none"')
    folder = sealed(tmp_path, replace(healthy(), others={bundle.CRITERIA: looser}), key)
    assert "conduct" in failed(checked(folder))


def test_devices_of_a_vendor_that_bench_does_not_have_are_found(key: Key, tmp_path: Path) -> None:
    """A vendor that a test adds, or a dishonest one, accepts what it likes."""
    result = checked(sealed(tmp_path, of_vendor(healthy(), "faulty.simulated"), key))
    assert failed(result) == ["conduct"]
    assert result.claimed == "ACCEPTED"
    (fault,) = result.faults
    assert 'cpu:0 is of the vendor "faulty.simulated", which bench does not have' in fault


def of(event: Event, number: int) -> bool:
    return getattr(event, "launch", "") == f"{CASE}/{number}"


def begin(events: Sequence[Event], number: int) -> int:
    """Where this launch of the case begins."""
    return next(i for i, e in enumerate(events) if of(e, number) and isinstance(e, LaunchStarted))


def made_again(events: list[Event]) -> list[Event]:
    again = [event for event in events if of(event, 1)]
    at = begin(events, 2)
    return [*events[:at], *again, *events[at:]]


def left_out(events: list[Event]) -> list[Event]:
    return [event for event in events if not of(event, 3)]


def left_out_as_decided(events: list[Event]) -> list[Event]:
    at = begin(events, 3)
    kept = [event for event in events if not of(event, 3)]
    return [*kept[:at], ended(f"{CASE}/3", "not_run", "decided"), *kept[at:]]


def not_planned(events: list[Event]) -> list[Event]:
    return [
        replace(event, launch=f"{CASE}/9") if of(event, 5) else event  # type: ignore[type-var]
        for event in events
    ]


def out_of_order(events: list[Event]) -> list[Event]:
    second = [event for event in events if of(event, 2)]
    at = begin(events, 1)
    return [*events[:at], *second, *[event for event in events[at:] if not of(event, 2)]]


def cut_short(events: list[Event]) -> list[Event]:
    """A launch that was too slow, called interrupted without any interruption."""
    return [
        ended(f"{CASE}/3", "interrupted", "SIGINT")
        if of(event, 3) and isinstance(event, LaunchEnded)
        else event
        for event in events
    ]


def interrupted(events: list[Event], number: int, count: int) -> list[Event]:
    """The parent dies within a launch, and another goes on."""
    at = begin(events, number) + 1
    rest = [event for event in events[at:] if not of(event, number)]
    return [*events[:at], *resumed(count, f"{CASE}/{number}"), *rest]


def interrupted_twice(events: list[Event]) -> list[Event]:
    events = interrupted(interrupted(events, 3, 1), 4, 2)
    return analysed(healthy().plan, events)


def redrawn_after_interruption(events: list[Event]) -> list[Event]:
    at = begin(events, 3) + 1
    again = [event for event in events if of(event, 3)]
    rest = [event for event in events[at:] if not of(event, 3)]
    return [*events[:at], *resumed(1, f"{CASE}/3"), *again, *rest]


def interruption_not_counted(events: list[Event]) -> list[Event]:
    return [
        replace(event, interruption=1) if isinstance(event, RunResumed) else event
        for event in interrupted_twice(events)
    ]


def other_launch_interrupted(events: list[Event]) -> list[Event]:
    return [
        replace(event, interrupted=()) if isinstance(event, RunResumed) else event
        for event in interrupted(events, 3, 1)
    ]


def no_interim_analysis(events: list[Event]) -> list[Event]:
    first = next(
        event for event in events if isinstance(event, InterimAnalysis) and event.case == CASE
    )
    return [event for event in events if event is not first]


def interim_analysis_too_early(events: list[Event]) -> list[Event]:
    first = next(
        event for event in events if isinstance(event, InterimAnalysis) and event.case == CASE
    )
    kept = [event for event in events if event is not first]
    at = begin(kept, 2)
    return [*kept[:at], first, *kept[at:]]


def forked_against_the_plan(events: list[Event]) -> list[Event]:
    return [
        replace(event, mode="forked") if isinstance(event, LaunchStarted) else event
        for event in events
    ]


def another_start(events: list[Event]) -> list[Event]:
    return [events[0], events[0], *events[1:]]


def planned_after_all(events: list[Event]) -> list[Event]:
    return [*events[:-1], RunPlanned(wall_ns=1), events[-1]]


def planned_twice(events: list[Event]) -> list[Event]:
    return [events[0], RunPlanned(wall_ns=1), RunPlanned(wall_ns=1), *events[1:]]


def planned_in_less_than_no_time(events: list[Event]) -> list[Event]:
    return [events[0], RunPlanned(wall_ns=-1), *events[1:]]


def another_machine(events: list[Event]) -> list[Event]:
    assert isinstance(events[0], RunStarted)
    return [replace(events[0], run_id="20260101T000000Z-000000"), *events[1:]]


def no_start(events: list[Event]) -> list[Event]:
    return [healthy_server(), *events[1:]]


def no_end(events: list[Event]) -> list[Event]:
    return events[:-1]


def more_after_the_end(events: list[Event]) -> list[Event]:
    return [*events, healthy_server()]


def other_count(events: list[Event]) -> list[Event]:
    return [*events[:-1], RunEnded(launches=12)]


def recorded_before_its_launch(events: list[Event]) -> list[Event]:
    at = begin(events, 2)
    block = next(event for event in events if of(event, 2) and isinstance(event, Block))
    return [*events[:at], block, *[event for event in events[at:] if event is not block]]


def two_groups_at_once(events: list[Event]) -> list[Event]:
    plan = healthy().plan
    launch = next(item for item in plan.launches if item.id == "bert@cpu:0/2")
    case = next(case for case in plan.cases if case.id == launch.case)
    start = next(iter(launch_events(plan, case, launch)))
    kept = [event for event in events if event != start]
    at = begin(kept, 2) + 1
    return [*kept[:at], start, *kept[at:]]


@pytest.mark.parametrize(
    "forge",
    [
        made_again,
        left_out,
        left_out_as_decided,
        not_planned,
        out_of_order,
        cut_short,
        redrawn_after_interruption,
        interruption_not_counted,
        other_launch_interrupted,
        no_interim_analysis,
        interim_analysis_too_early,
        forked_against_the_plan,
        another_start,
        planned_after_all,
        planned_twice,
        planned_in_less_than_no_time,
        another_machine,
        no_start,
        no_end,
        more_after_the_end,
        other_count,
        recorded_before_its_launch,
        two_groups_at_once,
    ],
)
def test_run_that_was_not_conducted_as_planned_is_found(
    forge: Callable[[list[Event]], list[Event]], key: Key, tmp_path: Path
) -> None:
    folder = sealed(tmp_path, healthy().with_events(forge), key)
    result = checked(folder)
    assert failed(result) == ["conduct"]
    assert {status(result)[name] for name in ("interim analyses", "verdict")} == {"not_done"}
    assert failed(checked(folder / "report.pdf")) == ["conduct"]


def test_launch_after_the_deciding_interim_analysis_is_found(key: Key, tmp_path: Path) -> None:
    def gone_on(events: list[Event]) -> list[Event]:
        plan = rejected().plan
        launch = next(item for item in plan.launches if item.id == f"{CASE}/4")
        made = list(launch_events(plan, plan.cases[0], launch))
        return [part for event in events for part in (made if of(event, 4) else [event])]

    result = checked(sealed(tmp_path, rejected().with_events(gone_on), key))
    assert failed(result) == ["conduct"]
    assert "decided" in result.faults[0]


@pytest.mark.parametrize("draft", [healthy, rejected])
def test_interim_analysis_that_does_not_follow_is_found(
    draft: Callable[[], Draft], key: Key, tmp_path: Path
) -> None:
    def other_reason(events: list[Event]) -> list[Event]:
        return [
            replace(event, reason="decided: nothing to see")
            if isinstance(event, InterimAnalysis)
            else event
            for event in events
        ]

    assert failed(checked(sealed(tmp_path, draft().with_events(other_reason), key))) == [
        "interim analyses"
    ]


def test_stopping_too_early_is_found(key: Key, tmp_path: Path) -> None:
    """The first interim analysis is said to have decided the case, and the rest was left out."""

    def stopped(events: list[Event]) -> list[Event]:
        return [
            replace(event, is_decided=True) if is_first_analysis(event) else event
            for event in rejected().events
            for event in [healed(event)]
        ]

    def is_first_analysis(event: Event) -> bool:
        return isinstance(event, InterimAnalysis) and (event.case, event.launches) == (CASE, 2)

    def healed(event: Event) -> Event:
        if isinstance(event, Checked) and not event.check.is_within:
            return replace(event, check=replace(event.check, error=0.0))
        return event

    assert "interim analyses" in failed(
        checked(sealed(tmp_path, healthy().with_events(stopped), key))
    )


def with_signed(folder: Path, key: Key, name: str, text: bytes) -> Path:
    """The bundle with other bytes of a record, and a statement that is signed over them."""
    outcome = bundle.read(folder)
    signed = dsse.Statement(
        predicate_type=dsse.ACCEPTANCE,
        subjects={one: sha256(old) for one, old in {**outcome.data, name: text}.items()},
        predicate=keys.predicate(outcome),
    )
    (folder / name).write_bytes(text)
    (folder / bundle.STATEMENT).write_bytes(dsse.sign_statement(signed, key))
    return folder


def test_record_that_is_not_written_strictly_is_found(key: Key, tmp_path: Path) -> None:
    folder = seal(tmp_path, files_of(healthy(), key), key)
    loose = (folder / bundle.VERDICT).read_bytes() + b" "
    result = checked(with_signed(folder, key, bundle.VERDICT, loose))
    assert failed(result) == ["report", "records"]
    assert "canonical form" in result.faults[1]


def test_a_plan_that_this_version_cannot_read_names_the_version_that_can(
    key: Key, tmp_path: Path
) -> None:
    folder = seal(tmp_path, files_of(healthy(), key), key)
    plan = json.loads((folder / bundle.PLAN).read_bytes())
    other = json.dumps({**plan, "bench_version": "0.1.0", "unknown": 1}).encode()
    result = checked(with_signed(folder, key, bundle.PLAN, other))
    assert result.faults[1].endswith(
        f"plan.json is by bench 0.1.0 and this is {VERSION}: verify it with that version"
    )


def resign(folder: Path, key: Key) -> None:
    """Sign whatever pages are there."""
    result = bundle.read(folder)
    pages = (bundle.STATEMENT, *bundle.RENDERINGS)
    subjects = {name: sha256(result.files[name]) for name in pages}
    (folder / bundle.REPORT).write_bytes(keys.sign_report(result, subjects, key))


def test_statement_over_too_few_or_too_many_files_is_found(copy: Path, key: Key) -> None:
    result = bundle.read(copy)
    digests = {name: sha256(data) for name, data in result.data.items()}
    fewer = {name: digest for name, digest in digests.items() if name != bundle.JOURNAL}
    more = {**digests, "logs/x.stdout": "0" * 64}
    for subjects in (fewer, more):
        statement = dsse.Statement(
            predicate_type=dsse.ACCEPTANCE,
            subjects=subjects,
            predicate=keys.predicate(result),
        )
        (copy / bundle.STATEMENT).write_bytes(dsse.sign_statement(statement, key))
        resign(copy, key)
        assert failed(checked(copy)) == ["statement"]


def test_statement_that_says_another_verdict_is_found(copy: Path, key: Key) -> None:
    result = bundle.read(copy)
    statement = dsse.Statement(
        predicate_type=dsse.ACCEPTANCE,
        subjects={name: sha256(data) for name, data in result.data.items()},
        predicate={**keys.predicate(result), "verdict": "REJECTED"},
    )
    (copy / bundle.STATEMENT).write_bytes(dsse.sign_statement(statement, key))
    resign(copy, key)
    assert failed(checked(copy)) == ["records", "pages"]


def other_data(files: dict[str, bytes]) -> dict[str, bytes]:
    return {**files, bundle.PEAKS: b"{}"}


def less_data(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name != bundle.PEAKS}


def more_data(files: dict[str, bytes]) -> dict[str, bytes]:
    return {**files, "notes.txt": b"looks fine"}


@pytest.mark.parametrize("carried", [other_data, less_data, more_data])
def test_pages_that_carry_other_files_than_the_bundle_are_found(
    carried: Callable[[dict[str, bytes]], dict[str, bytes]], sound: Path, copy: Path, key: Key
) -> None:
    files = bundle.read(sound).files
    whole = {name: files[name] for name in (*bundle.CARRIED_FILES, bundle.JOURNAL)}
    pages = {
        bundle.HTML: html(carried(whole)),
        bundle.PDF: pades.sign_pdf(pdf(carried(whole)), key, reason="ACCEPTED"),
    }
    for name, page in pages.items():
        (copy / name).write_bytes(page)
        resign(copy, key)
        result = checked(copy)
        assert failed(result) == ["pages"]
        assert name in result.faults[0]
        shutil.copy(sound / name, copy / name)
    (copy / "alone.pdf").write_bytes(pages[bundle.PDF])
    assert failed(checked(copy / "alone.pdf"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda page: page + b"<script>alert(1)</script>",
        lambda page: page.replace(b'id="bench-proof"', b'style="x" id="bench-proof"'),
        lambda page: page + page,
        lambda page: page.replace(b"bench-data", b"bench-else"),
        lambda page: page.replace(b"base64,ey", b"base64,e", 1),
    ],
    ids=["script", "dressed_up", "twice", "no_data", "cut"],
)
def test_html_that_does_not_carry_its_proof_strictly_is_found(
    spoil: Callable[[bytes], bytes], copy: Path, key: Key
) -> None:
    page = (copy / bundle.HTML).read_bytes()
    assert spoil(page) != page
    (copy / bundle.HTML).write_bytes(spoil(page))
    resign(copy, key)
    assert failed(checked(copy)) == ["pages"]


def test_pdf_signed_by_another_key_is_found(copy: Path, key: Key) -> None:
    files = bundle.read(copy).files
    whole = {name: files[name] for name in (*bundle.CARRIED_FILES, bundle.JOURNAL)}
    page = pades.sign_pdf(pdf(whole), keys.development_key(), reason="ACCEPTED")
    (copy / bundle.PDF).write_bytes(page)
    resign(copy, key)
    assert failed(checked(copy)) == ["pages"]
    assert failed(checked(copy / bundle.PDF)) == ["report"]


# ------------------------------------------------------------------ expectations


def test_expectations_are_met_or_a_fault(sound: Path) -> None:
    for met in (
        Expectations(criteria_digest=sha256(CRITERIA)),
        Expectations(criteria_digest=sha256(CRITERIA).upper()),
    ):
        assert checked(sound, met).exit_code == 0
    by_digest = checked(sound, Expectations(suite="5" * 64))
    assert (by_digest.exit_code, by_digest.faults) == (3, ())
    assert by_digest.not_compared == ("cases of the suite: name its file to have them compared",)
    for missed in (
        Expectations(criteria_digest="0" * 64),
        Expectations(suite="0" * 64),
        Expectations(suite="smoke"),
        Expectations(order=b"count = 8"),
        Expectations(challenge=b"{}"),
    ):
        assert failed(checked(sound, missed)) == ["expectations"]


def test_unknown_expected_suite_is_the_users_to_put_right(sound: Path) -> None:
    with pytest.raises(UsageError, match="smoke"):
        checked(sound, Expectations(suite="smok"))


ORDER = b"""name = "an order"
summary = "for tests"
[[line]]
title = "Devices"
field = "devices.count"
op = "=="
value = 1
"""


def ordered(order: bytes, planned: bytes) -> Draft:
    """A healthy run with this order in the bundle, planned with that one."""
    draft = healthy()
    digests = {**draft.plan.digests, "order": sha256(planned)}
    plan = replace(draft.plan, digests=digests)
    return replace(draft, plan=plan, others={bundle.ORDER: order})


def test_order_of_the_buyer_is_found_in_the_bundle(key: Key, tmp_path: Path) -> None:
    folder = sealed(tmp_path, ordered(ORDER, ORDER), key)
    assert checked(folder, Expectations(order=ORDER)).exit_code == 0
    assert checked(folder / "report.pdf", Expectations(order=ORDER)).exit_code == 0
    assert failed(checked(folder, Expectations(order=ORDER + b"\n"))) == ["expectations"]


def test_verdict_is_derived_again_from_the_order(key: Key, tmp_path: Path) -> None:
    more = ORDER.replace(b"value = 1", b"value = 8")
    refused = sealed(tmp_path / "refused", ordered(more, more), key)
    result = checked(refused, Expectations(order=more))
    assert (result.exit_code, result.verdict) == (1, "REJECTED")
    files = files_of(ordered(more, more), key)
    accepted = files_of(ordered(ORDER, more), key)[bundle.VERDICT]
    forged = seal(tmp_path / "forged", {**files, bundle.VERDICT: accepted}, key)
    assert failed(checked(forged, Expectations())) == ["verdict"]


def test_order_is_the_one_that_the_run_was_planned_with(key: Key, tmp_path: Path) -> None:
    more = ORDER.replace(b"value = 1", b"value = 8")
    exchanged = sealed(tmp_path / "exchanged", ordered(ORDER, more), key)
    assert "conduct" in failed(checked(exchanged, Expectations()))
    missing = replace(ordered(ORDER, ORDER), others={})
    assert "conduct" in failed(checked(sealed(tmp_path / "missing", missing, key), Expectations()))
    added = replace(healthy(), others={bundle.ORDER: ORDER})
    assert "conduct" in failed(checked(sealed(tmp_path / "added", added, key), Expectations()))


# ------------------------------------------------------------------ not a bundle


def test_what_is_no_bundle_is_one_sentence(tmp_path: Path, sound: Path) -> None:
    with pytest.raises(UsageError, match="nothing at"):
        verify(tmp_path / "nowhere")
    for name, data in {"empty.pdf": b"", "notes.txt": b"ACCEPTED"}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(EvidenceError, match="neither"):
            verify(tmp_path / name)
    for name, data in {"page.html": b"<html>", "x.zip": b"PK\x03\x04" + bytes(99)}.items():
        (tmp_path / name).write_bytes(data)
        assert failed(checked(tmp_path / name)) == ["files"]
    (tmp_path / "x.json").write_bytes(b"{}")
    assert failed(checked(tmp_path / "x.json")) == ["signer"]


def test_zip_gives_its_verdict_again_and_html_is_not_compared(sound: Path, tmp_path: Path) -> None:
    result = checked(sound / bundle.HTML)
    assert (result.kind, result.exit_code, result.verdict) == ("html", 3, None)
    assert result.not_compared[0].startswith("the words of the page")
    assert status(result)["report"] == status(result)["pages"] == "not_done"
    for top in (".", sound.name):
        base = sound if top == "." else sound.parent
        path = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", base, top))
        result = checked(path)
        assert (result.kind, result.exit_code, result.verdict) == ("zip", 0, "ACCEPTED")
        assert set(status(result).values()) == {"pass"}


def test_statement_alone_names_its_signer_and_shows_nothing(tmp_path: Path) -> None:
    key_file, certificate = keys.create_key("Ravel Labs", tmp_path / "keys")
    folder = sealed(tmp_path / "run", healthy(), keys.load_key(key_file, certificate))
    alone = folder / bundle.STATEMENT
    result = verify(alone, Terms(trusted=[certificate.read_bytes()]))
    assert (result.kind, result.exit_code, result.verdict) == ("dsse", 3, None)
    assert "shows nothing" in result.checks[4].sentence
    assert failed(checked(alone)) == ["signer"]


def test_empty_folder_and_garbage_are_exit_4(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = checked(tmp_path / "empty")
    assert failed(result) == ["files"]
    assert {word for name, word in status(result).items() if name != "files"} == {"not_done"}
    (tmp_path / "garbage.pdf").write_bytes(b"%PDF-1.7\n" + b"garbage " * 99)
    assert failed(checked(tmp_path / "garbage.pdf")) == ["files"]


# ------------------------------------------------------------------ comparison of figures


@pytest.mark.parametrize(
    ("left", "right", "where"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-12}, None),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-8]}, "a[1]"),
        ({"a": "nan"}, {"a": "nan"}, None),
        ({"a": 1}, {"a": True}, "a"),
        ({"a": 1.0}, {"a": None}, "a"),
        ({"a": {"b": "pass"}}, {"a": {"b": "fail"}}, "a.b"),
        ({"a": 1}, {"b": 1}, ""),
        ([1], [1, 2], ""),
        ({"a": 0.0}, {"a": 1e-300}, "a"),
    ],
)
def test_words_are_compared_exactly_and_figures_to_a_billionth(
    left: object, right: object, where: str | None
) -> None:
    assert difference(left, right) == where


def test_verdict_with_a_figure_off_by_more_is_found(key: Key, tmp_path: Path) -> None:
    files = files_of(healthy(), key)
    verdict = from_json(VerdictRecord, files[bundle.VERDICT], name="verdict.json")
    case = verdict.cases[0]
    for factor, expected in ((1 + 1e-13, []), (1 + 1e-8, ["verdict"])):
        estimate = replace(case.estimates[0], value=case.estimates[0].value * factor)
        changed = replace(case, estimates=(estimate, *case.estimates[1:]))
        reported = replace(verdict, cases=(changed, *verdict.cases[1:]))
        folder = seal(tmp_path / str(factor), {**files, bundle.VERDICT: to_json(reported)}, key)
        assert failed(checked(folder)) == expected


def test_verification_is_one_json_document(sound: Path) -> None:
    document = json.loads(to_json(checked(sound)))
    assert document["verdict"] == "ACCEPTED"
    assert len(document["checks"]) == 13
