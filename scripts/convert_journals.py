"""Converts journals of bench 0.4.0 on a real device into tests/recorded/, for today's judge.

    scripts/convert_journals.py FOLDER --facts FILE [--out FOLDER]

FOLDER holds run-NAME.jsonl.gz (one line of a journal a line; serials, paths and the digests of
libraries were taken out, so no chain closes) and system.json, FILE is the workload_facts.json of
that version. For each run it writes NAME/journal.jsonl.xz, chained anew, NAME/plan.json, and
NAME/converted.json with what was changed; and one system.json for all.

No plan was stored, so it is rebuilt: what the journal shows (launches, their order, lengths of
parts, interim analyses) is taken from there, parameters from the suite by the facts of the version
that ran, and what the journal and the suite do not say is set to the least that fits and named in
converted.json. What one step does (its operations, bytes and units) is counted by today's code. No
event is added: what was not recorded stays out. The plan says `converted_from`, so no verb takes
it for evidence.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.evidence.software_fault import is_lack_of_software  # noqa: E402 - after the path
from appliance.planning import plan as planning  # noqa: E402 - the same
from appliance.planning.seeds import derive_seed  # noqa: E402 - the same
from appliance.records.journal import (  # noqa: E402 - the same
    Calibrated,
    Checked,
    Event,
    InterimAnalysis,
    LaunchEnded,
    LaunchStarted,
    Line,
    RunStarted,
    Started,
)
from appliance.records.json import adapter, sha256, to_json  # noqa: E402 - the same
from appliance.records.plan import Case, Plan  # noqa: E402 - the same
from appliance.records.request import Question  # noqa: E402 - the same
from appliance.records.suite import Protocol, Suite, SuiteCase  # noqa: E402 - the same
from appliance.records.system import System  # noqa: E402 - the same
from appliance.storage import criteria_file, suite_file  # noqa: E402 - the same
from appliance.worker.describe import describe  # noqa: E402 - the same

VERSION_THEN = "0.4.0"
OUT = ROOT / "tests" / "recorded" / "h100"
CRITERIA = "accelerator"
RENAMED_EVENTS = {"looked": "interim_analysis"}
RENAMED_PARAMETERS = {"rate": "learning_rate"}
"""By their names in 0.4.0."""
ONE_SERVER = {"device": "cuda:0", "framework": "torch", "library_mode": "default"}
"""What 0.4.0 had one fork server for; it imported what torch's workloads and JAX's needed."""
AMPLE_SECONDS = 1e6
Data = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Of one recorded run: the suite whose cases it ran, and what was changed in them there."""

    suite: str
    is_small: bool | None = None
    parameters: Mapping[str, Mapping[str, Any]] | None = None


SOURCES: Mapping[str, Source] = {
    "smoke": Source(suite="smoke"),
    "node": Source(suite="node"),
    "node-2": Source(suite="node"),
    "shared-device": Source(suite="node"),
    "burn-in": Source(suite="burn-in", is_small=False),
    "small-jax-first": Source(suite="smoke-all", is_small=True),
}


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What one journal shows: its events with their times (UTC, ns), in their order."""

    name: str
    events: tuple[Event, ...]
    times: tuple[tuple[str, int], ...]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def launches(self) -> list[str]:
        """Launches that were started, in their order."""
        return [event.launch for event in self.of(LaunchStarted)]

    @property
    def cases(self) -> list[str]:
        """Names of the cases without their device, in the order of their first launches."""
        return list(dict.fromkeys(name.partition("@")[0] for name in self.launches))

    @property
    def most_launches(self) -> int:
        """Timed launches of a case: as many as were made, one at least, as every plan has."""
        return max(1, *(int(name.rpartition("/")[2]) for name in self.launches))


def read(folder: Path, name: str) -> Recorded:
    """The journal of a run, in today's names."""
    with gzip.open(folder / f"run-{name}.jsonl.gz", "rt") as file:
        lines = [json.loads(line) for line in file]
    events = tuple(modern(line["event"]) for line in lines)
    return Recorded(
        name=name,
        events=tuple(as_software(event, events) for event in events),
        times=tuple((line["utc"], int(line["monotonic_ns"])) for line in lines),
    )


def modern(event: Data) -> Event:
    """An event of 0.4.0 by today's names; what it does not hold is left to today's defaults."""
    kind = RENAMED_EVENTS.get(event["kind"], event["kind"])
    later = ONE_SERVER if kind == "server_probed" else {}
    result: Event = adapter(Event).validate_json(json.dumps({**later, **event, "kind": kind}))
    return result


