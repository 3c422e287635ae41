"""A disputed launch made again: what is repeated, what is laid side by side, what is refused."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support import bundles as whole
from support.builders import PROTOCOL, a_case, a_plan, bare_lines, checked, ended, healthy_events
from support.bundles import Draft, analysed, files_of
from support.program import ROOT, answered

from appliance.cli.progress import Silent
from appliance.errors import EvidenceError, UsageError
from appliance.records.journal import Artifact, Environment, Event, LaunchEnded, LaunchStarted
from appliance.records.json import from_json, sha256, to_json
from appliance.records.request import Answer, CaseRequest, Refused
from appliance.records.system import Fact
from appliance.records.workload import Resolved
from appliance.runner import describing
from appliance.signing import keys
from appliance.storage import bundle
from appliance.verbs.rerun import Request, rerun
from appliance.verbs.rerun_diff import (
    Rerun,
    check_pairs,
    disagreements,
    inputs,
    launch_differences,
    launch_evidence,
    outcome_pair,
    sentences,
)

KEY = keys.development_key()
GEMM = "gemm@cpu:0"


# ------------------------------------------------------------------ what a journal tells


def lines_of(change: Callable[[list[Event]], Sequence[Event]] = list) -> list[object]:
    return list(bare_lines(change(healthy_events(a_plan()))))


def test_the_evidence_of_a_launch_has_its_worst_check_of_each_name() -> None:
    def worse(events: list[Event]) -> list[Event]:
        place = next(
            place
            for place, event in enumerate(events)
            if isinstance(event, LaunchEnded) and event.launch == f"{GEMM}/2"
        )
        more = [checked(f"{GEMM}/2", "first", error=error) for error in (math.nan, 0.0)]
        return [*events[:place], *more, *events[place:]]

    result = launch_evidence(lines_of(worse), f"{GEMM}/2")  # type: ignore[arg-type]
    assert result is not None
    assert (result.mode, result.ended.outcome, result.beside) == ("fresh", "completed", 0)
    phases = {phase: check for (phase, _), check in result.checks.items()}
    assert set(phases) == {"first", "last"}
    assert math.isnan(phases["first"].error)
    assert phases["last"].is_within


def test_of_a_launch_made_again_only_the_last_time_counts() -> None:
    def again(events: list[Event]) -> list[Event]:
        own = [event for event in events if getattr(event, "launch", "") == f"{GEMM}/0"]
        first = [
            replace(event, sha256="b" * 64) if isinstance(event, Artifact) else event
            for event in own
            if not isinstance(event, LaunchEnded)
        ]
        return [*first, ended(f"{GEMM}/0", "interrupted", ""), *events]

    result = launch_evidence(lines_of(again), f"{GEMM}/0")  # type: ignore[arg-type]
    assert result is not None
    assert result.ended.outcome == "completed"
    assert result.artifacts == {"reference.npy": "a" * 64}


def test_a_launch_without_a_process_has_no_evidence() -> None:
    def left_out(events: list[Event]) -> list[Event]:
        others = [event for event in events if getattr(event, "launch", "") != f"{GEMM}/4"]
        return [*others, ended(f"{GEMM}/4", "not_run", "decided")]

    assert launch_evidence(lines_of(left_out), f"{GEMM}/4") is None  # type: ignore[arg-type]
    assert launch_evidence(lines_of(), "bert@cpu:0/1") is None  # type: ignore[arg-type]


def test_launches_beside_it_are_counted() -> None:
    events: list[Event] = [
        LaunchStarted(launch="a/1", mode="fresh"),
        LaunchStarted(launch="b/1", mode="fresh"),
        LaunchStarted(launch="c/1", mode="fresh"),
        ended("c/1"),
        ended("a/1"),
        LaunchStarted(launch="d/1", mode="fresh"),
        ended("d/1"),
        ended("b/1"),
    ]
    lines = bare_lines(events)
    counts = {
        name: evidence.beside
        for name in "abcd"
        if (evidence := launch_evidence(lines, f"{name}/1"))
    }
    assert counts == {"a": 2, "b": 3, "c": 2, "d": 1}


@pytest.mark.parametrize(
    ("then", "now", "is_same"),
    [(0.5, 0.9, True), (1.5, 2.0, True), (0.5, 1.5, False), (1.5, 0.5, False), (0.5, None, False)],
)
def test_checks_agree_on_the_same_side_of_their_bound(
    then: float, now: float | None, *, is_same: bool
) -> None:
    def one(error: float | None) -> list[Event]:
        middle = [] if error is None else [checked("a/1", "first", error=error, bound=1.0)]
        return [LaunchStarted(launch="a/1", mode="fresh"), *middle, ended("a/1")]

    first, second = (launch_evidence(bare_lines(one(error)), "a/1") for error in (then, now))
    assert first is not None
    assert second is not None
    (pair,) = check_pairs(1, first, second)
    assert pair.is_same is is_same
    against = list(disagreements([outcome_pair(1, first, second)], [pair]))
    assert bool(against) is not is_same


def test_a_check_that_only_now_was_made_must_be_within() -> None:
    def one(*events: Event) -> list[Event]:
        return [LaunchStarted(launch="a/1", mode="fresh"), *events, ended("a/1")]

    first = launch_evidence(bare_lines(one()), "a/1")
    for error, is_same in ((0.5, True), (2.0, False)):
        last = checked("a/1", "last", error=error, bound=1.0)
        second = launch_evidence(bare_lines(one(last)), "a/1")
        assert first is not None
        assert second is not None
        (pair,) = check_pairs(1, first, second)
        assert pair.is_same is is_same


def test_inputs_and_ways_of_launching_are_compared() -> None:
    pairs = inputs({"x": "1", "y": "2"}, {"x": "1", "y": "3", "z": "4"})
    assert [(pair.name, pair.is_same) for pair in pairs] == [
        ("x", True),
        ("y", False),
        ("z", False),
    ]
    facts = ({"torch": Fact(value="2.13"), "n": Fact(value=2)}, {"torch": Fact(value="2.14")})
    first, second = (
        launch_evidence(
            bare_lines(
                [
                    LaunchStarted(launch="a/1", mode=mode),
                    Environment(launch="a/1", rank=0, facts=known),
                    ended("a/1"),
                ]
            ),
            "a/1",
        )
        for mode, known in zip(("forked", "fresh"), facts, strict=True)  # type: ignore[arg-type]
    )
    assert first is not None
    assert list(launch_differences(first, second)) == [
        "the launch was forked and is fresh",
        "in the launch, n was 2 and is not reported",
        "in the launch, torch was 2.13 and is 2.14",
    ]


# ------------------------------------------------------------------ launches made again


@pytest.fixture(scope="module")
def answer() -> Answer:
    """What the worker really says of the small product."""
    return describing.describe((CaseRequest(workload="gemm", small=True, parameters={}),))


@pytest.fixture(scope="module")
def known(answer: Answer) -> Draft:
    """A run of the real small product as its plan would have it, with events made up."""
    described = next(item for item in answer.descriptions if item.name == "gemm")
    (resolved,) = answer.resolved
    assert isinstance(resolved, Resolved)
    case = replace(
        a_case(parameters=resolved.parameters),
        version=described.version,
        memory_limit_bytes=2**33,
        checked_launch=1,
    )
    plan = a_plan(case, protocol=replace(PROTOCOL, interim_analyses=(2, 5)))
    plan = replace(plan, digests=whole.healthy().plan.digests)
    return Draft(plan=plan, events=tuple(analysed(plan, healthy_events(plan))))


def written(folder: Path, made: Draft) -> Path:
    """The run in a folder, neither rendered nor signed."""
    files = files_of(made, KEY)
    for name in bundle.RUN_FILES:
        bundle.write(folder / name, files[name])
    return folder


def requested(folder: Path, tmp_path: Path, case: str = "gemm", launch: int = 3) -> Request:
    return Request(source=folder, case=case, launch=launch, out=tmp_path / "out")


@pytest.mark.slow
def test_the_launch_is_made_again_with_its_seed_and_shown_beside_what_it_was(
    known: Draft, tmp_path: Path
) -> None:
    folder = written(tmp_path / "run", known)
    result = rerun(requested(folder, tmp_path), Silent())
    again = bundle.read(Path(result.folder), complete=False)
    then = known.plan
    assert again.plan.rerun_of == result.rerun_of == f"{then.run_id}/{GEMM}/3"
    assert (again.plan.seed, again.plan.protocol) == (then.seed, then.protocol)
    assert [launch.number for launch in again.plan.launches] == [0, 3]
    assert again.plan.cases[0].parameters == then.cases[0].parameters
    assert again.files["criteria.toml"] == whole.CRITERIA
    assert again.verdict is not None
    assert again.verdict.verdict == "INCONCLUSIVE"
    assert "rerun" in {ruling.reason for ruling in again.verdict.rulings}
    assert [(one.launch, one.is_same) for one in result.outcomes] == [(0, True), (3, True)]
    # its made-up checks have names that the real ones have not
    assert not result.agrees
    assert any(
        "was within its bound then and is not made now" in one for one in result.disagreements
    )
    assert any(
        sentence.startswith("cpu:0: model was A processor") for sentence in result.differences
    )
    step = next(time for time in result.times if time.name == "step")
    assert step.then_seconds == pytest.approx(0.01, rel=0.01)
    assert step.now_seconds is not None
    assert step.ratio == pytest.approx(step.now_seconds / 0.01, rel=0.01)
    assert from_json(Rerun, to_json(result), name="the answer") == result
    assert sentences(result)[-1].startswith("DOES NOT AGREE")
    assert not (tmp_path / "out" / ".work").exists()


def test_what_the_run_does_not_have_is_refused(known: Draft, tmp_path: Path) -> None:
    folder = written(tmp_path / "run", known)
    with pytest.raises(UsageError, match=r'has no case "gem" \(did you mean'):
        rerun(requested(folder, tmp_path, case="gem"), Silent())
    with pytest.raises(UsageError, match="name one of 0 to 5"):
        rerun(requested(folder, tmp_path, launch=6), Silent())
    with pytest.raises(UsageError, match="is a file"):
        rerun(requested(folder / "plan.json", tmp_path), Silent())
    with pytest.raises(UsageError, match="there is no folder"):
        rerun(requested(tmp_path / "nowhere", tmp_path), Silent())
    assert list((tmp_path / "out").iterdir()) == []


def test_a_launch_that_was_not_made_is_refused(known: Draft, tmp_path: Path) -> None:
    unsupported = replace(known.plan.cases[0], unsupported="cpu:0 has no bfloat16")
    plan = replace(known.plan, cases=(unsupported,))
    events: list[Event] = [known.events[0], known.events[1]]
    events += [ended(launch.id, "unsupported", "cpu:0 has no bfloat16") for launch in plan.launches]
    events.append(known.events[-1])
    folder = written(tmp_path / "run", Draft(plan=plan, events=tuple(events)))
    with pytest.raises(UsageError, match="planned and not made"):
        rerun(requested(folder, tmp_path), Silent())


def test_a_run_that_is_not_sound_is_refused(known: Draft, tmp_path: Path) -> None:
    folder = written(tmp_path / "run", known)
    journal = folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"step":', b'"step" :', 1))
    with pytest.raises(EvidenceError):
        rerun(requested(folder, tmp_path), Silent())
    short = replace(known, events=known.events[:-1])
    with pytest.raises(EvidenceError, match="did not end"):
        rerun(requested(written(tmp_path / "short", short), tmp_path), Silent())


@pytest.mark.parametrize(
    ("change", "output"),
    [
        ({"workload": "gemn"}, 'no workload "gemn"'),
        ({"version": 77}, "was version 77 then"),
        ({"parameters": {"unknown": 1}}, "has other parameters here"),
    ],
)
def test_a_workload_that_is_another_here_is_refused(
    known: Draft,
    answer: Answer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    change: dict[str, object],
    output: str,
) -> None:
    monkeypatch.setattr(describing, "describe", lambda _: answer)
    case = replace(known.plan.cases[0], **change)  # type: ignore[arg-type]
    folder = written(tmp_path / "run", replace(known, plan=replace(known.plan, cases=(case,))))
    with pytest.raises(UsageError, match=output):
        rerun(requested(folder, tmp_path), Silent())
    assert list((tmp_path / "out").iterdir()) == []


def test_a_case_that_the_worker_refuses_or_a_device_that_is_gone_is_refused(
    known: Draft, answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = replace(answer, resolved=(Refused(error="k must be positive"),))
    monkeypatch.setattr(describing, "describe", lambda _: refused)
    folder = written(tmp_path / "run", known)
    with pytest.raises(UsageError, match="cannot be made here: k must be positive"):
        rerun(requested(folder, tmp_path), Silent())
    monkeypatch.setattr(describing, "describe", lambda _: answer)
    device = replace(whole.SYSTEM.identity.devices[0], id="cpu:7")
    system = replace(whole.SYSTEM, identity=replace(whole.SYSTEM.identity, devices=(device,)))
    digests = {**known.plan.digests, "identity": sha256(to_json(system.identity))}
    plan = a_plan(
        replace(known.plan.cases[0], id="gemm@cpu:7", device="cpu:7"), protocol=known.plan.protocol
    )
    plan = replace(plan, digests=digests)
    events = tuple(analysed(plan, healthy_events(plan)))
    made = Draft(plan=plan, events=events, others={bundle.SYSTEM: to_json(system)})
    with pytest.raises(UsageError, match="this machine has no device cpu:7: it has cpu:0"):
        rerun(requested(written(tmp_path / "other", made), tmp_path), Silent())


# ------------------------------------------------------------------ as a person does it


@pytest.mark.slow
def test_a_real_launch_agrees_with_itself_to_the_bit(tmp_path: Path) -> None:
    suite = str(ROOT / "tests" / "suites" / "tiny.toml")
    code, stdout, stderr = answered("accept", "--suite", suite, "--out", str(tmp_path), "--json")
    assert code == 0, stderr
    folder = json.loads(stdout)["folder"]
    words = ("run", "--from", folder, "--case", "gemm", "--launch", "2", "--out")
    code, stdout, stderr = answered(*words, str(tmp_path / "again"), "--json")
    assert code == 0, stderr
    result = json.loads(stdout)
    assert result["agrees"]
    assert result["differences"] == []
    checks = [pair for pair in result["checks"] if pair["then"] is not None]
    assert len(checks) >= 4
    assert all(pair["then"] == pair["now"] for pair in checks)  # the same inputs and arithmetic
    assert all(pair["is_same"] for pair in result["inputs"])
    code, _, stderr = answered("run", "--from", folder, "--case", "gemm")
    assert (code, "go together" in stderr) == (2, True)
