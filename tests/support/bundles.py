"""Whole signed bundles for tests: a synthetic run, judged by the real judge and really signed.

A test takes a draft, breaks one thing in it, and seals it: so it can forge what a dishonest
signer could, down to a journal that is chained and signed anew.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from support.builders import (
    FUNCTIONAL,
    PROTOCOL,
    a_case,
    a_plan,
    bare_lines,
    chain,
    ended,
    healthy_events,
    journal_bytes,
)
from weasyprint import HTML, Attachment

from appliance.errors import EvidenceError
from appliance.judging.verdict import interim_analysis, judge
from appliance.planning.plan import case_analyses, checked_launch, launch_groups
from appliance.records.baseline import Baselines, Peaks
from appliance.records.journal import (
    Checked,
    Event,
    InterimAnalysis,
    LaunchEnded,
    LaunchStarted,
    RunStarted,
)
from appliance.records.json import from_json, sha256, to_json
from appliance.records.plan import Case, Plan
from appliance.records.qualified import Qualified
from appliance.records.system import Conditions, Device, Fact, Identity, System
from appliance.signing import html_attachments, keys
from appliance.signing.keys import Key
from appliance.storage import bundle, order_file

MADE = datetime(2026, 11, 21, 12, tzinfo=UTC)
CASE = "gemm@cpu:0"
BOUND = 1e-5
CRITERIA = b"""schema = "bench/criteria/1"
name = "functional"
version = 1
summary = "what every run must show"
[[criterion]]
id = "completion"
kind = "completion"
title = "Every launch completed"
[[criterion]]
id = "integrity"
kind = "integrity"
title = "Clocks agree, nothing was injected"
[[criterion]]
id = "correctness"
kind = "numeric"
title = "Every check within its bound"
[[criterion]]
id = "repeatability"
kind = "determinism"
title = "Same inputs, same output"
"""
SYSTEM = System(
    identity=Identity(
        devices=(
            Device(
                id="cpu:0",
                vendor="cpu",
                index=0,
                model="A processor",
                serial=None,
                memory_bytes=2**34,
                facts={},
            ),
        ),
        host={},
        memory_modules=(),
        disks=(),
        interfaces=(),
        software={"python": Fact(value="3.11.7")},
    ),
    conditions=Conditions(utc="2026-11-21T12:00:00Z", facts={}, foreign_processes=()),
)
NOTHING_KNOWN: dict[str, Any] = {
    "baselines": Baselines(baseline=()),
    "peaks": Peaks(peak=()),
    "qualified": Qualified(record=()),
    "system": SYSTEM,
}


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A run that is not judged yet: its plan, what happened, and its other files."""

    plan: Plan
    events: tuple[Event, ...]
    others: Mapping[str, bytes] = field(default_factory=dict)
    day: int = 21

    def with_events(self, change: Callable[[list[Event]], Sequence[Event]]) -> "Draft":
        return replace(self, events=tuple(change(list(self.events))))


def healthy(*, repeats: int = 0, sessions: int = 1) -> Draft:
    """Three cases of five launches (one of them untimed), analysed after two and after five.

    With more sessions two launches are made in each of those before.
    """
    protocol = replace(PROTOCOL, interim_analyses=(2, 5), repeats=repeats)
    launches = 2 * (sessions - 1) + 5
    cases = (
        a_case(launches=launches),
        a_case("bert", launches=launches),
        a_case("exact", is_timed=False),
    )
    plan = as_drawn(a_plan(*cases, protocol=protocol, sessions=sessions))
    plan = replace(
        plan,
        digests={
            "suite": "5" * 64,
            "criteria": sha256(CRITERIA),
            "baselines": sha256(to_json(NOTHING_KNOWN["baselines"])),
            "peaks": sha256(to_json(NOTHING_KNOWN["peaks"])),
            "qualified": sha256(to_json(NOTHING_KNOWN["qualified"])),
            "identity": sha256(to_json(SYSTEM.identity)),
        },
    )
    return Draft(plan=plan, events=tuple(analysed(plan, healthy_events(plan))))