def as_software(event: Event, events: Sequence[Event]) -> Event:
    """A crash that today's runner calls a lack of software; every other event as it is.

    The journal names the exception's own class, and no first step stands in it: how far before
    that the launch had come is not known, so the last stage that it can have reached is named.
    """
    if not isinstance(event, LaunchEnded) or event.outcome != "crashed":
        return event
    case = event.launch.rpartition("/")[0]
    started = {one.launch.rpartition("/")[0] for one in events if isinstance(one, Started)}
    if case in started:
        return event
    early = replace(event, exceptions=(event.reason,), stage="first_step")
    is_lack = is_lack_of_software(early, has_stepped=False)
    return replace(early, outcome="software" if is_lack else "crashed")


# ------------------------------------------------------------------ the plan


def rebuilt_plan(run: Recorded, source: Source, system: System, facts: Mapping[str, Any]) -> Plan:
    """The plan of a run, as far as its journal and the suite tell it."""
    suite, data = _suite(run, source, facts)
    criteria, criteria_data = criteria_file.load_criteria(CRITERIA)
    seed = _stand_in_seed(run)
    answer = describe(Question(requests=planning.requests(suite, system.identity.devices, seed)))
    features = {need for one in answer.descriptions for need in one.needs}
    features |= {need for case in suite.case for need in case.needs}
    available = {name for one in answer.descriptions for name in one.data}
    started: RunStarted = run.of(RunStarted)[0]
    inputs = planning.PlanInputs(
        suite=suite,
        answer=answer,
        places=[
            planning.Place(
                device=device,
                features=frozenset(features),
                available_datasets=frozenset(available),
            )
            for device in system.identity.devices
        ],
        criteria=criteria,
        digests={
            "suite": sha256(data),
            "criteria": sha256(criteria_data),
            "identity": sha256(to_json(system.identity)),
        },
        seed=seed,
        run_id=started.run_id,
        created_utc=run.times[0][0],
        bench_version=VERSION_THEN,
    )
    return _as_made(planning.make_plan(inputs), run, facts)


def _as_made(plan: Plan, run: Recorded, facts: Mapping[str, Any]) -> Plan:
    """The plan with the versions, the order and the checked launches of the run that was made."""
    made = run.launches
    rest = [launch.id for launch in plan.launches if launch.id not in made]
    return replace(
        plan,
        cases=tuple(_case_as_made(case, run, facts) for case in plan.cases),
        groups=tuple((name,) for name in (*made, *rest)),
        converted_from=VERSION_THEN,
    )


def _case_as_made(case: Case, run: Recorded, facts: Mapping[str, Any]) -> Case:
    checked = [
        int(event.launch.rpartition("/")[2])
        for event in run.of(Checked)
        if event.phase == "last" and event.launch.rpartition("/")[0] == case.id
    ]
    number = min(checked, default=case.checked_launch)
    return replace(
        case,
        version=facts[case.workload]["version"],
        checked_launch=None if case.checked_launch is None else number,
    )


def _stand_in_seed(run: Recorded) -> str:
    """A seed that is not the run's: nothing in the journal tells it."""
    return f"{derive_seed('00' * 32, f'stand-in for {run.name}'):064x}"


def _suite(run: Recorded, source: Source, facts: Mapping[str, Any]) -> tuple[Suite, bytes]:
    """The suite with the cases of the run, at the parameters that they had, and its bytes."""
    suite, data = suite_file.load_suite(source.suite)
    by_id = {case.id: case for case in suite.case}
    cases = tuple(_suite_case(by_id[name], run, source, facts) for name in run.cases)
    return (
        replace(
            suite,
            case=cases,
            variants=False,
            protocol=_protocol(suite.protocol, run),
            time_limit_seconds=AMPLE_SECONDS,
        ),
        data,
    )


def _suite_case(
    case: SuiteCase, run: Recorded, source: Source, facts: Mapping[str, Any]
) -> SuiteCase:
    """One case with all parameters that the version which ran had, by today's names."""
    is_small = case.small if source.is_small is None else source.is_small
    one = facts[case.workload]
    own = case.parameters if source.is_small is None else {}
    own = {**own, **(source.parameters or {}).get(case.id, {})}
    parameters = {**one["parameters"], **(one["small"] if is_small else {})}
    parameters = {RENAMED_PARAMETERS.get(key, key): value for key, value in parameters.items()}
    return replace(
        case,
        small=is_small,
        parameters={**parameters, **own},
        memory=(),
        launches=run.most_launches,
        variants=False,
    )