def of_vendor(draft: Draft, vendor: str) -> Draft:
    """The same run, of a device of another vendor."""
    devices = tuple(replace(one, vendor=vendor) for one in SYSTEM.identity.devices)
    system = replace(SYSTEM, identity=replace(SYSTEM.identity, devices=devices))
    digests = {**draft.plan.digests, "identity": sha256(to_json(system.identity))}
    others = {**draft.others, bundle.SYSTEM: to_json(system)}
    return replace(draft, plan=replace(draft.plan, digests=digests), others=others)


def as_drawn(plan: Plan) -> Plan:
    """The plan with the order and the checked launches that its seed draws, as verify wants it."""

    def drawn(case: Case) -> Case:
        name = (case.variant_of or case.id).partition("@")[0]
        number = checked_launch(plan.protocol, name, case.launches, plan.seed, plan.sessions)
        return replace(case, checked_launch=number)

    groups = launch_groups(plan.cases, plan.launches, plan.seed)
    return replace(plan, cases=tuple(map(drawn, plan.cases)), groups=groups)


def rejected(*, repeats: int = 0) -> Draft:
    """The same run, but one check fails, so that the first interim analysis decides its case."""
    draft = healthy(repeats=repeats)

    def spoil(event: Event) -> Event:
        if isinstance(event, Checked) and event.launch == f"{CASE}/1" and event.phase == "last":
            return replace(event, check=replace(event.check, error=2 * BOUND))
        return event

    skipped = {f"{CASE}/{number}" for number in (3, 4, 5)}
    events = [spoil(event) for event in draft.events]
    events = [
        _left_out(event) if of_launches(event, skipped) else event
        for event in events
        if not of_launches(event, skipped) or isinstance(event, LaunchEnded)
    ]
    return replace(draft, events=tuple(analysed(draft.plan, events)))


def crashed() -> Draft:
    """The same run, but the last launch of a case crashed, and left what it said."""
    draft = healthy()
    launch = f"{CASE}/5"
    events = [
        replace(ended(launch, "crashed", "SIGSEGV"), exit_code=-11)
        if isinstance(event, LaunchEnded) and of_launches(event, {launch})
        else event
        for event in draft.events
        if not of_launches(event, {launch}) or isinstance(event, (LaunchStarted, LaunchEnded))
    ]
    said = b"Fatal Python error: Segmentation fault\n"
    logs = {bundle.log_name(launch, "stdout"): b"", bundle.log_name(launch, "stderr"): said}
    return replace(draft, events=tuple(analysed(draft.plan, events)), others=logs)


def of_launches(event: Event, launches: set[str]) -> bool:
    return getattr(event, "launch", "") in launches


def _left_out(event: Event) -> Event:
    assert isinstance(event, LaunchEnded)
    return ended(event.launch, "not_run", "decided")


def analysed(plan: Plan, events: Sequence[Event]) -> list[Event]:
    """The same events with every interim analysis where the runner makes it, by the judge."""
    made: list[Event] = []
    decided: set[str] = set()
    counts = {case.id: case_analyses(plan, case) for case in plan.cases if case.is_timed}
    for event in events:
        if isinstance(event, InterimAnalysis):
            continue
        made.append(event)
        case = event.launch.partition("/")[0] if isinstance(event, LaunchEnded) else ""
        number = event.launch.partition("/")[2] if isinstance(event, LaunchEnded) else ""
        if number in map(str, counts.get(case, ())) and case not in decided:
            is_decided, reason = interim_analysis(
                plan=plan, criteria=FUNCTIONAL, lines=bare_lines(made), case=case, **NOTHING_KNOWN
            )
            made.append(
                InterimAnalysis(
                    case=case, launches=int(number), is_decided=is_decided, reason=reason
                )
            )
            decided |= {case} if is_decided else set()
    return made


# ------------------------------------------------------------------ sealing


def files_of(draft: Draft, key: Key) -> dict[str, bytes]:
    """The data files of a draft as a finished run leaves them, with the judge's verdict."""
    files = {
        bundle.PLAN: to_json(draft.plan),
        bundle.SYSTEM: to_json(SYSTEM),
        bundle.CRITERIA: CRITERIA,
        bundle.BASELINES: to_json(NOTHING_KNOWN["baselines"]),
        bundle.PEAKS: to_json(NOTHING_KNOWN["peaks"]),
        bundle.QUALIFIED: to_json(NOTHING_KNOWN["qualified"]),
        bundle.SIGNER: to_json(keys.signer_record(key, "tester")),
        **draft.others,
    }
    events = [_begun(event, files) for event in draft.events]
    lines = chain(events, sha256(files[bundle.PLAN]), day=draft.day)
    files[bundle.JOURNAL] = journal_bytes(lines)
    order = order_file.read(files[bundle.ORDER], bundle.ORDER) if bundle.ORDER in files else None
    known = {
        **NOTHING_KNOWN,
        "qualified": from_json(Qualified, files[bundle.QUALIFIED], name=bundle.QUALIFIED),
    }
    with suppress(EvidenceError):  # a file that is spoiled is not judged by
        known["system"] = from_json(System, files[bundle.SYSTEM], name=bundle.SYSTEM)
    verdict = judge(plan=draft.plan, criteria=FUNCTIONAL, lines=lines, order=order, **known)
    files.setdefault(bundle.VERDICT, to_json(verdict))
    return files


def _begun(event: Event, files: Mapping[str, bytes]) -> Event:
    if not isinstance(event, RunStarted):
        return event
    plan, system = sha256(files[bundle.PLAN]), sha256(files[bundle.SYSTEM])
    return replace(event, plan=plan, system=system)


def seal(
    folder: Path,
    files: dict[str, bytes],
    key: Key,
    *,
    carried: Callable[[dict[str, bytes]], dict[str, bytes]] = lambda files: files,
    spoiled: Callable[[dict[str, bytes]], dict[str, bytes]] = lambda files: files,
) -> Path:
    """Sign these data files and write the whole bundle; `carried` is what the pages are given.

    `spoiled` changes the files once they are read, to what cannot be read.
    """
    result = bundle.read_files(files, complete=False)
    files = spoiled(dict(files))
    result = replace(result, files=files)
    files[bundle.STATEMENT] = keys.sign_data(result, key)
    inside = carried(dict(files))
    files[bundle.HTML] = html(inside)
    files[bundle.PDF] = keys.sign_pdf(pdf(inside), key)
    pages = (bundle.STATEMENT, *bundle.RENDERINGS)
    subjects = {name: sha256(files[name]) for name in pages}
    files[bundle.REPORT] = keys.sign_report(result, subjects, key)
    for name, data in files.items():
        bundle.write(folder / name, data)
    return folder


def sealed(folder: Path, draft: Draft, key: Key) -> Path:
    """A bundle of this draft, signed with this key."""
    return seal(folder, files_of(draft, key), key)


def html(carried: Mapping[str, bytes]) -> bytes:
    """The least page that carries these files as the report does."""
    links = []
    for name, data in sorted(carried.items()):
        is_it = name == bundle.STATEMENT
        mark = 'id="bench-proof"' if is_it else 'class="bench-data"'
        kind = "application/vnd.dsse.envelope.v1+json" if is_it else "application/octet-stream"
        text = base64.b64encode(data).decode()
        links.append(f'<a {mark} download="{name}" href="data:{kind};base64,{text}">{name}</a>')
    title = "<title>Report</title>"
    return html_attachments.HEAD + "\n".join([title, *links]).encode()


def pdf(carried: Mapping[str, bytes]) -> bytes:
    """The least PDF that carries these files as the report does."""
    attached = [
        Attachment(file_obj=BytesIO(data), name=name, created=MADE, modified=MADE)
        for name, data in sorted(carried.items())
    ]
    made = HTML(string="<title>Report</title><h1>A report</h1>").write_pdf(attachments=attached)
    return bytes(made)