def _protocol(protocol: Protocol, run: Recorded) -> Protocol:
    """The suite's protocol with what the journal shows to have been another."""
    is_forked = any(event.kind == "server_probed" for event in run.events)
    spans = [sum(event.wall_ns) * 1e-9 for event in run.of(Calibrated)]
    analyses = {event.launches for event in run.of(InterimAnalysis)} or {run.most_launches}
    return replace(
        protocol,
        mode="forked" if is_forked else "fresh",
        calibration_seconds=one_digit(min(spans)),
        interim_analyses=tuple(sorted(analyses)),
        repeats=0,  # it had no deterministic phase
    )


def one_digit(seconds: float) -> float:
    """A length rounded down to its first digit, as a protocol would ask for it."""
    unit = 10.0 ** math.floor(math.log10(seconds))
    return float(f"{math.floor(seconds / unit) * unit:.1g}")


# ------------------------------------------------------------------ what is written


def chained(run: Recorded, plan: Plan, system: System) -> bytes:
    """The journal's lines in canonical form, each with the digest of the one before."""
    prev, texts = sha256(to_json(plan)), []
    digest = sha256(to_json(system))
    for seq, (event, (utc, monotonic_ns)) in enumerate(zip(run.events, run.times, strict=True)):
        if isinstance(event, RunStarted):
            event = replace(event, plan=prev, system=digest)  # noqa: PLW2901 - the same event
        line = Line(seq=seq, utc=utc, monotonic_ns=monotonic_ns, prev=prev, event=event)
        texts.append(to_json(line))
        prev = sha256(texts[-1])
    return b"".join(text + b"\n" for text in texts)


def changes(run: Recorded, plan: Plan, source: Source) -> list[str]:
    """What was changed or set, one sentence each."""
    protocol = plan.protocol
    not_made = len(plan.launches) - len(run.launches)
    rebuilt = (
        f"plan.json is rebuilt: cases and parameters of the suite {source.suite} as version "
        f"{VERSION_THEN} had them, launches in the order in which they were made."
    )
    sentences = [
        "Serials, addresses and paths had been taken out of the journal and of system.json.",
        "The digests of libraries had been taken out of the journal; nothing stands for them.",
        "Lines are numbered and chained anew; their times are those of the run.",
        "Looks are called interim analyses; what they say is the judge's answer of then.",
        rebuilt,
        f"Clocks were compared over {protocol.calibration_seconds:g} s at least, by the journal.",
        "The one fork server of then is called that of torch in the library's default mode.",
        "The work of a step is counted by today's code.",
        "The seed is a stand-in: order, inputs and drawn checks do not follow from it.",
        "The criteria, the figures of vendors and the baselines (none) are today's.",
        "system.json was read before one of the runs, and stands for all of them.",
    ]
    if source.is_small is not None:
        sentences.append(
            "The suite was one of its own: its parameters are taken from the note of who ran it."
        )
    lacks = [event for event in run.of(LaunchEnded) if event.outcome == "software"]
    sentences += [
        f"Launch {event.launch} crashed by {event.reason} before its first step: it ends as "
        "today's runner would have said, and its stage is the last that it can have reached."
        for event in lacks
    ]
    if not_made:
        sentences.append(
            f"The run was stopped: of {not_made} launches nothing is recorded, and how many more "
            "were planned is not known."
        )
    return sentences


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def convert(folder: Path, out: Path, facts: Mapping[str, Any]) -> None:
    """Write every run of the folder."""
    text = (folder / "system.json").read_text()
    system: System = adapter(System).validate_json(json.dumps(json.loads(text)))
    write(out / "system.json", to_json(system))
    for name, source in SOURCES.items():
        run = read(folder, name)
        plan = rebuilt_plan(run, source, system, facts)
        marks = {"converted_from": VERSION_THEN, "changed": changes(run, plan, source)}
        write(out / name / "plan.json", to_json(plan))
        write(out / name / "converted.json", (json.dumps(marks, indent=1) + "\n").encode())
        journal = lzma.compress(chained(run, plan, system), preset=9)
        write(out / name / "journal.jsonl.xz", journal)
        print(f"{name}: {len(run.events)} lines, {len(journal)} bytes", file=sys.stderr)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="convert journals of another version for tests")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--facts", type=Path, required=True, help="its workload_facts.json")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(words)
    facts = {one["name"]: one for one in json.loads(given.facts.read_text())["workload"]}
    convert(given.folder, given.out, facts)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
